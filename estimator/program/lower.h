// Lowers a job to its program: the whole model as one GPU without any
// parallelism would run it. Passes then split it.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_H_

#include <memory_resource>

#include "absl/strings/string_view.h"
#include "estimator/job/job.h"
#include "estimator/job/layer_kinds.h"
#include "estimator/program/block_builder.h"
#include "estimator/program/program.h"

namespace plimsoll {

// Blocks: embedding, a layer of each kind, head with the loss. Symbols: program.h.
Program Lower(const ValidJob& job,
              std::pmr::memory_resource* memory = std::pmr::get_default_resource());
// The same of a job that stands beside a valid one: its teacher's.
Program Lower(const Job& job, std::pmr::memory_resource* memory);

// tokens [B, S] int64 -> [B, S, H]
//   embedding.tokens.weight     [V, E]  tensor axis 0
//   embedding.positions.weight  [P, H]
Block LowerEmbedding(const Job& job, std::pmr::memory_resource* memory);

// What a lookup of a rank's tokens sums its gradient's rows up in, beside it.
void SumRows(BlockBuilder& b, Op& lookup);

// A layer's ops: [B, S, H] -> [B, S, H].
TensorId LowerSublayers(BlockBuilder& b, TensorId input, const LayerKind& kind);

// [B, S, H] -> [B, S, H]
//   attention.qkv.weight  [A + 2C, H]  tensor axis 0
//   attention.out.weight  [H, A]       tensor axis 1
//   mlp.up.weight         [F, H]       tensor axis 0, 2F where gated
//   mlp.down.weight       [H, F]       tensor axis 1
// Source:  Korthikanti et al. 2022 (arXiv 2205.05198) for what is split by
//          which; memory-saving kernels by Profile.
Block LowerLayer(const Job& job, absl::string_view name, const LayerKind& kind,
                 std::pmr::memory_resource* memory);

// [B, S, H] -> loss
//   head.weight  [V, H]  tensor axis 0; none of its own where tied
// Heads that predict no tokens are in lower_scores.h.
Block LowerHead(const Job& job, std::pmr::memory_resource* memory);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_H_
