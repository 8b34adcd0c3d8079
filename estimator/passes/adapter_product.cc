#include "estimator/passes/adapter_product.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "estimator/passes/adapter_ops.h"

namespace plimsoll {
namespace {

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
constexpr absl::string_view kMagnitude = ".adapter.magnitude";
constexpr absl::string_view kNorm = ".adapter.norm";
constexpr absl::string_view kEye = ".adapter.eye";
constexpr absl::string_view kDelta = ".adapter.delta";
constexpr absl::string_view kRead = ".adapter.weight";
constexpr absl::string_view kNarrow = ".adapter.weight.cast";
constexpr absl::string_view kBase = ".adapter.base";
constexpr absl::string_view kPlain = ".adapter.base.plain";
constexpr absl::string_view kPart = ".adapter.part";
constexpr absl::string_view kWeighed = ".adapter.weighed";
constexpr absl::string_view kDora = ".adapter.dora";

struct Names {
  absl::string_view product, down_weight, up_weight, input, cast, dropped, mask, down, up, scaled,
      narrowed, clone, sum, output, parts, padded, magnitude, norm, eye, delta, weight,
      narrow_weight, base, plain, part, weighed, dora;
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
          Joined<kProduct, kPadded>::kName,
          Joined<kProduct, kMagnitude>::kName,
          Joined<kProduct, kNorm>::kName,
          Joined<kProduct, kEye>::kName,
          Joined<kProduct, kDelta>::kName,
          Joined<kProduct, kRead>::kName,
          Joined<kProduct, kNarrow>::kName,
          Joined<kProduct, kBase>::kName,
          Joined<kProduct, kPlain>::kName,
          Joined<kProduct, kPart>::kName,
          Joined<kProduct, kWeighed>::kName,
          Joined<kProduct, kDora>::kName};
}

constexpr absl::string_view kQuery = "attention.query";
constexpr absl::string_view kKey = "attention.key";
constexpr absl::string_view kValue = "attention.value";
constexpr absl::string_view kOut = "attention.out";
constexpr absl::string_view kGate = "mlp.gate";
constexpr absl::string_view kMlpUp = "mlp.up";
constexpr absl::string_view kMlpDown = "mlp.down";
constexpr absl::string_view kLinearQkv = "linear.qkv";
constexpr absl::string_view kLinearGate = "linear.gate";
constexpr absl::string_view kLinearBeta = "linear.beta";
constexpr absl::string_view kLinearDecay = "linear.decay";
constexpr absl::string_view kLinearOut = "linear.out";
constexpr absl::string_view kLinearQkvz = "linear.qkvz";
constexpr absl::string_view kLinearBa = "linear.ba";
constexpr absl::string_view kQkv = "attention.qkv";
constexpr absl::string_view kGateUp = "mlp.gate_up";
constexpr absl::string_view kQueryDown = "attention.query.down";
constexpr absl::string_view kQueryUp = "attention.query.up";
constexpr absl::string_view kKvDown = "attention.kv.down";
constexpr absl::string_view kKvUp = "attention.kv.up";
constexpr absl::string_view kSharedGate = "shared.gate";

// Products that one target is, or several together, a bit each in Adapter::targets. The head is no
// layer's.
struct TargetRow {
  AdapterTargets targets;
  Names names;
};
constexpr TargetRow kTargets[] = {
    {BitOf(AdapterTarget::kQuery), NamesOfAdapter<kQuery>()},
    {BitOf(AdapterTarget::kKey), NamesOfAdapter<kKey>()},
    {BitOf(AdapterTarget::kValue), NamesOfAdapter<kValue>()},
    {BitOf(AdapterTarget::kOutput), NamesOfAdapter<kOut>()},
    {BitOf(AdapterTarget::kGate), NamesOfAdapter<kGate>()},
    {BitOf(AdapterTarget::kUp), NamesOfAdapter<kMlpUp>()},
    {BitOf(AdapterTarget::kDown), NamesOfAdapter<kMlpDown>()},
    {kQkvTargets, NamesOfAdapter<kQkv>()},
    {kGateUpTargets, NamesOfAdapter<kGateUp>()},
    {BitOf(AdapterTarget::kLinearQkv), NamesOfAdapter<kLinearQkv>()},
    {BitOf(AdapterTarget::kLinearGate), NamesOfAdapter<kLinearGate>()},
    {BitOf(AdapterTarget::kLinearBeta), NamesOfAdapter<kLinearBeta>()},
    {BitOf(AdapterTarget::kLinearDecay), NamesOfAdapter<kLinearDecay>()},
    {BitsOf(AdapterTarget::kLinearQkv, AdapterTarget::kLinearGate), NamesOfAdapter<kLinearQkvz>()},
    {BitsOf(AdapterTarget::kLinearBeta, AdapterTarget::kLinearDecay), NamesOfAdapter<kLinearBa>()},
    {BitOf(AdapterTarget::kLinearOutput), NamesOfAdapter<kLinearOut>()},
    {BitOf(AdapterTarget::kQueryDown), NamesOfAdapter<kQueryDown>()},
    {BitOf(AdapterTarget::kQueryUp), NamesOfAdapter<kQueryUp>()},
    {BitOf(AdapterTarget::kKvDown), NamesOfAdapter<kKvDown>()},
    {BitOf(AdapterTarget::kKvUp), NamesOfAdapter<kKvUp>()},
    {BitOf(AdapterTarget::kSharedGate), NamesOfAdapter<kSharedGate>()},
};

// The row of a product that has an adapter.
const TargetRow* FindAdapter(const Adapter& adapter, const Op& op) {
  for (const TargetRow& row : kTargets) {
    if ((adapter.targets & row.targets) != 0 && row.names.product == op.name) return &row;
  }
  return nullptr;
}

// What a vector weighs is in the wider dtype: both are factors.
DType Weighed(const Job& job, DType factor) {
  if (job.adapter->method != AdapterMethod::kIa3) {
    return job.profile->dora_reads_product ? job.AdapterDType() : DType::kFp32;
  }
  return job.AdapterDType() == DType::kFp32 ? DType::kFp32 : factor;
}

// Puts the ops of one adapter behind a product. What is an argument of a module's call lives until
// that returns: the product's input, and what is left of it by dropout until `down` is there.
//
//   input    the product's, in the adapter's dtype; a Python local until all is done
//   dropped  of it, with a mask; under autocast a cast of either is multiplied
//   down     [B, S, R]       up  as the product's output       scaled  that, times alpha / R
//   sum      of output and scaled, in the wider dtype          output  that, in the product's
//
// Beside quantized weights the output is cloned first (of 4 bits), the input is cast without
// autocast alone, and `scaled` is cast before the sum.
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
        clones_(quantized_ && job.quantization->format != DType::kInt8),
        casts_(!quantized_ || !job.precision.autocast),
        joint_(job.profile->joint_adapters && block.ops[product].name == kQkv),
        reads_product_(job.profile->dora_reads_product),
        weighed_dtype_(Weighed(job, block.tensors[block.ops[product].outputs.ids[0]].dtype)),
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
    if (job_.profile->lean_adapters) return Replace(Lean(), held);
    const TensorId base = clones_ ? Clone(base_) : base_;
    const TensorId input = casts_ ? Cast(input_, names_.input, dtype_) : input_;
    const TensorId dropped = Drop(input);
    const TensorId output = adapter_.method == AdapterMethod::kDora ? Dora(base, input, dropped)
                                                                    : Lora(base, input, dropped);
    HoldUntil(block_, input, at_ - 1);
    return Replace(output, held);
  }

  // What the product gives is scaled, or what it reads. Returns where the next op is.
  //
  //   input    of the product, in the vector's dtype where that is wider
  //   weighed  what is scaled, times the vector          scaled.cast  that, as it was
  //
  // Source: peft tuners/ia3/layer.py, Linear.forward; ia3/bnb.py, Linear4bit.forward (clone).
  size_t BuildVector(bool of_input) && {
    if (of_input) return ScaleInput();
    const bool held = block_.tensors[base_].held;
    block_.tensors[base_].held = false;
    const Extent rows = block_.parameters[weight_].shape.extents[0];
    const TensorId output = Narrow(Weigh(base_, names_.weighed, {rows, {}}));
    return Replace(clones_ ? Clone(output) : output, held);
  }

 private:
  size_t ScaleInput() {
    at_ = product_;
    const DType dtype = block_.tensors[input_].dtype;
    const TensorId read = Cast(input_, names_.input, weighed_dtype_);
    const Extent columns = block_.parameters[weight_].shape.extents[1];
    const TensorId scaled =
        Cast(Weigh(read, names_.weighed, {{}, columns}), names_.narrowed, dtype);
    Op& product = block_.ops[at_];
    product.inputs.Replace(input_, scaled);
    product.saved.Replace(input_, scaled);
    for (const TensorId local : {input_, read}) HoldUntil(block_, local, at_);
    ++at_;
    if (!clones_) return at_;
    const bool held = block_.tensors[base_].held;
    block_.tensors[base_].held = false;
    return Replace(Clone(base_), held);
  }

  // Those behind read the output in place of the product's. Returns where the next op is.
  size_t Replace(TensorId output, bool held) {
    const auto done = static_cast<uint8_t>(at_ - 1);
    HoldWithAdapter(output, done);
    HoldUntil(block_, input_, done);
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

  // All of it as one function, which keeps its input and makes the rest again; what the product
  // gave is added to what it gives.
  // Source: nemo_automodel 0.7, components/_peft/lora.py, LoRATritonFunction.
  TensorId Lean() {
    const TensorId down = Add(base_, names_.down, product_dtype_);
    block_.tensors[down].shape.extents[2] = Rank();
    block_.tensors[down].role = Role::kTemporary;
    block_.tensors[down].differentiable = false;
    const TensorId output = AddLike(block_, base_, names_.output);
    const uint8_t modules = block_.ops[product_].modules;
    Insert({.name = names_.output,
            .inputs = {input_},
            .outputs = {output},
            .saved = {input_},
            .forward_temporaries = {down, down},
            .backward_temporaries = {down, down},
            .parameters = {Down(Rank()), Weight(names_.up_weight, Width(base_), Rank())},
            .modules = modules});
    const TensorId sum = Add(base_, names_.sum, block_.tensors[base_].dtype);
    block_.tensors[sum].storage = output;
    Insert({.name = names_.sum,
            .inputs = {base_, output},
            .outputs = {sum},
            .input_gradient = InputGradient::kShared,
            .modules = modules});
    return sum;
  }

  // What lived until the product was done does until its adapter is; what held the product's output
  // holds the sum.
  void HoldWithAdapter(TensorId output, uint8_t done) {
    for (Tensor& tensor : block_.tensors) {
      if (tensor.held_until == product_) tensor.held_until = done;
    }
    std::swap(block_.tensors[output].held_until, block_.tensors[base_].held_until);
  }

  TensorId Scale(TensorId up) {
    const TensorId scaled = AddLike(block_, up, names_.scaled);
    Insert({.name = names_.scaled, .inputs = {up}, .outputs = {scaled}});
    return scaled;
  }

  TensorId Lora(TensorId base, TensorId input, TensorId dropped) {
    const TensorId read = Cast(dropped, names_.cast, product_dtype_);
    const size_t down = at_;
    const TensorId up = joint_ ? Parts(read) : Up(read);
    if (dropped != input) HoldUntil(block_, dropped, down);
    const TensorId scaled = Scale(up);
    return Sum(base, quantized_ && casts_ ? Narrow(scaled) : scaled);
  }

  // The sum has a length for each of its columns that is trained: both parts are weighed by it
  // and by the norm of the adapted weight, which is made whole for that.
  //
  //   eye     [H, H]  what the adapter's product is made of         delta  [N, H]  that product
  //   weight  [N, H]  as the input is; what is dropped out is multiplied by it anew
  //   part    (magnitude / norm - 1) x base                         weighed  magnitude / norm x up
  //
  // Or the product as it is, behind the adapter's.
  //
  // Source: peft/tuners/lora/dora.py, DoraLinearLayer.forward; variants.py, DoraLinearVariant;
  // torchtune modules/peft/dora.py, DoRALinear.forward.
  TensorId Dora(TensorId base, TensorId input, TensorId dropped) {
    TensorId up = reads_product_ ? Up(dropped) : kNoTensor;
    const TensorId whole = Norm(block_.tensors[input].dtype);
    if (!reads_product_) up = Up(Cast(dropped, names_.cast, product_dtype_));
    const TensorId own = reads_product_     ? base
                         : dropped == input ? Plain(base)
                                            : BaseAnew(dropped, whole);
    const Extent rows = block_.parameters[weight_].shape.extents[0];
    const TensorId part = Weigh(own, names_.part, {rows});
    const TensorId scaled = Scale(Weigh(up, names_.weighed, {}));
    const TensorId dora = AddLike(block_, scaled, names_.dora);
    Insert({.name = names_.dora,
            .inputs = {part, scaled},
            .outputs = {dora},
            .input_gradient = InputGradient::kShared});
    if (dropped != input) held_.Add(dropped);
    if (reads_product_) held_.Add(dora);
    for (const TensorId local : held_) HoldUntil(block_, local, at_ - 1);
    return Sum(base, dora);
  }

  TensorId OfWeight(absl::string_view name, Shape shape, DType dtype) {
    return AddTensor(block_, {.name = name,
                              .shape = shape,
                              .dtype = dtype,
                              .role = Role::kTemporary,
                              .differentiable = false});
  }

  // Returns the weight in the input's dtype; kNoTensor where it is the parameter itself.
  TensorId Norm(DType dtype) {
    const Parameter& parameter = block_.parameters[weight_];
    const Shape shape = parameter.shape;
    const bool casts = job_.quantization.has_value() || parameter.dtype != dtype;
    held_ = Delta(shape, dtype);
    TensorId whole = kNoTensor;
    Op op{.name = names_.norm};
    if (casts) op.outputs = {whole = OfWeight(names_.weight, shape, dtype)};
    if (casts) held_.Add(whole);
    if (casts && job_.profile->composed_dequantization) {
      Insert({.name = names_.weight, .outputs = {whole}, .forward_temporaries = AddPieces(whole)});
      op.outputs = {};
    }
    const TensorId delta = held_.ids[1];
    op.forward_temporaries = {delta, delta};  // scaled, and with the weight
    Insert(op);
    return whole;
  }

  // The adapter's product of a unit matrix, and that matrix as it was read.
  Ids Delta(const Shape& shape, DType dtype) {
    Shape square = shape;
    square.extents[0] = shape.extents[1];
    const TensorId eye = OfWeight(names_.eye, square, product_dtype_);
    const TensorId own = OfWeight(names_.delta, shape, product_dtype_);
    Op op{.name = names_.eye, .outputs = {eye, own}};
    if (dtype_ != product_dtype_) {
      op.forward_temporaries = {OfWeight(names_.eye, square, dtype_)};
    }
    Insert(op);
    if (dtype == product_dtype_) return {eye, own};
    const TensorId delta = OfWeight(names_.delta, shape, dtype);
    Insert({.name = names_.delta, .inputs = {own}, .outputs = {delta}});
    return {eye, delta};
  }

  // Without its bias.
  TensorId Plain(TensorId base) {
    if (!HasBias(block_, block_.ops[product_])) return base;
    const TensorId plain = AddLike(block_, base, names_.plain);
    Insert({.name = names_.plain,
            .inputs = {base},
            .outputs = {plain},
            .input_gradient = InputGradient::kShared});
    return plain;
  }

  // The product once more, of what is left of the input: backward needs the weight as it was read.
  TensorId BaseAnew(TensorId dropped, TensorId whole) {
    const Shape shape = block_.parameters[weight_].shape;
    const TensorId base = Add(base_, names_.base, product_dtype_);
    Op op{.name = names_.base,
          .inputs = {dropped},
          .outputs = {base},
          .kind = OpKind::kMatrixProduct,
          .product_depth = shape.extents[1].size};
    const DType dtype = block_.tensors[dropped].dtype;
    if (dtype != product_dtype_) {
      const TensorId narrow = OfWeight(names_.narrow_weight, shape, product_dtype_);
      op.outputs.Add(narrow);
      op.saved = {narrow};
      op.forward_temporaries = {Add(dropped, names_.cast, product_dtype_)};
    } else if (whole != kNoTensor) {
      op.inputs.Add(whole);
      op.saved = {whole};
    }
    Insert(op);
    return base;
  }

  // What PyTorch's ops make of a quantized matrix before it is whole; the pass of quantization says
  // of what. Source: torchao dtypes/nf4tensor.py, NF4Tensor.get_original_weight.
  Ids AddPieces(TensorId whole) {
    const auto add = [&](int64_t part, DType dtype) {
      const TensorId piece = AddLike(block_, whole, names_.weight);
      Extent& columns = block_.tensors[piece].shape.extents[1];
      columns.size = CeilDivide(columns.size, part);
      block_.tensors[piece].dtype = dtype;
      return piece;
    };
    const DType dtype = block_.tensors[whole].dtype;
    const TensorId indices = add(2, DType::kInt64);
    const TensorId half = add(2, dtype);
    return {add(64, dtype), indices, half, half, indices, half, half};
  }

  // Times what has a gradient, fp32 with PEFT: a product of the output's size, which is summed up.
  // `vector`: the extents of what is trained, where this op makes its gradient.
  TensorId Weigh(TensorId of, absl::string_view name, std::initializer_list<Extent> vector) {
    const TensorId weighed = Add(of, name, weighed_dtype_);
    Op op{.name = name, .inputs = {of}, .outputs = {weighed}, .saved = {of}};
    op.backward_temporaries.Add(weighed);
    if (block_.tensors[of].dtype != weighed_dtype_) {
      op.backward_temporaries.Add(weighed);
      op.casts_gradients = true;
    }
    if (vector.size() > 0) {
      const bool of_dora = adapter_.method == AdapterMethod::kDora;
      Parameter magnitude{.name = names_.magnitude, .dtype = of_dora ? weighed_dtype_ : dtype_};
      magnitude.shape.rank = static_cast<uint8_t>(vector.size());
      std::copy(vector.begin(), vector.end(), magnitude.shape.extents.begin());
      magnitude.uncached = true;
      op.parameters.Add(static_cast<TensorId>(block_.parameters.size()));
      block_.parameters.push_back(magnitude);
      op.sums_rows = true;
    }
    Insert(op);
    return weighed;
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

  TensorId Clone(TensorId of) {
    const TensorId clone = AddLike(block_, of, names_.clone);
    Insert({.name = names_.clone,
            .inputs = {of},
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
  const bool clones_;          // what their product gave
  const bool casts_;           // its input to its dtype
  const bool joint_;           // of queries, keys and values
  const bool reads_product_;   // DoRA weighs it, bias, dropout or not
  const DType weighed_dtype_;  // of what DoRA weighs, and of what it trains besides
  Block& block_;
  const Names& names_;
  const uint8_t product_;  // an index
  size_t at_;              // where the next op is inserted
  TensorId base_;
  TensorId input_;
  TensorId weight_;
  Ids held_;  // locals of DoRA's
};

}  // namespace

size_t AdaptProduct(const Job& job, Block& block, size_t product) {
  const TargetRow* const row = FindAdapter(*job.adapter, block.ops[product]);
  if (row == nullptr) return product + 1;
  AdapterBuilder builder(job, block, product, row->names);
  if (job.adapter->method != AdapterMethod::kIa3) return std::move(builder).Build();
  return std::move(builder).BuildVector((job.adapter->scaled_inputs & row->targets) != 0);
}

}  // namespace plimsoll
