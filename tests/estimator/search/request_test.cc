#include "estimator/search/request.h"

#include <functional>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

std::vector<std::string> Wrong(const RecommendSpec& spec) {
  std::vector<std::string> texts;
  const auto checked = CheckRequest(spec, SmallCatalog());
  if (const auto* violations = std::get_if<Violations>(&checked)) {
    for (const Violation& violation : *violations) texts.push_back(ToText(violation));
  }
  return texts;
}

struct Case {
  const char* name;
  std::function<void(RecommendSpec&)> edit;
  const char* text;
};

class RequestTest : public ::testing::TestWithParam<Case> {};

TEST_P(RequestTest, IsRefusedInWords) {
  RecommendSpec spec;
  spec.job = TightJob();
  GetParam().edit(spec);
  EXPECT_THAT(Wrong(spec), ElementsAre(GetParam().text));
}

const Case kCases[] = {
    {"objective", [](RecommendSpec& spec) { spec.objective = "fast"; },
     "objective: fast; must be one of fastest, fewest-gpus, cheapest, smallest-change"},
    {"results", [](RecommendSpec& spec) { spec.max_results = 101; },
     "max_results: 101; must be from 0 to 100"},
    {"offload",
     [](RecommendSpec& spec) {
       spec.job.runtime.framework = "ddp";
       spec.job.runtime.trainer = "trl";
       spec.job.training.recompute.mode = "full";
       spec.job.runtime.offload_activations = true;
     },
     "job.runtime.offload_activations: true; is not modelled in a search: nothing tells how long "
     "the host's link takes"},
    {"negative", [](RecommendSpec& spec) { spec.max_results = -1; },
     "max_results: -1; must be from 0 to 100"},
    {"count",
     [](RecommendSpec& spec) {
       spec.gpu_counts = {8, 0};
     },
     "gpu_counts: 0; must be from 1 to 1048576"},
    {"counts", [](RecommendSpec& spec) { spec.gpu_counts.assign(257, 8); },
     "gpu_counts: 257 numbers; must be at most 256"},
    {"gpu",
     [](RecommendSpec& spec) {
       spec.gpus = {"h100", "h1000"};
     },
     "gpus: h1000; must be one of a100-80gb-sxm, b200-180gb, h100-80gb-sxm, mi300x-192gb, "
     "rtx-4090, v100-32gb-sxm"},
    {"gpus", [](RecommendSpec& spec) { spec.gpus.assign(17, "h100"); },
     "gpus: 17 GPUs; must be at most 16"},
    {"frozen", [](RecommendSpec& spec) { spec.frozen = {"parallelism.zero_stge"}; },
     "frozen: parallelism.zero_stge; is not known; nearest: parallelism.zero_stage"},
    {"frozen_below_the_model",
     [](RecommendSpec& spec) { spec.frozen = {"model.transformer.hiden_size"}; },
     "frozen: model.transformer.hiden_size; is not known; nearest: "
     "model.transformer.hidden_size, model.transformer.ffn_size, model.transformer.head_size"},
    {"frozen_below_the_runtime", [](RecommendSpec& spec) { spec.frozen = {"runtime.compiled"}; },
     "frozen: runtime.compiled; is not known; nearest: runtime.compile"},
    {"frozen_control_characters", [](RecommendSpec& spec) { spec.frozen = {"a\n\x1b"}; },
     "frozen: a\\n\\033; is not known"},
    {"too_many_frozen", [](RecommendSpec& spec) { spec.frozen.assign(65, "model"); },
     "frozen: 65 fields; must be at most 64"},
    {"too_many_allowed", [](RecommendSpec& spec) { spec.allowed_changes.assign(65, "cluster"); },
     "allowed_changes: 65 fields; must be at most 64"},
    {"allowed_unknown",
     [](RecommendSpec& spec) {
       spec.allowed_changes = {"parallelism.zero_stge", "training.recompute"};
     },
     "allowed_changes: parallelism.zero_stge; is not known; nearest: parallelism.zero_stage"},
    {"allowed_in_vain",
     [](RecommendSpec& spec) { spec.allowed_changes = {"training.sequence_length"}; },
     "allowed_changes: training.sequence_length; is never changed by a search"},
    {"allowed_section_in_vain", [](RecommendSpec& spec) { spec.allowed_changes = {"runtime"}; },
     "allowed_changes: runtime; is never changed by a search"},
    {"allowed_part",
     [](RecommendSpec& spec) { spec.allowed_changes = {"training.recompute.mode"}; },
     "allowed_changes: training.recompute.mode; changes with the whole of training.recompute"},
    {"allowed_following",
     [](RecommendSpec& spec) { spec.allowed_changes = {"parallelism.data_parallel_size"}; },
     "allowed_changes: parallelism.data_parallel_size; follows from other fields, allow these"},
    {"gpus_beside_a_frozen_gpu",
     [](RecommendSpec& spec) {
       spec.frozen = {"cluster.gpu"};
       spec.gpus = {"h100"};
     },
     "gpus: h100; must be empty where job.cluster.gpu may not change"},
    {"gpus_that_are_not_allowed",
     [](RecommendSpec& spec) {
       spec.allowed_changes = {"parallelism", "cluster.gpu_count"};
       spec.gpus = {"h100"};
     },
     "gpus: h100; must be empty where job.cluster.gpu may not change"},
    {"counts_beside_a_frozen_count",
     [](RecommendSpec& spec) {
       spec.frozen = {"*"};
       spec.gpu_counts = {16, 32};
     },
     "gpu_counts: 16; must be empty where job.cluster.gpu_count may not change"},
    {"counts_that_are_not_allowed",
     [](RecommendSpec& spec) {
       spec.allowed_changes = {"parallelism"};
       spec.gpu_counts = {16};
     },
     "gpu_counts: 16; must be empty where job.cluster.gpu_count may not change"},
    {"two_prices",
     [](RecommendSpec& spec) {
       spec.gpu_hour_prices = {{"h100-80gb-sxm", 2.5}, {"h100", 3}};
     },
     "gpu_hour_prices.h100-80gb-sxm: 2.5; is a second price of h100-80gb-sxm"},
    {"price",
     [](RecommendSpec& spec) {
       spec.gpu_hour_prices = {{"h100", -1}};
     },
     "gpu_hour_prices.h100: -1; must be above 0, below 10^9"},
    {"prices",
     [](RecommendSpec& spec) {
       for (int i = 0; i < 65; ++i) spec.gpu_hour_prices[std::to_string(i)] = 1;
     },
     "gpu_hour_prices: 65 prices; must be at most 64"},
    {"unpriced", [](RecommendSpec& spec) { spec.objective = "cheapest"; },
     "gpu_hour_prices: unset; must have rtx-4090 with objective cheapest"},
    {"unknown_gpu",
     [](RecommendSpec& spec) {
       spec.job.cluster.gpu.reset();
       spec.job.cluster.gpu_memory_bytes = int64_t{80} << 30;
     },
     "job.cluster.gpu: unset; must be set: the time of a step follows from it"},
};
INSTANTIATE_TEST_SUITE_P(Cases, RequestTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(RequestTest, TheJobsOwnGpuIsTheOneToHaveAPrice) {
  RecommendSpec spec;
  spec.job = TightJob();
  spec.objective = "cheapest";
  spec.gpu_hour_prices = {{"h100", 2.5}};
  EXPECT_THAT(Wrong(spec),
              ElementsAre("gpu_hour_prices: unset; must have rtx-4090 with objective cheapest"));
}

TEST(RequestTest, RefusesAJobBeyondAllMemory) {
  RecommendSpec spec;
  spec.job = TightJob();
  spec.job.training.sequence_length = int64_t{1} << 27;
  spec.job.training.micro_batch_size = int64_t{1} << 20;
  spec.job.training.global_batch_size = int64_t{1} << 23;
  EXPECT_THAT(Wrong(spec),
              ElementsAre("job: 2^60 bytes or more on one GPU; must need less than 2^60 bytes"));
}

TEST(RequestTest, SaysEverythingAtOnce) {
  RecommendSpec spec;
  spec.job = TightJob();
  spec.job.training.sequence_length = 0;
  spec.objective = "fast";
  spec.max_results = 1000;
  EXPECT_EQ(Wrong(spec).size(), 3u);
}

// 64 ranks cannot share a batch of 16; eight by eight can.
TEST(RequestTest, SettlesWhatWasLeftOpen) {
  RecommendSpec spec;
  spec.job = TightJob();
  spec.job.cluster.gpu_count = 64;
  const auto request = std::get<Request>(CheckRequest(spec, SmallCatalog()));
  EXPECT_EQ(request.job->tensor_parallel_size, 4) << "20 heads";
  EXPECT_EQ(request.job->pipeline_parallel_size, 1);
  EXPECT_EQ(request.spec.job.parallelism.tensor_parallel_size, 4);
  spec.job.parallelism.tensor_parallel_size = 1;
  spec.job.parallelism.pipeline_parallel_size = 1;
  EXPECT_THAT(Wrong(spec), ElementsAre("job.training.global_batch_size: 16; must be a multiple of "
                                       "micro_batch_size x data_parallel_size, 64"))
      << "what was asked for stands";
}

// What was settled for the request, a line each.
std::vector<std::string> Said(const Request& request) {
  std::vector<std::string> lines;
  for (const Settled& settled : request.assumptions) {
    lines.push_back(absl::StrCat(settled.field, ": ", settled.value, ": ", settled.reason));
  }
  return lines;
}

TEST(RequestTest, ConsidersTheUsualNumbersOfGpusWhereNoneIsSaid) {
  EXPECT_THAT(UsualGpuCounts(8), ElementsAre(1, 2, 4, 8, 16, 32, 64));
  EXPECT_THAT(UsualGpuCounts(1), ElementsAre(1, 2, 4, 8, 16, 32, 64));
  EXPECT_THAT(UsualGpuCounts(6), ElementsAre(1, 2, 4, 6, 12, 24, 48));
  EXPECT_THAT(UsualGpuCounts(72), ElementsAre(1, 2, 4, 8, 16, 32, 64, 72));
  RecommendSpec spec;
  spec.job = TightJob();
  spec.job.cluster.gpu_count.reset();
  auto request = std::get<Request>(CheckRequest(spec, SmallCatalog()));
  EXPECT_THAT(request.spec.gpu_counts, ElementsAre(1, 2, 4, 8, 16, 32, 64));
  EXPECT_EQ(request.job->gpu_count, 16) << "more cannot share a batch of 16";
  EXPECT_EQ(request.objective, Objective::kFewestGpus);
  EXPECT_THAT(Said(request),
              ElementsAre("gpu_counts: 1, 2, 4, 8, 16, 32, 64: powers of two within a node, then "
                          "of whole nodes",
                          "job.cluster.gpu_count: 16: the most of those considered that the job "
                          "is legal on",
                          "objective: fewest-gpus: more GPUs are always faster"));
  spec.objective = "fastest";
  spec.gpu_counts = {4, 8};
  request = std::get<Request>(CheckRequest(spec, SmallCatalog()));
  EXPECT_EQ(request.job->gpu_count, 8);
  EXPECT_EQ(request.objective, Objective::kFastest);
  EXPECT_THAT(Said(request), ElementsAre("job.cluster.gpu_count: 8: the most of those considered "
                                         "that the job is legal on"));
}

// What the job says, or may not change, is not open.
TEST(RequestTest, LeavesTheNumberOfGpusThatAJobHas) {
  RecommendSpec spec;
  spec.job = TightJob();
  const auto is_open = [&] {
    const auto request = std::get<Request>(CheckRequest(spec, SmallCatalog()));
    return !request.assumptions.empty() || request.objective != Objective::kFastest;
  };
  EXPECT_FALSE(is_open());
  spec.job.cluster.gpu_count.reset();
  EXPECT_TRUE(is_open());
  spec.frozen = {"cluster.gpu_count"};
  EXPECT_FALSE(is_open());
  spec.frozen.clear();
  spec.job.parallelism.data_parallel_size = 8;
  EXPECT_FALSE(is_open());
}

TEST(RequestTest, SaysWhatIsWrongWithNumbersOfGpusBesideAJobWithout) {
  RecommendSpec spec;
  spec.job = TightJob();
  spec.job.cluster.gpu_count.reset();
  spec.gpu_counts = {0, 8};
  EXPECT_THAT(Wrong(spec), ElementsAre("gpu_counts: 0; must be from 1 to 1048576"));
  spec.gpu_counts.clear();
  spec.job.cluster.gpus_per_node = 0;
  EXPECT_THAT(Wrong(spec), ElementsAre("job.cluster.gpus_per_node: 0; must be from 1 to 1024"));
}

TEST(RequestTest, TakesFieldsThatNeverChange) {
  RecommendSpec spec;
  spec.job = TightJob();
  spec.frozen = {
      "training.sequence_length",       "model", "runtime.framework", "training.recompute.mode",
      "parallelism.data_parallel_size", "*"};
  EXPECT_THAT(Wrong(spec), ElementsAre());
}

TEST(RequestTest, TakesWhatASearchChangesAsAllowed) {
  RecommendSpec spec;
  spec.job = TightJob();
  spec.allowed_changes = {"parallelism.zero_stage", "training.recompute", "cluster", "training",
                          "*"};
  spec.gpus = {"h100"};
  spec.gpu_counts = {16};
  EXPECT_THAT(Wrong(spec), ElementsAre());
}

TEST(RequestTest, KnowsGpusByTheirAliases) {
  RecommendSpec spec;
  spec.job = TightJob();
  spec.gpus = {"H100"};
  spec.gpu_hour_prices = {{"h100", 2.5}};
  const auto request = std::get<Request>(CheckRequest(spec, SmallCatalog()));
  EXPECT_THAT(request.spec.gpus, ElementsAre("h100-80gb-sxm"));
  EXPECT_THAT(request.spec.gpu_hour_prices,
              UnorderedElementsAre(::testing::Pair("h100-80gb-sxm", 2.5)));
  EXPECT_TRUE(request.warnings.empty());
}

// A name of several GPUs is taken as one of them, and said, wherever it stands.
TEST(RequestTest, WarnsOfNamesThatMayMeanSeveralGpus) {
  RecommendSpec spec;
  spec.job = TightJob();
  spec.job.cluster.gpu = "a100";
  spec.gpus = {"A100", "h100"};
  spec.gpu_hour_prices = {{"a100", 1.5}};
  const auto request = std::get<Request>(CheckRequest(spec, SmallCatalog()));
  std::vector<std::string> warnings;
  for (const Warning& warning : request.warnings) {
    EXPECT_EQ(warning.code, "ambiguous-gpu");
    warnings.push_back(absl::StrCat(warning.field, ": ", warning.text));
  }
  EXPECT_THAT(warnings,
              ElementsAre("job.cluster.gpu: a100 is taken as a100-80gb-sxm; could also be "
                          "a100-40gb-sxm",
                          "gpus: A100 is taken as a100-80gb-sxm; could also be a100-40gb-sxm",
                          "gpu_hour_prices.a100: a100 is taken as a100-80gb-sxm; could also be "
                          "a100-40gb-sxm"));
}

}  // namespace
}  // namespace plimsoll
