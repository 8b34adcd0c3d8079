// The parallelism section: degrees, what each framework can combine, and what
// they must divide.
#include <string>
#include <vector>

#include "estimator/base/units.h"
#include "estimator/job/job_abilities.h"
#include "estimator/job/pipeline_layout.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
namespace {

// The method is the framework's where nobody says.
void CheckContext(const ParallelismSpec& spec, Check& check, Job& job) {
  constexpr KnownField size("parallelism.context_parallel_size");
  constexpr KnownField method("parallelism.context_parallel_method");
  const auto& asked = spec.context_parallel_method;
  job.context_parallel_size = check.Number(size, spec.context_parallel_size, 1);
  job.context_parallel_method = job.profile->context_parallel_method;
  if (asked.has_value()) {
    const auto known = check.Meaning(method, *asked, kContextParallelMethods);
    if (!known.has_value()) return;
    job.context_parallel_method = *known;
  }
  if (job.context_parallel_size == 1 && !asked.has_value()) return;
  const Ability ability = AbilityOf(job.context_parallel_method);
  if (asked.has_value()) {
    CheckAbility(ability, method, *asked, check, job);
  } else if (CheckAbility(ability, size, job.context_parallel_size, check, job)) {
    check.Assume(method, NameOf(job.context_parallel_method, kContextParallelMethods),
                 "the framework's default");
  }
}

void CheckDegrees(const ParallelismSpec& spec, Check& check, Job& job) {
  job.tensor_parallel_size =
      check.Number("parallelism.tensor_parallel_size", spec.tensor_parallel_size, 1);
  job.pipeline_parallel_size =
      check.Number("parallelism.pipeline_parallel_size", spec.pipeline_parallel_size, 1);
  CheckContext(spec, check, job);
  if (job.tensor_parallel_size > 1) {
    CheckAbility(Ability::kTensorParallel, "parallelism.tensor_parallel_size",
                 job.tensor_parallel_size, check, job);
  }
  if (job.pipeline_parallel_size > 1) {
    CheckAbility(Ability::kPipelineParallel, "parallelism.pipeline_parallel_size",
                 job.pipeline_parallel_size, check, job);
  }
}

// Says why gpus_per_node does not move the time of a job whose nodes are joined by links.
void AssumeLinks(const ClusterSpec& spec, Check& check, const Job& job) {
  const bool joined = job.gpu_count > job.gpus_per_node && job.LinkedGpuCount() > job.gpus_per_node;
  if (!joined || spec.interconnect_bytes_per_second.has_value()) return;
  check.Assume("cluster.interconnect_bytes_per_second", job.interconnect_bytes_per_second,
               "the GPU's, whose links join those of several nodes, as an NVL72's 72");
}

// gpu_count = data x tensor x context x pipeline parallel size: all but one give that one.
void CheckGpuCount(const JobSpec& spec, Check& check, Job& job) {
  const int64_t model_ranks = Multiply(
      Multiply(job.tensor_parallel_size, job.context_parallel_size), job.pipeline_parallel_size);
  const auto& data = spec.parallelism.data_parallel_size;
  const auto& count = spec.cluster.gpu_count;
  const int64_t gpus = count.value_or(Multiply(data.value_or(1), model_ranks));
  job.data_parallel_size = check.Number("parallelism.data_parallel_size", data,
                                        gpus > model_ranks ? gpus / model_ranks : 1);
  job.gpu_count = Multiply(job.data_parallel_size, model_ranks);
  const auto is_count = [](const std::optional<int64_t>& n) {
    return !n.has_value() || (*n >= 1 && *n <= kMostJobGpus);
  };
  const bool in_range = is_count(count) && is_count(data);
  if (count.has_value() && in_range && *count != job.gpu_count) {
    check.Fail("cluster.gpu_count", *count,
               absl::StrCat("must be data x tensor x context x pipeline parallel size, ",
                            job.data_parallel_size, " x ", job.tensor_parallel_size, " x ",
                            job.context_parallel_size, " x ", job.pipeline_parallel_size),
               ViolationCode::kConflict,
               {"parallelism.data_parallel_size", "parallelism.tensor_parallel_size",
                "parallelism.context_parallel_size", "parallelism.pipeline_parallel_size"});
  } else if (in_range && job.gpu_count > kMostJobGpus) {
    check.Fail("parallelism", job.gpu_count,
               absl::StrCat("must use at most ", kMostJobGpus, " GPUs"), ViolationCode::kTooLarge);
  }
  if (job.data_parallel_size > 1) {
    CheckAbility(Ability::kDataParallel, "parallelism.data_parallel_size", job.data_parallel_size,
                 check, job);
  }
  if (!data.has_value()) {
    check.Assume("parallelism.data_parallel_size", job.data_parallel_size,
                 "gpu_count / (tensor x context x pipeline parallel size)");
  }
  if (!count.has_value()) {
    check.Assume("cluster.gpu_count", job.gpu_count, "the product of the parallel sizes");
  }
  SettleGpusPerNode(check, job);
  AssumeLinks(spec.cluster, check, job);
}

// The stages that a framework has, as "0, 1 or 2".
std::string ZeroStages(const Capabilities& capabilities) {
  std::vector<int64_t> stages;
  for (int64_t stage = 0; stage <= KnownField("parallelism.zero_stage")->most; ++stage) {
    if (capabilities.Has(AbilityOfZero(stage))) stages.push_back(stage);
  }
  std::string text;
  for (size_t i = 0; i < stages.size(); ++i) {
    const bool last = i + 1 == stages.size();
    absl::StrAppend(&text, i == 0 ? "" : (last ? " or " : ", "), stages[i]);
  }
  return text;
}

void CheckZeroStage(const std::optional<int64_t>& stage, Check& check, Job& job) {
  constexpr KnownField field("parallelism.zero_stage");
  const int64_t otherwise = job.profile->sharding == Sharding::kUnits ? 3 : 0;
  job.zero_stage = check.Number(field, stage, otherwise);
  if (!stage.has_value()) check.Assume(field, job.zero_stage, "the framework's default");
  if (job.zero_stage < 2) job.megatron_fsdp = nullptr;
  const Ability ability = AbilityOfZero(job.zero_stage);
  if (job.capabilities.Of(ability) != Support::kLacks) {
    CheckAbility(ability, field, job.zero_stage, check, job);
    return;
  }
  const CapabilityRow* const row = job.capabilities.RowOf(ability);
  const std::string why = row == nullptr ? "" : absl::StrCat(": ", row->why);
  check.Fail(
      field, job.zero_stage,
      absl::StrCat("must be ", ZeroStages(job.capabilities), " with ", job.profile->name, why),
      ViolationCode::kNotSupported, {"runtime.framework"});
}

void CheckShardGroup(const std::optional<int64_t>& size, Check& check, Job& job) {
  constexpr KnownField field("parallelism.shard_group_size");
  const int64_t replicas = job.ReplicaCount();
  job.shard_group_size = check.Number(field, size, replicas);
  if (replicas % job.shard_group_size != 0) {
    check.Fail(field, job.shard_group_size,
               absl::StrCat("must divide data x context parallel size ", replicas),
               ViolationCode::kConflict,
               {"parallelism.data_parallel_size", "parallelism.context_parallel_size"});
  } else if (job.shard_group_size % job.context_parallel_size != 0) {
    check.Fail(
        field, job.shard_group_size,
        absl::StrCat("must be a multiple of context_parallel_size ", job.context_parallel_size),
        ViolationCode::kConflict, {"parallelism.context_parallel_size"});
  }
  if (!size.has_value() || job.shard_group_size == replicas) return;
  if (!CheckAbility(Ability::kShardGroups, field, *size, check, job)) return;
  if (job.zero_stage > 0) return;
  check.Fail(field, *size, "needs a zero_stage above 0: nothing is sharded",
             ViolationCode::kConflict, {"parallelism.zero_stage"});
}

void CheckSequenceParallel(const JobSpec& spec, Check& check, Job& job) {
  const absl::string_view field = "parallelism.sequence_parallel";
  const auto& asked = spec.parallelism.sequence_parallel;
  const bool splits = job.tensor_parallel_size > 1;
  job.sequence_parallel = asked.value_or(splits && job.profile->sequence_parallel_default);
  if (job.sequence_parallel && !splits) {
    check.Fail(field, "true", "needs tensor_parallel_size above 1", ViolationCode::kConflict,
               {"parallelism.tensor_parallel_size"});
  } else if (asked.value_or(false)) {
    CheckAbility(Ability::kSequenceParallel, field, "true", check, job);
  }
  if (!asked.has_value() && splits) {
    check.Assume(field, job.sequence_parallel ? "true" : "false", "the framework's default");
  }
}

void CheckMicroBatchGroup(const std::optional<int64_t>& size, bool interleaved, Check& check,
                          Job& job) {
  constexpr KnownField field("parallelism.micro_batch_group_size");
  const int64_t stages = job.pipeline_parallel_size;
  job.micro_batch_group_size = check.Number(field, size, stages);
  if (!size.has_value()) return;
  if (!interleaved) {
    check.Fail(field, *size, "needs pipeline_schedule interleaved-1f1b", ViolationCode::kConflict,
               {"parallelism.pipeline_schedule"});
  } else if (job.micro_batch_group_size < stages) {
    check.Fail(field, *size, absl::StrCat("must be at least pipeline_parallel_size ", stages),
               ViolationCode::kConflict, {"parallelism.pipeline_parallel_size"});
  } else if (*size != stages) {
    CheckAbility(Ability::kMicroBatchGroups, field, *size, check, job);
  }
}

void ReadSchedule(const std::string& name, Check& check, Job& job) {
  const absl::string_view field = "parallelism.pipeline_schedule";
  const auto schedule = check.Meaning(field, name, kPipelineSchedules);
  job.pipeline_schedule = schedule.value_or(PipelineSchedule::k1F1B);
  if (job.pipeline_parallel_size == 1) {
    check.Fail(field, name, "needs pipeline_parallel_size above 1", ViolationCode::kConflict,
               {"parallelism.pipeline_parallel_size"});
  } else if (schedule.has_value() && job.capabilities.Has(Ability::kPipelineParallel)) {
    CheckAbility(AbilityOf(*schedule), field, name, check, job);
  }
}

void CheckSchedule(const ParallelismSpec& spec, Check& check, Job& job) {
  if (spec.pipeline_schedule.has_value()) {
    ReadSchedule(*spec.pipeline_schedule, check, job);
  } else if (job.pipeline_parallel_size > 1) {
    check.Assume("parallelism.pipeline_schedule", "1f1b", "the usual schedule");
  }
  const bool interleaved = job.pipeline_schedule == PipelineSchedule::kInterleaved1F1B;
  job.virtual_pipeline_size = check.Number("parallelism.virtual_pipeline_size",
                                           spec.virtual_pipeline_size, interleaved ? 2 : 1);
  if (spec.virtual_pipeline_size.has_value() && !interleaved) {
    check.Fail("parallelism.virtual_pipeline_size", *spec.virtual_pipeline_size,
               "needs pipeline_schedule interleaved-1f1b", ViolationCode::kConflict,
               {"parallelism.pipeline_schedule"});
  }
  if (interleaved && !spec.virtual_pipeline_size.has_value()) {
    check.Assume("parallelism.virtual_pipeline_size", 2, "the smallest that interleaves");
  }
  CheckMicroBatchGroup(spec.micro_batch_group_size, interleaved, check, job);
}

}  // namespace

