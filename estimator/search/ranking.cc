#include "estimator/search/ranking.h"

#include <algorithm>
#include <utility>

namespace plimsoll {
namespace {

// Configurations between two questions whether to stop.
constexpr size_t kStopInterval = 64;
// Configurations that are kept: of more, the best half.
constexpr size_t kMostEntries = 1 << 19;
// Configurations that cannot fit of which the nearest may be asked for.
constexpr size_t kMostHopeless = 256;

bool IsBetter(const Entry& a, const Entry& b) {
  return std::tie(a.rank, a.seconds, a.change_cost, a.choice) <
         std::tie(b.rank, b.seconds, b.change_cost, b.choice);
}

// By what the floor lacks.
bool IsNearer(const Entry& a, const Entry& b) {
  const int64_t lack_a = a.floor_bytes - a.usable_bytes;
  const int64_t lack_b = b.floor_bytes - b.usable_bytes;
  return std::tie(lack_a, a.choice) < std::tie(lack_b, b.choice);
}

}  // namespace

Ranking::Ranking(const Space& space, const ValidJob& base, const Catalog& catalog, const Goal& goal,
                 const StopPredicate& stop)
    : space_(space), catalog_(catalog), goal_(goal), stop_(stop), interrupt_([&stop] {
        return stop(kExplainedBy);
      }) {
  VisitLegal(
      space, base, catalog,
      [this](const Choice& choice, const Job& job) { return Visit(choice, job); },
      [this] {
        truncated_ = truncated_ || stop_(kRankedBy);
        return !truncated_;
      });
  std::sort(entries_.begin(), entries_.end(), IsBetter);
}

bool Ranking::Visit(const Choice& choice, const Job& job) {
  if (legal_count_++ % kStopInterval == 0 && stop_(kRankedBy)) truncated_ = true;
  if (truncated_) return false;
  const Blocks& blocks = BlocksOf(choice, job);
  const StepTime time = PredictStep(job, blocks.speed, blocks.cost);
  const int64_t floor = MemoryFloor(job, blocks.floor);
  const Entry entry{.choice = choice,
                    .rank = Rank(choice, time),
                    .seconds = time.seconds,
                    .change_cost = ChangeCost(space_.own, choice),
                    .floor_bytes = Above(floor, blocks.margin),
                    .expected_floor_bytes = floor,
                    .room_floor_bytes = Above(floor, blocks.room),
                    .usable_bytes = job.usable_bytes};
  if (entry.expected_floor_bytes > entry.usable_bytes) {
    KeepHopeless(entry);
  } else {
    Keep(entry);
  }
  return true;
}

void Ranking::Keep(const Entry& entry) {
  if (entries_.size() == kMostEntries) {
    const auto middle = entries_.begin() + kMostEntries / 2;
    std::nth_element(entries_.begin(), middle, entries_.end(), IsBetter);
    entries_.erase(middle, entries_.end());
    crowded_ = true;
  }
  entries_.push_back(entry);
}

void Ranking::KeepHopeless(const Entry& entry) {
  hopeless_.push_back(entry);
  std::push_heap(hopeless_.begin(), hopeless_.end(), IsNearer);
  if (hopeless_.size() <= kMostHopeless) return;
  std::pop_heap(hopeless_.begin(), hopeless_.end(), IsNearer);
  hopeless_.pop_back();
}

std::vector<Entry> Ranking::Hopeless() const {
  std::vector<Entry> entries = hopeless_;
  std::sort_heap(entries.begin(), entries.end(), IsNearer);
  return entries;
}

const Blocks& Ranking::BlocksOf(const Choice& choice, const Job& job) {
  const BlocksKey key{MovingBlocks(choice), job.profile, job.micro_batch_count > 1,
                      EngineStage(job), job.gpus_per_node};
  const auto found = blocks_.find(key);
  if (found != blocks_.end()) return found->second;
  const ValidJob valid = ValidOf(choice);
  const Program program = BlocksProgram(valid);
  const Speed speed = SpeedOf(catalog_.speed, job);
  const Margins margins = MarginsOf(catalog_.calibration, job, goal_.detail);
  const Margins replayed = MarginsOf(catalog_.calibration, job, Detail::kReplay);
  const double bound = std::max(margins.device, margins.reserved);
  const double room = std::min(std::max(replayed.device, replayed.reserved), replayed.capacity);
  const bool judged = goal_.detail == Detail::kSummary;
  return blocks_
      .emplace(key, Blocks{speed, CostOf(valid, program, speed), FloorPartsOf(valid, program),
                           judged ? std::min(bound, margins.capacity) : bound, room})
      .first->second;
}

double Ranking::Rank(const Choice& choice, const StepTime& time) const {
  switch (goal_.objective) {
    case Objective::kFastest:
      return time.seconds;
    case Objective::kFewestGpus:
      return choice[KnobId::kGpuCount];
    case Objective::kCheapest:
      return time.gpu_hours_per_billion_tokens *
             goal_.prices.at(space_.menu.gpus[static_cast<size_t>(choice[KnobId::kGpu])]);
    case Objective::kSmallestChange:
      return static_cast<double>(ChangeCost(space_.own, choice));
  }
  return 0;
}

JobSpec Ranking::JobOf(const Choice& choice) const {
  JobSpec job = space_.job;
  Set(space_.menu, choice, job);
  return job;
}

MemoryEstimate Ranking::Estimate(const Choice& choice, Detail detail,
                                 const Interrupt& interrupt) const {
  JobSpec job = JobOf(choice);
  job.detail = detail == Detail::kReplay ? "replay" : "summary";
  return std::get<MemoryEstimate>(EstimateMemory(job, catalog_, {.interrupt = interrupt}));
}

std::optional<MemoryEstimate> Ranking::Summarize(const Choice& choice) const {
  JobSpec job = JobOf(choice);
  job.detail = "summary";
  auto answer =
      EstimateMemory(job, catalog_, {.calibrated_as = goal_.detail, .interrupt = interrupt_});
  auto* const estimate = std::get_if<MemoryEstimate>(&answer);
  if (estimate == nullptr) return std::nullopt;
  return std::move(*estimate);
}

Margins Ranking::ReplayMarginsOf(const Choice& choice) const {
  return MarginsOf(catalog_.calibration, *ValidOf(choice), Detail::kReplay);
}

ValidJob Ranking::ValidOf(const Choice& choice) const {
  auto validated = Validate(JobOf(choice), catalog_);
  return std::get<ValidJob>(std::move(validated));
}

}  // namespace plimsoll
