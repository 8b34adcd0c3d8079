#include <algorithm>

#include "estimator/passes/pass.h"

namespace plimsoll {
namespace {

constexpr absl::string_view kWholeWeights = "weights.dequantized";
constexpr absl::string_view kReadInput = "quantized.input.cast";
constexpr absl::string_view kComputed = "quantized.output";
constexpr absl::string_view kIndices = "weights.dequantized.indices";
constexpr absl::string_view kHalf = "weights.dequantized.half";
constexpr absl::string_view kScaledHalf = "weights.dequantized.half.scaled";
constexpr absl::string_view kScales = "weights.dequantized.scales";
constexpr absl::string_view kWeightsInHalves = "weights.dequantized.fp16";
constexpr absl::string_view kInBytes = "quantized.input.int8";
constexpr absl::string_view kInHalves = "quantized.input.fp16";
constexpr absl::string_view kOutliers = "quantized.input.outliers";
constexpr absl::string_view kSums = "quantized.sums";

// Whether an op multiplies by a frozen matrix.
bool IsFrozenProduct(const Block& block, const Op& op) {
  if (op.kind != OpKind::kMatrixProduct || op.parameters.count == 0) return false;
  const Parameter& matrix = block.parameters[op.parameters.ids[0]];
  return matrix.frozen && !matrix.bare;
}

// Puts what a product of a quantized matrix makes around it.
//
//   read      the input in the compute dtype     whole  the matrix, as long as the product runs
//   computed  the product in the compute dtype   and it is cast back
//
// Backward makes the matrix once more, from what is kept; the input is not kept. A few rows of
// tokens (at most 1,536, fewer on most GPUs) have a kernel that makes no matrix in forward, from
// bitsandbytes 0.50 on; backward's stands higher.
//
// Source: bitsandbytes/nn/modules.py, Linear4bit.forward; autograd/_functions.py, MatMul4Bit;
// backends/cuda/ops.py, _dequant_linear_fallback.
class ProductBuilder {
 public:
  ProductBuilder(const Job& job, Block& block, size_t product)
      : quantization_(*job.quantization),
        in_bytes_(job.quantization->format == DType::kInt8),
        composed_(job.profile->composed_dequantization),
        halved_(job.profile->half_dequantization &&
                job.quantization->compute_dtype != DType::kFp16),
        keeps_input_(job.profile->keeps_quantized_inputs || in_bytes_),
        block_(block),
        at_(product) {}

  // Returns where the next op is.
  size_t Build() && {
    const TensorId input = block_.ops[at_].inputs.ids[0];
    const TensorId output = block_.ops[at_].outputs.ids[0];
    const TensorId whole = AddWhole();
    const bool behind = block_.tensors[input].differentiable;
    if (keeps_input_ && behind) {
      block_.ops[at_].saved.Add(input);
      block_.ops[at_].holds_inputs = true;
    }
    if (in_bytes_) return MultiplyBytes(input, output, whole);
    if (block_.kind == BlockKind::kHead) return MakeInSlices(whole, behind);
    if (composed_ || halved_) return Compose(input, output, whole);
    Read(input);
    Op& op = block_.ops[at_];
    op.forward_temporaries.Add(whole);
    if (block_.tensors[input].differentiable) op.backward_temporaries.Add(whole);
    Write(output);
    return at_ + 1;
  }

 private:
  TensorId Add(TensorId like, absl::string_view name) {
    return AddIn(quantization_.compute_dtype, like, name);
  }

  TensorId AddIn(DType dtype, TensorId like, absl::string_view name) {
    const TensorId id = AddLike(block_, like, name);
    block_.tensors[id].dtype = dtype;
    return id;
  }

  bool IsRead(TensorId id) const { return block_.tensors[id].dtype == quantization_.compute_dtype; }

  // Marks the matrix, and adds it as it is multiplied.
  TensorId AddWhole() {
    const TensorId id = AddTensor(block_, {.name = kWholeWeights,
                                           .dtype = quantization_.compute_dtype,
                                           .role = Role::kTemporary,
                                           .differentiable = false});
    Tensor& whole = block_.tensors.back();
    int64_t rows = 0;
    for (const TensorId at : block_.ops[at_].parameters) {
      Parameter& parameter = block_.parameters[at];
      if (parameter.shape.rank != 2 || !parameter.frozen) continue;
      parameter.quantized = true;
      parameter.dtype = quantization_.format;
      if (rows == 0) whole.shape = parameter.shape;
      rows = plimsoll::Add(rows, parameter.shape.extents[0].size);
    }
    whole.shape.extents[0].size = rows;
    return id;
  }

  TensorId AddPiece(absl::string_view name, TensorId whole, int64_t part, DType dtype) {
    const TensorId id = AddLike(block_, whole, name);
    Extent& columns = block_.tensors[id].shape.extents[1];
    columns.size = CeilDivide(columns.size, part);
    block_.tensors[id].dtype = dtype;
    return id;
  }

