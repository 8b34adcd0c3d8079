#include "estimator/time/block_time.h"

#include <algorithm>

#include "estimator/program/parameter_sums.h"
#include "estimator/program/tensor_split.h"

namespace plimsoll {
namespace {

// The GPU that matrix_half_gflop is stated for: half_flops grows with the peak.
// Source: throughput of products over sizes on A100 (312 TFLOPS in 16 bits).
constexpr double kReferenceFlops = 312e12;
// Backward of fused attention makes scores again: five products for two, three of them as deep as
// keys are wide and two as values are.
// Source: Dao 2023 (arXiv 2307.08691), section 4.1.
double AttentionBackward(const Transformer& model) {
  const auto keys = static_cast<double>(model.head_size);
  const auto values = static_cast<double>(model.ValueSize());
  return (3 * keys + 2 * values) / (keys + values);
}

// What a multiply-add of Mamba 1's scan costs, in those of tensor cores, of which a Hopper's SM
// does 2,048 a clock: a state takes an exponential, of which it does 16, and three multiply-adds in
// fp32, of which it does 128. No measurement was at hand.
// Source: CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions".
constexpr double kScalarScan = (2048.0 / 16 + 3 * 2048.0 / 128) / 3;

// The data sheet's dense rate for products of `dtype`. Where it has none they run as in the next
// wider format: narrow ones in 16 bits at worst, 16 bits as fp32.
double PeakFlops(const Gpu& gpu, DType dtype) {
  struct Rate {
    DType dtype;
    const char* name;
    DType wider;
  };
  constexpr Rate kRates[] = {{DType::kFp4Blocks, "fp4", DType::kFp8},
                             {DType::kFp8, "fp8", DType::kBf16},
                             {DType::kBf16, "bf16", DType::kFp32},
                             {DType::kFp16, "fp16", DType::kFp32},
                             {DType::kFp32, "fp32", DType::kNone}};
  for (const Rate& row : kRates) {
    if (row.dtype != dtype) continue;
    const auto rate = gpu.teraflops.find(row.name);
    if (rate != gpu.teraflops.end()) return rate->second * 1e12;
    dtype = row.wider;
  }
  return 0;
}

// One pass while it is added up.
struct Work {
  double product_seconds = 0;
  double attention_flops = 0;
  double bytes = 0;
  int kernels = 0;
  int collectives = 0;
  double tensor_seconds = 0;
  double context_seconds = 0;
  double ring_seconds = 0;  // of what goes around while attention runs
};

class BlockClock {
 public:
  BlockClock(const Job& job, const Rates& rates, double tensor_overlap, const Block& block)
      : job_(job), mesh_(job), rates_(rates), tensor_overlap_(tensor_overlap), block_(block) {}

  BlockTime Time() {
    Work forward, again, backward;
    double model_flops = 0;
    double backward_model_flops = 0;
    for (const Op& op : block_.ops) {
      const double depth = Products(op);
      Forward(op, depth, forward);
      if (RunsAgain(op)) Forward(op, depth, again, &gathered_again_);
      Backward(op, depth, backward);
      model_flops += ModelFlops(op, depth);
      backward_model_flops += BackwardProducts(op) * ModelFlops(op, depth);
    }
    return {Finish(forward), Finish(again), Finish(backward), model_flops, backward_model_flops};
  }

 private:
  // FLOPs of forward's products.
  // A scan's weights are no matrices: its convolution reads each channel by itself.
  double Products(const Op& op) const {
    double weights = 0;
    double flops = op.product_depth == 0
                       ? 0
                       : 2.0 * Whole(op.outputs.ids[0]) * static_cast<double>(op.product_depth);
    if (op.kind == OpKind::kScan) return flops;
    for (TensorId id : op.parameters) {
      const Parameter& parameter = block_.parameters[id];
      if (parameter.shape.rank < 2 || parameter.embedding || op.inputs.count == 0) continue;
      const auto elements = static_cast<double>(parameter.Elements());
      if (parameter.of_experts()) {
        flops += 2 * RowsOfExperts(op) * elements /
                 static_cast<double>(parameter.shape.extents[0].Local());
      } else {
        weights += elements;
      }
    }
    return flops + 2 * Rows(op) * weights;
  }

  // Vectors that a product by weights takes: the tokens, or of what is pooled the
  // sequences. By weights that are whole on each rank those of its part of the sequence.
  double Rows(const Op& op) const {
    const auto sequences = static_cast<double>(job_.SequencesAtOnce());
    const Shape& shape = block_.tensors[op.outputs.ids[0]].shape;
    const bool pooled = shape.rank == 2 && shape.extents[1].symbol != Symbol::kS;
    if (pooled) return sequences;
    const auto tokens = static_cast<double>(job_.LocalTokens());
    const bool part = TakesPart(op) && IsWhole(op);
    return part ? tokens / static_cast<double>(job_.tensor_parallel_size) : tokens;
  }

