#include "estimator/search/knobs.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace plimsoll {
namespace {

std::string Number(const Lists&, int32_t value) { return absl::StrCat(value); }

void SetGpu(const Lists& lists, int32_t value, JobSpec& job) {
  if (!lists.gpus.empty()) job.cluster.gpu = lists.gpus[static_cast<size_t>(value)];
}
std::string GpuText(const Lists& lists, int32_t value) {
  return lists.gpus[static_cast<size_t>(value)];
}

void SetGpuCount(const Lists&, int32_t value, JobSpec& job) {
  job.cluster.gpu_count = value;
  job.parallelism.data_parallel_size.reset();  // follows
}

void SetTensorParallel(const Lists&, int32_t value, JobSpec& job) {
  job.parallelism.tensor_parallel_size = value;
}

void SetSequenceParallel(const Lists&, int32_t value, JobSpec& job) {
  job.parallelism.sequence_parallel.reset();
  if (job.parallelism.tensor_parallel_size.value_or(1) > 1) {
    job.parallelism.sequence_parallel = value == 1;
  }
}
std::string BoolText(const Lists&, int32_t value) { return value == 1 ? "true" : "false"; }

// A layout that was asked for stands as long as its stages do.
void SetPipelineParallel(const Lists&, int32_t value, JobSpec& job) {
  ParallelismSpec& parallelism = job.parallelism;
  if (parallelism.pipeline_parallel_size.value_or(1) != value) parallelism.pipeline_layout.clear();
  parallelism.pipeline_parallel_size = value;
}

void SetVirtualPipeline(const Lists&, int32_t value, JobSpec& job) {
  ParallelismSpec& parallelism = job.parallelism;
  const bool staged = parallelism.pipeline_parallel_size.value_or(1) > 1;
  if (value > 1) {
    if (parallelism.virtual_pipeline_size.value_or(1) != value) {
      parallelism.pipeline_layout.clear();
    }
    parallelism.pipeline_schedule = "interleaved-1f1b";
    parallelism.virtual_pipeline_size = value;
    return;
  }
  if (parallelism.virtual_pipeline_size.has_value()) parallelism.pipeline_layout.clear();
  parallelism.virtual_pipeline_size.reset();
  if (!staged) {
    parallelism.pipeline_schedule.reset();
  } else if (parallelism.pipeline_schedule.value_or("interleaved-1f1b") == "interleaved-1f1b") {
    parallelism.pipeline_schedule = "1f1b";
  }
}

void SetZeroStage(const Lists&, int32_t value, JobSpec& job) { job.parallelism.zero_stage = value; }

void SetShardGroup(const Lists&, int32_t value, JobSpec& job) {
  job.parallelism.shard_group_size.reset();
  if (value > 0) job.parallelism.shard_group_size = value;
}
std::string ShardGroupText(const Lists&, int32_t value) {
  return value == 0 ? "all data-parallel ranks" : absl::StrCat(value);
}

void SetMicroBatch(const Lists&, int32_t value, JobSpec& job) {
  job.training.micro_batch_size = value;
}

void SetRecompute(const Lists& lists, int32_t value, JobSpec& job) {
  job.training.recompute = lists.recomputes[static_cast<size_t>(value)];
}
std::string RecomputeText(const Lists& lists, int32_t value) {
  const RecomputeSpec& recompute = lists.recomputes[static_cast<size_t>(value)];
  std::string text = recompute.mode.value_or("none");
  if (!recompute.modules.empty()) {
    absl::StrAppend(&text, " (", absl::StrJoin(recompute.modules, ", "), ")");
  }
  if (recompute.interval.has_value()) absl::StrAppend(&text, " ", *recompute.interval);
  if (recompute.unit_layer_count.has_value()) {
    absl::StrAppend(&text, " by ", *recompute.unit_layer_count, " layers");
  }
  return text;
}

}  // namespace

const std::array<Knob, kKnobCount> kKnobs = {{
    {KnobId::kGpu, "cluster.gpu", 256, SetGpu, GpuText},
    {KnobId::kGpuCount, "cluster.gpu_count", 128, SetGpuCount, Number},
    {KnobId::kTensorParallel, "parallelism.tensor_parallel_size", 16, SetTensorParallel, Number},
    {KnobId::kSequenceParallel, "parallelism.sequence_parallel", 8, SetSequenceParallel, BoolText},
    {KnobId::kPipelineParallel, "parallelism.pipeline_parallel_size", 32, SetPipelineParallel,
     Number},
    {KnobId::kVirtualPipeline, "parallelism.virtual_pipeline_size", 16, SetVirtualPipeline, Number},
    {KnobId::kZeroStage, "parallelism.zero_stage", 1, SetZeroStage, Number},
    {KnobId::kShardGroup, "parallelism.shard_group_size", 1, SetShardGroup, ShardGroupText},
    {KnobId::kMicroBatch, "training.micro_batch_size", 4, SetMicroBatch, Number},
    {KnobId::kRecompute, "training.recompute", 2, SetRecompute, RecomputeText},
}};

const std::vector<absl::string_view>& FixedFields() {
  static const auto* const fields = new std::vector<absl::string_view>{
      "model",
      "training.sequence_length",
      "training.global_batch_size",
      "training.precision",
      "training.optimizer",
      "training.gradient_clipping",
      "training.attention",
      "training.loss",
      "runtime",
      "cluster.gpu_memory_bytes",
      "cluster.gpus_per_node",
      "cluster.reserved_for_others_bytes",
      "cluster.interconnect_bytes_per_second",
      "cluster.network_bytes_per_second",
  };
  return *fields;
}

void Set(const Lists& lists, const Choice& choice, JobSpec& job) {
  for (const Knob& knob : kKnobs) knob.set(lists, choice[knob.id], job);
}

int64_t ChangeCost(const Choice& from, const Choice& to) {
  int64_t cost = 0;
  for (const Knob& knob : kKnobs) {
    if (from[knob.id] != to[knob.id]) cost += knob.change_cost;
  }
  return cost;
}

}  // namespace plimsoll
