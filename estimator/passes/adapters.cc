#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "estimator/passes/pass.h"

namespace plimsoll {
namespace {

// A name and a word behind it, as one.
template <const absl::string_view& kFirst, const absl::string_view& kSecond>
struct Joined {
  static constexpr auto kCharacters = [] {
    std::array<char, kFirst.size() + kSecond.size()> all{};
    std::copy(kFirst.begin(), kFirst.end(), all.begin());
    std::copy(kSecond.begin(), kSecond.end(), all.begin() + kFirst.size());
    return all;
  }();
  static constexpr absl::string_view kName{kCharacters.data(), kCharacters.size()};
};

constexpr absl::string_view kDownWeight = ".adapter.down.weight";
constexpr absl::string_view kUpWeight = ".adapter.up.weight";
constexpr absl::string_view kInput = ".adapter.input";
constexpr absl::string_view kCast = ".adapter.input.cast";
constexpr absl::string_view kDropped = ".adapter.dropped";
constexpr absl::string_view kMask = ".adapter.dropout.mask";
constexpr absl::string_view kDown = ".adapter.down";
constexpr absl::string_view kUp = ".adapter.up";
constexpr absl::string_view kScaled = ".adapter.scaled";
constexpr absl::string_view kNarrowed = ".adapter.scaled.cast";
constexpr absl::string_view kClone = ".adapter.clone";
constexpr absl::string_view kSum = ".adapter.sum";
constexpr absl::string_view kOutput = ".adapter.output";
constexpr absl::string_view kParts = ".adapter.parts";
constexpr absl::string_view kPadded = ".adapter.padded";

struct Names {
  absl::string_view product, down_weight, up_weight, input, cast, dropped, mask, down, up, scaled,
      narrowed, clone, sum, output, parts, padded;
};
template <const absl::string_view& kProduct>
constexpr Names NamesOfAdapter() {
  return {kProduct,
          Joined<kProduct, kDownWeight>::kName,
          Joined<kProduct, kUpWeight>::kName,
          Joined<kProduct, kInput>::kName,
          Joined<kProduct, kCast>::kName,
          Joined<kProduct, kDropped>::kName,
          Joined<kProduct, kMask>::kName,
          Joined<kProduct, kDown>::kName,
          Joined<kProduct, kUp>::kName,
          Joined<kProduct, kScaled>::kName,
          Joined<kProduct, kNarrowed>::kName,
          Joined<kProduct, kClone>::kName,
          Joined<kProduct, kSum>::kName,
          Joined<kProduct, kOutput>::kName,
          Joined<kProduct, kParts>::kName,
          Joined<kProduct, kPadded>::kName};
}

constexpr absl::string_view kQuery = "attention.query";
constexpr absl::string_view kKey = "attention.key";
constexpr absl::string_view kValue = "attention.value";
constexpr absl::string_view kOut = "attention.out";
constexpr absl::string_view kGate = "mlp.gate";
constexpr absl::string_view kMlpUp = "mlp.up";
constexpr absl::string_view kMlpDown = "mlp.down";
constexpr absl::string_view kHead = "head";
constexpr absl::string_view kLinearQkv = "linear.qkv";
constexpr absl::string_view kLinearGate = "linear.gate";
constexpr absl::string_view kLinearBeta = "linear.beta";
constexpr absl::string_view kLinearDecay = "linear.decay";
constexpr absl::string_view kLinearOut = "linear.out";
constexpr absl::string_view kLinearQkvz = "linear.qkvz";
constexpr absl::string_view kLinearBa = "linear.ba";
constexpr absl::string_view kQkv = "attention.qkv";

// Products that one target is, or several together, a bit each in Adapter::targets. The head is no
// layer's.
struct TargetRow {
  uint16_t targets;
  Names names;
};
constexpr uint16_t BitOf(AdapterTarget target) {
  return static_cast<uint16_t>(1u << static_cast<unsigned>(target));
}
constexpr TargetRow kTargets[] = {
    {BitOf(AdapterTarget::kQuery), NamesOfAdapter<kQuery>()},
    {BitOf(AdapterTarget::kKey), NamesOfAdapter<kKey>()},
    {BitOf(AdapterTarget::kValue), NamesOfAdapter<kValue>()},
    {BitOf(AdapterTarget::kOutput), NamesOfAdapter<kOut>()},
    {BitOf(AdapterTarget::kGate), NamesOfAdapter<kGate>()},
    {BitOf(AdapterTarget::kUp), NamesOfAdapter<kMlpUp>()},
    {BitOf(AdapterTarget::kDown), NamesOfAdapter<kMlpDown>()},
    {BitOf(AdapterTarget::kQuery) | BitOf(AdapterTarget::kKey) | BitOf(AdapterTarget::kValue),
     NamesOfAdapter<kQkv>()},
    {BitOf(AdapterTarget::kLinearQkv), NamesOfAdapter<kLinearQkv>()},
    {BitOf(AdapterTarget::kLinearGate), NamesOfAdapter<kLinearGate>()},
    {BitOf(AdapterTarget::kLinearBeta), NamesOfAdapter<kLinearBeta>()},
    {BitOf(AdapterTarget::kLinearDecay), NamesOfAdapter<kLinearDecay>()},
    {BitOf(AdapterTarget::kLinearQkv) | BitOf(AdapterTarget::kLinearGate),
     NamesOfAdapter<kLinearQkvz>()},
    {BitOf(AdapterTarget::kLinearBeta) | BitOf(AdapterTarget::kLinearDecay),
     NamesOfAdapter<kLinearBa>()},
    {BitOf(AdapterTarget::kLinearOutput), NamesOfAdapter<kLinearOut>()},
};

// The names of the adapter beside a product, where it has one.
const Names* FindAdapter(const Adapter& adapter, const Op& op) {
  for (const TargetRow& row : kTargets) {
    if ((adapter.targets & row.targets) != 0 && row.names.product == op.name) return &row.names;
  }
  return nullptr;
}

TensorId AddMatrix(Block& block, absl::string_view name, Extent rows, Extent columns, DType dtype) {
  const auto id = static_cast<TensorId>(block.parameters.size());
  Parameter& parameter = block.parameters.emplace_back();
  parameter.name = name;
  parameter.shape.rank = 2;
  parameter.shape.extents[0] = rows;
  parameter.shape.extents[1] = columns;
  parameter.dtype = dtype;
  return id;
}

// Puts dropout ahead of the op `at`, which it moves on; what is left is a tensor of that name.
TensorId InsertDropout(Block& block, size_t& at, TensorId input, absl::string_view name,
                       absl::string_view mask_name) {
  const TensorId dropped = AddLike(block, input, name);
  const TensorId mask = AddLike(block, input, mask_name);
  block.tensors[mask].dtype = DType::kBool;
  block.tensors[mask].differentiable = false;
  InsertOp(block, at++,
           {.name = name, .inputs = {input}, .outputs = {dropped, mask}, .saved = {mask}});
  return dropped;
}

// Puts a product by a weight there, of the output's name.
void InsertProduct(Block& block, size_t& at, TensorId input, TensorId output, TensorId weight) {
  InsertOp(block, at++,
           {.name = block.tensors[output].name,
            .inputs = {input},
            .outputs = {output},
            .saved = {input},
            .parameters = {weight},
            .kind = OpKind::kMatrixProduct,
            .saves_for_weights = true});
}

// Puts the ops of one adapter behind a product. What is an argument of a module's call lives until
// that returns: the product's input, and what is left of it by dropout until `down` is there.
//
//   input    the product's, in the adapter's dtype; a Python local until all is done
//   dropped  of it, with a mask; under autocast a cast of either is multiplied
//   down     [B, S, R]       up  as the product's output       scaled  that, times alpha / R
//   sum      of output and scaled, in the wider dtype          output  that, in the product's
//
// Beside quantized weights the output is cloned first, the input is cast without autocast alone,
// and `scaled` is cast before the sum.
//
// Source: peft/tuners/lora/layer.py, Linear.forward; lora/bnb.py, Linear4bit.forward;
// tuners/tuners_utils.py, _cast_input_dtype.
class AdapterBuilder {
 public:
  AdapterBuilder(const Job& job, Block& block, size_t product, const Names& names)
      : job_(job),
        adapter_(*job.adapter),
        dtype_(job.AdapterDType()),
        product_dtype_(job.precision.autocast ? job.precision.Product() : dtype_),
        quantized_(job.quantization.has_value() && job.profile->widens_adapters),
        casts_(!quantized_ || !job.precision.autocast),
        joint_(job.profile->joint_adapters && block.ops[product].name == kQkv),
        block_(block),
        names_(names),
        product_(static_cast<uint8_t>(product)),
        at_(product + 1) {
    const Op& op = block.ops[product];
    base_ = op.outputs.ids[0];
    input_ = op.inputs.ids[0];
    weight_ = op.parameters.ids[0];
  }

