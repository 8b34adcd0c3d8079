// What batch scripts ask Slurm for.
#include "client/job/sbatch_lines.h"

#include <gtest/gtest.h>

#include "server/admit/gpu_request.h"

namespace plimsoll {
namespace {

TEST(SbatchLinesTest, SayHowManyGpusAndOfWhatType) {
  const struct {
    const char* script;
    const char* type;
    int64_t count;
    int64_t per_node;
  } kRows[] = {
      {"#!/bin/sh\n#SBATCH --gpus-per-node=h100:8\n#SBATCH --nodes=2\n", "h100", 16, 8},
      {"#SBATCH -N 2 --gres=gpu:8\n", "", 16, 8},
      {"#SBATCH -N2\n#SBATCH --gres=gpu:a100:4,nic:1  # all of it\n", "a100", 8, 4},
      {"#SBATCH -G 8\n", "", 8, 0},
      {"#SBATCH --gpus=\"h100:8\"\n", "h100", 8, 0},
      {"#SBATCH --gpus-per-task=1 --ntasks 8\n", "", 8, 0},
      {"#SBATCH --gpus=4\n#SBATCH --gpus=8\n", "", 8, 0},
      {"#SBATCH --gpus=8\necho\n#SBATCH --gpus=16\n", "", 8, 0},
      {"#SBATCH --time=1:00:00 -p gpu --nodes=many\n", "", 0, 0},
      {"##SBATCH --gpus=8\n# SBATCH --gpus=8\n", "", 0, 0},
      {"#SBATCH --gpus\n", "", 0, 0},
      {"", "", 0, 0},
  };
  for (const auto& row : kRows) {
    Violations wrong;
    const GpuRequest gpus = ReadGpuRequest(ReadSbatchLines(row.script), &wrong);
    EXPECT_TRUE(wrong.empty()) << row.script << ToText(wrong);
    EXPECT_EQ(gpus.type, row.type) << row.script;
    EXPECT_EQ(gpus.count, row.count) << row.script;
    EXPECT_EQ(gpus.per_node, row.per_node) << row.script;
  }
}

}  // namespace
}  // namespace plimsoll
