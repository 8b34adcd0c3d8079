// The quick reader takes what protobuf's own takes, with the same result, or
// leaves it alone.
#include "server/wire/plain_json.h"

#include <cmath>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "plimsoll/v1/planner.pb.h"
#include "server/wire/json.h"
#include "tests/testing/random_message.h"

namespace plimsoll {
namespace {

using google::protobuf::util::JsonPrintOptions;
using google::protobuf::util::JsonStringToMessage;
using google::protobuf::util::MessageDifferencer;
using google::protobuf::util::MessageToJsonString;
using Request = v1::EstimateMemoryRequest;

std::string RandomText(std::mt19937_64& random) {
  Request request;
  FillAtRandom(random, &request);
  JsonPrintOptions options;
  options.add_whitespace = random() % 2 == 0;
  options.preserve_proto_field_names = random() % 2 == 0;
  std::string text;
  EXPECT_TRUE(MessageToJsonString(request, &text, options).ok());
  return text;
}

// Whether the quick reader takes the text; where it does, expects that
// protobuf's does, alike.
bool Takes(const std::string& text) {
  Request quick;
  if (!ReadPlainJson(text, &quick)) return false;
  Request slow;
  EXPECT_TRUE(JsonStringToMessage(text, &slow).ok()) << text;
  EXPECT_TRUE(MessageDifferencer::Equals(quick, slow)) << text;
  return true;
}

TEST(PlainJsonTest, TakesWhatProtobufPrints) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    const std::string text = RandomText(random);
    EXPECT_TRUE(Takes(text)) << text;
  }
}

TEST(PlainJsonTest, TakesNothingThatProtobufDoesNot) {
  const std::string kBytes = "{}[]\":,.0123456789eE+-tfn \\\n\x80\xff";
  std::mt19937_64 random(2);
  int taken = 0;
  int left = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = RandomText(random);
    for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      const size_t at = random() % text.size();
      const char byte = kBytes[random() % kBytes.size()];
      switch (random() % 3) {
        case 0:
          text[at] = byte;
          break;
        case 1:
          text.insert(at, 1, byte);
          break;
        default:
          if (text.size() > 1) text.erase(at, 1);
      }
    }
    ++(Takes(text) ? taken : left);
  }
  EXPECT_GT(taken, 1000);
  EXPECT_GT(left, 1000);
}

TEST(PlainJsonTest, TakesNumbersOfBothForms) {
  for (const char* const number :
       {"0", "7", "-7", "9007199254740993", "9223372036854775807", "-9223372036854775808", "\"0\"",
        "\"-12\"", "\"-9223372036854775808\""}) {
    EXPECT_TRUE(Takes(absl::StrCat(R"({"job":{"cluster":{"gpu_count":)", number, "}}}")));
  }
  for (const char* const number : {"0", "-3", "0.1", "1e-7", "123456789012345678901234567890",
                                   "18446744073709551615", "5e-324", "2.2250738585072011e-308"}) {
    EXPECT_TRUE(Takes(absl::StrCat(R"({"risk":)", number, "}"))) << number;
    EXPECT_TRUE(Takes(absl::StrCat(R"({"job":{"model":{"hf_config":{"x":[)", number, "]}}}}")));
  }
}

// A config.json of Python's may hold them; protobuf's reader knows none.
TEST(PlainJsonTest, TakesPythonsNumbersInsideAStruct) {
  const auto text = [](absl::string_view number) {
    return absl::StrCat(R"({"job":{"model":{"hf_config":{"x":[)", number, "]}}}}");
  };
  for (const auto& [word, number] :
       {std::pair("Infinity", HUGE_VAL), std::pair("-Infinity", -HUGE_VAL)}) {
    v1::EstimateMemoryRequest request;
    ASSERT_TRUE(ReadPlainJson(text(word), &request)) << word;
    const auto& x = request.job().model().hf_config().fields().at("x");
    EXPECT_EQ(x.list_value().values(0).number_value(), number);
  }
  v1::EstimateMemoryRequest request;
  ASSERT_TRUE(ReadPlainJson(text("NaN"), &request));
  for (const char* const word : {"Inf", "-NaN", "-Inf", "nan", "infinity", "+Infinity", "1e999"}) {
    v1::EstimateMemoryRequest none;
    EXPECT_FALSE(ReadPlainJson(text(word), &none)) << word;
  }
}

