// Lifetimes of random blocks, from when each tensor is made and last wanted: a second
// implementation, without reference counts.
#include <algorithm>
#include <random>
#include <vector>

#include "estimator/step/ledger.h"
#include "gtest/gtest.h"
#include "tests/testing/hand_program.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

TensorId AnyTemporary(HandBlock& hand, std::mt19937_64& random) {
  return hand.Make("temporary", static_cast<int64_t>(1 + random() % 400), Role::kTemporary);
}

// Five ops or so, each of the last output and maybe of one before, that save some of what they
// read and give; the second input of an op is never its first.
Block AnyBlock(std::mt19937_64& random) {
  HandBlock hand("any", BlockKind::kLayer);
  std::vector<TensorId> made = {hand.Make("x", static_cast<int64_t>(1 + random() % 300))};
  const size_t ops = 2 + random() % 6;
  for (size_t i = 0; i < ops; ++i) {
    const TensorId out = hand.Make("t", static_cast<int64_t>(1 + random() % 300));
    Op& op = hand.Then("op", {made.back()}, {out}, {});
    const TensorId other = made[random() % made.size()];
    if (other != made.back() && random() % 2 == 0) op.inputs.Add(other);
    for (const TensorId id : op.inputs) {
      if (random() % 2 == 0) op.saved.Add(id);
    }
    if (random() % 3 == 0) op.saved.Add(out);
    if (random() % 3 == 0) op.forward_temporaries = {AnyTemporary(hand, random)};
    if (random() % 3 == 0) op.backward_temporaries = {AnyTemporary(hand, random)};
    if (random() % 2 == 0) {
      op.parameters = {hand.Weight("w", static_cast<int64_t>(1 + random() % 100))};
    }
    made.push_back(out);
  }
  return hand.Between(made.front(), made.back());
}

// When each tensor of a block is made, read and saved: by ops, in their order.
class Lifetimes {
 public:
  explicit Lifetimes(const Block& block) : block_(block) {
    const size_t count = block.tensors.size();
    made_.assign(count, -1);
    first_saved_.assign(count, kNoOp);
    last_read_.assign(count, -1);
    for (int i = 0; i < OpCount(); ++i) {
      const Op& op = OpAt(i);
      for (const TensorId id : op.inputs) last_read_[id] = i;
      for (const TensorId id : op.outputs) made_[id] = i;
      for (const TensorId id : op.saved) first_saved_[id] = std::min(first_saved_[id], i);
      for (const TensorId id : op.forward_temporaries) made_[id] = kNoOp;
      for (const TensorId id : op.backward_temporaries) made_[id] = kNoOp;
    }
  }

  int64_t Kept() const {
    return Sum([this](TensorId id) { return first_saved_[id] != kNoOp; });
  }
  // The most of any op forward, which saves what its ops want, or holds the input, or both.
  int64_t Forward(bool saves, bool holds_input) const {
    int64_t most = 0;
    for (int i = 0; i < OpCount(); ++i) {
      const int64_t there = Sum([&](TensorId id) {
        const bool held = (saves && first_saved_[id] <= i) || (holds_input && id == block_.input);
        return made_[id] <= i && (held || IsWanted(id, i));
      });
      most = std::max(most, there + BytesOf(OpAt(i).forward_temporaries));
    }
    return most;
  }
  // The most of any op backward; the input stays where a checkpoint has it.
  int64_t Backward(WeightGradient fate, bool recomputed) const {
    const int64_t begin = recomputed ? 0 : Kept() + BytesOf({block_.output});
    return std::max(begin, BackwardBefore(OpCount(), fate, recomputed));
  }
  // The same behind the first op that gave a gradient of a weight; nothing where none did.
  int64_t FromGradients(WeightGradient fate, bool recomputed) const {
    int first = OpCount() - 1;
    while (first >= 0 && OwnWeights(first, fate) == 0) --first;
    if (first != 0) return BackwardBefore(first, fate, recomputed);
    const int64_t weights = fate == WeightGradient::kKept ? OwnWeights(0, fate) : 0;
    return (recomputed ? 2 : 1) * BytesOf({block_.input}) + weights;  // the input, and its gradient
  }

 private:
  static constexpr int kNoOp = 1000;

