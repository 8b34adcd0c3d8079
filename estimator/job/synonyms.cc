#include "estimator/job/synonyms.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "estimator/job/fields.h"

namespace plimsoll {
namespace {

constexpr size_t kMaxWordBytes = 64;  // a longer one is nobody's

constexpr size_t kMaxPathBytes = 256;

constexpr char kSequence[] = "training.sequence_length";
constexpr char kMicroBatch[] = "training.micro_batch_size";
constexpr char kGlobalBatch[] = "training.global_batch_size";
constexpr char kPreset[] = "training.precision.preset";
constexpr char kFp8Parameters[] = "training.precision.fp8_parameters";
constexpr char kOptimizer[] = "training.optimizer.name";
constexpr char kImplementation[] = "training.optimizer.implementation";
constexpr char kPaged[] = "training.optimizer.paged";
constexpr char kProjectedRank[] = "training.optimizer.rank";
constexpr char kProjectedModules[] = "training.optimizer.target_modules";
constexpr char kTrainedModulesPath[] = "training.adapter.trained_modules";
constexpr char kTrainedParts[] = "training.trained.modules";
constexpr char kOffload[] = "runtime.offload_parameters";
constexpr char kOffloadOptimizer[] = "runtime.offload_optimizer";
constexpr char kOffloadActivations[] = "runtime.offload_activations";
constexpr char kRecompute[] = "training.recompute.mode";
constexpr char kModules[] = "training.recompute.modules";
constexpr char kAdapter[] = "training.adapter.method";
constexpr char kAdapterRank[] = "training.adapter.rank";
constexpr char kAdapterTargetModules[] = "training.adapter.target_modules";
constexpr char kQuantization[] = "training.quantization.format";
constexpr char kDoubleQuantization[] = "training.quantization.double_quantization";
constexpr char kComputeDType[] = "training.quantization.compute_dtype";
constexpr char kPreference[] = "training.preference.method";
constexpr char kTeacher[] = "training.distillation.teacher";
constexpr char kReference[] = "training.preference.reference";
constexpr char kAttention[] = "training.attention";
constexpr char kLoss[] = "training.loss.implementation";
constexpr char kZero[] = "parallelism.zero_stage";
constexpr char kContext[] = "parallelism.context_parallel_size";
constexpr char kExpert[] = "parallelism.expert_parallel_size";
constexpr char kDispatcher[] = "parallelism.token_dispatcher";
constexpr char kTensor[] = "parallelism.tensor_parallel_size";
constexpr char kPipeline[] = "parallelism.pipeline_parallel_size";
constexpr char kData[] = "parallelism.data_parallel_size";
constexpr char kSchedule[] = "parallelism.pipeline_schedule";
constexpr char kFramework[] = "runtime.framework";
constexpr char kTrainer[] = "runtime.trainer";
constexpr char kGpu[] = "cluster.gpu";
constexpr char kGpuCount[] = "cluster.gpu_count";
constexpr char kGpusPerNode[] = "cluster.gpus_per_node";

constexpr char kBf16Note[] = "bf16-pure has no fp32 master, bf16-autocast keeps fp32 weights";

constexpr char kInBf16[] =
    "bf16-mixed bf16-autocast bf16-pure bf16-optimizer fp8-mixed fp4-mixed "
    "fp8-lm";
constexpr char kInFp16[] = "fp16-mixed fp16-autocast fp16-pure";

constexpr FieldSynonym kFieldSynonyms[] = {
    {"seq-len", kSequence, "torchtitan training.seq_len"},
    {"seqlen", kSequence, "usual"},
    {"seq-length", kSequence, "Megatron-LM --seq-length"},
    {"sequence-len", kSequence, "axolotl sequence_len"},
    {"context-length", kSequence, "usual"},
    {"max-seq-len", kSequence, "torchtune tokenizer.max_seq_len"},
    {"max-seq-length", kSequence, "litgpt train.max_seq_length"},
    {"max-length", kSequence, "TRL SFTConfig.max_length"},
    {"model-max-length", kSequence, "Hugging Face tokenizers' model_max_length"},
    {"cutoff-len", kSequence, "LLaMA-Factory cutoff_len"},
    {"block-size", kSequence, "nanoGPT and litgpt block_size"},
    {"mbs", kMicroBatch, "usual"},
    {"per-device-train-batch-size", kMicroBatch, "Hugging Face TrainingArguments"},
    {"train-micro-batch-size-per-gpu", kMicroBatch, "DeepSpeed"},
    {"gbs", kGlobalBatch, "usual"},
    {"train-batch-size", kGlobalBatch, "DeepSpeed train_batch_size"},
    {"gradient-accumulation-steps", kGlobalBatch, "Hugging Face TrainingArguments, DeepSpeed",
     WordReading::kAccumulation},
    {"accumulate-grad-batches", kGlobalBatch, "PyTorch Lightning", WordReading::kAccumulation},
    {"grad-accum", kGlobalBatch, "usual", WordReading::kAccumulation},
    {"bf16", kPreset, "Megatron-LM --bf16; Hugging Face and DeepSpeed bf16", WordReading::kImplied,
     "bf16", kInBf16},
    {"bf16.enabled", kPreset, "DeepSpeed", WordReading::kImplied, "bf16", kInBf16},
    {"fp16", kPreset, "Megatron-LM --fp16; Hugging Face and DeepSpeed fp16", WordReading::kImplied,
     "fp16", kInFp16},
    {"fp16.enabled", kPreset, "DeepSpeed", WordReading::kImplied, "fp16", kInFp16},
    {"fp8-format", kPreset, "Megatron-Core --fp8-format", WordReading::kWords, "hybrid e4m3"},
    {"fp4-format", kPreset, "Megatron-Core --fp4-format", WordReading::kWords, "e2m1"},
    {"fp8-param-gather", kFp8Parameters, "Megatron-Core --fp8-param-gather"},
    {"fp8-param", kFp8Parameters, "Megatron Bridge fp8_param"},
    {"optim", kOptimizer, "Hugging Face TrainingArguments.optim"},
    {"optimizer.type", kOptimizer, "DeepSpeed"},
    {"optimizer-in-bwd", "training.optimizer.in_backward", "torchtune"},
    {"optim-target-modules", kProjectedModules, "Hugging Face TrainingArguments"},
    {"galore-rank", kProjectedRank, "LLaMA-Factory galore_rank"},
    {"apollo-rank", kProjectedRank, "LLaMA-Factory apollo_rank"},
    {"recomputation", kRecompute, "usual"},
    {"recompute-granularity", kRecompute, "Megatron-LM --recompute-granularity"},
    {"recompute-modules", kModules, "Megatron-Core --recompute-modules"},
    {"recompute-activations", kRecompute, "Megatron-LM --recompute-activations",
     WordReading::kSwitch, "selective", "none"},
    {"gradient-checkpointing", kRecompute, "Hugging Face TrainingArguments", WordReading::kSwitch,
     "full", "none"},
    {"activation-checkpointing", kRecompute, "PyTorch Lightning, litgpt, torchtune",
     WordReading::kSwitch, "full", "none"},
    {"enable-activation-checkpointing", kRecompute, "torchtune", WordReading::kSwitch, "full",
     "none"},
    {"checkpoint-activations", kRecompute, "Megatron-LM 2, --checkpoint-activations",
     WordReading::kSwitch, "full", "none"},
    {"lora", kAdapter, "usual", WordReading::kImplied, "lora", "qlora dora"},
    {"use-lora", kAdapter, "usual", WordReading::kImplied, "lora", "qlora dora"},
    {"use-peft", kAdapter, "TRL ModelConfig.use_peft", WordReading::kImplied, "lora", "qlora dora"},
    {"peft", kAdapter, "usual", WordReading::kImplied, "lora", "qlora dora"},
    {"peft-type", kAdapter, "PEFT PeftConfig.peft_type"},
    {"num-virtual-tokens", "training.adapter.virtual_token_count",
     "PEFT PromptLearningConfig.num_virtual_tokens"},
    {"lora-r", kAdapterRank, "axolotl lora_r, TRL ModelConfig.lora_r"},
    {"lora-rank", kAdapterRank, "LLaMA-Factory lora_rank"},
    {"lora-dropout", "training.adapter.dropout", "axolotl, LLaMA-Factory, TRL"},
    {"lora-target-modules", kAdapterTargetModules, "axolotl, TRL ModelConfig"},
    {"lora-target", kAdapterTargetModules, "LLaMA-Factory lora_target"},
    {"modules-to-save", kTrainedModulesPath, "PEFT LoraConfig"},
    {"lora-modules-to-save", kTrainedModulesPath, "axolotl"},
    {"additional-target", kTrainedModulesPath, "LLaMA-Factory additional_target"},
    {"freeze-trainable-layers", "training.trained.layer_count",
     "LLaMA-Factory freeze_trainable_layers"},
    {"freeze-trainable-modules", kTrainedParts, "LLaMA-Factory freeze_trainable_modules"},
    {"trainable-parameters", kTrainedParts, "ms-swift --trainable_parameters"},
    {"qlora", kAdapter, "usual", WordReading::kRefined, "qlora", "lora"},
    {"dora", kAdapter, "usual", WordReading::kRefined, "dora", "lora"},
    {"use-dora", kAdapter, "PEFT LoraConfig.use_dora, LLaMA-Factory", WordReading::kRefined, "dora",
     "lora"},
    {"peft-use-dora", kAdapter, "axolotl", WordReading::kRefined, "dora", "lora"},
    {"load-in-4bit", kQuantization, "transformers BitsAndBytesConfig, axolotl, TRL",
     WordReading::kImplied, "nf4", "fp4"},
    {"load-in-8bit", kQuantization, "transformers BitsAndBytesConfig, axolotl, TRL",
     WordReading::kImplied, "int8", ""},
    {"bnb-4bit-quant-type", kQuantization, "transformers BitsAndBytesConfig, TRL, ms-swift"},
    {"quantization-bit", kQuantization, "LLaMA-Factory quantization_bit", WordReading::kBits},
    {"quant-bits", kQuantization, "ms-swift --quant_bits", WordReading::kBits},
    {"bnb-4bit-use-double-quant", kDoubleQuantization, "transformers BitsAndBytesConfig, ms-swift"},
    {"use-bnb-nested-quant", kDoubleQuantization, "TRL ModelConfig"},
    {"bnb-4bit-compute-dtype", kComputeDType, "transformers BitsAndBytesConfig, ms-swift"},
    {"fsdp-cpu-offload", kOffload, "torchtune"},
    {"enable-cpu-offload", kOffload, "torchtitan"},
    {"fsdp-offload-params", kOffload, "accelerate"},
    {"offload-param-device", kOffload, "accelerate", WordReading::kHost},
    {"offload-optimizer-device", kOffloadOptimizer, "accelerate", WordReading::kHost},
    {"zero-optimization.offload-param.device", kOffload, "DeepSpeed", WordReading::kHost},
    {"zero-optimization.offload-optimizer.device", kOffloadOptimizer, "DeepSpeed",
     WordReading::kHost},
    {"activation-offloading", kOffloadActivations, "TRL SFTConfig, axolotl"},
    {"enable-activation-offloading", kOffloadActivations, "torchtune"},
    {"dpo", kPreference, "usual", WordReading::kSwitch, "dpo", ""},
    {"rl", kPreference, "axolotl rl"},
    {"precompute-ref-log-probs", kReference, "TRL DPOConfig.precompute_ref_log_probs",
     WordReading::kSwitch, "precomputed", ""},
    {"teacher-model", kTeacher, "ms-swift --teacher_model"},
    {"teacher-model-name-or-path", kTeacher, "TRL"},
    {"attn-implementation", kAttention, "Hugging Face from_pretrained"},
    {"attention-backend", kAttention, "Megatron-Core --attention-backend"},
    {"flash-attention", kAttention, "axolotl flash_attention", WordReading::kSwitch, "flash", ""},
    {"use-flash-attn", kAttention, "Megatron-LM --use-flash-attn", WordReading::kSwitch, "flash",
     ""},
    {"cross-entropy-fusion-impl", kLoss, "Megatron-Core --cross-entropy-fusion-impl"},
    {"loss-chunks", "training.loss.chunk_count", "usual"},
    {"dp", kData, "usual"},
    {"dp-size", kData, "usual"},
    {"zero", kZero, "usual"},
    {"zero-optimization.stage", kZero, "DeepSpeed"},
    {"use-distributed-optimizer", kZero, "Megatron-Core --use-distributed-optimizer",
     WordReading::kSwitch, "1", "0"},
    {"tp", kTensor, "usual"},
    {"tp-size", kTensor, "usual"},
    {"tensor-model-parallel-size", kTensor, "Megatron-LM"},
    {"tensor-parallel-degree", kTensor, "torchtitan parallelism.tensor_parallel_degree"},
    {"cp", kContext, "usual"},
    {"cp-size", kContext, "usual"},
    {"context-parallel-degree", kContext, "torchtitan parallelism.context_parallel_degree"},
    {"ulysses-sequence-parallel-size", kContext, "verl"},
    {"pp", kPipeline, "usual"},
    {"pp-size", kPipeline, "usual"},
    {"pipeline-model-parallel-size", kPipeline, "Megatron-LM"},
    {"pipeline-parallel-degree", kPipeline, "torchtitan parallelism.pipeline_parallel_degree"},
    {"vpp", "parallelism.virtual_pipeline_size", "usual"},
    {"virtual-pipeline-model-parallel-size", "parallelism.virtual_pipeline_size",
     "Megatron-Core virtual_pipeline_model_parallel_size"},
    {"ep", kExpert, "usual"},
    {"ep-size", kExpert, "usual"},
    {"expert-model-parallel-size", kExpert, "Megatron-Core"},
    {"expert-parallel-degree", kExpert, "torchtitan parallelism.expert_parallel_degree"},
    {"etp", "parallelism.expert_tensor_parallel_size", "usual"},
    {"moe-token-dispatcher-type", kDispatcher, "Megatron-Core"},
    {"moe-grouped-gemm", "runtime.grouped_gemm", "Megatron-Core"},
    {"moe-router-dtype", "training.precision.router_dtype", "Megatron-Core"},
    {"deterministic-mode", "runtime.deterministic", "Megatron-Core"},
    {"mtp-num-layers", "training.mtp_layer_count", "Megatron-Core"},
    {"use-liger-kernel", "runtime.liger_kernel", "transformers"},
    {"enable-liger-kernel", "runtime.liger_kernel", "LLaMA-Factory"},
    {"microbatch-group-size-per-virtual-pipeline-stage", "parallelism.micro_batch_group_size",
     "Megatron-Core"},
    {"reduce-bucket-size", "runtime.reduce_bucket_element_count",
     "DeepSpeed zero_optimization.reduce_bucket_size"},
    {"overlap-comm", "runtime.overlap_communication", "DeepSpeed zero_optimization.overlap_comm"},
    {"make-vocab-size-divisible-by", "runtime.vocab_size_divisor", "Megatron-LM"},
    {"max-split-size-mb", "runtime.allocator.max_split_size_bytes", "PYTORCH_CUDA_ALLOC_CONF",
     WordReading::kMebibytes},
    {"gpu-type", kGpu, "usual"},
    {"gpu-name", kGpu, "usual"},
    {"gpu-model", kGpu, "usual"},
    {"gpu-memory", "cluster.gpu_memory_bytes", "usual"},
    {"gpus", kGpuCount, "usual", WordReading::kGpus},
    {"ngpus", kGpuCount, "usual", WordReading::kGpus},
    {"num-gpus", kGpuCount, "usual", WordReading::kGpus},
    {"n-gpus", kGpuCount, "usual", WordReading::kGpus},
    {"devices", kGpuCount, "PyTorch Lightning, of each node", WordReading::kGpus},
    {"world-size", kGpuCount, "torch.distributed"},
    {"num-processes", kGpuCount, "accelerate num_processes"},
    {"nodes", kGpuCount, "usual", WordReading::kNodes},
    {"nnodes", kGpuCount, "torchrun --nnodes", WordReading::kNodes},
    {"num-nodes", kGpuCount, "PyTorch Lightning, Megatron-LM", WordReading::kNodes},
    {"num-machines", kGpuCount, "accelerate num_machines", WordReading::kNodes},
    {"nproc-per-node", kGpusPerNode, "torchrun --nproc-per-node"},
    {"model-name", "model", "usual"},
    {"model-id", "model", "usual"},
    {"model-name-or-path", "model", "Hugging Face example scripts"},
    {"pretrained-model-name-or-path", "model", "Hugging Face from_pretrained"},
    {"base-model", "model", "axolotl base_model"},
    {"num-layers", "model.transformer.layer_count", "Megatron-LM --num-layers"},
    {"num-hidden-layers", "model.transformer.layer_count", "Hugging Face configurations"},
    {"num-attention-heads", "model.transformer.head_count", "Megatron-LM, Hugging Face"},
    {"num-key-value-heads", "model.transformer.kv_head_count", "Hugging Face configurations"},
    {"num-query-groups", "model.transformer.kv_head_count", "Megatron-Core"},
    {"kv-channels", "model.transformer.head_size", "Megatron-LM --kv-channels"},
    {"head-dim", "model.transformer.head_size", "Hugging Face configurations"},
    {"ffn-hidden-size", "model.transformer.ffn_size", "Megatron-LM --ffn-hidden-size"},
    {"intermediate-size", "model.transformer.ffn_size", "Hugging Face configurations"},
    {"num-experts", "model.transformer.expert_count", "Megatron-LM --num-experts"},
    {"num-local-experts", "model.transformer.expert_count", "Hugging Face configurations"},
    {"num-experts-per-tok", "model.transformer.active_expert_count", "Hugging Face configurations"},
    {"moe-router-topk", "model.transformer.active_expert_count", "Megatron-LM --moe-router-topk"},
    {"moe-intermediate-size", "model.transformer.expert_ffn_size", "Hugging Face configurations"},
    {"moe-ffn-hidden-size", "model.transformer.expert_ffn_size", "Megatron-LM"},
    {"shared-expert-intermediate-size", "model.transformer.shared_expert_ffn_size",
     "Hugging Face configurations"},
    {"moe-shared-expert-intermediate-size", "model.transformer.shared_expert_ffn_size",
     "Megatron-LM"},
    {"first-k-dense-replace", "model.transformer.dense_layer_count", "Hugging Face configurations"},
    {"kv-lora-rank", "model.transformer.key_value_rank", "Megatron-LM, Hugging Face"},
    {"q-lora-rank", "model.transformer.query_rank", "Megatron-LM, Hugging Face"},
    {"qk-rope-head-dim", "model.transformer.rotary_head_size", "Hugging Face configurations"},
    {"qk-pos-emb-head-dim", "model.transformer.rotary_head_size", "Megatron-LM"},
    {"v-head-dim", "model.transformer.value_head_size", "Megatron-LM, Hugging Face"},
    {"linear-num-key-heads", "model.transformer.linear_key_head_count",
     "Hugging Face configurations, Megatron-LM"},
    {"linear-num-value-heads", "model.transformer.linear_value_head_count",
     "Hugging Face configurations, Megatron-LM"},
    {"linear-key-head-dim", "model.transformer.linear_key_head_size",
     "Hugging Face configurations, Megatron-LM"},
    {"linear-value-head-dim", "model.transformer.linear_value_head_size",
     "Hugging Face configurations, Megatron-LM"},
    {"linear-conv-kernel-dim", "model.transformer.linear_kernel_size",
     "Hugging Face configurations, Megatron-LM"},
    {"full-attention-interval", "model.transformer.attention_period_size",
     "Hugging Face configurations"},
    {"attn-output-gate", "model.transformer.attention_gate", "Hugging Face configurations"},
    {"tie-word-embeddings", "model.transformer.tied_embeddings", "Hugging Face configurations"},
    {"untie-embeddings-and-output-weights", "model.transformer.tied_embeddings", "Megatron-LM",
     WordReading::kSwitch, "false", "true"},
};

constexpr char kPrepareModel[] = "accelerate, accelerator.py, prepare_model";
constexpr char kPreparing[] = "hf-trainer trl";  // who leaves precision to it
constexpr char kSharded[] = "fsdp1 fsdp2 deepspeed";

constexpr ValueSynonym kValueSynonyms[] = {
    {kPreset, "bf16", "bf16-pure", "torchtune dtype: bf16", "torchtune"},
    {kPreset, "bf16", "bf16-autocast", kPrepareModel, kPreparing, "", "", "", "ddp"},
    {kPreset, "bf16", "bf16-mixed", kPrepareModel, kPreparing, "", "", "", kSharded},
    {kPreset, "fp16", "fp16-autocast", kPrepareModel, kPreparing, "", "", "", "ddp"},
    {kPreset, "fp16", "fp16-mixed", kPrepareModel, kPreparing, "", "", "", kSharded},
    {kPreset, "bf16", "bf16-mixed", "Megatron-LM --bf16, DeepSpeed bf16, FSDP's MixedPrecision", "",
     "", "", kBf16Note},
    {kPreset, "bfloat16", "bf16-mixed", "torchtitan mixed_precision_param", "", "", "", kBf16Note},
    {kPreset, "bf16-true", "bf16-pure", "PyTorch Lightning, litgpt"},
    {kPreset, "fp16", "fp16-mixed", "Megatron-LM --fp16, DeepSpeed fp16"},
    {kPreset, "fp16-true", "fp16-pure", "PyTorch Lightning, litgpt"},
    {kPreset, "16-mixed", "fp16-autocast", "PyTorch Lightning"},
    {kPreset, "16-true", "fp16-pure", "PyTorch Lightning, litgpt"},
    {kPreset, "float32", "fp32", "PyTorch"},
    {kPreset, "fp32-true", "fp32", "usual"},
    {kPreset, "32-true", "fp32", "PyTorch Lightning, litgpt"},
    {kPreset, "32", "fp32", "PyTorch Lightning"},
    {kPreset, "hybrid", "fp8-mixed", "Megatron-Core --fp8-format: e4m3 forward, e5m2 backward"},
    {kPreset, "e4m3", "fp8-mixed", "Megatron-Core --fp8-format"},
    {kPreset, "e2m1", "fp4-mixed", "Megatron-Core --fp4-format"},
    {kPreset, "nvfp4", "fp4-mixed", "Transformer Engine's NVFP4BlockScaling"},
    {kPreset, "tf32", "fp32", "tf32 moves no byte: it is how fp32 is multiplied"},
    // Hugging Face transformers, training_args.py, OptimizerNames.
    {kOptimizer, "adamw-torch", "adamw", "Hugging Face optim", "", kImplementation, "foreach"},
    {kOptimizer, "adamw-torch-fused", "adamw", "Hugging Face optim", "", kImplementation, "fused"},
    {kOptimizer, "adamw-apex-fused", "adamw", "Hugging Face optim", "", kImplementation, "fused"},
    {kOptimizer, "fused-adamw", "adamw", "usual", "", kImplementation, "fused"},
    {kOptimizer, "adamw-fused", "adamw", "usual", "", kImplementation, "fused"},
    {kOptimizer, "fusedadam", "adam", "Apex and DeepSpeed FusedAdam", "", kImplementation, "fused"},
    {kOptimizer, "adamw-8bit", "adamw-8bit", "Hugging Face optim"},
    {kOptimizer, "adamw-bnb-8bit", "adamw-8bit", "Hugging Face optim"},
    {kOptimizer, "adamw8bit", "adamw-8bit", "bitsandbytes AdamW8bit"},
    {kOptimizer, "8bit-adamw", "adamw-8bit", "usual"},
    {kOptimizer, "adam-8bit", "adamw-8bit", "bitsandbytes Adam8bit"},
    {kOptimizer, "lion-32bit", "lion", "Hugging Face optim", "", kImplementation, "fused"},
    {kOptimizer, "adam8bit", "adamw-8bit", "bitsandbytes Adam8bit"},
    {kOptimizer, "lion8bit", "lion-8bit", "bitsandbytes Lion8bit"},
    {kOptimizer, "ademamix8bit", "ademamix-8bit", "bitsandbytes AdEMAMix8bit"},
    {kOptimizer, "pagedlion", "lion", "bitsandbytes PagedLion", "", kPaged, "true"},
    {kOptimizer, "pagedlion8bit", "lion-8bit", "bitsandbytes PagedLion8bit", "", kPaged, "true"},
    {kOptimizer, "pagedademamix", "ademamix", "bitsandbytes PagedAdEMAMix", "", kPaged, "true"},
    {kOptimizer, "pagedademamix8bit", "ademamix-8bit", "bitsandbytes PagedAdEMAMix8bit", "", kPaged,
     "true"},
    {kOptimizer, "adamwschedulefree", "schedule-free-adamw", "schedulefree"},
    {kOptimizer, "onebitadam", "onebit-adam", "DeepSpeed OneBitAdam"},
    {kOptimizer, "1-bit-adam", "onebit-adam", "usual"},
    {kOptimizer, "zerooneadam", "zero-one-adam", "DeepSpeed ZeroOneAdam"},
    {kOptimizer, "onebitlamb", "onebit-lamb", "DeepSpeed OneBitLamb"},
    {kOptimizer, "paged-adamw", "adamw", "Hugging Face optim", "", kPaged, "true"},
    {kOptimizer, "paged-adamw-32bit", "adamw", "Hugging Face optim", "", kPaged, "true"},
    {kOptimizer, "paged-adamw-8bit", "adamw-8bit", "Hugging Face optim", "", kPaged, "true"},
    {kOptimizer, "pagedadamw", "adamw", "bitsandbytes PagedAdamW", "", kPaged, "true"},
    {kOptimizer, "pagedadamw8bit", "adamw-8bit", "bitsandbytes PagedAdamW8bit", "", kPaged, "true"},
    {kOptimizer, "paged-lion-32bit", "lion", "Hugging Face optim", "", kPaged, "true"},
    {kOptimizer, "paged-lion-8bit", "lion-8bit", "Hugging Face optim", "", kPaged, "true"},
    {kOptimizer, "paged-ademamix-32bit", "ademamix", "Hugging Face optim", "", kPaged, "true"},
    {kOptimizer, "paged-ademamix-8bit", "ademamix-8bit", "Hugging Face optim", "", kPaged, "true"},
    {kOptimizer, "sgd-with-momentum", "sgd-momentum", "usual"},
    {kProjectedModules, "attn", "attention", "Hugging Face optim_target_modules"},
    {kProjectedModules, "self-attn", "attention", "Hugging Face optim_target_modules"},
    {kTrainedParts, "self-attn", "attention", "LLaMA-Factory freeze_trainable_modules"},
    {kTrainedParts, "embed-tokens", "embedding", "Hugging Face"},
    {kTrainedParts, "lm-head", "head", "Hugging Face"},
    {kQuantization, "4", "nf4", "LLaMA-Factory quantization_bit, ms-swift quant_bits"},
    {kQuantization, "8", "int8", "LLaMA-Factory quantization_bit, ms-swift quant_bits"},
    {kComputeDType, "bfloat16", "bf16", "PyTorch"},
    {kComputeDType, "float16", "fp16", "PyTorch"},
    {kComputeDType, "float32", "fp32", "PyTorch"},
    {kModules, "core-attn", "core-attention", "Megatron-Core --recompute-modules core_attn"},
    {kModules, "layernorm", "norm", "Megatron-Core --recompute-modules layernorm"},
    {kModules, "mla-up-proj", "up-projection", "Megatron-Core --recompute-modules mla_up_proj"},
    {kModules, "moe", "experts", "Megatron-Core --recompute-modules moe"},
    {kModules, "moe-act", "activation", "Megatron-Core --recompute-modules moe_act"},
    {kAttention, "flash-attention", "flash", "usual"},
    {kAttention, "flash-attention-2", "flash", "Hugging Face attn_implementation"},
    {kAttention, "flash-attention-3", "flash", "Hugging Face attn_implementation"},
    {kAttention, "flash-attn", "flash", "usual"},
    {kAttention, "flash-attn-2", "flash", "usual"},
    {kAttention, "flash2", "flash", "usual"},
    {kAttention, "flex-attention", "flex", "torchtitan models/common/attention.py"},
    {kAttention, "mem-efficient", "memory-efficient", "PyTorch SDPA backends"},
    {kAttention, "fused", "cudnn", "Megatron-Core --attention-backend fused"},
    {kAttention, "unfused", "eager", "Megatron-Core --attention-backend unfused"},
    {kLoss, "native", "fused-cross-entropy", "Megatron-Core --cross-entropy-fusion-impl native"},
    {kLoss, "te", "te-cross-entropy", "Megatron-Core --cross-entropy-fusion-impl te"},
    {kLoss, "cce", "fused", "Cut Cross-Entropy"},
    {kLoss, "linear-cross-entropy", "fused", "usual"},
    {kLoss, "fused-linear-cross-entropy", "fused", "Liger's FusedLinearCrossEntropy"},
    {kSchedule, "interleaved", "interleaved-1f1b", "usual"},
    {kSchedule, "interleaved1f1b", "interleaved-1f1b", "torchtitan pipeline_parallel_schedule"},
    {kSchedule, "afab", "gpipe", "nanotron pp_engine: afab"},
    {kFramework, "torch-ddp", "ddp", "usual"},
    {kFramework, "pytorch-ddp", "ddp", "usual"},
    {kFramework, "distributeddataparallel", "ddp", "torch.nn.parallel"},
    {kFramework, "fully-shard", "fsdp2", "torch.distributed.fsdp.fully_shard"},
    {kFramework, "fullyshardeddataparallel", "fsdp1", "torch.distributed.fsdp"},
    {kFramework, "mcore", "megatron-core", "usual"},
    {kDispatcher, "allgather", "all-gather", "Megatron-Core"},
    {kDispatcher, "alltoall", "all-to-all", "Megatron-Core"},
    {kTrainer, "transformers", "hf-trainer", "transformers.Trainer"},
    {kTrainer, "huggingface", "hf-trainer", "usual"},
    {kTrainer, "hf", "hf-trainer", "usual"},
    {kTrainer, "titan", "torchtitan", "usual"},
    {kTrainer, "lit-gpt", "litgpt", "its name until 2024"},
    {kPreference, "rm", "reward", "LLaMA-Factory stage: rm, ms-swift rlhf_type rm"},
    {kPreference, "reward-model", "reward", "usual"},
    {kLoss, "chunked-nll", "tiled-log-probs", "TRL SFTConfig.loss_type, until 1.14"},
};

constexpr ViolationCode kNotModelled = ViolationCode::kNotModelled;
constexpr ViolationCode kAmbiguous = ViolationCode::kAmbiguousName;
constexpr ViolationCode kNoField = ViolationCode::kUnknownField;

constexpr char kBf16OfAccelerate[] =
    "is bf16-autocast with ddp, bf16-mixed with FSDP and DeepSpeed, under this trainer";
constexpr char kFp16OfAccelerate[] =
    "is fp16-autocast with ddp, fp16-mixed with FSDP and DeepSpeed, under this trainer";

constexpr char kPlannedRule[] = "not modelled yet";  // of names that the API is to have
constexpr char kEngineRule[] = "not modelled yet but as DeepSpeed has it by default";
constexpr char kOffloadRule[] = "not modelled yet: what is moved to the host's memory";
constexpr char kAdapterRule[] =
    "not modelled yet: of PEFT's methods LoRA, DoRA, IA3, prompts and prefixes are";
constexpr char kPreferenceRule[] =
    "not modelled yet: preference tuning but by DPO, KTO, GRPO and reward models";
constexpr char kSampledRule[] = "not modelled yet: of training on answers that are sampled GRPO is";
constexpr char kQuantizedRule[] = "not modelled yet: frozen weights but as bitsandbytes keeps them";
constexpr char kFactoredRule[] = "not modelled yet: this optimizer's states";
constexpr char kLayerwiseRule[] =
    "not modelled yet: updates as large as a matrix, made in backward beside activations";

constexpr RefusedWord kRefusedWords[] = {
    // Names that say less than a field.
    {"", "fsdp", kAmbiguous,
     "is runtime.framework fsdp2 (fully_shard) or fsdp1 (FullyShardedDataParallel), with "
     "parallelism.zero_stage 3 (full shard) or 2 (shard grad op)"},
    {"", "batch-size", kAmbiguous,
     "may be training.micro_batch_size (of one GPU at once) or training.global_batch_size (of an "
     "optimizer step)"},
    {"", "batch", kAmbiguous,
     "may be training.micro_batch_size (of one GPU at once) or training.global_batch_size (of an "
     "optimizer step)"},
    {"", "local-batch-size", kAmbiguous,
     "is training.micro_batch_size without a pipeline; with one, its micro-batches"},
    {"", "dtype", kAmbiguous,
     "may be training.precision.preset, as bf16-mixed or bf16-pure, or the dtype of one part"},
    {"", "torch-dtype", kAmbiguous,
     "may be training.precision.preset, as bf16-mixed or bf16-pure, or the dtype of one part"},
    {"", "sp", kAmbiguous,
     "may be parallelism.sequence_parallel (true or false), or context parallelism, which is not "
     "modelled yet"},
    {"", "recompute-num-layers", kAmbiguous,
     "is training.recompute.unit_layer_count with --recompute-method uniform; block is not "
     "modelled"},
    {"", "recompute-method", kAmbiguous,
     "uniform is training.recompute.unit_layer_count; block is not modelled yet"},
    {"", "activation-checkpoint", kAmbiguous,
     "full and none are training.recompute.mode's; selective is its per-op or every-nth"},
    {"", "num-layers-per-virtual-pipeline-stage", kNoField,
     "no such field: parallelism.virtual_pipeline_size is the chunks of each stage, layers / "
     "(pipeline_parallel_size x this)"},
    {"", "mixed-precision", kAmbiguous,
     "is training.precision.preset: accelerate's bf16 is bf16-autocast with ddp, bf16-mixed with "
     "FSDP and DeepSpeed",
     "no"},
    {"", "deepspeed", kNoField,
     "no such field: a DeepSpeed job has runtime.framework deepspeed and parallelism.zero_stage",
     "false"},
    {"", "max-steps", kNoField, "no such field: it moves no byte"},
    {"", "learning-rate", kNoField, "no such field: it moves no byte"},
    {"", "lr", kNoField, "no such field: it moves no byte"},
    {"", "epochs", kNoField, "no such field: it moves no byte"},
    {"", "num-train-epochs", kNoField, "no such field: it moves no byte"},
    {"", "weight-decay", kNoField, "no such field: it moves no byte"},
    {"", "pin-memory", kNoField, "no such field: it moves no byte of a GPU's", "true"},
    // What has no model yet.
    {"", "torch-compile", kNotModelled,
     "not modelled yet: one graph of the whole model; runtime.compile is of each layer", "false"},
    {"", "allow-cpu-offload", kNotModelled, kPlannedRule, "false"},
    {"", "cpu-offload", kNotModelled, kOffloadRule, "false"},
    {"", "offload", kNotModelled, kPlannedRule, "false"},
    {"", "offload-param", kAmbiguous,
     "is runtime.offload_parameters, or zero_optimization.offload_param.device", "none"},
    {"", "contiguous-gradients", kNotModelled, kEngineRule, "true"},
    {"", "sub-group-size", kNotModelled, kEngineRule, "1e9"},
    {"", "stage3-prefetch-bucket-size", kNotModelled, kEngineRule, "5e7"},
    {"", "stage3-max-live-parameters", kNotModelled, kEngineRule, "1e9"},
    {"", "stage3-max-reuse-distance", kNotModelled, kEngineRule, "1e9"},
    {"", "stage3-param-persistence-threshold", kNotModelled, kEngineRule, "1e5"},
    {"", "stage3-gather-16bit-weights-on-model-save", kNoField,
     "no such field: it moves no byte of a step's", "true"},
    {"", "optimizer-offload", kNotModelled, kPlannedRule, "false"},
    {"", "optimizer-cpu-offload", kNotModelled, kOffloadRule, "false"},
    {"", "cpu-offloading", kNotModelled, kOffloadRule, "false"},
    {"", "activation-offload", kNotModelled, kOffloadRule, "false"},
    {"", "record-stream", kNotModelled, kPlannedRule},
    {"", "prefetch", kNotModelled, kPlannedRule},
    {"", "lora-alpha", kNoField, "no such field: it moves no byte"},
    {kDispatcher, "flex", kNotModelled, "not modelled yet: buffers of DeepEP and HybridEP"},
    {kPreference, "orpo", kNotModelled, kPreferenceRule},
    {kPreference, "cpo", kNotModelled, kPreferenceRule},
    {kPreference, "simpo", kNotModelled, kPreferenceRule},
    {kPreference, "bco", kNotModelled, kPreferenceRule},
    {kPreference, "gdpo", kNotModelled, kSampledRule},
    {kPreference, "ppo", kNotModelled, kSampledRule},
    {kPreference, "rloo", kNotModelled, kSampledRule},
    {kReference, "none", kNotModelled, "not modelled yet: TRL's DPOTrainer always has a reference"},
    {"", "pref-loss", kNotModelled, "not modelled yet: LLaMA-Factory's trainer is its own"},
    {"", "rlhf-type", kNotModelled, "not modelled yet: ms-swift's trainers are their own"},
    {"", "reference-free", kNotModelled,
     "not modelled yet: TRL's DPOTrainer always has a reference", "false"},
    {"", "sync-ref-model", kNotModelled, "not modelled yet: a reference that follows the policy",
     "false"},
    {"", "padding-free", kNotModelled, "not modelled yet: sequences in one row", "false"},
    {"", "loss-type", kNoField, "no such field: of TRL's DPO it moves no byte"},
    {"", "beta", kNoField,
     "no such field: of TRL's trainers it moves no byte but GKD's, where it is "
     "training.distillation.jsd_beta"},
    {"", "lmbda", kNotModelled, "not modelled yet: answers that a student samples", "0.0"},
    {"", "seq-kd", kNotModelled, "not modelled yet: answers that a teacher samples", "false"},
    {"", "max-prompt-length", kNoField,
     "no such field: sequence_length is of a prompt and its answer"},
    {kAdapter, "adalora", kNotModelled, kAdapterRule},
    {kAdapter, "boft", kNotModelled, kAdapterRule},
    {kAdapter, "loha", kNotModelled, kAdapterRule},
    {kAdapter, "lokr", kNotModelled, kAdapterRule},
    {kAdapter, "oft", kNotModelled, kAdapterRule},
    {kAdapter, "vera", kNotModelled, kAdapterRule},
    {kAdapter, "ln-tuning", kNotModelled, "not modelled yet: training.trained.modules norm is"},
    {kAdapter, "bitfit", kNotModelled, "not modelled yet: training.trained.modules bias is"},
    {"", "quant-method", kNotModelled, kQuantizedRule, "bnb"},
    {"", "quantization-method", kNotModelled, kQuantizedRule, "bnb"},
    {"", "bnb-4bit-quant-storage", kNotModelled,
     "not modelled yet: it matters to FSDP, which shards what is stored", "uint8"},
    {kQuantization, "hqq", kNotModelled, kQuantizedRule},
    {kQuantization, "awq", kNotModelled, kQuantizedRule},
    {kQuantization, "gptq", kNotModelled, kQuantizedRule},
    {kQuantization, "torchao", kNotModelled, kQuantizedRule},
    {kQuantization, "bnb", kAmbiguous, "may be nf4, fp4 or int8"},
    {"", "fp8", kNotModelled,
     "not modelled yet as a switch: preset fp8-mixed with fp8_recipe is Transformer Engine's fp8; "
     "torchao's is not modelled",
     "false"},
    // Values.
    {kPreset, "fp8", kAmbiguous,
     "may be fp8-mixed (Transformer Engine's products) or fp8-lm (weights and gradients too)"},
    {kPreset, "bf16", kAmbiguous, kBf16OfAccelerate, "", kPreparing},
    {kPreset, "fp16", kAmbiguous, kFp16OfAccelerate, "", kPreparing},
    {kPreset, "amp", kAmbiguous, "may be bf16-autocast or fp16-autocast"},
    {kPreset, "mixed", kAmbiguous, "may be bf16-mixed, fp16-mixed, bf16-autocast or fp16-autocast"},
    {kOptimizer, "adamw-torch-4bit", kNotModelled, kFactoredRule},
    {kOptimizer, "adamw-torch-8bit", kNotModelled, kFactoredRule},
    {kOptimizer, "adamw-anyprecision", kNotModelled, kFactoredRule},
    {kOptimizer, "galore-adamw-8bit", kNotModelled, kFactoredRule},
    {kOptimizer, "galore-adafactor", kNotModelled, kFactoredRule},
    {kOptimizer, "galore-adamw-layerwise", kNotModelled, kLayerwiseRule},
    {kOptimizer, "galore-adamw-8bit-layerwise", kNotModelled, kLayerwiseRule},
    {kOptimizer, "galore-adafactor-layerwise", kNotModelled, kLayerwiseRule},
    {kOptimizer, "apollo-adamw-layerwise", kNotModelled, kLayerwiseRule},
    {kOptimizer, "grokadamw", kNotModelled, kFactoredRule},
    {kOptimizer, "stable-adamw", kNotModelled, kFactoredRule},
    {kOptimizer, "rmsprop-bnb", kNotModelled, kFactoredRule},
    {kOptimizer, "rmsprop-bnb-8bit", kNotModelled, kFactoredRule},
    {kOptimizer, "schedule-free-radam", kNotModelled, kFactoredRule},
    {kOptimizer, "schedule-free-sgd", kNotModelled, kFactoredRule},
    {kOptimizer, "lomo", kNotModelled, kFactoredRule},
    {kOptimizer, "adalomo", kNotModelled, kFactoredRule},
    {kOptimizer, "sophia", kNotModelled, kFactoredRule},
    {kOptimizer, "shampoo", kNotModelled, kFactoredRule},
    {kOptimizer, "cpu-adam", kNotModelled, kOffloadRule},
    {kOptimizer, "deepspeedcpuadam", kNotModelled, kOffloadRule},
    {kRecompute, "true", kAmbiguous, "may be full or selective"},
    {kRecompute, "offload", kNotModelled, kOffloadRule},
    {kAttention, "sdpa", kAmbiguous,
     "may be flash, cudnn or memory-efficient, as PyTorch chooses; auto takes what it usually "
     "chooses"},
    {kAttention, "ring", kNotModelled, "not modelled yet: a ring of ranks"},
    {kSchedule, "zero-bubble", kNotModelled, "not modelled yet: this schedule"},
    {kSchedule, "zbh1", kNotModelled, "not modelled yet: this schedule"},
    {kSchedule, "interleavedzerobubble", kNotModelled, "not modelled yet: this schedule"},
    {kSchedule, "zbvzerobubble", kNotModelled, "not modelled yet: this schedule"},
    {kSchedule, "dualpipe", kNotModelled, "not modelled yet: this schedule"},
    {kFramework, "fsdp", kAmbiguous,
     "may be fsdp2 (fully_shard) or fsdp1 (FullyShardedDataParallel)"},
    {kFramework, "megatron", kAmbiguous,
     "may be megatron-core, megatron-lm (2.4) or megatron-deepspeed"},
    {kFramework, "torch", kAmbiguous, "may be ddp, fsdp1 or fsdp2"},
    {kFramework, "pytorch", kAmbiguous, "may be ddp, fsdp1 or fsdp2"},
    {kFramework, "colossalai", kNotModelled, "not modelled yet: this framework"},
    {kFramework, "jax", kNotModelled, "not modelled yet: this framework"},
    {kFramework, "internevo", kNotModelled, "not modelled yet: this framework"},
    {kTrainer, "lightning", kNotModelled, "not modelled yet: this trainer"},
    {kTrainer, "nemo", kNotModelled, "not modelled yet: this trainer"},
    {kTrainer, "mosaicml", kNotModelled, "not modelled yet: this trainer"},
    {kTrainer, "composer", kNotModelled, "not modelled yet: this trainer"},
};

std::string NormalizedValue(absl::string_view value) {
  return absl::StrReplaceAll(absl::AsciiStrToLower(value.substr(0, kMaxWordBytes)), {{"_", "-"}});
}

// Calls `find` with a path and each of its ends, the longest first, as the rows have
// them, until it returns a row.
template <typename Find>
auto FindEnd(absl::string_view path, Find find) -> decltype(find("")) {
  if (path.size() > kMaxPathBytes) return nullptr;
  std::vector<std::string> parts;
  for (const absl::string_view part : absl::StrSplit(path, '.')) {
    parts.push_back(NormalizedName(part));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    std::string end = parts[i];
    for (size_t k = i + 1; k < parts.size(); ++k) end += "." + parts[k];
    if (const auto* const row = find(end)) return row;
  }
  return nullptr;
}

}  // namespace

absl::Span<const FieldSynonym> FieldSynonyms() { return kFieldSynonyms; }
absl::Span<const ValueSynonym> ValueSynonyms() { return kValueSynonyms; }
absl::Span<const RefusedWord> RefusedWords() { return kRefusedWords; }

bool HasWord(absl::string_view words, absl::string_view word) {
  const std::vector<absl::string_view> all = absl::StrSplit(words, ' ', absl::SkipEmpty());
  return std::find(all.begin(), all.end(), word) != all.end();
}

namespace {

bool IsSmall(absl::string_view name, size_t at) {
  return at < name.size() && absl::ascii_islower(static_cast<unsigned char>(name[at]));
}

// Whether a capital begins a word: behind a small letter; and before one, behind a digit or a word
// that is one capital, as "Dense" of "firstKDenseReplace".
bool BeginsWord(absl::string_view name, size_t at) {
  if (at == 0) return false;
  if (IsSmall(name, at - 1)) return true;
  const bool alone = at > 1 && absl::ascii_isupper(static_cast<unsigned char>(name[at - 1])) &&
                     IsSmall(name, at - 2);
  const bool number = absl::ascii_isdigit(static_cast<unsigned char>(name[at - 1]));
  return (alone || number) && IsSmall(name, at + 1);
}

}  // namespace

std::string NormalizedName(absl::string_view name) {
  std::string word;
  for (size_t i = 0; i < name.size(); ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    if (absl::ascii_isupper(c) && BeginsWord(name, i)) word += '-';
    word += c == '_' ? '-' : absl::ascii_tolower(c);
  }
  return word;
}

const FieldSynonym* FindFieldSynonym(absl::string_view path) {
  return FindEnd(path, [](absl::string_view end) -> const FieldSynonym* {
    const auto* const row = std::find_if(std::begin(kFieldSynonyms), std::end(kFieldSynonyms),
                                         [end](const auto& row) { return row.word == end; });
    return row == std::end(kFieldSynonyms) ? nullptr : row;
  });
}

const RefusedWord* FindRefusedName(absl::string_view path) {
  return FindEnd(path, [](absl::string_view end) -> const RefusedWord* {
    const auto* const row =
        std::find_if(std::begin(kRefusedWords), std::end(kRefusedWords),
                     [end](const auto& row) { return row.field.empty() && row.word == end; });
    return row == std::end(kRefusedWords) ? nullptr : row;
  });
}

const ValueSynonym* FindValueSynonym(absl::string_view field, absl::string_view value,
                                     const WordUser& user) {
  const std::string word = NormalizedValue(value);
  const ValueSynonym* found = nullptr;
  for (const ValueSynonym& row : kValueSynonyms) {
    if (row.field != field || row.word != word) continue;
    if (!row.frameworks.empty() && !HasWord(row.frameworks, user.framework)) continue;
    if (HasWord(row.trainers, user.trainer)) return &row;
    if (row.trainers.empty() && found == nullptr) found = &row;
  }
  return found;
}

const RefusedWord* FindRefusedValue(absl::string_view field, absl::string_view value,
                                    const WordUser& user) {
  const ValueSynonym* const known = FindValueSynonym(field, value, user);
  if (known != nullptr && !known->frameworks.empty()) return nullptr;
  const std::string word = NormalizedValue(value);
  for (const RefusedWord& row : kRefusedWords) {
    if (row.field.empty() || row.field != field || row.word != word) continue;
    if (row.trainers.empty() || HasWord(row.trainers, user.trainer)) return &row;
  }
  return nullptr;
}

std::vector<absl::string_view> VocabularyFields() {
  std::vector<absl::string_view> fields = {kTrainer, kFramework};  // other words depend on them
  for (const FieldRow& row : kFieldRows) {
    const bool first = row.path == kTrainer || row.path == kFramework;
    if (!row.words.empty() && !first) fields.push_back(row.path);
  }
  return fields;
}

absl::string_view OwnWord(absl::string_view field, absl::string_view value) {
  const FieldRow* const row = FindFieldRow(field);
  if (row == nullptr) return "";
  const auto* const own = std::find_if(row->words.begin(), row->words.end(),
                                       [word = NormalizedValue(value)](const auto& other) {
                                         return NormalizedValue(other) == word;
                                       });
  return own == row->words.end() ? absl::string_view() : *own;
}

}  // namespace plimsoll
