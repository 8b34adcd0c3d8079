// The one description of a job from which everything else follows: parameter
// tensors, blocks of ops, and states. Rows declare; passes obey what they
// declare, never names.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_PROGRAM_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_PROGRAM_H_

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <limits>
#include <memory_resource>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "estimator/base/dtype.h"
#include "estimator/base/layer_set.h"
#include "estimator/base/role.h"
#include "estimator/base/units.h"
#include "estimator/catalog/profile.h"
#include "estimator/job/mesh.h"

namespace plimsoll {

// The alphabet of shapes. B micro-batch, S sequence, H hidden, E embedding
// width, F MLP width, A query width (heads x head size), C key/value width, N
// heads, D head size, V vocabulary (padded), P positions, T token types, R an adapter's rank,
// X experts, K experts of each token, G an expert's width, U that of shared experts; of latent
// attention Q the queries' rank, J that of keys and values, Y what is rotated, W values' width; of
// linear attention L keys' width, M values', O heads of values; of state spaces I heads' width, Z
// that of what writes their states, or reads them.
enum class Symbol : uint8_t {
  kB,
  kS,
  kH,
  kE,
  kF,
  kA,
  kC,
  kN,
  kD,
  kV,
  kP,
  kT,
  kR,
  kX,
  kK,
  kG,
  kU,
  kQ,
  kJ,
  kY,
  kW,
  kL,
  kM,
  kO,
  kI,
  kZ,
  kOne,
};

// What divides an extent: a bit each in Extent::splits.
// kExpert, kExpertTensor: ranks that split experts, or the matrices of each.
enum class Split : uint8_t { kTensor, kContext, kChunk, kExpert, kExpertTensor };

// One extent of a shape: `size` elements, which are what splits have left of
// `times` times the symbol.
struct Extent {
  int64_t size = 1;
  int32_t times = 1;
  Symbol symbol = Symbol::kOne;
  uint8_t splits = 0;
  uint16_t joined = 1;  // ranks whose parts it has

  int64_t Local() const { return size; }
  // Leaves the largest of `parts` parts, as even as can be.
  void Divide(int64_t parts, Split by) {
    size = CeilDivide(size, parts);
    splits |= static_cast<uint8_t>(1u << static_cast<unsigned>(by));
  }
  // Joins those of `ranks` ranks.
  void Join(int64_t ranks) {
    size = Multiply(size, ranks);
    joined = static_cast<uint16_t>(std::min<int64_t>(Multiply(joined, ranks), UINT16_MAX));
  }
  bool IsSplit(Split by) const { return (splits >> static_cast<unsigned>(by) & 1) != 0; }
};

// Up to four extents, those beyond `rank` of size 1. An axis is an index into them; kNoAxis is
// none.
struct Shape {
  std::array<Extent, 4> extents{};
  uint8_t rank = 0;

  int64_t Elements() const {
    return Multiply(Multiply(extents[0].size, extents[1].size),
                    Multiply(extents[2].size, extents[3].size));
  }
};
inline constexpr int8_t kNoAxis = -1;

// "[B, S/tp, 3H]" and "[1, 2048, 12288]".
std::string InSymbols(const Shape& shape);
std::string InNumbers(const Shape& shape);

// The passes, in their order; a bit each in `shrunk_by`.
enum class PassId : uint8_t {
  kFrozen,
  kAdapters,
  kQuantization,
  kTensorParallel,
  kContextParallel,
  kSequenceParallel,
  kExpertParallel,
  kFp8Products,
  kLossChunks,
  kRecompute,
  kOptimizer,
  kPreference,
  kZero,
  kPipelineParallel,
  kRuntime,
};
inline constexpr size_t kPassCount = 15;
inline constexpr absl::string_view kPassNames[kPassCount] = {"frozen",
                                                             "adapters",
                                                             "quantization",
                                                             "tensor-parallel",
                                                             "context-parallel",
                                                             "sequence-parallel",
                                                             "expert-parallel",
                                                             "fp8-products",
                                                             "loss-chunks",
                                                             "recompute",
                                                             "optimizer",
                                                             "preference",
                                                             "zero",
                                                             "pipeline-parallel",
                                                             "runtime"};
using PassMarks = uint16_t;
static_assert(kPassCount <= 16);

// A weight, trained or frozen.
struct Parameter {
  absl::string_view name{};
  Shape shape{};
  DType dtype = DType::kBf16;
  int8_t tensor_axis = kNoAxis;  // the axis that tensor parallelism splits
  int8_t expert_axis = kNoAxis;  // the axis that ranks which split an expert do
  int8_t shard_axis = 0;         // the axis whose rows ranks that shard it share out
  uint16_t spread_over = 1;      // ranks whose experts are others: so many fewer shard each
  bool one_by_one = false;       // of experts that run one after the other: so are its gradients
  bool embedding = false;        // a lookup table: no matrix product
  bool frozen = false;           // no gradient is made of it
  bool bare = false;             // no linear module's: nothing quantizes it
  bool quantized = false;        // frozen, in a dtype that no product reads
  bool tied = false;             // the same tensor as the embedding, when on one rank
  bool picked = false;           // by the optimizer, whose states of it are others than of the rest
  int32_t projected_rank = 0;    // its gradient is projected to; 0: it is not
  bool uncached = false;         // autocast does not cast it whole: its cache has no copy
  bool fp8 = false;              // products read it in fp8
  uint8_t packed_into = 255;     // the parameter whose tensor it is a part of; 255: its own
  int64_t gathered_bytes = 0;    // of its tensor, while its group's weights are gathered
  PassMarks shrunk_by = 0;

