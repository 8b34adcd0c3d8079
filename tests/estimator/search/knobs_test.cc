#include "estimator/search/knobs.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

Menu SmallMenu() {
  Menu menu;
  menu.gpus = {"a100-80gb-sxm", "h100-80gb-sxm"};
  menu.own_gpu = "a100";
  RecomputeSpec full;
  full.mode = "full";
  RecomputeSpec selective;
  selective.mode = "selective";
  selective.modules = {"core-attention", "mlp"};
  RecomputeSpec third;
  third.mode = "every-nth";
  third.interval = 3;
  menu.recomputes = {RecomputeSpec(), full, selective, third};
  menu.layer_count = 4;
  return menu;
}

Choice SmallChoice() {
  Choice choice;
  choice.values = {0, 8, 1, 0, 1, 1, 1, 0, 0, 2, 0};
  return choice;
}

TEST(KnobsTest, StandInTheOrderOfTheirIds) {
  for (size_t i = 0; i < kKnobCount; ++i) EXPECT_EQ(static_cast<size_t>(kKnobs[i].id), i);
}

TEST(KnobsTest, SetTheirFields) {
  JobSpec job = SmallJob();
  job.parallelism.data_parallel_size = 3;
  Choice choice;
  choice.values = {1, 16, 2, 1, 4, 2, 2, 1, 4, 8, 1};
  Set(SmallMenu(), choice, job);
  EXPECT_EQ(job.cluster.gpu, "h100-80gb-sxm");
  EXPECT_EQ(job.cluster.gpu_count, 16);
  EXPECT_EQ(job.parallelism.data_parallel_size, std::nullopt) << "follows from the rest";
  EXPECT_EQ(job.parallelism.tensor_parallel_size, 2);
  EXPECT_EQ(job.parallelism.sequence_parallel, true);
  EXPECT_EQ(job.parallelism.context_parallel_size, 4);
  EXPECT_EQ(job.parallelism.pipeline_parallel_size, 2);
  EXPECT_EQ(job.parallelism.pipeline_schedule, "interleaved-1f1b");
  EXPECT_EQ(job.parallelism.virtual_pipeline_size, 2);
  EXPECT_EQ(job.parallelism.zero_stage, 1);
  EXPECT_EQ(job.parallelism.shard_group_size, 4);
  EXPECT_EQ(job.training.micro_batch_size, 8);
  EXPECT_EQ(job.training.recompute.mode, "full");
}

TEST(KnobsTest, LeaveItsOwnGpuAsTheJobWroteIt) {
  JobSpec job = SmallJob();
  Choice choice = SmallChoice();
  choice[KnobId::kGpu] = 1;
  Set(SmallMenu(), choice, job);
  EXPECT_EQ(job.cluster.gpu, "h100-80gb-sxm");
  Set(SmallMenu(), SmallChoice(), job);
  EXPECT_EQ(job.cluster.gpu, "a100");
}

TEST(KnobsTest, LeaveUnsetWhatMeansNothing) {
  JobSpec job = SmallJob();
  Set(SmallMenu(), SmallChoice(), job);
  EXPECT_EQ(job.parallelism.sequence_parallel, std::nullopt) << "nothing is split";
  EXPECT_EQ(job.parallelism.pipeline_schedule, std::nullopt);
  EXPECT_EQ(job.parallelism.virtual_pipeline_size, std::nullopt);
  EXPECT_EQ(job.parallelism.shard_group_size, std::nullopt);
}

TEST(KnobsTest, KeepTheScheduleThatWasAskedFor) {
  JobSpec job = SmallJob();
  job.parallelism.pipeline_schedule = "gpipe";
  Choice choice = SmallChoice();
  choice[KnobId::kPipelineParallel] = 2;
  Set(SmallMenu(), choice, job);
  EXPECT_EQ(job.parallelism.pipeline_schedule, "gpipe");
}

TEST(KnobsTest, GoBackFromInterleavingToOneForwardOneBackward) {
  JobSpec job = SmallJob();
  Choice choice = SmallChoice();
  choice[KnobId::kPipelineParallel] = 2;
  choice[KnobId::kVirtualPipeline] = 2;
  Set(SmallMenu(), choice, job);
  choice[KnobId::kVirtualPipeline] = 1;
  Set(SmallMenu(), choice, job);
  EXPECT_EQ(job.parallelism.pipeline_schedule, "1f1b");
}

TEST(KnobsTest, KeepALayoutAsLongAsItsStagesStand) {
  JobSpec job = SmallJob();
  job.parallelism.pipeline_parallel_size = 2;
  job.parallelism.pipeline_layout = {3, 1};
  Choice choice = SmallChoice();
  choice[KnobId::kPipelineParallel] = 2;
  Set(SmallMenu(), choice, job);
  EXPECT_THAT(job.parallelism.pipeline_layout, ElementsAre(3, 1));
  choice[KnobId::kPipelineParallel] = 4;
  Set(SmallMenu(), choice, job);
  EXPECT_THAT(job.parallelism.pipeline_layout, ElementsAre());
}

