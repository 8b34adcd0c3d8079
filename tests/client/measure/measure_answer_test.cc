// The answer of `plimsoll measure` from what real runs of torch 2.15 left: each *.hook.json of
// results/ at several widths and as JSON.
// UPDATE_GOLDENS=1 rewrites the goldens; look at them before you commit them.
#include "client/measure/measure_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "client/io/text.h"
#include "client/measure/measurement.h"
#include "client/measure/profiled_job.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;
using testing::Not;

const MeasuredGpu kGpu = {
    .id = "h100-80gb-sxm", .usable_bytes = 85020639232, .context_bytes = 805306368};
const MeasuredGpu kSmall = {
    .id = "rtx-4090-24gb", .usable_bytes = 25382879232, .context_bytes = 446693376};

struct Case {
  const char* name;
  const MeasuredGpu& gpu;
};

std::filesystem::path PathOf(const std::string& name) {
  return std::filesystem::path(RESULTS) / name;
}

std::string ReadText(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Measurement ReadCase(const std::string& name) {
  const absl::StatusOr<Measurement> read = ReadMeasurement(ReadText(PathOf(name + ".hook.json")));
  EXPECT_TRUE(read.ok()) << read.status();
  return read.ok() ? *read : Measurement();
}

void CompareWithGolden(const std::string& name, const std::string& text) {
  if (std::getenv("UPDATE_GOLDENS") != nullptr) {
    std::ofstream(PathOf(name), std::ios::binary) << text;
  }
  EXPECT_EQ(text, ReadText(PathOf(name))) << name;
}

class MeasureAnswerTest : public testing::TestWithParam<Case> {};

TEST_P(MeasureAnswerTest, LooksAsBefore) {
  const std::string name = GetParam().name;
  const MeasuredGpu& gpu = GetParam().gpu;
  const Measurement measurement = ReadCase(name);
  CompareWithGolden(name + ".80.txt", ToTable({measurement, gpu}, {.width = 80, .unicode = true}));
  CompareWithGolden(name + ".120.txt",
                    ToTable({measurement, gpu}, {.width = 120, .unicode = true}));
  CompareWithGolden(name + ".json", ToJson({measurement, gpu}));
}

TEST_P(MeasureAnswerTest, StaysWithinTheWidth) {
  std::istringstream lines(ToTable({ReadCase(GetParam().name), GetParam().gpu}, {.width = 80}));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(DisplayWidth(line), 80) << line;
}

INSTANTIATE_TEST_SUITE_P(Results, MeasureAnswerTest,
                         testing::Values(Case{"one_gpu", kGpu}, Case{"many_ranks", kGpu},
                                         Case{"out_of_memory", kSmall}, Case{"profiled", kGpu}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(MeasureWordsTest, SaysWhatIsNotKnown) {
  Measurement measurement = ReadCase("one_gpu");
  const Terminal terminal;
  EXPECT_THAT(ToTable({measurement, kGpu}, terminal), Not(HasSubstr("context")));
  MeasuredGpu bare = kGpu;
  bare.context_bytes = 0;
  EXPECT_THAT(ToTable({measurement, bare}, terminal), HasSubstr("context takes is not known"));
  measurement.steps.clear();
  measurement.step_count = 0;
  EXPECT_THAT(ToTable({measurement, kGpu}, terminal),
              HasSubstr("No step of an optimizer was seen"));
  measurement.retry_count = 1;
  EXPECT_THAT(ToTable({measurement, kGpu}, terminal), HasSubstr("to get memory, 1 time:"));
}

TEST(MeasureWordsTest, CleansWhatTheProgramNamed) {
  Measurement measurement = ReadCase("one_gpu");
  measurement.alive[0].line = "\x1b[31mred.py:1";
  EXPECT_THAT(ToTable({measurement, kGpu}, Terminal()), Not(HasSubstr("\x1b")));
}

// What `plimsoll estimate` would say of it.
v1::EstimateMemoryResponse EstimateOf(v1::Verdict verdict) {
  v1::EstimateMemoryResponse estimate;
  estimate.set_verdict(verdict);
  estimate.set_usable_bytes(int64_t{80} << 30);
  v1::Gauge& device = *estimate.add_ranks()->mutable_device();
  device.set_expected_bytes(int64_t{50} << 30);
  device.set_bound_bytes(int64_t{60} << 30);
  v1::RoleBytes& nccl = *estimate.mutable_ranks(0)->add_breakdown();
  nccl.set_role(v1::ROLE_NCCL);
  nccl.set_bytes(int64_t{1} << 29);
  estimate.mutable_headroom()->set_expected_bytes(int64_t{30} << 30);
  return estimate;
}

TEST(MeasureWordsTest, TheVerdictIsThatOfTheRunAsAJob) {
  MeasureAnswer answer = {ReadCase("profiled"), kGpu};
  EXPECT_EQ(VerdictOf(answer), v1::VERDICT_FITS) << "it ran";
  answer.estimate = EstimateOf(v1::VERDICT_AT_RISK);
  EXPECT_EQ(VerdictOf(answer), v1::VERDICT_AT_RISK);
  EXPECT_THAT(ToTable(answer, Terminal()),
              HasSubstr("AT RISK  50.00 of 80.00 GiB on h100-80gb-sxm, 30.00 free; bound 60.00"));
  EXPECT_THAT(ToTable(answer, Terminal()), HasSubstr("The verdict counts 0.50 GiB of NCCL more"));
  EXPECT_THAT(ToJson(answer), HasSubstr("\"verdict\": \"VERDICT_AT_RISK\""));
  answer.measurement.out_of_memory = OutOfMemory();
  EXPECT_EQ(VerdictOf(answer), v1::VERDICT_DOES_NOT_FIT);
}

TEST(ProfiledJobTest, SaysWhatTheRunHeld) {
  const Measurement measurement = ReadCase("profiled");
  const absl::StatusOr<v1::Job> job = ToProfiledJob(measurement, kGpu);
  ASSERT_TRUE(job.ok()) << job.status();
  const v1::Profiled& run = job->model().profiled();
  EXPECT_EQ(run.measured_gpu(), "h100-80gb-sxm");
  EXPECT_EQ(run.measured_gpu_count(), 16);
  EXPECT_EQ(run.measured_rank(), 3);
  EXPECT_EQ(run.measured_framework(), "fsdp2");
  EXPECT_THAT(run.communicator_size(), testing::ElementsAre(4));
  EXPECT_THAT(run.communicator_stride(), testing::ElementsAre(4));
  EXPECT_EQ(run.parameter_counts().at("fp32"), 4 * run.shard_parameter_counts().at("fp32"));
  EXPECT_EQ(run.weight_bytes(), 4 * run.shard_parameter_counts().at("fp32"));
  EXPECT_EQ(run.steady_step().backward().allocated_bytes(), measurement.steps[1].allocated_bytes);
  EXPECT_EQ(job->cluster().gpus_per_node(), 8);
  EXPECT_FALSE(job->has_training());
}

TEST(ProfiledJobTest, TakesAStepThatHasStates) {
  Measurement measurement = ReadCase("profiled");
  measurement.step_count = 1;
  EXPECT_EQ(ToProfiledJob(measurement, kGpu).status().message(),
            "1 step of an optimizer; must be 2 or more, as the first has no optimizer states yet");
  EXPECT_FALSE(ToProfiledJob(ReadCase("one_gpu"), kGpu).ok()) << "of an older hook";
  EXPECT_THAT(std::string(ToProfiledJob(ReadCase("out_of_memory"), kSmall).status().message()),
              testing::StartsWith("out of memory; "));
}

TEST(MeasurementTest, RefusesWhatIsNotTheHooks) {
  const struct {
    const char* json;
    const char* message;
  } kCases[] = {
      {"", "the hook's result: not a JSON object"},
      {"[]", "the hook's result: not a JSON object"},
      {"{}", "the hook's result: torch: missing or wrong"},
      {R"({"torch": "2", "rank": "0"})", "the hook's result: rank: missing or wrong"},
      {R"({"torch": "2", "rank": 0, "ranks": 1, "step_count": 0, "retry_count": 0, "steps": [1]})",
       "the hook's result: allocated: missing or wrong"},
      {R"({"refused": 1})", "the hook's result: refused: missing or wrong"},
  };
  for (const auto& [json, message] : kCases) {
    EXPECT_EQ(ReadMeasurement(json).status().message(), message) << json;
  }
}

TEST(MeasurementTest, ReadsARefusal) {
  const absl::StatusOr<Measurement> read = ReadMeasurement(R"({"refused": "torch 1.0; too old"})");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->refused, "torch 1.0; too old");
}

}  // namespace
}  // namespace plimsoll
