// Linear attention: what a spelled-out model says of it, and what is modelled beside it.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "estimator/base/units.h"
#include "estimator/base/version.h"
#include "estimator/job/beside.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
namespace {

constexpr KnownField kValueHeads("model.transformer.linear_value_head_count");
constexpr KnownField kKeyHeads("model.transformer.linear_key_head_count");
constexpr KnownField kKeySize("model.transformer.linear_key_head_size");
constexpr KnownField kValueSize("model.transformer.linear_value_head_size");
constexpr KnownField kKernel("model.transformer.linear_kernel_size");
constexpr KnownField kPeriod("model.transformer.attention_period_size");
constexpr int64_t kWidest = 1 << 16;

// Parts of linear attention need its heads.
void CheckParts(const TransformerSpec& spec, Check& check) {
  for (const auto& [field, number] : {std::pair{kKeyHeads, &spec.linear_key_head_count},
                                      std::pair{kKeySize, &spec.linear_key_head_size},
                                      std::pair{kValueSize, &spec.linear_value_head_size},
                                      std::pair{kKernel, &spec.linear_kernel_size},
                                      std::pair{kPeriod, &spec.attention_period_size}}) {
    if (!number->has_value()) continue;
    check.Fail(field, check.Number(field, *number, 2), "needs linear_value_head_count",
               ViolationCode::kConflict, {kValueHeads});
  }
}

// A gate beside queries of a projection of their own.
void CheckGate(Check& check, const Job& job) {
  const Transformer& model = *job.model;
  if (!model.attention_gate) return;
  const auto refuse = [&](absl::string_view rule, absl::string_view other) {
    check.Fail("model", "gated attention", std::string(rule), ViolationCode::kNotModelled, {other});
  };
  if (!job.profile->transformers_attention) {
    return refuse("is modelled as transformers' classes have it", "runtime.framework");
  }
  if (model.latent.Any()) return refuse("is not modelled with latent attention", "model");
  if (model.joint_qkv) refuse("is not modelled with one projection of all three", "model");
}

// Whose layers are as the class has them now. Source: transformers 5.23,
// models/olmo_hybrid/modeling_olmo_hybrid.py, OlmoHybridGatedDeltaNet.
void CheckEach(const AdapterSpec& adapter, Check& check, const Job& job) {
  constexpr int kHeld = 5023;
  if (job.model->linear.projections != DeltaProjections::kEach) return;
  if (IsBefore(job.transformers_version, kHeld)) {
    check.Fail("runtime.versions.transformers", VersionText(job.transformers_version),
               "is modelled with this model from 5.23 on", ViolationCode::kNotModelled, {"model"});
  }
  if (!job.adapter.has_value()) return;
  check.Fail("training.adapter.method", adapter.method.value_or(""),
             "is not modelled with linear attention that projects queries, keys and values apart",
             ViolationCode::kNotModelled, {"model"});
}

// Before 5.17 Python solved row by row. Source: transformers 5.17, torch_chunk_gated_delta_rule
// (solve_triangular).
void CheckRelease(bool fla, Check& check, const Job& job) {
  constexpr int kFirst = 4057;
  constexpr int kSolves = 5017;
  if (IsBefore(job.transformers_version, kFirst)) {
    check.Fail("runtime.versions.transformers", VersionText(job.transformers_version),
               "has no class with linear attention: 4.57 is the first",
               ViolationCode::kNotSupported, {"model"});
  }
  if (fla || !IsBefore(job.transformers_version, kSolves)) return;
  check.Fail("training.linear_attention", "torch",
             "is modelled as transformers has it from 5.17 on", ViolationCode::kNotModelled,
             {"runtime.versions"});
}

}  // namespace

