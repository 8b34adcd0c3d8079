// Products by weights, as layers have them.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_PRODUCT_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_PRODUCT_H_

#include "absl/strings/string_view.h"
#include "estimator/program/block_builder.h"

namespace plimsoll {

// Ops from `begin` on are part of a module that a job may ask to recompute.
void Mark(BlockBuilder& b, size_t begin, RecomputeModule module);

// Backward of the last op begins by making again what such modules before it dropped.
void Close(BlockBuilder& b, RecomputeModule module);

// Under autocast each product casts its own input; elsewhere it reads it.
TensorId CastInput(BlockBuilder& b, absl::string_view name, TensorId input, Extent width);

// A product by a weight, which keeps its input for the weight's gradient.
Op& Linear(BlockBuilder& b, absl::string_view name, TensorId input, TensorId output, Ids weights);

// The weights of `parts` are rows of that of the first, its bias too.
void Pack(BlockBuilder& b, const Ids& parts);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_PRODUCT_H_
