// The pass in words: what is frozen, which modules have an adapter, and what is kept of layers.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "estimator/program/parameter_sums.h"
#include "estimator/step/peak.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/estimator/passes/adapted.h"

namespace plimsoll {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

// Copies of the tables are trained in their place: of each the weight, a gradient, Adam's two.
TEST(AdaptersTest, ModulesThatAreTrainedWhole) {
  JobSpec job = AdapterJob();
  job.cluster.gpu_count = 1;
  Shape(job).tied_embeddings = false;
  job.training.adapter.trained_modules = {"embed_tokens", "lm_head"};
  const Program program = AfterAdapters(job);
  EXPECT_TRUE(FindTensor(FindBlock(program, "embedding"), "embedding.sum").differentiable);
  EXPECT_THAT(Saved(FindBlock(program, "head")), Contains("final.norm"));
  const Program all = ProgramOf(job);
  int64_t bytes = 0;
  for (const State& state : all.states) {
    if (absl::EndsWith(state.name, "trained_modules")) bytes += state.fixed_bytes;
  }
  constexpr int64_t kTable = int64_t{256} * 64 * 2;
  constexpr int64_t kOfEach = 5;  // with what foreach makes in the step
  EXPECT_EQ(bytes, 2 * kOfEach * kTable);
}

// The head's adapter: what is as wide as the logits is of a slice of the tokens.
TEST(AdaptersTest, AnAdapterOfAHeadThatRunsOverSlices) {
  JobSpec job = AdapterJob({"lm_head"});
  job.runtime.trainer = "litgpt";
  job.cluster.gpu_count = 1;
  const Program program = AfterAdapters(job);
  const Block& head = FindBlock(program, "head");
  EXPECT_THAT(Trained(head), ElementsAre("head.adapter.down.weight", "head.adapter.up.weight"));
  EXPECT_EQ(InNumbers(FindTensor(head, "head.adapter.down").shape), "[2, 32, 4]");
  EXPECT_THAT(Saved(head), Contains("head.adapter.down"));
  EXPECT_EQ(FindOp(head, "head").forward_temporaries.count, 4) << "three slices, and logits before";
}

TEST(AdaptersTest, WithoutOneNothingChanges) {
  const JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  for (const Block& block : AfterAdapters(job).blocks) {
    EXPECT_EQ(Trained(block).size(), block.parameters.size());
  }
}

// A word for several modules is each of them.
TEST(AdaptersTest, WordsForSeveralModules) {
  EXPECT_EQ(Trained(FindBlock(AfterAdapters(AdapterJob({"attention"})), "layer")).size(), 8u);
  EXPECT_EQ(Trained(FindBlock(AfterAdapters(AdapterJob({"mlp"})), "layer")).size(), 6u);
  EXPECT_EQ(Trained(FindBlock(AfterAdapters(AdapterJob({"all-linear"})), "layer")).size(), 14u);
  EXPECT_EQ(Trained(FindBlock(AfterAdapters(AdapterJob({})), "layer")).size(), 4u)
      << "queries and values";
}

// Nothing trained lies before the first adapter of the first layer.
TEST(AdaptersTest, TheFirstLayerKeepsNothingBeforeItsAdapter) {
  const Program program = AfterAdapters(AdapterJob({"o_proj"}));
  const Block& first = FindBlock(program, "first layer");
  EXPECT_THAT(Saved(first), Not(Contains("attention.norm.upcast")));
  EXPECT_THAT(Saved(first), Not(Contains("attention.context")));
  EXPECT_THAT(Saved(first), Contains("attention.out.adapter.input"));
  EXPECT_THAT(Saved(first), Contains("mlp.norm.upcast"));
  EXPECT_THAT(Saved(FindBlock(program, "layer")), Contains("attention.norm.upcast"));
  EXPECT_FALSE(FindTensor(FindBlock(program, "embedding"), "embedding.sum").differentiable);
}

// Where layers are run again, the first one's input has a gradient, and all are alike.
TEST(AdaptersTest, RecomputedLayersAreAlike) {
  JobSpec job = AdapterJob();
  job.training.recompute.mode = "full";
  const Program program = AfterAdapters(job);
  EXPECT_EQ(program.blocks.size(), 3u);
  EXPECT_TRUE(FindTensor(FindBlock(program, "embedding"), "embedding.sum").differentiable);
}

// torchtune's have the weights' dtype. Python refers to what they read, and recomputed layers'
// inputs are not made to have a gradient.
TEST(AdaptersTest, TorchtunesHaveTheWeightsDType) {
  JobSpec job = Under("torchtune", AdapterJob({"down_proj"}));
  job.training.adapter.dropout = 0.05;
  job.training.recompute.mode = "full";
  EXPECT_EQ(Valid(job)->adapter->dtype, DType::kBf16);
  const Program program = AfterAdapters(job);
  const Block& layer = FindBlock(program, "layer");
  for (const Tensor& tensor : layer.tensors) EXPECT_NE(tensor.name, "mlp.down.adapter.input");
  const uint8_t until = FindTensor(layer, "mlp.product.activation").held_until;
  ASSERT_LT(until, layer.ops.size());
  EXPECT_EQ(layer.ops[until].name, "mlp.down.adapter.sum");
  EXPECT_FALSE(FindTensor(FindBlock(program, "embedding"), "embedding.sum").differentiable);
  EXPECT_EQ(FindBlock(program, "first layer").layers.end, 1);
}

// Norms of torchtune's are fp32 until their output; what attention gave stays to the layer's end.
TEST(AdaptersTest, TorchtunesLayersHoldTheirLocals) {
  const Program program = AfterAdapters(Under("torchtune", AdapterJob({"o_proj"})));
  const Block& layer = FindBlock(program, "layer");
  EXPECT_EQ(FindTensor(layer, "attention.norm.normalized").dtype, DType::kFp32);
  EXPECT_TRUE(FindTensor(layer, "attention.out.adapter.sum").held);
  EXPECT_FALSE(FindTensor(layer, "attention.out.activation").held);
}

// NeMo Automodel's keep what they read alone, and have the weights' dtype.
TEST(AdaptersTest, AutomodelsKeepWhatTheyRead) {
  const JobSpec job = Under("nemo-automodel", AdapterJob({"o_proj"}));
  EXPECT_EQ(Valid(job)->adapter->dtype, DType::kBf16);
  const Program program = AfterAdapters(job);
  const Block& layer = FindBlock(program, "layer");
  EXPECT_THAT(Saved(layer), Contains("attention.context"));
  EXPECT_THAT(Saved(layer), Not(Contains("attention.out.adapter.down")));
  EXPECT_THAT(Trained(layer),
              ElementsAre("attention.out.adapter.down.weight", "attention.out.adapter.up.weight"));
  const Tensor& sum = FindTensor(layer, "attention.out.adapter.sum");
  EXPECT_EQ(layer.tensors[sum.storage].name, "attention.out.adapter.output") << "in place";
  EXPECT_EQ(FindBlock(program, "first layer").layers.end, 1);
}

TEST(AdaptersTest, StatesAreOfWhatIsTrained) {
  const Program program = ProgramOf(AdapterJob());
  const ParameterSums sums = SumParameters(program, program.stages.front());
  EXPECT_EQ(sums.parameters, 4 * (4 * 64 + 64 * 4));
  EXPECT_EQ(sums.All() - sums.parameters,
            SumParameters(ProgramOf(With(SmallJob(), "ddp", "bf16-pure")), WholeStage(4)).All());
  EXPECT_EQ(StateBytes(*FindState(program, "weights"), sums), 4 * sums.parameters);
  EXPECT_EQ(StateBytes(*FindState(program, "weights.frozen"), sums), 2 * sums.frozen);
  EXPECT_EQ(StateBytes(*FindState(program, "gradients"), sums), 4 * sums.parameters);
  EXPECT_EQ(StateBytes(*FindState(program, "optimizer.momentum"), sums), 4 * sums.parameters);
}

// Frozen weights are sharded and gathered; what is reduced is of adapters alone.
TEST(AdaptersTest, Fsdp2ShardsBoth) {
  JobSpec job = AdapterJob();
  job.runtime.framework = "fsdp2";
  job.training.adapter.adapter_dtype = "bf16";
  job.cluster.gpu_count = 8;
  const Program program = ProgramOf(job);
  EXPECT_EQ(FindState(program, "weights.frozen")->shards, 8);
  // Of A's four rows each rank has one, of eight.
  EXPECT_EQ(FindBlock(program, "layer").reduce_bytes, 2 * (8 * 64 + 64 * 4));
  EXPECT_EQ(FindBlock(program, "head").reduce_bytes, 0);
}

}  // namespace
}  // namespace plimsoll
