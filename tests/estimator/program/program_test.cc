// Shapes in symbols and numbers, and when in a step something is alive.
#include "estimator/program/program.h"

#include "gtest/gtest.h"

namespace plimsoll {
namespace {

Shape Make(std::initializer_list<Extent> extents) {
  Shape shape;
  for (const Extent& extent : extents) shape.extents[shape.rank++] = extent;
  return shape;
}

Extent Of(Symbol symbol, int64_t size, int32_t times = 1) {
  return {.size = size, .times = times, .symbol = symbol};
}

TEST(ShapeTest, IsWrittenInSymbolsAndNumbers) {
  Shape shape = Make({Of(Symbol::kB, 1), Of(Symbol::kS, 2048), Of(Symbol::kH, 12288, 3)});
  EXPECT_EQ(InSymbols(shape), "[B, S, 3H]");
  EXPECT_EQ(InNumbers(shape), "[1, 2048, 12288]");
  shape.extents[1].Divide(4, Split::kTensor);
  shape.extents[2].Divide(8, Split::kChunk);
  EXPECT_EQ(InSymbols(shape), "[B, S/tp, 3H/chunks]");
  shape.extents[1].Divide(1, Split::kContext);
  EXPECT_EQ(InSymbols(shape), "[B, S/cp/tp, 3H/chunks]");
  EXPECT_EQ(InNumbers(shape), "[1, 512, 1536]");
}

// What has no symbol is its number: two statistics are not "21".
TEST(ShapeTest, ASymbolForEachExtent) {
  constexpr std::pair<Symbol, const char*> kSymbols[] = {
      {Symbol::kB, "[B]"},  {Symbol::kS, "[S]"}, {Symbol::kH, "[H]"}, {Symbol::kE, "[E]"},
      {Symbol::kF, "[F]"},  {Symbol::kA, "[A]"}, {Symbol::kC, "[C]"}, {Symbol::kN, "[N]"},
      {Symbol::kD, "[D]"},  {Symbol::kV, "[V]"}, {Symbol::kP, "[P]"}, {Symbol::kT, "[T]"},
      {Symbol::kOne, "[2]"}};
  for (const auto& [symbol, text] : kSymbols) EXPECT_EQ(InSymbols(Make({Of(symbol, 2)})), text);
  EXPECT_EQ(InSymbols(Shape()), "[]");
}

// What does not divide is rounded up: the largest rank's part.
TEST(ShapeTest, TheLocalPartIsRoundedUp) {
  Extent extent = Of(Symbol::kV, 50257);
  extent.Divide(8, Split::kTensor);
  EXPECT_EQ(extent.Local(), 6283);
  extent.Divide(4, Split::kChunk);
  EXPECT_EQ(extent.Local(), 1571) << "as of one split into 32";
}

TEST(ShapeTest, ElementsMultiplyAndStop) {
  EXPECT_EQ(Shape().Elements(), 1) << "a scalar";
  EXPECT_EQ(Make({Of(Symbol::kB, 2), Of(Symbol::kS, 3), Of(Symbol::kH, 5)}).Elements(), 30);
  constexpr int64_t kLarge = int64_t{1} << 27;
  EXPECT_EQ(Make({Of(Symbol::kB, kLarge), Of(Symbol::kN, kLarge), Of(Symbol::kS, kLarge),
                  Of(Symbol::kS, kLarge)})
                .Elements(),
            kSaturated);
}

// A bit for each phase of each step, none shared.
TEST(AliveTest, EachPhaseOfEachStepIsItsOwn) {
  Alive seen = 0;
  for (const bool first : {true, false}) {
    for (size_t phase = 0; phase < kPhaseCount; ++phase) {
      const Alive bit = Bit(static_cast<Phase>(phase), first);
      EXPECT_NE(bit, 0);
      EXPECT_EQ(seen & bit, 0);
      seen |= bit;
    }
  }
  EXPECT_EQ(seen, kAlways);
}

TEST(AliveTest, DuringIsFromOnePhaseToAnother) {
  constexpr Alive kLossToBackward = During(Phase::kLoss, Phase::kBackward, false, true);
  EXPECT_EQ(kLossToBackward, Bit(Phase::kLoss, false) | Bit(Phase::kBackward, false));
  EXPECT_EQ(During(Phase::kForward, Phase::kEndOfStep, false, false), 0);
  EXPECT_EQ(During(Phase::kOptimizer, Phase::kOptimizer, true, true),
            Bit(Phase::kOptimizer, true) | Bit(Phase::kOptimizer, false));
}

// What holds a tensor until an op is done knows it by its place.
TEST(BlockTest, WhatHoldsLongestDecides) {
  Block block;
  const TensorId id = AddTensor(block, {.name = "t"});
  HoldUntil(block, id, 3);
  EXPECT_EQ(block.tensors[id].held_until, 3);
  HoldUntil(block, id, 7);
  HoldUntil(block, id, 5);
  EXPECT_EQ(block.tensors[id].held_until, 7);
}

TEST(BlockTest, AnOpIsInsertedBeforeAnother) {
  Block block;
  block.tensors = {{.name = "early", .held_until = 0}, {.name = "late", .held_until = 1}, {}};
  block.ops = {{.name = "first"}, {.name = "second"}};
  InsertOp(block, 1, {.name = "between"});
  EXPECT_EQ(block.ops[1].name, "between");
  EXPECT_EQ(block.ops[2].name, "second");
  EXPECT_EQ(block.tensors[0].held_until, 0);
  EXPECT_EQ(block.tensors[1].held_until, 2);
  EXPECT_EQ(block.tensors[2].held_until, 255) << "nothing holds it";
}

}  // namespace
}  // namespace plimsoll
