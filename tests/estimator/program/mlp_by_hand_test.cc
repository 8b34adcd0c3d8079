// An MLP by itself, as each framework's class writes it: which tensors it keeps for backward, of
// how many bytes, and which weights it has, written down from the code that each follows.
#include <cstdint>
#include <memory_resource>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "estimator/program/block_builder.h"
#include "estimator/program/lower_mlp.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/kept_words.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

// B 3, S 40, H 112, F 300: no width is a multiple of another.
constexpr int64_t kTokens = 3 * 40;
const Widths& Letters() {
  static const auto* const kLetters = new Widths{{'H', 112}, {'F', 300}, {'U', 88}};
  return *kLetters;
}

JobSpec JobOf(absl::string_view framework, absl::string_view preset) {
  JobSpec job = With(SmallJob(), framework, preset);
  TransformerSpec& shape = Shape(job);
  shape.hidden_size = 112;
  shape.ffn_size = 300;
  shape.head_count = shape.kv_head_count = 7;
  job.training.sequence_length = 40;
  job.training.micro_batch_size = 3;
  return job;
}

Block MlpOf(const Job& job, Symbol width = Symbol::kF) {
  BlockBuilder b(job, "mlp", BlockKind::kLayer, std::pmr::get_default_resource());
  const TensorId input = b.Narrow("input", b.Size(Symbol::kH), job.precision.residual);
  const TensorId output = LowerMlp(b, input, width);
  return std::move(b).Build(input, output);
}

void MakePlain(JobSpec& job, const char* activation) {
  Shape(job).gated_mlp = false;
  Shape(job).activation = activation;
}

struct Row {
  const char* name;
  const char* framework;
  const char* preset;
  void (*edit)(JobSpec&);
  const char* kept;
};

// Products keep their inputs for the weight's gradient; SiLU keeps its own; a product of two
// tensors keeps both. Source: tools/autograd/derivatives.yaml, mm, silu, mul.
constexpr Row kGated[] = {
    {"an op at a time", "ddp", "bf16-pure", [](JobSpec&) {},
     "input 2H; mlp.gate.activation 2F; mlp.up.activation 2F; mlp.activated 2F; "
     "mlp.product.activation 2F"},
    {"in fp32", "ddp", "fp32", [](JobSpec&) {},
     "input 4H; mlp.gate.activation 4F; mlp.up.activation 4F; mlp.activated 4F; "
     "mlp.product.activation 4F"},
    // Both products cast the fp32 input for themselves.
    {"autocast", "ddp", "bf16-autocast", [](JobSpec&) {},
     "mlp.input.cast 2H; mlp.input.cast 2H; mlp.gate.activation 2F; mlp.up.activation 2F; "
     "mlp.activated 2F; mlp.product.activation 2F"},
    {"compiled", "ddp", "bf16-pure", [](JobSpec& j) { j.runtime.compile = true; },
     "input 2H; mlp.gate.activation 2F; mlp.up.activation 2F; mlp.product.activation 2F"},
    // LigerSiLUMulFunction saves gate and up.
    {"Liger's", "ddp", "bf16-pure", [](JobSpec& j) { j.runtime.liger_kernel = true; },
     "input 2H; mlp.gate.activation 2F; mlp.up.activation 2F; mlp.product.activation 2F"},
    // One product, of which a kernel reads both halves. Source: megatron/core/fusions/
    // fused_bias_swiglu.py.
    {"Megatron's", "megatron-core", "bf16-mixed", [](JobSpec&) {},
     "input 2H; mlp.gate_up.activation 4F; mlp.product.activation 2F"},
    // One product, whose halves are views: SiLU and the product pin it whole.
    // Source: nanotron models/llama.py, GLUActivation.
    {"nanotron's", "nanotron", "bf16-mixed", [](JobSpec&) {},
     "input 2H; mlp.gate_up.activation 4F; mlp.activated 2F; mlp.product.activation 2F"},
};

// GELU keeps its input, ReLU its output, which the product down keeps too. NewGELUActivation is
// five ops: a power, tanh, a half, a sum and a product.
constexpr Row kPlain[] = {
    {"GELU", "ddp", "bf16-pure", [](JobSpec& j) { MakePlain(j, "gelu"); },
     "input 2H; mlp.up.activation 2F; mlp.activated 2F"},
    {"tanh's form in one kernel", "ddp", "bf16-pure", [](JobSpec& j) { MakePlain(j, "gelu-tanh"); },
     "input 2H; mlp.up.activation 2F; mlp.activated 2F"},
    {"ReLU", "ddp", "bf16-pure", [](JobSpec& j) { MakePlain(j, "relu"); },
     "input 2H; mlp.activated 2F"},
    {"squared ReLU", "ddp", "bf16-pure", [](JobSpec& j) { MakePlain(j, "relu2"); },
     "input 2H; mlp.up.activation 2F; mlp.activated 2F"},
    {"GPT-2's GELU in Python", "ddp", "bf16-pure", [](JobSpec& j) { MakePlain(j, "gelu-new"); },
     "input 2H; mlp.up.activation 2F; mlp.gelu.tanh 2F; mlp.gelu.half 2F; mlp.gelu.shifted 2F; "
     "mlp.activated 2F"},
    // The power is fp32 under autocast, and what follows from it; the half of the input is not.
    {"the same under autocast", "ddp", "bf16-autocast",
     [](JobSpec& j) { MakePlain(j, "gelu-new"); },
     "mlp.input.cast 2H; mlp.gelu.base 4F; mlp.gelu.tanh 4F; mlp.gelu.half 2F; "
     "mlp.gelu.shifted 4F; mlp.activated 2F"},
    {"the same, compiled", "ddp", "bf16-pure",
     [](JobSpec& j) {
       MakePlain(j, "gelu-new");
       j.runtime.compile = true;
     },
     "input 2H; mlp.up.activation 2F; mlp.activated 2F"},
    {"the same in Megatron", "megatron-core", "bf16-mixed",
     [](JobSpec& j) { MakePlain(j, "gelu-new"); },
     "input 2H; mlp.up.activation 2F; mlp.activated 2F"},
};

