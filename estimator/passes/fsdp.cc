#include "estimator/passes/fsdp.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "estimator/passes/shard.h"
#include "estimator/program/parameter_sums.h"

namespace plimsoll {
namespace {

constexpr Alive kLossAlone = During(Phase::kLoss, Phase::kLoss, true, true);

// Under no_sync gradients stay whole in all micro-batches but the last, of which
// each has here what the last one needs. Source: torch/distributed/fsdp/
// _runtime_utils.py, _post_backward_hook; _fully_shard/_fsdp_param_group.py,
// post_backward, and _fsdp_param.py.
bool AccumulatesWhole(const Job& job) {
  return job.profile->accumulates_whole && job.micro_batch_count > 1 && job.shard_group_size > 1;
}

// FSDP2 adds in place: of a dtype that backward makes, as autograd makes it. Of a wider one a block
// was cast and added when all of it was there.
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, post_backward
// (_set_unsharded_grad_dtypes; before, accumulate_unsharded_grad_if_needed).
void AddWhole(const Job& job, Program& program) {
  const bool casts = job.precision.reduce != job.precision.gradient;
  const bool blocks = casts && !job.profile->adds_by_parameter;
  program.adds_whole = blocks ? AddsWhole::kBlocks : AddsWhole::kParameters;
}

// Sharded tensors are padded to whole rows on each rank (fsdp1 shards one flat
// tensor instead); their dtype is the master's. Gradients of one group are
// reduced in `reduce` and kept sharded.
void ShardUnitStates(const Job& job, Program& program) {
  const bool rows = !job.profile->flat_units;
  const bool has_master = job.precision.master != DType::kNone;
  auto& states = program.states;
  const auto replaced = [has_master](const State& state) {
    // The shard is the master.
    const bool weights =
        state.part == Part::kWeights && state.of == Selection::kTrained && has_master;
    return weights || state.part == Part::kGradientSums;
  };
  states.erase(std::remove_if(states.begin(), states.end(), replaced), states.end());
  const DType sharded = job.precision.Stepped();
  const auto gradients = std::find_if(states.begin(), states.end(), [](const State& state) {
    return state.part == Part::kGradients;
  });
  if (gradients != states.end() && AccumulatesWhole(job)) {
    State reduced = *gradients;
    reduced.name = "gradients.reduced";
    reduced.grows_in_backward = false;
    reduced.alive = kOptimizerPhase;
    gradients->part = Part::kOther;
    if (rows) gradients->dtype = job.precision.reduce;  // to_accumulated_grad_if_needed
    if (!rows) gradients->stream = Stream::kAllGather;  // a flat one, of views of what is gathered
    gradients->alive = kReductionPhase;
    states.push_back(reduced);
    if (rows) AddWhole(job, program);
  }
  for (State& state : states) {
    if (state.basis == Basis::kBytes) continue;
    if (state.basis == Basis::kLargest && job.profile->flat_units) continue;  // may be one rank's
    if (job.profile->flat_units) ForgetShape(state);
    if (state.grows_in_backward && state.part == Part::kOther) continue;
    // Each rank has scales; of FSDP2's groups what is in bytes is no part, which is quantize_4bit's
    // default. torchao's tensors are. Source: accelerate utils/fsdp_utils.py, fsdp2_prepare_model
    // (ignored_params); torchao dtypes/nf4tensor.py, fsdp_pre_all_gather.
    const bool quantized = state.of == Selection::kQuantized;
    const bool shards = job.profile->composed_dequantization;
    if (quantized && !shards && (state.block_size > 1 || rows)) continue;
    Shard(state, job.shard_group_size);
    state.shards_rows = rows && !quantized;
    // Made in the master's dtype; beside adapters they were loaded in 16 bits.
    const bool made = state.of == Selection::kFrozen && job.trained.has_value();
    if (state.part == Part::kReference || made) state.dtype = sharded;
    if (state.part != Part::kGradients) continue;
    state.dtype = sharded;
    state.stream = Stream::kReduceScatter;  // a view of the reduce-scatter's output
  }
  if (rows) program.row_shards = job.shard_group_size;
}

// What is of parameters and of the optimizer is in the host's memory; the step is made there. FSDP1
// has gradients of its share here too, until backward is over.
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_api.py, CPUOffloadPolicy; _runtime_utils.py,
// _accumulate_sharded_grad, _offload_grad; _flat_param.py, prepare_gradient_for_optim.
void MoveToHost(const Job& job, Program& program) {
  program.host_states =
      TakeStates(program, [](const State& state) { return state.part == Part::kOther; });
  if (!job.profile->flat_units) return;
  for (State& state : program.host_states) {
    if (state.part != Part::kGradients) continue;
    program.states.push_back(state);
    const bool whole = !state.grows_in_backward;  // reduced with the last micro-batch
    program.states.back().alive = whole ? kReductionPhase : 0;
    state.grows_in_backward = false;
  }
}

// Of a group's parameters.
struct Elements {
  int64_t all = 0;
  int64_t trained = 0;
  int64_t largest = 0;  // of one
  int64_t tied = 0;     // trained too, in another group
  int64_t spread = 0;   // of the trained, experts that others of the ranks have not
  int64_t inner = 0;    // of which ranks share rows of an inner axis
};
using Groups = absl::InlinedVector<Elements, 8>;  // of each of a program's blocks

// What is gathered of torchao's quantized elements, in elements of the others' dtype: two of them
// are a byte, 64 have a scale of a byte and 16,384 one of that. Each rank has the tables.
// Source: torchao dtypes/nf4tensor.py, fsdp_pre_all_gather.
int64_t StoredElements(const Job& job, int64_t quantized) {
  if (!job.quantization.has_value() || !job.profile->composed_dequantization) return 0;
  const int64_t scales = CeilDivide(quantized, 64);
  const int64_t of_scales = Bytes(job.quantization->compute_dtype, CeilDivide(scales, 256));
  const int64_t bytes = Add(Bytes(job.quantization->format, quantized), Add(scales, of_scales));
  return CeilDivide(bytes, Bytes(job.precision.parameter, 1));
}

// FSDP2 pads each parameter to whole rows on each rank, in what is gathered and reduced too.
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_param.py, init_all_gather_outputs,
// padded_sharded_param_size.
// Quantized weights are gathered as elements of the dtype that the others have.
// Source: bitsandbytes/nn/modules.py, Params4bit.quant_storage.
Elements ElementsOf(const Job& job, const Block& block, int64_t row_shards) {
  const BlockSums both = SumBlock(block, row_shards);
  const ParameterSums& sums = both.own;
  const int64_t tied = both.all.parameters - sums.parameters;
  if (row_shards == 1) {
    int64_t stored = 0;
    if (job.quantization.has_value() && job.profile->flat_units) {
      stored = CeilDivide(Bytes(job.quantization->format, sums.quantized),
                          Bytes(job.precision.parameter, 1));
    }
    return {Add(Add(sums.parameters, sums.frozen), stored), sums.parameters, sums.largest, tied};
  }
  const auto plain = [](const Parameter& at) { return at.spread_over == 1 && at.shard_axis == 0; };
  if (std::all_of(block.parameters.begin(), block.parameters.end(), plain)) {
    const int64_t trained = Multiply(row_shards, sums.row_shard);
    const int64_t frozen = Multiply(row_shards, sums.frozen_row_shard);
    const int64_t all = Add(trained, Add(frozen, StoredElements(job, sums.quantized)));
    return {all, trained, sums.largest, tied};
  }
  Elements whole{.largest = sums.largest, .tied = tied};
  for (const Parameter& parameter : block.parameters) {
    if (parameter.tied) continue;
    const ParameterSums one = SumParameter(block.kind, parameter, row_shards);
    const int64_t shards = ShardsOf(parameter, row_shards);
    const int64_t trained = Multiply(shards, one.row_shard);
    whole.trained = Add(whole.trained, trained);
    whole.all = Add(whole.all, Add(trained, Multiply(shards, one.frozen_row_shard)));
    if (parameter.spread_over > 1) whole.spread = Add(whole.spread, trained);
    if (parameter.shard_axis > 0) whole.inner = Add(whole.inner, trained);
  }
  return whole;
}

// What ranks share out of a group's trained elements, each its own.
int64_t ShareOf(const Job& job, const Elements& elements) {
  const int64_t shards = job.shard_group_size;
  if (elements.spread == 0) return CeilDivide(elements.trained, shards);
  return Add(CeilDivide(elements.trained - elements.spread, shards),
             CeilDivide(elements.spread, shards / job.expert_parallel_size));
}

// Whether embedding, final norm and head are one group, the root's: Automodel gives a table a group
// of its own where it is trained alone.
// Source: nemo_automodel 0.7, components/distributed/parallelizer.py,
// _fully_shard_untied_input_output_embeddings.
bool HasRootGroup(const Job& job) {
  return job.profile->root_group || (job.profile->frozen_root && job.adapter.has_value());
}

// Whether embedding, final norm and head are one group of FSDP2 as they share a table.
// Source: torchtitan distributed/fsdp.py, apply_fsdp_to_decoder (enable_weight_tying).
bool SharesTable(const Job& job) {
  return job.model->tied_embeddings && !HasRootGroup(job) && !job.profile->flat_units &&
         job.pipeline_parallel_size == 1;
}

// torchtitan parts the tables that were one when it makes the model whole: a group of both gathers
// and reduces either. Where they are the host's it was not held against its code.
// Source: torchtitan trainer.py, Trainer.__init__ (to_empty); models/common/decoder.py,
// init_states.
void CountTwice(Elements& head) {
  head.all = Add(head.all, head.tied);
  head.trained = Add(head.trained, head.tied);
  head.tied = 0;
}

Groups GroupsOf(const Job& job, const Program& program) {
  Groups groups;
  for (const Block& block : program.blocks) {
    groups.push_back(ElementsOf(job, block, program.row_shards));
    const bool parts = job.profile->parts_shared_table && !job.offload_parameters;
    if (parts && SharesTable(job)) CountTwice(groups.back());
  }
  return groups;
}

// FSDP1 keeps a rank's share that it copied from the host, and did not cast, beside the group that
// it gathered: parameters are views of it until they are the host's again.
// Source: torch/distributed/fsdp/_flat_param.py, flat_param_to, _use_sharded_views
// (use_orig_params).
void KeepShares(const Job& job, Groups& groups) {
  const bool cast = job.precision.master != DType::kNone;
  if (!job.profile->flat_units || !job.offload_parameters || cast) return;
  for (Elements& group : groups) {
    group.all = Add(group.all, CeilDivide(group.all, job.shard_group_size));
  }
}

// Embedding, final norm and head as one group.
Elements RootOf(const Groups& groups, const Program& program) {
  Elements root;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (program.blocks[i].kind == BlockKind::kLayer) continue;
    root.all = Add(root.all, groups[i].all);
    root.trained = Add(root.trained, groups[i].trained);
    root.largest = std::max(root.largest, groups[i].largest);
  }
  return root;
}

// Of the largest kind.
Elements LargestLayer(const Groups& groups, const Program& program) {
  Elements largest;
  for (size_t i = 0; i < groups.size(); ++i) {
    const bool layer = program.blocks[i].kind == BlockKind::kLayer;
    if (layer && groups[i].all > largest.all) largest = groups[i];
  }
  return largest;
}

// Of the network's last layer, which backward comes to first; of a pipeline's stages that may be
// any.
Elements LastLayer(const Job& job, const Groups& groups, const Program& program) {
  const int64_t last = job.model->layer_count - 1;
  for (size_t i = 0; i < groups.size() && job.pipeline_parallel_size == 1; ++i) {
    const Block& block = program.blocks[i];
    if (block.kind == BlockKind::kLayer && block.layers.Has(last)) return groups[i];
  }
  return LargestLayer(groups, program);
}

// A rank's share of what is trained of a group, cast from the master's dtype to be gathered. What
// is in the host's memory comes to the GPU first, one parameter after the other; FSDP1's, a flat
// one, is cast before the group is gathered.
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py,
// _get_param_all_gather_inputs; _flat_param.py, _use_low_precision_shard; _fsdp_param.py,
// all_gather_inputs.
int64_t GatherInputBytes(const Job& job, const Elements& elements) {
  const bool cast = job.precision.master != DType::kNone;
  if (job.offload_parameters) {
    const int64_t share = CeilDivide(elements.all, job.shard_group_size);
    if (job.profile->flat_units) return cast ? Bytes(job.precision.parameter, share) : 0;
    const int64_t one = CeilDivide(elements.largest, job.shard_group_size);
    return Add(Bytes(job.precision.parameter, share), cast ? Bytes(job.precision.master, one) : 0);
  }
  if (!cast) return 0;
  return Bytes(job.precision.parameter, ShareOf(job, elements));
}

// Whether what stays gathered after forward goes in backward of its group: a pipeline keeps it
// for its other micro-batches. A unit of several layers keeps one input alone.
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, post_backward;
// _runtime_utils.py, _post_backward_hook; torch/distributed/pipelining/stage.py,
// backward_maybe_with_nosync.
bool GoesInBackward(const Job& job) {
  return job.pipeline_parallel_size == 1 && job.recompute_unit_layer_count == 1;
}

TensorId AddFlat(const Job& job, absl::string_view name, int64_t elements, Stream stream,
                 Block& block) {
  return AddTensor(block, {.name = name,
                           .shape = FlatShape(elements),
                           .dtype = job.precision.parameter,
                           .role = Role::kWeight,
                           .stream = stream,
                           .differentiable = false});
}

// What a group is gathered into.
GatherSize SizeOf(const Job& job, const Elements& group) {
  return {Bytes(job.precision.parameter, group.all), GatherInputBytes(job, group)};
}

// Says what each parameter of a group is while it is gathered: whole rows of each rank.
void SizeParameters(const Job& job, int64_t row_shards, Block& block) {
  for (Parameter& parameter : block.parameters) {
    if (parameter.tied) continue;
    const ParameterSums one = SumParameter(block.kind, parameter, row_shards);
    const int64_t rows =
        Add(Multiply(ShardsOf(parameter, row_shards), Add(one.row_shard, one.frozen_row_shard)),
            StoredElements(job, one.quantized));
    Parameter& whole = parameter.packed() ? block.parameters[parameter.packed_into] : parameter;
    whole.gathered_bytes = Add(whole.gathered_bytes, Bytes(job.precision.parameter, rows));
  }
}

// Weights of a group, gathered before forward of the block and dropped after its backward.
void Hold(const Job& job, absl::string_view name, int64_t elements, Block& block) {
  const Stream stream = job.profile->flat_units ? Stream::kAllGather : Stream::kCompute;
  const TensorId id = AddFlat(job, name, elements, stream, block);
  block.tensors[id].checkpointed = block.recompute_unit > 0;
  InsertOp(block, 0, {.name = name, .outputs = {id}, .saved = {id}});
}

// A block's own group, which FSDP2 has a tensor for each parameter of.
void HoldGroup(const Job& job, int64_t elements, Block& block) {
  if (job.profile->flat_units) return Hold(job, "gathered.weights", elements, block);
  for (size_t i = block.parameters.size(); i-- > 0;) {
    const int64_t bytes = block.parameters[i].gathered_bytes;
    if (bytes == 0) continue;
    Hold(job, "gathered.weights", bytes / Bytes(job.precision.parameter, 1), block);
  }
}

// Whether slices of a loss run backward each by itself, the last of which waits for what it
// reduces. Source: torchtitan components/loss.py, ChunkedLossWrapper;
// torch/distributed/fsdp/_fully_shard/ _fsdp_state.py, _root_post_backward_final_callback.
bool RunsBackwardApart(const Job& job) {
  return job.loss == LossImplementation::kChunked && !job.profile->slices_wait;
}

// Whether FSDP2's head is a product that a loss follows: one that runs over slices is gathered for
// all of them.
bool HeadIsRead(const Job& job) { return !job.profile->flat_units && !RunsBackwardApart(job); }

// The last product: of the head's ops the one that reads its weight.
size_t LastProduct(const Block& block) {
  size_t last = block.ops.size() - 1;
  while (last > 0 && block.ops[last].kind != OpKind::kMatrixProduct) --last;
  return last;
}

// Whether backward comes to a last layer that is gathered again.
bool Prefetches(const Job& job) { return job.reshard_after_forward && !job.last_block_gathered; }

// Beside adapters a head that is read in tiles is in a group that never runs: its weight is
// gathered by itself, as it is read. Source: trl trainer/utils.py, add_fused_lm_head (full_tensor);
// accelerate utils/fsdp_utils.py, fsdp2_prepare_model, _find_final_norm.
bool GathersHeadApart(const Job& job) {
  return job.adapter.has_value() && job.loss == LossImplementation::kTiledLogProbs;
}

// What is gathered around FSDP2's head. The last result goes when the model's forward ends: its
// own group's, or where it has none the last layer's. In backward the last layer is on its way once
// the logits' gradient is there, where it is gathered `again` then.
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_state.py, _post_forward, _pre_backward;
// _fsdp_param_group.py, wait_for_unshard, _backward_prefetch.
void GatherAroundHead(const Job& job, const Elements* own, const Elements& layer, bool again,
                      Block& head) {
  const size_t last = LastProduct(head);
  const Elements& behind = own != nullptr ? *own : layer;
  const TensorId output = AddFlat(job, "gather.output", behind.all, Stream::kAllGather, head);
  const size_t reader = job.profile->loss_behind_model ? last : head.ops.size() - 1;
  head.ops[reader].inputs.Add(output);
  if (again) {
    const TensorId next = AddFlat(job, "gather.output", layer.all, Stream::kAllGather, head);
    for (size_t i = 0; i <= last; ++i) head.ops[i].backward_temporaries.Add(next);
  }
  InsertOp(head, 0, {.name = "gather.output", .outputs = {output}});
}

// FSDP1's gathered weights are what it gathers into. Those of the layer beside it are there too.
void AddFlatGather(const GatherSize& group, const GatherSize& beside, bool knows_next,
                   Block& block) {
  const bool passed = block.kind != BlockKind::kHead;  // nothing is behind its own
  for (const bool own : {true, false}) {
    const GatherSize& size = own ? group : beside;
    block.buffers.push_back({.name = "gather.output",
                             .stream = Stream::kAllGather,
                             .input_stream = Stream::kCopyIn,
                             .of_next = passed && !own && knows_next,
                             .forward = size,
                             .backward = passed && (own || !knows_next) ? size : GatherSize{}});
  }
}

// FSDP2 copies a group's weights out of what it gathers into. Forward that stays until the next
// group's is there. Where the group `goes` after forward it is gathered again; what that was
// gathered into goes at once, and the next layer's is on its way.
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, wait_for_unshard.
void AddGather(const GatherSize& group, bool goes, bool knows_next, BufferEnd end, Block& block) {
  block.buffers.push_back(
      {.name = "gather.output", .stream = Stream::kAllGather, .end = end, .forward = group});
  if (!goes) return;
  const bool head = block.kind == BlockKind::kHead;
  block.buffers.push_back({.name = "gathered.weights",
                           .role = Role::kWeight,
                           .by_parameter = true,
                           .forward = {group.bytes, 0},
                           .backward = {group.bytes, head ? 0 : group.bytes}});
  if (block.kind != BlockKind::kLayer) return;
  block.buffers.push_back({.name = "gather.output",
                           .stream = Stream::kAllGather,
                           .of_next = knows_next,
                           .backward = knows_next ? GatherSize{} : group});
}

// Beside experts that ranks have apart torchtitan tells each group to gather the next as it begins:
// what that is gathered into is there while the block runs forward, and its own experts', which are
// a group of a mesh of their own and copied out last. The layer behind the last is the head: its
// group is counted where it runs.
// Source: torchtitan distributed/fsdp.py, apply_fsdp_to_decoder (set_modules_to_forward_prefetch);
// torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, wait_for_unshard.
void AddGatherOfNext(const Job& job, const Elements& own, const Elements& next, size_t own_output,
                     Block& block) {
  auto& buffers = block.buffers;
  const auto output = buffers.begin() + static_cast<std::ptrdiff_t>(own_output);
  const bool layer = block.kind == BlockKind::kLayer;
  const int64_t stays = layer ? own.spread : own.all;
  const GatherSize ahead = SizeOf(job, next);
  output->forward = {Add(Bytes(job.precision.parameter, stays), ahead.bytes), ahead.input_bytes};
  if (layer && output + 1 != buffers.end()) std::iter_swap(output, output + 1);  // weights first
}

// What is shared along an inner axis is copied out once more, and joined.
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, foreach_all_gather_copy_out.
void JoinInner(const Job& job, const Elements& elements, BlockBuffer& weights) {
  const int64_t bytes = Bytes(job.precision.parameter, elements.inner);
  weights.forward.input_bytes = Add(weights.forward.input_bytes, bytes);
  weights.backward.input_bytes = Add(weights.backward.input_bytes, bytes);
}

// Behind the first layer there is the embedding, where that is a group of its own. Micro-batches of
// a pipeline find the last layer of the one before.
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, _backward_prefetch;
// _runtime_utils.py, _get_handle_to_prefetch; torchtitan distributed/fsdp.py.
void GatherBlock(const Job& job, const Elements& elements, const Elements& layer,
                 int64_t row_shards, Block& block) {
  const bool goes = job.reshard_after_forward;
  const bool knows_next = job.pipeline_parallel_size == 1;
  const GatherSize group = SizeOf(job, elements);
  if (goes) block.gathered = group;
  if (!job.profile->flat_units) {
    SizeParameters(job, row_shards, block);
    const bool reads = block.kind == BlockKind::kHead && HeadIsRead(job);
    const size_t output = block.buffers.size();
    AddGather(group, goes, knows_next, reads ? BufferEnd::kMade : BufferEnd::kNextBuffer, block);
    if (goes && elements.inner > 0) JoinInner(job, elements, block.buffers[output + 1]);
    const bool ahead = job.expert_parallel_size > 1 && block.kind != BlockKind::kHead;
    if (ahead) AddGatherOfNext(job, elements, layer, output, block);
  } else if (goes) {
    AddFlatGather(group, SizeOf(job, layer), knows_next, block);
  }
}

// Whether gradients that stay whole are flat ones.
bool KeepsFlat(const Job& job) { return job.profile->flat_units && AccumulatesWhole(job); }

// The gradients of a group on their way to other ranks; flat ones that stay whole go with the last
// micro-batch (ReduceWhole).
void AddReduce(const Job& job, Block& block, const Elements& elements) {
  if (KeepsFlat(job)) return;
  block.reduce_bytes = Bytes(job.precision.reduce, elements.trained);
  if (elements.trained == 0) return;
  if (job.shard_group_size == job.ReplicaCount()) return;
  const int64_t shard = ShareOf(job, elements);  // HSDP: is all-reduced
  block.buffers.push_back({.name = "all_reduce.input",
                           .role = Role::kCommunication,
                           .stream = Stream::kReduceScatter,
                           .backward = {Bytes(job.precision.reduce, shard), 0}});
}

// A copy of weights that are gathered: `gathered` says its name, where and while it is.
void AddGathered(const Job& job, int64_t elements, State gathered, Program& program) {
  gathered.role = Role::kWeight;
  gathered.basis = Basis::kBytes;
  gathered.fixed_bytes = Bytes(job.precision.parameter, elements);
  gathered.stream = job.profile->flat_units ? Stream::kAllGather : Stream::kCompute;
  program.states.push_back(gathered);
}

// The last layer's weights, on their way while the loss runs backward.
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, _backward_prefetch;
// _runtime_utils.py, _prefetch_handle.
void AddPrefetch(const Job& job, const Elements& layer, Block& head) {
  if (!Prefetches(job)) return;
  head.buffers.push_back(
      {.name = "gather.output", .stream = Stream::kAllGather, .backward = SizeOf(job, layer)});
}

// The buffer that a root group is gathered into before the first block.
void AddRootGather(const Job& job, const Elements& root, Block& embedding) {
  embedding.buffers.push_back({.name = "gather.output",
                               .stream = Stream::kAllGather,
                               .end = BufferEnd::kNextBuffer,
                               .forward = SizeOf(job, root)});
}

// The head's whole gradients wait for the embedding's, and all are sent as one. Under no_sync
// FSDP1's are one flat gradient of the group, which those of earlier micro-batches are added to.
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_state.py,
// _root_post_backward_final_callback; _flat_param.py, _get_unflat_views.
void AddHeadGradients(const Job& job, const Elements& head, Program& program) {
  const int64_t waiting = Add(head.trained, head.tied);
  const bool whole = AccumulatesWhole(job);
  if (waiting == 0 || program.adds_whole == AddsWhole::kParameters) return;
  program.ends_are_one_group = !whole && job.pipeline_parallel_size == 1;
  if (program.ends_are_one_group) return;
  program.states.push_back({.name = "gradients.head",
                            .role = Role::kGradient,
                            .place = Place::kHeadStage,
                            .basis = Basis::kBytes,
                            .fixed_bytes = Bytes(job.precision.gradient, waiting),
                            .alive = During(Phase::kBackward, Phase::kBackward, true, true)});
}

// Elements of what FSDP2 gathers a root group into: a tensor of each end, the final norm's with the
// head's.
std::vector<int64_t> PartsOf(const Groups& groups, const Program& program) {
  std::vector<int64_t> parts;
  for (size_t i = 0; i < groups.size(); ++i) {
    const bool end = program.blocks[i].kind != BlockKind::kLayer;
    if (end && groups[i].all > 0) parts.push_back(groups[i].all);
  }
  return parts;
}

// FSDP1's goes behind the flat gradient that is made of it, FSDP2's before what is reduced is made.
// Source: torch/distributed/fsdp/_runtime_utils.py, _post_backward_hook;
// _fully_shard/_fsdp_param_group.py, post_backward.
void HoldRoot(const Job& job, const Groups& groups, Block& embedding, Program& program) {
  if (!job.profile->flat_units) {
    for (const int64_t part : PartsOf(groups, program)) {
      Hold(job, "gathered.root", part, embedding);
    }
    return;
  }
  AddGathered(job, RootOf(groups, program).all,
              {.name = "gathered.root",
               .place = Place::kEverywhere,
               .until_reduced = true,
               .alive = kForwardToBackward},
              program);
}

// A root group that goes with the model's forward, and so with its loss, is gathered again before
// the loss runs backward; then the last layer is on its way. Source: accelerate
// utils/fsdp_utils.py, fsdp2_prepare_model (it tells all groups);
// torch/distributed/fsdp/_fully_shard/_fsdp_state.py, _lazy_init (_auto_reshard_after_forward).
void GatherBehindLoss(const Job& job, const Elements& root, const Elements& layer, Block& head) {
  const TensorId output = AddFlat(job, "gather.output", root.all, Stream::kAllGather, head);
  const TensorId next = AddFlat(job, "gather.output", layer.all, Stream::kAllGather, head);
  for (Op& op : head.ops) op.backward_temporaries.Add(next);
  const TensorId loss = head.ops.back().outputs.ids[0];
  const TensorId seen = AddLike(head, loss, "loss.seen");
  InsertOp(head, head.ops.size(),
           {.name = "gathered.root",
            .inputs = {loss},
            .outputs = {seen},
            .backward_temporaries = {output},
            .input_gradient = InputGradient::kShared});
}

// The hook of a root group is on what the model returns, the loss or logits; that of a group that
// has the head's table on logits. A head that runs behind the model, over slices of the loss, is
// part of its group alone, which has none then. Source: torch/distributed/fsdp/_fully_shard/
// _fsdp_state.py, _register_pre_backward_hook; _fsdp_param_group.py, post_backward
// (is_partial_group_backward).
void GatherAroundRoot(const Job& job, const Elements& root, const Elements& layer, Block& head) {
  const bool reads = HeadIsRead(job);
  const bool on_logits = reads && (!HasRootGroup(job) || job.profile->loss_behind_model);
  const bool told = HasRootGroup(job) && job.profile->reshards_ends;
  if (!on_logits && told && Prefetches(job)) {
    GatherBehindLoss(job, root, layer, head);
  } else if (!on_logits && !RunsBackwardApart(job)) {
    AddPrefetch(job, layer, head);
  }
  if (reads) GatherAroundHead(job, nullptr, layer, on_logits && Prefetches(job), head);
}

// The group is gathered before the first block, and reduced after the last.
void AddRootGroup(const Job& job, const Elements& layer, const Groups& groups, Program& program) {
  const Elements root = RootOf(groups, program);
  for (size_t i = 0; i < groups.size(); ++i) {
    Block& block = program.blocks[i];
    if (block.kind == BlockKind::kLayer) continue;
    const bool head = block.kind == BlockKind::kHead;
    if (!GoesInBackward(job)) {
      AddGathered(job, groups[i].all,
                  {.name = head ? "gathered.head" : "gathered.embedding",
                   .place = head ? Place::kHeadStage : Place::kEmbeddingStage,
                   .alive = kForwardToBackward},
                  program);
    }
    if (head) {
      GatherAroundRoot(job, root, layer, block);
      AddHeadGradients(job, groups[i], program);
      continue;
    }
    if (GoesInBackward(job)) HoldRoot(job, groups, block, program);
    AddReduce(job, block, root);
    if (job.profile->flat_units) continue;  // a view of what is gathered
    AddRootGather(job, root, block);
  }
}

// Of the root group the head's block has what stands while its layers run, and where backward
// comes to them the buffer that is gathered into; then the last layer is on its way.
void GatherAgain(const Job& job, const Elements& layer, const std::vector<int64_t>& parts,
                 Block& head) {
  Ids root;
  int64_t elements = 0;
  for (const int64_t part : parts) {
    root.Add(AddFlat(job, "gathered.root", part, Stream::kCompute, head));
    elements = Add(elements, part);
  }
  const TensorId output = AddFlat(job, "gather.output", elements, Stream::kAllGather, head);
  const TensorId next = AddFlat(job, "gather.output", layer.all, Stream::kAllGather, head);
  const size_t last = LastProduct(head);
  for (size_t i = 0; i <= last; ++i) {
    for (const TensorId part : root) head.ops[i].forward_temporaries.Add(part);
    for (const TensorId part : root) head.ops[i].backward_temporaries.Add(part);
    head.ops[i].backward_temporaries.Add(next);
  }
  const TensorId made = head.ops[last].outputs.ids[0];
  const auto seen = static_cast<TensorId>(head.tensors.size());
  head.tensors.push_back(head.tensors[made]);
  for (size_t i = last + 1; i < head.ops.size(); ++i) {
    head.ops[i].inputs.Replace(made, seen);
    head.ops[i].saved.Replace(made, seen);
  }
  Op gathers{.name = "gathered.root",
             .inputs = {made},
             .outputs = {seen},
             .backward_temporaries = {output},
             .input_gradient = InputGradient::kShared};
  for (const TensorId part : root) gathers.backward_temporaries.Add(part);
  InsertOp(head, last + 1, gathers);
}

// A root group that goes when the model's forward is over, and is gathered again behind the loss's
// backward.
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_state.py, _post_forward, _pre_backward.
void AddReshardedRoot(const Job& job, const Elements& layer, const Groups& groups,
                      Program& program) {
  constexpr Alive kInLayers = During(Phase::kForward, Phase::kForward, true, true) |
                              During(Phase::kBackward, Phase::kBackward, true, true);
  const Elements root = RootOf(groups, program);
  const std::vector<int64_t> parts = PartsOf(groups, program);
  AddGathered(job, root.all,
              {.name = "gathered.root",
               .place = Place::kEverywhere,
               // Buffers are of one size, and a shared table is all but the norm.
               .buffers = job.model->tied_embeddings ? 1 : static_cast<int64_t>(parts.size()),
               .until_reduced = GoesInBackward(job),
               .alive = kInLayers},
              program);
  for (size_t i = 0; i < groups.size(); ++i) {
    Block& block = program.blocks[i];
    if (block.kind == BlockKind::kHead) {
      GatherAgain(job, layer, parts, block);
      AddHeadGradients(job, groups[i], program);
    } else if (block.kind == BlockKind::kEmbedding) {
      AddReduce(job, block, root);
      AddRootGather(job, root, block);
    }
  }
}

// Of FSDP1's flat shards one parameter may be all. Source: torch/distributed/fsdp/_flat_param.py,
// _get_shard_metadata, _use_sharded_views.
void CapLoops(const Job& job, const Groups& groups, const Elements& root, Program& program) {
  int64_t most = root.trained;
  for (size_t i = 0; i < groups.size(); ++i) {
    const bool layer = program.blocks[i].kind == BlockKind::kLayer;
    if (layer) most = std::max(most, groups[i].trained);
  }
  for (State& state : program.states) {
    if (state.basis != Basis::kLargest) continue;
    state.most_bytes = Bytes(state.dtype, CeilDivide(most, job.shard_group_size));
  }
}

// FSDP1 makes what it will gather into, and frees it, before the first step, of the root first;
// where forward reads another dtype also the shard in that, and all in the master's: of what is
// trained, as frozen weights are in forward's dtype already. The root's shard is the largest that
// is cast later, or comes from the host.
// Source: torch/distributed/fsdp/_flat_param.py, init_flat_param_attributes,
// _use_low_precision_shard, flat_param_to.
void AddSetUp(const Job& job, const Elements& group, Program& program) {
  const int64_t cast = job.precision.master != DType::kNone ? group.trained : 0;
  const int64_t cast_shard = CeilDivide(cast, job.shard_group_size);
  const auto add = [&](absl::string_view name, DType dtype, int64_t elements) -> State& {
    program.states.push_back({.name = name,
                              .basis = Basis::kBytes,
                              .dtype = dtype,
                              .fixed_bytes = Bytes(dtype, elements),
                              .sets_up_behind = true,
                              .alive = 0});
    return program.states.back();
  };
  const int64_t shard = CeilDivide(group.all, job.shard_group_size);
  if (cast > 0) add("set_up.shard", job.precision.parameter, cast_shard);
  add("set_up.gathered", job.precision.parameter, Multiply(shard, job.shard_group_size));
  if (cast > 0) {
    add("set_up.gathered.wide", job.precision.master, cast);
    add("set_up.cast", job.precision.parameter, cast_shard).stream = Stream::kCopyIn;
  }
  if (!job.offload_parameters) return;
  State& copied = add("set_up.copied", job.precision.Stepped(), shard);
  copied.stream = Stream::kCopyIn;
  copied.sets_up_beside = cast > 0;
}

// The larger parameters of a group as it is cut, whole.
void AddWholeGroup(const Job& job, const Block& block, bool beside, Program& program) {
  constexpr int64_t kSmall = int64_t{1} << 20;
  const bool has_master = job.precision.master != DType::kNone;
  for (const Parameter& parameter : block.parameters) {
    const bool wide = has_master && !parameter.frozen;
    const DType dtype = wide ? job.precision.master : parameter.dtype;
    const int64_t bytes = parameter.tied ? 0 : Bytes(dtype, parameter.Elements());
    if (bytes < kSmall) continue;
    program.states.push_back({.name = "set_up.whole",
                              .basis = Basis::kBytes,
                              .dtype = dtype,
                              .fixed_bytes = bytes,
                              .sets_up_behind = true,
                              .sets_up_beside = std::exchange(beside, true),
                              .alive = 0});
  }
}

// Each group in turn; accelerate refers to the tables of embedding and head until all are cut.
// Source: accelerate utils/fsdp_utils.py, fsdp2_prepare_model (input_weight, output_weight).
void AddWholeGroups(const Job& job, Program& program) {
  for (const Block& block : program.blocks) {
    if (block.kind == BlockKind::kLayer) AddWholeGroup(job, block, false, program);
  }
  for (const Block& block : program.blocks) {
    const bool head = block.kind == BlockKind::kHead;
    if (block.kind != BlockKind::kLayer) AddWholeGroup(job, block, head, program);
  }
}

// Flat gradients that stay whole are reduced with the last micro-batch, a unit as backward passes
// it. What the root has then is here when backward is over: its gradients of before, those of the
// last micro-batch, and what these are cast to; else what they are made of, beside what is
// gathered. Source: torch/distributed/fsdp/_runtime_utils.py, _post_backward_hook
// (_sync_gradients); seen under the phantom.
void ReduceWhole(const Job& job, const Groups& groups, Program& program) {
  const bool cast = job.precision.reduce != job.precision.gradient;
  program.adds_flat = true;
  program.adds_flat_ends = job.micro_batch_count > 2;
  if (cast) program.flat_cast = job.precision.reduce;
  for (State& state : program.states) {
    if (state.grows_in_backward) {
      state.adds_up = true;
      state.alive = 0;
    } else if (state.part == Part::kGradients) {
      state.alive |= kReductionPhase;
    }
  }
  const auto add = [&](absl::string_view name, int64_t bytes, Stream stream) {
    program.states.push_back({.name = name,
                              .role = Role::kGradient,
                              .basis = Basis::kBytes,
                              .fixed_bytes = bytes,
                              .stream = stream,
                              .alive = kReductionPhase});
  };
  const DType sharded = job.precision.Stepped();
  for (size_t i = 0; i < groups.size(); ++i) {
    if (program.blocks[i].kind == BlockKind::kLayer) continue;
    const int64_t elements = groups[i].trained;
    const int64_t whole = Bytes(job.precision.gradient, elements);
    const int64_t share = Bytes(sharded, CeilDivide(elements, job.shard_group_size));
    add("gradients.root", whole, Stream::kAllGather);
    add("gradients.root.last", whole, Stream::kAllGather);
    if (cast) {
      add("reduce.input", Bytes(job.precision.reduce, elements), Stream::kReduceScatter);
    } else {  // a rank's share is not there yet
      add("gradients.root.made", whole, Stream::kCompute);
      add("gathered.root.last", std::max<int64_t>(whole - share, 0), Stream::kAllGather);
    }
  }
}

// FSDP1's gradients of a unit become one flat tensor in the stream that gathers its weights:
// their views were made there, and autograd runs backward where forward was. It casts that in
// the stream that reduces it.
// Source: torch/distributed/fsdp/_runtime_utils.py, _unshard, _post_backward_hook;
// _flat_param.py, _use_unsharded_views; torch/csrc/autograd/input_metadata.h, stream.
void ApplyFlatUnits(const Job& job, const Groups& groups, Program& program) {
  const bool cast = job.precision.reduce != job.precision.gradient;
  program.reduce_stream = cast ? Stream::kReduceScatter : Stream::kAllGather;
  const Elements root = RootOf(groups, program);
  CapLoops(job, groups, root, program);
  const Elements largest = LargestLayer(groups, program);
  if (KeepsFlat(job)) ReduceWhole(job, groups, program);
  AddSetUp(job, root, program);
  AddSetUp(job, largest, program);
}

// TRL makes one group of a reference, which is whole while it runs: gathered, and what it was
// gathered into, beside the policy's head, which waits for its backward: of answers that are
// sampled too, as the policy runs before without gradients (seen under the phantom). It is whole on
// the GPU when it is cut, too. Source: trl models/utils.py, prepare_fsdp.
void GatherReference(const Job& job, const Groups& groups, Program& program) {
  if (job.reference != Reference::kModel) return;
  int64_t whole = 0;
  int64_t head = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (program.blocks[i].kind == BlockKind::kHead) head = groups[i].all;
    const int64_t times = CountOnStage(program.blocks[i], WholeStage(job.model->layer_count));
    whole = Add(whole, Multiply(times, groups[i].all));
  }
  const bool own = !HasRootGroup(job) && !SharesTable(job) && job.reshard_after_forward;
  for (Block& block : program.reference) {
    Ids gathered{AddFlat(job, "gathered.reference", whole, Stream::kCompute, block),
                 AddFlat(job, "gather.output", whole, Stream::kAllGather, block)};
    if (own) gathered.Add(AddFlat(job, "gathered.head", head, Stream::kCompute, block));
    for (const TensorId id : gathered) block.ops.back().inputs.Add(id);
    InsertOp(block, 0, {.name = "gathered.reference", .outputs = gathered});
  }
  State set_up = *std::find_if(program.states.begin(), program.states.end(),
                               [](const State& at) { return at.part == Part::kReference; });
  set_up.name = "set_up.reference";
  set_up.part = Part::kOther;
  set_up.shards = 1;
  set_up.shards_rows = false;
  set_up.shrunk_by = 0;
  set_up.sets_up_behind = true;
  set_up.alive = 0;
  program.states.push_back(set_up);
}

