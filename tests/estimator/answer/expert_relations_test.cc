// What must be true of experts, whatever the job.
#include <random>

#include "estimator/program/parameter_sums.h"
#include "estimator/step/ledger.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

constexpr int kJobs = 100;

// A job with experts, of one GPU or of several.
JobSpec ExpertJob(std::mt19937_64& random) {
  while (true) {
    JobSpec job = RandomJob(random);
    if (Shape(job).expert_count.has_value() && Refusals(job).empty()) return job;
  }
}

int64_t Allocated(const JobSpec& job) { return Estimate(job).ranks[0].allocated.expected_bytes; }

int64_t KeptByExperts(const JobSpec& job) {
  const Program program = ProgramOf(job);
  JobSpec shaped = job;
  const bool all = Shape(shaped).dense_layer_count.value_or(0) == 0;
  const Block& block = FindBlock(program, all ? "layer" : "expert layer");
  return Run(block, WeightGradient::kKept, DType::kBf16).kept.total;
}

TEST(ExpertRelationsTest, MoreExpertsNeverHoldLess) {
  std::mt19937_64 random(20261123);
  for (int i = 0; i < kJobs; ++i) {
    JobSpec job = ExpertJob(random);
    const int64_t before = Allocated(job);
    Shape(job).expert_count = 2 * *Shape(job).expert_count;
    EXPECT_GE(Allocated(job), before) << i;
  }
}

// Each further expert of a token is a row more of all that experts keep.
TEST(ExpertRelationsTest, EachExpertOfATokenKeepsAsMuch) {
  std::mt19937_64 random(7);
  for (int i = 0; i < kJobs; ++i) {
    JobSpec job = ExpertJob(random);
    job.training.recompute = {};
    Shape(job).expert_count = 8;
    int64_t kept[3];
    for (int64_t active = 1; active <= 3; ++active) {
      Shape(job).active_expert_count = active;
      kept[active - 1] = KeptByExperts(job);
    }
    EXPECT_GT(kept[1], kept[0]) << i;
    EXPECT_EQ(kept[2] - kept[1], kept[1] - kept[0]) << i;
  }
}

// A token passes them all where it goes to each; else what it does not pass is of experts alone.
TEST(ExpertRelationsTest, ActiveParametersAreThoseOfTheExpertsPicked) {
  std::mt19937_64 random(11);
  for (int i = 0; i < kJobs; ++i) {
    JobSpec job = ExpertJob(random);
    const MemoryEstimate some = Estimate(job);
    Shape(job).active_expert_count = Shape(job).expert_count;
    const MemoryEstimate all = Estimate(job);
    EXPECT_EQ(all.active_parameter_count, all.parameter_count) << i;
    EXPECT_EQ(some.parameter_count, all.parameter_count) << i;
    EXPECT_LE(some.active_parameter_count, all.active_parameter_count) << i;
  }
}

// The weights of a layer's experts are so many MLPs, and a router.
TEST(ExpertRelationsTest, LayersWithoutThemHaveOneMlp) {
  std::mt19937_64 random(13);
  for (int i = 0; i < kJobs; ++i) {
    JobSpec job = ExpertJob(random);
    TransformerSpec& shape = Shape(job);
    if (shape.linear_value_head_count.has_value()) continue;  // layers are of two kinds at most
    job.training.adapter = {};
    job.training.quantization = {};
    job.training.preference = {};
    shape.mlp_bias = false;
    shape.expert_ffn_size = shape.ffn_size;
    shape.shared_expert_ffn_size.reset();
    const int64_t mlp = (shape.gated_mlp == true ? 3 : 2) * *shape.hidden_size * *shape.ffn_size;
    const int64_t more = (*shape.expert_count - 1) * mlp + *shape.expert_count * *shape.hidden_size;
    shape.dense_layer_count = 0;
    const int64_t everywhere = Estimate(job).parameter_count;
    shape.dense_layer_count = 1;
    EXPECT_EQ(everywhere - Estimate(job).parameter_count, more) << i;
  }
}

// However layers with experts and without are dealt to stages, each is on one.
TEST(ExpertRelationsTest, StagesHaveEachLayerOnce) {
  std::mt19937_64 random(29);
  for (int i = 0; i < kJobs; ++i) {
    JobSpec job = RandomDispatchedJob(random);
    Shape(job).tied_embeddings = false;
    Shape(job).layer_count = 8;
    Shape(job).dense_layer_count = i % 5;
    job.parallelism.pipeline_layout.clear();
    job.parallelism.virtual_pipeline_size.reset();
    job.parallelism.pipeline_schedule.reset();
    job.training.global_batch_size.reset();
    std::vector<int64_t> sums;
    for (const int64_t stages : {1, 2, 4}) {
      job.parallelism.pipeline_parallel_size = stages;
      job.cluster.gpu_count.reset();
      const Program program = ProgramOf(job);
      int64_t& sum = sums.emplace_back();
      for (const Stage& stage : program.stages) sum += SumParameters(program, stage).parameters;
    }
    EXPECT_EQ(sums[1], sums[0]) << i;
    EXPECT_EQ(sums[2], sums[0]) << i;
  }
}

// Elements of a rank's experts.
int64_t OfExperts(const JobSpec& job) {
  const Program program = ProgramOf(job);
  return SumParameters(program, program.stages.front()).experts;
}

// Each rank has its share of them, and none has another's.
TEST(ExpertRelationsTest, RanksHaveEqualSharesOfExperts) {
  std::mt19937_64 random(17);
  for (int i = 0; i < kJobs; ++i) {
    JobSpec job = RandomDispatchedJob(random);
    Shape(job).expert_count = 8;
    job.parallelism.data_parallel_size = 8;
    job.training.global_batch_size.reset();
    job.parallelism.expert_parallel_size.reset();
    const int64_t all = OfExperts(job);
    for (const int64_t ranks : {2, 4, 8}) {
      job.parallelism.expert_parallel_size = ranks;
      EXPECT_EQ(OfExperts(job) * ranks, all) << i;
    }
  }
}

// One rank that has all of them is where nothing is split, however tokens come to it.
TEST(ExpertRelationsTest, OneRankOfExpertsChangesNothing) {
  std::mt19937_64 random(19);
  for (int i = 0; i < kJobs; ++i) {
    JobSpec job = RandomDispatchedJob(random);
    job.parallelism.expert_parallel_size.reset();
    const int64_t unset = Allocated(job);
    job.parallelism.expert_parallel_size = 1;
    EXPECT_EQ(Allocated(job), unset) << i;
  }
}

// A rank is sent as many tokens as it would have, of fewer experts: it keeps no more of them.
TEST(ExpertRelationsTest, MoreRanksOfExpertsNeverHoldMoreOfTheirStates) {
  std::mt19937_64 random(23);
  for (int i = 0; i < kJobs; ++i) {
    JobSpec job = RandomDispatchedJob(random);
    Shape(job).expert_count = 8;
    job.parallelism.data_parallel_size = 8;
    job.training.global_batch_size.reset();
    int64_t before = 0;
    for (const int64_t ranks : {8, 4, 2, 1}) {
      job.parallelism.expert_parallel_size = ranks;
      const Program program = ProgramOf(job);
      const int64_t states = RoleBytesAt(program, Role::kWeight, Phase::kForward) +
                             RoleBytesAt(program, Role::kGradient, Phase::kForward);
      EXPECT_GE(states, before) << i;
      before = states;
    }
  }
}

}  // namespace
}  // namespace plimsoll
