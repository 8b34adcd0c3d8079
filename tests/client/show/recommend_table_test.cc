// A recommendation as text: each case of recommendations/ at several widths.
// UPDATE_GOLDENS=1 rewrites the pictures; look at them before you commit them.
#include "client/show/recommend_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "client/io/text.h"
#include "tests/client/recommend_cases.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string Table(const std::string& name, const Terminal& terminal, bool explain = true) {
  return ToTable(RecommendationRequest(name), ReadRecommendation(name), explain, terminal);
}

class RecommendTableTest : public testing::TestWithParam<const char*> {};

TEST_P(RecommendTableTest, LooksAsBefore) {
  const std::string name = GetParam();
  CompareWithGolden(name + ".80.txt", Table(name, {.width = 80, .unicode = true}));
  CompareWithGolden(name + ".120.txt", Table(name, {.width = 120, .unicode = true}));
  CompareWithGolden(name + ".ascii.txt", Table(name, Terminal{}, false));
}

TEST_P(RecommendTableTest, StaysWithinTheWidth) {
  for (int width = 60; width <= 160; ++width) {
    std::istringstream lines(Table(GetParam(), {.width = width, .unicode = true}));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(DisplayWidth(line), width) << line;
    }
  }
}

TEST_P(RecommendTableTest, ColoursChangeNothingElse) {
  const std::string plain = Table(GetParam(), {.width = 80});
  std::string colored = Table(GetParam(), {.width = 80, .color = true});
  EXPECT_NE(colored, plain);
  for (size_t at; (at = colored.find('\x1b')) != std::string::npos;) {
    colored.erase(at, colored.find('m', at) - at + 1);
  }
  EXPECT_EQ(colored, plain);
}

