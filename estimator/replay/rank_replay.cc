#include "estimator/replay/rank_replay.h"

#include <algorithm>

#include "estimator/replay/checkpoint_leftover.h"
#include "estimator/replay/gpu_lag.h"

namespace plimsoll {
namespace {

bool UsesOtherStreams(const Timeline& timeline) {
  return std::any_of(timeline.storages.begin(), timeline.storages.end(),
                     [](const TimelineStorage& storage) { return storage.recorded; });
}

RoleBytes RolesAt(const Timeline& timeline, size_t event) {
  RoleBytes roles{};
  for (const int32_t id : AliveAt(timeline, event)) {
    const TimelineStorage& storage = timeline.storages[static_cast<size_t>(id)];
    int64_t& bytes = roles[static_cast<size_t>(storage.role)];
    bytes = Add(bytes, storage.bytes);
  }
  return roles;
}

// Whether the job completes with a full launch queue in `capacity_bytes`.
bool Endures(const RankReplay& rank, const Timeline& timeline, ReplaySettings settings,
             int64_t capacity_bytes, const Interrupt& interrupt) {
  if (Add(rank.lagging_reserved, rank.left_by_loading) <= capacity_bytes) return true;
  settings.lag_ticks = kLaunchQueueTicks;
  settings.allocator.capacity_bytes = std::max<int64_t>(capacity_bytes - rank.left_by_loading, 0);
  return rank.capped.completed && Replay(timeline, settings, nullptr, interrupt).completed;
}

// A replay that nothing stops: where memory_fraction does, `settings` lose it.
Replayed ReplayUncapped(const Timeline& timeline, ReplaySettings& settings,
                        const Interrupt& interrupt) {
  const Replayed replayed = Replay(timeline, settings, nullptr, interrupt);
  if (replayed.completed) return replayed;
  settings.allocator.memory_fraction_bytes = kUnlimitedBytes;
  return Replay(timeline, settings, nullptr, interrupt);
}

}  // namespace

int64_t UsableBytes(const Job& job, const Outside& outside) {
  return std::min(job.usable_bytes, Add(job.allocator.memory_fraction_bytes, outside.Sum()));
}

std::optional<RankReplay> ReplayRank(const Job& job, const Program& program, const Tapes& tapes,
                                     const Stage& stage, const ReplayOptions& options) {
  const Interrupt& interrupt = options.interrupt;
  const std::optional<Timeline> unrolled = Unroll(program, tapes, stage);
  if (!unrolled.has_value()) return std::nullopt;
  const Timeline& timeline = *unrolled;
  RankReplay rank;
  rank.left_by_loading = LeftByLoading(job, program, SumParameters(program, stage));
  const bool waits = job.profile->records_streams && UsesOtherStreams(timeline);
  const int32_t lag = waits ? ExpectedLag(job, program) : 0;
  rank.lag_ticks = lag;
  ReplaySettings settings{.allocator = job.allocator, .lag_ticks = lag};
  rank.settings = settings;
  rank.uncapped = ReplayUncapped(timeline, rank.settings, interrupt);
  rank.lagging_allocated = rank.uncapped.peak_allocated;
  rank.lagging_reserved = rank.uncapped.peak_reserved;
  if (waits && lag < kLaunchQueueTicks) {
    ReplaySettings full = settings;
    full.lag_ticks = kLaunchQueueTicks;
    const Replayed lagging = ReplayUncapped(timeline, full, interrupt);
    rank.lagging_allocated = std::max(rank.lagging_allocated, lagging.peak_allocated);
    rank.lagging_reserved = std::max(rank.lagging_reserved, lagging.peak_reserved);
  }
  rank.capacity_bytes =
      std::max<int64_t>(UsableBytes(job, program.outside) - program.outside.Sum(), 0);
  settings.allocator.capacity_bytes = rank.capacity_bytes;
  rank.capped = rank.uncapped;
  if (rank.uncapped.peak_reserved > rank.capacity_bytes) {
    rank.capped = Replay(timeline, settings, nullptr, interrupt);
  }
  if (rank.capped.completed) rank.settings = settings;
  const auto room = static_cast<double>(rank.capacity_bytes) / (1.0 + options.capacity_share);
  rank.endures = Endures(rank, timeline, settings, static_cast<int64_t>(room), interrupt);
  rank.roles = RolesAt(timeline, rank.shown().peak_event);
  return rank;
}

std::vector<RankReplay> ReplayRanks(const Job& job, const Program& program, const Tapes& tapes,
                                    const ReplayOptions& options) {
  std::vector<RankReplay> replays;
  for (size_t i = 0; i < program.stages.size(); ++i) {
    const size_t first = FirstAlike(program, i);
    if (first < i) {
      replays.push_back(replays[first]);
      continue;
    }
    const std::optional<RankReplay> replay =
        ReplayRank(job, program, tapes, program.stages[i], options);
    if (!replay.has_value() || IsInterrupted(options.interrupt)) return {};
    replays.push_back(*replay);
  }
  return replays;
}

}  // namespace plimsoll
