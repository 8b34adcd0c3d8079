// Timelines made by hand, replayed: what is reserved follows from the order of
// births and deaths, the lag of the GPU, and its size. Sizes are in MiB; a
// storage above 10 MiB has a segment of its own, rounded up to 2 MiB.
#include "estimator/replay/replay.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kMib = int64_t{1} << 20;

// A timeline as a story: births and deaths of storages by letter, phases, ops.
class Story {
 public:
  Story() { Phase(0, plimsoll::Phase::kForward); }

  Story& Birth(char name, int64_t mib, bool recorded = false, Stream stream = Stream::kCompute) {
    names_.push_back(name);
    TimelineStorage storage;
    storage.bytes = mib * kMib;
    storage.recorded = recorded;
    storage.stream = stream;
    timeline_.storages.push_back(storage);
    return Tell(TimelineEventKind::kBirth, static_cast<int32_t>(names_.size()) - 1);
  }
  Story& Death(char name) {
    return Tell(TimelineEventKind::kDeath, static_cast<int32_t>(names_.rfind(name)));
  }
  Story& Phase(int step, plimsoll::Phase phase) {
    return Tell(TimelineEventKind::kPhase,
                step * static_cast<int32_t>(kPhaseCount) + static_cast<int32_t>(phase));
  }
  Story& EmptyCache(int32_t peaks = kPeaksAnew) {
    return Tell(TimelineEventKind::kEmptyCache, peaks);
  }
  Story& Ops(int32_t count) {
    tick_ += count;
    return *this;
  }
  const Timeline& timeline() const { return timeline_; }

 private:
  Story& Tell(TimelineEventKind kind, int32_t value) {
    timeline_.events.push_back({kind, value, tick_});
    return *this;
  }

  std::string names_;
  Timeline timeline_;
  int32_t tick_ = 0;
};

Replayed Play(const Story& story, int64_t capacity_mib = 0, int32_t lag_ticks = 0) {
  ReplaySettings settings;
  settings.lag_ticks = lag_ticks;
  if (capacity_mib > 0) settings.allocator.capacity_bytes = capacity_mib * kMib;
  return Replay(story.timeline(), settings);
}

const ReplayedPhase& PhaseOf(const Replayed& replayed, int step, Phase phase) {
  return replayed.steps[static_cast<size_t>(step)][static_cast<size_t>(phase)];
}

TEST(ReplayTest, MemoryIsUsedAgain) {
  const Replayed replayed = Play(Story().Birth('a', 40).Death('a').Birth('b', 40));
  EXPECT_EQ(replayed.peak_allocated, 40 * kMib);
  EXPECT_EQ(replayed.peak_reserved, 40 * kMib);
  EXPECT_EQ(replayed.inactive_split, 0);
  EXPECT_TRUE(replayed.completed);
}

// What was before is no peak of the run, and its segments are gone, but for one that is used.
TEST(ReplayTest, PeaksBeginWhereTheCacheIsEmptied) {
  Story story;
  story.Birth('a', 40).Birth('b', 60).Birth('c', 40).Death('a').Birth('d', 20).Death('b');
  const Replayed before = Play(story);
  EXPECT_EQ(before.peak_allocated, 140 * kMib);
  EXPECT_EQ(before.peak_reserved, 140 * kMib);
  const Replayed emptied = Play(story.EmptyCache().Birth('e', 30));
  EXPECT_EQ(emptied.peak_allocated, 90 * kMib);
  EXPECT_EQ(emptied.peak_requested, 90 * kMib);
  EXPECT_EQ(emptied.peak_reserved, 110 * kMib);
  EXPECT_EQ(PhaseOf(emptied, 0, Phase::kForward).peak_allocated, 90 * kMib);
  EXPECT_EQ(emptied.peak_event, 8U);
}

