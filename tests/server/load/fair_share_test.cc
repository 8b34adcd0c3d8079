// What each caller may ask for while calls wait too long.
#include "server/load/fair_share.h"

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace plimsoll {
namespace {

using std::chrono::milliseconds;

// A clock and callers of its own.
class FairShareTest : public testing::Test {
 protected:
  void WaitedLong(milliseconds time = 10 * FairShare::kPatience) { shares_.Waited(time, now_); }
  void NextStretch() { now_ += FairShare::kStretch; }
  milliseconds Take(const std::string& caller, int64_t cost = 1) {
    return shares_.Take([&caller] { return caller; }, cost, now_);
  }
  // Returns how many of `count` calls went on.
  int TakeMany(const std::string& caller, int count) {
    int taken = 0;
    for (int i = 0; i < count; ++i) taken += Take(caller).count() == 0 ? 1 : 0;
    return taken;
  }
  // So many stretches in which calls wait, and `greedy` asks for 1,000.
  void Crowd(int stretches) {
    for (int i = 0; i < stretches; ++i) {
      WaitedLong();
      TakeMany("greedy", 1000);
      NextStretch();
    }
  }

  FairShare shares_;
  FairShare::Clock::time_point now_{std::chrono::hours(1)};
};

TEST_F(FairShareTest, NobodyIsHeldBackWhereCallsDoNotWait) {
  for (int stretch = 0; stretch < 10; ++stretch) {
    WaitedLong(FairShare::kPatience);
    EXPECT_EQ(TakeMany("greedy", 1000), 1000);
    NextStretch();
  }
}

TEST_F(FairShareTest, WhoAsksForMostIsHeldBackAndOthersAreNot) {
  Crowd(5);
  EXPECT_LT(TakeMany("greedy", 1000), 800);
  EXPECT_EQ(TakeMany("polite", 10), 10);
}

TEST_F(FairShareTest, TheLeastShareStays) {
  Crowd(100);
  EXPECT_EQ(TakeMany("greedy", 1000), 16);
  EXPECT_EQ(Take("large", 1000).count(), 0) << "the first of a caller, whatever it costs";
  EXPECT_GT(Take("large").count(), 0);
  NextStretch();
  EXPECT_GT(Take("large", 1000).count(), 0) << "until it has made up for it";
}

// Those who come back when they are told find room.
TEST_F(FairShareTest, EachIsToldItsTurn) {
  Crowd(100);
  std::vector<int> comes_back(51);
  for (int i = 0; i < 16 * 10; ++i) {
    ++comes_back[static_cast<size_t>(Take("another") / FairShare::kStretch)];
  }
  EXPECT_EQ(comes_back[0], 16);
  EXPECT_LE(*std::max_element(comes_back.begin() + 1, comes_back.end()), 8) << "half of the share";
  EXPECT_EQ(Take("another", 1'000'000), std::chrono::seconds(5)) << "but within that";
}

TEST_F(FairShareTest, LimitsEndWithTheCrowd) {
  Crowd(20);
  for (int stretch = 0; stretch < 30; ++stretch) {
    TakeMany("greedy", 100);
    NextStretch();
  }
  EXPECT_EQ(TakeMany("greedy", 1000), 1000);
}

// A server that answers 1,000 calls a stretch, and refuses at half of the cost; 2,000 callers
// of one host, each with a call at a time, who come back when they are told.
TEST_F(FairShareTest, ThoseWhoObeyAreAnsweredInTime) {
  constexpr int kCallers = 2000, kStretches = 200;
  constexpr double kCapacity = 1000;
  std::deque<FairShare::Clock::time_point> queue(kCallers, now_);  // when each came
  std::vector<FairShare::Clock::time_point> away;
  double answered = 0, slow = 0;
  for (int stretch = 0; stretch < kStretches; ++stretch) {
    for (int tick = 0; tick < 100; ++tick) {
      now_ += milliseconds(1);
      std::erase_if(away, [&](auto until) {
        if (until <= now_) queue.push_back(until);
        return until <= now_;
      });
      for (double left = kCapacity / 100; left > 0 && !queue.empty();) {
        const auto waited = now_ - queue.front();
        queue.pop_front();
        shares_.Waited(waited, now_);
        const milliseconds retry = Take("host");
        left -= retry.count() > 0 ? 0.5 : 1;
        away.push_back(now_ + std::max(retry, milliseconds(1)));
        if (retry.count() > 0 || stretch < kStretches / 2) continue;
        ++answered;
        slow += waited > 5 * FairShare::kPatience ? 1 : 0;
      }
    }
  }
  EXPECT_GT(answered, 0.6 * kCapacity * kStretches / 2) << "there is work all the time";
  EXPECT_LT(slow, 0.01 * answered);
}

}  // namespace
}  // namespace plimsoll
