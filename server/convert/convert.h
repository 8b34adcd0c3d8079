// Between plimsoll.v1 and the estimator's types; a job's own are convert_job.h's.
// Shape only: presence, bounds on a config.json. What values mean is for
// Validate.
#ifndef PLIMSOLL_SERVER_CONVERT_CONVERT_H_
#define PLIMSOLL_SERVER_CONVERT_CONVERT_H_

#include <cstddef>

#include "estimator/answer/estimate.h"
#include "estimator/base/violation.h"
#include "estimator/catalog/catalog.h"
#include "estimator/job/job.h"
#include "plimsoll/v1/planner.pb.h"
#include "server/wire/wire_writer.h"

namespace plimsoll {

// A config.json larger than this, serialized, is refused.
inline constexpr size_t kMaxHfConfigBytes = size_t{64} * 1024;
// Returns what is wrong with the size and the depth of an `hf_config`.
Violations CheckHfConfig(const v1::Model& model);

// Returns false where there are no unknown fields in the request for sure: most
// have none, and to walk all fields takes twice as long as to parse them.
bool MayHaveUnknownFields(const v1::EstimateMemoryRequest& request);

// Returns the job as it was asked for (convert_job.h), and how it is to be judged.
JobSpec FromProto(const v1::EstimateMemoryRequest& request);

// Returns what the answer carries beside its figures.
EstimateOptions OptionsFromProto(const v1::EstimateMemoryRequest& request);

// Writes the fields of an EstimateMemoryResponse.
void Encode(const MemoryEstimate& estimate, WireWriter* to);

// Write what several answers hold, as field `field`.
void Encode(int field, const Gauge& from, WireWriter* to);
void Encode(int field, const Warning& from, WireWriter* to);

// The estimator's enums stand in the order of the API's, which begin with
// UNSPECIFIED = 0; convert tests hold the two together.
template <typename Enum>
int EnumNumber(Enum value) {
  return static_cast<int>(value) + 1;
}

v1::ModelInfo ToProto(const std::string& name, const Transformer& model, const Catalog& catalog);
v1::GpuInfo ToProto(const Gpu& gpu, const Catalog& catalog);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_CONVERT_CONVERT_H_
