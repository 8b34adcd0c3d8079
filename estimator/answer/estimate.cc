#include "estimator/answer/estimate.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory_resource>
#include <utility>

#include "absl/strings/str_cat.h"
#include "estimator/answer/explain.h"
#include "estimator/answer/gauges.h"
#include "estimator/answer/margins.h"
#include "estimator/answer/profiled.h"
#include "estimator/base/units.h"
#include "estimator/passes/pass.h"
#include "estimator/program/lower.h"
#include "estimator/replay/checkpoint_leftover.h"
#include "estimator/replay/rank_replay.h"
#include "estimator/replay/replay_cost.h"
#include "estimator/step/peak.h"

namespace plimsoll {
namespace {

// Rows of a program and what is found of them, of a job with few stages: more is allocated.
constexpr size_t kScratchBytes = size_t{48} << 10;

void FillMoments(const StagePeak& peak, RankMemory& rank) {
  for (const bool steady : {false, true}) {
    for (size_t phase = 0; phase < kPhaseCount; ++phase) {
      const PhaseUsage& usage = peak.steps[steady ? 1 : 0][phase];
      Moment& moment = rank.moments.emplace_back();
      moment.phase = static_cast<Phase>(phase);
      moment.first_step = !steady;
      moment.peak_allocated_bytes = usage.peak;
      moment.current_allocated_bytes = usage.current;
      moment.peak_reserved_bytes = usage.reserved;
    }
  }
}

// What the closed form answers for.
struct Asked {
  const Job& job;
  const Program& program;
  const Margins& margins;
  bool replayed_later;  // a search that will replay what it finds
};

// Bounds of the closed form. What is replayed later goes by the shares alone.
GaugeBytes BoundsOf(const Asked& asked, const GaugeBytes& expected, const StagePeak& peak) {
  const auto& [job, program, margins, replayed_later] = asked;
  const int64_t outside = program.outside.Sum();
  const int64_t left = Add(LeftByLoading(job, program, peak.sums), program.uneven_bytes);
  if (replayed_later) return BoundsOf(expected, {}, margins, outside, left);
  const int64_t most = peak.MostReserved();
  GaugeBytes bounds = BoundsOf(expected, {0, most, 0}, margins, outside, left);
  const int64_t room = Add(Above(Add(most, left), margins.capacity), outside);
  if (room <= UsableBytes(job, program.outside)) EndAtGpu(job, program.outside, bounds);
  return bounds;
}

void FillRank(const Asked& asked, const Stage& stage, const StagePeak& peak, RankMemory& rank) {
  const Job& job = asked.job;
  const Program& program = asked.program;
  rank.gpu_count = job.gpu_count / job.pipeline_parallel_size;
  rank.layer_count = stage.layer_count;
  rank.in_flight_count = stage.order.MostInFlight();
  rank.parameter_count = peak.sums.All();
  const int64_t outside = program.outside.Sum();
  const int64_t reserved = peak.Reserved();
  const GaugeBytes expected{peak.usage.total, reserved, Add(reserved, outside)};
  const GaugeBytes bounds = BoundsOf(asked, expected, peak);
  SetGauges(expected, bounds, rank);
  rank.peak_phase = peak.phase;
  FillBreakdown(program.outside, peak.usage.roles, reserved - expected.allocated, rank);
  FillMoments(peak, rank);
  for (const State& state : program.host_states) {
    rank.host_bytes = Add(rank.host_bytes, StateBytes(state, peak.sums));
  }
}

// Moments of the timeline, on the job's own GPU where it runs there.
void FillMoments(const RankReplay& replay, RankMemory& rank) {
  const Replayed& shown = replay.shown();
  size_t i = 0;
  for (const bool steady : {false, true}) {
    for (size_t phase = 0; phase < kPhaseCount; ++phase) {
      const ReplayedPhase& figures = shown.steps[steady ? 1 : 0][phase];
      Moment& moment = rank.moments[i++];
      moment.peak_allocated_bytes = figures.peak_allocated;
      moment.current_allocated_bytes = figures.current_allocated;
      moment.peak_reserved_bytes = figures.peak_reserved;
      moment.current_reserved_bytes = figures.current_reserved;
      moment.uncapped_peak_reserved_bytes =
          replay.uncapped.steps[steady ? 1 : 0][phase].peak_reserved;
    }
  }
}

void BoundGauges(const Job& job, const Program& program, const Margins& margins,
                 const RankReplay& replay, RankMemory& rank) {
  const Replayed& shown = replay.shown();
  const int64_t outside = program.outside.Sum();
  const int64_t uncapped = replay.uncapped.peak_reserved;
  GaugeBytes bounds = BoundsOf({shown.peak_allocated, uncapped, Add(uncapped, outside)},
                               {replay.lagging_allocated, replay.lagging_reserved, 0}, margins,
                               outside, Add(replay.left_by_loading, program.uneven_bytes));
  if (replay.endures) EndAtGpu(job, program.outside, bounds);
  SetGauges({shown.peak_allocated, shown.peak_reserved, Add(shown.peak_reserved, outside)}, bounds,
            rank);
}

// Puts what the replay says in the place of what the closed form said.
void Refine(const Job& job, const Program& program, const Margins& margins,
            const RankReplay& replay, RankMemory& rank) {
  const Replayed& shown = replay.shown();
  BoundGauges(job, program, margins, replay, rank);
  int64_t tensors = 0;
  for (const int64_t bytes : replay.roles) tensors = Add(tensors, bytes);
  FillBreakdown(program.outside, replay.roles, shown.peak_reserved - tensors, rank);
  int64_t most = 0;
  for (const auto& steps : shown.steps) {
    for (size_t phase = 0; phase < kPhaseCount; ++phase) {
      if (steps[phase].peak_allocated <= most) continue;
      most = steps[phase].peak_allocated;
      rank.peak_phase = static_cast<Phase>(phase);
    }
  }
  FillMoments(replay, rank);
}

// What the reader should know of a replay: that the cache was given back, that
// memory is expected to wait for the GPU, that a checkpoint may stay.
void Warn(const RankReplay& replay, size_t stage, std::vector<Warning>& warnings) {
  if (replay.capped.completed && replay.capped.retries > 0) {
    warnings.push_back({"cache-flushed", "job.cluster",
                        absl::StrCat("on stage ", stage, " the allocator fills the GPU and gives ",
                                     "back its cache, which costs time: with room it would hold ",
                                     FormatGib(replay.uncapped.peak_reserved))});
  }
  if (replay.lag_ticks > 0 && stage == 0) {
    warnings.push_back({"gpu-lags", "job.runtime.versions",
                        "memory that collectives used is expected to wait for a GPU that is a "
                        "launch queue behind; TORCH_NCCL_AVOID_RECORD_STREAMS=1 ends that"});
  }
  if (replay.left_by_loading > 0 && stage == 0) {
    warnings.push_back({"loaded-twice", "job.training.resumed_from_checkpoint",
                        absl::StrCat("what was loaded of the optimizer's states may stay until ",
                                     "Python collects garbage, ", FormatGib(replay.left_by_loading),
                                     " in the upper bound; gc.collect() after loading frees it, "
                                     "torch 2.11 always does")});
  }
}

// Parameters of the model and of its adapters, which each rank has whole, and those of them that
// one token passes.
void FillCounts(const Job& job, const ParameterSums& of_rank, MemoryEstimate& estimate) {
  const int64_t adapters = job.adapter.has_value() ? of_rank.parameters : 0;
  estimate.parameter_count = Add(CountParameters(*job.model), adapters);
  estimate.active_parameter_count = job.model->experts.Any()
                                        ? Add(CountActiveParameters(*job.model), adapters)
                                        : estimate.parameter_count;
}

// Replays every stage. Returns the replay of the limiting rank; none where that costs
// too much, is left, or a timeline is too long.
std::optional<RankReplay> ReplayLimiting(const Job& job, const Program& program,
                                         const Margins& margins, const EstimateOptions& options,
                                         MemoryEstimate& estimate) {
  const Tapes tapes(program);
  const int64_t cost = ReplayCost(program, tapes);
  if (cost > kMaxReplayEvents) return std::nullopt;
  estimate.replay_left = cost > options.max_replay_events;
  if (estimate.replay_left) return std::nullopt;
  const std::vector<RankReplay> replays =
      ReplayRanks(job, program, tapes, {margins.capacity, options.interrupt});
  estimate.interrupted = IsInterrupted(options.interrupt);
  if (estimate.interrupted || replays.empty()) return std::nullopt;
  for (size_t stage = 0; stage < replays.size(); ++stage) {
    Refine(job, program, margins, replays[stage], estimate.ranks[stage]);
    Warn(replays[stage], stage, estimate.warnings);
  }
  estimate.replayed_event_count = cost;
  return replays[LimitingRank(estimate.ranks)];
}

void WarnOfRisk(MemoryEstimate& estimate) {
  if (estimate.detail == Detail::kReplay || estimate.verdict != Verdict::kAtRisk) return;
  estimate.warnings.push_back({"not-replayed", "detail",
                               "tensors fit; whether all that the allocator holds beside them does "
                               "follows from the order of allocations, which only a replay knows"});
}

void WarnOfHost(const Job& job, MemoryEstimate& estimate) {
  const std::pair<bool, const char*> offloads[] = {
      {job.offload_optimizer, "job.runtime.offload_optimizer"},
      {job.offload_parameters, "job.runtime.offload_parameters"},
      {job.offload_activations, "job.runtime.offload_activations"}};
  const auto* const first = std::find_if(std::begin(offloads), std::end(offloads),
                                         [](const auto& offload) { return offload.first; });
  if (first == std::end(offloads)) return;
  int64_t most = 0;
  for (const RankMemory& rank : estimate.ranks) most = std::max(most, rank.host_bytes);
  const int64_t gpus = std::min(job.gpus_per_node, job.gpu_count);
  estimate.warnings.push_back(
      {"host-memory", first->second,
       absl::StrCat("a node's own memory holds ", FormatGib(Multiply(gpus, most)), " for its ",
                    gpus, " GPUs, which is not checked")});
}

void WarnOfAllocator(const Job& job, MemoryEstimate& estimate) {
  if (estimate.detail == Detail::kReplay || job.allocator == AllocatorSettings{}) return;
  estimate.warnings.push_back({"allocator-not-replayed", "job.runtime.allocator",
                               "moves no expected byte of detail summary, which knows no "
                               "fragmentation; detail replay follows it"});
}

struct Traced {
  Program program;
  std::vector<TraceEntry> trace;
};

Traced RunPasses(const ValidJob& job, bool trace, std::pmr::memory_resource* memory) {
  Traced traced{Lower(job, memory), {}};
  const Stage whole = WholeStage(job->model->layer_count);
  if (trace) traced.trace.push_back(Measure("lower", traced.program, whole));
  for (const Pass& pass : kPasses) {
    traced.program = pass.apply(job, std::move(traced.program));
    if (!trace) continue;
    const auto& stages = traced.program.stages;
    traced.trace.push_back(
        Measure(pass.name(), traced.program, stages.empty() ? whole : stages.front()));
  }
  return traced;
}

// A run shows its peaks alone.
void RefuseUnseen(const EstimateOptions& options, Violations& violations) {
  const std::pair<const char*, bool> asked[] = {{"include_trace", options.trace},
                                                {"include_ledger", options.ledger},
                                                {"include_timeline", options.timeline}};
  for (const auto& [field, set] : asked) {
    if (!set) continue;
    violations.push_back({field,
                          "true",
                          "must be unset with job.model.profiled, which has a run's peaks alone; "
                          "plimsoll measure lists what is alive there",
                          ViolationCode::kConflict,
                          {"model.profiled"}});
  }
}

// What is wrong with the request, options included.
Violations FindViolations(const JobSpec& spec, const EstimateOptions& options,
                          std::variant<ValidJob, Violations>& validated) {
  Violations violations;
  if (auto* found = std::get_if<Violations>(&validated)) violations = std::move(*found);
  if (std::holds_alternative<ProfiledSpec>(spec.model.source)) {
    RefuseUnseen(options, violations);
    return violations;
  }
  const bool summary =
      spec.detail.has_value() ? *spec.detail == "summary" : options.detail == Detail::kSummary;
  if (options.timeline && summary) {
    violations.push_back(
        {"include_timeline", "true", "needs detail replay", ViolationCode::kConflict});
  }
  return violations;
}

Violations TooLargeViolations() {
  return {{"job", "2^60 bytes or more on one GPU", "must need less than 2^60 bytes",
           ViolationCode::kTooLarge}};
}

MemoryEstimate Interrupted() {
  MemoryEstimate estimate;
  estimate.verdict = Verdict::kDoesNotFit;
  estimate.interrupted = true;
  return estimate;
}

// Of a run nothing is made, so nothing is left to do but to say it.
std::variant<MemoryEstimate, Violations> SayProfiled(ValidJob& job, const Catalog& catalog) {
  MemoryEstimate estimate = EstimateProfiled(*job, catalog);
  if (TooLarge(estimate)) return TooLargeViolations();
  estimate.assumptions = job.TakeAssumptions();
  return estimate;
}

}  // namespace

std::variant<MemoryEstimate, Violations> EstimateMemory(const JobSpec& spec, const Catalog& catalog,
                                                        const EstimateOptions& options) {
  std::variant<ValidJob, Violations> validated = Validate(spec, catalog);
  Violations violations = FindViolations(spec, options, validated);
  if (!violations.empty()) return violations;
  auto& job = std::get<ValidJob>(validated);
  if (job->profiled.has_value()) return SayProfiled(job, catalog);
  std::array<std::byte, kScratchBytes> scratch;
  std::pmr::monotonic_buffer_resource memory(scratch.data(), scratch.size());
  Traced traced = RunPasses(job, options.trace, &memory);
  const Program& program = traced.program;
  const BlockRuns runs = RunBlocks(program, &memory);

  MemoryEstimate estimate;
  const Margins margins = MarginsOf(catalog.calibration, *job, options.calibrated_as);
  const Asked asked{*job, program, margins, options.calibrated_as == Detail::kReplay};
  const std::pmr::vector<StagePeak> peaks = FindPeaks(program, runs, &memory, options.interrupt);
  if (IsInterrupted(options.interrupt)) return Interrupted();
  estimate.ranks.reserve(program.stages.size());
  for (size_t stage = 0; stage < program.stages.size(); ++stage) {
    RankMemory& rank = estimate.ranks.emplace_back();
    rank.pipeline_stage = static_cast<int64_t>(stage);
    FillRank(asked, program.stages[stage], peaks[stage], rank);
  }
  if (TooLarge(estimate)) return TooLargeViolations();
  estimate.warnings = job->warnings;
  std::optional<RankReplay> limiting;
  if (job->detail.value_or(options.detail) == Detail::kReplay) {
    const Margins replayed = MarginsOf(catalog.calibration, *job, Detail::kReplay);
    limiting = ReplayLimiting(*job, program, replayed, options, estimate);
    if (estimate.replay_left) return estimate;
    if (estimate.interrupted) return Interrupted();
    if (limiting.has_value()) {
      estimate.detail = Detail::kReplay;
    } else {
      estimate.warnings.push_back(
          {"timeline-too-long", "detail",
           absl::StrCat("the step has too many allocations to replay, more than ", kMaxReplayEvents,
                        " or so: the figures are the summary's")});
    }
  }
  WarnOfAllocator(*job, estimate);
  WarnOfHost(*job, estimate);
  SayCalibrated(margins, estimate);
  FillVerdict(*job, program.outside, estimate);
  WarnOfRisk(estimate);
  FillCounts(*job, peaks.front().sums, estimate);
  estimate.assumptions = job.TakeAssumptions();
  estimate.calibration_id = catalog.calibration.id;
  estimate.trace = std::move(traced.trace);
  const auto rank = static_cast<size_t>(estimate.limiting_rank);
  if (options.timeline && limiting.has_value()) {
    estimate.curve = DrawCurve(*job, program, program.stages[rank], *limiting);
  }
  if (options.ledger) {
    estimate.ledger = ExplainLedger(program, program.stages[rank], peaks[rank]);
  }
  return estimate;
}

}  // namespace plimsoll