  // Returns where the next op is.
  size_t Build() && {
    const bool held = block_.tensors[base_].held;
    block_.tensors[base_].held = false;  // its sum is, instead
    const TensorId base = quantized_ ? Clone() : base_;
    const TensorId input = casts_ ? Cast(input_, names_.input, dtype_) : input_;
    const TensorId dropped = Drop(input);
    const TensorId read = Cast(dropped, names_.cast, product_dtype_);
    const auto down = static_cast<uint8_t>(at_);
    const TensorId up = joint_ ? Parts(read) : Up(read);
    if (dropped != input) block_.tensors[dropped].held_until = down;
    const TensorId scaled = AddLike(block_, up, names_.scaled);
    Insert({.name = names_.scaled, .inputs = {up}, .outputs = {scaled}});
    const TensorId output = Sum(base, quantized_ && casts_ ? Narrow(scaled) : scaled);
    const auto done = static_cast<uint8_t>(at_ - 1);
    HoldWithAdapter(output, done);
    if (input != input_) block_.tensors[input].held_until = done;
    block_.tensors[block_.tensors[input_].storage].held_until = done;
    block_.tensors[output].held = held;
    for (size_t i = at_; i < block_.ops.size(); ++i) {
      block_.ops[i].inputs.Replace(base_, output);
      block_.ops[i].saved.Replace(base_, output);
    }
    for (size_t id = 0; id < block_.tensors.size(); ++id) {  // what was a view of the product's
      Tensor& tensor = block_.tensors[id];
      if (tensor.storage == base_ && id != base_) tensor.storage = output;
    }
    return at_;
  }

