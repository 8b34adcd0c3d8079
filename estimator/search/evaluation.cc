#include "estimator/search/evaluation.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "estimator/base/units.h"
#include "estimator/replay/replay_cost.h"
#include "estimator/search/replay_room.h"

namespace plimsoll {
namespace {

// Runs of one number as "62x2".
std::string InRuns(const std::vector<int64_t>& layers) {
  std::string text;
  for (size_t begin = 0; begin < layers.size();) {
    size_t end = begin;
    while (end < layers.size() && layers[end] == layers[begin]) ++end;
    const std::string times = end - begin > 1 ? absl::StrCat(end - begin, "x") : "";
    absl::StrAppend(&text, begin > 0 ? " " : "", times, layers[begin]);
    begin = end;
  }
  return text;
}

}  // namespace

const FitOf& Evaluation::Memory(const Entry& entry) {
  const auto found = known_.find(entry.choice);
  if (found != known_.end()) return found->second;
  const std::optional<MemoryEstimate> estimate = ranking_.Summarize(entry.choice);
  if (estimate.has_value() && estimate->interrupted) {
    interrupted_ = true;
    return unknown_;
  }
  FitOf fit{.verdict = Verdict::kDoesNotFit, .bound_bytes = kMaxTotalBytes};
  if (estimate.has_value()) {
    fit = {.verdict = estimate->verdict,
           .bound_bytes = estimate->usable_bytes - estimate->headroom.bound_bytes,
           .may_fit = MayFit(entry.choice, *estimate),
           .headroom = estimate->headroom,
           .usable_bytes = estimate->usable_bytes};
  }
  fit_count_ += fit.verdict == Verdict::kFits ? 1 : 0;
  return known_.emplace(entry.choice, fit).first->second;
}

bool Evaluation::MayFit(const Choice& choice, const MemoryEstimate& summary) {
  if (summary.verdict == Verdict::kFits) return true;
  if (goal_.detail == Detail::kSummary) return false;
  const MarginsKey key = {choice[KnobId::kGpu],
                          choice[KnobId::kTensorParallel],
                          choice[KnobId::kPipelineParallel],
                          choice[KnobId::kContextParallel],
                          choice[KnobId::kZeroStage],
                          choice[KnobId::kShardGroup]};
  auto found = margins_.find(key);
  if (found == margins_.end()) {
    found = margins_.emplace(key, ranking_.ReplayMarginsOf(choice)).first;
  }
  return HasReplayRoom(summary, found->second);
}

std::vector<Change> Evaluation::ChangesOf(const Choice& choice) const {
  std::vector<Change> changes;
  for (const Knob& knob : kKnobs) {
    const int32_t from = space_.asked[knob.id];
    const int32_t to = choice[knob.id];
    if (from == to) continue;
    changes.push_back({knob.field, knob.text(space_.menu, from), knob.text(space_.menu, to)});
  }
  const int64_t ranks = DataParallelSize(choice);
  const int64_t asked = DataParallelSize(space_.asked);
  if (ranks != asked) {
    changes.push_back({"parallelism.data_parallel_size", absl::StrCat(asked), absl::StrCat(ranks)});
  }
  return changes;
}

// What follows from the knobs: a schedule, a layout, a framework that was left
// open.
void Evaluation::AddFollowing(absl::string_view framework, Candidate& candidate) const {
  const ParallelismSpec& from = space_.job.parallelism;
  const ParallelismSpec& to = candidate.job.parallelism;
  const auto add = [&](absl::string_view field, std::string before, std::string after) {
    if (before != after) candidate.changes.push_back({field, std::move(before), std::move(after)});
  };
  if (to.pipeline_schedule.has_value()) {
    add("parallelism.pipeline_schedule", from.pipeline_schedule.value_or("1f1b"),
        *to.pipeline_schedule);
  }
  if (!to.pipeline_layout.empty()) {
    add("parallelism.pipeline_layout", InRuns(from.pipeline_layout), InRuns(to.pipeline_layout));
  }
  add("runtime.framework", std::string(space_.own_framework), std::string(framework));
}

Candidate Evaluation::CandidateOf(const Choice& choice, const MemoryEstimate& estimate) const {
  const ValidJob valid = ranking_.ValidOf(choice);
  Candidate candidate;
  candidate.job = ranking_.JobOf(choice);
  candidate.changes = ChangesOf(choice);
  AddFollowing(valid->profile->name, candidate);
  candidate.verdict = estimate.verdict;
  candidate.device = {.expected_bytes = estimate.usable_bytes - estimate.headroom.expected_bytes,
                      .bound_bytes = estimate.usable_bytes - estimate.headroom.bound_bytes};
  candidate.usable_bytes = estimate.usable_bytes;
  candidate.detail = estimate.detail;
  candidate.step_time = ranking_.TimeOf(valid);
  const auto price = goal_.prices.find(space_.menu.gpus[static_cast<size_t>(choice[KnobId::kGpu])]);
  if (price != goal_.prices.end()) {
    candidate.cost_per_billion_tokens =
        candidate.step_time.gpu_hours_per_billion_tokens * price->second;
  }
  return candidate;
}

Candidate Evaluation::Summarized(const Choice& choice) const {
  const FitOf& fit = known_.at(choice);
  MemoryEstimate estimate;
  estimate.verdict = fit.verdict;
  estimate.headroom = fit.headroom;
  estimate.usable_bytes = fit.usable_bytes;
  return CandidateOf(choice, estimate);
}

Candidate Evaluation::Requested(const JobSpec& job) {
  own_ = ranking_.Estimate(space_.own, goal_.detail, ranking_.interrupt());
  interrupted_ = interrupted_ || own_->interrupted;
  if (own_->interrupted) own_ = ranking_.Estimate(space_.own, Detail::kSummary, {});
  Candidate requested = CandidateOf(space_.own, *own_);
  requested.job = job;
  requested.changes.clear();
  return requested;
}

MemoryEstimate Evaluation::Estimate(const Choice& choice) {
  if (own_.has_value() && choice == space_.own) return *own_;
  const bool spent = goal_.detail == Detail::kReplay && vain_events_ >= kMaxReplayEvents;
  gave_up_replays_ = gave_up_replays_ || spent;
  MemoryEstimate estimate =
      ranking_.Estimate(choice, spent ? Detail::kSummary : goal_.detail, ranking_.interrupt());
  interrupted_ = interrupted_ || estimate.interrupted;
  if (estimate.verdict != Verdict::kFits) vain_events_ += estimate.replayed_event_count;
  return estimate;
}

MemoryEstimate Evaluation::Judge(const Choice& choice) {
  MemoryEstimate estimate = Estimate(choice);
  if (estimate.verdict == Verdict::kFits || estimate.interrupted) return estimate;
  misfits_.insert(choice);
  const Misfit misfit{choice, estimate};
  if (!nearest_.has_value() || misfit.missing_bytes() < nearest_->missing_bytes()) {
    nearest_ = misfit;
  }
  return estimate;
}

}  // namespace plimsoll
