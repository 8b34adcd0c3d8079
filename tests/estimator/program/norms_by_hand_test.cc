// Norms by themselves: what each class keeps of its input, and how its statistics are laid out.
#include <cstdint>
#include <memory_resource>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "estimator/program/block_builder.h"
#include "estimator/program/lower_norm.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/kept_words.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

constexpr NormNames kNames = {"norm",       "weight",  "bias",    "upcast", "normalized",
                              "statistics", "centred", "product", "wide"};

// B 3, S 40, H 112; seven heads of 16 and their one value each: A 112, N 7. J is a rank's width.
constexpr int64_t kTokens = 3 * 40;
const Widths& Letters() {
  static const auto* const kLetters =
      new Widths{{'H', 112}, {'A', 7 * 24}, {'N', 7}, {'J', 36}, {'M', 5 * 18}, {'O', 5}};
  return *kLetters;
}

JobSpec JobOf(absl::string_view framework, absl::string_view preset) {
  JobSpec job = With(SmallJob(), framework, preset);
  TransformerSpec& shape = Shape(job);
  shape.hidden_size = 112;
  shape.head_count = shape.kv_head_count = 7;
  shape.head_size = 24;
  job.training.sequence_length = 40;
  job.training.micro_batch_size = 3;
  return job;
}

// What is normed: the residual stream, queries, a rank of latent attention, or values.
enum class Of { kHidden, kQueries, kRank, kValues };

Block NormOf(const Job& job, Of what, BlockKind kind = BlockKind::kLayer) {
  BlockBuilder b(job, "norm", kind, std::pmr::get_default_resource());
  const DType dtype = job.precision.activation;
  TensorId input = kNoTensor;
  TensorId output = kNoTensor;
  switch (what) {
    case Of::kHidden:
      input = b.Narrow("input", b.Size(Symbol::kH), job.precision.residual);
      output = LowerNorm(b, kNames, input);
      break;
    case Of::kQueries:
      input = b.Wide("input", b.Size(Symbol::kA), dtype);
      output = LowerQkNorm(b, kNames, input, b.Size(Symbol::kA), b.Size(Symbol::kN));
      break;
    case Of::kRank:
      input = b.Narrow("input", Number(36), dtype);
      output = LowerRankNorm(b, kNames, input, Number(36));
      break;
    case Of::kValues:
      input = b.Wide("input", b.Size(Symbol::kM), dtype);
      output = LowerValueNorm(b, kNames, input);
      break;
  }
  return std::move(b).Build(input, output);
}

// As NeMo Automodel's own classes have them: an op, whose fp32 copies go with it.
TEST(NormsByHandTest, AComposedNormKeepsItsInputAlone) {
  JobSpec spec = JobOf("ddp", "bf16-pure");
  spec.runtime.trainer = "nemo-automodel";
  spec.cluster.gpu_count = 1;
  const ValidJob job = Valid(spec);
  const Block block = NormOf(*job, Of::kHidden);
  ASSERT_EQ(block.ops.size(), 1u);
  const Op& norm = block.ops.front();
  ASSERT_EQ(norm.saved.count, 1);
  EXPECT_EQ(norm.saved.ids[0], block.input);
  ASSERT_EQ(norm.forward_temporaries.count, 2);
  EXPECT_EQ(block.tensors[norm.forward_temporaries.ids[0]].dtype, DType::kFp32);
  spec.training.precision.preset = "fp32";
  EXPECT_EQ(NormOf(*Valid(spec), Of::kHidden).ops.front().forward_temporaries.count, 0);
}

struct Row {
  const char* name;
  const char* framework;
  const char* preset;
  void (*change)(Transformer&);
  Of what;
  const char* kept;
};