  bool packed() const { return packed_into != 255; }
  bool of_experts() const { return shape.rank == 3; }
  int64_t Elements() const { return shape.Elements(); }
  // Of the gradients that backward makes at once.
  int64_t ElementsAtOnce() const {
    return one_by_one ? Elements() / shape.extents[0].Local() : Elements();
  }
};

using TensorId = uint8_t;
inline constexpr TensorId kNoTensor = 255;

// Something that an op makes. Tensors of one storage are one piece of memory.
struct Tensor {
  absl::string_view name{};
  Shape shape{};
  DType dtype = DType::kBf16;
  Role role = Role::kActivation;
  Stream stream = Stream::kCompute;
  TensorId storage = kNoTensor;    // itself, or the tensor that it is a view of
  int8_t tensor_axis = kNoAxis;    // the axis that tensor parallelism splits
  int8_t sequence_axis = kNoAxis;  // the axis that sequence parallelism splits
  int8_t expert_axis = kNoAxis;    // the axis that ranks which split an expert do
  bool at_experts = false;         // of tokens that were sent to their experts
  bool differentiable = true;      // backward makes a gradient of it
  bool recorded = false;           // a collective on another stream reads or writes it
  bool held = false;               // a Python local holds it until the block returns
  bool lingers = false;            // one of the training loop holds it until its successor is made
  uint8_t held_until = 255;        // a Python local holds it until this op is done; 255: none
  bool leaves_hole = false;   // freed where only larger tensors follow: its memory stays unused
  bool discarded = false;     // dropped after forward, made again before an op that `remakes` it
  bool checkpointed = false;  // a recomputed layer keeps it beside its input
  PassMarks shrunk_by = 0;

  int64_t Bytes() const { return plimsoll::Bytes(dtype, shape.Elements()); }
};

// A short list of tensors or parameters; adding beyond its room is a bug.
struct Ids {
  std::array<TensorId, 12> ids{};
  uint8_t count = 0;

  Ids() = default;
  Ids(std::initializer_list<TensorId> list) {
    for (TensorId id : list) ids[count++] = id;
  }
  void Add(TensorId id) {
    assert(count < ids.size());
    ids[count++] = id;
  }
  void Replace(TensorId from, TensorId to) {
    std::replace(ids.begin(), ids.begin() + count, from, to);
  }
  const TensorId* begin() const { return ids.data(); }
  const TensorId* end() const { return ids.data() + count; }
};

// Gradients that backward of an op makes for its inputs.
//   kFresh    a new tensor for each differentiable input
//   kShared   the inputs' gradients are the output's (residual sum, view)
//   kOver     written over the output's (Megatron's fused softmax)
//   kInPlace  written over the input, where it is saved, else over what is saved first (Megatron's
//             cross entropy)
enum class InputGradient : uint8_t { kFresh, kShared, kOver, kInPlace };

// What ranks do together with a tensor.
//   kGather         each gets all parts of it
//   kReduceScatter  each gets its part of their sum
//   kAllReduce      each gets their sum
//   kAllToAll       each gets its part of every rank's
//   kRing           each gets every rank's in turn, while it works on the one before
enum class CollectiveKind : uint8_t { kGather, kReduceScatter, kAllReduce, kAllToAll, kRing };

// A collective that an op waits for.
struct Collective {
  CollectiveKind kind = CollectiveKind::kGather;
  AxisSet axes = 0;
  TensorId tensor = kNoTensor;
  bool shared = false;  // one for all ops in a row that ask for the same
};

// Those of one pass over an op; adding beyond their room is a bug.
struct Collectives {
  std::array<Collective, 2> rows{};
  uint8_t count = 0;

