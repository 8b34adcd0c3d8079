// Every rule of the cluster section, and of which framework runs on it.
#include "tests/testing/refusals.h"

namespace plimsoll {
namespace {

constexpr char kFrameworkNames[] =
    "ddp, fsdp1, fsdp2, deepspeed, megatron-core, megatron-lm, megatron-deepspeed, nanotron";

const std::vector<Refusal>& Gpus() {
  static const auto* const kRows = new std::vector<Refusal>{
      {"neither GPU nor memory",
       [](JobSpec& j) { j.cluster.gpu.reset(); },
       {"job.cluster.gpu: unset; exactly one of gpu and gpu_memory_bytes must be set"}},
      {"both",
       [](JobSpec& j) { j.cluster.gpu_memory_bytes = int64_t{1} << 34; },
       {"job.cluster.gpu_memory_bytes: 17179869184; exactly one of gpu and gpu_memory_bytes must "
        "be set"}},
      {"memory alone",
       [](JobSpec& j) { j.cluster.gpu.reset(), j.cluster.gpu_memory_bytes = int64_t{1} << 34; },
       {}},
      {"too little memory",
       [](JobSpec& j) { j.cluster.gpu.reset(), j.cluster.gpu_memory_bytes = 1; },
       {"job.cluster.gpu_memory_bytes: 1; must be from 1048576 to 1125899906842624"}},
      {"too much memory",
       [](JobSpec& j) { j.cluster.gpu.reset(), j.cluster.gpu_memory_bytes = int64_t{1} << 51; },
       {"job.cluster.gpu_memory_bytes: 2251799813685248; must be from 1048576 to "
        "1125899906842624"}},
      {"unknown GPU",
       [](JobSpec& j) { j.cluster.gpu = "h101"; },
       {"job.cluster.gpu: h101; must be one of a100-80gb-sxm, b200-180gb, h100-80gb-sxm, "
        "mi300x-192gb, rtx-4090, "
        "v100-32gb-sxm"}},
      {"an alias, whatever its case", [](JobSpec& j) { j.cluster.gpu = "H100"; }, {}},
      {"negative share of others",
       [](JobSpec& j) { j.cluster.reserved_for_others_bytes = -1; },
       {"job.cluster.reserved_for_others_bytes: -1; must be from 0 to 1125899906842624"}},
      {"nothing left",
       [](JobSpec& j) { j.cluster.reserved_for_others_bytes = int64_t{79} << 30; },
       {"job.cluster.reserved_for_others_bytes: 84825604096; must be below the GPU's memory of "
        "84825604096 bytes"}},
      {"no GPUs",
       [](JobSpec& j) { j.cluster.gpu_count = 0; },
       {"job.cluster.gpu_count: 0; must be from 1 to 1048576"}},
      {"too many GPUs",
       [](JobSpec& j) { j.cluster.gpu_count = 1048577; },
       {"job.cluster.gpu_count: 1048577; must be from 1 to 1048576"}},
      {"empty nodes",
       [](JobSpec& j) { j.cluster.gpus_per_node = 0; },
       {"job.cluster.gpus_per_node: 0; must be from 1 to 1024"}},
      {"a large node",
       [](JobSpec& j) { j.cluster.gpus_per_node = 1025; },
       {"job.cluster.gpus_per_node: 1025; must be from 1 to 1024"}},
      {"risk zero", [](JobSpec& j) { j.risk = 0; }, {"risk: 0; must be from 0.0001 to 0.5"}},
      {"risk above a half",
       [](JobSpec& j) { j.risk = 0.6; },
       {"risk: 0.6; must be from 0.0001 to 0.5"}},
  };
  return *kRows;
}

const std::vector<Refusal>& Frameworks() {
  static const auto* const kRows = new std::vector<Refusal>{
      {"unknown framework",
       [](JobSpec& j) { j.runtime.framework = "pytorch"; },
       {std::string("job.runtime.framework: pytorch; must be one of ") + kFrameworkNames}},
      {"an era", [](JobSpec& j) { j.runtime.versions["torch"] = "2.4.1"; }, {}},
      {"a major version alone", [](JobSpec& j) { j.runtime.versions["torch"] = "2"; }, {}},
      {"an old version",
       [](JobSpec& j) { j.runtime.versions["torch"] = "1.9"; },
       {"job.runtime.versions.torch: 1.9; is older than every era that is modelled"}},
      {"no version",
       [](JobSpec& j) { j.runtime.versions["torch"] = "nightly"; },
       {"job.runtime.versions.torch: nightly; must be a version such as 2.4"}},
      {"half a version",
       [](JobSpec& j) { j.runtime.versions["torch"] = "2.x"; },
       {"job.runtime.versions.torch: 2.x; must be a version such as 2.4"}},
      {"a version of ten thousand",
       [](JobSpec& j) { j.runtime.versions["torch"] = "10000.1"; },
       {"job.runtime.versions.torch: 10000.1; must be a version such as 2.4"}},
      {"more versions than there are packages",
       [](JobSpec& j) {
         for (int i = 0; i < 65; ++i) j.runtime.versions[std::to_string(i)] = "1";
       },
       {"job.runtime.versions: 65 names; must be at most 64"}},
      {"a package that moves nothing",
       [](JobSpec& j) { j.runtime.versions["numpy"] = "2.0"; },
       {"job.runtime.versions.numpy: 2.0; moves no byte of ddp; only torch and nccl do"}},
      {"another framework's package",
       [](JobSpec& j) { j.runtime.versions["nanotron"] = "0.4"; },
       {"job.runtime.versions.nanotron: 0.4; moves no byte of ddp; only torch and nccl do"}},
      {"a package that moves nothing of Megatron",
       [](JobSpec& j) {
         j.runtime.framework = "megatron-core", j.runtime.versions["deepspeed"] = "0.14";
       },
       {"job.runtime.versions.deepspeed: 0.14; moves no byte of megatron-core; only "
        "megatron-core, torch and nccl do"}},
      {"the torch below another framework",
       [](JobSpec& j) {
         j.runtime.framework = "megatron-core", j.runtime.versions["torch"] = "2.10";
       },
       {}},
      {"a trainer of an era",
       [](JobSpec& j) {
         j.runtime.trainer = "torchtitan", j.runtime.versions["torchtitan"] = "2025.3";
       },
       {}},
      {"a trainer where a framework is due",
       [](JobSpec& j) { j.runtime.framework = "hf-trainer"; },
       {"job.runtime.framework: hf-trainer; is a trainer: it goes to runtime.trainer, with one of "
        "ddp, fsdp1, fsdp2, deepspeed as the framework"}},
      {"a framework where a trainer is due",
       [](JobSpec& j) { j.runtime.trainer = "fsdp2"; },
       {"job.runtime.trainer: fsdp2; is a framework: it goes to runtime.framework"}},
      {"an unknown trainer",
       [](JobSpec& j) { j.runtime.trainer = "torchtitans"; },
       {"job.runtime.trainer: torchtitans; must be one of torchtitan, torchtune, litgpt, "
        "nemo-automodel, hf-trainer, trl"}},
      {"a trainer on what it does not run on",
       [](JobSpec& j) { j.runtime.trainer = "litgpt", j.runtime.framework = "nanotron"; },
       {"job.runtime.trainer: litgpt; does not run on nanotron"}},
      {"a trainer before its time",
       [](JobSpec& j) {
         j.runtime.trainer = "torchtitan", j.runtime.versions["torchtitan"] = "2023.12";
       },
       {"job.runtime.versions.torchtitan: 2023.12; is older than every era that is modelled"}},
      {"the version of a trainer that is not named",
       [](JobSpec& j) { j.runtime.versions["torchtitan"] = "2025.3"; },
       {"job.runtime.versions.torchtitan: 2025.3; moves no byte of ddp; only torch and nccl do"}},
  };
  return *kRows;
}

TEST(ValidateClusterTest, OneGpuWithMemoryLeft) { ExpectRefusals(SmallJob(), Gpus()); }
TEST(ValidateClusterTest, AFrameworkOfAnEra) { ExpectRefusals(SmallJob(), Frameworks()); }

TEST(ValidateClusterTest, WhatOthersReserveIsNotUsable) {
  JobSpec job = SmallJob();
  EXPECT_EQ(Valid(job)->usable_bytes, int64_t{79} << 30);
  job.cluster.reserved_for_others_bytes = int64_t{9} << 30;
  EXPECT_EQ(Valid(job)->usable_bytes, int64_t{70} << 30);
}

TEST(ValidateClusterTest, AnUnknownGpuIsWarnedOf) {
  JobSpec job = SmallJob();
  job.cluster.gpu.reset();
  job.cluster.gpu_memory_bytes = int64_t{1} << 34;
  const ValidJob valid = Valid(job);
  ASSERT_EQ(valid->warnings.size(), 1u);
  EXPECT_EQ(valid->warnings[0].code, "unknown-gpu");
  EXPECT_EQ(valid->warnings[0].field, "job.cluster.gpu_memory_bytes");
}

TEST(ValidateClusterTest, ANameOfSeveralGpusIsTakenAsOneAndSaid) {
  JobSpec job = SmallJob();
  const auto said = [&job](const char* gpu) {
    job.cluster.gpu = gpu;
    const ValidJob valid = Valid(job);
    std::string text;
    for (const Assumption& assumption : valid->assumptions) {
      if (assumption.field == "cluster.gpu") {
        absl::StrAppend(&text, assumption.text, " (", assumption.reason, ")");
      }
    }
    return text;
  };
  EXPECT_EQ(said("A100"), "a100-80gb-sxm (could also be a100-40gb-sxm)");
  EXPECT_EQ(said("a100-80gb-sxm"), "");
  EXPECT_EQ(said("h100"), "");
}

// A framework that is left open follows from what is sharded.
TEST(ValidateClusterTest, TheFrameworkFollowsFromTheZeroStage) {
  const std::pair<int64_t, Framework> cases[] = {{0, Framework::kDdp},
                                                 {1, Framework::kDeepSpeed},
                                                 {2, Framework::kDeepSpeed},
                                                 {3, Framework::kFsdp2}};
  for (const auto& [stage, framework] : cases) {
    JobSpec job = SmallJob();
    job.runtime.framework.reset();
    job.parallelism.zero_stage = stage;
    EXPECT_EQ(Valid(job)->profile->framework, framework) << "ZeRO " << stage;
  }
}

TEST(ValidateClusterTest, AVersionPicksTheEra) {
  JobSpec job = With(SmallJob(), "nanotron");
  EXPECT_EQ(Valid(job)->profile->stages, StageRule::kByCostReached) << "newest";
  job.runtime.versions["nanotron"] = "0.4";
  EXPECT_EQ(Valid(job)->profile->stages, StageRule::kByCost);
  job.runtime.versions["nanotron"] = "0.3";
  EXPECT_THAT(Refusals(job),
              ::testing::ElementsAre("job.runtime.versions.nanotron: 0.3; is older than every era "
                                     "that is modelled"));
}

}  // namespace
}  // namespace plimsoll
