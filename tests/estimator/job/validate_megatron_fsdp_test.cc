// What stands beside Megatron-FSDP, and what the job's version leaves open.
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/refusals.h"

namespace plimsoll {
namespace {

JobSpec Job() {
  JobSpec job = With(SmallJob(), "megatron-core");
  job.parallelism.data_parallel_size = 2;
  job.cluster.gpu_count = 2;
  job.parallelism.zero_stage = 3;
  return job;
}

std::string NotModelled(absl::string_view what) {
  return absl::StrCat("job.", what, "; is not modelled with Megatron-FSDP, zero_stage 2 and 3");
}

TEST(ValidateMegatronFsdpTest, WhatIsNotModelled) {
  ExpectRefusals(
      Job(),
      {
          {"weights", [](JobSpec&) {}, {}},
          {"gradients alone", [](JobSpec& j) { j.parallelism.zero_stage = 2; }, {}},
          {"plain SGD", [](JobSpec& j) { j.training.optimizer.name = "sgd"; }, {}},
          {"another optimizer",
           [](JobSpec& j) { j.training.optimizer.name = "lion"; },
           {"job.training.optimizer.name: lion; is not what Megatron-FSDP, zero_stage 2 and 3, "
            "steps: adam, adamw and sgd are"}},
          {"stages",
           [](JobSpec& j) {
             j.parallelism.pipeline_parallel_size = 2;
             j.cluster.gpu_count = 4;
           },
           {NotModelled("parallelism.pipeline_parallel_size: 2")}},
          {"one token further",
           [](JobSpec& j) { j.training.mtp_layer_count = 1; },
           {NotModelled("training.mtp_layer_count: 1")}},
          {"a checkpoint of DTensors",
           [](JobSpec& j) { j.training.resumed_from_checkpoint = true; },
           {NotModelled("training.resumed_from_checkpoint: true")}},
          {"fp32 weights",
           [](JobSpec& j) { j.training.precision.preset = "fp32"; },
           {NotModelled("training.precision.preset: fp32")}},
          {"buckets that nothing has",
           [](JobSpec& j) {
             j.parallelism.zero_stage = 1;
             j.runtime.overlap_communication = true;
           },
           {"job.runtime.overlap_communication: true; moves no byte without Megatron-FSDP, which "
            "zero_stage 2 and 3 are"}},
          {"custom FSDP",
           [](JobSpec& j) { j.runtime.versions["megatron-core"] = "0.13"; },
           {"job.parallelism.zero_stage: 3; is not modelled with megatron-core: Megatron-FSDP was "
            "custom FSDP, and other code"}},
      });
}

// Until core 0.18 gradients were summed in fp32, later in the weights' dtype, where nothing is
// said.
TEST(ValidateMegatronFsdpTest, SumsGradientsAsItsReleaseDoes) {
  JobSpec job = Job();
  EXPECT_EQ(Valid(job)->precision.accumulation, DType::kBf16);
  job.runtime.versions["megatron-core"] = "0.18";
  EXPECT_EQ(Valid(job)->precision.accumulation, DType::kFp32);
  job.parallelism.zero_stage = 1;
  EXPECT_EQ(Valid(job)->precision.accumulation, DType::kFp32);
  EXPECT_EQ(Valid(job)->megatron_fsdp, nullptr);
}

TEST(ValidateMegatronFsdpTest, AnEraIsThatOfItsRelease) {
  EXPECT_EQ(FindMegatronFsdp(13), nullptr);
  EXPECT_EQ(FindMegatronFsdp(14), FindMegatronFsdp(17));
  EXPECT_FALSE(FindMegatronFsdp(17)->keeps_ends);
  EXPECT_TRUE(FindMegatronFsdp(18)->keeps_ends);
  EXPECT_FALSE(FindMegatronFsdp(19)->units_share_states);
  EXPECT_EQ(FindMegatronFsdp(-1), FindMegatronFsdp(20));
}

}  // namespace
}  // namespace plimsoll
