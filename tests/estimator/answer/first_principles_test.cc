// Each row of the project's first principles (where the memory of training
// goes) whose strategy is modelled, in the order of that page. The row is cited
// above its test; Psi are parameters, b, s, d, L as there.
//
// Not modelled yet, so not here: ring attention (context parallelism) and LoRA.
// The API has no field for either, and a request that names one is refused by
// the server as an unknown field.
#include "absl/strings/str_cat.h"
#include "estimator/base/units.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

constexpr double kGb = 1e9;

int64_t Psi(const JobSpec& job) { return Estimate(job).parameter_count; }

struct PerParameter {
  int64_t weights, gradients, masters, states;
};

// Bytes of each kind of model state when gradients are whole, on one GPU.
PerParameter ModelStates(const JobSpec& job) {
  const Program program = ProgramOf(job);
  const Phase phase = Phase::kGradientReduction;
  return {RoleBytesAt(program, Role::kWeight, phase), RoleBytesAt(program, Role::kGradient, phase),
          RoleBytesAt(program, Role::kMasterWeight, phase),
          RoleBytesAt(program, Role::kOptimizerState, phase)};
}

void ExpectStates(const JobSpec& job, const PerParameter& expected) {
  const int64_t psi = Psi(job);
  const PerParameter states = ModelStates(job);
  EXPECT_EQ(states.weights, expected.weights * psi);
  EXPECT_EQ(states.gradients, expected.gradients * psi);
  EXPECT_EQ(states.masters, expected.masters * psi);
  EXPECT_EQ(states.states, expected.states * psi);
}

// "parameters, gradients, optimizer states, all fp32: 4 + 4 + 8 = 16 Psi bytes"
TEST(FirstPrinciplesTest, Fp32AdamIsSixteenBytes) {
  ExpectStates(With(SmallJob(), "ddp", "fp32"), {4, 4, 0, 8});
}

// "mixed precision, Adam: 2 Psi weights + 2 Psi gradients + 12 Psi"
TEST(FirstPrinciplesTest, MixedPrecisionAdamIsSixteenBytes) {
  ExpectStates(With(SmallJob(), "ddp", "fp16-mixed"), {2, 2, 4, 8});
  ExpectStates(With(SmallJob(), "ddp", "bf16-mixed"), {2, 2, 4, 8});
}

// "GPT-2 XL (1.5 B): 3 GB of fp16 weights; 24 GB of model states". The round
// figures are of 1.5 B; the model has 1,557,611,200.
TEST(FirstPrinciplesTest, Gpt2XlNeeds24GbOfStates) {
  const JobSpec job = Gpt2Xl();
  const int64_t psi = Psi(job);
  EXPECT_EQ(psi, 1557611200);
  const PerParameter states = ModelStates(job);
  const double round = 1.5e9 / static_cast<double>(psi);
  EXPECT_DOUBLE_EQ(static_cast<double>(states.weights) * round, 3 * kGb);
  EXPECT_DOUBLE_EQ(
      static_cast<double>(states.weights + states.gradients + states.masters + states.states) *
          round,
      24 * kGb);
}

// "its activations at s = 1,000, b = 32: about 12 d b s L, 30 billion values, 60
// GB at 16 bits (counting only terms linear in s)". The 12 d are q, k, v and the
// context (4), and both sides of the activation (4 + 4).
TEST(FirstPrinciplesTest, Gpt2XlKeepsTwelveDPerTokenAndLayer) {
  const Program program = ProgramOf(Gpt2Xl());
  const Block& layer = FindBlock(program, "layer");
  const int64_t values = int64_t{12} * 1600 * 32 * 1000;
  const int64_t same_terms =
      KeptNamed(layer, {"attention.query.activation", "attention.key.activation",
                        "attention.value.activation", "attention.context", "mlp.up.activation",
                        "mlp.activated"});
  EXPECT_EQ(same_terms, 2 * values);
  EXPECT_NEAR(static_cast<double>(48 * values), 30 * kGb, 0.6 * kGb) << "values";
  EXPECT_NEAR(static_cast<double>(48 * same_terms), 60 * kGb, 1.2 * kGb);

  // Plimsoll's full figure is larger by the norms' inputs and outputs (4 d), two
  // dropout masks (a byte each), and small fp32 statistics and log-sum-exps.
  const int64_t tokens = 32 * 1000;
  const int64_t difference = KeptByLayer(program) - same_terms;
  const int64_t norms = 2 * 4 * 1600 * tokens;
  const int64_t masks = 2 * 1600 * tokens;
  const int64_t statistics = 2 * 8 * tokens + 4 * 25 * tokens;
  EXPECT_EQ(difference, norms + masks + statistics);
  RecordProperty("full_gb", absl::StrCat(48 * KeptByLayer(program) / 1000000000));
  EXPECT_NEAR(static_cast<double>(48 * KeptByLayer(program)), 83.7 * kGb, 0.1 * kGb);
}

