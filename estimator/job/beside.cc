#include "estimator/job/beside.h"

#include "estimator/job/vocabularies.h"

namespace plimsoll {

void Beside::Refuse(bool is, absl::string_view field, absl::string_view value) const {
  if (!is) return;
  check_.Fail(field, value, absl::StrCat("is not modelled with ", what_),
              ViolationCode::kNotModelled, {method_});
}

void Beside::RefuseSplits(const Job& job) const {
  Refuse(job.tensor_parallel_size > 1, "parallelism.tensor_parallel_size",
         job.tensor_parallel_size);
  Refuse(job.context_parallel_size > 1, "parallelism.context_parallel_size",
         job.context_parallel_size);
  Refuse(job.pipeline_parallel_size > 1, "parallelism.pipeline_parallel_size",
         job.pipeline_parallel_size);
}

void Beside::RefuseTuning(const TrainingSpec& spec, const Job& job) const {
  Refuse(job.adapter.has_value(), "training.adapter.method", spec.adapter.method.value_or(""));
  Refuse(job.preference.has_value(), "training.preference.method",
         spec.preference.method.value_or(""));
}

void Beside::RefusePartsAgain(const RecomputeSpec& spec, const Job& job) const {
  const bool whole = job.recompute == RecomputeMode::kNone || job.recompute == RecomputeMode::kFull;
  Refuse(!whole, "training.recompute.mode", spec.mode.value_or(""));
  Refuse(job.recompute_unit_layer_count > 1, "training.recompute.unit_layer_count",
         job.recompute_unit_layer_count);
}

void Beside::RefuseOtherLayers(const Transformer& model) const {
  Refuse(model.norm != Norm::kRmsNorm, "model", NameOf(model.norm, kNorms));
  Refuse(model.norm_placement != NormPlacement::kPre, "model",
         NameOf(model.norm_placement, kNormPlacements));
  Refuse(model.qk_norm != QkNorm::kNone && model.qk_norm != QkNorm::kPerHead, "model",
         NameOf(model.qk_norm, kQkNorms));
  Refuse(model.position_embedding != PositionEmbedding::kRotary, "model",
         NameOf(model.position_embedding, kPositionEmbeddings));
}

void Beside::RefuseOtherWidths(const Transformer& model) const {
  Refuse(model.embedding_size != model.hidden_size, "model",
         "embeddings of another width than the layers'");
}

void Beside::RefuseOtherModels(const Transformer& model) const {
  RefuseOtherWidths(model);
  Refuse(model.head != Head::kLanguageModel, "model", NameOf(model.head, kHeads));
}

}  // namespace plimsoll
