// What nothing was held against that stands beside experts.
#include <algorithm>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "estimator/base/layer_set.h"
#include "estimator/base/version.h"
#include "estimator/job/beside.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
namespace {

// Decoders with norms before or after each sublayer, and activations that are one kernel.
void CheckShape(const Beside& experts, const Transformer& model) {
  const bool one_kernel = model.activation == Activation::kSilu ||
                          model.activation == Activation::kGelu ||
                          model.activation == Activation::kGeluTanh ||
                          (model.one_sublayer && model.activation == Activation::kRelu2);
  experts.Refuse(!one_kernel, "model", NameOf(model.activation, kActivations));
  const bool plain = model.norm_placement == NormPlacement::kPre ||
                     model.norm_placement == NormPlacement::kPostOnly;
  experts.Refuse(!plain, "model", NameOf(model.norm_placement, kNormPlacements));
  experts.Refuse(model.mlp_bias, "model", "biases of MLPs");
  experts.Refuse(!model.causal, "model", "an encoder");
  experts.RefuseOtherModels(model);
}

// Source: transformers integrations/moe.py, _can_use_grouped_mm.
void CheckKernels(const Beside& experts, const Job& job) {
  constexpr int kSince = 2009;
  experts.Refuse(job.architecture < GpuArchitecture::kAmpere, "cluster.gpu",
                 "a GPU older than Ampere");
  experts.Refuse(!IsNvidia(job.architecture), "cluster.gpu", "an AMD GPU");
  experts.Refuse(IsBefore(job.torch_version, kSince), "runtime.versions", "torch before 2.9");
}

// Adapters beside experts' parameters, which PEFT adds to them: it has no dropout for these, and
// one for both products that are one parameter. Source: peft tuners/lora/layer.py, ParamWrapper;
// utils/transformers_weight_conversion.py, _convert_peft_config_moe.
void CheckAdapterOf(const Beside& experts, const AdapterSpec& spec, Check& check, const Job& job) {
  if (!job.adapter.has_value()) return;
  const Adapter& adapter = *job.adapter;
  constexpr KnownField targets("training.adapter.target_modules");
  const auto says = [&spec](const char* word) {
    return absl::c_linear_search(spec.target_modules, word);
  };
  const bool one = job.model->gated_mlp && says("gate_proj") != says("up_proj") && !says("mlp") &&
                   !says("all-linear");
  if (job.model->experts.words == ExpertWords::kProducts && one) {
    check.Fail(targets, absl::StrJoin(spec.target_modules, ", "),
               "must have both of gate_proj and up_proj, or none: experts have one matrix of both",
               ViolationCode::kConflict, {"model"});
  }
  const bool reached = adapter.Targets(AdapterTarget::kExpertsGateUp) ||
                       adapter.Targets(AdapterTarget::kExpertsDown);
  if (!reached) return;
  experts.Refuse(!job.model->gated_mlp, targets,
                 absl::StrCat(absl::StrJoin(spec.target_modules, ", "), " without gates"));
  if (adapter.method == AdapterMethod::kDora) {
    check.Fail("training.adapter.method", "dora",
               "must be lora beside experts, to whose weights PEFT adds adapters",
               ViolationCode::kConflict, {targets});
  }
  if (adapter.dropout > 0) {
    check.Fail("training.adapter.dropout", absl::StrCat(adapter.dropout),
               "must be 0 beside experts, to whose weights PEFT adds adapters",
               ViolationCode::kConflict, {targets});
  }
  experts.Refuse(
      job.profile->sharding != Sharding::kBuckets, targets,
      absl::StrCat(absl::StrJoin(spec.target_modules, ", "), " under ", job.profile->name));
}

// Experts over ranks, and over those the matrices of each. Both lay a stage's ranks out anew.
// Source: megatron/core/parallel_state.py, initialize_model_parallel; megatron/training/
// arguments.py, validate_args; core/optimizer/__init__.py (instances of the distributed optimizer).
void CheckExpertDegrees(Check& check, const Job& job) {
  const absl::string_view split = "parallelism.expert_parallel_size";
  const absl::string_view matrices = "parallelism.expert_tensor_parallel_size";
  const int64_t experts = job.model->experts.count;
  const int64_t width = job.model->experts.ffn_size;
  const int64_t ranks = Multiply(job.tensor_parallel_size, job.ReplicaCount());
  const int64_t both = Multiply(job.expert_parallel_size, job.expert_tensor_parallel_size);
  const int64_t groups = std::max<int64_t>(job.ReplicaCount() / job.shard_group_size, 1);
  if (experts % job.expert_parallel_size != 0) {
    check.Fail(split, job.expert_parallel_size, absl::StrCat("must divide the experts, ", experts),
               ViolationCode::kConflict, {"model"});
  }
  if (width % job.expert_tensor_parallel_size != 0) {
    check.Fail(matrices, job.expert_tensor_parallel_size,
               absl::StrCat("must divide the width of an expert, ", width),
               ViolationCode::kConflict, {"model"});
  }
  if (ranks % both != 0) {
    check.Fail(split, job.expert_parallel_size,
               absl::StrCat("times expert_tensor_parallel_size ", job.expert_tensor_parallel_size,
                            " must divide the ranks of a pipeline stage, ", ranks),
               ViolationCode::kConflict,
               {matrices, "parallelism.data_parallel_size", "parallelism.tensor_parallel_size"});
  } else if (ranks / both % groups != 0) {
    check.Fail("parallelism.shard_group_size", job.shard_group_size,
               absl::StrCat("its groups, ", groups,
                            ", must divide the ranks that have the same experts, ", ranks / both),
               ViolationCode::kConflict, {split, matrices});
  }
}

// What was held: kernels that know weights of tokens, tokens that are split as matrices are.
// Source: megatron/core/transformer/moe/moe_layer.py, MoELayer.forward; experts.py, TEGroupedMLP.
void CheckDispatched(const Beside& experts, Check& check, const Job& job) {
  const Transformer& model = *job.model;
  const bool known = model.gated_mlp ? model.activation == Activation::kSilu
                                     : model.activation == Activation::kGelu;
  experts.Refuse(
      !known, "model",
      absl::StrCat(model.gated_mlp ? "gated " : "", NameOf(model.activation, kActivations)));
  experts.Refuse(model.experts.shared_gate, "model", "a gate of shared experts");
  experts.Refuse(model.experts.biases, "model", "biases of experts");
  experts.Refuse(!IsNvidia(job.architecture), "cluster.gpu", "an AMD GPU");
  if (job.tensor_parallel_size > 1 && !job.sequence_parallel) {
    check.Fail("parallelism.sequence_parallel", "false",
               "must be true for experts with tensor_parallel_size above 1",
               ViolationCode::kNotSupported, {"parallelism.tensor_parallel_size", "model"});
  }
  if (job.grouped_gemm && !job.transformer_engine) {
    check.Fail("runtime.grouped_gemm", "true",
               "needs transformer_implementation transformer-engine", ViolationCode::kConflict,
               {"runtime.transformer_implementation"});
  }
  CheckExpertDegrees(check, job);
}

// What was held: its Qwen 3 and DeepSeek V3, whose experts are SwiGLU in 16 bits.
// Source: torchtitan models/common/moe.py, GroupedExperts (bfloat16); models/gpt_oss/moe.py.
void CheckReordered(const Beside& experts, Check& check, const Job& job) {
  const Transformer& model = *job.model;
  const bool swiglu = model.gated_mlp && model.activation == Activation::kSilu;
  experts.Refuse(
      !swiglu, "model",
      absl::StrCat(model.gated_mlp ? "gated " : "", NameOf(model.activation, kActivations)));
  experts.Refuse(model.experts.shared_gate, "model", "a gate of shared experts");
  experts.Refuse(model.experts.biases, "model", "biases of experts");
  const Router router = model.experts.router;
  experts.Refuse(router == Router::kPicked || router == Router::kWidePicked, "model",
                 "a softmax over those picked");
  experts.Refuse(job.precision.activation != DType::kBf16, "training.precision.preset",
                 Name(job.precision.activation));
  experts.Refuse(job.expert_tensor_parallel_size > 1, "parallelism.expert_tensor_parallel_size",
                 job.expert_tensor_parallel_size);
  CheckExpertDegrees(check, job);
  check.Assume("model", "tokens in equal shares", "each expert is sent as many");
}

}  // namespace

