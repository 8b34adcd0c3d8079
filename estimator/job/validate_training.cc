// The training and runtime sections: batch, precision, optimizer, recomputation,
// kernels, and the framework's knobs.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "estimator/base/units.h"
#include "estimator/job/beside.h"
#include "estimator/job/fields.h"
#include "estimator/job/hf_config.h"
#include "estimator/job/job_abilities.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
namespace {

// Whole groups of micro-batches, and a rest that fills the pipeline.
// Source: megatron/core/pipeline_parallel/schedules.py,
// forward_backward_pipelining_with_interleaving.
void CheckGroups(Check& check, const Job& job) {
  const int64_t stages = job.pipeline_parallel_size;
  const int64_t group = job.micro_batch_group_size;
  const int64_t rest = job.micro_batch_count % group;
  if (job.micro_batch_count >= group && (rest == 0 || rest >= stages)) return;
  const std::string rule =
      group == stages
          ? absl::StrCat("a multiple of pipeline_parallel_size ", stages)
          : absl::StrCat("micro_batch_group_size ", group, " or more, and a rest of 0 or at least ",
                         "pipeline_parallel_size ", stages);
  check.Fail("training.global_batch_size", job.global_batch_size,
             absl::StrCat("must give each rank ", rule, " micro-batches, not ",
                          job.micro_batch_count, ", with interleaved-1f1b"),
             ViolationCode::kConflict,
             {"parallelism.micro_batch_group_size", "parallelism.pipeline_parallel_size",
              "parallelism.data_parallel_size", "training.micro_batch_size"});
}

void CheckBatch(const TrainingSpec& spec, Check& check, Job& job) {
  job.sequence_length = check.Required("training.sequence_length", spec.sequence_length);
  job.micro_batch_size = check.Number("training.micro_batch_size", spec.micro_batch_size, 1);
  if (!spec.micro_batch_size.has_value()) {
    check.Assume("training.micro_batch_size", 1, "the smallest");
  }
  const int64_t ranks = Multiply(job.micro_batch_size, job.data_parallel_size);
  const int64_t all_stages = Multiply(ranks, job.pipeline_parallel_size);
  job.global_batch_size =
      check.Number("training.global_batch_size", spec.global_batch_size, all_stages);
  if (!spec.global_batch_size.has_value()) {
    check.Assume("training.global_batch_size", job.global_batch_size,
                 "one micro-batch per pipeline stage on each data-parallel rank");
  } else if (job.global_batch_size % ranks != 0) {
    check.Fail("training.global_batch_size", job.global_batch_size,
               absl::StrCat("must be a multiple of micro_batch_size x data_parallel_size, ", ranks),
               ViolationCode::kConflict,
               {"training.micro_batch_size", "parallelism.data_parallel_size"});
  }
  job.micro_batch_count = job.global_batch_size / ranks > 0 ? job.global_batch_size / ranks : 1;
  if (job.pipeline_schedule == PipelineSchedule::kInterleaved1F1B) CheckGroups(check, job);
}

void ReadDType(KnownField field, const std::optional<std::string>& name, Check& check,
               DType& dtype) {
  if (!name.has_value()) return;
  const auto& words = field->words;
  if (std::find(words.begin(), words.end(), *name) != words.end()) {
    dtype = *ParseDType(*name);
    return;
  }
  check.Fail(field, *name, NotAWord(*name, {words.begin(), words.end()}),
             ViolationCode::kUnknownName);
}

// A dtype that the framework has no tensor of is refused, not ignored.
bool MovesNoByte(absl::string_view field, const std::optional<std::string>& name, Ability ability,
                 Check& check, const Job& job) {
  if (!name.has_value() || job.capabilities.Has(ability)) return false;
  check.Fail(field, *name, absl::StrCat("moves no byte of ", job.profile->name),
             ViolationCode::kNotSupported, {"runtime.framework"});
  return true;
}

// Adapters are kept in a dtype of their own, and under autocast what is frozen in 16 bits. Beside
// weights in 4 bits accelerate makes no fp32 copies of what FSDP2 shards.
// Source: accelerate utils/fsdp_utils.py, fsdp2_prepare_model (model_has_params4bit).
void AdaptPrecision(Check& check, Job& job) {
  Adapter& adapter = *job.adapter;
  Precision& precision = job.precision;
  const bool as_loaded =
      job.quantization.has_value() && job.profile->accelerate && job.profile->ShardsEachParameter();
  if (as_loaded && adapter.dtype == precision.parameter) precision.master = DType::kNone;
  if (adapter.dtype == DType::kNone) {
    const bool masters = precision.master != DType::kNone;
    adapter.dtype = masters ? precision.master : precision.parameter;
    check.Assume("training.adapter.adapter_dtype", Name(adapter.dtype),
                 masters ? "as master weights are" : "as weights are");
  }
  if (precision.autocast) precision.parameter = precision.residual = precision.activation;
  if (precision.master != DType::kNone) return;
  precision.gradient = precision.accumulation = precision.state = adapter.dtype;
}

// Beside fp32 weights that are not quantized all is fp32 but what autocast casts: a quantized
// product gives what it reads.
// Source: peft utils/other.py, prepare_model_for_kbit_training; bitsandbytes nn/modules.py,
// Linear4bit.forward.
void WidenPrecision(Precision& precision) {
  if (!precision.autocast || precision.parameter != DType::kFp32) return;
  precision.residual = precision.activation = DType::kFp32;
}

void ReadRouterDType(const PrecisionSpec& spec, Check& check, Job& job) {
  job.precision.router = job.precision.activation;
  if (MovesNoByte("training.precision.router_dtype", spec.router_dtype, Ability::kRouterDType,
                  check, job)) {
    return;
  }
  ReadDType("training.precision.router_dtype", spec.router_dtype, check, job.precision.router);
}

absl::string_view UsualPreset(const PrecisionSpec& spec, const Job& job) {
  if (spec.fp8_recipe.has_value()) return "fp8-mixed";
  const bool whole = job.profile->sharding == Sharding::kBuckets;
  // What is quantized beside preferences is not modelled under autocast.
  const bool pure = job.quantization.has_value() && job.preference.has_value();
  if (job.profile->accelerate && whole) return pure ? "bf16-pure" : "bf16-autocast";
  // Without sharding nobody keeps masters of what is frozen.
  const bool adapted = job.adapter.has_value() && (whole || !job.profile->widens_adapters);
  const bool masters = job.capabilities.Has(Ability::kBf16Mixed);
  return adapted || !masters ? "bf16-pure" : "bf16-mixed";
}

void WarnOfPreset(absl::string_view name, Job& job) {
  const absl::string_view field = "job.training.precision.preset";
  if (name == "fp16-pure") {
    job.warnings.push_back({"fp16-diverges", std::string(field),
                            "training large models in fp16 without master weights diverges"});
  }
  if (name == "fp8-lm") {
    job.warnings.push_back({"fp8-activations", std::string(field),
                            "activations are counted as bf16, without their fp8 copies"});
  }
}

// Where the preset does not say.
bool SumsInFp32(const Job& job) {
  if (job.megatron_fsdp != nullptr) return job.megatron_fsdp->sums_in_fp32;
  return job.profile->sums_in_fp32;
}

void CheckPrecision(const PrecisionSpec& spec, Check& check, Job& job) {
  const absl::string_view usual = UsualPreset(spec, job);
  const std::string name = spec.preset.value_or(std::string(usual));
  const auto preset = check.Meaning("training.precision.preset", name, kPresets);
  if (!spec.preset.has_value()) {
    check.Assume("training.precision.preset", usual, "the usual one");
  }
  if (!preset.has_value()) return;
  Precision& precision = job.precision;
  precision.parameter = preset->parameter;
  precision.gradient = preset->gradient;
  precision.accumulation = preset->accumulation;
  precision.master = preset->master;
  precision.state = preset->state;
  precision.activation = preset->activation;
  precision.residual = preset->residual;
  precision.autocast = preset->autocast;
  precision.cast = preset->activation;
  if (job.adapter.has_value()) AdaptPrecision(check, job);
  ReadDType("training.precision.parameter_dtype", spec.parameter_dtype, check, precision.parameter);
  if (job.quantization.has_value()) WidenPrecision(precision);
  ReadDType("training.precision.gradient_dtype", spec.gradient_dtype, check, precision.gradient);
  if (precision.accumulation == DType::kNone) {
    precision.accumulation = SumsInFp32(job) ? DType::kFp32 : precision.gradient;
  }
  if (!MovesNoByte("training.precision.gradient_accumulation_dtype",
                   spec.gradient_accumulation_dtype, Ability::kGradientAccumulationDType, check,
                   job)) {
    ReadDType("training.precision.gradient_accumulation_dtype", spec.gradient_accumulation_dtype,
              check, precision.accumulation);
  }
  // DeepSpeed's communication_data_type is the weights' own. Source: deepspeed/runtime/engine.py.
  const bool engine = job.profile->sharding == Sharding::kEngine;
  precision.reduce = engine ? precision.gradient : precision.accumulation;
  const bool units = job.profile->sharding == Sharding::kUnits;
  const bool of_units = units && job.profile->reduces_units_in_fp32;
  if (of_units || (job.profile->reduces_contexts_in_fp32 && job.context_parallel_size > 1)) {
    precision.reduce = DType::kFp32;
    if (!spec.reduce_dtype.has_value()) {
      check.Assume("training.precision.reduce_dtype", "fp32",
                   of_units ? "the trainer's default"
                            : "the framework's default with context_parallel_size above 1");
    }
  }
  if (units && job.profile->reduces_as_gathered) precision.reduce = precision.parameter;
  if (!MovesNoByte("training.precision.reduce_dtype", spec.reduce_dtype, Ability::kReduceDType,
                   check, job)) {
    ReadDType("training.precision.reduce_dtype", spec.reduce_dtype, check, precision.reduce);
  }
  ReadDType("training.precision.master_dtype", spec.master_dtype, check, precision.master);
  ReadDType("training.precision.optimizer_state_dtype", spec.optimizer_state_dtype, check,
            precision.state);
  ReadRouterDType(spec, check, job);
  WarnOfPreset(name, job);
  ReadFp8(spec, preset->name, check, job);
  CheckAbility(AbilityOf(preset->name), "training.precision.preset", name, check, job);
}

// "adam, adamw, lion".
std::string OptimizersThatPage() {
  std::vector<absl::string_view> names;
  for (const Word<OptimizerName>& word : kOptimizers) {
    if (RowOf(word.value).pages) names.push_back(word.name);
  }
  return absl::StrJoin(names, ", ");
}

// bitsandbytes' paged optimizers. Source: bitsandbytes/optim/adamw.py, PagedAdamW.
void ReadPaged(const OptimizerSpec& spec, Check& check, Job& job) {
  const absl::string_view field = "training.optimizer.paged";
  const bool own = job.quantization.has_value() && job.profile->pages_states;
  job.paged_states = spec.paged.value_or(own);
  if (!spec.paged.has_value() && own) {
    check.Assume(field, "true", "beside quantized weights it takes bitsandbytes' PagedAdamW");
  }
  if (!job.paged_states) return;
  if (!RowOf(job.optimizer).pages) {
    check.Fail(field, "true", absl::StrCat("needs ", OptimizersThatPage()),
               ViolationCode::kConflict, {"training.optimizer.name"});
  }
  if (job.profile->sharding != Sharding::kBuckets) {
    check.Fail(field, "true", "is modelled with ddp alone", ViolationCode::kNotModelled,
               {"runtime.framework"});
  }
  job.warnings.push_back({"paged-states", "job.training.optimizer.paged",
                          "states of 100,000 elements and more are in managed memory, which is on "
                          "the GPU while there is room: it is not counted"});
}

std::string OptimizerIn(const Job& job) {
  return absl::StrCat(job.paged_states ? "paged " : "", NameOf(job.optimizer, kOptimizers));
}

// bitsandbytes' states that are not narrower are fp32, whatever they are of.
// Source: bitsandbytes/optim/optimizer.py, Optimizer2State.init_state.
void CheckStates(const std::optional<std::string>& states, Check& check, Job& job) {
  const OptimizerRow& row = RowOf(job.optimizer);
  const bool fused = job.optimizer_implementation == OptimizerImplementation::kFused;
  const bool wide = job.paged_states || (row.fused_is_bitsandbytes && fused);
  const bool own = row.HasOwnDType() || (wide && job.precision.state != DType::kFp32);
  if (own && states.has_value()) {
    check.Fail("training.precision.optimizer_state_dtype", *states,
               absl::StrCat("is not how ", OptimizerIn(job), " keeps its states"),
               ViolationCode::kConflict, {"training.optimizer.name"});
  }
  if (wide) job.precision.state = DType::kFp32;
}

// bitsandbytes' kernels take no DTensor, which FSDP2's parameters are.
// Source: bitsandbytes/backends/cuda/ops.py; tried with 0.50.2.
bool Has(const Job& job, OptimizerImplementation implementation) {
  const OptimizerRow& row = RowOf(job.optimizer);
  const bool fused = implementation == OptimizerImplementation::kFused;
  const bool dtensors = job.profile->ShardsEachParameter();
  if (fused && row.fused_is_bitsandbytes && dtensors) return false;
  return job.paged_states ? fused : row.Has(implementation);
}

OptimizerImplementation OfFramework(const Job& job) {
  return job.profile->fused_optimizer ? OptimizerImplementation::kFused
                                      : OptimizerImplementation::kForeach;
}

// The framework's, or the fastest that the optimizer has; in backward a fused one.
OptimizerImplementation UsualImplementation(const OptimizerSpec& spec, const Job& job) {
  using Implementation = OptimizerImplementation;
  const auto first = spec.in_backward.value_or(false) ? Implementation::kFused : OfFramework(job);
  for (const Implementation at : {first, Implementation::kFused, Implementation::kForeach}) {
    if (Has(job, at)) return at;
  }
  return Implementation::kForLoop;
}

void ReadImplementation(const OptimizerSpec& spec, Check& check, Job& job) {
  job.optimizer_implementation = UsualImplementation(spec, job);
  const absl::string_view field = "training.optimizer.implementation";
  if (!spec.implementation.has_value()) {
    check.Assume(field, NameOf(job.optimizer_implementation, kOptimizerImplementations),
                 job.optimizer_implementation == OfFramework(job) ? "the framework's default"
                                                                  : "what the optimizer has");
    return;
  }
  const auto asked = check.Meaning(field, *spec.implementation, kOptimizerImplementations);
  if (!asked.has_value()) return;
  job.optimizer_implementation = *asked;
  if (Has(job, *asked)) return;
  if (RowOf(job.optimizer).Has(*asked) && !job.paged_states) {
    check.Fail(field, *spec.implementation,
               "is bitsandbytes', whose kernels take no DTensor: fsdp2 has for-loop",
               ViolationCode::kConflict, {"runtime.framework"});
  } else {
    check.Fail(field, *spec.implementation,
               absl::StrCat("is not how ", OptimizerIn(job), " is implemented"),
               ViolationCode::kConflict, {"training.optimizer.name"});
  }
}

void CheckOptimizer(const OptimizerSpec& spec, const std::optional<std::string>& states,
                    Check& check, Job& job) {
  if (spec.name.has_value()) {
    const auto optimizer = check.Meaning("training.optimizer.name", *spec.name, kOptimizers);
    job.optimizer = optimizer.value_or(OptimizerName::kAdamW);
    if (optimizer.has_value()) {
      CheckAbility(AbilityOf(*optimizer), "training.optimizer.name", *spec.name, check, job);
    }
  } else {
    check.Assume("training.optimizer.name", "adamw", "the usual one");
  }
  ReadPaged(spec, check, job);
  ReadImplementation(spec, check, job);
  CheckStates(states, check, job);
  const bool matrices = RowOf(job.optimizer).picks == Picks::kMatrices;
  const bool flat = job.profile->flat_units || job.EngineShares();
  if (flat && RowOf(job.optimizer).PicksMatrices()) {
    check.Fail("training.optimizer.name", NameOf(job.optimizer, kOptimizers),
               "needs matrices, and shares are flat here", ViolationCode::kConflict,
               {"runtime.framework", "parallelism.zero_stage"});
  }
  // Source: Megatron-LM core/optimizer/layer_wise_optimizer.py, LayerWiseDistributedOptimizer.
  job.deals_matrices = matrices && job.profile->sharding == Sharding::kStates && job.zero_stage > 0;
  if (!job.deals_matrices) return;
  if (job.capabilities.Has(Ability::kMuon)) {
    CheckAbility(Ability::kDealtMatrices, "parallelism.zero_stage",
                 absl::StrCat(job.zero_stage, " with muon"), check, job);
  }
  const Beside dealt("matrices that are dealt to ranks", "training.optimizer.name", check);
  dealt.Refuse(job.pipeline_parallel_size > 1, "parallelism.pipeline_parallel_size",
               job.pipeline_parallel_size);
}

bool HasFlash(const Job& job) {
  return job.architecture != GpuArchitecture::kVolta &&
         job.architecture != GpuArchitecture::kTuring;
}

AttentionKernel UsualAttention(const Job& job, bool wide) {
  const AutoAttention& kernels = job.profile->attention;
  if (wide || !HasFlash(job)) return kernels.without_flash;
  return job.architecture == GpuArchitecture::kHopper ? kernels.on_hopper : kernels.usual;
}

// SDPA of transformers' classes has a mask where a layer sees less than the sequence, whichever of
// its kernels was asked for.
// Source: transformers, masking_utils.py, _ignore_causal_mask_sdpa.
bool MasksWindows(const Job& job) {
  if (!job.profile->transformers_attention || job.model == nullptr) return false;
  const Transformer& model = *job.model;
  return model.causal && model.sliding_window > 0 && job.sequence_length >= model.sliding_window &&
         model.windowed.CountOf(model.layer_count) > 0;
}

void ResolveAttention(bool wide, Check& check, Job& job) {
  const bool own = job.profile->transformers_attention && job.model != nullptr;
  const bool eager = own && job.model->eager_attention;
  job.attention = eager ? AttentionKernel::kEager : UsualAttention(job, wide);
  if (job.model != nullptr && job.model->latent.Any()) {
    job.attention = LatentKernel(job, job.attention);
  }
  job.masks_windows = !eager && MasksWindows(job);
  absl::string_view why = "auto, for this framework and GPU";
  if (eager) why = "auto, as the model's class in transformers has no SDPA";
  if (job.masks_windows) why = "auto; memory-efficient with a mask where layers see windows";
  check.Assume("training.attention", NameOf(job.attention, kAttentionKernels), why);
}

void CheckAttention(const TrainingSpec& spec, Check& check, Job& job) {
  const bool wide = job.precision.Product() == DType::kFp32;
  std::optional<AttentionKernel> kernel;
  if (spec.attention.has_value()) {
    const auto meaning = check.Meaning("training.attention", *spec.attention, kAttentionKernels);
    if (!meaning.has_value()) return;
    kernel = *meaning;
  }
  if (!kernel.has_value()) return ResolveAttention(wide, check, job);
  job.attention = *kernel;
  if (*kernel == AttentionKernel::kFlex && !job.profile->attention.flex) {
    check.Fail("training.attention", *spec.attention, "is not modelled with this framework",
               ViolationCode::kNotModelled, {"runtime.framework"});
  }
  job.masks_windows = *kernel == AttentionKernel::kMemoryEfficient && MasksWindows(job);
  if (*kernel == AttentionKernel::kCudnn && MasksWindows(job)) {
    check.Fail("training.attention", *spec.attention,
               "is not modelled where layers see windows, which have a mask",
               ViolationCode::kNotModelled, {"model"});
  }
  const bool half_only = *kernel == AttentionKernel::kFlash || *kernel == AttentionKernel::kCudnn;
  if (half_only && wide) {
    check.Fail("training.attention", *spec.attention, "needs 16-bit activations",
               ViolationCode::kConflict, {"training.precision"});
  }
  if (half_only && !HasFlash(job)) {
    check.Fail("training.attention", *spec.attention, "needs an Ampere or newer GPU",
               ViolationCode::kConflict, {"cluster.gpu"});
  }
}

// What stands beside the scores of tokens is of transformers' classes, which sum it up in Python.
void CheckSinks(Check& check, const Job& job) {
  if (job.model == nullptr || !job.model->attention_sinks) return;
  if (!job.profile->transformers_attention) {
    check.Fail("model", "attention sinks", "is modelled as transformers' classes have it",
               ViolationCode::kNotModelled, {"runtime.framework"});
  } else if (job.attention != AttentionKernel::kEager) {
    check.Fail("training.attention", NameOf(job.attention, kAttentionKernels),
               "is not modelled with attention sinks: eager is", ViolationCode::kNotModelled,
               {"model"});
  }
}

void CheckLoss(const TrainingSpec& training, Check& check, Job& job) {
  const LossSpec& spec = training.loss;
  const bool predicts = job.model != nullptr && PredictsTokens(job.model->head);
  if (spec.implementation.has_value()) {
    const absl::string_view field = "training.loss.implementation";
    const auto loss = check.Meaning(field, *spec.implementation, kLossImplementations);
    job.loss = loss.value_or(LossImplementation::kPlain);
    const bool asks = predicts || job.loss != LossImplementation::kPlain;
    if (asks) CheckAbility(AbilityOf(job.loss), field, *spec.implementation, check, job);
  } else if (job.distillation.has_value()) {
    job.loss = LossImplementation::kPlain;  // of all logits, whatever the trainer has else
  } else if (job.profile->tiled_log_probs && predicts) {
    job.loss = LossImplementation::kTiledLogProbs;
    check.Assume("training.loss.implementation", "tiled-log-probs", "TRL's, from 1.15 on");
  } else if (job.liger_kernel && predicts && job.capabilities.Has(Ability::kFusedLoss)) {
    job.loss = LossImplementation::kFused;
    check.Assume("training.loss.implementation", "fused", "Liger's, beside its other kernels");
  } else if (job.profile->chunked_loss && predicts &&
             !training.optimizer.in_backward.value_or(false)) {
    job.loss = LossImplementation::kChunked;
    check.Assume("training.loss.implementation", "chunked",
                 "torchtitan's recipes, from May 2026 on");
  }
  const bool chunked = job.loss == LossImplementation::kChunked ||
                       job.loss == LossImplementation::kChunkedCrossEntropy;
  job.loss_chunk_count =
      check.Number("training.loss.chunk_count", spec.chunk_count, chunked ? 8 : 1);
  if (spec.chunk_count.has_value() && !chunked) {
    check.Fail("training.loss.chunk_count", *spec.chunk_count, "needs implementation chunked",
               ViolationCode::kConflict, {"training.loss.implementation"});
  } else if (chunked && !spec.chunk_count.has_value()) {
    check.Assume("training.loss.chunk_count", 8, "torchtitan's default");
  }
  if (job.profile->equal_chunks && job.loss == LossImplementation::kChunked &&
      job.LocalSequenceLength() % job.loss_chunk_count != 0) {
    check.Fail("training.loss.chunk_count", job.loss_chunk_count,
               absl::StrCat("must divide the ", job.LocalSequenceLength(),
                            " tokens of a sequence that a rank has"),
               ViolationCode::kConflict, {"training.sequence_length"});
  }
}

// Source: megatron/training/arguments.py (position_embedding_type, recompute_num_layers of MTP).
void CheckMtp(const TrainingSpec& spec, Check& check, Job& job) {
  constexpr char kField[] = "training.mtp_layer_count";
  job.mtp_layer_count = check.Number(kField, spec.mtp_layer_count, 0);
  if (job.mtp_layer_count == 0 || job.model == nullptr) return;
  if (!CheckAbility(Ability::kMtp, kField, job.mtp_layer_count, check, job)) return;
  const Transformer& model = *job.model;
  if (model.position_count > 0) {
    check.Fail(kField, job.mtp_layer_count, "needs rotary position embeddings, or none",
               ViolationCode::kConflict, {"model"});
  }
  const Beside mtp("multi-token prediction", kField, check);
  mtp.Refuse(model.tied_embeddings, "model", "tied embeddings");
  mtp.Refuse(!PredictsTokens(model.head) || model.sentence_head || !model.causal, "model",
             "a head that predicts no next token");
  mtp.Refuse(model.embedding_dropout > 0, "model", "dropout of embeddings");
  mtp.Refuse(model.embedding_norm || model.embedding_size != model.hidden_size, "model",
             "embeddings that are normed, or narrower than layers");
  mtp.Refuse(RowOf(job.optimizer).picks != Picks::kNone, "training.optimizer.name",
             NameOf(job.optimizer, kOptimizers));
  mtp.Refuse(job.recompute == RecomputeMode::kEveryNth, "training.recompute.mode",
             NameOf(job.recompute, kRecomputeModes));
  if (job.recompute_unit_layer_count > 1) {
    check.Fail("training.recompute.unit_layer_count", job.recompute_unit_layer_count,
               "must be 1 with multi-token prediction", ViolationCode::kConflict, {kField});
  }
  const auto leaves_out = [](const Warning& at) { return at.code == kNextTokensIgnored; };
  job.warnings.erase(std::remove_if(job.warnings.begin(), job.warnings.end(), leaves_out),
                     job.warnings.end());
}

// Heads that predict no tokens are transformers' classes: what else would split them
// or their loss has none.
void CheckHead(Check& check, const Job& job) {
  if (job.model == nullptr || PredictsTokens(job.model->head)) return;
  constexpr char kRule[] = "needs a head that predicts tokens, as language-model";
  if (job.loss != LossImplementation::kPlain) {
    check.Fail("training.loss.implementation", NameOf(job.loss, kLossImplementations), kRule,
               ViolationCode::kConflict);
  }
  if (job.tensor_parallel_size > 1) {
    check.Fail("parallelism.tensor_parallel_size", job.tensor_parallel_size, kRule,
               ViolationCode::kConflict);
  }
  if (job.context_parallel_size > 1) {
    check.Fail("parallelism.context_parallel_size", job.context_parallel_size, kRule,
               ViolationCode::kConflict);
  }
  if (job.pipeline_parallel_size > 1) {
    check.Fail("parallelism.pipeline_parallel_size", job.pipeline_parallel_size, kRule,
               ViolationCode::kConflict);
  }
  CheckAbility(Ability::kOtherHead, "model", NameOf(job.model->head, kHeads), check, job);
}

// TRL's head reads tokens of whole sequences, and its weight whole; its trainers predict tokens, or
// score answers.
// Source: trl trainer/utils.py, add_fused_lm_head; trainer/sft_trainer.py, __init__.
void CheckTiles(Check& check, const Job& job) {
  if (job.model == nullptr) return;
  const absl::string_view name = NameOf(job.model->head, kHeads);
  if (job.loss == LossImplementation::kTiledLogProbs) {
    const Beside tiles("tiled-log-probs", "training.loss.implementation", check);
    tiles.RefuseSplits(job);
    tiles.RefuseOtherModels(*job.model);
  } else if (job.profile->tiled_log_probs && !PredictsTokens(job.model->head) &&
             !job.preference.has_value()) {
    check.Fail("model", name, "needs training.preference.method reward under trl",
               ViolationCode::kConflict, {"training.preference.method", "runtime.trainer"});
  }
}

// Bytes of one cuBLAS workspace: CUBLAS_WORKSPACE_CONFIG as :KiB:count pairs,
// else 32 MiB on Hopper, on AMD, and with torch 2.12 on Blackwell; 8.1 MiB elsewhere.
// Source: aten/src/ATen/cuda/CublasHandlePool.cpp, parseChosenWorkspaceSize;
// pytorch#175344 of February 2026.
int64_t DefaultWorkspace(const Job& job) {
  constexpr int kBlackwellToo = 2012;
  constexpr int64_t kSmall = (int64_t{4096} * 2 + int64_t{16} * 8) * 1024;
  constexpr int64_t kLarge = int64_t{4096} * 8 * 1024;
  switch (job.architecture) {
    case GpuArchitecture::kHopper:
    case GpuArchitecture::kCdna2:
    case GpuArchitecture::kCdna3:
      return kLarge;
    case GpuArchitecture::kBlackwell:
      return job.torch_version < 0 || job.torch_version >= kBlackwellToo ? kLarge : kSmall;
    default:
      return kSmall;
  }
}

std::optional<int64_t> ParseWorkspace(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text.substr(0, 128), ':');
  if (parts.size() < 3 || parts.size() % 2 == 0 || !parts[0].empty()) return std::nullopt;
  int64_t bytes = 0;
  for (size_t i = 1; i + 1 < parts.size(); i += 2) {
    int32_t kib = 0;
    int32_t count = 0;
    if (!absl::SimpleAtoi(parts[i], &kib) || !absl::SimpleAtoi(parts[i + 1], &count) || kib < 0 ||
        count < 0) {
      return std::nullopt;
    }
    bytes = Add(bytes, Multiply(Multiply(kib, count), 1024));
  }
  return bytes;
}

