#include "estimator/step/peak.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "estimator/step/in_flight.h"
#include "estimator/step/pair_demand.h"

namespace plimsoll {
namespace {

constexpr int64_t kSegmentBytes = int64_t{2} << 20;  // cudaMalloc's granularity
// Of each stream, segments of small and of large blocks that are not full.
// Source: c10/cuda/CUDACachingAllocator.cpp, kSmallBuffer and kLargeBuffer.
constexpr int64_t kPoolBytes = int64_t{22} << 20;
// In forward and in backward: the second finds the first one's hole taken.
constexpr int64_t kTunings = 2;

// Forward, loss and backward: what micro-batches in flight hold counts in them.
constexpr size_t kFlightPhaseCount = 3;

// States of a rank, by phase. Ranks with the same parameters have the same.
struct StateBases {
  std::array<Base, 2 * kPhaseCount> phases{};  // of the first step, then of a steady one
  std::array<int64_t, 2> until_backward{};     // of these, freed before the loss runs backward
  // Of those that are never freed again: at each phase of the first step, and in later ones.
  std::array<int64_t, kPhaseCount + 1> staying{};

  // `state_bytes` is of each state.
  StateBases(const Parts& parts, absl::Span<const int64_t> state_bytes) {
    Base always;
    for (size_t i = 0; i < state_bytes.size(); ++i) {
      const State& state = parts.program.states[i];
      const int64_t bytes = state_bytes[i];
      if (bytes == 0) continue;
      const size_t stays_from = StaysFrom(state);
      if (stays_from < staying.size()) staying[stays_from] = Add(staying[stays_from], bytes);
      if (state.alive == kAlways) {
        always.Grow(state, bytes);
        continue;
      }
      for (const bool steady : {false, true}) {
        const bool there = (state.alive & Bit(Phase::kLoss, !steady)) != 0;
        if (!state.until_backward || !there) continue;
        until_backward[steady] = Add(until_backward[steady], bytes);
      }
      for (unsigned left = state.alive; left != 0; left &= left - 1) {
        phases[static_cast<size_t>(std::countr_zero(left))].Grow(state, bytes);
      }
    }
    for (Base& base : phases) base.Grow(always);
    for (size_t i = 1; i < staying.size(); ++i) staying[i] = Add(staying[i], staying[i - 1]);
  }

  const Base& At(bool steady, size_t phase) const {
    return phases[phase + (steady ? kPhaseCount : 0)];
  }
  Base At(bool steady, Phase phase, bool backward) const {
    Base base = At(steady, static_cast<size_t>(phase));
    const bool gone = backward && phase == Phase::kLoss && base.total != kSaturated;
    if (gone) base.total -= until_backward[steady];
    return base;
  }

  // The phase from which on it is alive; one beyond all of the first step's where it is freed
  // in later ones.
  static size_t StaysFrom(const State& state) {
    return static_cast<size_t>(std::bit_width(static_cast<unsigned>(kAlways & ~state.alive)));
  }
};

// A phase's states and demand together.
struct Need {
  int64_t total = 0;
  int64_t current = 0;
};

// What a pair at work needs in one direction and, of the compute stream and of
// others, the most that any of its phases does.
struct PairNeed {
  std::array<Need, 2> phases;
  int64_t compute_bytes = 0;
  OtherStreams others;

  void Set(size_t index, const Base& base, const Demand& demand) {
    // A phase in which it does nothing finds what others keep.
    phases[index] = {.total = Add(base.total, std::max<int64_t>(demand.total, 0)),
                     .current = Add(base.total, demand.current)};
    compute_bytes =
        std::max(compute_bytes, Add(base.total - base.others.Sum(), demand.compute_bytes));
    OtherStreams both = base.others;
    both.Grow(demand.others);
    others.Raise(both);
  }
};

// Of a stage, all that its peak follows from but for the pairs in flight. Most
// stages of a pipeline have the same.
class StageKind {
 public:
  // `parts` and `stage` outlive the kind.
  StageKind(const Parts& parts, const Stage& stage)
      : parts_(parts), stage_(stage), sums_(SumStage(parts, stage, stage.embedding)) {
    for (const State& state : parts.program.states) {
      state_bytes_.push_back(state.fills_in ? StateBytes(state, sums_)
                                            : GrownBytes(parts, state, sums_, stage.embedding));
    }
    for (size_t i = 0; i < std::max<size_t>(stage.virtual_stages.size(), 1); ++i) {
      const Stage part = VirtualStage(stage, i);
      if (i > 0 && chunks_.back().IsOf(part)) {
        chunks_.push_back(chunks_.back());
      } else {
        chunks_.emplace_back(parts, part, stage.embedding);
      }
    }
    SumChunks();
    SetNeeds();
  }

