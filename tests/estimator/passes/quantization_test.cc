// The pass in words: which matrices are kept in 4 or 8 bits, and what products make of them.
#include <string>
#include <vector>

#include "estimator/program/parameter_sums.h"
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
JobSpec Job() {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  job.training.adapter.method = "lora";
  job.training.adapter.rank = 4;
  job.training.adapter.target_modules = {"q_proj"};
  job.training.quantization.format = "nf4";
  return job;
}

Program After(const JobSpec& job) { return ProgramAfter(Valid(job), PassId::kQuantization); }

std::vector<std::string> Quantized(const Block& block) {
  std::vector<std::string> names;
  for (const Parameter& parameter : block.parameters) {
    if (parameter.quantized) names.emplace_back(parameter.name);
  }
  return names;
}

std::vector<std::string> Tensors(const Block& block) {
  std::vector<std::string> names;
  for (const Tensor& tensor : block.tensors) names.emplace_back(tensor.name);
  return names;
}

int64_t StateBytes(const Program& program, absl::string_view name) {
  const ParameterSums sums = SumParameters(program, program.stages.front());
  for (const State& state : program.states) {
    if (state.name == name) return StateBytes(state, sums);
  }
  return -1;
}

TEST(QuantizationTest, WithoutOneNothingChanges) {
  JobSpec job = Job();
  job.training.quantization = {};
  for (const Block& block : After(job).blocks) EXPECT_THAT(Quantized(block), IsEmpty());
}

TEST(QuantizationTest, KeepsTheLayersMatricesInFewerBits) {
  const Program program = After(Job());
  const Block& layer = FindBlock(program, "layer");
  EXPECT_THAT(Quantized(layer), ElementsAre("attention.query.weight", "attention.key.weight",
                                            "attention.value.weight", "attention.out.weight",
                                            "mlp.gate.weight", "mlp.up.weight", "mlp.down.weight"));
  EXPECT_EQ(FindParameter(layer, "mlp.up.weight").dtype, DType::kNf4);
  EXPECT_EQ(FindParameter(layer, "attention.query.adapter.up.weight").dtype, DType::kFp32);
  EXPECT_EQ(FindParameter(layer, "mlp.norm.weight").dtype, DType::kBf16);
  EXPECT_THAT(Quantized(FindBlock(program, "first layer")).size(), 7u);
  EXPECT_THAT(Quantized(FindBlock(program, "embedding")), IsEmpty());
  EXPECT_THAT(Quantized(FindBlock(program, "head")), IsEmpty());
}

// Forward and backward make the matrix whole, for as long as they multiply by it.
TEST(QuantizationTest, AProductMakesItsMatrixWhole) {
  const Program program = After(Job());
  const Block& layer = FindBlock(program, "layer");
  const Op& up = FindOp(layer, "mlp.up");
  ASSERT_EQ(up.forward_temporaries.count, 1);
  ASSERT_EQ(up.backward_temporaries.count, 1);
  const Tensor& whole = layer.tensors[up.forward_temporaries.ids[0]];
  EXPECT_EQ(InNumbers(whole.shape), "[128, 64]");
  EXPECT_EQ(whole.Bytes(), 128 * 64 * 2);
  EXPECT_EQ(up.saved.count, 0);
  const Op& adapter = FindOp(layer, "attention.query.adapter.up");
  EXPECT_EQ(adapter.forward_temporaries.count, 0) << "it is trained";
}

// Nothing trained lies before the first layer's queries: no gradient goes there.
TEST(QuantizationTest, WithoutAGradientNothingIsMadeInBackward) {
  const Program program = After(Job());
  const Op& query = FindOp(FindBlock(program, "first layer"), "attention.query");
  EXPECT_EQ(query.forward_temporaries.count, 1);
  EXPECT_EQ(query.backward_temporaries.count, 0);
}

