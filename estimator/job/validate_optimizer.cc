// Optimizers that need more than a name: those that project gradients, and those that send signs.
#include "absl/strings/str_join.h"
#include "estimator/job/beside.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
namespace {

constexpr absl::string_view kName = "training.optimizer.name";
constexpr absl::string_view kTargets = "training.optimizer.target_modules";

// "galore-adamw or apollo-adamw".
std::string ProjectingOptimizers() {
  std::vector<absl::string_view> names;
  for (const Word<OptimizerName>& word : kOptimizers) {
    if (RowOf(word.value).picks == Picks::kTargets) names.push_back(word.name);
  }
  return absl::StrJoin(names, " or ");
}

void RefuseFields(const OptimizerSpec& spec, Check& check) {
  const auto fail = [&check](absl::string_view field, absl::string_view value) {
    check.Fail(field, value, absl::StrCat("needs ", kName, " ", ProjectingOptimizers()),
               ViolationCode::kConflict, {kName});
  };
  if (spec.rank.has_value()) fail("training.optimizer.rank", absl::StrCat(*spec.rank));
  if (!spec.target_modules.empty()) fail(kTargets, absl::StrJoin(spec.target_modules, ", "));
}

ModelParts ReadParts(const std::vector<std::string>& names, Check& check) {
  if (names.empty()) {
    check.Assume(kTargets, "attention, mlp", "the layers' matrices, as both papers have it");
    return BitOf(ModelPart::kAttention) | BitOf(ModelPart::kMlp);
  }
  ModelParts parts = 0;
  if (!check.FewEnough(kTargets, names.size(), "names", kMostNames)) return parts;
  for (const std::string& name : names) {
    parts |= check.Meaning(kTargets, name, kProjectedParts).value_or(0);
  }
  return parts;
}

}  // namespace

// Source: transformers trainer_optimizer.py, _get_galore_optimizer, _get_apollo_optimizer (rank).
void ReadProjection(const TrainingSpec& spec, Check& check, Job& job) {
  constexpr int64_t kUsualRank = 128;
  const OptimizerSpec& optimizer = spec.optimizer;
  if (RowOf(job.optimizer).picks != Picks::kTargets) return RefuseFields(optimizer, check);
  constexpr KnownField rank("training.optimizer.rank");
  job.projection = Projection{.rank = check.Number(rank, optimizer.rank, kUsualRank),
                              .parts = ReadParts(optimizer.target_modules, check)};
  const std::string name(NameOf(job.optimizer, kOptimizers));
  const Beside projected(name, kName, check);
  projected.Refuse(job.adapter.has_value(), "training.adapter.method", "set");
  projected.Refuse(job.trained.has_value(), "training.trained.modules", "set");
  const bool joint = job.model != nullptr && (job.model->joint_qkv || job.model->joint_gate);
  projected.Refuse(joint, "model", "projections that are one matrix");
}

// Source: deepspeed 0.18.9 runtime/engine.py, _configure_basic_optimizer (the assertions),
// _configure_fp16_optimizer.
void CheckCompressed(const TrainingSpec& spec, Check& check, const Job& job) {
  if (!RowOf(job.optimizer).compresses) return;
  const std::string name(NameOf(job.optimizer, kOptimizers));
  if (job.zero_stage > 0) {
    check.Fail("parallelism.zero_stage", job.zero_stage,
               absl::StrCat("is not compatible with ", name, ": DeepSpeed has it without ZeRO"),
               ViolationCode::kConflict, {kName});
  }
  const Beside compressed(name, kName, check);
  compressed.Refuse(job.precision.master != DType::kFp32, "training.precision.preset",
                    spec.precision.preset.value_or("bf16-mixed"));
  compressed.Refuse(job.adapter.has_value(), "training.adapter.method", "set");
  compressed.Refuse(job.trained.has_value(), "training.trained.modules", "set");
}

}  // namespace plimsoll
