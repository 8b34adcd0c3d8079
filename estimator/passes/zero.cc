#include <algorithm>
#include <limits>

#include "estimator/passes/buckets.h"
#include "estimator/passes/coordinator.h"
#include "estimator/passes/fsdp.h"
#include "estimator/passes/module_order.h"
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

int64_t Trained(const Job& job, const Program& program) {
  return SumParameters(program, WholeStage(job.model->layer_count)).parameters;
}

int64_t LargestTrained(const Program& program) {
  int64_t largest = 0;
  for (const Block& block : program.blocks) {
    for (const Parameter& parameter : block.parameters) {
      if (!parameter.frozen) largest = std::max(largest, parameter.Elements());
    }
  }
  return largest;
}

// Of a rank's share of gradients each is widened for its norm, one after the other. By then the
// buckets are gone, so that no more is counted than they have not had (`gone_bytes`).
// Source: deepspeed/runtime/zero/stage_1_and_2.py, scaled_global_norm, get_grad_norm_direct,
// _release_ipg_buffers; stage3.py, get_grad_norm_direct; utils.py, get_norm_dtype.
void AddNorm(const Job& job, int64_t gone_bytes, Program& program) {
  const int64_t largest = LargestTrained(program);
  const int64_t ranks = job.shard_group_size;
  const int64_t share = CeilDivide(Trained(job, program), ranks);
  const int64_t most = job.zero_stage == 3 ? CeilDivide(largest, ranks) : largest;
  const int64_t bytes = Bytes(DType::kFp64, std::min(share, most));
  AddBytes(program, "norm.gradient", Stream::kCompute, std::max<int64_t>(bytes - gone_bytes, 0),
           kReduction);
  program.states.back().role = Role::kTemporary;
}

// Whether gradients go to a bucket as backward makes them: with ZeRO 1 when a step's backward is
// over, but where they overlap. Source: deepspeed/runtime/zero/stage_1_and_2.py, process_gradients,
// reduce_gradients.
bool SendsInBackward(const Job& job) {
  return job.zero_stage == 2 || (job.overlap_communication && job.micro_batch_count == 1);
}

// A bucket is made with each backward, and goes when gradients are sent: with ZeRO 1 those of a
// step's last micro-batch alone, so that later ones run forward beside it.
// Source: deepspeed/runtime/zero/stage_1_and_2.py, setup_buckets, _release_ipg_buffers.
Alive BucketAlive(const Job& job) {
  constexpr Alive kForwardOn = During(Phase::kForward, Phase::kBackward, true, true);
  if (job.zero_stage == 3) return kAlways;
  if (SendsInBackward(job)) return kInBackward;
  return kReduction | (job.micro_batch_count > 1 ? kForwardOn : kInBackward);
}

// A rank keeps those gradients alone that it has a part of in its share, from when the first of
// them is sent. The first rank's are the last; another may have more, and earlier. Source:
// deepspeed/runtime/zero/stage_1_and_2.py, copy_grads_in_partition, grads_in_partition.
State PartOfGradients(const Job& job, const Program& program, const SentGradients& sent) {
  const bool copies = job.zero_stage == 1;
  const bool adds_up = job.zero_stage == 2 && job.micro_batch_count > 1;
  return {.name = "gradients.partition",
          .role = Role::kGradient,
          .part = copies ? Part::kStepCopies : Part::kGradients,
          .basis = Basis::kBytes,
          .fixed_bytes = Bytes(program.gradient_dtype, sent.first_elements),
          .alive = During(adds_up ? Phase::kForward : Phase::kGradientReduction, Phase::kOptimizer,
                          true, true)};
}

// What is sent in backward is not kept whole. The gradient of a head that reads the table waits for
// the table's own.
void SendInBackward(const Job& job, Program& program) {
  program.weight_gradient = WeightGradient::kAdded;
  const SentGradients sent = SendGradients(job, program, false);
  program.gathers = sent.flats;
  program.uneven_bytes = Bytes(program.gradient_dtype, sent.most_elements);
  TakeStates(program, [](const State& state) { return state.part != Part::kGradients; });
  for (State& state : program.states) {
    if (state.part == Part::kGradientSums) Shard(state, job.shard_group_size);
  }
  program.states.push_back(PartOfGradients(job, program, sent));
  const Parameter& table = program.blocks.front().parameters.front();
  if (!job.model->tied_embeddings || table.frozen) return;
  AddBytes(program, "gradients.head", Stream::kCompute,
           Bytes(program.gradient_dtype, table.Elements()), kInBackward);
  program.states.back().role = Role::kGradient;
}

