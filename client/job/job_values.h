// What each field of a job comes to: what the job says, and what was decided for it.
#ifndef PLIMSOLL_CLIENT_JOB_JOB_VALUES_H_
#define PLIMSOLL_CLIENT_JOB_JOB_VALUES_H_

#include <compare>
#include <map>
#include <string>

#include "plimsoll/v1/comparison.pb.h"

namespace plimsoll {

// A field, by section in the order of the API, then by path.
struct JobField {
  int section = 0;   // its number in the schema
  std::string path;  // below `job`, as "parallelism.zero_stage"

  auto operator<=>(const JobField&) const = default;
};

// Its value as a job file has it; lists have commas.
struct JobValue {
  std::string text;
  bool assumed = false;  // the job leaves it open
};

// Returns every field that has a value: what the job says, but for words such as `auto` that the
// answer resolved; what the answer assumed; and the API's defaults of what a job most likely reads,
// sizes of 1, ZeRO stage 0, no recomputation.
std::map<JobField, JobValue> JobValues(const v1::Job& job,
                                       const v1::EstimateMemoryResponse& answer);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_JOB_JOB_VALUES_H_