void Nothing(Transformer&) {}
void BeLayerNorm(Transformer& model) { model.norm = Norm::kLayerNorm; }
void BeWide(Transformer& model) { model.norm_class = NormClass::kWide; }
void BeCentred(Transformer& model) {
  model.norm = Norm::kLayerNorm;
  model.norm_class = NormClass::kCentred;
}
void NormHeads(Transformer& model) { model.qk_norm = QkNorm::kPerHead; }
void NormAll(Transformer& model) { model.qk_norm = QkNorm::kFull; }
void BePhi(Transformer& model) {
  model.norm = Norm::kLayerNorm;
  model.qk_norm = QkNorm::kPerHeadBias;
}
void HaveValues(Transformer& model) {
  model.linear = {.key_head_count = 5,
                  .value_head_count = 5,
                  .key_size = 18,
                  .value_size = 18,
                  .kernel_size = 4};
}

// LlamaRMSNorm: the input in fp32, whose square is taken, the inverse root of the mean of squares,
// which rsqrt and the product save, and the normalised copy cast back, which the weight multiplies.
// LayerNorm is one op, whose mean and deviation are fp32.
// Source: transformers models/llama/modeling_llama.py, gemma/modeling_gemma.py,
// cohere2/modeling_cohere2.py; aten/src/ATen/native/layer_norm.cpp.
constexpr Row kRows[] = {
    {"Llama's", "ddp", "bf16-pure", &Nothing, Of::kHidden,
     "upcast 4H; normalized 2H; statistics 4"},
    {"Llama's in fp32", "ddp", "fp32", &Nothing, Of::kHidden,
     "input 4H; normalized 4H; statistics 4"},
    {"Llama's under autocast", "ddp", "bf16-autocast", &Nothing, Of::kHidden,
     "input 4H; normalized 4H; statistics 4"},
    {"Gemma's", "ddp", "bf16-pure", &BeWide, Of::kHidden, "upcast 4H; normalized 4H; statistics 4"},
    {"Cohere's", "ddp", "bf16-pure", &BeCentred, Of::kHidden,
     "centred 4H; centred 4H; normalized 4H; statistics 4"},
    {"LayerNorm", "ddp", "bf16-pure", &BeLayerNorm, Of::kHidden, "input 2H; statistics 8"},
    {"Transformer Engine's", "megatron-core", "bf16-mixed", &Nothing, Of::kHidden,
     "input 2H; statistics 4"},
    {"Apex's", "megatron-lm", "bf16-mixed", &BeLayerNorm, Of::kHidden, "input 2H; statistics 8"},
    {"of heads", "ddp", "bf16-pure", &NormHeads, Of::kQueries,
     "upcast 4A; normalized 2A; statistics 4N"},
    {"of all queries", "ddp", "bf16-pure", &NormAll, Of::kQueries,
     "upcast 4A; normalized 2A; statistics 4"},
    {"Phi's of heads", "ddp", "bf16-pure", &BePhi, Of::kQueries, "input 2A; statistics 8N"},
    {"Transformer Engine's of heads", "megatron-core", "bf16-mixed", &NormHeads, Of::kQueries,
     "input 2A; statistics 4N"},
    {"of a rank", "ddp", "bf16-pure", &Nothing, Of::kRank,
     "upcast 4J; normalized 2J; statistics 4"},
    // Queries and ranks are what autocast casts to.
    {"of a rank under autocast", "ddp", "bf16-autocast", &Nothing, Of::kRank,
     "upcast 4J; normalized 2J; statistics 4"},
    {"of values", "ddp", "bf16-pure", &HaveValues, Of::kValues,
     "upcast 4M; normalized 2M; statistics 4O"},
    {"of values in fp32", "ddp", "fp32", &HaveValues, Of::kValues,
     "input 4M; normalized 4M; statistics 4O"},
    // Of a class of its own, whatever the model's other norms are.
    {"of values beside Gemma's", "ddp", "bf16-pure",
     [](Transformer& model) {
       HaveValues(model);
       BeWide(model);
     },
     Of::kValues, "upcast 4M; normalized 2M; statistics 4O"},
};

