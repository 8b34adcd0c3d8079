#include <algorithm>

#include "estimator/passes/pass.h"
#include "estimator/program/tensor_split.h"

namespace plimsoll {
namespace {

constexpr absl::string_view kReadInFp8 = "fp8.input";
constexpr absl::string_view kTransposed = "fp8.input.transposed";
constexpr absl::string_view kGradient = "fp8.output.gradient";
constexpr absl::string_view kGradientTransposed = "fp8.output.gradient.transposed";

// A product with a matrix of a linear module, or with one of each expert.
bool IsProduct(const Block& block, const Op& op) {
  return op.kind == OpKind::kMatrixProduct && op.parameters.count > 0 &&
         !block.parameters[op.parameters.ids[0]].bare;
}

// Puts what a product in fp8 makes around it.
//
//   Y = X W^T     reads X and W along their rows; what is kept of X is for its weights' gradients
//   dX = dY W     reads dY along its rows, W along its columns
//   dW = dY^T X   reads both along their columns
//
// Products of fp8 read rows alone, so that each tensor has a transposed copy; where the GPU has
// others, and one scale serves both ways, it has none. Of X the copy that backward reads is kept,
// not X itself; attention's output, which its kernel keeps, what shared experts read, which the
// router keeps, and what a module makes again are left as they are and read anew, but for the
// delayed recipe. What ranks gather is in fp8.
//
// Source: transformer_engine/pytorch/module/linear.py, _linear_forward_impl, _linear_backward;
// layernorm_linear.py, _LayerNormLinear; grouped_linear.py, _GroupedLinear; utils.py,
// is_non_tn_fp8_gemm_supported; Megatron core/transformer/attention.py, moe/shared_experts.py,
// moe/experts.py, transformer_layer.py, set_save_original_input (Transformer Engine from 2.6 on).
class Fp8Builder {
 public:
  Fp8Builder(const Job& job, Block& block, size_t product)
      : dtype_(job.fp8->Format()),
        transposes_(job.Fp8CopyCount() > 1),
        gathers_rows_(job.fp8->ScalesTensors()),
        reads_again_(job.fp8->recipe != Fp8Recipe::kDelayed),
        modules_(job.recompute == RecomputeMode::kSelective ? job.recompute_modules : uint8_t{0}),
        block_(block),
        op_(block.ops[product]) {}

  void Build() && {
    for (const TensorId id : op_.parameters) {
      Parameter& parameter = block_.parameters[id];
      parameter.fp8 = parameter.shape.rank > 1;
    }
    op_.in_fp8 = true;
    const TensorId input = op_.inputs.ids[0];
    const TensorId output = op_.outputs.ids[0];
    const TensorSplit split = SplitOf(block_, op_);
    const bool columns = split == TensorSplit::kColumns;
    const bool rows = split == TensorSplit::kRows;
    const TensorId whole_input = columns ? Gathered(op_.forward_temporaries) : kNoTensor;
    const TensorId whole_gradient = rows ? Gathered(op_.backward_temporaries) : kNoTensor;
    if (reads_again_ && StaysAsItIs(input)) {
      op_.forward_temporaries.Add(AddLike(input, kReadInFp8));
      op_.backward_temporaries.Add(AddLike(input, transposes_ ? kTransposed : kReadInFp8));
    } else {
      Keep(input, whole_input != kNoTensor);
    }
    if (whole_input != kNoTensor) {
      block_.tensors[whole_input].dtype = dtype_;
      const bool turned = transposes_ && gathers_rows_;
      if (turned) op_.backward_temporaries.Add(AddLike(whole_input, kTransposed));
    }
    ReadGradient(output, whole_gradient);
  }

 private:
  TensorId AddLike(TensorId like, absl::string_view name) {
    const TensorId id = plimsoll::AddLike(block_, like, name);
    Tensor& tensor = block_.tensors[id];
    tensor.dtype = dtype_;
    tensor.differentiable = false;
    if (tensor.role == Role::kActivation) tensor.role = Role::kTemporary;
    return id;
  }

