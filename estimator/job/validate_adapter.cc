// The adapter section, and what is modelled beside it.
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "estimator/base/version.h"
#include "estimator/job/beside.h"
#include "estimator/job/job_abilities.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
namespace {

// Words of modules that were experts' own before these were parameters stand for these, and for no
// module any more.
// Source: peft utils/transformers_weight_conversion.py, _convert_peft_config_moe,
// _resolve_string_target_modules.
AdapterTargets MoveToExperts(AdapterTargets said, bool all, const Transformer& model) {
  const Experts& experts = model.experts;
  const bool named = experts.words == ExpertWords::kProducts;
  if (!experts.Any() || (!named && !(all && experts.words == ExpertWords::kAllLinear))) return said;
  AdapterTargets moved = said & ~kMlpTargets;
  const AdapterTarget first = model.gated_mlp ? AdapterTarget::kGate : AdapterTarget::kUp;
  if ((said & BitOf(first)) != 0) moved |= BitOf(AdapterTarget::kExpertsGateUp);
  if ((said & BitOf(AdapterTarget::kDown)) != 0) moved |= BitOf(AdapterTarget::kExpertsDown);
  if (all) moved |= BitOf(AdapterTarget::kRouter);
  return moved;
}

// Source: peft utils/constants.py, TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING,
// TRANSFORMERS_MODELS_TO_IA3_TARGET_MODULES_MAPPING.
AdapterTargets UsualTargets(Check& check, const Job& job) {
  const absl::string_view field = "training.adapter.target_modules";
  const bool vectors = job.adapter->method == AdapterMethod::kIa3;
  const bool joint = job.model != nullptr && job.model->joint_qkv;
  constexpr AdapterTargets kValue = BitOf(AdapterTarget::kValue);
  if (joint && !vectors) {
    check.Assume(field, "q_proj, k_proj, v_proj", "PEFT's default where these are one projection");
    return kQkvTargets;
  }
  if (!vectors) {
    check.Assume(field, "q_proj, v_proj", "PEFT's default for most models");
    return BitOf(AdapterTarget::kQuery) | kValue;
  }
  const bool keys = job.model != nullptr &&
                    (job.model->model_type == "llama" || job.model->model_type == "mistral");
  check.Assume(field, keys ? "k_proj, v_proj, down_proj" : "q_proj, v_proj, down_proj",
               "PEFT's default");
  return BitOf(keys ? AdapterTarget::kKey : AdapterTarget::kQuery) | kValue |
         BitOf(AdapterTarget::kDown);
}

AdapterTargets ReadTargets(const std::vector<std::string>& names, Check& check, const Job& job) {
  if (names.empty()) return UsualTargets(check, job);
  AdapterTargets targets = 0;
  const absl::string_view field = "training.adapter.target_modules";
  if (!check.FewEnough(field, names.size(), "names", kMostNames)) return targets;
  for (const std::string& name : names) {
    targets |= check.Meaning(field, name, kAdapterTargets).value_or(0);
  }
  const bool all = absl::c_linear_search(names, "all-linear");
  return job.model == nullptr ? targets : MoveToExperts(targets, all, *job.model);
}

void ReadTrainedModules(const AdapterSpec& spec, Check& check, Adapter& adapter) {
  const absl::string_view field = "training.adapter.trained_modules";
  if (!check.FewEnough(field, spec.trained_modules.size(), "names", kMostNames)) return;
  for (const std::string& name : spec.trained_modules) {
    const auto module = check.Meaning(field, name, kTrainedModules);
    if (module.has_value()) adapter.trained_modules |= 1u << static_cast<unsigned>(*module);
  }
}

// Copies that are trained whole: on one GPU, whose gradients no bucket has, of tables of their own.
void CheckTrainedModules(const AdapterSpec& spec, Check& check, const Job& job) {
  if (job.adapter->trained_modules == 0) return;
  const std::string said = absl::StrJoin(spec.trained_modules, ", ");
  const auto refuse = [&](bool is, absl::string_view with, absl::string_view other) {
    if (!is) return;
    check.Fail("training.adapter.trained_modules", said,
               absl::StrCat("is not modelled with ", with), ViolationCode::kNotModelled, {other});
  };
  const bool whole = job.profile->sharding == Sharding::kBuckets && job.data_parallel_size == 1;
  refuse(!whole, "more than one GPU", "parallelism.data_parallel_size");
  refuse(!job.profile->widens_adapters, "this trainer", "runtime.trainer");
  refuse(job.quantization.has_value(), "quantized weights", "training.quantization.format");
  refuse(job.preference.has_value(), "preference tuning", "training.preference.method");
  refuse(job.model->tied_embeddings, "tied embeddings", "model");
  refuse(job.loss == LossImplementation::kTiledLogProbs, "tiled-log-probs",
         "training.loss.implementation");
  refuse(!PredictsTokens(job.model->head), "heads that predict no tokens", "model");
  refuse(!IsAdam(job.optimizer) || job.paged_states, "optimizers but adam and adamw",
         "training.optimizer.name");
}

// FSDP2 trains tensors of one dtype in a group, DeepSpeed's engine has one for all: adapters have
// that of the weights, or are masters of what forward reads in it.
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, _init_mp_dtypes;
// deepspeed/runtime/engine.py, _configure_distributed_model.
void CheckDTypes(const Beside& adapters, Check& check, const Job& job) {
  const Precision& precision = job.precision;
  const bool sharded = job.profile->sharding != Sharding::kBuckets;
  const bool masters = precision.master != DType::kNone;
  const bool wide = precision.autocast && precision.parameter != precision.activation;
  adapters.Refuse(wide, "training.precision.parameter_dtype", Name(precision.parameter));
  const DType own = job.adapter->dtype;
  const bool halves =
      own != precision.parameter && own != DType::kFp32 && precision.parameter != DType::kFp32;
  if (halves) {  // a sum of fp16 and bf16 is fp32
    check.Fail("training.adapter.adapter_dtype", Name(own),
               absl::StrCat("is not modelled beside weights in ", Name(precision.parameter)),
               ViolationCode::kNotModelled, {"training.precision.preset"});
    return;
  }
  if (masters && !sharded) {
    check.Fail("training.precision.master_dtype", Name(precision.master),
               "is not modelled with adapters under ddp: presets bf16-pure and bf16-autocast are",
               ViolationCode::kNotModelled, {"training.precision.preset"});
    return;
  }
  const DType dtype = masters ? precision.master : precision.parameter;
  if (!sharded || own == dtype) return;
  check.Fail("training.adapter.adapter_dtype", Name(own),
             absl::StrCat("is modelled with ", job.profile->name, " where it is ", Name(dtype),
                          ", as what is trained here"),
             ViolationCode::kNotModelled, {"training.precision.preset", "runtime.framework"});
}

// Recipes that train in one dtype: nothing is cast, there are no masters.
// Source: torchtune recipes/lora_finetune_single_device.py, set_default_dtype.
void CheckOneDType(const PrecisionSpec& spec, Check& check, const Job& job) {
  const Precision& precision = job.precision;
  if (precision.autocast || precision.master != DType::kNone) {
    check.Fail("training.precision.preset", spec.preset.value_or("masters"),
               absl::StrCat("is not modelled with adapters of ", job.profile->trainer_name,
                            ", which trains in one dtype: bf16-pure and fp32 are"),
               ViolationCode::kNotModelled, {"runtime.trainer"});
  }
  if (job.adapter->dtype == precision.parameter) return;
  check.Fail("training.adapter.adapter_dtype", Name(job.adapter->dtype),
             absl::StrCat("must be ", Name(precision.parameter), ", as weights are"),
             ViolationCode::kConflict, {"training.precision.preset", "runtime.trainer"});
}

// PEFT's was measured beside weights in 16 bits, with fp32 adapters, torchtune's in one dtype.
// Beside quantized ones nothing casts back
// what is weighed, under autocast, so that the layers behind are wider; linear attention's layers
// have more products than a block has room for what DoRA makes of each.
// Source: peft tuners/lora/bnb.py, Linear4bit.forward (requires_conversion).
void CheckDora(const Beside& adapters, const QuantizationSpec& spec, Check& check, const Job& job) {
  if (job.adapter->method != AdapterMethod::kDora || job.profile->dora_reads_product) return;
  adapters.Refuse(job.quantization.has_value(), "training.quantization.format",
                  absl::StrCat(spec.format.value_or("nf4"), " beside DoRA"));
  if (job.adapter->dtype != DType::kFp32 && !job.quantization.has_value()) {
    check.Fail("training.adapter.adapter_dtype", Name(job.adapter->dtype),
               "is not modelled with DoRA: fp32 is", ViolationCode::kNotModelled,
               {"training.adapter.method"});
  }
  if (!job.model->linear.Any()) return;
  check.Fail("training.adapter.method", "dora", "is not modelled on linear attention",
             ViolationCode::kNotModelled, {"model"});
}

// What torchtune's recipes were held against: Llama, Mistral, Phi 3, Qwen 2 and 3 and Gemma, with
// torch 2.8 and later where they shard.
void CheckTables(const Beside& adapters, Check& check, const Job& job) {
  const Transformer& model = *job.model;
  const auto refuse = [&](bool is, absl::string_view what) {
    adapters.Refuse(is, "model", absl::StrCat(what, " under ", job.profile->trainer_name));
  };
  refuse(model.qk_norm != QkNorm::kNone && model.qk_norm != QkNorm::kPerHead,
         "norms of queries and keys but of each head");
  refuse(model.norm_placement != NormPlacement::kPre, "norms elsewhere than before a sublayer");
  refuse(model.logit_softcap, "logits that are capped");
  refuse(model.norm != Norm::kRmsNorm || !model.gated_mlp, "layers unlike Llama's");
  constexpr int kReshardsRoot = 2008;
  const bool before = IsBefore(job.torch_version, kReshardsRoot);
  if (job.profile->sharding == Sharding::kBuckets || !before) return;
  check.Fail("runtime.versions", "torch", "is modelled with adapters of torchtune from 2.8 on",
             ViolationCode::kNotModelled, {"training.adapter.method"});
}

// torchtune's Qwen models quantize what has an adapter alone, which no row of weights here says.
// Source: torchtune models/qwen2/_component_builders.py, models/qwen3/_component_builders.py (no
// FrozenNF4Linear).
void CheckQuantizedAlone(Check& check, const Job& job) {
  const absl::string_view type = job.model->model_type;
  const AdapterTargets all = kQkvTargets | BitOf(AdapterTarget::kOutput) | kMlpTargets;
  const bool some = (job.adapter->targets & all) != all;
  if (!job.quantization.has_value() || !some || (type != "qwen2" && type != "qwen3")) return;
  check.Fail("training.adapter.target_modules", "some",
             absl::StrCat("is not modelled beside quantized weights of ", type, " under ",
                          job.profile->trainer_name, ": all modules of a layer are"),
             ViolationCode::kNotModelled, {"training.quantization.format"});
}

// litgpt's recipe was held against its code and against what others measured, on one GPU, where it
// runs no layer again.
void CheckJointAdapters(const Beside& adapters, const Job& job) {
  const Transformer& model = *job.model;
  const auto refuse = [&](bool is, absl::string_view what) {
    adapters.Refuse(is, "model", absl::StrCat(what, " under ", job.profile->trainer_name));
  };
  refuse(model.qk_norm != QkNorm::kNone, "norms of queries and keys");
  refuse(model.norm_placement == NormPlacement::kSandwich, "norms on both sides of a sublayer");
  refuse(model.logit_softcap, "logits that are capped");
  adapters.Refuse(job.data_parallel_size > 1, "parallelism.data_parallel_size",
                  job.data_parallel_size);
  adapters.Refuse(job.recompute != RecomputeMode::kNone, "training.recompute.mode", "full");
}

// Automodel's own were held against its code without dropout, which it puts behind them.
// Source: nemo_automodel 0.7, components/_peft/lora.py, LinearLoRA.forward (dropout_position).
void CheckLean(const Beside& adapters, const Job& job) {
  adapters.Refuse(job.adapter->dropout > 0, "training.adapter.dropout",
                  absl::StrCat(job.adapter->dropout, " under ", job.profile->trainer_name));
  adapters.Refuse(job.adapter->trained_modules != 0, "training.adapter.trained_modules",
                  absl::StrCat("others beside adapters under ", job.profile->trainer_name));
  const bool head = job.adapter->Targets(AdapterTarget::kHead);
  adapters.Refuse(head, "training.adapter.target_modules",
                  absl::StrCat("lm_head under ", job.profile->trainer_name));
}

// A config that states no positions has a table of as many as the sequence has.
void AssumePositions(Check& check, const Job& job) {
  const bool rotary = job.model->position_embedding == PositionEmbedding::kRotary;
  if (!job.profile->rotary_tables || !rotary || job.model->rotary_position_count > 0) return;
  check.Assume("model.max_position_embeddings", job.sequence_length,
               "not stated: a rotary table of the sequence alone");
}

// One projection of queries, keys and values has one adapter, and one of gate and up.
void CheckJoint(const AdapterSpec& spec, Check& check, const Job& job) {
  if (job.profile->joint_adapters) return;
  const auto require = [&](bool joint, AdapterTargets all, absl::string_view names) {
    const AdapterTargets asked = job.adapter->targets & all;
    if (!joint || asked == 0 || asked == all) return;
    check.Fail("training.adapter.target_modules", absl::StrJoin(spec.target_modules, ", "),
               absl::StrCat("must have all of ", names, ", or none: they are one projection here"),
               ViolationCode::kConflict, {"model"});
  };
  require(job.model->joint_qkv, kQkvTargets, "q_proj, k_proj and v_proj");
  require(job.model->joint_gate, kGateUpTargets, "gate_proj and up_proj");
}

// Names of products that the model's class has not: one for several, and those of linear attention,
// which has four, or two for all.
bool IsNoModule(absl::string_view name, const Transformer& model) {
  if (name == "qkv_proj") return !model.joint_qkv;
  if (name == "gate_up_proj") return !model.joint_gate;
  const bool joint = name == "in_proj_qkvz" || name == "in_proj_ba";
  if (!joint && !absl::StartsWith(name, "in_proj_")) return false;
  return !model.linear.Any() || joint != (model.linear.projections == DeltaProjections::kJoint);
}

// Products of latent attention have names of their own.
AdapterTargets AttentionTargets(const Transformer& model) {
  constexpr AdapterTargets kOutput = BitOf(AdapterTarget::kOutput);
  if (!model.latent.Any()) return kQkvTargets | kOutput;
  const AdapterTargets queries = model.latent.query_rank > 0
                                     ? BitsOf(AdapterTarget::kQueryDown, AdapterTarget::kQueryUp)
                                     : BitOf(AdapterTarget::kQuery);
  return queries | BitsOf(AdapterTarget::kKvDown, AdapterTarget::kKvUp) | kOutput;
}

// What of all targets some layer of the model has.
AdapterTargets TargetsOf(const Transformer& model) {
  const Experts& experts = model.experts;
  const LinearAttention& linear = model.linear;
  AdapterTargets has = BitOf(AdapterTarget::kHead);
  const bool plain = !experts.Any() || !experts.layers.HasAllOf(model.layer_count);
  if (plain || experts.shared_ffn_size > 0) has |= kMlpTargets;
  if (!model.gated_mlp) has &= ~BitOf(AdapterTarget::kGate);
  if (experts.shared_gate) has |= BitOf(AdapterTarget::kSharedGate);
  if (experts.Any()) has |= BitsOf(AdapterTarget::kExpertsGateUp, AdapterTarget::kRouter);
  if (!linear.Any() || !linear.layers.HasAllOf(model.layer_count)) has |= AttentionTargets(model);
  if (linear.Any()) has |= kLinearTargets;
  return has;
}

// Modules that the model and the trainer have.
void CheckTargets(const AdapterSpec& spec, Check& check, const Job& job) {
  if (job.adapter->Targets(AdapterTarget::kHead) && job.profile->loss_slice_tokens == 0) {
    check.Fail("training.adapter.target_modules", "lm_head",
               "is modelled where the head runs over slices of the tokens, as litgpt's does",
               ViolationCode::kNotModelled, {"runtime.trainer"});
  }
  for (const std::string& name : spec.target_modules) {
    if (!IsNoModule(name, *job.model)) continue;
    check.Fail("training.adapter.target_modules", name, "is no module of this model",
               ViolationCode::kConflict, {"model"});
  }
  const bool known = job.adapter->targets != 0;
  if (!known || (job.adapter->targets & TargetsOf(*job.model)) != 0) return;
  check.Fail("training.adapter.target_modules",
             spec.target_modules.empty() ? "unset" : absl::StrJoin(spec.target_modules, ", "),
             "has no module of this model", ViolationCode::kConflict, {"model"});
}

// Fields that another method has.
void RefuseOthersFields(const AdapterSpec& spec, Check& check, const Adapter& adapter) {
  const auto refuse = [&check](bool is, absl::string_view field, absl::string_view methods) {
    if (!is) return;
    check.Fail(field, "set", absl::StrCat("is of ", methods), ViolationCode::kConflict,
               {"training.adapter.method"});
  };
  constexpr absl::string_view kRanked = "lora, qlora and dora";
  constexpr absl::string_view kVirtual = "prompt-tuning, p-tuning and prefix-tuning";
  const bool ranked = adapter.HasRank();
  refuse(!ranked && spec.rank.has_value(), "training.adapter.rank", kRanked);
  refuse(!ranked && spec.dropout.has_value(), "training.adapter.dropout", kRanked);
  refuse(!adapter.OfTargets() && !spec.target_modules.empty(), "training.adapter.target_modules",
         "lora, qlora, dora and ia3");
  refuse(adapter.method != AdapterMethod::kIa3 && !spec.feedforward_modules.empty(),
         "training.adapter.feedforward_modules", "ia3");
  refuse(adapter.OfTargets() && spec.virtual_token_count.has_value(),
         "training.adapter.virtual_token_count", kVirtual);
  const bool encodes = adapter.method == AdapterMethod::kPTuning || adapter.OfPrefix();
  refuse(!encodes && spec.encoder_hidden_size.has_value(), "training.adapter.encoder_hidden_size",
         "p-tuning and prefix-tuning");
  refuse(!adapter.OfPrefix() && spec.prefix_projection.has_value(),
         "training.adapter.prefix_projection", "prefix-tuning");
  if (ranked || spec.trained_modules.empty()) return;
  check.Fail("training.adapter.trained_modules", absl::StrJoin(spec.trained_modules, ", "),
             absl::StrCat("is modelled beside ", kRanked), ViolationCode::kNotModelled,
             {"training.adapter.method"});
}

bool SaysAnything(const AdapterSpec& spec) {
  return spec.rank.has_value() || !spec.target_modules.empty() || !spec.trained_modules.empty() ||
         spec.dropout.has_value() || spec.adapter_dtype.has_value() ||
         !spec.feedforward_modules.empty() || spec.virtual_token_count.has_value() ||
         spec.encoder_hidden_size.has_value() || spec.prefix_projection.has_value();
}

void ReadRank(const AdapterSpec& spec, Check& check, Adapter& adapter) {
  adapter.rank = check.Number("training.adapter.rank", spec.rank, 8);
  if (!spec.rank.has_value()) check.Assume("training.adapter.rank", 8, "PEFT's default");
}

}  // namespace

