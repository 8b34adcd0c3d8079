#include "estimator/program/lower_selective_scan.h"

#include "estimator/base/units.h"
#include "estimator/program/lower_state_space.h"

namespace plimsoll {
namespace {

// Tokens of which states are kept. Source: selective_scan.cpp, n_chunks.
constexpr int64_t kChunkTokens = 2048;
// Multiply-adds for each state of a channel, which fades, is added to and is read.
// Source: arXiv 2312.00752, equation 2.
constexpr int64_t kStateProducts = 3;

// The function's tensors: of each token, so wide, or of channels alone.
class Tensors {
 public:
  explicit Tensors(BlockBuilder& b) : b_(b), space_(b.job().model->state_space) {}

  TensorId OfTokens(absl::string_view name, Extent width, DType dtype) {
    return Add(name, {b_.Size(Symbol::kB), b_.Size(Symbol::kS), width}, dtype, Role::kTemporary);
  }
  TensorId OfTokens(absl::string_view name, Extent width) {
    return OfTokens(name, width, b_.job().precision.activation);
  }
  // The same, kept for backward.
  TensorId Kept(absl::string_view name, Extent width) {
    return Add(name, {b_.Size(Symbol::kB), b_.Size(Symbol::kS), width},
               b_.job().precision.activation, Role::kActivation);
  }
  // At the end of each chunk how far states have faded, and what they are.
  TensorId States() {
    Extent chunks = b_.Size(Symbol::kS);
    chunks.size = CeilDivide(chunks.size, kChunkTokens);
    return Add("state_space.states",
               {b_.Size(Symbol::kB), b_.Size(Symbol::kI), chunks, Number(2 * space_.state_size)},
               DType::kFp32, Role::kActivation);
  }
  TensorId OfChannels(absl::string_view name, std::initializer_list<Extent> extents) {
    return Add(name, extents, DType::kFp32, Role::kActivation);
  }

 private:
  TensorId Add(absl::string_view name, std::initializer_list<Extent> extents, DType dtype,
               Role role) {
    return b_.Add(name, extents, {.dtype = dtype, .role = role, .differentiable = false});
  }

