// What stands around every call: the limit, the counters, the log lines.
#include "server/load/call_gate.h"

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/load/thread_time.h"
#include "tests/server/running_server.h"
#include "tests/testing/test_files.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class CallGateTest : public testing::Test {
 protected:
  static Call MakeCall(Face face) {
    return {.method = Method::kEstimateMemory,
            .face = face,
            .request_bytes = 12,
            .caller =
                [] {
                  return Caller{"ipv4:10.0.0.1:5", "id-7"};
                },
            .identity = [] { return Identity(); }};
  }

  CallGate MakeGate(int64_t max_in_flight, std::chrono::milliseconds slow) {
    return CallGate({.max_in_flight = max_in_flight, .slow = slow}, access_.get(), &metrics_,
                    &log_);
  }

  static grpc::Status Run(CallGate* gate, Call call, absl::FunctionRef<grpc::Status()> answer) {
    return CallGate::Pending(gate, std::move(call)).Answer(answer);
  }

  double Series(const std::string& series) const { return SeriesValue(metrics_.Text(), series); }

  static constexpr std::chrono::hours kNever{1};
  std::vector<std::string> lines_;
  Log log_{LogLevel::kInfo, [this](const std::string& line) { lines_.push_back(line); }};
  Metrics metrics_;
  std::unique_ptr<Access> access_ = *Access::Load({});
};

TEST_F(CallGateTest, ShedsWhatIsOverTheLimit) {
  CallGate gate = MakeGate(2, kNever);
  {
    const auto first = gate.Enter();
    const auto second = gate.Enter();
    EXPECT_EQ(Series("plimsoll_inflight_requests"), 2);
    bool called = false;
    const grpc::Status status = Run(&gate, MakeCall(Face::kGrpc), [&] {
      called = true;
      return grpc::Status::OK;
    });
    EXPECT_FALSE(called);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(Series("plimsoll_requests_shed_total"), 1);
  }
  EXPECT_EQ(Series("plimsoll_inflight_requests"), 0);
  EXPECT_TRUE(Run(&gate, MakeCall(Face::kGrpc), [] { return grpc::Status::OK; }).ok());
}

TEST_F(CallGateTest, AnExceptionIsAnAnswer) {
  CallGate gate = MakeGate(1, kNever);
  const grpc::Status status = Run(&gate, MakeCall(Face::kGrpc), []() -> grpc::Status {
    throw std::runtime_error("out of luck");
  });
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(status.error_message(), "out of luck");
  EXPECT_THAT(lines_, ElementsAre(HasSubstr(R"("level":"error")")));
  EXPECT_TRUE(gate.Enter().has_value());
}

TEST_F(CallGateTest, LogsARefusalInOneLine) {
  CallGate gate = MakeGate(1, kNever);
  Run(&gate, MakeCall(Face::kHttp),
      [] { return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "job.a: \"\n\"; must be b"); });
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_THAT(lines_[0], testing::StartsWith(R"({"time":"2)"));
  EXPECT_THAT(
      lines_[0],
      HasSubstr(R"("level":"info","event":"refused","method":"EstimateMemory","face":"http",)"
                R"("peer":"ipv4:10.0.0.1:5","code":"InvalidArgument","duration_ms":)"));
  EXPECT_THAT(lines_[0], testing::EndsWith(R"("request_bytes":12.0,"request_id":"id-7",)"
                                           R"("message":"job.a: \"\n\"; must be b"})"
                                           "\n"));
}

TEST_F(CallGateTest, APeerRefusedAgainAndAgainHasSomeLines) {
  CallGate gate = MakeGate(1, kNever);
  for (int i = 0; i < 10 * kMaxPeerLines; ++i) {
    Run(&gate, MakeCall(Face::kGrpc),
        [] { return grpc::Status(grpc::StatusCode::NOT_FOUND, "x"); });
  }
  EXPECT_GE(lines_.size(), static_cast<size_t>(kMaxPeerLines));
  EXPECT_LE(lines_.size(), static_cast<size_t>(2 * kMaxPeerLines)) << "in less than two stretches";
}

TEST_F(CallGateTest, LogsSlowCallsAndNoOthers) {
  CallGate patient = MakeGate(1, kNever);
  Run(&patient, MakeCall(Face::kGrpc), [] { return grpc::Status::OK; });
  EXPECT_THAT(lines_, IsEmpty());
  CallGate impatient = MakeGate(1, std::chrono::milliseconds(0));
  Run(&impatient, MakeCall(Face::kGrpc), [] { return grpc::Status::OK; });
  EXPECT_THAT(lines_, ElementsAre(HasSubstr(R"("event":"slow")")));
}

