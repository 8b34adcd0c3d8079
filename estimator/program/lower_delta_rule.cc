#include "estimator/program/lower_delta_rule.h"

#include "estimator/base/units.h"
#include "estimator/base/version.h"

namespace plimsoll {
namespace {

// Tokens of a chunk, both ways. Source: fla/ops/gated_delta_rule/chunk.py (chunk_size);
// torch_chunk_gated_delta_rule.
constexpr int64_t kChunk = 64;

// Before it the class repeats keys for each head of values.
// Source: transformers 5.22, models/qwen3_5/modeling_qwen3_5.py, Qwen3_5GatedDeltaNet.forward
// (repeat_interleave).
constexpr int kSharesKeys = 5023;

// As wide as keys are once each head of values has its own.
Extent KeysOfValues(const BlockBuilder& b) {
  return b.Size(Symbol::kO, static_cast<int32_t>(b.job().model->linear.key_size));
}

// Tokens in whole chunks.
Extent Padded(const BlockBuilder& b) {
  Extent sequence = b.Size(Symbol::kS);
  sequence.size = RoundUp(sequence.size, kChunk);
  return sequence;
}

Extent Chunks(const BlockBuilder& b) {
  Extent chunks = b.Size(Symbol::kS);
  chunks.size = CeilDivide(chunks.size, kChunk);
  return chunks;
}

// A state of each chunk and head: keys' size by values'.
TensorId States(BlockBuilder& b, absl::string_view name, DType dtype, Role role) {
  const Extent keys = Number(b.job().model->linear.key_size);
  return b.Add(name, {b.Size(Symbol::kB), Chunks(b), b.Size(Symbol::kM), keys},
               {.dtype = dtype, .tensor_axis = 2, .role = role, .differentiable = false});
}

// Multiply-adds for each number of what it gives: within a chunk products of keys and keys, of
// queries and keys, and those of the inverse with keys, with values and of scores with values;
// between chunks a state is corrected, renewed and read.
// Source: arXiv 2412.06464, section 3.3.
int64_t Depth(const LinearAttention& linear) {
  const int64_t inside =
      Multiply(kChunk, Add(Multiply(3, linear.key_size), Multiply(2, linear.value_size)));
  return Add(CeilDivide(inside, linear.value_size), Multiply(3, linear.key_size));
}

TensorId Temporary(BlockBuilder& b, absl::string_view name, Extent width) {
  const TensorId id = b.Wide(name, width, b.job().precision.activation, Role::kTemporary);
  b.block().tensors[id].differentiable = false;
  return id;
}

// What one kernel of fla's leaves for backward beside its output.
TensorId Kept(BlockBuilder& b, absl::string_view name, Extent width, DType dtype) {
  const TensorId id = b.Wide(name, width, dtype);
  b.block().tensors[id].differentiable = false;
  return id;
}

// What forward makes, and backward makes again: what keys correct, values before and behind that,
// and states.
Ids ForwardOfFla(BlockBuilder& b) {
  const Extent values = b.Size(Symbol::kM);
  return {Temporary(b, "linear.delta.corrections", KeysOfValues(b)),
          Temporary(b, "linear.delta.values", values),
          Temporary(b, "linear.delta.values.new", values),
          States(b, "linear.delta.states", b.job().precision.activation, Role::kTemporary)};
}

// These, then gradients of states and values, and of keys for each head of values.
// Source: fla/ops/gated_delta_rule/chunk.py, chunk_gated_delta_rule_bwd; ops/common/chunk_o.py,
// chunk_bwd_dqkwg; ops/gated_delta_rule/wy_fast.py, prepare_wy_repr_bwd.
Ids BackwardOfFla(BlockBuilder& b, Ids ids, bool grouped) {
  const DType dtype = b.job().precision.activation;
  const Extent keys = KeysOfValues(b);
  ids.Add(States(b, "linear.delta.states.gradient", dtype, Role::kTemporary));
  ids.Add(Temporary(b, "linear.delta.values.gradient", b.Size(Symbol::kM)));
  ids.Add(Temporary(b, "linear.delta.corrections.gradient", keys));
  ids.Add(Temporary(b, "linear.delta.keys.gradient", keys));
  if (grouped) ids.Add(Temporary(b, "linear.delta.keys.gradient.sum", b.Size(Symbol::kL)));
  return ids;
}

// Kernels read copies of what was side by side; keys are norms' outputs of their own.
TensorId LowerFla(BlockBuilder& b, TensorId mixed, const DeltaGates& gates) {
  const Job& job = b.job();
  const LinearAttention& linear = job.model->linear;
  const DType dtype = job.precision.activation;
  const bool repeats = IsBefore(job.transformers_version, kSharesKeys);
  const bool grouped = !repeats && linear.key_head_count != linear.value_head_count;
  const Extent keys = repeats ? KeysOfValues(b) : b.Size(Symbol::kL);
  Extent heads = b.Size(Symbol::kO);
  if (!repeats) heads.size = linear.key_head_count;
  const TensorId query = b.Wide("linear.query", keys, dtype);
  const TensorId key = b.Wide("linear.key", keys, dtype);
  const TensorId value = b.Wide("linear.value", b.Size(Symbol::kM), dtype);
  b.Then("linear.split", {mixed}, {query, key, value}, {});
  const TensorId out = b.Wide("linear.context", b.Size(Symbol::kM), dtype);
  Ids kept{Kept(b, "linear.query.normed", keys, dtype),
           Kept(b, "linear.key.normed", keys, dtype),
           Kept(b, "linear.query.length", heads, DType::kFp32),
           Kept(b, "linear.key.length", heads, DType::kFp32),
           Kept(b, "linear.decay.sum", b.Size(Symbol::kO), DType::kFp32),
           Kept(b, "linear.delta.system", b.Size(Symbol::kO, kChunk), dtype)};
  Ids outputs{out};
  for (const TensorId id : kept) outputs.Add(id);
  kept.Add(value);
  kept.Add(gates.beta);
  const Ids forward = ForwardOfFla(b);
  const Ids backward = BackwardOfFla(b, forward, grouped);
  Op& op = b.Then("linear.delta", {query, key, value, gates.beta, gates.decay}, outputs, kept);
  op.forward_temporaries = forward;
  op.backward_temporaries = backward;
  op.product_depth = Depth(linear);
  return out;
}

// Python's own way: an op at a time, in fp32, but for products under autocast, which read copies in
// 16 bits and give such: those are kept, not what they are of.
class PythonBuilder {
 public:
  PythonBuilder(BlockBuilder& b, const DeltaGates& gates)
      : b_(b),
        gates_(gates),
        product_(b.job().precision.autocast ? b.job().precision.Product() : DType::kFp32) {}