  // The input is made bytes, beside its copy in fp16, its sizes, and which of them are outliers;
  // what is multiplied is int32 sums, of which the output is made in fp16 and cast. Backward makes
  // the matrix whole. A few columns of outliers, multiplied apart, are not counted.
  // Source: bitsandbytes/autograd/_functions.py, MatMul8bitLt; backends/cuda/ops.py,
  // int8_vectorwise_quant, int8_mm_dequant.
  size_t MultiplyBytes(TensorId input, TensorId output, TensorId whole) {
    block_.tensors[whole].dtype = block_.tensors[input].dtype;
    const TensorId bytes = AddIn(DType::kInt8, input, kInBytes);
    const TensorId sums = AddIn(DType::kInt32, output, kSums);
    for (const TensorId id : {bytes, sums}) block_.tensors[id].differentiable = false;
    const TensorId halves = AddIn(DType::kFp16, input, kInHalves);
    Ids beside{halves, AddIn(DType::kBool, input, kOutliers)};
    const bool narrow = block_.tensors[input].dtype == DType::kFp16;
    if (!narrow) beside.Add(halves);  // sizes, and the copy that they are of
    InsertOp(
        block_, at_++,
        {.name = kInBytes, .inputs = {input}, .outputs = {bytes}, .forward_temporaries = beside});
    InsertOp(block_, at_++, {.name = kSums, .inputs = {bytes}, .outputs = {sums}});
    Ids read = block_.ops[at_].inputs;
    read.Add(bytes);
    read.Add(sums);
    const TensorId computed = narrow ? kNoTensor : AddIn(DType::kFp16, output, kComputed);
    Op& op = block_.ops[at_];
    op.inputs = read;
    if (!narrow) op.forward_temporaries.Add(computed);
    if (block_.tensors[input].differentiable) op.backward_temporaries.Add(whole);
    return at_ + 1;
  }

  // A head runs over slices of the tokens: the matrix is made for each, beside all their logits.
  size_t MakeInSlices(TensorId whole, bool behind) {
    Ids made{whole};
    if (halved_) made.Add(AddPiece(kWeightsInHalves, whole, 1, DType::kFp16));
    Op& op = block_.ops[at_];
    for (const TensorId id : made) {
      op.forward_temporaries.Add(id);
      if (behind) op.backward_temporaries.Add(id);
    }
    return at_ + 1;
  }

  // What PyTorch's ops make of a matrix before it is whole: of its even and of its odd elements
  // indices into the table (int64), what the table has for them, and that times its scale.
  // Source: torchao dtypes/nf4tensor.py, NF4Tensor.get_original_weight.
  // Or the matrix in fp16, of which it is a cast. Source: lightning
  // fabric/plugins/precision/bitsandbytes.py, _Linear4bit.quantize; bitsandbytes
  // autograd/_functions.py, MatMul4Bit.
  Ids AddPieces(TensorId whole) {
    const DType dtype = quantization_.compute_dtype;
    if (halved_) return {AddPiece(kWeightsInHalves, whole, 1, DType::kFp16)};
    Ids pieces{AddPiece(kScales, whole, 64, dtype)};
    for (int half = 0; half < 2; ++half) {
      pieces.Add(AddPiece(kIndices, whole, 2, DType::kInt64));
      pieces.Add(AddPiece(kHalf, whole, 2, dtype));
      pieces.Add(AddPiece(kScaledHalf, whole, 2, dtype));
    }
    return pieces;
  }

  // The matrix is made whole before the product, and again before its backward.
  // Source: torchao dtypes/nf4tensor.py, LinearNF4.
  size_t Compose(TensorId input, TensorId output, TensorId whole) {
    Ids pieces = AddPieces(whole);
    InsertOp(block_, at_++,
             {.name = kWholeWeights, .outputs = {whole}, .forward_temporaries = pieces});
    block_.ops[at_].inputs.Add(whole);
    if (!block_.tensors[input].differentiable) return at_ + 1;
    block_.ops[at_].backward_temporaries.Add(whole);
    const auto seen = static_cast<TensorId>(block_.tensors.size());
    block_.tensors.push_back(block_.tensors[output]);
    for (size_t i = at_ + 1; i < block_.ops.size(); ++i) {
      block_.ops[i].inputs.Replace(output, seen);
      block_.ops[i].saved.Replace(output, seen);
    }
    pieces.Add(whole);
    InsertOp(block_, at_ + 1,
             {.name = kWholeWeights,
              .inputs = {output},
              .outputs = {seen},
              .backward_temporaries = pieces,
              .input_gradient = InputGradient::kShared});
    return at_ + 2;
  }

  void Read(TensorId input) {
    if (IsRead(input)) return;
    const TensorId read = Add(input, kReadInput);
    InsertOp(block_, at_++, {.name = kReadInput, .inputs = {input}, .outputs = {read}});
    block_.ops[at_].inputs.Replace(input, read);
  }

  void Write(TensorId output) {
    if (IsRead(output)) return;
    const TensorId computed = Add(output, kComputed);
    block_.ops[at_].outputs.Replace(output, computed);
    InsertOp(block_, ++at_, {.name = kComputed, .inputs = {computed}, .outputs = {output}});
  }

  const Quantization& quantization_;
  const bool in_bytes_;     // bitsandbytes' LLM.int8
  const bool composed_;     // of PyTorch's own ops
  const bool halved_;       // by a cast of it in fp16
  const bool keeps_input_;  // for backward, which does not read it
  Block& block_;
  size_t at_;  // the op at work
};

}  // namespace

void QuantizeProducts(const Job& job, Block& block) {
  const bool head = block.kind == BlockKind::kHead && job.profile->quantizes_head;
  if (block.kind != BlockKind::kLayer && !head) return;
  for (size_t i = 0; i < block.ops.size();) {
    const bool product = IsFrozenProduct(block, block.ops[i]);
    i = product ? ProductBuilder(job, block, i).Build() : i + 1;
  }
}

Program ApplyQuantization(const ValidJob& job, Program program) {
  if (!job->quantization.has_value()) return program;
  for (Block& block : program.blocks) QuantizeProducts(*job, block);
  return program;
}

}  // namespace plimsoll
