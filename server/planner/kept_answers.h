// Answers of late by the bytes of their requests: an array job, a gate that asks again and a
// dashboard send the same bytes again and again. An answer follows from a request and the
// loaded tables alone, so one object belongs to one set of tables and ends with it.
#ifndef PLIMSOLL_SERVER_PLANNER_KEPT_ANSWERS_H_
#define PLIMSOLL_SERVER_PLANNER_KEPT_ANSWERS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "estimator/answer/estimate.h"
#include "grpcpp/support/slice.h"
#include "server/observe/metrics.h"

namespace plimsoll {

// Any thread may call.
class KeptAnswers {
 public:
  // An answer, and what is counted of it each time that it is given.
  struct Answer {
    grpc::Slice bytes;
    Verdict verdict{};
    int64_t peak_bytes = 0;
  };

  // Keeps `max_bytes` at most, with its own. `metrics` outlives it.
  KeptAnswers(size_t max_bytes, Metrics* metrics);
  ~KeptAnswers();
  KeptAnswers(const KeptAnswers&) = delete;
  KeptAnswers& operator=(const KeptAnswers&) = delete;

  // Nothing where the request was not asked of late.
  std::optional<Answer> Find(absl::string_view request);

  // Keeps what is asked for the second time of late: most is never asked for again. What is
  // large would drive out many, and is not kept.
  void Keep(absl::string_view request, absl::string_view answer, Verdict verdict,
            int64_t peak_bytes);

 private:
  static constexpr int kShardBits = 4;
  using Answers = absl::flat_hash_map<std::string, Answer>;
  // When the recent are half of what it may have, they become the older, and those go. What is
  // found among the older is recent again.
  struct Shard {
    std::mutex mutex;
    // Guarded by mutex.
    Answers recent, older;
    size_t recent_bytes = 0;
    size_t older_bytes = 0;
    std::array<uint64_t, 512> asked{};  // hashes of requests, in the place that they call for
  };

  Shard& ShardOf(uint64_t hash) { return shards_[hash >> (64 - kShardBits)]; }
  // The shard's mutex is held. Returns what goes.
  Answers AddTo(Shard* shard, absl::string_view request, const Answer& answer);

  const size_t max_recent_bytes_;  // of a shard
  Metrics* const metrics_;
  std::array<Shard, 1 << kShardBits> shards_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_PLANNER_KEPT_ANSWERS_H_
