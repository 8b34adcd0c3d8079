// What Validate decides where a job says nothing: each decision is said, and saying it oneself
// gives the same job.
#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "estimator/job/fields.h"
#include "estimator/program/describe.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

using ::testing::Contains;
using ::testing::Not;

std::string Value(const Assumption& assumption) {
  return assumption.text.empty() ? absl::StrCat(assumption.number) : std::string(assumption.text);
}

// "field: value; reason" of each, in their order.
std::vector<std::string> Assumed(const JobSpec& job) {
  std::vector<std::string> lines;
  const ValidJob valid = Valid(job);
  for (const Assumption& assumption : valid->assumptions) {
    lines.push_back(
        absl::StrCat(assumption.field, ": ", Value(assumption), "; ", assumption.reason));
  }
  return lines;
}

// Two of eight experts for each token.
void RouteTokens(JobSpec& job) {
  Shape(job).expert_count = 8;
  Shape(job).active_expert_count = 2;
  job.runtime.framework = "megatron-core";
}

struct Row {
  const char* name;
  void (*edit)(JobSpec&);
  const char* line;
};

constexpr Row kRows[] = {
    // The cluster.
    {"GPUs follow from the degrees", [](JobSpec& job) { job.parallelism.data_parallel_size = 4; },
     "cluster.gpu_count: 4; the product of the parallel sizes"},
    {"ranks follow from the GPUs", [](JobSpec& job) { job.cluster.gpu_count = 6; },
     "parallelism.data_parallel_size: 6; gpu_count / (tensor x context x pipeline parallel size)"},
    {"a node of all GPUs", [](JobSpec& job) { job.cluster.gpu_count = 4; },
     "cluster.gpus_per_node: 4; 8, or all where there are fewer"},
    {"nodes of eight", [](JobSpec& job) { job.cluster.gpu_count = 16; },
     "cluster.gpus_per_node: 8; 8, or all where there are fewer"},
    {"a name that may mean two", [](JobSpec& job) { job.cluster.gpu = "a100"; },
     "cluster.gpu: a100-80gb-sxm; could also be a100-40gb-sxm"},
    {"a model by its id", [](JobSpec& job) { job.model.source = std::string("hub/llama-8b"); },
     "model.name: llama-3.1-8b; the catalog's model of that Hugging Face id"},
    // The framework.
    {"no framework, sharded",
     [](JobSpec& job) {
       job.runtime.framework.reset();
       job.parallelism.zero_stage = 3;
       job.cluster.gpu_count = 2;
     },
     "runtime.framework: fsdp2; follows from parallelism.zero_stage"},
    {"no framework, offloaded",
     [](JobSpec& job) {
       job.runtime.framework.reset();
       job.runtime.offload_optimizer = true;
       job.parallelism.zero_stage = 3;
       job.cluster.gpu_count = 2;
     },
     "runtime.framework: deepspeed; follows from runtime.offload_optimizer"},
    {"stages by the framework",
     [](JobSpec& job) {
       job.runtime.framework = "fsdp2";
       job.cluster.gpu_count = 2;
     },
     "parallelism.zero_stage: 3; the framework's default"},
    {"sequences by the framework",
     [](JobSpec& job) {
       job.runtime.framework = "nanotron";
       job.parallelism.tensor_parallel_size = 2;
     },
     "parallelism.sequence_parallel: true; the framework's default"},
    {"padding",
     [](JobSpec& job) {
       Shape(job).vocab_size = 250;
       job.runtime.framework = "megatron-core";
     },
     "runtime.vocab_size_divisor: 128; the vocabulary is padded to a multiple of it x "
     "tensor_parallel_size"},
    // The batch.
    {"the smallest micro-batch", [](JobSpec& job) { job.training.micro_batch_size.reset(); },
     "training.micro_batch_size: 1; the smallest"},
    {"a micro-batch for each stage",
     [](JobSpec& job) {
       job.runtime.framework = "megatron-core";
       job.parallelism.pipeline_parallel_size = 4;
     },
     "training.global_batch_size: 8; one micro-batch per pipeline stage on each data-parallel "
     "rank"},
    // The pipeline.
    {"the usual schedule",
     [](JobSpec& job) {
       job.runtime.framework = "megatron-core";
       job.parallelism.pipeline_parallel_size = 4;
     },
     "parallelism.pipeline_schedule: 1f1b; the usual schedule"},
    {"the least that interleaves",
     [](JobSpec& job) {
       job.runtime.framework = "megatron-core";
       job.parallelism.pipeline_parallel_size = 2;
       job.parallelism.pipeline_schedule = "interleaved-1f1b";
     },
     "parallelism.virtual_pipeline_size: 2; the smallest that interleaves"},
    // What is trained, and how.
    {"AdamW", [](JobSpec&) {}, "training.optimizer.name: adamw; the usual one"},
    {"in a list", [](JobSpec&) {},
     "training.optimizer.implementation: foreach; the framework's default"},
    {"kernels",
     [](JobSpec& job) {
       job.training.recompute.mode = "selective";
       job.runtime.framework = "megatron-core";
     },
     "training.recompute.modules: core-attention; Megatron's default"},
    {"eight chunks",
     [](JobSpec& job) {
       job.runtime.framework = "fsdp2";
       job.runtime.trainer = "torchtitan";
       job.training.loss.implementation = "chunked";
     },
     "training.loss.chunk_count: 8; torchtitan's default"},
    {"queries and values", [](JobSpec& job) { job.training.adapter.method = "lora"; },
     "training.adapter.target_modules: q_proj, v_proj; PEFT's default for most models"},
    {"rank", [](JobSpec& job) { job.training.adapter.method = "lora"; },
     "training.adapter.rank: 8; PEFT's default"},
    {"QLoRA",
     [](JobSpec& job) {
       job.training.adapter.method = "qlora";
       job.training.precision.preset = "bf16-pure";
     },
     "training.quantization.format: nf4; what qlora is"},
    // Experts.
    {"tokens", RouteTokens, "model: tokens in equal shares; each expert is sent as many"},
    {"how they come", RouteTokens,
     "parallelism.token_dispatcher: all-gather; the framework's default"},
    {"who splits each",
     [](JobSpec& job) {
       RouteTokens(job);
       job.parallelism.tensor_parallel_size = 2;
       job.parallelism.sequence_parallel = true;
     },
     "parallelism.expert_tensor_parallel_size: 2; tensor_parallel_size, as there"},
};

