#include <algorithm>
#include <vector>

#include "estimator/passes/model_part.h"
#include "estimator/passes/pass.h"
#include "estimator/program/parameter_sums.h"
#include "estimator/program/weight_casts.h"

namespace plimsoll {
namespace {

// States exist from the first optimizer step on.
constexpr Alive kFromFirstStep = During(Phase::kOptimizer, Phase::kEndOfStep, true, false) |
                                 During(Phase::kForward, Phase::kEndOfStep, false, true);
constexpr Alive kReductionAndStep =
    During(Phase::kGradientReduction, Phase::kOptimizer, true, true);

// The rows of a layer's quantized matrices, and these.
struct Matrices {
  int64_t count = 0;
  int64_t rows = 0;
};
Matrices QuantizedMatrices(const Program& program) {
  Matrices found;
  for (const Block& block : program.blocks) {
    if (block.kind != BlockKind::kLayer || found.count > 0) continue;
    for (const Parameter& at : block.parameters) {
      if (!at.quantized) continue;
      found.count += at.packed() ? 0 : 1;
      found.rows = Add(found.rows, at.shape.extents[0].size);
    }
  }
  return found;
}

// Of 8 bits each row has a scale. Source: bitsandbytes/nn/modules.py, Int8Params._quantize (SCB).
void AddByteScales(Program& program) {
  program.states.push_back({.name = "weights.scales",
                            .role = Role::kWeight,
                            .basis = Basis::kBytesPerLayer,
                            .fixed_bytes = Bytes(DType::kFp32, QuantizedMatrices(program).rows)});
}

// What a quantized matrix has beside its weight. Scales are fp32, one for each 64 elements;
// quantized themselves they are a byte, and of each 256 there is one fp32.
// torchao's scales of scales are 16-bit, and there are two tables.
// Source: bitsandbytes/functional.py, quantize_4bit, QuantState; nn/modules.py, Params4bit; torchao
// dtypes/nf4tensor.py, NF4Tensor.from_tensor.
void AddQuantizedWeights(const Job& job, Program& program) {
  constexpr int64_t kBlock = 64;
  constexpr int64_t kBlocksOfScales = 256;
  constexpr int64_t kAllocatorBlock = 512;  // a table of 16; of scales one of 256, an offset
  if (!job.quantization.has_value()) return;
  const bool nested = job.quantization->double_quantization;
  const bool composed = job.profile->composed_dequantization;
  State state{.name = "weights.quantized",
              .role = Role::kWeight,
              .part = Part::kWeights,
              .dtype = job.quantization->format,
              .of = Selection::kQuantized};
  program.states.push_back(state);
  if (state.dtype == DType::kInt8) return AddByteScales(program);
  state.name = "weights.scales";
  state.dtype = nested ? DType::kInt8 : DType::kFp32;
  state.block_size = kBlock;
  program.states.push_back(state);
  if (nested) {
    state.name = "weights.scales.scales";
    state.dtype = composed ? job.quantization->compute_dtype : DType::kFp32;
    state.block_size = kBlock * kBlocksOfScales;
    program.states.push_back(state);
  }
  const int64_t matrices = QuantizedMatrices(program).count;
  const int64_t tables = composed ? 2 : (nested ? 4 : 1);
  program.states.push_back({.name = "weights.codes",
                            .role = Role::kWeight,
                            .basis = Basis::kBytesPerLayer,
                            .fixed_bytes = matrices * kAllocatorBlock * tables});
}

// Storages that products by quantized matrices keep.
int64_t HeldInputBytes(const Block& block) {
  int64_t bytes = 0;
  std::vector<bool> seen(block.tensors.size());
  const auto quantized = [&block](TensorId id) { return block.parameters[id].quantized; };
  for (const Op& op : block.ops) {
    const bool any = std::any_of(op.parameters.begin(), op.parameters.end(), quantized);
    if (!any || op.saved.count == 0) continue;
    const TensorId input = block.tensors[op.inputs.ids[0]].storage;
    if (!seen[input]) bytes = Add(bytes, block.tensors[input].Bytes());
    seen[input] = true;
  }
  return bytes;
}

// What a product by a quantized matrix keeps is no saved tensor of autograd: it goes with the
// graph, to which the training loop refers until the next micro-batch's loss is made. Source:
// bitsandbytes 0.42.0, autograd/_functions.py, MatMul4Bit (ctx.tensors); litgpt finetune/lora.py,
// fit (`loss`); seen under the phantom.
void AddHeldInputs(const Job& job, Program& program) {
  if (!job.quantization.has_value() || !job.profile->keeps_quantized_inputs) return;
  const bool several = job.micro_batch_count > 1;
  int64_t layer = 0;
  int64_t head = 0;
  for (const Block& block : program.blocks) {
    int64_t& most = block.kind == BlockKind::kHead ? head : layer;
    most = std::max(most, HeldInputBytes(block));
  }
  State state{.name = "quantized.inputs.before",
              .role = Role::kActivation,
              .basis = Basis::kBytesPerLayer,
              .fixed_bytes = layer,
              .alive = During(Phase::kForward, Phase::kLoss, several, true)};
  program.states.push_back(state);
  state.place = Place::kHeadStage;
  state.basis = Basis::kBytes;
  state.fixed_bytes = head;
  program.states.push_back(state);
}

// A table that stands in the embedding's place, the old one beside it, and its gradient from the
// first backward on.
// Source: litgpt finetune/lora.py, main, StableEmbedding.
void AddReplacedEmbedding(const Job& job, Program& program) {
  if (!job.quantization.has_value() || !job.profile->replaces_embedding) return;
  const auto embedding =
      std::find_if(program.blocks.begin(), program.blocks.end(),
                   [](const Block& block) { return block.kind == BlockKind::kEmbedding; });
  const Parameter& table = embedding->parameters.front();
  State state{.name = "weights.embedding.before",
              .role = Role::kWeight,
              .place = Place::kEmbeddingStage,
              .basis = Basis::kBytes,
              .fixed_bytes = Bytes(table.dtype, table.Elements())};
  program.states.push_back(state);
  state.name = "gradients.embedding";
  state.role = Role::kGradient;
  state.alive = During(Phase::kGradientReduction, Phase::kEndOfStep, true, false) |
                During(Phase::kForward, Phase::kEndOfStep, false, true);
  program.states.push_back(state);
}

// Under autocast a product has a 16-bit copy of its weight, until its backward. Where layers run
// again, and cast again, another lives in autocast's cache until the loss is made; the head, which
// runs once, keeps the one that is in there. With TRL the loss is made behind the model's forward,
// where autocast ends. Source: aten/src/ATen/autocast_mode.cpp, cached_cast, clear_cache;
// accelerate, accelerator.py, prepare_model.
void AddCasts(const Job& job, Program& program) {
  if (!job.precision.autocast) return;
  if (program.states.front().dtype == job.precision.Product()) return;
  for (Block& block : program.blocks) AddWeightCasts(job, block);
  if (job.recompute != RecomputeMode::kFull) return;
  const bool behind = job.profile->tiled_log_probs;
  const Phase last = behind ? Phase::kForward : Phase::kLoss;
  program.states.push_back({.name = "weights.cast",
                            .role = Role::kWeight,
                            .basis = Basis::kCached,
                            .dtype = job.precision.Product(),
                            .until_backward = true,
                            .alive = During(Phase::kForward, last, true, true)});
}

// Copies of the matrices that products read in fp8, made in the first forward and filled anew in
// each step's; or these alone. Source: transformer_engine/pytorch/module/base.py, quantize_weight;
// Megatron core/extensions/transformer_engine.py, is_first_microbatch; core/fp8_utils.py,
// get_fp8_context (fp8_model_init).
void AddFp8Weights(const Job& job, Program& program) {
  if (!job.fp8.has_value()) return;
  if (job.fp8->parameters) program.states.back().basis = Basis::kNotFp8;
  State state{.name = "weights.fp8",
              .role = Role::kWeight,
              .basis = Basis::kFp8,
              .dtype = job.fp8->Format()};
  program.states.push_back(state);
  if (job.Fp8CopyCount() == 1) return;
  state.name = "weights.fp8.transposed";
  program.states.push_back(state);
}

void AddWeights(const Job& job, Program& program) {
  program.states.push_back({.name = "weights",
                            .role = Role::kWeight,
                            .part = Part::kWeights,
                            .dtype = job.precision.parameter});
  AddFp8Weights(job, program);
  if (job.FreezesWeights()) {
    State& frozen = program.states.emplace_back(program.states.back());
    frozen.name = "weights.frozen";
    frozen.of = Selection::kFrozen;
  }
  if (job.adapter.has_value()) program.states.front().dtype = job.AdapterDType();
  AddQuantizedWeights(job, program);
  AddHeldInputs(job, program);
  AddReplacedEmbedding(job, program);
  AddCasts(job, program);
  if (job.precision.master != DType::kNone) {
    program.states.push_back({.name = "master_weights",
                              .role = Role::kMasterWeight,
                              .part = Part::kMasterWeights,
                              .dtype = job.precision.master,
                              .buffers = job.profile->flat_master ? 1 : 0});
  }
}

bool IsFused(const Job& job) {
  return job.optimizer_implementation == OptimizerImplementation::kFused;
}

// Values of each parameter that a `foreach` step makes at once: until torch 2.2 Adam's root and
// that with epsilon beside it. Source: torch 2.1, optim/adamw.py, _multi_tensor_adamw.
int64_t ForeachValues(const Job& job) {
  constexpr int kInPlace = 2002;
  const bool beside =
      IsAdam(job.optimizer) && job.torch_version >= 0 && job.torch_version < kInPlace;
  return beside ? 2 : RowOf(job.optimizer).temporaries.foreach_values;
}

// Copies of the largest parameter that a loop over parameters makes.
int64_t LoopCopies(const Job& job) {
  const StepTemporaries& made = RowOf(job.optimizer).temporaries;
  return job.precision.Stepped() == DType::kFp32 ? made.loop_copies : made.loop_copies_of_16bit;
}

// Copies of tables that are trained whole, in the weights' dtype: what Adam keeps of each, and what
// a step makes. Gradients of earlier micro-batches stand from the first one's backward on.
// Source: peft/utils/other.py, ModulesToSaveWrapper.
void AddTrainedModules(const Job& job, Program& program) {
  const Adapter& adapter = *job.adapter;
  const bool several = job.micro_batch_count > 1;
  for (const Block& block : program.blocks) {
    const bool head = block.kind == BlockKind::kHead;
    if (block.kind == BlockKind::kLayer) continue;
    if (!adapter.Trains(head ? TrainedModule::kHead : TrainedModule::kEmbedding)) continue;
    const auto table =
        std::find_if(block.parameters.begin(), block.parameters.end(), [head](const Parameter& at) {
          return at.name == (head ? "head.weight" : "embedding.tokens.weight");
        });
    const Phase first =
        several ? Phase::kForward : (head ? Phase::kBackward : Phase::kGradientReduction);
    State state{.name = "weights.trained_modules",
                .role = Role::kWeight,
                .place = head ? Place::kHeadStage : Place::kEmbeddingStage,
                .basis = Basis::kBytes,
                .dtype = table->dtype,
                .fixed_bytes = Bytes(table->dtype, table->Elements())};
    const auto add = [&](absl::string_view name, Role role, Alive alive) {
      state.name = name;
      state.role = role;
      state.alive = alive;
      program.states.push_back(state);
    };
    add(state.name, Role::kWeight, kAlways);
    add("gradients.trained_modules", Role::kGradient, During(first, Phase::kOptimizer, true, true));
    add("optimizer.momentum.trained_modules", Role::kOptimizerState, kFromFirstStep);
    add("optimizer.variance.trained_modules", Role::kOptimizerState, kFromFirstStep);
    if (IsFused(job)) continue;
    for (int64_t i = ForeachValues(job); i > 0; --i) {
      add("optimizer.temporaries.trained_modules", Role::kTemporary, kOptimizerPhase);
    }
  }
}

// Tensors of the last micro-batch that Python still refers to in the step: the
// stage's input and output, and with DeepSpeed's engine three fp32 tensors of
// the loss on the last stage.
// Source: Megatron-LM v2.4, megatron/schedules.py; measured to 0.1 MiB, data
// notes A 1.2 (the three of DeepSpeed's are seen, not read in its source).
void AddHeldTensors(const Job& job, Program& program) {
  const bool output = !job.profile->deallocates_outputs;
  const int64_t tokens = job.LocalTokens();
  const int64_t hidden = Bytes(job.precision.activation, Multiply(tokens, job.model->hidden_size));
  program.states.push_back({.name = "pipeline.held",
                            .role = Role::kActivation,
                            .basis = Basis::kBytes,
                            .fixed_bytes = output ? Multiply(2, hidden) : hidden,
                            .alive = kReductionAndStep});
  if (!job.profile->holds_loss) return;
  const int64_t vocab = CeilDivide(job.padded_vocab_size, job.tensor_parallel_size);
  program.states.push_back(
      {.name = "loss.held",
       .role = Role::kLoss,
       .place = Place::kHeadStage,
       .basis = Basis::kBytes,
       .fixed_bytes = Multiply(3, Bytes(DType::kFp32, Multiply(tokens, vocab))),
       .alive = During(Phase::kGradientReduction, Phase::kEndOfStep, true, true)});
}

// 2021's Megatron: `.grad` in 16 bits; the last step's is still referred to as
// `main_grad` until its successor is, and the optimizer's fp32 copies are not freed
// before each is made anew: 22 bytes a parameter from the second step on. All are
// reduced as one flat copy, whatever the number of data-parallel ranks.
// Source: Megatron-LM v2.4, megatron/optimizer/optimizer.py, megatron/model/
// distributed.py, allreduce_gradients, and measured (data notes A 1.2).
void AddStaleGradients(const Job& job, Program& program) {
  program.states.push_back({.name = "gradients",
                            .role = Role::kGradient,
                            .part = Part::kGradients,
                            .dtype = job.precision.gradient,
                            .grows_in_backward = true,
                            .alive = kReductionAndStep});
  AddHeldTensors(job, program);
  const bool never_freed = job.profile->gradient_sums == GradientSums::kStale;
  if (never_freed) {
    constexpr Alive kStale = During(Phase::kForward, Phase::kBackward, false, true) |
                             During(Phase::kEndOfStep, Phase::kEndOfStep, true, true);
    program.states.push_back({.name = "gradients.stale",
                              .role = Role::kGradient,
                              .part = Part::kGradients,
                              .dtype = job.precision.gradient,
                              .takes_grown = true,
                              .alive = kStale});
    program.states.push_back({.name = "gradients.flat",
                              .role = Role::kCommunication,
                              .dtype = job.precision.gradient,
                              .buffers = 1,
                              .alive = kReductionPhase});
  }
  program.states.push_back({.name = "gradients.main",
                            .role = Role::kGradient,
                            .part = never_freed ? Part::kGradientSums : Part::kStepCopies,
                            .dtype = job.precision.master,
                            .alive = never_freed ? kFromFirstStep : kOptimizerPhase});
  if (!never_freed) return;
  // One at a time; the step's own temporaries come after it, and are no smaller.
  const bool makes_own = !IsFused(job) && ForeachValues(job) > 0;
  program.states.push_back({.name = "gradients.main.next",
                            .role = Role::kGradient,
                            .basis = makes_own ? Basis::kBytes : Basis::kLargest,
                            .dtype = job.precision.master,
                            .remakes_last = true,
                            .alive = During(Phase::kOptimizer, Phase::kOptimizer, false, true)});
}

// One buffer for the sum over micro-batches, made at start. nanotron's backward
// leaves a 16-bit `.grad` beside it until the backward pass ends.
// Source: megatron/core/distributed/param_and_grad_buffer.py; nanotron
// optim/gradient_accumulator.py, FP32GradientAccumulator.
void AddContiguousGradients(const Job& job, Program& program) {
  program.states.push_back({.name = "gradients.main",
                            .role = Role::kGradient,
                            .part = Part::kGradientSums,
                            .dtype = job.precision.accumulation,
                            .buffers = 1});
  if (job.profile->weight_gradient == WeightGradient::kKept) {
    program.states.push_back({.name = "gradients",
                              .role = Role::kGradient,
                              .part = Part::kGradients,
                              .dtype = job.precision.gradient,
                              .grows_in_backward = true,
                              .alive = 0});
  }
  // The optimizer reads fp32: a narrower buffer is copied for the step, and the
  // copy stays until the next step zeroes gradients.
  // Source: megatron/core/optimizer/distrib_optimizer.py and optimizer.py,
  // _copy_model_grads_to_main_grads, zero_grad; measured to 1 MiB on megatron_ci's fp16 rows.
  if (job.precision.accumulation != DType::kFp32 && job.precision.master == DType::kFp32) {
    program.states.push_back({.name = "gradients.step",
                              .role = Role::kGradient,
                              .part = Part::kStepCopies,
                              .dtype = DType::kFp32,
                              .alive = During(Phase::kOptimizer, Phase::kEndOfStep, true, true)});
  }
}

// `.grad` is made as backward passes each layer and dropped after the step; a
// wider sum, where there is one, lives from start.
void AddPlainGradients(const Job& job, Program& program) {
  if (job.precision.SumsWide()) {
    program.states.push_back({.name = "gradients.main",
                              .role = Role::kGradient,
                              .part = Part::kGradientSums,
                              .dtype = job.precision.accumulation});
  }
  if (job.optimizer_in_backward) {  // which takes each as it is made
    program.weight_gradient = WeightGradient::kAdded;
    return;
  }
  program.states.push_back({.name = "gradients",
                            .role = Role::kGradient,
                            .part = Part::kGradients,
                            .dtype = job.precision.gradient,
                            .grows_in_backward = true,
                            .alive = kReductionAndStep});
}

void AddGradients(const Job& job, Program& program) {
  switch (job.profile->gradient_sums) {
    case GradientSums::kStale:
    case GradientSums::kCopied:
      if (job.precision.accumulation == DType::kFp32) {
        AddPlainGradients(job, program);
      } else {
        AddStaleGradients(job, program);
      }
      break;
    case GradientSums::kContiguous:
      AddContiguousGradients(job, program);
      break;
    case GradientSums::kPlain:
      AddPlainGradients(job, program);
      break;
  }
  // Two norms a tensor, one allocator block each. Source: torch/nn/utils/clip_grad.py.
  if (!job.gradient_clipping) return;
  int64_t tensors = 0;
  for (const Block& block : program.blocks) {
    tensors = Add(tensors, std::count_if(block.parameters.begin(), block.parameters.end(),
                                         [](const Parameter& at) { return !at.frozen; }));
  }
  constexpr int64_t kAllocatorBlock = 512;
  program.states.push_back({.name = "gradients.norms",
                            .role = Role::kTemporary,
                            .basis = Basis::kBytes,
                            .fixed_bytes = Multiply(tensors, kAllocatorBlock),
                            .alive = kReductionPhase});
}

Basis BasisOf(const Job& job, StateBasis of) {
  switch (of) {
    case StateBasis::kEach:
    case StateBasis::kReplicaShare:
      return Basis::kParameters;
    case StateBasis::kProjected:
      return Basis::kProjected;
    case StateBasis::kProjector:
      return Basis::kProjectors;
    case StateBasis::kFactor:  // narrower ones are casts, of these vectors alone
      return job.precision.Stepped() == DType::kFp32 ? Basis::kFactors : Basis::kProjectors;
    case StateBasis::kPicked:
      return Basis::kPicked;
    case StateBasis::kRest:
      return Basis::kOthers;
    case StateBasis::kRowsAndColumns:
      return Basis::kRowsAndColumns;
  }
  return Basis::kParameters;
}

// torch.optim makes all states of a parameter, then those of the next; Megatron's
// optimizer orders parameters by its buffers, and has state after state here.
// DeepSpeed makes states when it wraps the optimizer, and a checkpoint brings
// its own. Scales are on the GPU where states are paged. Source: torch/optim/adam.py, _init_group;
// deepspeed/runtime/fp16/fused_optimizer.py, initialize_optimizer_states;
// torch/optim/optimizer.py, load_state_dict; bitsandbytes/optim/optimizer.py, init_state.
void AddStates(const Job& job, Program& program) {
  const OptimizerRow& row = RowOf(job.optimizer);
  constexpr Alive kFromFirstBackward = During(Phase::kBackward, Phase::kEndOfStep, true, false) |
                                       During(Phase::kForward, Phase::kEndOfStep, false, true);
  const Alive once_stepped = job.optimizer_in_backward ? kFromFirstBackward : kFromFirstStep;
  const bool at_start =
      row.made_with_it || job.profile->states_at_start || job.resumed_from_checkpoint;
  for (const OptimizerState& of : row.states) {
    const bool shared = of.of == StateBasis::kReplicaShare;
    program.states.push_back({.name = of.name,
                              .role = Role::kOptimizerState,
                              .part = Part::kOptimizerStates,
                              .basis = BasisOf(job, of.of),
                              .dtype = of.dtype == DType::kNone ? job.precision.state : of.dtype,
                              .shards = shared ? job.ReplicaCount() : 1,
                              .block_size = of.block_size,
                              .pages = job.paged_states && of.block_size == 1,
                              .buffers = of.flat ? 1 : 0,
                              .beside_others = job.profile->states_by_parameter && !of.flat,
                              .with_gradients = job.optimizer_in_backward && !at_start,
                              .alive = at_start ? kAlways : once_stepped});
  }
}

// Those whose states are others than of the rest. Source: torch/optim/_muon.py;
// bitsandbytes/optim/optimizer.py, min_8bit_size; transformers trainer.py, create_optimizer
// (register_module_override).
bool IsPicked(const Job& job, BlockKind kind, const Parameter& at) {
  constexpr int64_t kLeastNarrow = 4096;
  if (at.frozen) return false;
  switch (RowOf(job.optimizer).picks) {
    case Picks::kNone:
      return false;
    case Picks::kMatrices:
      if (at.of_experts() && !job.profile->dispatches_experts) return false;  // one tensor of all
      return kind == BlockKind::kLayer && at.shape.rank == (at.of_experts() ? 3 : 2);
    case Picks::kTargets: {
      const ModelPart part = PartOf(kind, at.name);
      const bool linear = at.shape.rank == 2 && !at.bare && !at.tied;
      return linear && (job.projection->parts & BitOf(part)) != 0;
    }
    case Picks::kLarge: {
      // A flat share is nobody's weight.
      const bool own = at.embedding && !job.EngineShares();
      const bool wide = own && job.profile->wide_embedding_states;
      return at.Elements() >= kLeastNarrow && !wide;
    }
  }
  return false;
}

// There are no more singular vectors than the shorter side has elements.
int32_t RankOf(const Job& job, const Parameter& matrix) {
  const auto& sides = matrix.shape.extents;
  const int64_t shorter = std::min(sides[0].Local(), sides[1].Local());
  const int64_t rank = job.projection->rank;
  return static_cast<int32_t>(RowOf(job.optimizer).factorizes ? std::min(rank, shorter) : rank);
}

void Pick(const Job& job, Program& program) {
  for (Block& block : program.blocks) {
    for (Parameter& at : block.parameters) {
      at.picked = IsPicked(job, block.kind, at);
      if (at.picked && job.projection.has_value()) at.projected_rank = RankOf(job, at);
    }
  }
}

// Of a matrix that Megatron's Muon makes orthogonal: fp32 values of it, of those scaled and of
// those scaled again; queries, keys and values, which are parted first, take as much with what they
// are joined to. A rank takes its own part of what ranks split (muon_tp_mode blockwise, the default
// from 0.16 to 0.19).
// Source: Megatron-LM 0.19, core/optimizer/emerging_optimizers.py, TensorParallelMuon;
// Emerging-Optimizers orthogonalized_optimizers/muon_utils.py, newton_schulz.
int64_t MegatronMuonBytes(const Job& /*job*/, const Block& block, size_t parameter) {
  const Parameter& at = block.parameters[parameter];
  const int64_t matrices = at.of_experts() ? at.shape.extents[0].Local() : 1;
  return Multiply(3, Bytes(DType::kFp32, PackedElements(block, parameter) / matrices));
}

constexpr int64_t kWorkspace = int64_t{32} << 20;  // of a step's products, once it has made one

// Of one that torch's makes orthogonal: what its momentum makes of its gradient, two of it and two
// of its shorter side squared in bf16, and the workspace of a product.
// Source: torch/optim/_muon.py, _single_tensor_muon, _zeropower_via_newtonschulz.
int64_t TorchMuonBytes(const Job& job, const Block& block, size_t parameter) {
  const Parameter& at = block.parameters[parameter];
  const int64_t side = std::min(at.shape.extents[0].Local(), at.shape.extents[1].Local());
  const int64_t own = Bytes(job.precision.state, at.Elements());
  const int64_t squares = Bytes(DType::kBf16, Multiply(2, Multiply(side, side)));
  const int64_t copies = Bytes(DType::kBf16, Multiply(2, at.Elements()));
  return Add(Add(own, kWorkspace), Add(copies, squares));
}

// The most that one matrix takes. Or, where that is more, the value of each other parameter that
// AdamW's step makes; Megatron's is fused.
void SizeMuonTemporaries(const Job& job, const Program& program, State& temporary) {
  const bool megatrons = job.profile->sharding == Sharding::kStates;
  const auto bytes = megatrons ? MegatronMuonBytes : TorchMuonBytes;
  int64_t most = 0;
  for (const Block& block : program.blocks) {
    for (size_t i = 0; i < block.parameters.size(); ++i) {
      if (block.parameters[i].picked) most = std::max(most, bytes(job, block, i));
    }
  }
  State rest = temporary;
  temporary.basis = Basis::kBytes;
  temporary.fixed_bytes = most;
  if (megatrons) return;
  rest.basis = Basis::kOthers;
  rest.shards = job.profile->sharding == Sharding::kUnits ? job.shard_group_size : 1;
  const ParameterSums sums = SumParameters(program, WholeStage(job.model->layer_count));
  if (StateBytes(rest, sums) > most) temporary = rest;
}

// Of a matrix, in what is stepped: as large as it, and as large as its gradient is of its rank.
int64_t UpdateBytes(const Job& job, const Parameter& matrix) {
  return Bytes(job.precision.Stepped(), matrix.Elements());
}
int64_t LowBytes(const Job& job, const Parameter& matrix) {
  const auto& sides = matrix.shape.extents;
  const int64_t longer = std::max(sides[0].Local(), sides[1].Local());
  return Bytes(job.precision.Stepped(), Multiply(longer, matrix.projected_rank));
}

// Singular vectors of a gradient: a copy of it in fp32 (of a narrower one two), both factors and
// cuSOLVER's workspace, as large as the matrix and the square of its shorter side.
// Source: galore-torch 1.0 galore_projector.py, get_orthogonal_matrix; torch
// native/cuda/linalg/BatchLinearAlgebraLib.cpp, svd_cusolver_gesvdj; cusolverDnSgesvdj_bufferSize
// of CUDA 13's library, asked without a GPU.
int64_t FactorBytes(const Job& job, const Parameter& matrix) {
  const auto& sides = matrix.shape.extents;
  const int64_t shorter = std::min(sides[0].Local(), sides[1].Local());
  const int64_t copies = job.precision.Stepped() == DType::kFp32 ? 3 : 4;
  return Bytes(DType::kFp32,
               Add(Multiply(copies, matrix.Elements()), Multiply(2, Multiply(shorter, shorter))));
}

// What is made of a projected gradient beside what the last one left: an update as large as the
// matrix, and factors or, where projectors are drawn, another update, beside three of its rank; and
// the workspace of products.
// Source: galore-torch 1.0 adamw.py, step; apollo-torch 1.0.3 apollo.py, step.
int64_t ProjectedBytes(const Job& job, const Parameter& matrix) {
  const int64_t update = UpdateBytes(job, matrix);
  const int64_t low = LowBytes(job, matrix);
  const bool factorizes = RowOf(job.optimizer).factorizes;
  const int64_t beside = factorizes ? FactorBytes(job, matrix) : Add(update, Multiply(2, low));
  return Add(Add(update, low), Add(beside, kWorkspace));
}

// The rest comes first, of which each leaves its root and its update until the next one's are made:
// the last of them while the first gradient is projected.
int64_t FirstProjectedBytes(const Job& job, const Program& program) {
  const Parameter* first = nullptr;
  const Parameter* last = nullptr;
  for (const Block& block : program.blocks) {
    for (const Parameter& at : block.parameters) {
      if (at.frozen || at.tied) continue;
      if (at.picked && first == nullptr) first = &at;
      if (!at.picked) last = &at;
    }
  }
  if (first == nullptr || last == nullptr) return 0;
  const int64_t beside = RowOf(job.optimizer).factorizes
                             ? FactorBytes(job, *first)
                             : Add(Multiply(2, LowBytes(job, *first)), kWorkspace);
  return Add(Multiply(2, UpdateBytes(job, *last)), beside);
}

// The most of these, or two copies of the largest of the rest.
void SizeProjectedTemporaries(const Job& job, const Program& program, State& temporary) {
  int64_t most = FirstProjectedBytes(job, program);
  for (const Block& block : program.blocks) {
    for (const Parameter& at : block.parameters) {
      if (at.frozen) continue;
      const int64_t rest = Multiply(2, UpdateBytes(job, at));
      most = std::max(most, at.picked ? ProjectedBytes(job, at) : rest);
    }
  }
  temporary.basis = Basis::kBytes;
  temporary.fixed_bytes = most;
}

// What the step itself needs: values of all parameters at once with foreach, some copies of the
// largest parameter with a loop, nothing when fused.
void AddStepTemporaries(const Job& job, Program& program) {
  if (IsFused(job)) return;
  State temporary{.name = "optimizer.temporaries",
                  .role = Role::kTemporary,
                  .part = Part::kStepTemporaries,
                  .dtype = job.precision.state,
                  .alive = kOptimizerPhase};
  if (RowOf(job.optimizer).PicksMatrices()) {
    const bool projects = job.projection.has_value();
    (projects ? SizeProjectedTemporaries : SizeMuonTemporaries)(job, program, temporary);
    program.states.push_back(temporary);
    return;
  }
  const bool loops = job.optimizer_implementation == OptimizerImplementation::kForLoop;
  const DType own = RowOf(job.optimizer).temporaries.loop_dtype;
  if (loops) temporary.basis = Basis::kLargest;
  if (loops && own != DType::kNone) temporary.dtype = own;
  const int64_t copies = loops ? LoopCopies(job) : ForeachValues(job);
  for (int64_t i = 0; i < copies; ++i) program.states.push_back(temporary);
}

}  // namespace

Program ApplyOptimizer(const ValidJob& job, Program program) {
  program.states.reserve(20);
  program.weight_gradient = job->profile->weight_gradient;
  if (program.weight_gradient == WeightGradient::kFused && !job->gradient_accumulation_fusion) {
    program.weight_gradient = WeightGradient::kAdded;
  }
  program.gradient_dtype = job->precision.gradient;
  Pick(*job, program);
  AddWeights(*job, program);
  AddGradients(*job, program);
  AddStates(*job, program);
  AddStepTemporaries(*job, program);
  if (job->adapter.has_value()) AddTrainedModules(*job, program);
  return program;
}

}  // namespace plimsoll
