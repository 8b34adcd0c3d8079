#include "server/peer_lines.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"

namespace plimsoll {

// gRPC's peers have a port, and brackets around IPv6, encoded.
std::string HostOf(const std::string& peer) {
  const bool ipv6 = absl::StartsWith(peer, "ipv6:");
  if (!ipv6 && !absl::StartsWith(peer, "ipv4:")) return peer;
  constexpr size_t kScheme = 5;
  const std::string host = peer.substr(kScheme, peer.rfind(':') - kScheme);
  return ipv6 ? absl::StrReplaceAll(host, {{"%5B", ""}, {"%5D", ""}, {"%25", "%"}}) : host;
}

PeerLines::Lines& PeerLines::LinesOf(const std::string& host, Clock::time_point now) {
  const auto is_over = [now](const Lines& lines) { return now - lines.begin >= kPeerLinesTime; };
  if (hosts_.size() >= kMaxLoggedPeers && !hosts_.contains(host)) {
    std::erase_if(hosts_, [&](const auto& entry) { return is_over(entry.second); });
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
