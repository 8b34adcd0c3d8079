// Finds the peak of each class of rank: layers, micro-batches in flight and
// stages are arithmetic over blocks that were run once.
#ifndef PLIMSOLL_ESTIMATOR_PEAK_H_
#define PLIMSOLL_ESTIMATOR_PEAK_H_

#include <array>
#include <cstdint>
#include <vector>

#include "estimator/ledger.h"
#include "estimator/parameter_sums.h"
#include "estimator/program.h"

namespace plimsoll {

// One phase of one step. Units: bytes.
struct PhaseUsage {
  int64_t peak = 0;
  int64_t current = 0;
  int64_t reserved = 0;  // the most that the allocator has held until its end
};

// Phases of the first step, then of a steady one.
struct StagePeak {
  ParameterSums sums;
  std::array<std::array<PhaseUsage, kPhaseCount>, 2> steps;
  bool steady = true;  // whether the peak is in a steady step
  Phase phase = Phase::kForward;
  Usage usage;               // at the peak
  int64_t Reserved() const;  // the most over both steps
};

// In the order of program.blocks.
std::vector<BlockRun> RunBlocks(const Program& program);

// Returns the stage of a pipeline that has one.
Stage WholeStage(int64_t layer_count);

// Returns the peak of each of the program's stages.
//
// Requires: `runs` are RunBlocks(program)
std::vector<StagePeak> FindPeaks(const Program& program, const std::vector<BlockRun>& runs);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PEAK_H_
