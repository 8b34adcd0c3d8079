// The planner by itself: what is kept is what would be computed, everything that is wrong is said
// at once, and each call is counted as what it was.
#include "server/planner/planner.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/unknown_field_set.h"
#include "gtest/gtest.h"
#include "server/admit/policy.h"
#include "server/catalog/catalog.h"
#include "server/wire/json.h"
#include "server/wire/status.h"
#include "tests/server/long_job.h"

namespace plimsoll {
namespace {

using grpc::StatusCode;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;
using Request = v1::EstimateMemoryRequest;

constexpr size_t kRoomy = 4 << 20;

template <typename Message>
Message Read(const std::string& json) {
  Message message;
  EXPECT_THAT(ReadJsonMessage(json, &message), IsEmpty());
  return message;
}

Request Good(int64_t sequence_length = 1024, const std::string& detail = "summary") {
  Request request = Read<Request>(
      R"({"job": {"model": {"name": "gpt2"}, "parallelism": {"zero_stage": 2},
                  "cluster": {"gpu": "a100-80gb-sxm", "gpu_count": 8}}})");
  request.mutable_job()->mutable_training()->set_sequence_length(sequence_length);
  request.set_detail(detail);
  return request;
}

// Requests that are near each other, some of which are refused.
std::vector<Request> Neighbours() {
  std::vector<Request> all;
  for (const int64_t length : {256, 512, 1024, -1}) {
    for (const char* const gpu : {"a100-80gb-sxm", "h100-80gb-sxm", "a100"}) {
      for (const char* const detail : {"summary", "replay", ""}) {
        Request request = Good(length, detail);
        request.mutable_job()->mutable_cluster()->set_gpu(gpu);
        if (*detail == '\0') request.clear_detail();
        all.push_back(request);
      }
    }
  }
  for (const int stage : {0, 1, 3, 4}) {
    all.push_back(Good());
    all.back().mutable_job()->mutable_parallelism()->set_zero_stage(stage);
  }
  for (const bool include : {false, true}) {
    all.push_back(Good());
    all.back().set_include_ledger(include);
  }
  return all;
}

Request WithUnknownField(Request request) {
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(3000, 1);
  return request;
}

// A violation of a field for each line of a refusal.
std::vector<std::string> FieldsOf(const grpc::Status& status) {
  std::vector<std::string> fields;
  for (const Violation& violation : ListedViolations(ToRpcStatus(status))) {
    fields.push_back(violation.field);
  }
  return fields;
}

SearchStop Never() {
  return {.enough = [](double /*share*/) { return false; },
          .given_up = [] { return StatusCode::OK; }};
}

SearchStop GivenUp(StatusCode code) {
  return {.enough = [](double /*share*/) { return false; }, .given_up = [code] { return code; }};
}

class PlannerTest : public testing::Test {
 protected:
  // The status's message, or the answer's bytes.
  struct Outcome {
    StatusCode code = StatusCode::OK;
    std::string text;
    bool operator==(const Outcome&) const = default;
  };

  static Outcome Ask(const Planner& planner, const Request& request) {
    WireWriter out;
    const grpc::Status status = planner.EstimateMemory(request, {}, &out);
    return {status.error_code(), status.ok() ? std::string(out.bytes()) : status.error_message()};
  }

  static std::optional<Outcome> AskAtOnce(const Planner& planner, const Request& request,
                                          const std::string& bytes) {
    WireWriter out;
    const std::optional<grpc::Status> status =
        planner.EstimateMemoryAtOnce(request, {}, bytes, &out);
    if (!status.has_value()) return std::nullopt;
    return Outcome{status->error_code(),
                   status->ok() ? std::string(out.bytes()) : status->error_message()};
  }

  static std::optional<std::string> Recall(const Planner& planner, const std::string& bytes) {
    const std::optional<grpc::Slice> slice = planner.Recall(bytes);
    if (!slice.has_value()) return std::nullopt;
    return std::string(reinterpret_cast<const char*>(slice->begin()), slice->size());
  }

  // What a server does with a request's bytes.
  static Outcome Serve(const Planner& planner, const Request& request, bool* recalled) {
    const std::string bytes = request.SerializeAsString();
    const std::optional<std::string> kept = Recall(planner, bytes);
    *recalled = kept.has_value();
    if (kept.has_value()) return {StatusCode::OK, *kept};
    return AskAtOnce(planner, request, bytes).value_or(Ask(planner, request));
  }

  // The value of a series of the metrics; -1 where it is not.
  double Series(const std::string& name) const {
    const std::string text = "\n" + metrics_.Text();
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }
  double Estimates(const std::string& verdict) const {
    return Series("plimsoll_estimates_total{verdict=\"" + verdict + "\"}");
  }

