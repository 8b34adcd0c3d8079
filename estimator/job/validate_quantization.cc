// The quantization section, and what is modelled beside it.
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "estimator/base/version.h"
#include "estimator/job/beside.h"
#include "estimator/job/job_abilities.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
namespace {

constexpr char kFormat[] = "training.quantization.format";

DType DTypeOf(QuantizationFormat format) {
  switch (format) {
    case QuantizationFormat::kNf4:
      return DType::kNf4;
    case QuantizationFormat::kFp4:
      return DType::kFp4;
    case QuantizationFormat::kInt8:
      return DType::kInt8;
  }
  return DType::kNf4;
}

// Dettmers et al. 2023 (arXiv 2305.14314): adapters beside weights in nf4.
bool IsQlora(const Job& job) {
  return job.adapter.has_value() && job.adapter->method == AdapterMethod::kQlora;
}

// Source: torchao dtypes/nf4tensor.py, double_quantize_scalers, which is always run.
void ReadDouble(const QuantizationSpec& spec, Check& check, Job& job) {
  const absl::string_view field = "training.quantization.double_quantization";
  const bool always = job.profile->composed_dequantization;
  job.quantization->double_quantization = spec.double_quantization.value_or(always);
  if (!spec.double_quantization.has_value()) {
    check.Assume(field, always ? "true" : "false",
                 always ? "torchao has no other" : "bitsandbytes' default");
  } else if (always && !*spec.double_quantization) {
    check.Fail(field, "false", "must be true: torchao's scales are quantized too",
               ViolationCode::kConflict, {"runtime.trainer"});
  }
}

// What says how 4 bits are kept and multiplied says nothing of 8.
// Source: transformers, utils/quantization_config.py, BitsAndBytesConfig (bnb_4bit_...).
void RefuseOf4Bits(const QuantizationSpec& spec, Check& check) {
  constexpr absl::string_view kRule = "is of 4 bits: what is multiplied in int8 has neither";
  if (spec.double_quantization.value_or(false)) {
    check.Fail("training.quantization.double_quantization", "true", std::string(kRule),
               ViolationCode::kConflict, {kFormat});
  }
  if (spec.compute_dtype.has_value()) {
    check.Fail("training.quantization.compute_dtype", *spec.compute_dtype, std::string(kRule),
               ViolationCode::kConflict, {kFormat});
  }
}

// FSDP2 cannot shard bytes: accelerate leaves them out, which torch lets it from 2.7 on.
// Source: accelerate utils/fsdp_utils.py, fsdp2_prepare_model (incompatible_params4bit).
void CheckLeftOut(Check& check, const Job& job) {
  const Profile& profile = *job.profile;
  const bool shards_itself = profile.composed_dequantization;  // torchao's tensors
  if (!profile.ShardsEachParameter() || shards_itself) return;
  constexpr int kIgnoresParameters = 2007;  // torch 2.7
  if (!profile.accelerate) {
    const absl::string_view trainer = NameOf(profile.trainer, kTrainers);
    check.Fail("runtime.trainer", trainer.empty() ? "unset" : trainer,
               "is not modelled with quantized weights under fsdp2: hf-trainer and trl are, which "
               "leave these unsharded",
               ViolationCode::kNotModelled, {kFormat});
  }
  if (!IsBefore(job.torch_version, kIgnoresParameters)) return;
  check.Fail("runtime.versions.torch", VersionText(job.torch_version),
             "must be 2.7 or later: fsdp2 has to shard all parameters before, and cannot those of "
             "bytes",
             ViolationCode::kNotSupported, {kFormat, "runtime.framework"});
}

// Source: bitsandbytes/autograd/_functions.py, MatMul8bitLt.forward (ctx.tensors).
void WarnOfHeldInputs(Job& job) {
  const bool holds = job.quantization->format == DType::kInt8;
  if (!holds || job.recompute == RecomputeMode::kNone || job.profile->checkpoints_hold_output) {
    return;
  }
  job.warnings.push_back({"held-inputs", "job.training.quantization.format",
                          "int8's products hold what they read where layers run again, too: 4 "
                          "bits keep far less"});
}

}  // namespace

