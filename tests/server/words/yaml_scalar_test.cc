// What a YAML scalar means where a number or a truth value is due.
#include "server/words/yaml_scalar.h"

#include <cstdint>
#include <optional>
#include <string>

#include "gtest/gtest.h"

namespace plimsoll {
namespace {

TEST(ToInt64Test, IsExact) {
  const struct {
    const char* text;
    std::optional<int64_t> value;
  } kCases[] = {
      {"0", 0},
      {"-12", -12},
      {"9223372036854775807", INT64_MAX},
      {"5e8", 500000000},
      {"8.0", 8},
      {"9007199254740992.0", int64_t{1} << 53},
      {"9223372036854775808", std::nullopt},  // one too many, and not exact as a double
      {"1.5", std::nullopt},
      {"8k", std::nullopt},
      {"", std::nullopt},
      {"nan", std::nullopt},
      {"inf", std::nullopt},
  };
  for (const auto& test : kCases) {
    int64_t value = 0;
    const bool is_one = ToInt64(test.text, &value);
    EXPECT_EQ(is_one, test.value.has_value()) << test.text;
    EXPECT_EQ(is_one ? value : 0, test.value.value_or(0)) << test.text;
  }
}

TEST(ToDoubleTest, IsFinite) {
  double value = 0;
  EXPECT_TRUE(ToDouble("0.25", &value));
  EXPECT_EQ(value, 0.25);
  for (const char* text : {"inf", "nan", "1e999", "x", ""}) {
    EXPECT_FALSE(ToDouble(text, &value)) << text;
  }
}

TEST(ToBoolTest, TakesThreeSpellings) {
  bool value = false;
  for (const char* text : {"true", "True", "TRUE"}) {
    EXPECT_TRUE(ToBool(text, &value) && value) << text;
  }
  for (const char* text : {"false", "False", "FALSE"}) {
    EXPECT_TRUE(ToBool(text, &value) && !value) << text;
  }
  for (const char* text : {"yes", "on", "1", "tRUE", ""}) {
    EXPECT_FALSE(ToBool(text, &value)) << text;
  }
}

TEST(ShownTest, NamesWhatIsNoScalar) {
  EXPECT_EQ(Shown(YAML::Load("{a: 1}")), "a mapping");
  EXPECT_EQ(Shown(YAML::Load("[1, 2]")), "a list");
  EXPECT_EQ(Shown(YAML::Load("~")), "null");
  EXPECT_EQ(Shown(YAML::Load("2.10")), "2.10");
}

}  // namespace
}  // namespace plimsoll
