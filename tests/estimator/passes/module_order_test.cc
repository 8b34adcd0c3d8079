// Which weights a network has, and in which order its modules run.
#include "estimator/passes/module_order.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "estimator/catalog/model.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

constexpr int64_t kLayers = 4;  // SmallJob()'s

Program ProgramFor(const JobSpec& job) { return ProgramAfter(Valid(job), PassId::kOptimizer); }

JobSpec Job() { return With(SmallJob(), "deepspeed", "bf16-mixed"); }

// Table, nine weights in each layer, last norm, head; a shared table once.
TEST(ModuleOrderTest, HasEachWeightOnceInTheModelsOrder) {
  JobSpec job = Job();
  const Network apart = ReadNetwork(ProgramFor(job).blocks, kLayers);
  ASSERT_EQ(apart.weights.size(), 1u + 9 * kLayers + 2);
  EXPECT_EQ(apart.blocks.size(), static_cast<size_t>(kLayers) + 2);
  EXPECT_EQ(apart.weights.front().elements, 256 * 64);
  EXPECT_EQ(apart.weights.back().elements, 256 * 64);
  int64_t elements = 0;
  for (const Weight& weight : apart.weights) {
    elements += weight.elements;
    EXPECT_EQ(weight.bytes, 2 * weight.elements);
    EXPECT_TRUE(weight.trained);
  }
  EXPECT_EQ(elements, CountParameters(*Valid(job)->model));
  Shape(job).tied_embeddings = true;
  const Network shared = ReadNetwork(ProgramFor(job).blocks, kLayers);
  EXPECT_EQ(shared.weights.size(), apart.weights.size() - 1);
  EXPECT_EQ(shared.blocks.back().back().weights.front(), 0) << "the head reads it";
}

int64_t VisitsOf(const std::vector<Visit>& order, int32_t weight, bool backward) {
  return std::count_if(order.begin(), order.end(), [&](const Visit& visit) {
    return visit.backward == backward &&
           std::find(visit.module.begin(), visit.module.end(), weight) != visit.module.end();
  });
}

// Once forward and once backward; a layer that runs again is met once more, in its backward's turn.
TEST(ModuleOrderTest, LayersThatRunAgainAreMetAgain) {
  for (const char* mode : {"none", "full"}) {
    JobSpec job = Job();
    job.training.recompute.mode = mode;
    const Program program = ProgramAfter(Valid(job), PassId::kRecompute);
    const Network network = ReadNetwork(program.blocks, kLayers);
    const std::vector<Visit> order = OrderOf(program.blocks, network);
    const bool again = job.training.recompute.mode == "full";
    EXPECT_EQ(VisitsOf(order, 0, false), 1) << mode;
    EXPECT_EQ(VisitsOf(order, 3, false), again ? 2 : 1) << mode;
    EXPECT_EQ(VisitsOf(order, 3, true), 1) << mode;
    EXPECT_EQ(order.front().turn, 0u);
    EXPECT_EQ(order.back().turn, 2 * (kLayers + 2) - 1);
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end(), [](const Visit& a, const Visit& b) {
      return a.turn < b.turn;
    })) << mode;
  }
}

// A head whose weights the loss reads runs no module: they are the model's, which is around all
// others, backward at first and then forward too; what runs forward alone lets them go at its end.
TEST(ModuleOrderTest, AHeadThatIsReadIsTheModels) {
  const Program program = ProgramFor(Job());
  const Network network = ReadNetwork(program.blocks, kLayers);
  const int32_t head = network.blocks.back().back().weights.front();
  ASSERT_TRUE(network.blocks.back().back().head);
  const auto words = [head](const std::vector<Visit>& order) {
    std::string text;
    for (const Visit& visit : order) {
      if (std::find(visit.module.begin(), visit.module.end(), head) == visit.module.end()) continue;
      const char* what = visit.reads ? "read" : visit.stays ? "stays" : "runs";
      text += absl::StrCat(text.empty() ? "" : ", ", visit.turn, " ", what);
    }
    return text;
  };
  const auto order = [&](HeadUse use) { return words(OrderOf(program.blocks, network, use)); };
  EXPECT_EQ(order(HeadUse::kCalled), "5 runs, 6 runs");
  EXPECT_EQ(order(HeadUse::kFirstRead), "5 read, 6 stays");
  EXPECT_EQ(order(HeadUse::kRead), "0 stays, 5 read, 6 stays");
  EXPECT_EQ(words(ForwardOrderOf(network, HeadUse::kFirstRead)), "5 read");
  EXPECT_EQ(words(ForwardOrderOf(network, HeadUse::kRead)), "0 stays, 5 read, 5 runs");
}

// The table of the embedding is read last of all, and the head's first in backward.
TEST(ModuleOrderTest, GradientsComeFromTheHeadToTheTable) {
  const Program program = ProgramFor(Job());
  const Network network = ReadNetwork(program.blocks, kLayers);
  const std::vector<Visit> order = OrderOf(program.blocks, network);
  std::vector<size_t> turns;
  std::vector<size_t> ids;
  ForEachGradient(network, order, [&](size_t id, size_t turn) {
    ids.push_back(id);
    turns.push_back(turn);
  });
  EXPECT_EQ(ids.size(), network.weights.size()) << "each once";
  EXPECT_EQ(ids.back(), 0u);
  EXPECT_TRUE(std::is_sorted(turns.begin(), turns.end()));
  EXPECT_EQ(turns.front(), static_cast<size_t>(kLayers + 2)) << "the head's backward";
  EXPECT_EQ(turns.back(), static_cast<size_t>(2 * (kLayers + 2) - 1));
}

}  // namespace
}  // namespace plimsoll
