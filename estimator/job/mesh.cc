#include "estimator/job/mesh.h"

#include <algorithm>

#include "estimator/base/units.h"

namespace plimsoll {

void RankGroup::Add(int64_t size, int64_t stride) {
  if (size == 1) return;
  if (count_ > 0 && stride == runs_[count_ - 1].size * runs_[count_ - 1].stride) {
    runs_[count_ - 1].size *= size;
  } else {
    runs_[count_++] = {size, stride};
  }
}

int64_t RankGroup::size() const {
  int64_t size = 1;
  for (const Run& run : runs_) size *= run.size;
  return size;
}

// Of the outer runs all but the last that begins on the node are there as a whole.
int64_t RankGroup::OnNode(int64_t gpus_per_node) const {
  int64_t left = gpus_per_node;
  int64_t inside = size();
  int64_t ranks = 0;
  for (size_t i = count_; i > 0; --i) {
    const Run& run = runs_[i - 1];
    inside /= run.size;
    const int64_t whole = std::min(run.size, CeilDivide(left, run.stride)) - 1;
    ranks += whole * inside;
    left -= whole * run.stride;
  }
  return ranks + 1;
}

int64_t RankGroup::OnEachNode(int64_t gpus_per_node) const {
  int64_t ranks = 1;
  for (size_t i = 0; i < count_; ++i) {
    ranks *= std::clamp<int64_t>(gpus_per_node / runs_[i].stride, 1, runs_[i].size);
  }
  return ranks;
}

Mesh::Mesh(const Job& job)
    : sizes_{job.tensor_parallel_size,
             job.context_parallel_size,
             job.shard_group_size / job.context_parallel_size,
             job.ReplicaCount() / job.shard_group_size,
             job.pipeline_parallel_size,
             job.expert_tensor_parallel_size,
             job.expert_parallel_size,
             job.ExpertReplicaCount()} {}

RankGroup Mesh::Group(AxisSet axes) const {
  RankGroup group;
  int64_t stride = 1;
  for (size_t axis = 0; axis < kAxisCount; ++axis) {
    if (axis == kFirstOfExperts) stride = 1;
    if ((axes >> axis & 1) != 0) group.Add(sizes_[axis], stride);
    stride *= sizes_[axis];
  }
  return group;
}

RankGroup Mesh::Neighbours(Axis axis) const {
  RankGroup pair;
  int64_t stride = 1;
  for (size_t inner = 0; inner < static_cast<size_t>(axis); ++inner) stride *= sizes_[inner];
  pair.Add(std::min<int64_t>(sizes_[static_cast<size_t>(axis)], 2), stride);
  return pair;
}

}  // namespace plimsoll
