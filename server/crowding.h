// Which of many connections goes where there are too many.
#ifndef PLIMSOLL_SERVER_CROWDING_H_
#define PLIMSOLL_SERVER_CROWDING_H_

#include <algorithm>
#include <cstddef>
#include <map>

#include "absl/strings/string_view.h"

namespace plimsoll {

// Returns the first of those of the peer that has most.
//
// Requires: some.
template <typename Connections, typename PeerOf>
auto FirstCrowding(Connections& connections, const PeerOf& peer_of) {
  std::map<absl::string_view, size_t> counts;
  size_t most = 0;
  for (const auto& one : connections) most = std::max(most, ++counts[peer_of(one)]);
  return std::find_if(connections.begin(), connections.end(),
                      [&](const auto& one) { return counts[peer_of(one)] == most; });
}

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_CROWDING_H_
