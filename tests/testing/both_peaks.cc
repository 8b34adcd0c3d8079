#include "tests/testing/both_peaks.h"

#include <algorithm>

#include "estimator/replay/replay.h"
#include "estimator/step/timeline.h"
#include "tests/testing/jobs.h"

namespace plimsoll {

std::vector<BothPeaks> PeaksBothWays(const JobSpec& spec) {
  Program program = ProgramOf(spec);
  program.tuning_bytes = 0;       // no tensor of the step
  auto& states = program.states;  // nor is what is made and freed before it
  states.erase(std::remove_if(states.begin(), states.end(),
                              [](const State& state) { return state.sets_up_behind; }),
               states.end());
  const auto summed = FindPeaks(program, RunBlocks(program));
  const Tapes tapes(program);
  std::vector<BothPeaks> peaks;
  for (size_t stage = 0; stage < program.stages.size(); ++stage) {
    const Replayed played = Replay(*Unroll(program, tapes, program.stages[stage]), {});
    peaks.push_back({summed[stage].usage.total, played.peak_requested});
  }
  return peaks;
}

}  // namespace plimsoll
