// The modules of a network as DeepSpeed's engine meets them: which weights each has, and in which
// order they run, forward and backward.
#ifndef PLIMSOLL_ESTIMATOR_PASSES_MODULE_ORDER_H_
#define PLIMSOLL_ESTIMATOR_PASSES_MODULE_ORDER_H_

#include <cstdint>
#include <memory_resource>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "estimator/program/program.h"

namespace plimsoll {

// Parameters that one module has.
struct Module {
  absl::InlinedVector<int32_t, 6> weights;
  bool head = false;        // makes the logits
  bool normalizes = false;  // the input of the layer's attention, or of its MLP
  bool gates = false;       // what it makes goes through the MLP's activation
};

// Numbers of weights are those of `Network::weights`.
struct Weight {
  int64_t elements = 0;
  int64_t bytes = 0;
  bool persists = false;
  bool trained = false;
  bool vector = false;  // a norm's, or a bias
};

// Of the network: its weights, and the modules of each block in their order.
struct Network {
  std::vector<Weight> weights;
  std::vector<std::vector<Module>> blocks;  // of the embedding, each layer, the head
};

// A module's turn, forward or backward: of which turn of which block.
struct Visit {
  absl::Span<const int32_t> module{};  // its weights
  uint32_t turn = 0;
  bool backward = false;
  bool stays = false;  // the module is around all others: what it has is there until the end
  bool reads = false;  // no module: weights that are away are gathered here, and go again
  bool head = false;   // makes the logits
};

// How the head's weights come to be where logits are made.
//   kCalled     its module runs
//   kFirstRead  the loss reads them, which makes them the model's own from then on
//   kRead       the same once they are
// Source: deepspeed/runtime/zero/parameter_offload.py, ZeROOrderedDict; TRL's trainer/utils.py,
// maybe_gather_lm_head_ctx.
enum class HeadUse : uint8_t { kCalled, kFirstRead, kRead };

// Returns modules, in the order in which the ops of blocks read them; weights in that order too, a
// table that the head shares once.
Network ReadNetwork(const std::pmr::vector<Block>& blocks, int64_t layer_count);

// Returns the order in which modules run. Turns are of blocks forward, then of blocks backward as
// they come; a layer that runs again does so in its backward.
std::vector<Visit> OrderOf(const std::pmr::vector<Block>& blocks, const Network& network,
                           HeadUse head = HeadUse::kCalled);

// The same of a network that runs forward alone.
std::vector<Visit> ForwardOrderOf(const Network& network, HeadUse head);

// Calls `take` with each trained weight, and the turn in which its gradient is whole: at the last
// visit that reads it.
void ForEachGradient(const Network& network, const std::vector<Visit>& order,
                     absl::FunctionRef<void(size_t id, size_t turn)> take);

// Whether a parameter is too small to be let go.
// Source: deepspeed/runtime/zero/parameter_offload.py, mark_persistent_parameters.
bool StaysWhole(const Parameter& parameter);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PASSES_MODULE_ORDER_H_
