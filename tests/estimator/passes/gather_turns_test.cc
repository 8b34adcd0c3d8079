// Turns of events by hand: what a block finds, and what it leaves.
#include "estimator/passes/gather_turns.h"

#include <tuple>

#include "gtest/gtest.h"

namespace plimsoll {
namespace {

// Tensor 0 comes, then 1, and 0 goes in the first turn; nothing happens in the second; 0 comes
// again and both go in the third.
TEST(GatherTurnsTest, ABlockRunsWhenThereIsMost) {
  const std::vector<GatherEvent> events = {{0, 100}, {1, 50}, {0, 0}, {0, 100}, {1, 0}, {0, 0}};
  const std::vector<GatherTurn> turns = TurnsOf(events, 2, {{3}, {3}, {6}});
  ASSERT_EQ(turns.size(), 3u);
  EXPECT_EQ(turns[0].begin, 0u);
  EXPECT_EQ(turns[0].run, 2u);
  EXPECT_EQ(turns[0].end, 3u);
  EXPECT_EQ(turns[0].bytes, 150);
  EXPECT_EQ(turns[0].rest, 50);
  EXPECT_EQ(turns[1].bytes, 50);
  EXPECT_EQ(turns[1].rest, 50);
  EXPECT_EQ(turns[2].begin, 3u);
  EXPECT_EQ(turns[2].run, 4u);
  EXPECT_EQ(turns[2].bytes, 150);
  EXPECT_EQ(turns[2].rest, 0);
}

// The same with marks: at 1 the first has one tensor, at 3 what it leaves.
TEST(GatherTurnsTest, ABlockRunsWhereItsTurnSays) {
  const std::vector<GatherEvent> events = {{0, 100}, {1, 50}, {0, 0}};
  const auto turn = [&events](uint32_t run) { return TurnsOf(events, 2, {{{3, run}}}).front(); };
  for (const auto& [run, bytes, before] :
       {std::tuple{0u, 0, 0}, {1u, 100, 100}, {2u, 150, 150}, {3u, 50, 150}}) {
    EXPECT_EQ(turn(run).run, run);
    EXPECT_EQ(turn(run).bytes, bytes) << run;
    EXPECT_EQ(turn(run).before_bytes, before) << run;
    EXPECT_EQ(turn(run).rest, 50) << run;
  }
}

// Run again while 1 is beside 0, then backward once 0 is gone and 2 has come.
TEST(GatherTurnsTest, WhatRunsAgainDoesSoBeforeBackwardAsksForMore) {
  const std::vector<GatherEvent> events = {{0, 100}, {1, 50}, {0, 0}, {2, 20}, {1, 0}, {2, 0}};
  const GatherTurn turn = TurnsOf(events, 3, {{.end = 6, .again_end = 3}}).front();
  EXPECT_TRUE(turn.runs_again);
  EXPECT_EQ(turn.again, 2u);
  EXPECT_EQ(turn.again_bytes, 150);
  EXPECT_EQ(turn.run, 4u);
  EXPECT_EQ(turn.bytes, 70);
  EXPECT_EQ(turn.rest, 0);
}

TEST(GatherTurnsTest, WhatHasSaturatedStaysSo) {
  const std::vector<GatherEvent> events = {{0, kSaturated}, {1, 50}, {0, 0}};
  const std::vector<GatherTurn> turns = TurnsOf(events, 2, {{2}, {3}});
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
