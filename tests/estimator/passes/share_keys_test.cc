// The pass in words: keys and values of all ranks, in turn or at once.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/tensors.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

// Megatron-Core: queries, keys and values are views of one projection's 128 where nothing is
// rotated.
Program Sharing(const char* method, int64_t ranks, bool rotary = true,
                const char* framework = "megatron-core") {
  JobSpec job = OverContext(framework, ranks, method);
  if (!rotary) {
    Shape(job).position_embedding = "learned";
    Shape(job).position_count = 32;
  }
  return ProgramAfter(Valid(job), PassId::kContextParallel);
}

TEST(ShareKeysTest, KeysAndValuesPassAroundARing) {
  const Program program = Sharing("ring", 4);
  const Block& layer = FindBlock(program, "layer");
  const Op& kernel = FindOp(layer, "attention.flash");
  ExpectShapes(layer, {{"attention.query.rotated", "[B, S/cp, A]", "[2, 8, 64]"},
                       {"attention.context", "[B, S/cp, A]", "[2, 8, 64]"},
                       {"attention.log_sum_exp", "[B, N, S/cp]", "[2, 4, 8]"},
                       {"attention.kv.received", "[B, S/cp, 2C]", "[2, 8, 64]"},
                       {"attention.kv.passed", "[B, S/cp, 6C]", "[2, 8, 192]"},
                       {"attention.context.steps", "[B, S/cp, 4A]", "[2, 8, 256]"},
                       {"attention.log_sum_exp.steps", "[B, N, 4S/cp]", "[2, 4, 32]"},
                       {"attention.kv.turns", "[B, S/cp, 6C]", "[2, 8, 192]"}});
  EXPECT_THAT(Names(layer, kernel.saved),
              ElementsAre("attention.query.rotated", "attention.kv.received", "attention.context",
                          "attention.log_sum_exp"));
  EXPECT_THAT(
      Names(layer, kernel.forward_temporaries),
      ElementsAre("attention.kv.passed", "attention.context.steps", "attention.log_sum_exp.steps"));
  EXPECT_THAT(Names(layer, kernel.backward_temporaries),
              ElementsAre("attention.query.gradient.accumulator", "attention.key.gradient.expanded",
                          "attention.value.gradient.expanded", "attention.kv.turns",
                          "attention.kv.step.gradient", "attention.query.step.gradient"));
  ASSERT_EQ(kernel.forward_collectives.count, 1);
  EXPECT_EQ(kernel.forward_collectives.rows[0].kind, CollectiveKind::kRing);
}

TEST(ShareKeysTest, KeysAndValuesAreGatheredForEachPass) {
  const Program program = Sharing("all-gather", 4);
  const Block& layer = FindBlock(program, "layer");
  const Op& kernel = FindOp(layer, "attention.flash");
  ExpectShapes(layer, {{"attention.kv.gathered", "[B, 4S/cp, 2C]", "[2, 32, 64]"},
                       {"attention.key.pieces", "[B, 4S/cp, C]", "[2, 32, 32]"},
                       {"attention.context.halves", "[B, S/cp, 2A]", "[2, 8, 128]"}});
  EXPECT_THAT(
      Names(layer, kernel.saved),
      ElementsAre("attention.query.rotated", "attention.key.rotated", "attention.value.contiguous",
                  "attention.context", "attention.log_sum_exp"))
      << "each rank's own";
  ASSERT_EQ(kernel.backward_collectives.count, 2);
  EXPECT_EQ(kernel.backward_collectives.rows[1].kind, CollectiveKind::kReduceScatter);
}

// Source: megatron/core/transformer/attention.py, Attention.forward.
TEST(ShareKeysTest, LocalsHoldTheProjectionUntilTheNextProduct) {
  const Program program = Sharing("ring", 2, false);
  const Block& layer = FindBlock(program, "layer");
  const uint8_t until = FindTensor(layer, "attention.qkv.activation").held_until;
  ASSERT_LT(until, layer.ops.size());
  EXPECT_EQ(layer.ops[until].name, "attention.out");
  EXPECT_EQ(FindTensor(layer, "attention.key.contiguous").held_until, 255);
  EXPECT_EQ(FindTensor(layer, "attention.kv.turns").held_until, 255);
}

