// Reports of usage: every rule with its exact words, and the labels of jobs.
#include "server/convert/convert_usage.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/catalog/catalog.h"
#include "server/wire/json.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;

template <typename Message>
Message Read(const std::string& json) {
  Message message;
  EXPECT_THAT(ReadJsonMessage(json, &message), IsEmpty()) << json;
  return message;
}

v1::ReportUsageRequest GoodReport() {
  return Read<v1::ReportUsageRequest>(R"({
    "job_id": "4711",
    "prediction": {
      "verdict": "VERDICT_AT_RISK",
      "allocated": {"expected_bytes": 50, "bound_bytes": 55},
      "device": {"expected_bytes": 80, "bound_bytes": 100},
      "usable_bytes": 90, "detail": "replay", "estimator_version": "0.1.0",
      "calibration_id": "2026-11"
    },
    "actual_peak_bytes": [60, 72, 64],
    "source": "dcgm",
    "outcome": "finished"})");
}

std::vector<std::string> Refusals(const v1::ReportUsageRequest& request) {
  const auto result = FromProto(request, LoadCatalog());
  std::vector<std::string> lines;
  if (const auto* const violations = std::get_if<Violations>(&result)) {
    for (const Violation& violation : *violations) lines.push_back(ToText(violation));
  }
  return lines;
}

UsageReport Accepted(const v1::ReportUsageRequest& request) {
  EXPECT_THAT(Refusals(request), IsEmpty());
  return std::get<UsageReport>(FromProto(request, LoadCatalog()));
}

v1::ReportUsageResponse Answer(const UsageReport& report) {
  WireWriter written;
  Encode(report, &written);
  v1::ReportUsageResponse response;
  EXPECT_TRUE(response.ParseFromArray(written.bytes().data(), written.bytes().size()));
  return response;
}

TEST(ConvertUsageTest, TakesAReportWhole) {
  const UsageReport report = Accepted(GoodReport());
  EXPECT_EQ(report.job_id, "4711");
  EXPECT_EQ(report.verdict, Verdict::kAtRisk);
  EXPECT_EQ(report.outcome, UsageOutcome::kFinished);
  EXPECT_EQ(report.outcome_name, "finished");
  EXPECT_EQ(report.gauge_name, "device");
  EXPECT_EQ(report.source_name, "dcgm");
  EXPECT_EQ(report.predicted.expected_bytes, 80);
  EXPECT_EQ(report.predicted.bound_bytes, 100);
  EXPECT_EQ(report.actual_bytes, 72);
  EXPECT_EQ(report.gpu_count, 3);
  EXPECT_EQ(report.detail, "replay");
  EXPECT_EQ(report.estimator_version, "0.1.0");
  EXPECT_EQ(report.calibration_id, "2026-11");
  const v1::ReportUsageResponse response = Answer(report);
  EXPECT_DOUBLE_EQ(response.actual_per_predicted(), 0.9);
  EXPECT_TRUE(response.within_bound());
  EXPECT_EQ(response.framework(), "unknown");
  EXPECT_EQ(response.gpu(), "unknown");
  EXPECT_EQ(response.strategy(), "unknown");
}

TEST(ConvertUsageTest, ComparesTheGaugeThatWasMeasured) {
  v1::ReportUsageRequest request = GoodReport();
  request.set_gauge("allocated");
  request.set_source("torch");
  EXPECT_EQ(Accepted(request).predicted.expected_bytes, 50);
  const v1::ReportUsageResponse response = Answer(Accepted(request));
  EXPECT_DOUBLE_EQ(response.actual_per_predicted(), 72.0 / 50);
  EXPECT_FALSE(response.within_bound());
}

TEST(ConvertUsageTest, TheBoundItselfIsWithin) {
  v1::ReportUsageRequest request = GoodReport();
  request.set_actual_peak_bytes(0, 100);
  EXPECT_TRUE(Answer(Accepted(request)).within_bound());
  request.set_actual_peak_bytes(0, 101);
  EXPECT_FALSE(Answer(Accepted(request)).within_bound());
}

TEST(ConvertUsageTest, OutOfMemoryNeedsNoPeak) {
  v1::ReportUsageRequest request = GoodReport();
  request.clear_actual_peak_bytes();
  request.set_outcome("out-of-memory");
  const v1::ReportUsageResponse response = Answer(Accepted(request));
  EXPECT_EQ(response.actual_per_predicted(), 0);
  EXPECT_FALSE(response.within_bound());
}