  void Add(const Collective& row) { rows[count++] = row; }
  const Collective* begin() const { return rows.data(); }
  const Collective* end() const { return rows.data() + count; }
};

// What recomputation by operation tells apart.
//   kScan      carries states from token to token
//   kGather    makes what a collective of the ops behind it gathers
//   kDispatch  sends tokens to their experts
//   kCombine   sends back what these gave
//   kPick      picks the experts of each token
enum class OpKind : uint8_t {
  kOther,
  kMatrixProduct,
  kAttention,
  kScan,
  kGather,
  kDispatch,
  kCombine,
  kPick,
};

// One operation. Everything it touches is declared here.
struct Op {
  absl::string_view name{};
  Ids inputs{};
  Ids outputs{};
  Ids saved{};  // what backward needs, of inputs and outputs
  Ids forward_temporaries{};
  Ids backward_temporaries{};
  TensorId given_from = kNoTensor;  // where it gives first: there while it does
  // Of each product, made when what that gives is there: of forward's, and of backward's.
  TensorId forward_workspace = kNoTensor;
  TensorId workspace = kNoTensor;
  TensorId sum_workspace = kNoTensor;  // of the sums over rows that are its vectors' gradients
  Ids parameters{};                    // whose gradients backward makes, but of frozen ones
  Collectives forward_collectives{};
  Collectives backward_collectives{};
  InputGradient input_gradient = InputGradient::kFresh;
  OpKind kind = OpKind::kOther;
  int64_t product_depth = 0;  // multiply-adds for each element of the first output, weights' apart
  uint8_t modules = 0;        // a bit for each RecomputeModule that it is part of
  uint8_t closes = 0;         // a bit for each whose dropped outputs backward makes before it
  uint8_t segment = 0;        // ops with one segment above 0 are recomputed together
  uint8_t remakes = 0;        // the segment, of dropped outputs, that runs again before backward
  bool always_again = false;  // recomputation by operation does not keep what it gives
  bool in_fp8 = false;        // a product of what was made fp8
  bool saves_for_weights = false;  // what it saved is read for gradients of weights alone
  bool holds_inputs = false;       // its function has what is saved, out of sight of hooks
  bool casts_gradients = false;    // those of inputs are casts of temporaries
  bool sums_rows = false;          // gradients of its vectors are sums over rows
  bool gives_first = false;        // those of inputs are made in order, before its temporaries
};

// Whether it multiplies in a kernel of its own, not cuBLAS's.
inline bool HasOwnKernel(const Op& op) {
  return op.kind == OpKind::kAttention || op.kind == OpKind::kScan;
}

// Which part of the network a block is.
enum class BlockKind : uint8_t { kEmbedding, kLayer, kHead };

// When a buffer that forward has goes: with its block, when the next block's first buffer is there,
// or as it is made, where an op of its block has what it stands for.
enum class BufferEnd : uint8_t { kBlock, kNextBuffer, kMade };

// What is gathered into, and made before it, in the stream of gathers, and freed at once.
struct GatherSize {
  int64_t bytes = 0;
  int64_t input_bytes = 0;
};

// A buffer that stands while a block runs: gathered weights and the like.
struct BlockBuffer {
  absl::string_view name{};
  Role role = Role::kCommunication;
  Stream stream = Stream::kCompute;
  Stream input_stream = Stream::kAllGather;
  BufferEnd end = BufferEnd::kBlock;
  bool of_next = false;       // backward it is the next block's Block::gathered
  bool by_parameter = false;  // a tensor for each of the block's, of Parameter::gathered_bytes
  GatherSize forward{};
  GatherSize backward{};

