// Finds the peak of each class of rank: layers, micro-batches in flight and
// stages are arithmetic over blocks that were run once.
#ifndef PLIMSOLL_ESTIMATOR_STEP_PEAK_H_
#define PLIMSOLL_ESTIMATOR_STEP_PEAK_H_

#include <array>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "estimator/base/interrupt.h"
#include "estimator/program/parameter_sums.h"
#include "estimator/program/program.h"
#include "estimator/step/ledger.h"

namespace plimsoll {

// One phase of one step. Units: bytes.
struct PhaseUsage {
  int64_t peak = 0;
  int64_t current = 0;
  int64_t reserved = 0;  // the most that the allocator has held until its end
};

using StepUsage = std::array<PhaseUsage, kPhaseCount>;

// Phases of the first step, then of a steady one.
struct StagePeak {
  ParameterSums sums;
  std::array<StepUsage, 2> steps;
  bool steady = true;  // whether the peak is in a steady step
  Phase phase = Phase::kForward;
  Usage usage;  // at the peak
  // In flight there, of each virtual stage; where none is, the most of the first.
  absl::InlinedVector<int64_t, 4> pairs;
  int64_t pinned_bytes = 0;      // that fragmentation holds at most beside Reserved()
  int64_t Reserved() const;      // the most over both steps
  int64_t MostReserved() const;  // with what is pinned: on less memory the job may fail
};

// In the order of program.blocks, then of program.reference.
using BlockRuns = std::pmr::vector<BlockRun>;
BlockRuns RunBlocks(const Program& program,
                    std::pmr::memory_resource* memory = std::pmr::get_default_resource());

// Returns the peak of each of the program's stages.
//
// Requires: `runs` are RunBlocks(program)
std::pmr::vector<StagePeak> FindPeaks(
    const Program& program, const BlockRuns& runs,
    std::pmr::memory_resource* memory = std::pmr::get_default_resource(),
    const Interrupt& interrupt = {});

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_STEP_PEAK_H_