// Whether a field that may be left open is set.
struct IsSet {
  template <typename Value>
  bool operator()(std::optional<Value>* value) const {
    return value->has_value();
  }
  template <typename Other>
  bool operator()(Other /*place*/) const {
    return false;
  }
};

// A field of `runtime` that some frameworks have.
struct Knob {
  Ability ability;
  const FieldRow* field;
};
const std::vector<Knob>& Knobs() {
  static const auto* const kKnobs = [] {
    auto* const knobs = new std::vector<Knob>();
    for (const AbilityName& name : kAbilityNames) {
      if (!absl::StartsWith(name.field, "runtime.")) continue;
      knobs->push_back({name.ability, FindFieldRow(name.field)});
    }
    return knobs;
  }();
  return *kKnobs;
}

// A knob that the framework lacks is refused, not ignored.
void CheckHasKnobs(const JobSpec& spec, Check& check, const Job& job) {
  auto& open = const_cast<JobSpec&>(spec);  // rows give places to write to; none is written to
  for (const Knob& knob : Knobs()) {
    if (job.capabilities.Has(knob.ability)) continue;
    if (!std::visit(IsSet(), knob.field->place(open))) continue;
    CheckAbility(knob.ability, knob.field->path, "set", check, job);
  }
}

// DeepSpeed's optimizer that sums 16-bit gradients up in fp32 has no buckets, nor has that without
// ZeRO. Source: deepspeed/runtime/zero/stage_1_and_2.py; bf16_optimizer.py;
// fp16/unfused_optimizer.py.
bool HasBuckets(const Job& job) {
  if (job.profile->sharding == Sharding::kStates) return job.megatron_fsdp != nullptr;
  if (job.zero_stage != 1) return job.zero_stage > 1;
  const bool flat = job.profile->sharding == Sharding::kFlat;
  return flat ? job.precision.accumulation != DType::kFp32 : !job.precision.SumsWide();
}