// A product reads and gives the compute dtype; around it is what there was.
TEST(QuantizationTest, ProductsReadTheComputeDType) {
  JobSpec job = Job();
  EXPECT_THAT(Tensors(FindBlock(After(job), "layer")), Not(Contains("quantized.input.cast")));
  job.training.quantization.compute_dtype = "fp32";
  const Program program = After(job);
  const Block& layer = FindBlock(program, "layer");
  const Op& up = FindOp(layer, "mlp.up");
  EXPECT_EQ(layer.tensors[up.inputs.ids[0]].name, "quantized.input.cast");
  EXPECT_EQ(layer.tensors[up.inputs.ids[0]].dtype, DType::kFp32);
  EXPECT_EQ(layer.tensors[up.outputs.ids[0]].name, "quantized.output");
  EXPECT_EQ(layer.tensors[up.forward_temporaries.ids[0]].Bytes(), 128 * 64 * 4);
  EXPECT_EQ(FindTensor(layer, "mlp.up.activation").dtype, DType::kBf16);
}

JobSpec Litgpt(const char* version) {
  JobSpec job = Job();
  job.training.adapter.target_modules = {"q_proj", "lm_head"};
  job.runtime.trainer = "litgpt";
  job.runtime.versions["litgpt"] = version;
  job.cluster.gpu_count = 1;
  return job;
}

// litgpt quantizes the head too, and its matrices are fp16 before they are what a product reads.
TEST(QuantizationTest, LitgptsMatricesAreCastWhenTheyAreWhole) {
  const Program program = After(Litgpt("0.5"));
  const Block& layer = FindBlock(program, "layer");
  EXPECT_EQ(FindTensor(layer, "weights.dequantized.fp16").dtype, DType::kFp16);
  EXPECT_EQ(FindOp(layer, "mlp.up").saved.count, 0);
  const Block& head = FindBlock(program, "head");
  EXPECT_THAT(Quantized(head), ElementsAre("head.weight"));
  EXPECT_EQ(InNumbers(FindTensor(head, "weights.dequantized").shape), "[256, 64]")
      << "the adapter's own is not made whole";
}

// bitsandbytes 0.42 keeps what a product read, and with the graph of the micro-batch before.
TEST(QuantizationTest, LitgptBefore05KeepsWhatProductsRead) {
  const Program program = After(Litgpt("0.4"));
  const Block& layer = FindBlock(program, "layer");
  const Op& up = FindOp(layer, "mlp.up");
  ASSERT_EQ(up.saved.count, 1);
  EXPECT_EQ(up.saved.ids[0], up.inputs.ids[0]);
  const Program all = ProgramOf(Litgpt("0.4"));
  constexpr int64_t kTokens = 2 * 32;  // norms [B, S, H] twice, context, and the MLP's product
  EXPECT_EQ(StateBytes(all, "quantized.inputs.before"), kTokens * (3 * 64 + 128) * 2 * 4);
  EXPECT_EQ(StateBytes(ProgramOf(Litgpt("0.5")), "quantized.inputs.before"), -1);
}

// From 0.5 on another table stands in the embedding's place: the old one stays, and a gradient.
TEST(QuantizationTest, LitgptReplacesTheEmbedding) {
  const Program program = ProgramOf(Litgpt("0.5"));
  EXPECT_EQ(StateBytes(program, "weights.embedding.before"), 256 * 64 * 2);
  EXPECT_EQ(StateBytes(program, "gradients.embedding"), 256 * 64 * 2);
  EXPECT_TRUE(FindTensor(FindBlock(program, "embedding"), "embedding.norm").differentiable);
  EXPECT_EQ(StateBytes(ProgramOf(Litgpt("0.4")), "gradients.embedding"), -1);
}

// PEFT clones what a quantized product gave, and casts an adapter's output before the sum.
TEST(QuantizationTest, AdaptersAddToAClone) {
  const Program program = After(Job());
  const Block& layer = FindBlock(program, "layer");
  EXPECT_THAT(Tensors(layer), Contains("attention.query.adapter.clone"));
  EXPECT_EQ(FindTensor(layer, "attention.query.adapter.input").dtype, DType::kFp32);
  EXPECT_EQ(FindTensor(layer, "attention.query.adapter.scaled.cast").dtype, DType::kBf16);
  EXPECT_EQ(FindTensor(layer, "attention.query.adapter.sum").dtype, DType::kBf16);
}

