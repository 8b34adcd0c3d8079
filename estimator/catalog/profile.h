// What each framework, of each era, does that moves bytes: facts as rows, with
// their source, that lowering and passes obey.
#ifndef PLIMSOLL_ESTIMATOR_CATALOG_PROFILE_H_
#define PLIMSOLL_ESTIMATOR_CATALOG_PROFILE_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace plimsoll {

enum class Framework : uint8_t {
  kDdp,
  kFsdp1,
  kFsdp2,
  kDeepSpeed,
  kMegatronCore,
  kMegatronLm,
  kMegatronDeepSpeed,
  kNanotron,
};

// A bit for each.
template <typename... Frameworks>
constexpr uint16_t On(Frameworks... frameworks) {
  return static_cast<uint16_t>(((1u << static_cast<unsigned>(frameworks)) | ...));
}

// The loop on top of a framework, where it moves bytes of its own.
enum class Trainer : uint8_t {
  kNone,
  kTorchtitan,
  kTorchtune,
  kLitgpt,
  kHfTrainer,
  kTrl,
  kNemoAutomodel,
};

// How a norm is written, hence what autograd keeps.
//   kFused      its input (a kernel that also gives the output)
//   kUpcast     the input in fp32, and its normalised copy (Hugging Face's
//               LlamaRMSNorm; a LayerNorm under autocast keeps fp32 too)
enum class NormKernel : uint8_t { kFused, kUpcast };

// How the loss over the logits is written.
//   kCrossEntropy   fp32 copy, log-softmax kept in fp32, two fp32 gradients
//   kVocabParallel  fp32 copy, softmax in place in it (Megatron)
//   kSharded        fp32 copy and softmax kept apart (nanotron)
enum class LossKernel : uint8_t { kCrossEntropy, kVocabParallel, kSharded };

// How long a training loop holds on to logits that the loss does not need.
//   kDeleted    until the loss begins: their memory is a hole then
//   kForward    until the loss returns
//   kUntilNext  until the next micro-batch's are made, and they are fp32
enum class LogitsHeld : uint8_t { kDeleted, kForward, kUntilNext };

// Which losses a job that is compiled compiles too: none, those over slices of
// the logits, or all.
enum class CompiledLoss : uint8_t { kNone, kSlices, kAll };

// Where a weight's gradient goes when backward has made it.
//   kKept        it becomes `.grad`: allocated as backward passes each layer
//   kAdded       it is added to a buffer that exists, then freed
//   kFused       the GEMM adds into the buffer; no tensor of its own
enum class WeightGradient : uint8_t { kKept, kAdded, kFused };

// What data-parallel ranks share, and how.
//   kBuckets  nothing: gradients pass through buckets beside them (DDP)
//   kUnits    weights, gradients and states, gathered and reduced a unit of layers at a
//             time (FSDP), whatever the ZeRO stage that is left to say
//   kEngine   what the ZeRO stage says, flat, through buckets (DeepSpeed)
//   kFlat     states and master weights, beside flat weights (DeepSpeed's pipeline engine)
//   kSlices   states and master weights; what was updated is gathered in one call (nanotron)
//   kStates   states and master weights (Megatron's distributed optimizer)
enum class Sharding : uint8_t { kBuckets, kUnits, kEngine, kFlat, kSlices, kStates };

// Where gradients are summed up.
//   kPlain       in `.grad`, made as backward passes each layer and dropped after the step
//   kContiguous  in one buffer, made at start
//   kCopied      as kPlain, with a copy for the step, unless they are summed in fp32
//   kStale       as kCopied, but copies are freed only once their successors are made
enum class GradientSums : uint8_t { kPlain, kContiguous, kCopied, kStale };

// How layers are dealt to pipeline stages when the job does not say.
//   kEven    the same number on each, what is left over to the first
//   kEqual   the same number on each; where that cannot be, the job must say
//   kByCost  greedily by parameter count, the head counted; a stage closes when
//            its cost passes its share (nanotron), or reaches it (kByCostReached)
enum class StageRule : uint8_t { kEven, kEqual, kByCost, kByCostReached };

