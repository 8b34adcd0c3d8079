// What callers sent, fit to be repeated: short, and UTF-8.
#include "server/wire/shorten.h"

#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "google/protobuf/struct.pb.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

// By protobuf's own judgement, which parses no text that is not.
bool CanBeSent(const std::string& text) {
  const google::protobuf::LogSilencer silencer;
  google::protobuf::Value value;
  value.set_string_value(text);
  return google::protobuf::Value().ParseFromString(value.SerializeAsString());
}

TEST(ShortenTest, KeepsWhatFits) {
  for (const char* const text : {"", "a", "plain", "é", "€uro", "😀"}) {
    EXPECT_EQ(Shorten(text, std::string(text).size()), text);
    EXPECT_EQ(Shorten(text, 100), text);
  }
}

TEST(ShortenTest, CutsBetweenCharacters) {
  const struct {
    const char* text;
    size_t max_bytes;
    const char* expected;
  } kCases[] = {
      {"abcdefgh", 7, "abcd..."}, {"abcdefgh", 8, "abcdefgh"}, {"abcdefgh", 3, "..."},
      {"éééé", 7, "éé..."},       {"éééé", 6, "é..."},         {"a€€€", 9, "a€..."},
      {"😀😀😀", 8, "😀..."},         {"😀😀😀", 6, "..."},           {"ab", 1, "..."},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(Shorten(test.text, test.max_bytes), test.expected) << test.text;
  }
}

TEST(ShortenTest, MarksBytesThatAreNotUtf8) {
  const struct {
    const char* text;
    const char* expected;
  } kCases[] = {
      {"\xff", "?"},
      {"a\x80z", "a?z"},
      {"\xc3", "?"},                 // the first of two
      {"\xc0\xaf", "??"},            // '/' in two bytes
      {"\xe0\x80\xaf", "???"},       // and in three
      {"\xed\xa0\x80", "???"},       // half of a pair of UTF-16
      {"\xf4\x90\x80\x80", "????"},  // beyond the last character
      {"\xe2\x82z", "??z"},          // cut short
      {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
      {"\xee\x80\x80", "\xee\x80\x80"},
  };
  for (const auto& test : kCases) EXPECT_EQ(Shorten(test.text, 100), test.expected);
}

TEST(ShortenTest, IsShortAndUtf8WhateverTheBytes) {
  std::mt19937_64 random(1);
  const std::vector<std::string> kPieces = {
      "a", "é", "€", "😀", "\xc3", "\xe2\x82", "\xf0\x9f", "\x80", "\xff", std::string(1, '\0')};
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (uint64_t left = random() % 12; left > 0; --left) {
      text += kPieces[random() % kPieces.size()];
    }
    const size_t max_bytes = 3 + random() % 20;
    const std::string result = Shorten(text, max_bytes);
    EXPECT_LE(result.size(), max_bytes);
    EXPECT_TRUE(CanBeSent(result));
    if (text.size() > max_bytes) {
      EXPECT_TRUE(absl::EndsWith(result, "..."));
    } else {
      EXPECT_EQ(result.size(), text.size());
      EXPECT_EQ(result == text, CanBeSent(text));
      EXPECT_EQ(IsUtf8(text), CanBeSent(text));
    }
  }
}

TEST(CleanTest, TakesControlCharactersAway) {
  EXPECT_EQ(Clean("a\x1b[31m\nb\x7f"), "a [31m b ");
  EXPECT_EQ(Clean("é"), "é");
}

}  // namespace
}  // namespace plimsoll
