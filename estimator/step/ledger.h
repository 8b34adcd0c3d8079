// Runs a block over sizes, as autograd would: a storage lives as long as
// something refers to it, and a view pins the whole tensor behind it.
// Lifetimes are a consequence of what ops declare, never an input.
#ifndef PLIMSOLL_ESTIMATOR_STEP_LEDGER_H_
#define PLIMSOLL_ESTIMATOR_STEP_LEDGER_H_

#include <cstdint>
#include <vector>

#include "estimator/catalog/profile.h"
#include "estimator/program/program.h"

namespace plimsoll {

inline constexpr int kNoStorage = -1;

// Bytes by role, and in all.
struct Usage {
  RoleBytes roles{};
  int64_t total = 0;

  void Grow(Role role, int64_t bytes) {
    roles[static_cast<size_t>(role)] = plimsoll::Add(roles[static_cast<size_t>(role)], bytes);
    total = plimsoll::Add(total, bytes);
  }
  // What has saturated stays so: how much was above is not known.
  void Shrink(Role role, int64_t bytes) {
    int64_t& of_role = roles[static_cast<size_t>(role)];
    if (of_role != kSaturated) of_role -= bytes;
    if (total != kSaturated) total -= bytes;
  }
  void Grow(const Usage& other, int64_t times = 1) {
    for (size_t i = 0; i < kRoleCount; ++i) {
      if (other.roles[i] == 0) continue;
      roles[i] = plimsoll::Add(roles[i], Multiply(other.roles[i], times));
    }
    total = plimsoll::Add(total, Multiply(other.total, times));
  }
};

// Of one block's backward, at its peak, and at that of what is behind the first op that gave a
// gradient of a weight; nothing where none did.
struct BackwardUsage {
  Usage whole;
  Usage from_gradients;
};

// What one block holds for one micro-batch, beyond what earlier blocks keep.
// Its input counts as its own, its output as the next block's.
struct BlockRun {
  Usage kept;     // after forward, for backward
  Usage forward;  // at the peak of forward
  Usage again;    // at the peak of a recomputed block's second forward
  BackwardUsage backward;
  BackwardUsage later_backward;  // where kKept gradients are added to an earlier micro-batch's
  // Both, of a layer of a recomputed unit whose output the checkpoint does not hold: all but the
  // last.
  BackwardUsage inner_backward;
  BackwardUsage later_inner_backward;
  Usage unit;              // what each further layer of a recomputed unit keeps meanwhile
  int64_t hole_bytes = 0;  // freed, but of no use to what follows
};

// One piece of memory of a run, for the ledger that people read. Times are
// indices into `ops`; a birth or death in backward counts on from ops.size(),
// where the last op's backward is first.
struct Storage {
  TensorId tensor = kNoTensor;  // or kNoTensor for the gradient of a parameter
  absl::string_view suffix;     // ".gradient" for what backward makes
  Role role = Role::kActivation;
  int64_t bytes = 0;
  int birth = 0;
  int death = 0;
  bool kept = false;
};

// What happens to memory while a block runs, in order.
//   kBirth   a piece is made
//   kDeath   nothing refers to it any more
//   kOutput  forward is done: whoever wants the output refers to it now
//   kLaunch  an op is launched, as `piece` kernels or so
//   kProduct  matrices are multiplied: what that gives is born
//   kGradients  the first gradient of a weight was taken, and what it was made of is gone
enum class TapeEventKind : uint8_t { kBirth, kDeath, kOutput, kLaunch, kProduct, kGradients };
struct TapeEvent {
  TapeEventKind kind = TapeEventKind::kLaunch;
  int16_t piece = -1;
};

// One piece of memory of a tape. The block's input and its output's gradient
// are born elsewhere: their births say when this block first refers to them.
struct TapePiece {
  TensorId tensor = kNoTensor;  // or kNoTensor for the gradient of a parameter
  int8_t parameter = -1;        // that one's
  absl::string_view suffix;     // ".gradient" for what backward makes
  Role role = Role::kActivation;
  int64_t bytes = 0;
};

// One run of a block as a tape: forward, forward once more (of a recomputed
// block: else nothing), backward.
struct Tape {
  std::vector<TapePiece> pieces;
  std::vector<TapeEvent> events;
  size_t forward_end = 0;  // index into events
  size_t again_end = 0;
  int16_t input = -1;    // pieces
  int16_t fetched = -1;  // the input, as it comes back from the host
  int16_t output = -1;
  int16_t output_again = -1;  // of the second forward
  int16_t output_gradient = -1;
  int16_t input_gradient = -1;  // alive when backward is over
};

// Runs `block` once, as Run does, and keeps every birth and death.
//
// A block whose recomputed output is held does not hold it here: whoever plays
// the tape does. The output's gradient is held to the end of backward.
Tape Record(const Block& block, WeightGradient weight_gradient, DType gradient_dtype);

// Runs forward and backward of `block` once.
//
// `weight_gradient` says what becomes of the gradients of its parameters, of
// `gradient_dtype`: kKept ones stay until the block's backward ends and are
// counted here as gradients; kAdded ones die with their op; kFused ones are
// never born. `storages`, where given, receives what the peak is made of.
//
// Ensures:  kept <= forward peak, unless the block is recomputed
// Source:   reference counts of torch/csrc/autograd (saved variables, input
//           buffers) and of Python; estimator/README.md, "Running a block".
BlockRun Run(const Block& block, WeightGradient weight_gradient, DType gradient_dtype,
             std::vector<Storage>* storages = nullptr);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_STEP_LEDGER_H_