// Source of the defaults: transformers, utils/quantization_config.py, BitsAndBytesConfig.
void ReadQuantization(const QuantizationSpec& spec, Check& check, Job& job) {
  const bool others = spec.double_quantization.has_value() || spec.compute_dtype.has_value();
  if (!spec.format.has_value() && !others && !IsQlora(job)) return;
  Quantization& quantization = job.quantization.emplace();
  if (spec.format.has_value()) {
    const auto format = check.Meaning(kFormat, *spec.format, kQuantizationFormats);
    if (format.has_value()) {
      CheckAbility(AbilityOf(*format), kFormat, *spec.format, check, job);
      if (*format == QuantizationFormat::kInt8 && IsQlora(job)) {
        check.Fail(kFormat, *spec.format, "is not what qlora is: beside 8 bits adapters are lora",
                   ViolationCode::kConflict, {"training.adapter.method"});
      }
      quantization.format = DTypeOf(*format);
    }
  } else if (IsQlora(job)) {
    check.Assume(kFormat, "nf4", "what qlora is");
  } else {
    check.Fail(kFormat, "unset", "must be set with other fields of quantization",
               ViolationCode::kMissing);
  }
  if (quantization.format == DType::kInt8) return RefuseOf4Bits(spec, check);
  ReadDouble(spec, check, job);
  const absl::string_view compute = "training.quantization.compute_dtype";
  if (spec.compute_dtype.has_value()) {
    quantization.compute_dtype =
        check.Meaning(compute, *spec.compute_dtype, kAdapterDTypes).value_or(DType::kBf16);
  } else {
    check.Assume(compute, "bf16", "what recipes set");
  }
}

void CheckQuantization(const TrainingSpec& spec, Check& check, Job& job) {
  if (!job.adapter.has_value()) {
    check.Fail(kFormat, spec.quantization.format.value_or(""),
               "needs an adapter: quantized weights are not trained", ViolationCode::kConflict,
               {"training.adapter.method"});
    return;
  }
  WarnOfHeldInputs(job);
  // Source: transformers modeling_utils.py, from_pretrained (device_map); accelerate
  // utils/fsdp_utils.py, fsdp2_prepare_model (ignored_params).
  const Beside weights("quantized weights", kFormat, check);
  const bool engine = job.profile->sharding == Sharding::kEngine;
  weights.Refuse(engine && job.zero_stage == 3, "parallelism.zero_stage", job.zero_stage);
  const bool flat = job.profile->flat_units;
  weights.Refuse(!flat && job.offload_parameters, "runtime.offload_parameters", "true");
  weights.Refuse(job.offload_optimizer, "runtime.offload_optimizer", "true");
  CheckLeftOut(check, job);
  const Precision& precision = job.precision;
  if (job.quantization->format == DType::kInt8) {  // what was held against its code
    const Beside bytes("int8", kFormat, check);
    bytes.Refuse(precision.activation == DType::kFp16, "training.precision.preset",
                 spec.precision.preset.value_or(""));
    return bytes.Refuse(precision.parameter == DType::kFp32, "training.precision.parameter_dtype",
                        "fp32");
  }
  const DType compute = job.quantization->compute_dtype;
  const bool composed = job.profile->composed_dequantization;
  if (composed && (compute != DType::kBf16 || precision.parameter != DType::kBf16)) {
    check.Fail("training.quantization.compute_dtype", Name(compute),
               "is modelled with torchao's nf4 where it and weights are bf16",
               ViolationCode::kNotModelled, {"training.precision.preset"});
  }
  if (composed && job.model != nullptr && job.model->qkv_bias) {
    check.Fail("model", "biases of queries, keys and values",
               "are not modelled beside torchao's nf4", ViolationCode::kNotModelled,
               {"training.quantization.format"});
  }
  const bool widened = precision.parameter == DType::kFp32;
  if (widened && precision.activation != DType::kFp32) {
    check.Fail("training.precision.parameter_dtype", "fp32",
               "is modelled with quantized weights where the preset is fp32 or bf16-autocast",
               ViolationCode::kNotModelled, {"training.precision.preset"});
  }
  if (widened && precision.autocast && job.attention == AttentionKernel::kEager) {
    check.Fail("training.attention", "eager", "is not modelled with fp32 weights under autocast",
               ViolationCode::kNotModelled, {"training.precision.parameter_dtype"});
  }
}

}  // namespace plimsoll