// Behind backward all gradients are there until they are sent; then the rank's part is. What is
// flattened finds no room where they were, as none is as large.
void SendBehindBackward(const Job& job, Program& program) {
  const SentGradients sent = SendGradients(job, program, true);
  program.gathers = sent.flats;
  program.uneven_bytes = Bytes(program.gradient_dtype, sent.most_elements - sent.first_elements);
  for (State& state : program.states) {
    if (state.part == Part::kGradients && job.micro_batch_count == 1) state.alive = 0;
  }
  program.states.push_back(PartOfGradients(job, program, sent));
  const int64_t most = std::max(LargestTrained(program), job.reduce_bucket_element_count);
  const int64_t flat = Bytes(job.precision.reduce, std::min(most, Trained(job, program)));
  const int64_t bucket = Bytes(job.precision.reduce, job.reduce_bucket_element_count);
  AddBytes(program, "reduce.flat", Stream::kReduceScatter, flat, kReduction);
  AddNorm(job, Add(flat, bucket), program);
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
  const int64_t trained = Trained(job, program);
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
  program.uneven_bytes = 0;
  if (job.zero_stage == 2) AddGradientsToHost(job, program);
}

// Source: deepspeed/runtime/zero/partition_parameters.py, _partition_param (offload_param).
void OffloadParameters(Program& program) {
  const auto stays = [](const State& state) { return state.part != Part::kWeights; };
  for (const State& state : TakeStates(program, stays)) program.host_states.push_back(state);
}

// Of a rank's share: states and weights, and gradients where they are never kept whole.
void ShardEngine(const Job& job, Program& program) {
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
    if (!third || !gradient) continue;
    Shard(state, ranks);
    state.grows_in_backward = false;
    state.alive = kAlways;
  }
  if (third) program.weight_gradient = WeightGradient::kAdded;
}

void ApplyDeepSpeedStages1And2(const Job& job, Program& program) {
  if (job.overlap_communication) {
    const int64_t bucket = Bytes(job.precision.reduce, job.reduce_bucket_element_count);
    AddBytes(program, "reduce.bucket.second", Stream::kCompute, bucket, kInBackward);
  }
  for (const DType dtype : {job.precision.gradient, DType::kFp32}) {
    State& gradients = program.states.emplace_back(
        ShareOfStage(dtype == DType::kFp32 ? "step.gradients.fp32" : "step.gradients", dtype,
                     job.shard_group_size, std::numeric_limits<int64_t>::max() / 8));
    gradients.role = Role::kTemporary;
  }
  if (SendsInBackward(job)) {
    AddNorm(job, 0, program);
    SendInBackward(job, program);
  } else {
    SendBehindBackward(job, program);
  }
}

// Source: deepspeed/runtime/zero/stage_1_and_2.py, setup_buckets, step;
// stage3.py, _setup_for_real_optimizer, reduce_scatter_coalesced.
void ApplyEngine(const Job& job, Program& program) {
  ShardEngine(job, program);
  const int64_t bucket = Bytes(job.precision.reduce, job.reduce_bucket_element_count);
  AddBytes(program, "reduce.bucket", Stream::kCompute, bucket, BucketAlive(job));
  if (job.zero_stage == 3) {
    AddNorm(job, 0, program);
    ApplyDeepSpeedStage3(job, program);
  } else {
    ApplyDeepSpeedStages1And2(job, program);
  }
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

// Of a table that the head reads too there are two gradients, and their sum is a third tensor; but
// where the head's was cast, or summed up over slices, the other is added to it (units that are
// sharded were not run so).
// Source: torch/csrc/autograd/input_buffer.cpp, accumulate (in place only where nobody else refers
// to the first); seen under the phantom.
void AddSumOfTied(const Job& job, Program& program) {
  const bool here = job.model->tied_embeddings && job.pipeline_parallel_size == 1;
  const bool kept = program.weight_gradient == WeightGradient::kKept;
  const bool sliced = job.reference.has_value() || job.loss != LossImplementation::kPlain;
  const bool in_place =
      job.precision.autocast || (sliced && job.profile->sharding != Sharding::kUnits);
  Block& embedding = program.blocks.front();
  const Parameter& table = embedding.parameters.front();
  if (!here || !kept || in_place || job.profile->flat_units || table.frozen) return;
  embedding.ops.front().backward_temporaries.Add(
      AddTensor(embedding, {.name = "embedding.tokens.weight.gradient.sum",
                            .shape = table.shape,
                            .dtype = job.precision.gradient,
                            .role = Role::kGradient,
                            .differentiable = false}));
}

}  // namespace

Program ApplyZero(const ValidJob& job, Program program) {
  AddSumOfTied(*job, program);
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
