// Experts, lowered: which weights, ops and tensors they bring.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "estimator/program/parameter_sums.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

// B 2, S 32, H 64, F 128: eight experts as wide, two for each token.
JobSpec Job(absl::string_view preset = "bf16-pure") {
  JobSpec job = With(SmallJob(), "ddp", preset);
  Shape(job).expert_count = 8;
  Shape(job).active_expert_count = 2;
  Shape(job).expert_ffn_size = 96;
  return job;
}

// "name [symbols] dtype" of weights of experts, their router and what all share.
std::vector<std::string> Weights(const JobSpec& job) {
  const Program program = Lowered(Valid(job));
  std::vector<std::string> rows;
  for (const Parameter& at : FindBlock(program, "layer").parameters) {
    if (absl::StartsWith(at.name, "attention") || absl::StartsWith(at.name, "mlp.norm")) continue;
    rows.push_back(absl::StrCat(at.name, " ", InSymbols(at.shape), " ", Name(at.dtype)));
  }
  return rows;
}

// "name [numbers] dtype" of what a layer's op makes.
std::string Made(const JobSpec& job, absl::string_view op) {
  const Program program = Lowered(Valid(job));
  const Block& layer = FindBlock(program, "layer");
  const Tensor& tensor = layer.tensors[FindOp(layer, op).outputs.ids[0]];
  return absl::StrCat(InNumbers(tensor.shape), " ", Name(tensor.dtype));
}

bool RunsBefore(const JobSpec& job, absl::string_view op, absl::string_view other) {
  const Program program = Lowered(Valid(job));
  const Block& layer = FindBlock(program, "layer");
  return &FindOp(layer, op) < &FindOp(layer, other);
}

TEST(LowerExpertsTest, HaveARouterAndTwoMatricesEach) {
  EXPECT_THAT(Weights(Job()),
              ElementsAre("router.weight [X, H] bf16", "experts.gate_up.weight [X, 2G, H] bf16",
                          "experts.down.weight [X, H, G] bf16"));
  JobSpec plain = Job();
  Shape(plain).gated_mlp = false;
  EXPECT_THAT(Weights(plain),
              ElementsAre("router.weight [X, H] bf16", "experts.up.weight [X, G, H] bf16",
                          "experts.down.weight [X, H, G] bf16"));
}

TEST(LowerExpertsTest, AMlpThatAllTokensPassStandsBesideThem) {
  JobSpec job = Job();
  Shape(job).shared_expert_ffn_size = 32;
  const JobSpec gated =
      WithModel(job, [](Transformer& model) { model.experts.shared_gate = true; });
  EXPECT_THAT(Weights(gated),
              ElementsAre("router.weight [X, H] bf16", "experts.gate_up.weight [X, 2G, H] bf16",
                          "experts.down.weight [X, H, G] bf16", "mlp.gate.weight [U, H] bf16",
                          "mlp.up.weight [U, H] bf16", "mlp.down.weight [H, U] bf16",
                          "shared.gate.weight [1, H] bf16"));
  EXPECT_TRUE(RunsBefore(gated, "mlp.down", "router")) << "and is registered behind it";
  EXPECT_TRUE(RunsBefore(gated, "experts.combine", "shared.weigh"));
  EXPECT_TRUE(RunsBefore(job, "experts.combine", "mlp.gate"));
  EXPECT_EQ(Made(gated, "shared.weigh"), "[2, 32, 64] bf16");
  EXPECT_EQ(Made(gated, "experts.and_shared"), "[2, 32, 64] bf16");
}

TEST(LowerExpertsTest, ATokenHasARowForEachOfItsExperts) {
  EXPECT_EQ(Made(Job(), "router"), "[2, 32, 8] bf16");
  EXPECT_EQ(Made(Job(), "router.softmax"), "[2, 32, 8] fp32");
  EXPECT_EQ(Made(Job(), "experts.dispatch"), "[2, 32, 2, 64] bf16");
  EXPECT_EQ(Made(Job(), "experts.gate_up"), "[2, 32, 2, 192] bf16");
  EXPECT_EQ(Made(Job(), "experts.product"), "[2, 32, 2, 96] bf16");
  EXPECT_EQ(Made(Job(), "experts.combine"), "[2, 32, 2, 64] bf16");
  EXPECT_EQ(Made(Job(), "experts.sum"), "[2, 32, 64] bf16");
}

