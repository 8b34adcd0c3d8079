// What nothing was held against that stands beside experts.
#include "absl/strings/str_join.h"
#include "estimator/base/layer_set.h"
#include "estimator/job/beside.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
namespace {

// An optimizer that steps each number alone does not see what a weight is.
bool SeesShapes(OptimizerName optimizer) {
  return optimizer == OptimizerName::kMuon || optimizer == OptimizerName::kAdafactor ||
         optimizer == OptimizerName::kLamb || optimizer == OptimizerName::kAdamW8bit;
}

bool HasPart(const LayerSet& layers, const Transformer& model) {
  return layers.CountOf(model.layer_count) > 0 && !layers.HasAllOf(model.layer_count);
}

// Decoders with norms before each sublayer, and activations that are one kernel.
void CheckShape(const Beside& experts, const Transformer& model) {
  const bool one_kernel = model.activation == Activation::kSilu ||
                          model.activation == Activation::kGelu ||
                          model.activation == Activation::kGeluTanh;
  experts.Refuse(!one_kernel, "model", NameOf(model.activation, kActivations));
  experts.Refuse(model.norm_placement != NormPlacement::kPre, "model",
                 NameOf(model.norm_placement, kNormPlacements));
  experts.Refuse(model.mlp_bias, "model", "biases of MLPs");
  experts.Refuse(!model.causal, "model", "an encoder");
  experts.RefuseOtherModels(model);
}

// Source: transformers integrations/moe.py, _can_use_grouped_mm.
void CheckKernels(const Beside& experts, const Job& job) {
  constexpr int kSince = 2009;
  experts.Refuse(job.architecture < GpuArchitecture::kAmpere, "cluster.gpu",
                 "a GPU older than Ampere");
  experts.Refuse(job.architecture > GpuArchitecture::kBlackwell, "cluster.gpu", "an AMD GPU");
  experts.Refuse(job.torch_version >= 0 && job.torch_version < kSince, "runtime.versions",
                 "torch before 2.9");
}

// PEFT's adapters stand beside linear modules: experts are parameters, the router too.
// Source: peft tuners/lora/model.py, _create_new_module; transformers,
// models/mixtral/modeling_mixtral.py, MixtralExperts.
void CheckAdapterOf(const Beside& experts, const AdapterSpec& spec, const Job& job) {
  if (!job.adapter.has_value()) return;
  constexpr uint8_t kMlp = 1u << static_cast<int>(AdapterTarget::kGate) |
                           1u << static_cast<int>(AdapterTarget::kUp) |
                           1u << static_cast<int>(AdapterTarget::kDown);
  experts.Refuse((job.adapter->targets & kMlp) != 0, "training.adapter.target_modules",
                 spec.target_modules.empty() ? "unset" : absl::StrJoin(spec.target_modules, ", "));
  experts.Refuse(job.quantization.has_value(), "training.adapter.method", "qlora");
}

}  // namespace

void CheckExperts(const JobSpec& spec, Check& check, const Job& job) {
  const Transformer& model = *job.model;
  CheckAbility(Ability::kExperts, "model", absl::StrCat(model.experts.count, " experts"), check,
               job);
  const Beside experts("experts", "model", check);
  CheckAdapterOf(experts, spec.training.adapter, job);
  experts.Refuse(job.reference.has_value(), "training.preference.method",
                 spec.training.preference.method.value_or(""));
  experts.Refuse(SeesShapes(job.optimizer), "training.optimizer.name",
                 NameOf(job.optimizer, kOptimizers));
  experts.Refuse(spec.training.precision.preset == "fp8-mixed", "training.precision.preset",
                 "fp8-mixed");
  experts.RefusePartsAgain(spec.training.recompute, job);
  CheckShape(experts, model);
  experts.Refuse(job.compile, "runtime.compile", "true");
  experts.RefuseSplits(job);
  experts.Refuse(model.experts.irregular, "model", "experts on layers in no regular order");
  experts.Refuse(
      job.masks_windows && HasPart(model.windowed, model) && HasPart(model.experts.layers, model),
      "model", "windows on some layers and experts on some");
  CheckKernels(experts, job);
  check.Assume("model", "grouped products", "transformers 5's default for experts");
}

}  // namespace plimsoll
