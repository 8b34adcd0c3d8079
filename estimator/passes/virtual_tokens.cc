#include "estimator/passes/virtual_tokens.h"

#include <algorithm>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "estimator/passes/adapter_ops.h"
#include "estimator/program/block_builder.h"
#include "estimator/program/saved_tensors.h"

namespace plimsoll {
namespace {

// Of a layer of the encoder.
struct EncoderNames {
  absl::string_view weight, bias, cast, product, activated;
};
constexpr EncoderNames kEncoder[] = {
    {"virtual.encoder.0.weight", "virtual.encoder.0.bias", "virtual.encoder.0.cast",
     "virtual.encoder.0", "virtual.encoder.0.activated"},
    {"virtual.encoder.1.weight", "virtual.encoder.1.bias", "virtual.encoder.1.cast",
     "virtual.encoder.1", "virtual.encoder.1.activated"},
    {"virtual.encoder.2.weight", "virtual.encoder.2.bias", "virtual.encoder.2.cast",
     "virtual.encoder.2", "virtual.encoder.2.activated"},
};

// Puts ops behind what a block has.
class VirtualTokenBuilder {
 public:
  VirtualTokenBuilder(const Job& job, Block& block) : job_(job), block_(block) {}

  // The embeddings of one sequence are made, and repeated.
  // Source: peft peft_model.py, PeftModel.get_prompt; tuners/p_tuning/model.py, PromptEncoder.
  void PutPrompt() && {
    const TensorId before = block_.output;
    const Op& lookup = block_.ops.front();
    for (const TensorId id : {lookup.inputs.ids[0], lookup.outputs.ids[0]}) {
      block_.tensors[id].shape.extents[1].size = job_.DataLength();
    }
    const int64_t width = job_.model->hidden_size;
    const int64_t hidden = job_.adapter->encoder_hidden_size;
    TensorId prompt = Lookup(1, width);
    if (hidden > 0) prompt = Encode(prompt, {hidden, hidden, width});
    prompt = Copy("prompt.repeated", prompt, job_.SequencesAtOnce());
    prompt = Cast("prompt.cast", prompt, block_.tensors[before].dtype);
    const TensorId whole = AddLike(block_, before, "prompt.sequence");
    block_.tensors[whole].shape.extents[1].size = job_.sequence_length;
    block_.tensors[before].differentiable = false;
    Op op{.name = "prompt.sequence", .inputs = {before, prompt}, .outputs = {whole}};
    // A leaf, which autograd's accumulator holds.
    // Source: transformers modeling_utils.py, enable_input_require_grads.
    if (job_.recompute != RecomputeMode::kNone && job_.profile->inputs_require_gradients) {
      op.saved = {before};
    }
    block_.ops.push_back(op);
    block_.output = whole;
  }

  // The keys and values of all sequences are made, cast, and copied into a cache.
  // Source: peft tuners/prefix_tuning/model.py, PrefixEncoder; transformers cache_utils.py,
  // DynamicLayer.update.
  void PutPrefix() && {
    const int64_t sequences = job_.SequencesAtOnce();
    const int64_t keys = plimsoll::Multiply(job_.model->kv_head_count, job_.model->head_size);
    const int64_t all = plimsoll::Multiply(2 * job_.model->layer_count, keys);
    const int64_t hidden = job_.adapter->encoder_hidden_size;
    TensorId prefix = Lookup(sequences, hidden > 0 ? keys : all);
    if (hidden > 0) prefix = Encode(prefix, {hidden, all});
    prefix = Cast("prefix.cast", prefix, job_.precision.activation);
    const TensorId cache = Copy("prefix.cache", prefix, sequences);
    HoldUntil(block_, cache, block_.ops.size() - 1);
  }

 private:
  TensorId Lookup(int64_t sequences, int64_t width) {
    const Extent tokens = Number(job_.adapter->virtual_token_count);
    const TensorId table = AddMatrix(block_, "virtual.tokens.weight", tokens, Number(width), Own());
    block_.parameters[table].embedding = true;
    const TensorId out = AddTensor(
        block_, {.name = "virtual.tokens",
                 .shape = {.extents = {Number(sequences), tokens, Number(width)}, .rank = 3},
                 .dtype = Own()});
    block_.ops.push_back({.name = "virtual.tokens", .outputs = {out}, .parameters = {table}});
    return out;
  }

