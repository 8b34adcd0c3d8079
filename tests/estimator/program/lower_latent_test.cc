// Latent attention, lowered: its weights, what ranks split of them, and what each framework keeps
// for backward, by formulas written out by hand.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "estimator/program/tensor_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

// The alphabet of estimator/README.md, bytes of one token or of all.
struct Sizes {
  int64_t B, S, H, N, D, F, Q, J, Y, V;
  int64_t T() const { return B * S; }
  int64_t A() const { return N * D; }
  int64_t W() const { return N * V; }
  int64_t Plain() const { return N * (D - Y); }
};

constexpr Sizes kSizes[] = {
    {.B = 2, .S = 32, .H = 64, .N = 4, .D = 24, .F = 128, .Q = 48, .J = 20, .Y = 8, .V = 16},
    {.B = 3, .S = 40, .H = 112, .N = 6, .D = 40, .F = 300, .Q = 56, .J = 36, .Y = 12, .V = 48},
    {.B = 1, .S = 56, .H = 88, .N = 5, .D = 32, .F = 72, .Q = 30, .J = 14, .Y = 20, .V = 8},
};

JobSpec JobOf(const Sizes& s, absl::string_view framework) {
  JobSpec job = With(SmallJob(), framework);
  TransformerSpec& shape = Shape(job);
  shape.hidden_size = s.H;
  shape.head_count = s.N;
  shape.kv_head_count.reset();
  shape.head_size = s.D;
  shape.ffn_size = s.F;
  shape.query_rank = s.Q;
  shape.key_value_rank = s.J;
  shape.rotary_head_size = s.Y;
  shape.value_head_size = s.V;
  shape.qk_norm = "per-rank";
  job.training.sequence_length = s.S;
  job.training.micro_batch_size = s.B;
  return job;
}

struct Row {
  const char* name;
  const char* framework;
  void (*edit)(JobSpec&);
  int64_t (*bytes)(const Sizes&);
};

// Around attention, of transformers: two norms as Llama's, each with a root of each token, and its
// MLP.
int64_t Llama(const Sizes& s) { return 2 * (8 * s.H + 4) + 4 * 2 * s.F; }
// Of Megatron-Core: two norms in one kernel each, silu and product in one.
int64_t Core(const Sizes& s) { return 2 * (2 * 2 * s.H + 4) + 3 * 2 * s.F; }

// transformers: a norm over a rank as any other; queries and keys made anew, the value a view of
// what the up-projection gave; the kernel's output and log-sum-exp.
// Source: transformers models/deepseek_v3/modeling_deepseek_v3.py, DeepseekV3Attention.forward,
// expand_kv.
int64_t OfTransformers(const Sizes& s) {
  return Llama(s) + 8 * s.Q + 4 + 8 * s.J + 4 + 2 * 2 * s.A() + 2 * (s.Plain() + s.W()) +
         2 * s.W() + 4 * s.N;
}

// Megatron-Core: what up-projections read, queries and keys, a copy of values, what attention
// gave, log-sum-exp; of each norm its input and a statistic.
// Source: megatron/core/transformer/multi_latent_attention.py, qkv_up_proj_and_rope_apply.
int64_t OfCore(const Sizes& s) {
  return Core(s) + 2 * s.Q + 2 * s.J + 2 * 2 * s.A() + 2 * 2 * s.W() + 4 * s.N;
}
int64_t RankNorms(const Sizes& s) { return 2 * s.Q + 4 + 2 * s.J + 4; }