TEST(KnobsTest, LayOutStagesThatDoNotDivideTheLayers) {
  JobSpec job = SmallJob();
  Menu menu = SmallMenu();
  menu.layer_count = 6;
  menu.even_stages = true;
  Choice choice = SmallChoice();
  choice[KnobId::kPipelineParallel] = 4;
  Set(menu, choice, job);
  EXPECT_THAT(job.parallelism.pipeline_layout, ElementsAre(1, 2, 2, 1));
  menu.even_stages = false;
  job = SmallJob();
  Set(menu, choice, job);
  EXPECT_THAT(job.parallelism.pipeline_layout, ElementsAre()) << "the framework's own rule";
}

TEST(KnobsTest, DealLayersWithTheEdgesCountedIn) {
  EXPECT_THAT(DealWithEdges(126, 16), ElementsAre(7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7));
  EXPECT_THAT(DealWithEdges(10, 4), ElementsAre(2, 3, 3, 2));
  EXPECT_THAT(DealWithEdges(5, 3), ElementsAre(1, 3, 1));
  EXPECT_THAT(DealWithEdges(4, 1), ElementsAre(4));
}

TEST(KnobsTest, DealEveryLayerOnce) {
  for (int64_t layers = 1; layers < 40; ++layers) {
    for (int64_t chunks = 1; chunks <= layers; ++chunks) {
      int64_t sum = 0;
      for (const int64_t of_chunk : DealWithEdges(layers, chunks)) {
        EXPECT_GE(of_chunk, 0) << layers << " in " << chunks;
        sum += of_chunk;
      }
      EXPECT_EQ(sum, layers) << chunks;
    }
  }
}

TEST(KnobsTest, SayTheirValues) {
  const Menu menu = SmallMenu();
  const auto text = [&menu](KnobId id, int32_t value) {
    return kKnobs[static_cast<size_t>(id)].text(menu, value);
  };
  EXPECT_EQ(text(KnobId::kGpu, 0), "a100");
  EXPECT_EQ(text(KnobId::kGpu, 1), "h100-80gb-sxm");
  EXPECT_EQ(text(KnobId::kTensorParallel, 8), "8");
  EXPECT_EQ(text(KnobId::kSequenceParallel, 1), "true");
  EXPECT_EQ(text(KnobId::kShardGroup, 0), "all data-parallel ranks");
  EXPECT_EQ(text(KnobId::kRecompute, 0), "none");
  EXPECT_EQ(text(KnobId::kRecompute, 1), "full");
  EXPECT_EQ(text(KnobId::kRecompute, 2), "selective (core-attention, mlp)");
  EXPECT_EQ(text(KnobId::kRecompute, 3), "every-nth 3");
}

// ZeRO and recomputation before the micro-batch, that before tensor and pipeline
// parallelism, these before more GPUs: even both of a kind before the next.
TEST(KnobsTest, CostWhatTheyAskOfTheUser) {
  const Choice own = SmallChoice();
  const auto cost = [&own](std::initializer_list<KnobId> changed) {
    Choice choice = own;
    for (const KnobId id : changed) ++choice[id];
    return ChangeCost(own, choice);
  };
  EXPECT_EQ(cost({}), 0);
  EXPECT_LT(cost({KnobId::kZeroStage, KnobId::kShardGroup}), cost({KnobId::kMicroBatch}));
  EXPECT_LT(cost({KnobId::kZeroStage, KnobId::kRecompute}), cost({KnobId::kMicroBatch}));
  EXPECT_LT(cost({KnobId::kZeroStage, KnobId::kRecompute, KnobId::kMicroBatch}),
            cost({KnobId::kTensorParallel}));
  EXPECT_LT(cost({KnobId::kTensorParallel, KnobId::kSequenceParallel, KnobId::kPipelineParallel,
                  KnobId::kVirtualPipeline}),
            cost({KnobId::kGpuCount}));
}

TEST(KnobsTest, CostMoreTheFurtherTheNumberOfGpusIs) {
  Choice own = SmallChoice();
  own[KnobId::kGpuCount] = 8;
  const auto cost = [&own](int32_t gpu_count) {
    Choice choice = own;
    choice[KnobId::kGpuCount] = gpu_count;
    return ChangeCost(own, choice);
  };
  EXPECT_EQ(cost(8), 0);
  EXPECT_EQ(cost(16), 130);
  EXPECT_EQ(cost(4), 130);
  EXPECT_LT(cost(16), cost(24));
  EXPECT_LT(cost(24), cost(64));
  // Any number before another GPU.
  own[KnobId::kGpuCount] = 1;
  Choice other = own;
  ++other[KnobId::kGpu];
  EXPECT_LT(cost(1 << 20), ChangeCost(own, other));
}

}  // namespace
}  // namespace plimsoll
