// A job as it was asked for (JobSpec), and as the estimator trusts it
// (ValidJob). Validate is the one place for doubt: after it nothing fails but
// one check of the total.
#ifndef PLIMSOLL_ESTIMATOR_JOB_JOB_H_
#define PLIMSOLL_ESTIMATOR_JOB_JOB_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "estimator/base/config_value.h"
#include "estimator/base/dtype.h"
#include "estimator/base/notice.h"
#include "estimator/base/units.h"
#include "estimator/base/violation.h"
#include "estimator/catalog/capabilities.h"
#include "estimator/catalog/catalog.h"
#include "estimator/catalog/megatron_fsdp.h"
#include "estimator/catalog/model.h"
#include "estimator/catalog/optimizers.h"
#include "estimator/catalog/preferences.h"
#include "estimator/catalog/profile.h"
#include "estimator/job/allocator_settings.h"
#include "estimator/job/profiled.h"

namespace plimsoll {

// `transformer` of the request: unset is not zero.
struct TransformerSpec {
  std::optional<int64_t> hidden_size, layer_count, head_count, kv_head_count, head_size, ffn_size,
      vocab_size, position_count, token_type_count, label_count, expert_count, active_expert_count,
      expert_ffn_size, shared_expert_ffn_size, dense_layer_count, key_value_rank, query_rank,
      rotary_head_size, value_head_size, linear_key_head_count, linear_value_head_count,
      linear_key_head_size, linear_value_head_size, linear_kernel_size, attention_period_size;
  std::optional<std::string> activation, norm, norm_placement, qk_norm, position_embedding, head;
  std::optional<bool> gated_mlp, qkv_bias, attention_output_bias, mlp_bias, tied_embeddings,
      masked_lm_head, sentence_head, attention_gate;
  std::optional<double> hidden_dropout, attention_dropout;
};

// The names are the API's (proto/plimsoll/v1/job.proto), which says what each
// means, its range and its default.
struct ModelSpec {
  // Nothing; a catalog id; a config.json; an architecture spelled out; one that has been
  // checked before, as a search has it; or what a run held.
  std::variant<std::monostate, std::string, ConfigValue, TransformerSpec,
               std::shared_ptr<const Transformer>, ProfiledSpec>
      source;
  std::optional<bool> accept_unknown_model_type;
};

struct PrecisionSpec {
  std::optional<std::string> preset, parameter_dtype, gradient_dtype, gradient_accumulation_dtype,
      reduce_dtype, master_dtype, optimizer_state_dtype, router_dtype, fp8_recipe;
  std::optional<bool> fp8_parameters;
};

struct OptimizerSpec {
  std::optional<std::string> name, implementation;
  std::optional<bool> paged;
  std::optional<bool> in_backward;
  std::optional<int64_t> rank;
  std::vector<std::string> target_modules;
};

struct RecomputeSpec {
  std::optional<std::string> mode;
  std::vector<std::string> modules;
  std::optional<int64_t> interval, unit_layer_count;
};

struct AdapterSpec {
  std::optional<std::string> method;
  std::optional<int64_t> rank;
  std::vector<std::string> target_modules;
  std::optional<double> dropout;
  std::optional<std::string> adapter_dtype;
  std::vector<std::string> trained_modules;
  std::vector<std::string> feedforward_modules;
  std::optional<int64_t> virtual_token_count, encoder_hidden_size;
  std::optional<bool> prefix_projection;
};

struct QuantizationSpec {
  std::optional<std::string> format;
  std::optional<bool> double_quantization;
  std::optional<std::string> compute_dtype;
};

struct PreferenceSpec {
  std::optional<std::string> method, reference;
};

struct TrainedSpec {
  std::vector<std::string> modules;
  std::optional<int64_t> layer_count;
};

struct DistillationSpec {
  std::optional<std::string> teacher;
  std::optional<double> jsd_beta;
};

struct LossSpec {
  std::optional<std::string> implementation;
  std::optional<int64_t> chunk_count;
};

struct TrainingSpec {
  std::optional<int64_t> sequence_length, micro_batch_size, global_batch_size;
  PrecisionSpec precision;
  OptimizerSpec optimizer;
  std::optional<bool> gradient_clipping;
  RecomputeSpec recompute;
  std::optional<std::string> attention, linear_attention;
  LossSpec loss;
  std::optional<bool> resumed_from_checkpoint;
  AdapterSpec adapter;
  QuantizationSpec quantization;
  PreferenceSpec preference;
  TrainedSpec trained;
  std::optional<int64_t> mtp_layer_count;
  DistillationSpec distillation;
};

struct ParallelismSpec {
  std::optional<int64_t> data_parallel_size, zero_stage, shard_group_size, tensor_parallel_size;
  std::optional<bool> sequence_parallel;
  std::optional<int64_t> context_parallel_size;
  std::optional<std::string> context_parallel_method;
  std::optional<int64_t> pipeline_parallel_size;
  std::optional<std::string> pipeline_schedule;
  std::optional<int64_t> virtual_pipeline_size;
  std::vector<int64_t> pipeline_layout;
  std::optional<int64_t> micro_batch_group_size;
  std::optional<int64_t> expert_parallel_size, expert_tensor_parallel_size;
  std::optional<std::string> token_dispatcher;
};

struct AllocatorSpec {
  std::optional<bool> expandable_segments;
  std::optional<int64_t> max_split_size_bytes;
  std::vector<int64_t> roundup_power2_division_count;
  std::optional<double> garbage_collection_threshold, memory_fraction;
};

struct RuntimeSpec {
  std::optional<std::string> framework, trainer;
  std::map<std::string, std::string> versions;
  std::optional<int64_t> vocab_size_divisor;
  std::optional<bool> gradient_as_bucket_view;
  std::optional<int64_t> reduce_bucket_element_count;
  std::optional<bool> overlap_communication, reshard_after_forward, offload_parameters,
      offload_optimizer, offload_activations, gradient_accumulation_fusion, attention_mask, compile;
  std::optional<std::string> cublas_workspace_config, transformer_implementation;
  std::optional<int64_t> deferred_embedding_gradient_count;
  std::optional<bool> grouped_gemm, deterministic, liger_kernel;
  AllocatorSpec allocator;
};

struct ClusterSpec {
  std::optional<std::string> gpu;
  std::optional<int64_t> gpu_memory_bytes, gpu_count, gpus_per_node, reserved_for_others_bytes,
      interconnect_bytes_per_second, network_bytes_per_second;
};

struct JobSpec {
  ModelSpec model;
  TrainingSpec training;
  ParallelismSpec parallelism;
  RuntimeSpec runtime;
  ClusterSpec cluster;
  std::optional<double> risk;
  std::optional<std::string> detail;
};

// How figures are made.
//   kSummary  in closed form: microseconds
//   kReplay   the timeline, replayed through the allocator: milliseconds
enum class Detail : uint8_t { kSummary, kReplay };

enum class RecomputeMode : uint8_t { kNone, kSelective, kPerOp, kFull, kEveryNth };
// A bit each in Job::recompute_modules.
enum class RecomputeModule : uint8_t {
  kCoreAttention,
  kMlp,
  kNorm,
  kActivation,
  kUpProjection,
  kExperts,
  kSharedExperts,
};
constexpr uint8_t BitOf(RecomputeModule module) {
  return static_cast<uint8_t>(1u << static_cast<unsigned>(module));
}
// What is trained beside frozen weights.
//   kLora, kQlora, kDora      two small matrices beside a product
//   kIa3                      a vector that scales what a product gives, or reads
//   kPromptTuning, kPTuning   embeddings of virtual tokens, as they are or as an encoder gives them
//   kPrefixTuning             keys and values of virtual tokens in each layer
enum class AdapterMethod : uint8_t {
  kLora,
  kQlora,
  kDora,
  kIa3,
  kPromptTuning,
  kPTuning,
  kPrefixTuning,
};
// A bit each in Adapter::targets.
enum class AdapterTarget : uint8_t {
  kQuery,
  kKey,
  kValue,
  kOutput,
  kGate,
  kUp,
  kDown,
  kHead,
  kLinearQkv,  // of linear attention
  kLinearGate,
  kLinearBeta,
  kLinearDecay,
  kLinearOutput,
  kQueryDown,  // of latent attention
  kQueryUp,
  kKvDown,
  kKvUp,
  kSharedGate,     // of the MLP beside experts
  kExpertsGateUp,  // parameters, which words of modules stand for (ExpertWords)
  kExpertsDown,
  kRouter,
};
using AdapterTargets = uint32_t;
constexpr AdapterTargets BitOf(AdapterTarget target) {
  return AdapterTargets{1} << static_cast<unsigned>(target);
}
// All from `first` to `last`.
constexpr AdapterTargets BitsOf(AdapterTarget first, AdapterTarget last) {
  return 2 * BitOf(last) - BitOf(first);
}
inline constexpr AdapterTargets kQkvTargets = BitsOf(AdapterTarget::kQuery, AdapterTarget::kValue);
inline constexpr AdapterTargets kGateUpTargets = BitsOf(AdapterTarget::kGate, AdapterTarget::kUp);
inline constexpr AdapterTargets kMlpTargets = BitsOf(AdapterTarget::kGate, AdapterTarget::kDown);
inline constexpr AdapterTargets kAttentionTargets =
    BitsOf(AdapterTarget::kQuery, AdapterTarget::kOutput) |
    BitsOf(AdapterTarget::kQueryDown, AdapterTarget::kKvUp);
inline constexpr AdapterTargets kLinearTargets =
    BitsOf(AdapterTarget::kLinearQkv, AdapterTarget::kLinearOutput);
// A bit each in Adapter::trained_modules.
enum class TrainedModule : uint8_t { kEmbedding, kHead };
// A bit each in TrainedPart::modules.
//   kBias  all of them
enum class ModelPart : uint8_t { kEmbedding, kAttention, kMlp, kNorm, kBias, kHead };
using ModelParts = uint8_t;  // a bit for each
inline constexpr ModelParts kAllParts = (2u << static_cast<unsigned>(ModelPart::kHead)) - 1;
constexpr ModelParts BitOf(ModelPart part) {
  return static_cast<ModelParts>(1u << static_cast<unsigned>(part));
}
inline constexpr ModelParts kLinearParts =
    BitOf(ModelPart::kAttention) | BitOf(ModelPart::kMlp) | BitOf(ModelPart::kHead);
enum class QuantizationFormat : uint8_t { kNf4, kFp4, kInt8 };
// What a policy is compared with.
//   kModel        a frozen model of its own
//   kAdaptersOff  the policy without its adapters
//   kPrecomputed  what was computed before training
enum class Reference : uint8_t { kModel, kAdaptersOff, kPrecomputed };
enum class LossImplementation : uint8_t {
  kPlain,
  kChunked,
  kChunkedCrossEntropy,
  kFused,
  kFusedCrossEntropy,
  kTeCrossEntropy,
  kTiledLogProbs,
};
// How tokens come to the ranks that have their experts.
//   kAllGather  each has the tokens of all, and sums up what its experts gave
//   kAllToAll   each is sent those of its experts, and sends back what these gave
enum class TokenDispatcher : uint8_t { kAllGather, kAllToAll };
enum class PipelineSchedule : uint8_t { kGpipe, k1F1B, kInterleaved1F1B };
enum class PresetName : uint8_t {
  kFp32,
  kFp16Mixed,
  kBf16Mixed,
  kBf16Autocast,
  kFp16Autocast,
  kBf16Pure,
  kFp16Pure,
  kBf16Optimizer,
  kFp8Mixed,
  kFp4Mixed,
  kFp8Lm,
};
// By what products in fp8 scale what they read, in Transformer Engine.
//   kDelayed, kTensorwise  the whole tensor: by its largest values of late, or by its own
//   kBlockwise             128 elements, or 128 times 128 of weights
//   kMxfp8                 32 elements, by the GPU itself
//   kNvfp4                 16 elements in 4 bits, or 16 times 16 of weights
// Source: transformer_engine/common/recipe/__init__.py.
enum class Fp8Recipe : uint8_t { kDelayed, kTensorwise, kBlockwise, kMxfp8, kNvfp4 };

// Dtypes of everything that training keeps of a parameter.
struct Precision {
  DType parameter = DType::kBf16;
  DType gradient = DType::kBf16;      // as backward makes it
  DType accumulation = DType::kBf16;  // as micro-batches are summed
  DType reduce = DType::kBf16;        // as ranks are
  DType master = DType::kNone;
  DType state = DType::kFp32;
  DType activation = DType::kBf16;  // what matrix products read and write
  DType residual = DType::kBf16;    // the stream between layers
  bool autocast = false;            // weights are cast at each use
  DType cast = DType::kBf16;        // what autocast casts to, where it is on
  DType router = DType::kBf16;      // what a router of dispatched tokens gives

