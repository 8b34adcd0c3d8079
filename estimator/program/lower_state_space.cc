#include "estimator/program/lower_state_space.h"

#include "estimator/base/units.h"
#include "estimator/program/lower_product.h"

namespace plimsoll {
namespace {

// I + 2Z: what is convolved.
Extent Convolved(const BlockBuilder& b) {
  return Number(Add(b.Size(Symbol::kI).size, b.Size(Symbol::kZ, 2).size));
}

Extent Heads(const BlockBuilder& b, int64_t times) {
  return Number(Multiply(times, b.job().model->state_space.head_count));
}

// What the function's kernels make and drop.
class Scratch {
 public:
  explicit Scratch(BlockBuilder& b) : b_(b), space_(b.job().model->state_space) {}

  TensorId OfTokens(absl::string_view name, Extent width, DType dtype) {
    return Add(name, {b_.Size(Symbol::kB), b_.Size(Symbol::kS), width}, dtype);
  }
  TensorId OfTokens(absl::string_view name, Extent width) {
    return OfTokens(name, width, b_.job().precision.activation);
  }
  // States of each chunk and head, so many times.
  TensorId States(absl::string_view name, DType dtype, int64_t times) {
    Extent chunks = Chunks();
    chunks.size = Multiply(times, chunks.size);
    return Add(name, {b_.Size(Symbol::kB), chunks, b_.Size(Symbol::kI), StateSize()}, dtype);
  }
  // Behind the last chunk.
  TensorId LastStates() {
    return Add("state_space.last", {b_.Size(Symbol::kB), b_.Size(Symbol::kI), StateSize()},
               DType::kFp32);
  }
  // Each token's step, and how far states have faded, both in whole chunks.
  TensorId Steps() {
    Extent tokens = b_.Size(Symbol::kS);
    tokens.size = RoundUp(tokens.size, space_.chunk_size);
    return Add("state_space.steps", {b_.Size(Symbol::kB), tokens, Heads(b_, 2)}, DType::kFp32);
  }
  // Of each pair of tokens of a chunk.
  TensorId Scores() {
    const Extent rows = Number(Multiply(space_.group_count, space_.chunk_size));
    return Add("state_space.scores",
               {b_.Size(Symbol::kB), Chunks(), rows, Number(space_.chunk_size)}, DType::kFp32);
  }

 private:
  TensorId Add(absl::string_view name, std::initializer_list<Extent> extents, DType dtype) {
    return b_.Add(name, extents,
                  {.dtype = dtype, .role = Role::kTemporary, .differentiable = false});
  }
  Extent Chunks() const {
    Extent chunks = b_.Size(Symbol::kS);
    chunks.size = CeilDivide(chunks.size, space_.chunk_size);
    return chunks;
  }
  Extent StateSize() const { return Number(space_.state_size); }

