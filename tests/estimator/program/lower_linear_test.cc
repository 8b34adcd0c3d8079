// Linear attention, lowered: its weights, and what each way of computing it keeps for backward, by
// formulas written out by hand.
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

// The alphabet of estimator/README.md; K heads of keys, D and V the widths of a head's keys and
// values, I the tokens that the convolution reads.
struct Sizes {
  int64_t B, S, H, F, O, K, D, V, I;
  int64_t T() const { return B * S; }
  int64_t L() const { return K * D; }
  int64_t M() const { return O * V; }
  int64_t Mixed() const { return 2 * L() + M(); }
  int64_t Padded() const { return B * ((S + 63) / 64 * 64); }
};

constexpr Sizes kSizes[] = {
    {.B = 2, .S = 128, .H = 64, .F = 128, .O = 4, .K = 2, .D = 16, .V = 24, .I = 4},
    {.B = 1, .S = 100, .H = 96, .F = 72, .O = 6, .K = 3, .D = 24, .V = 16, .I = 2},
    {.B = 3, .S = 64, .H = 80, .F = 300, .O = 5, .K = 5, .D = 32, .V = 32, .I = 3},
};

JobSpec JobOf(const Sizes& s, absl::string_view framework = "ddp",
              absl::string_view preset = "bf16-pure") {
  JobSpec job = With(SmallJob(), framework, preset);
  TransformerSpec& shape = Shape(job);
  shape.hidden_size = s.H;
  shape.layer_count = 4;
  shape.ffn_size = s.F;
  shape.linear_value_head_count = s.O;
  shape.linear_key_head_count = s.K;
  shape.linear_key_head_size = s.D;
  shape.linear_value_head_size = s.V;
  shape.linear_kernel_size = s.I;
  job.training.sequence_length = s.S;
  job.training.micro_batch_size = s.B;
  return job;
}

int64_t KeptBy(const JobSpec& job, absl::string_view block) {
  return KeptByLayer(ProgramOf(job), block);
}

// Around attention two norms as Llama's, each with a root of each token, and its MLP.
int64_t Llama(const Sizes& s) { return s.T() * (2 * (8 * s.H + 4) + 4 * 2 * s.F); }

// What the convolution reads and gives, the gates, and the product's input.
int64_t Around(const Sizes& s) {
  return 2 * s.T() * s.Mixed() + 2 * s.B * (s.S + s.I - 1) * s.Mixed() +
         s.T() * (2 * s.O + 8 * s.O + 2 * s.M());
}

// Qwen3_5RMSNormGated: the input in fp32, its normalised copy, that times the weight; the gate in
// fp32, before and behind SiLU; of each head the root that it is normalised by.
int64_t NormAndGate(const Sizes& s) { return s.T() * (s.M() * (4 + 2 + 2 + 4 + 4) + 4 * s.O); }

// ChunkGatedDeltaRuleFunction.forward, save_for_backward.
int64_t Fla(const Sizes& s) {
  return s.T() * (2 * 2 * s.L() + 2 * 4 * s.K + 2 * s.M() + 4 * s.O + 2 * 64 * s.O);
}

// torch_chunk_gated_delta_rule, fp32: queries and keys before and behind padding, the latter once
// more with beta and once more decayed; values; four triangles; solutions, new values and states.
int64_t Torch(const Sizes& s) {
  const int64_t keys = s.O * s.D;
  const int64_t inside = 3 * keys + s.M() + 2 * keys + 4 * 64 * s.O + 64 * s.O + (2 + 4) * s.O;
  const int64_t solved = keys + s.M() + s.M();
  return 4 * (s.Padded() * (2 * keys + inside + solved) + s.Padded() / 64 * s.M() * s.D);
}

TEST(LowerLinearTest, KernelsKeepWhatTheirFunctionSaves) {
  for (const Sizes& s : kSizes) {
    EXPECT_EQ(KeptBy(JobOf(s), "linear layer"), Llama(s) + Around(s) + Fla(s) + NormAndGate(s))
        << "H " << s.H;
  }
}

TEST(LowerLinearTest, PythonKeepsAllThatItMakes) {
  for (const Sizes& s : kSizes) {
    JobSpec job = JobOf(s);
    job.training.linear_attention = "torch";
    EXPECT_EQ(KeptBy(job, "linear layer"), Llama(s) + Around(s) + Torch(s) + NormAndGate(s))
        << "H " << s.H;
  }
}

TEST(LowerLinearTest, NothingIsCastInFp32) {
  const Sizes& s = kSizes[0];
  const int64_t norms = s.T() * (2 * (3 * 4 * s.H + 4) + 4 * 4 * s.F);
  const int64_t around = 2 * (Around(s) - s.T() * 8 * s.O) + s.T() * 8 * s.O;
  const int64_t gate = s.T() * (s.M() * 5 * 4 + 4 * s.O);
  const int64_t fla = s.T() * (2 * 4 * s.L() + 2 * 4 * s.K + 4 * s.M() + 4 * s.O + 4 * 64 * s.O);
  // The gate's projection is kept itself, and of the norm its input.
  EXPECT_EQ(KeptBy(JobOf(s, "ddp", "fp32"), "linear layer"), norms + around + fla + gate);
}

