#include "estimator/program/nccl.h"

#include <algorithm>

#include "estimator/base/units.h"
#include "estimator/job/mesh.h"

namespace plimsoll {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

// Whom a process group joins.
enum class Members : uint8_t {
  kAxes,  // ranks along the group's axes
  kNode,
  kNeighbour,  // one rank of the next or the previous stage
  kExperts,    // the same, where there are experts
  kOptimizer,  // whoever shares gradient statistics: all ranks, or those of one copy of the model
};

// A process group that a framework makes and uses.
struct Group {
  uint16_t frameworks;  // a bit for each
  AxisSet axes;
  absl::string_view name;
  int64_t count;
  bool looked_up;  // the same ranks again take the communicator that there is
  Members members = Members::kAxes;
};

constexpr AxisSet kTensor = Along(Axis::kTensor);
constexpr AxisSet kReplicate = Along(Axis::kReplicate);
constexpr AxisSet kPipeline = Along(Axis::kPipeline);
constexpr AxisSet kExpert = Along(Axis::kExpert);
constexpr AxisSet kExpertTensor = Along(Axis::kExpertTensor);
constexpr AxisSet kExpertReplica = Along(Axis::kExpertReplica);
constexpr AxisSet kModel = kTensor | kPipeline;

constexpr uint16_t kMegatron =
    On(Framework::kMegatronCore, Framework::kMegatronLm, Framework::kMegatronDeepSpeed);

// Groups that only run at start-up or over Gloo are left out.
constexpr Group kGroups[] = {
    // torch/nn/parallel/distributed.py; torch/distributed/fsdp/_init_utils.py,
    // _init_process_group_and_plan: the default group, or two of a hybrid.
    {On(Framework::kDdp), kAllAxes, "world", 1, false},
    {On(Framework::kFsdp1), kAllAxes, "world", 1, true},
    {On(Framework::kFsdp1), kShardAxes, "shard", 1, true},
    {On(Framework::kFsdp1), kReplicate, "replicate", 1, true},
    // torch/distributed/device_mesh.py, _init_process_groups: a mesh of one
    // dimension takes the default group. torchtitan distributed/utils.py
    // broadcasts a seed over that, and clips over the pipeline.
    {On(Framework::kFsdp2), kAllAxes, "world", 1, true},
    {On(Framework::kFsdp2), kShardAxes, "shard", 1, true},
    {On(Framework::kFsdp2), kReplicate, "replicate", 1, true},
    {On(Framework::kFsdp2), kTensor, "tensor", 1, true},
    {On(Framework::kFsdp2), kContextAxis, "context", 1, true},
    {On(Framework::kFsdp2), kPipeline, "pipeline", 1, true},
    // torchtitan distributed/parallel_dims.py: meshes of experts that ranks have apart.
    {On(Framework::kFsdp2), kExpert, "expert", 1, true, Members::kExperts},
    {On(Framework::kFsdp2), kExpertReplica, "expert data", 1, true, Members::kExperts},
    // deepspeed/utils/groups.py, _clone_world_group, beside the default group.
    {On(Framework::kDeepSpeed), kAllAxes, "world", 2, false},
    // deepspeed/runtime/sequence_parallel/parallel_state_sp.py: a group for exchanges; ZeRO's
    // is one of all ranks, as the clone is without it.
    {On(Framework::kDeepSpeed), kContextAxis, "context", 1, false},
    // megatron/training/initialize.py (barrier); core/parallel_state.py;
    // core/optimizer, get_grad_stats_parallel_group.
    {kMegatron, kAllAxes, "world", 1, false},
    {kMegatron, kTensor, "tensor", 1, false},
    {kMegatron, kContextAxis, "context", 1, false},
    {kMegatron, kReplicaAxes, "data", 1, false},
    {kMegatron, kPipeline, "pipeline", 1, false},
    {kMegatron, 0, "gradient statistics", 1, false, Members::kOptimizer},
    // core/parallel_state.py; core/transformer/moe/token_dispatcher.py: tokens are counted, and
    // gathered, over both axes, and sent along each.
    {kMegatron, kExpert, "expert", 1, false, Members::kExperts},
    {kMegatron, kExpertTensor, "expert tensor", 1, false, Members::kExperts},
    {kMegatron, kExpert | kExpertTensor, "expert and tensor", 1, false, Members::kExperts},
    {kMegatron, kExpertReplica, "expert data", 1, false, Members::kExperts},
    // nanotron parallel/context.py: barriers on the default group, world_pg, and
    // groups that create_new_group looks up by their ranks; trainer.py,
    // measure_bandwidth runs collectives over world_pg and local_pg; clipping
    // reduces over mp_pg. pipeline_parallel/p2p.py sends tensors one by one, for
    // which torch makes a communicator of two (ProcessGroupNCCL.cpp,
    // getKeySendRecv).
    {On(Framework::kNanotron), kAllAxes, "world", 2, false},
    {On(Framework::kNanotron), 0, "node", 1, true, Members::kNode},
    {On(Framework::kNanotron), kTensor, "tensor", 1, true},
    {On(Framework::kNanotron), kReplicaAxes, "data", 1, true},
    {On(Framework::kNanotron), kPipeline, "pipeline", 1, true},
    {On(Framework::kNanotron), kModel, "model", 1, true},
    {On(Framework::kNanotron), 0, "neighbour", 1, false, Members::kNeighbour},
};

RankGroup RanksOf(const Job& job, const Mesh& mesh, const Group& group) {
  switch (group.members) {
    case Members::kAxes:
      return mesh.Group(group.axes);
    case Members::kExperts:
      return job.model->experts.Any() ? mesh.Group(group.axes) : RankGroup();
    case Members::kNode: {
      RankGroup node;
      node.Add(std::min(job.gpu_count, job.gpus_per_node), 1);
      return node;
    }
    case Members::kNeighbour:
      return mesh.Neighbours(Axis::kPipeline);
    case Members::kOptimizer:
      return mesh.Group(job.zero_stage > 0 ? kAllAxes : kModel);
  }
  return {};
}

int64_t NvlsBytesPerRank(const Job& job) {
  const bool newer = job.architecture == GpuArchitecture::kHopper ||
                     job.architecture == GpuArchitecture::kBlackwell;
  const bool switched = job.gpu != nullptr && job.gpu->nvswitch;
  if (!newer || !switched || job.nccl_version < 2017) return 0;
  if (job.nccl_version <= 2020) return 192 * kMib;
  return job.nccl_version == 2021 ? 96 * kMib : 32 * kMib;
}

}  // namespace