void ReadExpertParallel(const JobSpec& spec, Check& check, Job& job) {
  const ParallelismSpec& parallelism = spec.parallelism;
  constexpr KnownField split("parallelism.expert_parallel_size");
  constexpr KnownField matrices("parallelism.expert_tensor_parallel_size");
  constexpr KnownField dispatcher("parallelism.token_dispatcher");
  const bool experts = job.model != nullptr && job.model->experts.Any();
  const bool dispatches = experts && job.profile->dispatches_experts;
  if (experts && job.profile->reorders_experts) job.token_dispatcher = TokenDispatcher::kAllToAll;
  job.expert_parallel_size = check.Number(split, parallelism.expert_parallel_size, 1);
  job.expert_tensor_parallel_size = check.Number(matrices, parallelism.expert_tensor_parallel_size,
                                                 dispatches ? job.tensor_parallel_size : 1);
  const auto needs = [&](Ability ability, absl::string_view field, absl::string_view value) {
    if (!CheckAbility(ability, field, value, check, job) || experts || job.model == nullptr) return;
    check.Fail(field, value, "needs a model with experts", ViolationCode::kConflict, {"model"});
  };
  if (job.expert_parallel_size > 1) {
    needs(Ability::kExpertParallel, split, absl::StrCat(job.expert_parallel_size));
  }
  if (parallelism.expert_tensor_parallel_size.value_or(1) > 1) {
    needs(Ability::kExpertParallel, matrices, absl::StrCat(job.expert_tensor_parallel_size));
  }
  if (parallelism.token_dispatcher.has_value()) {
    const std::string& name = *parallelism.token_dispatcher;
    const auto known = check.Meaning(dispatcher, name, kTokenDispatchers);
    if (known.has_value()) needs(Ability::kTokenDispatcher, dispatcher, name);
    job.token_dispatcher = known.value_or(TokenDispatcher::kAllGather);
  } else if (dispatches) {
    check.Assume(dispatcher, "all-gather", "the framework's default");
  }
  if (dispatches && !parallelism.expert_tensor_parallel_size.has_value() &&
      job.tensor_parallel_size > 1) {
    check.Assume(matrices, job.expert_tensor_parallel_size, "tensor_parallel_size, as there");
  }
}