// Source of the defaults: peft, tuners/lora/config.py, LoraConfig; utils/constants.py,
// TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING.
void ReadAdapter(const AdapterSpec& spec, Check& check, Job& job) {
  if (!spec.method.has_value() && !SaysAnything(spec)) return;
  const absl::string_view field = "training.adapter.method";
  if (spec.method.has_value()) {
    const auto method = check.Meaning(field, *spec.method, kAdapterMethods);
    if (method.has_value()) CheckAbility(AbilityOf(*method), field, *spec.method, check, job);
    job.adapter.emplace().method = method.value_or(AdapterMethod::kLora);
  } else {
    check.Fail(field, "unset", "must be set with other fields of adapter", ViolationCode::kMissing);
  }
  if (!job.adapter.has_value()) job.adapter.emplace();
  Adapter& adapter = *job.adapter;
  RefuseOthersFields(spec, check, adapter);
  if (adapter.HasRank()) ReadRank(spec, check, adapter);
  if (adapter.OfTargets()) {
    adapter.targets = ReadTargets(spec.target_modules, check, job);
  } else {
    ReadVirtualTokens(spec, check, job);
  }
  if (adapter.method == AdapterMethod::kIa3) ReadScaling(spec, check, job, adapter);
  ReadTrainedModules(spec, check, adapter);
  adapter.dropout = check.Share("training.adapter.dropout", spec.dropout, 0);
}