absl::InlinedVector<Communicator, 8> Communicators(const Job& job) {
  const Mesh mesh(job);
  absl::InlinedVector<Communicator, 8> communicators;
  absl::InlinedVector<RankGroup, 8> seen;
  for (const Group& group : kGroups) {
    if ((group.frameworks >> static_cast<unsigned>(job.profile->framework) & 1) == 0) continue;
    const RankGroup ranks = RanksOf(job, mesh, group);
    if (ranks.size() == 1) continue;
    if (group.looked_up) {
      if (std::find(seen.begin(), seen.end(), ranks) != seen.end()) continue;
      seen.push_back(ranks);
    }
    // A stage in the middle has a neighbour on either side.
    const bool middle = group.members == Members::kNeighbour && job.pipeline_parallel_size > 2;
    communicators.push_back({.group = group.name,
                             .ranks = ranks.size(),
                             .local_ranks = ranks.OnNode(job.gpus_per_node),
                             .count = middle ? 2 : group.count});
  }
  return communicators;
}

int64_t CommunicatorBytes(const Job& job, const Communicator& communicator) {
  const bool switched = job.gpu != nullptr && job.gpu->nvswitch;
  const bool between_nodes = communicator.ranks > communicator.local_ranks;
  const int64_t channels = switched ? 24 : 4;
  constexpr int64_t kChannelBytes = 12 * kMib;
  const int64_t ring = channels * kChannelBytes;
  const int64_t tree = between_nodes ? ring : 0;
  const int64_t nvls =
      communicator.local_ranks > 2 ? Multiply(communicator.local_ranks, NvlsBytesPerRank(job)) : 0;
  return Multiply(communicator.count, Add(ring + tree, nvls));
}

int64_t NcclBytes(const Job& job) {
  int64_t bytes = 0;
  for (const Communicator& communicator : Communicators(job)) {
    bytes = Add(bytes, CommunicatorBytes(job, communicator));
  }
  return bytes;
}

}  // namespace plimsoll