// Of a cache that is emptied in the middle of a step the peaks are told still.
TEST(ReplayTest, PeaksStayWhereACacheIsEmptiedWithinAStep) {
  const Story story =
      Story().Birth('a', 40).Birth('b', 50).Death('b').EmptyCache(kPeaksStay).Birth('c', 60);
  const Replayed replayed = Play(story);
  EXPECT_EQ(replayed.peak_allocated, 100 * kMib);
  EXPECT_EQ(replayed.peak_reserved, 100 * kMib) << "b's segment went, and c has one of its own";
  EXPECT_EQ(Play(Story().Birth('a', 40).Birth('b', 50).Death('b').Birth('c', 60)).peak_reserved,
            150 * kMib);
}

// The hole that a leaves is too small for b, and stays.
TEST(ReplayTest, AHoleThatIsTooSmallStays) {
  const Replayed replayed = Play(Story().Birth('a', 40).Death('a').Birth('b', 42));
  EXPECT_EQ(replayed.peak_allocated, 42 * kMib);
  EXPECT_EQ(replayed.peak_reserved, 82 * kMib);
}

// b is cut from a's segment, and what is left of that is inactive.
TEST(ReplayTest, TheRestOfASplitSegmentIsInactive) {
  const Replayed replayed = Play(Story().Birth('a', 40).Death('a').Birth('b', 12).Birth('c', 60));
  EXPECT_EQ(replayed.peak_reserved, 100 * kMib);
  EXPECT_EQ(replayed.inactive_split, 28 * kMib);
}

TEST(ReplayTest, StreamsDoNotShareSegments) {
  const Replayed replayed =
      Play(Story().Birth('a', 40).Death('a').Birth('b', 40, false, Stream::kAllGather));
  EXPECT_EQ(replayed.peak_allocated, 40 * kMib);
  EXPECT_EQ(replayed.peak_reserved, 80 * kMib);
}

// A recorded storage is of no use until the GPU has caught up.
TEST(ReplayTest, LagKeepsRecordedStorages) {
  const struct {
    bool recorded;
    int32_t lag;
    int32_t ops;  // between the death and the next birth
    int64_t reserved_mib;
  } cases[] = {
      {true, 0, 0, 40},     // the GPU is never behind
      {false, 100, 0, 40},  // freed in its own stream: in order
      {true, 100, 0, 80},   // still in use
      {true, 100, 99, 80},  // one op too early
      {true, 100, 100, 40}, {true, 100, 500, 40},
  };
  for (const auto& c : cases) {
    const Story story =
        Story().Birth('a', 40, c.recorded).Ops(10).Death('a').Ops(c.ops).Birth('b', 40);
    EXPECT_EQ(Play(story, 0, c.lag).peak_reserved, c.reserved_mib * kMib)
        << c.recorded << " lag " << c.lag << " ops " << c.ops;
  }
}

// A tensor is no longer allocated when Python drops it, whatever the GPU does.
// Source: c10/cuda/CUDACachingAllocator.cpp, DeviceCachingAllocator::free.
TEST(ReplayTest, LagLeavesAllocatedAsItIs) {
  const Story story = Story().Birth('a', 40, true).Death('a').Birth('b', 20);
  EXPECT_EQ(Play(story).peak_allocated, 40 * kMib);
  EXPECT_EQ(Play(story, 0, 8).peak_allocated, 40 * kMib);
  EXPECT_EQ(Play(story, 0, 8).peak_requested, 60 * kMib) << "its block is still active";
  EXPECT_EQ(Play(story, 0, 8).peak_reserved, 60 * kMib);
}

// A full GPU gives back its cache, once, and goes on.
TEST(ReplayTest, AFullGpuFlushesItsCache) {
  const Story story = Story().Birth('a', 40).Death('a').Birth('b', 60).Death('b').Birth('c', 50);
  const Replayed roomy = Play(story, 100);
  EXPECT_EQ(roomy.peak_reserved, 100 * kMib);
  EXPECT_EQ(roomy.retries, 0);
  const Replayed tight = Play(story, 80);
  EXPECT_TRUE(tight.completed);
  EXPECT_EQ(tight.retries, 1);
  EXPECT_EQ(tight.peak_reserved, 60 * kMib);
  EXPECT_EQ(tight.peak_allocated, 60 * kMib);
}

