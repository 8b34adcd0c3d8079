// What a scheduler says about GPUs, and how another number of them is said.
#include "server/admit/gpu_request.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

v1::SchedulerRequest Request(const std::string& text) {
  v1::SchedulerRequest request;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &request)) << text;
  return request;
}

std::string ToText(const GpuRequest& gpus) {
  return absl::StrCat(gpus.count, " ", gpus.type.empty() ? "any" : gpus.type, ", ", gpus.per_node,
                      " a node", gpus.shares ? ", shares" : "");
}

TEST(ReadGpuRequestTest, ReadsEveryFormOfSlurm) {
  const struct {
    const char* request;
    const char* gpus;
  } kCases[] = {
      // No GPU.
      {"", "0 any, 0 a node"},
      {"tres_per_node: 'gres:nic:2'", "0 any, 0 a node"},
      {"tres_per_node: 'gres:gpu:0'", "0 any, 0 a node"},
      // Per node: --gres and --gpus-per-node, of 22.05 and later, typed or not.
      {"tres_per_node: 'gres:gpu:8'", "8 any, 8 a node"},
      {"tres_per_node: 'gres/gpu:8'", "8 any, 8 a node"},
      {"tres_per_node: 'gres/gpu=8'", "8 any, 8 a node"},
      {"tres_per_node: 'gpu:8'", "8 any, 8 a node"},
      {"tres_per_node: 'gres:gpu'", "1 any, 1 a node"},
      {"tres_per_node: 'gres:gpu:h100'", "1 h100, 1 a node"},
      {"tres_per_node: 'gres:gpu:h100:8'", "8 h100, 8 a node"},
      {"tres_per_node: 'gres/gpu:h100=8' min_nodes: 4", "32 h100, 8 a node"},
      {"tres_per_node: 'gres:nic:1,gres:gpu:h100:8,gres:tmpdisk:4G'", "8 h100, 8 a node"},
      {"tres_per_node: 'gres:gpu:h100:4,gres:gpu:h100:4'", "8 h100, 8 a node"},
      {"tres_per_node: 'gres:gpu:8' min_nodes: 2 max_nodes: 4", "16 any, 8 a node"},
      // MIG profiles are types.
      {"tres_per_node: 'gres:gpu:4g.40gb:2'", "2 4g.40gb, 2 a node"},
      // Per job, socket and task.
      {"tres_per_job: 'gres:gpu:64'", "64 any, 0 a node"},
      {"tres_per_job: 'gres:gpu:1K'", "1024 any, 0 a node"},
      {"tres_per_job: 'gres:gpu:h100:64' tres_per_node: 'gres:gpu:h100:8' min_nodes: 2",
       "64 h100, 8 a node"},
      {"tres_per_socket: 'gres:gpu:4' sockets_per_node: 2 min_nodes: 2", "16 any, 8 a node"},
      {"tres_per_task: 'gres:gpu:1' task_count: 16", "16 any, 0 a node"},
      {"tres_per_task: 'gres:gpu:2' min_nodes: 2 tasks_per_node: 4", "16 any, 0 a node"},
      {"tres_per_task: 'gres:gpu:h100'", "1 h100, 0 a node"},
      // Parts of a GPU.
      {"tres_per_node: 'gres:shard:4'", "0 any, 0 a node, shares"},
      {"tres_per_node: 'gres:mps:50'", "0 any, 0 a node, shares"},
      {"tres_per_node: 'gres:gpu:8,mps:0'", "8 any, 8 a node"},
      // Tasks that say how many of them share one.
      {"tasks_per_gpu: 2 task_count: 16", "8 any, 0 a node"},
      {"tasks_per_gpu: 2 task_count: 16 tres_per_job: 'gpu:4'", "4 any, 0 a node"},
      // Numbers that make no sense count as not said.
      {"tres_per_node: 'gres:gpu:8' min_nodes: -3", "8 any, 8 a node"},
  };
  for (const auto& row : kCases) {
    Violations violations;
    EXPECT_EQ(ToText(ReadGpuRequest(Request(row.request), &violations)), row.gpus) << row.request;
    EXPECT_EQ(ToText(violations), "") << row.request;
  }
}