constexpr Row kRows[] = {
    {"DeepSeek V3", "ddp", [](JobSpec&) {},
     [](const Sizes& s) { return s.T() * OfTransformers(s); }},
    {"under FSDP2", "fsdp2", [](JobSpec&) {},
     [](const Sizes& s) { return s.T() * OfTransformers(s); }},
    // torchtitan's norms are one kernel, and each layer keeps the angles of its positions.
    {"torchtitan", "fsdp2", [](JobSpec& job) { job.runtime.trainer = "torchtitan"; },
     [](const Sizes& s) {
       const int64_t norms = 4 * s.Q + 4 * s.J - 2 * s.Y + 4 * 2 * s.H;
       return s.T() * (OfTransformers(s) - norms + 4 * s.Y);
     }},
    // What cuDNN gives is laid out as queries, of which two parts were joined: it is copied.
    {"on Hopper", "ddp", [](JobSpec& job) { job.cluster.gpu = "h100-80gb-sxm"; },
     [](const Sizes& s) { return s.T() * (OfTransformers(s) + 2 * s.W()); }},
    {"on Hopper, of an older torch", "ddp",
     [](JobSpec& job) {
       job.cluster.gpu = "h100-80gb-sxm";
       job.runtime.versions["torch"] = "2.10";
     },
     [](const Sizes& s) { return s.T() * OfTransformers(s); }},
    {"recomputed", "fsdp2", [](JobSpec& job) { job.training.recompute.mode = "full"; },
     [](const Sizes& s) { return s.T() * 2 * s.H; }},
    // V2-Lite's queries are projected at once, from the norm's output.
    {"queries without a rank", "ddp", [](JobSpec& job) { Shape(job).query_rank.reset(); },
     [](const Sizes& s) { return s.T() * (OfTransformers(s) - (8 * s.Q + 4)); }},
    // A norm keeps its input itself: of keys and values with what lies beside it.
    {"fp32", "ddp", [](JobSpec& job) { job = With(job, "ddp", "fp32"); },
     [](const Sizes& s) {
       return s.T() * (2 * (3 * 4 * s.H + 4) + 4 * 4 * s.F + 4 * (3 * s.Q + 2 * s.J + s.J + s.Y) +
                       2 * 4 + 4 * (2 * s.A() + s.Plain() + s.W() + s.W()) + 4 * s.N);
     }},
    // Of more than one sequence values are copied, and what they were a part of goes.
    {"eager attention", "ddp", [](JobSpec& job) { job.training.attention = "eager"; },
     [](const Sizes& s) {
       const int64_t values = s.B > 1 ? s.W() : s.Plain() + s.W();
       return s.T() * (Llama(s) + 8 * s.Q + 4 + 8 * s.J + 4 + 2 * 2 * s.A() + 2 * values +
                       2 * s.W() + (4 + 2) * s.N * s.S);
     }},
    {"Megatron-Core", "megatron-core", [](JobSpec&) {},
     [](const Sizes& s) { return s.T() * (OfCore(s) + RankNorms(s)); }},
    {"without norms of ranks", "megatron-core", [](JobSpec& job) { Shape(job).qk_norm = "none"; },
     [](const Sizes& s) { return s.T() * OfCore(s); }},
    {"without a rank of queries", "megatron-core",
     [](JobSpec& job) {
       Shape(job).qk_norm = "none";
       Shape(job).query_rank.reset();
     },
     [](const Sizes& s) { return s.T() * (OfCore(s) - 2 * s.Q); }},
    // Each call of a rotation that is not fused keeps its own cosines and sines.
    // Source: megatron/core/models/common/embeddings/rope_utils.py, _apply_rotary_pos_emb_bshd.
    {"beside learned positions", "megatron-core",
     [](JobSpec& job) { Shape(job).position_embedding = "learned"; },
     [](const Sizes& s) { return s.T() * (OfCore(s) + RankNorms(s)) + s.S * 4 * s.Y * 2; }},
};

TEST(LowerLatentTest, KeepsWhatTheFormulasSay) {
  for (const Row& row : kRows) {
    for (const Sizes& sizes : kSizes) {
      JobSpec job = JobOf(sizes, row.framework);
      row.edit(job);
      EXPECT_EQ(KeptByLayer(ProgramOf(job)), row.bytes(sizes)) << row.name << ", H " << sizes.H;
    }
  }
}

std::vector<std::string> Weights(const Program& program) {
  std::vector<std::string> rows;
  for (const Parameter& at : FindBlock(program, "layer").parameters) {
    if (at.name.find("attention.") != 0 || at.name.find("attention.norm") == 0) continue;
    rows.push_back(absl::StrCat(at.name, " ", InNumbers(at.shape)));
  }
  return rows;
}