  GatherSize At(bool is_backward, const GatherSize& next) const {
    if (!is_backward) return forward;
    return of_next ? next : backward;
  }
};

// A part of the network that is run once, however many are like it.
struct Block {
  absl::string_view name{};
  BlockKind kind = BlockKind::kLayer;
  LayerSet layers{};  // of a stage, those that are this block; of another kind it says nothing
  int64_t recompute_unit = 0;  // layers whose one input is kept; 0: all is kept
  bool holds_output = false;   // recomputed: its output and that one's gradient live to the end
  bool stops_early = false;  // it runs again when backward needs what it saved, until that is there
  bool fetches_input = false;    // recomputed: the host has its input until it runs again
  bool own_products = false;     // linear layers' backward is not autograd's (Profile)
  bool copies_remade = false;    // what ops make again is copied to where what was dropped was
  bool names_output = false;     // a local of the module around layers, until the head runs
  bool forward_only = false;     // what ops save lives until the network's forward is over
  int64_t checkpoint_bytes = 0;  // what a recomputed layer keeps beside its input
  int64_t reduce_bytes = 0;  // its gradients on their way to other ranks, while the next block runs
  bool reduced_at_once = false;  // they are there before that does: its backward is one of its own
  std::pmr::vector<Parameter> parameters;
  std::pmr::vector<Tensor> tensors;
  std::pmr::vector<Op> ops;
  TensorId input = kNoTensor;
  TensorId output = kNoTensor;
  std::pmr::vector<BlockBuffer> buffers;
  GatherSize gathered{};  // what its weights are gathered into, backward, before it runs
};

// Adds a tensor of its own memory, and returns it.
TensorId AddTensor(Block& block, const Tensor& tensor);

// Adds a tensor as `like`, of its own memory and held by nothing but the ops that read it, and
// returns it.
TensorId AddLike(Block& block, TensorId like, absl::string_view name);

// Keeps the storage of `id` until the op `index` is done, or longer where something else does.
// Adds so many bytes that an op has while it runs.
TensorId AddWorkspace(Block& block, absl::string_view name, int64_t bytes);
// Whether an op is a product that adds a bias: one of its parameters is a vector.
bool HasBias(const Block& block, const Op& op);
// Whether an op is a product that reads its weight's bytes as they are kept: bitsandbytes
// multiplies these itself. Source: bitsandbytes csrc/ops.cu, igemmlt.
bool MultipliesBytes(const Block& block, const Op& op);
// Whether anything that an op reads has a gradient, and whether any of its parameters is trained.
bool LeadsGradients(const Block& block, const Op& op);
bool TrainsParameters(const Block& block, const Op& op);
void HoldUntil(Block& block, TensorId id, size_t index);

// Elements of a parameter's tensor: its own, and those of parameters that are packed into it.
int64_t PackedElements(const Block& block, size_t parameter);

// Puts an op before the one that is at `index`.
void InsertOp(Block& block, size_t index, const Op& op);

// Weights of other ranks that come and go as blocks run, in the stream of gathers but for those
// that are asked for as a product reads them: tensors by number, and what becomes of each in turn.
struct GatherEvent {
  int32_t tensor = 0;
  int64_t bytes = 0;  // 0: it goes
  bool when_read = false;
};

// Of one pass over a block: events [begin, run) before it runs, when there are `bytes`, and
// `before_bytes` at most until then; [run, end) behind it, which leave `rest`. Where layers run
// again first, [begin, again) are before they do, when there are `again_bytes`. Gradients that are
// sent while it runs are flattened first, or those that are sent behind it; of these some are kept
// until backward is over.
struct GatherTurn {
  int64_t again_bytes = 0;
  int64_t before_bytes = 0;
  int64_t bytes = 0;
  int64_t rest = 0;
  int64_t flat_bytes = 0;
  int64_t flat_behind_bytes = 0;
  int64_t flat_cast_bytes = 0;   // of these, in another dtype: a tensor of its own
  int64_t gradient_bytes = 0;    // beside what is flat behind it
  int64_t flat_first_bytes = 0;  // behind it too, and gone before there is what is kept: no more
  int64_t kept_bytes = 0;
  int64_t kept_flat_bytes = 0;  // of these, in the stream of what is flat
  bool keeps_last = false;      // once all else of the turn is gone
  uint32_t begin = 0;
  uint32_t again = 0;
  uint32_t run = 0;
  uint32_t end = 0;
  bool runs_again = false;
};

// A pass over the blocks of a stage that has the whole model: turns are those of the embedding, of
// each layer and of the head.
using GatherTurns = std::vector<GatherTurn>;

// A micro-batch's, of later ones and, in the timeline, of a job's first, where that gathers less.
struct Gathers {
  absl::string_view name = "gathered.weights";  // of each of its tensors
  std::vector<GatherEvent> events;
  GatherTurns forward;
  GatherTurns backward;
  GatherTurns first_forward;
  GatherTurns first_backward;
  int32_t tensor_count = 0;
  Stream stream = Stream::kAllGather;  // of what is gathered
  Stream flat_stream = Stream::kCompute;
  bool sends_once = false;  // gradients go with a step's last micro-batch alone

