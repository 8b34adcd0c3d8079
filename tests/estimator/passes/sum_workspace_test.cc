// Sums over rows as torch's kernel splits them, and which ops have them.
#include "estimator/passes/sum_workspace.h"

#include <random>

#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

constexpr int64_t kKib = 1024;

Gpu Multiprocessors(int64_t count, int64_t threads = 2048) {
  Gpu gpu;
  gpu.multiprocessor_count = count;
  gpu.threads_per_multiprocessor = threads;
  return gpu;
}

// The first five were seen under the phantom, as an H100.
TEST(SumWorkspaceTest, RowsAreSplitWhereTheyAreMany) {
  const struct {
    int64_t rows, columns, kib;
    int64_t multiprocessors = 132, threads = 2048;
  } kRows[] = {
      {1024, 4096, 32768},
      {4096, 2048, 65536},
      {4096, 6144, 135168},
      {4096, 8192, 135168},
      {512, 4096, 0},
      {1023, 4096, 32768},  // 256 rows for each of four threads
      {1020, 4096, 0},      // 255
      {4096, 8192, 45056, 84, 1024},
      {4096, 8192, 0, 0},  // of which nothing is known
      {0, 4096, 0},
      {4096, 0, 0},
      {int64_t{1} << 20, 1, 0},
  };
  for (const auto& row : kRows) {
    SCOPED_TRACE(row.rows);
    EXPECT_EQ(SumWorkspaceBytes(Multiprocessors(row.multiprocessors, row.threads), row.rows,
                                row.columns) /
                  kKib,
              row.kib)
        << row.columns;
  }
}

// Blocks are as many as the GPU runs at once, or more where a thread had else more than 256 rows to
// sum up; a smaller GPU has no more.
TEST(SumWorkspaceTest, IsBoundedByTheGpu) {
  std::mt19937_64 random(20261127);
  for (int i = 0; i < 100000; ++i) {
    const auto rows = static_cast<int64_t>(1 + random() % (1 << 18));
    const auto columns = static_cast<int64_t>(128 * (1 + random() % 128));
    const int64_t bytes = SumWorkspaceBytes(Multiprocessors(132), rows, columns);
    const int64_t most_rows = std::max<int64_t>(132 * 16, rows / 1024 * columns / 128 + columns);
    EXPECT_LE(bytes, (most_rows + columns / 128) * 128 * 128 * 4) << rows << " x " << columns;
    EXPECT_LE(SumWorkspaceBytes(Multiprocessors(66), rows, columns), bytes);
    EXPECT_TRUE(bytes == 0 || rows > 1020) << rows;
  }
}

// Norms in Python, of layers and of heads, and biases.
TEST(SumWorkspaceTest, VectorsGradientsAreSums) {
  JobSpec job = With(SmallJob(), "ddp");
  job.cluster.gpu = "h100-80gb-sxm";
  job.training.sequence_length = 4096;
  const auto sums = [](const Program& program) {
    std::vector<std::string> names;
    for (const Op& op : FindBlock(program, "layer").ops) {
      if (op.sum_workspace != kNoTensor) names.emplace_back(op.name);
    }
    return names;
  };
  EXPECT_EQ(sums(ProgramOf(job)), (std::vector<std::string>{"attention.norm", "mlp.norm"}));
  job.training.sequence_length = 512;
  EXPECT_TRUE(sums(ProgramOf(job)).empty());
  job.training.sequence_length = 4096;
  job.runtime.compile = true;
  EXPECT_TRUE(sums(ProgramOf(job)).empty());
  job.runtime.compile.reset();
  job = With(job, "megatron-core");  // whose kernels add biases
  EXPECT_TRUE(sums(ProgramOf(job)).empty());
  job = With(job, "ddp");
  job.cluster.gpu = "a100-80gb-sxm";  // of whose multiprocessors the tests' catalog is silent
  EXPECT_TRUE(sums(ProgramOf(job)).empty());
}

}  // namespace
}  // namespace plimsoll
