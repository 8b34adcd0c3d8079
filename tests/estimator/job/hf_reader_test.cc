// One field of a config.json after the other: what each reading function takes, what it gives in
// place of what it refuses, and the words that it refuses with.
#include "estimator/job/hf_reader.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/config_values.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What one reading function gave of an object, and what was said.
template <typename Value>
struct Reading {
  Value value;
  std::vector<std::string> said;
};

template <typename Function>
auto ReadWith(const ConfigValue& object, Function function) {
  HfConfig out;
  HfReader reader(object, std::string(kConfig), &out);
  auto value = function(reader);
  return Reading<decltype(value)>{value, SaidOf(out)};
}

TEST(HfReaderTest, TextIsCutToSixtyFourBytesOfWholeCharacters) {
  const std::string letters(64, 'x');
  EXPECT_EQ(CutText(letters), letters);
  EXPECT_EQ(CutText(letters + "y"), std::string(61, 'x') + "...");
  // Characters of two, three and four bytes, of which the last to fit must be whole.
  for (const std::string character : {"\u00e9", "\u20ac", "\U0001F600"}) {
    for (size_t front = 0; front < 5; ++front) {
      std::string text(front, 'x');
      while (text.size() <= 64) text += character;
      const std::string cut = CutText(text);
      const size_t kept = (61 - front) / character.size();
      std::string whole(front, 'x');
      for (size_t i = 0; i < kept; ++i) whole += character;
      EXPECT_EQ(cut, whole + "...") << front;
    }
  }
  EXPECT_EQ(SeenText(""), "\"\"");
  EXPECT_EQ(SeenText(std::string(62, 'x')), "\"" + std::string(62, 'x') + "\"");
  EXPECT_EQ(SeenText(std::string(63, 'x')), "\"" + std::string(60, 'x') + "...");
}

// Each kind of value as a violation shows it, and whether it switches a feature on.
TEST(HfReaderTest, ValuesAreShownAndSwitchOn) {
  struct Row {
    ConfigValue value;
    const char* seen;
    bool on;
  };
  const Row rows[] = {
      {ConfigValue{}, "null", false},
      {FlagValue(false), "false", false},
      {FlagValue(true), "true", true},
      {NumberValue(0), "0", false},
      {NumberValue(-0.5), "-0.5", true},
      {NumberValue(1e15), "1e+15", true},
      {NumberValue(131072), "131072", true},
      {NumberValue(std::nan("")), "nan", true},
      {NumberValue(-kInfinity), "-inf", true},
      {TextValue(""), "\"\"", false},
      {TextValue("false"), "\"false\"", true},
      {ListValue({}), "a list", false},
      {ListValue({NumberValue(0)}), "a list", true},
      {ObjectValue({}), "an object", false},
      {ObjectValue({{"a", ConfigValue{}}}), "an object", true},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(SeenValue(row.value), row.seen);
    EXPECT_EQ(IsOn(row.value), row.on) << row.seen;
  }
}

// Of alternatives the first that is set is read; null is as good as absent.
TEST(HfReaderTest, TheFirstAlternativeThatIsSetIsRead) {
  struct Row {
    std::map<std::string, ConfigValue> fields;
    const char* name;
    int64_t size;
  };
  const Row rows[] = {
      {{{"n_embd", NumberValue(8)}}, "n_embd", 8},
      {{{"hidden_size", NumberValue(9)}}, "hidden_size", 9},
      {{{"n_embd", NumberValue(8)}, {"hidden_size", NumberValue(9)}}, "n_embd", 8},
      {{{"n_embd", ConfigValue{}}, {"hidden_size", NumberValue(9)}}, "hidden_size", 9},
      {{{"d_model", NumberValue(7)}, {"hidden_size", ConfigValue{}}}, "d_model", 7},
      {{}, "n_embd", 5},
      {{{"d_model", ConfigValue{}}}, "n_embd", 5},
  };
  for (const Row& row : rows) {
    const ConfigValue object = ObjectValue(row.fields);
    HfConfig out;
    HfReader reader(object, std::string(kConfig), &out);
    constexpr absl::string_view kNames = "n_embd|hidden_size|d_model";
    EXPECT_EQ(reader.Name(kNames), row.name);
    EXPECT_EQ(reader.Has(kNames), row.size != 5) << row.name;
    EXPECT_EQ(reader.Size(kNames, 100, 5), row.size) << row.name;
    EXPECT_THAT(SaidOf(out), IsEmpty()) << row.name;
  }
}

TEST(HfReaderTest, NullIsFoundAndNotHad) {
  const ConfigValue object = ObjectValue({{"head_dim", ConfigValue{}}});
  HfConfig out;
  const HfReader reader(object, "config", &out);
  ASSERT_NE(reader.Find("head_dim"), nullptr);
  EXPECT_FALSE(reader.Has("head_dim"));
  EXPECT_EQ(reader.Find("hidden_size"), nullptr);
  EXPECT_EQ(reader.path(), "config");
}

