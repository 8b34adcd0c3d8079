// The vocabularies of a job, each name with its meaning.
#ifndef PLIMSOLL_ESTIMATOR_JOB_VOCABULARIES_H_
#define PLIMSOLL_ESTIMATOR_JOB_VOCABULARIES_H_

#include <optional>

#include "estimator/base/vocabulary.h"
#include "estimator/job/job.h"

namespace plimsoll {

inline constexpr Word<Framework> kFrameworks[] = {
    {"ddp", Framework::kDdp},
    {"fsdp1", Framework::kFsdp1},
    {"fsdp2", Framework::kFsdp2},
    {"deepspeed", Framework::kDeepSpeed},
    {"megatron-core", Framework::kMegatronCore},
    {"megatron-lm", Framework::kMegatronLm},
    {"megatron-deepspeed", Framework::kMegatronDeepSpeed},
    {"nanotron", Framework::kNanotron},
};
inline constexpr Word<Trainer> kTrainers[] = {
    {"torchtitan", Trainer::kTorchtitan}, {"torchtune", Trainer::kTorchtune},
    {"litgpt", Trainer::kLitgpt},         {"nemo-automodel", Trainer::kNemoAutomodel},
    {"hf-trainer", Trainer::kHfTrainer},  {"trl", Trainer::kTrl},
};
inline constexpr Word<OptimizerName> kOptimizers[] = {
    {"sgd", OptimizerName::kSgd},
    {"sgd-momentum", OptimizerName::kSgdMomentum},
    {"rmsprop", OptimizerName::kRmsprop},
    {"adagrad", OptimizerName::kAdagrad},
    {"adam", OptimizerName::kAdam},
    {"adamw", OptimizerName::kAdamW},
    {"lamb", OptimizerName::kLamb},
    {"lion", OptimizerName::kLion},
    {"adafactor", OptimizerName::kAdafactor},
    {"muon", OptimizerName::kMuon},
    {"adamw-8bit", OptimizerName::kAdamW8bit},
    {"lion-8bit", OptimizerName::kLion8bit},
    {"ademamix", OptimizerName::kAdEMAMix},
    {"ademamix-8bit", OptimizerName::kAdEMAMix8bit},
    {"schedule-free-adamw", OptimizerName::kScheduleFreeAdamW},
    {"onebit-adam", OptimizerName::kOnebitAdam},
    {"zero-one-adam", OptimizerName::kZeroOneAdam},
    {"onebit-lamb", OptimizerName::kOnebitLamb},
    {"galore-adamw", OptimizerName::kGaloreAdamW},
    {"apollo-adamw", OptimizerName::kApolloAdamW},
};
inline constexpr Word<OptimizerImplementation> kOptimizerImplementations[] = {
    {"for-loop", OptimizerImplementation::kForLoop},
    {"foreach", OptimizerImplementation::kForeach},
    {"fused", OptimizerImplementation::kFused},
};
inline constexpr Word<RecomputeMode> kRecomputeModes[] = {
    {"none", RecomputeMode::kNone},          {"selective", RecomputeMode::kSelective},
    {"per-op", RecomputeMode::kPerOp},       {"full", RecomputeMode::kFull},
    {"every-nth", RecomputeMode::kEveryNth},
};
inline constexpr Word<RecomputeModule> kRecomputeModules[] = {
    {"core-attention", RecomputeModule::kCoreAttention},
    {"mlp", RecomputeModule::kMlp},
    {"norm", RecomputeModule::kNorm},
    {"activation", RecomputeModule::kActivation},
    {"up-projection", RecomputeModule::kUpProjection},
    {"experts", RecomputeModule::kExperts},
    {"shared-experts", RecomputeModule::kSharedExperts},
};
inline constexpr Word<AdapterMethod> kAdapterMethods[] = {
    {"lora", AdapterMethod::kLora},
    {"qlora", AdapterMethod::kQlora},
    {"dora", AdapterMethod::kDora},
    {"ia3", AdapterMethod::kIa3},
    {"prompt-tuning", AdapterMethod::kPromptTuning},
    {"p-tuning", AdapterMethod::kPTuning},
    {"prefix-tuning", AdapterMethod::kPrefixTuning},
};
inline constexpr Word<QuantizationFormat> kQuantizationFormats[] = {
    {"nf4", QuantizationFormat::kNf4},
    {"fp4", QuantizationFormat::kFp4},
    {"int8", QuantizationFormat::kInt8},
};
// Modules by the names of transformers' Llama, as PEFT's target_modules has them.
inline constexpr Word<AdapterTargets> kAdapterTargets[] = {
    {"all-linear",
     kAttentionTargets | kMlpTargets | kLinearTargets | BitOf(AdapterTarget::kSharedGate)},
    {"attention", kAttentionTargets},
    {"mlp", kMlpTargets},
    {"q_proj", BitOf(AdapterTarget::kQuery)},
    {"k_proj", BitOf(AdapterTarget::kKey)},
    {"v_proj", BitOf(AdapterTarget::kValue)},
    {"o_proj", BitOf(AdapterTarget::kOutput)},
    {"gate_proj", BitOf(AdapterTarget::kGate)},
    {"up_proj", BitOf(AdapterTarget::kUp)},
    {"down_proj", BitOf(AdapterTarget::kDown)},
    {"qkv_proj", kQkvTargets},
    {"gate_up_proj", kGateUpTargets},
    {"lm_head", BitOf(AdapterTarget::kHead)},
    {"in_proj_qkv", BitOf(AdapterTarget::kLinearQkv)},
    {"in_proj_z", BitOf(AdapterTarget::kLinearGate)},
    {"in_proj_b", BitOf(AdapterTarget::kLinearBeta)},
    {"in_proj_a", BitOf(AdapterTarget::kLinearDecay)},
    {"in_proj_qkvz", BitsOf(AdapterTarget::kLinearQkv, AdapterTarget::kLinearGate)},
    {"in_proj_ba", BitsOf(AdapterTarget::kLinearBeta, AdapterTarget::kLinearDecay)},
    {"out_proj", BitOf(AdapterTarget::kLinearOutput)},
    {"q_a_proj", BitOf(AdapterTarget::kQueryDown)},
    {"q_b_proj", BitOf(AdapterTarget::kQueryUp)},
    {"kv_a_proj_with_mqa", BitOf(AdapterTarget::kKvDown)},
    {"kv_b_proj", BitOf(AdapterTarget::kKvUp)},
    {"shared_expert_gate", BitOf(AdapterTarget::kSharedGate)},
};
inline constexpr Word<TrainedModule> kTrainedModules[] = {
    {"embed_tokens", TrainedModule::kEmbedding}, {"lm_head", TrainedModule::kHead}};
// Parts whose linear modules' matrices an optimizer projects.
inline constexpr Word<ModelParts> kProjectedParts[] = {
    {"attention", BitOf(ModelPart::kAttention)},
    {"mlp", BitOf(ModelPart::kMlp)},
    {"head", BitOf(ModelPart::kHead)},
    {"all-linear", kLinearParts},
};
inline constexpr Word<ModelPart> kModelParts[] = {
    {"embedding", ModelPart::kEmbedding},
    {"attention", ModelPart::kAttention},
    {"mlp", ModelPart::kMlp},
    {"norm", ModelPart::kNorm},
    {"bias", ModelPart::kBias},
    {"head", ModelPart::kHead},
};
inline constexpr Word<DType> kAdapterDTypes[] = {
    {"fp32", DType::kFp32}, {"fp16", DType::kFp16}, {"bf16", DType::kBf16}};
inline constexpr Word<PreferenceMethod> kPreferenceMethods[] = {
    {"dpo", PreferenceMethod::kDpo},
    {"kto", PreferenceMethod::kKto},
    {"reward", PreferenceMethod::kReward},
    {"grpo", PreferenceMethod::kGrpo},
};
inline constexpr Word<Reference> kReferences[] = {
    {"model", Reference::kModel},
    {"adapters-off", Reference::kAdaptersOff},
    {"precomputed", Reference::kPrecomputed},
};
// No value: what the framework takes on this GPU.
inline constexpr Word<std::optional<AttentionKernel>> kAttentionKernels[] = {
    {"auto", std::nullopt},
    {"eager", AttentionKernel::kEager},
    {"flash", AttentionKernel::kFlash},
    {"cudnn", AttentionKernel::kCudnn},
    {"memory-efficient", AttentionKernel::kMemoryEfficient},
    {"flex", AttentionKernel::kFlex},
};
inline constexpr Word<LinearAttentionKernel> kLinearAttentionKernels[] = {
    {"fla", LinearAttentionKernel::kFla}, {"torch", LinearAttentionKernel::kTorch}};
inline constexpr Word<LossImplementation> kLossImplementations[] = {
    {"plain", LossImplementation::kPlain},
    {"chunked", LossImplementation::kChunked},
    {"chunked-cross-entropy", LossImplementation::kChunkedCrossEntropy},
    {"fused", LossImplementation::kFused},
    {"fused-cross-entropy", LossImplementation::kFusedCrossEntropy},
    {"te-cross-entropy", LossImplementation::kTeCrossEntropy},
    {"tiled-log-probs", LossImplementation::kTiledLogProbs},
};
inline constexpr Word<PipelineSchedule> kPipelineSchedules[] = {
    {"gpipe", PipelineSchedule::kGpipe},
    {"1f1b", PipelineSchedule::k1F1B},
    {"interleaved-1f1b", PipelineSchedule::kInterleaved1F1B},
};
inline constexpr Word<ContextParallelMethod> kContextParallelMethods[] = {
    {"ulysses", ContextParallelMethod::kUlysses},
    {"ring", ContextParallelMethod::kRing},
    {"all-gather", ContextParallelMethod::kAllGather},
};
inline constexpr Word<TokenDispatcher> kTokenDispatchers[] = {
    {"all-gather", TokenDispatcher::kAllGather},
    {"all-to-all", TokenDispatcher::kAllToAll},
};
inline constexpr Word<Detail> kDetails[] = {
    {"summary", Detail::kSummary},
    {"replay", Detail::kReplay},
};
// The value: whether it is Transformer Engine.
inline constexpr Word<bool> kTransformerImplementations[] = {
    {"transformer-engine", true},
    {"local", false},
};
inline constexpr Word<Activation> kActivations[] = {
    {"gelu", Activation::kGelu},        {"gelu-tanh", Activation::kGeluTanh},
    {"gelu-new", Activation::kGeluNew}, {"silu", Activation::kSilu},
    {"relu", Activation::kRelu},        {"relu2", Activation::kRelu2},
};
inline constexpr Word<Norm> kNorms[] = {
    {"layer-norm", Norm::kLayerNorm},
    {"rms-norm", Norm::kRmsNorm},
};
inline constexpr Word<NormPlacement> kNormPlacements[] = {
    {"pre", NormPlacement::kPre},
    {"post", NormPlacement::kPost},
    {"sandwich", NormPlacement::kSandwich},
    {"parallel", NormPlacement::kParallel},
    {"parallel-two", NormPlacement::kParallelTwo},
    {"post-only", NormPlacement::kPostOnly},
};
inline constexpr Word<QkNorm> kQkNorms[] = {
    {"none", QkNorm::kNone},
    {"per-head", QkNorm::kPerHead},
    {"full", QkNorm::kFull},
    {"per-rank", QkNorm::kPerRank},
};
inline constexpr Word<PositionEmbedding> kPositionEmbeddings[] = {
    {"rotary", PositionEmbedding::kRotary},
    {"learned", PositionEmbedding::kLearned},
    {"alibi", PositionEmbedding::kAlibi},
    {"none", PositionEmbedding::kNone},
};
inline constexpr Word<Head> kHeads[] = {
    {"language-model", Head::kLanguageModel},
    {"masked-language-model", Head::kMaskedLanguageModel},
    {"sequence-classification", Head::kSequenceClassification},
    {"token-classification", Head::kTokenClassification},
    {"question-answering", Head::kQuestionAnswering},
    {"none", Head::kNone},
};

// Dtypes of a preset. kNone under `accumulation` leaves it to the framework.
// Source: Micikevicius et al. 2018 and Rajbhandari et al. 2020 (ZeRO), 3.1, for
// mixed precision; deepspeed/runtime/bf16_optimizer.py for bf16-optimizer; Peng
// et al. 2023 (FP8-LM) for fp8-lm, states kept wider. fp8-mixed and fp4-mixed are bf16-mixed to all
// but the layers' products: transformer_engine/pytorch/module/linear.py.
struct Preset {
  PresetName name;
  DType parameter, gradient, accumulation, master, state, activation, residual;
  bool autocast;
};
inline constexpr Word<Preset> kPresets[] = {
    {"fp32",
     {PresetName::kFp32, DType::kFp32, DType::kFp32, DType::kFp32, DType::kNone, DType::kFp32,
      DType::kFp32, DType::kFp32, false}},
    {"fp16-mixed",
     {PresetName::kFp16Mixed, DType::kFp16, DType::kFp16, DType::kFp16, DType::kFp32, DType::kFp32,
      DType::kFp16, DType::kFp16, false}},
    {"bf16-mixed",
     {PresetName::kBf16Mixed, DType::kBf16, DType::kBf16, DType::kNone, DType::kFp32, DType::kFp32,
      DType::kBf16, DType::kBf16, false}},
    {"bf16-autocast",
     {PresetName::kBf16Autocast, DType::kFp32, DType::kFp32, DType::kFp32, DType::kNone,
      DType::kFp32, DType::kBf16, DType::kFp32, true}},
    {"fp16-autocast",
     {PresetName::kFp16Autocast, DType::kFp32, DType::kFp32, DType::kFp32, DType::kNone,
      DType::kFp32, DType::kFp16, DType::kFp32, true}},
    {"bf16-pure",
     {PresetName::kBf16Pure, DType::kBf16, DType::kBf16, DType::kBf16, DType::kNone, DType::kBf16,
      DType::kBf16, DType::kBf16, false}},
    {"fp16-pure",
     {PresetName::kFp16Pure, DType::kFp16, DType::kFp16, DType::kFp16, DType::kNone, DType::kFp16,
      DType::kFp16, DType::kFp16, false}},
    {"bf16-optimizer",
     {PresetName::kBf16Optimizer, DType::kBf16, DType::kBf16, DType::kFp32, DType::kFp32,
      DType::kFp32, DType::kBf16, DType::kBf16, false}},
    {"fp8-mixed",
     {PresetName::kFp8Mixed, DType::kBf16, DType::kBf16, DType::kNone, DType::kFp32, DType::kFp32,
      DType::kBf16, DType::kBf16, false}},
    {"fp4-mixed",
     {PresetName::kFp4Mixed, DType::kBf16, DType::kBf16, DType::kNone, DType::kFp32, DType::kFp32,
      DType::kBf16, DType::kBf16, false}},
    {"fp8-lm",
     {PresetName::kFp8Lm, DType::kFp8, DType::kFp8, DType::kFp8, DType::kFp32, DType::kBf16,
      DType::kBf16, DType::kBf16, false}},
};
inline constexpr Word<Fp8Recipe> kFp8Recipes[] = {
    {"delayed", Fp8Recipe::kDelayed},
    {"tensorwise", Fp8Recipe::kTensorwise},
    {"blockwise", Fp8Recipe::kBlockwise},
    {"mxfp8", Fp8Recipe::kMxfp8},
};

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_JOB_VOCABULARIES_H_