TEST_F(CallGateTest, CountsEachFaceUnderItsOwnNames) {
  CallGate gate = MakeGate(1, kNever);
  Run(&gate, MakeCall(Face::kGrpc), [] { return grpc::Status::OK; });
  Run(&gate, MakeCall(Face::kHttp), [] { return grpc::Status(grpc::StatusCode::NOT_FOUND, "x"); });
  EXPECT_EQ(Series(R"(grpc_server_started_total{grpc_method="EstimateMemory",)"
                   R"(grpc_service="plimsoll.v1.PlannerService",grpc_type="unary"})"),
            1);
  EXPECT_EQ(Series(R"(grpc_server_handled_total{grpc_code="OK",grpc_method="EstimateMemory",)"
                   R"(grpc_service="plimsoll.v1.PlannerService",grpc_type="unary"})"),
            1);
  EXPECT_EQ(Series(R"(http_requests_total{code="404",handler="/v1:estimateMemory"})"), 1);
  EXPECT_EQ(Series(R"(http_requests_total{code="200",handler="/v1:estimateMemory"})"), 0);
}

// With a policy calls are somebody's, and so is what they cost; a limit of its own is no load.
TEST_F(CallGateTest, CountsByCallerOfThePolicy) {
  const std::string policy =
      WriteTestFile("access.yaml",
                    "callers: [{name: local, unix_socket: true, methods: [all], max_cores: 0.1}]\n"
                    "anyone: [ListGpus]\n");
  access_ = *Access::Load({.policy = policy});
  CallGate gate = MakeGate(1, kNever);
  Call call = MakeCall(Face::kGrpc);
  EXPECT_EQ(Run(&gate, call, [] { return grpc::Status::OK; }).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  call.identity = [] { return Identity{.over_unix_socket = true}; };
  CallGate::Pending pending(&gate, call);
  EXPECT_EQ(pending.caller(), "local");
  pending.Charge(std::chrono::seconds(2));
  EXPECT_TRUE(pending
                  .Answer([] {
                    // More than none, on a machine of any speed.
                    for (const std::chrono::nanoseconds begin = ThreadTime();
                         ThreadTime() == begin;) {
                    }
                    return grpc::Status::OK;
                  })
                  .ok());
  const grpc::Status refused = Run(&gate, call, [] { return grpc::Status::OK; });
  EXPECT_THAT(refused.error_message(), HasSubstr("local is at its max_cores of 0.1 here"));
  EXPECT_EQ(Series(R"(plimsoll_caller_calls_total{caller="anyone"})"), 1);
  EXPECT_EQ(Series(R"(plimsoll_caller_refused_total{caller="anyone",rule="methods"})"), 1);
  EXPECT_EQ(Series(R"(plimsoll_caller_calls_total{caller="local"})"), 2);
  EXPECT_EQ(Series(R"(plimsoll_caller_refused_total{caller="local",rule="max_cores"})"), 1);
  EXPECT_EQ(Series(R"(plimsoll_caller_refused_total{caller="local",rule="methods"})"), 0);
  EXPECT_GT(Series(R"(plimsoll_caller_core_seconds_total{caller="local"})"), 2);
  EXPECT_EQ(Series("plimsoll_requests_shed_total"), 0);
}

TEST_F(CallGateTest, EverySeriesIsThereFromTheStart) {
  const std::string text = metrics_.Text();
  size_t handled = 0;
  for (size_t at = 0; (at = text.find("\ngrpc_server_handled_total{", at)) != std::string::npos;
       ++at) {
    ++handled;
  }
  EXPECT_EQ(handled, kMethodCount * 17u);
  for (const char* const verdict : {"fits", "at-risk", "does-not-fit", "refused"}) {
    EXPECT_EQ(Series("plimsoll_estimates_total{verdict=\"" + std::string(verdict) + "\"}"), 0);
  }
  for (const char* const outcome :
       {"fits", "nothing-fits", "truncated", "refused", "abandoned", "shed"}) {
    EXPECT_EQ(Series("plimsoll_searches_total{outcome=\"" + std::string(outcome) + "\"}"), 0);
  }
  for (const char* const stage : {"legal", "estimated", "fit"}) {
    EXPECT_EQ(Series("plimsoll_search_candidates_total{stage=\"" + std::string(stage) + "\"}"), 0);
  }
  for (const char* const state : {"running", "waiting"}) {
    EXPECT_EQ(Series("plimsoll_searches_in_progress{state=\"" + std::string(state) + "\"}"), 0);
  }
  EXPECT_EQ(Series("plimsoll_search_seconds_count"), 0);
  EXPECT_EQ(Series("plimsoll_violations_total"), 0);
  EXPECT_EQ(Series("plimsoll_estimate_peak_bytes_count"), 0);
  EXPECT_EQ(Series("plimsoll_build_info{estimator_version=\"0.1.0\",version=\"0.1.0\"}"), 1);
  for (const char* const series : {"process_cpu_seconds_total", "process_resident_memory_bytes",
                                   "process_virtual_memory_bytes", "process_start_time_seconds",
                                   "process_open_fds", "process_max_fds", "process_threads"}) {
    EXPECT_GT(Series(series), 0) << series;
  }
}

}  // namespace
}  // namespace plimsoll