  BlockBuilder& b_;
  const StateSpace& space_;
};

Extent Twice(const BlockBuilder& b) { return b.Size(Symbol::kI, 2); }
Extent StateSize(const BlockBuilder& b) { return Number(b.job().model->state_space.state_size); }
// Steps, what writes and what reads: R + 2N.
Extent Parts(const BlockBuilder& b) {
  const StateSpace& space = b.job().model->state_space;
  return Number(Add(space.step_rank, Multiply(2, space.state_size)));
}

// Weights of the function's products, and under autocast the copies that it makes and keeps.
struct Products {
  Ids weights;
  Ids casts;
};
Products LowerProducts(BlockBuilder& b) {
  const Extent width = b.Size(Symbol::kI), hidden = b.Size(Symbol::kH);
  const Extent rank = Number(b.job().model->state_space.step_rank);
  Products products;
  const auto add = [&](absl::string_view name, absl::string_view cast, Extent rows, Extent columns,
                       int8_t axis) {
    products.weights.Add(b.Weight(name, {rows, columns}, axis));
    b.block().parameters.back().uncached = true;
    for (const TensorId copy : CastOfWeight(b, cast, {rows, columns})) products.casts.Add(copy);
  };
  add("state_space.parts.weight", "state_space.parts.weight.cast", Parts(b), width, 1);
  add("state_space.step.weight", "state_space.step.weight.cast", width, rank, 0);
  add("state_space.out.weight", "state_space.out.weight.cast", hidden, width, 1);
  if (b.job().model->state_space.bias) {
    products.weights.Add(b.Weight("state_space.out.bias", {hidden}, kNoAxis));
  }
  return products;
}

// Weights that no product reads.
Ids OfScan(BlockBuilder& b) {
  const StateSpace& space = b.job().model->state_space;
  const Extent width = b.Size(Symbol::kI);
  Ids weights{b.Weight("state_space.conv.weight", {width, Number(space.kernel_size)}, 0)};
  b.block().parameters.back().uncached = true;
  if (space.convolution_bias) weights.Add(b.Weight("state_space.conv.bias", {width}, 0));
  weights.Add(b.Weight("state_space.decay", {width, StateSize(b)}, 0));
  b.block().parameters.back().uncached = true;
  for (const absl::string_view name : {"state_space.step.bias", "state_space.skip"}) {
    weights.Add(b.Weight(name, {width}, 0));
  }
  return weights;
}

// What a channel's states fade by is the negative of a power, which backward needs too; what is not
// fp32 is cast. Source: transformers models/mamba/modeling_mamba.py, MambaMixer.forward.
Ids LowerRates(BlockBuilder& b, Tensors& tensors) {
  const Extent width = b.Size(Symbol::kI);
  const TensorId power = tensors.OfChannels("state_space.decay.power", {width, StateSize(b)});
  Ids rates{tensors.OfChannels("state_space.decay.rate", {width, StateSize(b)})};
  Ids made{power, rates.ids[0]};
  if (b.job().precision.parameter != DType::kFp32) {
    for (const absl::string_view name : {"state_space.step.bias.fp32", "state_space.skip.fp32"}) {
      rates.Add(tensors.OfChannels(name, {width}));
      made.Add(rates.ids[rates.count - 1u]);
    }
  }
  b.Then("state_space.decay", {}, made, {power});
  return rates;
}

// What backward makes and holds until it is over: what was convolved, steps, their gradients, the
// gradient of what the scan gave, and what that gave, gated. Of several sequences channels come
// first for a product: a copy.
// Source: MambaInnerFn.backward, whose rearranged tensors are no views of more than one sequence.
Ids MadeAgain(const BlockBuilder& b, Tensors& tensors) {
  const Extent width = b.Size(Symbol::kI);
  Ids again;
  for (const absl::string_view name :
       {"state_space.convolved.again", "state_space.steps.again", "state_space.context.gradient",
        "state_space.gated.again", "state_space.convolved.gradient",
        "state_space.steps.gradient"}) {
    again.Add(tensors.OfTokens(name, width));
  }
  if (b.Size(Symbol::kB).size > 1) {
    again.Add(tensors.OfTokens("state_space.rearranged", width));
  }
  return again;
}

}  // namespace

TensorId LowerSelectiveScan(BlockBuilder& b, TensorId input) {
  const Job& job = b.job();
  const Extent width = b.Size(Symbol::kI);
  const TensorId projected = ProjectStateSpace(b, input, Twice(b));
  Tensors tensors(b);
  const Ids rates = LowerRates(b, tensors);
  const Ids again = MadeAgain(b, tensors);
  const Products products = LowerProducts(b);

  // A channel's tokens lie side by side in it. Backward products' weights have gradients when all
  // else is done, and what was saved is held until then.
  const TensorId read = b.Wide("state_space.read", Twice(b), job.precision.activation);
  Ids reads{projected};
  Ids saved{read};
  for (const TensorId id : products.casts) {
    reads.Add(id);
    saved.Add(id);
  }
  Op& copy = b.Then("state_space.products", reads, {read}, saved);
  copy.parameters = products.weights;
  copy.input_gradient = InputGradient::kShared;
  copy.kind = OpKind::kMatrixProduct;
  copy.backward_temporaries = again;
  copy.backward_temporaries.Add(tensors.OfTokens("state_space.context.again", width));
  copy.backward_temporaries.Add(tensors.OfTokens("state_space.parts.gradient", Parts(b)));

  const TensorId context = tensors.Kept("state_space.context", width);
  Ids kept{context};
  kept.Add(tensors.Kept("state_space.parts", Parts(b)));
  kept.Add(tensors.Kept("state_space.written", StateSize(b)));
  kept.Add(tensors.Kept("state_space.reads", StateSize(b)));
  kept.Add(tensors.States());
  const TensorId out =
      b.Narrow("state_space.out.activation", b.Size(Symbol::kH), job.precision.Product());
  Ids made = kept;
  made.Add(out);
  saved = kept;
  saved.Add(read);
  for (const TensorId id : rates) saved.Add(id);
  Ids inputs{read};
  for (const TensorId id : rates) inputs.Add(id);
  Op& scan = b.Then("state_space.scan", inputs, made, saved);
  scan.parameters = OfScan(b);
  scan.kind = OpKind::kScan;
  scan.product_depth = Multiply(kStateProducts, job.model->state_space.state_size);
  const TensorId convolved = again.ids[0], steps = again.ids[1], gated = again.ids[3];
  scan.forward_temporaries = {convolved, steps, gated};
  scan.backward_temporaries = again;
  for (const absl::string_view name :
       {"state_space.written.gradient", "state_space.reads.gradient"}) {
    scan.backward_temporaries.Add(tensors.OfTokens(name, StateSize(b), DType::kFp32));
    scan.backward_temporaries.Add(tensors.OfTokens(name, StateSize(b)));
  }
  HoldUntil(b.block(), projected, b.block().ops.size() - 1);
  return out;
}

}  // namespace plimsoll
