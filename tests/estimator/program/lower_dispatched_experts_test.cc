// Experts that tokens are sent to, lowered: which weights and tensors they bring, and what stays.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

// B 2, S 32, H 64: eight experts 96 wide, two for each token.
JobSpec Job() {
  JobSpec job = With(SmallJob(), "megatron-core");
  Shape(job).expert_count = 8;
  Shape(job).active_expert_count = 2;
  Shape(job).expert_ffn_size = 96;
  return job;
}

Block Layer(const JobSpec& job) { return FindBlock(Lowered(Valid(job)), "layer"); }

// "name [symbols] dtype" of what an op saves.
std::vector<std::string> Saved(const JobSpec& job, absl::string_view op) {
  const Block layer = Layer(job);
  std::vector<std::string> rows;
  for (const TensorId id : FindOp(layer, op).saved) {
    const Tensor& tensor = layer.tensors[id];
    rows.push_back(
        absl::StrCat(tensor.name, " ", InSymbols(tensor.shape), " ", Name(tensor.dtype)));
  }
  return rows;
}

TEST(LowerDispatchedExpertsTest, GateAndUpAreOneProduct) {
  const Block layer = Layer(Job());
  EXPECT_EQ(InSymbols(FindParameter(layer, "experts.gate_up.weight").shape), "[X, 2G, H]");
  EXPECT_EQ(InSymbols(FindParameter(layer, "experts.down.weight").shape), "[X, H, G]");
  EXPECT_EQ(InSymbols(FindParameter(layer, "router.weight").shape), "[X, H]");
}

// One kernel weighs what gate and up give; without a gate the weights are an op of their own.
TEST(LowerDispatchedExpertsTest, TokensAreWeighedInsideOfTheMlp) {
  EXPECT_THAT(Saved(Job(), "experts.product"),
              ElementsAre("experts.gate_up.activation [B, S, K, 2G] bf16",
                          "experts.weights [B, S, K, 1] bf16"));
  JobSpec plain = Job();
  Shape(plain).gated_mlp = false;
  Shape(plain).activation = "gelu";
  plain.training.precision.router_dtype = "fp32";
  EXPECT_THAT(Saved(plain, "experts.activation"),
              ElementsAre("experts.up.activation [B, S, K, G] bf16"));
  EXPECT_THAT(Saved(plain, "experts.weigh"), ElementsAre("experts.activated [B, S, K, G] bf16",
                                                         "experts.weights [B, S, K, 1] fp32"));
}

// Rows are copied into whole groups and back; what was copied, and what is kept in fp8, is Python's
// until experts return.
TEST(LowerDispatchedExpertsTest, ProductsInFp8TakeWholeGroupsOfRows) {
  JobSpec job = Job();
  job.runtime.grouped_gemm = true;
  const auto copies = [](const Block& layer) {
    std::vector<std::string> names;
    for (const Op& op : layer.ops) {
      const bool copy = op.name == "experts.given" || absl::StartsWith(op.name, "experts.padded");
      if (copy) names.emplace_back(op.name);
    }
    return names;
  };
  EXPECT_THAT(copies(Layer(job)), ElementsAre());
  job.training.precision.preset = "fp8-mixed";
  job.cluster.gpu = "h100-80gb-sxm";
  const Block layer = Layer(job);
  EXPECT_THAT(copies(layer),
              ElementsAre("experts.padded", "experts.padded.weights", "experts.given"));
  for (const char* name : {"experts.dispatch", "experts.padded", "experts.product"}) {
    const Tensor& made = layer.tensors[FindOp(layer, name).outputs.ids[0]];
    ASSERT_LT(made.held_until, layer.ops.size()) << name;
    EXPECT_EQ(layer.ops[made.held_until].name, "experts.given") << name;
  }
}

// Scores of all experts, where they come before some are picked.
// Source: moe_utils.py, topk_routing_with_score_function.
TEST(LowerDispatchedExpertsTest, RoutersScoreWhatIsPickedOrAll) {
  JobSpec job = Job();
  job.training.precision.router_dtype = "fp32";
  EXPECT_THAT(Saved(job, "router.softmax"), ElementsAre("router.scores [B, S, K] fp32"));
  const JobSpec before =
      WithModel(job, [](Transformer& model) { model.experts.router = Router::kWideSoftmax; });
  EXPECT_THAT(Saved(before, "router.softmax"), ElementsAre("router.scores [B, S, X] fp32"));
  const JobSpec sigmoid =
      WithModel(job, [](Transformer& model) { model.experts.router = Router::kWideSigmoid; });
  EXPECT_THAT(Saved(sigmoid, "router.sigmoid"), ElementsAre("router.scores [B, S, X] fp32"));
  EXPECT_THAT(Saved(sigmoid, "router.shares"),
              ElementsAre("router.top [B, S, K] fp32", "router.sum [B, S, 1] fp32"));
  EXPECT_EQ(Saved(sigmoid, "router.scatter").size(), 1u);
}

