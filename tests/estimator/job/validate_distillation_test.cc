// Every rule of the distillation section, and what stands beside one.
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/refusals.h"

namespace plimsoll {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kPath[] = "job.training.distillation.teacher";

JobSpec Job() {
  JobSpec job = With(SmallJob(), "ddp", "bf16-autocast");
  Shape(job).vocab_size = 128256;  // SmallCatalog's Llama has
  job.training.distillation.teacher = "llama-3.1-8b";
  return job;
}

std::string NotModelled(absl::string_view field) {
  return absl::StrCat("job.", field, "; is not modelled with distillation");
}

TEST(ValidateDistillationTest, RefusesWhatIsNone) {
  ExpectRefusals(
      Job(), {
                 {"no teacher",
                  [](JobSpec& j) {
                    j.training.distillation.teacher.reset();
                    j.training.distillation.jsd_beta = 1;
                  },
                  {absl::StrCat(kPath, ": unset; must be set with other fields of distillation")}},
                 {"another vocabulary",
                  [](JobSpec& j) { Shape(j).vocab_size = 256; },
                  {absl::StrCat(kPath,
                                ": llama-3.1-8b; must have the student's vocabulary of 256 "
                                "words, not one of 128256")}},
                 {"more than all of one",
                  [](JobSpec& j) { j.training.distillation.jsd_beta = 1.5; },
                  {"job.training.distillation.jsd_beta: 1.5; must be from 0 to 1"}},
             });
}

TEST(ValidateDistillationTest, ATeacherIsOfTheCatalog) {
  JobSpec job = Job();
  job.training.distillation.teacher = "hub/Llama-8B";
  EXPECT_EQ(Valid(job)->distillation->teacher->layer_count, 32);
  job.training.distillation.teacher = "llama-3.1-9b";
  ASSERT_EQ(Refusals(job).size(), 1u);
  EXPECT_EQ(Refusals(job)[0],
            absl::StrCat(kPath, ": llama-3.1-9b; must be one of gpt2-xl, llama-3.1-8b"));
}

TEST(ValidateDistillationTest, FollowsTrl) {
  const ValidJob job = Valid(Job());
  EXPECT_EQ(job->profile->trainer, Trainer::kTrl);
  EXPECT_EQ(job->distillation->jsd_beta, 0.5);
  EXPECT_EQ(job->loss, LossImplementation::kPlain) << "it needs all logits";
  EXPECT_FALSE(job->distillation->teaches);
  ASSERT_FALSE(job->warnings.empty());
  EXPECT_EQ(job->warnings.back().code, "samples") << "half of the answers, where lmbda is unset";
}

TEST(ValidateDistillationTest, FrameworksRunItOrDoNot) {
  const std::pair<const char*, const char*> rows[] = {
      {"fsdp1",
       "fsdp1 does not have it: TRL's GKDTrainer leaves the teacher in the host's memory, "
       "and fails"},
      {"fsdp2",
       "fsdp2 does not have it: TRL's GKDTrainer leaves the teacher in the host's memory, "
       "and fails"},
      {"megatron-core",
       "is not modelled with megatron-core: ddp and deepspeed are, as TRL's "
       "GKDTrainer runs on them"}};
  for (const auto& [framework, rule] : rows) {
    JobSpec job = Job();
    job.runtime.framework = framework;
    job.training.precision.preset = "bf16-mixed";
    EXPECT_THAT(Refusals(job), Contains(absl::StrCat(kPath, ": llama-3.1-8b; ", rule)));
  }
}

// Its engine shards nothing of a teacher below the third stage.
TEST(ValidateDistillationTest, EnginesBelowTheThirdStageAreModelled) {
  JobSpec job = Job();
  job.runtime.framework = "deepspeed";
  job.training.precision.preset = "bf16-mixed";
  for (const int64_t stage : {0, 1, 2}) {
    job.parallelism.zero_stage = stage;
    EXPECT_THAT(Refusals(job), IsEmpty()) << stage;
  }
  job.parallelism.zero_stage = 3;
  EXPECT_THAT(Refusals(job),
              ElementsAre("job.parallelism.zero_stage: 3; is not modelled with distillation: the "
                          "teacher is gathered beside all that the student keeps"));
}

TEST(ValidateDistillationTest, WhatStandsBesideItIsNotModelled) {
  ExpectRefusals(Job(), {
                            {"preferences",
                             [](JobSpec& j) { j.training.preference.method = "dpo"; },
                             {NotModelled("training.preference.method: dpo")}},
                            {"another loss",
                             [](JobSpec& j) { j.training.loss.implementation = "tiled-log-probs"; },
                             {NotModelled("training.loss.implementation: tiled-log-probs")}},
                            {"frozen parts",
                             [](JobSpec& j) { j.training.trained.modules = {"mlp"}; },
                             {NotModelled("training.trained: set")}},
                            {"compiled layers",
                             [](JobSpec& j) { j.runtime.compile = true; },
                             {NotModelled("runtime.compile: true")}},
                            {"Liger's kernels",
                             [](JobSpec& j) { j.runtime.liger_kernel = true; },
                             {NotModelled("runtime.liger_kernel: true")}},
                        });
}

}  // namespace
}  // namespace plimsoll