 private:
  // What lived until the product was done does until its adapter is; what held the product's output
  // holds the sum.
  void HoldWithAdapter(TensorId output, uint8_t done) {
    for (Tensor& tensor : block_.tensors) {
      if (tensor.held_until == product_) tensor.held_until = done;
    }
    std::swap(block_.tensors[output].held_until, block_.tensors[base_].held_until);
  }

  Extent Width(TensorId id) const { return block_.tensors[id].shape.extents[2]; }
  Extent Rank() const { return {.size = adapter_.rank, .symbol = Symbol::kR}; }

  TensorId Up(TensorId read) {
    const TensorId down = Product(read, names_.down, Rank(), Down(Rank()));
    return Product(down, names_.up, Width(base_), Weight(names_.up_weight, Width(base_), Rank()));
  }

  // Of queries, keys and values those that have an adapter: one matrix of all their ranks, and of
  // each a convolution, put side by side and where zeros are elsewhere.
  //
  //   down    [B, S, n R]     parts, up  [B, S, W]     padded  as the product's output
  //
  // Source: litgpt/lora.py, LoRAQKVLinear.forward, conv1d, zero_pad.
  TensorId Parts(TensorId read) {
    const Transformer& model = *job_.model;
    const int64_t widths[] = {Multiply(model.head_count, model.head_size),
                              Multiply(model.kv_head_count, model.head_size),
                              Multiply(model.kv_head_count, model.head_size)};
    Extent ranks = Rank();
    Extent width = {.size = 0, .symbol = Symbol::kA};
    ranks.times = 0;
    for (int target = 0; target < 3; ++target) {
      if (!adapter_.Targets(static_cast<AdapterTarget>(target))) continue;
      width.size = plimsoll::Add(width.size, widths[target]);
      ++ranks.times;
    }
    ranks.size = Multiply(ranks.size, ranks.times);
    const TensorId down = Product(read, names_.down, ranks, Down(ranks));
    const bool grouped = model.kv_head_count != model.head_count;
    TensorId up = Product(down, grouped ? names_.parts : names_.up, width,
                          Weight(names_.up_weight, width, Rank()));
    if (grouped) {
      const TensorId parts = up;
      up = AddLike(block_, parts, names_.up);
      Insert({.name = names_.up, .inputs = {parts}, .outputs = {up}});
    }
    if (ranks.times == 3) return up;
    const TensorId padded = Add(base_, names_.padded, product_dtype_);
    Insert({.name = names_.padded, .inputs = {up}, .outputs = {padded}, .saved = {up}});
    return padded;
  }

