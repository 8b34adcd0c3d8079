// Matrix products in fp8 and fp4: by which recipe, on which GPUs, and what is modelled beside them.
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "estimator/job/beside.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
namespace {

constexpr KnownField kRecipe("training.precision.fp8_recipe");
constexpr KnownField kParameters("training.precision.fp8_parameters");
constexpr char kPreset[] = "training.precision.preset";

// The oldest architecture that has what a recipe needs. Source:
// transformer_engine/pytorch/quantization.py, check_fp8_support, check_mxfp8_support,
// check_fp8_block_scaling_support, check_nvfp4_support.
GpuArchitecture OldestOf(Fp8Recipe recipe) {
  switch (recipe) {
    case Fp8Recipe::kDelayed:
    case Fp8Recipe::kTensorwise:
      return GpuArchitecture::kAda;
    case Fp8Recipe::kBlockwise:
      return GpuArchitecture::kHopper;
    case Fp8Recipe::kMxfp8:
    case Fp8Recipe::kNvfp4:
      return GpuArchitecture::kBlackwell;
  }
  return GpuArchitecture::kAda;
}

// The word that asks for a recipe: fp4 has one.
struct Asked {
  std::string field, name, value;
};
Asked AskedOf(const Job& job) {
  if (job.fp8->IsFp4()) return {kPreset, "preset", "fp4-mixed"};
  return {std::string(absl::string_view(kRecipe)), "fp8_recipe",
          std::string(NameOf(job.fp8->recipe, kFp8Recipes))};
}

// Source: transformer_engine/pytorch/quantization.py, _compute_mxfp8_support.
void CheckWorkstation(Check& check, const Job& job) {
  const bool small = job.gpu != nullptr && job.gpu->IsWorkstationBlackwell();
  if (job.fp8->recipe != Fp8Recipe::kMxfp8 || !small) return;
  check.Fail(kRecipe, "mxfp8",
             "is not supported by Transformer Engine on GPUs of compute capability 12.0",
             ViolationCode::kNotSupported, {"cluster.gpu"});
}

void CheckGpu(Check& check, const Job& job) {
  const GpuArchitecture oldest = OldestOf(job.fp8->recipe);
  if (IsNvidia(job.architecture) && job.architecture >= oldest) {
    return CheckWorkstation(check, job);
  }
  const absl::string_view needs = oldest == GpuArchitecture::kAda      ? "an Ada"
                                  : oldest == GpuArchitecture::kHopper ? "a Hopper"
                                                                       : "a Blackwell";
  const bool last = oldest == GpuArchitecture::kBlackwell;
  const Asked asked = AskedOf(job);
  check.Fail(asked.field, asked.value,
             absl::StrCat("needs ", needs, last ? "" : " or newer", " GPU"),
             ViolationCode::kConflict, {"cluster.gpu"});
}

// Sides of the matrices that a rank has.
struct Side {
  absl::string_view name;
  int64_t size;
};
using Sides = absl::InlinedVector<Side, 8>;

void AddLatentSides(const Transformer& model, int64_t ranks, Sides& sides) {
  const LatentAttention& latent = model.latent;
  const int64_t plain = model.head_size - latent.rotary_size;
  sides.push_back({"query_rank", latent.query_rank});
  sides.push_back({"key_value_rank", latent.key_value_rank});
  sides.push_back(
      {"key_value_rank and rotary_head_size", latent.key_value_rank + latent.rotary_size});
  sides.push_back({"keys' and values' width of a rank",
                   model.head_count * (plain + latent.value_size) / ranks});
  sides.push_back({"values' width of a rank", model.head_count * latent.value_size / ranks});
}

Sides SidesOf(const Job& job) {
  const Transformer& model = *job.model;
  const int64_t ranks = job.tensor_parallel_size;
  Sides sides{{"hidden_size", model.hidden_size},
              {"attention's width of a rank", model.head_count * model.head_size / ranks}};
  if (model.latent.Any()) AddLatentSides(model, ranks, sides);
  const Experts& experts = model.experts;
  if (!experts.Any() || !experts.layers.HasAllOf(model.layer_count)) {
    sides.push_back({"ffn_size of a rank", model.ffn_size / ranks});
  }
  if (!experts.Any()) return sides;
  sides.push_back(
      {"expert_ffn_size of a rank", experts.ffn_size / job.expert_tensor_parallel_size});
  sides.push_back({"shared_expert_ffn_size of a rank", experts.shared_ffn_size / ranks});
  return sides;
}

// They are whole multiples of what a product takes at once.
// Source: transformer_engine/pytorch/utils.py, assert_dim_for_fp8_exec; mxfp8_tensor.py,
// MXFP8_BLOCK_SCALING_SIZE; nvfp4_tensor.py, is_quantizable.
void CheckSides(Check& check, const Job& job) {
  const int64_t step = job.fp8->recipe == Fp8Recipe::kMxfp8 ? 32 : 16;
  const Asked asked = AskedOf(job);
  for (const auto& [name, size] : SidesOf(job)) {
    if (size % step == 0) continue;
    check.Fail("model", absl::StrCat(name, " ", size),
               absl::StrCat("must be a multiple of ", step, " with ", asked.name, " ", asked.value),
               ViolationCode::kConflict, {asked.field});
  }
}

}  // namespace

void ReadFp8(const PrecisionSpec& spec, PresetName preset, Check& check, Job& job) {
  if (preset == PresetName::kFp4Mixed) job.fp8 = Fp8{.recipe = Fp8Recipe::kNvfp4};
  if (preset != PresetName::kFp8Mixed) {
    const auto needs = [&](KnownField field, absl::string_view value) {
      check.Fail(field, value, "needs preset fp8-mixed", ViolationCode::kConflict, {kPreset});
    };
    if (spec.fp8_recipe.has_value()) needs(kRecipe, *spec.fp8_recipe);
    if (spec.fp8_parameters.has_value()) {
      needs(kParameters, *spec.fp8_parameters ? "true" : "false");
    }
    return;
  }
  Fp8& fp8 = job.fp8.emplace();
  fp8.parameters = spec.fp8_parameters.value_or(false);
  if (spec.fp8_recipe.has_value()) {
    fp8.recipe =
        check.Meaning(kRecipe, *spec.fp8_recipe, kFp8Recipes).value_or(Fp8Recipe::kDelayed);
  } else {
    check.Assume(kRecipe, "delayed", "Megatron-Core's default");
  }
}

void CheckFp8(const JobSpec& spec, Check& check, const Job& job) {
  const bool fp4 = job.fp8->IsFp4();
  if (!job.transformer_engine) {
    check.Fail(kPreset, fp4 ? "fp4-mixed" : "fp8-mixed",
               "needs transformer_implementation transformer-engine", ViolationCode::kConflict,
               {"runtime.transformer_implementation"});
  }
  CheckGpu(check, job);
  const Beside products(fp4 ? "matrix products in fp4" : "matrix products in fp8", kPreset, check);
  if (job.recompute != RecomputeMode::kSelective) {
    products.RefusePartsAgain(spec.training.recompute, job);
  }
  products.Refuse(spec.training.precision.parameter_dtype.value_or("bf16") != "bf16",
                  "training.precision.parameter_dtype",
                  spec.training.precision.parameter_dtype.value_or(""));
  if (job.model == nullptr) return;
  CheckSides(check, job);
  const bool one_by_one = job.model->experts.Any() && !job.grouped_gemm;
  products.Refuse(one_by_one, "runtime.grouped_gemm", "false");
}

}  // namespace plimsoll
