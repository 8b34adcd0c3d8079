#include "estimator/passes/pass.h"

namespace plimsoll {

Program ApplyLossChunks(const ValidJob& job, Program program) {
  if (job->loss != LossImplementation::kChunked || job->loss_chunk_count == 1) return program;
  for (Block& block : program.blocks) {
    if (block.kind != BlockKind::kHead) continue;
    const Shape hidden = block.tensors[block.input].shape;
    for (Tensor& tensor : block.tensors) {
      if (tensor.role != Role::kLoss || tensor.shape.rank < 2) continue;
      tensor.shape.extents[1].Divide(job->loss_chunk_count, Split::kChunk);
      tensor.shrunk_by |= Mark(PassId::kLossChunks);
    }
    block.buffers.push_back({.name = "head.hidden.gradient",
                             .role = Role::kLoss,
                             .stream = Stream::kCompute,
                             .forward_bytes = Bytes(DType::kFp32, hidden.Elements()),
                             .backward_bytes = Bytes(DType::kFp32, hidden.Elements())});
  }
  return program;
}

}  // namespace plimsoll
