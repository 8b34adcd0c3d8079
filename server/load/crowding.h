// Which of many connections goes where there are too many.
#ifndef PLIMSOLL_SERVER_LOAD_CROWDING_H_
#define PLIMSOLL_SERVER_LOAD_CROWDING_H_

#include <algorithm>
#include <cstddef>
#include <map>

#include "absl/strings/string_view.h"

namespace plimsoll {

// Returns the first of those of the peer that has most.
//
// Requires: some.
template <typename Iterator, typename PeerOf>
Iterator FirstCrowding(Iterator begin, Iterator end, const PeerOf& peer_of) {
  std::map<absl::string_view, size_t> counts;
  size_t most = 0;
  std::for_each(begin, end,
                [&](const auto& one) { most = std::max(most, ++counts[peer_of(one)]); });
  return std::find_if(begin, end, [&](const auto& one) { return counts[peer_of(one)] == most; });
}

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_LOAD_CROWDING_H_
