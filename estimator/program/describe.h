// A program as text, for people who read a pass's work or a review: a row a line.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_DESCRIBE_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_DESCRIBE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "estimator/program/program.h"

namespace plimsoll {

// The passes that have shrunk something, in their order.
std::vector<absl::string_view> PassNames(PassMarks shrunk_by);

// All that a program says: programs of one text are the same.
//
// Example (tests/golden/cases/*.program has whole ones):
//   layer (layer): from layer.input, to mlp.residual
//     parameter attention.out.weight [H, A/tp] [64, 32] bf16; tensor axis 1, tensor-parallel
//     tensor mlp.norm [B, S/tp, H] [2, 16, 64] bf16 activation; sequence axis 1, sequence-parallel
//     op mlp.down (product): mlp.product.activation -> mlp.down.activation; saves
//       mlp.product.activation, trains mlp.down.weight, forward reduce-scatters
//       mlp.down.activation along tensor
//   state FLBROE FLBROE weights: weight, bf16 of parameters; weights
//   stage: layers 2, embedding; pairs 4, warm-up 1, groups of 1, played 4
// A state's letters are the phases in which it is alive, of the first step and of later ones.
std::string Describe(const Program& program);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_DESCRIBE_H_
