// What people read, held against simple second ways: figures read back, lines put together again,
// bars counted out cell by cell.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/format/byte_size.h"
#include "client/io/text.h"
#include "client/show/bar.h"
#include "client/show/catalog_table.h"
#include "client/show/recommend_words.h"
#include "client/show/role_style.h"
#include "client/show/story_lines.h"
#include "client/show/warning_lines.h"

namespace plimsoll {
namespace {

using Random = std::mt19937_64;
using ::testing::HasSubstr;

const Terminal kAscii{.width = 80, .unicode = false, .color = false};

// "2,140 s" and "45.2 ms" as seconds.
double ReadSeconds(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ' ');
  double number = 0;
  EXPECT_TRUE(absl::SimpleAtod(absl::StrReplaceAll(parts.at(0), {{",", ""}}), &number)) << text;
  return parts.at(1) == "ms" ? number / 1000 : number;
}

TEST(ShowByHandTest, SecondsReadBackToThreeDigits) {
  Random random(31);
  for (int i = 0; i < 3000; ++i) {
    const double seconds = std::exp(std::uniform_real_distribution<double>(-4.5, 12)(random));
    const std::string text = FormatSeconds(seconds);
    EXPECT_NEAR(ReadSeconds(text) / seconds, 1, 0.0051) << text;
    EXPECT_LE(text.size(), 10u) << text;
  }
}

TEST(ShowByHandTest, GroupedDigitsAreTheNumber) {
  Random random(32);
  for (int i = 0; i < 1000; ++i) {
    const auto number = static_cast<int64_t>(random() >> random() % 60) / (i % 2 == 0 ? 1 : -1);
    const std::string text = FormatGrouped(number);
    EXPECT_EQ(absl::StrReplaceAll(text, {{",", ""}}), absl::StrCat(number));
    const std::vector<std::string> groups = absl::StrSplit(text, ',');
    for (size_t group = 1; group < groups.size(); ++group) EXPECT_EQ(groups[group].size(), 3u);
    EXPECT_LE(groups[0].size(), number < 0 ? 4u : 3u);
  }
}

// What a size is written as is read as about that size.
TEST(ShowByHandTest, BytesReadBack) {
  Random random(33);
  for (int i = 0; i < 2000; ++i) {
    const auto bytes = static_cast<int64_t>(random() >> (15 + random() % 40));
    const std::string text = FormatBytes(bytes);
    const std::optional<int64_t> read = ParseByteSize(text);
    ASSERT_TRUE(read.has_value()) << text;
    EXPECT_NEAR(static_cast<double>(*read), static_cast<double>(bytes),
                0.051 * std::max(1.0, static_cast<double>(bytes)))
        << text;
  }
}

TEST(ShowByHandTest, SizesWithoutAUnitAreNone) {
  for (const char* text : {"", "61", "61.5", "GiB", "61GB", "61 G", "-1GiB", "1e3GiB", "61GiBs",
                           "1.2.3GiB", "99999999TiB", " 61GiB"}) {
    EXPECT_EQ(ParseByteSize(text), std::nullopt) << text;
  }
  EXPECT_EQ(ParseByteSize("0"), 0);
  EXPECT_EQ(ParseByteSize("61gib"), int64_t{61} << 30);
  EXPECT_EQ(ParseByteSize("0.5 KiB"), 512);
  constexpr char kRule[] = "must be a size with its unit (B, KiB, MiB, GiB, TiB), as ";
  EXPECT_EQ(NotAByteSize("44.4"), absl::StrCat(kRule, "44.4GiB"));
  EXPECT_EQ(NotAByteSize("65498251264"), absl::StrCat(kRule, "65498251264B"));
  EXPECT_EQ(NotAByteSize("lots"), absl::StrCat(kRule, "61.5GiB"));
  EXPECT_EQ(NotAByteSize("0"), absl::StrCat(kRule, "61.5GiB"));
}

std::string AnyWords(Random& random, size_t words, size_t longest) {
  std::vector<std::string> all(words);
  for (std::string& word : all) word.assign(1 + random() % longest, "abcdefgh"[random() % 8]);
  return absl::StrJoin(all, " ");
}

// Lines put together again are the text, and none is wider than it may be.
TEST(ShowByHandTest, WrappingLosesNothing) {
  Random random(34);
  for (int i = 0; i < 500; ++i) {
    const int indent = static_cast<int>(random() % 6);
    const int width = indent + 8 + static_cast<int>(random() % 60);
    const std::string text = AnyWords(random, 1 + random() % 20, 8);
    const std::string wrapped = Wrap(text, width, indent);
    const std::vector<std::string> lines = absl::StrSplit(wrapped, '\n');
    std::vector<std::string> words;
    for (size_t line = 0; line < lines.size(); ++line) {
      EXPECT_LE(DisplayWidth(lines[line]), width) << wrapped;
      if (line > 0) {
        EXPECT_EQ(lines[line].substr(0, static_cast<size_t>(indent)),
                  std::string(static_cast<size_t>(indent), ' '));
      }
      for (const auto& word : absl::StrSplit(lines[line], ' ', absl::SkipEmpty())) {
        words.emplace_back(word);
      }
    }
    EXPECT_EQ(absl::StrJoin(words, " "), text);
  }
}

// A word that is wider than a line is cut, and nothing of it is lost.
TEST(ShowByHandTest, WideWordsAreCut) {
  Random random(35);
  for (int i = 0; i < 200; ++i) {
    const int width = 5 + static_cast<int>(random() % 20);
    const std::string text = AnyWords(random, 1 + random() % 5, 60);
    const std::string wrapped = Wrap(text, width, 2);
    for (const auto& line : absl::StrSplit(wrapped, '\n')) EXPECT_LE(DisplayWidth(line), width);
    EXPECT_EQ(absl::StrReplaceAll(wrapped, {{"\n", ""}, {" ", ""}}),
              absl::StrReplaceAll(text, {{" ", ""}}));
  }
}

TEST(ShowByHandTest, StoriesStandBesideOrBelow) {
  StoryLines lines({Columns::Align::kLeft, Columns::Align::kRight});
  lines.Add({"logits", "61.2 GiB"}, "kept for backward");
  lines.Add({"weights", "3.0 GiB"}, "");
  EXPECT_EQ(lines.ToText(kAscii),
            " logits   61.2 GiB\n"
            "     kept for backward\n"
            " weights   3.0 GiB\n");
  EXPECT_EQ(lines.ToText({.width = 120, .unicode = false, .color = false}),
            " logits   61.2 GiB  kept for backward\n"
            " weights   3.0 GiB\n");
}

TEST(ShowByHandTest, WarningsSayWhatAndWhere) {
  google::protobuf::RepeatedPtrField<v1::Warning> warnings;
  v1::Warning* const warning = warnings.Add();
  warning->set_code("fp16-diverges");
  warning->set_field("job.training.precision.preset");
  warning->set_text("training large models in fp16 diverges");
  warnings.Add()->set_text("no\x1b[2J code");
  EXPECT_EQ(WarningLines(warnings, {.width = 120, .unicode = false, .color = false}),
            "\nWarning fp16-diverges (job.training.precision.preset): training large models in "
            "fp16 diverges\n\nWarning : no [2J code\n");
  EXPECT_EQ(WarningLine("slow", "a text that goes on in a second line",
                        {.width = 30, .unicode = false, .color = false}),
            "\nWarning slow: a text that goes\n  on in a second line\n");
}

TEST(ShowByHandTest, AssumptionsAreListedBelowTheirHeading) {
  google::protobuf::RepeatedPtrField<v1::Assumption> assumptions;
  EXPECT_EQ(AssumedLines(assumptions, kAscii), "");
  v1::Assumption* const one = assumptions.Add();
  one->set_field("job.training.attention");
  one->set_value("flash");
  one->set_reason("auto, for this framework and GPU");
  v1::Assumption* const other = assumptions.Add();
  other->set_field("recommend.objective");
  other->set_value("fastest");
  other->set_reason("the usual one");
  EXPECT_EQ(AssumedLines(assumptions, kAscii),
            "\nAssumed\n"
            " training.attention   flash (auto, for this framework and GPU)\n"
            " recommend.objective  fastest (the usual one)\n");
}

TEST(ShowByHandTest, CatalogsAreTables) {
  v1::ListModelsResponse models;
  v1::ModelInfo* const model = models.add_models();
  model->set_name("llama-3.1-8b");
  model->set_parameter_count(8030261248);
  model->set_layer_count(32);
  model->set_hidden_size(4096);
  model->set_vocab_size(128256);
  model->set_model_type("llama");
  model->add_hf_ids("meta-llama/Llama-3.1-8B");
  model->add_hf_ids("meta-llama/Llama-3.1-8B-Instruct");
  EXPECT_EQ(ToTable(models, {.width = 160, .unicode = false, .color = false}),
            "MODEL         PARAMETERS  LAYERS  HIDDEN  VOCABULARY  TYPE   HUGGING FACE IDS\n"
            "llama-3.1-8b      8.03 B      32    4096      128256  llama  meta-llama/Llama-3.1-8B, "
            "meta-llama/Llama-3.1-8B-Instruct\n");
  v1::ListGpusResponse gpus;
  v1::GpuInfo* const gpu = gpus.add_gpus();
  gpu->set_gpu("h100-80gb-sxm");
  gpu->set_runtime_memory_bytes(85017493504);
  gpu->set_memory_bandwidth_bytes_per_second(3350000000000);
  (*gpu->mutable_teraflops())["bf16"] = 989.5;
  gpu->set_interconnect_bytes_per_second(450000000000);
  gpu->set_interconnect("nvlink");
  gpus.add_gpus()->set_gpu("unknown");
  EXPECT_EQ(ToTable(gpus, kAscii),
            "GPU            USABLE GIB  GB/S  BF16 TFLOPS  LINK GB/S  LINK\n"
            "h100-80gb-sxm       79.18  3350        989.5        450  nvlink\n"
            "unknown              0.00     -            -          -\n");
}

// A bar counted out: cell i is of the first role whose cumulative bytes reach its middle.
std::string BarByHand(const std::vector<std::pair<v1::Role, int64_t>>& parts, int64_t bound,
                      const BarScale& scale) {
  const double cell = static_cast<double>(scale.full_bytes) / scale.cell_count;
  std::string bar;
  for (int i = 0; i < scale.cell_count; ++i) {
    char drawn = static_cast<double>(bound) / cell >= i + 1 ? '.' : ' ';
    int64_t sum = 0;
    for (const auto& [role, bytes] : parts) {
      sum += bytes;
      if (static_cast<double>(sum) / cell >= i + 0.5) {
        drawn = RoleCell(role, kAscii)[0];
        break;
      }
    }
    bar += drawn;
  }
  const auto mark = [&](int64_t bytes, char sign) {
    const int at =
        std::clamp(static_cast<int>(static_cast<double>(bytes) / cell), 0, scale.cell_count - 1);
    bar[static_cast<size_t>(at)] = sign;
  };
  mark(bound, ':');
  mark(scale.capacity_bytes, '|');
  return bar;
}

TEST(ShowByHandTest, BarsAreCountedOut) {
  Random random(36);
  constexpr v1::Role kRoles[] = {v1::ROLE_WEIGHT, v1::ROLE_GRADIENT, v1::ROLE_ACTIVATION,
                                 v1::ROLE_LOSS};
  for (int i = 0; i < 1000; ++i) {
    // Powers of two, so that no middle is a matter of rounding.
    const BarScale scale = {.cell_count = 1 << (3 + random() % 4),
                            .full_bytes = 1 << 20,
                            .capacity_bytes = static_cast<int64_t>(random() % (1 << 20))};
    v1::RankMemory rank;
    std::vector<std::pair<v1::Role, int64_t>> parts;
    int64_t sum = 0;
    for (const v1::Role role : kRoles) {
      parts.emplace_back(role, static_cast<int64_t>(random() % (1 << 18)));
      sum += parts.back().second;
      rank.add_breakdown()->set_role(role);
      rank.mutable_breakdown()->rbegin()->set_bytes(parts.back().second);
    }
    const int64_t bound = sum + static_cast<int64_t>(random() % (1 << 17));
    rank.mutable_device()->set_bound_bytes(bound);
    EXPECT_EQ(DrawBar(rank, scale, kAscii), BarByHand(parts, bound, scale)) << i;
  }
}

TEST(ShowByHandTest, EveryRolePhaseAndVerdictHasWords) {
  std::vector<std::string> colors;
  for (int role = v1::ROLE_WEIGHT; role <= v1::Role_MAX; ++role) {
    const std::string color = RoleColor(static_cast<v1::Role>(role));
    EXPECT_EQ(color.size(), 7u) << role;
    colors.push_back(color);
  }
  std::sort(colors.begin(), colors.end());
  EXPECT_EQ(std::adjacent_find(colors.begin(), colors.end()), colors.end()) << "each its own";
  std::vector<std::string> phases;
  for (int phase = v1::PHASE_FORWARD; phase <= v1::Phase_MAX; ++phase) {
    phases.push_back(PhaseName(static_cast<v1::Phase>(phase)));
    EXPECT_NE(phases.back(), PhaseName(v1::PHASE_UNSPECIFIED)) << phase;
  }
  EXPECT_THAT(VerdictName(v1::VERDICT_DOES_NOT_FIT), HasSubstr("DOES NOT FIT"));
  EXPECT_NE(VerdictName(v1::VERDICT_FITS), VerdictName(v1::VERDICT_AT_RISK));
}

TEST(ShowByHandTest, CountsOfASearch) {
  v1::RecommendConfigResponse response;
  response.set_legal_count(1);
  response.set_estimated_count(1);
  response.set_fit_count(1);
  EXPECT_EQ(CountWords(response), "1 legal configuration, 1 estimated, 1 fits");
  response.set_legal_count(3412);
  response.set_estimated_count(210);
  response.set_fit_count(0);
  EXPECT_EQ(CountWords(response), "3,412 legal configurations, 210 estimated, 0 fit");
}

}  // namespace
}  // namespace plimsoll
