// Sizes as people write them, and what is said of those that are none; XML of anybody's texts.
#include "client/format/byte_size.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/format/xml_writer.h"
#include "client/io/text.h"
#include "gtest/gtest.h"
#include "server/wire/shorten.h"

namespace plimsoll {
namespace {

TEST(ByteSizeTest, ReadsASizeWithItsUnitAndNothingElse) {
  const struct {
    const char* text;
    std::optional<int64_t> bytes;
  } kRows[] = {
      {"0", 0},
      {"0B", 0},
      {"0GiB", 0},
      {"61GiB", int64_t{61} << 30},
      {"61.5 GiB", (int64_t{61} << 30) + (1 << 29)},
      {"62464 MiB", int64_t{61} << 30},
      {"512KiB", 512 << 10},
      {"2TiB", int64_t{2} << 40},
      {"2tib", int64_t{2} << 40},
      {"65498251264B", 65498251264},
      {"0.5B", 1},
      // Below 2^50.
      {"1023TiB", int64_t{1023} << 40},
      {"1024TiB", std::nullopt},
      {"1125899906842623B", (int64_t{1} << 50) - 1},
      {"1125899906842624B", std::nullopt},
      // No size.
      {"", std::nullopt},
      {"1", std::nullopt},
      {"44.4", std::nullopt},
      {"0.0", std::nullopt},
      {"00", std::nullopt},
      {"80GB", std::nullopt},
      {"80MB", std::nullopt},
      {"80G", std::nullopt},
      {"80 GPUs", std::nullopt},
      {"GiB", std::nullopt},
      {"-1GiB", std::nullopt},
      {"+1GiB", std::nullopt},
      {" 1GiB", std::nullopt},
      {"1e3GiB", std::nullopt},
      {"1.2.3GiB", std::nullopt},
      {"infGiB", std::nullopt},
      {"8k", std::nullopt},
      {"450GB/s", std::nullopt},
      {"1GiB/s", std::nullopt},
  };
  for (const auto& row : kRows) EXPECT_EQ(ParseByteSize(row.text), row.bytes) << row.text;
}

// What is printed for people is a size too, as near as its one digit says.
TEST(ByteSizeTest, ReadsWhatIsPrinted) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 3000; ++round) {
    const auto bytes = static_cast<int64_t>(random() >> (15 + random() % 48));
    const std::string printed = FormatBytes(bytes);
    const std::optional<int64_t> read = ParseByteSize(printed);
    if (bytes >= int64_t{1} << 49) continue;
    ASSERT_TRUE(read.has_value()) << printed;
    const double unit = absl::EndsWith(printed, "GiB")   ? 1 << 30
                        : absl::EndsWith(printed, "MiB") ? 1 << 20
                        : absl::EndsWith(printed, "KiB") ? 1 << 10
                                                         : 1;
    EXPECT_LE(std::abs(static_cast<double>(*read - bytes)), 0.05 * unit + 1) << printed;
  }
}

// Whatever was written, the size that is offered is one, and of a number it is that number.
TEST(ByteSizeTest, WhatIsOfferedIsASize) {
  constexpr char kRule[] = "must be a size with its unit (B, KiB, MiB, GiB, TiB), as ";
  const struct {
    const char* text;
    const char* offered;
  } kRows[] = {
      {"44.4", "44.4GiB"},
      {"80", "80GiB"},
      {"1048575", "1048575GiB"},
      {"1048576", "1048576B"},
      {"65498251264", "65498251264B"},
      {"80GB", "61.5GiB"},
      {"", "61.5GiB"},
      {"-3", "61.5GiB"},
      {"0.0", "61.5GiB"},
      {"1.2.3", "61.5GiB"},
      {"9999999999999999", "61.5GiB"},
      {"999999999999999", "999999999999999B"},
  };
  for (const auto& row : kRows) {
    EXPECT_EQ(NotAByteSize(row.text), absl::StrCat(kRule, row.offered)) << row.text;
    EXPECT_TRUE(ParseByteSize(row.offered).has_value()) << row.offered;
  }
  std::mt19937_64 random(4);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (size_t left = random() % 18; left > 0; --left) text += "0123456789."[random() % 11];
    const std::string said = NotAByteSize(text);
    EXPECT_TRUE(ParseByteSize(said.substr(sizeof kRule - 1)).has_value()) << said;
  }
}

// What XML says of a text, taken back.
std::string Unescaped(const std::string& text) {
  return absl::StrReplaceAll(
      text, {{"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}});
}

// Texts and values of any characters come back, and none ends its element or its quotes.
TEST(XmlTextsTest, AnyTextComesBack) {
  const std::string kPieces[] = {"<",    ">", "&", "\"", "'",  "&lt;", "]]>",
                                 "<!--", "a", "é", "😀",  "\n", "\x01", "/"};
  std::mt19937_64 random(5);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (size_t left = random() % 8; left > 0; --left) text += kPieces[random() % 14];
    XmlWriter xml;
    xml.Leaf("t", {{"v", text}}, text);
    const std::string written = std::move(xml).Take();
    const size_t quote = written.find('"');
    const size_t end_quote = written.find('"', quote + 1);
    const size_t begin = written.find('>') + 1;
    const size_t end = written.rfind("</t>");
    ASSERT_EQ(written.substr(0, quote), "<t v=") << written;
    ASSERT_EQ(begin, end_quote + 2) << written;
    EXPECT_EQ(Unescaped(written.substr(quote + 1, end_quote - quote - 1)), Clean(text));
    EXPECT_EQ(Unescaped(written.substr(begin, end - begin)), Clean(text));
    EXPECT_EQ(written.find('<', begin), end) << written;
  }
}

TEST(XmlTextsTest, CoordinatesAreNearAndShort) {
  std::mt19937_64 random(6);
  for (int round = 0; round < 2000; ++round) {
    const double value = static_cast<double>(static_cast<int64_t>(random() % 2'000'001)) / 97 - 1e4;
    const std::string text = Coordinate(value);
    EXPECT_NEAR(std::stod(text), value, 0.0500001) << text;
    const size_t point = text.find('.');
    EXPECT_TRUE(point == std::string::npos || point + 2 == text.size()) << text;
    EXPECT_FALSE(absl::EndsWith(text, ".0") || text == "-0") << text;
  }
}

}  // namespace
}  // namespace plimsoll
