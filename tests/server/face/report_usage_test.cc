// ReportUsage of a real server, over both faces: who may report, what is counted,
// what is refused.
#include <stdlib.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "server/wire/json.h"
#include "server/wire/status.h"
#include "tests/server/running_server.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Of a job that used 0.9 of what was expected.
constexpr char kReport[] = R"({
  "job_id": "secret-4711",
  "prediction": {
    "job": {
      "model": {"name": "llama-3.1-8b"},
      "training": {"sequence_length": 4096},
      "parallelism": {"zero_stage": 3},
      "cluster": {"gpu": "h100-80gb-sxm", "gpu_count": 8}
    },
    "verdict": "VERDICT_FITS",
    "device": {"expected_bytes": "40000000000", "bound_bytes": "44000000000"},
    "usable_bytes": "85000000000"
  },
  "actual_peak_bytes": ["36000000000", "35000000000"],
  "source": "dcgm",
  "outcome": "finished"
})";

v1::ReportUsageRequest Report() {
  v1::ReportUsageRequest request;
  EXPECT_THAT(ReadJsonMessage(kReport, &request), IsEmpty());
  return request;
}

std::string ReasonOf(const google::rpc::Status& status) {
  google::rpc::ErrorInfo info;
  for (const auto& detail : status.details()) detail.UnpackTo(&info);
  return info.reason();
}

// A server that listens on unix sockets and on ports.
class ReportUsageTest : public testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/plimsoll_report_XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    Start(/*accept_reports=*/true);
  }

  void TearDown() override {
    server_.reset();
    unlink((folder_ + "/grpc").c_str());
    unlink((folder_ + "/http").c_str());
    rmdir(folder_.c_str());
  }

  void Start(bool accept_reports) {
    server_.reset();
    ServerOptions options = FreePorts();
    options.accept_reports = accept_reports;
    options.listen.insert(options.listen.begin(), absl::StrCat("unix:", folder_, "/grpc"));
    options.http_listen.insert(options.http_listen.begin(),
                               absl::StrCat("unix:", folder_, "/http"));
    server_ = StartOrFail(options);
    ASSERT_NE(server_, nullptr);
  }

  // `address`: 0 the socket, 1 the port.
  grpc::Status OverGrpc(int address, const v1::ReportUsageRequest& request,
                        v1::ReportUsageResponse* response) const {
    grpc::ClientContext context;
    return StubFor(server_->addresses()[address])->ReportUsage(&context, request, response);
  }

  httplib::Response OverHttp(int address, const std::string& body) const {
    auto client = HttpClientFor(server_->http_addresses()[address]);
    const httplib::Result result = client.Post("/v1:reportUsage", body, "application/json");
    if (!result) {
      ADD_FAILURE() << httplib::to_string(result.error());
      return {};
    }
    return *result;
  }

  double Series(const std::string& series) const {
    return SeriesValue(server_->metrics().Text(), series);
  }

  std::string folder_;
  std::unique_ptr<Server> server_;
};

constexpr char kFinished[] = R"(plimsoll_usage_reports_total{outcome="finished"})";

TEST_F(ReportUsageTest, AnswersBothFacesAlike) {
  v1::ReportUsageResponse over_grpc, over_http;
  const grpc::Status status = OverGrpc(0, Report(), &over_grpc);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_DOUBLE_EQ(over_grpc.actual_per_predicted(), 0.9);
  EXPECT_TRUE(over_grpc.within_bound());
  EXPECT_EQ(over_grpc.framework(), "fsdp2");
  EXPECT_EQ(over_grpc.gpu(), "h100-80gb-sxm");
  EXPECT_EQ(over_grpc.strategy(), "zero3");
  const httplib::Response response = OverHttp(0, kReport);
  ASSERT_EQ(response.status, 200) << response.body;
  ASSERT_THAT(ReadJsonMessage(response.body, &over_http), IsEmpty());
  EXPECT_EQ(over_http.SerializeAsString(), over_grpc.SerializeAsString());
  EXPECT_EQ(Series(kFinished), 2);
}

// Labels are sorted in the text, as Prometheus wants them.
TEST_F(ReportUsageTest, CountsAFinishedJob) {
  EXPECT_EQ(Series(kFinished), 0) << "from the start";
  v1::ReportUsageResponse response;
  ASSERT_TRUE(OverGrpc(0, Report(), &response).ok());
  EXPECT_EQ(Series(kFinished), 1);
  EXPECT_EQ(Series(R"(plimsoll_usage_outcomes_total{outcome="finished",verdict="fits"})"), 1);
  EXPECT_EQ(Series(R"(plimsoll_usage_within_bound_total{within_bound="true"})"), 1);
  EXPECT_EQ(Series(R"(plimsoll_usage_within_bound_total{within_bound="false"})"), 0);
  const std::string labels = R"(framework="fsdp2",gpu="h100-80gb-sxm",strategy="zero3")";
  const std::string ratio = "plimsoll_usage_actual_per_predicted";
  EXPECT_EQ(Series(absl::StrCat(ratio, "_count{", labels, "}")), 1);
  EXPECT_EQ(Series(absl::StrCat(ratio, "_sum{", labels, "}")), 0.9);
  EXPECT_EQ(Series(absl::StrCat(ratio, "_bucket{", labels, ",le=\"0.85\"}")), 0);
  EXPECT_EQ(Series(absl::StrCat(ratio, "_bucket{", labels, ",le=\"1\"}")), 1);
  EXPECT_THAT(server_->metrics().Text(), Not(HasSubstr("4711")));
}

