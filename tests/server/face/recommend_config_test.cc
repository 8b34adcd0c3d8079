// RecommendConfig of a real server, over both faces: the answer, refusals, its
// limits, and how a search ends early.
#include <google/protobuf/util/message_differencer.h>

#include <future>
#include <latch>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/wire/json.h"
#include "server/wire/status.h"
#include "tests/server/blocker.h"
#include "tests/server/running_server.h"

namespace plimsoll {
namespace {

using google::protobuf::util::MessageDifferencer;
using grpc::ClientContext;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kRunning[] = R"(plimsoll_searches_in_progress{state="running"})";
constexpr char kWaiting[] = R"(plimsoll_searches_in_progress{state="waiting"})";

// Unsharded, it does not fit. Little is searched: with sanitizers each candidate
// takes long.
constexpr char kSearch[] = R"({
  "job": {
    "model": {"name": "llama-3.1-8b"},
    "training": {"sequence_length": 4096, "global_batch_size": 64},
    "parallelism": {"zero_stage": 0},
    "runtime": {"framework": "megatron-core", "versions": {"megatron-core": "0.8"}},
    "cluster": {"gpu": "h100-80gb-sxm", "gpu_count": 8}
  },
  "frozen": ["parallelism.pipeline_parallel_size", "training.micro_batch_size"],
  "gpu_hour_prices": {"h100-80gb-sxm": 2.5}
})";

v1::RecommendConfigRequest Search() {
  v1::RecommendConfigRequest request;
  EXPECT_THAT(ReadJsonMessage(kSearch, &request), IsEmpty());
  return request;
}

// One that takes longer than any test waits.
v1::RecommendConfigRequest LongSearch() {
  v1::RecommendConfigRequest request = Search();
  request.mutable_job()->mutable_training()->set_global_batch_size(1 << 20);
  for (int count = 0; count < 256; ++count) request.add_gpu_counts(1024 + 256 * count);
  for (const char* const gpu : {"h100-80gb-sxm", "h200-141gb-sxm", "a100-80gb-sxm", "b200-180gb",
                                "b300-288gb", "mi300x-192gb", "mi325x-256gb", "h20-96gb-sxm"}) {
    request.add_gpus(gpu);
  }
  request.clear_gpu_hour_prices();
  request.clear_frozen();
  return request;
}

class RecommendTest : public testing::Test {
 protected:
  void SetUp() override { Start(Patient()); }

  // As long as a search may take, so that no answer depends on the machine.
  static ServerOptions Patient() {
    ServerOptions options = FreePorts();
    options.max_search_time = std::chrono::hours(1);
    return options;
  }

  void Start(const ServerOptions& options) {
    server_ = StartOrFail(options);
    ASSERT_NE(server_, nullptr);
    stub_ = StubFor(server_->addresses()[0]);
  }

  grpc::Status Recommend(const v1::RecommendConfigRequest& request,
                         v1::RecommendConfigResponse* response) {
    ClientContext context;
    return stub_->RecommendConfig(&context, request, response);
  }

  httplib::Result Post(const std::string& body) {
    auto client = HttpClientFor(server_->http_addresses()[0]);
    client.set_read_timeout(std::chrono::hours(1));
    return client.Post("/v1:recommendConfig", body, "application/json");
  }

  double Series(const std::string& series) const {
    return SeriesValue(server_->metrics().Text(), series);
  }

  double Outcome(const std::string& outcome) const {
    return Series(absl::StrCat("plimsoll_searches_total{outcome=\"", outcome, "\"}"));
  }

  void WaitFor(const char* series, double value) const {
    while (Series(series) != value) std::this_thread::yield();
  }

  std::unique_ptr<Server> server_;
  std::unique_ptr<v1::PlannerService::Stub> stub_;
};

// A call that is not waited for.
class Call {
 public:
  Call(v1::PlannerService::Stub* stub, const v1::RecommendConfigRequest& request)
      : request_(request) {
    stub->async()->RecommendConfig(&context_, &request_, &response_,
                                   [this](grpc::Status status) { status_.set_value(status); });
  }
  void Cancel() { context_.TryCancel(); }
  grpc::Status Wait() { return status_.get_future().get(); }
  const v1::RecommendConfigResponse& response() const { return response_; }

 private:
  const v1::RecommendConfigRequest request_;
  v1::RecommendConfigResponse response_;
  ClientContext context_;
  std::promise<grpc::Status> status_;
};

