// The rows of estimator/catalog/capabilities.h. Files are those of the framework named.
#include "estimator/catalog/capabilities.h"

namespace plimsoll {
namespace {

constexpr uint16_t kDdp = On(Framework::kDdp);
constexpr uint16_t kFsdp1 = On(Framework::kFsdp1);
constexpr uint16_t kFsdp2 = On(Framework::kFsdp2);
constexpr uint16_t kDeepSpeed = On(Framework::kDeepSpeed);
constexpr uint16_t kCore = On(Framework::kMegatronCore);
constexpr uint16_t kMegatronLm = On(Framework::kMegatronLm);
constexpr uint16_t kMegatronDeepSpeed = On(Framework::kMegatronDeepSpeed);
constexpr uint16_t kNanotron = On(Framework::kNanotron);
constexpr uint16_t kFsdp = kFsdp1 | kFsdp2;
constexpr uint16_t kTorch = kDdp | kFsdp;
constexpr uint16_t kOfModules = kTorch | kDeepSpeed;  // any module, any loop
constexpr uint16_t kOldMegatron = kMegatronLm | kMegatronDeepSpeed;
constexpr uint16_t kMegatron = kCore | kOldMegatron;
constexpr uint16_t kStaged = kFsdp2 | kMegatron | kNanotron;
constexpr uint16_t kAll = kOfModules | kMegatron | kNanotron;

constexpr AbilitySet kNarrowProducts = {Ability::kFp8Mixed, Ability::kFp4Mixed};
constexpr AbilitySet kPresets = {Ability::kFp32,     Ability::kFp16Mixed, Ability::kBf16Mixed,
                                 Ability::kBf16Pure, Ability::kFp16Pure,  Ability::kBf16Optimizer,
                                 Ability::kFp8Lm};
constexpr AbilitySet kModulesAgain = {Ability::kMlpAgain, Ability::kNormAgain,
                                      Ability::kActivationAgain, Ability::kUpProjectionAgain,
                                      Ability::kExpertsAgain};
constexpr AbilitySet kAdams = {Ability::kAdam, Ability::kAdamW};
constexpr AbilitySet kSgds = {Ability::kSgd, Ability::kSgdMomentum};
constexpr AbilitySet kOtherOptimizers = {Ability::kRmsprop,
                                         Ability::kAdagrad,
                                         Ability::kLamb,
                                         Ability::kLion,
                                         Ability::kMuon,
                                         Ability::kAdafactor,
                                         Ability::kAdamW8bit,
                                         Ability::kLion8bit,
                                         Ability::kAdEMAMix,
                                         Ability::kAdEMAMix8bit,
                                         Ability::kScheduleFreeAdamW};
constexpr AbilitySet kOfBitsandbytes = {Ability::kAdamW8bit, Ability::kLion8bit, Ability::kAdEMAMix,
                                        Ability::kAdEMAMix8bit};
constexpr AbilitySet kCompressing = {Ability::kOnebitAdam, Ability::kZeroOneAdam,
                                     Ability::kOnebitLamb};
constexpr AbilitySet kProjecting = {Ability::kGaloreAdamW, Ability::kApolloAdamW};
constexpr AbilitySet kAdapterMatrices = {Ability::kLora, Ability::kDora};
constexpr AbilitySet kVirtualTokens = {Ability::kPromptTuning, Ability::kPTuning,
                                       Ability::kPrefixTuning};
constexpr AbilitySet kOthersOfPeft = AbilitySet{Ability::kIa3} | kVirtualTokens;
constexpr AbilitySet kQuantized = {Ability::kQlora, Ability::kNf4, Ability::kFp4, Ability::kInt8};
constexpr AbilitySet kPreferences = {Ability::kDpo, Ability::kKto, Ability::kReward,
                                     Ability::kGrpo};
constexpr AbilitySet kOtherLosses = kPreferences | AbilitySet{Ability::kDistillation};
constexpr AbilitySet kContexts = {Ability::kUlysses, Ability::kRing, Ability::kAllGather};
constexpr AbilitySet kPartsAgain = {Ability::kRecomputeSelective, Ability::kCoreAttentionAgain,
                                    Ability::kMlpAgain};

constexpr CapabilityRow Of(uint16_t frameworks, AbilitySet what, absl::string_view source) {
  return {frameworks, Trainer::kNone, Support::kHas, what, 0, kNoVersion, "", source};
}
constexpr CapabilityRow Own(CapabilityRow row) {
  row.its_own = true;
  return row;
}
constexpr CapabilityRow Since(int version, CapabilityRow row) {
  row.since = version;
  return row;
}
constexpr CapabilityRow Until(int version, CapabilityRow row) {
  row.until = version;
  return row;
}
constexpr CapabilityRow Lacks(uint16_t frameworks, AbilitySet what, absl::string_view why,
                              absl::string_view source) {
  return {frameworks, Trainer::kNone, Support::kLacks, what, 0, kNoVersion, why, source};
}
constexpr CapabilityRow NotModelled(uint16_t frameworks, AbilitySet what, absl::string_view why,
                                    absl::string_view source) {
  return {frameworks, Trainer::kNone, Support::kNotModelled, what, 0, kNoVersion, why, source};
}
constexpr CapabilityRow Under(Trainer trainer, CapabilityRow row) {
  row.trainer = trainer;
  return row;
}

constexpr CapabilityRow kRows[] = {
    // What all share.
    Of(kAll, {Ability::kDataParallel, Ability::kRecomputeNone, Ability::kRecomputeFull},
       "torch nn/parallel/distributed.py, utils/checkpoint.py; Megatron core/distributed; nanotron "
       "parallel/data_parallel, config.parallelism.recompute_layer"),
    Of(kAll, AbilitySet{Ability::kPlainLoss} | kPresets | kAdams,
       "torch optim/adamw.py; Megatron core/optimizer/__init__.py; nanotron helpers.py, "
       "init_optimizer_and_grad_accumulator"),
    Of(kCore, {Ability::kFp8Mixed},
       "transformer_engine/pytorch/module/linear.py, layernorm_linear.py; Megatron "
       "core/fp8_utils.py, get_fp8_context"),
    Since(15, Of(kCore, {Ability::kFp4Mixed},
                 "Megatron-LM core 0.15, core/transformer/transformer_config.py, fp4; "
                 "core/fp4_utils.py, get_fp4_context")),
    NotModelled(kOfModules | kNanotron, kNarrowProducts,
                "Transformer Engine's recipes are modelled with megatron-core",
                "torchao float8/float8_linear.py; accelerate utils/transformer_engine.py; nanotron "
                "fp8/linear.py"),
    Lacks(kOldMegatron, kNarrowProducts, "it is of 2021", "Megatron-LM v2.4"),

    // Parallelism.
    Of(kStaged, {Ability::kTensorParallel, Ability::kPipelineParallel},
       "torch distributed/tensor/parallel/api.py, distributed/pipelining; Megatron "
       "core/tensor_parallel, core/pipeline_parallel; nanotron parallel"),
    Lacks(kDdp | kFsdp1, {Ability::kTensorParallel}, "it splits no matrices",
          "torch nn/parallel/distributed.py; distributed/fsdp/fully_sharded_data_parallel.py"),
    Lacks(kFsdp1, {Ability::kPipelineParallel}, "it has no pipeline",
          "torch distributed/pipelining/stage.py, backward_maybe_with_nosync: DDP or FSDPModule"),
    NotModelled(kDdp, {Ability::kPipelineParallel}, "torch.distributed.pipelining runs fsdp2 here",
                "torch distributed/pipelining/stage.py, backward_maybe_with_nosync"),
    Since(16, NotModelled(kDeepSpeed, {Ability::kTensorParallel}, "AutoTP splits matrices",
                          "deepspeed 0.16.4, runtime/engine.py, autotp_size")),
    NotModelled(kDeepSpeed, {Ability::kPipelineParallel},
                "its pipeline over Megatron's layers is megatron-deepspeed",
                "deepspeed runtime/pipe/engine.py, PipelineEngine"),
    Of(kFsdp2 | kCore | kNanotron, {Ability::kSequenceParallel},
       "torch distributed/tensor/parallel/style.py, SequenceParallel; Megatron "
       "core/tensor_parallel/mappings.py; nanotron config, tp_mode REDUCE_SCATTER"),
    Lacks(kOldMegatron, {Ability::kSequenceParallel}, "it is of 2021",
          "Korthikanti et al. 2022 (arXiv 2205.05198)"),
    Of(kFsdp2, {Ability::kUlysses},
       "verl utils/ulysses.py, SeqAllToAll: what a kernel reads is exchanged outside the "
       "framework"),
    NotModelled(kDeepSpeed, {Ability::kUlysses}, "before 0.17 it is in a model's own code",
                "deepspeed 0.10.2, sequence/layer.py, DistributedAttention"),
    Since(17, Of(kDeepSpeed, {Ability::kUlysses},
                 "deepspeed runtime/sequence_parallel/ulysses_sp.py, UlyssesSPAttentionHF")),
    Lacks(kDeepSpeed, {Ability::kRing, Ability::kAllGather}, "its ranks exchange heads",
          "deepspeed runtime/sequence_parallel"),
    NotModelled(kFsdp2, {Ability::kRing, Ability::kAllGather},
                "before 2.6 torch's context_parallel has another order",
                "torch 2.5, distributed/_tensor/experimental/_attention.py"),
    Since(2006, Of(kFsdp2, {Ability::kRing, Ability::kAllGather},
                   "torch distributed/tensor/experimental/_context_parallel/_attention.py, "
                   "context_parallel, set_rotate_method")),
    Of(kCore, {Ability::kRing},
       "Megatron core/extensions/transformer_engine.py, TEDotProductAttention; Transformer Engine "
       "attention/dot_product_attention/context_parallel.py, AttnFuncWithCPAndKVP2P"),
    Since(10, Of(kCore, {Ability::kUlysses, Ability::kAllGather},
                 "Megatron core/transformer/transformer_config.py, cp_comm_type a2a, all_gather; "
                 "Transformer Engine context_parallel.py, AttnFuncWithCPAndQKVOA2A, "
                 "AttnFuncWithCPAndKVAllGather")),
    NotModelled(kMegatronDeepSpeed, {Ability::kUlysses}, "its own layers exchange heads",
                "Megatron-DeepSpeed megatron/arguments.py, --ds-sequence-parallel-size"),
    Lacks(kDdp | kFsdp1 | kMegatronLm | kNanotron, kContexts, "its ranks have whole sequences",
          "torch nn/parallel/distributed.py; distributed/fsdp/fully_sharded_data_parallel.py; "
          "Megatron-LM v2.4; nanotron config/parallelism_config.py"),
    Of(kFsdp, {Ability::kShardGroups},
       "torch distributed/fsdp/api.py, HYBRID_SHARD; _fully_shard/_fsdp_init.py, HSDPMeshInfo"),
    Since(10, Of(kCore, {Ability::kShardGroups},
                 "Megatron training/arguments.py, --num-distributed-optimizer-instances")),
    NotModelled(kDeepSpeed, {Ability::kShardGroups}, "MiCS and hpZ shard within groups",
                "deepspeed runtime/zero/mics.py; zero_hpz_partition_size"),

    // ZeRO.
    Of(kAll & ~kFsdp, {Ability::kZero0}, "the framework's default"),
    Of(kDeepSpeed, {Ability::kZero1, Ability::kZero2, Ability::kZero3},
       "deepspeed runtime/zero/stage_1_and_2.py, stage3.py"),
    Of(kFsdp, {Ability::kZero2, Ability::kZero3},
       "torch distributed/fsdp/api.py, SHARD_GRAD_OP and FULL_SHARD; reshard_after_forward"),
    Lacks(kFsdp, {Ability::kZero0, Ability::kZero1}, "2 keeps weights gathered until backward",
          "torch distributed/fsdp/api.py, ShardingStrategy"),
    Of(kCore | kMegatronDeepSpeed | kNanotron, {Ability::kZero1},
       "Megatron core/optimizer/distrib_optimizer.py; deepspeed runtime/zero/stage_1_and_2.py; "
       "nanotron optim/zero.py"),
    NotModelled(kDdp, {Ability::kZero1}, "ZeroRedundancyOptimizer shards states",
                "torch distributed/optim/zero_redundancy_optimizer.py"),
    Since(14, Of(kCore, {Ability::kZero2, Ability::kZero3},
                 "Megatron core/distributed/fsdp, Megatron-FSDP: optim_grads and "
                 "optim_grads_params of --data-parallel-sharding-strategy")),
    Since(12, Until(14, NotModelled(kCore, {Ability::kZero2, Ability::kZero3},
                                    "Megatron-FSDP was custom FSDP, and other code",
                                    "Megatron-LM core 0.13, core/distributed/custom_fsdp"))),

    // Schedules.
    Of(kStaged, {Ability::k1F1B},
       "torch distributed/pipelining/schedules.py; Megatron core/pipeline_parallel/schedules.py; "
       "deepspeed runtime/pipe/schedule.py, TrainSchedule; nanotron config, pp_engine"),
    Of(kFsdp2 | kNanotron, {Ability::kGpipe},
       "torch distributed/pipelining/schedules.py, ScheduleGPipe; nanotron config, afab"),
    Lacks(kMegatron, {Ability::kGpipe}, "one forward and one backward take turns",
          "Megatron core/pipeline_parallel/schedules.py, get_forward_backward_func; deepspeed "
          "runtime/pipe/schedule.py"),
    Of(kFsdp2 | kCore | kMegatronLm, {Ability::kInterleaved1F1B},
       "torch distributed/pipelining/schedules.py, ScheduleInterleaved1F1B; Megatron "
       "core/pipeline_parallel/schedules.py, forward_backward_pipelining_with_interleaving"),
    Lacks(kMegatronDeepSpeed | kNanotron, {Ability::kInterleaved1F1B}, "each rank runs one stage",
          "deepspeed runtime/pipe/schedule.py; nanotron config/utils_config.py, "
          "cast_str_to_pipeline_engine"),
    Since(10, Of(kCore, {Ability::kMicroBatchGroups},
                 "Megatron training/arguments.py, --microbatch-group-size-per-virtual-pipeline-"
                 "stage")),

    // Recomputation.
    Of(kOfModules, kPartsAgain | AbilitySet{Ability::kRecomputeEveryNth, Ability::kRecomputeUnits},
       "torch utils/checkpoint.py, checkpoint, which the model calls where it likes"),
    Of(kTorch, {Ability::kRecomputePerOp},
       "torch utils/checkpoint.py, create_selective_checkpoint_contexts"),
    Lacks(kDeepSpeed, {Ability::kRecomputePerOp}, "its checkpoint function takes no policy",
          "deepspeed runtime/activation_checkpointing/checkpointing.py, checkpoint"),
    Of(kMegatron, {Ability::kRecomputeUnits},
       "Megatron core/transformer/transformer_block.py, recompute_method uniform; v2.4 "
       "megatron/model/transformer.py, checkpoint_num_layers"),
    Of(kCore, {Ability::kRecomputeSelective, Ability::kCoreAttentionAgain},
       "Megatron core/transformer/attention.py, _checkpointed_attention_forward"),
    Since(12, Of(kCore, kModulesAgain,
                 "Megatron core/transformer/transformer_config.py, recompute_modules")),
    Since(14, Of(kCore, {Ability::kSharedExpertsAgain},
                 "Megatron core/transformer/moe/moe_layer.py, shared_experts_compute")),
    Since(14, Of(kCore, {Ability::kFp8OutputsAgain},
                 "Megatron-LM core 0.14, CHANGELOG.md; core/transformer/transformer_config.py, "
                 "__post_init__, which refused it before")),
    Lacks(kOfModules | kNanotron | kOldMegatron,
          {Ability::kNormAgain, Ability::kActivationAgain, Ability::kUpProjectionAgain,
           Ability::kExpertsAgain, Ability::kSharedExpertsAgain},
          "no output is dropped by itself",
          "Megatron core/tensor_parallel/random.py, CheckpointWithoutOutput, has no like in torch "
          "utils/checkpoint.py"),
    Lacks(kMegatron | kNanotron, {Ability::kRecomputePerOp}, "it recomputes modules or layers",
          "Megatron core/transformer/transformer_block.py; nanotron models/llama.py"),
    Lacks(kMegatron, {Ability::kRecomputeEveryNth}, "it recomputes all layers, or the first ones",
          "Megatron core/transformer/transformer_block.py, _checkpointed_forward, uniform and "
          "block"),
    Lacks(kOldMegatron, kPartsAgain, "it recomputes whole layers",
          "Megatron-LM v2.4, megatron/model/transformer.py, _checkpointed_forward"),
    Lacks(kNanotron,
          kPartsAgain | AbilitySet{Ability::kRecomputeEveryNth, Ability::kRecomputeUnits},
          "recompute_layer is for each layer, whole", "nanotron config/parallelism_config.py"),

    // What stands on the last layer.
    Of(kOfModules, {Ability::kOtherHead},
       "transformers modeling_layers.py, GenericForSequenceClassification and its like"),
    Lacks(kCore | kNanotron, {Ability::kOtherHead}, "its models predict tokens",
          "Megatron core/models/gpt/gpt_model.py, core/models/bert/bert_model.py; nanotron "
          "models/llama.py, LlamaForTraining"),
    NotModelled(kOldMegatron, {Ability::kOtherHead}, "its classifier is a model of its own",
                "Megatron-LM v2.4 and Megatron-DeepSpeed, megatron/model/classification.py"),

    // Latent attention.
    Of(kOfModules, {Ability::kLatentAttention, Ability::kRankNormsAlone},
       "transformers models/deepseek_v3/modeling_deepseek_v3.py, DeepseekV3Attention"),
    Since(14, Of(kCore, {Ability::kLatentAttention},
                 "Megatron core/transformer/multi_latent_attention.py, MLASelfAttention")),
    Since(14, Until(19, Of(kCore, {Ability::kRankNormsAlone},
                           "Megatron-LM core 0.18, core/models/gpt/gpt_layer_specs.py, "
                           "linear_q_proj"))),
    Since(19, NotModelled(kCore, {Ability::kRankNormsAlone},
                          "the norm of queries' projection is one more",
                          "Megatron core/transformer/mla_qk_norm_config.py, "
                          "_resolve_mla_qk_layernorm")),
    Since(10, Until(14, NotModelled(kCore, {Ability::kLatentAttention},
                                    "its down-projections were split and gathered",
                                    "Megatron-LM core 0.13, core/models/gpt/gpt_layer_specs.py, "
                                    "linear_kv_down_proj"))),
    Lacks(kNanotron | kOldMegatron, {Ability::kLatentAttention, Ability::kRankNormsAlone},
          "its heads have keys of their own",
          "nanotron models/llama.py, CausalSelfAttention; Megatron-LM v2.4, "
          "megatron/model/transformer.py, ParallelAttention"),

    // Linear attention.
    Of(kOfModules, {Ability::kLinearAttention},
       "transformers models/qwen3_5/modeling_qwen3_5.py, Qwen3_5GatedDeltaNet"),
    Since(16, NotModelled(kCore, {Ability::kLinearAttention}, "its layers are its own",
                          "Megatron core/ssm/gated_delta_net.py")),
    Until(16, Lacks(kCore, {Ability::kLinearAttention}, "its layers have attention",
                    "Megatron-LM core 0.15, core/models/gpt/gpt_layer_specs.py")),
    Lacks(kNanotron | kOldMegatron, {Ability::kLinearAttention}, "its layers have attention",
          "nanotron models/llama.py; Megatron-LM v2.4, megatron/model/transformer.py"),

    // State-space layers.
    Of(kOfModules, {Ability::kStateSpace},
       "transformers models/bamba/modeling_bamba.py, BambaMixer"),
    NotModelled(kCore, {Ability::kStateSpace}, "its layers are its own",
                "Megatron core/ssm/mamba_mixer.py"),
    Lacks(kNanotron | kOldMegatron, {Ability::kStateSpace}, "its layers have attention",
          "nanotron models/llama.py; Megatron-LM v2.4, megatron/model/transformer.py"),

    // Experts.
    Of(kOfModules, {Ability::kExperts},
       "transformers integrations/moe.py, grouped_mm_experts_forward; modeling_utils.py, "
       "get_correct_experts_implementation; deepspeed runtime/zero/stage_1_and_2.py"),
    Since(10, Of(kCore,
                 {Ability::kExperts, Ability::kExpertParallel, Ability::kTokenDispatcher,
                  Ability::kRouterDType, Ability::kGroupedGemm, Ability::kDeterministic},
                 "Megatron core/transformer/moe/token_dispatcher.py, experts.py, moe_utils.py")),
    Until(10, NotModelled(kCore, {Ability::kExperts}, "tokens were permuted otherwise",
                          "Megatron-LM core 0.9, core/transformer/moe/moe_utils.py, permute")),
    NotModelled(kOfModules, {Ability::kExpertParallel}, "megatron-core's is, and torchtitan's",
                "transformers integrations/tensor_parallel.py, ep_plan; deepspeed moe/layer.py"),
    NotModelled(kMegatronDeepSpeed, {Ability::kExperts}, "its layers have DeepSpeed's",
                "Megatron-DeepSpeed megatron/arguments.py, --num-experts"),
    Lacks(kMegatronLm, {Ability::kExperts}, "it is of 2021", "Megatron-LM v2.4, megatron/model"),
    NotModelled(kNanotron, {Ability::kExperts}, "its Qwen2 has them",
                "nanotron models/qwen.py, Qwen2MoELayer"),

    // Layers that predict further tokens.
    Since(14, Of(kCore, {Ability::kMtp}, "Megatron core/transformer/multi_token_prediction.py")),
    Until(14, NotModelled(kCore, {Ability::kMtp}, "its losses were inside the layers",
                          "Megatron-LM core 0.13, core/transformer/multi_token_prediction.py")),
    NotModelled(kOfModules, {Ability::kMtp}, "transformers' classes leave such layers out",
                "transformers models/deepseek_v3/modeling_deepseek_v3.py, "
                "_keys_to_ignore_on_load_unexpected"),
    Lacks(kNanotron | kOldMegatron, {Ability::kMtp}, "its layers predict the next token",
          "nanotron models/llama.py; Megatron-LM v2.4, megatron/model/language_model.py"),

    // Adapters.
    Of(kOfModules, {Ability::kLora},
       "peft tuners/lora/layer.py, Linear.forward; utils/other.py, fsdp_auto_wrap_policy"),
    Of(kDdp, {Ability::kDora}, "peft tuners/lora/dora.py, DoraLinearLayer.forward"),
    NotModelled(kFsdp1 | kFsdp2 | kDeepSpeed, {Ability::kDora},
                "DoRA, which reads whole weights anew, is modelled with ddp",
                "peft tuners/lora/dora.py, DoraLinearLayer.get_lora_weight"),
    Of(kDdp | kFsdp2 | kDeepSpeed, {Ability::kIa3}, "peft tuners/ia3/layer.py, Linear.forward"),
    NotModelled(kFsdp1, {Ability::kIa3}, "a flat parameter has vectors beside frozen weights",
                "peft utils/other.py, fsdp_auto_wrap_policy"),
    Of(kDdp, kVirtualTokens,
       "peft peft_model.py, PeftModelForCausalLM.forward; tuners/prompt_tuning/model.py, "
       "tuners/p_tuning/model.py, tuners/prefix_tuning/model.py"),
    NotModelled(kFsdp1 | kFsdp2 | kDeepSpeed, kVirtualTokens,
                "virtual tokens, which stand in front of what is sharded, are modelled with ddp",
                "peft peft_model.py, PeftModel._setup_prompt_encoder"),
    NotModelled(kMegatron, kAdapterMatrices | kOthersOfPeft,
                "NeMo's and Megatron Bridge's adapters are their own",
                "Megatron Bridge peft/lora.py"),
    Lacks(kNanotron, kAdapterMatrices | kOthersOfPeft, "it trains all weights",
          "nanotron trainer.py"),

    // Frozen weights in fewer bits.
    Of(kOfModules, {Ability::kQlora, Ability::kNf4, Ability::kFp4},
       "bitsandbytes autograd/_functions.py, MatMul4Bit; nn/modules.py, Params4bit.quant_storage; "
       "peft tuners/lora/bnb.py, Linear4bit"),
    Of(kDdp, {Ability::kInt8},
       "bitsandbytes autograd/_functions.py, MatMul8bitLt; nn/modules.py, Int8Params; peft "
       "tuners/lora/bnb.py, Linear8bitLt"),
    NotModelled(kOfModules & ~kDdp, {Ability::kInt8}, "it was not held against its code",
                "bitsandbytes autograd/_functions.py, MatMul8bitLt"),
    NotModelled(kMegatron, kQuantized, "NeMo's and Megatron Bridge's adapters are their own",
                "Megatron Bridge peft/lora.py"),
    Lacks(kNanotron, kQuantized, "it trains all weights", "nanotron trainer.py"),

    // Preference tuning.
    Of(kOfModules, kPreferences,
       "trl trainer/dpo_trainer.py, kto_trainer.py, reward_trainer.py, grpo_trainer.py; "
       "models/utils.py, prepare_deepspeed, prepare_fsdp"),
    NotModelled(kFsdp1, {Ability::kDpo, Ability::kKto, Ability::kGrpo},
                "ddp, fsdp2 and deepspeed are, as TRL's trainers run on them",
                "trl models/utils.py, prepare_fsdp"),
    Of(kDdp | kDeepSpeed, {Ability::kDistillation},
       "trl experimental/gkd/gkd_trainer.py; models/utils.py, prepare_deepspeed"),
    Lacks(kFsdp, {Ability::kDistillation},
          "TRL's GKDTrainer leaves the teacher in the host's memory, and fails",
          "trl experimental/gkd/gkd_trainer.py, GKDTrainer.__init__; accelerate accelerator.py, "
          "prepare_model (device_placement); seen under the phantom"),
    NotModelled(kMegatron, {Ability::kDistillation},
                "ddp and deepspeed are, as TRL's GKDTrainer runs on them",
                "ms-swift megatron/trainers/gkd_trainer.py"),
    Lacks(kNanotron, {Ability::kDistillation}, "it predicts next tokens", "nanotron trainer.py"),
    NotModelled(kMegatron, kPreferences, "NeMo's over Megatron is its own",
                "NeMo RL nemo_rl/algorithms/dpo.py"),
    Lacks(kNanotron, kPreferences, "it predicts next tokens", "nanotron trainer.py"),

    // A part of the model is trained.
    Of(kDdp | kFsdp2 | kDeepSpeed, {Ability::kFrozenParts},
       "torch/csrc/autograd/generated, should_compute_output; deepspeed runtime/zero, "
       "_get_trainable_parameter_groups"),
    NotModelled(kFsdp1, {Ability::kFrozenParts}, "its flat tensors mix what is frozen and trained",
                "torch/distributed/fsdp/_flat_param.py, _validate_tensors_to_flatten"),
    NotModelled(kMegatron, {Ability::kFrozenParts}, "its buffers were not held against real code",
                "Megatron core/distributed/param_and_grad_buffer.py"),
    Lacks(kNanotron, {Ability::kFrozenParts}, "it trains all weights", "nanotron trainer.py"),

    // The loss.
    Of(kOfModules, {Ability::kChunkedLoss, Ability::kChunkedCrossEntropy, Ability::kFusedLoss},
       "torchtitan components/loss.py; Liger-Kernel transformers/fused_linear_cross_entropy.py"),
    Of(kOfModules, {Ability::kTiledLogProbs}, "trl kernels/chunked_logprob.py"),
    Of(kOfModules, {Ability::kLigerKernel}, "Liger-Kernel transformers/monkey_patch.py"),
    Since(8,
          Of(kCore, {Ability::kFusedCrossEntropy}, "Megatron core/fusions/fused_cross_entropy.py")),
    Since(12, Of(kCore, {Ability::kTeCrossEntropy},
                 "Megatron core/model_parallel_config.py, cross_entropy_fusion_impl")),

    // Optimizers.
    Of(kOfModules, kSgds | kOtherOptimizers,
       "any torch.optim.Optimizer; deepspeed runtime/engine.py, _configure_basic_optimizer"),
    Lacks(kFsdp2, kOfBitsandbytes, "bitsandbytes' kernels take no DTensor",
          "bitsandbytes backends/cuda/ops.py; tried with 0.50.2 under torch 2.15"),
    Until(19, Of(kDeepSpeed, kCompressing,
                 "deepspeed 0.18.9 runtime/engine.py, _configure_basic_optimizer; "
                 "runtime/fp16/onebit")),
    Since(19, Lacks(kDeepSpeed, kCompressing,
                    "0.19.7 dropped it, and 0.18 has it, where runtime.versions says so",
                    "deepspeed #8490, #8489; 0.19.6 has runtime/fp16/onebit, 0.19.7 has not")),
    NotModelled(kMegatronDeepSpeed, kCompressing, "deepspeed without Megatron's layers runs them",
                "deepspeed 0.6 runtime/fp16/onebit"),
    Of(kDdp, kProjecting, "transformers trainer_optimizer.py, _setup_low_rank_optimizer"),
    NotModelled(kFsdp | kDeepSpeed, kProjecting,
                "it projects whole matrices, as ranks have them with ddp alone",
                "galore-torch 1.0 galore_projector.py, project"),
    Lacks(kFsdp2, {Ability::kAdafactor}, "transformers' Adafactor mixes tensors and DTensors",
          "transformers optimization.py, Adafactor.step; tried with 5.23 under torch 2.15"),
    Of(kMegatron, kSgds, "Megatron training/arguments.py, --optimizer"),
    Since(17, Of(kCore, {Ability::kLion}, "Megatron training/arguments.py, --optimizer")),
    Since(16, Of(kCore, {Ability::kMuon}, "Megatron training/arguments.py, --optimizer muon")),
    Since(16, Until(18, Of(kCore, {Ability::kDealtMatrices},
                           "Megatron core/optimizer/layer_wise_optimizer.py, shard_params"))),
    Since(18, NotModelled(kCore, {Ability::kDealtMatrices},
                          "it deals matrices by what they cost, in padded buffers; zero_stage 0 is",
                          "Megatron core/optimizer/layer_wise_optimizer.py, "
                          "_compute_per_buffer_param_layout")),
    Of(kDdp, {Ability::kOptimizerInBackward},
       "torch Tensor.register_post_accumulate_grad_hook; torchtune training/memory.py, "
       "register_optim_in_bwd_hooks"),
    NotModelled(kFsdp, {Ability::kOptimizerInBackward}, "ddp is, on one GPU",
                "torch distributed/fsdp/_fully_shard/_fsdp_collectives.py, foreach_reduce"),
    Of(kMegatronDeepSpeed, {Ability::kAdamW8bit},
       "bigscience Megatron-DeepSpeed, megatron/arguments.py, --use-bnb-optimizer"),
    Of(kNanotron, {Ability::kSgd}, "nanotron helpers.py, init_optimizer_and_grad_accumulator"),

    // Precision. FSDP's sums have the master's dtype; nobody but FSDP and DeepSpeed
    // reduces in a dtype of its own.
    Of(kDdp, {Ability::kBf16Autocast, Ability::kFp16Autocast}, "torch amp/autocast_mode.py"),
    NotModelled(kFsdp | kDeepSpeed | kCore, {Ability::kBf16Autocast, Ability::kFp16Autocast},
                "autocast is modelled with ddp only",
                "torch amp/autocast_mode.py; Megatron core/model_parallel_config.py, "
                "enable_autocast"),
    Of(kAll & ~kFsdp, {Ability::kGradientAccumulationDType},
       "Megatron training/arguments.py, --accumulate-allreduce-grads-in-fp32; deepspeed "
       "runtime/config.py, grad_accum_dtype"),
    Of(kFsdp | kDeepSpeed, {Ability::kReduceDType},
       "torch distributed/fsdp, MixedPrecision.reduce_dtype; deepspeed communication_data_type"),

    // Knobs.
    Of(kDdp, {Ability::kGradientAsBucketView}, "torch nn/parallel/distributed.py"),
    Of(kDeepSpeed | kMegatronDeepSpeed, {Ability::kReduceBucket},
       "deepspeed runtime/zero/config.py, reduce_bucket_size"),
    Since(14, Of(kCore, {Ability::kOverlapCommunication},
                 "Megatron training/training.py, resolve_ddp_bucket_size (--overlap-grad-reduce)")),
    Of(kDeepSpeed, {Ability::kOverlapCommunication},
       "deepspeed runtime/zero/config.py, overlap_comm"),
    Of(kFsdp, {Ability::kReshardAfterForward},
       "torch distributed/fsdp/_fully_shard/_fully_shard.py, fully_shard; distributed/fsdp/api.py, "
       "SHARD_GRAD_OP"),
    Of(kFsdp, {Ability::kOffloadParameters},
       "torch distributed/fsdp/api.py, CPUOffload; _fully_shard/_fsdp_api.py, CPUOffloadPolicy"),
    Of(kDeepSpeed, {Ability::kOffloadParameters, Ability::kOffloadOptimizer},
       "deepspeed runtime/zero/config.py, offload_param, offload_optimizer"),
    Lacks(kFsdp, {Ability::kOffloadOptimizer}, "parameters and states go together",
          "torch distributed/fsdp/_fully_shard/_fsdp_api.py, CPUOffloadPolicy"),
    NotModelled(kMegatron, {Ability::kOffloadOptimizer}, "it keeps a share of the states here",
                "Megatron core/optimizer/cpu_offloading, HybridDeviceOptimizer"),
    Lacks(kDdp | kNanotron, {Ability::kOffloadOptimizer}, "its states are where weights are",
          "torch nn/parallel/distributed.py; nanotron optim/zero.py"),
    NotModelled(kMegatron, {Ability::kOffloadParameters}, "its optimizer alone can be offloaded",
                "Megatron core/optimizer/cpu_offloading, HybridDeviceOptimizer"),
    Lacks(kDdp | kNanotron, {Ability::kOffloadParameters}, "it keeps whole weights on each GPU",
          "torch nn/parallel/distributed.py; nanotron parallel/parameters.py"),
    NotModelled(
        kOfModules, {Ability::kOffloadActivations},
        "TRL, torchtune and axolotl (hf-trainer) do it; a script's own hooks were not tried",
        "torch autograd/graph.py, save_on_cpu"),
    NotModelled(kMegatron, {Ability::kOffloadActivations},
                "what it offloads is of modules, or of whole layers",
                "Megatron core/pipeline_parallel/fine_grained_activation_offload.py"),
    Lacks(kNanotron, {Ability::kOffloadActivations}, "its checkpoints stay on the GPU",
          "nanotron models/llama.py, LlamaDecoderLayer._checkpointed_forward"),
    Of(kOfModules, {Ability::kCompile}, "torch nn/modules/module.py, compile, of each layer"),
    Of(kCore, {Ability::kGradientAccumulationFusion},
       "Megatron core/model_parallel_config.py, gradient_accumulation_fusion"),
    Of(kMegatron | kNanotron, {Ability::kAttentionMask},
       "Megatron training/utils.py, get_ltor_masks_and_position_ids"),
    Of(kCore, {Ability::kTransformerImplementation},
       "Megatron training/arguments.py, --transformer-impl"),
    Since(6, Of(kCore, {Ability::kDeferredEmbeddingGradient},
                "Megatron core/model_parallel_config.py, defer_embedding_wgrad_compute")),

    // Hugging Face's Trainer. #34194 was merged in February 2025, after 4.49, #32860 in August
    // 2024, after 4.44.
    Until(4050, Under(Trainer::kHfTrainer,
                      Lacks(kOfModules, {Ability::kTensorParallel, Ability::kSequenceParallel}, "",
                            "transformers #34194, training_args.py, tp_size"))),
    Since(4050,
          Under(Trainer::kHfTrainer,
                NotModelled(kOfModules, {Ability::kTensorParallel, Ability::kSequenceParallel},
                            "a model's tp_plan splits it in its own way",
                            "transformers integrations/tensor_parallel.py; accelerate "
                            "parallelism_config.py, tp_size"))),
    Under(Trainer::kHfTrainer,
          Lacks(kOfModules, {Ability::kPipelineParallel}, "accelerate's pipeline is for inference",
                "accelerate inference.py, prepare_pippy")),
    Under(Trainer::kHfTrainer,
          Lacks(kOfModules,
                kPartsAgain | AbilitySet{Ability::kRecomputePerOp, Ability::kRecomputeEveryNth,
                                         Ability::kRecomputeUnits},
                "its gradient checkpointing runs each layer again, whole",
                "transformers modeling_layers.py, GradientCheckpointingLayer.__call__; accelerate "
                "accelerator.py, prepare_model, apply_activation_checkpointing of FSDP1")),
    Under(Trainer::kHfTrainer,
          Lacks(kOfModules, {Ability::kChunkedLoss}, "the model gives it logits, or Liger's loss",
                "transformers trainer.py, compute_loss")),
    Own(Under(Trainer::kHfTrainer, Lacks(kOfModules, {Ability::kTiledLogProbs},
                                         "the model gives it logits, or Liger's loss",
                                         "transformers trainer.py, compute_loss"))),
    Until(4045, Under(Trainer::kHfTrainer,
                      Lacks(kOfModules, {Ability::kFusedLoss, Ability::kLigerKernel}, "",
                            "transformers #32860, training_args.py, use_liger_kernel"))),
    Under(Trainer::kHfTrainer,
          Lacks(kOfModules, {Ability::kOptimizerInBackward}, "it steps all parameters at once",
                "transformers trainer.py, training_step")),
    Own(Under(Trainer::kHfTrainer,
              Lacks(kOfModules, kOtherLosses,
                    "its loss is the model's: TRL's trainers tune by preferences and distil",
                    "transformers trainer.py, compute_loss"))),

    Under(Trainer::kHfTrainer,
          Lacks(kFsdp2, {Ability::kUlysses}, "accelerate's sp_backend is deepspeed",
                "accelerate utils/dataclasses.py, DeepSpeedSequenceParallelConfig")),
    Until(5000, Under(Trainer::kHfTrainer,
                      Lacks(kDeepSpeed, {Ability::kUlysses}, "",
                            "accelerate 1.12, transformers docs/source/en/deepspeed_alst.md"))),

    Until(5000, Under(Trainer::kHfTrainer,
                      NotModelled(kTorch, {Ability::kExperts}, "one expert ran after the other",
                                  "transformers 4.57, models/mixtral/modeling_mixtral.py, "
                                  "MixtralSparseMoeBlock.forward"))),

    Until(4056, Under(Trainer::kHfTrainer,
                      Lacks(kFsdp2, {Ability::kRing, Ability::kAllGather}, "",
                            "transformers #40205, trainer.py, _prepare_context_parallel_inputs"))),

    Under(Trainer::kHfTrainer,
          Of(kOfModules, {Ability::kOffloadActivations},
             "axolotl core/trainers/mixins/activation_checkpointing.py, with TRL's hooks")),

    // TRL, whose trainers are that Trainer, from 1.15 on.
    Under(Trainer::kTrl, NotModelled(kFsdp2, {Ability::kRing, Ability::kAllGather},
                                     "its head takes tokens of whole sequences here",
                                     "trl trainer/utils.py, add_fused_lm_head (shift_labels)")),
    Under(Trainer::kTrl, NotModelled(kDeepSpeed, {Ability::kUlysses},
                                     "its head takes tokens of whole sequences here",
                                     "trl trainer/utils.py, add_fused_lm_head (shift_labels)")),
    Under(
        Trainer::kTrl,
        Lacks(kOfModules, {Ability::kPlainLoss, Ability::kChunkedCrossEntropy, Ability::kFusedLoss},
              "its heads make tiles of logits: tiled-log-probs", "trl trainer/sft_trainer.py")),

    Under(Trainer::kTrl, Of(kOfModules, {Ability::kOffloadActivations},
                            "trl models/activation_offloading.py, OffloadActivations")),

    // torchtitan.
    Until(2026007,
          Under(Trainer::kTorchtitan,
                NotModelled(kTorch, {Ability::kLatentAttention}, "its attention was another",
                            "torchtitan models/deepseek_v3/model/model.py, Attention"))),
    Under(Trainer::kTorchtitan,
          NotModelled(kTorch, {Ability::kLinearAttention}, "its layers are its own",
                      "torchtitan models/qwen3_5/model.py")),
    Under(Trainer::kTorchtitan, Lacks(kTorch, {Ability::kStateSpace}, "its layers have attention",
                                      "torchtitan models/common/decoder.py")),
    Until(2026007, Under(Trainer::kTorchtitan,
                         NotModelled(kTorch & ~kFsdp1, {Ability::kExperts},
                                     "its experts were others", "torchtitan models/common/moe"))),
    Under(Trainer::kTorchtitan, Lacks(kFsdp1, {Ability::kExperts}, "its groups are FSDP2's",
                                      "torchtitan distributed/fsdp.py, apply_fsdp_to_decoder")),
    Since(2026007,
          Under(Trainer::kTorchtitan,
                Of(kFsdp2, {Ability::kExpertParallel},
                   "torchtitan models/common/token_dispatcher.py, AllToAllTokenDispatcher"))),
    Under(Trainer::kTorchtitan, Lacks(kTorch, {Ability::kOtherHead}, "its models predict tokens",
                                      "torchtitan models/common/decoder.py")),
    Under(Trainer::kTorchtitan, Lacks(kTorch, kPartsAgain | AbilitySet{Ability::kRecomputeUnits},
                                      "it recomputes operations, or layers",
                                      "torchtitan distributed/activation_checkpoint.py")),
    Since(2026004, Under(Trainer::kTorchtitan,
                         Lacks(kTorch, {Ability::kRecomputeEveryNth},
                               "selective_ac_option, every n-th layer, ended in March 2026",
                               "torchtitan #2357, distributed/activation_checkpoint.py"))),
    Until(2026004, Under(Trainer::kTorchtitan, Lacks(kTorch, {Ability::kChunkedLoss}, "",
                                                     "torchtitan #2937, components/loss.py"))),
    Under(Trainer::kTorchtitan,
          Lacks(kTorch, {Ability::kFrozenParts}, "it trains all weights", "torchtitan train.py")),
    Under(Trainer::kTorchtitan, Lacks(kTorch, {Ability::kLigerKernel}, "its layers are its own",
                                      "torchtitan models/common/decoder.py")),
    Under(Trainer::kTorchtitan, Lacks(kTorch, {Ability::kFusedLoss, Ability::kTiledLogProbs},
                                      "its losses take logits, or slices of hidden states",
                                      "torchtitan components/loss.py")),
    Under(Trainer::kTorchtitan,
          Lacks(kTorch, kSgds | kOtherOptimizers | kProjecting, "it has Adam and AdamW",
                "torchtitan components/optimizer/optimizer.py, _resolve_optimizer_factory")),
    Since(2026004, Under(Trainer::kTorchtitan,
                         NotModelled(kTorch, {Ability::kMuon}, "its DistMuon deals whole matrices",
                                     "torchtitan components/optimizer/optimizer.py"))),

    Under(Trainer::kTorchtitan,
          Lacks(kTorch, {Ability::kUlysses}, "its context parallelism is torch's",
                "torchtitan distributed/context_parallel.py")),
    Until(2024010, Under(Trainer::kTorchtitan,
                         Lacks(kFsdp2, {Ability::kRing, Ability::kAllGather}, "",
                               "torchtitan #592, parallelisms/__init__.py, context_parallel"))),
    Since(2026006, Under(Trainer::kTorchtitan,
                         NotModelled(kFsdp2, {Ability::kRing, Ability::kAllGather},
                                     "its attention of documents keeps the keys that it gathers",
                                     "torchtitan #3571, models/common/config_utils.py; torch "
                                     "_context_parallel/_cp_custom_ops.py, flex_cp_allgather"))),

    Under(Trainer::kTorchtitan,
          NotModelled(kTorch, kAdapterMatrices | kOthersOfPeft | kQuantized,
                      "its adapters are its own", "torchtitan components/lora.py")),

    Under(Trainer::kTorchtitan,
          Lacks(kTorch, kOtherLosses, "it predicts next tokens", "torchtitan train.py")),

    // torchtune.
    Under(Trainer::kTorchtune,
          Lacks(kTorch, {Ability::kLatentAttention}, "its heads have keys of their own",
                "torchtune modules/attention.py, MultiHeadAttention")),
    Under(Trainer::kTorchtune,
          Lacks(kTorch, {Ability::kLinearAttention}, "its layers have attention",
                "torchtune modules/attention.py, MultiHeadAttention")),
    Under(Trainer::kTorchtune,
          Of(kTorch, {Ability::kDora}, "torchtune modules/peft/dora.py, DoRALinear.forward")),
    Under(Trainer::kTorchtune, Lacks(kTorch, kOthersOfPeft, "its adapters are LoRA's and DoRA's",
                                     "torchtune modules/peft")),
    Under(Trainer::kTorchtune,
          Lacks(kTorch, {Ability::kFrozenParts}, "its recipes train all, or adapters",
                "torchtune recipes/full_finetune_distributed.py")),
    Under(Trainer::kTorchtune, Lacks(kTorch, {Ability::kLigerKernel}, "its layers are its own",
                                     "torchtune modules/transformer.py")),
    Under(Trainer::kTorchtune, Lacks(kTorch, {Ability::kStateSpace}, "its layers have attention",
                                     "torchtune modules/attention.py, MultiHeadAttention")),
    Under(Trainer::kTorchtune,
          NotModelled(kTorch, {Ability::kDistillation}, "TRL's GKDTrainer is",
                      "torchtune recipes/knowledge_distillation_single_device.py")),
    Under(Trainer::kTorchtune,
          NotModelled(kFsdp2, kPreferences, "its recipe for one GPU is",
                      "torchtune recipes/full_dpo_distributed.py, lora_dpo_distributed.py")),
    Under(Trainer::kTorchtune, Lacks(kDdp, {Ability::kKto, Ability::kReward, Ability::kGrpo},
                                     "its recipe for one GPU compares pairs",
                                     "torchtune recipes/lora_dpo_single_device.py")),
    Under(Trainer::kTorchtune,
          Lacks(kTorch, {Ability::kFp4, Ability::kInt8}, "its quantized weights are torchao's nf4",
                "torchtune modules/low_precision/nf4_linear.py, "
                "FrozenNF4Linear")),
    Under(Trainer::kTorchtune,
          Lacks(kTorch, {Ability::kUlysses}, "its context parallelism is torch's",
                "torchtune recipes/full_finetune_distributed.py")),
    Until(7, Under(Trainer::kTorchtune,
                   Lacks(kFsdp2, {Ability::kRing, Ability::kAllGather}, "",
                         "torchtune 0.6.1, recipes/full_finetune_distributed.py"))),
    Under(Trainer::kTorchtune,
          NotModelled(kTorch, {Ability::kExperts}, "its own experts, of Llama 4",
                      "torchtune modules/moe/experts.py, GroupedExperts")),
    Under(
        Trainer::kTorchtune,
        NotModelled(kTorch, {Ability::kOtherHead}, "its classifiers are for rewards in PPO",
                    "torchtune modules/classifier.py, recipes/ppo_full_finetune_single_device.py")),
    Under(Trainer::kTorchtune,
          Lacks(kDdp, {Ability::kDataParallel}, "without fsdp2 its recipes run on one GPU",
                "torchtune recipes/full_finetune_single_device.py")),
    Until(6, Under(Trainer::kTorchtune,
                   Lacks(kFsdp2, {Ability::kTensorParallel, Ability::kSequenceParallel}, "",
                         "torchtune #2330, recipes/full_finetune_distributed.py"))),
    Under(Trainer::kTorchtune,
          Lacks(kFsdp2, {Ability::kPipelineParallel}, "its recipes have no pipeline",
                "torchtune recipes/full_finetune_distributed.py")),
    Under(
        Trainer::kTorchtune,
        Lacks(kTorch, kPartsAgain | AbilitySet{Ability::kRecomputePerOp, Ability::kRecomputeUnits},
              "it recomputes layers, all or every n-th",
              "torchtune training/activations.py, checkpoint_wrapper")),
    Until(7,
          Under(Trainer::kTorchtune, Lacks(kTorch, {Ability::kChunkedLoss}, "",
                                           "torchtune #2531, modules/loss/cross_entropy_loss.py"))),
    Under(Trainer::kTorchtune, Lacks(kTorch, {Ability::kFusedLoss, Ability::kTiledLogProbs},
                                     "its losses run over slices", "torchtune modules/loss")),

    Under(Trainer::kTorchtune, Of(kTorch, {Ability::kOffloadActivations},
                                  "torchtune training/_activation_offloading.py")),

    // litgpt.
    Under(Trainer::kLitgpt,
          Lacks(kTorch, {Ability::kOptimizerInBackward}, "it steps all parameters at once",
                "litgpt finetune/full.py, fit")),
    Under(Trainer::kLitgpt,
          NotModelled(kTorch, {Ability::kLatentAttention}, "its attention is its own",
                      "litgpt model.py, MultiheadLatentAttention")),
    Under(Trainer::kLitgpt,
          Lacks(kTorch, {Ability::kDora}, "its adapters are LoRA's", "litgpt lora.py")),
    Under(Trainer::kLitgpt, NotModelled(kTorch, kOthersOfPeft, "of its adapters LoRA's are",
                                        "litgpt lora.py, adapter.py, adapter_v2.py")),
    Under(Trainer::kLitgpt, Lacks(kTorch, {Ability::kFrozenParts}, "it trains all, or adapters",
                                  "litgpt finetune/full.py")),
    Under(Trainer::kLitgpt, Lacks(kTorch, {Ability::kLigerKernel}, "its layers are its own",
                                  "litgpt model.py, Block")),
    Under(Trainer::kLitgpt, Lacks(kTorch, {Ability::kLinearAttention}, "its layers have attention",
                                  "litgpt model.py, Block")),
    Under(Trainer::kLitgpt, Lacks(kTorch, {Ability::kStateSpace}, "its layers have attention",
                                  "litgpt model.py, Block")),
    Under(Trainer::kLitgpt,
          Lacks(kTorch, kOtherLosses, "it predicts next tokens", "litgpt finetune/full.py")),
    Under(Trainer::kLitgpt,
          NotModelled(kDdp, {Ability::kInt8}, "its int8-training was not held against its code",
                      "litgpt finetune/lora.py, setup (bnb.int8-training)")),
    Under(Trainer::kLitgpt, Lacks(kFsdp1, kQuantized, "it quantizes on one GPU alone",
                                  "litgpt finetune/lora.py, setup")),
    Under(Trainer::kLitgpt,
          Lacks(kTorch, kContexts, "its ranks have whole sequences", "litgpt pretrain.py")),
    Under(Trainer::kLitgpt,
          NotModelled(kTorch, {Ability::kExperts}, "one expert runs after the other",
                      "litgpt model.py, LLaMAMoE.forward")),
    Under(Trainer::kLitgpt, Lacks(kTorch, {Ability::kOtherHead}, "its models predict tokens",
                                  "litgpt model.py, GPT.lm_head")),
    Under(Trainer::kLitgpt,
          Lacks(kTorch,
                kPartsAgain | AbilitySet{Ability::kRecomputePerOp, Ability::kRecomputeEveryNth,
                                         Ability::kRecomputeUnits},
                "it recomputes whole blocks, or none",
                "litgpt finetune/full.py, activation_checkpointing_policy")),
    Under(
        Trainer::kLitgpt,
        Lacks(kTorch, {Ability::kChunkedLoss, Ability::kFusedLoss, Ability::kTiledLogProbs},
              "its loss runs over slices of the logits", "litgpt utils.py, chunked_cross_entropy")),

    // NeMo Automodel, of whose models Llama, Qwen 2 and Qwen 3 were held against its code.
    Under(Trainer::kNemoAutomodel,
          NotModelled(kDdp, {Ability::kDataParallel}, "it was held under ddp on one GPU: fsdp2 is",
                      "nemo_automodel components/distributed/ddp.py, parallelize_ddp")),
    Under(Trainer::kNemoAutomodel,
          Lacks(kDdp, {Ability::kBf16Mixed, Ability::kBf16Autocast, Ability::kFp16Autocast},
                "on one GPU nothing is cast: bf16-pure and fp32 are",
                "nemo_automodel components/distributed/model_parallelizer.py, "
                "_parallelize_unsharded_fsdp2")),
    Under(Trainer::kNemoAutomodel, NotModelled(kTorch,
                                               {Ability::kFp16Mixed, Ability::kFp16Pure,
                                                Ability::kBf16Optimizer, Ability::kFp8Lm},
                                               "bf16 and fp32 are",
                                               "nemo_automodel components/distributed/config.py, "
                                               "FSDP2Config.mp_policy")),
    Under(Trainer::kNemoAutomodel,
          NotModelled(
              kFsdp2,
              {Ability::kTensorParallel, Ability::kSequenceParallel, Ability::kPipelineParallel},
              "its plans were not held against its code",
              "nemo_automodel components/distributed/optimized_tp_plans.py, pipelining")),
    Under(Trainer::kNemoAutomodel,
          NotModelled(kFsdp2, {Ability::kUlysses, Ability::kRing, Ability::kAllGather},
                      "its own sharder gives ranks their parts",
                      "nemo_automodel components/distributed/context_parallel, "
                      "ContextParallelSharder")),
    Under(Trainer::kNemoAutomodel,
          NotModelled(kFsdp2, {Ability::kShardGroups}, "HSDP was not held against its code",
                      "nemo_automodel components/distributed/mesh_utils.py, get_fsdp_dp_mesh")),
    Under(Trainer::kNemoAutomodel,
          NotModelled(kTorch, {Ability::kExperts}, "its experts and their dispatchers are its own",
                      "nemo_automodel components/moe/experts.py, GroupedExperts")),
    Under(Trainer::kNemoAutomodel,
          NotModelled(kTorch,
                      {Ability::kLatentAttention, Ability::kLinearAttention, Ability::kStateSpace},
                      "its classes of such models were not held against its code",
                      "nemo_automodel _transformers/registry.py")),
    Under(Trainer::kNemoAutomodel,
          NotModelled(kTorch, {Ability::kOtherHead}, "its recipe of next tokens was held alone",
                      "nemo_automodel recipes/llm/train_seq_cls.py")),
    Under(Trainer::kNemoAutomodel,
          NotModelled(kTorch, AbilitySet{Ability::kDora} | kOthersOfPeft | kQuantized,
                      "LoRA of 16-bit weights was held alone",
                      "nemo_automodel components/_peft/lora.py, LinearLoRA; "
                      "components/quantization/qlora.py")),
    Under(Trainer::kNemoAutomodel,
          NotModelled(kTorch, {Ability::kFrozenParts}, "its freeze_config was not held",
                      "nemo_automodel components/utils/model_utils.py")),
    Under(Trainer::kNemoAutomodel,
          NotModelled(kTorch, {Ability::kDistillation}, "TRL's GKDTrainer is",
                      "nemo_automodel recipes/llm/kd.py")),
    Under(Trainer::kNemoAutomodel, Lacks(kTorch, kPreferences, "it predicts next tokens",
                                         "nemo_automodel recipes/llm/train_ft.py")),
    Under(Trainer::kNemoAutomodel,
          NotModelled(kTorch, {Ability::kLigerKernel}, "its own classes are not patched",
                      "nemo_automodel _transformers/auto_model.py, _build_model")),
    Under(Trainer::kNemoAutomodel,
          NotModelled(kTorch, kPartsAgain | AbilitySet{Ability::kRecomputePerOp},
                      "its selective checkpoints were not held against its code",
                      "nemo_automodel components/distributed/activation_checkpointing.py")),
    Under(Trainer::kNemoAutomodel,
          Lacks(kTorch, {Ability::kRecomputeEveryNth, Ability::kRecomputeUnits},
                "it recomputes all layers' modules, or none",
                "nemo_automodel components/distributed/activation_checkpointing.py, "
                "apply_submodule_checkpointing")),
    Under(Trainer::kNemoAutomodel,
          NotModelled(
              kTorch,
              {Ability::kChunkedLoss, Ability::kChunkedCrossEntropy, Ability::kFusedLoss,
               Ability::kFusedCrossEntropy, Ability::kTeCrossEntropy, Ability::kTiledLogProbs},
              "MaskedCrossEntropy is", "nemo_automodel components/loss/masked_ce.py")),
    Under(Trainer::kNemoAutomodel,
          NotModelled(kTorch, kSgds | kOtherOptimizers | kProjecting, "torch's Adam and AdamW are",
                      "nemo_automodel components/optim/optimizer.py")),
    Under(Trainer::kNemoAutomodel,
          NotModelled(kTorch, {Ability::kCompile}, "its compiled layers were not held",
                      "nemo_automodel components/distributed/parallelizer.py, "
                      "_apply_per_layer_compile")),
    Under(Trainer::kNemoAutomodel,
          NotModelled(kFsdp2, {Ability::kOffloadParameters}, "its offload_policy was not held",
                      "nemo_automodel components/distributed/config.py, FSDP2Config")),
    Under(Trainer::kNemoAutomodel,
          Lacks(kTorch, {Ability::kOptimizerInBackward}, "it steps all parameters at once",
                "nemo_automodel recipes/llm/train_ft.py, _run_train_optim_step")),
};

}  // namespace

absl::Span<const CapabilityRow> CapabilityRows() { return kRows; }

const std::array<AbilityName, kAbilityCount> kAbilityNames = {{
    {Ability::kDataParallel, "parallelism.data_parallel_size", "above 1"},
    {Ability::kTensorParallel, "parallelism.tensor_parallel_size", "above 1"},
    {Ability::kSequenceParallel, "parallelism.sequence_parallel", "true"},
    {Ability::kUlysses, "parallelism.context_parallel_method", "ulysses"},
    {Ability::kRing, "parallelism.context_parallel_method", "ring"},
    {Ability::kAllGather, "parallelism.context_parallel_method", "all-gather"},
    {Ability::kPipelineParallel, "parallelism.pipeline_parallel_size", "above 1"},
    {Ability::kShardGroups, "parallelism.shard_group_size", "below data x context parallel size"},
    {Ability::kZero0, "parallelism.zero_stage", "0"},
    {Ability::kZero1, "parallelism.zero_stage", "1"},
    {Ability::kZero2, "parallelism.zero_stage", "2"},
    {Ability::kZero3, "parallelism.zero_stage", "3"},
    {Ability::kGpipe, "parallelism.pipeline_schedule", "gpipe"},
    {Ability::k1F1B, "parallelism.pipeline_schedule", "1f1b"},
    {Ability::kInterleaved1F1B, "parallelism.pipeline_schedule", "interleaved-1f1b"},
    {Ability::kMicroBatchGroups, "parallelism.micro_batch_group_size", "set"},
    {Ability::kRecomputeNone, "training.recompute.mode", "none"},
    {Ability::kRecomputeSelective, "training.recompute.mode", "selective"},
    {Ability::kRecomputePerOp, "training.recompute.mode", "per-op"},
    {Ability::kRecomputeFull, "training.recompute.mode", "full"},
    {Ability::kRecomputeEveryNth, "training.recompute.mode", "every-nth"},
    {Ability::kRecomputeUnits, "training.recompute.unit_layer_count", "above 1"},
    {Ability::kCoreAttentionAgain, "training.recompute.modules", "core-attention"},
    {Ability::kMlpAgain, "training.recompute.modules", "mlp"},
    {Ability::kNormAgain, "training.recompute.modules", "norm"},
    {Ability::kActivationAgain, "training.recompute.modules", "activation"},
    {Ability::kUpProjectionAgain, "training.recompute.modules", "up-projection"},
    {Ability::kExpertsAgain, "training.recompute.modules", "experts"},
    {Ability::kSharedExpertsAgain, "training.recompute.modules", "shared-experts"},
    {Ability::kFp8OutputsAgain, "training.precision.fp8_recipe",
     "any beside recompute.modules norm, activation"},
    {Ability::kOtherHead, "model.transformer.head", "one that predicts no tokens"},
    {Ability::kLatentAttention, "model.transformer.key_value_rank", "set"},
    {Ability::kRankNormsAlone, "model.transformer.qk_norm", "per-rank without query_rank"},
    {Ability::kLinearAttention, "model.transformer.linear_value_head_count", "set"},
    {Ability::kStateSpace, "model", "with state-space layers"},
    {Ability::kExperts, "model.transformer.expert_count", "any"},
    {Ability::kExpertParallel, "parallelism.expert_parallel_size", "above 1"},
    {Ability::kTokenDispatcher, "parallelism.token_dispatcher", "set"},
    {Ability::kLora, "training.adapter.method", "lora"},
    {Ability::kQlora, "training.adapter.method", "qlora"},
    {Ability::kDora, "training.adapter.method", "dora"},
    {Ability::kIa3, "training.adapter.method", "ia3"},
    {Ability::kPromptTuning, "training.adapter.method", "prompt-tuning"},
    {Ability::kPTuning, "training.adapter.method", "p-tuning"},
    {Ability::kPrefixTuning, "training.adapter.method", "prefix-tuning"},
    {Ability::kNf4, "training.quantization.format", "nf4"},
    {Ability::kFp4, "training.quantization.format", "fp4"},
    {Ability::kInt8, "training.quantization.format", "int8"},
    {Ability::kDpo, "training.preference.method", "dpo"},
    {Ability::kKto, "training.preference.method", "kto"},
    {Ability::kReward, "training.preference.method", "reward"},
    {Ability::kGrpo, "training.preference.method", "grpo"},
    {Ability::kDistillation, "training.distillation.teacher", "set"},
    {Ability::kFrozenParts, "training.trained", "set"},
    {Ability::kPlainLoss, "training.loss.implementation", "plain"},
    {Ability::kChunkedLoss, "training.loss.implementation", "chunked"},
    {Ability::kChunkedCrossEntropy, "training.loss.implementation", "chunked-cross-entropy"},
    {Ability::kFusedLoss, "training.loss.implementation", "fused"},
    {Ability::kFusedCrossEntropy, "training.loss.implementation", "fused-cross-entropy"},
    {Ability::kTeCrossEntropy, "training.loss.implementation", "te-cross-entropy"},
    {Ability::kTiledLogProbs, "training.loss.implementation", "tiled-log-probs"},
    {Ability::kSgd, "training.optimizer.name", "sgd"},
    {Ability::kSgdMomentum, "training.optimizer.name", "sgd-momentum"},
    {Ability::kRmsprop, "training.optimizer.name", "rmsprop"},
    {Ability::kAdagrad, "training.optimizer.name", "adagrad"},
    {Ability::kAdam, "training.optimizer.name", "adam"},
    {Ability::kAdamW, "training.optimizer.name", "adamw"},
    {Ability::kLamb, "training.optimizer.name", "lamb"},
    {Ability::kLion, "training.optimizer.name", "lion"},
    {Ability::kAdafactor, "training.optimizer.name", "adafactor"},
    {Ability::kMuon, "training.optimizer.name", "muon"},
    {Ability::kAdamW8bit, "training.optimizer.name", "adamw-8bit"},
    {Ability::kLion8bit, "training.optimizer.name", "lion-8bit"},
    {Ability::kAdEMAMix, "training.optimizer.name", "ademamix"},
    {Ability::kAdEMAMix8bit, "training.optimizer.name", "ademamix-8bit"},
    {Ability::kScheduleFreeAdamW, "training.optimizer.name", "schedule-free-adamw"},
    {Ability::kOnebitAdam, "training.optimizer.name", "onebit-adam"},
    {Ability::kZeroOneAdam, "training.optimizer.name", "zero-one-adam"},
    {Ability::kOnebitLamb, "training.optimizer.name", "onebit-lamb"},
    {Ability::kGaloreAdamW, "training.optimizer.name", "galore-adamw"},
    {Ability::kApolloAdamW, "training.optimizer.name", "apollo-adamw"},
    {Ability::kOptimizerInBackward, "training.optimizer.in_backward", "true"},
    {Ability::kDealtMatrices, "parallelism.zero_stage", "1 beside muon"},
    {Ability::kFp32, "training.precision.preset", "fp32"},
    {Ability::kFp16Mixed, "training.precision.preset", "fp16-mixed"},
    {Ability::kBf16Mixed, "training.precision.preset", "bf16-mixed"},
    {Ability::kBf16Autocast, "training.precision.preset", "bf16-autocast"},
    {Ability::kFp16Autocast, "training.precision.preset", "fp16-autocast"},
    {Ability::kBf16Pure, "training.precision.preset", "bf16-pure"},
    {Ability::kFp16Pure, "training.precision.preset", "fp16-pure"},
    {Ability::kBf16Optimizer, "training.precision.preset", "bf16-optimizer"},
    {Ability::kFp8Mixed, "training.precision.preset", "fp8-mixed"},
    {Ability::kFp4Mixed, "training.precision.preset", "fp4-mixed"},
    {Ability::kFp8Lm, "training.precision.preset", "fp8-lm"},
    {Ability::kGradientAccumulationDType, "training.precision.gradient_accumulation_dtype", "set"},
    {Ability::kReduceDType, "training.precision.reduce_dtype", "set"},
    {Ability::kGradientAsBucketView, "runtime.gradient_as_bucket_view", "set"},
    {Ability::kReduceBucket, "runtime.reduce_bucket_element_count", "set"},
    {Ability::kOverlapCommunication, "runtime.overlap_communication", "set"},
    {Ability::kReshardAfterForward, "runtime.reshard_after_forward", "set"},
    {Ability::kOffloadParameters, "runtime.offload_parameters", "set"},
    {Ability::kOffloadOptimizer, "runtime.offload_optimizer", "set"},
    {Ability::kOffloadActivations, "runtime.offload_activations", "set"},
    {Ability::kMtp, "training.mtp_layer_count", "1"},
    {Ability::kCompile, "runtime.compile", "set"},
    {Ability::kGradientAccumulationFusion, "runtime.gradient_accumulation_fusion", "set"},
    {Ability::kAttentionMask, "runtime.attention_mask", "set"},
    {Ability::kTransformerImplementation, "runtime.transformer_implementation", "set"},
    {Ability::kDeferredEmbeddingGradient, "runtime.deferred_embedding_gradient_count", "set"},
    {Ability::kRouterDType, "training.precision.router_dtype", "set"},
    {Ability::kGroupedGemm, "runtime.grouped_gemm", "set"},
    {Ability::kDeterministic, "runtime.deterministic", "set"},
    {Ability::kLigerKernel, "runtime.liger_kernel", "set"},
}};

}  // namespace plimsoll
