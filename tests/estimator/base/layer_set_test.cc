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

LayerSet Listed(const std::vector<int64_t>& layers, int64_t begin = 0, int64_t end = kNoEnd) {
  LayerSet set{.begin = begin, .end = end};
  for (const int64_t layer : layers) set.List(layer);
  return set;
}

void ForEachList(const std::function<void(const LayerSet&)>& check) {
  for (int64_t begin = 0; begin < 4; ++begin) {
    for (const int64_t end : {int64_t{6}, kNoEnd}) {
      check(Listed({0, 3, 4, 9}, begin, end));
      check(Listed({5}, begin, end));
    }
  }
}

TEST(LayerSetTest, ListsLayersThatComeInNoTurns) {
  EXPECT_THAT(LayersOf(Listed({0, 3, 4, 9})), ElementsAre(0, 3, 4, 9));
  EXPECT_THAT(LayersOf(Listed({0, 3, 4, 9}, 1, 9)), ElementsAre(3, 4));
  EXPECT_THAT(LayersOf(Listed({63, 64, 255}), 300), ElementsAre(63, 64, 255));
  EXPECT_FALSE(Listed({1}).IsAll());
  EXPECT_EQ(Listed({1, 3}).Turn(), LayerSet::kMostListed) << "it never repeats";
}

// What is computed is what counting them one by one gives.
TEST(LayerSetTest, CountsAndFindsTheFirst) {
  const auto check = [](const LayerSet& set) {
    for (int64_t count = 0; count <= kLayers; ++count) {
      const std::vector<int64_t> layers = LayersOf(set, count);
      ASSERT_EQ(set.CountOf(count), static_cast<int64_t>(layers.size()));
      if (layers.empty()) continue;
      ASSERT_EQ(set.First(), layers.front());
    }
  };
  ForEachSet(check);
  ForEachList(check);
}

TEST(LayerSetTest, OthersAreWhatIsLeft) {
  ForEachSet([](const LayerSet& set) {
    const bool beginning = set.period == 1;
    const bool part = set.begin == 0 && (set.from == 0) != (set.to == set.period);
    if (set.end != kNoEnd || (!beginning && !part)) return;
    for (int64_t i = 0; i < kLayers; ++i) ASSERT_NE(set.Has(i), Others(set).Has(i));
  });
}

// Whatever layers there are, their set has these alone; turns are found where there are some.
TEST(LayerSetTest, ASetIsFoundOfWhatIsTrue) {
  constexpr int kFew = 9;
  for (unsigned bits = 0; bits < 1u << kFew; ++bits) {
    std::vector<bool> layers;
    std::vector<int64_t> expected;
    for (unsigned i = 0; i < kFew; ++i) {
      layers.push_back((bits >> i & 1) != 0);
      if (layers.back()) expected.push_back(i);
    }
    const std::optional<LayerSet> set = SetOf(layers);
    ASSERT_TRUE(set.has_value());
    ASSERT_EQ(LayersOf(*set, kFew), expected) << bits;
  }
  const auto of = [](const LayerSet& set) {
    std::vector<bool> layers;
    for (int64_t i = 0; i < 40; ++i) layers.push_back(set.Has(i));
    return *SetOf(layers);
  };
  for (const LayerSet& set :
       {LayerSet{}, LayerSet{.begin = 3}, LayerSet{.end = 3},
        LayerSet{.period = 10, .from = 5, .to = 6}, LayerSet{.period = 4, .to = 3}}) {
    EXPECT_EQ(of(set), set);
  }
  EXPECT_TRUE(of(Listed({1, 2, 4})).IsListed());
}

TEST(LayerSetTest, ALongListHasNoRoom) {
  std::vector<bool> layers(257);
  layers[1] = layers[5] = true;
  EXPECT_EQ(SetOf(layers), std::nullopt);
  layers.pop_back();
  EXPECT_TRUE(SetOf(layers).has_value());
}

}  // namespace
}  // namespace plimsoll
