// The pass in words: what is frozen, what stands beside a product, and what is kept of it.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "estimator/program/parameter_sums.h"
#include "estimator/step/ledger.h"
#include "estimator/step/peak.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

// SmallJob(): four layers; B 2, S 32, H 64, A 64, C 32, F 128, V 256; all in 16 bits.
JobSpec Job(std::vector<std::string> targets = {"q_proj"}) {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  AdapterSpec& adapter = job.training.adapter;
  adapter.method = "lora";
  adapter.rank = 4;
  adapter.target_modules = std::move(targets);
  return job;
}

Program After(const JobSpec& job) { return ProgramAfter(Valid(job), PassId::kAdapters); }

// Tensors that backward of a block reads, each once.
std::vector<std::string> Saved(const Block& block) {
  std::vector<std::string> names;
  for (const Op& op : block.ops) {
    for (const TensorId id : op.saved) {
      const std::string name(block.tensors[block.tensors[id].storage].name);
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

std::vector<std::string> Trained(const Block& block) {
  std::vector<std::string> names;
  for (const Parameter& parameter : block.parameters) {
    if (!parameter.frozen) names.emplace_back(parameter.name);
  }
  return names;
}

// Copies of the tables are trained in their place: of each the weight, a gradient, Adam's two.
TEST(AdaptersTest, ModulesThatAreTrainedWhole) {
  JobSpec job = Job();
  job.cluster.gpu_count = 1;
  Shape(job).tied_embeddings = false;
  job.training.adapter.trained_modules = {"embed_tokens", "lm_head"};
  const Program program = After(job);
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
  JobSpec job = Job({"lm_head"});
  job.runtime.trainer = "litgpt";
  job.cluster.gpu_count = 1;
  const Program program = After(job);
  const Block& head = FindBlock(program, "head");
  EXPECT_THAT(Trained(head), ElementsAre("head.adapter.down.weight", "head.adapter.up.weight"));
  EXPECT_EQ(InNumbers(FindTensor(head, "head.adapter.down").shape), "[2, 32, 4]");
  EXPECT_THAT(Saved(head), Contains("head.adapter.down"));
  EXPECT_EQ(FindOp(head, "head").forward_temporaries.count, 4) << "three slices, and logits before";
}

TEST(AdaptersTest, WithoutOneNothingChanges) {
  const JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  for (const Block& block : After(job).blocks) {
    EXPECT_EQ(Trained(block).size(), block.parameters.size());
  }
}

TEST(AdaptersTest, TrainsTwoMatricesBesideAProduct) {
  const Program program = After(Job({"q_proj", "down_proj"}));
  const Block& layer = FindBlock(program, "layer");
  EXPECT_THAT(
      Trained(layer),
      ElementsAre("attention.query.adapter.down.weight", "attention.query.adapter.up.weight",
                  "mlp.down.adapter.down.weight", "mlp.down.adapter.up.weight"));
  const auto numbers = [&layer](absl::string_view name) {
    return InNumbers(FindParameter(layer, name).shape);
  };
  EXPECT_EQ(numbers("attention.query.adapter.down.weight"), "[4, 64]");
  EXPECT_EQ(numbers("mlp.down.adapter.down.weight"), "[4, 128]");
  EXPECT_EQ(numbers("mlp.down.adapter.up.weight"), "[64, 4]");
  EXPECT_THAT(Trained(FindBlock(program, "embedding")), IsEmpty());
  EXPECT_THAT(Trained(FindBlock(program, "head")), IsEmpty());
}

// A word for several modules is each of them.
TEST(AdaptersTest, WordsForSeveralModules) {
  EXPECT_EQ(Trained(FindBlock(After(Job({"attention"})), "layer")).size(), 8u);
  EXPECT_EQ(Trained(FindBlock(After(Job({"mlp"})), "layer")).size(), 6u);
  EXPECT_EQ(Trained(FindBlock(After(Job({"all-linear"})), "layer")).size(), 14u);
  EXPECT_EQ(Trained(FindBlock(After(Job({})), "layer")).size(), 4u) << "queries and values";
}

// A frozen product needs nothing of forward, a norm's upcast and what is multiplied with another
// do; an adapter keeps its input, in fp32 as it is itself, and what lies between its matrices.
TEST(AdaptersTest, KeepsWhatAnAdapterReads) {
  const Program program = After(Job());
  const Block& layer = FindBlock(program, "layer");
  const std::vector<std::string> saved = Saved(layer);
  EXPECT_THAT(saved, Contains("attention.query.adapter.input"));
  EXPECT_THAT(saved, Contains("attention.query.adapter.down"));
  EXPECT_THAT(saved, Contains("attention.norm.upcast"));
  EXPECT_THAT(saved, Not(Contains("attention.norm.normalized")));
  EXPECT_THAT(saved, Not(Contains("attention.norm")));
  EXPECT_THAT(saved, Not(Contains("mlp.product.activation")));
  EXPECT_EQ(FindTensor(layer, "attention.query.adapter.input").dtype, DType::kFp32);
  EXPECT_EQ(FindTensor(layer, "attention.query.adapter.sum").dtype, DType::kFp32);
  EXPECT_EQ(FindTensor(layer, "attention.query.adapter.output").dtype, DType::kBf16);
}

TEST(AdaptersTest, OfOneDTypeNothingIsCast) {
  JobSpec job = Job();
  job.training.adapter.adapter_dtype = "bf16";
  const Program program = After(job);
  const Block& layer = FindBlock(program, "layer");
  EXPECT_THAT(Saved(layer), Contains("attention.norm")) << "read by the adapter as it is";
  for (const Tensor& tensor : layer.tensors) {
    EXPECT_NE(tensor.name, "attention.query.adapter.input");
    EXPECT_NE(tensor.name, "attention.query.adapter.output");
  }
}

TEST(AdaptersTest, DropoutKeepsAMaskAndWhatIsLeft) {
  JobSpec job = Job();
  job.training.adapter.dropout = 0.05;
  const std::vector<std::string> saved = Saved(FindBlock(After(job), "layer"));
  EXPECT_THAT(saved, Contains("attention.query.adapter.dropout.mask"));
  EXPECT_THAT(saved, Contains("attention.query.adapter.dropped"));
  EXPECT_THAT(saved, Not(Contains("attention.query.adapter.input")));
}

absl::string_view HeldUntil(const Block& block, absl::string_view tensor) {
  const uint8_t until = FindTensor(block, tensor).held_until;
  return until < block.ops.size() ? block.ops[until].name : "nothing";
}

// Arguments of a call live until it returns: of PEFT's module, and of `lora_A` in it.
TEST(AdaptersTest, WhatAModuleIsCalledWithLivesUntilItReturns) {
  JobSpec job = Job({"down_proj"});
  job.training.adapter.dropout = 0.05;
  const Program program = After(job);
  const Block& layer = FindBlock(program, "layer");
  const absl::string_view done = HeldUntil(layer, "mlp.down.adapter.input");
  EXPECT_EQ(HeldUntil(layer, "mlp.product.activation"), done);
  EXPECT_EQ(HeldUntil(layer, "mlp.down.adapter.dropped"), "mlp.down.adapter.down");
}

// Locals that live until a product is done do until its adapter is.
TEST(AdaptersTest, LocalsOfLinearAttentionOutliveTheAdapterOfItsOutput) {
  JobSpec job = Job({"out_proj"});
  Shape(job).linear_value_head_count = 2;
  Shape(job).linear_key_head_size = 16;
  Shape(job).linear_value_head_size = 16;
  Shape(job).layer_count = 4;
  const Program program = After(job);
  const Block& layer = FindBlock(program, "linear layer");
  EXPECT_EQ(HeldUntil(layer, "linear.activated"), HeldUntil(layer, "linear.out.adapter.input"));
}

// Autocast multiplies in 16 bits what the adapter's dtype widened.
TEST(AdaptersTest, UnderAutocastA16BitCastIsKept) {
  JobSpec job = Job();
  job.training.precision.preset = "bf16-autocast";
  const Program program = After(job);
  const Block& layer = FindBlock(program, "layer");
  EXPECT_THAT(Saved(layer), Contains("attention.query.adapter.input.cast"));
  EXPECT_THAT(Saved(layer), Not(Contains("attention.query.adapter.input")));
  EXPECT_EQ(FindTensor(layer, "layer.input").dtype, DType::kBf16) << "frozen weights are";
  EXPECT_EQ(FindTensor(layer, "attention.query.adapter.sum").dtype, DType::kBf16);
}

// Nothing trained lies before the first adapter of the first layer.
TEST(AdaptersTest, TheFirstLayerKeepsNothingBeforeItsAdapter) {
  const Program program = After(Job({"o_proj"}));
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
  JobSpec job = Job();
  job.training.recompute.mode = "full";
  const Program program = After(job);
  EXPECT_EQ(program.blocks.size(), 3u);
  EXPECT_TRUE(FindTensor(FindBlock(program, "embedding"), "embedding.sum").differentiable);
}

// The largest layer that there is: norms in Python on both sides of each half, and of queries and
// keys, every module with an adapter that casts and drops its input, run twice. The ledger has
// room for 512 pieces of memory, a block for 250 tensors.
TEST(AdaptersTest, TheLargestLayerHasRoom) {
  JobSpec job = Job({"all-linear"});
  TransformerSpec& shape = Shape(job);
  shape.norm_placement = "sandwich";
  shape.qk_norm = "per-head";
  shape.hidden_dropout = shape.attention_dropout = 0.1;
  job.training.attention = "eager";
  job.training.recompute.mode = "full";
  job.training.adapter.dropout = 0.1;
  Transformer model = *Valid(job)->model;
  model.norm_class = NormClass::kCentred;
  job.model.source = std::make_shared<const Transformer>(model);
  const Program program = ProgramOf(job);
  const Block& layer = FindBlock(program, "layer");
  EXPECT_LE(layer.tensors.size(), 250u);
  EXPECT_LE(Record(layer, program.weight_gradient, program.gradient_dtype).pieces.size(), 512u);
}

JobSpec Under(const char* trainer, JobSpec job) {
  job.runtime.trainer = trainer;
  job.cluster.gpu_count = 1;
  return job;
}

// torchtune's have the weights' dtype. Python refers to what they read, and recomputed layers'
// inputs are not made to have a gradient.
TEST(AdaptersTest, TorchtunesHaveTheWeightsDType) {
  JobSpec job = Under("torchtune", Job({"down_proj"}));
  job.training.adapter.dropout = 0.05;
  job.training.recompute.mode = "full";
  EXPECT_EQ(Valid(job)->adapter->dtype, DType::kBf16);
  const Program program = After(job);
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
  const Program program = After(Under("torchtune", Job({"o_proj"})));
  const Block& layer = FindBlock(program, "layer");
  EXPECT_EQ(FindTensor(layer, "attention.norm.normalized").dtype, DType::kFp32);
  EXPECT_TRUE(FindTensor(layer, "attention.out.adapter.sum").held);
  EXPECT_FALSE(FindTensor(layer, "attention.out.activation").held);
}

// litgpt has one adapter of queries, keys and values: of each that has one a convolution, of
// which what is put among zeros is kept.
TEST(AdaptersTest, LitgptHasOneAdapterOfQueriesKeysAndValues) {
  const Program program = After(Under("litgpt", Job({"q_proj", "v_proj"})));
  const Block& layer = FindBlock(program, "layer");
  EXPECT_THAT(Trained(layer),
              ElementsAre("attention.qkv.adapter.down.weight", "attention.qkv.adapter.up.weight"));
  const auto numbers = [&layer](absl::string_view name) {
    return InNumbers(FindParameter(layer, name).shape);
  };
  EXPECT_EQ(numbers("attention.qkv.adapter.down.weight"), "[8, 64]") << "two ranks of 4";
  EXPECT_EQ(numbers("attention.qkv.adapter.up.weight"), "[96, 4]") << "A + C";
  EXPECT_THAT(Saved(layer), Contains("attention.qkv.adapter.up"));
  const Program all = After(Under("litgpt", Job({"q_proj", "k_proj", "v_proj"})));
  EXPECT_THAT(Saved(FindBlock(all, "layer")), Not(Contains("attention.qkv.adapter.up")));
}

TEST(AdaptersTest, StatesAreOfWhatIsTrained) {
  const Program program = ProgramOf(Job());
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
  JobSpec job = Job();
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
