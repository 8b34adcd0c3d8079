// Replays that take long: on threads of their own, so that other calls do not wait.
#include <google/protobuf/util/json_util.h>

#include <future>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "server/wire/json.h"
#include "tests/server/blocker.h"
#include "tests/server/long_job.h"
#include "tests/server/running_server.h"

namespace plimsoll {
namespace {

using grpc::ClientContext;
using testing::AnyOf;
using testing::HasSubstr;
using testing::IsEmpty;

template <typename Request>
Request Read(const std::string& json) {
  Request request;
  EXPECT_THAT(ReadJsonMessage(json, &request), IsEmpty());
  return request;
}

constexpr time_t kPatienceSeconds = 120;

class LongReplayTest : public testing::Test {
 protected:
  void SetUp() override {
    ServerOptions options = FreePorts();
    options.search_threads = 1;
    options.max_in_flight = 8;
    server_ = StartOrFail(options);
    ASSERT_NE(server_, nullptr);
    stub_ = StubFor(server_->addresses()[0]);
  }

  grpc::Status Estimate(const std::string& json, v1::EstimateMemoryResponse* response,
                        ClientContext* context) const {
    return stub_->EstimateMemory(context, Read<v1::EstimateMemoryRequest>(json), response);
  }

  grpc::Status Estimate(const std::string& json) const {
    ClientContext context;
    v1::EstimateMemoryResponse response;
    return Estimate(json, &response, &context);
  }

  // On a machine that others load a long replay takes longer than a client waits for it.
  httplib::Response Post(const std::string& path, const std::string& body) const {
    httplib::Client client = HttpClientFor(server_->http_addresses()[0]);
    client.set_read_timeout(kPatienceSeconds);
    const httplib::Result result = client.Post(path, body, "application/json");
    EXPECT_TRUE(result) << path << ": " << httplib::to_string(result.error());
    return result ? *result : httplib::Response();
  }

  double Series(const std::string& series) const {
    return SeriesValue(server_->metrics().Text(), series);
  }

  std::unique_ptr<Server> server_;
  std::unique_ptr<v1::PlannerService::Stub> stub_;
};

TEST_F(LongReplayTest, OthersGoOnMeanwhile) {
  std::future<grpc::Status> waiting;
  {
    const Blocker blocker(server_->pools().replays);
    waiting = std::async(std::launch::async, [this] { return Estimate(kLongJob); });
    while (Series("plimsoll_searches_in_progress{state=\"waiting\"}") +
               Series("plimsoll_requests_shed_total") ==
           0) {
      std::this_thread::yield();
    }
    EXPECT_TRUE(Estimate(kGoodRequest).ok()) << "a short replay takes no thread of theirs";
    EXPECT_EQ(Post("/v1:estimateMemory", kGoodRequest).status, 200);
    const httplib::Response full = Post("/v1:estimateMemory", kLongJob);
    EXPECT_EQ(full.status, 429);
    EXPECT_THAT(full.body, HasSubstr("replays are in flight already"));
    EXPECT_GE(Series("plimsoll_requests_shed_total"), 1);
    EXPECT_EQ(Series("plimsoll_searches_total{outcome=\"shed\"}"), 0);
    EXPECT_EQ(Series("plimsoll_estimates_total{verdict=\"fits\"}"), 2);
  }
  // It waits for half of a replay's time at most.
  EXPECT_THAT(waiting.get().error_code(),
              AnyOf(grpc::StatusCode::OK, grpc::StatusCode::RESOURCE_EXHAUSTED));
}

TEST_F(LongReplayTest, IsRefusedSoonWhereNoThreadIsInTime) {
  const Blocker blocker(server_->pools().replays);
  const grpc::Status status = Estimate(kLongJob);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("1 replays are in flight already"));
}

TEST_F(LongReplayTest, AnswersTheSameOverBothFacesAndInABatch) {
  ClientContext context;
  v1::EstimateMemoryResponse over_grpc;
  ASSERT_TRUE(Estimate(kLongJob, &over_grpc, &context).ok());
  EXPECT_EQ(over_grpc.detail(), "replay");
  v1::EstimateMemoryResponse over_http;
  const httplib::Response posted = Post("/v1:estimateMemory", kLongJob);
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(posted.body, &over_http).ok());
  EXPECT_EQ(over_http.SerializeAsString(), over_grpc.SerializeAsString());
  std::string one = kLongJob;
  one.insert(one.rfind('}'), ", \"detail\": \"replay\"");
  const std::string batch = absl::StrCat("{\"requests\": [", one, "]}");
  ClientContext batch_context;
  v1::BatchEstimateMemoryResponse batched;
  ASSERT_TRUE(stub_
                  ->BatchEstimateMemory(&batch_context, Read<v1::BatchEstimateMemoryRequest>(batch),
                                        &batched)
                  .ok());
  EXPECT_EQ(batched.results(0).response().SerializeAsString(), over_grpc.SerializeAsString());
  const httplib::Response batch_posted = Post("/v1:batchEstimateMemory", batch);
  v1::BatchEstimateMemoryResponse batch_over_http;
  ASSERT_TRUE(
      google::protobuf::util::JsonStringToMessage(batch_posted.body, &batch_over_http).ok());
  EXPECT_EQ(batch_over_http.SerializeAsString(), batched.SerializeAsString());
}

}  // namespace
}  // namespace plimsoll