  // Whether ranks of a tensor parallel group have the same weights.
  bool IsWhole(const Op& op) const {
    return job_.tensor_parallel_size > 1 && op.parameters.count > 0 &&
           SplitOf(block_, op) == TensorSplit::kNone &&
           !block_.parameters[op.parameters.ids[0]].of_experts();
  }
  // Whether each of these ranks takes a part of the tokens.
  bool TakesPart(const Op& op) const {
    const Shape& shape = block_.tensors[op.outputs.ids[0]].shape;
    return shape.rank > 1 && shape.extents[1].IsSplit(Split::kTensor);
  }

  // A row for each token that an expert is sent, of all experts here.
  double RowsOfExperts(const Op& op) const {
    const Shape& shape = block_.tensors[op.outputs.ids[0]].shape;
    const int64_t rows = shape.Elements() / shape.extents[shape.rank - 1].Local();
    return static_cast<double>(rows);
  }

  // Attention in full, or of the whole window, as model FLOPs are counted
  // (Korthikanti et al. 2022, appendix A): scores as wide as keys, and values. What each rank
  // does alike counts once.
  double ModelFlops(const Op& op, double flops) const {
    if (op.kind != OpKind::kAttention) {
      const bool alike = !TakesPart(op) && IsWhole(op);
      return alike ? flops / static_cast<double>(job_.tensor_parallel_size) : flops;
    }
    const Transformer& model = *job_.model;
    const int64_t window = model.sliding_window;
    const int64_t seen = window > 0 ? std::min(window, job_.sequence_length) : job_.sequence_length;
    const double both =
        1 + static_cast<double>(model.head_size) / static_cast<double>(model.ValueSize());
    return 2.0 * both * Whole(op.outputs.ids[0]) * static_cast<double>(seen);
  }

  // Elements, of all chunks where the loss is sliced.
  double Whole(TensorId id) const {
    const Tensor& tensor = block_.tensors[id];
    double elements = static_cast<double>(tensor.shape.Elements());
    for (int axis = 0; axis < tensor.shape.rank; ++axis) {
      if (tensor.shape.extents[axis].IsSplit(Split::kChunk)) {
        elements *= static_cast<double>(job_.loss_chunk_count);
      }
    }
    return elements;
  }
  double BytesOf(TensorId id) const {
    constexpr int64_t kBlock = 32;  // whole ones of each format: of fp4's 16, of fp8's 32
    static_assert(kBlock % kFp4BlockSize == 0 && kBlock % kFp8BlockSize == 0);
    const auto block = static_cast<double>(plimsoll::Bytes(block_.tensors[id].dtype, kBlock));
    return Whole(id) * block / kBlock;
  }
  bool Owns(TensorId id) const { return block_.tensors[id].storage == id; }
  double BytesOf(const Ids& ids, bool gradients) const {
    double bytes = 0;
    for (TensorId id : ids) {
      if (gradients && !block_.tensors[id].differentiable) continue;
      bytes += BytesOf(id);
    }
    return bytes;
  }

  void AddProduct(const Op& op, double flops, double times, Work& work) const {
    if (HasOwnKernel(op)) {
      const bool scalar = op.kind == OpKind::kScan && job_.model->state_space.Selective();
      if (scalar) flops *= kScalarScan;
      work.attention_flops += flops * (times == 1 ? 1 : AttentionBackward(*job_.model));
      work.kernels += 1;
      return;
    }
    work.product_seconds += times * ProductSeconds(op, flops);
    work.kernels += static_cast<int>(times);
  }

  // What a product in fp8 reads is made before it: of `from`, in 16 bits.
  void Quantize(const Op& op, TensorId from, std::initializer_list<Ids> made, Work& work) const {
    if (!op.in_fp8) return;
    work.bytes += BytesOf(from);
    work.kernels += 1;
    for (const Ids& ids : made) {
      for (const TensorId id : ids) {
        const Tensor& tensor = block_.tensors[id];
        if (IsNarrow(tensor.dtype) && tensor.role != Role::kCommunication)
          work.bytes += BytesOf(id);
      }
    }
  }

  // Scores of few wide heads are bound by memory.
  double ProductSeconds(const Op& op, double flops) const {
    double bytes = BytesOf(op.inputs, false) + BytesOf(op.outputs, false);
    for (TensorId id : op.parameters) {
      bytes += static_cast<double>(block_.parameters[id].Elements() *
                                   plimsoll::Bytes(job_.precision.activation, 1));
    }
    const double rate = op.in_fp8 ? rates_.narrow_flops : rates_.matrix_flops;
    return std::max(flops / rate, bytes / rates_.memory_bytes) +
           rates_.half_flops / rates_.matrix_flops;
  }