void CheckBucket(const RuntimeSpec& spec, Check& check, Job& job) {
  const auto& count = spec.reduce_bucket_element_count;
  constexpr KnownField field("runtime.reduce_bucket_element_count");
  job.reduce_bucket_element_count = check.Number(field, count, 500000000);
  job.overlap_communication =
      spec.overlap_communication.value_or(job.zero_stage == 3 && job.megatron_fsdp == nullptr);
  if (HasBuckets(job)) return;
  const auto moves_none = [&check, &job](absl::string_view path, absl::string_view value) {
    const bool megatrons = job.profile->sharding == Sharding::kStates;
    check.Fail(path, value,
               megatrons ? "moves no byte without Megatron-FSDP, which zero_stage 2 and 3 are"
                         : "moves no byte without ZeRO, nor with ZeRO 1 and sums in fp32",
               ViolationCode::kConflict,
               {"parallelism.zero_stage", "training.precision.gradient_accumulation_dtype"});
  };
  if (count.has_value() && job.capabilities.Has(Ability::kReduceBucket)) {
    moves_none("runtime.reduce_bucket_element_count", absl::StrCat(*count));
  }
  if (job.overlap_communication && job.capabilities.Has(Ability::kOverlapCommunication)) {
    moves_none("runtime.overlap_communication", "true");
  }
}

