// The preference section, and what is modelled beside it.
#include <string>

#include "estimator/job/job_abilities.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
namespace {

void Refuse(bool is, absl::string_view field, absl::string_view value, Check& check) {
  if (!is) return;
  check.Fail(field, value, "is not modelled with preference tuning", ViolationCode::kNotModelled,
             {"training.preference.method"});
}

}  // namespace

// Source of the defaults: trl trainer/dpo_trainer.py, DPOTrainer.__init__.
void ReadPreference(const PreferenceSpec& spec, Check& check, Job& job) {
  if (!spec.method.has_value() && !spec.reference.has_value()) return;
  const absl::string_view field = "training.preference.method";
  if (spec.method.has_value()) {
    const auto method = check.Meaning(field, *spec.method, kPreferenceMethods);
    if (method.has_value()) CheckAbility(AbilityOf(*method), field, *spec.method, check, job);
  } else {
    check.Fail(field, "unset", "must be set with other fields of preference",
               ViolationCode::kMissing);
  }
  const bool adapter = job.adapter.has_value();
  const Reference usual = adapter ? Reference::kAdaptersOff : Reference::kModel;
  job.reference = usual;
  const absl::string_view reference = "training.preference.reference";
  if (!spec.reference.has_value()) {
    check.Assume(reference, NameOf(usual, kReferences), "TRL's default");
    return;
  }
  job.reference = check.Meaning(reference, *spec.reference, kReferences).value_or(usual);
  if (job.reference == Reference::kAdaptersOff && !adapter) {
    check.Fail(reference, *spec.reference, "needs an adapter", ViolationCode::kConflict,
               {"training.adapter.method"});
  }
}

void CheckPreference(const JobSpec& spec, Check& check, const Job& job) {
  const RecomputeSpec& recompute = spec.training.recompute;
  const bool whole = job.recompute == RecomputeMode::kNone || job.recompute == RecomputeMode::kFull;
  Refuse(!whole, "training.recompute.mode", recompute.mode.value_or(""), check);
  Refuse(job.recompute_unit_layer_count > 1, "training.recompute.unit_layer_count",
         absl::StrCat(job.recompute_unit_layer_count), check);
  Refuse(job.compile, "runtime.compile", "true", check);
  if (job.loss != LossImplementation::kFused) {
    check.Fail("training.loss.implementation", NameOf(job.loss, kLossImplementations),
               "is not modelled with preference tuning: fused is, which keeps no logits, as TRL "
               "has it from 1.15 on",
               ViolationCode::kNotModelled, {"training.preference.method"});
  }
  const bool masters = job.profile->sharding == Sharding::kBuckets && !job.adapter.has_value() &&
                       job.precision.master != DType::kNone;
  if (masters) {
    check.Fail("training.precision.master_dtype", Name(job.precision.master),
               "is not modelled with preference tuning: presets bf16-autocast, bf16-pure and fp32 "
               "are",
               ViolationCode::kNotModelled, {"training.precision.preset"});
  }
  if (job.model == nullptr) return;
  Refuse(job.model->embedding_size != job.model->hidden_size, "model",
         "embeddings of another width than the layers'", check);
  Refuse(job.model->head != Head::kLanguageModel, "model", NameOf(job.model->head, kHeads), check);
}

}  // namespace plimsoll
