// Adds a plan up: what a virtual stage holds at most in forward, loss and backward of one
// micro-batch, beside states: activations, gradients, buffers. Layers that repeat are counted, not
// played.
#ifndef PLIMSOLL_ESTIMATOR_STEP_SUM_PLAN_H_
#define PLIMSOLL_ESTIMATOR_STEP_SUM_PLAN_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include "estimator/program/parameter_sums.h"
#include "estimator/program/program.h"
#include "estimator/step/ledger.h"
#include "estimator/step/peak.h"
#include "estimator/step/plan.h"

namespace plimsoll {

// What Usage tells by role, in all. Candidates for a peak are compared by it;
// only the one that wins is told by role.
struct Total {
  int64_t total = 0;

  void Grow(Role /*role*/, int64_t bytes) { total = Add(total, bytes); }
  void Grow(const Usage& usage, int64_t times = 1) {
    total = Add(total, times == 1 ? usage.total : Multiply(usage.total, times));
  }
  void Shrink(Role /*role*/, int64_t bytes) {
    if (total != kSaturated) total -= bytes;
  }
};

// What follows from the program alone, for all of its stages.
struct Parts {
  const Program& program;
  const BlockRuns& runs;
  std::pmr::vector<BlockSums> sums;      // of one of each block
  std::pmr::vector<const State*> grown;  // gradients made layer by layer
  bool reduces = false;                  // gradients are copied for their way to other ranks
  bool looks_ahead = false;              // backward the next block's weights are on their way
  int64_t stream_count = 3;         // with a pool: those that compute, gather and reduce, at least
  int64_t tied_gradient_bytes = 0;  // of the embedding's table, as the head makes it
  int64_t idle_gradient_bytes = 0;  // of what is tied to the head for nothing: not made
  int64_t until_reduced_bytes = 0;  // of states that go before the embedding's are sent
  // Of those that backward's first gradient makes, of a step's first micro-batch and of later ones.
  std::array<int64_t, 2> unmade_bytes{};
  bool flattens = false;    // gradients of a block become one tensor
  bool casts_flat = false;  // which is cast, and stays

  // All outlive the parts.
  Parts(const Program& of, const BlockRuns& with, std::pmr::memory_resource* memory);
};

// SumParameters, from sums that are known. A tied head counts unless its table
// is on the rank.
ParameterSums SumStage(const Parts& parts, const Stage& stage, bool table_is_here);

// StateBytes, but for gradients that backward would have to make and does not.
int64_t GrownBytes(const Parts& parts, const State& state, const ParameterSums& sums,
                   bool table_is_here);

// Bytes in each of the allocator's pools but the compute stream's.
struct OtherStreams {
  std::array<int64_t, kStreamCount> bytes{};  // none of the compute stream's
  bool any = false;                           // most jobs have none, and are spared the sums

  int64_t Sum() const {
    int64_t sum = 0;
    if (!any) return sum;
    for (const int64_t of : bytes) sum = Add(sum, of);
    return sum;
  }
  void Grow(Stream stream, int64_t by) {
    if (stream == Stream::kCompute || by == 0) return;
    int64_t& of = bytes[static_cast<size_t>(stream)];
    of = Add(of, by);
    any = true;
  }
  void Grow(const OtherStreams& other) {
    if (!other.any) return;
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = Add(bytes[i], other.bytes[i]);
    any = true;
  }
  // Each pool keeps the most that it ever held.
  void Raise(const OtherStreams& other) {
    if (!other.any) return;
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::max(bytes[i], other.bytes[i]);
    any = true;
  }
};

// How often each run of a block has something, in the order of BlockRuns.
// Embedding, head, layers of two kinds, each apart where it is recomputed, and the first below
// adapters; a reference's embedding, head and layers.
inline constexpr size_t kMaxRuns = 16;
using RunCounts = std::array<int32_t, kMaxRuns>;

// What counts of the block at work.
//   kNothing    it has no bytes of its own
//   kGathering  a buffer is made, beside what it is gathered from
//   kForward    its forward, at its peak; kAgain once more, kBackward backward
//   kEnded      its output, as forward is over
//   kHanded     what it hands to the next block, as a phase is over: its output, or its input's
//               gradient
//   kFlattened  its gradients, and the flat tensor that they become
//   kReduced    its gradients, as they are copied for their way to other ranks
//   kGrown      the same, as they are there
//   kGradients  its backward from its first gradient on, at its peak
enum class Counted : uint8_t {
  kNothing,
  kGathering,
  kForward,
  kEnded,
  kHanded,
  kAgain,
  kBackward,
  kFlattened,
  kReduced,
  kGrown,
  kGradients,
};

// What there is at one moment of a pair, counted.
struct Standing {
  RunCounts kept{};                // runs whose activations are kept
  int64_t again = 0;               // layers of the unit at work that ran forward once more
  size_t unit = 0;                 // their run
  ParameterSums passed{};          // of blocks whose gradients are there
  bool sends = false;              // the output is there for the next stage
  const Block* reduced = nullptr;  // whose gradients are on their way to other ranks
  bool backward = false;
  bool later = false;  // an earlier micro-batch left gradients
  Counted counted = Counted::kNothing;
  size_t run = 0;                  // of the block at work
  bool closes = true;              // it is the last of its unit
  size_t gathered = 0;             // of its buffers so many are there
  GatherSize behind{};             // backward, of the block that runs next
  int64_t lingering_bytes = 0;     // of the block before, until a buffer of this one is there
  int64_t ahead_bytes = 0;         // of Program::gathers, and what is flattened beside them
  int64_t of_reference_bytes = 0;  // of Program::reference_gathers
  int64_t bucket_bytes = 0;        // of Program::reduce_buckets
  int64_t flat_bytes = 0;
  int64_t gradient_bytes = 0;  // beside it
  int64_t sent_bytes = 0;      // of gradients that were sent, what is kept until backward is over
  int64_t waiting_bytes = 0;   // the head's gradients, until the embedding's are there
  int64_t added_bytes = 0;     // of gradients that were sent, to earlier ones or the host's
  int64_t gone_bytes = 0;      // of weights that were gathered until gradients are sent
  int64_t unmade_bytes = 0;    // of what takes gradients, until there are some
  int64_t named_bytes = 0;     // of the embedding's output, until the head runs
  int64_t stashed_bytes = 0;   // of layers' inputs on their way to the host
  bool carries = false;        // forward has the output of a block before
  bool shares = false;         // and that block keeps it, or it is named
};

// What one phase needs beside states and beside what older pairs in flight
// keep: the same for all stages that have the same layers.
struct Demand {
  int64_t total = -1;         // at most, of one moment; -1: there is none
  Standing at{};              // that moment
  int64_t compute_bytes = 0;  // the most in the compute stream, at any moment
  OtherStreams others{};      // the most in each other
  int64_t current = 0;        // when the phase ends
};

// Sums one plan up.
class PlanSum {
 public:
  // `table_is_here` says whether the stage has the embedding. All outlive the sum.
  PlanSum(const Parts& parts, const Stage& chunk, bool table_is_here)
      : parts_(parts),
        chunk_(chunk),
        table_is_here_(table_is_here),
        ends_together_(EndsTogether(parts.program, chunk)) {}

