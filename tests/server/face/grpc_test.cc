// The gRPC face of a real server: answers, refusals, health, reflection.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/wrappers.pb.h>

#include <future>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "gtest/gtest.h"
#include "server/catalog/catalog.h"
#include "server/wire/json.h"
#include "server/wire/status.h"
#include "tests/server/running_server.h"

namespace plimsoll {
namespace {

using grpc::ByteBuffer;
using grpc::ClientContext;
using testing::HasSubstr;

v1::EstimateMemoryRequest GoodRequest() {
  v1::EstimateMemoryRequest request;
  EXPECT_THAT(ReadJsonMessage(kGoodRequest, &request), testing::IsEmpty());
  return request;
}

ByteBuffer Bytes(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return {&slice, 1};
}

// Sends bytes as they are; returns what the server says.
grpc::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     const std::string& bytes) {
  grpc::GenericStub stub(channel);
  ClientContext context;
  const ByteBuffer request = Bytes(bytes);
  ByteBuffer response;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, absl::StrCat("/", kServiceName, "/", method), {}, &request, &response,
                 [&](grpc::Status status) { done.set_value(std::move(status)); });
  return done.get_future().get();
}

// The health of a service, as a number of grpc.health.v1; wire formats match.
template <typename Channel>
grpc::Status Health(const Channel& channel, const std::string& service, int* health) {
  grpc::TemplatedGenericStub<google::protobuf::StringValue, google::protobuf::Int32Value> stub(
      channel);
  ClientContext context;
  google::protobuf::StringValue request;
  request.set_value(service);
  google::protobuf::Int32Value response;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request, &response,
                 [&](grpc::Status status) { done.set_value(std::move(status)); });
  const grpc::Status status = done.get_future().get();
  *health = response.value();
  return status;
}

class GrpcTest : public testing::Test {
 protected:
  void SetUp() override {
    server_ = StartOrFail(FreePorts());
    ASSERT_NE(server_, nullptr);
    channel_ = grpc::CreateChannel(server_->addresses()[0], grpc::InsecureChannelCredentials());
    stub_ = v1::PlannerService::NewStub(channel_);
  }

  // The server answers after whatever the test did to it.
  void TearDown() override {
    ClientContext context;
    v1::ListGpusResponse response;
    EXPECT_TRUE(stub_->ListGpus(&context, {}, &response).ok());
    EXPECT_GT(response.gpus_size(), 0);
  }

  grpc::Status Estimate(const v1::EstimateMemoryRequest& request,
                        v1::EstimateMemoryResponse* response) {
    ClientContext context;
    return stub_->EstimateMemory(&context, request, response);
  }

  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::PlannerService::Stub> stub_;
};

