// What a scheduler's request says about GPUs, and how it is said with another
// number of them. The one parser of Slurm's words for GPUs.
#ifndef PLIMSOLL_SERVER_ADMIT_GPU_REQUEST_H_
#define PLIMSOLL_SERVER_ADMIT_GPU_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plimsoll/v1/admission.pb.h"
#include "server/words/refusal.h"

namespace plimsoll {

// GPUs of one submission.
struct GpuRequest {
  std::string type;      // as the cluster calls it; empty where no type is asked for
  int64_t count = 0;     // of the whole job; 0: no GPU is asked for
  int64_t per_node = 0;  // 0: left to the scheduler
  bool shares = false;   // asks for a part of a GPU (shards, MPS)
};

// Reads tres_per_job, tres_per_node, tres_per_socket and tres_per_task: comma
// lists of gpu[:TYPE][:COUNT], each with `gres:` or `gres/` before it or not,
// counts with K, M, G (1024). Other resources are passed over. Where nodes are a
// range, its smaller end counts; a job of no stated tasks has one a node. Where none of
// them asks for a GPU, tasks_per_gpu does.
//
// `violations` gets what is wrong.
//
// Source: Slurm 22.05, sbatch(1) (--gres, --gpus and the like); the forms of both
//         that release and of 23.02 and later, src/common/slurm_opt.c.
GpuRequest ReadGpuRequest(const v1::SchedulerRequest& request, Violations* violations);

// Returns what to set so that the job gets `count` GPUs, in as few nodes of at
// most `gpus_per_node` as share them evenly. Tasks that were one a GPU, or one a
// node, stay so. Nothing where the request's own form can't say it, as a number
// that its GPUs per task do not divide, or tasks that its nodes do not share evenly, or
// where it can't be told whether its tasks are of its GPUs or of its nodes.
//
// Requires: the request was read without violations; count >= 1,
//           gpus_per_node >= 1
std::optional<std::vector<v1::SchedulerChange>> ChangeGpuCount(const v1::SchedulerRequest& request,
                                                               int64_t count,
                                                               int64_t gpus_per_node);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_ADMIT_GPU_REQUEST_H_
