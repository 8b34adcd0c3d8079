#include "tests/testing/replayed_shares.h"

#include "estimator/replay/replay.h"
#include "estimator/step/timeline.h"
#include "tests/testing/jobs.h"

namespace plimsoll {

std::vector<double> ReplayedShares(const JobSpec& spec) {
  Program program = ProgramOf(spec);
  program.tuning_bytes = 0;  // no tensor of the step
  const auto peaks = FindPeaks(program, RunBlocks(program));
  const Tapes tapes(program);
  std::vector<double> ratios;
  for (size_t stage = 0; stage < program.stages.size(); ++stage) {
    const Replayed replayed = Replay(*Unroll(program, tapes, program.stages[stage]), {});
    ratios.push_back(static_cast<double>(replayed.peak_requested) /
                     static_cast<double>(peaks[stage].usage.total));
  }
  return ratios;
}

}  // namespace plimsoll