// With ZeRO 1 sums in fp32 are another optimizer's for bf16 weights, and the engine's own for fp16;
// without ZeRO DeepSpeed 0.19 has none. Source: deepspeed/runtime/engine.py,
// _do_optimizer_sanity_check.
void CheckSums(const PrecisionSpec& spec, Check& check, const Job& job) {
  const Precision& precision = job.precision;
  const bool engine = job.profile->sharding == Sharding::kEngine && job.zero_stage < 2;
  if (!engine || !precision.SumsWide()) return;
  if (job.zero_stage == 1 && precision.parameter == DType::kBf16) return;
  const bool own = spec.gradient_accumulation_dtype.has_value();
  const absl::string_view field =
      own ? "training.precision.gradient_accumulation_dtype" : "training.precision.preset";
  const std::string value = own ? *spec.gradient_accumulation_dtype : spec.preset.value_or("");
  const auto fail = [&](std::string rule, ViolationCode code) {
    check.Fail(field, value, std::move(rule), code, {"parallelism.zero_stage"});
  };
  if (job.zero_stage == 0) {
    return fail("needs parallelism.zero_stage 1, 2 or 3 to sum 16-bit gradients up in fp32",
                ViolationCode::kConflict);
  }
  fail(absl::StrCat("is not modelled with parallelism.zero_stage 1 beside weights in ",
                    Name(precision.parameter), ": beside bf16 it is"),
       ViolationCode::kNotModelled);
}