// Autocast knows no grouped products: they run in the weights' fp32.
TEST(LowerExpertsTest, AutocastLeavesThemInTheWeightsDType) {
  EXPECT_EQ(Made(Job("bf16-autocast"), "router"), "[2, 32, 8] bf16");
  EXPECT_EQ(Made(Job("bf16-autocast"), "experts.gate_up"), "[2, 32, 2, 192] fp32");
}

// Mixtral's weights of experts stay in fp32, and so does what they weigh.
TEST(LowerExpertsTest, WideWeightsMakeWideSums) {
  const JobSpec wide =
      WithModel(Job(), [](Transformer& model) { model.experts.wide_weights = true; });
  EXPECT_EQ(Made(Job(), "experts.weigh"), "[2, 32, 2, 64] bf16");
  EXPECT_EQ(Made(wide, "experts.weigh"), "[2, 32, 2, 64] fp32");
  EXPECT_EQ(Made(wide, "experts.sum.cast"), "[2, 32, 64] bf16");
}

// What routers keep, by hand: T 64, H 64, X 8, K 2.
int64_t KeptByRouter(const JobSpec& job) {
  const Program program = ProgramOf(job);
  return KeptNamed(FindBlock(program, "layer"),
                   {"router.input.cast", "router.weight.cast", "router.scores", "router.mask",
                    "router.sum", "router.weights", "router.experts", "router.shares"});
}

// fp32 copies of input and weight, scores of all experts, numbers of those picked, and where
// groups are, a mask. Source: transformers models/deepseek_v2/modeling_deepseek_v2.py,
// DeepseekV2TopkRouter.forward.
TEST(LowerExpertsTest, DeepSeekV2sRouterIsWide) {
  const JobSpec wide = WithModel(Job(), [](Transformer& model) {
    model.experts.router = Router::kWideSoftmax;
    model.experts.renormalizes = false;
    model.experts.wide_weights = true;
  });
  EXPECT_EQ(KeptByRouter(wide), 64 * (4 * 64 + 4 * 8 + 8 * 2) + 4 * 8 * 64);
  const JobSpec grouped =
      WithModel(wide, [](Transformer& model) { model.experts.masks_groups = true; });
  EXPECT_EQ(KeptByRouter(grouped), KeptByRouter(wide) + 64 * 8);
}

// The same, and of the weights that are made to sum to 1 those before, and their sum.
// Source: transformers models/deepseek_v3/modeling_deepseek_v3.py, DeepseekV3TopkRouter.forward.
TEST(LowerExpertsTest, DeepSeekV3sRouterScoresEachExpertAlone) {
  const JobSpec sigmoid = WithModel(Job(), [](Transformer& model) {
    model.experts.router = Router::kWideSigmoid;
    model.experts.wide_weights = true;
  });
  EXPECT_EQ(KeptByRouter(sigmoid), 64 * (4 * 64 + 4 * 8 + 8 * 2 + 4 * 2 + 4) + 4 * 8 * 64);
  EXPECT_EQ(Made(sigmoid, "router.sigmoid"), "[2, 32, 8] fp32");
  const JobSpec fp32 = With(sigmoid, "ddp", "fp32");
  EXPECT_EQ(KeptByRouter(fp32), 64 * (4 * 8 + 8 * 2 + 4 * 2 + 4)) << "nothing to cast";
}

// By hand: T 64, H 64, X 8, K 2. Logits are 16-bit, scores of all fp32.
// Source: transformers models/minimax_m2/modeling_minimax_m2.py, MiniMaxM2TopKRouter.forward.
TEST(LowerExpertsTest, MiniMaxsRouterIsWideBehindItsProductAlone) {
  const JobSpec job = WithModel(Job(), [](Transformer& model) {
    model.experts.router = Router::kSigmoid;
    model.experts.wide_weights = true;
  });
  EXPECT_EQ(Made(job, "router"), "[2, 32, 8] bf16");
  EXPECT_EQ(KeptByRouter(job), 64 * (4 * 8 + 8 * 2 + 4 * 2 + 4));
}

// Autocast multiplies 16-bit copies of what is fp32, and DeepSeek V3's scores are what it gives.
// Source: transformers models/deepseek_v3/modeling_deepseek_v3.py, DeepseekV3TopkRouter.forward.
TEST(LowerExpertsTest, AutocastNarrowsWideRouters) {
  const auto job = [](Router router) {
    return WithModel(Job("bf16-autocast"), [&](Transformer& model) {
      model.experts.router = router;
      model.experts.wide_weights = true;
    });
  };
  EXPECT_EQ(Made(job(Router::kWideSigmoid), "router"), "[2, 32, 8] bf16");
  EXPECT_EQ(Made(job(Router::kWideSigmoid), "router.sigmoid"), "[2, 32, 8] bf16");
  EXPECT_EQ(Made(job(Router::kWideSigmoid), "router.input.narrow"), "[2, 32, 64] bf16");
  EXPECT_EQ(Made(job(Router::kWideSoftmax), "router.softmax"), "[2, 32, 8] fp32");
}