TEST(ShareKeysTest, ViewsOfAProjectionAreCopied) {
  const Program program = Sharing("ring", 2, false);
  const Block& layer = FindBlock(program, "layer");
  EXPECT_THAT(
      Names(layer, FindOp(layer, "attention.flash").inputs),
      ElementsAre("attention.query.own", "attention.key.contiguous", "attention.value.contiguous"));
  EXPECT_EQ(FindOp(layer, "attention.key.contiguous").modules,
            FindOp(layer, "attention.flash").modules)
      << "run again with the kernel";
}

// Source: torch distributed/tensor/experimental/_context_parallel/_attention.py.
TEST(ShareKeysTest, TorchMergesAStepOfAttentionForEachRank) {
  const Program program = Sharing("all-gather", 4, true, "fsdp2");
  const Block& layer = FindBlock(program, "layer");
  const Op& kernel = FindOp(layer, "attention.flash");
  ExpectShapes(layer, {{"attention.kv.received", "[B, 4S/cp, 2C]", "[2, 32, 64]"},
                       {"attention.context.merged", "[B, S/cp, 4A]", "[2, 8, 256]"},
                       {"attention.log_sum_exp.merged", "[B, N, 2S/cp]", "[2, 4, 16]"},
                       {"attention.query.gradient.sum", "[B, S/cp, A]", "[2, 8, 64]"},
                       {"attention.kv.gradients.around", "[B, S/cp, 6C]", "[2, 8, 192]"},
                       {"attention.kv.steps", "[B, S/cp, 4C]", "[2, 8, 128]"}});
  EXPECT_EQ(FindTensor(layer, "attention.context.merged").dtype, DType::kFp32);
  EXPECT_EQ(FindTensor(layer, "attention.kv.gradients.around").dtype, DType::kFp32);
  EXPECT_THAT(Names(layer, kernel.forward_temporaries),
              ElementsAre("attention.kv.received", "attention.context.merged",
                          "attention.log_sum_exp.merged"));
  EXPECT_THAT(
      Names(layer, kernel.saved),
      ElementsAre("attention.query.rotated", "attention.key.rotated", "attention.value.activation",
                  "attention.context", "attention.log_sum_exp"))
      << "each rank's own";
  EXPECT_EQ(kernel.forward_collectives.rows[0].kind, CollectiveKind::kGather);
  EXPECT_EQ(kernel.backward_collectives.rows[1].kind, CollectiveKind::kRing);
}

TEST(ShareKeysTest, TorchPassesKeysOnWhereItDoesNotGatherThem) {
  const Program program = Sharing("ring", 4, true, "fsdp2");
  const Block& layer = FindBlock(program, "layer");
  const Op& kernel = FindOp(layer, "attention.flash");
  ExpectShapes(layer, {{"attention.kv.sent", "[B, S/cp, 2C]", "[2, 8, 64]"},
                       {"attention.kv.received", "[B, S/cp, 4C]", "[2, 8, 128]"}});
  EXPECT_THAT(Names(layer, kernel.forward_temporaries), testing::Contains("attention.kv.sent"));
  const Program two = Sharing("ring", 2, true, "fsdp2");
  const Block& first = FindBlock(two, "layer");
  ExpectShapes(first, {{"attention.kv.received", "[B, S/cp, 2C]", "[2, 16, 64]"}});
  EXPECT_THAT(Names(first, FindOp(first, "attention.flash").forward_temporaries),
              testing::Not(testing::Contains("attention.kv.sent")))
      << "the last to receive sends nothing on";
}

TEST(ShareKeysTest, TorchCopiesWhatItMerged) {
  const Program program = Sharing("all-gather", 2, true, "fsdp2");
  const Block& layer = FindBlock(program, "layer");
  EXPECT_THAT(Names(layer, FindOp(layer, "attention.out").saved),
              ElementsAre("attention.context.copy"));
  EXPECT_EQ(FindOp(layer, "attention.context.copy").modules,
            FindOp(layer, "attention.flash").modules)
      << "made again with the kernel";
}

}  // namespace
}  // namespace plimsoll
