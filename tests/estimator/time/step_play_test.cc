// Steps of costs made by hand, against pipelines and rings that are played out.
#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "estimator/time/step_time.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

double Term(const StepTime& time, StepTerm term) { return time.terms[static_cast<size_t>(term)]; }

// Layers of 1 s forward and 2 s backward, an embedding of 0.5 s, a head of 3 s in all; nothing
// is sent, nothing stepped.
ModelCost HandCost() {
  ModelCost cost;
  cost.rates.peak_flops = cost.rates.memory_bytes = 1;
  cost.rates.link_bytes = cost.rates.network_bytes = 1;
  const auto add = [&cost](BlockKind kind, double forward, double backward) {
    BlockCost& block = cost.blocks.emplace_back();
    block.place.kind = kind;
    block.time.forward.matrix = forward;
    block.time.backward.matrix = backward;
  };
  add(BlockKind::kEmbedding, 0.25, 0.25);
  add(BlockKind::kLayer, 1, 2);
  add(BlockKind::kHead, 1, 2);
  return cost;
}

Job JobOf(std::vector<int64_t> layout, int64_t micro_batches) {
  Job job;
  job.model = &SmallCatalog().models.at("llama-3.1-8b");
  job.profile = FindProfile(Framework::kMegatronCore, kAnyVersion);
  job.pipeline_parallel_size = job.gpu_count = static_cast<int64_t>(layout.size());
  job.pipeline_layout = std::move(layout);
  job.micro_batch_count = job.global_batch_size = micro_batches;
  job.sequence_length = 1;
  return job;
}

double SecondsOf(const Job& job, const ModelCost& cost) {
  return PredictStep(job, Speed{}, cost).seconds;
}

// Seconds of one micro-batch on each stage.
std::vector<double> StagesOf(const std::vector<int64_t>& layout) {
  std::vector<double> stages;
  for (const int64_t layers : layout) stages.push_back(3.0 * static_cast<double>(layers));
  stages.front() += 0.5;
  stages.back() += 3;
  return stages;
}

TEST(StepPlayTest, OneStageRunsItsMicroBatchesOneAfterTheOther) {
  for (const int64_t micro_batches : {1, 2, 7}) {
    EXPECT_DOUBLE_EQ(SecondsOf(JobOf({5}, micro_batches), HandCost()),
                     static_cast<double>(micro_batches) * (5 * 3 + 0.5 + 3));
  }
}

// Units of work that pass stations one after the other, each station one unit at a time: a
// micro-batch and its way back are one unit of each stage.
double Conveyor(const std::vector<double>& stations, int64_t units) {
  std::vector<double> free_at(stations.size(), 0);
  double done = 0;
  for (int64_t unit = 0; unit < units; ++unit) {
    done = 0;
    for (size_t i = 0; i < stations.size(); ++i) {
      done = std::max(done, free_at[i]) + stations[i];
      free_at[i] = done;
    }
  }
  return done;
}

TEST(StepPlayTest, APipelineIsAConveyor) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 300; ++i) {
    std::vector<int64_t> layout(1 + random() % 9);
    for (int64_t& layers : layout) layers = 1 + static_cast<int64_t>(random() % 6);
    const auto micro_batches = 1 + static_cast<int64_t>(random() % 20);
    EXPECT_NEAR(SecondsOf(JobOf(layout, micro_batches), HandCost()),
                Conveyor(StagesOf(layout), micro_batches), 1e-9)
        << ::testing::PrintToString(layout) << " " << micro_batches;
  }
}

// The bubble is what the slowest stage does not work.
TEST(StepPlayTest, TheBubbleIsTheOthersWork) {
  const std::vector<int64_t> layout = {4, 6, 5};
  const StepTime time = PredictStep(JobOf(layout, 8), Speed{}, HandCost());
  EXPECT_DOUBLE_EQ(Term(time, StepTerm::kMatrixProducts), 8 * 18.0);
  EXPECT_DOUBLE_EQ(Term(time, StepTerm::kPipelineBubble), 12.5 + 18) << "of the first and last";
}

