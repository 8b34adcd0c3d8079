// The client against a service that answers any bytes, or none.
#include "client/service/planner_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "grpcpp/create_channel.h"
#include "grpcpp/server_builder.h"
#include "plimsoll/v1/planner.grpc.pb.h"
#include "server/wire/status.h"
#include "tests/testing/test_files.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;
using Batch = v1::BatchEstimateMemoryRequest;
using BatchResponse = v1::BatchEstimateMemoryResponse;

class BytesService final : public v1::PlannerService::WithRawCallbackMethod_BatchEstimateMemory<
                               v1::PlannerService::Service> {
 public:
  // Answers each call with these bytes, cut into so many slices; or with the
  // status, where that is not OK; or never.
  std::string answer;
  size_t slices = 1;
  grpc::Status status;
  bool silent = false;
  std::atomic<int> failures{0};  // calls that fail, first
  grpc::Status failure{grpc::StatusCode::UNAVAILABLE, "starting"};

  grpc::ServerUnaryReactor* BatchEstimateMemory(grpc::CallbackServerContext* context,
                                                const grpc::ByteBuffer* /*request*/,
                                                grpc::ByteBuffer* response) override {
    std::vector<grpc::Slice> parts;
    for (size_t i = 0; i < slices; ++i) {
      const size_t begin = answer.size() * i / slices;
      parts.emplace_back(answer.substr(begin, answer.size() * (i + 1) / slices - begin));
    }
    *response = grpc::ByteBuffer(parts.data(), parts.size());
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    if (failures > 0) {
      --failures;
      reactor->Finish(failure);
      return reactor;
    }
    if (!silent) reactor->Finish(status);
    if (silent) silent_ = reactor;
    return reactor;
  }

  // Ends the call that was left without an answer.
  void End() { silent_->Finish(grpc::Status::CANCELLED); }

 private:
  grpc::ServerUnaryReactor* silent_ = nullptr;
};

class PlannerClientTest : public testing::Test {
 protected:
  PlannerClientTest() {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }

  absl::StatusOr<std::vector<JobAnswer>> Ask(int count, absl::Duration timeout = absl::Minutes(1)) {
    Batch batch;
    for (int i = 0; i < count; ++i) batch.add_requests();
    const PlannerClient client(server_->InProcessChannel({}), "the service", timeout);
    return client.BatchEstimateMemory(batch);
  }

  BytesService service_;
  std::unique_ptr<grpc::Server> server_;
};

BatchResponse TwoAnswers() {
  BatchResponse response;
  response.add_results()->mutable_response()->set_usable_bytes(7);
  auto* const error = response.add_results()->mutable_error();
  error->set_code(3);
  error->set_message("job: unset; must be set");
  return response;
}

TEST_F(PlannerClientTest, HandsAnswersOverAsTheyCame) {
  const BatchResponse response = TwoAnswers();
  service_.answer = response.SerializeAsString();
  for (const size_t slices : {1, 2, 5}) {
    service_.slices = slices;
    const absl::StatusOr<std::vector<JobAnswer>> answers = Ask(2);
    ASSERT_TRUE(answers.ok()) << answers.status();
    ASSERT_EQ(answers->size(), 2u);
    EXPECT_EQ(std::get<std::string>((*answers)[0]),
              response.results(0).response().SerializeAsString());
    EXPECT_EQ(std::get<google::rpc::Status>((*answers)[1]).SerializeAsString(),
              response.results(1).error().SerializeAsString());
  }
}

TEST_F(PlannerClientTest, AnEmptyAnswerIsOne) {
  BatchResponse response;
  response.add_results()->mutable_response();
  service_.answer = response.SerializeAsString();
  const absl::StatusOr<std::vector<JobAnswer>> answers = Ask(1);
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_EQ(std::get<std::string>(answers->front()), "");
}