struct BadReport {
  const char* name;
  void (*edit)(v1::ReportUsageRequest&);
  std::vector<std::string> lines;
};

const BadReport kBadReports[] = {
    {"nothing at all",
     [](v1::ReportUsageRequest& request) { request.Clear(); },
     {"outcome: unset; must be one of finished, out-of-memory, other",
      "prediction: unset; must be set"}},
    {"every word wrong",
     [](v1::ReportUsageRequest& request) {
       request.set_gauge("Device");
       request.set_source("prometheus");
       request.set_outcome("oom");
     },
     {"gauge: Device; must be one of allocated, reserved, device",
      "source: prometheus; must be one of dcgm, nvidia-smi, torch, slurm, other",
      "outcome: oom; must be one of finished, out-of-memory, other"}},
    {"long id",
     [](v1::ReportUsageRequest& request) { request.set_job_id(std::string(129, '1')); },
     {"job_id: 129 bytes; must be at most 128 bytes"}},
    {"control character in an id",
     [](v1::ReportUsageRequest& request) { request.set_job_id("1\n2"); },
     {"job_id: 1\n2; must be printable ASCII"}},
    {"accent in a version",
     [](v1::ReportUsageRequest& request) {
       request.mutable_prediction()->set_estimator_version("é");
       request.mutable_prediction()->set_calibration_id("é");
       request.mutable_prediction()->set_detail("é");
     },
     {"prediction.detail: é; must be printable ASCII",
      "prediction.estimator_version: é; must be printable ASCII",
      "prediction.calibration_id: é; must be printable ASCII"}},
    {"no verdict",
     [](v1::ReportUsageRequest& request) { request.mutable_prediction()->clear_verdict(); },
     {"prediction.verdict: unset; must be one of VERDICT_FITS, VERDICT_AT_RISK, "
      "VERDICT_DOES_NOT_FIT"}},
    {"verdict of a later version",
     [](v1::ReportUsageRequest& request) {
       request.mutable_prediction()->set_verdict(static_cast<v1::Verdict>(9));
     },
     {"prediction.verdict: 9; must be one of VERDICT_FITS, VERDICT_AT_RISK, "
      "VERDICT_DOES_NOT_FIT"}},
    {"gauge that was not predicted",
     [](v1::ReportUsageRequest& request) {
       request.set_gauge("reserved");
       request.set_source("torch");
     },
     {"prediction.reserved: unset; must be set: it is the gauge that was measured"}},
    {"gauge that the source does not show",
     [](v1::ReportUsageRequest& request) {
       request.set_gauge("allocated");
       request.set_source("nvidia-smi");
     },
     {"gauge: allocated; must be device, which is what nvidia-smi shows"}},
    {"figures out of range, of every gauge sent",
     [](v1::ReportUsageRequest& request) {
       v1::Prediction& prediction = *request.mutable_prediction();
       prediction.mutable_allocated()->set_expected_bytes(0);
       prediction.mutable_device()->set_bound_bytes(int64_t{1} << 50);
       prediction.mutable_reserved()->set_expected_bytes(7);
       prediction.mutable_reserved()->set_bound_bytes(6);
       prediction.set_usable_bytes(-1);
     },
     {"prediction.allocated.expected_bytes: 0; must be from 1 to 1125899906842623",
      "prediction.reserved.bound_bytes: 6; must be at least the expected figure, 7",
      "prediction.device.bound_bytes: 1125899906842624; must be from 1 to 1125899906842623",
      "prediction.usable_bytes: -1; must be from 0 to 1125899906842623"}},
    {"no peak of a job that finished",
     [](v1::ReportUsageRequest& request) { request.clear_actual_peak_bytes(); },
     {"actual_peak_bytes: unset; must be set, but for outcome out-of-memory"}},
    {"peaks out of range",
     [](v1::ReportUsageRequest& request) {
       request.set_actual_peak_bytes(0, 0);
       request.set_actual_peak_bytes(2, int64_t{1} << 50);
     },
     {"actual_peak_bytes[0]: 0; must be from 1 to 1125899906842623",
      "actual_peak_bytes[2]: 1125899906842624; must be from 1 to 1125899906842623"}},
    {"too many peaks",
     [](v1::ReportUsageRequest& request) {
       for (int i = 0; i < kMaxReportedPeaks; ++i) request.add_actual_peak_bytes(1);
     },
     {"actual_peak_bytes: 100003 numbers; must be at most 100000"}},
};

