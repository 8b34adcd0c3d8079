#include "estimator/program/lower_distillation.h"

namespace plimsoll {
namespace {

// What Kullback and Leibler's divergence is made of.
struct KlNames {
  absl::string_view exponential, difference, divergence;
};
constexpr KlNames kOfTeacher = {"loss.teacher.exponential", "loss.teacher.difference",
                                "loss.teacher.divergence"};
constexpr KlNames kOfStudent = {"loss.student.exponential", "loss.student.difference",
                                "loss.student.divergence"};

// A logarithm for each word and each token but the last.
class Divergence {
 public:
  Divergence(BlockBuilder& b, DType dtype) : b_(b), dtype_(dtype) {}

  // Both networks' log-probabilities are locals, as what they are made of is.
  void Lower(TensorId logits);

 private:
  TensorId Add(absl::string_view name, int64_t times = 1) const;
  // Of the teacher's numbers alone: without a gradient.
  TensorId AddFixed(absl::string_view name) const;
  TensorId Hold(TensorId id) const {
    b_.block().tensors[id].held = true;
    return id;
  }
  TensorId Mixture(TensorId student, TensorId teacher) const;
  TensorId Kl(const KlNames& names, TensorId input, TensorId target) const;
  TensorId Jsd(TensorId student, TensorId teacher) const;

  BlockBuilder& b_;
  const DType dtype_;
};

TensorId Divergence::Add(absl::string_view name, int64_t times) const {
  Extent tokens = b_.Size(Symbol::kS);
  tokens.size = Multiply(tokens.size - 1, times);
  return b_.Add(name, {b_.Size(Symbol::kB), tokens, b_.Size(Symbol::kV)},
                {.dtype = dtype_, .role = Role::kLoss});
}

TensorId Divergence::AddFixed(absl::string_view name) const {
  const TensorId id = Add(name);
  b_.block().tensors[id].differentiable = false;
  return id;
}

// log(a + b) of two logarithms: both, stacked, are kept.
TensorId Divergence::Mixture(TensorId student, TensorId teacher) const {
  const TensorId weighed = Add("loss.student.weighed");
  b_.Then("loss.student.weighed", {student}, {weighed}, {}).input_gradient = InputGradient::kShared;
  const TensorId other = AddFixed("loss.teacher.weighed");
  b_.Then("loss.teacher.weighed", {teacher}, {other}, {});
  const TensorId both = Add("loss.stacked", 2);
  b_.Then("loss.stacked", {weighed, other}, {both}, {}).input_gradient = InputGradient::kShared;
  const TensorId mixture = Add("loss.mixture");
  const TensorId largest = AddFixed("loss.mixture.largest");
  const TensorId exponentials = Add("loss.mixture.exponentials", 2);
  b_.block().tensors[exponentials].differentiable = false;
  Op& op = b_.Then("loss.mixture", {both}, {mixture}, {both, mixture});
  op.forward_temporaries = {largest, exponentials};
  op.backward_temporaries = {exponentials};
  return mixture;
}

// exp(target) (target - input). A fixed target's exponential is what backward reads; the student's
// has a gradient, for which the difference is kept.
TensorId Divergence::Kl(const KlNames& names, TensorId input, TensorId target) const {
  const bool fixed = !b_.block().tensors[target].differentiable;
  const TensorId exponential = fixed ? AddFixed(names.exponential) : Add(names.exponential);
  b_.Then(names.exponential, {target}, {exponential}, fixed ? Ids{} : Ids{exponential});
  const TensorId difference = Add(names.difference);
  b_.Then(names.difference, {target, input}, {difference}, {});
  const TensorId divergence = Add(names.divergence);
  b_.Then(names.divergence, {exponential, difference}, {divergence},
          fixed ? Ids{exponential} : Ids{exponential, difference});
  return divergence;
}

TensorId Divergence::Jsd(TensorId student, TensorId teacher) const {
  const TensorId mixture = Mixture(student, teacher);
  const TensorId of_teacher = Hold(Kl(kOfTeacher, mixture, teacher));
  const TensorId of_student = Hold(Kl(kOfStudent, mixture, student));
  const TensorId first = Add("loss.teacher.share");
  b_.Then("loss.teacher.share", {of_teacher}, {first}, {});
  const TensorId second = Add("loss.student.share");
  b_.Then("loss.student.share", {of_student}, {second}, {});
  const TensorId sum = Add("loss.divergence");
  b_.Then("loss.divergence", {first, second}, {sum}, {}).input_gradient = InputGradient::kShared;
  return sum;
}

void Divergence::Lower(TensorId logits) {
  const double beta = b_.job().distillation->jsd_beta;
  const TensorId scaled = Hold(Add("loss.student.scaled"));
  b_.Then("loss.student.scaled", {logits}, {scaled}, {});
  const TensorId fixed = Hold(AddFixed("loss.teacher.scaled"));
  b_.Then("loss.teacher.scaled", {}, {fixed}, {});
  const TensorId student = Hold(Add("loss.student.log_softmax"));
  b_.Then("loss.student.log_softmax", {scaled}, {student}, {student});
  const TensorId teacher = Hold(AddFixed("loss.teacher.log_softmax"));
  b_.Then("loss.teacher.log_softmax", {fixed}, {teacher}, {});
  const bool ends = beta == 0 || beta == 1;
  const TensorId each = !ends       ? Jsd(student, teacher)
                        : beta == 0 ? Kl(kOfTeacher, student, teacher)
                                    : Kl(kOfStudent, teacher, student);
  // Those of the answers' tokens are picked: all, at most.
  const TensorId picked = Add("loss.picked");
  const TensorId places =
      b_.Add("loss.places", {b_.Size(Symbol::kB), b_.Size(Symbol::kS, 2)},
             {.dtype = DType::kInt64, .role = Role::kLoss, .differentiable = false});
  b_.Then("loss.picked", {each}, {picked, places}, {places});
  const TensorId loss =
      b_.Add("loss", {b_.Size(Symbol::kOne)}, {.dtype = DType::kFp32, .role = Role::kLoss});
  b_.Then("loss", {picked}, {loss}, {}).input_gradient = InputGradient::kShared;
}

// Autocast's class gives its output in fp32; a local of the loss holds it.
// Source: accelerate utils/operations.py, ConvertOutputsToFp32.
TensorId WidenLogits(BlockBuilder& b, TensorId logits) {
  TensorId wide = logits;
  if (b.job().precision.autocast) {
    wide = b.Wide("loss.logits.fp32", b.Size(Symbol::kV), DType::kFp32, Role::kLoss);
    b.Then("loss.logits.fp32", {logits}, {wide}, {});
  }
  b.block().tensors[wide].held = true;
  return wide;
}

}  // namespace

void LowerDistilled(BlockBuilder& b, TensorId logits) {
  const TensorId wide = WidenLogits(b, logits);
  if (b.job().distillation->teaches) return;
  const TensorId shifted = b.View("loss.logits.shifted", wide, b.Size(Symbol::kV));
  b.Then("loss.logits.shifted", {wide}, {shifted}, {});
  Divergence(b, b.block().tensors[wide].dtype).Lower(shifted);
}

}  // namespace plimsoll
