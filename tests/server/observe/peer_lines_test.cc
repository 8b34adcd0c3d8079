// How many lines a peer gets, told of times by the test.
#include "server/observe/peer_lines.h"

#include <string>

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

}  // namespace
}  // namespace plimsoll