// H 64, N 4, D 24, Q 48, J 20, Y 8, values of 16. Down-projections and norms are on each rank.
TEST(LowerLatentTest, SplitsUpProjectionsAndTheOutputsAlone) {
  JobSpec job = JobOf(kSizes[0], "megatron-core");
  job.parallelism.tensor_parallel_size = 2;
  EXPECT_THAT(
      Weights(ProgramAfter(Valid(job), PassId::kTensorParallel)),
      ElementsAre("attention.query.down.weight [48, 64]", "attention.kv.down.weight [28, 64]",
                  "attention.query.rank.norm.weight [48]", "attention.query.up.weight [48, 48]",
                  "attention.kv.rank.norm.weight [20]", "attention.kv.up.weight [64, 20]",
                  "attention.out.weight [64, 32]"));
}

TEST(LowerLatentTest, BiasesAreOfDownProjections) {
  JobSpec job = JobOf(kSizes[0], "ddp");
  Shape(job).qkv_bias = true;
  Shape(job).query_rank.reset();
  EXPECT_THAT(Weights(Lowered(Valid(job))),
              ElementsAre("attention.query.weight [96, 64]", "attention.kv.down.weight [28, 64]",
                          "attention.kv.down.bias [28]", "attention.kv.rank.norm.weight [20]",
                          "attention.kv.up.weight [128, 20]", "attention.out.weight [64, 64]"));
}

// Under sequence parallelism ranks and their norms are of a part of the tokens; what all heads
// rotate is gathered.
TEST(LowerLatentTest, RanksAreOfPartsOfTheSequence) {
  const JobSpec job = WithSequenceParallelism(JobOf(kSizes[0], "megatron-core"), 2);
  const Program program = ProgramOf(job);
  const Block& layer = FindBlock(program, "layer");
  EXPECT_EQ(InNumbers(FindTensor(layer, "attention.query.rank").shape), "[2, 16, 48]");
  EXPECT_EQ(InNumbers(FindTensor(layer, "attention.kv.rank.norm").shape), "[2, 16, 20]");
  EXPECT_EQ(InNumbers(FindTensor(layer, "attention.key.rotary.part").shape), "[2, 32, 8]");
  EXPECT_EQ(InNumbers(FindTensor(layer, "attention.value.contiguous").shape), "[2, 32, 32]");
  EXPECT_EQ(SplitOf(layer, FindOp(layer, "attention.kv.down")), TensorSplit::kNone);
  EXPECT_EQ(SplitOf(layer, FindOp(layer, "attention.kv.up")), TensorSplit::kColumns);
}

// Scores are as deep as queries are wide, values once for each: S / 2 x (D + V) for each head, of
// which the output has V.
TEST(LowerLatentTest, MultipliesByKeysAndByValues) {
  const Program program = Lowered(Valid(JobOf(kSizes[0], "ddp")));
  const Block& layer = FindBlock(program, "layer");
  EXPECT_EQ(FindOp(layer, "attention.flash").product_depth, 16 * (24 + 16) / 16);
}

// YaRN's rotation is each layer's own: fp32 angles, 16-bit cosines and sines; of 4,096 positions
// where nothing reads them.
TEST(LowerLatentTest, EachLayerHasTablesOfItsOwn) {
  JobSpec job = JobOf(kSizes[0], "megatron-core");
  const Program fused = ProgramOf(job);
  ASSERT_NE(FindState(fused, "attention.rotary.angles"), nullptr);
  EXPECT_EQ(FindState(fused, "attention.rotary.angles")->fixed_bytes, 32 * 8 * 4);
  EXPECT_EQ(FindState(fused, "attention.rotary.angles")->basis, Basis::kBytesPerLayer);
  EXPECT_EQ(FindState(fused, "attention.rotary.cache")->fixed_bytes, 2 * 32 * 8 * 2);
  Shape(job).position_embedding = "learned";
  const Program apart = ProgramOf(job);
  EXPECT_EQ(FindState(apart, "attention.rotary.cache")->fixed_bytes, 2 * 4096 * 8 * 2);
  EXPECT_EQ(FindState(ProgramOf(JobOf(kSizes[0], "ddp")), "attention.rotary.cache"), nullptr);
}

}  // namespace
}  // namespace plimsoll