// What is reduced last stands until backward is over, and beside it what it becomes while that is
// cast to the shards' dtype: of two ranks more than there was before.
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, foreach_reduce (reduce_output).
void AddLastReduce(const Job& job, int64_t elements, Program& program) {
  if (job.profile->flat_units || elements == 0) return;
  if (job.precision.Stepped() == job.precision.reduce) return;
  const int64_t share = CeilDivide(elements, job.shard_group_size);
  State reduced{.name = "reduce.input",
                .role = Role::kCommunication,
                .place = Place::kEmbeddingStage,
                .basis = Basis::kBytes,
                .fixed_bytes = Bytes(job.precision.reduce, elements),
                .alive = kReductionPhase};
  program.states.push_back(reduced);
  reduced.name = "reduce.output";
  reduced.fixed_bytes = Bytes(job.precision.reduce, share);
  reduced.stream = Stream::kReduceScatter;
  program.states.push_back(reduced);
}

}  // namespace

void ApplyFsdp(const Job& job, Program& program) {
  ShardUnitStates(job, program);
  const bool shares = SharesTable(job);
  const bool root = HasRootGroup(job) || shares;
  const bool stays = !job.reshard_after_forward;
  Groups groups = GroupsOf(job, program);
  if (job.profile->flat_units) ApplyFlatUnits(job, groups, program);
  if (job.offload_parameters) MoveToHost(job, program);
  KeepShares(job, groups);
  const Elements of_layer = LargestLayer(groups, program);
  const Elements of_last = LastLayer(job, groups, program);
  GatherReference(job, groups, program);
  if (job.profile->shards_on_gpu && !job.offload_parameters) AddWholeGroups(job, program);
  for (size_t i = 0; i < groups.size(); ++i) {
    Block& block = program.blocks[i];
    const bool layer = block.kind == BlockKind::kLayer;
    if (root && !layer) continue;
    const Elements& elements = groups[i];
    GatherBlock(job, elements, of_layer, program.row_shards, block);
    const bool reads = block.kind == BlockKind::kHead && HeadIsRead(job);
    const bool apart = GathersHeadApart(job);
    const Elements* const own = apart ? nullptr : &elements;
    if (reads) GatherAroundHead(job, own, of_last, !apart && Prefetches(job), block);
    AddReduce(job, block, elements);
    block.reduced_at_once = block.kind == BlockKind::kHead && RunsBackwardApart(job);
    if (stays && GoesInBackward(job)) {
      HoldGroup(job, elements.all, block);
    } else if (stays && !layer) {
      const bool head = block.kind == BlockKind::kHead;
      AddGathered(job, elements.all,
                  {.name = head ? "gathered.head" : "gathered.embedding",
                   .place = head ? Place::kHeadStage : Place::kEmbeddingStage,
                   .alive = kForwardToBackward},
                  program);
    }
  }
  const bool goes = (shares && !job.profile->keeps_shared_table) || job.profile->reshards_root;
  if (root && goes && !stays) {
    AddReshardedRoot(job, of_last, groups, program);
  } else if (root) {
    AddRootGroup(job, of_last, groups, program);
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    if (program.blocks[i].kind != BlockKind::kEmbedding) continue;
    AddLastReduce(job, root ? RootOf(groups, program).trained : groups[i].trained, program);
  }
  if (job.last_block_gathered) {
    AddGathered(job, of_last.all,
                {.name = "gathered.last_layer", .place = Place::kHeadStage, .alive = kLossAlone},
                program);
  } else if (stays && !GoesInBackward(job)) {
    AddGathered(
        job, of_layer.all,
        {.name = "gathered.layers", .place = Place::kEverywhere, .alive = kForwardToBackward},
        program);
    program.states.back().basis = Basis::kBytesPerLayer;
  }
}

}  // namespace plimsoll