  BlockBuilder& b_;
  const StateSpace& space_;
};

// Multiply-adds for each number that the scan gives: scores of a chunk and their product with what
// is written, a state made and a state read.
// Source: arXiv 2405.21060, section 6.
int64_t Depth(const BlockBuilder& b) {
  const StateSpace& space = b.job().model->state_space;
  const int64_t scores =
      CeilDivide(Multiply(space.chunk_size, b.Size(Symbol::kZ).size), b.Size(Symbol::kI).size);
  return Add(Add(space.chunk_size, scores), Multiply(2, space.state_size));
}

// What backward has made again and still holds when it makes the output product's gradient, which
// it does last: the product's input, what was convolved, and gradients of both and of the scan's.
Ids MadeAgain(Scratch& scratch, Extent width, Extent convolved) {
  return {scratch.OfTokens("state_space.gated.again", width),
          scratch.OfTokens("state_space.convolved.again", convolved),
          scratch.OfTokens("state_space.convolved.gradient", convolved),
          scratch.OfTokens("state_space.gated.gradient", width),
          scratch.OfTokens("state_space.context.gradient", width)};
}

// The function's weights but the last product's.
Ids Weights(BlockBuilder& b) {
  const StateSpace& space = b.job().model->state_space;
  const Extent convolved = Convolved(b);
  Ids weights{b.Weight("state_space.conv.weight", {convolved, Number(space.kernel_size)}, 0)};
  b.block().parameters[weights.ids[0]].uncached = true;  // read as it is
  if (space.convolution_bias) weights.Add(b.Weight("state_space.conv.bias", {convolved}, 0));
  for (const absl::string_view name :
       {"state_space.step.bias", "state_space.decay", "state_space.skip"}) {
    weights.Add(b.Weight(name, {Heads(b, 1)}, 0));
  }
  weights.Add(b.Weight("state_space.norm.weight", {b.Size(Symbol::kI)}, kNoAxis));
  return weights;
}

}  // namespace

TensorId ProjectStateSpace(BlockBuilder& b, TensorId input, Extent width) {
  const Extent hidden = b.Size(Symbol::kH);
  const TensorId out = b.Wide("state_space.in.activation", width, b.job().precision.activation);
  Ids weights{b.Weight("state_space.in.weight", {width, hidden}, 0)};
  if (b.job().model->state_space.bias) {
    weights.Add(b.Weight("state_space.in.bias", {width}, 0));
  }
  Linear(b, "state_space.in", CastInput(b, "state_space.input.cast", input, hidden), out, weights);
  return out;
}

Ids CastOfWeight(BlockBuilder& b, absl::string_view name, std::initializer_list<Extent> extents) {
  const Precision& precision = b.job().precision;
  if (!precision.autocast || precision.parameter == precision.cast) return {};
  const TensorId copy = b.Add(
      name, extents, {.dtype = precision.cast, .role = Role::kWeight, .differentiable = false});
  b.Then(name, {}, {copy}, {});
  return {copy};
}

TensorId LowerStateSpace(BlockBuilder& b, TensorId input) {
  const Job& job = b.job();
  const StateSpace& space = job.model->state_space;
  const DType dtype = job.precision.activation;
  const Extent hidden = b.Size(Symbol::kH);
  const Extent width = b.Size(Symbol::kI);
  const int64_t steps_too = Add(Convolved(b).size, space.head_count);
  const TensorId projected = ProjectStateSpace(b, input, Number(Add(width.size, steps_too)));
  Scratch scratch(b);
  const Ids again = MadeAgain(scratch, width, Convolved(b));

  // Backward the last product's weight has its gradient when all else is done.
  const TensorId read =
      b.View("state_space.read", projected, b.block().tensors[projected].shape.extents[2]);
  Ids out_weights{b.Weight("state_space.out.weight", {hidden, width}, 1)};
  b.block().parameters[out_weights.ids[0]].uncached = true;
  if (space.bias) out_weights.Add(b.Weight("state_space.out.bias", {hidden}, kNoAxis));
  const Ids cast = CastOfWeight(b, "state_space.out.weight.cast", {hidden, width});
  Op& last = b.Then("state_space.out.weight", {projected}, {read}, cast);
  for (const TensorId id : cast) last.inputs.Add(id);
  last.parameters = out_weights;
  last.input_gradient = InputGradient::kShared;
  last.kind = OpKind::kMatrixProduct;
  last.backward_temporaries = again;
  last.backward_temporaries.Add(scratch.OfTokens("state_space.out.gradient", hidden));

  const TensorId context = b.Wide("state_space.context", width, dtype);
  const TensorId statistics =
      b.Wide("state_space.norm.statistics", Number(space.group_count), DType::kFp32);
  for (const TensorId id : {context, statistics}) b.block().tensors[id].differentiable = false;
  const TensorId out = b.Narrow("state_space.out.activation", hidden, job.precision.Product());
  Op& scan =
      b.Then("state_space.scan", {read}, {context, statistics, out}, {read, context, statistics});
  scan.parameters = Weights(b);
  scan.kind = OpKind::kScan;
  scan.gives_first = true;
  scan.product_depth = Depth(b);
  const TensorId steps = scratch.Steps();
  const TensorId states = scratch.LastStates();
  scan.forward_temporaries = {again.ids[0], again.ids[1], steps, states,
                              scratch.States("state_space.states", dtype, 1)};
  scan.backward_temporaries = again;
  for (const TensorId id :
       {steps, scratch.Scores(), states, scratch.States("state_space.states.wide", DType::kFp32, 2),
        scratch.States("state_space.states.both", dtype, 2)}) {
    scan.backward_temporaries.Add(id);
  }
  return out;
}

}  // namespace plimsoll
