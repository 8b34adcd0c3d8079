// A second, deliberately simple implementation of the dense case: bytes per
// token and per parameter as formulas, written from the frameworks' own
// accounts and not from the estimator. Both must agree to the byte.
#include "estimator/base/units.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

// A dense Llama, or with `gated` false a GPT with fused GELU and RMSNorm.
struct Dense {
  int64_t h, heads, kv_heads, d, f, layers, vocab, b, s;
  bool gated = true;

  int64_t a() const { return heads * d; }
  int64_t k() const { return kv_heads * d; }
  int64_t tokens() const { return b * s; }
  int64_t ups() const { return gated ? 2 : 1; }
  int64_t Layer() const { return h * (a() + 2 * k()) + a() * h + (ups() + 1) * h * f + 2 * h; }
  int64_t Parameters() const { return 2 * vocab * h + layers * Layer() + h; }
};

// Widths are multiples of 4, so that tensor parallelism splits them evenly; the
// vocabularies are multiples of 512, so that nothing is padded.
constexpr Dense kGrid[] = {
    {64, 4, 4, 16, 256, 2, 512, 1, 128},
    {64, 4, 4, 16, 256, 3, 512, 2, 128, false},
    {128, 8, 4, 32, 344, 5, 1024, 1, 256},
    {256, 8, 4, 32, 1024, 4, 32256, 4, 64},
    {512, 4, 4, 64, 512, 7, 1024, 3, 512},
    {2048, 32, 8, 64, 8192, 16, 131072, 2, 1024},
    {4096, 32, 8, 128, 14336, 32, 128512, 1, 4096},
    {5120, 40, 40, 128, 20480, 40, 51200, 2, 2048, false},
};

JobSpec JobOf(const Dense& dense, absl::string_view framework, int64_t tensor = 1) {
  JobSpec job = With(SmallJob(), framework);
  TransformerSpec shape;
  shape.hidden_size = dense.h;
  shape.head_count = dense.heads;
  shape.kv_head_count = dense.kv_heads;
  shape.head_size = dense.d;
  shape.ffn_size = dense.f;
  shape.layer_count = dense.layers;
  shape.vocab_size = dense.vocab;
  shape.gated_mlp = dense.gated;
  shape.norm = "rms-norm";
  job.model.source = shape;
  job.training.sequence_length = dense.s;
  job.training.micro_batch_size = dense.b;
  job.training.attention = "memory-efficient";
  if (tensor > 1) job.parallelism.tensor_parallel_size = tensor;
  return job;
}

// Megatron-Core with Transformer Engine, per token: two norms in and out, q, k,
// v and the output, the log-sum-exp, fc1 of two branches (or one), fc2's input.
// Source: memory-internals 7.3: 8h + 4a + 4k + 6f (+ 4 heads + 8).
int64_t MegatronKept(const Dense& m, int64_t t, bool sequence_parallel) {
  const int64_t split = 4 * m.a() + 4 * m.k() + (2 * m.ups() + 2) * m.f + 4 * m.heads;
  const int64_t narrow = 8 * m.h + 8;
  return m.tokens() * split / t + m.tokens() * narrow / (sequence_parallel ? t : 1);
}

TEST(OracleTest, MegatronKeepsItsOwnFormula) {
  for (const Dense& dense : kGrid) {
    for (const int64_t t : {1, 2, 4}) {
      for (const bool sequence : {false, true}) {
        if (sequence && t == 1) continue;
        JobSpec job = JobOf(dense, "megatron-core", t);
        if (t > 1) job.parallelism.sequence_parallel = sequence;
        EXPECT_EQ(KeptByLayer(ProgramOf(job)), MegatronKept(dense, t, sequence))
            << "h " << dense.h << " t " << t << " sequence " << sequence;
      }
    }
  }
}

// nanotron: not a fused GLU (its activation beside gate, up and product), keys
// and values beside each other; queries in a copy of all three unless they are
// grouped. Source: data notes A 1.1: 8h + 4a + 8k + 8f + 4H + 8; nanotron models/llama.py.
TEST(OracleTest, NanotronKeepsItsOwnFormula) {
  for (const Dense& m : kGrid) {
    if (!m.gated) continue;
    for (const int64_t t : {1, 2, 4}) {
      const int64_t keys = m.a() == m.k() ? 8 : 4;
      const int64_t token = 8 * m.h + 4 * m.a() + keys * m.k() + 8 * m.f + 4 * m.heads + 8;
      EXPECT_EQ(KeptByLayer(ProgramOf(JobOf(m, "nanotron", t))), m.tokens() * token / t)
          << "h " << m.h << " t " << t;
    }
  }
}

