// Ulysses in words: what the kernel sees, and the exchanges around it.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/tensors.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

TEST(ExchangeHeadsTest, GivesTheKernelSomeHeadsOfAllTokens) {
  const Program program = Exchanged(2);
  ExpectShapes(FindBlock(program, "layer"),
               {{"attention.query.exchanged", "[B, S, A/cp]", "[2, 32, 32]"},
                {"attention.key.exchanged", "[B, S, C/cp]", "[2, 32, 16]"},
                {"attention.value.exchanged", "[B, S, C/cp]", "[2, 32, 16]"},
                {"attention.context", "[B, S, A/cp]", "[2, 32, 32]"},
                {"attention.log_sum_exp", "[B, N/cp, S]", "[2, 2, 32]"},
                {"attention.context.exchanged", "[B, S/cp, A]", "[2, 16, 64]"}});
}

// Two heads of keys over four ranks: each has one, as its queries need.
TEST(ExchangeHeadsTest, CopiesHeadsThatAreFewerThanRanks) {
  const Program program = Exchanged(4);
  ExpectShapes(FindBlock(program, "layer"),
               {{"attention.query.exchanged", "[B, S, A/cp]", "[2, 32, 16]"},
                {"attention.key.exchanged", "[B, S, C/cp]", "[2, 32, 16]"}});
}

// What the kernel keeps for backward is what was exchanged; the next product keeps its
// own input.
TEST(ExchangeHeadsTest, TheKernelSavesWhatWasExchanged) {
  const Program program = Exchanged(2);
  const Block& layer = FindBlock(program, "layer");
  EXPECT_THAT(
      Names(layer, FindOp(layer, "attention.flash").saved),
      ElementsAre("attention.query.exchanged", "attention.key.exchanged",
                  "attention.value.exchanged", "attention.context", "attention.log_sum_exp"));
  EXPECT_THAT(Names(layer, FindOp(layer, "attention.out").saved),
              ElementsAre("attention.context.exchanged"));
}

// Each op that waits for an exchange, in their order, with what it holds for it.
std::vector<std::string> Exchanges(const Block& layer) {
  std::vector<std::string> found;
  for (const Op& op : layer.ops) {
    for (const Collective& row : op.forward_collectives) {
      if (row.kind != CollectiveKind::kAllToAll) continue;
      EXPECT_EQ(row.axes, Along(Axis::kContext));
      EXPECT_EQ(op.backward_collectives.count, 1) << "and its gradient goes back";
      std::string text(layer.tensors[op.outputs.ids[0]].name);
      for (const std::string& name : Names(layer, op.forward_temporaries)) text += " + " + name;
      found.push_back(text);
    }
  }
  return found;
}

// Source: deepspeed/runtime/sequence_parallel/ulysses_sp.py, UlyssesSPAttentionHF.
TEST(ExchangeHeadsTest, DeepSpeedLaysOutWhatItReceived) {
  const Program program = Exchanged(2);
  EXPECT_THAT(Exchanges(FindBlock(program, "layer")),
              ElementsAre("attention.query.received + attention.query.sent",
                          "attention.key.received + attention.key.sent",
                          "attention.value.received + attention.value.sent",
                          "attention.context.received + attention.context.sent"));
  JobSpec job = OverContext("deepspeed", 2);
  job.training.micro_batch_size = 1;
  const Program single = ProgramAfter(Valid(job), PassId::kContextParallel);
  EXPECT_EQ(Exchanges(FindBlock(single, "layer")).back(), "attention.context.received")
      << "of one sequence what the kernel made is in order";
}

// Source: verl/utils/ulysses.py, all_to_all_tensor.
TEST(ExchangeHeadsTest, Fsdp2PutsPiecesTogether) {
  const Program program = Exchanged(2, "fsdp2");
  EXPECT_THAT(
      Exchanges(FindBlock(program, "layer")),
      ElementsAre("attention.query.exchanged + attention.query.sent + attention.query.received",
                  "attention.key.exchanged + attention.key.sent + attention.key.received",
                  "attention.value.exchanged + attention.value.sent + attention.value.received",
                  "attention.context.exchanged + attention.context.sent + "
                  "attention.context.received"));
}

// Sequence parallelism scatters sums; an exchange is none.
TEST(ExchangeHeadsTest, SequenceParallelismLeavesExchanges) {
  JobSpec job = WithSequenceParallelism(OverContext("fsdp2", 2), 2);
  job.cluster.gpu_count = 4;
  const Program program = ProgramAfter(Valid(job), PassId::kSequenceParallel);
  EXPECT_EQ(Exchanges(FindBlock(program, "layer")).size(), 4u);
}

TEST(ExchangeHeadsTest, TheCallerHoldsWhatItGaveTheKernel) {
  const Program program = Exchanged(2);
  const Block& layer = FindBlock(program, "layer");
  for (const char* name : {"attention.query.rotated", "attention.key.rotated"}) {
    const uint8_t until = FindTensor(layer, name).held_until;
    ASSERT_LT(until, layer.ops.size()) << name;
    EXPECT_EQ(layer.ops[until].name, "attention.context.exchanged") << name;
    EXPECT_EQ(layer.ops[until + 1].name, "attention.out") << name;
  }
}

// Source: transformer_engine context_parallel.py, AttnFuncWithCPAndKVP2P.

// Source: the same file, AttnFuncWithCPAndKVAllGather.

}  // namespace
}  // namespace plimsoll