// Source: peft mapping_func.py, get_peft_model, autocast_adapter_dtype; trl
// trainer/sft_trainer.py, SFTTrainer.__init__ (_is_quantized_model).
void ReadAdapterDType(const AdapterSpec& spec, Check& check, Job& job) {
  if (!job.adapter.has_value()) return;
  Adapter& adapter = *job.adapter;
  const absl::string_view dtype = "training.adapter.adapter_dtype";
  if (spec.adapter_dtype.has_value()) {
    adapter.dtype =
        check.Meaning(dtype, *spec.adapter_dtype, kAdapterDTypes).value_or(DType::kFp32);
    return;
  }
  const bool quantized = job.quantization.has_value();
  // DeepSpeed's engine and FSDP1's flat parameters have one dtype for all that is trained.
  const bool one = job.profile->sharding == Sharding::kEngine || job.profile->flat_units;
  if (!job.profile->widens_adapters || (quantized && one)) {
    adapter.dtype = DType::kNone;  // until it is known what is trained
    return;
  }
  const bool narrow = quantized && job.profile->narrows_adapters;
  adapter.dtype = narrow ? DType::kBf16 : DType::kFp32;
  check.Assume(dtype, Name(adapter.dtype),
               narrow ? "TRL's, beside quantized weights" : "PEFT's default");
}

