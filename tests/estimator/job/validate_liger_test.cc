// Liger's kernels: layers that have one, who runs them, and what stands beside them that nothing
// was held against.
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/refusals.h"

namespace plimsoll {
namespace {

JobSpec Job(absl::string_view framework = "ddp", absl::string_view preset = "bf16-pure") {
  JobSpec job = With(SmallJob(), framework, preset);
  job.runtime.liger_kernel = true;
  return job;
}

std::string NotModelled(absl::string_view field) {
  return absl::StrCat("job.", field, "; is not modelled with Liger's kernels");
}

void Change(JobSpec& job, void (*change)(Transformer&)) { job = WithModel(job, change); }

TEST(ValidateLigerTest, LayersHaveKernels) {
  ExpectRefusals(
      Job(),
      {
          {"Llama's", [](JobSpec&) {}, {}},
          {"Gemma's", [](JobSpec& j) { Shape(j).activation = "gelu-tanh"; }, {}},
          {"Qwen3's", [](JobSpec& j) { Shape(j).qk_norm = "per-head"; }, {}},
          {"GPT-2's",
           [](JobSpec& j) {
             Shape(j).gated_mlp = false, Shape(j).activation = "gelu";
             Shape(j).norm = "layer-norm", Shape(j).mlp_bias = true;
             Shape(j).position_embedding = "learned";
           },
           {NotModelled("model: an MLP without a gate"), NotModelled("model: biases of MLPs"),
            NotModelled("model: layer-norm"), NotModelled("model: learned")}},
          {"a gate without a kernel",
           [](JobSpec& j) { Shape(j).activation = "gelu"; },
           {NotModelled("model: gelu")}},
          {"norms behind sublayers",
           [](JobSpec& j) { Shape(j).norm_placement = "post-only"; },
           {NotModelled("model: post-only")}},
          {"norms of all heads",
           [](JobSpec& j) { Shape(j).qk_norm = "full"; },
           {NotModelled("model: full")}},
          {"heads of which a part is rotated",
           [](JobSpec& j) { Change(j, [](Transformer& m) { m.concatenates_rotary = true; }); },
           {NotModelled("model: heads that are rotated in part")}},
          {"an encoder of sentences",
           [](JobSpec& j) { Shape(j).head = "sequence-classification"; },
           {NotModelled("model: sequence-classification")}},
      });
}

TEST(ValidateLigerTest, WhatStandsBeside) {
  ExpectRefusals(
      Job("fsdp2"),
      {
          {"compiled layers",
           [](JobSpec& j) { j.runtime.compile = true; },
           {NotModelled("runtime.compile: true")}},
          {"another loss", [](JobSpec& j) { j.training.loss.implementation = "plain"; }, {}},
          {"an old one",
           [](JobSpec& j) { j.runtime.versions["liger-kernel"] = "0.5.10"; },
           {"job.runtime.versions.liger-kernel: 0.5; is older than every era that is modelled"}},
          {"its version, of a job that has it not",
           [](JobSpec& j) {
             j.runtime.liger_kernel = false;
             j.runtime.versions["liger-kernel"] = "0.8";
           },
           {"job.runtime.versions.liger-kernel: 0.8; moves no byte of fsdp2; only torch and nccl "
            "do"}},
          {"pairs of answers",
           [](JobSpec& j) { j.training.preference.method = "dpo"; },
           {NotModelled("training.preference.method: dpo")}},
      });
  JobSpec split = Job("fsdp2");
  split.parallelism.context_parallel_size = 2;
  EXPECT_THAT(Refusals(split),
              testing::Contains(NotModelled("parallelism.context_parallel_size: 2")));
}

TEST(ValidateLigerTest, TrainersWithLayersOfTheirOwnLackThem) {
  for (const char* trainer : {"torchtitan", "torchtune"}) {
    JobSpec job = Job("fsdp2");
    job.runtime.trainer = trainer;
    EXPECT_THAT(Refusals(job),
                testing::Contains(absl::StrCat("job.runtime.liger_kernel: set; ", trainer,
                                               " does not have it: its layers are its own")));
  }
  JobSpec job = Job("megatron-core");
  EXPECT_THAT(Refusals(job),
              testing::Contains(testing::HasSubstr("job.runtime.liger_kernel: set")));
}

// Its loss comes with it, but where a trainer has its own head.
TEST(ValidateLigerTest, ItsLossComesWithIt) {
  JobSpec job = Job();
  EXPECT_EQ(Valid(job)->loss, LossImplementation::kFused);
  job.runtime.trainer = "trl";
  EXPECT_EQ(Valid(job)->loss, LossImplementation::kTiledLogProbs);
  job.runtime.trainer = "hf-trainer";
  EXPECT_EQ(Valid(job)->loss, LossImplementation::kFused);
  job.training.loss.implementation = "plain";
  EXPECT_EQ(Valid(job)->loss, LossImplementation::kPlain);
}

}  // namespace
}  // namespace plimsoll