TEST_F(PlannerClientTest, RefusesAnswersThatAreNone) {
  const std::string good = TwoAnswers().SerializeAsString();
  BatchResponse unset;
  unset.add_results();
  unset.add_results();
  for (const std::string& answer : {
           std::string(),                                            // none for two
           good + good,                                              // four for two
           good.substr(0, good.size() - 1),                          // cut short
           unset.SerializeAsString(),                                // neither answer nor error
           std::string("\x08\x01\x08\x01"),                          // numbers
           std::string("\x0a\x02\x08\x01\x0a\x00"),                  // a number for an answer
           std::string("\x0a\x04\x12\x02\xff\xff\x0a\x02\x0a\x00"),  // an error that is none
       }) {
    service_.answer = answer;
    const absl::StatusOr<std::vector<JobAnswer>> answers = Ask(2);
    EXPECT_EQ(answers.status().code(), absl::StatusCode::kInternal);
    EXPECT_EQ(answers.status().message(), "the service left out answers of a batch");
  }
}

TEST_F(PlannerClientTest, PassesOnWhyThereIsNoAnswer) {
  service_.status = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many");
  EXPECT_EQ(Ask(1).status(), absl::ResourceExhaustedError("too many"));
  service_.status = grpc::Status(grpc::StatusCode::UNAVAILABLE, "going away");
  EXPECT_EQ(Ask(1).status(), absl::UnavailableError("the service: out of reach; going away"));
}

TEST_F(PlannerClientTest, WaitsOnlySoLong) {
  service_.silent = true;
  EXPECT_EQ(Ask(1, absl::Microseconds(49700)).status(),
            absl::DeadlineExceededError("the service: no answer in 50ms"));
  service_.End();
}

// The next server is asked where one is out of reach, or has no answer in its share.
TEST_F(PlannerClientTest, AsksTheNextServer) {
  service_.answer = TwoAnswers().SerializeAsString();
  const auto nobody =
      grpc::CreateChannel("unix:/no/such/socket", grpc::InsecureChannelCredentials());
  const auto somebody = server_->InProcessChannel({});
  Batch batch;
  for (int i = 0; i < 2; ++i) batch.add_requests();
  const PlannerClient client({{nobody, "first"}, {somebody, "second"}}, absl::Minutes(1));
  EXPECT_TRUE(client.BatchEstimateMemory(batch).ok());
  const PlannerClient neither({{nobody, "first"}, {nobody, "second"}}, absl::Minutes(1));
  EXPECT_THAT(std::string(neither.BatchEstimateMemory(batch).status().message()),
              HasSubstr("second: out of reach; "));
  service_.status = {grpc::StatusCode::INVALID_ARGUMENT, "bad"};
  const PlannerClient refused({{somebody, "first"}, {nobody, "second"}}, absl::Minutes(1));
  EXPECT_EQ(refused.BatchEstimateMemory(batch).status().message(), "bad") << "an answer is one";
}

// A server that is starting again is asked again, as is one that has too much to do.
TEST_F(PlannerClientTest, AsksAgain) {
  const std::string address = "unix:" + TestPath("socket");
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(&service_);
  const std::unique_ptr<grpc::Server> listening = builder.BuildAndStart();
  service_.answer = TwoAnswers().SerializeAsString();
  Batch batch;
  for (int i = 0; i < 2; ++i) batch.add_requests();
  const grpc::Status failures[] = {{grpc::StatusCode::UNAVAILABLE, "starting"},
                                   Overloaded(1, "requests", std::chrono::milliseconds(1))};
  for (const grpc::Status& failure : failures) {
    service_.failure = failure;
    service_.failures = 2;
    const auto answer = ConnectTo(address, absl::Minutes(1), grpc::InsecureChannelCredentials())
                            .BatchEstimateMemory(batch);
    EXPECT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(service_.failures, 0);
  }
  // What would be too late is not waited for.
  service_.failure = Overloaded(1, "requests", std::chrono::minutes(2));
  service_.failures = 1;
  const auto full = ConnectTo(address, absl::Minutes(1), grpc::InsecureChannelCredentials())
                        .BatchEstimateMemory(batch);
  EXPECT_EQ(full.status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace plimsoll
