#include "estimator/program/nccl.h"

#include <algorithm>
#include <utility>

#include "estimator/base/units.h"

namespace plimsoll {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

// Whom a process group joins. Ranks are laid out tensor first, then data, then
// pipeline, in every framework here.
enum class Members : uint8_t {
  kWorld,
  kNode,
  kTensor,
  kData,
  kShard,      // of a data-parallel group that shards in parts
  kReplicate,  // across these parts
  kPipeline,
  kModel,      // tensor and pipeline
  kOptimizer,  // whoever shares gradient statistics
  kNeighbour,  // one rank of the next or the previous stage
};

// A process group that a framework makes and uses.
struct Group {
  uint16_t frameworks;  // a bit for each
  Members members;
  absl::string_view name;
  int64_t count;
  bool looked_up;  // the same ranks again take the communicator that there is
};

template <typename... Frameworks>
constexpr uint16_t On(Frameworks... frameworks) {
  return static_cast<uint16_t>(((1u << static_cast<unsigned>(frameworks)) | ...));
}

constexpr uint16_t kMegatron =
    On(Framework::kMegatronCore, Framework::kMegatronLm, Framework::kMegatronDeepSpeed);

// Groups that only run at start-up or over Gloo are left out.
constexpr Group kGroups[] = {
    // torch/nn/parallel/distributed.py; torch/distributed/fsdp/_init_utils.py,
    // _init_process_group_and_plan: the default group, or two of a hybrid.
    {On(Framework::kDdp), Members::kWorld, "world", 1, false},
    {On(Framework::kFsdp1), Members::kWorld, "world", 1, true},
    {On(Framework::kFsdp1), Members::kShard, "shard", 1, true},
    {On(Framework::kFsdp1), Members::kReplicate, "replicate", 1, true},
    // torch/distributed/device_mesh.py, _init_process_groups: a mesh of one
    // dimension takes the default group. torchtitan distributed/utils.py
    // broadcasts a seed over that, and clips over the pipeline.
    {On(Framework::kFsdp2), Members::kWorld, "world", 1, true},
    {On(Framework::kFsdp2), Members::kShard, "shard", 1, true},
    {On(Framework::kFsdp2), Members::kReplicate, "replicate", 1, true},
    {On(Framework::kFsdp2), Members::kTensor, "tensor", 1, true},
    {On(Framework::kFsdp2), Members::kPipeline, "pipeline", 1, true},
    // deepspeed/utils/groups.py, _clone_world_group, beside the default group.
    {On(Framework::kDeepSpeed), Members::kWorld, "world", 2, false},
    // megatron/training/initialize.py (barrier); core/parallel_state.py;
    // core/optimizer, get_grad_stats_parallel_group.
    {kMegatron, Members::kWorld, "world", 1, false},
    {kMegatron, Members::kTensor, "tensor", 1, false},
    {kMegatron, Members::kData, "data", 1, false},
    {kMegatron, Members::kPipeline, "pipeline", 1, false},
    {kMegatron, Members::kOptimizer, "gradient statistics", 1, false},
    // nanotron parallel/context.py: barriers on the default group, world_pg, and
    // groups that create_new_group looks up by their ranks; trainer.py,
    // measure_bandwidth runs collectives over world_pg and local_pg; clipping
    // reduces over mp_pg. pipeline_parallel/p2p.py sends tensors one by one, for
    // which torch makes a communicator of two (ProcessGroupNCCL.cpp,
    // getKeySendRecv).
    {On(Framework::kNanotron), Members::kWorld, "world", 2, false},
    {On(Framework::kNanotron), Members::kNode, "node", 1, true},
    {On(Framework::kNanotron), Members::kTensor, "tensor", 1, true},
    {On(Framework::kNanotron), Members::kData, "data", 1, true},
    {On(Framework::kNanotron), Members::kPipeline, "pipeline", 1, true},
    {On(Framework::kNanotron), Members::kModel, "model", 1, true},
    {On(Framework::kNanotron), Members::kNeighbour, "neighbour", 1, false},
};

// Ranks {a + b * stride : a < inner, b < outer}.
struct Span {
  int64_t inner = 1;
  int64_t outer = 1;
  int64_t stride = 0;

  friend bool operator==(const Span&, const Span&) = default;
};

Span MakeSpan(int64_t inner, int64_t outer, int64_t stride) {
  if (outer == 1) return {inner, 1, 0};
  if (stride == inner) return {Multiply(inner, outer), 1, 0};
  return {inner, outer, stride};
}

Span SpanOf(const Job& job, Members members) {
  const int64_t tensor = job.tensor_parallel_size;
  const int64_t data = job.data_parallel_size;
  const int64_t stages = job.pipeline_parallel_size;
  const int64_t shard = std::clamp<int64_t>(job.shard_group_size, 1, data);
  const int64_t stage_stride = Multiply(tensor, data);
  switch (members) {
    case Members::kWorld:
      return MakeSpan(job.gpu_count, 1, 0);
    case Members::kNode:
      return MakeSpan(std::min(job.gpu_count, job.gpus_per_node), 1, 0);
    case Members::kTensor:
      return MakeSpan(tensor, 1, 0);
    case Members::kData:
      return MakeSpan(1, data, tensor);
    case Members::kShard:
      return MakeSpan(1, shard, tensor);
    case Members::kReplicate:
      return MakeSpan(1, data / shard, Multiply(tensor, shard));
    case Members::kPipeline:
      return MakeSpan(1, stages, stage_stride);
    case Members::kModel:
      return MakeSpan(tensor, stages, stage_stride);
    case Members::kOptimizer:
      return SpanOf(job, job.zero_stage > 0 ? Members::kWorld : Members::kModel);
    case Members::kNeighbour:
      return MakeSpan(1, std::min<int64_t>(stages, 2), stage_stride);
  }
  return {};
}

Communicator Describe(const Job& job, const Group& group, const Span& span) {
  const int64_t node = job.gpus_per_node;
  Communicator communicator{.group = group.name,
                            .ranks = Multiply(span.inner, span.outer),
                            .local_ranks = std::min(span.inner, node),
                            .count = group.count};
  if (span.outer > 1 && span.stride < node) {
    const int64_t runs = std::min(span.outer, CeilDivide(node, span.stride));
    communicator.local_ranks = std::min(Multiply(span.inner, runs), node);
  }
  // A stage in the middle has a neighbour on either side.
  if (group.members == Members::kNeighbour && job.pipeline_parallel_size > 2) {
    communicator.count = 2;
  }
  return communicator;
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
  absl::InlinedVector<Communicator, 8> communicators;
  absl::InlinedVector<Span, 8> seen;
  for (const Group& group : kGroups) {
    if ((group.frameworks >> static_cast<unsigned>(job.profile->framework) & 1) == 0) continue;
    const Span span = SpanOf(job, group.members);
    if (Multiply(span.inner, span.outer) <= 1) continue;
    if (group.looked_up) {
      if (std::find(seen.begin(), seen.end(), span) != seen.end()) continue;
      seen.push_back(span);
    }
    communicators.push_back(Describe(job, group, span));
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
