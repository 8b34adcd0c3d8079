// Communicators follow the framework's process groups; their bytes NCCL's version.
#include "estimator/program/nccl.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

struct Layout {
  absl::string_view framework;
  int64_t tensor = 1;
  int64_t data = 1;
  int64_t pipeline = 1;
  int64_t zero_stage = 0;
  int64_t shard_group_size = 0;
};

ValidJob JobOf(const Layout& layout, const char* gpu = "h100-80gb-sxm",
               const char* nccl = nullptr) {
  JobSpec spec = With(SmallJob(), layout.framework);
  spec.parallelism.tensor_parallel_size = layout.tensor;
  spec.parallelism.data_parallel_size = layout.data;
  spec.parallelism.pipeline_parallel_size = layout.pipeline;
  spec.parallelism.zero_stage = layout.zero_stage;
  if (layout.shard_group_size > 0) spec.parallelism.shard_group_size = layout.shard_group_size;
  if (nccl != nullptr) spec.runtime.versions["nccl"] = nccl;
  spec.cluster.gpu = gpu;
  spec.training.global_batch_size = layout.data * *spec.training.micro_batch_size;
  return Valid(spec);
}

// "<group> <local>/<ranks>", several alike as "2x ...".
std::string Text(const ValidJob& job) {
  std::string text;
  for (const Communicator& c : Communicators(*job)) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", c.count > 1 ? absl::StrCat(c.count, "x ") : "",
                    c.group, " ", c.local_ranks, "/", c.ranks);
  }
  return text;
}

TEST(NcclTest, OneGpuTalksToNobody) {
  for (const char* framework : {"ddp", "megatron-core", "nanotron"}) {
    EXPECT_EQ(Text(JobOf({framework})), "");
    EXPECT_EQ(NcclBytes(*JobOf({framework})), 0);
  }
}

TEST(NcclTest, CommunicatorsFollowTheFrameworksGroups) {
  EXPECT_EQ(Text(JobOf({.framework = "ddp", .data = 16})), "world 8/16");
  EXPECT_EQ(Text(JobOf({.framework = "fsdp2", .data = 16, .zero_stage = 3})), "world 8/16")
      << "a mesh of one dimension is the default group";
  EXPECT_EQ(Text(JobOf({.framework = "fsdp2", .tensor = 2, .data = 8, .zero_stage = 3})),
            "world 8/16, shard 4/8, tensor 2/2");
  EXPECT_EQ(Text(JobOf({.framework = "fsdp2", .data = 16, .zero_stage = 3, .shard_group_size = 8})),
            "world 8/16, shard 8/8, replicate 1/2");
  EXPECT_EQ(Text(JobOf({.framework = "deepspeed", .data = 8, .zero_stage = 1})), "2x world 8/8");
  EXPECT_EQ(Text(JobOf({.framework = "megatron-core", .tensor = 2, .data = 2, .zero_stage = 1})),
            "world 4/4, tensor 2/2, data 2/2, gradient statistics 4/4");
  EXPECT_EQ(Text(JobOf({.framework = "megatron-core", .tensor = 2, .data = 2})),
            "world 4/4, tensor 2/2, data 2/2, gradient statistics 2/2")
      << "without a distributed optimizer: those that hold one copy of the model";
}

TEST(NcclTest, ExpertsThatRanksHaveApartHaveGroupsOfTheirOwn) {
  JobSpec spec = With(SmallJob(), "fsdp2");
  spec.runtime.trainer = "torchtitan";
  Shape(spec).expert_count = 8;
  Shape(spec).active_expert_count = 2;
  spec.parallelism.data_parallel_size = 16;
  spec.cluster.gpu_count.reset();
  spec.training.global_batch_size.reset();
  EXPECT_EQ(Text(Valid(spec)), "world 8/16");
  spec.parallelism.expert_parallel_size = 4;
  EXPECT_EQ(Text(Valid(spec)), "world 8/16, expert 4/4, expert data 2/4");
}

// Groups of the same ranks are made once, but for the two of all ranks; each
// neighbour in the pipeline has a communicator of two.
TEST(NcclTest, NanotronLooksGroupsUp) {
  EXPECT_EQ(Text(JobOf({.framework = "nanotron", .data = 8})), "2x world 8/8, node 8/8");
  EXPECT_EQ(Text(JobOf({.framework = "nanotron", .data = 16})),
            "2x world 8/16, node 8/8, data 8/16");
  EXPECT_EQ(Text(JobOf({.framework = "nanotron", .tensor = 2, .data = 8})),
            "2x world 8/16, node 8/8, tensor 2/2, data 4/8");
  EXPECT_EQ(Text(JobOf({.framework = "nanotron", .tensor = 2, .data = 4, .pipeline = 2})),
            "2x world 8/16, node 8/8, tensor 2/2, data 4/4, pipeline 1/2, model 2/4, "
            "neighbour 1/2");
}

TEST(NcclTest, ACommunicatorHasARingATreeBetweenNodesAndNvls) {
  const auto bytes = [](int64_t data, const char* gpu, const char* nccl) {
    return NcclBytes(*JobOf({.framework = "ddp", .data = data}, gpu, nccl)) / kMib;
  };
  EXPECT_EQ(bytes(8, "a100-80gb-sxm", "2.27"), 24 * 12) << "a ring";
  EXPECT_EQ(bytes(16, "a100-80gb-sxm", "2.27"), 2 * 24 * 12) << "and a tree";
  EXPECT_EQ(bytes(2, "rtx-4090", "2.27"), 4 * 12) << "PCIe has few channels";
  EXPECT_EQ(bytes(8, "h100-80gb-sxm", "2.27"), 24 * 12 + 256) << "NVLS from Hopper on";
  EXPECT_EQ(bytes(8, "h100-80gb-sxm", "2.21"), 24 * 12 + 768);
  EXPECT_EQ(bytes(8, "h100-80gb-sxm", "2.20.5"), 24 * 12 + 1536);
  EXPECT_EQ(bytes(8, "h100-80gb-sxm", "2.16"), 24 * 12) << "older than NVLS";
  EXPECT_EQ(bytes(16, "h100-80gb-sxm", "2.18"), 2 * 24 * 12 + 1536) << "between nodes too";
  EXPECT_EQ(bytes(2, "h100-80gb-sxm", "2.18"), 24 * 12) << "two ranks have none";
}

}  // namespace
}  // namespace plimsoll