  Planner With(size_t max_kept_bytes) {
    return Planner(LoadCatalog(), {}, &metrics_, &log_, max_kept_bytes);
  }

  std::vector<std::string> lines_;
  Metrics metrics_;
  const Log log_{LogLevel::kInfo, [this](const std::string& line) { lines_.push_back(line); }};
};

// However warm it is, and however often what it keeps is driven out, no request gets anything
// but what a planner that keeps nothing computes.
TEST_F(PlannerTest, WarmAndColdAnswerAlike) {
  const std::vector<Request> requests = Neighbours();
  const Planner cold = With(0);
  std::vector<Outcome> expected;
  for (const Request& request : requests) expected.push_back(Ask(cold, request));
  for (const size_t room : {size_t{0}, size_t{64} << 10, size_t{512} << 10, kRoomy}) {
    const Planner planner = With(room);
    std::mt19937_64 random(room);
    int recalled = 0;
    for (int round = 0; round < 400; ++round) {
      const size_t at = random() % requests.size();
      bool kept = false;
      ASSERT_TRUE(Serve(planner, requests[at], &kept) == expected[at])
          << "request " << at << (kept ? " recalled" : " computed");
      recalled += kept ? 1 : 0;
      EXPECT_FALSE(kept && expected[at].code != StatusCode::OK) << "a refusal was kept";
    }
    EXPECT_EQ(recalled > 0, room >= (512 << 10)) << recalled << " of " << room << " bytes";
  }
}

TEST_F(PlannerTest, OtherBytesAreAnotherRequest) {
  const Planner planner = With(kRoomy);
  const Request request = Good();
  const std::string bytes = request.SerializeAsString();
  for (int i = 0; i < 2; ++i) AskAtOnce(planner, request, bytes);
  ASSERT_EQ(Recall(planner, bytes), Ask(planner, request).text);
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string other = bytes;
    other[at] = static_cast<char>(other[at] ^ 1);
    EXPECT_EQ(Recall(planner, other), std::nullopt) << at;
    EXPECT_EQ(Recall(planner, bytes.substr(0, at)), std::nullopt) << at;
  }
  EXPECT_EQ(Recall(planner, bytes + bytes), std::nullopt);
}

TEST_F(PlannerTest, WithoutBytesNothingIsKept) {
  const Planner planner = With(kRoomy);
  for (int i = 0; i < 3; ++i) AskAtOnce(planner, Good(), "");
  EXPECT_EQ(Recall(planner, ""), std::nullopt);
  EXPECT_EQ(Series("plimsoll_kept_answer_bytes"), 0);
}

TEST_F(PlannerTest, NewTablesForgetAndAPolicyDoesNot) {
  Planner planner = With(kRoomy);
  const Request request = Good();
  const std::string bytes = request.SerializeAsString();
  const auto warm = [&] {
    for (int i = 0; i < 2; ++i) AskAtOnce(planner, request, bytes);
    return Recall(planner, bytes).has_value();
  };
  ASSERT_TRUE(warm());
  planner.SetPolicy({});
  EXPECT_TRUE(Recall(planner, bytes).has_value()) << "no estimate follows from a policy";
  Calibration calibration = LoadCatalog().calibration;
  calibration.id = "another";
  planner.SetCalibration(calibration);
  EXPECT_EQ(Recall(planner, bytes), std::nullopt);
  EXPECT_EQ(Series("plimsoll_kept_answer_bytes"), 0);
  ASSERT_TRUE(warm());
  v1::EstimateMemoryResponse answer;
  ASSERT_TRUE(answer.ParseFromString(*Recall(planner, bytes)));
  EXPECT_EQ(answer.calibration_id(), "another");
  planner.SetSpeed(LoadCatalog().speed);
  EXPECT_EQ(Recall(planner, bytes), std::nullopt);
  EXPECT_TRUE(warm());
}

// What takes long is left to others, uncounted and unkept; what the others answer is the same
// whichever way it is asked for.
TEST_F(PlannerTest, LongReplaysAreNotAtOnce) {
  const Planner planner = With(kRoomy);
  Request request = Read<Request>(kLongJob);
  EXPECT_EQ(AskAtOnce(planner, request, request.SerializeAsString()), std::nullopt);
  EXPECT_EQ(Estimates("fits") + Estimates("at-risk") + Estimates("does-not-fit"), 0);
  EXPECT_EQ(Series("plimsoll_kept_answer_bytes"), 0);
  request.set_detail("summary");
  const auto at_once = AskAtOnce(planner, request, "");
  ASSERT_TRUE(at_once.has_value());
  EXPECT_TRUE(*at_once == Ask(planner, request));
  request.set_detail("replay");
  request.mutable_job()->mutable_cluster()->set_gpu("none-such");
  const auto refused = AskAtOnce(planner, request, "");
  ASSERT_TRUE(refused.has_value()) << "a refusal takes no time";
  EXPECT_EQ(refused->code, StatusCode::INVALID_ARGUMENT);
}