// When the CPU runs ahead of the GPU, so that memory which a collective used is
// free later (estimator/replay/gpu_lag.h). Whatever it is, the upper bound has the whole.
enum class RunAhead : uint8_t { kNever, kWithoutPipeline, kDeepOrGpuBound, kGpuBound };

enum class AttentionKernel : uint8_t { kEager, kFlash, kCudnn, kMemoryEfficient, kFlex };

// Who computes linear attention's delta rule: kernels of flash-linear-attention, or Python.
enum class LinearAttentionKernel : uint8_t { kFla, kTorch };

// How ranks that split a sequence come to its attention.
//   kUlysses    each takes the whole sequence for some of the heads
//   kRing       keys and values go from rank to rank
//   kAllGather  each has the keys and values of all
enum class ContextParallelMethod : uint8_t { kUlysses, kRing, kAllGather };

// Which kernel `auto` is.
struct AutoAttention {
  AttentionKernel usual;          // 16-bit activations, on Ampere and newer
  AttentionKernel on_hopper;      // the same, on Hopper
  AttentionKernel without_flash;  // elsewhere
  bool flex = false;  // compiled flex attention is there, and latent attention's (torchtitan)
};

// One framework in one era.
struct Profile {
  Framework framework;
  absl::string_view name;     // as users write it
  absl::string_view package;  // the key in `versions` that picks the era
  int since;                  // first version of the era: major * 1000 + minor
  absl::string_view era;      // for people