JobSpec GptOss() {
  return WithModel(Job(), [](Transformer& model) {
    model.experts.router = Router::kPicked;
    model.experts.biases = true;
    model.experts.clamps = true;
  });
}

TEST(LowerExpertsTest, GptOssHasBiasesAndWeighsWhatItPicks) {
  EXPECT_THAT(
      Weights(GptOss()),
      ElementsAre("router.weight [X, H] bf16", "router.bias [X] bf16",
                  "experts.gate_up.weight [X, 2G, H] bf16", "experts.gate_up.bias [X, 2G] bf16",
                  "experts.down.weight [X, H, G] bf16", "experts.down.bias [X, H] bf16"));
  EXPECT_EQ(Made(GptOss(), "router.softmax"), "[2, 32, 2] bf16");
}

// By hand, of R 128 rows: both branches as they were, the gate clamped, its share and what they
// make, 1 above up, and the product; of 16 bits each. Expert numbers are read by both biases.
// Source: transformers models/gpt_oss/modeling_gpt_oss.py, GptOssExperts._apply_gate.
TEST(LowerExpertsTest, ClampsKeepWhatTheyRead) {
  const Program program = ProgramOf(GptOss());
  const Block& layer = FindBlock(program, "layer");
  EXPECT_EQ(
      KeptNamed(layer, {"experts.gate_up.activation", "experts.gate.clamped", "experts.up.clamped",
                        "experts.gate.scaled", "experts.gate.share", "experts.activated",
                        "experts.up.raised", "experts.product.activation"}),
      128 * 2 * (2 * 96 + 5 * 96));
  EXPECT_EQ(KeptNamed(layer, {"experts.sorted"}), 128 * 8);
}

TEST(LowerExpertsTest, TheFirstLayersMayHaveNone) {
  JobSpec job = Job();
  Shape(job).dense_layer_count = 1;
  const Program program = Lowered(Valid(job));
  EXPECT_EQ(FindBlock(program, "layer").layers, (LayerSet{.end = 1}));
  EXPECT_EQ(FindBlock(program, "expert layer").layers, (LayerSet{.begin = 1}));
  EXPECT_EQ(FindOp(FindBlock(program, "layer"), "mlp.down").name, "mlp.down");
}

// One kernel multiplies all experts in bf16 on Hopper; cuBLAS one after the other elsewhere.
TEST(LowerExpertsTest, GroupedProductsNeedNoWorkspaceOnHopper) {
  const auto has_workspace = [](absl::string_view gpu, absl::string_view preset) {
    JobSpec job = Job(preset);
    job.cluster.gpu = std::string(gpu);
    job.runtime.versions["torch"] = "2.15";
    const Program program = ProgramOf(job);
    return FindOp(FindBlock(program, "layer"), "experts.down").workspace != kNoTensor;
  };
  EXPECT_FALSE(has_workspace("h100-80gb-sxm", "bf16-pure"));
  EXPECT_TRUE(has_workspace("h100-80gb-sxm", "bf16-autocast"));
  EXPECT_TRUE(has_workspace("a100-80gb-sxm", "bf16-pure"));
}

// FSDP2 splits experts over ranks by whole experts: with fewer than ranks some have none, and
// what is gathered is padded to one each.
TEST(LowerExpertsTest, FewerExpertsThanRanksArePadded) {
  JobSpec job = With(Job(), "fsdp2", "bf16-mixed");
  job.cluster.gpu_count = 16;
  job.training.global_batch_size = 32;
  const Program program = ProgramOf(job);
  const Block& layer = FindBlock(program, "layer");
  int64_t padded = 0;
  for (const Parameter& at : layer.parameters) {
    const int64_t rows = at.shape.extents[0].size;
    padded += at.Elements() / rows * RoundUp(rows, 16);
  }
  EXPECT_GT(padded, SumBlock(layer, 1).own.All() * 3 / 2);
  for (const BlockBuffer& buffer : layer.buffers) {
    if (buffer.name == "gathered.weights") {
      EXPECT_EQ(buffer.forward.bytes, 2 * padded);
    }
  }
  EXPECT_EQ(layer.reduce_bytes, 4 * padded);
}

}  // namespace
}  // namespace plimsoll
