// What stands beside Megatron-FSDP that it lacks, or that nothing was held against.
#include "absl/strings/string_view.h"
#include "estimator/job/beside.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {

void CheckMegatronFsdp(const JobSpec& spec, Check& check, const Job& job) {
  constexpr absl::string_view kStage = "parallelism.zero_stage";
  // Source: Megatron-LM core 0.19, training/arguments.py ("Optimizer compatibility check").
  const bool steps = IsAdam(job.optimizer) || job.optimizer == OptimizerName::kSgd ||
                     job.optimizer == OptimizerName::kSgdMomentum;
  if (!steps) {
    check.Fail("training.optimizer.name", NameOf(job.optimizer, kOptimizers),
               "is not what Megatron-FSDP, zero_stage 2 and 3, steps: adam, adamw and sgd are",
               ViolationCode::kConflict, {kStage});
  }
  const Beside fsdp("Megatron-FSDP, zero_stage 2 and 3", kStage, check);
  fsdp.Refuse(job.pipeline_parallel_size > 1, "parallelism.pipeline_parallel_size",
              job.pipeline_parallel_size);
  fsdp.Refuse(job.mtp_layer_count > 0, "training.mtp_layer_count", job.mtp_layer_count);
  // A run of its CI that loads its DTensors has 1.9 GB more than is counted, 43 % of what it holds
  // (Megatron-LM d98e8a64dd, gpt3_mcore_te_tp2_zp_z3_resume_torch_dist_te_8experts2parallel).
  fsdp.Refuse(job.resumed_from_checkpoint, "training.resumed_from_checkpoint", "true");
  // Weights are gathered in fp8, or their copies in it stay. Source:
  // megatron_fsdp/mixed_precision.py; transformer_engine/pytorch/module/base.py.
  fsdp.Refuse(job.fp8.has_value(), "training.precision.preset",
              spec.training.precision.preset.value_or("fp8-mixed"));
  // Its main weights are fp32 whatever weights are, unless it is told otherwise. Source:
  // Megatron training/arguments.py, --megatron-fsdp-main-params-dtype.
  fsdp.Refuse(job.precision.master != DType::kFp32 && !job.fp8.has_value(),
              "training.precision.preset", spec.training.precision.preset.value_or(""));
}

}  // namespace plimsoll