TEST(PlainJsonTest, ValuesOfAnyKind) {
  for (const char* const text : {"7", "null", "true", "\"a\"", "[1,[2]]", R"({"a":{"b":NaN}})"}) {
    google::protobuf::Value value;
    EXPECT_TRUE(ReadPlainValue(text, &value)) << text;
  }
  google::protobuf::Value value;
  EXPECT_FALSE(ReadPlainValue("{} {}", &value));
}

TEST(PlainJsonTest, LeavesTheUnusualAlone) {
  for (const char* const text : {
           "",
           " ",
           "null",
           "7",
           "\"job\"",
           "[]",
           "[{}]",
           "{",
           "{}}",
           "{} {}",
           "{}x",
           "{\"job\":}",
           "{'job':{}}",
           "{job:{}}",
           "{\"job\":{},}",
           "/**/{}",
           R"({"job":null})",
           R"({"nonsense":1})",
           R"({"risk":"0.5"})",
           R"({"risk":true})",
           R"({"risk":1e999})",
           R"({"risk":1.8e308})",
           R"({"risk":1.212711009005788e320})",
           R"({"risk":NaN})",
           R"({"risk":[0.5]})",
           R"({"risk":{}})",
           R"({"risk":0.5,"risk":0.5})",
           R"({"include_trace":1})",
           R"({"include_trace":"true"})",
           R"({"include_trace":true,"includeTrace":true})",
           R"({"detail":7})",
           R"({"job":[]})",
           R"({"job":{},"job":{}})",
           R"({"job":{"cluster":{"gpu_count":1.0}}})",
           R"({"job":{"cluster":{"gpu_count":1e3}}})",
           R"({"job":{"cluster":{"gpu_count":"01"}}})",
           R"({"job":{"cluster":{"gpu_count":" 1"}}})",
           R"({"job":{"cluster":{"gpu_count":""}}})",
           R"({"job":{"cluster":{"gpu_count":9223372036854775808}}})",
           R"({"job":{"cluster":{"gpu":"\ud800"}}})",
           "{\"job\":{\"cluster\":{\"gpu\":\"\xff\"}}}",
           R"({"job":{"model":{"name":"a","transformer":{}}}})",
           R"({"job":{"model":{"hf_config":[]}}})",
           R"({"job":{"model":{"hf_config":{"a":1,"a":2}}}})",
           R"({"job":{"parallelism":{"pipeline_layout":1}}})",
           R"({"job":{"parallelism":{"pipeline_layout":[1,null]}}})",
           R"({"job":{"parallelism":{"pipeline_layout":[[1]]}}})",
           R"({"job":{"runtime":{"versions":[]}}})",
           R"({"job":{"runtime":{"versions":{"a":1}}}})",
           R"({"job":{"runtime":{"versions":{"a":{}}}}})",
           R"({"job":{"runtime":{"versions":{"a":"1","a":"2"}}}})",
       }) {
    EXPECT_FALSE(Takes(text)) << text;
  }
  EXPECT_FALSE(Takes(std::string("{}\0{}", 5)));  // a zero byte ends nothing
}

TEST(PlainJsonTest, LeavesDeepNestingAlone) {
  const auto nested = [](int levels) {
    return absl::StrCat(R"({"job":{"model":{"hf_config":{"x":)", std::string(levels, '['),
                        std::string(levels, ']'), "}}}}");
  };
  EXPECT_TRUE(Takes(nested(kMaxJsonDepth - 4)));
  EXPECT_FALSE(Takes(nested(kMaxJsonDepth - 3)));
  EXPECT_FALSE(Takes(nested(400000)));
}

TEST(PlainJsonTest, SpellingIsFree) {
  EXPECT_TRUE(Takes(R"({"include_trace":true,"includeLedger":false,"job":{"training":{
                         "sequenceLength":1,"micro_batch_size":2}}})"));
  EXPECT_TRUE(Takes(R"({"job":{"cluster":{"gpu":"\u00e9\ud83d\ude00\u0000\n"}}})"));
}

}  // namespace
}  // namespace plimsoll
