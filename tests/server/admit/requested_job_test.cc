// The job of the user's words with the scheduler's GPUs.
#include "server/admit/requested_job.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_join.h"

namespace plimsoll {
namespace {

struct Case {
  const char* name;
  const char* cluster;  // as the user says
  GpuRequest gpus;
  const char* rules;
  const char* result;  // the cluster, or what is wrong
};

const Case kCases[] = {
    {"nothing is said", "", {}, "", ""},
    {"the scheduler's", "", {"h200", 16, 8}, "", "gpu: \"h200\" gpu_count: 16 gpus_per_node: 8"},
    {"one node needs no size", "", {"h200", 4, 4}, "", "gpu: \"h200\" gpu_count: 4"},
    {"the rules' GPU",
     "",
     {"", 8, 0},
     "gpu: 'h200-141gb-sxm' gpus_per_node: 8",
     "gpu: \"h200-141gb-sxm\" gpu_count: 8 gpus_per_node: 8"},
    {"the cluster's own name",
     "",
     {"big", 1, 1},
     "gpu: 'a30-24gb' gpu_types: {key: 'big' value: 'h200-141gb-sxm'}",
     "gpu: \"h200-141gb-sxm\" gpu_count: 1"},
    {"others' memory",
     "",
     {"h200", 1, 1},
     "reserved_for_others_bytes: 5",
     "gpu: \"h200\" gpu_count: 1 reserved_for_others_bytes: 5"},
    {"the user's stand",
     "gpu: 'same' gpu_count: 8 gpus_per_node: 4 reserved_for_others_bytes: 7",
     {"h200", 8, 8},
     "reserved_for_others_bytes: 5",
     "gpu: \"same\" gpu_count: 8 gpus_per_node: 4 reserved_for_others_bytes: 7"},
    {"the operator knows the nodes and what is reserved",
     "gpus_per_node: 4 reserved_for_others_bytes: 0",
     {"h200", 8, 8},
     "gpus_per_node: 2 reserved_for_others_bytes: 5",
     "gpu: \"h200\" gpu_count: 8 gpus_per_node: 2 reserved_for_others_bytes: 5"},
    {"the request knows how its GPUs lie",
     "gpus_per_node: 8",
     {"h200", 8, 1},
     "",
     "gpu: \"h200\" gpu_count: 8 gpus_per_node: 1"},
    {"memory where no GPU is asked for by name",
     "gpu_memory_bytes: 9",
     {"", 8, 8},
     "",
     "gpu_memory_bytes: 9 gpu_count: 8"},
    {"memory of a GPU that is known",
     "gpu_memory_bytes: 9",
     {"h200", 8, 8},
     "",
     "cluster.gpu_memory_bytes: 9; the job asks the scheduler for h200, whose memory is known"},
    {"contradictions",
     "gpu: 'a100' gpu_count: 16",
     {"h200", 1, 1},
     "",
     "cluster.gpu: a100; the job asks the scheduler for h200\n"
     "cluster.gpu_count: 16; the job asks the scheduler for 1 GPU"},
    {"a name of several GPUs",
     "",
     {"a100", 8, 8},
     "",
     "cluster.gpu: a100; must be one of a100-40gb-pcie, a100-40gb-sxm, a100-80gb-pcie, "
     "a100-80gb-sxm: the job's gpu, or gpu_types of the policy, must say which"},
    {"a name of several that the job does not decide",
     "gpu: 'a100-pcie'",
     {"A100-PCIE", 8, 8},
     "gpu: 'h200'",
     "cluster.gpu: A100-PCIE; must be one of a100-40gb-pcie, a100-80gb-pcie: the job's gpu, or "
     "gpu_types of the policy, must say which"},
    {"the alias table decides",
     "",
     {"a100", 8, 8},
     "gpu_types: {key: 'a100' value: 'a100-40gb-pcie'}",
     "gpu: \"a100-40gb-pcie\" gpu_count: 8"},
    {"the partition's GPU decides, of the job's words too",
     "gpu: 'a100'",
     {"a100", 8, 8},
     "gpu: 'a100-40gb-sxm'",
     "gpu: \"a100-40gb-sxm\" gpu_count: 8"},
    {"the job decides",
     "gpu: 'a100-40gb-sxm'",
     {"a100", 8, 8},
     "gpu: 'h200-141gb-sxm'",
     "gpu: \"a100-40gb-sxm\" gpu_count: 8"},
};

TEST(AddClusterTest, CompletesTheJobOrSaysWhatContradicts) {
  const auto same_gpu = [](const std::string& a, const std::string&) { return a == "same"; };
  for (const Case& row : kCases) {
    v1::Job job;
    v1::AdmissionRules rules;
    using google::protobuf::TextFormat;
    ASSERT_TRUE(TextFormat::ParseFromString(row.cluster, job.mutable_cluster())) << row.name;
    ASSERT_TRUE(TextFormat::ParseFromString(row.rules, &rules)) << row.name;
    Violations wrong;
    AddCluster(row.gpus, rules, same_gpu, &job, &wrong);
    const std::string result = wrong.empty() ? job.cluster().ShortDebugString() : ToText(wrong);
    EXPECT_EQ(result, row.result) << row.name;
  }
}

}  // namespace
}  // namespace plimsoll