// What an older release keeps: keys of all heads, and one kernel's norm and gate.
TEST(LowerLinearTest, OlderClassesRepeatKeysAndFuseTheNorm) {
  const Sizes& s = kSizes[0];
  JobSpec job = JobOf(s);
  job.runtime.trainer = "hf-trainer";
  const auto of = [&](const char* version) {
    job.runtime.versions["hf-trainer"] = version;
    return KeptBy(job, "linear layer");
  };
  const int64_t repeated = s.T() * 2 * (s.O - s.K) * (2 * s.D + 4);
  const int64_t fused = s.T() * (2 * 2 * s.M() + 4 * s.O) - NormAndGate(s);
  EXPECT_EQ(of("5.22") - of("5.23"), repeated);
  EXPECT_EQ(of("5.14") - of("5.22"), fused);
  // Of a loop of one's own transformers' version is stated by itself.
  job.runtime.trainer.reset();
  job.runtime.versions = {{"transformers", "5.22"}};
  EXPECT_EQ(KeptBy(job, "linear layer") - KeptBy(JobOf(s), "linear layer"), repeated);
}

std::vector<std::string> Weights(const Program& program, absl::string_view block) {
  std::vector<std::string> rows;
  for (const Parameter& at : FindBlock(program, block).parameters) {
    if (at.name.find("linear.") == 0)
      rows.push_back(absl::StrCat(at.name, " ", InNumbers(at.shape)));
  }
  return rows;
}

// H 64, O 4 heads of 24 values, 2 of 16 keys: L 32, M 96.
TEST(LowerLinearTest, HasTheClassesWeights) {
  const Program program = Lowered(Valid(JobOf(kSizes[0])));
  EXPECT_THAT(
      Weights(program, "linear layer"),
      ElementsAre("linear.qkv.weight [160, 64]", "linear.gate.weight [96, 64]",
                  "linear.beta.weight [4, 64]", "linear.decay.weight [4, 64]",
                  "linear.conv.weight [160, 4]", "linear.decay.bias [4]", "linear.decay.rate [4]",
                  "linear.norm.weight [24]", "linear.out.weight [64, 96]"));
  EXPECT_THAT(Weights(program, "layer"), ElementsAre());
  EXPECT_EQ(FindBlock(program, "linear layer").layers.CountOf(4), 3);
  EXPECT_EQ(FindBlock(program, "layer").layers.CountOf(4), 1);
}

JobSpec OlmoHybrid(const Sizes& s) {
  return WithModel(JobOf(s), [](Transformer& model) {
    model.norm_placement = NormPlacement::kPostOnly;
    model.linear.projections = DeltaProjections::kEach;
    model.linear.norms_before = true;
    model.linear.doubles = true;
  });
}

// Queries, keys and values are products of their own, joined for the convolution; what corrects is
// twice its sigmoid, both of which are kept; norms are before, where the others' are behind.
TEST(LowerLinearTest, ProjectionsMayBeApart) {
  for (const Sizes& s : kSizes) {
    const int64_t twice = s.T() * 2 * s.O;
    EXPECT_EQ(KeptBy(OlmoHybrid(s), "linear layer"),
              Llama(s) + Around(s) + twice + Fla(s) + NormAndGate(s))
        << "H " << s.H;
  }
  const Program program = Lowered(Valid(OlmoHybrid(kSizes[0])));
  EXPECT_THAT(
      Weights(program, "linear layer"),
      ElementsAre("linear.query.weight [32, 64]", "linear.key.weight [32, 64]",
                  "linear.value.weight [96, 64]", "linear.conv.weight [160, 4]",
                  "linear.beta.weight [4, 64]", "linear.decay.weight [4, 64]",
                  "linear.decay.bias [4]", "linear.decay.rate [4]", "linear.gate.weight [96, 64]",
                  "linear.norm.weight [24]", "linear.out.weight [64, 96]"));
  const auto first = [&program](absl::string_view block) {
    return FindBlock(program, block).ops.front().name;
  };
  EXPECT_EQ(first("linear layer"), "attention.norm.upcast");
  EXPECT_EQ(first("layer"), "attention.query");
}

// Queries and their gate are one product: twice as wide, of which the gate is copied, and kept as
// its sigmoid beside what it weighs.
TEST(LowerLinearTest, AttentionMayBeGated) {
  JobSpec job = JobOf(kSizes[0]);
  const int64_t without = KeptBy(job, "layer");
  const int64_t width = *Shape(job).head_count * 16;
  Shape(job).attention_gate = true;
  EXPECT_EQ(KeptBy(job, "layer") - without, 2 * kSizes[0].T() * 2 * width);
  const Program program = ProgramOf(job);
  EXPECT_EQ(InNumbers(FindTensor(FindBlock(program, "layer"), "attention.query.activation").shape),
            absl::StrCat("[2, 128, ", 2 * width, "]"));
}

}  // namespace
}  // namespace plimsoll
