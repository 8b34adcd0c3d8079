// What a pair does, in its order: each rule of the step once, in words.
#include "estimator/step/plan.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/hand_program.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

std::string PlanOf(const Program& program, const Stage& stage) {
  return Describe(program, PlanPair(program, stage));
}

// The layers are those of `layers`; the others are a kind of their own.
void Part(Program& program, const LayerSet& layers, absl::string_view others) {
  program.blocks[1].layers = layers;
  Block other = program.blocks[1];
  other.name = others;
  other.layers = Others(layers);
  program.blocks.push_back(other);
}

TEST(PlanTest, LayersThatAreAlikeAreOneLoop) {
  const Program program = HandProgram(7);
  EXPECT_EQ(PlanOf(program, program.stages[0]),
            "begin forward\n"
            "gather embedding, forward embedding\n"
            "7 times: gather layer, forward layer\n"
            "begin loss\n"
            "gather head, forward head\n"
            "send\n"
            "begin loss\n"
            "gather head, backward head, grow head\n"
            "begin backward\n"
            "7 times: gather layer, backward layer, grow layer\n"
            "gather embedding, backward embedding, grow embedding\n");
}

TEST(PlanTest, StagesInBetweenReceiveBothWays) {
  const Program program = HandProgram(4);
  Stage stage = program.stages[0];
  stage.embedding = stage.head = false;
  EXPECT_EQ(PlanOf(program, stage),
            "begin forward\n"
            "receive\n"
            "4 times: gather layer, forward layer\n"
            "send\n"
            "begin backward\n"
            "receive\n"
            "4 times: gather layer, backward layer, grow layer\n");
  stage.layer_count = stage.virtual_stages[0].count = 0;
  EXPECT_EQ(PlanOf(program, stage), "begin forward\nsend\n");
}

// Kinds that take turns repeat together; what is left of a period comes by itself, behind it
// forward and before it backward.
TEST(PlanTest, KindsThatTakeTurnsRepeatTogether) {
  Program program = HandProgram(8);
  Part(program, {.period = 3, .from = 1, .to = 3}, "other");
  Stage stage = program.stages[0];
  stage.embedding = stage.head = false;
  const std::string forward =
      "gather other, forward other, gather layer, forward layer, gather layer, forward layer\n";
  const std::string last = "gather other, forward other, gather layer, forward layer\n";
  EXPECT_NE(PlanOf(program, stage).find(absl::StrCat("2 times: ", forward, last)),
            std::string::npos);
  const std::string back = "gather layer, backward layer, grow layer, ";
  const std::string turn = "gather other, backward other, grow other\n";
  EXPECT_NE(PlanOf(program, stage).find(absl::StrCat(back, turn, "2 times: ", back, back, turn)),
            std::string::npos);
}

// Layers before a place are of one kind, those behind it of another.
TEST(PlanTest, KindsThatChangeOnceAreTwoLoops) {
  Program program = HandProgram(6);
  Part(program, {.begin = 2}, "first");
  const std::string text = PlanOf(program, program.stages[0]);
  EXPECT_NE(text.find("2 times: gather first, forward first\n"
                      "4 times: gather layer, forward layer\n"),
            std::string::npos);
  EXPECT_NE(text.find("4 times: gather layer, backward layer, grow layer\n"
                      "2 times: gather first, backward first, grow first\n"),
            std::string::npos);
}

// A stage counts its layers from its own first; which kind each is says the network.
TEST(PlanTest, AStageHasTheKindsOfItsOwnLayers) {
  Program program = HandProgram(6);
  Part(program, {.begin = 4}, "first");
  Stage stage = program.stages[0];
  stage.embedding = stage.head = false;
  stage.virtual_stages = {{3, 3}};
  stage.layer_count = 3;
  const Plan plan = PlanPair(program, stage);
  EXPECT_NE(PlanOf(program, stage)
                .find("gather first, forward first\n"
                      "2 times: gather layer, forward layer\n"),
            std::string::npos);
  std::vector<int32_t> names;
  for (const StageBlock& at : BlocksOf(plan)) names.push_back(at.layer);
  EXPECT_EQ(names, (std::vector<int32_t>{0, 1, 2}));
}