// Hugging Face's modules: norms keep an fp32 copy (4h), its normalised copy
// (2h) and the output (2h), and an inverse root of each token (4); SwiGLU keeps
// gate, its SiLU, up and the product.
// Source: memory-internals 8.2: 16h + 4a + 4k + 8f + 4H; torch
// tools/autograd/derivatives.yaml, rsqrt and mul: + 8 of two norms.
TEST(OracleTest, HuggingFaceKeepsItsOwnFormula) {
  for (const char* framework : {"ddp", "fsdp2", "deepspeed"}) {
    for (const Dense& m : kGrid) {
      const int64_t mlp = m.gated ? 8 * m.f : 4 * m.f;
      const int64_t token = 16 * m.h + 4 * m.a() + 4 * m.k() + mlp + 4 * m.heads + 8;
      EXPECT_EQ(KeptByLayer(ProgramOf(JobOf(m, framework))), m.tokens() * token)
          << framework << " h " << m.h;
    }
  }
}

// The same in fp32: the norm's input needs no second copy in fp32, everything
// else is twice as wide; the log-sum-exp and norms' roots are fp32 anyway.
TEST(OracleTest, Fp32IsTwiceAsWide) {
  for (const Dense& m : kGrid) {
    const int64_t mlp = m.gated ? 16 * m.f : 8 * m.f;
    const int64_t token = 24 * m.h + 8 * m.a() + 8 * m.k() + mlp + 4 * m.heads + 8;
    EXPECT_EQ(KeptByLayer(ProgramOf(With(JobOf(m, "ddp"), "ddp", "fp32"))), m.tokens() * token)
        << "h " << m.h;
  }
}

// Eager attention adds scores, per head and pair of tokens: Megatron's fused
// softmax keeps its 16-bit output; Hugging Face's keeps it in fp32 and again in
// 16 bits. Keys and values are copied to all heads. Source: memory-internals 8.1.
TEST(OracleTest, EagerScoresAreQuadratic) {
  for (const Dense& m : kGrid) {
    const int64_t pairs = m.b * m.heads * m.s * m.s;
    const int64_t statistics = m.tokens() * 4 * m.heads;  // flash's log-sum-exp goes
    for (const auto& [framework, bytes] : {std::pair{"megatron-core", 2}, std::pair{"ddp", 6}}) {
      JobSpec job = JobOf(m, framework);
      const int64_t flash = KeptByLayer(ProgramOf(job));
      job.training.attention = "eager";
      const int64_t copies = m.tokens() * 4 * (m.a() - m.k());
      EXPECT_EQ(KeptByLayer(ProgramOf(job)), flash - statistics + copies + bytes * pairs)
          << framework << " h " << m.h;
    }
  }
}

// Full recomputation keeps the layer's input alone.
TEST(OracleTest, RecomputationKeepsTheInput) {
  for (const char* framework : {"ddp", "fsdp2", "deepspeed", "megatron-core", "nanotron"}) {
    for (const Dense& m : kGrid) {
      JobSpec job = JobOf(m, framework);
      job.training.recompute.mode = "full";
      EXPECT_EQ(KeptByLayer(ProgramOf(job)), 2 * m.h * m.tokens()) << framework << " h " << m.h;
    }
  }
}

// Parameters of the whole, and of one rank of t.
TEST(OracleTest, CountsParameters) {
  for (const Dense& m : kGrid) {
    const MemoryEstimate estimate = Estimate(JobOf(m, "megatron-core"));
    EXPECT_EQ(estimate.parameter_count, m.Parameters());
    EXPECT_EQ(estimate.ranks[0].parameter_count, m.Parameters());
    const int64_t norms = (2 * m.layers + 1) * m.h;
    const MemoryEstimate split = Estimate(JobOf(m, "megatron-core", 4));
    EXPECT_EQ(split.ranks[0].parameter_count, (m.Parameters() - norms) / 4 + norms);
  }
}

// Bytes of the states that live through a steady step's `phase`.
int64_t StatesAt(const JobSpec& job, Phase phase) {
  const Program program = ProgramOf(job);
  return RoleBytesAt(program, Role::kWeight, phase) + RoleBytesAt(program, Role::kGradient, phase) +
         RoleBytesAt(program, Role::kMasterWeight, phase) +
         RoleBytesAt(program, Role::kOptimizerState, phase) +
         RoleBytesAt(program, Role::kCommunication, phase);
}

