// What backward does not read where weights are frozen.
#ifndef PLIMSOLL_ESTIMATOR_PASSES_UNREAD_H_
#define PLIMSOLL_ESTIMATOR_PASSES_UNREAD_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "estimator/job/job.h"
#include "estimator/program/program.h"

namespace plimsoll {

// What nothing trained lies behind has no gradient; what backward of frozen weights alone would
// read is not kept, unless products are DeepSpeed's own.
// Source: torch/csrc/autograd/generated, should_compute_output; tools/autograd/derivatives.yaml;
// deepspeed/runtime/zero/linear.py, LinearFunctionForZeroStage3.
void DropUnread(const Job& job, Block& block);

// Whether any of its weights is trained.
bool Trains(const Block& block);

// Layers [begin, end) of those that are block `layer`, as a block of their own.
Block& SplitLayers(Program& program, size_t layer, absl::string_view name, int64_t begin,
                   int64_t end);

// The input of the first layer that trains anything has no gradient, and layers before it keep
// nothing; of the program's first `count` blocks. Returns whether any layer does.
bool SplitFirstLayers(const Job& job, Program& program, size_t count);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PASSES_UNREAD_H_