TEST(NormsByHandTest, KeepWhatTheirClassDoes) {
  for (const Row& row : kRows) {
    const ValidJob valid = Valid(WithModel(JobOf(row.framework, row.preset), row.change));
    EXPECT_EQ(KeptBy(NormOf(*valid, row.what)), KeptByHand(row.kept, Letters(), kTokens))
        << row.name;
  }
}

// A compiled layer has one kernel; the last norm stands outside of what is compiled.
TEST(NormsByHandTest, CompilationReachesLayersAlone) {
  JobSpec job = JobOf("ddp", "bf16-pure");
  job.runtime.compile = true;
  const ValidJob valid = Valid(job);
  EXPECT_EQ(KeptBy(NormOf(*valid, Of::kHidden)),
            KeptByHand("input 2H; statistics 4", Letters(), kTokens));
  EXPECT_EQ(KeptBy(NormOf(*valid, Of::kHidden, BlockKind::kHead)),
            KeptByHand("upcast 4H; normalized 2H; statistics 4", Letters(), kTokens));
}

// Liger's is one kernel everywhere, and its backward writes over the gradient that it is given.
TEST(NormsByHandTest, LigersBackwardWritesOverWhatItIsGiven) {
  JobSpec job = JobOf("ddp", "bf16-pure");
  for (const bool liger : {false, true}) {
    job.runtime.liger_kernel = liger;
    const Block block = NormOf(*Valid(job), Of::kHidden, BlockKind::kHead);
    EXPECT_EQ(KeptBy(block), KeptByHand(liger ? "input 2H; statistics 4"
                                              : "upcast 4H; normalized 2H; statistics 4",
                                        Letters(), kTokens));
    EXPECT_EQ(block.ops.back().input_gradient,
              liger ? InputGradient::kOver : InputGradient::kFresh);
  }
}

// Forward has the squares until they are summed up. Backward of their mean spreads a gradient to
// each, and the square makes two more of that size in fp32; the root's gradient is summed up from
// one such product.
// Source: tools/autograd, FunctionsManual.cpp, mean_backward, pow_backward, mul_tensor_backward.
TEST(NormsByHandTest, ASquaresTermsAreAsLargeAsItsInput) {
  const Block block = NormOf(*Valid(JobOf("ddp", "bf16-pure")), Of::kHidden);
  const auto bytes = [&block](const Ids& ids) {
    int64_t sum = 0;
    for (const TensorId id : ids) {
      EXPECT_EQ(block.tensors[id].name, "norm.term");
      sum += block.tensors[id].Bytes();
    }
    return sum;
  };
  constexpr int64_t kTerm = kTokens * 4 * 112;
  const Op& square = FindOp(block, "norm.square");
  EXPECT_EQ(bytes(square.forward_temporaries), kTerm);
  EXPECT_EQ(bytes(square.backward_temporaries), 3 * kTerm);
  const Op& product = FindOp(block, "normalized");
  EXPECT_EQ(bytes(product.forward_temporaries), 0);
  EXPECT_EQ(bytes(product.backward_temporaries), kTerm);
}

std::vector<std::string> WeightsOf(const Block& block) {
  std::vector<std::string> rows;
  for (const Parameter& parameter : block.parameters) {
    const bool split = parameter.tensor_axis != kNoAxis;
    rows.push_back(
        absl::StrCat(parameter.name, " ", InNumbers(parameter.shape), split ? " split" : ""));
  }
  return rows;
}