TEST_F(GrpcTest, EstimatesAJob) {
  v1::EstimateMemoryResponse response;
  const grpc::Status status = Estimate(GoodRequest(), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_NE(response.verdict(), v1::VERDICT_UNSPECIFIED);
  EXPECT_EQ(response.parameter_count(), 8030261248);
  ASSERT_GT(response.ranks_size(), 0);
  const v1::RankMemory& rank = response.ranks(static_cast<int>(response.limiting_rank()));
  int64_t sum = 0;
  for (const v1::RoleBytes& role : rank.breakdown()) sum += role.bytes();
  EXPECT_EQ(sum, rank.device().expected_bytes());
  EXPECT_EQ(response.headroom().expected_bytes(),
            response.usable_bytes() - rank.device().expected_bytes());
  EXPECT_EQ(response.detail(), "replay");
  EXPECT_THAT(response.assumptions(0).field(), testing::StartsWith("job."));
}

TEST_F(GrpcTest, SameRequestSameBytes) {
  v1::EstimateMemoryRequest request = GoodRequest();
  request.set_include_trace(true);
  request.set_include_ledger(true);
  v1::EstimateMemoryResponse first, second;
  ASSERT_TRUE(Estimate(request, &first).ok());
  ASSERT_TRUE(Estimate(request, &second).ok());
  EXPECT_EQ(first.SerializeAsString(), second.SerializeAsString());
  EXPECT_GT(first.trace_size(), 0);
  EXPECT_GT(first.ledger_size(), 0);
  v1::EstimateMemoryResponse bare;
  ASSERT_TRUE(Estimate(GoodRequest(), &bare).ok());
  EXPECT_EQ(bare.trace_size() + bare.ledger_size(), 0);
}

TEST_F(GrpcTest, SaysAllViolationsAtOnce) {
  v1::EstimateMemoryRequest request = GoodRequest();
  request.mutable_job()->mutable_training()->set_sequence_length(0);
  request.mutable_job()->mutable_model()->set_name("llama-3.1-8c");
  request.mutable_job()->mutable_cluster()->set_gpus_per_node(-1);
  v1::EstimateMemoryResponse response;
  const grpc::Status status = Estimate(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  google::rpc::BadRequest bad_request;
  const google::rpc::Status rpc_status = ToRpcStatus(status);
  for (const auto& any : rpc_status.details()) any.UnpackTo(&bad_request);
  ASSERT_EQ(bad_request.field_violations_size(), 3) << status.error_message();
  EXPECT_EQ(bad_request.field_violations(0).field(), "job.model.name");
  EXPECT_EQ(bad_request.field_violations(1).field(), "job.cluster.gpus_per_node");
  EXPECT_EQ(bad_request.field_violations(2).field(), "job.training.sequence_length");
}

TEST_F(GrpcTest, ABatchKeepsItsOrderAndItsBadJobsApart) {
  v1::BatchEstimateMemoryRequest batch;
  for (int i = 0; i < 5; ++i) *batch.add_requests() = GoodRequest();
  batch.mutable_requests(1)->clear_job();
  batch.mutable_requests(3)->mutable_job()->mutable_model()->set_name("nobody");
  ClientContext context;
  v1::BatchEstimateMemoryResponse response;
  const grpc::Status status = stub_->BatchEstimateMemory(&context, batch, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.results_size(), 5);
  for (const int good : {0, 2, 4}) EXPECT_TRUE(response.results(good).has_response()) << good;
  for (const int bad : {1, 3}) {
    EXPECT_EQ(response.results(bad).error().code(), grpc::StatusCode::INVALID_ARGUMENT) << bad;
  }
  EXPECT_THAT(response.results(3).error().message(), HasSubstr("job.model.name: nobody; "));
  const std::string text = server_->metrics().Text();
  EXPECT_EQ(SeriesValue(text, "plimsoll_estimates_total{verdict=\"refused\"}"), 2);
  EXPECT_EQ(SeriesValue(text, "plimsoll_estimate_peak_bytes_count"), 3);
}

TEST_F(GrpcTest, ABatchHasOneToAThousandJobs) {
  v1::BatchEstimateMemoryRequest batch;
  v1::BatchEstimateMemoryResponse response;
  ClientContext none;
  EXPECT_EQ(stub_->BatchEstimateMemory(&none, batch, &response).error_message(),
            "requests: 0 requests; must be 1 to 1000");
  for (int i = 0; i < 1001; ++i) batch.add_requests();
  ClientContext many;
  EXPECT_EQ(stub_->BatchEstimateMemory(&many, batch, &response).error_message(),
            "requests: 1001 requests; must be 1 to 1000");
}

TEST_F(GrpcTest, RefusesBytesThatAreNoMessage) {
  const std::string good = GoodRequest().SerializeAsString();
  for (const std::string& bytes :
       {good.substr(0, good.size() - 3), std::string("\xff\xff\xff"), std::string("\x0a\x05")}) {
    const grpc::Status status = CallRaw(channel_, "EstimateMemory", bytes);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(status.error_message(),
              absl::StrCat("request: ", bytes.size(),
                           " bytes; must be a serialized plimsoll.v1.EstimateMemoryRequest"));
  }
}

TEST_F(GrpcTest, RefusesFieldNumbersThatItDoesNotKnow) {
  v1::EstimateMemoryRequest request = GoodRequest();
  const auto add = [](google::protobuf::Message* message, int number) {
    message->GetReflection()->MutableUnknownFields(message)->AddVarint(number, 1);
  };
  add(&request, 77);
  add(request.mutable_job()->mutable_training(), 99);
  add(request.mutable_job()->mutable_training(), 99);
  auto* const config = request.mutable_job()->mutable_model()->mutable_hf_config();
  add(&(*config->mutable_fields())["x"], 50);
  request.mutable_job()->mutable_training()->set_micro_batch_size(0);
  EXPECT_EQ(CallRaw(channel_, "EstimateMemory", request.SerializeAsString()).error_message(),
            "request: field number 77; not known to version 0.1.0\n"
            "job.model.hf_config: field number 50; not known to version 0.1.0\n"
            "job.training: field number 99; not known to version 0.1.0\n"
            "job.model.hf_config.model_type: unset; must be set; of a dense decoder's fields it "
            "lacks hidden_size, num_hidden_layers, num_attention_heads, vocab_size, "
            "intermediate_size\n"
            "job.training.micro_batch_size: 0; must be from 1 to 1048576");
  v1::BatchEstimateMemoryRequest batch;
  batch.add_requests();
  add(&batch, 5);
  EXPECT_EQ(CallRaw(channel_, "BatchEstimateMemory", batch.SerializeAsString()).error_message(),
            "request: field number 5; not known to version 0.1.0");
  v1::ListModelsRequest list;
  add(&list, 1);
  EXPECT_EQ(CallRaw(channel_, "ListModels", list.SerializeAsString()).error_message(),
            "request: field number 1; not known to version 0.1.0");
}

TEST_F(GrpcTest, RefusesAMessageOverItsLimit) {
  v1::EstimateMemoryRequest request = GoodRequest();
  request.mutable_job()->mutable_cluster()->set_gpu(std::string(2 << 20, 'g'));
  v1::EstimateMemoryResponse response;
  EXPECT_EQ(Estimate(request, &response).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(GrpcTest, BoundsAnHfConfig) {
  v1::EstimateMemoryRequest request = GoodRequest();
  auto* const config = request.mutable_job()->mutable_model()->mutable_hf_config();
  (*config->mutable_fields())["x"].set_string_value(std::string(70000, 'x'));
  google::protobuf::Value* deep = &(*config->mutable_fields())["deep"];
  for (int level = 0; level < 16; ++level) deep = deep->mutable_list_value()->add_values();
  deep->set_null_value(google::protobuf::NULL_VALUE);
  request.mutable_job()->mutable_training()->set_micro_batch_size(0);
  v1::EstimateMemoryResponse response;
  EXPECT_EQ(Estimate(request, &response).error_message(),
            absl::StrCat("job.model.hf_config: ", config->ByteSizeLong(),
                         " bytes; must be at most 65536 bytes\n"
                         "job.model.hf_config: 17 levels; must nest at most 16 levels\n"
                         "job.training.micro_batch_size: 0; must be from 1 to 1048576"));
}

TEST_F(GrpcTest, RefusesWhenOverloadedAndSaysWhenToComeBack) {
  ServerOptions options = FreePorts();
  options.max_in_flight = 1;
  const std::unique_ptr<Server> server = StartOrFail(options);
  const auto stub = v1::PlannerService::NewStub(server->InProcessChannel());
  v1::ListGpusResponse response;
  {
    const auto permit = server->gate().Enter();
    ClientContext context;
    const grpc::Status status = stub->ListGpus(&context, {}, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(RetryAfterOf(status), std::chrono::milliseconds(100));
    const auto pushback = context.GetServerTrailingMetadata().find("grpc-retry-pushback-ms");
    ASSERT_NE(pushback, context.GetServerTrailingMetadata().end());
    EXPECT_EQ(pushback->second, "100");
  }
  ClientContext context;
  EXPECT_TRUE(stub->ListGpus(&context, {}, &response).ok());
}

TEST_F(GrpcTest, AnExpiredDeadlineIsSaid) {
  ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() - std::chrono::seconds(1));
  v1::EstimateMemoryResponse response;
  EXPECT_EQ(stub_->EstimateMemory(&context, GoodRequest(), &response).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST_F(GrpcTest, ListsTheCatalog) {
  ClientContext models_context, gpus_context;
  v1::ListModelsResponse models;
  ASSERT_TRUE(stub_->ListModels(&models_context, {}, &models).ok());
  EXPECT_GE(models.models_size(), 40);
  int id_count = 0;
  for (const v1::ModelInfo& model : models.models()) {
    EXPECT_GT(model.parameter_count(), 0);
    id_count += model.hf_ids_size();
    if (model.name() != "gemma-2b") continue;
    EXPECT_THAT(model.hf_ids(), testing::ElementsAre("google/gemma-2b", "google/gemma-2b-it"));
  }
  EXPECT_EQ(id_count, static_cast<int>(LoadCatalog().hf_ids.size()));
  v1::ListGpusResponse gpus;
  ASSERT_TRUE(stub_->ListGpus(&gpus_context, {}, &gpus).ok());
  EXPECT_GE(gpus.gpus_size(), 25);
  const auto open_names = [&](const char* id) {
    for (const v1::GpuInfo& gpu : gpus.gpus()) {
      if (gpu.gpu() == id) return gpu.ambiguous_aliases_size();
    }
    return -1;
  };
  EXPECT_EQ(open_names("a100-80gb-sxm"), 3);
  EXPECT_EQ(open_names("h200-141gb-sxm"), 0);
  for (const v1::GpuInfo& gpu : gpus.gpus()) {
    EXPECT_NE(gpu.architecture(), "") << gpu.gpu();
    EXPECT_GT(gpu.runtime_memory_bytes(), 0) << gpu.gpu();
    EXPECT_GT(gpu.context_bytes(), 0) << gpu.gpu();
    for (const v1::AmbiguousAlias& name : gpu.ambiguous_aliases()) {
      EXPECT_THAT(gpu.aliases(), testing::Contains(name.alias()));
      EXPECT_THAT(name.gpus(), testing::Contains(gpu.gpu())) << name.alias();
      EXPECT_GE(name.gpus_size(), 2) << name.alias();
    }
  }
}

TEST_F(GrpcTest, AnswersTheSameWithoutASocket) {
  const auto stub = v1::PlannerService::NewStub(server_->InProcessChannel());
  ClientContext context;
  v1::ListGpusResponse response;
  EXPECT_TRUE(stub->ListGpus(&context, {}, &response).ok());
}

TEST_F(GrpcTest, SaysItsHealth) {
  constexpr int kServing = 1, kNotServing = 2;
  int health = 0;
  for (const std::string service : {"", kServiceName}) {
    EXPECT_TRUE(Health(channel_, service, &health).ok());
    EXPECT_EQ(health, kServing);
  }
  EXPECT_EQ(Health(channel_, "nobody", &health).error_code(), grpc::StatusCode::NOT_FOUND);
  server_->SetNotReady();
  for (const std::string service : {"", kServiceName}) {
    EXPECT_TRUE(Health(channel_, service, &health).ok());
    EXPECT_EQ(health, kNotServing);
  }
}

// 64 KiB of gzip are 64 MiB of zeros, which gRPC would unpack before it looks at their size.
TEST_F(GrpcTest, UnpacksNothing) {
  grpc::GenericStub stub(
      grpc::CreateChannel(server_->addresses()[0], grpc::InsecureChannelCredentials()));
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    ClientContext context;
    context.set_compression_algorithm(algorithm);
    const ByteBuffer request = Bytes(std::string(64 << 20, '\0'));
    ByteBuffer response;
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, absl::StrCat("/", kServiceName, "/EstimateMemory"), {}, &request,
                   &response, [&](grpc::Status status) { done.set_value(std::move(status)); });
    const grpc::Status status = done.get_future().get();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("is disabled"));
  }
}

// The reflection service's messages are in the pool, their headers nowhere.
TEST_F(GrpcTest, Reflects) {
  const auto* const pool = google::protobuf::DescriptorPool::generated_pool();
  google::protobuf::DynamicMessageFactory factory;
  const auto make = [&](const char* name) {
    const auto* const type = pool->FindMessageTypeByName(name);
    return std::unique_ptr<google::protobuf::Message>(factory.GetPrototype(type)->New());
  };
  const auto request = make("grpc.reflection.v1alpha.ServerReflectionRequest");
  request->GetReflection()->SetString(
      request.get(), request->GetDescriptor()->FindFieldByName("list_services"), "");
  grpc::GenericStub stub(channel_);
  grpc::CompletionQueue queue;
  ClientContext context;
  auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  const auto step = [&queue](auto start) {
    start();
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  ASSERT_TRUE(step([&] { call->StartCall(nullptr); }));
  ASSERT_TRUE(step([&] { call->WriteLast(Bytes(request->SerializeAsString()), {}, nullptr); }));
  ByteBuffer bytes;
  ASSERT_TRUE(step([&] { call->Read(&bytes, nullptr); }));
  const auto response = make("grpc.reflection.v1alpha.ServerReflectionResponse");
  ASSERT_TRUE(
      grpc::SerializationTraits<google::protobuf::Message>::Deserialize(&bytes, response.get())
          .ok());
  EXPECT_THAT(response->DebugString(), HasSubstr("name: \"plimsoll.v1.PlannerService\""));
  grpc::Status status;
  EXPECT_TRUE(step([&] { call->Finish(&status, nullptr); }));
  EXPECT_TRUE(status.ok()) << status.error_message();
}

// Between jobs a batch asks whether it should go on.
TEST(PlannerTest, ABatchStopsBetweenJobs) {
  Catalog catalog;
  Metrics metrics;
  const Log log(LogLevel::kOff);
  const Planner planner(catalog, {}, &metrics, &log);
  v1::BatchEstimateMemoryRequest batch;
  for (int i = 0; i < 10; ++i) batch.add_requests();
  for (const auto code : {grpc::StatusCode::CANCELLED, grpc::StatusCode::DEADLINE_EXCEEDED}) {
    int asked = 0;
    const StopCheck stop = [&] { return ++asked > 4 ? code : grpc::StatusCode::OK; };
    WireWriter written;
    const grpc::Status status = planner.BatchEstimateMemory(batch, {}, {}, stop, &written);
    EXPECT_EQ(status.error_code(), code);
    EXPECT_EQ(status.error_message(), "stopped after 4 of 10 jobs");
    v1::BatchEstimateMemoryResponse response;
    EXPECT_TRUE(response.ParseFromString(std::string(written.bytes())));
    EXPECT_EQ(response.results_size(), 4);
  }
}

}  // namespace
}  // namespace plimsoll
