// JSON token by token: commas, indents, escapes, numbers.
#include "server/wire/json_text.h"

#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

void Write(JsonText json) {
  json.Open('{');
  json.Key("\"a\":");
  json.Open('[');
  json.Next();
  json.Number(int64_t{1});
  json.Next();
  json.Text("x");
  json.Close(']');
  json.Key("\"b\":");
  json.Open('{');
  json.Close('}');
  json.Key("\"c\":");
  json.Raw("true");
  json.Close('}');
}

TEST(JsonTextTest, OnOneLine) {
  std::string text = "before ";
  Write({/*pretty=*/false, &text});
  EXPECT_EQ(text, R"(before {"a":[1,"x"],"b":{},"c":true})");
}

TEST(JsonTextTest, Indented) {
  std::string text;
  Write({/*pretty=*/true, &text});
  EXPECT_EQ(text, "{\n  \"a\": [\n    1,\n    \"x\"\n  ],\n  \"b\": {},\n  \"c\": true\n}");
}

TEST(QuotedJsonTest, EscapesWhatJsonCannotHold) {
  const struct {
    absl::string_view text;
    const char* quoted;
  } kCases[] = {
      {"", R"("")"},
      {"plain / é \x7f", "\"plain / é \x7f\""},
      {"\"\\\b\f\n\r\t", R"("\"\\\b\f\n\r\t")"},
      {absl::string_view("a\0\x01\x1f", 4), R"("a\u0000\u0001\u001F")"},
  };
  for (const auto& test : kCases) EXPECT_EQ(QuotedJson(test.text), test.quoted);
}

TEST(JsonTextTest, Numbers) {
  const struct {
    double value;
    const char* text;
  } kCases[] = {
      {0, "0"},
      {-7, "-7"},
      {989.5, "989.5"},
      {0.1, "0.1"},
      {std::numeric_limits<double>::infinity(), "\"Infinity\""},
      {-std::numeric_limits<double>::infinity(), "\"-Infinity\""},
      {std::numeric_limits<double>::quiet_NaN(), "\"NaN\""},
  };
  for (const auto& test : kCases) {
    std::string text;
    JsonText(/*pretty=*/false, &text).Number(test.value);
    EXPECT_EQ(text, test.text);
  }
  std::string text;
  JsonText(/*pretty=*/false, &text).QuotedNumber(std::numeric_limits<int64_t>::min());
  EXPECT_EQ(text, "\"-9223372036854775808\"");
}

}  // namespace
}  // namespace plimsoll