  int OpCount() const { return static_cast<int>(block_.ops.size()); }
  const Op& OpAt(int index) const { return block_.ops[static_cast<size_t>(index)]; }
  // Of ops [0, end).
  int64_t BackwardBefore(int end, WeightGradient fate, bool recomputed) const {
    int64_t most = 0;
    for (int i = 0; i < end; ++i) {
      const int64_t saved = Sum(
          [&](TensorId id) { return first_saved_[id] <= i || (recomputed && id == block_.input); });
      const int64_t there = saved + BytesOf(OpAt(i).backward_temporaries);
      most = std::max(most, there + Gradients(i, fate));
    }
    return most;
  }
  int64_t BytesOf(const Ids& ids) const {
    int64_t bytes = 0;
    for (const TensorId id : ids) bytes += block_.tensors[id].Bytes();
    return bytes;
  }
  template <typename Is>
  int64_t Sum(const Is& is) const {
    int64_t bytes = 0;
    for (TensorId id = 0; id < block_.tensors.size(); ++id) {
      if (made_[id] != kNoOp && is(id)) bytes += block_.tensors[id].Bytes();
    }
    return bytes;
  }
  bool IsWanted(TensorId id, int op) const {
    return id == block_.output || std::max(last_read_[id], made_[id]) >= op;
  }
  // While op `i` runs backward: of tensors that some op from it on reads and that are made at it
  // or before, and what it gives: a second gradient of one tensor is there beside the first until
  // the op is over.
  int64_t Gradients(int i, WeightGradient fate) const {
    const int64_t there = Sum(
        [&](TensorId id) { return made_[id] <= i && (last_read_[id] > i || id == block_.output); });
    return there + BytesOf(OpAt(i).inputs) + KeptWeights(i, fate) + OwnWeights(i, fate);
  }
  int64_t KeptWeights(int i, WeightGradient fate) const {
    int64_t bytes = 0;
    for (int later = i + 1; later < OpCount() && fate == WeightGradient::kKept; ++later) {
      bytes += OwnWeights(later, fate);
    }
    return bytes;
  }
  int64_t OwnWeights(int i, WeightGradient fate) const {
    if (fate == WeightGradient::kFused) return 0;
    int64_t bytes = 0;
    for (const TensorId id : OpAt(i).parameters) bytes += 2 * block_.parameters[id].Elements();
    return bytes;
  }

  const Block& block_;
  std::vector<int> made_;         // by which op; -1: it is the input
  std::vector<int> first_saved_;  // by which op: the last one to go backward
  std::vector<int> last_read_;
};

constexpr WeightGradient kFates[] = {WeightGradient::kKept, WeightGradient::kAdded,
                                     WeightGradient::kFused};

TEST(LedgerLifetimesTest, AnyBlockHoldsWhatIsStillWanted) {
  std::mt19937_64 random(20261127);
  for (int i = 0; i < Rounds(3000) && !HasFailure(); ++i) {
    const Block block = AnyBlock(random);
    const Lifetimes lifetimes(block);
    for (const WeightGradient fate : kFates) {
      const BlockRun run = plimsoll::Run(block, fate, DType::kBf16);
      EXPECT_EQ(run.kept.total, lifetimes.Kept());
      EXPECT_EQ(run.forward.total, lifetimes.Forward(true, false));
      EXPECT_EQ(run.backward.whole.total, lifetimes.Backward(fate, false));
      EXPECT_EQ(run.backward.from_gradients.total, lifetimes.FromGradients(fate, false));
      const bool kept = fate == WeightGradient::kKept;
      EXPECT_EQ(run.later_backward.whole.total,
                lifetimes.Backward(kept ? WeightGradient::kAdded : fate, false));
      EXPECT_EQ(run.later_backward.from_gradients.total,
                lifetimes.FromGradients(kept ? WeightGradient::kAdded : fate, false));
    }
  }
}

