// The pass in words: which rank has the states of which parameters, where whole ones are dealt.
#include <algorithm>
#include <vector>

#include "estimator/program/parameter_sums.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

JobSpec Job(int64_t stage) {
  JobSpec job = With(SmallJob(), "megatron-core");
  job.training.optimizer.name = "muon";
  job.parallelism.data_parallel_size = 4;
  job.parallelism.zero_stage = stage;
  job.runtime.versions["megatron-core"] = "0.17";
  job.cluster.gpu_count.reset();
  return job;
}

JobSpec WithExperts(int64_t stage) {
  JobSpec job = Job(stage);
  Shape(job).expert_count = 8;
  Shape(job).active_expert_count = 2;
  Shape(job).expert_ffn_size = 96;
  job.parallelism.expert_parallel_size = 4;
  return job;
}

int64_t BytesOf(const Program& program, absl::string_view name) {
  const State* const state = FindState(program, name);
  return StateBytes(*state, SumParameters(program, WholeStage(4)));
}

struct Rank {
  int64_t picked = 0;
  int64_t rest = 0;
  int64_t Bytes() const { return 8 * picked + 12 * rest; }
};

// A card after the other, to ranks 0, 1, 2, 3, 3, 2, 1, 0 and so on.
Rank Heaviest(const Program& program, int64_t ranks, bool of_experts = false) {
  struct Card {
    int64_t elements;
    bool picked;
  };
  std::vector<Card> cards;
  for (const Block& block : program.blocks) {
    const int64_t times = CountOnStage(block, WholeStage(4));
    for (size_t i = 0; i < block.parameters.size(); ++i) {
      const Parameter& at = block.parameters[i];
      if (at.tied || at.packed() || at.of_experts() != of_experts) continue;
      const int64_t matrices = of_experts ? at.shape.extents[0].Local() : 1;
      cards.insert(cards.end(), times * matrices, {PackedElements(block, i) / matrices, at.picked});
    }
  }
  std::stable_sort(cards.begin(), cards.end(),
                   [](const Card& a, const Card& b) { return a.elements < b.elements; });
  std::vector<Rank> all(ranks);
  int64_t at = 0;
  int64_t step = 1;
  for (const Card& card : cards) {
    (card.picked ? all[at].picked : all[at].rest) += card.elements;
    if (at + step < 0 || at + step == ranks) {
      step = -step;
    } else {
      at += step;
    }
  }
  return *std::max_element(all.begin(), all.end(),
                           [](const Rank& a, const Rank& b) { return a.Bytes() < b.Bytes(); });
}

TEST(DealTest, ARankHasStatesOfWholeParameters) {
  const Program program = ProgramAfter(Valid(Job(1)), PassId::kZero);
  const Rank heaviest = Heaviest(ProgramAfter(Valid(Job(1)), PassId::kOptimizer), 4);
  EXPECT_EQ(BytesOf(program, "optimizer.momentum"), 4 * heaviest.picked);
  EXPECT_EQ(BytesOf(program, "optimizer.momentum.rest"), 4 * heaviest.rest);
  EXPECT_EQ(BytesOf(program, "optimizer.variance.rest"), 4 * heaviest.rest);
  EXPECT_EQ(BytesOf(program, "master_weights"), 4 * (heaviest.picked + heaviest.rest));
}

// Weights and gradients are whole: only states are dealt, and one rank has all of them.
TEST(DealTest, OneRankHasAllStates) {
  JobSpec job = Job(1);
  job.parallelism.data_parallel_size = 1;
  JobSpec whole = Job(0);
  whole.parallelism.data_parallel_size = 1;
  EXPECT_EQ(PeakBytes(job), PeakBytes(whole));
  EXPECT_LT(PeakBytes(Job(1)), PeakBytes(Job(0)));
  EXPECT_EQ(BytesOf(ProgramAfter(Valid(Job(1)), PassId::kZero), "gradients.main"),
            BytesOf(ProgramAfter(Valid(Job(0)), PassId::kZero), "gradients.main"));
}

// Of eight experts a rank of two has four, which two of the four ranks have: a deal of their own.
TEST(DealTest, ExpertsAreDealtAmongThoseThatHaveThem) {
  for (const int64_t parallel : {2, 4}) {
    JobSpec job = WithExperts(1);
    job.parallelism.expert_parallel_size = parallel;
    const Program all = ProgramAfter(Valid(job), PassId::kOptimizer);
    const Rank dense = Heaviest(all, 4);
    const Rank experts = Heaviest(all, 4 / parallel, true);
    ASSERT_GT(experts.picked, 0);
    const Program program = ProgramAfter(Valid(job), PassId::kZero);
    EXPECT_EQ(BytesOf(program, "optimizer.momentum"), 4 * (dense.picked + experts.picked));
    EXPECT_EQ(BytesOf(program, "optimizer.variance.rest"), 4 * dense.rest);
  }
}

// Once stepped, 16-bit weights come from all ranks, into tensors of their own.
TEST(DealTest, WhatWasSteppedIsGathered) {
  const auto temporaries = [](int64_t ranks) {
    JobSpec job = Job(1);
    job.parallelism.data_parallel_size = ranks;
    return BytesOf(ProgramAfter(Valid(job), PassId::kZero), "optimizer.temporaries");
  };
  EXPECT_EQ(temporaries(4), 2 * CountParameters(*Valid(Job(1))->model));
  EXPECT_EQ(temporaries(1), 3 * 4 * 256 * 64) << "the step's own";
}

TEST(DealTest, RefusesWhatIsDealtOtherwise) {
  JobSpec job = Job(1);
  job.runtime.versions["megatron-core"] = "0.18";
  EXPECT_THAT(Refusals(job),
              ElementsAre("job.parallelism.zero_stage: 1 with muon; is not modelled with "
                          "megatron-core: it deals matrices by what they cost, in padded buffers; "
                          "zero_stage 0 is"));
  job = Job(1);
  job.parallelism.pipeline_parallel_size = 2;
  EXPECT_THAT(Refusals(job), ElementsAre("job.parallelism.pipeline_parallel_size: 2; is not "
                                         "modelled with matrices that are dealt to ranks"));
}

}  // namespace
}  // namespace plimsoll