  // What an optimizer steps, and of which a rank keeps its share.
  DType Stepped() const { return master != DType::kNone ? master : parameter; }
  // What products that are not quantized read and write.
  DType Product() const { return autocast ? cast : activation; }
  // What grouped ones do: autocast knows none, and leaves them to the weights' dtype.
  DType Grouped() const { return autocast ? parameter : activation; }
  // Whether micro-batches are summed in another dtype than backward gives.
  bool SumsWide() const { return accumulation != gradient; }
};

// How products of the layers' matrices read fp8, or fp4.
struct Fp8 {
  Fp8Recipe recipe = Fp8Recipe::kDelayed;
  bool parameters = false;  // the matrices are kept in it alone

  // One scale for a whole tensor.
  bool ScalesTensors() const {
    return recipe == Fp8Recipe::kDelayed || recipe == Fp8Recipe::kTensorwise;
  }
  bool IsFp4() const { return recipe == Fp8Recipe::kNvfp4; }
  DType Format() const {
    if (IsFp4()) return DType::kFp4Blocks;
    return ScalesTensors() ? DType::kFp8 : DType::kFp8Blocks;
  }
};

// What is trained beside targets, or in front of a sequence.
struct Adapter {
  AdapterMethod method = AdapterMethod::kLora;
  int64_t rank = 0;  // of two matrices
  AdapterTargets targets = 0;
  AdapterTargets scaled_inputs = 0;  // IA3: targets whose input is scaled, not what they give
  int64_t virtual_token_count = 0;
  int64_t encoder_hidden_size = 0;  // of what gives virtual tokens; 0: they are trained themselves
  double dropout = 0;
  DType dtype = DType::kFp32;
  uint8_t trained_modules = 0;