void ReadLinear(const TransformerSpec& spec, Check& check, Transformer& model) {
  model.attention_gate = spec.attention_gate.value_or(false);
  if (!spec.linear_value_head_count.has_value()) return CheckParts(spec, check);
  const size_t before = check.violations().size();
  LinearAttention linear;
  linear.value_head_count = check.Number(kValueHeads, spec.linear_value_head_count, 1);
  linear.key_head_count =
      check.Number(kKeyHeads, spec.linear_key_head_count, linear.value_head_count);
  linear.key_size = check.Number(kKeySize, spec.linear_key_head_size, 128);
  linear.value_size = check.Number(kValueSize, spec.linear_value_head_size, 128);
  linear.kernel_size = check.Number(kKernel, spec.linear_kernel_size, 4);
  const int64_t period = check.Number(kPeriod, spec.attention_period_size, 4);
  if (check.violations().size() > before) return;
  linear.layers = {.period = period, .to = period - 1};
  model.linear = linear;
  if (linear.value_head_count % linear.key_head_count == 0) return;
  check.Fail(kKeyHeads, linear.key_head_count,
             absl::StrCat("must divide linear_value_head_count ", linear.value_head_count),
             ViolationCode::kConflict, {kValueHeads});
}

void ReadLinearAttention(const TrainingSpec& spec, Check& check, Job& job) {
  const absl::string_view field = "training.linear_attention";
  const bool has = job.model != nullptr && job.model->linear.Any();
  if (spec.linear_attention.has_value()) {
    job.linear_attention = check.Meaning(field, *spec.linear_attention, kLinearAttentionKernels)
                               .value_or(LinearAttentionKernel::kFla);
    if (has || job.model == nullptr) return;
    check.Fail(field, *spec.linear_attention, "needs a model with linear attention",
               ViolationCode::kConflict, {"model"});
  } else if (has) {
    check.Assume(field, "fla", "kernels of flash-linear-attention; torch keeps far more");
  }
}

// Source: fla/ops/common/chunk_delta_h.py (keys of at most 256).
void CheckLinear(const JobSpec& spec, Check& check, const Job& job) {
  CheckGate(check, job);
  if (!job.model->linear.Any()) return;
  if (!CheckAbility(Ability::kLinearAttention, "model", "linear attention", check, job)) return;
  const Transformer& model = *job.model;
  const Beside linear("linear attention", "model", check);
  linear.RefuseSplits(job);
  linear.Refuse(job.compile, "runtime.compile", "true");
  linear.Refuse(job.precision.activation == DType::kFp16, "training.precision.preset",
                spec.training.precision.preset.value_or("fp16"));
  linear.Refuse(!model.causal, "model", "an encoder");
  linear.Refuse(model.latent.Any(), "model", "latent attention");
  const bool before = model.norm_placement == NormPlacement::kPre || model.linear.norms_before;
  linear.Refuse(!before, "model", NameOf(model.norm_placement, kNormPlacements));
  linear.Refuse(model.norm != Norm::kRmsNorm, "model", NameOf(model.norm, kNorms));
  const bool parts = job.recompute != RecomputeMode::kNone && job.recompute != RecomputeMode::kFull;
  linear.Refuse(parts, "training.recompute.mode", spec.training.recompute.mode.value_or(""));
  linear.Refuse(job.masks_windows, "model", "windows");
  const int64_t keys = Multiply(model.linear.value_head_count, model.linear.key_size);
  const int64_t values = Multiply(model.linear.value_head_count, model.linear.value_size);
  if (std::max(keys, values) > kWidest) {
    check.Fail("model", std::max(keys, values),
               absl::StrCat("heads of linear attention wider together than ", kWidest,
                            " are not modelled"),
               ViolationCode::kNotModelled);
  }
  const bool fla = job.linear_attention == LinearAttentionKernel::kFla;
  CheckRelease(fla, check, job);
  CheckEach(spec.training.adapter, check, job);
  constexpr int64_t kMostKeys = 256;
  if (!fla || model.linear.key_size <= kMostKeys) return;
  check.Fail("training.linear_attention", "fla",
             absl::StrCat("takes keys of at most 256 numbers, not ", model.linear.key_size),
             ViolationCode::kNotSupported, {"model"});
}

}  // namespace plimsoll
