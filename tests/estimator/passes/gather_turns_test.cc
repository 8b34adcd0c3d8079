// Turns of events by hand: what a block finds, and what it leaves.
#include "estimator/passes/gather_turns.h"

#include "gtest/gtest.h"

namespace plimsoll {
namespace {

// Tensor 0 comes, then 1, and 0 goes in the first turn; nothing happens in the second; 0 comes
// again and both go in the third.
TEST(GatherTurnsTest, ABlockRunsWhenThereIsMost) {
  const std::vector<GatherEvent> events = {{0, 100}, {1, 50}, {0, 0}, {0, 100}, {1, 0}, {0, 0}};
  const std::vector<GatherTurn> turns = TurnsOf(events, 2, {3, 3, 6});
  ASSERT_EQ(turns.size(), 3u);
  EXPECT_EQ(turns[0].begin, 0u);
  EXPECT_EQ(turns[0].peak, 2u);
  EXPECT_EQ(turns[0].end, 3u);
  EXPECT_EQ(turns[0].bytes, 150);
  EXPECT_EQ(turns[0].rest, 50);
  EXPECT_EQ(turns[1].bytes, 50);
  EXPECT_EQ(turns[1].rest, 50);
  EXPECT_EQ(turns[2].begin, 3u);
  EXPECT_EQ(turns[2].peak, 4u);
  EXPECT_EQ(turns[2].bytes, 150);
  EXPECT_EQ(turns[2].rest, 0);
}

TEST(GatherTurnsTest, WhatHasSaturatedStaysSo) {
  const std::vector<GatherEvent> events = {{0, kSaturated}, {1, 50}, {0, 0}};
  const std::vector<GatherTurn> turns = TurnsOf(events, 2, {2, 3});
  EXPECT_EQ(turns[0].bytes, kSaturated);
  EXPECT_EQ(turns[1].rest, kSaturated);
}

TEST(GatherTurnsTest, BackwardComesInTheOrderOfBlocks) {
  std::vector<GatherTurn> turns(4);
  for (size_t i = 0; i < turns.size(); ++i) turns[i].bytes = static_cast<int64_t>(i);
  const auto [forward, backward] = Halves(turns);
  ASSERT_EQ(forward.size(), 2u);
  ASSERT_EQ(backward.size(), 2u);
  EXPECT_EQ(forward[0].bytes, 0);
  EXPECT_EQ(forward[1].bytes, 1);
  EXPECT_EQ(backward[0].bytes, 3) << "the last to run, of the first block";
  EXPECT_EQ(backward[1].bytes, 2);
}

}  // namespace
}  // namespace plimsoll