  bool Targets(AdapterTarget target) const {
    return (targets >> static_cast<unsigned>(target) & 1) != 0;
  }
  // Two matrices beside each target, of a rank.
  bool HasRank() const { return method <= AdapterMethod::kDora; }
  bool OfTargets() const { return method <= AdapterMethod::kIa3; }
  bool OfPrefix() const { return method == AdapterMethod::kPrefixTuning; }
  // Virtual tokens that layers see as they see others.
  int64_t PromptLength() const { return OfPrefix() ? 0 : virtual_token_count; }
  // Those of which they see keys and values alone.
  int64_t PrefixLength() const { return OfPrefix() ? virtual_token_count : 0; }
  bool Trains(TrainedModule module) const {
    return (trained_modules >> static_cast<unsigned>(module) & 1) != 0;
  }
};

// What of the model is trained.
struct TrainedPart {
  ModelParts modules = kAllParts;
  int64_t layer_count = 0;  // of the layers the last so many

  bool Has(ModelPart part) const { return (modules & BitOf(part)) != 0; }
};

// Which gradients an optimizer steps in a space of lower rank.
struct Projection {
  int64_t rank = 0;
  ModelParts parts = 0;
};

// How the layers' frozen matrices are kept.
struct Quantization {
  DType format = DType::kNf4;
  bool double_quantization = false;    // scales are quantized too
  DType compute_dtype = DType::kBf16;  // what products read
};

// A student and its teacher, or the teacher itself.
struct Distillation {
  const Transformer* teacher = nullptr;
  double jsd_beta = 0.5;
  bool teaches = false;  // the job is the teacher's
};

// A job with nothing left open. Its names are the API's.
struct Job {
  const Transformer* model = nullptr;  // null where it is profiled
  std::optional<Profiled> profiled;    // then the GPUs, their number and the risk are all else
  int64_t sequence_length = 0;         // that layers see: a prompt's virtual tokens too
  int64_t micro_batch_size = 1;
  int64_t global_batch_size = 1;
  int64_t micro_batch_count = 1;  // of one data-parallel rank in one step
  Precision precision;
  std::optional<Fp8> fp8;
  OptimizerName optimizer = OptimizerName::kAdamW;
  OptimizerImplementation optimizer_implementation = OptimizerImplementation::kFused;
  std::optional<Projection> projection;
  bool paged_states = false;           // large ones are in managed memory
  bool optimizer_in_backward = false;  // each parameter is stepped as its gradient is made
  bool deals_matrices = false;         // a rank has states of some parameters, each of them whole
  bool gradient_clipping = true;
  RecomputeMode recompute = RecomputeMode::kNone;
  uint8_t recompute_modules = 0;
  int64_t recompute_interval = 1;
  int64_t recompute_unit_layer_count = 1;
  AttentionKernel attention = AttentionKernel::kFlash;
  LinearAttentionKernel linear_attention = LinearAttentionKernel::kFla;
  bool masks_windows = false;  // SDPA has a mask where layers see a window of the sequence
  LossImplementation loss = LossImplementation::kPlain;
  int64_t loss_chunk_count = 1;
  int64_t mtp_layer_count = 0;  // layers behind the last that each predict one token further
  bool resumed_from_checkpoint = false;
  std::optional<Adapter> adapter;      // all else is frozen
  std::optional<TrainedPart> trained;  // all, where there is neither
  std::optional<Quantization> quantization;
  std::optional<PreferenceMethod> preference;
  std::optional<Reference> reference;  // where the method compares with one
  std::optional<Distillation> distillation;