TEST_F(ReportUsageTest, AnUnderestimateIsSeenAsOne) {
  v1::ReportUsageRequest request = Report();
  request.set_actual_peak_bytes(1, 50000000000);
  request.mutable_prediction()->clear_job();
  v1::ReportUsageResponse response;
  ASSERT_TRUE(OverGrpc(0, request, &response).ok());
  EXPECT_DOUBLE_EQ(response.actual_per_predicted(), 1.25);
  EXPECT_EQ(Series(R"(plimsoll_usage_within_bound_total{within_bound="false"})"), 1);
  EXPECT_EQ(Series(R"(plimsoll_usage_actual_per_predicted_sum{framework="unknown",)"
                   R"(gpu="unknown",strategy="unknown"})"),
            1.25);
}

// What a job held when it ended early says little of what it needed.
TEST_F(ReportUsageTest, TheRatioIsOfFinishedJobsAlone) {
  for (const char* const outcome : {"out-of-memory", "other"}) {
    v1::ReportUsageRequest request = Report();
    request.set_outcome(outcome);
    v1::ReportUsageResponse response;
    ASSERT_TRUE(OverGrpc(0, request, &response).ok());
    EXPECT_DOUBLE_EQ(response.actual_per_predicted(), 0.9) << "the caller is told all the same";
    EXPECT_EQ(Series(absl::StrCat("plimsoll_usage_reports_total{outcome=\"", outcome, "\"}")), 1);
    EXPECT_EQ(Series(absl::StrCat("plimsoll_usage_outcomes_total{outcome=\"", outcome,
                                  "\",verdict=\"fits\"}")),
              1);
  }
  EXPECT_THAT(server_->metrics().Text(), Not(HasSubstr("plimsoll_usage_actual_per_predicted_")));
  EXPECT_EQ(Series(R"(plimsoll_usage_within_bound_total{within_bound="true"})"), 0);
}

TEST_F(ReportUsageTest, RefusesAllThatIsWrongAtOnce) {
  constexpr char kBad[] = R"({"outcom": "finished", "gauge": "vram", "prediction":
      {"verdict": "FITS", "device": {"expected_bytes": 5, "bound_bytes": 4, "x": 1}}})";
  const httplib::Response response = OverHttp(0, kBad);
  EXPECT_EQ(response.status, 400);
  google::rpc::Status refusal;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(response.body, &refusal).ok());
  EXPECT_EQ(refusal.message(),
            "outcom: \"finished\"; no such field, did you mean outcome\n"
            "prediction.device.x: 1; no such field\n"
            "prediction.verdict: \"FITS\"; must be one of VERDICT_FITS, VERDICT_AT_RISK, "
            "VERDICT_DOES_NOT_FIT\n"
            "gauge: vram; must be one of allocated, reserved, device\n"
            "prediction.device.bound_bytes: 4; must be at least the expected figure, 5");
  EXPECT_EQ(Series("plimsoll_violations_total"), 5);

  v1::ReportUsageRequest request = Report();
  request.mutable_prediction()
      ->GetReflection()
      ->MutableUnknownFields(request.mutable_prediction())
      ->AddVarint(99, 1);
  v1::ReportUsageResponse answer;
  EXPECT_EQ(OverGrpc(0, request, &answer).error_message(),
            "prediction: field number 99; not known to version 0.1.0");
  EXPECT_EQ(Series(kFinished), 0);
}

TEST_F(ReportUsageTest, TakesThemOverAUnixSocketAlone) {
  constexpr char kMessage[] =
      "reports of usage are taken over a unix socket alone; start the server with --listen "
      "unix:PATH too, and report there, or with an --access-policy";
  v1::ReportUsageResponse response;
  for (const grpc::Status& status :
       {OverGrpc(1, Report(), &response), [&] {
          grpc::ClientContext context;
          return v1::PlannerService::NewStub(server_->InProcessChannel())
              ->ReportUsage(&context, Report(), &response);
        }()}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_EQ(status.error_message(), kMessage);
    EXPECT_EQ(ReasonOf(ToRpcStatus(status)), "REPORTS_NEED_UNIX_SOCKET");
  }
  const httplib::Response refused = OverHttp(1, kReport);
  EXPECT_EQ(refused.status, 403);
  EXPECT_THAT(refused.body, HasSubstr("REPORTS_NEED_UNIX_SOCKET"));
  EXPECT_EQ(Series(kFinished), 0);
  EXPECT_EQ(Series(R"(http_requests_total{code="403",handler="/v1:reportUsage"})"), 1);
}

TEST_F(ReportUsageTest, TakesNoneUnlessTold) {
  ASSERT_NO_FATAL_FAILURE(Start(/*accept_reports=*/false));
  v1::ReportUsageResponse response;
  for (const int address : {0, 1}) {
    const grpc::Status status = OverGrpc(address, Report(), &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_EQ(status.error_message(),
              "this server takes no reports of usage; start it with --accept-reports");
    EXPECT_EQ(ReasonOf(ToRpcStatus(status)), "REPORTS_OFF");
    EXPECT_EQ(OverHttp(address, kReport).status, 403);
    EXPECT_EQ(OverHttp(address, "no JSON").status, 403) << "unread";
  }
  EXPECT_EQ(Series(kFinished), 0);
}

}  // namespace
}  // namespace plimsoll