// Steps of single parameters in the middle of backward.
// Source: torchtune recipes/full_finetune_single_device.py, __init__ (what optimizer_in_bwd
// excludes); torch/csrc/autograd/functions/accumulate_grad.cpp (post-accumulate hooks).
void CheckInBackward(const TrainingSpec& spec, Check& check, Job& job) {
  const absl::string_view field = "training.optimizer.in_backward";
  job.optimizer_in_backward = spec.optimizer.in_backward.value_or(false);
  if (!job.optimizer_in_backward) return;
  if (!CheckAbility(Ability::kOptimizerInBackward, field, "true", check, job)) return;
  job.gradient_clipping = spec.gradient_clipping.value_or(false);
  if (!spec.gradient_clipping.has_value()) {
    check.Assume("training.gradient_clipping", "false", "a step in backward sees one gradient");
  }
  if (job.gradient_clipping) {
    check.Fail("training.gradient_clipping", "true", "needs all gradients at once",
               ViolationCode::kConflict, {field});
  }
  if (job.micro_batch_count > 1) {
    check.Fail(field, "true", "needs one micro-batch in a step", ViolationCode::kConflict,
               {"training.global_batch_size"});
  }
  const Beside steps("an optimizer in backward", field, check);
  steps.Refuse(job.optimizer_implementation != OptimizerImplementation::kFused,
               "training.optimizer.implementation",
               NameOf(job.optimizer_implementation, kOptimizerImplementations));
  steps.Refuse(job.data_parallel_size > 1, "parallelism.data_parallel_size",
               job.data_parallel_size);
  steps.Refuse(job.adapter.has_value(), "training.adapter.method", "set");
  const bool copies = job.precision.master != DType::kNone || job.precision.SumsWide();
  steps.Refuse(copies, "training.precision.preset", spec.precision.preset.value_or("bf16-mixed"));
  const bool steps_each = job.loss == LossImplementation::kChunked;  // would step for each slice
  steps.Refuse(steps_each, "training.loss.implementation", "chunked");
}

