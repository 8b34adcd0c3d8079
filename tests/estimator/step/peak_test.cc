// Layers, stages and micro-batches are arithmetic over blocks that ran once.
#include "estimator/step/peak.h"

#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

const Moment& At(const RankMemory& rank, Phase phase, bool first_step) {
  return rank.moments[(first_step ? 0 : kPhaseCount) + static_cast<size_t>(phase)];
}

// One more layer adds, after forward, what one layer keeps and its states.
TEST(PeakTest, EachLayerAddsTheSame) {
  JobSpec job = With(SmallJob(), "megatron-core");
  std::vector<int64_t> after;
  for (const int64_t layers : {2, 3, 4, 10}) {
    Shape(job).layer_count = layers;
    after.push_back(At(Estimate(job).ranks[0], Phase::kForward, false).current_allocated_bytes);
  }
  const int64_t layer = after[1] - after[0];
  const Program program = ProgramOf(job);
  int64_t parameters = 0;
  for (const Parameter& parameter : FindBlock(program, "layer").parameters) {
    parameters += parameter.Elements();
  }
  EXPECT_GE(layer, KeptByLayer(program) + 18 * parameters);
  EXPECT_LE(layer, KeptByLayer(program) + 18 * parameters + (64 << 10)) << "and small change";
  EXPECT_EQ(after[2] - after[1], layer);
  EXPECT_EQ(after[3] - after[2], 6 * layer);
}

// transformers' models name what the embedding gave until the head runs: B S H of two bytes, but
// for a first layer that keeps it as its input anyway.
// Source: transformers models/llama/modeling_llama.py, LlamaModel.forward (inputs_embeds).
TEST(PeakTest, TheEmbeddingsOutputIsHeldThroughForward) {
  constexpr struct {
    const char* framework;
    const char* norm;
    const char* recompute;
    int64_t bytes;
  } kRows[] = {
      {"ddp", "rms-norm", "none", 2 * 32 * 64 * 2},
      {"fsdp2", "rms-norm", "none", 2 * 32 * 64 * 2},
      {"ddp", "rms-norm", "full", 0},
      {"ddp", "layer-norm", "none", 0},
      {"megatron-core", "rms-norm", "none", 0},
  };
  for (const auto& row : kRows) {
    JobSpec job = With(SmallJob(), row.framework);
    Shape(job).norm = row.norm;
    job.training.recompute.mode = row.recompute;
    Program program = ProgramOf(job);
    const auto forward = [&program] {
      const StagePeak stage = FindPeaks(program, RunBlocks(program)).front();
      return stage.steps.back()[static_cast<size_t>(Phase::kForward)].peak;
    };
    const int64_t held = forward();
    program.blocks.front().names_output = false;
    EXPECT_EQ(held - forward(), row.bytes)
        << row.framework << " " << row.norm << " " << row.recompute;
  }
}

// What is in flight is kept as often.
TEST(PeakTest, EachMicroBatchInFlightAddsTheSame) {
  JobSpec job = With(SmallJob(), "fsdp2");
  job.parallelism.pipeline_parallel_size = 2;
  job.parallelism.pipeline_schedule = "gpipe";
  std::vector<int64_t> after;
  for (const int64_t count : {1, 2, 3, 8}) {
    job.training.global_batch_size = 2 * count;
    after.push_back(At(Estimate(job).ranks[0], Phase::kForward, false).peak_allocated_bytes);
  }
  const int64_t each = after[1] - after[0];
  EXPECT_GE(each, 2 * KeptByLayer(ProgramOf(job)));
  EXPECT_EQ(after[2] - after[1], each);
  EXPECT_EQ(after[3] - after[2], 5 * each);
}

// Optimizer states come with the first step: before it they are not there.
TEST(PeakTest, TheFirstStepBeginsWithoutStates) {
  const MemoryEstimate estimate = Estimate(With(SmallJob(), "ddp", "fp32"));
  const RankMemory& rank = estimate.ranks[0];
  const int64_t states = 8 * estimate.parameter_count;
  EXPECT_EQ(At(rank, Phase::kForward, false).current_allocated_bytes -
                At(rank, Phase::kForward, true).current_allocated_bytes,
            states);
  EXPECT_EQ(At(rank, Phase::kOptimizer, false).peak_allocated_bytes,
            At(rank, Phase::kOptimizer, true).peak_allocated_bytes);
}

