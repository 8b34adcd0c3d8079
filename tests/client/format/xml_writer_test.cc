// What is written is well-formed, whatever a job's names hold.
#include "client/format/xml_writer.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(XmlWriterTest, ClosesWhatItOpened) {
  XmlWriter xml;
  xml.Open("svg", {{"width", "3"}});
  xml.Open("g");
  xml.Empty("rect", {{"x", "1"}});
  xml.Leaf("text", {}, "words");
  xml.Close();
  xml.Close();
  EXPECT_EQ(std::move(xml).Take(),
            "<svg width=\"3\">\n<g>\n<rect x=\"1\"/>\n<text>words</text>\n</g>\n</svg>\n");
}

TEST(XmlWriterTest, EscapesTextAndValues) {
  XmlWriter xml;
  xml.Leaf("a", {{"b", "\"<'&>"}}, "</a><script>\"'&");
  EXPECT_EQ(std::move(xml).Take(),
            "<a b=\"&quot;&lt;&#39;&amp;&gt;\">&lt;/a&gt;&lt;script&gt;&quot;&#39;&amp;</a>\n");
  XmlWriter text;
  text.Text("a<b");
  EXPECT_EQ(std::move(text).Take(), "a&lt;b");
}

TEST(XmlWriterTest, ControlCharactersAreNoXml) {
  XmlWriter xml;
  xml.Leaf("a", {}, absl::string_view("x\0y\x1b[0m", 7));
  EXPECT_EQ(std::move(xml).Take(), "<a>x y [0m</a>\n");
}

TEST(CoordinateTest, HasAtMostOneDigitAfterThePoint) {
  const struct {
    double value;
    const char* text;
  } kCases[] = {{0, "0"},      {12, "12"},      {12.34, "12.3"}, {12.35001, "12.4"},
                {9.96, "10"},  {-0.04, "0"},    {-0.5, "-0.5"},  {-12.34, "-12.3"},
                {0.05, "0.1"}, {1e6, "1000000"}};
  for (const auto& [value, text] : kCases) EXPECT_EQ(Coordinate(value), text) << value;
}

}  // namespace
}  // namespace plimsoll