// Source: megatron/core/model_parallel_config.py, __post_init__.
void CheckDeferral(const RuntimeSpec& spec, Check& check, Job& job) {
  const auto& count = spec.deferred_embedding_gradient_count;
  if (!count.has_value()) return;
  constexpr KnownField field("runtime.deferred_embedding_gradient_count");
  if (!job.capabilities.Has(Ability::kDeferredEmbeddingGradient)) return;
  job.deferred_embedding_gradient_count = check.Number(field, count, 0);
  if (job.deferred_embedding_gradient_count == 0) return;
  if (job.pipeline_parallel_size == 1) {
    check.Fail(field, *count, "needs pipeline_parallel_size above 1", ViolationCode::kConflict,
               {"parallelism.pipeline_parallel_size"});
  } else if (!job.gradient_accumulation_fusion) {
    check.Fail(field, *count, "needs gradient_accumulation_fusion", ViolationCode::kConflict,
               {"runtime.gradient_accumulation_fusion"});
  }
  Beside("deferred gradients", field, check)
      .Refuse(job.mtp_layer_count > 0, "training.mtp_layer_count", job.mtp_layer_count);
}

void CheckTransformer(const std::optional<std::string>& name, Check& check, Job& job) {
  const absl::string_view field = "runtime.transformer_implementation";
  job.transformer_engine = job.capabilities.Has(Ability::kTransformerImplementation);
  if (job.transformer_engine && name.has_value()) {
    job.transformer_engine =
        check.Meaning(field, *name, kTransformerImplementations).value_or(true);
  }
}

