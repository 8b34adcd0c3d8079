// The writer agrees with protobuf's own printer, which is slower, and with its reader.
#include "client/format/json_writer.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "plimsoll/v1/planner.pb.h"
#include "server/words/yaml_writer.h"
#include "tests/testing/random_message.h"

namespace plimsoll {
namespace {

using Response = v1::EstimateMemoryResponse;
using google::protobuf::TextFormat;
using google::protobuf::util::JsonPrintOptions;
using google::protobuf::util::JsonStringToMessage;
using google::protobuf::util::MessageDifferencer;
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
  ASSERT_TRUE(JsonStringToMessage(pretty, &read).ok());
  EXPECT_TRUE(MessageDifferencer::Equals(response, read));
  EXPECT_EQ(pretty.substr(0, 40), "{\n  \"verdict\": \"VERDICT_UNSPECIFIED\",\n  ");
}

std::string WireJson(const google::protobuf::Message& type, const std::string& wire) {
  std::string json = "before ";
  return AppendWireJson(type.GetDescriptor(), wire, &json) ? json.substr(7) : "not a message";
}

template <typename Type>
void ExpectAlike(uint64_t seed, int rounds, bool reads_back = true) {
  std::mt19937_64 random(seed);
  for (int round = 0; round < rounds; ++round) {
    Type message;
    FillAtRandom(random, &message);
    const std::string json = WireJson(message, message.SerializeAsString());
    ASSERT_EQ(json, Json(message));
    if (!reads_back) continue;
    Type read;
    ASSERT_TRUE(JsonStringToMessage(json, &read).ok()) << json;
    ASSERT_TRUE(MessageDifferencer::Equals(read, message)) << json;
  }
}

TEST(AppendWireJsonTest, PrintsWhatTheLibraryReads) {
  ExpectAlike<Response>(1, 2000);
  ExpectAlike<v1::LedgerEntry>(2, 2000);
  ExpectAlike<v1::ModelInfo>(3, 500);
  ExpectAlike<v1::ListGpusResponse>(4, 500);
  // The library reads no Any of a type that it does not know.
  ExpectAlike<v1::BatchEstimateMemoryResponse>(5, 500, /*reads_back=*/false);
  ExpectAlike<v1::Job>(6, 500);
}

TEST(AppendWireJsonTest, PrintsNothingAsZeros) {
  EXPECT_EQ(WireJson(v1::RoleBytes(), ""), R"({"role":"ROLE_UNSPECIFIED","bytes":"0"})");
  EXPECT_EQ(WireJson(v1::TimelinePoint(), ""),
            R"({"event":"0","phase":"PHASE_UNSPECIFIED","allocatedBytes":"0",)"
            R"("reservedBytes":"0","roleBytes":[]})");
  EXPECT_EQ(WireJson(Response(), ""), Json(Response()));
}

// Bytes that no serializer of this version writes, but another may.
TEST(AppendWireJsonTest, PrintsWhatIsOutOfOrderTwiceOrUnknown) {
  v1::RoleBytes role;
  role.set_role(v1::ROLE_LOSS);
  v1::RoleBytes bytes;
  bytes.set_bytes(7);
  const std::string expected = R"({"role":"ROLE_LOSS","bytes":"7"})";
  EXPECT_EQ(WireJson(role, role.SerializeAsString() + bytes.SerializeAsString()), expected);
  EXPECT_EQ(WireJson(role, bytes.SerializeAsString() + role.SerializeAsString()), expected);
  EXPECT_EQ(WireJson(role, role.SerializeAsString() + role.SerializeAsString() +
                               bytes.SerializeAsString()),
            expected);
  EXPECT_EQ(WireJson(role, role.SerializeAsString() + bytes.SerializeAsString() + "\x18\x05"),
            expected);
  EXPECT_EQ(WireJson(role, "\x08\x63"), R"({"role":99,"bytes":"0"})");
  v1::Timeline timeline;
  timeline.add_roles(v1::ROLE_LOSS);
  timeline.add_roles(v1::ROLE_NCCL);
  EXPECT_EQ(WireJson(timeline, "\x08\x06\x08\x0c"), Json(timeline));  // not packed
}

TEST(AppendWireJsonTest, PrintsStatusDetails) {
  google::rpc::ErrorInfo info;
  info.set_reason("INVALID_JOB");
  google::rpc::Status status;
  status.set_code(3);
  status.add_details()->PackFrom(info);
  EXPECT_EQ(WireJson(status, status.SerializeAsString()), Json(status));
}

// Cut short, or changed at random: what protobuf parses is printed alike, and
// nothing else.
TEST(AppendWireJsonTest, RefusesWhatIsNoMessage) {
  const google::protobuf::LogSilencer silencer;  // it tells of texts that are not UTF-8
  std::mt19937_64 random(7);
  int refused = 0;
  int printed = 0;
  for (int round = 0; round < 20000; ++round) {
    Response response;
    FillAtRandom(random, &response);
    std::string wire = response.SerializeAsString();
    if (wire.empty()) continue;
    if (random() % 2 == 0) {
      wire.resize(random() % wire.size());
    } else {
      wire[random() % wire.size()] = static_cast<char>(random());
    }
    Response parsed;
    const bool good = parsed.ParseFromString(wire);
    ASSERT_EQ(WireJson(parsed, wire), good ? Json(parsed) : "not a message");
    ++(good ? printed : refused);
  }
  EXPECT_GT(printed, 1000);
  EXPECT_GT(refused, 1000);
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
