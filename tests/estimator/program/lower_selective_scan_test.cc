// Mamba 1, lowered: its weights, and what it keeps and makes, by formulas written out by hand.
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

// The alphabet of estimator/README.md; I channels, N their states, R what steps are made of.
struct Sizes {
  int64_t B, S, H, I, N, R;
  int64_t T() const { return B * S; }
  int64_t Parts() const { return R + 2 * N; }
  int64_t Chunks() const { return (S + 2047) / 2048; }
};

constexpr Sizes kSizes[] = {
    {.B = 1, .S = 128, .H = 64, .I = 128, .N = 16, .R = 4},
    {.B = 2, .S = 2048, .H = 96, .I = 96, .N = 8, .R = 7},
    {.B = 3, .S = 2049, .H = 32, .I = 128, .N = 32, .R = 2},
};

JobSpec JobOf(const Sizes& s, absl::string_view preset = "bf16-pure", bool wide = false,
              absl::string_view framework = "ddp") {
  JobSpec job = With(SmallJob(), framework, preset);
  job.training.sequence_length = s.S;
  job.training.micro_batch_size = s.B;
  return WithModel(job, [&](Transformer& model) {
    model.hidden_size = model.embedding_size = s.H;
    model.layer_count = 4;
    model.one_sublayer = true;
    model.attended = {.period = 1, .to = 0};
    model.wide_residual = wide;
    model.state_space = {.head_count = s.I, .head_size = 1, .state_size = s.N, .step_rank = s.R};
  });
}

// MambaInnerFn.forward, save_for_backward: xz, x_dbl, B, C, out, and the scan's states; and powers,
// rates and, where weights are 16 bits, two rows of channels in fp32.
int64_t Kept(const Sizes& s, int64_t width) {
  const int64_t channels = 4 * s.I * (2 * s.N + (width == 2 ? 2 : 0));
  return width * s.T() * (3 * s.I + s.Parts() + 2 * s.N) + 4 * s.B * s.I * s.Chunks() * 2 * s.N +
         channels;
}

// Before it a norm as Llama's: fp32, what is normalised, and what that is weighed to.
TEST(LowerSelectiveScanTest, KeepsWhatItsFunctionSaves) {
  for (const Sizes& s : kSizes) {
    const int64_t norm = s.T() * (8 * s.H + 4);
    EXPECT_EQ(KeptByLayer(ProgramOf(JobOf(s)), "layer"), norm + Kept(s, 2)) << s.H;
    const int64_t wide = s.T() * (3 * 4 * s.H + 4);
    EXPECT_EQ(KeptByLayer(ProgramOf(JobOf(s, "fp32")), "layer"), wide + Kept(s, 4)) << s.H;
  }
}

int64_t Bytes(const Block& block, const Ids& ids) {
  int64_t bytes = 0;
  for (const TensorId id : ids) bytes += block.tensors[id].Bytes();
  return bytes;
}

// MambaInnerFn.backward: conv1d_out, delta, dout_y, out_z, dconv1d_out and ddelta, of several
// sequences one of them twice; and dB and dC in fp32 and in 16 bits.
TEST(LowerSelectiveScanTest, BackwardMakesTheRestAgain) {
  for (const Sizes& s : kSizes) {
    const Program program = ProgramOf(JobOf(s));
    const Block& block = FindBlock(program, "layer");
    const Op& scan = FindOp(block, "state_space.scan");
    EXPECT_EQ(Bytes(block, scan.forward_temporaries), 2 * s.T() * 3 * s.I);
    const int64_t again = 2 * s.T() * s.I * (s.B > 1 ? 7 : 6);
    EXPECT_EQ(Bytes(block, scan.backward_temporaries), again + 2 * (4 + 2) * s.T() * s.N);
    const Op& products = FindOp(block, "state_space.products");
    EXPECT_EQ(Bytes(block, products.backward_temporaries), again + 2 * s.T() * (s.I + s.Parts()));
  }
}

