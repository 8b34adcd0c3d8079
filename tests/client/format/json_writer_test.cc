// The writer agrees with protobuf's own printer, which is slower.
#include "client/format/json_writer.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "client/format/yaml_writer.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {
namespace {

using google::protobuf::TextFormat;
using google::protobuf::util::JsonPrintOptions;
using google::protobuf::util::MessageToJsonString;

std::string LibraryJson(const google::protobuf::Message& message) {
  JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  std::string json;
  EXPECT_TRUE(MessageToJsonString(message, &json, options).ok());
  return json;
}

std::string Json(const google::protobuf::Message& message) {
  std::string json;
  AppendJson(message, &json);
  return json;
}

TEST(JsonWriterTest, PrintsAnswersAsTheLibraryDoes) {
  v1::EstimateMemoryResponse response;
  EXPECT_EQ(Json(response), LibraryJson(response));
  ASSERT_TRUE(TextFormat::ParseFromString(
      R"(verdict: VERDICT_AT_RISK usable_bytes: -9223372036854775808
         ranks { gpu_count: 9223372036854775807 device { expected_bytes: 1 }
                 breakdown { role: ROLE_NCCL bytes: 7 } moments { first_step: true } }
         assumptions { field: "a\"b\\c\n\t\001" value: "\303\251" }
         ledger { shrunk_by: "zero" shrunk_by: "tensor-parallel" })",
      &response));
  EXPECT_EQ(Json(response), LibraryJson(response));
}

TEST(JsonWriterTest, PrintsMapsByKey) {
  v1::GpuInfo gpu;
  (*gpu.mutable_teraflops())["fp32"] = 67;
  (*gpu.mutable_teraflops())["bf16"] = 989.5;
  EXPECT_NE(Json(gpu).find(R"("teraflops":{"bf16":989.5,"fp32":67})"), std::string::npos)
      << Json(gpu);
}

TEST(JsonWriterTest, PrintsStatusDetailsAndConfigs) {
  google::rpc::ErrorInfo info;
  info.set_reason("INVALID_JOB");
  google::rpc::Status status;
  status.set_code(3);
  status.add_details()->PackFrom(info);
  EXPECT_EQ(Json(status), LibraryJson(status));
  v1::Job job;
  (*job.mutable_model()->mutable_hf_config()->mutable_fields())["n"].set_number_value(1.5);
  EXPECT_EQ(Json(job), LibraryJson(job));
}

TEST(JsonWriterTest, PrettyMeansTheSame) {
  v1::EstimateMemoryResponse response;
  response.add_ranks()->set_gpu_count(8);
  const std::string pretty = ToPrettyJson(response);
  v1::EstimateMemoryResponse read;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(pretty, &read).ok());
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(response, read));
  EXPECT_EQ(pretty.substr(0, 40), "{\n  \"verdict\": \"VERDICT_UNSPECIFIED\",\n  ");
}

TEST(YamlWriterTest, QuotesOnlyWhatWouldBeReadOtherwise) {
  v1::Assumption assumption;
  assumption.set_field("2.10");
  assumption.set_value("bf16-mixed");
  assumption.set_reason("true");
  EXPECT_EQ(ToYaml(assumption), "field: \"2.10\"\nvalue: bf16-mixed\nreason: \"true\"\n");
}

}  // namespace
}  // namespace plimsoll