// "the same with activation checkpointing: about 8 to 9 GB; total with states
// about 32 to 35 GB": every layer's input, one layer at work, and that layer's
// attention probabilities, b n s^2 in 16 bits, which kernels of that time kept.
TEST(FirstPrinciplesTest, CheckpointingBringsGpt2XlToEightGb) {
  JobSpec job = Gpt2Xl();
  job.training.recompute.mode = "full";
  const Program program = ProgramOf(job);
  const Block& layer = FindBlock(program, "layer");
  const BlockRun run = plimsoll::Run(layer, WeightGradient::kFused, DType::kFp16);
  EXPECT_EQ(run.kept.total, 2 * 1600 * 32 * 1000) << "each input";
  const auto without = static_cast<double>(47 * run.kept.total + run.backward.whole.total);
  EXPECT_NEAR(without, 7.2 * kGb, 0.1 * kGb) << "Plimsoll's figure: this job's kernel keeps none";
  const double probabilities = 2.0 * 32 * 25 * 1000 * 1000;
  const double activations = without + probabilities;
  EXPECT_GT(activations, 8 * kGb);
  EXPECT_LT(activations, 9 * kGb);
  EXPECT_GT(activations + 24 * kGb, 32 * kGb);
  EXPECT_LT(activations + 24 * kGb, 35 * kGb);
}

// "temporary buffers: gradients flattened in fp32 for one all-reduce: 6 GB for
// 1.5 B parameters"
TEST(FirstPrinciplesTest, FlattenedGradientsAreSixGb) {
  JobSpec job = With(Gpt2Xl(), "ddp", "fp32");
  job.parallelism.data_parallel_size = 2;
  const Program program = ProgramOf(job);
  const State* buckets = FindState(program, "gradients.buckets");
  ASSERT_NE(buckets, nullptr);
  const int64_t bytes = StateBytes(*buckets, SumParameters(program, program.stages.front()));
  EXPECT_EQ(bytes, 4 * Psi(job));
  EXPECT_NEAR(static_cast<double>(bytes), 6 * kGb, 0.3 * kGb);
}

// "fragmentation: tensors of different lifetimes split the free memory": what
// the allocator holds is never less than what tensors hold.
TEST(FirstPrinciplesTest, ReservedIsAllocatedAndMore) {
  for (const char* framework : {"ddp", "fsdp2", "megatron-core", "nanotron"}) {
    const MemoryEstimate estimate = Estimate(With(SmallJob(), framework));
    EXPECT_GE(estimate.ranks[0].reserved.expected_bytes,
              estimate.ranks[0].allocated.expected_bytes);
    EXPECT_GE(estimate.ranks[0].breakdown[static_cast<size_t>(Role::kFragmentation)], 0);
  }
}

// "other optimizers: plain SGD no state, momentum one, RMSProp one, Adam two per
// parameter"
TEST(FirstPrinciplesTest, OptimizersKeepTheirStates) {
  const std::pair<const char*, int64_t> rows[] = {
      {"sgd", 0},  {"sgd-momentum", 1}, {"rmsprop", 1}, {"adagrad", 1},
      {"lion", 1}, {"adam", 2},         {"adamw", 2},   {"lamb", 2}};
  for (const auto& [name, states] : rows) {
    JobSpec job = With(SmallJob(), "ddp", "fp32");
    job.training.optimizer.name = name;
    SCOPED_TRACE(name);
    ExpectStates(job, {4, 4, 0, 4 * states});
  }
}

// "fp16-only training diverges on large models: warn"
TEST(FirstPrinciplesTest, PureFp16IsWarnedOf) {
  const MemoryEstimate estimate = Estimate(With(SmallJob(), "ddp", "fp16-pure"));
  ASSERT_EQ(estimate.warnings.size(), 1u);
  EXPECT_EQ(estimate.warnings[0].code, "fp16-diverges");
  EXPECT_TRUE(Estimate(With(SmallJob(), "ddp", "bf16-pure")).warnings.empty());
  ExpectStates(With(SmallJob(), "ddp", "fp16-pure"), {2, 2, 0, 4});
  ExpectStates(With(SmallJob(), "ddp", "bf16-pure"), {2, 2, 0, 4});
}

// "BF16 optimizer (bf16 weights, fp32 accumulation and master, as BLOOM was
// trained)": 16-bit gradients of backward and their fp32 sum.
TEST(FirstPrinciplesTest, TheBf16OptimizerAccumulatesInFp32) {
  JobSpec job = With(SmallJob(), "deepspeed", "bf16-optimizer");
  job.parallelism.zero_stage = 1;
  ExpectStates(job, {2, 2 + 4, 4, 8});
}

