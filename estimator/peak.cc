#include "estimator/peak.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "estimator/flight.h"

namespace plimsoll {
namespace {

constexpr int64_t kSegmentBytes = int64_t{2} << 20;  // cudaMalloc's granularity

// Forward, loss and backward: what micro-batches in flight hold counts in them.
constexpr size_t kFlightPhaseCount = 3;

// Bytes of states alive at one phase, and of these outside the compute stream.
struct Base {
  int64_t total = 0;
  OtherStreams others;

  void Grow(const State& state, int64_t bytes) {
    total = Add(total, bytes);
    others.Grow(state.stream, bytes);
  }
  void Grow(const Base& other) {
    total = Add(total, other.total);
    others.Grow(other.others);
  }
};

// States of a rank, by phase. Ranks with the same parameters have the same.
struct StateBases {
  std::array<Base, 2 * kPhaseCount> phases{};  // of the first step, then of a steady one
  Base full;                                   // gradients that an earlier micro-batch left

  // `state_bytes` is of each state.
  StateBases(const Parts& parts, absl::Span<const int64_t> state_bytes) {
    Base always;
    for (size_t i = 0; i < state_bytes.size(); ++i) {
      const State& state = parts.program.states[i];
      const int64_t bytes = state_bytes[i];
      if (state.grows_in_backward && Persists(state)) full.Grow(state, bytes);
      if (state.alive == kAlways) {
        always.Grow(state, bytes);
        continue;
      }
      for (unsigned left = state.alive; left != 0; left &= left - 1) {
        phases[static_cast<size_t>(std::countr_zero(left))].Grow(state, bytes);
      }
    }
    for (Base& base : phases) base.Grow(always);
  }

  const Base& At(bool steady, size_t phase) const {
    return phases[phase + (steady ? kPhaseCount : 0)];
  }
};

// A phase's states and demand together.
struct Need {
  int64_t total = -1;  // -1: no moment of it counts
  int64_t current = 0;
};

// One step, of the first micro-batch or of later ones: what each phase needs,
// and the most that any of them does in the compute stream and in others.
struct StepNeed {
  std::array<Need, kPhaseCount> phases;
  int64_t compute_bytes = 0;
  OtherStreams others;

  void Set(size_t phase, const Base& base, const Demand& demand) {
    phases[phase].current = Add(base.total, demand.current);
    if (demand.total < 0) return;
    phases[phase].total = Add(base.total, demand.total);
    compute_bytes =
        std::max(compute_bytes, Add(base.total - base.others.Sum(), demand.compute_bytes));
    OtherStreams both = base.others;
    both.Grow(demand.others);
    others.Raise(both);
  }
};

// Where no gradient grows in backward, later micro-batches find what the first
// did, with no more in flight.
bool LaterIsNoMore(const Parts& parts) { return parts.grown.empty(); }

// Of a stage, all that its peak follows from but for the older pairs in flight.
// Most stages of a pipeline have the same.
class StageKind {
 public:
  // `parts` and `stage` outlive the kind.
  StageKind(const Parts& parts, const Stage& stage)
      : parts_(parts), stage_(stage), sums_(SumStage(parts, stage, stage.embedding)) {
    for (const State& state : parts.program.states)
      state_bytes_.push_back(StateBytes(state, sums_));
    const StateBases bases(parts, state_bytes_);
    for (const bool later : {false, true}) {
      if (later && LaterIsNoMore(parts)) continue;
      const FlightMachine flight(parts_, stage_, sums_, !later);
      demands_[later] = {flight.Forward(), flight.Loss(), flight.Backward()};
      for (const bool steady : {false, true}) SetNeeds(bases, steady, later);
    }
  }

