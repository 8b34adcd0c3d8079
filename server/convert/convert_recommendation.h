// Between plimsoll.v1's RecommendConfig and the estimator's search, as
// server/convert/convert.h does for estimates.
#ifndef PLIMSOLL_SERVER_CONVERT_CONVERT_RECOMMENDATION_H_
#define PLIMSOLL_SERVER_CONVERT_CONVERT_RECOMMENDATION_H_

#include "estimator/job/job.h"
#include "estimator/search/recommend.h"
#include "plimsoll/v1/planner.pb.h"
#include "server/wire/wire_writer.h"

namespace plimsoll {

// Returns the search as it was asked for: unset stays unset.
RecommendSpec FromProto(const v1::RecommendConfigRequest& request);

// Returns `job` with every field that a search may change as `spec` has it: sequence
// length, batch sizes, recomputation, parallelism and cluster. The rest stays as
// it is, and a section that neither has set stays away.
v1::Job WithKnobsOf(const JobSpec& spec, v1::Job job);

// Writes the fields of a RecommendConfigResponse. The same answer to the same
// request is the same bytes.
void Encode(const Recommendation& recommendation, const v1::RecommendConfigRequest& request,
            WireWriter* to);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_CONVERT_CONVERT_RECOMMENDATION_H_
