// What the sizes of states follow from, added up by hand on a small model.
#include "estimator/program/parameter_sums.h"

#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

// SmallJob(): H 64, A 64, C 32, F 128, V 256, four layers, untied.
constexpr int64_t kLayerMatrices = 64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 128 * 64;
constexpr int64_t kTable = 256 * 64;

TEST(ParameterSumsTest, AddsUpTheWholeModel) {
  const Program program = ProgramOf(SmallJob());
  const ParameterSums sums = SumParameters(program, WholeStage(4));
  EXPECT_EQ(sums.parameters, 4 * (kLayerMatrices + 2 * 64) + 2 * kTable + 64);
  EXPECT_EQ(sums.cached, 4 * kLayerMatrices) << "no lookup table, and no head: it runs once";
  EXPECT_EQ(sums.largest, kTable);
  EXPECT_EQ(sums.layers, 4);
  EXPECT_TRUE(sums.head);
}

TEST(ParameterSumsTest, AStageHasItsPart) {
  const Program program = ProgramOf(SmallJob());
  Stage stage;
  stage.layer_count = 3;
  EXPECT_EQ(SumParameters(program, stage).parameters, 3 * (kLayerMatrices + 2 * 64));
  EXPECT_FALSE(SumParameters(program, stage).head);
  stage.embedding = true;
  EXPECT_EQ(SumParameters(program, stage).parameters, 3 * (kLayerMatrices + 2 * 64) + kTable);
}

// A tied head is the embedding's tensor on one rank, a copy on another.
TEST(ParameterSumsTest, ATiedHeadCountsWhereTheEmbeddingIsNot) {
  JobSpec job = SmallJob();
  Shape(job).tied_embeddings = true;
  const Program program = ProgramOf(job);
  Stage last;
  last.head = true;
  EXPECT_EQ(SumParameters(program, last).parameters, kTable + 64);
  last.embedding = true;
  EXPECT_EQ(SumParameters(program, last).parameters, kTable + 64) << "not twice";
}

// OLMo 1's norms have no weights: a layer then has no frozen parameter but what is quantized.
TEST(ParameterSumsTest, QuantizedMatricesCountWhereNothingElseIsFrozen) {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  job.training.adapter.method = "qlora";
  const Program program =
      ProgramOf(WithModel(job, [](Transformer& model) { model.norm_weight = false; }));
  EXPECT_EQ(SumParameters(program, WholeStage(4)).quantized, 4 * kLayerMatrices);
}

// Stages together have what the whole has.
TEST(ParameterSumsTest, StagesAddUp) {
  JobSpec job = With(SmallJob(), "megatron-core");
  job.parallelism.pipeline_parallel_size = 4;
  const Program program = ProgramOf(job);
  int64_t parameters = 0;
  int64_t cached = 0;
  for (const Stage& stage : program.stages) {
    parameters += SumParameters(program, stage).parameters;
    cached += SumParameters(program, stage).cached;
  }
  const ParameterSums whole = SumParameters(program, WholeStage(4));
  EXPECT_EQ(parameters, whole.parameters);
  EXPECT_EQ(cached, whole.cached);
}

// With every other layer recomputed there are two kinds of layer, and as many.
TEST(ParameterSumsTest, TwoKindsOfLayerAreStillTheModel) {
  JobSpec job = SmallJob();
  const int64_t whole = SumParameters(ProgramOf(job), WholeStage(4)).parameters;
  job.training.recompute.mode = "every-nth";
  for (const int64_t interval : {1, 2, 3, 4}) {
    job.training.recompute.interval = interval;
    EXPECT_EQ(SumParameters(ProgramOf(job), WholeStage(4)).parameters, whole) << interval;
  }
}

}  // namespace
}  // namespace plimsoll
