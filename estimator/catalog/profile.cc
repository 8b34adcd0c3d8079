#include "estimator/catalog/profile.h"

#include <algorithm>

namespace plimsoll {
namespace {

// What every framework on top of Hugging Face's or plain PyTorch modules
// shares; its own facts are set row by row below.
// Source: transformers, models/llama/modeling_llama.py and loss/loss_utils.py.
constexpr Profile kEager = {
    .framework = Framework::kDdp,
    .name = "ddp",
    .package = "torch",
    .since = 2000,
    .era = "torch 2",
    .norm = NormKernel::kUpcast,
    .fused_glu = false,
    .fused_activations = false,
    .packed_gate = false,
    .packed_qkv = false,
    .joint_qkv = false,
    .copies_qkv = false,
    .groups_qkv = false,
    .adds_bias_apart = false,
    .flash_output_copy = false,
    .fused_softmax = false,
    // aten/src/ATen/native/transformers/cuda/sdp_utils.cpp: SDPA takes flash where it may.
    .attention = {.usual = AttentionKernel::kFlash,
                  .on_hopper = AttentionKernel::kFlash,
                  .without_flash = AttentionKernel::kMemoryEfficient},
    .torch_attention = true,
    .transformers_attention = true,
    .loss = LossKernel::kCrossEntropy,
    .tiled_log_probs = false,
    .chunked_loss = false,
    .equal_chunks = false,
    .slices_wait = false,
    .loss_behind_model = false,
    .logits_held = LogitsHeld::kForward,
    .copies_logits = false,
    .compiled_loss = CompiledLoss::kAll,
    .loss_parallel = false,
    .gathers_inner = true,
    .expands_kv = false,
    .root_group = false,
    .reshards_ends = false,
    .parts_shared_table = false,
    .keeps_shared_table = false,
    .last_block_gathered = false,
    .flattens_on_gpu = false,
    .shards_on_gpu = false,
    .reduces_as_gathered = false,
    .accumulates_whole = false,
    .adds_by_parameter = false,
    .unties_head = false,
    .weight_gradient = WeightGradient::kKept,
    .sharding = Sharding::kBuckets,
    .flat_units = false,
    .gradient_sums = GradientSums::kPlain,
    .accelerate = false,
    .sums_in_fp32 = false,
    .deallocates_outputs = false,
    .sends_whole = false,
    .holds_loss = false,
    .redistributes = false,
    .fused_residual = false,
    .checkpoints_hold_output = false,  // transformers 5, modeling_utils.py, use_reentrant
    .checkpoints_stop_early = true,
    .checkpoints_mask = false,
    .stashed_input_count = 0,
    .pooled_workspace = true,
    .cached_rotary = false,
    .kept_rotary = false,
    .pooled_gathers = false,
    .gather_buffer_count = 0,
    .dispatches_experts = false,
    .reorders_experts = false,
    .weighs_expert_outputs = false,
    .adds_rows_by_index = false,
    .own_products = false,
    .copies_remade = false,
    .pooled_scores = false,
    .flat_master = false,
    .states_at_start = false,
    .states_by_parameter = true,
    .leaves_loaded_states = false,
    .tunes_norms = false,
    .sequence_parallel_default = false,
    .context_parallel_method = ContextParallelMethod::kAllGather,
    .balances_contexts = false,
    .merges_contexts = false,
    .relays_exchanged = false,
    .copies_exchanged_heads = true,
    .reduces_contexts_in_fp32 = false,
    .reduces_units_in_fp32 = false,
    .widens_adapters = true,  // peft mapping_func.py, autocast_adapter_dtype
    .narrows_adapters = false,
    .inputs_require_gradients = true,  // peft peft_model.py, enable_input_require_grads
    .holds_adapter_inputs = false,
    .joint_adapters = false,
    .separate_projections = false,
    .drops_in_pairs = false,
    .holds_reference_logits = false,
    .expandable_segments = false,
    .dora_reads_product = false,
    .loss_slice_tokens = 0,
    .reshards_root = false,
    .rotary_by_layer = false,
    .rotary_tables = false,
    .wide_norms = false,
    .wide_norms_when_adapted = false,
    .composed_norms = false,
    .wide_rotation = false,
    .recomputes_modules = false,
    .lean_adapters = false,
    .frozen_root = false,
    .composed_dequantization = false,
    .half_dequantization = false,
    .keeps_quantized_inputs = false,
    .quantizes_head = false,
    .splits_vectors = false,
    .wide_embedding_states = false,
    .pages_states = false,
    .replaces_embedding = false,
    .vocab_size_divisor = 1,
    .fused_optimizer = false,
    .stages = StageRule::kEven,
    .records_streams = true,
    .run_ahead = RunAhead::kNever,
    .synchronizes_receives = false,
    .source = "torch/csrc/distributed/c10d/reducer.cpp; transformers modeling_llama.py",
    .trainer = Trainer::kNone,
    .trainer_name = "",
    .trainer_era = "",
    .trainer_source = "",
};

// Source: torch/distributed/fsdp/_fully_shard.
constexpr Profile Fsdp2() {
  Profile profile = kEager;
  profile.framework = Framework::kFsdp2;
  profile.name = "fsdp2";
  profile.since = 2015;
  profile.era = "torch 2.15 and later";
  profile.sharding = Sharding::kUnits;
  profile.redistributes = true;
  profile.merges_contexts = true;
  profile.reshards_ends = true;      // pytorch #154704
  profile.adds_by_parameter = true;  // pytorch #197203
  profile.sums_in_fp32 = true;       // the reduced gradient gets the sharded parameter's dtype
  profile.sequence_parallel_default = true;
  profile.fused_optimizer = true;
  profile.source = "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py";
  profile.records_streams = false;  // ProcessGroupNCCL.cpp: tensors are stashed instead (#150398)
  return profile;
}

constexpr Profile Fsdp2AddingBlocks() {
  Profile profile = Fsdp2();
  profile.since = 2008;
  profile.era = "torch 2.8 to 2.14";
  profile.adds_by_parameter = false;
  return profile;
}

constexpr Profile Fsdp2Recording() {
  Profile profile = Fsdp2AddingBlocks();
  profile.since = 2004;
  profile.era = "torch 2.4 to 2.7";
  profile.records_streams = true;
  profile.reshards_ends = false;
  profile.run_ahead = RunAhead::kGpuBound;
  return profile;
}

// Units are gathered once, in a stream of their own, and stay so while they run;
// two at most are on their way. Source: torch/distributed/fsdp/_flat_param.py,
// _runtime_utils.py.
constexpr Profile Fsdp1() {
  Profile profile = Fsdp2();
  profile.framework = Framework::kFsdp1;
  profile.name = "fsdp1";
  profile.since = 1012;
  profile.era = "torch 1.12 and later";
  profile.root_group = true;
  profile.reshards_ends = false;
  profile.flat_units = true;
  profile.sequence_parallel_default = false;
  profile.source = "torch/distributed/fsdp/_flat_param.py, _runtime_utils.py";
  return profile;
}

// Source: deepspeed/runtime/zero/stage_1_and_2.py, stage3.py.
constexpr Profile DeepSpeed() {
  Profile profile = kEager;
  profile.framework = Framework::kDeepSpeed;
  profile.name = "deepspeed";
  profile.package = "deepspeed";
  profile.since = 19;
  profile.era = "deepspeed 0.19 and later";
  profile.flattens_on_gpu = true;
  profile.sharding = Sharding::kEngine;
  // deepspeed/runtime/sequence_parallel/ulysses_sp.py, UlyssesSPAttentionHF.forward.
  profile.context_parallel_method = ContextParallelMethod::kUlysses;
  profile.relays_exchanged = true;
  // deepspeed/runtime/engine.py, communication_data_type; constants.py,
  // SEQ_PARALLEL_COMMUNICATION_DATA_TYPE_DEFAULT.
  profile.reduces_contexts_in_fp32 = true;
  profile.fused_optimizer = true;
  profile.source = "deepspeed/runtime/zero/stage_1_and_2.py, stage3.py, bf16_optimizer.py";
  return profile;
}

// Weights went to the host to be laid flat.
// Source: deepspeed 0.18.9, runtime/zero/stage_1_and_2.py, __init__.
constexpr Profile DeepSpeedBefore019() {
  Profile profile = DeepSpeed();
  profile.since = 10;
  profile.era = "deepspeed 0.10 to 0.18";
  profile.flattens_on_gpu = false;
  return profile;
}

// Source: Megatron-LM core 0.20.0, core/transformer, core/distributed,
// core/optimizer; TransformerEngine.
constexpr Profile MegatronCore() {
  Profile profile = kEager;
  // core/fusions/fused_bias_gelu.py, fused_bias_dropout.py (skip_bias_add)
  profile.adds_bias_apart = true;
  profile.torch_attention = false;
  profile.transformers_attention = false;
  profile.checkpoints_hold_output = true;
  profile.framework = Framework::kMegatronCore;
  profile.name = "megatron-core";
  profile.package = "megatron-core";
  profile.since = 17;
  profile.era = "core 0.17 and later, Transformer Engine";
  profile.norm = NormKernel::kFused;
  profile.fused_glu = true;
  profile.fused_activations = true;
  profile.packed_gate = true;
  profile.packed_qkv = true;
  profile.groups_qkv = true;
  profile.flash_output_copy = true;
  profile.fused_softmax = true;
  // transformer_engine/pytorch/attention/dot_product_attention/utils.py
  profile.attention = {.usual = AttentionKernel::kFlash,
                       .on_hopper = AttentionKernel::kCudnn,
                       .without_flash = AttentionKernel::kEager};
  profile.fused_residual = true;
  // core/models/common/embeddings/rotary_pos_embedding.py, forward (lru_cache).
  profile.kept_rotary = true;
  profile.pooled_gathers = true;  // outside Transformer Engine
  profile.dispatches_experts = true;
  profile.adds_rows_by_index = true;  // core/transformer/moe/moe_utils.py, unpermute
  profile.loss = LossKernel::kVocabParallel;
  profile.logits_held = LogitsHeld::kDeleted;
  profile.weight_gradient = WeightGradient::kFused;
  profile.sharding = Sharding::kStates;
  profile.own_products = true;
  profile.context_parallel_method = ContextParallelMethod::kRing;
  // transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py,
  // attn_forward_func_with_cp (DualChunkSwap), AttnFuncWithCPAndQKVOA2A.forward.
  profile.balances_contexts = true;
  profile.copies_exchanged_heads = false;
  profile.gradient_sums = GradientSums::kContiguous;
  profile.sums_in_fp32 = true;  // megatron/training/arguments.py, with bf16
  profile.sends_whole = true;   // core/pipeline_parallel/schedules.py, get_tensor_shapes
  profile.pooled_scores = true;
  profile.states_by_parameter = false;
  profile.leaves_loaded_states = true;
  profile.deallocates_outputs = true;
  profile.vocab_size_divisor = 128;
  profile.stages = StageRule::kEqual;
  profile.fused_optimizer = true;
  profile.source =
      "megatron/core/transformer/transformer_layer.py, core/pipeline_parallel/schedules.py";
  profile.records_streams = false;  // released on NGC 25.05, torch 2.8; 0.12 on 25.03, torch 2.7
  return profile;
}

// What was made again was copied (until core 0.17 shared its storage).
// Source: Megatron-LM core 0.16.1, core/tensor_parallel/random.py,
// CheckpointWithoutOutput._recompute.
constexpr Profile MegatronCoreCopyingRemade() {
  Profile profile = MegatronCore();
  profile.since = 15;
  profile.era = "core 0.15 and 0.16, Transformer Engine";
  profile.copies_remade = true;
  return profile;
}

// Tokens were summed up by scatter_add, which keeps indices alone (until 56818f9e50, October 2025).
// Source: Megatron-LM core 0.13.0, core/transformer/moe/moe_utils.py, unpermute.
constexpr Profile MegatronCoreScattering() {
  Profile profile = MegatronCoreCopyingRemade();
  profile.since = 13;
  profile.era = "core 0.13 and 0.14, Transformer Engine";
  profile.adds_rows_by_index = false;
  return profile;
}

// Experts knew nothing of weights (until 2659630721, April 2025).
// Source: Megatron-LM core 0.12.0, core/transformer/moe/token_dispatcher.py,
// MoEAllGatherTokenDispatcher.token_unpermutation; moe_utils.py, unpermute.
constexpr Profile MegatronCoreRecording() {
  Profile profile = MegatronCoreScattering();
  profile.since = 8;
  profile.era = "core 0.8 to 0.12, Transformer Engine";
  profile.weighs_expert_outputs = true;
  profile.records_streams = true;
  return profile;
}

// From September 2022 (55817ec9b9) to June 2024 (9634c0e4a3) the loss subtracted
// the largest logit into a new tensor.
// Source: Megatron-LM core 0.7.0, core/tensor_parallel/cross_entropy.py.
constexpr Profile MegatronCoreCopying() {
  Profile profile = MegatronCoreRecording();
  profile.since = 5;
  profile.era = "core 0.5 to 0.7, Transformer Engine";
  profile.copies_logits = true;
  return profile;
}

// Source: Megatron-LM v2.4, megatron/model/transformer.py,
// megatron/optimizer/optimizer.py, megatron/schedules.py.
constexpr Profile MegatronLm() {
  Profile profile = MegatronCoreRecording();
  profile.framework = Framework::kMegatronLm;
  profile.name = "megatron-lm";
  profile.package = "megatron-lm";
  profile.since = 2004;
  profile.era = "v2.4 (2021)";
  // It has no other kernel than its own.
  profile.attention = {.usual = AttentionKernel::kEager,
                       .on_hopper = AttentionKernel::kEager,
                       .without_flash = AttentionKernel::kEager};
  profile.flash_output_copy = false;
  profile.weight_gradient = WeightGradient::kKept;
  profile.gradient_sums = GradientSums::kStale;
  profile.sends_whole = false;  // megatron/p2p_communication.py scatters it
  profile.pooled_scores = false;
  profile.leaves_loaded_states = false;
  profile.deallocates_outputs = false;
  profile.kept_rotary = false;
  profile.pooled_workspace = false;
  profile.source = "Megatron-LM v2.4, megatron/optimizer/optimizer.py, megatron/schedules.py";
  return profile;
}

// Source: deepspeed/runtime/pipe/engine.py of 2021 over Megatron-LM v2.4.
constexpr Profile MegatronDeepSpeed() {
  Profile profile = MegatronLm();
  profile.framework = Framework::kMegatronDeepSpeed;
  profile.name = "megatron-deepspeed";
  profile.package = "megatron-deepspeed";
  profile.since = 0;
  profile.era = "2021-2022, DeepSpeed's 3D engine";
  profile.sharding = Sharding::kFlat;
  profile.gradient_sums = GradientSums::kCopied;
  profile.holds_loss = true;
  profile.states_at_start = true;
  profile.deallocates_outputs = true;
  profile.checkpoints_mask = true;
  profile.source = "deepspeed/runtime/pipe/engine.py, runtime/bf16_optimizer.py";
  return profile;
}

// Source: nanotron (Ultra-Scale Playbook's benchmark branch), models/llama.py,
// parallel/tensor_parallel/functional.py, optim/zero.py, trainer.py. That keys
// and values are kept twice is inferred from reserved memory (data notes A 4.1).
constexpr Profile Nanotron() {
  Profile profile = MegatronCoreRecording();
  profile.framework = Framework::kNanotron;
  profile.name = "nanotron";
  profile.package = "nanotron";
  profile.since = 4;
  profile.era = "2024-2025, Ultra-Scale Playbook";
  profile.fused_glu = false;
  profile.copies_qkv = true;
  profile.attention = kEager.attention;
  profile.cached_rotary = true;
  profile.kept_rotary = false;
  profile.flat_master = true;
  profile.tunes_norms = true;
  profile.flash_output_copy = false;
  profile.loss = LossKernel::kSharded;
  profile.logits_held = LogitsHeld::kDeleted;
  profile.weight_gradient = WeightGradient::kKept;
  profile.sharding = Sharding::kSlices;
  profile.own_products = true;
  profile.sends_whole = false;
  profile.gather_buffer_count = 2;  // parallel/utils.py, MemoryBuffer
  profile.pooled_scores = false;
  profile.states_by_parameter = true;
  profile.leaves_loaded_states = false;
  profile.sequence_parallel_default = true;
  profile.vocab_size_divisor = 1;
  profile.stages = StageRule::kByCost;
  profile.run_ahead = RunAhead::kWithoutPipeline;
  profile.synchronizes_receives = true;  // parallel/pipeline_parallel/p2p.py, tolist of metadata
  profile.source = "nanotron trainer.py, optim/gradient_accumulator.py, optim/zero.py";
  return profile;
}

// The newer runs of the benchmark dealt layers by another tie rule: of 1.34 B
// with a tie, stage 0 has 10 layers of 16, not 11 (measured, data notes A 3.4).
constexpr Profile NanotronAfterFix() {
  Profile profile = Nanotron();
  profile.since = 5;
  profile.era = "2025, after the pipeline fix";
  profile.stages = StageRule::kByCostReached;
  profile.run_ahead = RunAhead::kDeepOrGpuBound;
  return profile;
}

// The model's own fp32 logits live until the next are made; the loss is not
// compiled, the optimizer not fused; one FSDP group holds all that is in no block,
// and the last block is not resharded. Source: torchtitan 83c879f18, train.py
// (`pred`, build_optimizer), models/llama/model.py, parallelisms/parallelize_llama.py.
void TorchtitanOf2024(Profile& profile) {
  profile.loss_behind_model = true;
  profile.transformers_attention = false;
  profile.logits_held = LogitsHeld::kUntilNext;
  profile.compiled_loss = CompiledLoss::kNone;
  profile.fused_optimizer = false;
  profile.gathers_inner = false;  // batch and sequence are one axis, until 25f9bff2b
  profile.loss_parallel = true;
  profile.expands_kv = true;
  profile.root_group = true;
  profile.last_block_gathered = true;
  profile.records_streams = true;
  profile.run_ahead = RunAhead::kGpuBound;
}

// TORCH_NCCL_AVOID_RECORD_STREAMS is set (e62573d4c), until PyTorch's nightly
// builds of April 2025 make it the default (#1088).
void TorchtitanStashes(Profile& profile) {
  TorchtitanOf2024(profile);
  profile.gathers_inner = true;
  profile.records_streams = false;
  profile.run_ahead = RunAhead::kNever;
}

// `del pred` before backward (#391).
void TorchtitanDeletes(Profile& profile) {
  TorchtitanStashes(profile);
  profile.logits_held = LogitsHeld::kDeleted;
}

// Fused AdamW is the default (#881, late in February 2025).
void TorchtitanFusesOptimizer(Profile& profile) {
  TorchtitanDeletes(profile);
  profile.fused_optimizer = true;
}

// The loss is compiled with the blocks (#1033).
void TorchtitanCompilesLoss(Profile& profile) {
  TorchtitanFusesOptimizer(profile);
  profile.compiled_loss = CompiledLoss::kAll;
}

// Embedding, and norm with head, are groups of their own (#1094), and one where they share a table,
// which is dropped after forward by the policy "always" alone (distributed/fsdp.py,
// apply_fsdp_to_decoder); torch's RMSNorm is one kernel by then.
void TorchtitanOwnGroups(Profile& profile) {
  TorchtitanCompilesLoss(profile);
  profile.root_group = profile.framework == Framework::kFsdp1;
  profile.keeps_shared_table = true;
  profile.parts_shared_table = true;
  profile.last_block_gathered = false;
  profile.checkpoints_stop_early = false;  // #1580
  profile.norm = NormKernel::kFused;
}

// The attention kernel shares keys and values among heads (#2259).
void TorchtitanSharesKv(Profile& profile) {
  TorchtitanOwnGroups(profile);
  profile.expands_kv = false;
}

// Its recipes' losses go over slices, with the head (#2937).
void TorchtitanSlicesLoss(Profile& profile) {
  TorchtitanSharesKv(profile);
  profile.chunked_loss = true;
}

// One product makes queries, keys and values (#3714).
void TorchtitanJoinsQkv(Profile& profile) {
  TorchtitanSlicesLoss(profile);
  profile.equal_chunks = true;  // #3362
  profile.joint_qkv = true;
  profile.attention.flex = true;    // models/common/attention.py, FlexAttention
  profile.reorders_experts = true;  // models/common/moe.py
  profile.rotary_by_layer = true;   // models/common/rope.py
}

// From this torch on fully_shard does as it is told of a root (pytorch #154704).
constexpr int kReshardsRoot = 2008;

// Source: torchtune, modules/attention.py (keys and values are expanded to all
// heads), recipes/full_finetune_single_device.py (`del logits`), recipes/configs
// (`fused: True`). The recipe drops what compile_loss returns, so that a plain loss
// is not compiled; of one over slices a method is replaced (training/_compile.py). Adapters are
// made in the default dtype (modules/peft/lora.py), norms are of fp32 copies (modules/rms_norm.py),
// NF4 is torchao's (dtypes/nf4tensor.py).
void Torchtune(Profile& profile) {
  profile.loss_behind_model = true;
  profile.transformers_attention = false;
  profile.logits_held = LogitsHeld::kDeleted;
  profile.compiled_loss = CompiledLoss::kSlices;
  profile.expands_kv = true;
  profile.checkpoints_hold_output = false;
  profile.widens_adapters = false;
  profile.inputs_require_gradients = false;
  profile.holds_adapter_inputs = true;
  profile.slices_wait = true;
  profile.separate_projections = true;
  profile.dora_reads_product = true;
  profile.drops_in_pairs = true;
  profile.holds_reference_logits = true;
  profile.expandable_segments = true;  // __init__.py
  // Its stash is of 5 tensors; a checkpoint of torch to 2.14 saves an empty one beside its input.
  // Source: torchtune training/_activation_offloading.py; torch/utils/checkpoint.py,
  // _NoopSaveInputs.
  profile.stashed_input_count = 2;
  profile.rotary_tables = true;
  profile.wide_norms = true;
  profile.composed_dequantization = true;
  profile.fused_optimizer = true;
  profile.root_group = true;
}

// The root group goes between forward and backward. Source: torchtune 0.6.1,
// training/_distributed.py, shard_model.
void TorchtuneBefore07(Profile& profile) {
  Torchtune(profile);
  profile.expandable_segments = false;
  profile.reshards_root = profile.since >= kReshardsRoot;
}

// Norms are cast before they are scaled. Source: torchtune 0.4, modules/rms_norm.py.
void TorchtuneBefore05(Profile& profile) {
  TorchtuneBefore07(profile);
  profile.wide_norms = false;
}

// Source: litgpt, model.py (CausalSelfAttention; GPT.lm_head, tied to nothing),
// finetune/full.py (`logits`, fabric.no_backward_sync, a plain torch.optim.AdamW); lora.py, whose
// adapters have the model's dtype, and finetune/lora.py, lm_head_chunk_size, StableEmbedding;
// lightning fabric/plugins/precision/bitsandbytes.py, _Linear4bit.quantize (of every
// torch.nn.Linear, in fp16).
void Litgpt(Profile& profile) {
  profile.transformers_attention = false;
  profile.logits_held = LogitsHeld::kUntilNext;
  profile.fused_optimizer = false;
  profile.expands_kv = true;
  profile.accumulates_whole = true;
  profile.unties_head = true;
  profile.widens_adapters = false;
  profile.inputs_require_gradients = false;
  profile.holds_adapter_inputs = true;
  profile.joint_adapters = true;
  profile.loss_slice_tokens = 128;
  profile.wide_norms_when_adapted = true;
  profile.half_dequantization = true;
  profile.quantizes_head = true;
  profile.pages_states = true;
  profile.replaces_embedding = true;
}

// bitsandbytes 0.42, which it asks for to the end of 2024, keeps what a product read; the embedding
// stays as it is.
// Source: bitsandbytes 0.42.0, autograd/_functions.py, MatMul4Bit.forward; litgpt 0.4.13,
// finetune/lora.py, main.
void LitgptBefore05(Profile& profile) {
  Litgpt(profile);
  profile.keeps_quantized_inputs = true;
  profile.replaces_embedding = false;
}

// Source: transformers, trainer.py (compute_loss returns the loss alone;
// accelerator.no_sync in all but the last micro-batch); accelerate, utils/dataclasses.py,
// set_mixed_precision.
void HfTrainerOfOneGroup(Profile& profile) {
  profile.accelerate = true;
  profile.splits_vectors = true;         // trainer.py, get_decay_parameter_names
  profile.wide_embedding_states = true;  // trainer.py, create_optimizer
  profile.reduces_as_gathered = true;
  profile.accumulates_whole = true;
  profile.logits_held = LogitsHeld::kForward;
  profile.root_group = true;
  profile.stashed_input_count = 4;  // trl models/activation_offloading.py, max_fwd_stash_size
}

// Its checkpoints were reentrant, but FSDP's.
void HfTrainerOf4(Profile& profile) {
  HfTrainerOfOneGroup(profile);
  if (profile.sharding != Sharding::kUnits) profile.checkpoints_hold_output = true;
}

// From accelerate 1.14 on FSDP2's embedding, and its final norm and head, are groups of their own,
// the latter gathered until backward; where they share a table they are one.
// Source: accelerate utils/fsdp_utils.py, fsdp2_prepare_model;
// torch/distributed/fsdp/_fully_shard/_fsdp_init.py, _move_states_to_device.
void HfTrainer(Profile& profile) {
  HfTrainerOfOneGroup(profile);
  profile.fused_optimizer = true;  // training_args.py, default_optim, with torch 2.8 and later
  if (profile.framework != Framework::kFsdp2) return;
  profile.root_group = false;
  profile.keeps_shared_table = true;
  profile.shards_on_gpu = true;
}

// Its trainers are transformers' Trainer, with losses of their own.
// Source: trl trainer/utils.py, add_fused_lm_head.
void Trl(Profile& profile) {
  HfTrainer(profile);
  profile.tiled_log_probs = true;
  profile.loss_behind_model = true;
  profile.narrows_adapters = true;
}

// It has Llama's and Qwen's layers in classes of its own. FSDP2 has layers, and untied tables, in
// groups of their own; the last layer and the head stay gathered, and so does what they leave to
// the root. Gradients are reduced with a step's last micro-batch.
// Source: nemo_automodel 0.7, components/models/llama/model.py; components/models/common/utils.py,
// Float32RMSNorm; components/distributed/parallelizer.py, apply_fsdp2_sharding_recursively and
// ModelParallelizer._apply; components/distributed/activation_checkpointing.py,
// apply_submodule_checkpointing; components/_peft/lora.py, LoRATritonFunction;
// recipes/llm/train_ft.py, _forward_backward_step (loss, defer_fsdp_grad_sync).
void NemoAutomodel(Profile& profile) {
  profile.composed_norms = true;
  profile.wide_rotation = true;
  profile.loss_behind_model = true;
  profile.logits_held = LogitsHeld::kForward;
  profile.keeps_shared_table = true;
  profile.last_block_gathered = true;
  profile.accumulates_whole = true;
  profile.reduces_units_in_fp32 = true;  // FSDP2Config.mp_policy
  profile.recomputes_modules = true;
  profile.lean_adapters = true;
  profile.frozen_root = true;
  profile.widens_adapters = false;
  profile.inputs_require_gradients = false;
  profile.fused_optimizer = false;
}

// Every trainer's profile on every framework that it runs on.
struct TrainerProfile {
  const Profile* framework;
  const TrainerEra* era;
  Profile profile;
};

std::vector<TrainerProfile> MakeTrainerProfiles() {
  std::vector<TrainerProfile> all;
  for (const TrainerEra& era : TrainerEras()) {
    for (const Profile& framework : Profiles()) {
      if ((era.frameworks >> static_cast<unsigned>(framework.framework) & 1) == 0) continue;
      TrainerProfile& made = all.emplace_back(TrainerProfile{&framework, &era, framework});
      made.profile.trainer = era.trainer;
      made.profile.trainer_name = era.name;
      made.profile.trainer_era = era.era;
      made.profile.trainer_source = era.source;
      era.apply(made.profile);
    }
  }
  return all;
}

// Months are told from releases by their year.
constexpr int kFirstYear = 2000 * 1000;

bool Reaches(const TrainerEra& era, int version) {
  if (version < 0) return !era.ahead;
  return version >= (version >= kFirstYear ? era.since_month : era.since);
}

}  // namespace

const std::vector<TrainerEra>& TrainerEras() {
  constexpr uint16_t kTorch = On(Framework::kDdp, Framework::kFsdp1, Framework::kFsdp2);
  constexpr uint16_t kAll = kTorch | On(Framework::kDeepSpeed);
  static const auto* const kEras = new std::vector<TrainerEra>{
      {Trainer::kTorchtitan, "torchtitan", 3, 2026007, "July 2026 and later", kTorch,
       TorchtitanJoinsQkv, "torchtitan 3396a4b37, models/llama3/__init__.py, fuse_qkv"},
      {Trainer::kTorchtitan, "torchtitan", kNoRelease, 2026005, "May and June 2026", kTorch,
       TorchtitanSlicesLoss, "torchtitan 786e26f8e, models/llama3/config_registry.py"},
      {Trainer::kTorchtitan, "torchtitan", kNoRelease, 2026002, "February to April 2026", kTorch,
       TorchtitanSharesKv, "torchtitan ff0829c10, models/attention.py, enable_gqa"},
      {Trainer::kTorchtitan, "torchtitan", 2, 2025008, "August 2025 to January 2026", kTorch,
       TorchtitanOwnGroups, "torchtitan 83e694105, models/llama3/infra/parallelize.py, apply_fsdp"},
      {Trainer::kTorchtitan, "torchtitan", 1, 2025004, "April to July 2025", kTorch,
       TorchtitanCompilesLoss, "torchtitan bbb1b616e, components/loss.py"},
      {Trainer::kTorchtitan, "torchtitan", kNoRelease, 2025003, "March 2025", kTorch,
       TorchtitanFusesOptimizer, "torchtitan 6e4988550, config_manager.py, optimizer.fused"},
      {Trainer::kTorchtitan, "torchtitan", 0, 2024006, "June 2024 to February 2025", kTorch,
       TorchtitanDeletes, "torchtitan e29b6b4d4, train.py"},
      {Trainer::kTorchtitan, "torchtitan", kNoRelease, 2024004, "April and May 2024", kTorch,
       TorchtitanStashes, "torchtitan e62573d4c, utils.py"},
      {Trainer::kTorchtitan, "torchtitan", kNoRelease, 2024001, "until March 2024", kTorch,
       TorchtitanOf2024, "torchtitan 83c879f18, train.py"},
      {Trainer::kTorchtune, "torchtune", 7, 2025006, "0.7 and later",
       On(Framework::kDdp, Framework::kFsdp2), Torchtune,
       "torchtune bd2a0fc7c, training/_distributed.py, shard_model", /*ahead=*/true},
      {Trainer::kTorchtune, "torchtune", 5, 2025001, "0.5 and 0.6",
       On(Framework::kDdp, Framework::kFsdp2), TorchtuneBefore07,
       "torchtune 0.6.1, recipes/full_finetune_single_device.py"},
      {Trainer::kTorchtune, "torchtune", 0, 2024001, "2024", On(Framework::kDdp, Framework::kFsdp2),
       TorchtuneBefore05, "torchtune 0.4, modules/rms_norm.py"},
      {Trainer::kLitgpt, "litgpt", 5, 2024010, "0.5 and later",
       On(Framework::kDdp, Framework::kFsdp1), Litgpt, "litgpt, finetune/lora.py"},
      {Trainer::kLitgpt, "litgpt", 0, 2023001, "2023 to 0.4",
       On(Framework::kDdp, Framework::kFsdp1), LitgptBefore05, "litgpt, finetune/full.py"},
      {Trainer::kHfTrainer, "hf-trainer", 5012, 2026006, "transformers 5.12 and later", kAll,
       HfTrainer, "accelerate 1.14, utils/fsdp_utils.py, fsdp2_prepare_model"},
      {Trainer::kHfTrainer, "hf-trainer", 0, 2023001, "transformers 4 to 5.11", kAll, HfTrainerOf4,
       "transformers, trainer.py"},
      {Trainer::kTrl, "trl", 1015, 2026010, "1.15 and later", kAll, Trl,
       "trl, trainer/sft_trainer.py"},
      {Trainer::kNemoAutomodel, "nemo-automodel", 7, 2026011, "0.7 and later",
       On(Framework::kDdp, Framework::kFsdp2), NemoAutomodel,
       "nemo_automodel 0.7, recipes/llm/train_ft.py"},
  };
  return *kEras;
}

const Profile* FindTrainerProfile(const Profile& framework, Trainer trainer, int version) {
  static const auto* const kAll = new std::vector<TrainerProfile>(MakeTrainerProfiles());
  for (const TrainerProfile& made : *kAll) {
    if (made.framework == &framework && made.era->trainer == trainer &&
        Reaches(*made.era, version)) {
      return &made.profile;
    }
  }
  return nullptr;
}

int MonthOrRelease(Trainer trainer, int version) {
  if (version >= kFirstYear) return version;
  const std::vector<TrainerEra>& eras = TrainerEras();
  if (version < 0) {
    const auto ahead = std::find_if(eras.begin(), eras.end(), [trainer](const TrainerEra& era) {
      return era.trainer == trainer && era.ahead;
    });
    return ahead == eras.end() ? version : ahead->since - 1;
  }
  const auto unreleased = [&](const TrainerEra& era) {
    return era.trainer == trainer && era.since == kNoRelease;
  };
  if (std::none_of(eras.begin(), eras.end(), unreleased)) return version;
  const auto reached = std::find_if(eras.begin(), eras.end(), [&](const TrainerEra& era) {
    return era.trainer == trainer && Reaches(era, version);
  });
  return reached == eras.end() ? version : reached->since_month;
}

const Profile& UnknownFramework() {
  static const auto* const kUnknown = [] {
    auto* profile = new Profile(DeepSpeed());
    profile->name = "an unknown framework";
    profile->sequence_parallel_default = true;
    return profile;
  }();
  return *kUnknown;
}

const std::vector<Profile>& Profiles() {
  static const auto* const kProfiles = new std::vector<Profile>{kEager,
                                                                Fsdp1(),
                                                                Fsdp2(),
                                                                Fsdp2AddingBlocks(),
                                                                Fsdp2Recording(),
                                                                DeepSpeed(),
                                                                DeepSpeedBefore019(),
                                                                MegatronCore(),
                                                                MegatronCoreCopyingRemade(),
                                                                MegatronCoreScattering(),
                                                                MegatronCoreRecording(),
                                                                MegatronCoreCopying(),
                                                                MegatronLm(),
                                                                MegatronDeepSpeed(),
                                                                NanotronAfterFix(),
                                                                Nanotron()};
  return *kProfiles;
}

const Profile* FindProfile(Framework framework, int version) {
  for (const Profile& profile : Profiles()) {
    if (profile.framework == framework && (version < 0 || version >= profile.since)) {
      return &profile;
    }
  }
  return nullptr;
}

}  // namespace plimsoll