JobSpec Of(const char* core, const char* dispatcher) {
  JobSpec job = Job();
  job.runtime.versions["megatron-core"] = core;
  job.runtime.deterministic = true;
  job.parallelism.token_dispatcher = dispatcher;
  return job;
}

// Source: Megatron-LM core 0.12.0, core/transformer/moe/token_dispatcher.py.
TEST(LowerDispatchedExpertsTest, OldCoresWeighWhatExpertsGave) {
  for (const char* dispatcher : {"all-gather", "all-to-all"}) {
    const JobSpec job = Of("0.12", dispatcher);
    EXPECT_THAT(Saved(job, "experts.product"),
                ElementsAre("experts.gate_up.activation [B, S, K, 2G] bf16"));
    const bool sends = absl::string_view(dispatcher) == "all-to-all";
    EXPECT_THAT(
        Saved(job, "experts.weigh"),
        ElementsAre(
            sends ? "experts.returned [B, S, K, H] bf16" : "experts.output [B, S, K, H] bf16",
            sends ? "experts.weights [B, S, K] bf16" : "experts.weights [B, S, K, 1] bf16"))
        << dispatcher;
    EXPECT_THAT(Saved(job, "experts.combine"), ElementsAre("experts.order [B, S, K] int64"));
    const Block layer = Layer(job);
    EXPECT_EQ(FindOp(layer, sends ? "experts.weigh" : "experts.combine").kind, OpKind::kCombine)
        << "where rows come back, or are summed up";
  }
}

// Source: Megatron-LM core 0.13.0, core/transformer/moe/moe_utils.py, unpermute (scatter_add_).
TEST(LowerDispatchedExpertsTest, CoresBefore015KeepIndicesAlone) {
  const JobSpec job = Of("0.14", "all-gather");
  EXPECT_THAT(Saved(job, "experts.combine"), ElementsAre("experts.order [B, S, K] int64"));
  EXPECT_EQ(Saved(job, "experts.product").size(), 2u) << "weighed inside";
}

TEST(LowerDispatchedExpertsTest, WhatIsSummedInAFixedOrderStays) {
  EXPECT_THAT(Saved(Job(), "experts.combine"), ElementsAre("experts.order [B, S, K] int64"));
  JobSpec job = Job();
  job.runtime.deterministic = true;
  EXPECT_THAT(Saved(job, "experts.combine"),
              ElementsAre("experts.order [B, S, K] int64", "experts.output [B, S, K, H] bf16"));
}

// A grouped product gives what all experts do; one after the other is joined.
TEST(LowerDispatchedExpertsTest, OneAfterTheOtherIsJoined) {
  const auto has = [](const JobSpec& job, absl::string_view name) {
    const Block layer = Layer(job);
    return std::any_of(layer.ops.begin(), layer.ops.end(),
                       [&](const Op& op) { return op.name == name; });
  };
  JobSpec job = Job();
  EXPECT_TRUE(has(job, "experts.join"));
  EXPECT_TRUE(FindParameter(Layer(job), "experts.down.weight").one_by_one);
  job.runtime.grouped_gemm = true;
  EXPECT_FALSE(has(job, "experts.join"));
  EXPECT_FALSE(FindParameter(Layer(job), "experts.down.weight").one_by_one);
}

TEST(LowerDispatchedExpertsTest, WhatIsSentIsSortedByExpert) {
  JobSpec job = Job();
  job.parallelism.token_dispatcher = "all-to-all";
  const Block layer = Layer(job);
  EXPECT_EQ(FindOp(layer, "experts.sort").outputs.count, 2);
  EXPECT_EQ(FindOp(layer, "experts.unsort").outputs.count, 1);
}

TEST(LowerDispatchedExpertsTest, SharedExpertsStandBesideThem) {
  JobSpec job = Job();
  Shape(job).shared_expert_ffn_size = 32;
  const Block layer = Layer(job);
  EXPECT_EQ(InSymbols(FindParameter(layer, "mlp.down.weight").shape), "[H, U]");
  EXPECT_EQ(InSymbols(FindTensor(layer, "experts.and_shared").shape), "[B, S, H]");
}

}  // namespace
}  // namespace plimsoll
