#include "server/observe/peer_lines.h"

#include <utility>

#include "server/net/address.h"

namespace plimsoll {

PeerLines::Lines& PeerLines::LinesOf(const std::string& host, Clock::time_point now) {
  const auto is_over = [now](const Lines& lines) { return now - lines.begin >= kPeerLinesTime; };
  if (hosts_.size() >= kMaxLoggedPeers && !hosts_.contains(host)) {
    int64_t left_out = 0;
    std::erase_if(hosts_, [&](const auto& entry) {
      if (entry.first.empty() || !is_over(entry.second)) return false;
      left_out += entry.second.left_out;
      return true;
    });
    if (left_out > 0) hosts_[""].left_out += left_out;
  }
  const bool known = hosts_.contains(host) || hosts_.size() < kMaxLoggedPeers;
  Lines& lines = hosts_[known ? host : ""];
  if (is_over(lines)) {
    lines.begin = now;
    lines.written = 0;
  }
  return lines;
}

std::optional<int64_t> PeerLines::Take(const std::string& peer, Clock::time_point now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Lines& lines = LinesOf(HostOf(peer), now);
  if (lines.written >= kMaxPeerLines) {
    ++lines.left_out;
    return std::nullopt;
  }
  ++lines.written;
  return std::exchange(lines.left_out, 0);
}

}  // namespace plimsoll