  bool Any() const { return !forward.empty(); }
  // Of a later micro-batch.
  uint32_t EventCount() const {
    if (!Any()) return 0;
    return backward.empty() ? forward.back().end : backward.front().end;
  }
  const GatherTurn& At(BlockKind kind, int32_t layer, bool is_backward) const {
    return TurnOf(is_backward ? backward : forward, kind, layer);
  }
  const GatherTurn& FirstAt(BlockKind kind, int32_t layer, bool is_backward) const {
    if (first_forward.empty()) return At(kind, layer, is_backward);
    return TurnOf(is_backward ? first_backward : first_forward, kind, layer);
  }

 private:
  static const GatherTurn& TurnOf(const GatherTurns& turns, BlockKind kind, int32_t layer) {
    if (kind == BlockKind::kEmbedding) return turns.front();
    return kind == BlockKind::kHead ? turns.back() : turns[static_cast<size_t>(layer) + 1];
  }
};

// What a state's size follows from.
//   kParameters       the rank's parameters that are selected
//   kCached           matrices of layers whose casts are in autocast's cache
//   kPicked           those that the optimizer treats apart
//   kOthers           the rest beside kPicked
//   kFp8              those that products read in fp8
//   kNotFp8           the rest of those
//   kRowsAndColumns   the sum of both extents of each (Adafactor)
//   kProjected        the sum of longer sides times ranks of those that are projected
//   kProjectors       the same of shorter sides
//   kFactors          the sum of these, squared
//   kLargest          the largest single parameter
//   kBytes            `fixed_bytes`
//   kBytesPerLayer    `fixed_bytes` for each layer of the stage
enum class Basis : uint8_t {
  kParameters,
  kCached,
  kPicked,
  kOthers,
  kFp8,
  kNotFp8,
  kRowsAndColumns,
  kProjected,
  kProjectors,
  kFactors,
  kLargest,
  kBytes,
  kBytesPerLayer,
};

// Which parameters a state is of; kFrozen ones are not kQuantized.
enum class Selection : uint8_t { kTrained, kFrozen, kQuantized, kAll };
inline constexpr size_t kKindCount = 3;  // of parameters: each is one of the first three

inline Selection KindOf(const Parameter& parameter) {
  if (parameter.quantized) return Selection::kQuantized;
  return parameter.frozen ? Selection::kFrozen : Selection::kTrained;
}

// When in a step a state exists: a bit for each phase, the first step's in the
// low bits, a steady step's above them.
using Alive = uint16_t;
constexpr Alive Bit(Phase phase, bool first_step) {
  return static_cast<Alive>(1u << (static_cast<unsigned>(phase) + (first_step ? 0 : kPhaseCount)));
}
// From `from` to `to` of the steps named.
constexpr Alive During(Phase from, Phase to, bool in_first, bool in_steady) {
  Alive alive = 0;
  for (int phase = static_cast<int>(from); phase <= static_cast<int>(to); ++phase) {
    if (in_first) alive |= Bit(static_cast<Phase>(phase), true);
    if (in_steady) alive |= Bit(static_cast<Phase>(phase), false);
  }
  return alive;
}
inline constexpr Alive kAlways = During(Phase::kForward, Phase::kEndOfStep, true, true);
inline constexpr Alive kForwardToBackward = During(Phase::kForward, Phase::kBackward, true, true);
inline constexpr Alive kReductionPhase =
    During(Phase::kGradientReduction, Phase::kGradientReduction, true, true);
inline constexpr Alive kOptimizerPhase = During(Phase::kOptimizer, Phase::kOptimizer, true, true);

// Which part of training a state is; what sharding selects on.
enum class Part : uint8_t {
  kOther,
  kWeights,
  kMasterWeights,
  kGradients,      // as backward makes them
  kGradientSums,   // over micro-batches, in a dtype or buffer of their own
  kStepCopies,     // of gradients, for the optimizer step
  kStepGradients,  // a rank's share of them, flat
  kOptimizerStates,
  kStepTemporaries,
  kReference,  // weights of another network
};

// Which stages a state is on.
enum class Place : uint8_t { kEverywhere, kEmbeddingStage, kHeadStage };

// Memory that is no block's: weights, gradients, states, workspaces.
struct State {
  absl::string_view name{};
  Role role = Role::kWeight;
  Part part = Part::kOther;
  Place place = Place::kEverywhere;
  Basis basis = Basis::kParameters;
  DType dtype = DType::kBf16;
  int64_t fixed_bytes = 0;
  int64_t most_bytes = std::numeric_limits<int64_t>::max();  // it is no larger than this
  int64_t shards = 1;                                        // ranks that share it
  int64_t expert_shards = 0;  // that share what is of experts; 0: as many
  int64_t block_size = 1;     // elements that have one number of it
  Selection of = Selection::kTrained;
  bool shards_rows = false;        // each parameter's first axis is split and padded (FSDP2)
  bool pages = false;              // of large tensors it is in managed memory: on no GPU
  int64_t buffers = 0;             // so many alike; 0: a storage for each parameter
  bool of_reference = false;       // a storage for each of `Program::reference`; fixed_bytes in all
  bool grows_in_backward = false;  // allocated layer by layer; alive says nothing of backward
  bool adds_up = false;            // what grew stays for the next micro-batch, alive or not
  bool fills_in = false;           // then has zeros for parameters that backward made none of
  bool takes_grown = false;        // is those that grew, kept, where it is alive and they are not
  bool until_backward = false;     // freed when the loss begins to run backward
  bool until_reduced = false;      // freed before the embedding's gradients are sent
  bool until_temporaries = false;  // gone when the step makes tensors of its own
  Alive in_passing = 0;            // there too for a while, beside no more than is counted
  // Made and freed before the first step, its memory cached: before all else is there, or behind
  // it.
  bool sets_up = false;
  bool sets_up_behind = false;
  bool sets_up_beside = false;  // the same, while the state before it is there
  Part becomes = Part::kOther;  // the same, until there is the part that is made of it
  bool remakes_last = false;    // the state before it, made anew, each storage before it is freed
  bool beside_others = false;   // of a parameter: made with others like it, before the next one's
  bool from_backward = false;   // made with a backward's first gradient
  bool with_gradients = false;  // of each parameter, made while its first gradient is there
  bool of_threads = false;      // a buffer for each thread, made when it first multiplies matrices
  Stream stream = Stream::kCompute;
  Alive alive = kAlways;
  PassMarks shrunk_by = 0;
};

// How backward adds to whole gradients of earlier micro-batches that are sent with the last one's
// (FSDP2): what a block made when all of it is there, or each parameter's as it is made.
enum class AddsWhole : uint8_t { kNone, kBlocks, kParameters };

// Memory outside the allocator. Units: bytes.
struct Outside {
  int64_t context_bytes = 0;
  int64_t nccl_bytes = 0;