void CheckParallelism(const JobSpec& spec, Check& check, Job& job) {
  CheckDegrees(spec.parallelism, check, job);
  CheckGpuCount(spec, check, job);
  CheckZeroStage(spec.parallelism.zero_stage, check, job);
  CheckShardGroup(spec.parallelism.shard_group_size, check, job);
  CheckSequenceParallel(spec, check, job);
  CheckSchedule(spec.parallelism, check, job);
}

namespace {

// `whole` is a field's, or the model's where it has no path.
void CheckDivides(absl::string_view field, int64_t divisor, absl::string_view path, int64_t whole,
                  Check& check) {
  if (whole % divisor == 0) return;
  const absl::string_view name = path.substr(path.rfind('.') + 1);
  check.Fail(field, divisor, absl::StrCat("must divide ", name, " ", whole),
             ViolationCode::kConflict, {path});
}

void CheckSplits(const TrainingSpec& spec, Check& check, const Job& job) {
  const absl::string_view field = "parallelism.tensor_parallel_size";
  const Transformer& model = *job.model;
  CheckDivides(field, job.tensor_parallel_size, "model.transformer.head_count", model.head_count,
               check);
  if (model.kv_head_count != model.head_count) {
    CheckDivides(field, job.tensor_parallel_size, "model.transformer.kv_head_count",
                 model.kv_head_count, check);
  }
  CheckDivides(field, job.tensor_parallel_size, "model.transformer.ffn_size", model.ffn_size,
               check);
  if (job.sequence_parallel && spec.sequence_length.has_value()) {
    CheckDivides(field, job.tensor_parallel_size, "training.sequence_length",
                 job.LocalSequenceLength(), check);
  }
}

// In attention each rank has some of the heads. Keys and values that are fewer than ranks are
// copied, where the framework does so.
// Source: deepspeed runtime/sequence_parallel/ulysses_sp.py, UlyssesSPAttentionHF.__init__,
// register_with_transformers; verl models/transformers/monkey_patch.py; Transformer Engine
// context_parallel.py, AttnFuncWithCPAndQKVOA2A.forward.
void CheckExchangedHeads(Check& check, const Job& job) {
  const int64_t ranks = job.context_parallel_size;
  const absl::string_view field = "parallelism.context_parallel_size";
  const int64_t heads = job.model->head_count / job.tensor_parallel_size;
  const int64_t kv_heads =
      std::max<int64_t>(job.model->kv_head_count / job.tensor_parallel_size, 1);
  const bool copies = job.profile->copies_exchanged_heads;
  if (heads % ranks != 0) {
    check.Fail(field, ranks,
               absl::StrCat("must divide the heads of each tensor-parallel rank, ", heads),
               ViolationCode::kConflict, {"model", "parallelism.tensor_parallel_size"});
  } else if (kv_heads % ranks != 0 && (!copies || ranks % kv_heads != 0)) {
    check.Fail(field, ranks,
               absl::StrCat("must divide the key and value heads of each tensor-parallel rank, ",
                            kv_heads, copies ? ", or be a multiple of them" : ""),
               ViolationCode::kConflict, {"model", "parallelism.tensor_parallel_size"});
  }
}

// Keys of other ranks are masked by the order of parts alone: all that come before, and of torch's
// only these.
// Source: torch distributed/tensor/experimental/_context_parallel/_attention.py,
// _templated_ring_attention (is_causal); accelerate big_modeling.py,
// _attach_context_parallel_hooks.
void CheckSeesAllBefore(Check& check, const Job& job) {
  const absl::string_view method = NameOf(job.context_parallel_method, kContextParallelMethods);
  const absl::string_view field = "parallelism.context_parallel_method";
  if (job.model->sliding_window > 0) {
    check.Fail(field, method, "must be another for a model whose layers see windows",
               ViolationCode::kNotSupported, {"model"});
  }
  if (job.profile->merges_contexts && !job.model->causal) {
    check.Fail(field, method, "must be another for a model whose tokens see those behind them",
               ViolationCode::kNotSupported, {"model"});
  }
}

// Each rank has a part of the sequence.
void CheckContextSplits(const TrainingSpec& spec, Check& check, const Job& job) {
  const int64_t ranks = job.context_parallel_size;
  if (ranks == 1) return;
  const absl::string_view field = "parallelism.context_parallel_size";
  const bool exchanges = job.context_parallel_method == ContextParallelMethod::kUlysses;
  const bool merges = job.profile->merges_contexts && !exchanges;
  const int64_t pieces = job.profile->balances_contexts || merges ? Multiply(2, ranks) : ranks;
  if (spec.sequence_length.has_value() && job.sequence_length % pieces != 0) {
    check.Fail(field, ranks,
               absl::StrCat(pieces == ranks ? "" : "twice it ", "must divide sequence_length ",
                            job.sequence_length),
               ViolationCode::kConflict, {"training.sequence_length"});
  }
  if (exchanges) {
    CheckExchangedHeads(check, job);
  } else if (merges || job.context_parallel_method == ContextParallelMethod::kRing) {
    CheckSeesAllBefore(check, job);
  }
  if (job.attention == AttentionKernel::kEager) {
    check.Fail("training.attention", "eager",
               "must be another with context_parallel_size above 1: it needs a mask of all tokens",
               ViolationCode::kNotSupported, {field});
  } else if (job.profile->balances_contexts && !job.transformer_engine) {
    check.Fail("runtime.transformer_implementation", "local",
               "must be transformer-engine with context_parallel_size above 1",
               ViolationCode::kNotSupported, {field});
  }
}

void CheckLayout(const ParallelismSpec& spec, Check& check, Job& job) {
  const int64_t layers = job.model->layer_count;
  const int64_t stages = job.pipeline_parallel_size;
  if (!spec.pipeline_layout.empty()) {
    const absl::string_view field = "parallelism.pipeline_layout";
    int64_t sum = 0;
    bool in_range = true;
    for (int64_t count : spec.pipeline_layout) {
      in_range = in_range && count >= 0 && count <= layers;
      if (in_range) sum = Add(sum, count);
    }
    const auto length = static_cast<int64_t>(spec.pipeline_layout.size());
    const int64_t chunks = Multiply(stages, job.virtual_pipeline_size);
    if (length != stages && length != chunks) {
      check.Fail(field, absl::StrCat(length, " entries"),
                 absl::StrCat("must have one entry for each of pipeline_parallel_size ", stages,
                              " stages, or of ", chunks, " virtual stages"),
                 ViolationCode::kConflict,
                 {"parallelism.pipeline_parallel_size", "parallelism.virtual_pipeline_size"});
    } else if (!in_range || sum != layers) {
      check.Fail(field, in_range ? absl::StrCat("sum ", sum) : "an entry out of range",
                 absl::StrCat("must be counts that add up to the model's ", layers, " layers"),
                 ViolationCode::kConflict, {"model"});
    } else {
      job.pipeline_layout = spec.pipeline_layout;
    }
    return;
  }
  const int64_t chunks = Multiply(stages, job.virtual_pipeline_size);
  if (chunks > layers) {
    check.Fail("parallelism.pipeline_parallel_size", stages,
               absl::StrCat("needs at least ", chunks, " layers, the model has ", layers),
               ViolationCode::kConflict, {"model", "parallelism.virtual_pipeline_size"});
    return;
  }
  if (job.profile->stages == StageRule::kEqual || job.virtual_pipeline_size > 1) {
    if (layers % chunks != 0) {
      check.Fail("parallelism.pipeline_parallel_size", stages,
                 absl::StrCat("stages x virtual stages ", chunks, " must divide the model's ",
                              layers, " layers, or pipeline_layout be set"),
                 ViolationCode::kConflict,
                 {"model", "parallelism.virtual_pipeline_size", "parallelism.pipeline_layout"});
      return;
    }
  }
  job.pipeline_layout = DealLayers(*job.model, stages, job.profile->stages);
  if (stages > 1) {
    check.Assume("parallelism.pipeline_layout", job.pipeline_layout[0],
                 "layers of the first stage, by the framework's rule");
  }
}

void CheckRecomputeAgainstLayers(const RecomputeSpec& spec, Check& check, const Job& job) {
  if (spec.interval.has_value() && *spec.interval > job.model->layer_count) {
    check.Fail("training.recompute.interval", *spec.interval,
               absl::StrCat("must be at most the model's ", job.model->layer_count, " layers"),
               ViolationCode::kConflict, {"model"});
  }
  const LayerSet& routed = job.model->experts.layers;
  const bool some = job.model->experts.Any() && !routed.HasAllOf(job.model->layer_count);
  if (some && job.profile->dispatches_experts && job.recompute_unit_layer_count > 1) {
    check.Fail("training.recompute.unit_layer_count", job.recompute_unit_layer_count,
               "is not modelled where some layers have experts and some have none",
               ViolationCode::kNotModelled, {"model"});
    return;
  }
  for (int64_t layers : job.pipeline_layout) {
    if (layers % job.recompute_unit_layer_count == 0) continue;
    check.Fail("training.recompute.unit_layer_count", job.recompute_unit_layer_count,
               absl::StrCat("must divide the layers of each stage, ", layers, " on one"),
               ViolationCode::kConflict, {"model", "parallelism.pipeline_layout"});
    return;
  }
}

void CheckPositions(Check& check, const Job& job) {
  const Transformer& model = *job.model;
  if (model.position_count > 0 && job.sequence_length > model.position_count) {
    check.Fail(
        "training.sequence_length", job.sequence_length,
        absl::StrCat("must be at most the model's ", model.position_count, " learned positions"),
        ViolationCode::kConflict, {"model"});
  }
}

// Layers whose windows are masked and others are blocks of their own, by their place in a network.
void CheckWindows(const TrainingSpec& spec, Check& check, const Job& job) {
  if (!job.masks_windows) return;
  const std::string asked = spec.attention.value_or("auto");
  const Transformer& model = *job.model;
  const auto fail = [&](absl::string_view rule, absl::string_view related) {
    check.Fail("training.attention", asked,
               absl::StrCat("masks the windows that layers see, which is not modelled ", rule,
                            "; flash needs no mask"),
               ViolationCode::kNotModelled, {related});
  };
  if (job.context_parallel_size > 1) {
    fail("where ranks split the sequence", "parallelism.context_parallel_size");
  }
  if (model.windowed.HasAllOf(model.layer_count)) return;
  if (job.pipeline_parallel_size > 1) {
    fail("on a pipeline where some layers have none", "parallelism.pipeline_parallel_size");
  }
  if (job.recompute_interval > 1 || job.recompute_unit_layer_count > 1) {
    fail("where only some layers are run again", "training.recompute");
  }
}

}  // namespace

void CheckAgainstModel(const JobSpec& spec, Check& check, Job& job) {
  CheckSplits(spec.training, check, job);
  CheckContextSplits(spec.training, check, job);
  CheckLayout(spec.parallelism, check, job);
  CheckRecomputeAgainstLayers(spec.training.recompute, check, job);
  CheckPositions(check, job);
  CheckWindows(spec.training, check, job);
  const int64_t divisor =
      check.Number("runtime.vocab_size_divisor", spec.runtime.vocab_size_divisor,
                   job.profile->vocab_size_divisor);
  job.padded_vocab_size =
      RoundUp(job.model->vocab_size, Multiply(divisor, job.tensor_parallel_size));
  const bool said = spec.runtime.vocab_size_divisor.has_value();
  if (!said && job.padded_vocab_size != job.model->vocab_size) {
    check.Assume("runtime.vocab_size_divisor", divisor,
                 "the vocabulary is padded to a multiple of it x tensor_parallel_size");
  }
}

}  // namespace plimsoll