  bool Includes(const Stage& stage) const {
    return stage.layer_count == stage_.layer_count && stage.embedding == stage_.embedding &&
           stage.head == stage_.head && stage.edge_bytes == stage_.edge_bytes &&
           stage.virtual_stages == stage_.virtual_stages;
  }

  const ParameterSums& sums() const { return sums_; }
  size_t chunk_count() const { return chunks_.size(); }
  bool grows() const { return !parts_.grown.empty(); }  // gradients, in backward
  // Phases in which a pair is at work.
  const PairNeed& need(bool steady, const AtWork& at) const {
    return needs_[at.chunk].at[steady][at.backward][at.later];
  }
  InFlightTable FlightsOf(const PairOrder& order) const {
    return InFlightTable(order, pair_bytes_, grown_bytes_);
  }
  // Gradients of the last so many virtual stages.
  const Base& grown(size_t count) const { return grown_[count]; }
  // The other phases, and all of them in the compute stream and in others.
  const StepUsage& rest(bool steady) const { return rests_[steady]; }
  const PairNeed& rest_need(bool steady) const { return rest_needs_[steady]; }
  int64_t PinnedBytes(const std::array<StepUsage, 2>& steps) const;
  const Usage& UsageAt(bool steady, Phase phase, const AtWork& at);
  void GrowOthers(const InFlightTable& flights, const InFlight& flight, Usage& usage) const;

 private:
  struct ChunkNeeds {
    PairNeed at[2][2][2];  // by step, direction, and whether it is a later micro-batch
  };

  void SumChunks();
  void SetNeeds();
  void SetNeedsOf(size_t chunk, const StateBases& bases, bool steady);
  void SetNeed(const StateBases& bases, bool steady, const AtWork& at);

