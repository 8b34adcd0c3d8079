// What is printed, read by RapidJSON, is the message: key by key, in the order of the schema.
#include <google/protobuf/struct.pb.h>
#include <rapidjson/document.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/format/json_type.h"
#include "client/format/json_writer.h"
#include "gtest/gtest.h"
#include "plimsoll/v1/planner.pb.h"
#include "tests/testing/random_message.h"

namespace plimsoll {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Struct;
using Json = rapidjson::Value;

bool IsTree(const Message& message, const Json& json);

// A google.protobuf.Value, which may hold anything.
bool IsValue(const google::protobuf::Value& value, const Json& json) {
  switch (value.kind_case()) {
    case google::protobuf::Value::kBoolValue:
      return json.IsBool() && json.GetBool() == value.bool_value();
    case google::protobuf::Value::kNumberValue:
      return json.IsNumber() && json.GetDouble() == value.number_value();
    case google::protobuf::Value::kStringValue:
      return json.IsString() &&
             value.string_value() == std::string(json.GetString(), json.GetStringLength());
    case google::protobuf::Value::kStructValue:
      return IsTree(value.struct_value(), json);
    case google::protobuf::Value::kListValue: {
      const auto& list = value.list_value().values();
      bool same = json.IsArray() && json.Size() == static_cast<unsigned>(list.size());
      for (int i = 0; same && i < list.size(); ++i) {
        same = IsValue(list[i], json[static_cast<unsigned>(i)]);
      }
      return same;
    }
    default:
      return json.IsNull();
  }
}

bool IsStruct(const Struct& object, const Json& json) {
  if (!json.IsObject() || json.MemberCount() != object.fields().size()) return false;
  return std::all_of(object.fields().begin(), object.fields().end(), [&json](const auto& pair) {
    const auto at = json.FindMember(pair.first.c_str());
    return at != json.MemberEnd() && IsValue(pair.second, at->value);
  });
}

// One value of a field, the one at `index` of a list.
bool IsOne(const Message& message, const FieldDescriptor* field, int index, const Json& json) {
  const google::protobuf::Reflection& r = *message.GetReflection();
  const bool list = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64: {
      const int64_t value =
          list ? r.GetRepeatedInt64(message, field, index) : r.GetInt64(message, field);
      return json.IsString() && json.GetString() == std::to_string(value);
    }
    case FieldDescriptor::CPPTYPE_INT32:
      return json.IsInt() && json.GetInt() == (list ? r.GetRepeatedInt32(message, field, index)
                                                    : r.GetInt32(message, field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return json.IsNumber() &&
             json.GetDouble() ==
                 (list ? r.GetRepeatedDouble(message, field, index) : r.GetDouble(message, field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return json.IsBool() && json.GetBool() == r.GetBool(message, field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return json.IsString() &&
             (list ? r.GetRepeatedEnum(message, field, index) : r.GetEnum(message, field))
                     ->name() == json.GetString();
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string value =
          list ? r.GetRepeatedString(message, field, index) : r.GetString(message, field);
      return json.IsString() && value == std::string(json.GetString(), json.GetStringLength());
    }
    default:
      return IsTree(
          list ? r.GetRepeatedMessage(message, field, index) : r.GetMessage(message, field), json);
  }
}

bool IsMap(const Message& message, const FieldDescriptor* field, const Json& json) {
  const google::protobuf::Reflection& r = *message.GetReflection();
  const int count = r.FieldSize(message, field);
  bool same = json.IsObject() && json.MemberCount() == static_cast<unsigned>(count);
  for (int i = 0; same && i < count; ++i) {
    const Message& entry = r.GetRepeatedMessage(message, field, i);
    const FieldDescriptor* const key = field->message_type()->map_key();
    const auto at = json.FindMember(entry.GetReflection()->GetString(entry, key).c_str());
    same = at != json.MemberEnd() && IsOne(entry, field->message_type()->map_value(), 0, at->value);
  }
  return same;
}

bool IsField(const Message& message, const FieldDescriptor* field, const Json& json) {
  if (field->is_map()) return IsMap(message, field, json);
  if (!field->is_repeated()) return IsOne(message, field, 0, json);
  const int count = message.GetReflection()->FieldSize(message, field);
  bool same = json.IsArray() && json.Size() == static_cast<unsigned>(count);
  for (int i = 0; same && i < count; ++i) {
    same = IsOne(message, field, i, json[static_cast<unsigned>(i)]);
  }
  return same;
}

// Whether an object has each field of the message that is set, and zeros of those that are set or
// not alike, in the order of the schema, and nothing else.
bool IsTree(const Message& message, const Json& json) {
  if (message.GetDescriptor() == Struct::descriptor()) {
    return IsStruct(static_cast<const Struct&>(message), json);
  }
  if (!json.IsObject()) return false;
  auto at = json.MemberBegin();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* const field = message.GetDescriptor()->field(i);
    if (field->has_presence() && !message.GetReflection()->HasField(message, field)) continue;
    if (at == json.MemberEnd() || at->name.GetString() != field->json_name()) return false;
    if (!IsField(message, field, at->value)) return false;
    ++at;
  }
  return at == json.MemberEnd();
}

rapidjson::Document Parsed(const std::string& text) {
  rapidjson::Document document;
  document.Parse<rapidjson::kParseFullPrecisionFlag>(text.data(), text.size());
  EXPECT_FALSE(document.HasParseError()) << text;
  return document;
}

std::string Line(const Message& message) {
  std::string json;
  AppendJson(message, &json);
  return json;
}

template <typename Type>
void ExpectTrees(uint64_t seed, int rounds) {
  std::mt19937_64 random(seed);
  for (int round = 0; round < rounds; ++round) {
    Type message;
    FillAtRandom(random, &message);
    const std::string line = Line(message);
    ASSERT_TRUE(IsTree(message, Parsed(line))) << line;
    EXPECT_EQ(line.find('\n'), std::string::npos);
    const std::string pretty = ToPrettyJson(message);
    ASSERT_TRUE(Parsed(pretty) == Parsed(line)) << pretty;
  }
}

TEST(JsonTreeTest, AnotherReaderSeesTheMessage) {
  ExpectTrees<v1::EstimateMemoryResponse>(1, 300);
  ExpectTrees<v1::RecommendConfigResponse>(2, 60);
  ExpectTrees<v1::Job>(3, 300);
  ExpectTrees<v1::AdmissionDecision>(4, 100);
  ExpectTrees<v1::GpuInfo>(5, 300);
  ExpectTrees<v1::ReportUsageRequest>(6, 60);
  ExpectTrees<v1::AdmissionPolicy>(7, 100);
}

TEST(JsonTreeTest, AModelsConfigurationIsItsTree) {
  std::mt19937_64 random(8);
  for (int round = 0; round < 400; ++round) {
    v1::Job job;
    FillAtRandom(random, job.mutable_model()->mutable_hf_config());
    const rapidjson::Document document = Parsed(Line(job));
    ASSERT_TRUE(IsStruct(job.model().hf_config(), document["model"]["hfConfig"])) << Line(job);
  }
}

// Each line is indented by two for every bracket that is open before it; one line feed ends all.
TEST(JsonTreeTest, PrettyIsIndentedByDepth) {
  std::mt19937_64 random(9);
  for (int round = 0; round < 60; ++round) {
    v1::EstimateMemoryResponse message;
    FillAtRandom(random, &message);
    const std::string pretty = ToPrettyJson(message);
    ASSERT_TRUE(absl::EndsWith(pretty, "}\n") && !absl::EndsWith(pretty, "\n\n"));
    size_t depth = 0;
    for (const absl::string_view line : absl::StrSplit(pretty, '\n', absl::SkipEmpty())) {
      const size_t indent = line.find_first_not_of(' ');
      const bool closes = line[indent] == '}' || line[indent] == ']';
      if (closes) --depth;
      ASSERT_EQ(indent, 2 * depth) << line;
      const bool opens = absl::EndsWith(line, "{") || absl::EndsWith(line, "[");
      if (opens) ++depth;
    }
    EXPECT_EQ(depth, 0u);
  }
}

TEST(JsonTreeTest, NumbersAreExactWhateverTheirSize) {
  for (const double number :
       {0.1, 1.0 / 3, 5e-324, 1e15, 1e15 + 0.5, 999999999999999.0, 1e21, -2.5e-10,
        9007199254740993.0, std::numeric_limits<double>::max(), -123456789.125}) {
    v1::EstimateMemoryRequest request;
    request.set_risk(number);
    EXPECT_EQ(Parsed(Line(request))["risk"].GetDouble(), number) << Line(request);
  }
  for (const int64_t number : {INT64_MIN, INT64_MAX, int64_t{1} << 53, int64_t{-1}}) {
    v1::RoleBytes bytes;
    bytes.set_bytes(number);
    EXPECT_EQ(Parsed(Line(bytes))["bytes"].GetString(), std::to_string(number));
  }
}

// ProtoJSON has words for what JSON has no numbers for.
TEST(JsonTreeTest, WhatIsNoNumberIsAWord) {
  const struct {
    double value;
    const char* json;
  } kRows[] = {
      {std::nan(""), R"("NaN")"}, {HUGE_VAL, R"("Infinity")"}, {-HUGE_VAL, R"("-Infinity")"}};
  for (const auto& row : kRows) {
    v1::GpuInfo gpu;
    (*gpu.mutable_teraflops())["bf16"] = row.value;
    EXPECT_NE(Line(gpu).find(absl::StrCat(R"("teraflops":{"bf16":)", row.json, "}")),
              std::string::npos)
        << Line(gpu);
  }
}

TEST(JsonTreeTest, AppendsAfterWhatIsThere) {
  v1::RoleBytes bytes;
  bytes.set_bytes(1);
  std::string text = "a ";
  AppendJson(bytes, &text);
  text += " b ";
  ASSERT_TRUE(AppendWireJson(v1::RoleBytes::descriptor(), bytes.SerializeAsString(), &text));
  EXPECT_EQ(text, absl::StrCat("a ", Line(bytes), " b ", Line(bytes)));
  const std::string before = text;
  EXPECT_FALSE(AppendWireJson(v1::RoleBytes::descriptor(), "\xff\xff", &text));
}

void ExpectDescribed(const Descriptor* descriptor, std::set<const Descriptor*>* seen) {
  if (!seen->insert(descriptor).second) return;
  const JsonType& type = JsonTypeOf(descriptor);
  EXPECT_EQ(&type, &JsonTypeOf(descriptor)) << "looked up once";
  EXPECT_EQ(type.descriptor, descriptor);
  ASSERT_EQ(type.fields.size(), static_cast<size_t>(descriptor->field_count()));
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* const field = descriptor->field(i);
    const JsonType::Field& row = type.fields[static_cast<size_t>(i)];
    EXPECT_EQ(row.descriptor, field);
    EXPECT_EQ(row.key, absl::StrCat("\"", field->json_name(), "\":"));
    EXPECT_EQ(type.IndexOf(field->number()), i) << field->full_name();
    EXPECT_EQ(row.type == nullptr, field->message_type() == nullptr) << field->full_name();
    if (field->message_type() != nullptr) ExpectDescribed(field->message_type(), seen);
  }
  for (const int number : {0, 536870911}) EXPECT_EQ(type.IndexOf(number), -1) << number;
}

TEST(JsonTypeTest, EveryTypeOfTheApiIsDescribed) {
  const auto& methods = *v1::EstimateMemoryRequest::descriptor()->file()->service(0);
  std::set<const Descriptor*> seen;
  for (int i = 0; i < methods.method_count(); ++i) {
    ExpectDescribed(methods.method(i)->input_type(), &seen);
    ExpectDescribed(methods.method(i)->output_type(), &seen);
  }
  EXPECT_GT(seen.size(), 50u);
  EXPECT_EQ(JsonTypeOf(Struct::descriptor()).form, JsonType::Form::kWellKnown);
}

TEST(JsonTypeTest, AnyThreadMayAsk) {
  std::vector<const JsonType*> found(8);
  std::vector<std::thread> threads;
  for (const JsonType*& slot : found) {
    threads.emplace_back([&slot] { slot = &JsonTypeOf(v1::ListModelsResponse::descriptor()); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<const JsonType*>(found.begin(), found.end()).size(), 1u);
}

}  // namespace
}  // namespace plimsoll