// Source: megatron/training/theoretical_memory_usage.py: 18 bytes a parameter,
// or 6 + 12/d with the distributed optimizer.
TEST(OracleTest, MegatronStates) {
  for (const Dense& m : kGrid) {
    for (const int64_t d : {1, 2, 8, 64}) {
      JobSpec job = JobOf(m, "megatron-core");
      job.parallelism.data_parallel_size = d;
      EXPECT_EQ(StatesAt(job, Phase::kForward), 18 * m.Parameters());
      job.parallelism.zero_stage = 1;
      EXPECT_EQ(StatesAt(job, Phase::kForward),
                6 * m.Parameters() + 12 * CeilDivide(m.Parameters(), d));
    }
  }
}

// Source: data notes A 1.1: 10 + 14/d in the step of ZeRO-1; 20, or alone 18,
// without.
TEST(OracleTest, NanotronStates) {
  for (const Dense& m : kGrid) {
    if (!m.gated) continue;
    for (const int64_t d : {1, 2, 8, 64}) {
      JobSpec job = JobOf(m, "nanotron");
      job.parallelism.data_parallel_size = d;
      job.parallelism.zero_stage = 0;
      EXPECT_EQ(StatesAt(job, Phase::kOptimizer), (d > 1 ? 20 : 18) * m.Parameters());
      job.parallelism.zero_stage = 1;
      EXPECT_EQ(StatesAt(job, Phase::kOptimizer),
                10 * m.Parameters() + 14 * CeilDivide(m.Parameters(), d));
    }
  }
}

// Source: data notes A 1.2: Megatron-LM of 2021 holds 22 bytes a parameter from
// the second step on, when backward has made new gradients beside the stale ones.
TEST(OracleTest, MegatronLmStates) {
  for (const Dense& m : kGrid) {
    JobSpec job = With(JobOf(m, "megatron-lm"), "megatron-lm", "fp16-mixed");
    job.training.attention = "eager";
    EXPECT_EQ(StatesAt(job, Phase::kForward), 20 * m.Parameters());
    EXPECT_EQ(StatesAt(job, Phase::kGradientReduction), 22 * m.Parameters());
    const auto flat = [&job](Phase phase) {
      return RoleBytesAt(ProgramOf(job), Role::kCommunication, phase);
    };
    EXPECT_EQ(flat(Phase::kBackward), 0);
    EXPECT_EQ(flat(Phase::kGradientReduction), 2 * m.Parameters()) << "in the stale ones' stead";
    EXPECT_EQ(flat(Phase::kOptimizer), 0);
  }
}

// PyTorch's DDP in fp32: weights, gradients, Adam's two, and buckets as large
// as the gradients where there is somebody to reduce with.
TEST(OracleTest, DdpStates) {
  for (const Dense& m : kGrid) {
    for (const int64_t d : {1, 4}) {
      JobSpec job = With(JobOf(m, "ddp"), "ddp", "fp32");
      job.parallelism.data_parallel_size = d;
      EXPECT_EQ(StatesAt(job, Phase::kGradientReduction), (d > 1 ? 20 : 16) * m.Parameters());
      job.runtime.gradient_as_bucket_view = true;
      EXPECT_EQ(StatesAt(job, Phase::kGradientReduction), 16 * m.Parameters());
    }
  }
}

// Logits and loss at the peak of forward, per token: Megatron 16-bit logits and
// their fp32 copy, 6 V/t; PyTorch's cross entropy beside held logits 10 V. Before
// them a norm, of either with 4 bytes a token.
// Source: memory-internals 7.6 and 8.5.
TEST(OracleTest, TheHeadAtItsPeak) {
  for (const Dense& m : kGrid) {
    const auto forward = [](const JobSpec& job) {
      const Program program = ProgramOf(job);
      return plimsoll::Run(FindBlock(program, "head"), WeightGradient::kFused, DType::kBf16)
          .forward.total;
    };
    EXPECT_EQ(forward(JobOf(m, "megatron-core")), m.tokens() * (6 * m.vocab + 4 * m.h + 4));
    EXPECT_EQ(forward(JobOf(m, "ddp")), m.tokens() * (10 * m.vocab + 8 * m.h + 4));
  }
}

// After forward a rank holds its states and what layers and the token table
// keep (8 bytes an index), and nothing else.
TEST(OracleTest, WhatForwardLeaves) {
  for (const Dense& m : kGrid) {
    JobSpec job = JobOf(m, "megatron-core");
    const MemoryEstimate estimate = EstimateInFull(job);
    EXPECT_EQ(estimate.trace.back().state_bytes, 18 * m.Parameters());
    EXPECT_EQ(estimate.trace.back().activation_bytes,
              m.layers * MegatronKept(m, 1, false) + 8 * m.tokens());
  }
}

}  // namespace
}  // namespace plimsoll
