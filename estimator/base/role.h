// What a piece of memory is for, and when in a step it is looked at.
#ifndef PLIMSOLL_ESTIMATOR_BASE_ROLE_H_
#define PLIMSOLL_ESTIMATOR_BASE_ROLE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace plimsoll {

// The same roles, in the same order, as plimsoll.v1.Role.
enum class Role : uint8_t {
  kWeight,
  kGradient,
  kMasterWeight,
  kOptimizerState,
  kActivation,
  kLoss,
  kTemporary,
  kCommunication,
  kWorkspace,
  kFragmentation,
  kContext,
  kNccl,
};
inline constexpr size_t kRoleCount = 12;

// The same phases, in the same order, as plimsoll.v1.Phase.
enum class Phase : uint8_t {
  kForward,
  kLoss,
  kBackward,
  kGradientReduction,
  kOptimizer,
  kEndOfStep,
};
inline constexpr size_t kPhaseCount = 6;

// The allocator's pools: memory freed in one is not reused in another.
// Source: c10/cuda/CUDACachingAllocator.cpp, get_free_block.
//   kCopyIn           where FSDP1 casts and copies what is gathered then
//   kReferenceGather  where a reference's engine gathers (ZeRO 3)
//   kHostCopy         where offloaded activations come back from the host's memory
enum class Stream : uint8_t {
  kCompute,
  kAllGather,
  kReduceScatter,
  kCopyIn,
  kReferenceGather,
  kHostCopy,
};
inline constexpr size_t kStreamCount = 6;

using RoleBytes = std::array<int64_t, kRoleCount>;

absl::string_view Name(Role role);
absl::string_view Name(Phase phase);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_BASE_ROLE_H_