  int64_t Sum() const { return Add(context_bytes, nccl_bytes); }
};

// The order in which a stage runs its pairs of micro-batch and virtual stage:
// `warm_up` forward, then one forward and one backward in turn, then backward
// of the rest. A round is `group` micro-batches of each virtual stage, forward
// from the first of these, backward from the last; the last round has what is left.
struct PairOrder {
  int64_t warm_up = 0;
  int64_t pairs = 1;
  int64_t group = 1;
  // Micro-batches of a step that are played. Of more than it takes to have as many in
  // flight as there ever are, and to reach a steady state, the rest are left out: they
  // repeat what came before.
  int64_t played_micro_batches = 1;

  bool operator==(const PairOrder&) const = default;

  // Most pairs that are between forward and backward at once.
  int64_t MostInFlight() const { return std::min(Add(warm_up, 1), pairs); }
};

// One pipeline stage's part of the model, and when it runs.
struct Stage {
  int64_t layer_count = 0;  // over all its virtual stages
  absl::InlinedVector<LayerRange, 4>
      virtual_stages{};    // pipeline_layout.h; none: it has all layers
  bool embedding = false;  // on its first virtual stage
  bool head = false;       // on its last
  int64_t edge_bytes = 0;  // sent output that a pair keeps beside its layers; not the head's
  PairOrder order{};