  TensorId Down(Extent rows) {
    return Weight(names_.down_weight, rows, block_.parameters[weight_].shape.extents[1]);
  }

  void Insert(const Op& op) { InsertOp(block_, at_++, op); }

  TensorId Add(TensorId like, absl::string_view name, DType dtype) {
    const TensorId id = AddLike(block_, like, name);
    block_.tensors[id].dtype = dtype;
    return id;
  }

  TensorId Weight(absl::string_view name, Extent rows, Extent columns) {
    return AddMatrix(block_, name, rows, columns, dtype_);
  }

  TensorId Cast(TensorId input, absl::string_view name, DType dtype) {
    if (block_.tensors[input].dtype == dtype) return input;
    const TensorId cast = Add(input, name, dtype);
    Insert({.name = name, .inputs = {input}, .outputs = {cast}});
    return cast;
  }

  TensorId Drop(TensorId input) {
    if (adapter_.dropout == 0) return input;
    return InsertDropout(block_, at_, input, names_.dropped, names_.mask);
  }

  TensorId Product(TensorId input, absl::string_view name, Extent width, TensorId weight) {
    const TensorId output = Add(base_, name, product_dtype_);
    block_.tensors[output].shape.extents[2] = width;
    InsertProduct(block_, at_, input, output, weight);
    return output;
  }

  TensorId Clone() {
    const TensorId clone = AddLike(block_, base_, names_.clone);
    Insert({.name = names_.clone,
            .inputs = {base_},
            .outputs = {clone},
            .input_gradient = InputGradient::kShared});
    return clone;
  }

  TensorId Narrow(TensorId scaled) {
    return Cast(scaled, names_.narrowed, block_.tensors[base_].dtype);
  }

  TensorId Sum(TensorId base, TensorId scaled) {
    const DType dtype = block_.tensors[base_].dtype;
    const bool widens = block_.tensors[scaled].dtype == DType::kFp32 && dtype != DType::kFp32;
    const TensorId sum = Add(base_, names_.sum, widens ? DType::kFp32 : dtype);
    Insert({.name = names_.sum,
            .inputs = {base, scaled},
            .outputs = {sum},
            .input_gradient = InputGradient::kShared});
    if (!widens) return sum;
    const TensorId output = Add(base_, names_.output, dtype);
    Insert({.name = names_.output, .inputs = {sum}, .outputs = {output}});
    return output;
  }

