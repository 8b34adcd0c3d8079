// The end of a student's network, by hand: numbers as wide as the vocabulary, of all tokens but
// each sequence's last, that the loss keeps and that stand while it runs. Source: trl 1.16,
// experimental/gkd/gkd_trainer.py, generalized_jsd_loss, line by line.
#include "estimator/program/lower_distillation.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "estimator/step/ledger.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

// Whole numbers of L = B (S - 1) V.
struct Case {
  double jsd_beta;
  int64_t kept;  // by autograd
  int64_t peak;  // as the loss runs, beside both networks' logits
};
constexpr Case kCases[] = {
    // log-softmax, both stacked (2), their mixture, two exponentials, a difference. At the peak
    // both scaled logits, both log-softmaxes, stack, mixture, the teacher's exponential and
    // divergence, the student's with its difference, two weighed divergences and their sum.
    {.jsd_beta = 0.5, .kept = 7, .peak = 15},
    // log-softmax, the teacher's exponential. Both scaled, both log-softmaxes, the exponential, the
    // divergence, and those of it that are picked.
    {.jsd_beta = 0, .kept = 2, .peak = 7},
    // log-softmax, the student's exponential, the difference; the same, and the difference.
    {.jsd_beta = 1, .kept = 3, .peak = 8},
};
constexpr int64_t kB = 3;
constexpr int64_t kS = 33;
constexpr int64_t kV = 128256;  // SmallCatalog's Llama
constexpr int64_t kNumbers = kB * (kS - 1) * kV;

JobSpec JobOf(double jsd_beta, absl::string_view preset = "fp32") {
  JobSpec job = With(SmallJob(), "ddp", preset);
  job.runtime.trainer = "trl";
  Shape(job).vocab_size = kV;
  job.training.sequence_length = kS;
  job.training.micro_batch_size = kB;
  job.training.global_batch_size = kB * job.cluster.gpu_count.value_or(1);
  job.training.distillation.teacher = "llama-3.1-8b";
  job.training.distillation.jsd_beta = jsd_beta;
  return job;
}

int64_t WideKept(const Block& head) {
  int64_t bytes = 0;
  std::vector<TensorId> seen;
  for (const Op& op : head.ops) {
    for (const TensorId id : op.saved) {
      const Tensor& tensor = head.tensors[id];
      const bool wide = tensor.role == Role::kLoss && tensor.shape.Elements() >= kNumbers;
      if (!wide || std::find(seen.begin(), seen.end(), id) != seen.end()) continue;
      seen.push_back(id);
      bytes += tensor.Bytes();
    }
  }
  return bytes;
}

TEST(LowerDistillationTest, KeepsSoManyNumbersOfEachLogit) {
  for (const Case& at : kCases) {
    const Block head = FindBlock(ProgramOf(JobOf(at.jsd_beta)), "head");
    EXPECT_EQ(WideKept(head), at.kept * 4 * kNumbers) << at.jsd_beta;
  }
}

// Beside them stand the student's own logits, of all tokens, and what is as wide as the model.
TEST(LowerDistillationTest, SoManyStandAsTheLossRuns) {
  for (const Case& at : kCases) {
    const Block head = FindBlock(ProgramOf(JobOf(at.jsd_beta)), "head");
    const BlockRun run = plimsoll::Run(head, WeightGradient::kKept, DType::kFp32);
    const int64_t wide = 4 * (at.peak * kNumbers + kB * kS * kV);
    EXPECT_GE(run.forward.total, wide) << at.jsd_beta;
    EXPECT_LT(run.forward.total, wide + 4 * kNumbers / 8) << at.jsd_beta;
  }
}

// Autocast's class gives fp32, and the loss is computed so; without it all is in the weights'
// dtype.
TEST(LowerDistillationTest, NumbersAreInTheLogitsDtype) {
  const Block pure = FindBlock(ProgramOf(JobOf(0.5, "bf16-pure")), "head");
  EXPECT_EQ(WideKept(pure), 7 * 2 * kNumbers);
  const Block autocast = FindBlock(ProgramOf(JobOf(0.5, "bf16-autocast")), "head");
  EXPECT_EQ(WideKept(autocast), 7 * 4 * kNumbers);
}

// What the teacher gives has no gradient, and of its head nothing is left but the logits.
TEST(LowerDistillationTest, ATeacherGivesLogits) {
  const Program program = ProgramOf(JobOf(0.5));
  const Block& head = program.reference.back();
  ASSERT_EQ(head.kind, BlockKind::kHead);
  EXPECT_EQ(WideKept(head), 4 * kB * kS * kV);
  for (const Tensor& tensor : head.tensors) EXPECT_NE(tensor.name, "loss");
  const Block student = FindBlock(program, "head");
  for (const Tensor& tensor : student.tensors) {
    if (tensor.name == "loss.teacher.scaled" || tensor.name == "loss.teacher.log_softmax") {
      EXPECT_FALSE(tensor.differentiable) << tensor.name;
    }
  }
}

}  // namespace
}  // namespace plimsoll
