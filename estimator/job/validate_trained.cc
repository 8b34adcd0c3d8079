// Which of the model's own weights are trained, and what is modelled beside frozen ones.
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "estimator/job/beside.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
namespace {

constexpr char kModules[] = "training.trained.modules";
constexpr KnownField kLayers("training.trained.layer_count");

std::string Said(const TrainedSpec& spec) {
  return spec.modules.empty() ? absl::StrCat(*spec.layer_count) : absl::StrJoin(spec.modules, ", ");
}

absl::string_view FieldOf(const TrainedSpec& spec) {
  return spec.modules.empty() ? kLayers : kModules;
}

// None where a name is of no part.
void ReadModules(const TrainedSpec& spec, Check& check, TrainedPart& trained) {
  if (spec.modules.empty()) return;
  if (!check.FewEnough(kModules, spec.modules.size(), "names", kMostNames)) return;
  trained.modules = 0;
  bool known = true;
  for (const std::string& name : spec.modules) {
    const auto part = check.Meaning(kModules, name, kModelParts);
    known = known && part.has_value();
    if (part.has_value()) trained.modules |= 1u << static_cast<unsigned>(*part);
  }
  if (!known) trained.modules = 0;
}

// Whether what is trained has parts that each layer has.
bool TrainsInLayers(const TrainedPart& trained) {
  return trained.Has(ModelPart::kAttention) || trained.Has(ModelPart::kMlp) ||
         trained.Has(ModelPart::kNorm) || trained.Has(ModelPart::kBias);
}

// Whether the model has anything of what is named.
bool TrainsAnything(const Job& job) {
  const TrainedPart& trained = *job.trained;
  const Transformer& model = *job.model;
  const bool ends = trained.Has(ModelPart::kEmbedding) || trained.Has(ModelPart::kNorm) ||
                    !job.FreezesHead() || (trained.Has(ModelPart::kBias) && model.norm_bias);
  if (ends) return true;
  if (trained.layer_count == 0) return false;
  const bool biases =
      model.norm_bias || model.qkv_bias || model.attention_output_bias || model.mlp_bias;
  return trained.Has(ModelPart::kAttention) || trained.Has(ModelPart::kMlp) ||
         (trained.Has(ModelPart::kBias) && biases);
}

}  // namespace

void ReadTrained(const TrainedSpec& spec, Check& check, Job& job) {
  if (spec.modules.empty() && !spec.layer_count.has_value()) return;
  if (!CheckAbility(Ability::kFrozenParts, FieldOf(spec), Said(spec), check, job)) return;
  TrainedPart trained;
  ReadModules(spec, check, trained);
  if (job.model != nullptr) {
    const int64_t layers = job.model->layer_count;
    trained.layer_count = check.Number(kLayers, spec.layer_count, layers);
    if (trained.layer_count > layers) {
      check.Fail(kLayers, trained.layer_count, absl::StrCat("must be at most ", layers),
                 ViolationCode::kOutOfRange, {"model"});
    }
  }
  if (spec.layer_count.has_value() && trained.modules != 0 && !TrainsInLayers(trained)) {
    check.Fail(kLayers, *spec.layer_count, "counts layers, of which nothing is trained",
               ViolationCode::kConflict, {kModules});
  }
  job.trained = trained;
}

void CheckTrained(const JobSpec& spec, Check& check, const Job& job) {
  const TrainedSpec& trained = spec.training.trained;
  const Beside frozen("frozen parts", FieldOf(trained), check);
  frozen.RefuseSplits(job);
  frozen.RefuseTuning(spec.training, job);
  frozen.RefusePartsAgain(spec.training.recompute, job);
  frozen.Refuse(job.compile, "runtime.compile", "true");
  frozen.Refuse(job.offload_parameters, "runtime.offload_parameters", "true");
  frozen.Refuse(job.offload_optimizer, "runtime.offload_optimizer", "true");
  frozen.Refuse(job.optimizer == OptimizerName::kMuon, "training.optimizer.name", "muon");
  frozen.Refuse(job.optimizer_in_backward, "training.optimizer.in_backward", "true");
  if (job.model == nullptr) return;
  const Transformer& model = *job.model;
  frozen.RefuseOtherModels(model);
  frozen.Refuse(model.experts.Any(), "model", "experts");
  frozen.Refuse(model.latent.Any(), "model", "latent attention");
  frozen.Refuse(model.linear.Any(), "model", "linear attention");
  frozen.Refuse(model.state_space.Any(), "model", "state-space layers");
  if (job.trained->modules != 0 && !TrainsAnything(job)) {
    check.Fail(FieldOf(trained), Said(trained), "trains no weight of this model",
               ViolationCode::kConflict, {"model"});
  }
}

}  // namespace plimsoll
