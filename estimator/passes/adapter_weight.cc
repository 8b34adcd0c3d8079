#include "estimator/passes/adapter_weight.h"

#include <algorithm>

#include "absl/strings/string_view.h"
#include "estimator/passes/adapter_ops.h"

namespace plimsoll {
namespace {

constexpr absl::string_view kExpertsGateUp = "experts.gate_up";
constexpr absl::string_view kExpertsDown = "experts.down";
constexpr absl::string_view kRouter = "router";
constexpr absl::string_view kDownCast = ".adapter.down.weight.cast";
constexpr absl::string_view kUpCast = ".adapter.up.weight.cast";
constexpr absl::string_view kWhole = ".adapter.whole";

// Of an adapter that is added to the weight itself.
struct WholeNames {
  absl::string_view product, down_weight, up_weight, down_cast, up_cast, whole;
};
template <const absl::string_view& kProduct>
constexpr WholeNames NamesOfWhole() {
  return {kProduct,
          Joined<kProduct, kDownWeight>::kName,
          Joined<kProduct, kUpWeight>::kName,
          Joined<kProduct, kDownCast>::kName,
          Joined<kProduct, kUpCast>::kName,
          Joined<kProduct, kWhole>::kName};
}

// Parameters that have one, and ranks of it: two products that are one parameter have both's.
struct WholeRow {
  AdapterTarget target;
  int ranks;
  WholeNames names;
};
constexpr WholeRow kWholeTargets[] = {
    {AdapterTarget::kExpertsGateUp, 2, NamesOfWhole<kExpertsGateUp>()},
    {AdapterTarget::kExpertsDown, 1, NamesOfWhole<kExpertsDown>()},
    {AdapterTarget::kRouter, 1, NamesOfWhole<kRouter>()},
};

const WholeRow* FindWhole(const Adapter& adapter, const Op& op) {
  for (const WholeRow& row : kWholeTargets) {
    if (adapter.Targets(row.target) && row.names.product == op.name) return &row;
  }
  return nullptr;
}

// Puts the ops of an adapter of a parameter before the product that reads it: the parameter with
// the adapter's product added to it is a tensor of its own, which backward needs, and which a cache
// of the module holds until that returns.
//
//   down  [X, R, H]   up  [X, G, R]   casts of both   whole  [X, G, H], which is multiplied
//
// Source: peft/tuners/lora/layer.py, ParamWrapper.get_delta_factors, _activate_lora;
// torch/nn/utils/parametrize.py, cached.
class WholeBuilder {
 public:
  WholeBuilder(const Job& job, Block& block, size_t product, const WholeRow& row)
      : job_(job), block_(block), row_(row), at_(product) {}

  // Returns where the next op is.
  size_t Build() && {
    const Parameter& weight = block_.parameters[block_.ops[at_].parameters.ids[0]];
    const Shape shape = weight.shape;
    const DType dtype = weight.dtype;
    const bool of_experts = weight.of_experts();
    const Extent experts = of_experts ? shape.extents[0] : Extent{};
    Extent rank{.size = job_.adapter->rank, .times = row_.ranks, .symbol = Symbol::kR};
    rank.size = Multiply(rank.size, row_.ranks);
    const Extent width = shape.extents[of_experts ? 1 : 0];
    const Extent depth = shape.extents[of_experts ? 2 : 1];
    const Shape down{.extents = {experts, rank, depth}, .rank = 3};
    const Shape up{.extents = {experts, width, rank}, .rank = 3};
    const Ids matrices{AddMatrix(block_, row_.names.down_weight, Flat(experts, rank), depth, Own()),
                       AddMatrix(block_, row_.names.up_weight, width, Flat(experts, rank), Own())};
    const TensorId whole =
        AddTensor(block_, {.name = row_.names.whole, .shape = shape, .dtype = dtype});
    Op product{.name = row_.names.whole,
               .outputs = {whole},
               .kind = OpKind::kMatrixProduct,
               .product_depth = rank.size};
    if (Own() == dtype) {
      product.parameters = matrices;
    } else {
      product.inputs = {
          AddTensor(block_, {.name = row_.names.down_cast, .shape = down, .dtype = dtype}),
          AddTensor(block_, {.name = row_.names.up_cast, .shape = up, .dtype = dtype})};
      product.saved = product.inputs;
      InsertOp(block_, at_++,
               {.name = row_.names.down_cast, .outputs = product.inputs, .parameters = matrices});
    }
    InsertOp(block_, at_++, product);
    Op& op = block_.ops[at_];
    op.inputs.Add(whole);
    op.saved.Add(whole);
    op.saves_for_weights = false;
    if (of_experts) HoldUntilReturn(whole);
    return at_ + 1;
  }

 private:
  void HoldUntilReturn(TensorId whole) {
    const auto last = std::find_if(block_.ops.begin(), block_.ops.end(),
                                   [](const Op& op) { return op.name == "experts.sum"; });
    HoldUntil(block_, whole, static_cast<size_t>(last - block_.ops.begin()));
  }

  DType Own() const { return job_.AdapterDType(); }
  static Extent Flat(Extent experts, Extent rank) {
    rank.size = Multiply(experts.size, rank.size);
    return rank;
  }

  const Job& job_;
  Block& block_;
  const WholeRow& row_;
  size_t at_;
};

}  // namespace

size_t AdaptWeight(const Job& job, Block& block, size_t product) {
  const WholeRow* const row = FindWhole(*job.adapter, block.ops[product]);
  if (row == nullptr) return product + 1;
  return WholeBuilder(job, block, product, *row).Build();
}

}  // namespace plimsoll