TEST(ReplayTest, WhatDoesNotFitFails) {
  const Story story = Story().Birth('a', 40).Birth('b', 60).Death('a').Birth('c', 10);
  const Replayed replayed = Play(story, 80);
  EXPECT_FALSE(replayed.completed);
  EXPECT_EQ(replayed.peak_allocated, 40 * kMib) << "what there was before";
  EXPECT_TRUE(Play(story, 100).completed);
}

// Lag makes a full GPU wait, not fail.
TEST(ReplayTest, AFlushWaitsForTheGpu) {
  const Story story = Story().Birth('a', 60, true).Death('a').Birth('b', 50);
  const Replayed replayed = Play(story, 80, 1000);
  EXPECT_TRUE(replayed.completed);
  EXPECT_EQ(replayed.retries, 1);
  EXPECT_EQ(replayed.peak_reserved, 60 * kMib);
}

TEST(ReplayTest, FiguresOfEachPhase) {
  Story story;
  story.Birth('a', 40).Birth('b', 20).Death('b');
  story.Phase(0, Phase::kBackward).Birth('c', 30).Death('c').Death('a');
  story.Phase(0, Phase::kEndOfStep);
  story.Phase(1, Phase::kForward).Birth('d', 70);
  story.Phase(2, Phase::kForward).Birth('e', 10);
  const Replayed replayed = Play(story);
  const ReplayedPhase& forward = PhaseOf(replayed, 0, Phase::kForward);
  EXPECT_EQ(forward.peak_allocated, 60 * kMib);
  EXPECT_EQ(forward.current_allocated, 40 * kMib);
  EXPECT_EQ(forward.peak_reserved, 60 * kMib);
  const ReplayedPhase& backward = PhaseOf(replayed, 0, Phase::kBackward);
  EXPECT_EQ(backward.peak_allocated, 70 * kMib);
  EXPECT_EQ(backward.current_allocated, 0);
  EXPECT_EQ(backward.peak_reserved, 90 * kMib);
  EXPECT_EQ(backward.current_reserved, 90 * kMib) << "the cache keeps it";
  EXPECT_EQ(PhaseOf(replayed, 0, Phase::kEndOfStep).peak_allocated, 0);
  // All later steps are one: the higher of both.
  const ReplayedPhase& steady = PhaseOf(replayed, 1, Phase::kForward);
  EXPECT_EQ(steady.peak_allocated, 80 * kMib);
  EXPECT_EQ(steady.current_allocated, 80 * kMib);
  EXPECT_EQ(replayed.peak_allocated, 80 * kMib);
}

TEST(ReplayTest, ThePeakIsTheFirstEventThatReachesIt) {
  const Story story = Story().Birth('a', 40).Birth('b', 20).Death('b').Birth('c', 20);
  const Replayed replayed = Play(story);
  EXPECT_EQ(replayed.peak_event, 2u) << "0 is the phase, 1 and 2 are births";
  EXPECT_THAT(AliveAt(story.timeline(), replayed.peak_event), ElementsAre(0, 1));
  EXPECT_THAT(AliveAt(story.timeline(), 3), ElementsAre(0));
  EXPECT_THAT(AliveAt(story.timeline(), 100), ElementsAre(0, 2)) << "the end";
  EXPECT_THAT(AliveAt(story.timeline(), 0), IsEmpty());
}

TEST(ReplayTest, RequestedIsWithoutRounding) {
  Story story;
  story.Birth('a', 1);
  Timeline timeline = story.timeline();
  timeline.storages[0].bytes = 1000;
  const Replayed replayed = Replay(timeline, {});
  EXPECT_EQ(replayed.peak_requested, 1000);
  EXPECT_EQ(replayed.peak_allocated, 1024);
  EXPECT_EQ(replayed.peak_reserved, 2 * kMib);
}

}  // namespace
}  // namespace plimsoll
