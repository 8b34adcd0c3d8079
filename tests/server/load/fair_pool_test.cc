// Threads that peers share.
#include "server/load/fair_pool.h"

#include <latch>
#include <mutex>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;

// Holds threads until it is told.
struct Held {
  explicit Held(int count) : begun(count) {}
  FairPool::Task task() {
    return [this] {
      begun.count_down();
      released.wait();
    };
  }
  std::latch begun;
  std::latch released{1};
};

TEST(FairPoolTest, OnePeerLeavesAQuarterOfTheThreadsToOthers) {
  Held greedy(3), other(1);
  FairPool pool(4, 100);
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(pool.Run("greedy", greedy.task()));
  greedy.begun.wait();
  ASSERT_TRUE(pool.Run("other", other.task()));
  other.begun.wait();  // though 37 came before
  other.released.count_down();
  greedy.released.count_down();
}

TEST(FairPoolTest, WhoHasFewestIsNextAndOnesOwnAreInTurn) {
  FairPool pool(1, 100);
  Held first(1);
  std::mutex mutex;
  std::vector<std::string> order;
  const auto add = [&](const std::string& peer, const std::string& name) {
    ASSERT_TRUE(pool.Run(peer, [&, name] {
      const std::lock_guard lock(mutex);
      order.push_back(name);
    }));
  };
  ASSERT_TRUE(pool.Run("a", first.task()));
  first.begun.wait();
  add("a", "a1");
  add("a", "a2");
  add("b", "b1");
  first.released.count_down();
  pool.Close();
  EXPECT_THAT(order, ElementsAre("a1", "a2", "b1"));
}

TEST(FairPoolTest, RefusesWhatIsTooMuchAndEndsWhatItTook) {
  FairPool pool(2, 2);
  int ended = 0;
  {
    Held held(2);
    ASSERT_TRUE(pool.Run("a", held.task()));
    ASSERT_TRUE(pool.Run("b", held.task()));
    held.begun.wait();
    EXPECT_FALSE(pool.Run("c", [&ended] { ++ended; }));
    held.released.count_down();
    while (!pool.Run("c", [&ended] { ++ended; })) {
    }
    pool.Close();
  }
  EXPECT_EQ(ended, 1);
}

}  // namespace
}  // namespace plimsoll
