// PEFT's methods beside matrices of a rank: vectors that scale, and virtual tokens.
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "estimator/job/beside.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
namespace {

constexpr absl::string_view kMethod = "training.adapter.method";
constexpr KnownField kCount("training.adapter.virtual_token_count");

// What neither was held against: preferences, and layers of other kinds.
void RefuseUnheld(const Beside& beside, const JobSpec& spec, const Job& job) {
  const Transformer& model = *job.model;
  beside.Refuse(job.preference.has_value(), "training.preference.method",
                spec.training.preference.method.value_or(""));
  beside.Refuse(job.offload_activations, "runtime.offload_activations", "true");
  beside.Refuse(model.head != Head::kLanguageModel, "model", NameOf(model.head, kHeads));
  beside.Refuse(model.experts.Any(), "model", "experts");
  beside.Refuse(model.latent.Any(), "model", "latent attention");
  beside.Refuse(model.linear.Any(), "model", "linear attention");
  beside.Refuse(model.state_space.Any(), "model", "state-space layers");
}

// A prefix is keys and values that a cache puts before a layer's own, behind a mask of its own.
// Source: peft peft_model.py, PeftModel._setup_prompt_encoder (gradient_checkpointing), get_prompt;
// transformers modeling_layers.py, GradientCheckpointingLayer.__call__ (past_key_values).
void CheckPrefix(const Beside& prefix, const JobSpec& spec, Check& check, const Job& job) {
  const Transformer& model = *job.model;
  if (job.recompute != RecomputeMode::kNone) {
    check.Fail("training.recompute.mode", spec.training.recompute.mode.value_or("full"),
               "must be none with prefix-tuning: a layer that runs again has no cache",
               ViolationCode::kConflict, {kMethod});
  }
  prefix.Refuse(job.attention == AttentionKernel::kEager, "training.attention", "eager");
  prefix.Refuse(model.sliding_window > 0 && model.windowed.CountOf(model.layer_count) > 0, "model",
                "windows, whose cache is another");
  prefix.Refuse(job.quantization.has_value(), "training.quantization.format",
                spec.training.quantization.format.value_or("nf4"));
}

}  // namespace

// Source: peft tuners/ia3/config.py, IA3Config (feedforward_modules); utils/constants.py,
// TRANSFORMERS_MODELS_TO_IA3_FEEDFORWARD_MODULES_MAPPING.
void ReadScaling(const AdapterSpec& spec, Check& check, const Job& job, Adapter& adapter) {
  const absl::string_view field = "training.adapter.feedforward_modules";
  if (spec.feedforward_modules.empty()) {
    adapter.scaled_inputs = adapter.targets & BitOf(AdapterTarget::kDown);
    if (adapter.scaled_inputs != 0) check.Assume(field, "down_proj", "PEFT's default");
    return;
  }
  if (!check.FewEnough(field, spec.feedforward_modules.size(), "names", kMostNames)) return;
  for (const std::string& name : spec.feedforward_modules) {
    adapter.scaled_inputs |= check.Meaning(field, name, kAdapterTargets).value_or(0);
  }
  if (job.model == nullptr || (adapter.scaled_inputs & ~adapter.targets) == 0) return;
  check.Fail(field, absl::StrJoin(spec.feedforward_modules, ", "),
             "must be some of the target modules", ViolationCode::kConflict,
             {"training.adapter.target_modules"});
}

// Source: peft tuners/prompt_tuning/config.py, p_tuning/config.py, prefix_tuning/config.py;
// utils/other.py, _prepare_prompt_learning_config (token_dim, encoder_hidden_size).
void ReadVirtualTokens(const AdapterSpec& spec, Check& check, Job& job) {
  Adapter& adapter = *job.adapter;
  if (!spec.virtual_token_count.has_value()) {
    check.Fail(kCount, "unset", "must be set with virtual tokens", ViolationCode::kMissing,
               {kMethod});
  }
  adapter.virtual_token_count = check.Number(kCount, spec.virtual_token_count, 1);
  job.sequence_length = Add(job.sequence_length, adapter.PromptLength());
  const bool projects = spec.prefix_projection.value_or(false);
  constexpr KnownField field("training.adapter.encoder_hidden_size");
  if (adapter.OfPrefix() && !projects && spec.encoder_hidden_size.has_value()) {
    check.Fail(field, *spec.encoder_hidden_size, "needs prefix_projection: true",
               ViolationCode::kConflict, {"training.adapter.prefix_projection"});
  }
  const bool encodes = adapter.method == AdapterMethod::kPTuning || projects;
  if (!encodes || job.model == nullptr) return;
  const int64_t own = adapter.OfPrefix() ? Multiply(job.model->kv_head_count, job.model->head_size)
                                         : job.model->hidden_size;
  adapter.encoder_hidden_size = check.Number(field, spec.encoder_hidden_size, own);
  if (!spec.encoder_hidden_size.has_value()) check.Assume(field, own, "PEFT's default");
}

// Without autocast PEFT casts what a quantized product reads to fp32, and nothing casts back what
// was scaled: the layers behind are wider. The same where the vector is.
// Source: peft tuners/ia3/bnb.py, Linear4bit.forward (requires_conversion, expected_dtype).
void CheckScaling(const JobSpec& spec, Check& check, const Job& job) {
  const Beside vectors("ia3", kMethod, check);
  RefuseUnheld(vectors, spec, job);
  if (!job.quantization.has_value()) return;
  const std::string format = spec.training.quantization.format.value_or("nf4");
  const bool sharded = job.profile->sharding != Sharding::kBuckets;
  vectors.Refuse(sharded, "training.quantization.format",
                 absl::StrCat(format, " under ", job.profile->name));
  const Precision& precision = job.precision;
  if (precision.autocast && job.adapter->dtype == precision.Product()) return;
  check.Fail("training.quantization.format", format,
             "is modelled with ia3 under autocast, and vectors in what that casts to: else PEFT "
             "leaves in fp32 what was scaled",
             ViolationCode::kNotModelled,
             {"training.precision.preset", "training.adapter.adapter_dtype"});
}

// PEFT puts a prompt before what the embedding of tokens gives; classes that add positions to it,
// or norm or drop it, do so behind that.
void CheckVirtualTokens(const JobSpec& spec, Check& check, const Job& job) {
  const Transformer& model = *job.model;
  const Beside tokens("virtual tokens", kMethod, check);
  RefuseUnheld(tokens, spec, job);
  tokens.Refuse(model.position_count > 0, "model", "learned positions");
  tokens.Refuse(model.token_type_count > 0, "model", "token types");
  tokens.Refuse(model.embedding_norm, "model", "a norm of embeddings");
  tokens.Refuse(model.embedding_dropout > 0, "model", "dropout of embeddings");
  if (job.adapter->OfPrefix()) {
    CheckPrefix(Beside("prefix-tuning", kMethod, check), spec, check, job);
  }
}

}  // namespace plimsoll