// Messages between stages: two for each micro-batch, and twice as many as there are borders.
TEST(StepPlayTest, EachBorderIsCrossedTwiceByEachMicroBatch) {
  ModelCost cost = HandCost();
  cost.sent_bytes = 5;
  cost.rates.link_bytes = 2;
  Job job = JobOf({2, 2, 2, 2}, 6);
  const StepTime time = PredictStep(job, Speed{}, cost);
  EXPECT_DOUBLE_EQ(Term(time, StepTerm::kPipelineCommunication), 2 * (6 + 4 - 1) * 2.5);
  job.pipeline_schedule = PipelineSchedule::kInterleaved1F1B;
  job.virtual_pipeline_size = 2;
  job.pipeline_layout = {1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_DOUBLE_EQ(Term(PredictStep(job, Speed{}, cost), StepTerm::kPipelineCommunication),
                   2 * 3 * 2.5)
      << "all but the first and last hide";
}

// A ring, played: each of d ranks sends one of d parts to the next, d - 1 times; an all-reduce
// goes round twice.
double Ring(int64_t ranks, double bytes, double bandwidth, bool twice) {
  double seconds = 0;
  for (int64_t step = 1; step < ranks; ++step) {
    seconds += bytes / static_cast<double>(ranks) / bandwidth;
  }
  return twice ? 2 * seconds : seconds;
}

// A job of so many replicas, each with all parameters, that reduces once a step.
struct Replicas {
  int64_t count;
  int64_t zero_stage;
};

StepTime TimeOf(const Replicas& replicas, double overlap) {
  Job job = JobOf({4}, 1);
  job.data_parallel_size = job.gpu_count = replicas.count;
  job.gpus_per_node = 64;
  job.zero_stage = replicas.zero_stage;
  job.shard_group_size = replicas.zero_stage > 0 ? replicas.count : 1;
  ModelCost cost = HandCost();
  cost.blocks[1].parameters = cost.blocks[1].parameters_alone = 1000;
  cost.gradient_bytes = 4;
  cost.weight_bytes = 2;
  cost.rates.link_bytes = 100;
  Speed speed;
  speed.framework.data_overlap = overlap;
  return PredictStep(job, speed, cost);
}

TEST(StepPlayTest, ReplicasReduceInARing) {
  for (const int64_t ranks : {2, 3, 8, 64}) {
    EXPECT_NEAR(Term(TimeOf({ranks, 0}, 0), StepTerm::kDataCommunication),
                Ring(ranks, 4 * 4000, 100, true), 1e-9);
    EXPECT_NEAR(Term(TimeOf({ranks, 1}, 0), StepTerm::kDataCommunication),
                Ring(ranks, 4 * 4000, 100, false) + Ring(ranks, 2 * 4000, 100, false), 1e-9)
        << "gradients are scattered, weights gathered";
  }
  EXPECT_EQ(Term(TimeOf({1, 0}, 0), StepTerm::kDataCommunication), 0);
}

// Backward is 2 x 4 + 0.25 + 2 s, of which a share hides what is reduced; what is gathered
// behind the step hides behind nothing.
TEST(StepPlayTest, BackwardHidesWhatItCan) {
  const double window = 2 * 4 + 0.25 + 2;
  for (const double overlap : {0.0, 0.25, 0.5, 1.0}) {
    const double reduced = Ring(8, 4 * 4000, 100, true);
    EXPECT_NEAR(Term(TimeOf({8, 0}, overlap), StepTerm::kDataCommunication),
                std::max(0.0, reduced - overlap * window), 1e-9);
    const double scattered = Ring(8, 4 * 4000, 100, false);
    EXPECT_NEAR(Term(TimeOf({8, 1}, overlap), StepTerm::kDataCommunication),
                std::max(0.0, scattered - overlap * window) + Ring(8, 2 * 4000, 100, false), 1e-9);
  }
}

// The step moves its bytes once where it is fused, and its states are shared by who shards them.
TEST(StepPlayTest, TheOptimizerMovesItsBytes) {
  Job job = JobOf({4}, 1);
  ModelCost cost = HandCost();
  cost.blocks[1].parameters = cost.blocks[1].parameters_alone = 1000;
  cost.blocks[2].parameters = 500;
  cost.blocks[2].parameters_alone = 200;  // a tied head
  cost.optimizer_bytes = 30;
  cost.rates.memory_bytes = 600;
  const auto optimizer = [&] {
    return Term(PredictStep(job, Speed{}, cost), StepTerm::kOptimizer);
  };
  EXPECT_DOUBLE_EQ(optimizer(), 4200 * 30.0 / 600) << "tied to the embedding, which is here";
  job.optimizer_implementation = OptimizerImplementation::kForeach;
  EXPECT_DOUBLE_EQ(optimizer(), 18.0 / 7 * 4200 * 30 / 600);
  job.optimizer_implementation = OptimizerImplementation::kFused;
  job.data_parallel_size = job.gpu_count = job.shard_group_size = 6;
  job.zero_stage = 1;
  EXPECT_DOUBLE_EQ(optimizer(), 4200 * 30.0 / 600 / 6);
  job = JobOf({2, 2}, 1);
  EXPECT_DOUBLE_EQ(optimizer(), 2500 * 30.0 / 600) << "the last stage has a table of its own";
}

TEST(StepPlayTest, FiguresFollowFromTheSeconds) {
  ModelCost cost = HandCost();
  cost.rates.peak_flops = 1000;
  cost.flops_per_token = 50;
  Job job = JobOf({1}, 4);
  job.sequence_length = 100;
  job.global_batch_size = 12;
  job.gpu_count = 3;
  Speed speed;
  speed.framework.step_seconds = 3.5;
  speed.gpu.spread = 0;
  const StepTime time = PredictStep(job, speed, cost);
  EXPECT_DOUBLE_EQ(time.seconds, 4 * 6.5 + 3.5);
  EXPECT_DOUBLE_EQ(time.tokens_per_second, 1200 / 29.5);
  EXPECT_DOUBLE_EQ(time.model_flops_utilization, 50 * 1200 / 29.5 / 3 / 1000);
  EXPECT_DOUBLE_EQ(time.gpu_hours_per_billion_tokens, 1e9 / (1200 / 29.5) * 3 / 3600);
  EXPECT_FALSE(time.measured);
}

}  // namespace
}  // namespace plimsoll