TEST_F(RecommendTest, HasACostWhereThereIsAPrice) {
  v1::RecommendConfigRequest request = Search();
  request.add_gpus("h100-80gb-sxm");
  request.add_gpus("h200-141gb-sxm");
  request.set_max_results(100);
  v1::RecommendConfigResponse response;
  ASSERT_TRUE(Recommend(request, &response).ok());
  std::set<std::string> seen;
  for (const v1::Candidate& candidate : response.candidates()) {
    const std::string& gpu = candidate.job().cluster().gpu();
    EXPECT_EQ(candidate.step_time().has_cost_per_billion_tokens(), gpu == "h100-80gb-sxm") << gpu;
    EXPECT_EQ(ToJson(candidate).find("costPerBillionTokens") != std::string::npos,
              gpu == "h100-80gb-sxm");
    seen.insert(gpu);
  }
  EXPECT_EQ(seen.size(), 2u);
}

TEST_F(RecommendTest, FindsWhatFits) {
  v1::RecommendConfigResponse response;
  const grpc::Status status = Recommend(Search(), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.requested().verdict(), v1::VERDICT_DOES_NOT_FIT);
  EXPECT_THAT(response.requested().changes(), IsEmpty());
  EXPECT_TRUE(MessageDifferencer::Equals(response.requested().job(), Search().job()));
  EXPECT_EQ(response.candidates_size(), 5);
  for (const v1::Candidate& candidate : response.candidates()) {
    EXPECT_EQ(candidate.verdict(), v1::VERDICT_FITS);
    EXPECT_GT(candidate.changes_size(), 0);
    EXPECT_GT(candidate.step_time().seconds(), 0);
    EXPECT_GT(candidate.step_time().cost_per_billion_tokens(), 0);
    EXPECT_EQ(candidate.step_time().terms_size(), 12);
  }
  EXPECT_GT(response.front_size(), 0);
  EXPECT_GE(response.legal_count(), response.estimated_count());
  EXPECT_GE(response.estimated_count(), response.fit_count());
  EXPECT_GE(response.fit_count(), response.candidates_size());
  EXPECT_FALSE(response.truncated());
  EXPECT_FALSE(response.has_obstacle());
  EXPECT_NE(response.speed_id(), "");
  EXPECT_EQ(Outcome("fits"), 1);
  EXPECT_EQ(Series(R"(plimsoll_search_candidates_total{stage="legal"})"), response.legal_count());
  EXPECT_EQ(Series(R"(plimsoll_search_candidates_total{stage="estimated"})"),
            response.estimated_count());
  EXPECT_EQ(Series(R"(plimsoll_search_candidates_total{stage="fit"})"), response.fit_count());
  EXPECT_EQ(Series("plimsoll_search_seconds_count"), 1);
}

// What is recommended can be asked for, and has the same figures.
TEST_F(RecommendTest, EachCandidateEstimatedAgainIsTheSame) {
  v1::RecommendConfigResponse response;
  ASSERT_TRUE(Recommend(Search(), &response).ok());
  std::vector<v1::Candidate> all(response.candidates().begin(), response.candidates().end());
  all.push_back(response.requested());
  const size_t replayed = all.size();
  all.insert(all.end(), response.front().begin(), response.front().end());
  for (size_t i = 0; i < all.size(); ++i) {
    const v1::Candidate& candidate = all[i];
    v1::EstimateMemoryRequest request;
    *request.mutable_job() = candidate.job();
    request.set_detail(candidate.detail());
    ClientContext context;
    v1::EstimateMemoryResponse estimate;
    const grpc::Status status = stub_->EstimateMemory(&context, request, &estimate);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(estimate.usable_bytes(), candidate.usable_bytes());
    EXPECT_EQ(estimate.usable_bytes() - estimate.headroom().expected_bytes(),
              candidate.device().expected_bytes());
    if (i >= replayed) continue;  // a front's bounds are those that a replay would have
    EXPECT_EQ(estimate.verdict(), candidate.verdict());
    EXPECT_EQ(estimate.usable_bytes() - estimate.headroom().bound_bytes(),
              candidate.device().bound_bytes());
  }
}

TEST_F(RecommendTest, AnswersTheSameOverHttp) {
  const httplib::Result posted = Post(kSearch);
  ASSERT_TRUE(posted);
  ASSERT_EQ(posted->status, 200) << posted->body;
  v1::RecommendConfigResponse over_http, over_grpc;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(posted->body, &over_http).ok());
  ASSERT_TRUE(Recommend(Search(), &over_grpc).ok());
  EXPECT_TRUE(MessageDifferencer::Equals(over_http, over_grpc));
  EXPECT_EQ(Series(R"(http_requests_total{code="200",handler="/v1:recommendConfig"})"), 1);
  EXPECT_EQ(Series(R"(grpc_server_handled_total{grpc_code="OK",grpc_method="RecommendConfig",)"
                   R"(grpc_service="plimsoll.v1.PlannerService",grpc_type="unary"})"),
            1);
}

