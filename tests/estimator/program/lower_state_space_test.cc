// State-space layers, lowered: their weights, and what they keep for backward, by formulas written
// out by hand.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

// The alphabet of estimator/README.md; P a head's width, N its state's, G groups, C a chunk.
struct Sizes {
  int64_t B, S, H, F, heads, P, N, G, C;
  int64_t T() const { return B * S; }
  int64_t I() const { return heads * P; }
  int64_t Z() const { return G * N; }
  int64_t Projected() const { return 2 * I() + 2 * Z() + heads; }
  int64_t Chunks() const { return (S + C - 1) / C; }
};

constexpr Sizes kSizes[] = {
    {.B = 2, .S = 128, .H = 64, .F = 128, .heads = 8, .P = 16, .N = 32, .G = 1, .C = 64},
    {.B = 1, .S = 100, .H = 96, .F = 72, .heads = 6, .P = 32, .N = 16, .G = 2, .C = 32},
    {.B = 3, .S = 64, .H = 80, .F = 300, .heads = 5, .P = 32, .N = 64, .G = 5, .C = 256},
};

JobSpec JobOf(const Sizes& s, absl::string_view preset = "bf16-pure",
              absl::string_view framework = "ddp") {
  JobSpec job = With(SmallJob(), framework, preset);
  job.training.sequence_length = s.S;
  job.training.micro_batch_size = s.B;
  return WithModel(job, [&s](Transformer& model) {
    model.hidden_size = model.embedding_size = s.H;
    model.layer_count = 4;
    model.ffn_size = s.F;
    model.state_space = {.head_count = s.heads,
                         .head_size = s.P,
                         .state_size = s.N,
                         .group_count = s.G,
                         .chunk_size = s.C,
                         .layers = {.period = 4, .to = 3}};
  });
}

// What the first product reads and gives, what the scan gave, and the norm's statistics.
int64_t Kept(const Sizes& s, int64_t width) {
  return s.T() * (width * s.Projected() + width * s.I() + 4 * s.G);
}

// Around the mixer two norms as Llama's, and its MLP.
TEST(LowerStateSpaceTest, KeepsWhatItsFunctionSaves) {
  for (const Sizes& s : kSizes) {
    const int64_t others = s.T() * (2 * (8 * s.H + 4) + 4 * 2 * s.F);
    EXPECT_EQ(KeptByLayer(ProgramOf(JobOf(s)), "state-space layer"), others + Kept(s, 2)) << s.H;
    const int64_t wide = s.T() * (2 * (3 * 4 * s.H + 4) + 4 * 4 * s.F);
    EXPECT_EQ(KeptByLayer(ProgramOf(JobOf(s, "fp32")), "state-space layer"), wide + Kept(s, 4));
  }
}

int64_t Bytes(const Block& block, const Ids& ids) {
  int64_t bytes = 0;
  for (const TensorId id : ids) {
    const Tensor& tensor = block.tensors[id];
    if (tensor.role == Role::kTemporary) bytes += tensor.Bytes();
  }
  return bytes;
}

// ssd_combined.py: in forward what is convolved, normed and scanned, 16-bit states and the last in
// fp32; in backward these and their gradients, fp32 states and theirs, and 16-bit copies of both.
TEST(LowerStateSpaceTest, MakesStatesOfEachChunk) {
  for (const Sizes& s : kSizes) {
    const Program program = ProgramOf(JobOf(s));
    const Block& block = FindBlock(program, "state-space layer");
    const Op& scan = FindOp(block, "state_space.scan");
    const int64_t convolved = s.T() * (s.I() + 2 * s.Z());
    const int64_t states = s.B * s.Chunks() * s.I() * s.N;
    const int64_t steps = s.B * s.Chunks() * s.C * 2 * s.heads;
    const int64_t last = s.B * s.I() * s.N;
    EXPECT_EQ(Bytes(block, scan.forward_temporaries),
              2 * s.T() * s.I() + 2 * convolved + 4 * steps + 2 * states + 4 * last)
        << s.H;
    const int64_t scores = s.B * s.Chunks() * s.G * s.C * s.C;
    EXPECT_EQ(Bytes(block, scan.backward_temporaries), 2 * (3 * s.T() * s.I() + 2 * convolved) +
                                                           4 * (steps + scores + last) +
                                                           (4 + 4 + 2 + 2) * states)
        << s.H;
  }
}