void CheckAdapter(const JobSpec& spec, Check& check, const Job& job) {
  const TrainingSpec& training = spec.training;
  const Beside adapters("adapters", "training.adapter.method", check);
  adapters.RefuseSplits(job);
  adapters.RefusePartsAgain(training.recompute, job);
  const bool slices = job.loss == LossImplementation::kChunkedCrossEntropy ||
                      job.loss == LossImplementation::kChunked;
  const bool sliced = slices && job.profile->slices_wait;
  const bool plain =
      job.loss == LossImplementation::kPlain || job.loss == LossImplementation::kTiledLogProbs;
  adapters.Refuse(!plain && !sliced, "training.loss.implementation",
                  NameOf(job.loss, kLossImplementations));
  adapters.Refuse(job.compile, "runtime.compile", "true");
  if (job.model == nullptr) return;
  const bool scores = job.model->head == Head::kSequenceClassification;
  if (scores && job.profile->widens_adapters) {
    adapters.RefuseOtherWidths(*job.model);
  } else {
    adapters.RefuseOtherModels(*job.model);
  }
  if (job.profile->widens_adapters) {
    CheckDTypes(adapters, check, job);
  } else {
    CheckOneDType(training.precision, check, job);
  }
  if (job.profile->rotary_tables) {
    CheckTables(adapters, check, job);
    CheckQuantizedAlone(check, job);
  }
  if (job.profile->joint_adapters) CheckJointAdapters(adapters, job);
  if (job.profile->lean_adapters) CheckLean(adapters, job);
  CheckDora(adapters, training.quantization, check, job);
  AssumePositions(check, job);
  CheckTrainedModules(training.adapter, check, job);
  CheckJoint(training.adapter, check, job);
  CheckTargets(training.adapter, check, job);
  if (job.adapter->method == AdapterMethod::kIa3) CheckScaling(spec, check, job);
  if (!job.adapter->OfTargets()) CheckVirtualTokens(spec, check, job);
}

}  // namespace plimsoll
