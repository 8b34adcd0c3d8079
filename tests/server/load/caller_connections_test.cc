// Which connections are too many: of each caller by its own count, and of all by the peer that has
// most, both against lists that are counted anew each time.
#include "server/load/caller_connections.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <list>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "server/load/crowding.h"

namespace plimsoll {
namespace {

using Random = std::mt19937_64;

const std::vector<ConnectionOwner> kOwners = {
    {"", std::nullopt}, {"slurm", 3}, {"portal", 1}, {"batch", std::nullopt}};

class CallerConnectionsTest : public testing::Test {
 protected:
  // What the metrics say that a caller has; -1 where they do not know it.
  double Shown(const std::string& caller) {
    for (const prometheus::MetricFamily& family : registry_.Collect()) {
      if (family.name != "plimsoll_caller_connections") continue;
      for (const prometheus::ClientMetric& metric : family.metric) {
        if (metric.label.at(0).value == caller) return metric.gauge.value;
      }
    }
    return -1;
  }

  prometheus::Registry registry_;
  CallerMetrics metrics_{&registry_};
  CallerConnections connections_{&metrics_};
};

TEST_F(CallerConnectionsTest, EachPlaceCountsWhileItLives) {
  Random random(94);
  std::list<CallerPlace> places;
  for (int step = 0; step < 1000; ++step) {
    if (random() % 5 < 2 && !places.empty()) {
      const auto gone = std::next(places.begin(), static_cast<ptrdiff_t>(random() % places.size()));
      places.erase(gone);
    } else {
      places.emplace_back(&connections_, kOwners[random() % kOwners.size()]);
    }
    const ConnectionOwner& owner = kOwners[random() % kOwners.size()];
    const auto count = std::count_if(places.begin(), places.end(), [&](const CallerPlace& place) {
      return place.owner() == owner;
    });
    EXPECT_EQ(connections_.Add(owner, 0), count - owner.max_count.value_or(count));
    const double shown = Shown(owner.name.empty() ? "anyone" : owner.name);
    EXPECT_EQ(std::max(shown, 0.0), static_cast<double>(count)) << owner.name;
    for (const CallerPlace& place : places) {
      if (!(place.owner() == owner)) continue;
      EXPECT_EQ(place.is_crowded(), owner.max_count.has_value() && count > *owner.max_count);
    }
  }
}

// Many threads take and give back places; in the end nobody has any.
TEST_F(CallerConnectionsTest, AnyThreadMayCount) {
  std::vector<std::thread> threads;
  for (size_t number = 0; number < 4; ++number) {
    threads.emplace_back([this, number] {
      for (int i = 0; i < 500; ++i) {
        const CallerPlace own(&connections_, kOwners[number]);
        const CallerPlace shared(&connections_, kOwners[1]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const ConnectionOwner& owner : kOwners) {
    EXPECT_EQ(connections_.Add(owner, 0), -owner.max_count.value_or(0)) << owner.name;
    EXPECT_EQ(Shown(owner.name.empty() ? "anyone" : owner.name), 0);
  }
}

// A policy that is read anew may allow less: who had its places has too many at once.
TEST_F(CallerConnectionsTest, TheLimitIsThatOfTheLastCall) {
  const CallerPlace first(&connections_, {"slurm", 2}), second(&connections_, {"slurm", 2});
  EXPECT_FALSE(first.is_crowded());
  const CallerPlace third(&connections_, {"slurm", std::nullopt});
  EXPECT_TRUE(first.is_crowded());
  EXPECT_FALSE(third.is_crowded()) << "it may have any number";
  EXPECT_EQ(connections_.Add({"slurm", 1}, 0), 2) << "two beyond the one";
}

// The first of the peer with most is the one for which nobody before it and nobody at all has more.
TEST(CrowdingTest, IsTheFirstOfThoseWhoHaveMost) {
  Random random(95);
  for (int i = 0; i < 500; ++i) {
    std::vector<std::string> peers(1 + random() % 20);
    for (std::string& peer : peers) peer = std::string(1, "abcdef"[random() % 6]);
    const auto count_of = [&](const std::string& peer) {
      return std::count(peers.begin(), peers.end(), peer);
    };
    const auto found =
        FirstCrowding(peers.begin(), peers.end(),
                      [](const std::string& peer) -> absl::string_view { return peer; });
    ASSERT_NE(found, peers.end());
    for (auto other = peers.begin(); other != peers.end(); ++other) {
      EXPECT_LE(count_of(*other), count_of(*found));
      if (other < found) {
        EXPECT_LT(count_of(*other), count_of(*found));
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll
