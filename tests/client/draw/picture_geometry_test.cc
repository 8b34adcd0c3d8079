// Pictures of random recommendations: whatever they hold, nothing leaves the picture, no label
// covers another, and every number is one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/draw/label_placer.h"
#include "client/draw/plot_axis.h"
#include "client/draw/recommend_plot.h"
#include "client/draw/recommend_plot_scale.h"
#include "client/draw/recommend_points.h"

namespace plimsoll {
namespace {

using Random = std::mt19937_64;

double Between(Random& random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}

void FillCandidate(Random& random, int64_t usable, double slowest, v1::Candidate* candidate) {
  const char* const gpus[] = {"h100-80gb-sxm", "a100-80gb-sxm", "rtx-4090"};
  candidate->mutable_job()->mutable_model()->set_name("llama-3.1-8b");
  candidate->mutable_job()->mutable_cluster()->set_gpu(gpus[random() % 3]);
  candidate->mutable_job()->mutable_cluster()->set_gpu_count(int64_t{1} << random() % 8);
  candidate->mutable_job()->mutable_training()->set_micro_batch_size(
      static_cast<int64_t>(random() % 1000));  // no two are one job
  candidate->set_verdict(v1::VERDICT_FITS);
  candidate->set_usable_bytes(usable);
  const auto bound = static_cast<int64_t>(static_cast<double>(usable) * Between(random, 0.05, 2.5));
  candidate->mutable_device()->set_bound_bytes(bound);
  candidate->mutable_device()->set_expected_bytes(bound - bound / 8);
  v1::StepTime* const time = candidate->mutable_step_time();
  time->set_seconds(std::exp(Between(random, std::log(0.01), std::log(slowest))));
  time->set_low_seconds(time->seconds() * 0.8);
  time->set_high_seconds(time->seconds() * 1.2);
  time->set_model_flops_utilization(Between(random, 0, 0.6));
  for (uint64_t left = random() % 4; left > 0; --left) {
    v1::Change* const change = candidate->add_changes();
    change->set_field(left == 1 ? "parallelism.zero_stage" : "training.recompute.mode");
    change->set_from("none");
    change->set_to("full");
  }
}

v1::RecommendConfigResponse AnyRecommendation(Random& random) {
  v1::RecommendConfigResponse response;
  const auto usable = static_cast<int64_t>(Between(random, 1e9, 2e11));
  const double slowest = Between(random, 0.02, 50);
  FillCandidate(random, usable, slowest, response.mutable_requested());
  for (uint64_t left = random() % 9; left > 0; --left) {
    FillCandidate(random, usable, slowest, response.add_candidates());
  }
  for (uint64_t left = random() % 30; left > 0; --left) {
    FillCandidate(random, usable, slowest, response.add_front());
  }
  if (response.candidates().empty()) {
    FillCandidate(random, usable, slowest, response.mutable_obstacle()->mutable_nearest());
  }
  response.set_legal_count(static_cast<int64_t>(random() % 100'000));
  response.set_truncated(random() % 2 == 0);
  return response;
}

// The starts of all elements of a kind: "<line x1=\"3\" ...>".
std::vector<std::string> Elements(const std::string& svg, const std::string& name) {
  std::vector<std::string> elements;
  const std::string begin = absl::StrCat("<", name, " ");
  for (size_t at = 0; (at = svg.find(begin, at)) != std::string::npos; ++at) {
    elements.push_back(svg.substr(at, svg.find('>', at) - at));
  }
  return elements;
}

// What an element's attribute is; empty where it has none.
std::string Attribute(const std::string& element, const std::string& name) {
  const std::string begin = absl::StrCat(" ", name, "=\"");
  const size_t at = element.find(begin);
  if (at == std::string::npos) return "";
  const size_t from = at + begin.size();
  return element.substr(from, element.find('"', from) - from);
}

// The numbers of an attribute of every element of a kind that has it.
std::vector<double> Values(const std::string& svg, const std::string& element,
                           const std::string& attribute) {
  std::vector<double> values;
  for (const std::string& one : Elements(svg, element)) {
    const std::string text = Attribute(one, attribute);
    if (text.empty()) continue;
    EXPECT_TRUE(absl::SimpleAtod(text, &values.emplace_back())) << one;
  }
  return values;
}

void ExpectWithin(const std::vector<double>& values, double high, const char* what) {
  for (const double value : values) {
    EXPECT_GE(value, 0) << what;
    EXPECT_LE(value, high) << what;
  }
}

TEST(PictureGeometryTest, NothingLeavesThePicture) {
  Random random(11);
  for (int i = 0; i < 40; ++i) {
    const std::string svg = RecommendPlot(AnyRecommendation(random));
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_EQ(svg.find("inf"), std::string::npos);
    const double width = Values(svg, "svg", "width").at(0);
    const double height = Values(svg, "svg", "height").at(0);
    for (const char* element : {"text", "rect"}) {
      ExpectWithin(Values(svg, element, "x"), width, element);
      ExpectWithin(Values(svg, element, "y"), height, element);
    }
    for (const char* attribute : {"x1", "x2"}) {
      ExpectWithin(Values(svg, "line", attribute), width, attribute);
    }
    for (const char* attribute : {"y1", "y2"}) {
      ExpectWithin(Values(svg, "line", attribute), height, attribute);
    }
    ExpectWithin(Values(svg, "circle", "cx"), width, "cx");
    ExpectWithin(Values(svg, "circle", "cy"), height, "cy");
  }
}

// Names in circles cover neither each other nor a mark.
TEST(PictureGeometryTest, BadgesStandApart) {
  Random random(12);
  for (int i = 0; i < 40; ++i) {
    const std::string svg = RecommendPlot(AnyRecommendation(random));
    std::vector<std::pair<double, double>> badges, marks;
    for (const std::string& circle : Elements(svg, "circle")) {
      auto& of_kind = Attribute(circle, "class") == "badge" ? badges : marks;
      of_kind.emplace_back(std::stod(Attribute(circle, "cx")), std::stod(Attribute(circle, "cy")));
    }
    for (size_t a = 0; a < badges.size(); ++a) {
      const auto& [x, y] = badges[a];
      for (size_t b = 0; b < a; ++b) {
        EXPECT_GE(std::hypot(x - badges[b].first, y - badges[b].second), 18.5);
      }
      for (const auto& mark : marks) {
        EXPECT_GE(std::hypot(x - mark.first, y - mark.second), 9.5 + 4.4);
      }
      EXPECT_GE(x, kPlotBox.left);
      EXPECT_LE(x, kPlotBox.right);
    }
  }
}

// Each job is one point, and each point has its words.
TEST(PictureGeometryTest, EachJobIsOnePoint) {
  Random random(13);
  for (int i = 0; i < 40; ++i) {
    const v1::RecommendConfigResponse response = AnyRecommendation(random);
    const RecommendPoints all = CollectPoints(response);
    size_t members = 0;
    size_t on_front = 0;
    for (const RecommendPoint& point : all.points) {
      ASSERT_LT(point.series, all.series.size());
      const RecommendSeries& series = all.series[point.series];
      EXPECT_EQ(series.gpu, point.candidate->job().cluster().gpu());
      EXPECT_EQ(series.gpu_count, point.candidate->job().cluster().gpu_count());
      on_front += point.on_front ? 1 : 0;
    }
    for (const RecommendSeries& series : all.series) members += series.front.size();
    EXPECT_EQ(members, on_front);
    const std::string svg = RecommendPlot(response);
    size_t points = 0;
    for (size_t at = 0; (at = svg.find("class=\"point\"", at)) != std::string::npos; ++at) ++points;
    EXPECT_EQ(points, all.points.size());
  }
}

// Values between the ends lie in their order, and ticks among them.
TEST(PlotAxisPropertiesTest, KeepsTheOrderOfValues) {
  Random random(14);
  for (int i = 0; i < 500; ++i) {
    const bool logarithmic = i % 2 == 0;
    const double low = std::exp(Between(random, -10, 10));
    const double high = low * (1 + std::exp(Between(random, -3, logarithmic ? 12 : 4)));
    const PlotAxis axis(low, high, 500, 20, logarithmic);
    EXPECT_DOUBLE_EQ(axis.At(low), 500);
    EXPECT_DOUBLE_EQ(axis.At(high), 20);
    double before = low;
    for (int step = 1; step <= 20; ++step) {
      const double value = low + (high - low) * step / 20;
      EXPECT_LT(axis.At(value), axis.At(before));
      before = value;
    }
  }
}

TEST(PlotAxisPropertiesTest, HasThreeToTenRoundTicks) {
  Random random(15);
  for (int i = 0; i < 2000; ++i) {
    const bool logarithmic = i % 2 == 0;
    const double low = std::exp(Between(random, -9, 9));
    // A logarithmic axis has room beside a fourfold range at least.
    const double ratio = std::exp(Between(random, std::log(logarithmic ? 5 : 1.05), std::log(1e6)));
    const PlotAxis axis(low, low * ratio, 0, 1, logarithmic);
    const std::vector<double> ticks = axis.Ticks();
    EXPECT_GE(ticks.size(), 3u) << low << " to " << low * ratio << " " << logarithmic;
    EXPECT_LE(ticks.size(), 10u) << low << " to " << low * ratio << " " << logarithmic;
    for (size_t tick = 0; tick < ticks.size(); ++tick) {
      EXPECT_TRUE(axis.Holds(ticks[tick]) || std::abs(ticks[tick] / low - 1) < 1e-9);
      if (tick == 0) continue;
      EXPECT_GT(ticks[tick], ticks[tick - 1]);
    }
  }
}

TEST(SeriesColorTest, TellsSeriesApart) {
  for (size_t count = 1; count <= 12; ++count) {
    std::vector<std::string> colors;
    for (size_t i = 0; i < count; ++i) {
      colors.push_back(SeriesColor(i, count));
      EXPECT_EQ(colors.back().size(), 7u);
      EXPECT_EQ(colors.back()[0], '#');
    }
    std::sort(colors.begin(), colors.end());
    EXPECT_EQ(std::adjacent_find(colors.begin(), colors.end()), colors.end()) << count;
  }
  EXPECT_EQ(SeriesColor(0, 1), "#2d79cf");
  EXPECT_EQ(SeriesColor(6, 7), "#a05cc6") << "the last of the ramp";
}

bool Overlap(const PlotBox& a, const PlotBox& b) {
  return std::min(a.right, b.right) > std::max(a.left, b.left) &&
         std::min(a.bottom, b.bottom) > std::max(a.top, b.top);
}

TEST(LabelPlacerPropertiesTest, RandomLabelsNeverCollide) {
  Random random(16);
  const PlotBox box = {.left = 10, .right = 500, .top = 20, .bottom = 400};
  for (int i = 0; i < 20; ++i) {
    LabelPlacer placer(box);
    std::vector<PlotBox> taken;
    for (int label = 0; label < 25; ++label) {
      const LabelSpec spec = {.x = Between(random, 10, 500),
                              .y = Between(random, 20, 400),
                              .width = Between(random, 10, 120),
                              .height = 16,
                              .gap = 6};
      if (label % 5 == 0) placer.Discourage({spec.x - 20, spec.x + 20, spec.y - 20, spec.y + 20});
      const std::optional<PlotBox> place = placer.Place(spec);
      if (!place.has_value()) continue;
      EXPECT_NEAR(place->right - place->left, spec.width, 1e-9);
      EXPECT_GE(place->left, box.left);
      EXPECT_LE(place->right, box.right);
      EXPECT_GE(place->top, box.top);
      EXPECT_LE(place->bottom, box.bottom);
      for (const PlotBox& other : taken) EXPECT_FALSE(Overlap(*place, other));
      taken.push_back(*place);
    }
    EXPECT_GT(taken.size(), 10u);
  }
}

}  // namespace
}  // namespace plimsoll