  bool Includes(const Stage& stage) const {
    const auto same = [](const InFlight& a, const InFlight& b) {
      return a.newest_layer_count == b.newest_layer_count &&
             a.newest_is_first == b.newest_is_first && a.newest_runs == b.newest_runs;
    };
    return stage.layer_count == stage_.layer_count && stage.embedding == stage_.embedding &&
           stage.head == stage_.head && stage.edge_bytes == stage_.edge_bytes &&
           same(stage.first, stage_.first) && same(stage.later, stage_.later);
  }

  const ParameterSums& sums() const { return sums_; }
  // Phases in which micro-batches are in flight.
  const StepNeed& need(bool steady, bool later) const { return needs_[steady][later]; }
  // The others: what their phases hold, and all of them in the compute stream and in others.
  const StepUsage& rest(bool steady) const { return rests_[steady]; }
  const StepNeed& rest_need(bool steady) const { return rest_needs_[steady]; }
  const Usage& UsageAt(bool steady, Phase phase, bool later);

 private:
  void SetNeeds(const StateBases& bases, bool steady, bool later);

  const Parts& parts_;
  const Stage& stage_;
  ParameterSums sums_;
  std::array<std::array<Demand, kFlightPhaseCount>, 2> demands_;  // of the first, of later ones
  std::array<std::array<StepNeed, 2>, 2> needs_;
  std::array<StepNeed, 2> rest_needs_;
  std::array<StepUsage, 2> rests_{};
  absl::InlinedVector<int64_t, 24> state_bytes_;
  // The usage that was asked for last, and when it is: alike stages ask for one.
  std::optional<Usage> usage_;
  bool steady_ = false;
  bool later_ = false;
  Phase phase_ = Phase::kForward;
};

void StageKind::SetNeeds(const StateBases& bases, bool steady, bool later) {
  for (size_t phase = 0; phase < kFlightPhaseCount; ++phase) {
    Base base = bases.At(steady, phase);
    if (later) base.Grow(bases.full);
    needs_[steady][later].Set(phase, base, demands_[later][phase]);
  }
  for (size_t phase = kFlightPhaseCount; phase < kPhaseCount && !later; ++phase) {
    const Base& base = bases.At(steady, phase);
    rest_needs_[steady].Set(phase, base, {.total = 0});
    rests_[steady][phase] = {.peak = base.total, .current = base.total};
  }
}

// States and demand of a phase, told by role.
const Usage& StageKind::UsageAt(bool steady, Phase phase, bool later) {
  if (usage_.has_value() && steady == steady_ && phase == phase_ && later == later_) return *usage_;
  steady_ = steady;
  phase_ = phase;
  later_ = later;
  Usage& usage = usage_.emplace();
  for (size_t i = 0; i < state_bytes_.size(); ++i) {
    const State& state = parts_.program.states[i];
    const bool left = later && state.grows_in_backward && Persists(state);
    const int times = ((state.alive & Bit(phase, !steady)) != 0 ? 1 : 0) + (left ? 1 : 0);
    if (times > 0) usage.Grow(state.role, Multiply(times, state_bytes_[i]));
  }
  const auto index = static_cast<size_t>(phase);
  if (index < kFlightPhaseCount) {
    FlightMachine(parts_, stage_, sums_, !later).Grow(demands_[later][index], usage);
  }
  return usage;
}

// Both steps of one stage.
class StageMachine {
 public:
  StageMachine(const Parts& parts, const Stage& stage, StageKind& kind, StagePeak& peak)
      : parts_(parts), stage_(stage), kind_(kind), peak_(peak) {
    others_[0] = KeptByOthers(parts, stage, stage.first);
    if (!LaterIsNoMore(parts)) others_[1] = KeptByOthers(parts, stage, stage.later);
  }

  void Find();

 private:
  const InFlight& Flight(bool later) const { return later ? stage_.later : stage_.first; }
  void Consider(bool steady, size_t phase, bool later, const Need& need, int64_t others);
  void FindStep(bool steady);

