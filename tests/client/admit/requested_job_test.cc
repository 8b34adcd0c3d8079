// The job of the user's words with the scheduler's GPUs.
#include "client/admit/requested_job.h"

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
    {"the scheduler's", "", {"h100", 16, 8}, "", "gpu: \"h100\" gpu_count: 16 gpus_per_node: 8"},
    {"one node needs no size", "", {"h100", 4, 4}, "", "gpu: \"h100\" gpu_count: 4"},
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
     {"h100", 1, 1},
     "reserved_for_others_bytes: 5",
     "gpu: \"h100\" gpu_count: 1 reserved_for_others_bytes: 5"},
    {"the user's stand",
     "gpu: 'same' gpu_count: 8 gpus_per_node: 4 reserved_for_others_bytes: 7",
     {"h100", 8, 8},
     "reserved_for_others_bytes: 5",
     "gpu: \"same\" gpu_count: 8 gpus_per_node: 4 reserved_for_others_bytes: 7"},
    {"the operator knows the nodes and what is reserved",
     "gpus_per_node: 4 reserved_for_others_bytes: 0",
     {"h100", 8, 8},
     "gpus_per_node: 2 reserved_for_others_bytes: 5",
     "gpu: \"h100\" gpu_count: 8 gpus_per_node: 2 reserved_for_others_bytes: 5"},
    {"the request knows how its GPUs lie",
     "gpus_per_node: 8",
     {"h100", 8, 1},
     "",
     "gpu: \"h100\" gpu_count: 8 gpus_per_node: 1"},
    {"memory where no GPU is asked for by name",
     "gpu_memory_bytes: 9",
     {"", 8, 8},
     "",
     "gpu_memory_bytes: 9 gpu_count: 8"},
    {"memory of a GPU that is known",
     "gpu_memory_bytes: 9",
     {"h100", 8, 8},
     "",
     "cluster.gpu_memory_bytes: 9; the job asks the scheduler for h100, whose memory is known"},
    {"contradictions",
     "gpu: 'a100' gpu_count: 16",
     {"h100", 1, 1},
     "",
     "cluster.gpu: a100; the job asks the scheduler for h100\n"
     "cluster.gpu_count: 16; the job asks the scheduler for 1 GPU"},
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