TEST(ReadGpuRequestTest, SaysWhatIsWrong) {
  constexpr char kRule[] = "; must be gpu[:TYPE][:COUNT], as gres:gpu:h100:8, of one type";
  const struct {
    const char* request;
    std::string violation;
  } kCases[] = {
      {"tres_per_node: 'gres:gpu:h100:x'", absl::StrCat("tres_per_node: gres:gpu:h100:x", kRule)},
      {"tres_per_node: 'gpu:h100:-8'", absl::StrCat("tres_per_node: gpu:h100:-8", kRule)},
      {"tres_per_job: 'gpu:h100:8:9'", absl::StrCat("tres_per_job: gpu:h100:8:9", kRule)},
      {"tres_per_task: 'gpu::8'", absl::StrCat("tres_per_task: gpu::8", kRule)},
      {"tres_per_socket: 'gpu:99999999999999999999'",
       absl::StrCat("tres_per_socket: gpu:99999999999999999999", kRule)},
      {"tres_per_job: 'gpu:1G'", absl::StrCat("tres_per_job: gpu:1G", kRule)},
      {"tres_per_node: 'gpu:h100:4,gpu:a100:4'",
       absl::StrCat("tres_per_node: gpu:h100:4,gpu:a100:4", kRule)},
      {"tres_per_node: 'gpu:h100:4' tres_per_job: 'gpu:a100:8'",
       "cluster.gpu: a100 and h100; must be of one type"},
      {"tres_per_node: 'gpu:1048576' min_nodes: 9223372036854775807",
       "cluster.gpu_count: more than 1048576 GPUs asked for; must be at most 1048576"},
      {"tres_per_node: 'gpu:h\\033[2J:x'", absl::StrCat("tres_per_node: gpu:h [2J:x", kRule)},
  };
  for (const auto& row : kCases) {
    Violations violations;
    ReadGpuRequest(Request(row.request), &violations);
    EXPECT_EQ(ToText(violations), row.violation) << row.request;
  }
}

std::string ChangeText(const char* request, int64_t count, int64_t gpus_per_node) {
  const auto changes = ChangeGpuCount(Request(request), count, gpus_per_node);
  if (!changes.has_value()) return "can't";
  return absl::StrJoin(*changes, " ", [](std::string* out, const v1::SchedulerChange& change) {
    absl::StrAppend(out, change.field(), "=", change.value());
  });
}

TEST(ChangeGpuCountTest, SaysItInTheRequestsOwnForm) {
  const struct {
    const char* request;
    int64_t count;
    const char* changes;
  } kCases[] = {
      {"tres_per_node: 'gres:gpu:h100:4'", 8, "tres_per_node=gres:gpu:h100:8"},
      {"tres_per_node: 'gres/gpu:4'", 2, "tres_per_node=gres/gpu:2"},
      {"tres_per_node: 'gres:gpu:h100:8'", 16,
       "tres_per_node=gres:gpu:h100:8 min_nodes=2 max_nodes=2"},
      {"tres_per_node: 'gres:gpu:8' min_nodes: 4 max_nodes: 4", 8,
       "tres_per_node=gres:gpu:8 min_nodes=1 max_nodes=1"},
      {"tres_per_node: 'gres:nic:1,gres:gpu:8'", 16,
       "tres_per_node=gres:gpu:8,gres:nic:1 min_nodes=2 max_nodes=2"},
      // As few nodes as share them evenly: 12 GPUs do not lie in nodes of 8 alike.
      {"tres_per_node: 'gpu:8'", 12, "tres_per_node=gpu:6 min_nodes=2 max_nodes=2"},
      {"tres_per_job: 'gres:gpu:h100:8'", 16, "tres_per_job=gres:gpu:h100:16"},
      {"tres_per_job: 'gres:gpu:8' min_nodes: 1 max_nodes: 1", 16,
       "tres_per_job=gres:gpu:16 min_nodes=2 max_nodes=2"},
      {"tres_per_task: 'gres:gpu:2' task_count: 4", 16, "task_count=8"},
      {"tres_per_task: 'gres:gpu:2' task_count: 4", 9, "can't"},
      {"tres_per_socket: 'gres:gpu:4' sockets_per_node: 2", 32, "min_nodes=4 max_nodes=4"},
      {"tres_per_socket: 'gres:gpu:4' sockets_per_node: 2", 4, "can't"},
      // Tasks of one a GPU, or of one a node, stay so; others are the user's.
      {"tres_per_node: 'gpu:8' task_count: 8 tasks_per_node: 8", 16,
       "tres_per_node=gpu:8 min_nodes=2 max_nodes=2 task_count=16"},
      {"tres_per_node: 'gpu:4' task_count: 4 tasks_per_node: 4", 8,
       "tres_per_node=gpu:8 task_count=8 tasks_per_node=8"},
      {"tres_per_node: 'gpu:8' min_nodes: 2 task_count: 2", 32,
       "tres_per_node=gpu:8 min_nodes=4 max_nodes=4 task_count=4"},
      {"tres_per_node: 'gpu:8' task_count: 3", 16, "tres_per_node=gpu:8 min_nodes=2 max_nodes=2"},
      // Forms that Slurm refused when their tasks were left as they were.
      {"tres_per_node: 'gpu:2' tres_per_task: 'gpu:1' task_count: 2 min_nodes: 1", 8,
       "tres_per_node=gpu:8 min_nodes=1 max_nodes=1 task_count=8"},
      {"tres_per_job: 'gpu:2' task_count: 2 tasks_per_node: 2 min_nodes: 1", 8,
       "tres_per_job=gpu:8 min_nodes=1 max_nodes=1 task_count=8 tasks_per_node=8"},
      {"tres_per_task: 'gpu:1' task_count: 2 tasks_per_node: 2 min_nodes: 1", 8,
       "min_nodes=1 max_nodes=1 task_count=8 tasks_per_node=8"},
      // One task a GPU, or one a node?
      {"tres_per_node: 'gpu:1' task_count: 2 tasks_per_node: 1 min_nodes: 2", 8, "can't"},
      {"tres_per_node: 'gpu:8' task_count: 3 min_nodes: 1", 32, "can't"},
      {"tres_per_node: 'gpu:4' task_count: 1 min_nodes: 1", 16,
       "tres_per_node=gpu:8 min_nodes=2 max_nodes=2 task_count=2"},
      {"tasks_per_gpu: 1 task_count: 2", 8, "task_count=8"},
  };
  for (const auto& row : kCases) {
    EXPECT_EQ(ChangeText(row.request, row.count, 8), row.changes) << row.request;
  }
}

