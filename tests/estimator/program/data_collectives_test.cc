// What data parallelism sends, in words: how often, of what, over how many ranks, beside what.
#include "estimator/program/data_collectives.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

struct Layout {
  absl::string_view framework;
  int64_t data = 8;
  int64_t zero_stage = 0;
  int64_t shard_group_size = 0;
  int64_t pipeline = 1;
  int64_t micro_batches = 3;
  bool reshard = true;
};

JobSpec SpecOf(const Layout& layout) {
  JobSpec spec = With(SmallJob(), layout.framework);
  spec.parallelism.data_parallel_size = layout.data;
  spec.parallelism.pipeline_parallel_size = layout.pipeline;
  spec.parallelism.zero_stage = layout.zero_stage;
  if (layout.shard_group_size > 0) spec.parallelism.shard_group_size = layout.shard_group_size;
  if (!layout.reshard) spec.runtime.reshard_after_forward = false;
  spec.training.global_batch_size =
      layout.data * layout.micro_batches * *spec.training.micro_batch_size;
  return spec;
}

// "<times> <kind> <what>/<shards> over <ranks> beside <what>", a row a line.
std::string Text(const JobSpec& spec) {
  constexpr const char* kKinds[] = {"gather", "reduce-scatter", "all-reduce", "all-to-all"};
  constexpr const char* kWhat[] = {" gradients", " weights", " signs"};
  constexpr const char* kBeside[] = {"compute", "backward", "nothing"};
  std::string text;
  for (const DataCollective& row : DataCollectivesOf(*Valid(spec))) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", row.times, " ",
                    kKinds[static_cast<size_t>(row.kind)], row.experts ? " experts'" : "",
                    kWhat[static_cast<size_t>(row.what)], row.frozen ? " and frozen" : "",
                    row.shards > 1 ? "/" : "", row.shards > 1 ? absl::StrCat(row.shards) : "",
                    " over ", row.group.size(), " beside ",
                    kBeside[static_cast<size_t>(row.beside)]);
  }
  return text;
}

std::string Text(const Layout& layout) { return Text(SpecOf(layout)); }

TEST(DataCollectivesTest, OneCopyOfTheModelSendsNothing) {
  for (const char* framework : {"ddp", "megatron-core", "deepspeed", "nanotron"}) {
    EXPECT_EQ(Text({.framework = framework, .data = 1}), "") << framework;
  }
  EXPECT_EQ(Text({.framework = "fsdp2", .data = 1, .zero_stage = 3}), "");
}

TEST(DataCollectivesTest, CopiesReduceOnceAStepBesideBackward) {
  const char* const once = "1 all-reduce gradients over 8 beside backward";
  EXPECT_EQ(Text({.framework = "ddp"}), once);
  EXPECT_EQ(Text({.framework = "nanotron"}), once);
  EXPECT_EQ(Text({.framework = "megatron-core"}), once);
}

TEST(DataCollectivesTest, SignsAreExchangedBehindBackward) {
  JobSpec job = SpecOf({.framework = "deepspeed"});
  job.runtime.versions["deepspeed"] = "0.18";
  job.training.optimizer.name = "onebit-adam";
  EXPECT_EQ(Text(job),
            "1 all-to-all signs over 8 beside nothing; 1 gather signs over 8 beside nothing");
}

TEST(DataCollectivesTest, ShardsOfStatesAreGatheredBehindTheStep) {
  const char* const behind =
      "1 reduce-scatter gradients over 8 beside backward; 1 gather weights over 8 beside nothing";
  EXPECT_EQ(Text({.framework = "megatron-core", .zero_stage = 1}), behind);
  EXPECT_EQ(Text({.framework = "deepspeed", .zero_stage = 1}), behind);
  EXPECT_EQ(Text({.framework = "deepspeed", .zero_stage = 2}),
            "3 reduce-scatter gradients over 8 beside compute; 1 gather weights over 8 beside "
            "compute")
      << "each micro-batch's gradients leave its rank";
}

