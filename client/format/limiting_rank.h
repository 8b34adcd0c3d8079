// The rank that an answer turns on.
#ifndef PLIMSOLL_CLIENT_FORMAT_LIMITING_RANK_H_
#define PLIMSOLL_CLIENT_FORMAT_LIMITING_RANK_H_

#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

// An empty one where the answer has none of its number.
inline const v1::RankMemory& LimitingRank(const v1::EstimateMemoryResponse& answer) {
  const int64_t index = answer.limiting_rank();
  if (index < 0 || index >= answer.ranks_size()) return v1::RankMemory::default_instance();
  return answer.ranks(static_cast<int>(index));
}

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_FORMAT_LIMITING_RANK_H_
