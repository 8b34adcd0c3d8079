// How many connections each caller of the access policy has, over gRPC and HTTP together. A
// connection is whose call came by it last.
#ifndef PLIMSOLL_SERVER_LOAD_CALLER_CONNECTIONS_H_
#define PLIMSOLL_SERVER_LOAD_CALLER_CONNECTIONS_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "server/observe/caller_metrics.h"

namespace plimsoll {

// A caller of the policy, or nobody in particular (empty), and how many connections it may have.
struct ConnectionOwner {
  std::string name;
  std::optional<int64_t> max_count;

  bool operator==(const ConnectionOwner&) const = default;
};

// Any thread may call.
class CallerConnections {
 public:
  // `metrics` outlives it.
  explicit CallerConnections(CallerMetrics* metrics) : metrics_(metrics) {}
  CallerConnections(const CallerConnections&) = delete;
  CallerConnections& operator=(const CallerConnections&) = delete;

  // Counts so many more of a caller's. Returns how many it has beyond those that it may have.
  int64_t Add(const ConnectionOwner& owner, int64_t change);

 private:
  CallerMetrics* const metrics_;
  std::mutex mutex_;
  std::map<std::string, int64_t> counts_;  // guarded by mutex_
};

// One connection of a caller's, which is counted while this lives.
class CallerPlace {
 public:
  CallerPlace(CallerConnections* connections, ConnectionOwner owner)
      : connections_(connections), owner_(std::move(owner)) {
    connections_->Add(owner_, 1);
  }
  ~CallerPlace() { connections_->Add(owner_, -1); }
  CallerPlace(const CallerPlace&) = delete;
  CallerPlace& operator=(const CallerPlace&) = delete;

  const ConnectionOwner& owner() const { return owner_; }
  // Whether its caller has more than it may have.
  bool is_crowded() const { return connections_->Add(owner_, 0) > 0; }

 private:
  CallerConnections* const connections_;
  const ConnectionOwner owner_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_LOAD_CALLER_CONNECTIONS_H_
