#include "estimator/time/step_time.h"

#include <algorithm>
#include <array>
#include <utility>

#include "estimator/job/mesh.h"
#include "estimator/passes/pass.h"
#include "estimator/program/data_collectives.h"
#include "estimator/program/lower.h"
#include "estimator/program/parameter_sums.h"
#include "estimator/step/peak.h"

namespace plimsoll {
namespace {

// Elements on a rank.
struct StageParameters {
  double trained = 0;  // but for experts that other ranks have others of
  double experts = 0;
  double frozen = 0;
};

// What a stage does for one micro-batch, and what it holds.
struct StageCost {
  PassTime forward;
  PassTime again;
  PassTime backward;
  StageParameters parameters;

  double Seconds() const { return forward.Seconds() + again.Seconds() + backward.Seconds(); }
};

StageCost CostOfStage(const ModelCost& cost, const StagePart& stage) {
  StageCost sum;
  for (const BlockCost& block : cost.blocks) {
    const auto count = static_cast<double>(CountBlocks(block.place, stage));
    if (count == 0) continue;
    sum.forward.Add(block.time.forward, count);
    sum.again.Add(block.time.again, count);
    sum.backward.Add(block.time.backward, count);
    const double trained = stage.embedding ? block.parameters_alone : block.parameters;
    sum.parameters.trained += count * trained;
    sum.parameters.experts += count * block.experts;
    sum.parameters.frozen += count * block.frozen;
  }
  return sum;
}

// All stages of a pipeline.
struct PipelineCost {
  StageCost slowest;
  StageParameters most;    // of each, on one stage
  double all_seconds = 0;  // of one micro-batch through all stages
};

PipelineCost CostOfPipeline(const Job& job, const ModelCost& cost) {
  PipelineCost pipeline;
  const int64_t stages = job.pipeline_parallel_size;
  StagePart last;
  StageCost of_last;
  for (int64_t stage = 0; stage < stages; ++stage) {
    StagePart part = PartOf(job, stage);
    if (stage == 0 || !(part == last)) of_last = CostOfStage(cost, part);
    last = std::move(part);
    const double seconds = of_last.Seconds();
    pipeline.all_seconds += seconds;
    const StageParameters& here = of_last.parameters;
    pipeline.most = {.trained = std::max(pipeline.most.trained, here.trained),
                     .experts = std::max(pipeline.most.experts, here.experts),
                     .frozen = std::max(pipeline.most.frozen, here.frozen)};
    if (stage == 0 || seconds > pipeline.slowest.Seconds()) pipeline.slowest = of_last;
  }
  return pipeline;
}

void AddCompute(const StageCost& stage, double micro_batches, StepTime& time) {
  const auto add = [&](StepTerm term, double seconds) {
    time.terms[static_cast<size_t>(term)] += micro_batches * seconds;
  };
  for (const PassTime* pass : {&stage.forward, &stage.backward}) {
    add(StepTerm::kMatrixProducts, pass->matrix);
    add(StepTerm::kAttention, pass->attention);
    add(StepTerm::kMemoryBound, pass->memory);
    add(StepTerm::kKernelLaunch, pass->launch);
  }
  for (const PassTime* pass : {&stage.forward, &stage.again, &stage.backward}) {
    add(StepTerm::kTensorCommunication, pass->tensor);
    add(StepTerm::kContextCommunication, pass->context);
  }
  add(StepTerm::kRecompute, stage.again.Seconds() - stage.again.tensor - stage.again.context);
}

void AddPipeline(const Job& job, const ModelCost& cost, const PipelineCost& pipeline,
                 StepTime& time) {
  const auto stages = static_cast<double>(job.pipeline_parallel_size);
  if (stages == 1) return;
  const auto chunks = static_cast<double>(job.virtual_pipeline_size);
  const auto micro_batches = static_cast<double>(job.micro_batch_count);
  const double slowest = pipeline.slowest.Seconds();
  const double bubble = chunks > 1 ? (stages - 1) / chunks * pipeline.all_seconds / stages
                                   : pipeline.all_seconds - slowest;
  time.terms[static_cast<size_t>(StepTerm::kPipelineBubble)] = bubble;
  const RankGroup pair = Mesh(job).Neighbours(Axis::kPipeline);
  const double message =
      cost.sent_bytes / cost.rates.Bandwidth(job, pair) + cost.rates.Start(job, pair);
  const double messages = 2 * ((chunks > 1 ? 0 : micro_batches) + stages - 1);
  time.terms[static_cast<size_t>(StepTerm::kPipelineCommunication)] = messages * message;
}

double BytesOf(const ModelCost& cost, Sent what) {
  switch (what) {
    case Sent::kGradients:
      return cost.gradient_bytes;
    case Sent::kWeights:
      return cost.weight_bytes;
    case Sent::kSigns:
      return 1.0 / 8;
  }
  return 0;
}

// Seconds of one row in a step: an all-reduce is a scatter and a gather.
double SecondsOf(const Job& job, const ModelCost& cost, const StageParameters& most,
                 const DataCollective& row) {
  const Rates& rates = cost.rates;
  const auto ranks = static_cast<double>(row.group.size());
  const double trained = row.experts ? most.experts : most.trained;
  const double elements = trained + (row.frozen && !row.experts ? most.frozen : 0);
  const double bytes = elements / static_cast<double>(row.shards) * BytesOf(cost, row.what);
  const bool whole = row.kind == CollectiveKind::kAllReduce || row.what == Sent::kSigns;
  const bool sharded = !whole || row.shards > 1;
  const int64_t layers = CeilDivide(job.model->layer_count, job.pipeline_parallel_size);
  const double messages = sharded ? static_cast<double>(layers) : 1;
  const double once = bytes * (ranks - 1) / ranks / rates.Bandwidth(job, row.group) +
                      messages * rates.Start(job, row.group);
  const double times = row.kind == CollectiveKind::kAllReduce ? 2 : 1;
  return static_cast<double>(row.times) * times * once;
}

// What does not hide behind what it runs beside.
void AddDataCommunication(const Job& job, const Speed& speed, const ModelCost& cost,
                          const PipelineCost& pipeline, StepTime& time) {
  std::array<double, 3> seconds{};
  for (const DataCollective& row : DataCollectivesOf(job)) {
    seconds[static_cast<size_t>(row.beside)] += SecondsOf(job, cost, pipeline.most, row);
  }
  const auto micro_batches = static_cast<double>(job.micro_batch_count);
  const StageCost& stage = pipeline.slowest;
  const auto exposed = [&](Beside beside, double window) {
    const double hidden = speed.framework.data_overlap * window;
    return std::max(0.0, seconds[static_cast<size_t>(beside)] - hidden);
  };
  time.terms[static_cast<size_t>(StepTerm::kDataCommunication)] =
      exposed(Beside::kCompute, micro_batches * stage.Seconds()) +
      exposed(Beside::kBackward, stage.again.Seconds() + stage.backward.Seconds()) +
      exposed(Beside::kNothing, 0);
}

// Fused: each state read and written once. An operation at a time over lists of
// tensors, or over each: 18 of Adam's against 7.
// Source: torch/optim/adam.py, _multi_tensor_adam and _fused_adam.
double OptimizerPasses(const Job& job) {
  return job.optimizer_implementation == OptimizerImplementation::kFused ? 1 : 18.0 / 7;
}

void AddOptimizer(const Job& job, const ModelCost& cost, const StageParameters& most,
                  StepTime& time) {
  const bool sharded = job.zero_stage > 0;
  const auto shards = static_cast<double>(sharded ? job.shard_group_size : 1);
  const auto of_experts = static_cast<double>(sharded ? job.ExpertShardCount() : 1);
  const double elements = most.trained / shards + most.experts / of_experts;
  time.terms[static_cast<size_t>(StepTerm::kOptimizer)] =
      elements * cost.optimizer_bytes * OptimizerPasses(job) / cost.rates.memory_bytes;
}

void FillFigures(const Job& job, const Speed& speed, const ModelCost& cost, StepTime& time) {
  for (const double seconds : time.terms) time.seconds += seconds;
  time.low_seconds = time.seconds / (1 + speed.spread());
  time.high_seconds = time.seconds * (1 + speed.spread());
  const double tokens = static_cast<double>(job.global_batch_size) *
                        static_cast<double>(job.SequencesOfSample()) *
                        static_cast<double>(job.sequence_length);
  const auto gpus = static_cast<double>(job.gpu_count);
  time.tokens_per_second = tokens / time.seconds;
  time.model_flops_utilization =
      cost.flops_per_token * time.tokens_per_second / gpus / cost.rates.peak_flops;
  time.gpu_hours_per_billion_tokens = 1e9 / time.tokens_per_second * gpus / 3600;
  time.measured = speed.measured();
}

// Bytes that the step reads and writes for each parameter of an unsharded rank:
// gradients are read, weights written, and read where they are their own master;
// the rest both.
double OptimizerBytes(const Job& job, const Program& program) {
  const ParameterSums sums = SumParameters(program, WholeStage(job.model->layer_count));
  double bytes = 0;
  for (const State& state : program.states) {
    if (state.of != Selection::kTrained) continue;
    const bool weights = state.part == Part::kWeights;
    const bool both = state.part == Part::kMasterWeights || state.part == Part::kOptimizerStates ||
                      (weights && job.precision.master == DType::kNone);
    const bool once =
        weights || state.part == Part::kGradients || state.part == Part::kGradientSums;
    if (!both && !once) continue;
    bytes += (both ? 2.0 : 1.0) * static_cast<double>(StateBytes(state, sums));
  }
  // Clipping reads the gradients for their norm, and scales them.
  // Source: torch/nn/utils/clip_grad.py.
  bytes /= static_cast<double>(sums.parameters);
  return bytes + (job.gradient_clipping ? 3.0 : 0.0) *
                     static_cast<double>(plimsoll::Bytes(job.precision.accumulation, 1));
}

}  // namespace

BlockPlace PlaceOf(const Block& block) { return {.kind = block.kind, .layers = block.layers}; }

StagePart PartOf(const Job& job, int64_t stage) {
  return {.layers = VirtualStages(job, stage),
          .embedding = stage == 0,
          .head = stage == job.pipeline_parallel_size - 1};
}

int64_t CountBlocks(const BlockPlace& place, const StagePart& stage) {
  if (place.kind == BlockKind::kEmbedding) return stage.embedding ? 1 : 0;
  if (place.kind == BlockKind::kHead) return stage.head ? 1 : 0;
  int64_t count = 0;
  for (const LayerRange& layers : stage.layers) count += place.layers.CountIn(layers);
  return count;
}

Program BlocksProgram(const ValidJob& job) {
  Program program = Lower(job);
  for (const Pass& pass : kPasses) {
    program = pass.apply(job, std::move(program));
    if (pass.id == PassId::kPreference) break;
  }
  return program;
}

ModelCost CostOf(const ValidJob& job, const Program& program, const Speed& speed) {
  ModelCost cost;
  cost.rates = RatesOf(*job, speed);
  double flops = 0;
  const bool apart = SharesExpertsApart(*job);
  const bool runs_twice = Says(job->preference, &PreferenceRow::runs_twice);
  const bool compares_twice = Says(job->preference, &PreferenceRow::compares_twice);
  for (const Block& block : program.blocks) {
    const BlockSums sums = SumBlock(block, 1);
    const int64_t experts = apart ? sums.own.experts : 0;
    BlockCost& one = cost.blocks.emplace_back();
    one = {.place = PlaceOf(block),
           .time = TimeBlock(*job, cost.rates, speed.framework.tensor_overlap, block),
           .parameters = static_cast<double>(sums.all.parameters - experts),
           .parameters_alone = static_cast<double>(sums.own.parameters - experts),
           .experts = static_cast<double>(experts),
           .frozen = static_cast<double>(sums.own.frozen)};
    if (runs_twice) one.time.forward.Add(PassTime(one.time.forward), 1);
    const int64_t count =
        block.kind == BlockKind::kLayer ? block.layers.CountOf(job->model->layer_count) : 1;
    flops += static_cast<double>(count) * (one.time.model_flops + one.time.backward_model_flops);
  }
  for (const Block& block : program.reference) {  // its forward, of every micro-batch
    BlockCost& one = cost.blocks.emplace_back();
    one.place = PlaceOf(block);
    const BlockTime time = TimeBlock(*job, cost.rates, speed.framework.tensor_overlap, block);
    int64_t times = compares_twice ? 2 : 1;
    if (program.reference_layer_count > 0) {  // a teacher's layers are no stage's
      one.place = {.kind = BlockKind::kHead};
      times = CountInReference(block, program);
    }
    one.time.forward.Add(time.forward, times);
  }
  const auto tokens = static_cast<double>(job->LocalTokens());
  const auto degree = static_cast<double>(job->tensor_parallel_size);
  cost.flops_per_token = flops * degree / tokens;
  // With sequence parallelism each rank has a slice.
  const bool whole = job->profile->sends_whole && !job->sequence_parallel;
  cost.sent_bytes = tokens * static_cast<double>(job->model->hidden_size) *
                    static_cast<double>(plimsoll::Bytes(job->precision.residual, 1)) /
                    (whole ? 1 : degree);
  cost.gradient_bytes = static_cast<double>(plimsoll::Bytes(job->precision.reduce, 1));
  cost.weight_bytes = static_cast<double>(plimsoll::Bytes(job->precision.parameter, 1));
  cost.optimizer_bytes = OptimizerBytes(*job, program);
  return cost;
}

StepTime PredictStep(const Job& job, const Speed& speed, const ModelCost& cost) {
  StepTime time;
  const PipelineCost pipeline = CostOfPipeline(job, cost);
  AddCompute(pipeline.slowest, static_cast<double>(job.micro_batch_count), time);
  AddPipeline(job, cost, pipeline, time);
  AddDataCommunication(job, speed, cost, pipeline, time);
  AddOptimizer(job, cost, pipeline.most, time);
  time.terms[static_cast<size_t>(StepTerm::kFixed)] = speed.framework.step_seconds;
  FillFigures(job, speed, cost, time);
  return time;
}

StepTime PredictStep(const ValidJob& job, const SpeedTable& table) {
  const Speed speed = SpeedOf(table, *job);
  return PredictStep(*job, speed, CostOf(job, BlocksProgram(job), speed));
}

}  // namespace plimsoll
