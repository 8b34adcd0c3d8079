// What optimizers keep of each parameter, and what their steps make: a row each.
#ifndef PLIMSOLL_ESTIMATOR_CATALOG_OPTIMIZERS_H_
#define PLIMSOLL_ESTIMATOR_CATALOG_OPTIMIZERS_H_

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "estimator/base/dtype.h"

namespace plimsoll {

enum class OptimizerName : uint8_t {
  kSgd,
  kSgdMomentum,
  kRmsprop,
  kAdagrad,
  kAdam,
  kAdamW,
  kLamb,
  kLion,
  kAdafactor,
  kMuon,
  kAdamW8bit,
  kLion8bit,
  kAdEMAMix,
  kAdEMAMix8bit,
  kScheduleFreeAdamW,
  kOnebitAdam,
  kZeroOneAdam,
  kOnebitLamb,
  kGaloreAdamW,
  kApolloAdamW,
};
inline constexpr size_t kOptimizerCount = 20;

enum class OptimizerImplementation : uint8_t { kForLoop, kForeach, kFused };

// Parameters whose states are others than those of the rest.
//   kMatrices  matrices of layers: embeddings, the head and vectors are of the rest
//   kLarge     of 4,096 elements and more
//   kTargets   linear modules' matrices that a job names, which are projected to its rank
enum class Picks : uint8_t { kNone, kMatrices, kLarge, kTargets };

// What a state has a number for.
//   kEach            each element of a parameter
//   kPicked, kRest   of those that the optimizer picks, and of the rest
//   kRowsAndColumns  each row and each column
//   kReplicaShare    each element, of which each replica has a part
//   kProjected       of those that it picks, the longer side times the rank
//   kProjector       and the shorter side times the rank
//   kFactor          the same, a view of the factor that has it: the shorter side squared in fp32
enum class StateBasis : uint8_t {
  kEach,
  kPicked,
  kRest,
  kRowsAndColumns,
  kReplicaShare,
  kProjected,
  kProjector,
  kFactor,
};

struct OptimizerState {
  absl::string_view name;
  StateBasis of = StateBasis::kEach;
  DType dtype = DType::kNone;  // kNone: what the job keeps states in
  int32_t block_size = 1;      // elements that one number is of
  bool flat = false;           // of all parameters it is one tensor
};

// What a step makes for itself, unless it is fused.
struct StepTemporaries {
  int8_t loop_copies = 2;           // of the largest parameter, one after the other
  int8_t loop_copies_of_16bit = 2;  // where that is narrower than fp32
  int8_t foreach_values = 1;        // of each parameter, at once
  DType loop_dtype = DType::kNone;  // kNone: the states'
};

// One optimizer.
struct OptimizerRow {
  OptimizerName optimizer;
  absl::Span<const OptimizerState> states;
  StepTemporaries temporaries{};
  Picks picks = Picks::kNone;
  std::array<bool, 3> implementations = {true, true, true};  // by OptimizerImplementation
  bool made_with_it = false;           // states are there before the first step
  bool fused_is_bitsandbytes = false;  // whose states are fp32 where they are not narrower
  bool pages = false;                  // bitsandbytes has a form with paged states
  bool on_hosts = false;               // its form that steps on the host is modelled
  bool sees_shapes = false;            // it does not step each number alone
  bool compresses = false;             // replicas exchange signs of momenta, not gradients
  bool steps_flat = false;             // all parameters, as one tensor
  bool pads_copy = false;              // of what is compressed, unless its length fits
  bool takes_narrow = false;           // fused, it steps by 16-bit gradients (DeepSpeed)
  bool factorizes = false;             // projectors are singular vectors of gradients
  absl::string_view source{};

  bool Has(OptimizerImplementation implementation) const {
    return implementations[static_cast<size_t>(implementation)];
  }
  // Whether it steps some parameters as matrices.
  bool PicksMatrices() const { return picks == Picks::kMatrices || picks == Picks::kTargets; }
  // Whether a dtype of its states is its own.
  bool HasOwnDType() const;
};

extern const std::array<OptimizerRow, kOptimizerCount> kOptimizerRows;

inline const OptimizerRow& RowOf(OptimizerName optimizer) {
  return kOptimizerRows[static_cast<size_t>(optimizer)];
}

// With its two states of each parameter, whole.
constexpr bool IsAdam(OptimizerName optimizer) {
  return optimizer == OptimizerName::kAdam || optimizer == OptimizerName::kAdamW;
}

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_CATALOG_OPTIMIZERS_H_
