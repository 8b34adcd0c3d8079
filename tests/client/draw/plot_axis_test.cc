// Where values lie on an axis, and where labels find room.
#include "client/draw/plot_axis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "client/draw/label_placer.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;

TEST(PlotAxisTest, PutsValuesBetweenItsEnds) {
  const PlotAxis linear(0, 100, 50, 250, false);
  EXPECT_DOUBLE_EQ(linear.At(0), 50);
  EXPECT_DOUBLE_EQ(linear.At(25), 100);
  EXPECT_DOUBLE_EQ(linear.At(400), 250) << "beyond the end";
  EXPECT_FALSE(linear.Holds(400));
  const PlotAxis logarithmic(1, 100, 400, 200, true);  // upwards
  EXPECT_DOUBLE_EQ(logarithmic.At(10), 300);
  EXPECT_DOUBLE_EQ(logarithmic.At(100), 200);
}

TEST(PlotAxisTest, TicksAreRoundAndFew) {
  EXPECT_THAT(PlotAxis(0, 88.7, 0, 1, false).Ticks(), ElementsAre(0, 20, 40, 60, 80));
  EXPECT_EQ(PlotAxis(8.1, 8.9, 0, 1, false).Ticks().size(), 4u);
  EXPECT_THAT(PlotAxis(3, 14, 0, 1, true).Ticks(), ElementsAre(3, 5, 7, 10));
  EXPECT_THAT(PlotAxis(0.4, 30, 0, 1, true).Ticks(), ElementsAre(0.5, 1, 2, 5, 10, 20));
  EXPECT_THAT(PlotAxis(1, 1e6, 0, 1, true).Ticks(), ElementsAre(1, 10, 100, 1e3, 1e4, 1e5, 1e6));
}

bool Overlap(const PlotBox& a, const PlotBox& b) {
  return std::min(a.right, b.right) > std::max(a.left, b.left) &&
         std::min(a.bottom, b.bottom) > std::max(a.top, b.top);
}

TEST(LabelPlacerTest, LabelsOfOnePlaceDoNotCollide) {
  const PlotBox box = {.left = 0, .right = 400, .top = 0, .bottom = 300};
  LabelPlacer placer(box);
  std::vector<PlotBox> places;
  for (int i = 0; i < 30; ++i) {
    const auto place = placer.Place({.x = 200, .y = 150, .width = 40, .height = 16, .gap = 6});
    if (!place.has_value()) continue;
    for (const PlotBox& other : places) EXPECT_FALSE(Overlap(*place, other));
    EXPECT_GE(place->left, box.left);
    EXPECT_LE(place->right, box.right);
    places.push_back(*place);
  }
  EXPECT_GE(places.size(), 12u);
  EXPECT_LT(places.size(), 30u) << "near a point there is not room for all";
}

TEST(LabelPlacerTest, KeepsOffWhatIsBlockedAndLeavesLinesFreeWhereItCan) {
  LabelPlacer placer({.left = 0, .right = 400, .top = 0, .bottom = 300});
  const PlotBox right = {.left = 200, .right = 400, .top = 0, .bottom = 300};
  const PlotBox above = {.left = 0, .right = 400, .top = 0, .bottom = 150};
  placer.Block(right);
  placer.Discourage(above);
  const auto place = placer.Place({.x = 200, .y = 150, .width = 40, .height = 16, .gap = 6});
  ASSERT_TRUE(place.has_value());
  EXPECT_FALSE(Overlap(*place, right));
  EXPECT_FALSE(Overlap(*place, above));
}

TEST(LabelPlacerTest, AFullPlotHasNoPlace) {
  const PlotBox box = {.left = 0, .right = 400, .top = 0, .bottom = 300};
  LabelPlacer placer(box);
  placer.Block(box);
  EXPECT_FALSE(placer.Place({.x = 200, .y = 150, .width = 4, .height = 4, .gap = 1}).has_value());
}

}  // namespace
}  // namespace plimsoll