TEST_F(RecommendTest, ThatNothingFitsIsAnAnswer) {
  v1::RecommendConfigRequest request = Search();
  request.mutable_job()->mutable_model()->set_name("llama-3.1-405b");
  v1::RecommendConfigResponse response;
  const grpc::Status status = Recommend(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.candidates_size(), 0);
  EXPECT_EQ(response.fit_count(), 0);
  ASSERT_TRUE(response.has_obstacle());
  EXPECT_GT(response.obstacle().missing_bytes(), 0);
  EXPECT_NE(response.obstacle().largest_role(), v1::ROLE_UNSPECIFIED);
  EXPECT_EQ(Outcome("nothing-fits"), 1);
}

TEST_F(RecommendTest, SaysAllViolationsAtOnce) {
  v1::RecommendConfigRequest request = Search();
  request.set_objective("fastets");
  request.set_max_results(101);
  request.mutable_job()->mutable_training()->set_micro_batch_size(0);
  request.add_allowed_changes("parallelism.zero_stge");
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(77, 1);
  v1::RecommendConfigResponse response;
  const grpc::Status status = Recommend(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const std::vector<std::string> parts = {"request: field number 77; not known to version",
                                          "allowed_changes: parallelism.zero_stge; is not known; ",
                                          "objective: fastets; ", "max_results: 101; ",
                                          "job.training.micro_batch_size: 0; "};
  for (const std::string& part : parts) EXPECT_THAT(status.error_message(), HasSubstr(part));
  EXPECT_EQ(Outcome("refused"), 1);
  EXPECT_EQ(Series("plimsoll_violations_total"), 5);
}

TEST_F(RecommendTest, SaysWhatItCouldNotReadBesideTheRest) {
  const httplib::Result posted = Post(
      R"({"job": {"model": {"name": "nobody"}}, "frozn": [], "gpu_hour_prices": {"h100": "2"},
          "max_results": 101})");
  ASSERT_TRUE(posted);
  EXPECT_EQ(posted->status, 400);
  for (const char* const part :
       {"frozn: a list; no such field, did you mean frozen",
        "gpu_hour_prices.h100: \\\"2\\\"; must be a number", "job.model.name: nobody; ",
        "max_results: 101; ", "job.training.sequence_length: unset; must be set"}) {
    EXPECT_THAT(posted->body, HasSubstr(part));
  }
}

TEST_F(RecommendTest, RefusesBytesThatAreNoMessage) {
  const httplib::Result posted = Post("{");
  ASSERT_TRUE(posted);
  EXPECT_EQ(posted->status, 400);
  v1::RecommendConfigRequest deep = Search();
  auto* value = &(*deep.mutable_job()->mutable_model()->mutable_hf_config()->mutable_fields())["x"];
  for (int level = 0; level < 16; ++level) value = value->mutable_list_value()->add_values();
  v1::RecommendConfigResponse response;
  EXPECT_THAT(Recommend(deep, &response).error_message(),
              HasSubstr("job.model.hf_config: 17 levels; must nest at most 16 levels"));
}

class FullTest : public RecommendTest {
 protected:
  void SetUp() override {
    ServerOptions options = Patient();
    options.search_threads = 1;
    options.max_searches = 1;
    Start(options);
  }
};

