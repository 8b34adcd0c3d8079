// Text for people: figures, widths, wrapping, columns.
#include "client/io/text.h"

#include <cstdint>
#include <string>

#include "gtest/gtest.h"

namespace plimsoll {
namespace {

TEST(FormatBytesTest, TakesTheLargestUnitThatGivesOne) {
  const struct {
    int64_t bytes;
    const char* text;
  } kCases[] = {
      {0, "0 B"},
      {1023, "1023 B"},
      {1024, "1.0 KiB"},
      {1536, "1.5 KiB"},
      {1 << 20, "1.0 MiB"},
      {1 << 30, "1.0 GiB"},
      {int64_t{80} << 30, "80.0 GiB"},
      {-(int64_t{3} << 30), "-3.0 GiB"},
  };
  for (const auto& test : kCases) EXPECT_EQ(FormatBytes(test.bytes), test.text);
  EXPECT_EQ(FormatInGib((int64_t{61} << 30) + (1 << 28)), "61.25");
}

TEST(FormatCountTest, HasThreeDigitsAboveAMillion) {
  EXPECT_EQ(FormatCount(999999), "999999");
  EXPECT_EQ(FormatCount(1000000), "1.00 M");
  EXPECT_EQ(FormatCount(8030261248), "8.03 B");
  EXPECT_EQ(FormatCount(int64_t{1200000000000}), "1.20 T");
}

TEST(DisplayWidthTest, CountsCharactersAndNoColours) {
  EXPECT_EQ(DisplayWidth(""), 0);
  EXPECT_EQ(DisplayWidth("abc"), 3);
  EXPECT_EQ(DisplayWidth("é┃·"), 3);
  EXPECT_EQ(DisplayWidth("\x1b[38;5;242mab\x1b[0mc"), 3);
  EXPECT_EQ(PadRight("é", 3), "é  ");
  EXPECT_EQ(PadLeft("é", 3), "  é");
  EXPECT_EQ(PadLeft("long", 2), "long");
}

TEST(WrapTest, BreaksAtBlanksAndWithinWideWords) {
  const struct {
    const char* text;
    int width;
    int indent;
    const char* wrapped;
  } kCases[] = {
      {"", 10, 2, ""},
      {"one two", 10, 2, "one two"},
      {"one two three", 8, 2, "one two\n  three"},
      {"abcdefghij", 4, 0, "abcd\nefgh\nij"},
      {"ab cdefghij", 5, 1, "ab\n cdef\n ghij"},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(Wrap(test.text, test.width, test.indent), test.wrapped) << test.text;
  }
}

TEST(PaintTest, ColoursOnlyWhereThereAreColours) {
  Terminal terminal;
  terminal.color = false;
  EXPECT_EQ(Paint("x", 7, terminal), "x");
  EXPECT_EQ(Bold("x", 7, terminal), "x");
  terminal.color = true;
  EXPECT_EQ(Paint("x", 7, terminal), "\x1b[38;5;7mx\x1b[0m");
  EXPECT_EQ(Bold("x", 7, terminal), "\x1b[1;38;5;7mx\x1b[0m");
}

TEST(ColumnsTest, AreAsWideAsTheirWidest) {
  using Align = Columns::Align;
  Columns columns({Align::kLeft, Align::kRight, Align::kLeft});
  columns.Add({"a", "1", "first"});
  columns.Add({"bcd", "200", ""});
  EXPECT_EQ(columns.ToText(1, 80),
            " a      1  first\n"
            " bcd  200\n");
}

TEST(ColumnsTest, ALongLineGoesOnUnderItsLastColumn) {
  using Align = Columns::Align;
  Columns columns({Align::kLeft, Align::kLeft});
  columns.Add({"key", "aaaaaaaaaaaaaaaaaaaa bbbbbbbbbbbbbbbbbbbb cccc"});
  EXPECT_EQ(columns.ToText(0, 40),
            "key  aaaaaaaaaaaaaaaaaaaa\n"
            "     bbbbbbbbbbbbbbbbbbbb cccc\n");
}

}  // namespace
}  // namespace plimsoll
