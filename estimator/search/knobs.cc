#include "estimator/search/knobs.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace plimsoll {
namespace {

std::string Number(const Menu& /*menu*/, int32_t value) { return absl::StrCat(value); }

// Its own GPU a job keeps as it wrote it, be it an alias.
void SetGpu(const Menu& menu, int32_t value, JobSpec& job) {
  job.cluster.gpu = value == 0 ? menu.own_gpu : menu.gpus[static_cast<size_t>(value)];
}
std::string GpuText(const Menu& menu, int32_t value) {
  return value == 0 ? menu.own_gpu : menu.gpus[static_cast<size_t>(value)];
}

void SetGpuCount(const Menu& /*menu*/, int32_t value, JobSpec& job) {
  job.cluster.gpu_count = value;
  job.parallelism.data_parallel_size.reset();  // follows
}

void SetTensorParallel(const Menu& /*menu*/, int32_t value, JobSpec& job) {
  job.parallelism.tensor_parallel_size = value;
}

void SetSequenceParallel(const Menu& /*menu*/, int32_t value, JobSpec& job) {
  job.parallelism.sequence_parallel.reset();
  if (job.parallelism.tensor_parallel_size.value_or(1) > 1) {
    job.parallelism.sequence_parallel = value == 1;
  }
}
std::string BoolText(const Menu& /*menu*/, int32_t value) { return value == 1 ? "true" : "false"; }

void SetContextParallel(const Menu& /*menu*/, int32_t value, JobSpec& job) {
  job.parallelism.context_parallel_size = value;
}

// A layout, or a group of micro-batches, that was asked for stands as long as its stages do.
void ForgetStages(ParallelismSpec& parallelism) {
  parallelism.pipeline_layout.clear();
  parallelism.micro_batch_group_size.reset();
}

void SetPipelineParallel(const Menu& /*menu*/, int32_t value, JobSpec& job) {
  ParallelismSpec& parallelism = job.parallelism;
  if (parallelism.pipeline_parallel_size.value_or(1) != value) ForgetStages(parallelism);
  parallelism.pipeline_parallel_size = value;
}

// Stages that do not divide the layers need a layout.
void DealLayersOf(const Menu& menu, ParallelismSpec& parallelism) {
  const int64_t chunks = parallelism.pipeline_parallel_size.value_or(1) *
                         parallelism.virtual_pipeline_size.value_or(1);
  const bool must = menu.even_stages || parallelism.virtual_pipeline_size.has_value();
  if (!must || menu.layer_count % chunks == 0 || !parallelism.pipeline_layout.empty()) return;
  parallelism.pipeline_layout = DealWithEdges(menu.layer_count, chunks);
}

void SetVirtualPipeline(const Menu& menu, int32_t value, JobSpec& job) {
  ParallelismSpec& parallelism = job.parallelism;
  const bool staged = parallelism.pipeline_parallel_size.value_or(1) > 1;
  if (parallelism.virtual_pipeline_size.value_or(1) != value) ForgetStages(parallelism);
  parallelism.virtual_pipeline_size.reset();
  if (value > 1) {
    parallelism.pipeline_schedule = "interleaved-1f1b";
    parallelism.virtual_pipeline_size = value;
  } else if (!staged) {
    parallelism.pipeline_schedule.reset();
  } else if (parallelism.pipeline_schedule.value_or("interleaved-1f1b") == "interleaved-1f1b") {
    parallelism.pipeline_schedule = "1f1b";
  }
  DealLayersOf(menu, parallelism);
}

void SetZeroStage(const Menu& /*menu*/, int32_t value, JobSpec& job) {
  job.parallelism.zero_stage = value;
}

void SetShardGroup(const Menu& /*menu*/, int32_t value, JobSpec& job) {
  job.parallelism.shard_group_size.reset();
  if (value > 0) job.parallelism.shard_group_size = value;
}
std::string ShardGroupText(const Menu& /*menu*/, int32_t value) {
  return value == 0 ? "all data-parallel ranks" : absl::StrCat(value);
}

void SetMicroBatch(const Menu& /*menu*/, int32_t value, JobSpec& job) {
  job.training.micro_batch_size = value;
}

void SetRecompute(const Menu& menu, int32_t value, JobSpec& job) {
  job.training.recompute = menu.recomputes[static_cast<size_t>(value)];
}
std::string RecomputeText(const Menu& menu, int32_t value) {
  const RecomputeSpec& recompute = menu.recomputes[static_cast<size_t>(value)];
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

// How far apart two numbers of GPUs are: 2 for each factor of two, rounded up. At most
// 40, so that it never outweighs another type of GPU.
int64_t GpuCountDistance(int32_t from, int32_t to) {
  return static_cast<int64_t>(std::ceil(2 * std::abs(std::log2(to) - std::log2(from))));
}

}  // namespace

const std::array<Knob, kKnobCount> kKnobs = {{
    {KnobId::kGpu, "cluster.gpu", 256, false, SetGpu, GpuText},
    {KnobId::kGpuCount, "cluster.gpu_count", 128, true, SetGpuCount, Number},
    {KnobId::kTensorParallel, "parallelism.tensor_parallel_size", 16, false, SetTensorParallel,
     Number},
    {KnobId::kSequenceParallel, "parallelism.sequence_parallel", 8, false, SetSequenceParallel,
     BoolText},
    {KnobId::kContextParallel, "parallelism.context_parallel_size", 16, false, SetContextParallel,
     Number},
    {KnobId::kPipelineParallel, "parallelism.pipeline_parallel_size", 32, true, SetPipelineParallel,
     Number},
    {KnobId::kVirtualPipeline, "parallelism.virtual_pipeline_size", 16, true, SetVirtualPipeline,
     Number},
    {KnobId::kZeroStage, "parallelism.zero_stage", 1, true, SetZeroStage, Number},
    {KnobId::kShardGroup, "parallelism.shard_group_size", 1, true, SetShardGroup, ShardGroupText},
    {KnobId::kMicroBatch, "training.micro_batch_size", 4, false, SetMicroBatch, Number},
    {KnobId::kRecompute, "training.recompute", 2, false, SetRecompute, RecomputeText},
}};

std::vector<int64_t> DealWithEdges(int64_t layer_count, int64_t chunk_count) {
  const int64_t whole = layer_count + 2;
  std::vector<int64_t> layers(static_cast<size_t>(chunk_count), whole / chunk_count);
  // What is left over goes to the middle, where there is no embedding and no head.
  const int64_t rest = whole % chunk_count;
  const int64_t begin = (chunk_count - rest) / 2;
  for (int64_t i = begin; i < begin + rest; ++i) ++layers[static_cast<size_t>(i)];
  --layers.front();
  --layers.back();
  return layers;
}

void Set(const Menu& menu, const Choice& choice, JobSpec& job) {
  for (const Knob& knob : kKnobs) knob.set(menu, choice[knob.id], job);
}

Choice MovingBlocks(Choice choice) {
  for (const Knob& knob : kKnobs) {
    if (knob.leaves_blocks) choice[knob.id] = 0;
  }
  return choice;
}

int32_t EngineStage(const Job& job) {
  if (!job.EngineShares()) return 0;
  return job.zero_stage == 3 ? 3 : 1;
}

int64_t ChangeCost(const Choice& from, const Choice& to) {
  int64_t cost = GpuCountDistance(from[KnobId::kGpuCount], to[KnobId::kGpuCount]);
  for (const Knob& knob : kKnobs) {
    if (from[knob.id] != to[knob.id]) cost += knob.change_cost;
  }
  return cost;
}

}  // namespace plimsoll