  // Sets what forward needs, and the loss' forward.
  void AddForward(const Slots& slots, Demand& forward, Demand& loss);
  // The same of the loss' backward, and of backward; `later` where an earlier micro-batch left
  // gradients.
  //
  // Requires: AddForward
  void AddBackward(const Slots& slots, bool later, Demand& loss, Demand& backward);

  // Between forward and backward.
  const Standing& kept() const { return kept_; }
  // Of weights that were gathered until gradients were sent, what backward let go.
  int64_t gone_bytes() const { return now_.gone_bytes; }
  // Adds everything at a moment of this sum, or of one like it.
  void Grow(const Standing& at, Usage& usage) const;

 private:
  const Block& BlockOf(size_t run) const {
    const auto& blocks = parts_.program.blocks;
    return run < blocks.size() ? blocks[run] : parts_.program.reference[run - blocks.size()];
  }
  void Play(const Slots& slots);
  // Turns of a loop at its begin and at its end, so many of each; the others are counted.
  void PlayEnds(const Slots& slots, const Loop& loop, int32_t early, int32_t late);
  void PassTurns(const Slots& slots, const Loop& loop, int32_t turn, int32_t times);
  void EndPhase();
  void KeepAll();
  void Do(const Slot& slot);
  bool ClosesGroup(const Block& block) const {
    return ends_together_ && block.kind == BlockKind::kEmbedding;
  }
  bool WaitsForGroup(const Block& block) const {
    return ends_together_ && block.kind == BlockKind::kHead;
  }
  void SumTied(const Block& block);
  void Reduce(const Slot& slot, const Block& block);
  void GrowSent(const Slot& slot, const Block& block);
  void FlattenMade(const Block& block);
  int64_t FlatBytes(const Standing& at) const;
  void Gather(const Block& block);
  void Linger(const Block& block);
  void HandOn(const StageBlock& at, const Block& block);
  void Stash(const StageBlock& at, const Block& block, int64_t times);
  void Unstash(const Block& block);
  void LeaveStashed(const Block& block, int64_t count);
  void Name(const StageBlock& at, const Block& block);
  void ForgetName();
  void GatherAhead(const StageBlock& at, bool before);
  void GatherBetween(const StageBlock& at, const Block& block);
  void Send(const StageBlock& at, const Block& block);
  void Pass(const Slot& slot, int64_t times);
  void PassGradients(size_t run, int64_t times);
  void Consider(Counted counted);
  void ConsiderHole(const Block& block);
  void BeginPhase(Phase phase);
  void BeginGradients(bool are, Counted counted);
  int64_t MadeBytes(size_t run) const;
  int64_t OwnBytes(size_t run, bool later) const;
  int64_t AddedBytes(size_t run, bool later) const;
  int64_t MadeFlatBytes(const Block& block, bool cast) const;
  const BackwardUsage& BackwardOf(const Standing& at) const;
  OtherStreams OthersAt(const Standing& at) const;
  // Each adds to a sum, which is a Total or a Usage.
  template <typename Sum>
  void GrowGathering(const Standing& at, Sum& sum) const;
  template <typename Sum>
  void GrowGrown(const Standing& at, Sum& sum) const;
  template <typename Sum>
  void GrowOutput(const Standing& at, Sum& sum) const;
  template <typename Sum>
  void GrowInputGradient(const Standing& at, Sum& sum) const;
  template <typename Sum>
  void GrowEdges(const Standing& at, Sum& sum) const;
  template <typename Sum>
  void GrowAtWork(const Standing& at, Sum& sum) const;
  template <typename Sum>
  void GrowAll(const Standing& at, Sum& sum) const;

  const Parts& parts_;
  const Stage& chunk_;
  const bool table_is_here_;
  const bool ends_together_;
  bool has_gradients_ = false;  // this backward made some
  Standing now_;
  Standing kept_;
  Demand all_kept_;                   // where there is no loss
  std::array<Demand*, 3> demands_{};  // of each phase
  Demand* demand_ = nullptr;
};

// How often a pair of a virtual stage keeps what one run of each block keeps; of the reference,
// when most of it has run.
std::vector<int64_t> KeptRuns(const Program& program, const Stage& chunk);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_STEP_SUM_PLAN_H_