TEST_F(PlannerTest, AReplayThatNobodyWaitsForIsNoneAtAll) {
  const Planner planner = With(0);
  for (const StatusCode code : {StatusCode::CANCELLED, StatusCode::DEADLINE_EXCEEDED}) {
    WireWriter out;
    const grpc::Status status = planner.EstimateMemory(Good(), {}, GivenUp(code), &out);
    EXPECT_EQ(status.error_code(), code);
    EXPECT_EQ(status.error_message(), "the replay was given up");
    EXPECT_EQ(ReasonOf(ToRpcStatus(status)), "STOPPED");
    EXPECT_THAT(std::string(out.bytes()), IsEmpty());
  }
  EXPECT_EQ(Estimates("fits") + Estimates("refused"), 0);
}

// Unknown fields, what was misread and bad values, in one refusal; of what was misread nothing
// else is said.
TEST_F(PlannerTest, SaysAllThatIsWrongAtOnce) {
  const Planner planner = With(0);
  Request request = WithUnknownField(Good());
  request.set_risk(2);
  request.mutable_job()->mutable_training()->clear_sequence_length();
  request.mutable_job()->mutable_cluster()->set_gpu_count(0);
  const Reading reading = {.misread = {{"job.training.sequence_length", "\"x\"",
                                        "must be an integer", ViolationCode::kMalformed}}};
  WireWriter out;
  const grpc::Status status = planner.EstimateMemory(request, reading, &out);
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
  const std::vector<std::string> fields = FieldsOf(status);
  EXPECT_THAT(fields, testing::IsSupersetOf(
                          {"job.training.sequence_length", "job.cluster.gpu_count", "risk"}));
  EXPECT_EQ(fields.at(0), "request") << "the unknown field";
  EXPECT_THAT(status.error_message(), HasSubstr("request: field number 3000; not known"));
  EXPECT_EQ(std::count(fields.begin(), fields.end(), "job.training.sequence_length"), 1);
  EXPECT_THAT(std::string(out.bytes()), IsEmpty());
  EXPECT_EQ(Estimates("refused"), 1);
  EXPECT_EQ(Series("plimsoll_violations_total"), static_cast<double>(fields.size()));
}

TEST_F(PlannerTest, RefusalsSpeakInTheCallersNames) {
  const Planner planner = With(0);
  Request request = Good(-1);
  const Reading reading = {.in_callers_names = [](Violations violations) {
    for (Violation& violation : violations) violation.field = "their " + violation.field;
    return violations;
  }};
  WireWriter out;
  EXPECT_THAT(FieldsOf(planner.EstimateMemory(request, reading, &out)),
              ElementsAre("their job.training.sequence_length"));
}

// Each answer of a batch is that of its job by itself, the refused in their places.
TEST_F(PlannerTest, ABatchIsItsJobsInTheirOrder) {
  const Planner planner = With(0);
  v1::BatchEstimateMemoryRequest batch;
  for (const Request& request : Neighbours()) *batch.add_requests() = request;
  WireWriter out;
  ASSERT_TRUE(planner
                  .BatchEstimateMemory(
                      batch, {}, {}, [] { return StatusCode::OK; }, &out)
                  .ok());
  v1::BatchEstimateMemoryResponse response;
  ASSERT_TRUE(response.ParseFromString(std::string(out.bytes())));
  ASSERT_EQ(response.results_size(), batch.requests_size());
  int refused = 0;
  for (int i = 0; i < batch.requests_size(); ++i) {
    Request alone = batch.requests(i);
    if (!alone.has_detail()) alone.set_detail("summary");  // as the API has it of a batch
    const Outcome expected = Ask(planner, alone);
    const v1::BatchEstimateMemoryResult& result = response.results(i);
    ASSERT_EQ(result.has_error(), expected.code != StatusCode::OK) << i;
    EXPECT_EQ(result.has_error() ? result.error().message() : result.response().SerializeAsString(),
              expected.text)
        << i;
    refused += result.has_error() ? 1 : 0;
  }
  EXPECT_GE(refused, 10);
  EXPECT_EQ(Estimates("refused"), 2 * refused);
}

