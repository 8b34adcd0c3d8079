// Which part of a model a parameter is of, by the block and the name that it was lowered with.
#ifndef PLIMSOLL_ESTIMATOR_PASSES_MODEL_PART_H_
#define PLIMSOLL_ESTIMATOR_PASSES_MODEL_PART_H_

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "estimator/job/job.h"
#include "estimator/program/program.h"

namespace plimsoll {

inline ModelPart PartOf(BlockKind kind, absl::string_view name) {
  if (absl::StrContains(name, "norm")) return ModelPart::kNorm;
  if (kind == BlockKind::kEmbedding) return ModelPart::kEmbedding;
  if (kind == BlockKind::kHead) return ModelPart::kHead;
  return absl::StartsWith(name, "attention.") ? ModelPart::kAttention : ModelPart::kMlp;
}

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PASSES_MODEL_PART_H_