// A phase's peak is at least what it leaves.
TEST(PeakTest, APeakCoversWhatIsLeft) {
  for (const char* framework : {"ddp", "fsdp2", "deepspeed", "megatron-core", "megatron-lm",
                                "megatron-deepspeed", "nanotron"}) {
    const MemoryEstimate estimate = Estimate(With(SmallJob(), framework));
    for (const Moment& moment : estimate.ranks[0].moments) {
      EXPECT_GE(moment.peak_allocated_bytes, moment.current_allocated_bytes)
          << framework << " " << Name(moment.phase);
    }
  }
}

// What the allocator holds never goes down within a step.
TEST(PeakTest, ReservedNeverShrinks) {
  for (const char* framework : {"ddp", "fsdp2", "deepspeed", "megatron-core", "nanotron"}) {
    const MemoryEstimate estimate = Estimate(With(SmallJob(), framework));
    int64_t before = 0;
    for (const Moment& moment : estimate.ranks[0].moments) {
      EXPECT_GE(moment.peak_reserved_bytes, before) << framework << " " << Name(moment.phase);
      before = moment.peak_reserved_bytes;
    }
  }
}

TEST(PeakTest, CountsLayersOfEachKind) {
  Block every;
  Block first;
  first.layers = {.period = 3};
  Block others;
  others.layers = Others(first.layers);
  for (int64_t layers = 0; layers < 20; ++layers) {
    const Stage stage = WholeStage(layers);
    EXPECT_EQ(CountOnStage(every, stage), layers);
    EXPECT_EQ(CountOnStage(first, stage), CeilDivide(layers, 3));
    EXPECT_EQ(CountOnStage(first, stage) + CountOnStage(others, stage), layers);
  }
}

TEST(PeakTest, EndsAreOnTheEndStages) {
  Block embedding;
  embedding.kind = BlockKind::kEmbedding;
  Block head;
  head.kind = BlockKind::kHead;
  Stage middle;
  middle.layer_count = 4;
  EXPECT_EQ(CountOnStage(embedding, WholeStage(4)), 1);
  EXPECT_EQ(CountOnStage(head, WholeStage(4)), 1);
  EXPECT_EQ(CountOnStage(embedding, middle), 0);
  EXPECT_EQ(CountOnStage(head, middle), 0);
}

// Each basis of a state's size, by hand.
TEST(PeakTest, StatesFollowTheirBasis) {
  ParameterSums sums;
  sums.parameters = 1000;
  sums.cached = 600;
  sums.picked = 700;
  sums.rows_and_columns = 50;
  sums.largest = 300;
  sums.layers = 4;
  const auto bytes = [&sums](Basis basis, int64_t shards) {
    State state;
    state.basis = basis;
    state.dtype = DType::kFp32;
    state.fixed_bytes = 77;
    state.shards = shards;
    return StateBytes(state, sums);
  };
  EXPECT_EQ(bytes(Basis::kParameters, 1), 4000);
  EXPECT_EQ(bytes(Basis::kParameters, 3), 4 * 334) << "padded";
  EXPECT_EQ(bytes(Basis::kCached, 1), 2400);
  EXPECT_EQ(bytes(Basis::kPicked, 1), 2800);
  EXPECT_EQ(bytes(Basis::kOthers, 1), 1200);
  EXPECT_EQ(bytes(Basis::kRowsAndColumns, 1), 200);
  EXPECT_EQ(bytes(Basis::kLargest, 2), 600);
  EXPECT_EQ(bytes(Basis::kBytes, 8), 77) << "fixed, whoever shares";
  EXPECT_EQ(bytes(Basis::kBytesPerLayer, 1), 4 * 77);
}

}  // namespace
}  // namespace plimsoll