  // Both ways of the input stand until the product is done; one of them stays. What ranks gather
  // row by row has one alone.
  void Keep(TensorId input, bool gathered) {
    const TensorId kept = AddLike(input, kReadInFp8);
    block_.tensors[kept].role = Role::kActivation;
    op_.outputs.Add(kept);
    op_.saved.Replace(input, kept);
    const bool both = transposes_ && !(gathered && gathers_rows_);
    if (both) op_.forward_temporaries.Add(AddLike(input, kTransposed));
  }

  void ReadGradient(TensorId output, TensorId whole) {
    if (whole != kNoTensor) {
      block_.tensors[whole].dtype = dtype_;
    } else {
      op_.backward_temporaries.Add(AddLike(output, kGradient));
    }
    if (!transposes_) return;
    const TensorId like = whole != kNoTensor ? whole : output;
    op_.backward_temporaries.Add(AddLike(like, kGradientTransposed));
  }

  // What ranks gather; kNoTensor where each has all.
  TensorId Gathered(const Ids& temporaries) const {
    const auto* const found = std::find_if(
        temporaries.begin(), temporaries.end(),
        [this](TensorId id) { return block_.tensors[id].role == Role::kCommunication; });
    return found == temporaries.end() ? kNoTensor : *found;
  }

  // Whether attention's kernel gave it, as it is, copied or moved.
  bool IsMadeByAttention(TensorId input) const {
    for (size_t i = block_.ops.size(); i-- > 0;) {
      const Op& op = block_.ops[i];
      if (op.outputs.count == 0 || op.outputs.ids[0] != input) continue;
      if (op.kind == OpKind::kAttention) return true;
      if (op.parameters.count > 0 || op.inputs.count != 1) return false;
      input = op.inputs.ids[0];
    }
    return false;
  }

  // Shared experts that run again keep what they read in fp8, as long as they run.
  bool IsKeptByRouter(TensorId input) const {
    if ((modules_ & BitOf(RecomputeModule::kSharedExperts)) != 0) return false;
    return std::any_of(block_.ops.begin(), block_.ops.end(), [&](const Op& op) {
      return op.kind == OpKind::kMatrixProduct && op.saved.count > 0 && op.saved.ids[0] == input &&
             op.parameters.count > 0 && block_.parameters[op.parameters.ids[0]].bare;
    });
  }

  bool IsMadeAgain(TensorId input) const {
    constexpr uint8_t kDropped =
        BitOf(RecomputeModule::kNorm) | BitOf(RecomputeModule::kActivation);
    return std::any_of(block_.ops.begin(), block_.ops.end(), [&](const Op& op) {
      return (op.modules & modules_ & kDropped) != 0 && op.outputs.count > 0 &&
             op.outputs.ids[0] == input;
    });
  }

  bool StaysAsItIs(TensorId input) const {
    return IsMadeByAttention(input) || IsKeptByRouter(input) || IsMadeAgain(input);
  }

  const DType dtype_;
  const bool transposes_;
  const bool gathers_rows_;  // for backward too, where it is turned then
  const bool reads_again_;
  const uint8_t modules_;  // that run again
  Block& block_;
  Op& op_;
};

// Whether the network's end has a layer that predicts one token further, which is not run in fp4.
// Source: megatron/core/transformer/multi_token_prediction.py, _proj_and_transformer_layer.
bool HasNarrowEnd(const Job& job, const Block& block) {
  return block.kind == BlockKind::kHead && job.mtp_layer_count > 0 && !job.fp8->IsFp4();
}

bool MakesLogits(const Block& block, const Op& op) {
  return op.outputs.count > 0 && block.tensors[op.outputs.ids[0]].role == Role::kLoss;
}

void NarrowProducts(const Job& job, Block& block) {
  for (size_t i = 0; i < block.ops.size(); ++i) {
    const Op& op = block.ops[i];
    if (IsProduct(block, op) && !MakesLogits(block, op)) Fp8Builder(job, block, i).Build();
  }
}

}  // namespace

Program ApplyFp8Products(const ValidJob& job, Program program) {
  if (!job->fp8.has_value()) return program;
  for (Block& block : program.blocks) {
    if (block.kind == BlockKind::kLayer || HasNarrowEnd(*job, block)) NarrowProducts(*job, block);
  }
  return program;
}

}  // namespace plimsoll
