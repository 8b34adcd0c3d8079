// Layers dealt to stages by each framework's rule.
#include "estimator/job/pipeline_layout.h"

#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

// nanotron's 1.34 B: H 2048, F 8192, V 131072. A layer costs 4 H^2 + 3 H F =
// 67108864, the head V H = 268435456: four layers' worth.
Transformer Nanotron1B() {
  Transformer model;
  model.hidden_size = model.embedding_size = 2048;
  model.layer_count = 16;
  model.head_count = model.kv_head_count = 32;
  model.head_size = 64;
  model.ffn_size = 8192;
  model.vocab_size = 131072;
  return model;
}

Transformer Layers(int64_t count) {
  Transformer model = Nanotron1B();
  model.layer_count = count;
  return model;
}

TEST(DealLayersTest, EvenlyWithTheRestInFront) {
  EXPECT_THAT(DealLayers(Layers(16), 4, StageRule::kEven), ElementsAre(4, 4, 4, 4));
  EXPECT_THAT(DealLayers(Layers(16), 3, StageRule::kEven), ElementsAre(6, 5, 5));
  EXPECT_THAT(DealLayers(Layers(3), 3, StageRule::kEven), ElementsAre(1, 1, 1));
  EXPECT_THAT(DealLayers(Layers(7), 1, StageRule::kEven), ElementsAre(7));
}

// 16 layers and a head of four make 20; half is 10. The tenth layer reaches the
// half and does not pass it: a tie, which each era breaks its own way.
// Source: measured placement of 1.34 B, data notes A 3.4.
TEST(DealLayersTest, ATieFallsAsInTheEra) {
  EXPECT_THAT(DealLayers(Nanotron1B(), 2, StageRule::kByCost), ElementsAre(11, 5));
  EXPECT_THAT(DealLayers(Nanotron1B(), 2, StageRule::kByCostReached), ElementsAre(10, 6));
}

TEST(DealLayersTest, WithoutATieBothErasAgree) {
  const Transformer model = Layers(15);  // 19: the half is 9.5
  EXPECT_THAT(DealLayers(model, 2, StageRule::kByCost), ElementsAre(10, 5));
  EXPECT_THAT(DealLayers(model, 2, StageRule::kByCostReached), ElementsAre(10, 5));
}

TEST(DealLayersTest, EveryLayerIsOnOneStage) {
  for (const StageRule rule : {StageRule::kEven, StageRule::kByCost, StageRule::kByCostReached}) {
    for (int64_t layers = 1; layers <= 40; ++layers) {
      for (int64_t stages = 1; stages <= layers; ++stages) {
        const std::vector<int64_t> layout = DealLayers(Layers(layers), stages, rule);
        ASSERT_EQ(layout.size(), static_cast<size_t>(stages));
        EXPECT_EQ(std::accumulate(layout.begin(), layout.end(), int64_t{0}), layers);
        for (int64_t count : layout) EXPECT_GE(count, 0);
      }
    }
  }
}

// The largest model that Validate lets through.
TEST(DealLayersTest, DoesNotOverflow) {
  Transformer model = Layers(4096);
  model.hidden_size = int64_t{1} << 20;
  model.ffn_size = int64_t{1} << 20;
  model.head_count = 65536;
  model.head_size = int64_t{1} << 20;
  model.vocab_size = int64_t{1} << 24;
  for (const StageRule rule : {StageRule::kByCost, StageRule::kByCostReached}) {
    const std::vector<int64_t> layout = DealLayers(model, 4096, rule);
    EXPECT_EQ(std::accumulate(layout.begin(), layout.end(), int64_t{0}), 4096);
  }
}

// 13 layers, of which the first three have no experts, over four stages of two virtual ones.
JobSpec DenseInFront() {
  JobSpec job = With(SmallJob(), "megatron-core");
  Shape(job).layer_count = 13;
  Shape(job).expert_count = 8;
  Shape(job).active_expert_count = 2;
  Shape(job).dense_layer_count = 3;
  Shape(job).mlp_bias = false;
  job.parallelism.pipeline_parallel_size = 4;
  job.parallelism.virtual_pipeline_size = 2;
  job.parallelism.pipeline_schedule = "interleaved-1f1b";
  job.parallelism.pipeline_layout = {2, 2, 2, 2, 2, 1, 1, 1};
  job.training.global_batch_size = 16;
  return job;
}

// Layers 0 and 1; 2 and 3; all behind these are like 3 and 4.
TEST(VirtualStagesTest, BeginWhereTheSameKindsDoFirst) {
  const ValidJob job = Valid(DenseInFront());
  EXPECT_EQ(VirtualStages(*job, 0), (LayerRanges{{0, 2}, {3, 2}}));
  EXPECT_EQ(VirtualStages(*job, 1), (LayerRanges{{2, 2}, {3, 1}}));
  EXPECT_EQ(VirtualStages(*job, 2), (LayerRanges{{3, 2}, {3, 1}}));
  EXPECT_EQ(VirtualStages(*job, 3), VirtualStages(*job, 2));
}

TEST(VirtualStagesTest, OfLayersThatAreAlikeBeginWithTheFirst) {
  JobSpec job = DenseInFront();
  Shape(job).dense_layer_count.reset();
  EXPECT_EQ(VirtualStages(*Valid(job), 2), (LayerRanges{{0, 2}, {0, 1}}));
}

}  // namespace
}  // namespace plimsoll
