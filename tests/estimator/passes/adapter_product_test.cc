// Adapters beside products, in words: what is trained, what is kept of them, what lives until when.
#include <memory>
#include <string>
#include <vector>

#include "estimator/step/ledger.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/estimator/passes/adapted.h"

namespace plimsoll {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(AdapterProductTest, TrainsTwoMatricesBesideAProduct) {
  const Program program = AfterAdapters(AdapterJob({"q_proj", "down_proj"}));
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

// A frozen product needs nothing of forward, a norm's upcast and what is multiplied with another
// do; an adapter keeps its input, in fp32 as it is itself, and what lies between its matrices.
TEST(AdapterProductTest, KeepsWhatAnAdapterReads) {
  const Program program = AfterAdapters(AdapterJob());
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

// IA3 scales what a product gives by a vector of as many, and what another reads: fp32 vectors make
// wide factors, of which each keeps the one that it did not train.
TEST(AdapterProductTest, VectorsScaleWhatProductsGiveOrRead) {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  job.training.adapter.method = "ia3";
  job.training.adapter.target_modules = {"k_proj", "down_proj"};
  const Program program = AfterAdapters(job);
  const Block& layer = FindBlock(program, "layer");
  EXPECT_THAT(Trained(layer),
              ElementsAre("attention.key.adapter.magnitude", "mlp.down.adapter.magnitude"));
  EXPECT_EQ(InNumbers(FindParameter(layer, "attention.key.adapter.magnitude").shape), "[32, 1]");
  EXPECT_EQ(InNumbers(FindParameter(layer, "mlp.down.adapter.magnitude").shape), "[1, 128]");
  EXPECT_THAT(Saved(layer), Contains("attention.key.activation"));
  EXPECT_THAT(Saved(layer), Contains("mlp.down.adapter.input"));
  EXPECT_EQ(FindTensor(layer, "mlp.down.adapter.input").dtype, DType::kFp32);
  EXPECT_EQ(FindTensor(layer, "attention.key.adapter.weighed").dtype, DType::kFp32);
  EXPECT_EQ(FindTensor(layer, "attention.key.adapter.scaled.cast").dtype, DType::kBf16);
  const Op& down = FindOp(layer, "mlp.down");
  EXPECT_EQ(layer.tensors[down.inputs.ids[0]].name, "mlp.down.adapter.scaled.cast");
}

TEST(AdapterProductTest, OfOneDTypeNothingIsCast) {
  JobSpec job = AdapterJob();
  job.training.adapter.adapter_dtype = "bf16";
  const Program program = AfterAdapters(job);
  const Block& layer = FindBlock(program, "layer");
  EXPECT_THAT(Saved(layer), Contains("attention.norm")) << "read by the adapter as it is";
  for (const Tensor& tensor : layer.tensors) {
    EXPECT_NE(tensor.name, "attention.query.adapter.input");
    EXPECT_NE(tensor.name, "attention.query.adapter.output");
  }
}

TEST(AdapterProductTest, DropoutKeepsAMaskAndWhatIsLeft) {
  JobSpec job = AdapterJob();
  job.training.adapter.dropout = 0.05;
  const std::vector<std::string> saved = Saved(FindBlock(AfterAdapters(job), "layer"));
  EXPECT_THAT(saved, Contains("attention.query.adapter.dropout.mask"));
  EXPECT_THAT(saved, Contains("attention.query.adapter.dropped"));
  EXPECT_THAT(saved, Not(Contains("attention.query.adapter.input")));
}

// Arguments of a call live until it returns: of PEFT's module, and of `lora_A` in it.
TEST(AdapterProductTest, WhatAModuleIsCalledWithLivesUntilItReturns) {
  JobSpec job = AdapterJob({"down_proj"});
  job.training.adapter.dropout = 0.05;
  const Program program = AfterAdapters(job);
  const Block& layer = FindBlock(program, "layer");
  const absl::string_view done = HeldUntil(layer, "mlp.down.adapter.input");
  EXPECT_EQ(HeldUntil(layer, "mlp.product.activation"), done);
  EXPECT_EQ(HeldUntil(layer, "mlp.down.adapter.dropped"), "mlp.down.adapter.down");
}

// Locals that live until a product is done do until its adapter is.
TEST(AdapterProductTest, LocalsOfLinearAttentionOutliveTheAdapterOfItsOutput) {
  JobSpec job = AdapterJob({"out_proj"});
  Shape(job).linear_value_head_count = 2;
  Shape(job).linear_key_head_size = 16;
  Shape(job).linear_value_head_size = 16;
  Shape(job).layer_count = 4;
  const Program program = AfterAdapters(job);
  const Block& layer = FindBlock(program, "linear layer");
  EXPECT_EQ(HeldUntil(layer, "linear.activated"), HeldUntil(layer, "linear.out.adapter.input"));
}

// Autocast multiplies in 16 bits what the adapter's dtype widened.
TEST(AdapterProductTest, UnderAutocastA16BitCastIsKept) {
  JobSpec job = AdapterJob();
  job.training.precision.preset = "bf16-autocast";
  const Program program = AfterAdapters(job);
  const Block& layer = FindBlock(program, "layer");
  EXPECT_THAT(Saved(layer), Contains("attention.query.adapter.input.cast"));
  EXPECT_THAT(Saved(layer), Not(Contains("attention.query.adapter.input")));
  EXPECT_EQ(FindTensor(layer, "layer.input").dtype, DType::kBf16) << "frozen weights are";
  EXPECT_EQ(FindTensor(layer, "attention.query.adapter.sum").dtype, DType::kBf16);
}

// The largest layer that there is: norms in Python on both sides of each half, and of queries and
// keys, every module with an adapter that casts and drops its input, run twice. The ledger has
// room for 1,024 pieces of memory, a block for 250 tensors.
void ExpectRoom(const JobSpec& job, absl::string_view name) {
  const Program program = ProgramOf(job);
  const Block& layer = FindBlock(program, name);
  EXPECT_LE(layer.tensors.size(), 250u);
  EXPECT_LE(Record(layer, program.weight_gradient, program.gradient_dtype).pieces.size(), 1024u);
}
class LargestLayerTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Methods, LargestLayerTest, ::testing::Values("lora", "dora"));

TEST_P(LargestLayerTest, HasRoom) {
  JobSpec job = AdapterJob({"all-linear"});
  job.training.adapter.method = GetParam();
  TransformerSpec& shape = Shape(job);
  shape.norm_placement = "sandwich";
  shape.qk_norm = "per-head";
  shape.hidden_dropout = shape.attention_dropout = 0.1;
  shape.qkv_bias = shape.attention_output_bias = shape.mlp_bias = true;
  job.training.attention = "eager";
  job.training.precision.preset = "bf16-autocast";
  job.training.recompute.mode = "full";
  job.training.adapter.dropout = 0.1;
  Transformer model = *Valid(job)->model;
  model.norm_class = NormClass::kCentred;
  job.model.source = std::make_shared<const Transformer>(model);
  ExpectRoom(job, "layer");
  if (job.training.adapter.method == "dora") return;
  job.training.quantization.format = "int8";
  ExpectRoom(job, "layer");
}

// Linear attention with experts, shared ones and their gate has the most modules of all.
TEST(LargestLinearLayerTest, HasRoom) {
  JobSpec job = With(SmallJob(), "ddp", "bf16-autocast");
  TransformerSpec& shape = Shape(job);
  shape.linear_value_head_count = 2;
  shape.linear_key_head_size = shape.linear_value_head_size = 16;
  shape.layer_count = 4;
  shape.qk_norm = "per-head";
  shape.expert_count = 4;
  shape.active_expert_count = 2;
  shape.expert_ffn_size = shape.shared_expert_ffn_size = 64;
  job.training.attention = "eager";
  job.training.linear_attention = "torch";
  job.training.recompute.mode = "full";
  Transformer model = *Valid(job)->model;
  model.norm_class = NormClass::kCentred;
  model.experts.shared_gate = true;
  model.experts.words = ExpertWords::kNone;
  job.model.source = std::make_shared<const Transformer>(model);
  job.training.adapter = AdapterJob({"all-linear"}).training.adapter;
  job.training.adapter.dropout = 0.1;
  ExpectRoom(job, "linear layer");
  job.training.quantization.format = "int8";
  ExpectRoom(job, "linear layer");
  job.training.quantization.format.reset();
  job.training.adapter.method = "dora";
  EXPECT_THAT(Refusals(job), ElementsAre("job.training.adapter.method: dora; is not modelled on "
                                         "linear attention"));
}

JobSpec DoraJob(double dropout) {
  JobSpec job = AdapterJob();
  job.training.adapter.method = "dora";
  job.training.adapter.dropout = dropout;
  return job;
}

JobSpec TorchtunesDora(const char* modules) {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  job.cluster.gpu_count = 1;
  job.runtime.trainer = "torchtune";
  job.training.adapter.method = "dora";
  job.training.adapter.target_modules = {modules};
  job.training.adapter.dropout = 0.05;
  return job;
}

// torchtune's beside weights in 4 bits, which are made whole for the product and for its norm.
TEST(LargestTorchtuneLayerTest, HasRoom) {
  JobSpec job = TorchtunesDora("all-linear");
  job.training.quantization.format = "nf4";
  Shape(job).qk_norm = "per-head";
  ExpectRoom(job, "layer");
}

// torchtune's weighs what the frozen product gave, dropout or not, in one dtype.
TEST(AdapterProductTest, TorchtunesDoraReadsTheProduct) {
  const Program program = AfterAdapters(TorchtunesDora("down_proj"));
  const Block& layer = FindBlock(program, "layer");
  EXPECT_EQ(FindTensor(layer, "mlp.down.adapter.part").dtype, DType::kBf16);
  for (const Op& op : layer.ops) EXPECT_NE(op.name, "mlp.down.adapter.base");
  for (const Parameter& parameter : layer.parameters) {
    EXPECT_TRUE(parameter.frozen || parameter.dtype == DType::kBf16) << parameter.name;
  }
}

TEST(AdapterProductTest, DoraIsModelledInFp32) {
  JobSpec job = DoraJob(0);
  job.training.adapter.adapter_dtype = "bf16";
  EXPECT_THAT(Refusals(job), ElementsAre("job.training.adapter.adapter_dtype: bf16; is not "
                                         "modelled with DoRA: fp32 is"));
}

// A length for each row is trained beside the two matrices; backward needs what both are of.
TEST(AdapterProductTest, DoraWeighsBothByLengthsOfRows) {
  const Program program = AfterAdapters(DoraJob(0));
  const Block& layer = FindBlock(program, "layer");
  EXPECT_THAT(Trained(layer), ElementsAre("attention.query.adapter.down.weight",
                                          "attention.query.adapter.up.weight",
                                          "attention.query.adapter.magnitude"));
  EXPECT_EQ(InNumbers(FindParameter(layer, "attention.query.adapter.magnitude").shape), "[64]");
  EXPECT_THAT(Saved(layer), Contains("attention.query.activation"));
  EXPECT_THAT(Saved(layer), Contains("attention.query.adapter.up"));
  EXPECT_EQ(FindTensor(layer, "attention.query.adapter.dora").dtype, DType::kFp32);
  EXPECT_EQ(FindTensor(layer, "attention.query.adapter.output").dtype, DType::kBf16);
}

// The norm is of the whole weight: a unit matrix, the adapter's product of it and the weight are
// locals until both parts are there.
TEST(AdapterProductTest, DoraMakesTheWeightAnewForItsNorm) {
  const Program program = AfterAdapters(DoraJob(0));
  const Block& layer = FindBlock(program, "layer");
  for (const char* name : {"attention.query.adapter.eye", "attention.query.adapter.delta",
                           "attention.query.adapter.weight"}) {
    EXPECT_EQ(HeldUntil(layer, name), "attention.query.adapter.dora") << name;
    EXPECT_THAT(Saved(layer), Not(Contains(name)));
  }
  EXPECT_EQ(FindTensor(layer, "attention.query.adapter.weight").Bytes(), 64 * 64 * 4);
}

// What is dropped out is multiplied by the weight anew, and that stays for backward.
TEST(AdapterProductTest, DoraWithDropoutKeepsTheWeight) {
  EXPECT_THAT(Saved(FindBlock(AfterAdapters(DoraJob(0.05)), "layer")),
              Contains("attention.query.adapter.weight"));
  JobSpec autocast = DoraJob(0.05);
  autocast.training.precision.preset = "bf16-autocast";
  const Program program = AfterAdapters(autocast);
  const Block& layer = FindBlock(program, "layer");
  EXPECT_THAT(Saved(layer), Contains("attention.query.adapter.weight.cast"));
  EXPECT_EQ(FindTensor(layer, "attention.query.adapter.weight.cast").Bytes(), 64 * 64 * 2);
}

TEST(AdapterProductTest, LatentAttentionHasProductsOfItsOwn) {
  JobSpec job = AdapterJob({"all-linear"});
  TransformerSpec& shape = Shape(job);
  shape.kv_head_count = shape.head_count;
  shape.head_size = 24;
  shape.query_rank = 32;
  shape.key_value_rank = 16;
  shape.rotary_head_size = 8;
  shape.qk_norm = "per-rank";
  EXPECT_EQ(Trained(FindBlock(AfterAdapters(job), "layer")).size(), 2u * (5 + 3));
  job.training.adapter.target_modules = {"q_a_proj", "kv_b_proj"};
  EXPECT_THAT(
      Trained(FindBlock(AfterAdapters(job), "layer")),
      ElementsAre("attention.query.down.adapter.down.weight",
                  "attention.query.down.adapter.up.weight", "attention.kv.up.adapter.down.weight",
                  "attention.kv.up.adapter.up.weight"));
}

// litgpt has one adapter of queries, keys and values: of each that has one a convolution, of
// which what is put among zeros is kept.
TEST(AdapterProductTest, LitgptHasOneAdapterOfQueriesKeysAndValues) {
  const Program program = AfterAdapters(Under("litgpt", AdapterJob({"q_proj", "v_proj"})));
  const Block& layer = FindBlock(program, "layer");
  EXPECT_THAT(Trained(layer),
              ElementsAre("attention.qkv.adapter.down.weight", "attention.qkv.adapter.up.weight"));
  const auto numbers = [&layer](absl::string_view name) {
    return InNumbers(FindParameter(layer, name).shape);
  };
  EXPECT_EQ(numbers("attention.qkv.adapter.down.weight"), "[8, 64]") << "two ranks of 4";
  EXPECT_EQ(numbers("attention.qkv.adapter.up.weight"), "[96, 4]") << "A + C";
  EXPECT_THAT(Saved(layer), Contains("attention.qkv.adapter.up"));
  const Program all = AfterAdapters(Under("litgpt", AdapterJob({"q_proj", "k_proj", "v_proj"})));
  EXPECT_THAT(Saved(FindBlock(all, "layer")), Not(Contains("attention.qkv.adapter.up")));
}

}  // namespace
}  // namespace plimsoll
