// What a batch script asks Slurm for.
#ifndef PLIMSOLL_CLIENT_JOB_SBATCH_LINES_H_
#define PLIMSOLL_CLIENT_JOB_SBATCH_LINES_H_

#include "absl/strings/string_view.h"
#include "plimsoll/v1/admission.pb.h"

namespace plimsoll {

// Returns the GPUs, nodes and tasks of a script's `#SBATCH` lines, as sbatch passes them
// on: `#SBATCH --gpus-per-node=h100:8` is tres_per_node "gres:gpu:h100:8". Like sbatch,
// reads up to the first line that is neither blank nor a comment; of an option that is
// given twice, the last. What is no such option is passed over.
v1::SchedulerRequest ReadSbatchLines(absl::string_view script);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_JOB_SBATCH_LINES_H_