  TensorId Build(TensorId mixed) && {
    Widen(mixed);
    Normalize();
    MakeSystem();
    return RunChunks(Solve());
  }

 private:
  TensorId Make(absl::string_view name, Extent width, DType dtype = DType::kFp32) {
    return b_.Add(name, {b_.Size(Symbol::kB), Padded(b_), width},
                  {.dtype = dtype, .tensor_axis = 2});
  }
  bool IsCast() const { return product_ != DType::kFp32; }
  // As a product reads it.
  TensorId Cast(absl::string_view name, TensorId of) {
    if (!IsCast()) return of;
    const TensorId cast = Make(name, b_.block().tensors[of].shape.extents[2], product_);
    b_.Then(name, {of}, {cast}, {});
    return cast;
  }
  TensorId OfKeys(absl::string_view name) { return Make(name, KeysOfValues(b_)); }
  TensorId OfValues(absl::string_view name) { return Make(name, b_.Size(Symbol::kM)); }
  TensorId OfHeads(absl::string_view name) { return Make(name, b_.Size(Symbol::kO)); }
  TensorId OfChunks(absl::string_view name) { return Make(name, b_.Size(Symbol::kO, kChunk)); }

  // fp32 copies laid out by heads, keys repeated for each head of values.
  void Widen(TensorId mixed) {
    query_ = OfKeys("linear.query.wide");
    key_ = OfKeys("linear.key.wide");
    value_ = OfValues("linear.value.wide");
    beta_ = OfHeads("linear.beta.wide");
    Ids repeated;
    const LinearAttention& linear = b_.job().model->linear;
    if (linear.key_head_count != linear.value_head_count) {
      repeated.Add(Temporary(b_, "linear.query.repeated", KeysOfValues(b_)));
      repeated.Add(Temporary(b_, "linear.key.repeated", KeysOfValues(b_)));
    }
    b_.Then("linear.split", {mixed, gates_.beta}, {query_, key_, value_, beta_}, {})
        .forward_temporaries = repeated;
  }

  // Queries and keys by their lengths, which are kept; then all are padded to whole chunks: copies.
  void Normalize() {
    const TensorId query = OfKeys("linear.query.normed");
    const TensorId key = OfKeys("linear.key.normed");
    const TensorId lengths = OfHeads("linear.query.length");
    const TensorId other = OfHeads("linear.key.length");
    b_.Then("linear.normed", {query_, key_}, {query, key, lengths, other},
            {query_, key_, lengths, other});
    const TensorId padded_query = OfKeys("linear.query.padded");
    const TensorId padded_key = OfKeys("linear.key.padded");
    const TensorId padded_value = OfValues("linear.value.padded");
    const TensorId padded_beta = OfHeads("linear.beta.padded");
    b_.Then("linear.padded", {query, key, value_, beta_},
            {padded_query, padded_key, padded_value, padded_beta}, {});
    query_ = padded_query;
    key_ = padded_key;
    value_ = padded_value;
    beta_ = padded_beta;
  }