void CheckExperts(const JobSpec& spec, Check& check, const Job& job) {
  const Transformer& model = *job.model;
  CheckAbility(Ability::kExperts, "model", absl::StrCat(model.experts.count, " experts"), check,
               job);
  const Beside experts("experts", "model", check);
  CheckAdapterOf(experts, spec.training.adapter, check, job);
  // Megatron's experts have a matrix each, transformers' are one tensor.
  const OptimizerRow& optimizer = RowOf(job.optimizer);
  const bool matrices = job.profile->dispatches_experts && optimizer.picks == Picks::kMatrices;
  experts.Refuse(optimizer.sees_shapes && !matrices, "training.optimizer.name",
                 NameOf(job.optimizer, kOptimizers));
  const std::string preset = spec.training.precision.preset.value_or("");
  experts.Refuse(preset == "fp8-lm", "training.precision.preset", preset);
  // torch 2.15 refuses the constructor of tensors that DeepSpeed's has then.
  const bool engine = job.profile->sharding == Sharding::kEngine;
  experts.Refuse(engine && job.zero_stage == 3, "parallelism.zero_stage", job.zero_stage);
  const bool reorders = job.profile->reorders_experts;
  if (!job.profile->dispatches_experts && !reorders) {
    experts.RefusePartsAgain(spec.training.recompute, job);
  }
  CheckShape(experts, model);
  experts.Refuse(job.compile, "runtime.compile", "true");
  if (job.profile->dispatches_experts) {
    CheckDispatched(experts, check, job);
    check.Assume("model", "tokens in equal shares", "each expert is sent as many");
    return;
  }
  experts.RefuseSplits(job);
  CheckKernels(experts, job);
  if (reorders) return CheckReordered(experts, check, job);
  check.Assume("model", "grouped products", "transformers 5's default for experts");
}

}  // namespace plimsoll
