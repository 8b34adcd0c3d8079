// How many lines of the log one caller gets.
#ifndef PLIMSOLL_SERVER_OBSERVE_PEER_LINES_H_
#define PLIMSOLL_SERVER_OBSERVE_PEER_LINES_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace plimsoll {

// Lines of a peer in a stretch of time, and peers that are told apart: the rest of them
// share.
inline constexpr int64_t kMaxPeerLines = 20;
inline constexpr std::chrono::seconds kPeerLinesTime{10};
inline constexpr size_t kMaxLoggedPeers = 256;

// Any thread may call.
class PeerLines {
 public:
  using Clock = std::chrono::steady_clock;

  // Asks for a line about a peer, whose ports are one. Returns how many of its lines were left
  // out since the last that was not, or nothing where this one is to be left out. What was left
  // out of a peer that is forgotten is the rest's.
  std::optional<int64_t> Take(const std::string& peer, Clock::time_point now);

 private:
  struct Lines {
    Clock::time_point begin;
    int64_t written = 0;
    int64_t left_out = 0;
  };

  Lines& LinesOf(const std::string& host, Clock::time_point now);

  std::mutex mutex_;
  std::map<std::string, Lines> hosts_;  // "": the rest
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_OBSERVE_PEER_LINES_H_
