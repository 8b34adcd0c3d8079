#include "estimator/search/evaluation.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace plimsoll {

const FitOf& Evaluation::Memory(const Entry& entry) {
  const auto found = known_.find(entry.choice);
  if (found != known_.end()) return found->second;
  const MemoryEstimate estimate = ranking_.Summarize(entry.choice);
  const FitOf fit{.verdict = estimate.verdict,
                  .bound_bytes = estimate.usable_bytes - estimate.headroom.bound_bytes};
  fit_count_ += fit.verdict == Verdict::kFits ? 1 : 0;
  return known_.emplace(entry.choice, fit).first->second;
}

std::vector<Change> Evaluation::ChangesOf(const Choice& choice) const {
  std::vector<Change> changes;
  for (const Knob& knob : kKnobs) {
    const int32_t from = space_.own[knob.id];
    const int32_t to = choice[knob.id];
    if (from == to) continue;
    changes.push_back({knob.field, knob.text(space_.menu, from), knob.text(space_.menu, to)});
  }
  const int64_t ranks = DataParallelSize(choice);
  if (ranks != space_.data_parallel_size) {
    changes.push_back({"parallelism.data_parallel_size", absl::StrCat(space_.data_parallel_size),
                       absl::StrCat(ranks)});
  }
  return changes;
}

Candidate Evaluation::Fill(const Choice& choice, JobSpec job, Detail detail) const {
  const MemoryEstimate estimate = detail == Detail::kSummary
                                      ? ranking_.Summarize(choice)
                                      : ranking_.Estimate(choice, detail);
  Candidate candidate;
  candidate.job = std::move(job);
  candidate.changes = ChangesOf(choice);
  candidate.verdict = estimate.verdict;
  candidate.device = {.expected_bytes = estimate.usable_bytes - estimate.headroom.expected_bytes,
                      .bound_bytes = estimate.usable_bytes - estimate.headroom.bound_bytes};
  candidate.usable_bytes = estimate.usable_bytes;
  candidate.detail = estimate.detail;
  candidate.step_time = ranking_.TimeOf(choice);
  const auto price = prices_.find(space_.menu.gpus[static_cast<size_t>(choice[KnobId::kGpu])]);
  if (price != prices_.end()) {
    candidate.cost_per_billion_tokens =
        candidate.step_time.gpu_hours_per_billion_tokens * price->second;
  }
  return candidate;
}

Candidate Evaluation::CandidateOf(const Choice& choice, Detail detail) const {
  return Fill(choice, ranking_.JobOf(choice), detail);
}

Candidate Evaluation::Requested(const JobSpec& job, Detail detail) const {
  return Fill(space_.own, job, detail);
}

}  // namespace plimsoll
