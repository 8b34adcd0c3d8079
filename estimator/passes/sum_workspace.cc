#include "estimator/passes/sum_workspace.h"

#include <algorithm>

#include "estimator/base/units.h"

namespace plimsoll {
namespace {

constexpr int64_t kWarp = 32;
constexpr int64_t kBlockThreads = 512;
constexpr int64_t kFewestOfThread = 16;
constexpr int64_t kMostOfThread = 256;
constexpr int64_t kSumBytes = 4;  // of any dtype it is summed up in fp32

int64_t PowerBelow(int64_t value, int64_t most) {
  int64_t power = 1;
  while (power * 2 <= std::min(value, most)) power *= 2;
  return power;
}

// Numbers that a thread loads at once.
int64_t VectorOf(int64_t column_count) {
  int64_t size = 4;
  while (column_count % size != 0) size /= 2;
  return size;
}

// Of the largest matrix whose gradient of a vector `op` sums up.
int64_t WorkspaceOf(const Job& job, const Block& block, const Op& op) {
  int64_t most = 0;
  for (const TensorId id : op.parameters) {
    const Parameter& vector = block.parameters[id];
    const bool matrix = vector.shape.rank > 1 && !op.sums_rows;
    if (vector.frozen || matrix || vector.packed()) continue;
    const int64_t all = block.tensors[op.outputs.ids[0]].shape.Elements();
    const int64_t columns = PackedElements(block, static_cast<size_t>(id));
    most =
        std::max(most, SumWorkspaceBytes(*job.gpu, all / std::max<int64_t>(columns, 1), columns));
  }
  return most;
}

TensorId Workspace(Block& block, int64_t bytes) {
  for (size_t id = 0; id < block.tensors.size(); ++id) {
    const Tensor& tensor = block.tensors[id];
    if (tensor.name == "workspace.sum" && tensor.Bytes() == bytes) return static_cast<TensorId>(id);
  }
  return AddWorkspace(block, "workspace.sum", bytes);
}

}  // namespace

int64_t SumWorkspaceBytes(const Gpu& gpu, int64_t row_count, int64_t column_count) {
  if (gpu.multiprocessor_count == 0 || row_count == 0 || column_count == 0) return 0;
  const int64_t vector = VectorOf(column_count);
  const int64_t threads = kBlockThreads / vector;
  const int64_t across = PowerBelow(column_count / vector, threads);
  const int64_t height =
      std::min(PowerBelow(row_count, threads), threads / std::min(across, kWarp));
  const int64_t width = std::min(across, threads / height);
  if (row_count < std::min(height * kFewestOfThread, kMostOfThread)) return 0;
  const int64_t of_thread = CeilDivide(row_count, height);
  const int64_t grid = CeilDivide(column_count / vector, width);
  const int64_t room =
      gpu.multiprocessor_count * (gpu.threads_per_multiprocessor / (width * height));
  if (of_thread < kMostOfThread || grid > room) return 0;
  const int64_t blocks = std::clamp(CeilDivide(room, grid), CeilDivide(of_thread, kMostOfThread),
                                    CeilDivide(of_thread, kFewestOfThread));
  return blocks > 1 ? kSumBytes * column_count * blocks * width * vector : 0;
}

void AddSumWorkspaces(const Job& job, Program& program) {
  if (job.gpu == nullptr) return;
  for (Block& block : program.blocks) {
    if (job.compile && block.kind == BlockKind::kLayer) continue;
    for (Op& op : block.ops) {
      const bool biased = HasBias(block, op) && !job.profile->adds_bias_apart;
      if (!op.sums_rows && !biased) continue;
      const int64_t bytes = WorkspaceOf(job, block, op);
      if (bytes > 0) op.sum_workspace = Workspace(block, bytes);
    }
  }
}

}  // namespace plimsoll