  void Forward(const Op& op, double flops, Work& work) { Forward(op, flops, work, &gathered_); }
  void Forward(const Op& op, double flops, Work& work, TensorId* gathered) {
    Collect(op.forward_collectives, gathered, work);
    if (!MultipliesBytes(block_, op)) Dequantize(op, work);
    Quantize(op, op.inputs.ids[0], {op.outputs, op.forward_temporaries}, work);
    if (flops > 0) {
      AddProduct(op, flops, 1, work);
      return;
    }
    if (op.kind == OpKind::kGather) return;
    double written = 0;
    for (TensorId id : op.outputs) written += Owns(id) ? BytesOf(id) : 0;
    if (written == 0) return;  // views
    work.bytes += BytesOf(op.inputs, false) + written;
    work.kernels += 1;
  }

  // Reads what was saved and the outputs' gradients, writes the inputs'.
  void Backward(const Op& op, double flops, Work& work) {
    Collect(op.backward_collectives, &scattered_, work);
    AddWeightGradients(op, work);
    if (op.backward_temporaries.count > 0) Dequantize(op, work);
    Quantize(op, op.outputs.ids[0], {op.backward_temporaries}, work);
    if (flops > 0) {
      AddProduct(op, flops, BackwardProducts(op), work);
      return;
    }
    if (op.input_gradient == InputGradient::kShared || op.kind == OpKind::kGather) return;
    const double inputs = BytesOf(op.inputs, true);
    if (inputs == 0 && op.parameters.count == 0) return;
    work.bytes += BytesOf(op.saved, false) + BytesOf(op.outputs, true) + inputs;
    work.kernels += 1;
  }

  // Reads a weight as it is kept, and writes it as the product reads it.
  void Dequantize(const Op& op, Work& work) const {
    for (const TensorId id : op.parameters) {
      const Parameter& parameter = block_.parameters[id];
      if (!parameter.quantized) continue;
      const int64_t elements = parameter.Elements();
      work.bytes +=
          static_cast<double>(Add(plimsoll::Bytes(parameter.dtype, elements),
                                  plimsoll::Bytes(job_.quantization->compute_dtype, elements)));
      work.kernels += parameter.packed() ? 0 : 1;
    }
  }

  // A product's backward is one for its input, where that has a gradient, and one for its weights.
  double BackwardProducts(const Op& op) const {
    if (op.parameters.count == 0) return 2;  // of two tensors
    const bool frozen = block_.parameters[op.parameters.ids[0]].frozen;
    const bool leads = block_.tensors[op.inputs.ids[0]].differentiable;
    return (leads ? 1 : 0) + (frozen ? 0 : 1);
  }

  // A gradient that is added to a sum reads both and writes the sum; one that a
  // product adds itself reads and writes the sum. A lookup's is as large as its
  // table.
  void AddWeightGradients(const Op& op, Work& work) const {
    const WeightGradient how =
        job_.gradient_accumulation_fusion ? WeightGradient::kFused : job_.profile->weight_gradient;
    const double sum = static_cast<double>(plimsoll::Bytes(job_.precision.accumulation, 1));
    const double own = static_cast<double>(plimsoll::Bytes(job_.precision.gradient, 1));
    for (TensorId id : op.parameters) {
      const Parameter& parameter = block_.parameters[id];
      if (parameter.frozen) continue;
      const auto elements = static_cast<double>(parameter.Elements());
      if (how == WeightGradient::kFused && !parameter.embedding) {
        work.bytes += elements * 2 * sum;
      } else if (how != WeightGradient::kKept || job_.micro_batch_count > 1) {
        work.bytes += elements * (own + 2 * sum);
      }
      if (parameter.embedding) work.bytes += elements * own;
    }
  }

  // Whether backward runs the op's forward once more.
  bool RunsAgain(const Op& op) const {
    if (op.segment > 0) return true;
    if (block_.recompute_unit == 0) return false;
    if (!block_.tensors[block_.output].differentiable) return false;
    bool checkpointed = op.outputs.count > 0;
    for (TensorId id : op.outputs) {
      checkpointed = checkpointed && block_.tensors[block_.tensors[id].storage].checkpointed;
    }
    return !checkpointed;
  }

  // What each rank of a group sends: of a tensor that they gather or scatter, and of its part
  // of one that they exchange, all but what it keeps.
  double SentBytes(const Collective& row, const RankGroup& group) const {
    const auto ranks = static_cast<double>(group.size());
    const Tensor& tensor = block_.tensors[row.tensor];
    if (row.kind == CollectiveKind::kRing) return BytesOf(row.tensor) * (ranks - 1);
    const bool split = row.kind != CollectiveKind::kAllToAll && tensor.sequence_axis != kNoAxis &&
                       tensor.shape.extents[tensor.sequence_axis].IsSplit(Split::kTensor);
    return BytesOf(row.tensor) * (split ? ranks : 1) * (ranks - 1) / ranks;
  }