void ExpectKept(const Row& row) {
  JobSpec job = JobOf(row.framework, row.preset);
  row.edit(job);
  const ValidJob valid = Valid(job);
  EXPECT_EQ(KeptBy(MlpOf(*valid)), KeptByHand(row.kept, Letters(), kTokens)) << row.name;
}

TEST(MlpByHandTest, GatedOnesKeepWhatTheirOpsSave) {
  for (const Row& row : kGated) ExpectKept(row);
}

TEST(MlpByHandTest, PlainOnesKeepWhatTheirOpsSave) {
  for (const Row& row : kPlain) ExpectKept(row);
}

std::string AxisOf(const Parameter& parameter) {
  return parameter.tensor_axis == kNoAxis ? "" : absl::StrCat(" /", parameter.tensor_axis);
}

// "mlp.up.weight [300, 112] /0", split along the axis behind the stroke, and what it is a part of.
std::vector<std::string> WeightsOf(const Block& block) {
  std::vector<std::string> rows;
  for (const Parameter& parameter : block.parameters) {
    rows.push_back(absl::StrCat(
        parameter.name, " ", InNumbers(parameter.shape), AxisOf(parameter),
        parameter.packed() ? absl::StrCat(" in ", block.parameters[parameter.packed_into].name)
                           : ""));
  }
  return rows;
}

// Rows of what is split by columns are a rank's, columns of what is split by rows; the bias of the
// latter is added once. Source: megatron/core/tensor_parallel/layers.py.
TEST(MlpByHandTest, WeightsAreSplitAsMegatronDoes) {
  JobSpec job = JobOf("ddp", "bf16-pure");
  EXPECT_THAT(WeightsOf(MlpOf(*Valid(job))),
              ElementsAre("mlp.gate.weight [300, 112] /0", "mlp.up.weight [300, 112] /0",
                          "mlp.down.weight [112, 300] /1"));
  Shape(job).mlp_bias = true;
  const std::vector<std::string> biased = {
      "mlp.gate.weight [300, 112] /0", "mlp.gate.bias [300] /0",
      "mlp.up.weight [300, 112] /0",   "mlp.up.bias [300] /0",
      "mlp.down.weight [112, 300] /1", "mlp.down.bias [112]"};
  EXPECT_EQ(WeightsOf(MlpOf(*Valid(job))), biased);
  // In one product they are rows of one matrix, and of one bias.
  JobSpec packed = JobOf("nanotron", "bf16-mixed");
  Shape(packed).mlp_bias = true;
  EXPECT_THAT(WeightsOf(MlpOf(*Valid(packed))),
              ElementsAre(biased[0], biased[1], biased[2] + " in mlp.gate.weight",
                          biased[3] + " in mlp.gate.bias", biased[4], biased[5]));
  MakePlain(job, "gelu");
  EXPECT_THAT(WeightsOf(MlpOf(*Valid(job))),
              ElementsAre(biased[2], biased[3], biased[4], biased[5]));
}

// The MLP that every token passes beside experts is the same, U wide, and recomputed as such.
TEST(MlpByHandTest, SharedExpertsAreTheSameOfTheirWidth) {
  JobSpec job = JobOf("ddp", "bf16-pure");
  Shape(job).expert_count = 4;
  Shape(job).active_expert_count = 2;
  Shape(job).expert_ffn_size = 44;
  Shape(job).shared_expert_ffn_size = 88;
  const ValidJob valid = Valid(job);
  const Block shared = MlpOf(*valid, Symbol::kU);
  EXPECT_EQ(KeptBy(shared), KeptByHand("input 2H; mlp.gate.activation 2U; mlp.up.activation 2U; "
                                       "mlp.activated 2U; mlp.product.activation 2U",
                                       Letters(), kTokens));
  for (const Op& op : shared.ops) {
    EXPECT_EQ(op.modules, BitOf(RecomputeModule::kSharedExperts)) << op.name;
  }
  for (const Op& op : MlpOf(*valid).ops) {
    EXPECT_EQ(op.modules, BitOf(RecomputeModule::kMlp)) << op.name;
  }
}

// What goes between ranks that split a layer: wide tensors are split by their width, narrow ones by
// the sequence.
TEST(MlpByHandTest, TensorsAreSplitByWidthInsideAndBySequenceOutside) {
  for (const char* const framework : {"ddp", "megatron-core", "nanotron"}) {
    const Block block = MlpOf(*Valid(JobOf(framework, "bf16-mixed")));
    for (const Tensor& tensor : block.tensors) {
      const bool outside = tensor.name == "input" || tensor.name == "mlp.down.activation";
      EXPECT_EQ(tensor.tensor_axis, outside ? kNoAxis : 2) << tensor.name;
      EXPECT_EQ(tensor.sequence_axis, outside ? 1 : kNoAxis) << tensor.name;
    }
  }
}

}  // namespace
}  // namespace plimsoll
