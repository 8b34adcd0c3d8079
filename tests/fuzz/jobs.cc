// The choices that make a legal job: one byte each.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "server/catalog/catalog.h"
#include "server/convert/convert.h"
#include "server/convert/convert_job.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/service.h"
#include "tests/testing/both_peaks.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

// The input's bytes, then numbers that rise.
class Choices {
 public:
  explicit Choices(absl::string_view bytes) : bytes_(bytes) {}

  uint64_t Next() {
    const size_t at = at_++;
    return at < bytes_.size() ? static_cast<unsigned char>(bytes_[at]) : at - bytes_.size();
  }

 private:
  const absl::string_view bytes_;
  size_t at_ = 0;
};

JobSpec ChooseJob(Choices choices) {
  constexpr double kRisks[] = {0.0001, 0.01, 0.1, 0.5};
  JobSpec job = RandomJob([&choices] { return choices.Next(); });
  job.risk = kRisks[choices.Next() % 4];
  job.cluster.reserved_for_others_bytes = static_cast<int64_t>(choices.Next() % 8) << 30;
  job.training.resumed_from_checkpoint = choices.Next() % 2 == 0;
  job.runtime.allocator.expandable_segments = choices.Next() % 2 == 0;
  return job;
}

MemoryEstimate Estimated(JobSpec job, absl::string_view detail) {
  job.detail = std::string(detail);
  auto result = EstimateMemory(job, LoadCatalog(), {.trace = true, .ledger = true});
  if (const auto* const violations = std::get_if<Violations>(&result)) {
    Promise(false, "a legal job is answered: " + ToText(*violations));
  }
  return std::get<MemoryEstimate>(std::move(result));
}

void CheckRank(const RankMemory& rank) {
  for (const Gauge& gauge : {rank.allocated, rank.reserved, rank.device}) {
    Promise(gauge.expected_bytes >= 0, "no byte figure is negative");
    Promise(gauge.bound_bytes >= gauge.expected_bytes, "a bound is at least what is expected");
  }
  Promise(rank.allocated.expected_bytes <= rank.reserved.expected_bytes &&
              rank.reserved.expected_bytes <= rank.device.expected_bytes,
          "a gauge holds what the one before does");
  for (const int64_t bytes : rank.breakdown) Promise(bytes >= 0, "no role holds less than nothing");
  Promise(std::accumulate(rank.breakdown.begin(), rank.breakdown.end(), int64_t{0}) ==
              rank.device.expected_bytes,
          "the breakdown adds up");
  for (const Moment& moment : rank.moments) {
    Promise(0 <= moment.current_allocated_bytes && 0 <= moment.current_reserved_bytes,
            "no moment holds less than nothing");
    Promise(moment.peak_allocated_bytes <= rank.allocated.expected_bytes,
            "no moment is above the peak");
  }
}

void CheckEntries(const MemoryEstimate& estimate) {
  for (const LedgerEntry& entry : estimate.ledger) {
    Promise(entry.bytes >= 0 && entry.count >= 0, "no row of the ledger is negative");
  }
  for (const TraceEntry& entry : estimate.trace) {
    Promise(entry.state_bytes >= 0 && entry.activation_bytes >= 0,
            "no pass leaves less than nothing");
  }
}

void Check(const MemoryEstimate& estimate) {
  int64_t bound_bytes = 0;
  for (const RankMemory& rank : estimate.ranks) {
    CheckRank(rank);
    bound_bytes = std::max(bound_bytes, rank.device.bound_bytes);
  }
  const Gauge& device = estimate.ranks[static_cast<size_t>(estimate.limiting_rank)].device;
  Promise(estimate.headroom.expected_bytes == estimate.usable_bytes - device.expected_bytes &&
              estimate.headroom.bound_bytes == estimate.usable_bytes - bound_bytes,
          "the headroom is what is left");
  CheckEntries(estimate);
}

void CompareDetails(const JobSpec& job) {
  for (const BothPeaks& peaks : PeaksBothWays(job)) {
    Promise(peaks.summed == peaks.played,
            absl::StrCat(*job.runtime.framework, ": a timeline holds what the closed form does, ",
                         peaks.summed, " bytes, and not ", peaks.played));
  }
}

// What the service answers is what the estimator does.
void CompareService(const JobSpec& job, const MemoryEstimate& estimate) {
  v1::EstimateMemoryRequest request;
  *request.mutable_job() = WithFieldsOf(job, v1::Job());
  request.set_risk(*job.risk);
  request.set_detail("summary");
  request.set_include_trace(true);
  request.set_include_ledger(true);
  WireWriter answer, expected;
  const grpc::Status status = Service().planner.EstimateMemory(request, {}, &answer);
  Promise(status.ok(), "the service answers a legal job: " + status.error_message());
  Encode(estimate, &expected);
  Promise(answer.bytes() == expected.bytes(), "the service answers as the estimator does");
}

}  // namespace

void FuzzJobs(absl::string_view input) {
  const JobSpec job = ChooseJob(Choices(input));
  const MemoryEstimate closed_form = Estimated(job, "summary");
  Check(closed_form);
  CompareService(job, closed_form);
  Check(Estimated(job, "replay"));
  CompareDetails(job);
}

}  // namespace plimsoll