std::vector<std::string> Weights(const Program& program, absl::string_view block) {
  std::vector<std::string> rows;
  for (const Parameter& at : FindBlock(program, block).parameters) {
    if (at.name.find("state_space.") == 0) {
      rows.push_back(absl::StrCat(at.name.substr(12), " ", InNumbers(at.shape)));
    }
  }
  return rows;
}

// H 64, 8 heads of 16 and states of 32 for all of them: I 128, Z 32.
TEST(LowerStateSpaceTest, HasTheClassesWeights) {
  const Program program = Lowered(Valid(JobOf(kSizes[0])));
  EXPECT_THAT(Weights(program, "state-space layer"),
              ElementsAre("in.weight [328, 64]", "out.weight [64, 128]", "conv.weight [192, 4]",
                          "conv.bias [192]", "step.bias [8]", "decay [8]", "skip [8]",
                          "norm.weight [128]"));
  EXPECT_THAT(Weights(program, "layer"), ElementsAre());
  EXPECT_EQ(FindBlock(program, "state-space layer").layers.CountOf(4), 3);
  const JobSpec biased = WithModel(JobOf(kSizes[0]), [](Transformer& model) {
    model.state_space.bias = true;
    model.state_space.convolution_bias = false;
  });
  EXPECT_THAT(Weights(Lowered(Valid(biased)), "state-space layer"),
              ElementsAre("in.weight [328, 64]", "in.bias [328]", "out.weight [64, 128]",
                          "out.bias [64]", "conv.weight [192, 4]", "step.bias [8]", "decay [8]",
                          "skip [8]", "norm.weight [128]"));
}

// A layer is a mixer, an MLP or experts, behind one norm; it has as many parameters as are counted.
TEST(LowerStateSpaceTest, ALayerMayBeOneSublayer) {
  const JobSpec job = WithModel(JobOf(kSizes[0]), [](Transformer& model) {
    model.layer_count = 7;
    model.gated_mlp = false;
    model.activation = Activation::kRelu2;
    model.one_sublayer = true;
    model.state_space.layers = {.period = 3};            // 0 3 6
    model.attended = {.period = 7, .from = 2, .to = 3};  // 2
    model.experts = {
        .count = 4, .active_count = 2, .ffn_size = 32, .layers = {.begin = 5, .end = 6}};
  });
  const Program program = Lowered(Valid(job));
  std::vector<std::string> rows;
  for (const Block& block : program.blocks) {
    if (block.kind != BlockKind::kLayer) continue;
    int norms = 0;
    for (const Parameter& at : block.parameters) norms += at.name.find(".norm.weight") < 15 ? 1 : 0;
    rows.push_back(absl::StrCat(block.name, " ", block.layers.CountOf(7), " ", norms));
  }
  EXPECT_THAT(rows, ElementsAre("MLP layer 2 1", "expert layer 1 1", "attention layer 1 1",
                                "state-space layer 3 2"))
      << "the mixer has a norm of its own";
  const MemoryEstimate estimate = Estimate(job);
  EXPECT_EQ(estimate.ranks[0].parameter_count, estimate.parameter_count);
}

TEST(LowerStateSpaceTest, CountsWhatTheModelDoes) {
  for (const Sizes& s : kSizes) {
    for (const char* framework : {"ddp", "fsdp2", "deepspeed"}) {
      const char* preset = framework == std::string("ddp") ? "bf16-pure" : "bf16-mixed";
      const MemoryEstimate estimate = Estimate(JobOf(s, preset, framework));
      EXPECT_EQ(estimate.ranks[0].parameter_count, estimate.parameter_count) << s.H << framework;
    }
  }
}

}  // namespace
}  // namespace plimsoll
