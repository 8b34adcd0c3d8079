#include <algorithm>
#include <iterator>
#include <numeric>

#include "absl/strings/string_view.h"
#include "estimator/passes/buckets.h"
#include "estimator/passes/coordinator.h"
#include "estimator/passes/deal.h"
#include "estimator/passes/fsdp.h"
#include "estimator/passes/megatron_fsdp.h"
#include "estimator/passes/module_order.h"
#include "estimator/passes/pass.h"
#include "estimator/passes/shard.h"
#include "estimator/program/parameter_sums.h"

namespace plimsoll {
namespace {

constexpr Alive kInBackward = During(Phase::kBackward, Phase::kBackward, true, true);

// The first state of a part; the end where there is none.
std::pmr::vector<State>::iterator FindPart(Part part, Program& program) {
  return std::find_if(program.states.begin(), program.states.end(),
                      [part](const State& state) { return state.part == part; });
}

bool IsState(const State& state) {
  return state.part == Part::kOptimizerStates || state.part == Part::kMasterWeights;
}

// What the step makes for itself, for each parameter that it steps.
bool IsOfStep(const State& state) {
  return state.part == Part::kStepCopies ||
         (state.part == Part::kStepTemporaries && state.basis == Basis::kParameters);
}

// ZeRO 1: each rank keeps and steps its share of states and master weights.
void ShardZeroStates(const Job& job, Program& program) {
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
  ShardZeroStates(job, program);
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

// One buffer of a rank's share of its stage's parameters.
State ShareOfStage(absl::string_view name, DType dtype, int64_t shards) {
  return {.name = name,
          .role = Role::kCommunication,
          .dtype = dtype,
          .shards = shards,
          .buffers = 1,
          .alive = kOptimizerPhase};
}

// The engine steps a copy of a rank's share, of the weights' own dtype where no master is wider.
DType MasterOf(const Job& job) {
  const DType master = job.precision.master;
  return master == DType::kNone ? job.precision.parameter : master;
}

// A rank's share of gradients, flat and then widened, before a first step makes its states.
void AddStepGradients(const Job& job, Program& program) {
  const auto states = FindPart(Part::kOptimizerStates, program);
  const int64_t ranks = job.shard_group_size;
  State flat = ShareOfStage("step.gradients", job.precision.gradient, ranks);
  State wide = ShareOfStage("step.gradients.fp32", DType::kFp32, ranks);
  flat.part = wide.part = Part::kStepGradients;
  flat.until_temporaries = true;
  if (job.precision.SumsWide()) {
    program.states.insert(states, wide);
  } else if (job.precision.gradient == MasterOf(job)) {
    program.states.insert(states, flat);
  } else {
    program.states.insert(states, {flat, wide});
  }
}

// Gradients that are flattened, and those that they are flattened from, are gone when the step
// makes tensors of its own: the more of either is counted. Source:
// deepspeed/runtime/zero/stage_1_and_2.py, step; stage3.py, _prepare_fp32_grad_for_sub_group.
void CountEitherOfStep(const Job& job, Program& program) {
  const ParameterSums sums = SumParameters(program, WholeStage(job.model->layer_count));
  int64_t before = 0;
  int64_t behind = 0;
  for (const State& state : program.states) {
    if (state.until_temporaries) before = Add(before, StateBytes(state, sums));
    if (state.part == Part::kStepTemporaries) behind = Add(behind, StateBytes(state, sums));
  }
  for (State& state : program.states) {
    const bool behind_them = state.part == Part::kStepTemporaries;
    if (before > behind ? !behind_them : !state.until_temporaries) continue;
    state.in_passing = state.alive & kOptimizerPhase;
    state.alive &= ~kOptimizerPhase;
  }
}

// Source: deepspeed/runtime/zero/stage_1_and_2.py, setup_buckets, _gradient_reduction_buffer_dtype;
// stage3.py, __create_ipg_buffers.
int64_t BucketBytes(const Job& job) {
  const DType dtype = job.zero_stage == 3 ? job.precision.reduce : job.precision.gradient;
  return Bytes(dtype, job.reduce_bucket_element_count);
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

// What a rank's share has of each gradient is widened for its norm, one after the other, once the
// buckets are gone: of the first rank's the largest.
// Source: deepspeed/runtime/zero/stage_1_and_2.py, scaled_global_norm, get_grad_norm_direct,
// _release_ipg_buffers; stage3.py, get_grad_norm_direct; utils.py, get_norm_dtype.
void AddNorm(int64_t largest, Program& program) {
  AddBytes(program, "norm.gradient", Stream::kCompute, Bytes(DType::kFp64, largest),
           kReductionPhase);
  program.states.back().role = Role::kTemporary;
  program.states.back().dtype = DType::kFp64;
}

// ZeRO 2 sends gradients as backward makes them, ZeRO 1 when those of all micro-batches are there:
// where reduction overlaps, with the last backward.
// Source: deepspeed/runtime/zero/stage_1_and_2.py, process_gradients, reduce_gradients.
Sending SendingOf(const Job& job) {
  if (job.zero_stage == 2) return Sending::kInBackward;
  if (!job.overlap_communication) return Sending::kBehind;
  return job.micro_batch_count == 1 ? Sending::kInBackward : Sending::kBehindInOrder;
}

// A bucket is made with each backward, and goes when gradients are sent: with ZeRO 1 those of a
// step's last micro-batch alone, so that later ones run forward beside it.
// Source: deepspeed/runtime/zero/stage_1_and_2.py, setup_buckets, _release_ipg_buffers.
void AddBucket(const Job& job, absl::string_view name, Program& program) {
  const bool third = job.zero_stage == 3;
  const bool stays = SendingOf(job) != Sending::kInBackward && job.micro_batch_count > 1;
  AddBytes(program, name, Stream::kCompute, BucketBytes(job),
           third   ? kAlways
           : stays ? kForwardToBackward
                   : kInBackward);
  State& bucket = program.states.back();
  bucket.from_backward = !third;
  if (!third) return;  // else made once, before what gradients are summed up in
  const auto sums =
      std::find_if(program.states.begin(), program.states.end(), [&](const State& at) {
        return at.part == Part::kGradients || at.part == Part::kGradientSums || &at == &bucket;
      });
  std::rotate(sums, std::prev(program.states.end()), program.states.end());
}

// Of gradients that are sent a rank keeps what its share has a part of, until they are widened; a
// first step makes its states behind that. The first rank's are the last that backward makes;
// another may have more, and earlier. Source: deepspeed/runtime/zero/stage_1_and_2.py,
// copy_grads_in_partition, grads_in_partition.
void AddPartition(const Job& job, Phase from, int64_t bytes, Program& program) {
  AddBytes(program, "gradients.partition", program.gathers.flat_stream, bytes,
           During(from, Phase::kGradientReduction, true, true) |
               During(Phase::kOptimizer, Phase::kOptimizer, false, true));
  State& partition = program.states.back();
  partition.role = Role::kGradient;
  partition.part = job.zero_stage == 1 ? Part::kStepCopies : Part::kGradients;
  partition.dtype = SumsShare(job) ? job.precision.accumulation : job.precision.gradient;
  partition.until_temporaries = !SumsShare(job);
}

// What is sent in backward is not kept whole.
void SendInBackward(const Job& job, const SentGradients& sent, Program& program) {
  program.weight_gradient = WeightGradient::kAdded;
  program.gathers = sent.turns;
  const bool adds_up = job.zero_stage == 2 && job.micro_batch_count > 1;
  const int64_t before = adds_up ? sent.first_bytes : 0;
  const int64_t made = SumsShare(job) ? before : 0;  // by an earlier micro-batch, for all
  program.uneven_bytes = Add(sent.most_bytes, adds_up ? sent.most_bytes : 0) - before - made;
  TakeStates(program, [](const State& state) {
    return state.part != Part::kGradients && state.part != Part::kGradientSums;
  });
  AddPartition(job, adds_up ? Phase::kForward : Phase::kGradientReduction, sent.first_bytes,
               program);
}

// All gradients are there until they are sent, when the last backward is over.
void SendBehindBackward(const Job& job, const SentGradients& sent, Program& program) {
  program.gathers = sent.turns;
  program.uneven_bytes = sent.most_bytes - sent.first_bytes;
  for (State& state : program.states) {
    if (state.part != Part::kGradients) continue;
    state.alive = 0;
    state.adds_up = job.micro_batch_count > 1;
  }
  for (const int64_t bytes : {sent.flat_bytes, sent.cast_bytes}) {
    AddBytes(program, "reduce.flat", program.gathers.flat_stream, bytes, 0);
    program.states.back().in_passing = kReductionPhase;
  }
  AddPartition(job, Phase::kGradientReduction, sent.first_bytes, program);
}

// DeepSpeed's optimizer for 16-bit weights whose gradients are summed up in fp32: all sums are one
// buffer on each rank, and 16-bit gradients are never let go. Each is widened to be added up; then
// sums are reduced as one tensor, in the dtype of reduction.
// Source: deepspeed/runtime/bf16_optimizer.py, _setup_for_real_optimizer, update_hp_grads,
// clear_lp_grads; runtime/engine.py, _do_optimizer_sanity_check, allreduce_bucket; seen under the
// phantom.
void ApplyBf16Optimizer(const Job& job, Program& program) {
  constexpr Alive kOnceMade = During(Phase::kBackward, Phase::kEndOfStep, true, false) |
                              During(Phase::kForward, Phase::kEndOfStep, false, true);
  program.weight_gradient = WeightGradient::kAdded;
  for (State& state : program.states) {
    if (state.part == Part::kGradientSums) state.buffers = 1;
    if (state.part != Part::kGradients) continue;
    state.grows_in_backward = false;
    state.alive = kOnceMade;
  }
  const int64_t widened = Bytes(job.precision.accumulation, LargestTrained(program));
  const bool copied = job.precision.reduce != job.precision.accumulation;
  const int64_t flat = copied ? Bytes(job.precision.reduce, Trained(job, program)) : 0;
  AddBytes(program, "reduce.flat", Stream::kCompute, std::max(flat, widened), kReductionPhase);
}

// Elements of the largest group of weights in their order, each until there are `enough`, of the
// share of each that one of `ranks` has.
int64_t LargestGroup(const Job& job, const Program& program, int64_t enough, int64_t ranks) {
  int64_t largest = 0;
  int64_t elements = 0;
  for (const Weight& weight : ReadNetwork(program.blocks, job.model->layer_count).weights) {
    if (!weight.trained) continue;
    if (elements >= enough) elements = 0;
    elements = Add(elements, CeilDivide(weight.elements, ranks));
    largest = std::max(largest, elements);
  }
  return largest;
}

// Puts what `part` is made of before it.
void AddWhatBecomes(Part part, State made, Program& program) {
  const auto at = FindPart(part, program);
  if (at == program.states.end()) return;
  made.becomes = part;
  made.alive = 0;
  program.states.insert(at, made);
}

// Weights are on the GPU, a tensor each, when they are copied into a flat one, where that finds
// room beside them. The other network of accelerate's trainers is there by then.
// Source: deepspeed/runtime/zero/stage_1_and_2.py, __init__ (flatten_on_accelerator).
void AddWeightsToFlatten(const Job& job, Program& program) {
  const DType dtype = job.precision.parameter;
  const int64_t bytes = Bytes(dtype, Trained(job, program));
  const bool fits = job.gpu == nullptr || Multiply(2, bytes) <= job.gpu->runtime_memory_bytes;
  if (!job.profile->flattens_on_gpu || !fits) return;
  AddWhatBecomes(Part::kWeights, {.name = "set_up.weights", .dtype = dtype}, program);
  if (!job.profile->accelerate) return;
  std::stable_partition(FindPart(Part::kWeights, program), program.states.end(),
                        [](const State& state) { return state.part == Part::kReference; });
}

// A rank's share of weights is copied, then widened; with ZeRO 3 widened, then copied. Of two
// groups of parameters, as accelerate's trainers have them, the second empties the cache, as a loop
// of one's own does (that of tests/accuracy/phantom); zeros of a share are made for nothing behind
// that. Source: deepspeed/runtime/zero/stage_1_and_2.py, __init__ (empty_cache, weights_partition),
// initialize_optimizer_states; seen under the phantom.
void AddSetUp(const Job& job, Program& program) {
  const bool two_groups = job.profile->accelerate;
  const bool third = job.zero_stage == 3;
  if (!third) AddWeightsToFlatten(job, program);
  program.empties_cache = !third || !two_groups;
  if (job.offload_optimizer) return;
  const DType dtype = job.precision.parameter;
  const int64_t ranks = job.shard_group_size;
  if (MasterOf(job) != dtype) {
    const DType copied = third ? MasterOf(job) : dtype;
    AddWhatBecomes(Part::kMasterWeights, ShareOfStage("set_up.share", copied, ranks), program);
  }
  if (third || !two_groups) return;
  program.states.push_back(ShareOfStage("set_up.gradients", MasterOf(job), ranks));
  program.states.back().alive = 0;
  program.states.back().sets_up_behind = true;
}

// What is too small to be let go is there whole. One rank gathers nothing, but what comes from the
// host.
// Source: deepspeed/runtime/zero/parameter_offload.py, mark_persistent_parameters;
// partition_parameters.py, _no_gather_coalesced.
void ApplyDeepSpeedStage3(const Job& job, Program& program) {
  if (job.shard_group_size > 1 || job.offload_parameters) {
    program.gathers = Coordinate(job, program);
    // Where it is the policy without its adapters it is that one's engine which gathers.
    const bool own = job.reference == Reference::kModel;
    if (own) program.reference_gathers = CoordinateReference(job, program);
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
  AddStepGradients(job, program);
  // A step takes its share of so many at once. Source: deepspeed/runtime/zero/stage3.py,
  // sub_group_size, _create_fp16_sub_groups.
  constexpr int64_t kSubGroupElements = 1000000000;
  const int64_t group = LargestGroup(job, program, kSubGroupElements, job.shard_group_size);
  for (State& state : program.states) {
    const bool of_step = state.part == Part::kStepTemporaries || state.part == Part::kStepGradients;
    if (of_step) state.most_bytes = Bytes(state.dtype, group);
  }
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
                               .backward = {Bytes(DType::kFp64, largest), 0}});
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
    const bool of_step = IsOfStep(state) || (state.alive | state.in_passing) == kOptimizerPhase;
    const bool norm = state.alive == kReductionPhase && job.zero_stage == 2;
    return !IsState(state) && !gradient && !of_step && !norm;
  };
  for (const State& state : TakeStates(program, stays)) {
    if (IsState(state)) program.host_states.push_back(state);
  }
  for (const DType dtype : {DType::kFp32, job.precision.gradient}) {
    State& gradients =
        program.host_states.emplace_back(ShareOfStage("gradients", dtype, job.shard_group_size));
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

// Of a rank's share: states and weights, each a flat tensor, and gradients where they are never
// kept whole.
void ShardEngine(const Job& job, Program& program) {
  const int64_t ranks = job.shard_group_size;
  for (State& state : program.states) {  // of a flat share a loop takes all at once
    const bool loops = state.part == Part::kStepTemporaries && state.basis == Basis::kLargest;
    if (loops) state.basis = Basis::kParameters;
  }
  ShardZeroStates(job, program);
  const bool third = job.zero_stage == 3;
  for (State& state : program.states) {
    // What is frozen stays as it was made.
    const bool stepped = state.part == Part::kWeights && state.of != Selection::kFrozen;
    const bool flat = IsState(state) || IsOfStep(state) || stepped;
    if (flat) state.buffers = 1;
    ForgetShape(state);
    state.beside_others = false;
    const bool weights = state.part == Part::kWeights || state.part == Part::kReference;
    if (weights && third) Shard(state, ranks);
    const bool gradient = state.part == Part::kGradients || state.part == Part::kGradientSums;
    if (!third || !gradient) continue;
    Shard(state, ranks);
    state.buffers = 1;
    state.grows_in_backward = false;
    state.alive = kAlways;
  }
  if (!third) return;
  program.weight_gradient = WeightGradient::kAdded;
  if (!job.precision.SumsWide()) return;
  TakeStates(program, [](const State& state) { return state.part != Part::kGradients; });
}

// A share that was summed up is stepped from where it is; else its gradients are flattened, and
// widened.
void ApplyDeepSpeedStages1And2(const Job& job, Program& program) {
  if (job.overlap_communication) {
    AddBucket(job, "reduce.bucket.second", program);
  }
  AddSetUp(job, program);
  if (!SumsShare(job)) AddStepGradients(job, program);
  const Sending sending = SendingOf(job);
  const SentGradients sent = SendGradients(job, program, sending);
  if (sending == Sending::kInBackward) {
    SendInBackward(job, sent, program);
  } else {
    SendBehindBackward(job, sent, program);
  }
  AddNorm(sent.largest_part, program);
}

// The optimizer that the engine was given has states of what it was made for, and the engine refers
// to it; it steps masters, or its share of them. With ZeRO 3 there was nothing whole to be made
// for. Source: deepspeed/runtime/engine.py, _configure_optimizer (basic_optimizer);
// runtime/zero/stage_1_and_2.py, initialize_optimizer_states; fp16/unfused_optimizer.py, __init__;
// torch/optim/adagrad.py, __init__.
void AddStatesMadeBefore(const Job& job, Program& program) {
  if (!RowOf(job.optimizer).made_with_it || job.zero_stage == 3) return;
  program.states.push_back({.name = "optimizer.variance.unused",
                            .role = Role::kOptimizerState,
                            .dtype = job.precision.parameter});
}

// ZeRO 3 means to spare fp32 weights the copy, and finds another device than it compares with.
// Source: deepspeed/runtime/zero/stage_1_and_2.py, __init__ (single_partition_of_fp32_groups);
// stage3.py, _create_fp32_partitions; seen under the phantom with DeepSpeed 0.19.8.
void AddMasters(const Job& job, Program& program) {
  if (job.precision.master != DType::kNone) return;
  program.states.push_back({.name = "master_weights",
                            .role = Role::kMasterWeight,
                            .part = Part::kMasterWeights,
                            .dtype = MasterOf(job)});
}

// Source: deepspeed/runtime/zero/stage_1_and_2.py, setup_buckets, step;
// stage3.py, _setup_for_real_optimizer, reduce_scatter_coalesced.
void ApplyEngine(const Job& job, Program& program) {
  AddMasters(job, program);
  ShardEngine(job, program);
  AddStatesMadeBefore(job, program);
  if (job.zero_stage == 1 && job.precision.SumsWide()) return ApplyBf16Optimizer(job, program);
  AddBucket(job, "reduce.bucket", program);
  if (job.zero_stage == 3) {
    AddSetUp(job, program);
    AddNorm(CeilDivide(LargestTrained(program), job.shard_group_size), program);
    ApplyDeepSpeedStage3(job, program);
  } else {
    ApplyDeepSpeedStages1And2(job, program);
  }
  CountEitherOfStep(job, program);
}

// Numbers whose signs are exchanged are as many for each rank, and whole bytes.
// Source: deepspeed 0.18.9, runtime/fp16/onebit/adam.py, __init__, step (divider,
// corrected_tensor_size); runtime/comm/nccl.py, compressed_allreduce.
bool NeedsPadding(const Job& job, const Program& program) {
  const int64_t ranks = job.ReplicaCount();
  const int64_t unit = Multiply(ranks, std::lcm(ranks, int64_t{8}));
  const int64_t count = SumParameters(program, WholeStage(job.model->layer_count)).parameters;
  return ranks > 1 && count % unit != 0;
}

// Weights, masters and what the step has are one tensor each; gradients of backward are widened one
// by one, and go when these are one.
// Source: deepspeed 0.18.9, runtime/fp16/fused_optimizer.py, __init__, step.
void StepFlat(const Job& job, Program& program) {
  for (State& state : program.states) {
    const bool flat = state.part == Part::kWeights || state.part == Part::kMasterWeights ||
                      state.part == Part::kStepCopies || state.part == Part::kOptimizerStates ||
                      state.part == Part::kStepTemporaries;
    if (flat) state.buffers = 1;
    state.beside_others = false;
    if (state.part == Part::kStepCopies) state.alive |= kReductionPhase;
    if (state.part == Part::kGradients) state.alive &= kReductionPhase;
  }
  program.states.push_back({.name = "gradients.widened",
                            .role = Role::kGradient,
                            .dtype = DType::kFp32,
                            .alive = kReductionPhase});
  if (!RowOf(job.optimizer).pads_copy || !NeedsPadding(job, program)) return;
  program.states.push_back({.name = "optimizer.padded",
                            .role = Role::kTemporary,
                            .part = Part::kStepTemporaries,
                            .dtype = DType::kFp32,
                            .buffers = 1,
                            .alive = kOptimizerPhase});
}

// Gradients are made flat, and once more for their norm, which is of what is widened then.
// Source: deepspeed/runtime/fp16/unfused_optimizer.py, step_fused_lamb; runtime/utils.py,
// get_weight_norm.
void FlattenForNorm(const Job& job, Program& program) {
  State flat{.name = "gradients.flat",
             .role = Role::kGradient,
             .dtype = job.precision.gradient,
             .buffers = 1,
             .alive = kOptimizerPhase};
  program.states.push_back(flat);
  flat.name = "gradients.flat.norm";
  program.states.push_back(flat);
  flat.name = "gradients.widened";
  flat.dtype = DType::kFp32;
  program.states.push_back(flat);
}

// Without ZeRO gradients are reduced as flat copies of so many, and all are widened for the step,
// beside those that backward made.
// Source: deepspeed/runtime/engine.py, buffered_allreduce_fallback, allreduce_no_retain;
// runtime/fp16/unfused_optimizer.py, step.
void ApplyWithoutZero(const Job& job, Program& program) {
  constexpr int64_t kFlatElements = 500000000;
  const OptimizerRow& row = RowOf(job.optimizer);
  if (job.ReplicaCount() > 1 && !row.compresses) {
    const int64_t group = LargestGroup(job, program, kFlatElements, 1);
    AddBytes(program, "reduce.flat", Stream::kCompute, Bytes(job.precision.gradient, group),
             kReductionPhase);
  }
  if (job.precision.master == DType::kNone) return;
  AddStatesMadeBefore(job, program);
  const bool fused = job.optimizer_implementation == OptimizerImplementation::kFused;
  if (fused && row.takes_narrow) return FlattenForNorm(job, program);
  program.states.push_back({.name = "gradients.step",
                            .role = Role::kGradient,
                            .part = Part::kStepCopies,
                            .dtype = DType::kFp32,
                            .alive = kOptimizerPhase});
  if (row.steps_flat) StepFlat(job, program);
}

void ApplyDeepSpeed(const Job& job, Program& program) {
  if (job.zero_stage == 0) return ApplyWithoutZero(job, program);
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
  ShardZeroStates(job, program);
  const bool sums = job.precision.accumulation == DType::kFp32;
  for (State& state : program.states) {
    const bool flat = state.part == Part::kWeights || IsState(state) || IsOfStep(state) ||
                      state.part == Part::kGradientSums;
    if (flat) state.buffers = 1;
    if (state.part == Part::kGradients && !sums) state.alive = kReductionPhase;
  }
  program.states.push_back({.name = "weights.built",
                            .role = Role::kTemporary,
                            .dtype = job.precision.parameter,
                            .alive = 0});
  program.states.back().sets_up = true;
  const DType dtype = job.precision.gradient;
  program.states.push_back({.name = "reduce.flat",
                            .role = Role::kCommunication,
                            .dtype = dtype,
                            .alive = kReductionPhase});
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

// Of a table that the head reads too there are two gradients: the head's waits for the other, and
// their sum is a third tensor, but where the head's was cast, summed up over slices (units that are
// sharded were run so by Liger's loss alone; that one waits was seen under DDP, DeepSpeed and
// Megatron-Core alone), or made by ZeRO 3's own products. Source:
// torch/csrc/autograd/input_buffer.cpp, accumulate (in place only where nobody else refers to the
// first); deepspeed runtime/zero/linear.py, LinearFunctionForZeroStage3.backward; seen under the
// phantom.
void AddTiedGradients(const Job& job, Program& program) {
  const bool alone = job.pipeline_parallel_size == 1;
  const Sharding sharding = job.profile->sharding;
  const bool units = sharding == Sharding::kUnits;
  Block& embedding = program.blocks.front();
  const Parameter& table = embedding.parameters.front();
  const bool tied = alone && job.model->tied_embeddings && !table.frozen;
  const bool added =
      sharding == Sharding::kStates && program.weight_gradient == WeightGradient::kAdded;
  const bool waits = sharding == Sharding::kBuckets || sharding == Sharding::kEngine || added;
  // So does that of a layer which predicts one token further.
  if ((tied && waits) || (alone && job.mtp_layer_count > 0)) {
    program.waiting_gradient_bytes = Bytes(program.gradient_dtype, table.Elements());
  }
  if (!tied) return;
  const bool kept = program.weight_gradient == WeightGradient::kKept || job.optimizer_in_backward;
  const bool sliced = job.loss != LossImplementation::kPlain;
  const bool own = sharding == Sharding::kEngine && job.zero_stage == 3;
  const bool fused = job.loss == LossImplementation::kFused;
  const bool in_place = job.precision.autocast || (sliced && !units) || fused || own;
  if (!kept || in_place) return;
  program.sums_tied_apart = true;
  embedding.ops.front().backward_temporaries.Add(AddTensor(
      embedding, {.name = "embedding.tokens.weight.gradient.sum",
                  .shape = table.shape,
                  .dtype = job.precision.gradient,
                  .role = Role::kGradient,
                  .stream = job.profile->flat_units ? Stream::kAllGather : Stream::kCompute,
                  .differentiable = false}));
}

}  // namespace

Program ApplyZero(const ValidJob& job, Program program) {
  AddTiedGradients(*job, program);
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
      if (job->megatron_fsdp != nullptr) {
        ApplyMegatronFsdp(*job, program);
        break;
      }
      if (job->deals_matrices) {
        DealStates(*job, program);
        break;
      }
      if (job->zero_stage > 0) ShardZeroStates(*job, program);
      if (job->zero_stage > 0 && job->profile->dispatches_experts) ShardExperts(*job, program);
      break;
  }
  return program;
}

}  // namespace plimsoll
