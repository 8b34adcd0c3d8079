// What layers of a network are, and whether they are alike.
#ifndef PLIMSOLL_ESTIMATOR_JOB_LAYER_KINDS_H_
#define PLIMSOLL_ESTIMATOR_JOB_LAYER_KINDS_H_

#include <cstdint>

#include "estimator/job/job.h"

namespace plimsoll {

// What the first sublayer of a layer is, and what its second.
//   kWindowed    attention whose windows have a mask: job.masks_windows
//   kLinear      lower_linear.h
//   kStateSpace  lower_state_space.h
enum class Mixer : uint8_t { kNone, kAttention, kWindowed, kLinear, kStateSpace };
enum class LayerMlp : uint8_t { kNone, kDense, kExperts };

// What tells layers of one network apart.
struct LayerKind {
  Mixer mixer = Mixer::kAttention;
  LayerMlp mlp = LayerMlp::kDense;
  bool widens = false;   // it reads something narrower than its residual
  bool narrows = false;  // what it gives is cast for the next

  bool operator==(const LayerKind&) const = default;
};

LayerKind KindOf(const Job& job, int64_t layer);

// The dtype that layers sum up in.
DType StreamDType(const Job& job);

// Whether all layers have the same mixer, the same mask and the same MLP or experts.
bool HasOneKindOfLayer(const Job& job);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_JOB_LAYER_KINDS_H_