// Inputs of layers that run again. Source: trl trainer/grpo_config.py, which has no such field;
// trainer/utils.py, which asks a saved weight for its ds_status (it fails under the phantom).
void CheckOffloadedActivations(const JobSpec& job_spec, Check& check, Job& job) {
  constexpr KnownField field("runtime.offload_activations");
  job.offload_activations = job_spec.runtime.offload_activations.value_or(false);
  if (!job.offload_activations || !job.capabilities.Has(Ability::kOffloadActivations)) return;
  const Beside offload("offloaded activations", field, check);
  offload.RefusePartsAgain(job_spec.training.recompute, job);
  offload.Refuse(job.recompute == RecomputeMode::kNone, "training.recompute.mode", "none");
  offload.Refuse(job.pipeline_parallel_size > 1, "parallelism.pipeline_parallel_size",
                 job.pipeline_parallel_size);
  const bool of_trl = job.profile->tiled_log_probs;  // whose head asks the engine for its weight
  if (of_trl && job.profile->sharding == Sharding::kEngine && job.zero_stage == 3) {
    check.Fail(field, "true",
               "fails in TRL with ZeRO 3: the head's weight comes back as no parameter to gather",
               ViolationCode::kConflict, {"parallelism.zero_stage"});
  }
  if (job.preference == PreferenceMethod::kGrpo) {
    check.Fail(field, "true", "TRL's GRPO has no activation_offloading", ViolationCode::kConflict,
               {"training.preference.method"});
  }
}