TEST(DataCollectivesTest, ShardsOfWeightsAreGatheredAsLayersRun) {
  EXPECT_EQ(Text({.framework = "fsdp2", .zero_stage = 3}),
            "3 reduce-scatter gradients over 8 beside compute; 6 gather weights and frozen over 8 "
            "beside compute");
  EXPECT_EQ(Text({.framework = "fsdp2", .zero_stage = 3, .reshard = false}),
            "3 reduce-scatter gradients over 8 beside compute; 3 gather weights and frozen over 8 "
            "beside compute");
  EXPECT_EQ(Text({.framework = "fsdp2", .zero_stage = 3, .pipeline = 2, .reshard = false}),
            "1 reduce-scatter gradients over 8 beside compute; 1 gather weights and frozen over 8 "
            "beside compute")
      << "a pipeline keeps what it gathered";
}

// A policy that runs forward without gradients first is gathered for that too, unless it stays.
TEST(DataCollectivesTest, WeightsAreGatheredForEachForward) {
  JobSpec job = SpecOf({.framework = "fsdp2", .zero_stage = 3});
  job.training.preference.method = "grpo";
  EXPECT_THAT(Text(job), testing::HasSubstr("9 gather weights and frozen over 8"));
  job.training.preference.method = "dpo";
  EXPECT_THAT(Text(job), testing::HasSubstr("6 gather weights and frozen over 8"));
  job.training.preference.method = "grpo";
  job.runtime.reshard_after_forward = false;
  EXPECT_THAT(Text(job), testing::HasSubstr("3 gather weights and frozen over 8"));
}

TEST(DataCollectivesTest, CopiesOfShardsReduceTheirShard) {
  EXPECT_EQ(Text({.framework = "fsdp2", .data = 16, .zero_stage = 3, .shard_group_size = 4}),
            "3 reduce-scatter gradients over 4 beside compute; 6 gather weights and frozen over 4 "
            "beside compute; 3 all-reduce gradients/4 over 4 beside compute");
}

// Experts over four ranks are the same on two of eight.
TEST(DataCollectivesTest, ExpertsHaveCopiesOfTheirOwn) {
  JobSpec spec = SpecOf({.framework = "megatron-core"});
  TransformerSpec& shape = Shape(spec);
  shape.expert_count = 8;
  shape.active_expert_count = 2;
  shape.expert_ffn_size = 96;
  spec.parallelism.expert_parallel_size = 4;
  EXPECT_EQ(Text(spec),
            "1 all-reduce gradients over 8 beside backward; 1 all-reduce experts' gradients over 2 "
            "beside backward");
  spec.parallelism.zero_stage = 1;
  EXPECT_EQ(
      Text(spec),
      "1 reduce-scatter gradients over 8 beside backward; 1 gather weights over 8 beside "
      "nothing; 1 reduce-scatter experts' gradients over 2 beside backward; 1 gather experts' "
      "weights over 2 beside nothing");
  spec.parallelism.expert_parallel_size = 8;
  spec.parallelism.zero_stage = 0;
  EXPECT_EQ(Text(spec), "1 all-reduce gradients over 8 beside backward")
      << "experts that nobody else has are sent to nobody";
}

// Those of torchtitan are of their layer's group, but where ranks have experts apart.
TEST(DataCollectivesTest, TorchtitansExpertsAreSharedOutByThoseThatHaveThem) {
  JobSpec spec = SpecOf({.framework = "fsdp2", .zero_stage = 3});
  spec.runtime.trainer = "torchtitan";
  TransformerSpec& shape = Shape(spec);
  shape.expert_count = 8;
  shape.active_expert_count = 2;
  shape.expert_ffn_size = 96;
  const std::string all =
      "3 reduce-scatter gradients over 8 beside compute; 6 gather weights and frozen over 8 beside "
      "compute";
  EXPECT_EQ(Text(spec), all);
  spec.parallelism.expert_parallel_size = 4;
  EXPECT_EQ(Text(spec), all +
                            "; 3 reduce-scatter experts' gradients over 2 beside compute; 6 gather "
                            "experts' weights and frozen over 2 beside compute");
}

}  // namespace
}  // namespace plimsoll