// Under autocast nothing is widened for an adapter.
TEST(QuantizationTest, UnderAutocastAnAdapterReadsWhatThereIs) {
  JobSpec job = Job();
  job.training.precision.preset = "bf16-autocast";
  const std::vector<std::string> tensors = Tensors(FindBlock(After(job), "layer"));
  EXPECT_THAT(tensors, Not(Contains("attention.query.adapter.input")));
  EXPECT_THAT(tensors, Not(Contains("attention.query.adapter.scaled.cast")));
}

// fp32 embeddings and norms beside autocast: products that are not quantized read 16 bits, and
// the head keeps its own copy.
TEST(QuantizationTest, WidenedWeightsMakeAllFp32ButWhatAutocastCasts) {
  JobSpec job = Job();
  job.training.precision.preset = "bf16-autocast";
  job.training.precision.parameter_dtype = "fp32";
  const Program program = After(job);
  const Block& layer = FindBlock(program, "layer");
  EXPECT_EQ(FindTensor(layer, "layer.input").dtype, DType::kFp32);
  EXPECT_EQ(FindTensor(layer, "attention.query.activation").dtype, DType::kFp32);
  EXPECT_EQ(FindTensor(layer, "attention.query.cast").dtype, DType::kBf16);
  EXPECT_EQ(FindTensor(layer, "attention.out.activation").dtype, DType::kBf16);
  EXPECT_EQ(FindTensor(layer, "mlp.up.activation").dtype, DType::kFp32);
  const Block& head = FindBlock(program, "head");
  EXPECT_EQ(FindTensor(head, "head.logits").dtype, DType::kBf16);
  const Op& product = FindOp(head, "head");
  ASSERT_EQ(product.saved.count, 1);
  EXPECT_EQ(head.tensors[product.saved.ids[0]].name, "head.weight.cast");
}

// 64 elements have a scale of fp32; quantized too it is a byte, and 256 of these have one of
// fp32. A matrix has tables besides, each a block of the allocator.
TEST(QuantizationTest, WeightsScalesAndTablesAreStates) {
  constexpr int64_t kElements = 4 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64);
  JobSpec job = Job();
  Program program = ProgramOf(job);
  EXPECT_EQ(StateBytes(program, "weights.quantized"), kElements / 2);
  EXPECT_EQ(StateBytes(program, "weights.scales"), kElements / 64 * 4);
  EXPECT_EQ(StateBytes(program, "weights.codes"), 4 * 7 * 512);
  EXPECT_EQ(StateBytes(program, "weights.frozen"), (2 * 256 * 64 + 9 * 64) * 2);
  job.training.quantization.double_quantization = true;
  program = ProgramOf(job);
  EXPECT_EQ(StateBytes(program, "weights.scales"), kElements / 64);
  EXPECT_EQ(StateBytes(program, "weights.scales.scales"),
            CeilDivide(kElements, int64_t{64} * 256) * 4);
  EXPECT_EQ(StateBytes(program, "weights.codes"), 4 * 7 * 4 * 512);
}

JobSpec InBytes() {
  JobSpec job = Job();
  job.training.quantization.format = "int8";
  return job;
}

// What is read is made bytes, beside it in fp16 twice and a byte for each; int32 sums are made of
// bytes, and fp16 of these. The matrix is whole in backward alone.
TEST(QuantizationTest, EightBitsMultiplyBytes) {
  const Program program = After(InBytes());
  const Block& layer = FindBlock(program, "layer");
  EXPECT_THAT(Quantized(layer).size(), 7u);
  EXPECT_EQ(FindParameter(layer, "mlp.up.weight").dtype, DType::kInt8);
  const Op& up = FindOp(layer, "mlp.up");
  constexpr int64_t kTokens = 2 * 32;
  ASSERT_EQ(up.inputs.count, 3);
  const Tensor& bytes = layer.tensors[up.inputs.ids[1]];
  EXPECT_EQ(bytes.name, "quantized.input.int8");
  EXPECT_EQ(bytes.Bytes(), kTokens * 64);
  EXPECT_EQ(layer.tensors[up.inputs.ids[2]].Bytes(), kTokens * 128 * 4);
  ASSERT_EQ(up.forward_temporaries.count, 1);
  EXPECT_EQ(layer.tensors[up.forward_temporaries.ids[0]].Bytes(), kTokens * 128 * 2);
  ASSERT_EQ(up.backward_temporaries.count, 1);
  EXPECT_EQ(layer.tensors[up.backward_temporaries.ids[0]].Bytes(), 128 * 64 * 2);
  int64_t beside = 0;
  for (const TensorId id : FindOp(layer, "quantized.input.int8").forward_temporaries) {
    beside += layer.tensors[id].Bytes();
  }
  EXPECT_EQ(beside, kTokens * 64 * (2 + 2 + 1));
  EXPECT_THAT(Tensors(layer), Not(Contains("attention.query.adapter.clone")));
}