// Source: deepspeed/runtime/engine.py, _configure_zero_optimizer (offload_param needs stage 3).
void CheckOffload(const RuntimeSpec& spec, Check& check, Job& job) {
  job.offload_parameters = spec.offload_parameters.value_or(false);
  job.offload_optimizer = spec.offload_optimizer.value_or(false);
  const bool engine = job.profile->sharding == Sharding::kEngine;
  const absl::string_view field =
      job.offload_optimizer ? "runtime.offload_optimizer" : "runtime.offload_parameters";
  if (job.offload_parameters || job.offload_optimizer) {
    const Beside offload("offload", field, check);
    offload.Refuse(job.pipeline_parallel_size > 1, "parallelism.pipeline_parallel_size",
                   job.pipeline_parallel_size);
    offload.Refuse(!engine && job.recompute_unit_layer_count > 1,
                   "training.recompute.unit_layer_count", job.recompute_unit_layer_count);
    offload.Refuse(job.paged_states, "training.optimizer.paged", "true");
    offload.Refuse(job.precision.parameter == DType::kFp8, "training.precision.preset", "fp8-lm");
    offload.Refuse(engine && job.precision.SumsWide(),
                   "training.precision.gradient_accumulation_dtype",
                   Name(job.precision.accumulation));
    offload.Refuse(job.offload_optimizer && !RowOf(job.optimizer).on_hosts,
                   "training.optimizer.name", NameOf(job.optimizer, kOptimizers));
  }
  if (engine && job.offload_parameters && job.zero_stage != 3) {
    check.Fail("runtime.offload_parameters", "true", "needs parallelism.zero_stage 3",
               ViolationCode::kConflict, {"parallelism.zero_stage"});
  }
  if (engine && job.offload_optimizer && job.zero_stage < 2) {
    check.Fail("runtime.offload_optimizer", "true",
               job.zero_stage == 0 ? "needs parallelism.zero_stage 2 or 3"
                                   : "is not modelled with parallelism.zero_stage 1: 2 and 3 are",
               job.zero_stage == 0 ? ViolationCode::kConflict : ViolationCode::kNotModelled,
               {"parallelism.zero_stage"});
  }
}

}  // namespace

void CheckTraining(const TrainingSpec& spec, Check& check, Job& job) {
  CheckBatch(spec, check, job);
  ReadAdapter(spec.adapter, check, job);
  ReadQuantization(spec.quantization, check, job);
  ReadAdapterDType(spec.adapter, check, job);
  ReadPreference(spec.preference, check, job);
  ReadTrained(spec.trained, check, job);
  CheckPrecision(spec.precision, check, job);
  CheckOptimizer(spec.optimizer, spec.precision.optimizer_state_dtype, check, job);
  ReadProjection(spec, check, job);
  CheckCompressed(spec, check, job);
  job.gradient_clipping = spec.gradient_clipping.value_or(true);
  CheckRecompute(spec.recompute, check, job);
  CheckAttention(spec, check, job);
  CheckSinks(check, job);
  ReadLinearAttention(spec, check, job);
  CheckLoss(spec, check, job);
  CheckHead(check, job);
  CheckTiles(check, job);
  CheckMtp(spec, check, job);
  job.resumed_from_checkpoint = spec.resumed_from_checkpoint.value_or(false);
}

void CheckKnobs(const JobSpec& job_spec, Check& check, Job& job) {
  const RuntimeSpec& spec = job_spec.runtime;
  CheckHasKnobs(job_spec, check, job);
  CheckBucket(spec, check, job);
  CheckSums(job_spec.training.precision, check, job);
  job.gradient_as_bucket_view = spec.gradient_as_bucket_view.value_or(false);
  CheckInBackward(job_spec.training, check, job);
  job.reshard_after_forward =
      spec.reshard_after_forward.value_or(job.zero_stage == 3 && job.pipeline_parallel_size == 1);
  job.last_block_gathered = job.profile->last_block_gathered && job.reshard_after_forward &&
                            !spec.reshard_after_forward.has_value();
  CheckOffload(spec, check, job);
  CheckOffloadedActivations(job_spec, check, job);
  job.compile = spec.compile.value_or(false);
  job.grouped_gemm = spec.grouped_gemm.value_or(false);
  job.deterministic = spec.deterministic.value_or(false);
  job.gradient_accumulation_fusion = spec.gradient_accumulation_fusion.value_or(
      job.profile->weight_gradient == WeightGradient::kFused);
  CheckDeferral(spec, check, job);
  job.attention_mask = spec.attention_mask.value_or(job.capabilities.Has(Ability::kAttentionMask) &&
                                                    job.attention == AttentionKernel::kEager);
  CheckTransformer(spec.transformer_implementation, check, job);
  job.cublas_workspace_bytes = DefaultWorkspace(job);
  if (!spec.cublas_workspace_config.has_value()) return;
  const auto parsed = ParseWorkspace(*spec.cublas_workspace_config);
  if (parsed.has_value()) {
    job.cublas_workspace_bytes = *parsed;
  } else {
    check.Fail("runtime.cublas_workspace_config", *spec.cublas_workspace_config,
               "must be as :4096:8, pairs of KiB and count", ViolationCode::kMalformed);
  }
}

}  // namespace plimsoll
