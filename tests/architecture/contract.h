// The contract of a schema as text, one promise a line, so that "compatible"
// means that no line is lost.
#ifndef PLIMSOLL_TESTS_ARCHITECTURE_CONTRACT_H_
#define PLIMSOLL_TESTS_ARCHITECTURE_CONTRACT_H_

#include <string>
#include <vector>

#include "tests/testing/schema.h"

namespace plimsoll {

// Each message, field (number, type, presence, oneof, JSON name), enum value
// and method of a schema:
//
//   message plimsoll.v1.Job
//   field plimsoll.v1.Job.model = 1: plimsoll.v1.Model, json model
//   value plimsoll.v1.Verdict.VERDICT_FITS = 1
//   rpc plimsoll.v1.PlannerService.ListGpus(a.Request) returns (a.Response)
std::vector<std::string> ContractOf(const Schema& schema);

// The lines of `lines` that `others` lacks, in order.
std::vector<std::string> Missing(const std::vector<std::string>& lines,
                                 const std::vector<std::string>& others);

// The promises of `before` that `after` does not keep. A field that gains presence keeps
// its own: where it is unset, readers see what they saw.
std::vector<std::string> Lost(const std::vector<std::string>& before,
                              const std::vector<std::string>& after);

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_ARCHITECTURE_CONTRACT_H_