TEST_F(FullTest, ShedsSearchesAndNothingElse) {
  {
    const Blocker blocker(server_->pools().searches);
    v1::RecommendConfigResponse response;
    const grpc::Status status = Recommend(Search(), &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_TRUE(RetryAfterOf(status).has_value());
    const httplib::Result posted = Post(kSearch);
    ASSERT_TRUE(posted);
    EXPECT_EQ(posted->status, 429);
    EXPECT_EQ(posted->get_header_value("Retry-After"), "1");
    EXPECT_EQ(Outcome("shed"), 2);
    ClientContext context;
    v1::EstimateMemoryRequest request;
    v1::EstimateMemoryResponse estimate;
    EXPECT_THAT(ReadJsonMessage(kGoodRequest, &request), IsEmpty());
    EXPECT_TRUE(stub_->EstimateMemory(&context, request, &estimate).ok());
  }
  v1::RecommendConfigResponse response;
  EXPECT_TRUE(Recommend(Search(), &response).ok());
}

TEST_F(FullTest, CountsAgainstCallsInFlightToo) {
  ServerOptions options = Patient();
  options.max_in_flight = 1;
  Start(options);
  v1::RecommendConfigResponse response;
  {
    const auto permit = server_->gate().Enter();
    EXPECT_THAT(Recommend(Search(), &response).error_message(),
                HasSubstr("1 requests are in flight already"));
    EXPECT_EQ(Outcome("shed"), 0) << "the gate's refusal, not the pool's";
  }
  EXPECT_TRUE(Recommend(Search(), &response).ok());
}

// As many HTTP threads as there may be searches wait for admissions; pages have others.
TEST_F(RecommendTest, PagesAnswerWhileSearchesWait) {
  ServerOptions options = Patient();
  options.search_threads = 1;
  options.max_searches = 12;
  Start(options);
  std::vector<std::future<int>> answers;
  {
    const Blocker blocker(server_->pools().admissions);
    for (int i = 1; i < 12; ++i) {
      answers.push_back(std::async(std::launch::async, [this] {
        auto client = HttpClientFor(server_->http_addresses()[0]);
        const httplib::Result posted = client.Post("/v1:admit", "{}", "application/json");
        return posted ? posted->status : 0;
      }));
    }
    WaitFor(kWaiting, 11);
    const httplib::Result page = HttpClientFor(server_->http_addresses()[0]).Get("/healthz");
    ASSERT_TRUE(page);
    EXPECT_EQ(page->status, 200);
  }
  for (auto& answer : answers) EXPECT_EQ(answer.get(), 200);
}

TEST_F(RecommendTest, AtTheServersLimitTheBestSoFarIsTheAnswer) {
  ServerOptions options = Patient();
  options.max_search_time = std::chrono::milliseconds(0);
  Start(options);
  v1::RecommendConfigResponse response;
  const grpc::Status status = Recommend(Search(), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(response.truncated());
  EXPECT_EQ(response.requested().verdict(), v1::VERDICT_DOES_NOT_FIT);
  EXPECT_FALSE(response.has_obstacle()) << "nobody knows yet";
  EXPECT_EQ(Outcome("truncated"), 1);
}

class LongTest : public RecommendTest {
 protected:
  void SetUp() override {
    ServerOptions options = Patient();
    options.search_threads = 1;
    Start(options);
  }
};

// Whether the answer is still in time is the machine's affair (StopTimeTest has
// the reserve); that the search ends is not.
TEST_F(LongTest, EndsByItsCallersDeadline) {
  ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(1));
  v1::RecommendConfigResponse response;
  const grpc::Status status = stub_->RecommendConfig(&context, LongSearch(), &response);
  if (status.ok()) {
    EXPECT_TRUE(response.truncated());
  } else {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  WaitFor(kRunning, 0);
  EXPECT_EQ(Outcome("truncated") + Outcome("abandoned"), 1);
}

TEST_F(LongTest, EndsWhenItsCallerCancels) {
  Call call(stub_.get(), LongSearch());
  WaitFor(kRunning, 1);
  call.Cancel();
  EXPECT_EQ(call.Wait().error_code(), grpc::StatusCode::CANCELLED);
  WaitFor(kRunning, 0);
  EXPECT_EQ(Outcome("abandoned"), 1);
}

// What still waits is SearchPoolTest's: here it is refused in 40 ms.
TEST_F(LongTest, EndsWithTheServer) {
  Call running(stub_.get(), LongSearch());
  WaitFor(kRunning, 1);
  server_->Shutdown(std::chrono::minutes(1));
  const grpc::Status status = running.Wait();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(running.response().truncated());
}

// Nobody waits any more when the search would begin.
TEST(PlannerTest, ASearchIsGivenUpBeforeItBegins) {
  const Catalog catalog;
  Metrics metrics;
  const Log log(LogLevel::kOff);
  const Planner planner(catalog, {}, &metrics, &log);
  WireWriter written;
  const SearchStop stop = {.enough = [](double) { return false; },
                           .given_up = [] { return grpc::StatusCode::DEADLINE_EXCEEDED; }};
  const grpc::Status status = planner.RecommendConfig({}, {}, stop, &written);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(status.error_message(), "the search was given up");
  EXPECT_EQ(written.bytes(), "");
  EXPECT_EQ(SeriesValue(metrics.Text(), R"(plimsoll_searches_total{outcome="abandoned"})"), 1);
}

}  // namespace
}  // namespace plimsoll