  const Parts& parts_;
  const Stage& stage_;
  ParameterSums sums_;
  absl::InlinedVector<PairDemand, 1> chunks_;
  absl::InlinedVector<int64_t, 4> pair_bytes_;   // of each virtual stage
  absl::InlinedVector<Base, 2> grown_;           // of the last 0, 1, ... virtual stages
  absl::InlinedVector<int64_t, 5> grown_bytes_;  // in all; where none grow, 0 alone
  absl::InlinedVector<ChunkNeeds, 1> needs_;
  std::array<PairNeed, 2> rest_needs_;
  std::array<StepUsage, 2> rests_{};
  std::array<int64_t, kPhaseCount + 1> staying_{};
  absl::InlinedVector<int64_t, 24> state_bytes_;
  // The usage that was asked for last, and when it is: alike stages ask for one.
  std::optional<Usage> usage_;
  bool steady_ = false;
  Phase phase_ = Phase::kForward;
  AtWork at_;
};

void StageKind::SumChunks() {
  for (const PairDemand& chunk : chunks_) pair_bytes_.push_back(chunk.kept().total);
  grown_.emplace_back();
  grown_bytes_.push_back(0);
  if (parts_.grown.empty()) return;
  for (size_t i = chunks_.size(); i > 0; --i) {
    grown_.push_back(grown_.back());
    grown_.back().Grow(chunks_[i - 1].grown());
    grown_bytes_.push_back(grown_.back().total);
  }
}

void StageKind::SetNeeds() {
  const StateBases bases(parts_, state_bytes_);
  staying_ = bases.staying;
  needs_.resize(chunks_.size());
  for (const bool steady : {false, true}) {
    for (size_t chunk = 0; chunk < chunks_.size(); ++chunk) SetNeedsOf(chunk, bases, steady);
    for (size_t phase = kFlightPhaseCount; phase < kPhaseCount; ++phase) {
      const Base& base = bases.At(steady, phase);
      rest_needs_[steady].Set(0, base, {.total = 0});
      rests_[steady][phase] = {.peak = base.total, .current = base.total};
    }
  }
}

void StageKind::SetNeedsOf(size_t chunk, const StateBases& bases, bool steady) {
  for (const bool backward : {false, true}) {
    SetNeed(bases, steady, {chunk, backward, false});
    if (!parts_.grown.empty()) SetNeed(bases, steady, {chunk, backward, true});
  }
}

void StageKind::SetNeed(const StateBases& bases, bool steady, const AtWork& at) {
  PairNeed& need = needs_[at.chunk].at[steady][at.backward][at.later];
  for (size_t i = 0; i < need.phases.size(); ++i) {
    const Base base = bases.At(steady, at.PhaseAt(i), at.backward);
    need.Set(i, base, chunks_[at.chunk].At(at, i));
  }
}

// What fragmentation holds at most: all that a step frees, in segments that the states and
// gradients made in its holes keep, so that flushing the cache gives none of it back; kernels
// that tune themselves; and pools.
int64_t StageKind::PinnedBytes(const std::array<StepUsage, 2>& steps) const {
  int64_t freed = 0;
  for (size_t phase = 0; phase < kPhaseCount; ++phase) {
    freed = std::max({freed, steps[false][phase].peak - staying_[phase],
                      steps[true][phase].peak - staying_.back()});
  }
  const int64_t tuning = Multiply(kTunings, parts_.program.tuning_bytes);
  return Add(Add(freed, tuning), Multiply(parts_.stream_count, kPoolBytes));
}

// States and, where a pair is at work, what it demands, told by role.
const Usage& StageKind::UsageAt(bool steady, Phase phase, const AtWork& at) {
  if (usage_.has_value() && steady == steady_ && phase == phase_ && at == at_) return *usage_;
  steady_ = steady;
  phase_ = phase;
  at_ = at;
  Usage& usage = usage_.emplace();
  for (size_t i = 0; i < state_bytes_.size(); ++i) {
    const State& state = parts_.program.states[i];
    const bool gone = state.until_backward && at.backward;
    if ((state.alive & Bit(phase, !steady)) != 0 && !gone) {
      usage.Grow(state.role, state_bytes_[i]);
    }
  }
  const auto index = static_cast<size_t>(phase);
  if (index < kFlightPhaseCount) {
    chunks_[at.chunk].Grow(at, index - (at.backward ? 1 : 0), usage);
  }
  return usage;
}

// Adds what there is beside the pair at work.
void StageKind::GrowOthers(const InFlightTable& flights, const InFlight& flight,
                           Usage& usage) const {
  for (size_t i = 0; i < chunks_.size(); ++i) {
    const int64_t kept = flights.KeptAt(flight, i);
    if (kept > 0) usage.Grow(chunks_[i].kept(), kept);
    if (i + flight.grown >= chunks_.size()) chunks_[i].GrowGradients(usage);
  }
}

// Both steps of one stage.
class StageMachine {
 public:
  StageMachine(const Stage& stage, StageKind& kind, StagePeak& peak)
      : stage_(stage), kind_(kind), peak_(peak), flights_(kind.FlightsOf(stage.order)) {}

  void Find();

 private:
  const InFlight& FlightAt(const AtWork& at) const {
    return flights_.At(at.chunk, at.backward, at.later);
  }
  // A stage that has a head has its loss in the last virtual stage alone. One that has none is told
  // what others' loss finds there.
  bool HasLoss(const AtWork& at) const {
    return !stage_.head || at.chunk + 1 == kind_.chunk_count();
  }
  // Whether a phase of a pair ends: the loss goes on backward, unless other pairs run forward.
  bool Ends(Phase phase, const AtWork& at) const {
    return phase != Phase::kLoss || at.backward || !stage_.head || stage_.order.warm_up > 1;
  }
  void Consider(bool steady, const AtWork& at);
  void FindStep(bool steady);

