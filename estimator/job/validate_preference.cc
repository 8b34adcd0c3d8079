// The preference section, and what is modelled beside it.
#include <string>

#include "estimator/job/beside.h"
#include "estimator/job/job_abilities.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
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
  const Beside pairs("preference tuning", "training.preference.method", check);
  pairs.RefusePartsAgain(spec.training.recompute, job);
  pairs.Refuse(job.compile, "runtime.compile", "true");
  if (job.quantization.has_value()) {  // these were not held against real code
    const bool other = job.reference == Reference::kModel || job.precision.autocast;
    pairs.Refuse(other, "training.quantization.format", Name(job.quantization->format));
  }
  pairs.Refuse(job.profile->sharding == Sharding::kEngine && job.zero_stage == 3,
               "parallelism.zero_stage", job.zero_stage);
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
  if (job.model != nullptr) pairs.RefuseOtherModels(*job.model);
}

}  // namespace plimsoll
