#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "estimator/passes/exchange_heads.h"
#include "estimator/passes/pass.h"
#include "estimator/passes/share_keys.h"

namespace plimsoll {
namespace {

// Of tensors with the whole sequence the heads, else the sequence. A head of keys and values
// that are fewer than ranks is on several.
void Divide(const Job& job, bool whole, Tensor& tensor) {
  const int64_t ranks = job.context_parallel_size;
  for (int axis = 0; axis < tensor.shape.rank; ++axis) {
    Extent& extent = tensor.shape.extents[axis];
    if (whole ? axis != tensor.tensor_axis : extent.symbol != Symbol::kS) continue;
    const bool heads_alone = extent.symbol == Symbol::kN;
    extent.Divide(ranks, Split::kContext);
    if (whole && !heads_alone) extent.size = std::max(extent.size, job.model->head_size);
    tensor.shrunk_by |= Mark(PassId::kContextParallel);
  }
}

// Returns which tensors have the whole sequence, for some heads.
std::vector<bool> Communicate(const Job& job, Block& block) {
  if (job.context_parallel_method == ContextParallelMethod::kUlysses) {
    return ExchangeHeads(job, block);
  }
  const bool rings = job.context_parallel_method == ContextParallelMethod::kRing;
  (job.profile->merges_contexts ? MergeSteps : rings ? PassKeysAround : GatherKeys)(job, block);
  return std::vector<bool>(block.tensors.size());
}

}  // namespace

Program ApplyContextParallel(const ValidJob& job, Program program) {
  if (job->context_parallel_size == 1) return program;
  for (Block& block : program.blocks) {
    const std::vector<bool> whole = Communicate(*job, block);
    for (size_t i = 0; i < block.tensors.size(); ++i) Divide(*job, whole[i], block.tensors[i]);
  }
  return program;
}

}  // namespace plimsoll
