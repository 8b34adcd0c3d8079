// Recommendations as pictures. UPDATE_GOLDENS=1 rewrites recommendations/*.svg;
// open them before you commit them.
#include "client/draw/recommend_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "client/draw/recommend_plot_file.h"
#include "client/draw/recommend_points.h"
#include "tests/client/recommend_cases.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Plot(const std::string& name) { return RecommendPlot(ReadRecommendation(name)); }

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

class RecommendPlotTest : public testing::TestWithParam<const char*> {};

TEST_P(RecommendPlotTest, LooksAsBefore) {
  CompareWithGolden(std::string(GetParam()) + ".svg", Plot(GetParam()));
}

TEST_P(RecommendPlotTest, HasAPointForEachJobAndALineForEachFront) {
  const v1::RecommendConfigResponse response = ReadRecommendation(GetParam());
  const RecommendPoints all = CollectPoints(response);
  int lines = 0;
  for (const RecommendSeries& series : all.series) lines += series.front.size() > 1 ? 1 : 0;
  const std::string svg = Plot(GetParam());
  EXPECT_EQ(Count(svg, "class=\"point\""), static_cast<int>(all.points.size()));
  EXPECT_EQ(Count(svg, "class=\"front\""), lines);
  EXPECT_GT(Count(svg, "class=\"capacity\""), 0);
}

INSTANTIATE_TEST_SUITE_P(Cases, RecommendPlotTest, testing::ValuesIn(kRecommendCases),
                         [](const auto& info) { return info.param; });

TEST(RecommendPlotTest, SaysWhatItShows) {
  const std::string svg = Plot("resharded");
  EXPECT_THAT(svg, HasSubstr(">DOES NOT FIT<"));
  EXPECT_THAT(svg, HasSubstr(">Best: ZeRO 0 → 3, recompute selective; bound 66.4 of 79.2 GiB, "));
  EXPECT_THAT(svg, HasSubstr(">79.2 GiB h100-80gb-sxm<"));
  EXPECT_THAT(svg, HasSubstr(">asked: 167.0 GiB<")) << "it is beyond the edge";
  EXPECT_THAT(svg,
              HasSubstr("GiB, expected 61.0 GiB, 8.34 s a step (7.09 s to 9.59 s), 44 % MFU<"));
  EXPECT_THAT(Plot("nothing_fits"), HasSubstr(">Nothing fits; the nearest: ZeRO 3 → 1"));
  EXPECT_THAT(Plot("types"), HasSubstr("cut short by the deadline"));
  EXPECT_THAT(Plot("types"), HasSubstr("(logarithmic)"));
  EXPECT_THAT(svg, Not(HasSubstr("(logarithmic)")));
}

// What a job calls itself is text, never markup.
TEST(RecommendPlotTest, NamesAreEscaped) {
  v1::RecommendConfigResponse response = ReadRecommendation("resharded");
  response.mutable_requested()->mutable_job()->mutable_model()->set_name("</svg><script>");
  for (v1::Candidate& candidate : *response.mutable_candidates()) {
    candidate.mutable_job()->mutable_cluster()->set_gpu("</title><script>");
    candidate.mutable_changes(0)->set_to("<script>");
  }
  EXPECT_THAT(RecommendPlot(response), Not(HasSubstr("<script>")));
}

TEST(RecommendPlotTest, NothingToShowIsNoReasonToFail) {
  EXPECT_THAT(RecommendPlot(v1::RecommendConfigResponse()), HasSubstr("</svg>"));
}

TEST(RecommendPointsTest, AJobIsShownOnceWithTheBetterFigures) {
  const v1::RecommendConfigResponse response = ReadRecommendation("resharded");
  const RecommendPoints all = CollectPoints(response);
  ASSERT_EQ(all.points.size(), 7u) << "five, the asked, and one of the front alone";
  EXPECT_EQ(all.points[2].name, "3");
  EXPECT_TRUE(all.points[2].on_front);
  EXPECT_EQ(all.points[2].candidate->detail(), "replay");
  EXPECT_EQ(all.points[5].name, "asked");
  EXPECT_EQ(all.points[6].name, "");
  ASSERT_EQ(all.series.size(), 1u);
  EXPECT_EQ(all.series[0].gpu_count, 8);
  EXPECT_EQ(all.series[0].front, (std::vector<size_t>{0, 2, 6}));
}

TEST(RecommendPointsTest, ALineForEachNumberAndTypeOfGpus) {
  const v1::RecommendConfigResponse response = ReadRecommendation("types");
  const RecommendPoints all = CollectPoints(response);
  ASSERT_EQ(all.series.size(), 10u);
  EXPECT_EQ(all.series[0].gpu, "h100-80gb-sxm");
  EXPECT_EQ(all.series[0].gpu_count, 48);
  EXPECT_EQ(all.series[9].gpu, "h200-141gb-sxm");
  for (const RecommendSeries& series : all.series) {
    for (size_t i = 1; i < series.front.size(); ++i) {
      EXPECT_LE(all.points[series.front[i - 1]].candidate->step_time().seconds(),
                all.points[series.front[i]].candidate->step_time().seconds());
    }
  }
}

TEST(RecommendPointsTest, WhatIsBestAsAskedIsOnePoint) {
  const v1::RecommendConfigResponse response = ReadRecommendation("as_asked");
  const RecommendPoints all = CollectPoints(response);
  ASSERT_EQ(all.points.size(), 1u);
  EXPECT_EQ(all.points[0].name, "1");
}

TEST(PlotPathTest, MustBeAPicture) {
  EXPECT_TRUE(CheckPlotPath("").ok());
  EXPECT_TRUE(CheckPlotPath("a.svg").ok());
  EXPECT_EQ(CheckPlotPath("a.png").message(), "--plot: a.png; must end in .svg");
  EXPECT_EQ(WritePlot("/no/such/folder/a.svg", {}).message(),
            "--plot: /no/such/folder/a.svg; No such file or directory");
}

}  // namespace
}  // namespace plimsoll