// A recomputed block keeps its input and what is checkpointed beside it; its second forward runs
// beside its output's gradient.
TEST(LedgerLifetimesTest, AnyRecomputedBlockKeepsItsInput) {
  std::mt19937_64 random(20261128);
  for (int i = 0; i < Rounds(3000) && !HasFailure(); ++i) {
    Block block = AnyBlock(random);
    block.recompute_unit = 1;
    block.checkpoint_bytes = static_cast<int64_t>(random() % 50);
    const int64_t more = block.checkpoint_bytes;
    const Lifetimes lifetimes(block);
    const int64_t input = block.tensors[block.input].Bytes();
    const int64_t output = block.tensors[block.output].Bytes();
    for (const WeightGradient fate : kFates) {
      const BlockRun run = plimsoll::Run(block, fate, DType::kBf16);
      EXPECT_EQ(run.kept.total, input + more);
      EXPECT_EQ(run.forward.total, lifetimes.Forward(false, true));
      EXPECT_EQ(run.backward.whole.total, more + lifetimes.Backward(fate, true));
      EXPECT_EQ(run.again.total, more + output + lifetimes.Forward(true, true));
    }
  }
}

// What a tape's births and deaths leave alive at most, in a part of it.
int64_t MostOf(const Tape& tape, size_t begin, size_t end) {
  int64_t now = 0;
  int64_t most = 0;
  for (size_t i = 0; i < end; ++i) {
    const TapeEvent& event = tape.events[i];
    if (event.kind == TapeEventKind::kBirth) now += tape.pieces[event.piece].bytes;
    if (event.kind == TapeEventKind::kDeath) now -= tape.pieces[event.piece].bytes;
    if (i >= begin) most = std::max(most, now);
  }
  return most;
}

TEST(LedgerLifetimesTest, AnyTapePlaysWhatTheRunFound) {
  std::mt19937_64 random(20261129);
  for (int i = 0; i < Rounds(2000) && !HasFailure(); ++i) {
    const Block block = AnyBlock(random);
    const WeightGradient fate = kFates[random() % 3];
    const BlockRun run = plimsoll::Run(block, fate, DType::kBf16);
    const Tape tape = Record(block, fate, DType::kBf16);
    EXPECT_EQ(tape.again_end, tape.forward_end) << "nothing runs again";
    EXPECT_EQ(MostOf(tape, 0, tape.forward_end), run.forward.total);
    EXPECT_EQ(MostOf(tape, tape.forward_end, tape.events.size()), run.backward.whole.total);
    EXPECT_EQ(tape.pieces[tape.input].tensor, block.input);
    EXPECT_EQ(tape.pieces[tape.output].tensor, block.output);
    EXPECT_EQ(tape.pieces[tape.output_gradient].tensor, block.output);
    EXPECT_EQ(tape.pieces[tape.input_gradient].tensor, block.input);
  }
}

// Sums stop at the largest number, and never come back from it: by role and in all.
TEST(UsageTest, WhatSaturatesStaysSo) {
  Usage usage;
  usage.Grow(Role::kWeight, kSaturated - 10);
  usage.Grow(Role::kGradient, 7);
  EXPECT_EQ(usage.total, kSaturated - 3);
  usage.Shrink(Role::kGradient, 5);
  EXPECT_EQ(usage.total, kSaturated - 8);
  usage.Grow(Role::kLoss, 9);
  EXPECT_EQ(usage.total, kSaturated);
  EXPECT_EQ(usage.roles[static_cast<size_t>(Role::kLoss)], 9);
  usage.Shrink(Role::kLoss, 9);
  EXPECT_EQ(usage.total, kSaturated) << "how much was above is not known";
  EXPECT_EQ(usage.roles[static_cast<size_t>(Role::kLoss)], 0);
}

// 3 x (10 weights + 4 activations) beside 1 activation: 30 + 13.
TEST(UsageTest, GrowsByAnotherSoManyTimes) {
  Usage one;
  one.Grow(Role::kWeight, 10);
  one.Grow(Role::kActivation, 4);
  Usage usage;
  usage.Grow(Role::kActivation, 1);
  usage.Grow(one, 3);
  EXPECT_EQ(usage.roles[static_cast<size_t>(Role::kWeight)], 30);
  EXPECT_EQ(usage.roles[static_cast<size_t>(Role::kActivation)], 13);
  EXPECT_EQ(usage.total, 43);
  usage.Grow(one, 0);
  EXPECT_EQ(usage.total, 43) << "no times is nothing";
}

}  // namespace
}  // namespace plimsoll
