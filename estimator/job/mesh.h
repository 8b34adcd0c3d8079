// How the ranks of a job are laid out: a mesh of named axes, and the groups of ranks that
// collectives join.
#ifndef PLIMSOLL_ESTIMATOR_JOB_MESH_H_
#define PLIMSOLL_ESTIMATOR_JOB_MESH_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "estimator/job/job.h"

namespace plimsoll {

// The axes, the innermost first, in every framework here. Data parallelism is two: the
// ranks that shard between them, and copies of these. Those that split a sequence shard
// between them too.
// Source: megatron/core/parallel_state.py, RankGenerator ("tp-cp-ep-dp-pp"); nanotron
//         parallel/context.py, _init_parallel_groups; torchtitan distributed/parallel_dims.py;
//         deepspeed runtime/sequence_parallel/parallel_state_sp.py.
//
// The ranks of a stage are laid out once more for experts, whose axes are the last three: those
// that split an expert's matrices, those that split the experts, and those that have the same.
// Source: megatron/core/parallel_state.py, expert_decoder_rank_generator.
enum class Axis : uint8_t {
  kTensor,
  kContext,
  kShard,
  kReplicate,
  kPipeline,
  kExpertTensor,
  kExpert,
  kExpertReplica
};
inline constexpr size_t kAxisCount = 8;
inline constexpr size_t kFirstOfExperts = static_cast<size_t>(Axis::kExpertTensor);
inline constexpr absl::string_view kAxes[kAxisCount] = {
    "tensor",   "context",       "shard",  "replicate",
    "pipeline", "expert tensor", "expert", "expert replica"};

// A bit for each axis.
using AxisSet = uint8_t;
template <typename... Axes>
constexpr AxisSet Along(Axes... axes) {
  return static_cast<AxisSet>(((1u << static_cast<unsigned>(axes)) | ... | 0u));
}
inline constexpr AxisSet kAllAxes =
    Along(Axis::kTensor, Axis::kContext, Axis::kShard, Axis::kReplicate, Axis::kPipeline);
inline constexpr AxisSet kContextAxis = Along(Axis::kContext);
// Whoever shards what ZeRO shards, and whoever has the same part of the model.
inline constexpr AxisSet kShardAxes = Along(Axis::kContext, Axis::kShard);
inline constexpr AxisSet kReplicaAxes = Along(Axis::kContext, Axis::kShard, Axis::kReplicate);

// Ranks that a collective joins: those of rank 0, which all others are like.
class RankGroup {
 public:
  // Adds the axis of `size` ranks that are `stride` apart; innermost first.
  void Add(int64_t size, int64_t stride);

  int64_t size() const;
  // Ranks of it on the first node, which has as many as any; and on a node that has fewest.
  int64_t OnNode(int64_t gpus_per_node) const;
  int64_t OnEachNode(int64_t gpus_per_node) const;

  // Whether they join the same ranks.
  bool operator==(const RankGroup&) const = default;

 private:
  // `size` of what is before it, `stride` apart.
  struct Run {
    int64_t size = 1;
    int64_t stride = 0;

    bool operator==(const Run&) const = default;
  };

  std::array<Run, kAxisCount> runs_{};  // runs that touch are one
  size_t count_ = 0;
};

class Mesh {
 public:
  explicit Mesh(const Job& job);

  // Returns the ranks that differ along these axes alone.
  RankGroup Group(AxisSet axes) const;
  // Returns a rank and the next one along the axis.
  RankGroup Neighbours(Axis axis) const;

 private:
  std::array<int64_t, kAxisCount> sizes_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_JOB_MESH_H_
