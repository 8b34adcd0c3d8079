#include "estimator/base/layer_set.h"

#include <functional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kLayers = 13;

std::vector<int64_t> LayersOf(const LayerSet& set, int64_t count = kLayers) {
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < count; ++i) {
    if (set.Has(i)) layers.push_back(i);
  }
  return layers;
}

void ForEachSet(const std::function<void(const LayerSet&)>& check) {
  for (int64_t begin = 0; begin < 5; ++begin) {
    for (const int64_t end : {int64_t{1}, int64_t{7}, kNoEnd}) {
      for (int64_t period = 1; period < 6; ++period) {
        for (int64_t from = 0; from < period; ++from) {
          for (int64_t to = from + 1; to <= period; ++to) check({begin, end, period, from, to});
        }
      }
    }
  }
}

TEST(LayerSetTest, SaysWhichLayers) {
  EXPECT_THAT(LayersOf({}, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(LayersOf({.begin = 11}), ElementsAre(11, 12));
  EXPECT_THAT(LayersOf({.end = 1}), ElementsAre(0));
  EXPECT_THAT(LayersOf({.period = 4}), ElementsAre(0, 4, 8, 12));
  EXPECT_THAT(LayersOf({.period = 4, .from = 3, .to = 4}), ElementsAre(3, 7, 11));
  EXPECT_THAT(LayersOf({.begin = 1, .period = 4, .to = 3}),
              ElementsAre(1, 2, 4, 5, 6, 8, 9, 10, 12));
}

// What is computed is what counting them one by one gives.
TEST(LayerSetTest, CountsAndFindsTheEnds) {
  ForEachSet([](const LayerSet& set) {
    for (int64_t count = 0; count <= kLayers; ++count) {
      const std::vector<int64_t> layers = LayersOf(set, count);
      ASSERT_EQ(set.CountOf(count), static_cast<int64_t>(layers.size()));
      if (layers.empty()) continue;
      ASSERT_EQ(set.First(), layers.front());
      ASSERT_EQ(set.LastOf(count), layers.back());
    }
  });
}

TEST(LayerSetTest, OthersAreWhatIsLeft) {
  ForEachSet([](const LayerSet& set) {
    const bool beginning = set.period == 1;
    const bool part = set.begin == 0 && (set.from == 0) != (set.to == set.period);
    if (set.end != kNoEnd || (!beginning && !part)) return;
    for (int64_t i = 0; i < kLayers; ++i) ASSERT_NE(set.Has(i), Others(set).Has(i));
  });
}

}  // namespace
}  // namespace plimsoll
