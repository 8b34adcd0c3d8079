// Adapters that are added to weights, in words.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/estimator/passes/adapted.h"

namespace plimsoll {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

JobSpec ExpertJob(std::vector<std::string> targets) {
  JobSpec job = AdapterJob(std::move(targets));
  Shape(job).expert_count = 8;
  Shape(job).active_expert_count = 2;
  Shape(job).expert_ffn_size = 32;
  return job;
}

// Experts' adapters are of all of them, with a rank for each of two products that are one; what is
// multiplied is a tensor as large as the weights, which backward needs.
TEST(AdapterWeightTest, ThoseOfExpertsAreAddedToTheirWeights) {
  const Program program = AfterAdapters(ExpertJob({"gate_proj", "up_proj", "down_proj"}));
  const Block& layer = FindBlock(program, "layer");
  EXPECT_THAT(
      Trained(layer),
      ElementsAre("experts.gate_up.adapter.down.weight", "experts.gate_up.adapter.up.weight",
                  "experts.down.adapter.down.weight", "experts.down.adapter.up.weight"));
  const auto numbers = [&layer](absl::string_view name) {
    return InNumbers(FindParameter(layer, name).shape);
  };
  EXPECT_EQ(numbers("experts.gate_up.adapter.down.weight"), "[64, 64]");  // 8 experts x 2 x 4
  EXPECT_EQ(numbers("experts.gate_up.adapter.up.weight"), "[64, 64]");
  EXPECT_EQ(numbers("experts.down.adapter.down.weight"), "[32, 32]");
  EXPECT_THAT(Saved(layer), Contains("experts.gate_up.adapter.whole"));
  EXPECT_EQ(FindTensor(layer, "experts.gate_up.adapter.whole").Bytes(), 8 * 64 * 64 * 2);
  EXPECT_EQ(HeldUntil(layer, "experts.down.adapter.whole"), "experts.sum");
}

// `all-linear` is the router's too; in some classes it is of modules alone.
TEST(AdapterWeightTest, AllLinearOfExpertsIsAsTheClassHasIt) {
  JobSpec job = ExpertJob({"all-linear"});
  EXPECT_EQ(Trained(FindBlock(AfterAdapters(job), "layer")).size(), 8u + 6u);
  Transformer model = *Valid(job)->model;
  model.experts.words = ExpertWords::kNone;
  job.model.source = std::make_shared<const Transformer>(model);
  EXPECT_EQ(Trained(FindBlock(AfterAdapters(job), "layer")).size(), 8u);
}

}  // namespace
}  // namespace plimsoll
