// Every rule of the training and runtime sections, with its exact words.
#include <limits>

#include "tests/testing/refusals.h"

namespace plimsoll {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

const std::vector<Refusal>& Batches() {
  static const auto* const kRows = new std::vector<Refusal>{
      {"sequence unset",
       [](JobSpec& j) { j.training.sequence_length.reset(); },
       {"job.training.sequence_length: unset; must be set"}},
      {"sequence zero",
       [](JobSpec& j) { j.training.sequence_length = 0; },
       {"job.training.sequence_length: 0; must be from 1 to 134217728"}},
      {"sequence too long",
       [](JobSpec& j) { j.training.sequence_length = (1 << 27) + 1; },
       {"job.training.sequence_length: 134217729; must be from 1 to 134217728"}},
      {"micro-batch zero",
       [](JobSpec& j) { j.training.micro_batch_size = 0; },
       {"job.training.micro_batch_size: 0; must be from 1 to 1048576"}},
      {"micro-batch smallest number",
       [](JobSpec& j) { j.training.micro_batch_size = kMin; },
       {"job.training.micro_batch_size: -9223372036854775808; must be from 1 to 1048576"}},
      {"global batch zero",
       [](JobSpec& j) { j.training.global_batch_size = 0; },
       {"job.training.global_batch_size: 0; must be from 1 to 1099511627776"}},
      {"global batch no multiple",
       [](JobSpec& j) {
         j.training.global_batch_size = 10;
         j.parallelism.data_parallel_size = 4;
       },
       {"job.training.global_batch_size: 10; must be a multiple of micro_batch_size x "
        "data_parallel_size, 8"}},
  };
  return *kRows;
}

const std::vector<Refusal>& Precisions() {
  static const auto* const kRows = new std::vector<Refusal>{
      {"preset",
       [](JobSpec& j) { j.training.precision.preset = "bf16"; },
       {"job.training.precision.preset: bf16; must be one of fp32, fp16-mixed, bf16-mixed, "
        "bf16-autocast, fp16-autocast, bf16-pure, fp16-pure, bf16-optimizer, fp8-mixed, fp4-mixed, "
        "fp8-lm"}},
      {"autocast elsewhere",
       [](JobSpec& j) {
         j.runtime.framework = "fsdp2", j.training.precision.preset = "bf16-autocast";
       },
       {"job.training.precision.preset: bf16-autocast; is not modelled with fsdp2: autocast is "
        "modelled with ddp only"}},
      {"parameters",
       [](JobSpec& j) { j.training.precision.parameter_dtype = "none"; },
       {"job.training.precision.parameter_dtype: none; must be one of fp32, fp16, bf16, fp8"}},
      {"gradients",
       [](JobSpec& j) { j.training.precision.gradient_dtype = "float32"; },
       {"job.training.precision.gradient_dtype: float32; must be one of fp32, fp16, bf16, fp8"}},
      {"accumulation",
       [](JobSpec& j) { j.training.precision.gradient_accumulation_dtype = "fp64"; },
       {"job.training.precision.gradient_accumulation_dtype: fp64; must be one of fp32, fp16, "
        "bf16, fp8"}},
      {"reduction",
       [](JobSpec& j) {
         j.runtime.framework = "deepspeed", j.training.precision.reduce_dtype = "int8";
       },
       {"job.training.precision.reduce_dtype: int8; must be one of fp32, fp16, bf16, fp8"}},
      {"reduction where nothing is reduced in another dtype",
       [](JobSpec& j) { j.training.precision.reduce_dtype = "fp32"; },
       {"job.training.precision.reduce_dtype: fp32; moves no byte of ddp"}},
      {"accumulation of shards",
       [](JobSpec& j) {
         j.runtime.framework = "fsdp2";
         j.training.precision.gradient_accumulation_dtype = "fp32";
       },
       {"job.training.precision.gradient_accumulation_dtype: fp32; moves no byte of fsdp2"}},
      {"sums of fp16 by DeepSpeed's ZeRO 1",
       [](JobSpec& j) {
         j.runtime.framework = "deepspeed";
         j.parallelism.zero_stage = 1;
         j.training.precision.preset = "fp16-mixed";
         j.training.precision.gradient_accumulation_dtype = "fp32";
       },
       {"job.training.precision.gradient_accumulation_dtype: fp32; is not modelled with "
        "parallelism.zero_stage 1 beside weights in fp16: beside bf16 it is"}},
      {"sums of DeepSpeed without ZeRO",
       [](JobSpec& j) {
         j.runtime.framework = "deepspeed";
         j.training.precision.preset = "bf16-optimizer";
       },
       {"job.training.precision.preset: bf16-optimizer; needs parallelism.zero_stage 1, 2 or 3 to "
        "sum 16-bit gradients up in fp32"}},
      {"buckets that DeepSpeed does not have",
       [](JobSpec& j) {
         j.runtime.framework = "deepspeed";
         j.parallelism.zero_stage = 1;
         j.training.precision.preset = "bf16-optimizer";
         j.runtime.reduce_bucket_element_count = 5;
         j.runtime.overlap_communication = true;
       },
       {"job.runtime.reduce_bucket_element_count: 5; moves no byte without ZeRO, nor with ZeRO 1 "
        "and sums in fp32",
        "job.runtime.overlap_communication: true; moves no byte without ZeRO, nor with ZeRO 1 and "
        "sums in fp32"}},
      {"master",
       [](JobSpec& j) { j.training.precision.master_dtype = "int64"; },
       {"job.training.precision.master_dtype: int64; must be one of none, fp32, fp16, bf16, fp8"}},
      {"no master", [](JobSpec& j) { j.training.precision.master_dtype = "none"; }, {}},
      {"states",
       [](JobSpec& j) { j.training.precision.optimizer_state_dtype = "bool"; },
       {"job.training.precision.optimizer_state_dtype: bool; must be one of fp32, fp16, bf16, "
        "fp8"}},
      {"optimizer",
       [](JobSpec& j) { j.training.optimizer.name = "adamx"; },
       {"job.training.optimizer.name: adamx; is not known; nearest: adam, adamw, ademamix"}},
      {"implementation",
       [](JobSpec& j) { j.training.optimizer.implementation = "apex"; },
       {"job.training.optimizer.implementation: apex; must be one of for-loop, foreach, fused"}},
      {"an optimizer of one kind",
       [](JobSpec& j) {
         j.training.optimizer.name = "muon";
         j.training.optimizer.implementation = "fused";
       },
       {"job.training.optimizer.implementation: fused; is not how muon is implemented"}},
      {"lion-pytorch has no foreach",
       [](JobSpec& j) {
         j.training.optimizer.name = "lion";
         j.training.optimizer.implementation = "foreach";
       },
       {"job.training.optimizer.implementation: foreach; is not how lion is implemented"}},
      {"bitsandbytes' states are fp32",
       [](JobSpec& j) {
         j.training.optimizer.name = "ademamix";
         j.training.precision.optimizer_state_dtype = "bf16";
       },
       {"job.training.precision.optimizer_state_dtype: bf16; is not how ademamix keeps its "
        "states"}},
      {"bitsandbytes' kernels under FSDP2",
       [](JobSpec& j) {
         j.runtime.framework = "fsdp2";
         j.training.optimizer.name = "lion-8bit";
       },
       {"job.training.optimizer.name: lion-8bit; fsdp2 does not have it: bitsandbytes' kernels "
        "take no DTensor"}},
      {"lion under FSDP2 is lion-pytorch's",
       [](JobSpec& j) {
         j.runtime.framework = "fsdp2";
         j.training.optimizer.name = "lion";
         j.training.optimizer.implementation = "fused";
       },
       {"job.training.optimizer.implementation: fused; is bitsandbytes', whose kernels take no "
        "DTensor: fsdp2 has for-loop"}},
      {"muon's matrices in flat shares",
       [](JobSpec& j) {
         j.runtime.framework = "fsdp1";
         j.training.optimizer.name = "muon";
       },
       {"job.training.optimizer.name: muon; needs matrices, and shares are flat here"}},
      {"an optimizer in backward that loops",
       [](JobSpec& j) {
         j.training.precision.preset = "bf16-pure";
         j.training.optimizer.in_backward = true;
         j.training.optimizer.implementation = "for-loop";
       },
       {"job.training.optimizer.implementation: for-loop; is not modelled with an optimizer in "
        "backward"}},
      {"an optimizer in backward",
       [](JobSpec& j) {
         j.training.optimizer.in_backward = true;
         j.training.gradient_clipping = true;
         j.training.global_batch_size = 64;
       },
       {"job.training.gradient_clipping: true; needs all gradients at once",
        "job.training.optimizer.in_backward: true; needs one micro-batch in a step",
        "job.training.precision.preset: bf16-mixed; is not modelled with an optimizer in "
        "backward"}},
      {"an optimizer in backward of shards",
       [](JobSpec& j) {
         j.runtime.framework = "fsdp2";
         j.training.optimizer.in_backward = true;
       },
       {"job.training.optimizer.in_backward: true; is not modelled with fsdp2: ddp is, on one "
        "GPU"}},
      {"an optimizer in backward of a trainer that has none",
       [](JobSpec& j) {
         j.runtime.framework = "ddp";
         j.runtime.trainer = "hf-trainer";
         j.training.optimizer.in_backward = true;
       },
       {"job.training.optimizer.in_backward: true; hf-trainer does not have it: it steps all "
        "parameters at once"}},
      {"paged states are fp32, by one kernel",
       [](JobSpec& j) {
         j.training.optimizer.implementation = "foreach";
         j.training.optimizer.paged = true;
         j.training.precision.optimizer_state_dtype = "bf16";
       },
       {"job.training.optimizer.implementation: foreach; is not how paged adamw is implemented",
        "job.training.precision.optimizer_state_dtype: bf16; is not how paged adamw keeps its "
        "states"}},
      {"paged states that are said to be fp32",
       [](JobSpec& j) {
         j.training.optimizer.paged = true;
         j.training.precision.optimizer_state_dtype = "fp32";
       },
       {}},
  };
  return *kRows;
}

const std::vector<Refusal>& Recomputing() {
  static const auto* const kRows = new std::vector<Refusal>{
      {"mode",
       [](JobSpec& j) { j.training.recompute.mode = "all"; },
       {"job.training.recompute.mode: all; must be one of none, selective, per-op, full, "
        "every-nth"}},
      {"more modules than there are",
       [](JobSpec& j) {
         j.training.recompute.mode = "selective";
         j.training.recompute.modules.assign(65, "mlp");
       },
       {"job.training.recompute.modules: 65 names; must be at most 64"}},
      {"modules of no mode",
       [](JobSpec& j) { j.training.recompute.modules = {"mlp"}; },
       {"job.training.recompute.modules: mlp; needs mode selective"}},
      {"unknown module",
       [](JobSpec& j) {
         j.training.recompute.mode = "selective";
         j.training.recompute.modules = {"mlp", "moe"};
       },
       {"job.training.recompute.modules: moe; must be one of core-attention, mlp, norm, "
        "activation, up-projection, experts, shared-experts"}},
      {"every nth without n",
       [](JobSpec& j) { j.training.recompute.mode = "every-nth"; },
       {"job.training.recompute.interval: unset; must be set"}},
      {"interval of no mode",
       [](JobSpec& j) { j.training.recompute.interval = 2; },
       {"job.training.recompute.interval: 2; needs mode every-nth"}},
      {"interval beyond the layers",
       [](JobSpec& j) {
         j.training.recompute.mode = "every-nth";
         j.training.recompute.interval = 5;
       },
       {"job.training.recompute.interval: 5; must be at most the model's 4 layers"}},
      {"unit of no mode",
       [](JobSpec& j) { j.training.recompute.unit_layer_count = 2; },
       {"job.training.recompute.unit_layer_count: 2; needs mode full"}},
      {"unit that does not divide",
       [](JobSpec& j) {
         j.training.recompute.mode = "full";
         j.training.recompute.unit_layer_count = 3;
       },
       {"job.training.recompute.unit_layer_count: 3; must divide the layers of each stage, 4 on "
        "one"}},
      {"unit zero",
       [](JobSpec& j) {
         j.training.recompute.mode = "full";
         j.training.recompute.unit_layer_count = 0;
       },
       {"job.training.recompute.unit_layer_count: 0; must be from 1 to 4096"}},
  };
  return *kRows;
}

const std::vector<Refusal>& Kernels() {
  static const auto* const kRows = new std::vector<Refusal>{
      {"attention",
       [](JobSpec& j) { j.training.attention = "fast"; },
       {"job.training.attention: fast; must be one of auto, eager, flash, cudnn, "
        "memory-efficient, flex"}},
      {"compiled where nothing compiles it",
       [](JobSpec& j) { j.training.attention = "flex"; },
       {"job.training.attention: flex; is not modelled with this framework"}},
      {"flash in fp32",
       [](JobSpec& j) { j.training.attention = "flash", j.training.precision.preset = "fp32"; },
       {"job.training.attention: flash; needs 16-bit activations"}},
      {"flash on Volta",
       [](JobSpec& j) { j.training.attention = "flash", j.cluster.gpu = "v100-32gb-sxm"; },
       {"job.training.attention: flash; needs an Ampere or newer GPU"}},
      {"loss",
       [](JobSpec& j) { j.training.loss.implementation = "liger"; },
       {"job.training.loss.implementation: liger; must be one of plain, chunked, "
        "chunked-cross-entropy, fused, "
        "fused-cross-entropy, te-cross-entropy, tiled-log-probs"}},
      {"chunks of a plain loss",
       [](JobSpec& j) { j.training.loss.chunk_count = 4; },
       {"job.training.loss.chunk_count: 4; needs implementation chunked"}},
      {"too many chunks",
       [](JobSpec& j) {
         j.training.loss.implementation = "chunked";
         j.training.loss.chunk_count = 1025;
       },
       {"job.training.loss.chunk_count: 1025; must be from 1 to 1024"}},
      {"chunks of Megatron",
       [](JobSpec& j) {
         j.runtime.framework = "megatron-core";
         j.training.loss.implementation = "chunked";
       },
       {"job.training.loss.implementation: chunked; megatron-core does not have it"}},
  };
  return *kRows;
}

const std::vector<Refusal>& Knobs() {
  static const auto* const kRows = new std::vector<Refusal>{
      {"DDP's knobs elsewhere",
       [](JobSpec& j) {
         j.runtime.framework = "fsdp2";
         j.runtime.gradient_as_bucket_view = false;
       },
       {"job.runtime.gradient_as_bucket_view: set; fsdp2 does not have it"}},
      {"DeepSpeed's knobs elsewhere",
       [](JobSpec& j) {
         j.runtime.reduce_bucket_element_count = 5;
         j.runtime.overlap_communication = true;
       },
       {"job.runtime.reduce_bucket_element_count: set; ddp does not have it",
        "job.runtime.overlap_communication: set; ddp does not have it"}},
      {"DeepSpeed's offload elsewhere",
       [](JobSpec& j) {
         j.runtime.framework = "fsdp2";
         j.runtime.offload_optimizer = true;
       },
       {"job.runtime.offload_optimizer: set; fsdp2 does not have it: parameters and states go "
        "together"}},
      {"DeepSpeed's offload without what it needs",
       [](JobSpec& j) {
         j.runtime.framework = "deepspeed";
         j.parallelism.zero_stage = 0;
         j.runtime.offload_optimizer = true;
         j.runtime.offload_parameters = true;
       },
       {"job.runtime.offload_parameters: true; needs parallelism.zero_stage 3",
        "job.runtime.offload_optimizer: true; needs parallelism.zero_stage 2 or 3"}},
      {"DeepSpeed's offload of an optimizer that has no like on the CPU",
       [](JobSpec& j) {
         j.runtime.framework = "deepspeed";
         j.parallelism.zero_stage = 3;
         j.training.optimizer.name = "sgd";
         j.runtime.offload_optimizer = true;
       },
       {"job.training.optimizer.name: sgd; is not modelled with offload"}},
      {"DeepSpeed's offload with ZeRO 1",
       [](JobSpec& j) {
         j.runtime.framework = "deepspeed";
         j.parallelism.zero_stage = 1;
         j.runtime.offload_optimizer = true;
       },
       {"job.runtime.offload_optimizer: true; is not modelled with parallelism.zero_stage 1: 2 and "
        "3 are"}},
      {"offloaded activations where nobody offloads them",
       [](JobSpec& j) { j.runtime.offload_activations = true; },
       {"job.runtime.offload_activations: set; is not modelled with ddp: TRL, torchtune and "
        "axolotl (hf-trainer) do it; a script's own hooks were not tried"}},
      {"offloaded activations of layers that do not run again",
       [](JobSpec& j) {
         j.runtime.trainer = "trl";
         j.runtime.offload_activations = true;
       },
       {"job.training.recompute.mode: none; is not modelled with offloaded activations"}},
      {"offloaded activations of sampled answers",
       [](JobSpec& j) {
         j.runtime.trainer = "trl";
         j.training.recompute.mode = "full";
         j.training.preference.method = "grpo";
         j.runtime.offload_activations = true;
       },
       {"job.runtime.offload_activations: true; TRL's GRPO has no activation_offloading"}},
      {"offloaded activations where TRL's head asks ZeRO 3 for its weight",
       [](JobSpec& j) {
         j.runtime.framework = "deepspeed";
         j.runtime.trainer = "trl";
         j.parallelism.zero_stage = 3;
         j.training.recompute.mode = "full";
         j.runtime.offload_activations = true;
       },
       {"job.runtime.offload_activations: true; fails in TRL with ZeRO 3: the head's weight comes "
        "back as no parameter to gather"}},
      {"offloaded activations where another head is",
       [](JobSpec& j) {
         j.runtime.framework = "deepspeed";
         j.runtime.trainer = "hf-trainer";
         j.parallelism.zero_stage = 3;
         j.training.recompute.mode = "full";
         j.runtime.offload_activations = true;
       },
       {}},
      {"FSDP's and Megatron's knobs elsewhere",
       [](JobSpec& j) {
         j.runtime.reshard_after_forward = true;
         j.runtime.offload_parameters = true;
         j.runtime.gradient_accumulation_fusion = false;
         j.runtime.deferred_embedding_gradient_count = 2;
         j.runtime.attention_mask = true;
         j.runtime.transformer_implementation = "local";
       },
       {"job.runtime.reshard_after_forward: set; ddp does not have it",
        "job.runtime.offload_parameters: set; ddp does not have it: it keeps whole weights on each "
        "GPU",
        "job.runtime.gradient_accumulation_fusion: set; ddp does not have it",
        "job.runtime.attention_mask: set; ddp does not have it",
        "job.runtime.transformer_implementation: set; ddp does not have it",
        "job.runtime.deferred_embedding_gradient_count: set; ddp does not have it"}},
      {"compilation and recomputation by operation in Megatron",
       [](JobSpec& j) {
         j.runtime.framework = "megatron-core", j.runtime.compile = false;
         j.training.recompute.mode = "per-op";
       },
       {"job.training.recompute.mode: per-op; megatron-core does not have it: it recomputes "
        "modules or layers",
        "job.runtime.compile: set; megatron-core does not have it"}},
      {"Transformer Engine's loss elsewhere",
       [](JobSpec& j) { j.training.loss.implementation = "te-cross-entropy"; },
       {"job.training.loss.implementation: te-cross-entropy; ddp does not have it"}},
      {"slices of the logits",
       [](JobSpec& j) {
         j.training.loss.implementation = "chunked-cross-entropy";
         j.training.loss.chunk_count = 4;
       },
       {}},
      {"bucket elements zero",
       [](JobSpec& j) {
         j.runtime.framework = "deepspeed", j.parallelism.zero_stage = 2;
         j.runtime.reduce_bucket_element_count = 0;
       },
       {"job.runtime.reduce_bucket_element_count: 0; must be from 1 to 1099511627776"}},
      {"bucket elements negative",
       [](JobSpec& j) {
         j.runtime.framework = "deepspeed", j.parallelism.zero_stage = 2;
         j.runtime.reduce_bucket_element_count = -1;
       },
       {"job.runtime.reduce_bucket_element_count: -1; must be from 1 to 1099511627776"}},
      {"bucket elements of sums that are reduced at once",
       [](JobSpec& j) {
         j.runtime.framework = "megatron-deepspeed", j.parallelism.zero_stage = 1;
         j.training.precision.preset = "bf16-optimizer";
         j.runtime.reduce_bucket_element_count = 5;
       },
       {"job.runtime.reduce_bucket_element_count: 5; moves no byte without ZeRO, nor with ZeRO 1 "
        "and sums in fp32"}},
      {"bucket elements of a pipeline",
       [](JobSpec& j) {
         j.runtime.framework = "megatron-deepspeed", j.parallelism.zero_stage = 1;
         j.training.precision.preset = "fp16-mixed";
         j.runtime.reduce_bucket_element_count = 5;
       },
       {}},
      {"transformer implementation",
       [](JobSpec& j) {
         j.runtime.framework = "megatron-core", j.runtime.transformer_implementation = "te";
       },
       {"job.runtime.transformer_implementation: te; must be one of transformer-engine, local"}},
      {"head gradients that wait without a pipeline",
       [](JobSpec& j) {
         j.runtime.framework = "megatron-core", j.runtime.deferred_embedding_gradient_count = 2;
       },
       {"job.runtime.deferred_embedding_gradient_count: 2; needs pipeline_parallel_size above 1"}},
      {"head gradients that wait without fusion",
       [](JobSpec& j) {
         j.runtime.framework = "megatron-core", j.parallelism.pipeline_parallel_size = 2;
         j.runtime.gradient_accumulation_fusion = false;
         j.runtime.deferred_embedding_gradient_count = 2;
       },
       {"job.runtime.deferred_embedding_gradient_count: 2; needs gradient_accumulation_fusion"}},
      {"head gradients that wait beside those of one token further",
       [](JobSpec& j) {
         j.runtime.framework = "megatron-core", j.parallelism.pipeline_parallel_size = 2;
         j.training.mtp_layer_count = 1;
         j.runtime.deferred_embedding_gradient_count = 2;
       },
       {"job.training.mtp_layer_count: 1; is not modelled with deferred gradients"}},
      {"one token further under a loop",
       [](JobSpec& j) { j.training.mtp_layer_count = 1; },
       {"job.training.mtp_layer_count: 1; is not modelled with ddp: transformers' classes leave "
        "such layers out"}},
      {"one token further before its losses stood with the head's",
       [](JobSpec& j) {
         j.runtime.framework = "megatron-core", j.training.mtp_layer_count = 1;
         j.runtime.versions["megatron-core"] = "0.13";
       },
       {"job.training.mtp_layer_count: 1; is not modelled with megatron-core: its losses were "
        "inside the layers"}},
      {"two tokens further",
       [](JobSpec& j) { j.runtime.framework = "megatron-core", j.training.mtp_layer_count = 2; },
       {"job.training.mtp_layer_count: 2; must be from 0 to 1"}},
      {"one token further of what Megatron has not",
       [](JobSpec& j) {
         j.runtime.framework = "megatron-core", j.training.mtp_layer_count = 1;
         Shape(j).position_embedding = "learned";
         Shape(j).position_count = 32;
         Shape(j).tied_embeddings = true;
         Shape(j).hidden_dropout = 0.1;
         j.training.optimizer.name = "muon";
       },
       {"job.training.mtp_layer_count: 1; needs rotary position embeddings, or none",
        "job.model: tied embeddings; is not modelled with multi-token prediction",
        "job.model: dropout of embeddings; is not modelled with multi-token prediction",
        "job.training.optimizer.name: muon; is not modelled with multi-token prediction"}},
      {"one token further, and several layers at once",
       [](JobSpec& j) {
         j.runtime.framework = "megatron-core", j.training.mtp_layer_count = 1;
         j.training.recompute.mode = "full";
         j.training.recompute.unit_layer_count = 2;
       },
       {"job.training.recompute.unit_layer_count: 2; must be 1 with multi-token prediction"}},
      {"head gradients below none",
       [](JobSpec& j) {
         j.runtime.framework = "megatron-core", j.parallelism.pipeline_parallel_size = 2;
         j.runtime.deferred_embedding_gradient_count = -1;
       },
       {"job.runtime.deferred_embedding_gradient_count: -1; must be from 0 to 1099511627776"}},
      {"workspace without pairs",
       [](JobSpec& j) { j.runtime.cublas_workspace_config = "4096"; },
       {"job.runtime.cublas_workspace_config: 4096; must be as :4096:8, pairs of KiB and count"}},
      {"workspace with half a pair",
       [](JobSpec& j) { j.runtime.cublas_workspace_config = ":4096:2:16"; },
       {"job.runtime.cublas_workspace_config: :4096:2:16; must be as :4096:8, pairs of KiB and "
        "count"}},
      {"workspace below zero",
       [](JobSpec& j) { j.runtime.cublas_workspace_config = ":-1:8"; },
       {"job.runtime.cublas_workspace_config: :-1:8; must be as :4096:8, pairs of KiB and count"}},
  };
  return *kRows;
}

TEST(ValidateTrainingTest, Batches) { ExpectRefusals(SmallJob(), Batches()); }
TEST(ValidateTrainingTest, PrecisionsAndOptimizers) { ExpectRefusals(SmallJob(), Precisions()); }
TEST(ValidateTrainingTest, Recomputing) { ExpectRefusals(SmallJob(), Recomputing()); }
TEST(ValidateTrainingTest, Kernels) { ExpectRefusals(SmallJob(), Kernels()); }
TEST(ValidateTrainingTest, Knobs) { ExpectRefusals(SmallJob(), Knobs()); }

// Gemma 2's class has no SDPA; whoever brings layers of its own does not ask the class.
TEST(ValidateTrainingTest, AutoIsEagerWhereTheClassHasNoSdpa) {
  const auto job = [](absl::string_view framework) {
    return WithModel(With(SmallJob(), framework),
                     [](Transformer& model) { model.eager_attention = true; });
  };
  EXPECT_EQ(Valid(job("ddp"))->attention, AttentionKernel::kEager);
  EXPECT_EQ(Valid(job("deepspeed"))->attention, AttentionKernel::kEager);
  EXPECT_EQ(Valid(job("megatron-core"))->attention, AttentionKernel::kFlash);
  JobSpec titan = job("fsdp2");
  titan.runtime.trainer = "torchtitan";
  EXPECT_EQ(Valid(titan)->attention, AttentionKernel::kFlash);
  JobSpec flash = job("ddp");
  flash.training.attention = "flash";
  EXPECT_EQ(Valid(flash)->attention, AttentionKernel::kFlash);
}

JobSpec Windowed(int64_t window) {
  return WithModel(SmallJob(), [window](Transformer& model) {
    model.sliding_window = window;
    model.windowed = {.period = 2};
  });
}

// From the length of a window on: transformers makes a mask then, for whichever kernel of SDPA.
TEST(ValidateTrainingTest, SdpaMasksWindowsThatAreNoLongerThanTheSequence) {
  EXPECT_TRUE(Valid(Windowed(31))->masks_windows);
  EXPECT_TRUE(Valid(Windowed(32))->masks_windows);
  EXPECT_FALSE(Valid(Windowed(33))->masks_windows);
  EXPECT_FALSE(Valid(Windowed(0))->masks_windows);
  EXPECT_FALSE(Valid(With(Windowed(16), "megatron-core"))->masks_windows);
  JobSpec flash = Windowed(16);
  flash.training.attention = "flash";
  EXPECT_FALSE(Valid(flash)->masks_windows);
  JobSpec asked = Windowed(16);
  asked.training.attention = "memory-efficient";
  EXPECT_TRUE(Valid(asked)->masks_windows);
  asked.runtime.trainer = "torchtitan";
  EXPECT_FALSE(Valid(With(asked, "fsdp2"))->masks_windows);
  JobSpec cudnn = Windowed(16);
  cudnn.training.attention = "cudnn";
  EXPECT_THAT(
      Refusals(cudnn),
      testing::ElementsAre("job.training.attention: cudnn; is not modelled where layers see "
                           "windows, which have a mask"));
}

TEST(ValidateTrainingTest, MasksOfSomeLayersGoWithNoOtherDivision) {
  const std::string rule =
      "job.training.attention: auto; masks the windows that layers see, which is not modelled ";
  JobSpec again = Windowed(16);
  again.training.recompute.mode = "every-nth";
  again.training.recompute.interval = 2;
  EXPECT_THAT(
      Refusals(again),
      testing::ElementsAre(rule + "where only some layers are run again; flash needs no mask"));
  again.training.attention = "memory-efficient";
  EXPECT_THAT(Refusals(again), testing::ElementsAre(testing::HasSubstr(
                                   "job.training.attention: memory-efficient; masks the windows")));
}

TEST(ValidateTrainingTest, AutoPicksTheKernelThatFrameworkAndGpuHave) {
  struct Row {
    const char* framework;
    const char* gpu;
    const char* preset;
    AttentionKernel kernel;
  };
  for (const Row& row : {
           Row{"ddp", "a100-80gb-sxm", "bf16-mixed", AttentionKernel::kFlash},
           Row{"ddp", "a100-80gb-sxm", "fp32", AttentionKernel::kMemoryEfficient},
           Row{"ddp", "v100-32gb-sxm", "fp16-mixed", AttentionKernel::kMemoryEfficient},
           Row{"megatron-core", "h100-80gb-sxm", "bf16-mixed", AttentionKernel::kCudnn},
           Row{"megatron-core", "a100-80gb-sxm", "bf16-mixed", AttentionKernel::kFlash},
           Row{"megatron-core", "v100-32gb-sxm", "fp16-mixed", AttentionKernel::kEager},
           Row{"megatron-lm", "h100-80gb-sxm", "fp16-mixed", AttentionKernel::kEager},
           Row{"nanotron", "h100-80gb-sxm", "bf16-mixed", AttentionKernel::kFlash},
       }) {
    JobSpec job = With(SmallJob(), row.framework, row.preset);
    job.cluster.gpu = row.gpu;
    EXPECT_EQ(Valid(job)->attention, row.kernel) << row.framework << " on " << row.gpu;
    job.training.attention = "auto";
    EXPECT_EQ(Valid(job)->attention, row.kernel) << row.framework << " on " << row.gpu;
  }
}

TEST(ValidateTrainingTest, WorkspacesFollowTheGpuOrTheSetting) {
  JobSpec job = SmallJob();
  EXPECT_EQ(Valid(job)->cublas_workspace_bytes, 8519680) << "before Hopper";
  job.cluster.gpu = "h100";
  EXPECT_EQ(Valid(job)->cublas_workspace_bytes, 33554432);
  job.runtime.cublas_workspace_config = ":4096:2:16:8";
  EXPECT_EQ(Valid(job)->cublas_workspace_bytes, 8519680);
}

TEST(ValidateTrainingTest, WorkspacesOnBlackwellFollowTheTorchBelow) {
  Catalog catalog = SmallCatalog();
  Gpu& b200 = catalog.gpus["b200-180gb"];
  b200 = catalog.gpus["h100-80gb-sxm"];
  b200.id = "b200-180gb";
  b200.architecture = GpuArchitecture::kBlackwell;
  JobSpec job = With(SmallJob(), "megatron-core");
  job.cluster.gpu = "b200-180gb";
  const auto bytes = [&](const char* torch) {
    if (torch != nullptr) job.runtime.versions["torch"] = torch;
    return std::get<ValidJob>(Validate(job, catalog))->cublas_workspace_bytes;
  };
  EXPECT_EQ(bytes(nullptr), 33554432) << "the newest";
  EXPECT_EQ(bytes("2.12"), 33554432);
  EXPECT_EQ(bytes("2.11"), 8519680);
}

}  // namespace
}  // namespace plimsoll
