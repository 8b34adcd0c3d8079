#include "server/planner/kept_answers.h"

#include <utility>

#include "absl/hash/hash.h"

namespace plimsoll {
namespace {

constexpr size_t kLeastOfShard = 4;  // answers for which half of it must have room

// With its place in a table that is half empty, and the headers of two allocations.
size_t SizeOf(size_t request_bytes, size_t answer_bytes) {
  constexpr size_t kOfPlace = 256;
  return request_bytes + answer_bytes + kOfPlace;
}

uint64_t HashOf(absl::string_view request) { return absl::Hash<absl::string_view>()(request); }

}  // namespace

KeptAnswers::KeptAnswers(size_t max_bytes, Metrics* metrics)
    : max_recent_bytes_(max_bytes >> (1 + kShardBits)), metrics_(metrics) {}

KeptAnswers::~KeptAnswers() {
  for (const Shard& shard : shards_) {
    metrics_->AddKept(-static_cast<int64_t>(shard.recent_bytes + shard.older_bytes));
  }
}

std::optional<KeptAnswers::Answer> KeptAnswers::Find(absl::string_view request) {
  if (max_recent_bytes_ == 0) return std::nullopt;
  Shard& shard = ShardOf(HashOf(request));
  Answers gone;  // freed without the lock
  const std::lock_guard lock(shard.mutex);
  const auto recent = shard.recent.find(request);
  if (recent != shard.recent.end()) return recent->second;
  const auto older = shard.older.find(request);
  if (older == shard.older.end()) return std::nullopt;
  Answer answer = older->second;
  const size_t size = SizeOf(request.size(), answer.bytes.size());
  shard.older.erase(older);
  shard.older_bytes -= size;
  metrics_->AddKept(-static_cast<int64_t>(size));
  gone = AddTo(&shard, request, answer);
  return answer;
}

void KeptAnswers::Keep(absl::string_view request, absl::string_view answer, Verdict verdict,
                       int64_t peak_bytes) {
  if (SizeOf(request.size(), answer.size()) > max_recent_bytes_ / kLeastOfShard) return;
  const uint64_t hash = HashOf(request);
  Shard& shard = ShardOf(hash);
  Answers gone;
  const std::lock_guard lock(shard.mutex);
  uint64_t& asked = shard.asked[hash % shard.asked.size()];
  if (std::exchange(asked, hash) != hash) return;
  const Answer kept = {grpc::Slice(answer.data(), answer.size()), verdict, peak_bytes};
  if (shard.recent.contains(request) || shard.older.contains(request)) return;  // another was first
  gone = AddTo(&shard, request, kept);
}

KeptAnswers::Answers KeptAnswers::AddTo(Shard* shard, absl::string_view request,
                                        const Answer& answer) {
  const size_t size = SizeOf(request.size(), answer.bytes.size());
  Answers gone;
  if (shard->recent_bytes + size > max_recent_bytes_) {
    metrics_->AddKept(-static_cast<int64_t>(shard->older_bytes));
    gone = std::exchange(shard->older, std::exchange(shard->recent, {}));
    shard->older_bytes = std::exchange(shard->recent_bytes, 0);
  }
  shard->recent.try_emplace(request, answer);
  shard->recent_bytes += size;
  metrics_->AddKept(static_cast<int64_t>(size));
  return gone;
}

}  // namespace plimsoll