TEST(QuantizationTest, EightBitsHaveAScaleOfEachRow) {
  const Program program = ProgramOf(InBytes());
  EXPECT_EQ(StateBytes(program, "weights.quantized"),
            4 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64));
  EXPECT_EQ(StateBytes(program, "weights.scales"), 4 * (2 * 64 + 2 * 32 + 2 * 128 + 64) * 4);
  EXPECT_EQ(StateBytes(program, "weights.codes"), -1);
  const JobSpec joint = WithModel(InBytes(), [](Transformer& model) { model.joint_gate = true; });
  EXPECT_EQ(StateBytes(ProgramOf(joint), "weights.scales"), StateBytes(program, "weights.scales"));
}

// A function holds what it read, be the layer run again or not; a reentrant checkpoint runs it
// without a gradient, and has no function.
TEST(QuantizationTest, EightBitsHoldWhatTheyReadBesideACheckpoint) {
  JobSpec job = InBytes();
  job.training.recompute.mode = "full";
  job.runtime.trainer = "trl";
  constexpr int64_t kTokens = 2 * 32;  // norms [B, S, H] twice, context, and the MLP's product
  const auto held = [](const JobSpec& asked) {
    const Program program = ProgramAfter(Valid(asked), PassId::kRecompute);
    return FindBlock(program, "layer").checkpoint_bytes;
  };
  EXPECT_EQ(held(job), kTokens * (3 * 64 + 128) * 2);
  const JobSpec behind =
      WithModel(job, [](Transformer& model) { model.norm_placement = NormPlacement::kPostOnly; });
  EXPECT_EQ(held(behind), kTokens * (2 * 64 + 128) * 2) << "queries read what the checkpoint has";
  job.runtime.trainer = "hf-trainer";
  EXPECT_EQ(held(job), kTokens * (3 * 64 + 128) * 2);
  job.runtime.versions["hf-trainer"] = "4.57";
  EXPECT_EQ(held(job), 0);
}

// torchao makes a matrix whole by PyTorch's own ops: indices, and halves of it, stand beside it;
// once more before the product's backward.
TEST(QuantizationTest, TorchaosIsMadeWholeOpByOp) {
  JobSpec job = Job();
  job.runtime.trainer = "torchtune";
  job.cluster.gpu_count = 1;
  const Program program = After(job);
  const Block& layer = FindBlock(program, "layer");
  int made = 0;
  int again = 0;
  for (const Op& op : layer.ops) {
    if (op.name != "weights.dequantized") continue;
    made += op.forward_temporaries.count > 0 ? 1 : 0;
    again += op.backward_temporaries.count > 0 ? 1 : 0;
  }
  EXPECT_EQ(made, 7);
  EXPECT_EQ(again, 7);
  const Tensor& indices = FindTensor(layer, "weights.dequantized.indices");
  EXPECT_EQ(indices.dtype, DType::kInt64);
  EXPECT_EQ(indices.Bytes(), 8 * (64 * 64) / 2) << "of half of [A, H]";
  EXPECT_TRUE(Valid(job)->quantization->double_quantization) << "torchao has no other";
  EXPECT_LE(layer.tensors.size(), 250u);
}

}  // namespace
}  // namespace plimsoll