  const Stage& stage_;
  StageKind& kind_;
  StagePeak& peak_;
  const InFlightTable flights_;
  std::array<std::array<AtWork, kPhaseCount>, 2> at_work_{};  // at the peak of each phase
  int64_t compute_peak_ = 0;
  OtherStreams other_peaks_;
};

// Takes what a pair at work and others need as a candidate for the peaks of its phases.
void StageMachine::Consider(bool steady, const AtWork& at) {
  const InFlight& flight = FlightAt(at);
  if (flight.bytes < 0) return;
  const PairNeed& need = kind_.need(steady, at);
  for (size_t i = 0; i < need.phases.size(); ++i) {
    const Phase phase = at.PhaseAt(i);
    if (phase == Phase::kLoss && !HasLoss(at)) continue;
    const auto index = static_cast<size_t>(phase);
    PhaseUsage& usage = peak_.steps[steady][index];
    const int64_t end = Ends(phase, at) ? Add(need.phases[i].current, flight.bytes) : 0;
    usage.current = std::max(usage.current, end);
    const int64_t total = Add(need.phases[i].total, flight.bytes);
    if (total <= usage.peak) continue;
    usage.peak = total;
    at_work_[steady][index] = at;
  }
  OtherStreams others = kind_.grown(flight.grown).others;
  compute_peak_ = std::max(compute_peak_, Add(need.compute_bytes, flight.bytes - others.Sum()));
  others.Grow(need.others);
  other_peaks_.Raise(others);
}

void StageMachine::FindStep(bool steady) {
  peak_.steps[steady] = kind_.rest(steady);
  for (size_t chunk = 0; chunk < kind_.chunk_count(); ++chunk) {
    for (const bool backward : {false, true}) {
      Consider(steady, {chunk, backward, false});
      if (kind_.grows()) Consider(steady, {chunk, backward, true});
    }
  }
  const PairNeed& rest = kind_.rest_need(steady);
  compute_peak_ = std::max(compute_peak_, rest.compute_bytes);
  other_peaks_.Raise(rest.others);
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
  peak_.pinned_bytes = kind_.PinnedBytes(peak_.steps);
  const auto phase = static_cast<size_t>(peak_.phase);
  const AtWork& at = at_work_[peak_.steady][phase];
  const InFlight& flight = FlightAt(at);
  peak_.usage = kind_.UsageAt(peak_.steady, peak_.phase, at);
  for (size_t i = 0; i < kind_.chunk_count(); ++i) {
    peak_.pairs.push_back(flights_.KeptAt(flight, i) + (i == at.chunk ? 1 : 0));
  }
  if (phase < kFlightPhaseCount) kind_.GrowOthers(flights_, flight, peak_.usage);
}

}  // namespace

int64_t StagePeak::Reserved() const {
  int64_t most = 0;
  for (const auto& phases : steps) {
    for (const PhaseUsage& usage : phases) most = std::max(most, usage.reserved);
  }
  return most;
}

int64_t StagePeak::MostReserved() const { return Add(Reserved(), pinned_bytes); }

BlockRuns RunBlocks(const Program& program, std::pmr::memory_resource* memory) {
  BlockRuns runs(memory);
  runs.reserve(program.blocks.size() + program.reference.size());
  for (const auto* const network : {&program.blocks, &program.reference}) {
    for (const Block& block : *network) {
      runs.push_back(Run(block, program.weight_gradient, program.gradient_dtype));
    }
  }
  return runs;
}

std::pmr::vector<StagePeak> FindPeaks(const Program& program, const BlockRuns& runs,
                                      std::pmr::memory_resource* memory,
                                      const Interrupt& interrupt) {
  const Parts parts(program, runs, memory);
  std::pmr::vector<StagePeak> peaks(program.stages.size(), memory);
  std::optional<StageKind> kind;
  for (size_t i = 0; i < peaks.size(); ++i) {
    if (IsInterrupted(interrupt)) return peaks;
    const Stage& stage = program.stages[i];
    if (!kind.has_value() || !kind->Includes(stage)) kind.emplace(parts, stage);
    StageMachine(stage, *kind, peaks[i]).Find();
  }
  return peaks;
}

}  // namespace plimsoll