TEST_F(PlannerTest, ABatchHasBounds) {
  const Planner planner = With(0);
  const auto ask = [&planner](const v1::BatchEstimateMemoryRequest& batch) {
    WireWriter out;
    return planner.BatchEstimateMemory(
        batch, {}, {}, [] { return StatusCode::OK; }, &out);
  };
  v1::BatchEstimateMemoryRequest batch;
  EXPECT_EQ(ask(batch).error_message(), "requests: 0 requests; must be 1 to 1000");
  for (int i = 0; i < kMaxBatchSize; ++i) batch.add_requests();
  EXPECT_TRUE(ask(batch).ok());
  batch.add_requests();
  batch.GetReflection()->MutableUnknownFields(&batch)->AddVarint(3000, 1);
  EXPECT_THAT(FieldsOf(ask(batch)), ElementsAre("request", "requests"));
}

TEST_F(PlannerTest, ABatchAsksBeforeEachJob) {
  const Planner planner = With(0);
  v1::BatchEstimateMemoryRequest batch;
  for (int i = 0; i < 5; ++i) *batch.add_requests() = Good();
  std::vector<int> read;
  const auto reading_of = [&read](int index) {
    read.push_back(index);
    return Reading();
  };
  int asked = 0;
  const auto stop = [&asked] { return ++asked > 3 ? StatusCode::CANCELLED : StatusCode::OK; };
  WireWriter out;
  const grpc::Status status = planner.BatchEstimateMemory(batch, {}, reading_of, stop, &out);
  EXPECT_EQ(status.error_code(), StatusCode::CANCELLED);
  EXPECT_EQ(status.error_message(), "stopped after 3 of 5 jobs");
  EXPECT_THAT(read, ElementsAre(0, 1, 2));
}

TEST_F(PlannerTest, KnowsWhetherABatchReplays) {
  v1::BatchEstimateMemoryRequest batch;
  EXPECT_FALSE(Planner::Replays(batch));
  batch.add_requests();
  batch.add_requests()->set_detail("summary");
  EXPECT_FALSE(Planner::Replays(batch)) << "a batch is in summary by default";
  batch.add_requests()->set_detail("replay");
  EXPECT_TRUE(Planner::Replays(batch));
}

TEST_F(PlannerTest, ASearchEndsInOneOutcome) {
  const Planner planner = With(0);
  v1::RecommendConfigRequest request;
  *request.mutable_job() = Good().job();
  const auto searches = [this](const std::string& outcome) {
    return Series("plimsoll_searches_total{outcome=\"" + outcome + "\"}");
  };
  WireWriter given_up, refused, found;
  EXPECT_EQ(
      planner.RecommendConfig(request, {}, GivenUp(StatusCode::CANCELLED), &given_up).error_code(),
      StatusCode::CANCELLED);
  EXPECT_EQ(searches("abandoned"), 1);
  v1::RecommendConfigRequest bad = request;
  bad.mutable_job()->mutable_training()->set_sequence_length(-1);
  bad.GetReflection()->MutableUnknownFields(&bad)->AddVarint(3000, 1);
  EXPECT_THAT(FieldsOf(planner.RecommendConfig(bad, {}, Never(), &refused)),
              ElementsAre("request", "job.training.sequence_length"));
  EXPECT_EQ(searches("refused"), 1);
  EXPECT_EQ(Series("plimsoll_violations_total"), 2);
  const SearchStop at_once = {.enough = [](double /*share*/) { return true; },
                              .given_up = [] { return StatusCode::OK; }};
  EXPECT_TRUE(planner.RecommendConfig(request, {}, at_once, &found).ok());
  v1::RecommendConfigResponse response;
  ASSERT_TRUE(response.ParseFromString(std::string(found.bytes())));
  EXPECT_EQ(searches("truncated"), response.truncated() ? 1 : 0);
  EXPECT_EQ(searches("fits"), response.truncated() ? 0 : 1);
  EXPECT_EQ(Series("plimsoll_search_candidates_total{stage=\"fit\"}"),
            static_cast<double>(response.fit_count()));
}

v1::AdmitRequest Submission() {
  v1::AdmitRequest request;
  *request.mutable_job() = Good().job();
  request.mutable_scheduler_request()->set_scheduler("slurm");
  return request;
}

