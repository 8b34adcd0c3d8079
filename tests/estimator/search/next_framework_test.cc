// Random jobs that move from framework to framework: what a search may change or the next lacks
// stays behind, so that nothing but the training run itself can refuse the move.
#include "estimator/search/next_framework.h"

#include <random>
#include <string>

#include "absl/strings/match.h"
#include "estimator/job/vocabularies.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

using ::testing::IsEmpty;

// What is trained, and in which dtypes, no move touches.
bool IsOfTheRun(absl::string_view refusal) {
  for (const char* section :
       {"job.training.precision", "job.training.optimizer", "job.training.trained"}) {
    if (absl::StartsWith(refusal, section)) return true;
  }
  return false;
}

bool IsPlain(const JobSpec& job) {
  return !job.training.adapter.method.has_value() && !job.training.preference.method.has_value() &&
         !std::get<TransformerSpec>(job.model.source).expert_count.has_value() &&
         !std::get<TransformerSpec>(job.model.source).key_value_rank.has_value() &&
         !std::get<TransformerSpec>(job.model.source).linear_value_head_count.has_value();
}

JobSpec AnyPlain(std::mt19937_64& random) {
  while (true) {
    JobSpec job = RandomJob(random);
    if (IsPlain(job) && Refusals(job).empty()) return job;
  }
}

TEST(NextFrameworkTest, OnlyTheRunItselfIsRefused) {
  std::mt19937_64 random(24);
  int moves = 0;
  for (int i = 0; i < Rounds(1000); ++i) {
    RecommendSpec spec;
    spec.job = AnyPlain(random);
    const ValidJob job = Valid(spec.job);
    for (const NextFramework& next : NextFrameworks(*job)) {
      const std::optional<Moved> moved = MoveTo(spec, *job, next);
      ASSERT_TRUE(moved.has_value()) << "nothing is frozen";
      for (const std::string& refusal : Refusals(moved->spec.job)) {
        EXPECT_TRUE(IsOfTheRun(refusal)) << job->profile->name << " to "
                                         << *moved->spec.job.runtime.framework << ": " << refusal;
      }
      ++moves;
    }
  }
  EXPECT_GT(moves, Rounds(500));
}

// Each field that a move changes holds it back where it is frozen.
TEST(NextFrameworkTest, WhatAMoveChangesMayBeFrozen) {
  std::mt19937_64 random(25);
  for (int i = 0; i < Rounds(200); ++i) {
    RecommendSpec spec;
    spec.job = AnyPlain(random);
    const ValidJob job = Valid(spec.job);
    for (const NextFramework& next : NextFrameworks(*job)) {
      const std::optional<Moved> moved = MoveTo(spec, *job, next);
      for (const Change& change : moved->changes) {
        RecommendSpec frozen = spec;
        frozen.frozen = {std::string(change.field)};
        EXPECT_FALSE(MoveTo(frozen, *job, next).has_value()) << change.field;
      }
    }
  }
}

// A move that was made is not made again, and what it leaves is a job of the next framework.
TEST(NextFrameworkTest, AMoveLeavesNothingToMove) {
  std::mt19937_64 random(26);
  for (int i = 0; i < Rounds(300); ++i) {
    RecommendSpec spec;
    spec.job = AnyPlain(random);
    const ValidJob job = Valid(spec.job);
    for (const NextFramework& next : NextFrameworks(*job)) {
      const std::optional<Moved> moved = MoveTo(spec, *job, next);
      if (!Refusals(moved->spec.job).empty()) continue;
      const ValidJob there = Valid(moved->spec.job);
      EXPECT_EQ(there->profile->framework, next.framework);
      EXPECT_EQ(there->profile->trainer, next.trainer);
      const std::optional<Moved> again = MoveTo(moved->spec, *there, next);
      ASSERT_TRUE(again.has_value());
      EXPECT_THAT(again->changes, IsEmpty());
    }
  }
}

struct Row {
  const char* name;
  const char* from;
  Framework to;
  void (*edit)(JobSpec&);
  // What the moved job has left of it.
  bool (*is_left)(const JobSpec&);
};

constexpr Row kRows[] = {
    {"sequences are split anew", "fsdp2", Framework::kMegatronCore,
     [](JobSpec& job) {
       job.parallelism.context_parallel_method = "ulysses";
       job.parallelism.context_parallel_size = 2;
     },
     [](const JobSpec& job) {
       return job.parallelism.context_parallel_method.has_value() ||
              job.parallelism.context_parallel_size.has_value();
     }},
    {"no GPipe in Megatron-Core", "nanotron", Framework::kMegatronCore,
     [](JobSpec& job) {
       job.parallelism.pipeline_parallel_size = 2;
       job.parallelism.pipeline_schedule = "gpipe";
     },
     [](const JobSpec& job) { return job.parallelism.pipeline_schedule.has_value(); }},
    {"stages stay", "nanotron", Framework::kMegatronCore,
     [](JobSpec& job) {
       job.parallelism.pipeline_parallel_size = 2;
       job.parallelism.pipeline_schedule = "gpipe";
     },
     [](const JobSpec& job) { return job.parallelism.pipeline_parallel_size != 2; }},
    {"no norm by itself in FSDP2", "megatron-core", Framework::kFsdp2,
     [](JobSpec& job) {
       job.runtime.transformer_implementation = "local";
       job.training.recompute.mode = "selective";
       job.training.recompute.modules = {"norm"};
     },
     [](const JobSpec& job) {
       return job.training.recompute.mode.has_value() || !job.training.recompute.modules.empty();
     }},
    {"tensor parallelism stays", "megatron-core", Framework::kFsdp2,
     [](JobSpec& job) { job.parallelism.tensor_parallel_size = 2; },
     [](const JobSpec& job) { return job.parallelism.tensor_parallel_size != 2; }},
};

TEST(NextFrameworkTest, LeavesBehindWhatTheNextLacks) {
  for (const Row& row : kRows) {
    RecommendSpec spec;
    spec.job = With(SmallJob(), row.from);
    spec.job.training.global_batch_size = 16;
    row.edit(spec.job);
    ASSERT_THAT(Refusals(spec.job), IsEmpty()) << row.name;
    const ValidJob job = Valid(spec.job);
    const std::optional<Moved> moved = MoveTo(spec, *job, {row.to, Trainer::kNone, "tries"});
    ASSERT_TRUE(moved.has_value()) << row.name;
    EXPECT_FALSE(row.is_left(moved->spec.job)) << row.name;
    EXPECT_THAT(Refusals(moved->spec.job), IsEmpty()) << row.name;
    EXPECT_EQ(moved->changes.front().field, "runtime.framework") << row.name;
  }
}

// Whoever comes next shards what the job's own does not, or splits more: each framework but the
// last has one, and the reason names what it can.
TEST(NextFrameworkTest, EachReasonNamesAFramework) {
  for (const Profile& profile : Profiles()) {
    const JobSpec spec = With(SmallJob(), profile.name);
    if (!Refusals(spec).empty()) continue;
    for (const NextFramework& next : NextFrameworks(*Valid(spec))) {
      EXPECT_NE(next.framework, profile.framework);
      EXPECT_TRUE(absl::StartsWith(next.reason, FindProfile(next.framework, kAnyVersion)->name))
          << next.reason;
    }
  }
}

}  // namespace
}  // namespace plimsoll