  // `last` is the tensor that ops before this one asked for.
  void Collect(const Collectives& collectives, TensorId* last, Work& work) const {
    const TensorId before = *last;
    for (const Collective& row : collectives) {
      if (row.shared && row.tensor == before) continue;
      if (row.shared) *last = row.tensor;
      const RankGroup group = mesh_.Group(row.axes);
      const bool context = (row.axes & Along(Axis::kContext)) != 0;
      // What follows waits for it.
      const bool exchange = row.kind == CollectiveKind::kAllToAll || context;
      const int rounds = row.kind == CollectiveKind::kAllReduce ? 2 : 1;
      const double exposed = exchange ? 1 : 1 - tensor_overlap_;
      work.collectives += 1;
      const double seconds =
          rounds * (exposed * (SentBytes(row, group) / rates_.Bandwidth(job_, group)) +
                    rates_.Start(job_, group));
      if (row.kind == CollectiveKind::kRing) {
        work.ring_seconds += seconds;
      } else {
        (context ? work.context_seconds : work.tensor_seconds) += seconds;
      }
    }
  }

  PassTime Finish(const Work& work) const {
    PassTime time;
    time.matrix = work.product_seconds;
    time.attention = work.attention_flops / rates_.attention_flops;
    time.memory = work.bytes / rates_.memory_bytes;
    time.tensor = work.tensor_seconds;
    // Of so many steps of attention the first waits for nothing.
    const auto ranks = static_cast<double>(job_.context_parallel_size);
    time.context = work.context_seconds +
                   std::max(0.0, work.ring_seconds - time.attention * (ranks - 1) / ranks);
    const double launches =
        work.kernels * rates_.kernel_seconds + work.collectives * rates_.collective_seconds;
    time.launch = std::max(0.0, launches - time.Seconds());
    return time;
  }

  const Job& job_;
  const Mesh mesh_;
  const Rates& rates_;
  const double tensor_overlap_;
  const Block& block_;
  TensorId gathered_ = kNoTensor;
  TensorId gathered_again_ = kNoTensor;
  TensorId scattered_ = kNoTensor;
};

}  // namespace

double Rates::Bandwidth(const Job& job, const RankGroup& group) const {
  const int64_t linked = group.OnEachNode(job.LinkedGpuCount());
  if (linked == group.size()) return link_bytes;
  return std::min(link_bytes, network_bytes * static_cast<double>(linked));
}

double Rates::Start(const Job& job, const RankGroup& group) const {
  const int64_t size = group.size();
  if (group.OnEachNode(job.LinkedGpuCount()) == size) return 0;
  return hop_seconds * static_cast<double>(size - 1);
}

Rates RatesOf(const Job& job, const Speed& speed) {
  Rates rates;
  const Gpu& gpu = *job.gpu;
  const double stack = speed.framework.stack_factor;
  const double peak = PeakFlops(gpu, job.precision.activation);
  rates.matrix_flops = peak * speed.gpu.matrix_efficiency / stack;
  const DType narrow = job.fp8.has_value() && job.fp8->IsFp4() ? DType::kFp4Blocks : DType::kFp8;
  rates.narrow_flops = PeakFlops(gpu, narrow) * speed.gpu.matrix_efficiency / stack;
  rates.peak_flops = job.fp8.has_value() ? std::max(peak, PeakFlops(gpu, narrow)) : peak;
  rates.half_flops = speed.gpu.matrix_half_gflop * 1e9 * (peak / kReferenceFlops);
  rates.attention_flops = peak * speed.gpu.attention_efficiency / stack;
  rates.memory_bytes = static_cast<double>(gpu.memory_bandwidth_bytes_per_second) *
                       speed.gpu.memory_efficiency / stack;
  rates.link_bytes =
      static_cast<double>(job.interconnect_bytes_per_second) * speed.gpu.link_efficiency;
  rates.network_bytes =
      static_cast<double>(job.network_bytes_per_second) * speed.gpu.network_efficiency;
  rates.kernel_seconds = speed.framework.kernel_seconds;
  rates.collective_seconds = speed.framework.collective_seconds;
  rates.hop_seconds = speed.framework.hop_seconds;
  return rates;
}

BlockTime TimeBlock(const Job& job, const Rates& rates, double tensor_overlap, const Block& block) {
  return BlockClock(job, rates, tensor_overlap, block).Time();
}

}  // namespace plimsoll