// From 2 to 10, with a fallback of 7.
TEST(HfReaderTest, SizesAreWholeNumbersInTheirRange) {
  const auto size = [](const ConfigValue& value) {
    const ConfigValue object = ObjectValue({{"size", value}});
    return ReadWith(object, [](HfReader& reader) { return reader.Size("size", 10, 7, 2); });
  };
  for (const double good : {2.0, 3.0, 10.0}) {
    EXPECT_EQ(size(NumberValue(good)).value, static_cast<int64_t>(good));
    EXPECT_THAT(size(NumberValue(good)).said, IsEmpty());
  }
  EXPECT_EQ(size(ConfigValue{}).value, 7);
  struct Row {
    ConfigValue value;
    const char* seen;
  };
  const Row rows[] = {
      {NumberValue(1), "1"},
      {NumberValue(11), "11"},
      {NumberValue(2.5), "2.5"},
      {NumberValue(-3), "-3"},
      {NumberValue(kInfinity), "inf"},
      {NumberValue(std::nan("")), "nan"},
      {TextValue("3"), "\"3\""},
      {FlagValue(true), "true"},
      {ListValue({NumberValue(3)}), "a list"},
      {ObjectValue({}), "an object"},
  };
  for (const Row& row : rows) {
    const auto read = size(row.value);
    EXPECT_EQ(read.value, 0) << row.seen;
    EXPECT_THAT(read.said, ElementsAre(std::string("size: ") + row.seen +
                                       "; must be a whole number from 2 to 10"));
  }
}

// A fallback of 0 makes a field required, unless 0 may be said.
TEST(HfReaderTest, AFieldWithoutAFallbackMustBeSet) {
  const ConfigValue empty = ObjectValue({});
  const auto required = ReadWith(empty, [](HfReader& r) { return r.Size("a|b", 10, 0); });
  EXPECT_EQ(required.value, 0);
  EXPECT_THAT(required.said, ElementsAre("a: unset; must be set"));
  const auto open = ReadWith(empty, [](HfReader& r) { return r.Size("a|b", 10, 0, 0); });
  EXPECT_EQ(open.value, 0);
  EXPECT_THAT(open.said, IsEmpty());
}

TEST(HfReaderTest, FlagsRatesAndTextFallBackToWhatIsGiven) {
  struct Row {
    ConfigValue value;
    bool flag;            // with a fallback of true
    double rate;          // with a fallback of 0.25
    const char* text;     // with a fallback of "silu"
    const char* refused;  // by which of the three
  };
  const Row rows[] = {
      {ConfigValue{}, true, 0.25, "silu", ""},
      {FlagValue(false), false, 0.25, "silu", "rate text"},
      {NumberValue(0), true, 0, "silu", "flag text"},
      {NumberValue(1), true, 1, "silu", "flag text"},
      {NumberValue(0.5), true, 0.5, "silu", "flag text"},
      {NumberValue(-0.01), true, 0.25, "silu", "flag rate text"},
      {NumberValue(1.01), true, 0.25, "silu", "flag rate text"},
      {NumberValue(std::nan("")), true, 0.25, "silu", "flag rate text"},
      {TextValue("gelu"), true, 0.25, "gelu", "flag rate"},
      {ListValue({}), true, 0.25, "silu", "flag rate text"},
  };
  for (const Row& row : rows) {
    const ConfigValue object = ObjectValue({{"x", row.value}});
    const auto flag = ReadWith(object, [](HfReader& r) { return r.Flag("x", true); });
    const auto rate = ReadWith(object, [](HfReader& r) { return r.Rate("x", 0.25); });
    const auto text = ReadWith(object, [](HfReader& r) { return r.Text("x", "silu"); });
    const std::string seen = SeenValue(row.value);
    EXPECT_EQ(flag.value, row.flag) << seen;
    EXPECT_EQ(rate.value, row.rate) << seen;
    EXPECT_EQ(text.value, row.text) << seen;
    const std::string refused = row.refused;
    const auto said = [&](const char* what, const char* rule) {
      const bool is = refused.find(what) != std::string::npos;
      return is ? std::vector<std::string>{"x: " + seen + "; " + rule} : std::vector<std::string>{};
    };
    EXPECT_EQ(flag.said, said("flag", "must be true or false"));
    EXPECT_EQ(rate.said, said("rate", "must be a number from 0 to 1"));
    EXPECT_EQ(text.said, said("text", "must be a string"));
  }
  const ConfigValue nameless = ObjectValue({{"", TextValue("relu")}});
  EXPECT_EQ(ReadWith(nameless, [](HfReader& r) { return r.Text("", "silu"); }).value, "silu");
}

// What is wrong with a field is told once, whoever reads it next; codes tell kinds of wrongs apart.
TEST(HfReaderTest, AFieldIsRefusedOnce) {
  const ConfigValue object = ObjectValue({{"a", NumberValue(-1)}, {"b", TextValue("x")}});
  HfConfig out;
  HfReader reader(object, "config", &out);
  reader.Size("a", 10, 1);
  reader.Flag("a", true);
  reader.Rate("a", 0);
  reader.Flag("b", true);
  reader.Size("c", 10, 0);
  reader.Refuse("a", "-1", "is the wrong way round", ViolationCode::kNotModelled);
  reader.Refuse("d", "2", "is the wrong way round");
  ASSERT_EQ(out.violations.size(), 4u);
  const ViolationCode codes[] = {ViolationCode::kOutOfRange, ViolationCode::kMalformed,
                                 ViolationCode::kMissing, ViolationCode::kInvalidValue};
  const char* const fields[] = {"config.a", "config.b", "config.c", "config.d"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(out.violations[i].code, codes[i]) << i;
    EXPECT_EQ(out.violations[i].field, fields[i]);
  }
  reader.Warn("no-head", "e", "has none");
  reader.Warn("no-head", "e", "has none");
  ASSERT_EQ(out.warnings.size(), 2u) << "warnings are not";
  EXPECT_EQ(out.warnings[0].field, "config.e");
}

}  // namespace
}  // namespace plimsoll