TEST_P(RecommendTableTest, AsciiIsAscii) {
  for (const char c : Table(GetParam(), Terminal{})) {
    EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << static_cast<int>(c);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, RecommendTableTest, testing::ValuesIn(kRecommendCases),
                         [](const auto& info) { return info.param; });

TEST(RecommendTableTest, FirstLinesAnswer) {
  const std::string text = Table("resharded", {.width = 160, .unicode = true});
  EXPECT_THAT(text, StartsWith("DOES NOT FIT  llama-3.1-8b on 8 × h100-80gb-sxm as asked: 149.1 of "
                               "79.2 GiB each, bound 167.0 GiB, 8.15 s a step\n"
                               "Fastest: ZeRO 0 → 3, recompute selective; 61.0 of 79.2 GiB, 2 % "
                               "slower\n"));
}

TEST(RecommendTableTest, SaysByWhatTheBestIsBest) {
  v1::RecommendConfigRequest request;
  const v1::RecommendConfigResponse response = ReadRecommendation("resharded");
  for (const auto& [objective, word] : {std::pair{"fewest-gpus", "\nFewest GPUs: "},
                                        {"smallest-change", "\nSmallest change: "},
                                        {"cheapest", "\nCheapest: "},
                                        {"fastest", "\nFastest: "}}) {
    request.set_objective(objective);
    EXPECT_THAT(ToTable(request, response, false, {}), HasSubstr(word));
  }
}

// What the search settled is said as what an estimate assumes.
TEST(RecommendTableTest, SaysWhatWasLeftOpen) {
  v1::RecommendConfigRequest request;
  v1::RecommendConfigResponse response = ReadRecommendation("resharded");
  const auto assume = [&](const char* field, const char* value) {
    v1::Assumption& assumption = *response.add_assumptions();
    assumption.set_field(field);
    assumption.set_value(value);
    assumption.set_reason("so it is");
  };
  assume("job.cluster.gpu_count", "8");
  EXPECT_THAT(ToTable(request, response, false, {}), HasSubstr(" as taken: "));
  EXPECT_THAT(ToTable(request, response, false, {}),
              HasSubstr("\nAssumed\n cluster.gpu_count  8 (so it is)\n"));
  EXPECT_THAT(ToTable(request, response, false, {}), HasSubstr("\nFastest: "));
  assume("objective", "fewest-gpus");
  EXPECT_THAT(ToTable(request, response, false, {}), HasSubstr("\nFewest GPUs: "));
  // A job that says it in other words says it.
  request.mutable_job()->mutable_cluster()->set_gpu_count(8);
  EXPECT_THAT(ToTable(request, response, false, {}), HasSubstr(" as asked: "));
}

TEST(RecommendTableTest, CostsAreShownWhereThereArePrices) {
  EXPECT_THAT(Table("types", {.width = 120}), HasSubstr("MFU    cost  what changes"));
  EXPECT_THAT(Table("resharded", {.width = 120}), Not(HasSubstr("  cost")));
}

// A GPU without a price costs nobody knows what, not nothing.
TEST(RecommendTableTest, APriceThatWasNotGivenIsNotZero) {
  v1::RecommendConfigResponse response = ReadRecommendation("types");
  response.mutable_candidates(0)->mutable_step_time()->clear_cost_per_billion_tokens();
  const std::string text =
      ToTable(RecommendationRequest("types"), response, /*explain=*/false, {.width = 120});
  EXPECT_THAT(text, Not(HasSubstr("0.00")));
  EXPECT_THAT(text, HasSubstr("       -  "));
  EXPECT_THAT(text, Not(HasSubstr("by the prices given")));
}

TEST(RecommendTableTest, SaysWhatItIsNotSureOf) {
  const std::string text = Table("types", {.width = 120});
  EXPECT_THAT(text, HasSubstr("Warning truncated: "));
  EXPECT_THAT(text, HasSubstr("Warning spec-only: "));
  EXPECT_THAT(text, HasSubstr("Warning uncalibrated (job.cluster.gpu): "));
  EXPECT_THAT(Table("resharded", {.width = 120}), Not(HasSubstr("Warning")));
}

TEST(RecommendTableTest, DoesNotWarnTwice) {
  v1::RecommendConfigResponse response = ReadRecommendation("types");
  response.add_warnings()->set_code("spec-only");
  response.mutable_warnings()->rbegin()->set_text("as the service says");
  const std::string text = ToTable({}, response, false, {.width = 120});
  EXPECT_THAT(text, HasSubstr("Warning spec-only: as the service says\n"));
  EXPECT_THAT(text, Not(HasSubstr("Warning spec-only: times with ~")));
}

TEST(RecommendTableTest, SaysWhyNothingFitsAndWhatWould) {
  std::string text = Table("nothing_fits", {.width = 160});
  EXPECT_THAT(text, HasSubstr("\nNothing fits: the nearest misses by 386.8 GiB, bound 466.0 of "
                              "79.2 GiB each; it is ZeRO 3 -> 1, TP 1 -> 8, PP 1 -> 2, "
                              "recompute full\n"));
  EXPECT_THAT(text, HasSubstr("\nIts largest part: optimizer states, 188.6 GiB\n"));
  EXPECT_THAT(text, HasSubstr("\nWhat would help, each with one thing that was not to change\n"));
  EXPECT_THAT(text, HasSubstr("128 x h100-80gb-sxm"));
  EXPECT_THAT(text, HasSubstr("; more GPUs share"));
  EXPECT_THAT(text, HasSubstr("\nWhat the nearest changes in the job\n"));
  v1::RecommendConfigResponse response = ReadRecommendation("nothing_fits");
  response.mutable_obstacle()->clear_remedies();
  text = ToTable({}, response, false, {.width = 160});
  EXPECT_THAT(text, HasSubstr("\nNo one thing beyond what may change would help\n"));
  EXPECT_THAT(text, HasSubstr("\n nearest  "));
}

// No results may be asked for: then how many there are is the answer.
TEST(RecommendTableTest, NoCandidatesAndNoObstacle) {
  v1::RecommendConfigResponse response = ReadRecommendation("resharded");
  response.clear_candidates();
  const std::string text = ToTable({}, response, true, {.width = 80});
  EXPECT_THAT(text, HasSubstr("\n asked  8 x h100-80gb-sxm  "));
  EXPECT_THAT(text, HasSubstr("\n3,412 legal configurations, 210 estimated, 96 fit\n"));
  EXPECT_THAT(text, Not(HasSubstr("Nothing fits")));
  EXPECT_THAT(text, Not(HasSubstr("nearest")));
  EXPECT_NE(ToTable({}, {}, true, {.width = 80}), "") << "whatever a service leaves out";
}

TEST(RecommendTableTest, ExplainsOnRequest) {
  const std::string text = Table("resharded", {.width = 80});
  EXPECT_THAT(text, HasSubstr("\nWhat the best changes in the job\n parallelism.zero_stage  "));
  EXPECT_THAT(text, HasSubstr("\nWhere the time of a step goes"));
  EXPECT_THAT(Table("resharded", {.width = 80}, false), Not(HasSubstr("Where the time")));
}

// What the service says cannot steer a terminal.
TEST(RecommendTableTest, ControlCharactersDoNotReachTheTerminal) {
  v1::RecommendConfigResponse response = ReadRecommendation("resharded");
  for (v1::Candidate& candidate : *response.mutable_candidates()) {
    candidate.mutable_job()->mutable_cluster()->set_gpu("a\x1b[2Jb\r");
    candidate.mutable_changes(0)->set_field("x.\x1b");
    candidate.mutable_changes(0)->set_to("\x1b");
  }
  response.mutable_requested()->mutable_job()->mutable_model()->set_name("\x1b]0;x\x07");
  response.set_speed_id("\x1b");
  for (const std::string& text :
       {ToTable({}, response, true, {.width = 80}), JobFileComment(response)}) {
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    EXPECT_EQ(text.find('\r'), std::string::npos);
  }
}

TEST(JobFileCommentTest, SaysWhatChangedAndTheFigures) {
  EXPECT_EQ(JobFileComment(ReadRecommendation("resharded")),
            "# ZeRO 0 -> 3, recompute selective, 2 % slower\n"
            "# 8 x h100-80gb-sxm: 61.0 of 79.2 GiB each, bound 66.4 GiB, 8.34 s a step\n");
}

}  // namespace
}  // namespace plimsoll