  int64_t data_parallel_size = 1;
  int64_t zero_stage = 0;
  int64_t shard_group_size = 1;
  int64_t tensor_parallel_size = 1;
  bool sequence_parallel = false;
  int64_t context_parallel_size = 1;
  ContextParallelMethod context_parallel_method = ContextParallelMethod::kUlysses;
  int64_t pipeline_parallel_size = 1;
  PipelineSchedule pipeline_schedule = PipelineSchedule::k1F1B;
  int64_t virtual_pipeline_size = 1;
  std::vector<int64_t> pipeline_layout;  // layers of each stage
  int64_t micro_batch_group_size = 1;    // that a virtual stage runs in a row
  int64_t expert_parallel_size = 1;
  int64_t expert_tensor_parallel_size = 1;
  TokenDispatcher token_dispatcher = TokenDispatcher::kAllGather;

  const Profile* profile = nullptr;
  Capabilities capabilities;  // of its framework and trainer
  int64_t padded_vocab_size = 0;
  const MegatronFsdp* megatron_fsdp = nullptr;  // null where the job has none
  bool gradient_as_bucket_view = false;
  int64_t reduce_bucket_element_count = 0;
  bool overlap_communication = false;
  bool reshard_after_forward = true;
  bool offload_parameters = false;   // to the host; under FSDP with gradients and states
  bool offload_optimizer = false;    // states, masters and gradients
  bool offload_activations = false;  // inputs of layers that run again
  bool last_block_gathered = false;  // but for the last layer
  bool gradient_accumulation_fusion = false;
  int64_t deferred_embedding_gradient_count = 0;
  bool attention_mask = false;
  bool compile = false;
  bool transformer_engine = false;
  bool grouped_gemm = false;           // experts are one grouped product, not one after the other
  bool deterministic = false;          // torch.use_deterministic_algorithms
  bool liger_kernel = false;           // its norms, rotation and gated activations
  int64_t cublas_workspace_bytes = 0;  // of one handle
  AllocatorSettings allocator;