  const Job& job_;
  const Adapter& adapter_;
  const DType dtype_;          // of its weights
  const DType product_dtype_;  // of what it multiplies
  const bool quantized_;       // the weights beside it, as PEFT has them
  const bool casts_;           // its input to its dtype
  const bool joint_;           // of queries, keys and values
  Block& block_;
  const Names& names_;
  const uint8_t product_;  // an index
  size_t at_;              // where the next op is inserted
  TensorId base_;
  TensorId input_;
  TensorId weight_;
};

// What nothing trained lies behind has no gradient; what backward of frozen weights alone
// would read is not kept.
// Source: torch/csrc/autograd/generated, should_compute_output; tools/autograd/derivatives.yaml.
void DropUnread(Block& block) {
  for (Op& op : block.ops) {
    const bool trains = std::any_of(op.parameters.begin(), op.parameters.end(),
                                    [&block](TensorId id) { return !block.parameters[id].frozen; });
    if (op.saves_for_weights && !trains) op.saved = {};
    const bool leads = trains || op.inputs.count == 0 ||
                       std::any_of(op.inputs.begin(), op.inputs.end(), [&block](TensorId id) {
                         return block.tensors[id].differentiable;
                       });
    if (leads) continue;
    op.saved = {};
    op.backward_temporaries = {};
    for (const TensorId id : op.outputs) block.tensors[id].differentiable = false;
  }
}

// As wide as the logits, of a slice of the tokens.
Ids AddSlices(const Job& job, Block& block, TensorId logits) {
  Ids slices;
  for (const absl::string_view name :
       {"head.slice", "head.adapter.slice", "head.adapter.slice.scaled"}) {
    const TensorId slice = AddLike(block, logits, name);
    Extent& tokens = block.tensors[slice].shape.extents[1];
    tokens.size = std::min(tokens.size, job.profile->loss_slice_tokens);
    slices.Add(slice);
  }
  return slices;
}

// The adapter of a head that runs over slices of the tokens: what is as wide as the logits is of a
// slice, but for their sum. `up` is a parameter of the head's own product.
// Source: litgpt/lora.py, LoRALinear.forward; model.py, GPT.forward, lm_head_chunk_size.
void AddToHead(const Job& job, Block& block) {
  const auto head = std::find_if(block.ops.begin(), block.ops.end(),
                                 [](const Op& op) { return op.name == kHead; });
  size_t at = static_cast<size_t>(head - block.ops.begin());
  const TensorId hidden = head->inputs.ids[0];
  const TensorId logits = head->outputs.ids[0];
  const Shape shape = block.parameters[head->parameters.ids[0]].shape;
  const Extent rank{.size = job.adapter->rank, .symbol = Symbol::kR};
  const DType dtype = job.AdapterDType();
  const TensorId read =
      job.adapter->dropout == 0
          ? hidden
          : InsertDropout(block, at, hidden, "head.adapter.dropped", "head.adapter.dropout.mask");
  const TensorId down = AddLike(block, hidden, "head.adapter.down");
  block.tensors[down].shape.extents[2] = rank;
  const TensorId weight =
      AddMatrix(block, "head.adapter.down.weight", rank, shape.extents[1], dtype);
  InsertProduct(block, at, read, down, weight);
  const TensorId up = AddMatrix(block, "head.adapter.up.weight", shape.extents[0], rank, dtype);
  const Ids slices = AddSlices(job, block, logits);
  Op& op = block.ops[at];
  op.inputs.Add(down);
  op.saved = {down};
  op.parameters.Add(up);
  for (const TensorId id : slices) op.forward_temporaries.Add(id);
  op.backward_temporaries.Add(slices.ids[0]);
}

// What an MLP reads is an argument of its function, which holds it until its last adapter has run.
// Source: transformers models/llama/modeling_llama.py, LlamaMLP.forward.
void HoldArgument(Block& block) {
  const auto find = [&block](absl::string_view name) {
    return std::find_if(block.ops.begin(), block.ops.end(),
                        [name](const Op& op) { return op.name == name; });
  };
  const auto gate = find(kGate);
  const auto last = find(Joined<kMlpDown, kScaled>::kName);
  if (gate == block.ops.end() || last == block.ops.end()) return;
  Tensor& argument = block.tensors[block.tensors[gate->inputs.ids[0]].storage];
  argument.held_until = static_cast<uint8_t>(last - block.ops.begin());
}

void AddAdapters(const Job& job, Block& block) {
  for (size_t i = 0; i < block.ops.size();) {
    const Names* const names = FindAdapter(*job.adapter, block.ops[i]);
    i = names == nullptr ? i + 1 : AdapterBuilder(job, block, i, *names).Build();
  }
  if (job.profile->transformers_attention) HoldArgument(block);
}

bool Trains(const Block& block) {
  return std::any_of(block.parameters.begin(), block.parameters.end(),
                     [](const Parameter& parameter) { return !parameter.frozen; });
}

// The first layer that has adapters: linear attention has none where they are attention's.
int64_t FirstTrained(const Program& program) {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const Block& block : program.blocks) {
    if (block.kind == BlockKind::kLayer && Trains(block)) {
      first = std::min(first, block.layers.First());
    }
  }
  return first;
}

// Layers [begin, end) of those that are one block, as a block of their own whose input has no
// gradient.
void SplitLayers(Program& program, size_t layer, absl::string_view name, int64_t begin,
                 int64_t end) {
  Block part = program.blocks[layer];
  part.name = name;
  part.layers.begin = std::max(part.layers.begin, begin);
  part.layers.end = std::min(part.layers.end, end);
  part.tensors[part.input].differentiable = false;
  DropUnread(part);
  program.blocks.push_back(std::move(part));
}

// The input of the first layer with adapters has no gradient, unless it is made to have one: what
// PEFT keeps of layers that are run again must. Layers before it keep nothing.
// Source: peft/peft_model.py, _prepare_model_for_gradient_checkpointing; transformers
// modeling_utils.py, enable_input_require_grads. torchtune has no such thing:
// training/activations.py.
void SplitFirstLayers(Program& program, size_t count) {
  const int64_t trained = FirstTrained(program);
  for (size_t i = 0; i < count; ++i) {
    if (program.blocks[i].kind != BlockKind::kLayer) continue;
    const LayerSet layers = program.blocks[i].layers;
    if (layers.CountOf(trained) > 0) SplitLayers(program, i, "frozen layer", 0, trained);
    if (layers.Has(trained)) SplitLayers(program, i, "first layer", trained, trained + 1);
    const int64_t begin = layers.Has(trained) ? trained + 1 : trained;
    program.blocks[i].layers.begin = std::max(layers.begin, begin);
  }
}

// The gradient that an op makes of its whole table.
void AddTableGradient(Block& block, Op& op) {
  const Parameter& table = block.parameters[op.parameters.ids[0]];
  const bool tables = block.kind == BlockKind::kEmbedding;
  op.backward_temporaries.Add(AddTensor(
      block, {.name = tables ? "embedding.tokens.weight.gradient" : "head.weight.gradient",
              .shape = table.shape,
              .dtype = table.dtype,
              .role = Role::kGradient,
              .differentiable = false}));
}

// A copy of the op's table is trained in its place: the op keeps what the gradient reads, and makes
// the gradient.
// Source: peft/utils/other.py, ModulesToSaveWrapper.
void TrainWhole(absl::string_view name, Block& block) {
  const auto op = std::find_if(block.ops.begin(), block.ops.end(),
                               [&](const Op& at) { return at.name == name; });
  op->saves_for_weights = false;
  AddTableGradient(block, *op);
}

// Another table stands in the embedding's place, once weights were frozen and the optimizer was
// made: it has a gradient that nobody drops, to which each backward adds another, and the old one
// stays. A norm reads what it gives.
// Source: litgpt finetune/lora.py, main; bitsandbytes nn/modules.py, StableEmbedding.
void ReplaceEmbedding(Block& block) {
  const TensorId before = block.output;
  const TensorId normed = AddLike(block, before, "embedding.norm");
  AddTableGradient(block, block.ops.front());
  block.tensors[before].differentiable = true;
  block.ops.push_back(
      {.name = "embedding.norm", .inputs = {before}, .outputs = {normed}, .saved = {before}});
  block.output = normed;
}

// Whether layers pass gradients on to the embedding.
bool ReachesEmbedding(const Job& job) {
  const bool again = job.recompute != RecomputeMode::kNone && job.profile->inputs_require_gradients;
  const bool replaced = job.quantization.has_value() && job.profile->replaces_embedding;
  return again || replaced || job.adapter->Trains(TrainedModule::kEmbedding);
}

// What scores sequences is new: a copy of it is trained, beside adapters.
// Source: peft/peft_model.py, PeftModelForSequenceClassification.__init__ (classifier, score);
// utils/other.py, ModulesToSaveWrapper.
void TrainScores(Block& block) {
  const auto scores = std::find_if(block.ops.begin(), block.ops.end(),
                                   [](const Op& op) { return op.name == "head.scores"; });
  const Ids originals = scores->parameters;
  for (const TensorId id : originals) {
    const auto copy = static_cast<TensorId>(block.parameters.size());
    block.parameters.push_back(block.parameters[id]);
    block.parameters.back().frozen = false;
    scores->parameters.Replace(id, copy);
  }
  scores->saves_for_weights = false;
}

void AdaptHead(const Job& job, Block& block) {
  if (!PredictsTokens(job.model->head)) TrainScores(block);
  if (job.adapter->Targets(AdapterTarget::kHead)) AddToHead(job, block);
  if (job.adapter->Trains(TrainedModule::kHead)) TrainWhole(kHead, block);
}

void AdaptEmbedding(const Job& job, Block& block) {
  block.tensors[block.output].differentiable = ReachesEmbedding(job);
  if (job.adapter->Trains(TrainedModule::kEmbedding)) TrainWhole("embedding.lookup", block);
  if (job.quantization.has_value() && job.profile->replaces_embedding) ReplaceEmbedding(block);
}

}  // namespace

Program ApplyAdapters(const ValidJob& job, Program program) {
  if (!job->adapter.has_value()) return program;
  const size_t count = program.blocks.size();
  for (size_t i = 0; i < count; ++i) {
    Block& block = program.blocks[i];
    for (Parameter& parameter : block.parameters) parameter.frozen = true;
    if (block.kind == BlockKind::kLayer) AddAdapters(*job, block);
    if (block.kind == BlockKind::kHead) AdaptHead(*job, block);
    DropUnread(block);
    if (block.kind == BlockKind::kEmbedding) AdaptEmbedding(*job, block);
  }
  if (!ReachesEmbedding(*job)) SplitFirstLayers(program, count);
  return program;
}

}  // namespace plimsoll