// Of layers that are recomputed together all run once more before the last goes backward.
TEST(PlanTest, AUnitRunsOnceMoreAsAWhole) {
  Program program = HandProgram(5);
  program.blocks[1].recompute_unit = 2;
  Stage stage = program.stages[0];
  stage.embedding = stage.head = false;
  EXPECT_NE(PlanOf(program, stage)
                .find("gather layer, again layer, backward layer, grow layer\n"
                      "2 times: gather layer, again layer, again layer, backward layer, grow "
                      "layer, gather layer, backward layer, grow layer\n"),
            std::string::npos);
  const Plan plan = PlanPair(program, stage);
  std::vector<int> opened;
  plan.forward.ForEach([&](const Slot& slot) {
    if (slot.kind == SlotKind::kForward && slot.opens) opened.push_back(slot.at.layer);
  });
  EXPECT_EQ(opened, (std::vector<int>{0, 2, 4}));
  std::vector<int> closed;
  plan.backward.ForEach([&](const Slot& slot) {
    if (slot.kind == SlotKind::kBackward && slot.closes) closed.push_back(slot.at.layer);
  });
  EXPECT_EQ(closed, (std::vector<int>{4, 3, 1}));
}

TEST(PlanTest, WhatIsReducedIsCopiedBeforeItGrows) {
  Program program = HandProgram(1);
  program.blocks[1].reduce_bytes = 1;
  EXPECT_NE(PlanOf(program, program.stages[0])
                .find("gather layer, backward layer, reduce layer, grow layer\n"),
            std::string::npos);
}

// The reference's embedding and layers end together, before its head runs.
// Of one group the head's gradients go with the embedding's, where both are on the stage.
TEST(PlanTest, EndsOfOneGroupAreSentTogether) {
  Program program = HandProgram(1);
  program.ends_are_one_group = true;
  program.blocks.front().reduce_bytes = 100;
  const std::string plan = PlanOf(program, program.stages[0]);
  EXPECT_NE(plan.find("gather head, backward head\n"), std::string::npos) << plan;
  EXPECT_NE(plan.find("gather embedding, backward embedding, reduce embedding, grow head, grow "
                      "embedding\n"),
            std::string::npos)
      << plan;
  Stage stage = program.stages[0];
  stage.embedding = false;
  EXPECT_NE(PlanOf(program, stage).find("backward head, grow head"), std::string::npos);
}

TEST(PlanTest, TheReferenceRunsBehindTheHead) {
  Program program = HandProgram(3);
  program.reference = program.blocks;
  EXPECT_NE(PlanOf(program, program.stages[0])
                .find("begin loss\n"
                      "gather head, forward head\n"
                      "gather reference's embedding, forward reference's embedding\n"
                      "3 times: gather reference's layer, forward reference's layer\n"
                      "end reference's embedding\n"
                      "gather reference's head, forward reference's head\n"
                      "3 times: end reference's layer\n"
                      "end reference's head\n"
                      "send\n"),
            std::string::npos);
}

// However many layers there are, a plan is as long.
TEST(PlanTest, IsAsLongAsWhatDiffers) {
  const Program program = HandProgram(5000);
  const Plan plan = PlanPair(program, program.stages[0]);
  EXPECT_LT(plan.forward.slots.size() + plan.backward.slots.size(), 25u);
  int64_t layers = 0;
  plan.backward.ForEach([&](const Slot& slot) {
    if (slot.kind == SlotKind::kBackward && slot.at.layer >= 0) ++layers;
  });
  EXPECT_EQ(layers, 5000);
}

}  // namespace
}  // namespace plimsoll
