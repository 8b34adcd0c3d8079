// What of a block is dropped where weights are frozen.
#include "estimator/passes/unread.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/estimator/passes/adapted.h"

namespace plimsoll {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;

Block FrozenLayer(const ValidJob& job) {
  Block layer = FindBlock(Lowered(job), "layer");
  for (Parameter& parameter : layer.parameters) parameter.frozen = true;
  return layer;
}

// Products of DeepSpeed's ZeRO 3 are a function of its own, which keeps what it reads.
TEST(UnreadTest, ProductsOfZero3KeepWhatTheyRead) {
  for (const int64_t stage : {2, 3}) {
    JobSpec spec = With(SmallJob(), "deepspeed", "bf16-mixed");
    spec.parallelism.zero_stage = stage;
    const ValidJob job = Valid(spec);
    Block layer = FrozenLayer(job);
    DropUnread(*job, layer);
    if (stage == 3) {
      EXPECT_THAT(Saved(layer), Contains("mlp.norm"));
    } else {
      EXPECT_THAT(Saved(layer), Not(Contains("mlp.norm")));
    }
    EXPECT_FALSE(Trains(layer));
  }
}

// Where nothing leads to anything trained nothing is kept, whoever multiplies.
TEST(UnreadTest, WhatLeadsNowhereKeepsNothing) {
  JobSpec spec = With(SmallJob(), "deepspeed", "bf16-mixed");
  spec.parallelism.zero_stage = 3;
  const ValidJob job = Valid(spec);
  Block layer = FrozenLayer(job);
  layer.tensors[layer.input].differentiable = false;
  DropUnread(*job, layer);
  EXPECT_THAT(Saved(layer), IsEmpty());
  EXPECT_FALSE(layer.tensors[layer.output].differentiable);
}

// The first layer that trains is apart, and those below it are.
TEST(UnreadTest, FirstLayersAreApart) {
  const ValidJob job = Valid(With(SmallJob(), "ddp", "bf16-pure"));
  Program program = Lowered(job);
  SplitFirstLayers(*job, program, program.blocks.size());
  const Block& first = FindBlock(program, "first layer");
  EXPECT_EQ(first.layers.CountOf(4), 1);
  EXPECT_FALSE(first.tensors[first.input].differentiable);
  EXPECT_EQ(FindBlock(program, "layer").layers.CountOf(4), 3);
}

}  // namespace
}  // namespace plimsoll