// "FP8: weights and gradients in fp8, optimizer states in bf16 or wider"
TEST(FirstPrinciplesTest, Fp8KeepsWiderStates) {
  ExpectStates(With(SmallJob(), "ddp", "fp8-lm"), {1, 1, 4, 4});
}

// "bf16 mixed data flow: bf16 outputs; weight gradients accumulate in fp32; fp32
// master"
TEST(FirstPrinciplesTest, Bf16FlowsBetweenFp32Sums) {
  const JobSpec job = With(SmallJob(), "megatron-core", "bf16-mixed");
  ExpectStates(job, {2, 4, 4, 8});
  const Program program = ProgramOf(job);
  const Block& layer = FindBlock(program, "layer");
  for (const char* name : {"layer.input", "attention.context", "mlp.product.activation"}) {
    EXPECT_EQ(FindTensor(layer, name).dtype, DType::kBf16) << name;
  }
}

JobSpec Block34(int64_t d, int64_t s, int64_t b, const char* attention) {
  JobSpec job = With(ClassicJob(), "megatron-core");
  Shape(job).hidden_size = d;
  Shape(job).head_count = d / 64;
  job.training.sequence_length = s;
  job.training.micro_batch_size = b;
  job.training.attention = attention;
  return job;
}

// "fp32, per block: m_param = 4N, m_optim = 8N, m_grad = 4N, N about 12 d^2, so
// m_other about 192 d^2"
TEST(FirstPrinciplesTest, ABlockHasTwelveDSquared) {
  const Program program = ProgramOf(Block34(4096, 128, 1, "flash"));
  int64_t n = 0;
  for (const Parameter& parameter : FindBlock(program, "layer").parameters) {
    n += parameter.Elements();
  }
  const int64_t d = 4096;
  EXPECT_EQ(n, 12 * d * d + 13 * d) << "biases and norms are the 13 d";
  EXPECT_NEAR(static_cast<double>(16 * n) / static_cast<double>(d * d), 192, 0.1);
}

// "m_act = alpha b d s + beta b n s^2; alpha = 34 for the classic block in 16
// bit; with flash attention beta = 0". beta = 5: softmax and its dropped copy in
// 16 bits, and a mask. Norm statistics (16 bytes a token) come on top.
TEST(FirstPrinciplesTest, AlphaIs34AndBetaIsFive) {
  for (const int64_t d : {256, 1024, 4096}) {
    for (const int64_t s : {128, 1024}) {
      for (const int64_t b : {1, 4}) {
        const int64_t linear = 34 * b * d * s + 16 * b * s;
        EXPECT_EQ(KeptByLayer(ProgramOf(Block34(d, s, b, "eager"))),
                  linear + 5 * b * (d / 64) * s * s);
        const int64_t log_sum_exp = 4 * b * (d / 64) * s;
        EXPECT_EQ(KeptByLayer(ProgramOf(Block34(d, s, b, "memory-efficient"))),
                  linear + log_sum_exp);
      }
    }
  }
}

// "ratio m_act/m_other about 0.2 b s/d: 0.2 b for Llama-2 7B at 4k; 0.02 b for
// Megatron-Turing NLG 530B; 50 b for a 7B model on sequences of a million"
TEST(FirstPrinciplesTest, TheRatioGrowsWithTheSequence) {
  struct Row {
    int64_t d, s;
    double ratio;
  };
  for (const Row& row : {Row{4096, 4096, 0.2}, Row{20480, 2048, 0.02}, Row{4096, 1000000, 50}}) {
    for (const int64_t b : {1, 2}) {
      const Program program = ProgramOf(Block34(row.d, row.s, b, "flash"));
      int64_t n = 0;
      for (const Parameter& parameter : FindBlock(program, "layer").parameters) {
        n += parameter.Elements();
      }
      const double ratio = static_cast<double>(KeptByLayer(program)) / static_cast<double>(16 * n);
      EXPECT_NEAR(ratio / (row.ratio * static_cast<double>(b)), 1, 0.15) << row.d << " " << row.s;
    }
  }
}

// "The language-model head makes activations as wide as the vocabulary: a spike
// at the end of the forward pass, large in small models"
TEST(FirstPrinciplesTest, TheHeadIsASpike) {
  JobSpec job = SmallJob();
  Shape(job).vocab_size = 128256;
  job.training.sequence_length = 1024;
  const MemoryEstimate estimate = Estimate(job);
  const auto at = [&estimate](Phase phase) {
    return estimate.ranks[0].moments[kPhaseCount + static_cast<size_t>(phase)];
  };
  const int64_t logits = int64_t{2} * 1024 * 128256;
  EXPECT_GT(at(Phase::kLoss).peak_allocated_bytes,
            at(Phase::kForward).peak_allocated_bytes + 10 * logits);
  EXPECT_EQ(estimate.ranks[0].peak_phase, Phase::kLoss);
}