// The changed request, read again, asks for as many.
TEST(ChangeGpuCountTest, ReadsBackAsTheNumberAskedFor) {
  std::mt19937 random(7);
  const auto upto = [&](int most) { return static_cast<int>(random() % most) + 1; };
  int changed = 0;
  for (int i = 0; i < 2000; ++i) {
    v1::SchedulerRequest request;
    const std::string gpu = absl::StrCat(random() % 2 == 0 ? "gres:gpu" : "gres/gpu",
                                         random() % 2 == 0 ? ":h100:" : ":", upto(16));
    if (random() % 2 == 0) request.set_min_nodes(upto(8));
    if (random() % 2 == 0) request.set_task_count(upto(32));
    if (random() % 4 == 0) request.set_tasks_per_node(upto(8));
    switch (random() % 4) {
      case 0:
        request.set_tres_per_job(gpu);
        break;
      case 1:
        request.set_tres_per_node(gpu);
        break;
      case 2:
        request.set_tres_per_socket(gpu);
        request.set_sockets_per_node(upto(2));
        break;
      default:
        request.set_tres_per_task(gpu);
    }
    const int64_t count = upto(64);
    const auto changes = ChangeGpuCount(request, count, 8);
    if (!changes.has_value()) continue;
    ++changed;
    for (const v1::SchedulerChange& change : *changes) {
      const auto* field = request.GetDescriptor()->FindFieldByName(change.field());
      ASSERT_NE(field, nullptr) << change.field();
      if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_STRING) {
        request.GetReflection()->SetString(&request, field, change.value());
      } else {
        request.GetReflection()->SetInt64(&request, field, std::stoll(change.value()));
      }
    }
    Violations violations;
    EXPECT_EQ(ReadGpuRequest(request, &violations).count, count) << request.ShortDebugString();
    EXPECT_EQ(ToText(violations), "");
  }
  EXPECT_GT(changed, 500);
}

// Whatever is in a field, it is read or refused.
TEST(ReadGpuRequestTest, TakesAnyText) {
  constexpr char kLetters[] = "gresgpu:/=,0189KMGhx-. \n\x1b";
  std::mt19937 random(11);
  for (int i = 0; i < 20000; ++i) {
    std::string text = random() % 2 == 0 ? "gpu:" : "";
    for (size_t length = random() % 20; length > 0; --length) {
      text += kLetters[random() % (sizeof kLetters - 1)];
    }
    v1::SchedulerRequest request;
    request.set_tres_per_node(text);
    Violations violations;
    const GpuRequest gpus = ReadGpuRequest(request, &violations);
    EXPECT_GE(gpus.count, 0) << text;
    EXPECT_LE(gpus.count, int64_t{1} << 20) << text;
    for (const Violation& each : violations) {
      const std::string violation = ToText(each);
      EXPECT_EQ(violation.find_first_of("\n\x1b"), std::string::npos) << violation;
    }
  }
}

}  // namespace
}  // namespace plimsoll