  // Within a chunk: how far each token's key corrects each one before, and what it reads of them.
  void MakeSystem() {
    scaled_ = OfKeys("linear.key.scaled");
    b_.Then("linear.key.scaled", {key_, beta_}, {scaled_}, {key_, beta_});
    const TensorId decays = OfChunks("linear.decay.pairs");
    b_.Then("linear.decay.pairs", {gates_.decay}, {decays}, {decays});
    const auto multiply = [&](absl::string_view raw_name, absl::string_view name, TensorId left) {
      const TensorId read = Cast("linear.delta.left.cast", left);
      const TensorId key = Cast("linear.key.cast", key_);
      const TensorId raw = Make(raw_name, b_.Size(Symbol::kO, kChunk), product_);
      const TensorId made = OfChunks(name);
      b_.Then(raw_name, {read, key}, {raw}, {read, key}).product_depth =
          b_.job().model->linear.key_size;
      b_.Then(name, {raw, decays}, {made}, {raw, decays});
      return made;
    };
    system_ = multiply("linear.delta.system.raw", "linear.delta.system", scaled_);
    scores_ = multiply("linear.delta.scores.raw", "linear.delta.scores", query_);
  }

  struct Solved {
    TensorId values;
    TensorId corrections;
  };

  Solved Solve() {
    const TensorId fade = OfHeads("linear.decay.exponential");
    const Solved solved{OfValues("linear.delta.values"), OfKeys("linear.delta.corrections")};
    Op& op = b_.Then("linear.delta.solved", {system_, value_, scaled_, beta_},
                     {solved.values, solved.corrections, fade},
                     {system_, value_, scaled_, beta_, solved.values, solved.corrections, fade});
    op.product_depth = kChunk;
    return solved;
  }

  // What products of the chunks keep: all that they read, values and states of their own making
  // too; under autocast copies, of those two for two products each, beside the states.
  Ids KeptOfChunks(const Ids& read) {
    Ids kept = read;
    const auto add = [&](TensorId id) {
      b_.block().tensors[id].differentiable = false;
      kept.Add(id);
    };
    add(Make("linear.delta.values.new", b_.Size(Symbol::kM), product_));
    add(States(b_, "linear.delta.states", DType::kFp32, Role::kActivation));
    if (!IsCast()) return kept;
    add(Make("linear.delta.values.again", b_.Size(Symbol::kM), product_));
    add(States(b_, "linear.delta.states.corrected", product_, Role::kActivation));
    add(States(b_, "linear.delta.states.read", product_, Role::kActivation));
    return kept;
  }

  // One chunk after the other, each of which reads the state behind the one before.
  TensorId RunChunks(const Solved& solved) {
    const TensorId query = OfKeys("linear.query.decayed");
    const TensorId key = OfKeys("linear.key.decayed");
    const TensorId first = OfHeads("linear.query.decay");
    const TensorId second = OfHeads("linear.key.decay");
    b_.Then("linear.decayed", {query_, key_}, {query, key, first, second},
            {query_, key_, first, second});
    const Ids read{Cast("linear.query.decayed.cast", query), Cast("linear.key.decayed.cast", key),
                   Cast("linear.delta.scores.cast", scores_),
                   Cast("linear.delta.corrections.cast", solved.corrections)};
    const Ids kept = KeptOfChunks(read);
    const TensorId wide = OfValues("linear.context.wide");
    Ids inputs = read;
    inputs.Add(solved.values);
    Ids outputs{wide};
    for (size_t i = read.count; i < kept.count; ++i) outputs.Add(kept.ids[i]);
    const auto at = static_cast<uint8_t>(b_.block().ops.size());
    for (const TensorId id : {query, key, scores_}) b_.block().tensors[id].held_until = at;
    b_.Then("linear.delta", inputs, outputs, kept).product_depth = Depth(b_.job().model->linear);
    if (b_.job().precision.activation == DType::kFp32) return wide;
    const TensorId out =
        b_.Wide("linear.context", b_.Size(Symbol::kM), b_.job().precision.activation);
    b_.Then("linear.context", {wide}, {out}, {});
    return out;
  }

  BlockBuilder& b_;
  const DeltaGates& gates_;
  const DType product_;  // what products read and give
  TensorId query_, key_, value_, beta_, scaled_, system_, scores_;
};

}  // namespace

TensorId LowerDeltaRule(BlockBuilder& b, TensorId mixed, const DeltaGates& gates) {
  if (b.job().linear_attention == LinearAttentionKernel::kFla) return LowerFla(b, mixed, gates);
  return PythonBuilder(b, gates).Build(mixed);
}

}  // namespace plimsoll
