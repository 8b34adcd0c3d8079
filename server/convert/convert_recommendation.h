// Between plimsoll.v1's RecommendConfig and the estimator's search, as
// server/convert/convert.h does for estimates.
#ifndef PLIMSOLL_SERVER_CONVERT_CONVERT_RECOMMENDATION_H_
#define PLIMSOLL_SERVER_CONVERT_CONVERT_RECOMMENDATION_H_

#include "estimator/search/recommend.h"
#include "plimsoll/v1/planner.pb.h"
#include "server/wire/wire_writer.h"

namespace plimsoll {

// Returns the search as it was asked for: unset stays unset.
RecommendSpec FromProto(const v1::RecommendConfigRequest& request);

// Writes the fields of a RecommendConfigResponse. The same answer to the same
// request is the same bytes.
void Encode(const Recommendation& recommendation, const v1::RecommendConfigRequest& request,
            WireWriter* to);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_CONVERT_CONVERT_RECOMMENDATION_H_
