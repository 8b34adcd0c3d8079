// What data parallelism sends in a step: gradients to those that have the same part of the model,
// weights to those that have a shard of it.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_DATA_COLLECTIVES_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_DATA_COLLECTIVES_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "estimator/job/job.h"
#include "estimator/job/mesh.h"
#include "estimator/program/program.h"

namespace plimsoll {

// What of a stage a row sends.
//   kSigns  a bit of each gradient's number
enum class Sent : uint8_t { kGradients, kWeights, kSigns };

// What a row runs beside.
//   kCompute   all of the step
//   kBackward  the last micro-batch's backward
//   kNothing   it runs alone, behind the optimizer's step
enum class Beside : uint8_t { kCompute, kBackward, kNothing };

struct DataCollective {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  Sent what = Sent::kGradients;
  bool experts = false;  // of experts that other ranks have others of; else of all other parameters
  bool frozen = false;   // of parameters that are not trained too
  RankGroup group{};     // those that join
  int64_t shards = 1;    // each sends one of so many parts
  int64_t times = 1;     // in a step
  Beside beside = Beside::kBackward;
};
using DataCollectives = absl::InlinedVector<DataCollective, 4>;

// Returns the rows of one stage; groups of one rank send nothing. What is sharded goes a layer at
// a time.
//
//   zero 0        gradients are all-reduced
//   zero 1, 2     gradients are reduced to their shards, weights gathered behind the step
//   zero 3, FSDP  weights are gathered as layers run, once more where they are dropped after
//                 forward, and again where it runs twice; a pipeline keeps what is not dropped
//                 until the step's end
//   hybrid        shards of gradients are all-reduced between copies
//   compressed    signs are exchanged, and those of what each rank summed up are gathered, when
//                 backward is over
//
// Source: Rajbhandari et al. 2020 (arXiv 1910.02054), section 7. Gradients after each micro-batch:
//         torch/distributed/fsdp, set_requires_gradient_sync (on by default; off until the last
//         backward in torch/distributed/pipelining/stage.py); deepspeed/runtime/zero/
//         stage_1_and_2.py, reduce_ipg_grads. Experts: megatron/core/parallel_state.py,
//         get_expert_data_parallel_group; torchtitan distributed/fsdp.py, apply_fsdp_to_decoder
//         (edp_mesh). Compressed: deepspeed 0.18.9, runtime/comm/nccl.py, compressed_allreduce.
DataCollectives DataCollectivesOf(const Job& job);

// Whether experts are shared out by ranks of their own: others than share all else out.
bool SharesExpertsApart(const Job& job);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_DATA_COLLECTIVES_H_
