// Serialized messages print as the messages do, and as protobuf prints them.
#include "client/format/wire_json.h"

#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "client/format/json_writer.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "plimsoll/v1/planner.pb.h"
#include "tests/testing/random_message.h"

namespace plimsoll {
namespace {

using google::protobuf::Message;
using Response = v1::EstimateMemoryResponse;

std::string Json(const Message& message) {
  std::string json;
  AppendJson(message, &json);
  return json;
}

std::string WireJson(const Message& type, const std::string& wire) {
  std::string json = "before ";
  return AppendWireJson(type.GetDescriptor(), wire, &json) ? json.substr(7) : "not a message";
}

template <typename Type>
void ExpectAlike(uint64_t seed, int rounds) {
  std::mt19937_64 random(seed);
  for (int round = 0; round < rounds; ++round) {
    Type message;
    FillAtRandom(random, &message);
    ASSERT_EQ(WireJson(message, message.SerializeAsString()), Json(message));
  }
}

TEST(WireJsonTest, PrintsAnyMessageAsTheWriterOfMessagesDoes) {
  ExpectAlike<Response>(1, 2000);
  ExpectAlike<v1::LedgerEntry>(2, 2000);
  ExpectAlike<v1::ModelInfo>(3, 500);
  ExpectAlike<v1::ListGpusResponse>(4, 500);
  ExpectAlike<v1::BatchEstimateMemoryResponse>(5, 500);
}

TEST(WireJsonTest, PrintsWhatTheLibraryReads) {
  std::mt19937_64 random(6);
  for (int round = 0; round < 500; ++round) {
    Response response;
    FillAtRandom(random, &response);
    Response read;
    ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(
                    WireJson(response, response.SerializeAsString()), &read)
                    .ok());
    ASSERT_TRUE(google::protobuf::util::MessageDifferencer::Equals(read, response));
  }
}

TEST(WireJsonTest, PrintsNothingAsZeros) {
  EXPECT_EQ(WireJson(v1::RoleBytes(), ""), R"({"role":"ROLE_UNSPECIFIED","bytes":"0"})");
  EXPECT_EQ(WireJson(v1::TimelinePoint(), ""),
            R"({"event":"0","phase":"PHASE_UNSPECIFIED","allocatedBytes":"0",)"
            R"("reservedBytes":"0","roleBytes":[]})");
  EXPECT_EQ(WireJson(Response(), ""), Json(Response()));
}

// Bytes that no serializer of this version writes, but another may.
TEST(WireJsonTest, PrintsWhatIsOutOfOrderTwiceOrUnknown) {
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

TEST(WireJsonTest, PrintsStatusDetails) {
  google::rpc::ErrorInfo info;
  info.set_reason("INVALID_JOB");
  google::rpc::Status status;
  status.set_code(3);
  status.add_details()->PackFrom(info);
  EXPECT_EQ(WireJson(status, status.SerializeAsString()), Json(status));
}

// Cut short, or changed at random: what protobuf parses is printed alike, and
// nothing else.
TEST(WireJsonTest, RefusesWhatIsNoMessage) {
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

}  // namespace
}  // namespace plimsoll