TEST(ConvertUsageTest, RefusesInTheseWords) {
  for (const BadReport& bad : kBadReports) {
    v1::ReportUsageRequest request = GoodReport();
    bad.edit(request);
    EXPECT_THAT(Refusals(request), ElementsAreArray(bad.lines)) << bad.name;
  }
}

TEST(ConvertUsageTest, TakesAsManyPeaksAsItSays) {
  v1::ReportUsageRequest request = GoodReport();
  request.mutable_actual_peak_bytes()->Resize(kMaxReportedPeaks, 1);
  EXPECT_EQ(Accepted(request).gpu_count, kMaxReportedPeaks);
}

// A job of eight GPUs, with the sections given.
std::string JobWith(const std::string& parallelism, const std::string& runtime,
                    const std::string& cluster) {
  return absl::StrCat(R"({"model": {"name": "llama-3.1-8b"},
      "training": {"sequence_length": 4096}, "parallelism": )",
                      parallelism, R"(, "runtime": )", runtime, R"(, "cluster": )", cluster, "}");
}

std::vector<std::string> Labels(const std::string& job) {
  v1::ReportUsageRequest request = GoodReport();
  *request.mutable_prediction()->mutable_job() = Read<v1::Job>(job);
  const v1::ReportUsageResponse response = Answer(Accepted(request));
  return {response.framework(), response.gpu(), response.strategy()};
}

constexpr char kEight[] = R"({"gpu": "h100", "gpu_count": 8})";

TEST(ConvertUsageTest, LabelsAreOfTheJobAsItIsResolved) {
  EXPECT_THAT(Labels(JobWith(R"({"zero_stage": 3})", "{}", kEight)),
              ElementsAre("fsdp2", "h100-80gb-sxm", "zero3"));
  EXPECT_THAT(Labels(JobWith("{}", R"({"framework": "ddp"})", kEight)),
              ElementsAre("ddp", "h100-80gb-sxm", "ddp"));
  EXPECT_THAT(
      Labels(JobWith("{}", R"({"framework": "ddp"})", R"({"gpu": "a100-40gb", "gpu_count": 1})")),
      ElementsAre("ddp", "a100-40gb-sxm", "none"));
  EXPECT_THAT(Labels(JobWith(R"({"zero_stage": 1, "tensor_parallel_size": 2})",
                             R"({"framework": "megatron-core"})",
                             R"({"gpu_memory_bytes": 85899345920, "gpu_count": 8})")),
              ElementsAre("megatron-core", "other", "zero1-tp"));
  EXPECT_THAT(Labels(JobWith(R"({"zero_stage": 1, "tensor_parallel_size": 2,
                                 "pipeline_parallel_size": 2})",
                             R"({"framework": "megatron-core"})", kEight)),
              ElementsAre("megatron-core", "h100-80gb-sxm", "zero1-tp-pp"));
  EXPECT_THAT(Labels(JobWith(R"({"tensor_parallel_size": 4, "pipeline_parallel_size": 2})",
                             R"({"framework": "megatron-core"})", kEight)),
              ElementsAre("megatron-core", "h100-80gb-sxm", "tp-pp"));
}

// It ran all the same: it is counted, under no name.
TEST(ConvertUsageTest, AJobThatThisVersionCannotReadIsUnknown) {
  const auto unknown = ElementsAre("unknown", "unknown", "unknown");
  EXPECT_THAT(Labels(JobWith(R"({"tensor_parallel_size": 3})", "{}", kEight)), unknown);
  EXPECT_THAT(Labels(JobWith("{}", R"({"framework": "later"})", kEight)), unknown);
  EXPECT_THAT(Labels(JobWith("{}", "{}", R"({"gpu": "z900-1tb", "gpu_count": 8})")), unknown);
  EXPECT_THAT(Labels(absl::StrCat(R"({"model": {"hf_config": {"x": ")", std::string(70000, 'x'),
                                  R"("}}})")),
              unknown);
}

}  // namespace
}  // namespace plimsoll
