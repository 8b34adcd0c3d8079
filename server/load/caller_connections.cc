#include "server/load/caller_connections.h"

namespace plimsoll {

int64_t CallerConnections::Add(const ConnectionOwner& owner, int64_t change) {
  const CallerMetrics::Series& series = metrics_->Of(owner.name);
  const std::lock_guard lock(mutex_);
  int64_t& count = counts_[owner.name];
  count += change;
  if (change != 0) series.SetConnections(static_cast<size_t>(count));
  return count - owner.max_count.value_or(count);
}

}  // namespace plimsoll