  // Whether what happens on one happens on the other: nothing else tells stages of one
  // program apart, not their indices either.
  bool operator==(const Stage&) const = default;
};

// Returns the stage of a pipeline that has one.
Stage WholeStage(int64_t layer_count);

// A job as tensors and ops, for all of its rank classes. Its rows are in `memory`, which outlives
// it; a copy's are not.
struct Program {
  Program() = default;
  explicit Program(std::pmr::memory_resource* memory)
      : blocks(memory), reference(memory), states(memory), stages(memory) {}

  std::pmr::vector<Block> blocks;
  // Of another network, which runs forward alone, behind the head's forward or before the
  // embedding's, and without gradients. Its weights are a state.
  std::pmr::vector<Block> reference;
  bool reference_first = false;
  bool reference_teaches = false;  // what its head saved goes when the network's has run forward
  bool empties_cache_of_losses = false;  // when each loss is there
  int64_t reference_layer_count = 0;     // 0: as many as the network has
  std::pmr::vector<State> states;
  std::vector<State> host_states;  // in the host's memory, not the GPU's
  int64_t uneven_bytes = 0;        // what some rank has beyond the one that is planned
  Gathers gathers;                 // where weights, or gradients, are not sent block by block
  Gathers reference_gathers;       // of `reference`, forward alone
  Gathers reduce_buckets;          // whole gradients, until they are reduced, beside `gathers`
  std::pmr::vector<Stage> stages;  // none yet: one stage has it all
  Outside outside;
  // What becomes of the gradient of a weight in backward of one block, and
  // whether the next block's may use its memory again.
  WeightGradient weight_gradient = WeightGradient::kKept;
  DType gradient_dtype = DType::kBf16;
  // The head's gradient of a table that the embedding reads too waits for the embedding's, where it
  // is not kept anyway.
  int64_t waiting_gradient_bytes = 0;
  // Of a table that the head reads too the sum of both gradients is a tensor of its own, made
  // after either.
  bool sums_tied_apart = false;
  // Setting up is over before the first step, whose peaks are without it, and what it left free
  // goes back to the GPU; but for what is made behind it.
  bool empties_cache = false;
  // Embedding and head are one group, whose gradients are sent when the embedding's are there.
  bool ends_are_one_group = false;
  // From the second micro-batch on gradients of a layer are made flat before they are added to
  // whole ones, those of head and embedding as one where there is a third; in the last they are
  // cast then, but for kNone (FSDP1).
  bool adds_flat = false;
  bool adds_flat_ends = false;
  DType flat_cast = DType::kNone;
  AddsWhole adds_whole = AddsWhole::kNone;
  int64_t row_shards = 1;  // ranks that split each parameter's first axis (FSDP2)
  // Of gradients on their way to other ranks. In that of reduce-scatters they are cast, from one
  // flat tensor in that of gathers (FSDP1).
  Stream reduce_stream = Stream::kCompute;
  // Kernels that tune themselves at first use, in forward and in backward, flush
  // the cache with a buffer of this size.
  int64_t tuning_bytes = 0;
  // Of layers that fetch their input so many have it still while a later one runs forward.
  int32_t stashed_input_count = 0;
  // The CPU waits for the GPU wherever a stage receives a tensor.
  bool synchronizes_receives = false;
};

// The first of a program's stages that is equal to this one, or this one itself.
size_t FirstAlike(const Program& program, size_t stage);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_PROGRAM_H_
