// The pass in words: layers of each stage, and how many micro-batches it keeps.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

JobSpec Job(int64_t stages, int64_t micro_batches) {
  JobSpec job = With(SmallJob(), "megatron-core");
  Shape(job).layer_count = 16;
  job.parallelism.pipeline_parallel_size = stages;
  job.training.global_batch_size = 2 * micro_batches;
  return job;
}

std::vector<int64_t> InFlightOf(const JobSpec& job) {
  std::vector<int64_t> counts;
  for (const RankMemory& rank : Estimate(job).ranks) counts.push_back(rank.in_flight_count);
  return counts;
}

std::vector<int64_t> LayersOf(const JobSpec& job) {
  std::vector<int64_t> counts;
  for (const RankMemory& rank : Estimate(job).ranks) counts.push_back(rank.layer_count);
  return counts;
}

TEST(PipelineParallelTest, OneForwardOneBackward) {
  EXPECT_THAT(InFlightOf(Job(4, 8)), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(InFlightOf(Job(4, 2)), ElementsAre(2, 2, 2, 1)) << "no more than there are";
}

TEST(PipelineParallelTest, GpipeKeepsAll) {
  JobSpec job = Job(4, 8);
  job.runtime.framework = "fsdp2";
  job.parallelism.pipeline_schedule = "gpipe";
  EXPECT_THAT(InFlightOf(job), ElementsAre(8, 8, 8, 8));
}

// Pairs of a micro-batch and a virtual stage: 2(p - s - 1) + (v - 1)p + 1.
TEST(PipelineParallelTest, InterleavedKeepsMorePairsOfFewerLayers) {
  JobSpec job = Job(4, 8);
  job.parallelism.pipeline_schedule = "interleaved-1f1b";
  job.parallelism.virtual_pipeline_size = 2;
  EXPECT_THAT(InFlightOf(job), ElementsAre(11, 9, 7, 5));
  EXPECT_THAT(LayersOf(job), ElementsAre(4, 4, 4, 4));
}

// Of more micro-batches in a row of a virtual stage more are in flight: 2(p - s - 1) + (v - 1)g
// + 1.
TEST(PipelineParallelTest, ALargerGroupKeepsMorePairs) {
  JobSpec job = Job(4, 10);
  job.parallelism.pipeline_schedule = "interleaved-1f1b";
  job.parallelism.virtual_pipeline_size = 2;
  job.parallelism.micro_batch_group_size = 5;
  EXPECT_THAT(InFlightOf(job), ElementsAre(12, 10, 8, 6));
}

TEST(PipelineParallelTest, ALayoutIsTaken) {
  JobSpec job = Job(4, 8);
  job.parallelism.pipeline_layout = {3, 5, 5, 3};
  EXPECT_THAT(LayersOf(job), ElementsAre(3, 5, 5, 3));
}

// A layout of virtual stages names them in the order of the layers.
TEST(PipelineParallelTest, ALayoutMayNameVirtualStages) {
  JobSpec job = Job(2, 8);
  job.parallelism.pipeline_schedule = "interleaved-1f1b";
  job.parallelism.virtual_pipeline_size = 2;
  job.parallelism.pipeline_layout = {1, 2, 6, 7};
  EXPECT_THAT(LayersOf(job), ElementsAre(7, 9));
}

// An odd number of layers on a stage of two virtual stages is no more layers.
TEST(PipelineParallelTest, AnUnevenLayoutOfStagesKeepsItsLayers) {
  JobSpec job = Job(2, 8);
  job.parallelism.pipeline_schedule = "interleaved-1f1b";
  job.parallelism.virtual_pipeline_size = 2;
  job.parallelism.pipeline_layout = {7, 9};
  EXPECT_THAT(LayersOf(job), ElementsAre(7, 9));
}

TEST(PipelineParallelTest, EmbeddingAndHeadAreAtTheEnds) {
  const Program program = ProgramOf(Job(4, 8));
  ASSERT_EQ(program.stages.size(), 4u);
  for (size_t stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(program.stages[stage].embedding, stage == 0);
    EXPECT_EQ(program.stages[stage].head, stage == 3);
  }
}

// Megatron-Core frees what it has sent; Megatron-LM of 2021 does not yet.
TEST(PipelineParallelTest, SentOutputsStayWhereTheyAreNotFreed) {
  JobSpec job = Job(2, 4);
  EXPECT_EQ(ProgramOf(job).stages[0].edge_bytes, 0);
  job.runtime.framework = "megatron-lm";
  const Program program = ProgramOf(job);
  EXPECT_EQ(program.stages[0].edge_bytes, 2 * 2 * 32 * 64);
  EXPECT_EQ(program.stages[1].edge_bytes, 0) << "the last sends none";
}

// A tied head is a second copy of the embedding where they are apart.
TEST(PipelineParallelTest, ATiedHeadIsOnBothEnds) {
  JobSpec job = Job(1, 4);
  Shape(job).tied_embeddings = true;
  const int64_t whole = Estimate(job).ranks[0].parameter_count;
  job.parallelism.pipeline_parallel_size = 2;
  const MemoryEstimate estimate = Estimate(job);
  EXPECT_EQ(estimate.ranks[0].parameter_count + estimate.ranks[1].parameter_count,
            whole + 256 * 64);
}

}  // namespace
}  // namespace plimsoll
