// Groups of ranks, against their ranks counted out one by one.
#include "estimator/job/mesh.h"

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace plimsoll {
namespace {

Job JobOf(int64_t tensor, int64_t shard, int64_t replicate, int64_t stages, int64_t context = 1) {
  Job job;
  job.tensor_parallel_size = tensor;
  job.context_parallel_size = context;
  job.shard_group_size = context * shard;
  job.data_parallel_size = shard * replicate;
  job.pipeline_parallel_size = stages;
  return job;
}

// The ranks of rank 0's group, one by one.
std::vector<int64_t> RanksOf(const std::array<int64_t, kAxisCount>& sizes, AxisSet axes) {
  std::vector<int64_t> ranks = {0};
  int64_t stride = 1;
  for (size_t axis = 0; axis < kAxisCount; ++axis) {
    const std::vector<int64_t> inner = ranks;
    for (int64_t i = 1; (axes >> axis & 1) != 0 && i < sizes[axis]; ++i) {
      for (const int64_t rank : inner) ranks.push_back(rank + i * stride);
    }
    stride *= sizes[axis];
  }
  return ranks;
}

TEST(MeshTest, GroupsAreTheirRanks) {
  std::mt19937 random(15);
  const auto draw = [&random](int64_t most) {
    return std::uniform_int_distribution<int64_t>(1, most)(random);
  };
  for (int i = 0; i < 2000; ++i) {
    const std::array<int64_t, kAxisCount> sizes = {draw(5), draw(3), draw(4), draw(4), draw(5)};
    const Mesh mesh(JobOf(sizes[0], sizes[2], sizes[3], sizes[4], sizes[1]));
    const auto axes = static_cast<AxisSet>(draw(kAllAxes + 1) - 1);
    const int64_t node = draw(20);
    const std::vector<int64_t> ranks = RanksOf(sizes, axes);
    const auto on_node =
        std::count_if(ranks.begin(), ranks.end(), [node](int64_t rank) { return rank < node; });
    const RankGroup group = mesh.Group(axes);
    EXPECT_EQ(group.size(), static_cast<int64_t>(ranks.size()));
    EXPECT_EQ(group.OnNode(node), on_node) << "axes " << int{axes} << " node " << node;
    EXPECT_LE(group.OnEachNode(node), on_node);
    EXPECT_GE(group.OnEachNode(node), 1);
  }
}

// The ranks of a stage are laid out once more for experts: those that split each, those that split
// them, those that have the same.
TEST(MeshTest, ExpertsHaveAxesOfTheirOwn) {
  std::mt19937 random(16);
  const auto draw = [&random](int64_t most) {
    return std::uniform_int_distribution<int64_t>(1, most)(random);
  };
  for (int i = 0; i < 2000; ++i) {
    const int64_t matrices = draw(3);
    const int64_t experts = draw(4);
    const int64_t replicas = draw(5);
    Job job = JobOf(1, 1, matrices * experts * replicas, draw(3));
    job.expert_tensor_parallel_size = matrices;
    job.expert_parallel_size = experts;
    const std::array<int64_t, kAxisCount> sizes = {matrices, experts, replicas, 1, 1, 1, 1, 1};
    const auto axes = static_cast<AxisSet>(draw(8) - 1);
    const int64_t node = draw(20);
    const std::vector<int64_t> ranks = RanksOf(sizes, axes);
    const auto on_node =
        std::count_if(ranks.begin(), ranks.end(), [node](int64_t rank) { return rank < node; });
    const RankGroup group =
        Mesh(job).Group(static_cast<AxisSet>(unsigned{axes} << kFirstOfExperts));
    EXPECT_EQ(group.size(), static_cast<int64_t>(ranks.size()));
    EXPECT_EQ(group.OnNode(node), on_node) << "axes " << int{axes} << " node " << node;
  }
}

// The fewest ranks of a group on any node that has one, where nodes are filled evenly.
TEST(MeshTest, EachNodeHasAsManyWhereDegreesAreThoseOfNodes) {
  for (const int64_t node : {1, 2, 4, 8, 16, 64}) {
    for (int axes = 0; axes <= kAllAxes; ++axes) {
      const std::array<int64_t, kAxisCount> sizes = {4, 1, 2, 4, 2, 1, 1, 1};
      std::map<int64_t, int64_t> on_nodes;
      for (const int64_t rank : RanksOf(sizes, static_cast<AxisSet>(axes))) ++on_nodes[rank / node];
      int64_t fewest = 64;
      for (const auto& [index, count] : on_nodes) fewest = std::min(fewest, count);
      const Mesh mesh(JobOf(4, 2, 4, 2));
      EXPECT_EQ(mesh.Group(static_cast<AxisSet>(axes)).OnEachNode(node), fewest)
          << "axes " << axes << " nodes of " << node;
    }
  }
}

TEST(MeshTest, TheSameRanksAreTheSameGroup) {
  const Mesh mesh(JobOf(1, 4, 2, 1));
  EXPECT_EQ(mesh.Group(Along(Axis::kShard, Axis::kReplicate)), mesh.Group(kAllAxes));
  EXPECT_NE(mesh.Group(Along(Axis::kShard)), mesh.Group(Along(Axis::kReplicate)));
  EXPECT_EQ(mesh.Group(Along(Axis::kTensor)), RankGroup());
}

TEST(MeshTest, NeighboursAreTwoOrOne) {
  EXPECT_EQ(Mesh(JobOf(2, 4, 1, 8)).Neighbours(Axis::kPipeline).size(), 2);
  EXPECT_EQ(Mesh(JobOf(2, 4, 1, 8)).Neighbours(Axis::kPipeline).OnNode(8), 1);
  EXPECT_EQ(Mesh(JobOf(2, 4, 1, 8)).Neighbours(Axis::kPipeline).OnNode(9), 2);
  EXPECT_EQ(Mesh(JobOf(2, 4, 1, 1)).Neighbours(Axis::kPipeline).size(), 1);
}

TEST(MeshTest, RanksOnEachNode) {
  const Mesh mesh(JobOf(4, 8, 1, 2));
  EXPECT_EQ(mesh.Group(Along(Axis::kTensor)).OnEachNode(8), 4);
  EXPECT_EQ(mesh.Group(Along(Axis::kShard)).OnEachNode(8), 2);
  EXPECT_EQ(mesh.Group(Along(Axis::kPipeline)).OnEachNode(8), 1);
  EXPECT_EQ(mesh.Group(kAllAxes).OnEachNode(8), 8);
}

}  // namespace
}  // namespace plimsoll
