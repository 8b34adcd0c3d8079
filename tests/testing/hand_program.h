// Programs made by hand: each tensor has as many bytes as its row says, so that
// every sum can be checked in the head.
#ifndef PLIMSOLL_TESTS_TESTING_HAND_PROGRAM_H_
#define PLIMSOLL_TESTS_TESTING_HAND_PROGRAM_H_

#include <string>

#include "absl/strings/string_view.h"
#include "estimator/job/job.h"
#include "estimator/program/program.h"
#include "estimator/step/timeline.h"

namespace plimsoll {

// A block of tensors of one byte an element, an op after another.
class HandBlock {
 public:
  HandBlock(absl::string_view name, BlockKind kind);

  TensorId Make(absl::string_view name, int64_t bytes, Role role = Role::kActivation);
  TensorId Weight(absl::string_view name, int64_t elements);
  Op& Then(absl::string_view name, Ids inputs, Ids outputs, Ids saved);
  Block Between(TensorId input, TensorId output);

 private:
  Block block_;
};

// Embedding `e` (100 B out), `layers` layers of two ops that keep their input
// `x` (100 B) and `a` (300 B), each with a weight `w` of 7 elements, and a head
// that keeps its logits `l`, 500 B, for a loss of 1 B. States: `weights` 1000 B always, and
// `momentum` 2000 B from the first step on.
Program HandProgram(int64_t layers);

// One stage of that program's, one micro-batch.
Job HandJob();

// A step of a timeline as text, a line for each phase that begins: "+a@1" is the
// birth of `a` of layer 1, "-a@1" its death; layers are left out where there are
// none.
std::string StepInWords(const Timeline& timeline, int step);

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_TESTING_HAND_PROGRAM_H_