  // Matrices with biases, to these widths, and a function between any two, which keeps what it
  // gave.
  TensorId Encode(TensorId input, absl::Span<const int64_t> widths) {
    for (size_t i = 0; i < widths.size(); ++i) {
      if (i > 0) input = Activate(kEncoder[i - 1].activated, input);
      input = Multiply(kEncoder[i], input, Number(widths[i]));
    }
    return input;
  }

  TensorId Multiply(const EncoderNames& names, TensorId of, Extent width) {
    const DType dtype = job_.precision.autocast ? job_.precision.Product() : Own();
    const TensorId read = Cast(names.cast, of, dtype);
    const Extent depth = block_.tensors[read].shape.extents[2];
    const TensorId weight = AddMatrix(block_, names.weight, width, depth, Own());
    const TensorId bias = AddMatrix(block_, names.bias, width, {}, Own());
    block_.parameters[bias].shape.rank = 1;
    const TensorId product = AddLike(block_, read, names.product);
    block_.tensors[product].shape.extents[2] = width;
    block_.ops.push_back({.name = names.product,
                          .inputs = {read},
                          .outputs = {product},
                          .saved = {read},
                          .parameters = {weight, bias},
                          .kind = OpKind::kMatrixProduct,
                          .saves_for_weights = true});
    return product;
  }

  TensorId Activate(absl::string_view name, TensorId of) {
    const TensorId activated = AddLike(block_, of, name);
    block_.ops.push_back(
        {.name = name, .inputs = {of}, .outputs = {activated}, .saved = {activated}});
    return activated;
  }

  TensorId Copy(absl::string_view name, TensorId of, int64_t sequences) {
    const TensorId copy = AddLike(block_, of, name);
    block_.tensors[copy].shape.extents[0] = Number(sequences);
    block_.ops.push_back({.name = name, .inputs = {of}, .outputs = {copy}});
    return copy;
  }

  TensorId Cast(absl::string_view name, TensorId of, DType dtype) {
    if (block_.tensors[of].dtype == dtype) return of;
    const TensorId cast = AddLike(block_, of, name);
    block_.tensors[cast].dtype = dtype;
    block_.ops.push_back({.name = name, .inputs = {of}, .outputs = {cast}});
    return cast;
  }

  DType Own() const { return job_.AdapterDType(); }

  const Job& job_;
  Block& block_;
};

// Whether the first layer has what the embedding gave for backward.
bool FirstKeepsInput(const Program& program) {
  return std::any_of(program.blocks.begin(), program.blocks.end(), [](const Block& block) {
    return block.kind == BlockKind::kLayer && block.layers.Has(0) && KeepsInput(block);
  });
}

void HoldUntilReturn(absl::string_view name, Basis basis, int64_t bytes, Program& program) {
  program.states.push_back({.name = name,
                            .role = Role::kActivation,
                            .basis = basis,
                            .fixed_bytes = bytes,
                            .until_backward = true,
                            .alive = During(Phase::kForward, Phase::kLoss, true, true)});
}

}  // namespace

void AddVirtualTokens(const Job& job, Block& embedding) {
  if (job.adapter->PromptLength() > 0) VirtualTokenBuilder(job, embedding).PutPrompt();
  if (job.adapter->PrefixLength() > 0) VirtualTokenBuilder(job, embedding).PutPrefix();
}

void HoldVirtualTokens(const Job& job, Program& program) {
  if (!job.adapter.has_value() || job.adapter->virtual_token_count == 0) return;
  const DType dtype = job.precision.activation;
  const auto bytes = [&](int64_t tokens, int64_t width) {
    return Bytes(dtype, Multiply(Multiply(job.SequencesAtOnce(), tokens), width));
  };
  if (job.adapter->OfPrefix()) {
    const int64_t heads = job.model->kv_head_count;
    if (heads == 1 || heads == job.model->head_count) return;
    HoldUntilReturn("prefix.cache", Basis::kBytesPerLayer,
                    Multiply(2, bytes(job.KeyLength(), Multiply(heads, job.model->head_size))),
                    program);
    return;
  }
  int64_t tokens = job.adapter->PromptLength();
  if (!FirstKeepsInput(program)) {
    tokens = Add(tokens, job.sequence_length);
    for (Block& block : program.blocks) block.names_output = false;
  }
  HoldUntilReturn("prompt.held", Basis::kBytes, bytes(tokens, job.model->hidden_size), program);
}

}  // namespace plimsoll