  const Gpu* gpu = nullptr;  // null where only gpu_memory_bytes was given
  GpuArchitecture architecture = GpuArchitecture::kAmpere;
  int64_t usable_bytes = 0;
  int64_t gpu_count = 1;
  int64_t gpus_per_node = 8;
  int64_t interconnect_bytes_per_second = 0;  // 0: not known
  int64_t network_bytes_per_second = 0;
  int torch_version = -1;         // major * 1000 + minor; -1: not said
  int transformers_version = -1;  // the same
  int liger_version = -1;         // the same
  int nccl_version = 0;
  double risk = 0.01;
  std::optional<Detail> detail;  // where the request says

  std::vector<Assumption> assumptions;
  std::vector<Warning> warnings;

  bool FreezesWeights() const { return adapter.has_value() || trained.has_value(); }
  // A table that both ends share is the embedding's.
  bool FreezesHead() const {
    if (!trained.has_value()) return adapter.has_value();
    return !trained->Has(model->tied_embeddings ? ModelPart::kEmbedding : ModelPart::kHead);
  }
  // What forward reads of an adapter's weights: the weights, or 16 bits gathered of masters.
  DType AdapterDType() const {
    return precision.master == DType::kNone ? adapter->dtype : precision.parameter;
  }
  // GPUs that talk over links: a node's, or those of several (NVIDIA's NVLink domain).
  int64_t LinkedGpuCount() const {
    return std::max(gpus_per_node, gpu == nullptr ? 0 : gpu->link_domain_size);
  }
  // Copies in fp8 that a tensor has: products read rows alone, but where the GPU has others
  // (compute capability from 10.0 on, but for 12.0) and one scale serves both ways. Source:
  // transformer_engine/pytorch/utils.py, is_non_tn_fp8_gemm_supported.
  int64_t Fp8CopyCount() const {
    const bool both = architecture == GpuArchitecture::kBlackwell && gpu != nullptr &&
                      !gpu->IsWorkstationBlackwell();
    return fp8->ScalesTensors() && both ? 1 : 2;
  }
  // Sequences of a sample: of a pair two.
  int64_t SequencesOfSample() const { return preference ? RowOf(*preference).sequences : 1; }
  int64_t SequencesAtOnce() const { return Multiply(micro_batch_size, SequencesOfSample()); }
  // Tokens of each sequence, and of a micro-batch, that one rank has.
  int64_t LocalSequenceLength() const { return sequence_length / context_parallel_size; }
  int64_t LocalTokens() const { return Multiply(SequencesAtOnce(), LocalSequenceLength()); }
  // Of a sequence that layers see the tokens that data gave.
  int64_t DataLength() const {
    return sequence_length - (adapter.has_value() ? adapter->PromptLength() : 0);
  }
  // Keys that attention reads.
  int64_t KeyLength() const {
    return Add(sequence_length, adapter.has_value() ? adapter->PrefixLength() : 0);
  }
  // Ranks with the same part of the model, each with tokens of its own: what they make
  // of its gradients is summed up.
  int64_t ReplicaCount() const { return Multiply(data_parallel_size, context_parallel_size); }
  // Whether DeepSpeed's engine steps flat shares, which are no weights.
  bool EngineShares() const { return profile->sharding == Sharding::kEngine && zero_stage > 0; }
  // Ranks with the same part of each expert, and those of them that shard its states.
  int64_t ExpertReplicaCount() const {
    return Multiply(tensor_parallel_size, ReplicaCount()) /
           Multiply(expert_tensor_parallel_size, expert_parallel_size);
  }
  int64_t LocalExpertCount() const { return model->experts.count / expert_parallel_size; }
  int64_t ExpertShardCount() const {
    return ExpertReplicaCount() / (ReplicaCount() / shard_group_size);
  }
};

// A job that holds every rule of the API. Only Validate makes one; whoever has
// one need not check.
class ValidJob {
 public:
  const Job& operator*() const { return job_; }
  const Job* operator->() const { return &job_; }
  // Hands over what the answer says beside its figures.
  std::vector<Assumption> TakeAssumptions() { return std::move(job_.assumptions); }

 private:
  friend std::variant<ValidJob, Violations> Validate(const JobSpec& spec, const Catalog& catalog);
  Job job_;
  std::shared_ptr<const Transformer> own_model_;  // where no catalog holds it
};

// Checks everything and fills in what was left open.
//
// Ensures:  every size is positive, degrees multiply to gpu_count, each splits
//           what it must; each assumption is listed
// Errors:   all violations at once, paths from "job."
std::variant<ValidJob, Violations> Validate(const JobSpec& spec, const Catalog& catalog);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_JOB_JOB_H_
