// The distillation section, and what is modelled beside it.
#include <string>

#include "absl/strings/str_cat.h"
#include "estimator/job/beside.h"
#include "estimator/job/job_abilities.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
namespace {

constexpr absl::string_view kTeacherField = "training.distillation.teacher";
constexpr absl::string_view kBetaField = "training.distillation.jsd_beta";

}  // namespace

// Source of the default: trl experimental/gkd/gkd_config.py, GKDConfig.beta.
void ReadDistillation(const DistillationSpec& spec, const Catalog& catalog, Check& check,
                      Job& job) {
  Distillation read;
  read.jsd_beta = check.Share(kBetaField, spec.jsd_beta, 0.5);
  if (!spec.teacher.has_value()) {
    if (!spec.jsd_beta.has_value()) return;
    check.Fail(kTeacherField, "unset", "must be set with other fields of distillation",
               ViolationCode::kMissing);
    return;
  }
  if (!CheckAbility(Ability::kDistillation, kTeacherField, *spec.teacher, check, job)) return;
  read.teacher = FindModel(kTeacherField, *spec.teacher, catalog, check);
  if (!spec.jsd_beta.has_value()) check.Assume(kBetaField, "0.5", "TRL's default");
  if (read.teacher != nullptr) {
    job.distillation = read;
  } else {
    check.Fail(kTeacherField, *spec.teacher, NotAModel(*spec.teacher, catalog),
               ViolationCode::kUnknownName, {"model"});
  }
}

// Source: trl experimental/gkd/gkd_trainer.py, GKDTrainer.__init__ (one vocabulary),
// training_step (generate_on_policy_outputs); gkd_config.py, GKDConfig.lmbda.
void CheckDistillation(const JobSpec& spec, Check& check, Job& job) {
  job.warnings.push_back({"samples", "job.training.distillation.teacher",
                          "answers are taken to be there (lmbda 0): what is held while the student "
                          "samples its own, as half of them are by TRL's default, is not counted"});
  const Transformer& teacher = *job.distillation->teacher;
  const Beside distillation("distillation", kTeacherField, check);
  distillation.RefusePartsAgain(spec.training.recompute, job);
  distillation.Refuse(job.preference.has_value(), "training.preference.method",
                      spec.training.preference.method.value_or(""));
  distillation.Refuse(job.quantization.has_value(), "training.quantization.format",
                      spec.training.quantization.format.value_or("nf4"));
  distillation.Refuse(job.trained.has_value(), "training.trained", "set");
  distillation.Refuse(job.offload_activations, "runtime.offload_activations", "true");
  distillation.Refuse(job.compile, "runtime.compile", "true");
  distillation.Refuse(job.liger_kernel, "runtime.liger_kernel", "true");
  distillation.Refuse(job.loss != LossImplementation::kPlain, "training.loss.implementation",
                      NameOf(job.loss, kLossImplementations));
  const bool engine = job.profile->sharding == Sharding::kEngine;
  if (engine && job.zero_stage == 3) {
    check.Fail("parallelism.zero_stage", 3,
               "is not modelled with distillation: the teacher is gathered beside all that the "
               "student keeps",
               ViolationCode::kNotModelled, {kTeacherField});
  }
  if (!engine && job.precision.master != DType::kNone) {
    check.Fail("training.precision.preset", spec.training.precision.preset.value_or("unset"),
               "is not modelled with distillation: bf16-autocast, bf16-pure and fp32 are",
               ViolationCode::kNotModelled, {kTeacherField});
  }
  if (job.model == nullptr) return;
  distillation.RefuseOtherModels(*job.model);
  distillation.Refuse(!PredictsTokens(teacher.head) || teacher.experts.Any(), kTeacherField,
                      *spec.training.distillation.teacher);
  if (teacher.vocab_size == job.model->vocab_size) return;
  check.Fail(kTeacherField, *spec.training.distillation.teacher,
             absl::StrCat("must have the student's vocabulary of ", job.model->vocab_size,
                          " words, not one of ", teacher.vocab_size),
             ViolationCode::kConflict, {"model"});
}

}  // namespace plimsoll
