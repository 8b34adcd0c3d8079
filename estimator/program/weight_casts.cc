#include "estimator/program/weight_casts.h"

#include <algorithm>

namespace plimsoll {
namespace {

// A head that is tied or frozen has one of its own (estimator/program/lower_head.cc).
bool ReadsCast(const Block& block, const Op& op) {
  return std::any_of(op.inputs.begin(), op.inputs.end(),
                     [&block](TensorId id) { return block.tensors[id].role == Role::kWeight; });
}

// Of parameters that are rows of one tensor the cast is one.
Ids CastsOf(const Job& job, Block& block, const Op& product) {
  Ids casts;
  for (const TensorId at : product.parameters) {
    const Parameter& weight = block.parameters[at];
    const bool whole = weight.shape.rank == 2 && !weight.uncached && !weight.quantized;
    if (!whole || weight.dtype == job.precision.Product()) continue;
    if (weight.packed() && casts.count > 0) {
      Extent& rows = block.tensors[casts.ids[casts.count - 1]].shape.extents[0];
      rows.size = Add(rows.size, weight.shape.extents[0].size);
      continue;
    }
    const auto id = static_cast<TensorId>(block.tensors.size());
    Tensor& cast = block.tensors.emplace_back();
    cast.name = "weight.cast";
    cast.shape = weight.shape;
    cast.dtype = job.precision.Product();
    cast.role = Role::kWeight;
    cast.storage = id;
    cast.tensor_axis = weight.tensor_axis;
    cast.differentiable = false;
    casts.Add(id);
  }
  return casts;
}

}  // namespace

void AddWeightCasts(const Job& job, Block& block) {
  for (size_t i = 0; i < block.ops.size(); ++i) {
    if (block.ops[i].kind != OpKind::kMatrixProduct || ReadsCast(block, block.ops[i])) continue;
    const Ids casts = CastsOf(job, block, block.ops[i]);
    if (casts.count == 0) continue;
    InsertOp(block, i++, {.name = "weight.cast", .outputs = casts});
    const bool leads = LeadsGradients(block, block.ops[i]);  // for that alone backward reads it
    for (const TensorId id : casts) {
      block.ops[i].inputs.Add(id);
      if (leads) block.ops[i].saved.Add(id);
    }
  }
}

}  // namespace plimsoll
