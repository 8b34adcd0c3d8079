// What an operator decided: a policy file, and the rules of one submission in it.
#ifndef PLIMSOLL_SERVER_ADMIT_POLICY_H_
#define PLIMSOLL_SERVER_ADMIT_POLICY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plimsoll/v1/admission.pb.h"
#include "server/wire/status.h"

namespace plimsoll {

// The modes of rules, the stricter the later.
const std::vector<std::string>& AdmissionModes();

// Returns what is wrong with a policy, by paths as "policy.partitions.h100.mode".
Violations CheckPolicy(const v1::AdmissionPolicy& policy);

// Reads and checks a policy, a v1::AdmissionPolicy in YAML or JSON. No file: the
// defaults alone.
//
// Errors: INVALID_ARGUMENT, everything that is wrong, as
//         "policy.partitions.h100.mode: enforced; must be one of off, shadow, warn,
//         enforce", a line each.
absl::StatusOr<v1::AdmissionPolicy> ReadPolicy(const std::string& file);

// Returns the rules that hold for a partition in a namespace, either of which may be
// empty: the namespace's before the partition's before the policy's own. Of several
// partitions with commas, any of which may get the job, those with the strictest mode.
// A list or a map is taken whole. Every field that has a default has a value.
v1::AdmissionRules RulesFor(const v1::AdmissionPolicy& policy, const std::string& partition,
                            const std::string& name_space);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_ADMIT_POLICY_H_
