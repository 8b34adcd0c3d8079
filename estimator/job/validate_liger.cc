// Liger's kernels: the layers that have one, and what is modelled beside them.
#include "estimator/base/version.h"
#include "estimator/job/beside.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
namespace {

// Decoders as Llama's, whose MLPs are gated by SiLU, or as Gemma's by GELU.
// Source: Liger-Kernel, transformers/monkey_patch.py, MODEL_TYPE_TO_APPLY_LIGER_FN;
// transformers/swiglu.py, geglu.py, rope.py.
void CheckLayers(const Beside& kernels, const Transformer& model) {
  const bool gate =
      model.activation == Activation::kSilu || model.activation == Activation::kGeluTanh;
  kernels.Refuse(!model.gated_mlp, "model", "an MLP without a gate");
  kernels.Refuse(model.gated_mlp && !gate, "model", NameOf(model.activation, kActivations));
  kernels.Refuse(model.mlp_bias, "model", "biases of MLPs");
  kernels.RefuseOtherLayers(model);
  kernels.Refuse(model.concatenates_rotary, "model", "heads that are rotated in part");
  kernels.Refuse(model.logit_softcap, "model", "logits that are capped");
  kernels.Refuse(!model.causal, "model", "an encoder");
  kernels.RefuseOtherModels(model);
}

}  // namespace

void CheckLiger(const JobSpec& spec, Check& check, const Job& job) {
  constexpr char kField[] = "runtime.liger_kernel";
  if (!job.liger_kernel || !job.capabilities.Has(Ability::kLigerKernel)) return;
  constexpr int kFirst = 6;  // 0.6
  const Transformer& model = *job.model;
  const Beside kernels("Liger's kernels", kField, check);
  CheckLayers(kernels, model);
  kernels.Refuse(model.experts.Any(), "model", "experts");
  kernels.Refuse(model.latent.Any(), "model", "latent attention");
  kernels.Refuse(model.linear.Any(), "model", "linear attention");
  kernels.Refuse(model.state_space.Any(), "model", "state-space layers");
  kernels.RefuseSplits(job);
  kernels.RefusePartsAgain(spec.training.recompute, job);
  kernels.Refuse(job.compile, "runtime.compile", "true");
  kernels.Refuse(job.preference.has_value(), "training.preference.method",
                 spec.training.preference.method.value_or(""));
  kernels.Refuse(!IsNvidia(job.architecture), "cluster.gpu", "an AMD GPU");
  if (IsBefore(job.liger_version, kFirst)) {
    check.Fail("runtime.versions.liger-kernel", VersionText(job.liger_version),
               "is older than every era that is modelled", ViolationCode::kNotModelled);
  }
}

}  // namespace plimsoll
