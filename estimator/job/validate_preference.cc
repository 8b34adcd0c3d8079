// The preference section, and what is modelled beside it.
#include <string>

#include "absl/strings/str_cat.h"
#include "estimator/job/beside.h"
#include "estimator/job/job_abilities.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
namespace {

// Source of the defaults: trl trainer/dpo_trainer.py, DPOTrainer.__init__.
void ReadReference(const PreferenceSpec& spec, Check& check, Job& job) {
  const absl::string_view field = "training.preference.reference";
  if (job.preference.has_value() && !RowOf(*job.preference).compares) {
    if (!spec.reference.has_value()) return;
    check.Fail(field, *spec.reference, "is compared with nothing", ViolationCode::kConflict,
               {"training.preference.method"});
    return;
  }
  const bool samples = Says(job.preference, &PreferenceRow::samples);
  if (samples && spec.reference == "none") {
    check.Fail(field, *spec.reference, "must be left out: grpo is compared with nothing then",
               ViolationCode::kUnknownName);
    return;
  }
  if (samples && spec.reference == "precomputed") {
    check.Fail(field, *spec.reference, "needs answers that are there before training",
               ViolationCode::kConflict, {"training.preference.method"});
  }
  const bool unasked = !job.preference.has_value() || RowOf(*job.preference).unasked;
  if (!spec.reference.has_value() && !unasked) return;  // TRL's beta is 0
  const bool adapter = job.adapter.has_value();
  const Reference usual = adapter ? Reference::kAdaptersOff : Reference::kModel;
  job.reference = usual;
  if (!spec.reference.has_value()) {
    check.Assume(field, NameOf(usual, kReferences), "TRL's default");
    return;
  }
  job.reference = check.Meaning(field, *spec.reference, kReferences).value_or(usual);
  if (job.reference == Reference::kAdaptersOff && !adapter) {
    check.Fail(field, *spec.reference, "needs an adapter", ViolationCode::kConflict,
               {"training.adapter.method"});
  }
}

// Where weights are gathered; these were not held against real code, or differ from it.
void CheckShardedReference(const Beside& pairs, Check& check, const Job& job) {
  const bool units = job.profile->sharding == Sharding::kUnits;
  const bool third = job.profile->sharding == Sharding::kEngine && job.zero_stage == 3;
  if (third && RowOf(*job.preference).runs_twice) {
    check.Fail("parallelism.zero_stage", job.zero_stage,
               absl::StrCat("is not modelled with ", NameOf(*job.preference, kPreferenceMethods),
                            ", whose policy runs forward twice"),
               ViolationCode::kNotModelled, {"training.preference.method"});
  }
  const bool compares = job.reference.has_value() && job.reference != Reference::kPrecomputed;
  pairs.Refuse(compares && job.offload_parameters, "runtime.offload_parameters", "true");
  const bool first = units && RowOf(*job.preference).samples && job.reference == Reference::kModel;
  if (first && job.micro_batch_count > 1) {
    check.Fail("training.global_batch_size", absl::StrCat(job.micro_batch_count, " micro-batches"),
               "is not modelled with grpo's reference, which runs once for all of them",
               ViolationCode::kNotModelled, {"training.preference.reference", "runtime.framework"});
  }
  if (units && job.reference == Reference::kAdaptersOff) {
    check.Fail(
        "training.preference.reference", NameOf(*job.reference, kReferences),
        absl::StrCat("is not modelled with ", job.profile->name,
                     RowOf(*job.preference).samples ? ": model is" : ": model and precomputed are"),
        ViolationCode::kNotModelled, {"runtime.framework", "training.adapter.method"});
  }
}

void CheckMethod(const Beside& pairs, Check& check, const Job& job) {
  const bool scores = RowOf(*job.preference).scores;
  const absl::string_view method = NameOf(*job.preference, kPreferenceMethods);
  if (scores && PredictsTokens(job.model->head)) {
    pairs.Refuse(true, "model", NameOf(job.model->head, kHeads));
  } else if (scores && job.model->head != Head::kSequenceClassification) {
    check.Fail("model", NameOf(job.model->head, kHeads),
               absl::StrCat(method, " needs a head of sequence-classification"),
               ViolationCode::kConflict, {"training.preference.method"});
  }
  if (!scores) pairs.RefuseOtherModels(*job.model);
}

// Source: trl trainer/kto_trainer.py, __init__.
void WarnOfSingleAnswers(Job& job) {
  if (job.preference != PreferenceMethod::kKto || job.micro_batch_size > 1) return;
  job.warnings.push_back({"kto-batch", "job.training.micro_batch_size",
                          "TRL's KTOTrainer refuses one answer a GPU with its usual loss"});
}

// Source: trl trainer/grpo_trainer.py, _generate_single_turn.
void WarnOfSamples(Job& job) {
  if (!RowOf(*job.preference).samples) return;
  job.warnings.push_back({"samples", "job.training.preference.method",
                          "answers come from a server of their own, as vLLM's: its memory and its "
                          "time are not counted"});
}

}  // namespace

void ReadPreference(const PreferenceSpec& spec, Check& check, Job& job) {
  if (!spec.method.has_value() && !spec.reference.has_value()) return;
  const absl::string_view field = "training.preference.method";
  if (spec.method.has_value()) {
    const auto method = check.Meaning(field, *spec.method, kPreferenceMethods);
    if (method.has_value()) CheckAbility(AbilityOf(*method), field, *spec.method, check, job);
    job.preference = method.value_or(PreferenceMethod::kDpo);
  } else {
    check.Fail(field, "unset", "must be set with other fields of preference",
               ViolationCode::kMissing);
  }
  ReadReference(spec, check, job);
}

void CheckPreference(const JobSpec& spec, Check& check, Job& job) {
  WarnOfSingleAnswers(job);
  WarnOfSamples(job);
  const Beside pairs("preference tuning", "training.preference.method", check);
  pairs.RefusePartsAgain(spec.training.recompute, job);
  pairs.Refuse(job.compile, "runtime.compile", "true");
  if (job.quantization.has_value()) {  // these were not held against real code
    const bool other = job.reference == Reference::kModel || job.precision.autocast ||
                       job.quantization->format == DType::kInt8;
    pairs.Refuse(other, "training.quantization.format", Name(job.quantization->format));
  }
  CheckShardedReference(pairs, check, job);
  const bool masters = job.profile->sharding == Sharding::kBuckets && !job.adapter.has_value() &&
                       job.precision.master != DType::kNone;
  if (masters) {
    check.Fail("training.precision.master_dtype", Name(job.precision.master),
               "is not modelled with preference tuning: presets bf16-autocast, bf16-pure and fp32 "
               "are",
               ViolationCode::kNotModelled, {"training.precision.preset"});
  }
  if (job.model != nullptr) CheckMethod(pairs, check, job);
}

}  // namespace plimsoll