  NormKernel norm;
  bool fused_glu;          // gate, up and product in one kernel
  bool fused_activations;  // any activation of the MLP is one kernel
  bool packed_gate;        // the MLP's gate and up are one product
  bool packed_qkv;         // one projection; views of it pin it whole
  bool joint_qkv;          // one projection of queries, keys and values alone
  bool copies_qkv;  // queries, keys and values are copied apart, queries with all three (nanotron)
  bool groups_qkv;  // that one has each group's queries, key and value side by side
  bool adds_bias_apart;    // not as a product of torch's Linear is made: kernels behind it add it
  bool flash_output_copy;  // flash attention's output is kept in both layouts
  bool fused_softmax;      // eager attention scales, masks and normalises in one 16-bit kernel
  AutoAttention attention;
  bool torch_attention;  // attention's kernels are torch's own; else a package's
  bool
      transformers_attention;  // it is transformers' classes': eager in some, and windows are masks
  LossKernel loss;
  bool tiled_log_probs;    // the loss is of log-probabilities from tiles of logits (TRL)
  bool chunked_loss;       // head and loss run over slices where the job does not say (torchtitan)
  bool equal_chunks;       // slices of a sequence are of one length (torchtitan)
  bool slices_wait;        // their backward waits until all have run forward (torchtune)
  bool loss_behind_model;  // it is made when the model's forward, and autocast, is over
  LogitsHeld logits_held;
  bool copies_logits;  // the vocabulary-parallel loss is not in place
  CompiledLoss compiled_loss;
  bool loss_parallel;  // with tensor parallelism the loss reads logits that are split
  bool gathers_inner;  // DTensor: the sequence is not the first axis
  bool expands_kv;     // keys and values are copied to as many heads as queries have
  bool root_group;     // FSDP2: embedding, final norm and head are one group, gathered all along
  bool reshards_ends;  // FSDP2: a root group that is told so goes between forward and backward
  bool parts_shared_table;  // FSDP2: a group of both ends gathers a shared table twice (torchtitan)
  bool keeps_shared_table;  // FSDP2: the group of a table that the head shares stays gathered
  bool last_block_gathered;  // FSDP2: the last layer stays gathered until its backward
  bool flattens_on_gpu;      // an engine's weights are whole on the GPU when they are laid flat
  bool shards_on_gpu;        // FSDP2: a group is whole on the GPU when it is cut
  bool reduces_as_gathered;  // FSDP: gradients, in the dtype that weights are gathered in
  bool accumulates_whole;    // FSDP: gradients are reduced with a step's last micro-batch alone
  bool adds_by_parameter;    // FSDP2: backward adds each parameter's to sums of a wider dtype
  bool unties_head;          // the head has a table of its own, whatever the model says
  WeightGradient weight_gradient;
  Sharding sharding;
  bool flat_units;  // kUnits: a unit is one flat tensor, not one for each parameter
  GradientSums gradient_sums;
  bool accelerate;               // accelerate prepares the model
  bool sums_in_fp32;             // gradients, where neither preset nor job says in what
  bool deallocates_outputs;      // a stage's output is freed once it is sent
  bool sends_whole;              // what a stage sends is not split over its tensor ranks
  bool holds_loss;               // three fp32 tensors of the loss live until the step is over
  bool redistributes;            // DTensor: what is gathered is an op of its own
  bool fused_residual;           // bias, dropout and sum in one compiled op, gradients all new
  bool checkpoints_hold_output;  // the recomputed output lives until its backward ends
  bool checkpoints_stop_early;   // else: a layer runs again until all is there that it saved
  bool checkpoints_mask;         // a recomputed layer keeps its attention mask
  int32_t stashed_input_count;  // of offloaded layers, that have their input while a later one runs
  bool pooled_workspace;        // cuBLAS workspaces come from the allocator (torch 1.11 and later)
  bool cached_rotary;           // each layer keeps its own cosines and sines
  bool kept_rotary;             // fp32 angles of a rank's positions, made once
  bool pooled_gathers;          // gathered inputs share buffers, made at first use
  int gather_buffer_count;      // of these, with tensor parallelism
  bool dispatches_experts;      // Megatron's: tokens are sent to their experts and back
  bool reorders_experts;        // torchtitan's: grouped products of rows in their order
  bool weighs_expert_outputs;   // weights multiply what experts gave, not what is inside them
  bool adds_rows_by_index;      // deterministic runs sum tokens up by index_add, which keeps them
  bool own_products;          // linear layers have a backward of their own: inputs' gradients first
  bool copies_remade;         // what is made again is copied to where what was dropped was
  bool pooled_scores;         // outside Transformer Engine scores and gathers have one buffer each
  bool flat_master;           // master weights are one buffer
  bool states_at_start;       // optimizer states are made before the first step
  bool states_by_parameter;   // all of a parameter, then those of the next
  bool leaves_loaded_states;  // a checkpoint's states stay beside those in use (torch to 2.10)
  bool tunes_norms;           // Triton norms that tune themselves at first use
  bool sequence_parallel_default;
  ContextParallelMethod context_parallel_method;  // where the job does not say
  bool balances_contexts;         // a rank has a piece of a sequence from either end of it
  bool merges_contexts;           // each rank's keys are a step of attention (torch)
  bool relays_exchanged;          // Ulysses: what ranks exchanged is laid out anew for the kernel
  bool copies_exchanged_heads;    // the same: keys and values that are fewer than ranks are copied
  bool reduces_contexts_in_fp32;  // gradients of parts of sequences, where the job does not say
  bool reduces_units_in_fp32;     // those of FSDP's units, where the job does not say
  bool widens_adapters;           // they are fp32 where the job does not say; else as weights are
  bool narrows_adapters;          // beside quantized weights they are bf16 then
  bool inputs_require_gradients;  // of recomputed layers, beside frozen weights
  bool holds_adapter_inputs;      // a layer's locals: what attention gave, what its MLP reads
  bool joint_adapters;            // queries, keys and values have one adapter (litgpt)
  bool separate_projections;      // each is a module, whatever transformers' class has (torchtune)
  bool drops_in_pairs;            // a model's dropouts stay beside preference tuning
  bool holds_reference_logits;    // until a reference runs again (torchtune)
  bool expandable_segments;       // its import sets them, where the job does not say
  bool dora_reads_product;        // DoRA weighs what the frozen product gave, dropout or not
  int64_t loss_slice_tokens;      // beside adapters the loss runs over so many at once; 0: all
  bool reshards_root;            // FSDP2's root group goes between forward and backward (torchtune)
  bool rotary_by_layer;          // fp32 angles of a sequence, of which a layer picks (torchtitan)
  bool rotary_tables;            // fp32 cosines and sines of all positions (torchtune)
  bool wide_norms;               // a norm is fp32 until its output (torchtune)
  bool wide_norms_when_adapted;  // beside adapters (litgpt)
  bool composed_norms;           // a norm's fp32 copies live while it runs, and its backward (NeMo)
  bool wide_rotation;            // queries and keys are fp32 while they turn (NeMo)
  bool recomputes_modules;       // full recomputation is of a layer's modules, each alone (NeMo)
  bool lean_adapters;            // an adapter keeps what it reads alone (NeMo)
  bool frozen_root;              // FSDP2: beside adapters embedding and head are the root's (NeMo)
  bool composed_dequantization;  // a quantized matrix is made whole by PyTorch's own ops
  bool half_dequantization;      // it is fp16 when whole, and cast to what a product reads
  bool keeps_quantized_inputs;   // a product by one keeps what it read
  bool quantizes_head;           // beside quantized layers the head is, too
  bool splits_vectors;           // norms and biases are a group of the optimizer's own
  bool wide_embedding_states;    // optimizers of 8-bit states keep an embedding's in fp32
  bool pages_states;             // beside quantized weights: fp32 ones in managed memory
  bool replaces_embedding;       // the same: with a table that has a gradient, which stays
  int64_t vocab_size_divisor;
  bool fused_optimizer;  // default implementation; false: foreach
  StageRule stages;
  bool records_streams;  // collectives keep memory from use until the GPU has run them
  RunAhead run_ahead;
  bool synchronizes_receives;  // the shape of what a stage receives is read on the CPU
  absl::string_view source;

