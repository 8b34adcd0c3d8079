#include "estimator/base/role.h"

namespace plimsoll {

absl::string_view Name(Role role) {
  constexpr std::array<absl::string_view, kRoleCount> kNames = {
      "weight",    "gradient",      "master weight", "optimizer state", "activation", "loss",
      "temporary", "communication", "workspace",     "fragmentation",   "context",    "nccl"};
  return kNames[static_cast<size_t>(role)];
}

absl::string_view Name(Phase phase) {
  constexpr std::array<absl::string_view, kPhaseCount> kNames = {
      "forward", "loss", "backward", "gradient reduction", "optimizer", "end of step"};
  return kNames[static_cast<size_t>(phase)];
}

}  // namespace plimsoll