  const Parts& parts_;
  const Stage& stage_;
  StageKind& kind_;
  StagePeak& peak_;
  std::array<Usage, 2> others_;  // kept by older pairs: of the first micro-batch, of later ones
  std::array<std::array<bool, kPhaseCount>, 2> later_{};  // whether a later one has the peak
  int64_t compute_peak_ = 0;
  OtherStreams other_peaks_;
};

// Takes what a phase needs and what others keep as a candidate for its peak.
void StageMachine::Consider(bool steady, size_t phase, bool later, const Need& need,
                            int64_t others) {
  PhaseUsage& usage = peak_.steps[steady][phase];
  usage.current = std::max(usage.current, Add(need.current, others));
  if (need.total < 0) return;
  const int64_t total = Add(need.total, others);
  if (total <= usage.peak) return;
  usage.peak = total;
  later_[steady][phase] = later;
}

void StageMachine::FindStep(bool steady) {
  const auto take_streams = [this](const StepNeed& need, int64_t others) {
    compute_peak_ = std::max(compute_peak_, Add(need.compute_bytes, others));
    other_peaks_.Raise(need.others);
  };
  peak_.steps[steady] = kind_.rest(steady);
  for (const bool later : {false, true}) {
    if (Flight(later).count < 1 || (later && LaterIsNoMore(parts_))) continue;
    const StepNeed& need = kind_.need(steady, later);
    for (size_t phase = 0; phase < kFlightPhaseCount; ++phase) {
      Consider(steady, phase, later, need.phases[phase], others_[later].total);
    }
    take_streams(need, others_[later].total);
  }
  take_streams(kind_.rest_need(steady), 0);
  const int64_t reserved = RoundUp(Add(compute_peak_, other_peaks_.Sum()), kSegmentBytes);
  for (PhaseUsage& usage : peak_.steps[steady]) usage.reserved = reserved;
}

void StageMachine::Find() {
  peak_.sums = kind_.sums();
  int64_t most = 0;
  for (const bool steady : {false, true}) {
    FindStep(steady);
    for (size_t phase = 0; phase < kPhaseCount; ++phase) {
      if (peak_.steps[steady][phase].peak <= most) continue;
      most = peak_.steps[steady][phase].peak;
      peak_.steady = steady;
      peak_.phase = static_cast<Phase>(phase);
    }
  }
  const auto phase = static_cast<size_t>(peak_.phase);
  const bool later = later_[peak_.steady][phase];
  peak_.usage = kind_.UsageAt(peak_.steady, peak_.phase, later);
  if (phase < kFlightPhaseCount) {
    peak_.usage.Grow(others_[later]);
  }
}

}  // namespace

int64_t StagePeak::Reserved() const {
  int64_t most = 0;
  for (const auto& phases : steps) {
    for (const PhaseUsage& usage : phases) most = std::max(most, usage.reserved);
  }
  return most;
}

BlockRuns RunBlocks(const Program& program, std::pmr::memory_resource* memory) {
  BlockRuns runs(memory);
  runs.reserve(program.blocks.size());
  for (const Block& block : program.blocks) {
    runs.push_back(Run(block, program.weight_gradient, program.gradient_dtype));
  }
  return runs;
}

Stage WholeStage(int64_t layer_count) {
  return {.layer_count = layer_count,
          .embedding = true,
          .head = true,
          .first = {.count = 1, .newest_layer_count = layer_count}};
}

std::pmr::vector<StagePeak> FindPeaks(const Program& program, const BlockRuns& runs,
                                      std::pmr::memory_resource* memory) {
  const Parts parts(program, runs, memory);
  std::pmr::vector<StagePeak> peaks(program.stages.size(), memory);
  std::optional<StageKind> kind;
  for (size_t i = 0; i < peaks.size(); ++i) {
    const Stage& stage = program.stages[i];
    if (!kind.has_value() || !kind->Includes(stage)) kind.emplace(parts, stage);
    StageMachine(parts, stage, *kind, peaks[i]).Find();
  }
  return peaks;
}

}  // namespace plimsoll