// A weight for each channel of the stream; of queries one of a head, or one of all, which ranks
// split as they do heads.
TEST(NormsByHandTest, WeightsAreTheClasses) {
  struct Case {
    void (*change)(Transformer&);
    Of what;
    std::vector<std::string> weights;
  };
  const Case cases[] = {
      {&Nothing, Of::kHidden, {"weight [112]"}},
      {[](Transformer& model) {
         BeLayerNorm(model);
         model.norm_bias = true;
       },
       Of::kHidden,
       {"weight [112]", "bias [112]"}},
      {[](Transformer& model) {
         BeLayerNorm(model);
         model.norm_weight = false;
       },
       Of::kHidden,
       {}},
      {&NormHeads, Of::kQueries, {"weight [24]"}},
      {&BePhi, Of::kQueries, {"weight [24]", "bias [24]"}},
      {&NormAll, Of::kQueries, {"weight [168] split"}},
      {[](Transformer& model) { model.qk_norm = QkNorm::kPerHeadAffine; },
       Of::kQueries,
       {"weight [168] split"}},
      {&Nothing, Of::kRank, {"weight [36]"}},
      {&HaveValues, Of::kValues, {"weight [18]"}},
  };
  for (const Case& at : cases) {
    const ValidJob valid = Valid(WithModel(JobOf("ddp", "bf16-pure"), at.change));
    EXPECT_EQ(WeightsOf(NormOf(*valid, at.what)), at.weights);
  }
}

// Statistics of heads are split as heads are, those of the stream as the sequence is, those of all
// queries together not at all.
TEST(NormsByHandTest, StatisticsAreSplitAsWhatTheyAreOf) {
  struct Case {
    void (*change)(Transformer&);
    Of what;
    const char* shape;
    int8_t tensor_axis;
    int8_t sequence_axis;
  };
  const Case cases[] = {
      {&Nothing, Of::kHidden, "[3, 40, 1]", kNoAxis, 1},
      {&BeLayerNorm, Of::kHidden, "[3, 40, 2]", kNoAxis, 1},
      {&NormHeads, Of::kQueries, "[3, 40, 7]", 2, kNoAxis},
      {&BePhi, Of::kQueries, "[3, 40, 14]", 2, kNoAxis},
      {&NormAll, Of::kQueries, "[3, 40, 1]", kNoAxis, kNoAxis},
  };
  for (const Case& at : cases) {
    const ValidJob valid = Valid(WithModel(JobOf("megatron-core", "bf16-mixed"), at.change));
    const Block block = NormOf(*valid, at.what);
    const Tensor& statistics = FindTensor(block, "statistics");
    EXPECT_EQ(InNumbers(statistics.shape), at.shape);
    EXPECT_EQ(statistics.dtype, DType::kFp32);
    EXPECT_EQ(statistics.tensor_axis, at.tensor_axis) << at.shape;
    EXPECT_EQ(statistics.sequence_axis, at.sequence_axis) << at.shape;
    EXPECT_FALSE(statistics.differentiable);
  }
}

// What comes out is what products behind it read, or the stream.
TEST(NormsByHandTest, OutputsHaveTheDtypeOfWhatTheyGoTo) {
  const std::pair<const char*, DType> presets[] = {
      {"bf16-pure", DType::kBf16}, {"fp32", DType::kFp32}, {"fp16-pure", DType::kFp16}};
  for (const auto& [preset, dtype] : presets) {
    const ValidJob valid = Valid(WithModel(JobOf("ddp", preset), &BeWide));
    const Block block = NormOf(*valid, Of::kHidden);
    EXPECT_EQ(block.tensors[block.output].dtype, dtype) << preset;
    EXPECT_EQ(block.tensors[block.output].name, "norm") << preset;
  }
  const ValidJob autocast = Valid(WithModel(JobOf("ddp", "bf16-autocast"), &HaveValues));
  const Block stream = NormOf(*autocast, Of::kHidden);
  EXPECT_EQ(stream.tensors[stream.output].dtype, DType::kFp32) << "weights are fp32";
  const Block values = NormOf(*autocast, Of::kValues);
  EXPECT_EQ(values.tensors[values.output].dtype, DType::kFp32) << "so is what they multiply";
  const Block rank = NormOf(*autocast, Of::kRank);
  EXPECT_EQ(rank.tensors[rank.output].dtype, DType::kBf16);
}

}  // namespace
}  // namespace plimsoll
