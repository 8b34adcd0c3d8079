#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "estimator/catalog/context_bytes.h"
#include "estimator/passes/pass.h"
#include "estimator/passes/sum_workspace.h"
#include "estimator/passes/virtual_tokens.h"
#include "estimator/program/nccl.h"
#include "estimator/program/parameter_sums.h"

namespace plimsoll {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

void AddBytes(Program& program, absl::string_view name, Role role, int64_t bytes, Alive alive) {
  if (bytes == 0) return;
  program.states.push_back(
      {.name = name, .role = role, .basis = Basis::kBytes, .fixed_bytes = bytes, .alive = alive});
}

// A product by the weights of all experts.
bool IsGrouped(const Block& block, const Op& op) {
  return op.parameters.count > 0 && block.parameters[op.parameters.ids[0]].of_experts();
}

// Else PyTorch multiplies one expert after the other, by cuBLAS.
// Source: aten/src/ATen/native/cuda/GroupedBlas.cpp, _grouped_mm_cuda.
bool GroupsInOneKernel(const Job& job) {
  return job.precision.Grouped() == DType::kBf16 && job.architecture >= GpuArchitecture::kHopper;
}

// From torch 2.15 on each product has a workspace for as long as it runs.
// Source: pytorch #194311, aten CublasHandlePool.cpp, getCurrentCUDABlasWorkspace; seen under the
// phantom, where TORCH_CUBLAS_WORKSPACE_CACHE=1 gives back what was before.
constexpr int kWorkspacePerCall = 2015;
// Of a product with a bias, which cuBLASLt adds.
// Source: aten/src/ATen/cuda/CUDABlas.cpp, gemm_and_bias; native/cuda/Blas.cpp,
// addmm_out_cuda_impl; seen under the phantom.
constexpr int64_t kLtWorkspaceBytes = kMib;

void AddCallWorkspace(const Job& job, Block& block) {
  const auto multiplies = [&](const Op& op) {
    if (IsGrouped(block, op)) return !GroupsInOneKernel(job);
    return op.kind == OpKind::kMatrixProduct || (op.product_depth > 0 && !HasOwnKernel(op));
  };
  if (std::none_of(block.ops.begin(), block.ops.end(), multiplies)) return;
  const TensorId usual = AddWorkspace(block, "workspace.cublas", job.cublas_workspace_bytes);
  const bool biased = std::any_of(block.ops.begin(), block.ops.end(),
                                  [&block](const Op& op) { return HasBias(block, op); });
  const TensorId of_biased =
      biased ? AddWorkspace(block, "workspace.cublaslt", kLtWorkspaceBytes) : usual;
  for (Op& op : block.ops) {
    if (!multiplies(op)) continue;
    op.workspace = usual;
    if (MultipliesBytes(block, op)) continue;  // without one
    op.forward_workspace = HasBias(block, op) ? of_biased : usual;
  }
}

// One cuBLAS workspace for the main thread's handle, one for autograd's.
// Transformer Engine has its own, which a router of dispatched tokens multiplies with too,
// whatever its layers are. Source: megatron/core/transformer/moe/moe_utils.py,
// RouterGatingLinearFunction (te_general_gemm); aten CublasHandlePool.cpp;
// transformer_engine/pytorch/cpp_extensions/gemm.py,
// get_cublas_workspace_size_bytes.
void AddWorkspaces(const Job& job, Program& program) {
  if (job.profile->pooled_workspace && job.torch_version >= kWorkspacePerCall) {
    for (Block& block : program.blocks) AddCallWorkspace(job, block);
    for (Block& block : program.reference) AddCallWorkspace(job, block);
  } else if (job.profile->pooled_workspace) {
    AddBytes(program, "workspace.cublas", Role::kWorkspace, Multiply(2, job.cublas_workspace_bytes),
             kAlways);
    program.states.back().buffers = 2;
    program.states.back().of_threads = true;
  }
  const bool routes = job.profile->dispatches_experts && job.model->experts.Any();
  if (!job.transformer_engine && !routes) return;
  const bool newer = job.architecture == GpuArchitecture::kHopper ||
                     job.architecture == GpuArchitecture::kBlackwell;
  const int64_t bytes = newer ? 32 * kMib + 1024 : 4 * kMib;
  AddBytes(program, "workspace.transformer_engine", Role::kWorkspace, bytes, kAlways);
  // A grouped product runs on streams of its own, each with a workspace.
  // Source: transformer_engine/pytorch/module/base.py, get_multi_stream_cublas_workspace.
  constexpr int64_t kStreams = 4;
  if (!job.grouped_gemm) return;
  AddBytes(program, "workspace.grouped", Role::kWorkspace, Multiply(kStreams, bytes), kAlways);
  program.states.back().buffers = kStreams;
}

// With fused accumulation Transformer Engine returns a dummy gradient, one for
// each shape of weight, kept for ever; Megatron's own product, the head's, too.
// Source: transformer_engine/pytorch/module/base.py, get_dummy_wgrad;
// megatron/core/tensor_parallel/layers.py,
// LinearWithGradAccumulationAndAsyncCommunication.backward.
void AddDummyGradients(const Job& job, Program& program) {
  if (!job.transformer_engine || program.weight_gradient != WeightGradient::kFused) return;
  absl::InlinedVector<absl::string_view, 16> seen;
  for (const Block& block : program.blocks) {
    const bool head = block.kind == BlockKind::kHead;
    if (block.kind == BlockKind::kEmbedding) continue;
    int64_t made = 0;
    for (const Parameter& parameter : block.parameters) {
      if (parameter.shape.rank < 2 || parameter.embedding) continue;
      if (std::find(seen.begin(), seen.end(), parameter.name) != seen.end()) continue;
      seen.push_back(parameter.name);
      const int64_t experts = parameter.of_experts() ? parameter.shape.extents[0].Local() : 1;
      made = Add(made, Bytes(job.precision.gradient, parameter.Elements() / experts));
    }
    AddBytes(program, head ? "gradients.dummy.head" : "gradients.dummy", Role::kWorkspace, made,
             kAlways);
    if (head && made > 0) program.states.back().place = Place::kHeadStage;
  }
}

// Tokens of all ranks that a dispatcher gathers, into the buffer that all gathers share.
// Source: megatron/core/transformer/moe/token_dispatcher.py,
// MoEAllGatherTokenDispatcher.token_dispatch (use_global_buffer).
int64_t GatheredForExperts(const Job& job) {
  const int64_t ranks = Multiply(job.expert_tensor_parallel_size, job.expert_parallel_size);
  const bool gathers = job.token_dispatcher == TokenDispatcher::kAllGather && ranks > 1;
  if (!job.model->experts.Any() || !gathers) return 0;
  const int64_t own = CeilDivide(job.LocalTokens(), job.tensor_parallel_size);
  return Bytes(job.precision.activation, Multiply(Multiply(own, ranks), job.model->hidden_size));
}

// Each layer of latent attention has a rotation of its own: fp32 angles, and cosines and sines as
// weights are; those that are not fused lie there unused, of as many positions as YaRN starts from.
// Source: megatron/core/models/common/embeddings/yarn_rotary_pos_embedding.py, forward (lru_cache),
// _set_cos_sin_cache; core/transformer/transformer_config.py, original_max_position_embeddings.
void AddLatentTables(const Job& job, Program& program) {
  constexpr int64_t kFirstPositions = 4096;
  const bool fused = job.model->position_embedding == PositionEmbedding::kRotary;
  const int64_t width = job.model->latent.rotary_size;
  const int64_t positions = job.LocalSequenceLength();
  const int64_t cached = fused ? positions : CeilDivide(kFirstPositions, job.context_parallel_size);
  const auto add = [&](absl::string_view name, DType dtype, int64_t elements) {
    program.states.push_back({.name = name,
                              .role = Role::kWorkspace,
                              .basis = Basis::kBytesPerLayer,
                              .fixed_bytes = Bytes(dtype, elements)});
  };
  add("attention.rotary.angles", DType::kFp32, Multiply(positions, width));
  add("attention.rotary.cache", job.precision.activation, Multiply(2, Multiply(cached, width)));
}

// Buffers that are made at first use and kept for ever.
//   nanotron  two gathered inputs [B, S, H] (parallel/utils.py, MemoryBuffer)
//   Megatron  one with sequence parallelism outside Transformer Engine, and
//             scores [B, N/tp, S, S] of its own attention
//             (core/utils.py, GlobalMemoryBuffer)
void AddSharedBuffers(const Job& job, Program& program) {
  const int64_t tokens = job.LocalTokens();
  const int64_t hidden = Bytes(job.precision.activation, Multiply(tokens, job.model->hidden_size));
  const int64_t gathers = job.tensor_parallel_size > 1 ? job.profile->gather_buffer_count : 0;
  if (gathers > 0) {
    AddBytes(program, "gather.buffers", Role::kCommunication, Multiply(gathers, hidden), kAlways);
  }
  if (job.profile->cached_rotary) {
    // 16-bit cosines and sines [S, D/2] each (flash_attn/layers/rotary.py).
    program.states.push_back(
        {.name = "attention.rotary.cache",
         .role = Role::kWorkspace,
         .basis = Basis::kBytesPerLayer,
         .fixed_bytes =
             Bytes(job.precision.activation, Multiply(job.sequence_length, job.model->head_size))});
  }
  if (job.profile->kept_rotary && job.model->latent.Any()) {
    AddLatentTables(job, program);
  } else if (job.profile->kept_rotary &&
             job.model->position_embedding == PositionEmbedding::kRotary) {
    const int64_t angles = Multiply(job.LocalSequenceLength(), job.model->head_size);
    AddBytes(program, "attention.rotary.angles", Role::kWorkspace,
             Multiply(job.virtual_pipeline_size, Bytes(DType::kFp32, angles)), kAlways);
    program.states.back().buffers = job.virtual_pipeline_size;
  }
  if (!job.profile->pooled_scores) return;
  const bool of_megatron = job.sequence_parallel && !job.transformer_engine;
  AddBytes(program, "gather.buffer", Role::kCommunication,
           std::max(of_megatron ? hidden : 0, GatheredForExperts(job)), kAlways);
  if (job.transformer_engine) return;
  if (job.attention == AttentionKernel::kEager) {
    const int64_t heads = CeilDivide(job.model->head_count, job.tensor_parallel_size);
    const int64_t scores = Multiply(Multiply(tokens, job.sequence_length), heads);
    AddBytes(program, "attention.scores.buffer", Role::kWorkspace,
             Bytes(job.precision.activation, scores), kAlways);
  }
}

// The host has the input of each layer that runs again.
void AddInputsOfHost(Program& program) {
  for (const Block& block : program.blocks) {
    if (!block.fetches_input) continue;
    program.host_states.push_back({.name = "offloaded.inputs",
                                   .role = Role::kActivation,
                                   .basis = Basis::kBytesPerLayer,
                                   .fixed_bytes = block.tensors[block.input].Bytes()});
    return;  // all layers read the same
  }
}

// fp32 cosines and sines of all positions that the model has, or those of a sequence. torchtune's
// layers share them, but those with adapters.
// Source: torchtitan models/common/rope.py, RoPE.__init__; torchtune
// modules/position_embeddings.py; models/llama3/_component_builders.py, llama3,
// lora_llama3_self_attention; models/llama3_1/_component_builders.py, lora_llama3_1.
void AddRotaryTables(const Job& job, Program& program) {
  const Transformer& model = *job.model;
  const bool rotary = model.position_embedding == PositionEmbedding::kRotary;
  const bool of_sequence = job.profile->rotary_by_layer;
  if ((!job.profile->rotary_tables && !of_sequence) || !rotary) return;
  const int64_t positions = of_sequence
                                ? job.sequence_length
                                : std::max(model.rotary_position_count, job.sequence_length);
  const int64_t size = model.latent.Any() ? model.latent.rotary_size : model.head_size;
  const int64_t width = model.rotary_table == RotaryTable::kHalves ? 2 * size : size;
  const bool one = model.rotary_table == RotaryTable::kShared || !job.adapter.has_value();
  const bool shared = one && !of_sequence;
  program.states.push_back({.name = "attention.rotary.table",
                            .role = Role::kWorkspace,
                            .basis = shared ? Basis::kBytes : Basis::kBytesPerLayer,
                            .fixed_bytes = Bytes(DType::kFp32, Multiply(positions, width))});
}

// Of each micro-batch whose head's weight gradient waits for the end of the
// pipeline: the head's input and the logits' gradient. They wait while later
// micro-batches run; those of the last wait through its backward alone. With
// sequence parallelism the inputs are then gathered into two buffers that stay.
// Source: megatron/core/tensor_parallel/layers.py, ColumnParallelLinear.forward,
// LinearWithGradAccumulationAndAsyncCommunication.backward; megatron/core/utils.py,
// drain_embedding_wgrad_compute.
void AddDeferredGradients(const Job& job, Program& program) {
  const int64_t most = std::min(job.deferred_embedding_gradient_count, job.micro_batch_count);
  if (most == 0) return;
  const DType dtype = job.precision.activation;
  const int64_t tokens = job.LocalTokens();
  const int64_t hidden = Bytes(dtype, Multiply(tokens, job.model->hidden_size));
  const int64_t vocab = CeilDivide(job.padded_vocab_size, job.tensor_parallel_size);
  const int64_t logits = Bytes(dtype, Multiply(tokens, vocab));
  const int64_t input =
      job.sequence_parallel ? CeilDivide(hidden, job.tensor_parallel_size) : hidden;
  const auto add = [&](absl::string_view name, Role role, int64_t bytes, int64_t count,
                       Alive alive) {
    if (count == 0) return;
    AddBytes(program, name, role, Multiply(count, bytes), alive);
    program.states.back().buffers = count;
    program.states.back().place = Place::kHeadStage;
  };
  constexpr Alive kBackward = During(Phase::kBackward, Phase::kBackward, true, true);
  const int64_t before = std::min(most, job.micro_batch_count - 1);
  for (const auto& [count, alive] :
       {std::pair{before, kForwardToBackward}, std::pair{most - before, kBackward}}) {
    add("head.deferred.input", Role::kActivation, input, count, alive);
    add("head.deferred.gradient", Role::kLoss, logits, count, alive);
  }
  if (!job.sequence_parallel) return;
  add("head.deferred.gathered", Role::kCommunication, hidden, std::min<int64_t>(most, 2),
      During(Phase::kGradientReduction, Phase::kEndOfStep, true, false) |
          During(Phase::kForward, Phase::kEndOfStep, false, true));
}

// What Inductor holds while it tries, in the first step, which configuration of a
// kernel is fastest: as much as clears the L2 cache, and of a compiled loss, whose
// kernels write fp32 logits in place, clones of what they write. torch 2.2 clones
// an argument that is read and written twice; from 2.6 on clones are on the host
// where they would raise the peak.
// Source: triton/testing.py, do_bench; torch/_inductor, triton_heuristics.py,
// clone_args and copy_args_to_cpu_if_needed. Measured: two images of megatron_ci, to 0.4 %.
constexpr int64_t kBenchmarkBytes = 256000000;
void AddLossTuning(const Job& job, Program& program) {
  constexpr int kClonesOnce = 2003;
  constexpr int kClonesOnHost = 2006;
  const bool compiled = job.loss == LossImplementation::kFusedCrossEntropy;
  if (!compiled || job.torch_version < 0 || job.torch_version >= kClonesOnHost) return;
  const int64_t tokens = job.LocalTokens();
  const int64_t vocab = CeilDivide(job.padded_vocab_size, job.tensor_parallel_size);
  const int64_t clones = job.torch_version < kClonesOnce ? 2 : 1;
  const int64_t logits = Bytes(DType::kFp32, Multiply(tokens, vocab));
  constexpr Alive kFirstLoss = During(Phase::kLoss, Phase::kLoss, true, false);
  AddBytes(program, "loss.tuning.clones", Role::kLoss, Multiply(clones, logits), kFirstLoss);
  program.states.back().buffers = clones;
  program.states.back().place = Place::kHeadStage;
  AddBytes(program, "loss.tuning", Role::kWorkspace, kBenchmarkBytes, kFirstLoss);
  program.states.back().place = Place::kHeadStage;
}

// What the training loop still refers to when the next micro-batch runs forward.
// In the loss it is the block's own.
void AddLingering(Program& program) {
  constexpr Alive kUntilNext = During(Phase::kBackward, Phase::kEndOfStep, true, true) |
                               During(Phase::kForward, Phase::kForward, false, true);
  for (const Block& block : program.blocks) {
    for (const Tensor& tensor : block.tensors) {
      if (!tensor.lingers) continue;
      AddBytes(program, "logits.held", Role::kLoss, tensor.Bytes(), kUntilNext);
      program.states.back().place = Place::kHeadStage;
    }
  }
}

// Tokens, labels and positions (int64), a loss mask (fp32), and where asked an
// attention mask [B, 1, S, S] of bytes. Source: megatron/core/datasets/
// gpt_dataset.py; pretrain_gpt.py, get_batch.
void AddBatch(const Job& job, Program& program) {
  const int64_t tokens = job.LocalTokens();
  constexpr int64_t kBatchBytesPerToken = 3 * 8 + 4;
  AddBytes(program, "batch", Role::kActivation, Multiply(tokens, kBatchBytesPerToken),
           kForwardToBackward);
  if (job.attention_mask) {
    AddBytes(program, "batch.attention_mask", Role::kActivation,
             Multiply(tokens, job.sequence_length), kForwardToBackward);
  }
}

// Signs are packed and unpacked by CuPy, in a pool of its own: a byte of each number of all ranks,
// the signs that are sent and those that come, of one rank's part and of all.
// Source: deepspeed 0.18.9, runtime/comm/nccl.py, compressed_allreduce; cupy/cuda/memory.pyx,
// SingleDeviceMemoryPool (what is freed stays there).
int64_t CompressionBytes(const Job& job, const Program& program) {
  if (!RowOf(job.optimizer).compresses || job.ReplicaCount() == 1) return 0;
  const int64_t count = SumParameters(program, program.stages.front()).parameters;
  const int64_t signs = CeilDivide(count, 8);
  return Add(Add(count, Multiply(3, signs)), CeilDivide(signs, job.ReplicaCount()));
}

}  // namespace

Program ApplyRuntime(const ValidJob& job, Program program) {
  AddWorkspaces(*job, program);
  AddSumWorkspaces(*job, program);
  AddDummyGradients(*job, program);
  AddSharedBuffers(*job, program);
  AddRotaryTables(*job, program);
  AddDeferredGradients(*job, program);
  AddLossTuning(*job, program);
  AddLingering(program);
  AddInputsOfHost(program);
  AddBatch(*job, program);
  HoldVirtualTokens(*job, program);
  if (job->profile->tunes_norms) program.tuning_bytes = kBenchmarkBytes;
  program.outside.context_bytes = ContextBytes(job->architecture);
  program.outside.nccl_bytes = Add(NcclBytes(*job), CompressionBytes(*job, program));
  return program;
}

}  // namespace plimsoll
