// What is computed again in backward: modes, and modules by what a model has of them.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "estimator/base/units.h"
#include "estimator/job/job_abilities.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
namespace {

constexpr char kMode[] = "training.recompute.mode";
constexpr char kModules[] = "training.recompute.modules";
constexpr char kInterval[] = "training.recompute.interval";
constexpr char kUnit[] = "training.recompute.unit_layer_count";

// `can`: whether the mode itself is possible.
void ReadModules(const std::vector<std::string>& names, bool can, Check& check, Job& job) {
  if (!check.FewEnough(kModules, names.size(), "names", kMostNames)) return;
  for (const std::string& name : names) {
    const auto module = check.Meaning(kModules, name, kRecomputeModules);
    if (!module.has_value()) continue;
    job.recompute_modules |= BitOf(*module);
    if (!can || job.recompute != RecomputeMode::kSelective) continue;
    CheckAbility(AbilityOf(*module), kModules, name, check, job);
  }
}

void ReadRecompute(const RecomputeSpec& spec, Check& check, Job& job) {
  std::optional<RecomputeMode> mode = RecomputeMode::kNone;
  if (spec.mode.has_value()) {
    mode = check.Meaning(kMode, *spec.mode, kRecomputeModes);
  }
  job.recompute = mode.value_or(RecomputeMode::kNone);
  const absl::string_view asked = spec.mode.has_value() ? absl::string_view(*spec.mode) : "none";
  const bool can = CheckAbility(AbilityOf(job.recompute), kMode, asked, check, job);
  ReadModules(spec.modules, can, check, job);
}

// A module that is asked for needs the part of a model, or of the software, that it is.
class Modules {
 public:
  Modules(Check& check, const Job& job) : check_(check), job_(job) {}

  bool Asks(RecomputeModule module) const {
    return (job_.recompute_modules & BitOf(module)) != 0 &&
           job_.capabilities.Has(AbilityOf(module));
  }
  void Need(RecomputeModule module, bool has, absl::string_view rule, absl::string_view field) {
    if (!Asks(module) || has) return;
    check_.Fail(kModules, NameOf(module, kRecomputeModules), std::string(rule),
                ViolationCode::kConflict, {field});
  }

 private:
  Check& check_;
  const Job& job_;
};

}  // namespace

void CheckRecompute(const RecomputeSpec& spec, Check& check, Job& job) {
  ReadRecompute(spec, check, job);
  const bool selective = job.recompute == RecomputeMode::kSelective;
  if (!spec.modules.empty() && !selective) {
    check.Fail(kModules, spec.modules.front(), "needs mode selective", ViolationCode::kConflict,
               {kMode});
  } else if (selective && spec.modules.empty()) {
    job.recompute_modules = BitOf(RecomputeModule::kCoreAttention);
    check.Assume(kModules, "core-attention", "Megatron's default");
  }
  const bool every_nth = job.recompute == RecomputeMode::kEveryNth;
  if (every_nth) {
    job.recompute_interval = check.Required(kInterval, spec.interval);
  } else if (spec.interval.has_value()) {
    check.Fail(kInterval, *spec.interval, "needs mode every-nth", ViolationCode::kConflict,
               {kMode});
  }
  job.recompute_unit_layer_count = check.Number(kUnit, spec.unit_layer_count, 1);
  if (spec.unit_layer_count.has_value() && job.recompute != RecomputeMode::kFull) {
    check.Fail(kUnit, *spec.unit_layer_count, "needs mode full", ViolationCode::kConflict, {kMode});
  } else if (job.recompute_unit_layer_count > 1) {
    CheckAbility(Ability::kRecomputeUnits, kUnit, job.recompute_unit_layer_count, check, job);
  }
}

// Source: megatron/core/transformer/transformer_config.py, __post_init__ (recompute_modules);
// core/models/gpt/gpt_layer_specs.py: IdentityOp in the place of both norms;
// core/transformer/transformer_layer.py, recompute_input_layernorm; transformer_engine
// pytorch/module/linear.py ("DelayedScaling recipe is not supported with save_original_input").
void CheckModules(Check& check, const Job& job) {
  if (job.recompute != RecomputeMode::kSelective) return;
  const Transformer& model = *job.model;
  const bool experts = model.experts.Any();
  Modules modules(check, job);
  modules.Need(RecomputeModule::kNorm, !job.transformer_engine || experts || model.latent.Any(),
               "needs transformer_implementation local, experts or latent attention: Transformer "
               "Engine's norm is one operation with the product behind it",
               "runtime.transformer_implementation");
  const bool before = model.norm_placement == NormPlacement::kPre ||
                      model.norm_placement == NormPlacement::kSandwich;
  if (modules.Asks(RecomputeModule::kNorm) && !before) {
    check.Fail(kModules, NameOf(RecomputeModule::kNorm, kRecomputeModules),
               "is not modelled but for norms before attention and MLP",
               ViolationCode::kNotModelled, {"model"});
  }
  modules.Need(RecomputeModule::kActivation, experts, "needs a model with experts", "model");
  modules.Need(RecomputeModule::kActivation, !experts || job.grouped_gemm,
               "needs runtime.grouped_gemm", "runtime.grouped_gemm");
  const bool fp8 = job.fp8.has_value() && !job.fp8->IsFp4();
  const bool delayed = fp8 && job.fp8->recipe == Fp8Recipe::kDelayed;
  for (const RecomputeModule dropped : {RecomputeModule::kNorm, RecomputeModule::kActivation}) {
    modules.Need(dropped, !delayed, "needs an fp8_recipe whose products read 16 bits anew",
                 "training.precision.fp8_recipe");
    if (!fp8 || !modules.Asks(dropped)) continue;
    CheckAbility(Ability::kFp8OutputsAgain, kModules,
                 absl::StrCat(NameOf(dropped, kRecomputeModules), " beside fp8"), check, job);
  }
  modules.Need(RecomputeModule::kUpProjection, model.latent.Any(), "needs latent attention",
               "model");
  modules.Need(RecomputeModule::kExperts, experts, "needs a model with experts", "model");
  modules.Need(RecomputeModule::kSharedExperts, model.experts.shared_ffn_size > 0,
               "needs shared experts", "model");
  if (modules.Asks(RecomputeModule::kMlp) && experts &&
      model.experts.layers.HasAllOf(model.layer_count)) {
    check.Assume("model", "no MLP runs again", "all layers have experts");
  }
  if (!experts || !modules.Asks(RecomputeModule::kExperts)) return;
  for (const RecomputeModule part :
       {RecomputeModule::kActivation, RecomputeModule::kSharedExperts}) {
    if (!modules.Asks(part)) continue;
    check.Fail(kModules, NameOf(part, kRecomputeModules),
               "is not modelled with experts that run again whole", ViolationCode::kNotModelled);
  }
}

}  // namespace plimsoll