TEST(AssumptionsTest, AreSaidWithTheirReason) {
  for (const Row& row : kRows) {
    JobSpec job = SmallJob();
    row.edit(job);
    EXPECT_THAT(Assumed(job), Contains(row.line)) << row.name;
  }
}

// Sets the field as it was assumed; not that of an era, which is said by a version.
bool State(const Assumption& assumption, JobSpec& job) {
  if (assumption.field == "runtime.trainer") return false;
  const FieldRow* const row = FindFieldRow(assumption.field);
  if (row == nullptr || row->place == nullptr) return false;
  const FieldPlace place = row->place(job);
  if (auto* const* number = std::get_if<std::optional<int64_t>*>(&place)) {
    **number = assumption.number;
  } else if (auto* const* word = std::get_if<std::optional<std::string>*>(&place)) {
    **word = std::string(assumption.text);
  } else if (auto* const* flag = std::get_if<std::optional<bool>*>(&place)) {
    **flag = assumption.text == "true";
  } else if (auto* const* words = std::get_if<std::vector<std::string>*>(&place)) {
    **words = absl::StrSplit(std::string(assumption.text), ", ");
  } else {
    return false;  // a layout is said by its first stage
  }
  return true;
}

// All of it in text, but for the states' order.
std::string InFull(const JobSpec& job) {
  return absl::StrCat(Describe(ProgramOf(job)), "peak ", PeakBytes(job));
}

TEST(AssumptionsTest, StatedTheyGiveTheSameJob) {
  std::mt19937_64 random(20261124);
  std::map<std::string, int> stated;
  for (int i = 0; i < Rounds(120); ++i) {
    const JobSpec job = i % 5 == 0 ? RandomDispatchedJob(random) : RandomJob(random);
    const std::string before = InFull(job);
    const ValidJob valid = Valid(job);
    for (const Assumption& assumption : valid->assumptions) {
      JobSpec said = job;
      if (!State(assumption, said)) continue;
      ASSERT_THAT(Refusals(said), ::testing::IsEmpty()) << assumption.field;
      EXPECT_EQ(InFull(said), before) << assumption.field << " " << Value(assumption);
      ++stated[std::string(assumption.field)];
    }
  }
  EXPECT_GT(stated.size(), Rounds(10)) << "random jobs leave much open";
}

// Else nodes of other sizes that move no time would be a riddle.
TEST(AssumptionsTest, LinksThatJoinNodesAreSaid) {
  Catalog catalog = SmallCatalog();
  catalog.gpus.at("b200-180gb").link_domain_size = 72;
  JobSpec job = SmallJob();
  job.cluster.gpu = "b200-180gb";
  const auto says = [&](int64_t gpus) {
    job.cluster.gpu_count = gpus;
    const auto valid = std::get<ValidJob>(Validate(job, catalog));
    return std::any_of(valid->assumptions.begin(), valid->assumptions.end(), [](const auto& at) {
      return at.field == "cluster.interconnect_bytes_per_second" &&
             absl::StrContains(at.reason, "links join those of several nodes");
    });
  };
  EXPECT_TRUE(says(16));
  EXPECT_FALSE(says(8)) << "one node";
  job.cluster.interconnect_bytes_per_second = 900'000'000'000;
  EXPECT_FALSE(says(16)) << "it is stated";
}

TEST(AssumptionsTest, WhatIsStatedIsNotAssumed) {
  std::mt19937_64 random(77);
  for (int i = 0; i < Rounds(80); ++i) {
    const JobSpec job = RandomJob(random);
    const ValidJob valid = Valid(job);
    for (const Assumption& assumption : valid->assumptions) {
      JobSpec said = job;
      if (!State(assumption, said)) continue;
      const ValidJob told = Valid(said);
      for (const Assumption& still : told->assumptions) {
        EXPECT_NE(still.field, assumption.field) << still.reason;
      }
    }
  }
}

TEST(AssumptionsTest, AllThatIsStatedLeavesNothingToAssume) {
  JobSpec job = SmallJob();
  int left = 0;
  const ValidJob valid = Valid(job);
  for (const Assumption& assumption : valid->assumptions) {
    if (!State(assumption, job)) ++left;
  }
  EXPECT_THAT(Refusals(job), ::testing::IsEmpty());
  EXPECT_EQ(static_cast<int>(Valid(job)->assumptions.size()), left);
  EXPECT_THAT(Assumed(job), Not(Contains(::testing::HasSubstr("training."))));
}

}  // namespace
}  // namespace plimsoll
