#include <algorithm>
#include <limits>

#include "estimator/passes/coordinator.h"
#include "estimator/passes/fsdp.h"
#include "estimator/passes/pass.h"
#include "estimator/passes/shard.h"
#include "estimator/program/parameter_sums.h"

namespace plimsoll {
namespace {

constexpr Alive kReduction =
    During(Phase::kGradientReduction, Phase::kGradientReduction, true, true);
constexpr Alive kInBackward = During(Phase::kBackward, Phase::kBackward, true, true);

bool IsState(const State& state) {
  return state.part == Part::kOptimizerStates || state.part == Part::kMasterWeights;
}

// What the step makes for itself, for each parameter that it steps.
bool IsOfStep(const State& state) {
  return state.part == Part::kStepCopies ||
         (state.part == Part::kStepTemporaries && state.basis == Basis::kParameters);
}

// ZeRO 1: each rank keeps and steps its share of states and master weights.
void ShardStates(const Job& job, Program& program) {
  for (State& state : program.states) {
    if (IsState(state) || IsOfStep(state)) Shard(state, job.shard_group_size);
  }
}

// What is of experts is shared by the ranks that have the same of them.
// Source: megatron/core/optimizer/__init__.py, get_megatron_optimizer (expert_parallel_buffers);
// megatron/core/parallel_state.py, get_expert_data_parallel_group.
void ShardExperts(const Job& job, Program& program) {
  if (!job.model->experts.Any()) return;
  const int64_t shards = job.ExpertShardCount();
  for (State& state : program.states) {
    const bool shared = IsState(state) || IsOfStep(state);
    if (shared && state.shards != shards) state.expert_shards = shards;
  }
}

// Updated slices are gathered in one call: its flat input, a flat output for
// each rank, and NCCL's own of all.
// Source: nanotron optim/zero.py, _all_gather_params; distributed.py,
// all_gather_coalesced; torch ProcessGroupNCCL.cpp, allgather_coalesced; measured (10 + 14/d bytes
// a parameter, data notes A 1.1).
void ApplyNanotron(const Job& job, Program& program) {
  const DType dtype = job.precision.parameter;
  if (job.zero_stage == 0) {
    if (job.ReplicaCount() > 1) {
      program.states.push_back({.name = "gradients.buckets",
                                .role = Role::kCommunication,
                                .dtype = job.precision.gradient,
                                .alive = kAlways});
    }
    return;
  }
  ShardStates(job, program);
  program.states.push_back({.name = "gather.input",
                            .role = Role::kCommunication,
                            .dtype = dtype,
                            .shards = job.shard_group_size,
                            .alive = kOptimizerPhase});
  program.states.back().buffers = 1;
  program.states.push_back({.name = "gather.outputs",
                            .role = Role::kCommunication,
                            .dtype = dtype,
                            .alive = kOptimizerPhase});
  program.states.back().buffers = job.shard_group_size;
  program.states.push_back({.name = "gather.flat",
                            .role = Role::kCommunication,
                            .dtype = dtype,
                            .alive = kOptimizerPhase});
  program.states.back().buffers = 1;
}

// All gradients pass through buckets as large as all of them together.
// Source: torch/csrc/distributed/c10d/reducer.cpp, initialize_buckets.
void ApplyDdp(const Job& job, Program& program) {
  if (job.ReplicaCount() == 1) return;
  State* gradients = nullptr;
  for (State& state : program.states) {
    if (state.part == Part::kGradients) gradients = &state;
  }
  if (job.gradient_as_bucket_view) {
    gradients->grows_in_backward = false;
    gradients->alive = kAlways;
    program.weight_gradient = WeightGradient::kAdded;
    return;
  }
  program.states.push_back({.name = "gradients.buckets",
                            .role = Role::kCommunication,
                            .dtype = job.precision.gradient,
                            .alive = kAlways});
}

void AddBytes(Program& program, absl::string_view name, Stream stream, int64_t bytes, Alive alive) {
  program.states.push_back({.name = name,
                            .role = Role::kCommunication,
                            .basis = Basis::kBytes,
                            .fixed_bytes = bytes,
                            .stream = stream,
                            .alive = alive});
}

// One buffer of a rank's share of its stage's parameters, of `most` elements at most.
State ShareOfStage(absl::string_view name, DType dtype, int64_t shards, int64_t most) {
  return {.name = name,
          .role = Role::kCommunication,
          .dtype = dtype,
          .most_bytes = Bytes(dtype, most),
          .shards = shards,
          .buffers = 1,
          .alive = kOptimizerPhase};
}

// Of a rank's share of gradients each is widened for its norm, one after the other; by then the
// buckets are gone.
// Source: deepspeed/runtime/zero/stage_1_and_2.py, scaled_global_norm, get_grad_norm_direct,
// _release_ipg_buffers; stage3.py, get_grad_norm_direct; utils.py, get_norm_dtype.
void AddNorm(const Job& job, Program& program) {
  int64_t largest = 0;
  for (const Block& block : program.blocks) {
    for (const Parameter& parameter : block.parameters) {
      if (!parameter.frozen) largest = std::max(largest, parameter.Elements());
    }
  }
  const int64_t ranks = job.shard_group_size;
  State& norm = program.states.emplace_back(
      ShareOfStage("norm.gradient", DType::kFp64, ranks,
                   job.zero_stage == 3 ? CeilDivide(largest, ranks) : largest));
  norm.role = Role::kTemporary;
  norm.alive = kReduction;
}

// A bucket is made with each backward, and goes when gradients are sent: with ZeRO 1 those of a
// step's last micro-batch alone, so that later ones run forward beside it.
// Source: deepspeed/runtime/zero/stage_1_and_2.py, setup_buckets, _release_ipg_buffers.
Alive BucketAlive(const Job& job) {
  constexpr Alive kForwardOn = During(Phase::kForward, Phase::kBackward, true, true);
  if (job.zero_stage == 3) return kAlways;
  return job.zero_stage == 1 && job.micro_batch_count > 1 ? kForwardOn : kInBackward;
}

// A bucket's gradients, as they are sent: flattened beside it when it is full. That may be at any
// layer, but for one that has them all: it is sent when the table's gradient has come.
// Source: deepspeed/runtime/zero/stage_1_and_2.py, reduce_independent_p_g_buckets_and_remove_grads,
// average_tensor, allreduce_no_retain.
void AddFlatBucket(const Job& job, Program& program) {
  const Stream stream = job.overlap_communication ? Stream::kReduceScatter : Stream::kCompute;
  const int64_t trained = SumParameters(program, WholeStage(job.model->layer_count)).parameters;
  if (trained > job.reduce_bucket_element_count) {
    const int64_t flat = Bytes(job.precision.reduce, job.reduce_bucket_element_count);
    return AddBytes(program, "reduce.flat", stream, flat, kInBackward);
  }
  for (Block& block : program.blocks) {
    if (block.kind != BlockKind::kEmbedding) continue;
    block.buffers.push_back({.name = "reduce.flat",
                             .role = Role::kCommunication,
                             .stream = stream,
                             .forward_bytes = 0,
                             .backward_bytes = Bytes(job.precision.reduce, trained)});
  }
}

// The step takes its share in groups of sub_group_size elements at most. What is too small to be
// let go is there whole. One rank gathers nothing, but what comes from the host.
// Source: deepspeed/runtime/zero/stage3.py, sub_group_size; parameter_offload.py,
// mark_persistent_parameters; partition_parameters.py, _no_gather_coalesced.
void ApplyDeepSpeedStage3(const Job& job, Program& program) {
  constexpr int64_t kSubGroupElements = 1000000000;
  if (job.shard_group_size > 1 || job.offload_parameters) {
    program.gathers = Coordinate(job, program);
  }
  int64_t persistent = 0;
  for (const Block& block : program.blocks) {
    if (!program.gathers.Any()) break;  // one rank's weights are its share
    const int64_t times = CountOnStage(block, WholeStage(job.model->layer_count));
    for (const Parameter& parameter : block.parameters) {
      if (!StaysWhole(parameter) || parameter.tied) continue;
      persistent = Add(persistent, Multiply(times, Bytes(parameter.dtype, parameter.Elements())));
    }
  }
  AddBytes(program, "weights.persistent", Stream::kCompute, persistent, kAlways);
  const int64_t ranks = job.shard_group_size;
  auto& states = program.states;
  states.push_back(
      ShareOfStage("step.gradients", job.precision.gradient, ranks, kSubGroupElements));
  states.push_back(ShareOfStage("step.gradients.fp32", DType::kFp32, ranks, kSubGroupElements));
}

// The largest gradient of each block that is in a rank's share, widened for its norm as it is on
// its way to the host, of the head once the logits' is gone; and a buffer as large as the largest
// that adds micro-batches up. Source: deepspeed/runtime/zero/stage_1_and_2.py,
// set_norm_for_param_grad_in_gpu, temp_grad_buffer_for_gpu_offload.
void AddGradientsToHost(const Job& job, Program& program) {
  const int64_t trained = SumParameters(program, WholeStage(job.model->layer_count)).parameters;
  const int64_t share = CeilDivide(trained, job.shard_group_size);
  for (Block& block : program.blocks) {
    int64_t largest = 0;
    for (const Parameter& parameter : block.parameters) {
      if (parameter.frozen || parameter.tied) continue;
      largest = std::max(largest, std::min(parameter.Elements(), share));
    }
    if (largest == 0) continue;
    if (block.kind != BlockKind::kHead) {
      block.buffers.push_back({.name = "norm.gradient",
                               .role = Role::kTemporary,
                               .forward_bytes = 0,
                               .backward_bytes = Bytes(DType::kFp64, largest)});
      continue;
    }
    block.ops.front().backward_temporaries.Add(AddTensor(block, {.name = "norm.gradient",
                                                                 .shape = FlatShape(largest),
                                                                 .dtype = DType::kFp64,
                                                                 .role = Role::kTemporary,
                                                                 .differentiable = false}));
  }
  program.states.push_back({.name = "gradients.to_host",
                            .role = Role::kCommunication,
                            .basis = Basis::kLargest,
                            .dtype = job.precision.parameter,
                            .alive = kAlways});
}

// States, master weights and gradients are the host's, with a copy of either in their own dtype.
// Source: deepspeed/runtime/zero/stage_1_and_2.py, cpu_offload (single_partition_of_fp32_groups,
// param_buffer_of_bit16_for_cpu_offload_groups); stage3.py, offload_optimizer
// (fp32_partitioned_groups_flat, grad_partitions_flat_buffer).
void OffloadOptimizer(const Job& job, Program& program) {
  const auto stays = [&job](const State& state) {
    const bool gradient = state.part == Part::kGradients || state.part == Part::kGradientSums;
    const bool of_step = IsOfStep(state) || state.alive == kOptimizerPhase;
    const bool norm = state.alive == kReduction && job.zero_stage == 2;
    return !IsState(state) && !gradient && !of_step && !norm;
  };
  for (const State& state : TakeStates(program, stays)) {
    if (IsState(state)) program.host_states.push_back(state);
  }
  for (const DType dtype : {DType::kFp32, job.precision.gradient}) {
    State& gradients = program.host_states.emplace_back(ShareOfStage(
        "gradients", dtype, job.shard_group_size, std::numeric_limits<int64_t>::max() / 8));
    gradients.role = Role::kGradient;
    gradients.alive = kAlways;
  }
  if (job.zero_stage == 2) AddGradientsToHost(job, program);
}

// Source: deepspeed/runtime/zero/partition_parameters.py, _partition_param (offload_param).
void OffloadParameters(Program& program) {
  const auto stays = [](const State& state) { return state.part != Part::kWeights; };
  for (const State& state : TakeStates(program, stays)) program.host_states.push_back(state);
}

// Source: deepspeed/runtime/zero/stage_1_and_2.py, setup_buckets, step;
// stage3.py, _setup_for_real_optimizer, reduce_scatter_coalesced.
void ApplyEngine(const Job& job, Program& program) {
  const int64_t ranks = job.shard_group_size;
  ShardStates(job, program);
  const bool third = job.zero_stage == 3;
  for (State& state : program.states) {
    if (IsState(state)) {  // flat, and made when the engine is
      state.alive = kAlways;
      state.buffers = 1;
    }
    if (state.part == Part::kWeights && third) Shard(state, ranks);
    const bool gradient = state.part == Part::kGradients || state.part == Part::kGradientSums;
    if (job.zero_stage < 2 || !gradient) continue;
    Shard(state, ranks);
    if (third) state.grows_in_backward = false;
    if (third) state.alive = kAlways;
  }
  if (job.zero_stage >= 2) program.weight_gradient = WeightGradient::kAdded;
  const int64_t bucket = Bytes(job.precision.reduce, job.reduce_bucket_element_count);
  AddBytes(program, "reduce.bucket", Stream::kCompute, bucket, BucketAlive(job));
  if (!third) AddFlatBucket(job, program);
  if (job.overlap_communication && !third) {
    AddBytes(program, "reduce.bucket.second", Stream::kCompute, bucket, kInBackward);
  }
  AddNorm(job, program);
  if (third) {
    ApplyDeepSpeedStage3(job, program);
    return;
  }
  program.states.push_back({.name = "step.gradients",
                            .role = Role::kTemporary,
                            .dtype = job.precision.gradient,
                            .shards = ranks,
                            .alive = kOptimizerPhase});
  program.states.back().buffers = 1;
  program.states.push_back({.name = "step.gradients.fp32",
                            .role = Role::kTemporary,
                            .dtype = DType::kFp32,
                            .shards = ranks,
                            .alive = kOptimizerPhase});
  program.states.back().buffers = 1;
}

void ApplyDeepSpeed(const Job& job, Program& program) {
  if (job.zero_stage == 0) return;
  ApplyEngine(job, program);
  if (job.offload_optimizer) OffloadOptimizer(job, program);
  if (job.offload_parameters) OffloadParameters(program);
}

// DeepSpeed's engine over Megatron keeps weights and states flat; the weights as
// they were built leave their memory to the cache. At the end of a step the sums
// of its BF16 optimizer are reduced as one 16-bit copy; else gradients bucket by
// bucket, each a flat copy, and this rank's share of them is flattened, then
// widened, for the step.
// Without ZeRO the engine reduces a gradient of zeros where a parameter has none.
// Source: deepspeed 0.6, runtime/bf16_optimizer.py; runtime/engine.py,
// communication_data_type, allreduce_bucket, buffered_allreduce_fallback;
// runtime/zero/stage_1_and_2.py, reduce_gradients, move_to_cpu,
// buffered_reduce_fallback, step.
void ApplyMegatronDeepSpeed(const Job& job, Program& program) {
  if (job.zero_stage == 0) {
    for (State& state : program.states) state.fills_in = state.grows_in_backward;
    return;
  }
  ShardStates(job, program);
  const bool sums = job.precision.accumulation == DType::kFp32;
  for (State& state : program.states) {
    const bool flat = state.part == Part::kWeights || IsState(state) ||
                      state.part == Part::kGradientSums || state.part == Part::kStepCopies;
    if (flat) state.buffers = 1;
    if (state.part == Part::kGradients && !sums) state.alive = kReduction;
  }
  program.states.push_back({.name = "weights.built",
                            .role = Role::kTemporary,
                            .dtype = job.precision.parameter,
                            .alive = 0});
  program.states.back().sets_up = true;
  const DType dtype = job.precision.gradient;
  program.states.push_back(
      {.name = "reduce.flat", .role = Role::kCommunication, .dtype = dtype, .alive = kReduction});
  program.states.back().buffers = 1;
  if (sums) return;
  program.states.back().most_bytes = Bytes(dtype, job.reduce_bucket_element_count);
  program.states.push_back({.name = "step.gradients",
                            .role = Role::kGradient,
                            .dtype = dtype,
                            .shards = job.shard_group_size,
                            .alive = kOptimizerPhase});
  program.states.push_back({.name = "step.gradients.flat",
                            .role = Role::kTemporary,
                            .dtype = dtype,
                            .shards = job.shard_group_size,
                            .alive = kOptimizerPhase});
  program.states.back().buffers = 1;
}

}  // namespace

Program ApplyZero(const ValidJob& job, Program program) {
  switch (job->profile->sharding) {
    case Sharding::kBuckets:
      ApplyDdp(*job, program);
      break;
    case Sharding::kUnits:
      ApplyFsdp(*job, program);
      break;
    case Sharding::kEngine:
      ApplyDeepSpeed(*job, program);
      break;
    case Sharding::kSlices:
      ApplyNanotron(*job, program);
      break;
    case Sharding::kFlat:
      ApplyMegatronDeepSpeed(*job, program);
      break;
    case Sharding::kStates:
      if (job->zero_stage > 0) ShardStates(*job, program);
      if (job->zero_stage > 0 && job->profile->dispatches_experts) ShardExperts(*job, program);
      break;
  }
  return program;
}

}  // namespace plimsoll
