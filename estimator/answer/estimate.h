// The whole flow: a job in, the memory of each of its GPUs out.
#ifndef PLIMSOLL_ESTIMATOR_ANSWER_ESTIMATE_H_
#define PLIMSOLL_ESTIMATOR_ANSWER_ESTIMATE_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "estimator/answer/memory_curve.h"
#include "estimator/base/interrupt.h"
#include "estimator/base/notice.h"
#include "estimator/base/role.h"
#include "estimator/base/violation.h"
#include "estimator/catalog/catalog.h"
#include "estimator/job/job.h"

namespace plimsoll {

inline constexpr absl::string_view kEstimatorVersion = "0.1.0";

// One gauge. Units: bytes.
struct Gauge {
  int64_t expected_bytes = 0;
  int64_t bound_bytes = 0;
};

// Memory at one phase of a step. Units: bytes.
struct Moment {
  Phase phase = Phase::kForward;
  bool first_step = false;
  int64_t peak_allocated_bytes = 0;
  int64_t current_allocated_bytes = 0;
  int64_t peak_reserved_bytes = 0;
  int64_t current_reserved_bytes = 0;        // replay alone, as the next
  int64_t uncapped_peak_reserved_bytes = 0;  // as if the GPU had no end
};

// One class of alike GPUs.
struct RankMemory {
  RankMemory() {}  // an aggregate's `{}` would write zeros where moments are to be

  int64_t pipeline_stage = 0;
  int64_t gpu_count = 0;
  int64_t layer_count = 0;
  int64_t in_flight_count = 0;
  int64_t parameter_count = 0;
  Gauge allocated;
  Gauge reserved;
  Gauge device;
  Phase peak_phase = Phase::kForward;
  RoleBytes breakdown{};  // adds up to device.expected_bytes
  absl::InlinedVector<Moment, 2 * kPhaseCount> moments;
  int64_t host_bytes = 0;  // of what is offloaded
};

// Bytes on the most loaded rank after one pass.
struct TraceEntry {
  absl::string_view pass;
  int64_t state_bytes = 0;
  int64_t activation_bytes = 0;  // kept by one micro-batch
};

// One kind of tensor on the most loaded rank at its peak.
struct LedgerEntry {
  std::string block;
  std::string tensor;
  Role role = Role::kActivation;
  DType dtype = DType::kBf16;
  std::string shape;    // in symbols
  std::string extents;  // in numbers
  int64_t bytes = 0;    // of one
  int64_t count = 0;    // alive at the peak
  std::vector<absl::string_view> shrunk_by;
  std::string lifetime;
};

// The same verdicts, in the same order, as plimsoll.v1.Verdict. Where the order of allocations
// decides, the closed form says kAtRisk.
enum class Verdict : uint8_t { kFits, kAtRisk, kDoesNotFit };

struct MemoryEstimate {
  Verdict verdict = Verdict::kFits;
  int64_t limiting_rank = 0;  // index into ranks
  int64_t usable_bytes = 0;
  Gauge headroom;  // may be negative
  std::vector<RankMemory> ranks;
  int64_t parameter_count = 0;
  int64_t active_parameter_count = 0;  // that one token passes
  std::vector<Assumption> assumptions;
  std::vector<Warning> warnings;
  Detail detail = Detail::kSummary;
  bool profiled = false;             // the figures are those of a run: no detail made them
  int64_t replayed_event_count = 0;  // nearly (ReplayCost); 0: in closed form
  bool replay_left = false;          // it is dearer than the options' max_replay_events
  bool interrupted = false;          // nothing else is known, and the verdict is never kFits
  absl::string_view calibration_id;  // into the catalog
  absl::string_view calibrated;      // what upper bounds rest on: none, measured or phantom
  std::vector<TraceEntry> trace;     // when asked for
  std::vector<LedgerEntry> ledger;   // when asked for
  std::optional<MemoryCurve> curve;  // of the limiting rank, when asked for
};

// What the answer carries beside its figures.
struct EstimateOptions {
  bool trace = false;
  bool ledger = false;
  bool timeline = false;             // of a replay alone
  Detail detail = Detail::kSummary;  // of a job that does not say
  // The dearest replay that is made, in events (ReplayCost); of a dearer one the answer
  // only says so. No more than kMaxReplayEvents is replayed in any case.
  int64_t max_replay_events = std::numeric_limits<int64_t>::max();
  // Whose calibration the bounds of a summary are from. A search asks for replay's, of
  // shares alone: it replays what it recommends.
  Detail calibrated_as = Detail::kSummary;
  Interrupt interrupt{};
};

// Estimates the peak memory of each GPU of a job, or says everything that is
// wrong with it.
//
// Errors: violations of Validate; "include_timeline: true; needs detail replay"; and
//         "job.model: <bytes>; must total less than 2^60 bytes".
// Source: estimator/README.md.
std::variant<MemoryEstimate, Violations> EstimateMemory(const JobSpec& spec, const Catalog& catalog,
                                                        const EstimateOptions& options);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_ANSWER_ESTIMATE_H_
