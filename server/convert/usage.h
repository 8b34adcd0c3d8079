// A report of what a job used, once it is checked: words, figures and the labels
// that it is counted under.
#ifndef PLIMSOLL_SERVER_CONVERT_USAGE_H_
#define PLIMSOLL_SERVER_CONVERT_USAGE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "estimator/answer/estimate.h"
#include "estimator/base/vocabulary.h"
#include "estimator/job/job.h"

namespace plimsoll {

// How a job ended.
enum class UsageOutcome : uint8_t { kFinished, kOutOfMemory, kOther };
inline constexpr Word<UsageOutcome> kUsageOutcomes[] = {
    {"finished", UsageOutcome::kFinished},
    {"out-of-memory", UsageOutcome::kOutOfMemory},
    {"other", UsageOutcome::kOther},
};

// What was measured.
enum class UsageGauge : uint8_t { kAllocated, kReserved, kDevice };
inline constexpr Word<UsageGauge> kUsageGauges[] = {
    {"allocated", UsageGauge::kAllocated},
    {"reserved", UsageGauge::kReserved},
    {"device", UsageGauge::kDevice},
};

// How it was read. The value is the word itself.
inline constexpr Word<absl::string_view> kUsageSources[] = {
    {"dcgm", "dcgm"},   {"nvidia-smi", "nvidia-smi"}, {"torch", "torch"},
    {"slurm", "slurm"}, {"other", "other"},
};

// A verdict's name in metrics and logs.
inline constexpr Word<Verdict> kVerdictNames[] = {
    {"fits", Verdict::kFits},
    {"at-risk", Verdict::kAtRisk},
    {"does-not-fit", Verdict::kDoesNotFit},
};

// Labels of a job: each from a closed set, so that series are bounded.
//   framework  a word of `runtime.framework`, or "unknown"
//   gpu        an id of the catalog, "other" for explicit memory, or "unknown"
//   strategy   "zero1" to "zero3", "tp", "pp", joined by "-"; "ddp" where the job
//              is only replicated; "none" on one GPU; or "unknown"
struct UsageLabels {
  std::string framework = "unknown";
  std::string gpu = "unknown";
  std::string strategy = "unknown";
};

// Returns the labels of a job as it is resolved.
UsageLabels LabelsOf(const ValidJob& job);

struct UsageReport {
  std::string job_id;  // for the log alone
  std::string outcome_name, gauge_name, source_name;
  std::string estimator_version, calibration_id, detail;
  UsageOutcome outcome = UsageOutcome::kOther;
  Verdict verdict = Verdict::kFits;
  Gauge predicted;           // of the gauge that was measured
  int64_t actual_bytes = 0;  // of the fullest GPU; 0: not measured
  int64_t gpu_count = 0;     // that were measured
  UsageLabels labels;

  // 0 where nothing was measured.
  double ActualPerPredicted() const {
    return static_cast<double>(actual_bytes) / static_cast<double>(predicted.expected_bytes);
  }
  bool IsWithinBound() const { return actual_bytes > 0 && actual_bytes <= predicted.bound_bytes; }
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_CONVERT_USAGE_H_