  Trainer trainer;
  absl::string_view trainer_name;
  absl::string_view trainer_era;  // for people
  absl::string_view trainer_source;

  // As FSDP2 does: a unit keeps a tensor for each of its parameters.
  constexpr bool ShardsEachParameter() const { return sharding == Sharding::kUnits && !flat_units; }
};

// Stands for a framework that is not known: it has everything, so that checks
// find what else is wrong with a job.
const Profile& UnknownFramework();

// All profiles; of one framework, newest era first.
const std::vector<Profile>& Profiles();

// Returns the era of `framework` that `version` (major * 1000 + minor, or -1
// for the newest) belongs to; null where it is older than all.
const Profile* FindProfile(Framework framework, int version);

// A trainer in one era: what it changes of the framework below it.
struct TrainerEra {
  Trainer trainer;
  absl::string_view name;  // as users write it, and the key in `versions`
  int since;               // first release of the era; kNoRelease where it has none
  int since_month;         // first month of its code: year * 1000 + month
  absl::string_view era;
  uint16_t frameworks;  // a bit for each that it runs on
  void (*apply)(Profile&);
  absl::string_view source;
  bool ahead = false;  // of all releases: where a job names no version it is another's
};
inline constexpr int kNoRelease = 1 << 30;

// All eras; of one trainer, newest first.
const std::vector<TrainerEra>& TrainerEras();

// Returns `framework` as `trainer` runs it: of the era that `version` belongs to
// (a release as above, or a month such as 2025003; -1 for the newest that is released). Null
// where it does not run on that framework, or the version is older than all.
const Profile* FindTrainerProfile(const Profile& framework, Trainer trainer, int version);

// Returns `version` as a trainer's capabilities are told: the newest release where none is named
// and an era is ahead of it; the first month of its era where some have no release; else `version`.
int MonthOrRelease(Trainer trainer, int version);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_CATALOG_PROFILE_H_
