// Heads that predict no tokens, lowered: what is scored and kept, and what it costs.
#include "estimator/program/lower_scores.h"

#include <string>
#include <utility>
#include <vector>

#include "estimator/time/block_time.h"
#include "estimator/time/step_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

JobSpec Headed(const char* head, const char* placement = "pre") {
  JobSpec job = SmallJob();
  Shape(job).head = head;
  Shape(job).norm_placement = placement;
  Shape(job).norm = "layer-norm";
  Shape(job).hidden_dropout = 0.1;
  return job;
}

std::vector<std::string> Ops(const JobSpec& job) {
  const Program program = Lowered(Valid(job));
  std::vector<std::string> names;
  for (const Op& op : FindBlock(program, "head").ops) names.emplace_back(op.name);
  return names;
}

TEST(LowerScoresTest, EachHeadHasItsOps) {
  EXPECT_THAT(Ops(Headed("sequence-classification")),
              ElementsAre("final.norm", "head.scores", "head.pooled.scores", "loss"));
  EXPECT_THAT(Ops(Headed("sequence-classification", "post")),
              ElementsAre("head.pooler", "head.pooled", "head.dropout", "head.scores", "loss"));
  EXPECT_THAT(Ops(Headed("token-classification")),
              ElementsAre("final.norm", "head.dropout", "head.scores", "loss.scores",
                          "loss.log_softmax", "loss"));
  EXPECT_THAT(Ops(Headed("question-answering")),
              ElementsAre("final.norm", "head.scores", "loss.scores", "loss.log_softmax", "loss"));
  EXPECT_THAT(Ops(Headed("none")), ElementsAre("final.norm", "head.pooled", "loss"));
  EXPECT_THAT(Ops(Headed("none", "post")), ElementsAre("head.pooler", "head.pooled", "loss"));
}

// Under autocast the residual is fp32: what a product reads is cast, of all tokens or
// of each sequence's first alone.
TEST(LowerScoresTest, AutocastCastsWhatIsRead) {
  const auto ops = [](const char* head, const char* placement) {
    JobSpec job = Headed(head, placement);
    job.training.precision.preset = "bf16-autocast";
    return Ops(job);
  };
  EXPECT_THAT(ops("sequence-classification", "pre"), ::testing::Contains("head.input.cast"));
  EXPECT_THAT(ops("sequence-classification", "post"), ::testing::Contains("head.first"));
}

TEST(LowerScoresTest, ShapesAreThoseOfTheLabels) {
  JobSpec job = Headed("token-classification");
  Shape(job).label_count = 5;
  const Program program = Lowered(Valid(job));
  const Block& head = FindBlock(program, "head");
  EXPECT_EQ(InNumbers(FindParameter(head, "head.scores.weight").shape), "[5, 64]");
  EXPECT_EQ(InNumbers(FindParameter(head, "head.scores.bias").shape), "[5]");
  EXPECT_EQ(InNumbers(FindTensor(head, "head.scores").shape), "[2, 32, 5]");
  EXPECT_EQ(InNumbers(FindTensor(head, "head.dropout.mask").shape), "[2, 32, 64]");
}

// The program holds the parameters that the count says, whatever the head.
TEST(LowerScoresTest, LowersTheParametersThatAreCounted) {
  for (const char* const head :
       {"language-model", "masked-language-model", "sequence-classification",
        "token-classification", "question-answering", "none"}) {
    for (const char* const placement : {"pre", "post"}) {
      const JobSpec job = Headed(head, placement);
      const ValidJob valid = Valid(job);
      EXPECT_EQ(Estimate(job).ranks[0].parameter_count, CountParameters(*valid->model))
          << head << " " << placement;
    }
  }
}

// An 8B reward model was charged the loss of a language model, 12 bytes a logit.
TEST(LowerScoresTest, ARewardModelHasNoLogits) {
  JobSpec job = SmallJob();
  Shape(job).vocab_size = 128256;
  const auto loss = [&job] {
    const Program program = Lowered(Valid(job));
    const BlockRun run =
        plimsoll::Run(FindBlock(program, "head"), WeightGradient::kFused, DType::kBf16);
    return run.backward.whole.roles[static_cast<size_t>(Role::kLoss)];
  };
  EXPECT_GT(loss(), int64_t{11} * 2 * 32 * 128256);
  Shape(job).head = "sequence-classification";
  Shape(job).label_count = 1;
  EXPECT_LT(loss(), int64_t{1} * 2 * 32 * 8);
}

// A product of what is pooled takes the sequences, one of the tokens all of them.
TEST(LowerScoresTest, PooledProductsCountSequences) {
  const auto flops = [](const char* placement) {
    JobSpec job = Headed("sequence-classification", placement);
    Shape(job).label_count = 3;
    const ValidJob valid = Valid(job);
    const ModelCost cost =
        CostOf(valid, BlocksProgram(valid), SpeedOf(SmallCatalog().speed, *valid));
    for (const BlockCost& block : cost.blocks) {
      if (block.place.kind == BlockKind::kHead) return block.time.model_flops;
    }
    return -1.0;
  };
  EXPECT_EQ(flops("pre"), 2.0 * (2 * 32) * 3 * 64);
  EXPECT_EQ(flops("post"), 2.0 * 2 * (64 * 64 + 3 * 64));
}

}  // namespace
}  // namespace plimsoll
