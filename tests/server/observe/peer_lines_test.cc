// How many lines a peer gets, told of times by the test.
#include "server/observe/peer_lines.h"

#include <chrono>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

class PeerLinesTest : public testing::Test {
 protected:
  // Takes all that the peer has left.
  void Exhaust(const std::string& peer) {
    while (lines_.Take(peer, now_).has_value()) {
    }
  }

  PeerLines lines_;
  PeerLines::Clock::time_point now_ = PeerLines::Clock::now();
};

TEST_F(PeerLinesTest, TheFirstAfterAWhileSaysHowManyWereLeftOut) {
  for (int i = 0; i < kMaxPeerLines; ++i) EXPECT_EQ(lines_.Take("10.0.0.1", now_), 0);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(lines_.Take("10.0.0.1", now_), std::nullopt);
  now_ += kPeerLinesTime;
  EXPECT_EQ(lines_.Take("10.0.0.1", now_), 1000);
  EXPECT_EQ(lines_.Take("10.0.0.1", now_), 0);
}

TEST_F(PeerLinesTest, PortsOfAHostAreOnePeer) {
  Exhaust("ipv4:10.0.0.1:5001");
  EXPECT_EQ(lines_.Take("ipv4:10.0.0.1:5002", now_), std::nullopt);
  EXPECT_EQ(lines_.Take("ipv4:10.0.0.2:5001", now_), 0);
  Exhaust("ipv6:%5B::1%5D:5001");
  EXPECT_EQ(lines_.Take("ipv6:%5B::1%5D:5002", now_), std::nullopt);
}

TEST_F(PeerLinesTest, OfVeryManyPeersTheRestShare) {
  for (size_t i = 0; i < kMaxLoggedPeers; ++i) {
    EXPECT_EQ(lines_.Take(absl::StrCat("10.0.0.", i), now_), 0);
  }
  Exhaust("late");
  EXPECT_EQ(lines_.Take("later", now_), std::nullopt);
  EXPECT_EQ(lines_.Take("10.0.0.0", now_), 0);
  now_ += kPeerLinesTime;
  EXPECT_EQ(lines_.Take("later", now_), 0) << "those that were silent gave way";
  Exhaust("late");
  EXPECT_EQ(lines_.Take("later", now_), 0);
}

// Peers that are few, against a log that keeps every line.
TEST(PeerLinesModelTest, RandomPeersGetWhatTheyMay) {
  struct Seen {
    std::optional<PeerLines::Clock::time_point> begin;
    int64_t written = 0, left_out = 0;
  };
  std::mt19937_64 random(11);
  for (int round = 0; round < 20; ++round) {
    PeerLines lines;
    std::map<std::string, Seen> peers;
    PeerLines::Clock::time_point now{std::chrono::hours(1)};
    for (int call = 0; call < 2000; ++call) {
      now += std::chrono::milliseconds(random() % 40 == 0 ? random() % 12'000 : random() % 20);
      const std::string peer = absl::StrCat("10.0.0.", random() % 4);
      Seen& seen = peers[peer];
      if (!seen.begin.has_value() || now - *seen.begin >= kPeerLinesTime) {
        seen.begin = now;
        seen.written = 0;
      }
      const auto taken = lines.Take(absl::StrCat("ipv4:", peer, ":", 1000 + random() % 50), now);
      ASSERT_EQ(taken.has_value(), seen.written < kMaxPeerLines) << call;
      if (taken.has_value()) {
        EXPECT_EQ(*taken, std::exchange(seen.left_out, 0)) << call;
        ++seen.written;
      } else {
        ++seen.left_out;
      }
    }
  }
}

// More peers than are told apart: what was left out of those that are forgotten is the rest's.
TEST(PeerLinesModelTest, WhatIsForgottenIsTheRests) {
  PeerLines lines;
  const PeerLines::Clock::time_point begin{std::chrono::hours(1)};
  for (int64_t i = 0; i < kMaxPeerLines + 7; ++i) lines.Take("10.9.9.9", begin);
  for (size_t i = 1; i < kMaxLoggedPeers; ++i) lines.Take(absl::StrCat("10.0.1.", i), begin);
  const auto later = begin + kPeerLinesTime;
  EXPECT_EQ(lines.Take("10.9.9.10", later), 0);
  for (size_t i = 2; i < kMaxLoggedPeers; ++i) lines.Take(absl::StrCat("10.0.2.", i), later);
  EXPECT_EQ(lines.Take("10.0.3.1", later), 7) << "one more than there is room for";
}

}  // namespace
}  // namespace plimsoll