// What can't be read of the job is a decision; of the rest, a refusal.
TEST_F(PlannerTest, AdmissionsTellTheJobFromTheRest) {
  const Planner planner(LoadCatalog(), *ReadPolicy(""), &metrics_, &log_);
  const auto admit = [&planner](const v1::AdmitRequest& request, const Violations& misread,
                                const SearchStop& stop, v1::AdmitResponse* response) {
    WireWriter out;
    grpc::Status status = planner.Admit(request, {.misread = misread}, stop, &out);
    response->ParseFromString(std::string(out.bytes()));
    return status;
  };
  v1::AdmitResponse response;
  EXPECT_TRUE(admit(Submission(), {}, Never(), &response).ok());
  EXPECT_EQ(response.decision().cause(), v1::CAUSE_FITS) << response.decision().problem();
  const Violation of_job = {"job.training.sequence_length", "x", "must be an integer"};
  EXPECT_TRUE(admit(Submission(), {of_job}, Never(), &response).ok());
  EXPECT_EQ(response.decision().cause(), v1::CAUSE_BAD_WORDS);
  EXPECT_THAT(response.decision().message(), HasSubstr("sequence_length"));
  v1::AdmitRequest bad = Submission();
  bad.mutable_policy()->mutable_rules()->set_mode("sometimes");
  bad.GetReflection()->MutableUnknownFields(&bad)->AddVarint(3000, 1);
  const Violation of_rest = {"resize_allowed", "x", "must be true or false"};
  const grpc::Status refused = admit(bad, {of_job, of_rest}, Never(), &response);
  EXPECT_THAT(FieldsOf(refused), ElementsAre("resize_allowed", "request", "policy.rules.mode"));
  EXPECT_EQ(Series("plimsoll_violations_total"), 3) << "a decision is no refusal";
  EXPECT_EQ(admit(Submission(), {}, GivenUp(StatusCode::CANCELLED), &response).error_message(),
            "the admission was given up");
}

TEST_F(PlannerTest, AReportIsCountedAndLoggedOrRefused) {
  const Planner planner = With(0);
  auto report = Read<v1::ReportUsageRequest>(
      R"({"job_id": "77", "actual_peak_bytes": [90, 110, 100], "outcome": "finished",
          "prediction": {"verdict": "VERDICT_FITS",
                         "device": {"expected_bytes": 100, "bound_bytes": 120}}})");
  WireWriter out, none;
  ASSERT_TRUE(planner.ReportUsage(report, {}, &out).ok());
  v1::ReportUsageResponse response;
  ASSERT_TRUE(response.ParseFromString(std::string(out.bytes())));
  EXPECT_DOUBLE_EQ(response.actual_per_predicted(), 1.1);
  EXPECT_TRUE(response.within_bound());
  ASSERT_THAT(lines_, SizeIs(1));
  EXPECT_THAT(lines_[0], HasSubstr(R"("job_id":"77")"));
  EXPECT_THAT(lines_[0], HasSubstr(R"("actual_bytes":110)"));
  report.set_outcome("perhaps");
  report.GetReflection()->MutableUnknownFields(&report)->AddVarint(3000, 1);
  EXPECT_THAT(FieldsOf(planner.ReportUsage(report, {}, &none)), ElementsAre("request", "outcome"));
  EXPECT_THAT(lines_, SizeIs(1)) << "what is refused is no report";
  EXPECT_EQ(Series("plimsoll_usage_reports_total{outcome=\"finished\"}"), 1);
  EXPECT_EQ(Series("plimsoll_violations_total"), 2);
}

TEST_F(PlannerTest, ListsTheWholeCatalogByName) {
  const Planner planner = With(0);
  WireWriter models, gpus, none;
  ASSERT_TRUE(planner.ListModels({}, &models).ok());
  ASSERT_TRUE(planner.ListGpus({}, &gpus).ok());
  v1::ListModelsResponse listed_models;
  v1::ListGpusResponse listed_gpus;
  ASSERT_TRUE(listed_models.ParseFromString(std::string(models.bytes())));
  ASSERT_TRUE(listed_gpus.ParseFromString(std::string(gpus.bytes())));
  std::vector<std::string> names, ids, expected_names, expected_ids;
  for (const v1::ModelInfo& model : listed_models.models()) names.push_back(model.name());
  for (const v1::GpuInfo& gpu : listed_gpus.gpus()) ids.push_back(gpu.gpu());
  for (const auto& [name, model] : LoadCatalog().models) expected_names.push_back(name);
  for (const auto& [id, gpu] : LoadCatalog().gpus) expected_ids.push_back(id);
  EXPECT_EQ(names, expected_names);
  EXPECT_EQ(ids, expected_ids);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  v1::ListGpusRequest request;
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(3000, 1);
  EXPECT_THAT(planner.ListGpus(request, &none).error_message(),
              StartsWith("request: field number 3000; not known to "));
}

}  // namespace
}  // namespace plimsoll