// "Not every intermediate is saved for backward: count what autograd keeps, not
// what forward makes"
TEST(FirstPrinciplesTest, ForwardMakesMoreThanBackwardNeeds) {
  for (const char* framework : {"ddp", "megatron-core", "nanotron"}) {
    const Program program = ProgramOf(With(SmallJob(), framework));
    const Block& layer = FindBlock(program, "layer");
    int64_t made = 0;
    for (const Op& op : layer.ops) {
      for (TensorId id : op.outputs) {
        if (layer.tensors[id].storage == id) made += layer.tensors[id].Bytes();
      }
    }
    EXPECT_LT(KeptByLayer(program), made) << framework;
  }
}

// "DeepSpeed ZeRO 1, 2, 3": 4 + 12/N (until gradients are reduced), 2 + 14/N and 16/N bytes a
// parameter.
TEST(FirstPrinciplesTest, ZeroShardsStatesThenGradientsThenWeights) {
  JobSpec job = With(SmallJob(), "deepspeed", "fp16-mixed");
  const int64_t psi = Psi(job);
  constexpr int64_t kRanks = 64;
  ASSERT_EQ(psi % kRanks, 0);
  job.parallelism.data_parallel_size = kRanks;
  const int64_t share = psi / kRanks;
  const PerParameter stages[] = {{2 * psi, 2 * psi, 4 * psi, 8 * psi},
                                 {2 * psi, 2 * psi, 4 * share, 8 * share},
                                 {2 * psi, 2 * share, 4 * share, 8 * share},
                                 {2 * share, 2 * share, 4 * share, 8 * share}};
  for (int64_t stage = 0; stage <= 3; ++stage) {
    job.parallelism.zero_stage = stage;
    const PerParameter states = ModelStates(job);
    EXPECT_EQ(states.weights, stages[stage].weights) << stage;
    // ZeRO 1 and 2 keep what the share has a part of, whole, once gradients are reduced.
    constexpr int64_t kTable = 256 * 64;
    const bool parts = stage == 1 || stage == 2;
    EXPECT_GE(states.gradients, parts ? 2 * share : stages[stage].gradients) << stage;
    EXPECT_LE(states.gradients, parts ? 2 * kTable : stages[stage].gradients) << stage;
    EXPECT_EQ(states.masters, stages[stage].masters) << stage;
    EXPECT_EQ(states.states, stages[stage].states) << stage;
  }
}

// "fully sharded data parallel": the shard is the fp32 master itself, its
// gradient fp32 too: 4 + 4 + 8 bytes over N. Sizes here divide by 16 evenly.
TEST(FirstPrinciplesTest, FsdpShardsEverything) {
  JobSpec job = With(SmallJob(), "fsdp2");
  job.parallelism.data_parallel_size = 16;
  const PerParameter states = ModelStates(job);
  EXPECT_EQ(states.weights + states.masters, 4 * Psi(job) / 16);
  EXPECT_EQ(states.gradients, 4 * Psi(job) / 16);
  EXPECT_EQ(states.states, 8 * Psi(job) / 16);
}

// "tensor parallelism": weights of a layer over t ranks, but for its norms.
TEST(FirstPrinciplesTest, TensorParallelismSplitsMatrices) {
  JobSpec job = Llama8B();
  const auto parameters = [&job] { return Estimate(job).ranks[0].parameter_count; };
  const int64_t whole = parameters();
  job.parallelism.tensor_parallel_size = 8;
  const int64_t norms = (2 * 32 + 1) * 4096;
  const int64_t padding = 128 * 8 * CeilDivide(128256, 128 * 8) - 128256;
  EXPECT_EQ(parameters(), (whole - norms + 2 * padding * 4096) / 8 + norms);
}

// "pipeline parallelism": layers over p stages; 1F1B keeps p - stage
// micro-batches of them, so the first stage still keeps a whole model's layers.
TEST(FirstPrinciplesTest, PipelinesSplitLayersNotActivations) {
  JobSpec job = Llama8B();
  job.parallelism.pipeline_parallel_size = 4;
  job.training.global_batch_size = 2 * 16;
  const MemoryEstimate estimate = Estimate(job);
  ASSERT_EQ(estimate.ranks.size(), 4u);
  for (int64_t stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(estimate.ranks[stage].layer_count, 8);
    EXPECT_EQ(estimate.ranks[stage].in_flight_count, 4 - stage);
  }
  EXPECT_EQ(estimate.ranks[0].layer_count * estimate.ranks[0].in_flight_count, 32);
}

}  // namespace
}  // namespace plimsoll