// What goes from layer to layer is fp32, whatever weights are; the first reads the embedding's.
TEST(LowerSelectiveScanTest, ResidualsMayBeWide) {
  const Sizes& s = kSizes[0];
  const Program program = ProgramOf(JobOf(s, "bf16-pure", true));
  const auto input = [&](absl::string_view name) {
    const Block& block = FindBlock(program, name);
    return block.tensors[block.input].dtype;
  };
  EXPECT_EQ(input("outer layer"), DType::kBf16);
  EXPECT_EQ(input("state-space layer"), DType::kFp32);
  EXPECT_EQ(input("head"), DType::kFp32);
  EXPECT_EQ(FindBlock(program, "outer layer").layers.CountOf(4), 1);
  EXPECT_EQ(FindBlock(program, "state-space layer").layers.CountOf(4), 3);
  EXPECT_EQ(KeptByLayer(program, "outer layer"), KeptByLayer(program, "state-space layer"));
  // FSDP2's groups cast what they read: all layers but the last give 16 bits.
  const Program sharded = ProgramOf(JobOf(s, "bf16-mixed", true, "fsdp2"));
  for (const auto& [name, given, count] : {std::tuple("state-space layer", DType::kBf16, 3),
                                           std::tuple("outer layer", DType::kFp32, 1)}) {
    const Block& block = FindBlock(sharded, name);
    EXPECT_EQ(block.tensors[block.input].dtype, DType::kBf16);
    EXPECT_EQ(block.tensors[block.output].dtype, given);
    EXPECT_EQ(block.layers.CountOf(4), count);
  }
  // Where weights are fp32 all layers are alike.
  EXPECT_EQ(FindBlock(ProgramOf(JobOf(s, "fp32", true)), "layer").layers.CountOf(4), 4);
}

std::vector<std::string> Weights(const Program& program) {
  std::vector<std::string> rows;
  for (const Parameter& at : FindBlock(program, "layer").parameters) {
    if (at.name.find("state_space.") != 0) continue;
    rows.push_back(absl::StrCat(at.name.substr(12), " ", InNumbers(at.shape)));
  }
  return rows;
}

TEST(LowerSelectiveScanTest, HasTheClassesWeights) {
  EXPECT_THAT(Weights(Lowered(Valid(JobOf(kSizes[0])))),
              ElementsAre("in.weight [256, 64]", "parts.weight [36, 128]", "step.weight [128, 4]",
                          "out.weight [64, 128]", "conv.weight [128, 4]", "conv.bias [128]",
                          "decay [128, 16]", "step.bias [128]", "skip [128]"));
  const JobSpec biased = WithModel(JobOf(kSizes[0]), [](Transformer& model) {
    model.state_space.bias = true;
    model.state_space.convolution_bias = false;
  });
  EXPECT_THAT(
      Weights(Lowered(Valid(biased))),
      ElementsAre("in.weight [256, 64]", "in.bias [256]", "parts.weight [36, 128]",
                  "step.weight [128, 4]", "out.weight [64, 128]", "out.bias [64]",
                  "conv.weight [128, 4]", "decay [128, 16]", "step.bias [128]", "skip [128]"));
  for (const Sizes& s : kSizes) {
    const MemoryEstimate estimate = Estimate(JobOf(s));
    EXPECT_EQ(estimate.ranks[0].parameter_count, estimate.parameter_count) << s.H;
  }
}

// Under autocast the function casts weights of its products, and keeps the copies.
TEST(LowerSelectiveScanTest, AutocastKeepsCopiesOfWeights) {
  const Sizes& s = kSizes[0];
  const Program program = ProgramOf(JobOf(s, "bf16-autocast"));
  int64_t elements = 0;
  const Block& block = FindBlock(program, "layer");
  for (const TensorId id : FindOp(block, "state_space.products").saved) {
    const Tensor& tensor = block.tensors[id];
    if (tensor.role == Role::kWeight) elements += tensor.Bytes() / 2;
  }
  EXPECT_EQ(elements, s.I * (s.Parts() + s.R + s.H));
}

}  // namespace
}  // namespace plimsoll
