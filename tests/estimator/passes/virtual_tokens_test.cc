// Virtual tokens, in words and by hand: what is trained, how sequences grow, what is held.
#include "estimator/passes/virtual_tokens.h"

#include "estimator/answer/estimate.h"
#include "estimator/program/parameter_sums.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/estimator/passes/adapted.h"

namespace plimsoll {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

// Five of them before each sequence of 32.
JobSpec PromptJob(const char* method) {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  job.training.adapter.method = method;
  job.training.adapter.virtual_token_count = 5;
  return job;
}

TEST(VirtualTokensTest, LayersSeeAPromptAndTheData) {
  const Program program = AfterAdapters(PromptJob("prompt-tuning"));
  const Block& embedding = FindBlock(program, "embedding");
  EXPECT_THAT(Trained(embedding), ElementsAre("virtual.tokens.weight"));
  const auto numbers = [&](absl::string_view name) {
    return InNumbers(FindTensor(embedding, name).shape);
  };
  EXPECT_EQ(numbers("embedding.sum"), "[2, 32, 64]");
  EXPECT_EQ(numbers("virtual.tokens"), "[1, 5, 64]");
  EXPECT_EQ(numbers("prompt.cast"), "[2, 5, 64]");
  EXPECT_EQ(numbers("prompt.sequence"), "[2, 37, 64]");
  EXPECT_FALSE(FindTensor(embedding, "embedding.sum").differentiable);
  EXPECT_TRUE(FindTensor(embedding, "prompt.sequence").differentiable);
  const Block& layer = FindBlock(program, "layer");
  EXPECT_EQ(InNumbers(FindTensor(layer, "layer.input").shape), "[2, 37, 64]");
  EXPECT_THAT(Trained(layer), IsEmpty());
  EXPECT_THAT(Saved(layer), Not(Contains("attention.norm"))) << "no frozen matrix needs its input";
  EXPECT_THAT(Saved(layer), Contains("attention.norm.upcast")) << "gradients lead to the prompt";
}

// TRL's head reads what predicts a token of the data: the last virtual one does.
TEST(VirtualTokensTest, VirtualTokensPredictNothing) {
  JobSpec job = PromptJob("prompt-tuning");
  job.runtime.trainer = "trl";
  EXPECT_EQ(InNumbers(FindTensor(FindBlock(ProgramOf(job), "head"), "head.tokens").shape),
            "[64, 64]");
}

// Peft's own count: (5 x 64) + (64 x 24 + 24) + (24 x 24 + 24) + (24 x 64 + 64).
TEST(VirtualTokensTest, AnMlpEncodesThoseOfPTuning) {
  JobSpec job = PromptJob("p-tuning");
  job.training.adapter.encoder_hidden_size = 24;
  const Program program = ProgramOf(job);
  EXPECT_EQ(SumParameters(program, program.stages.front()).parameters, 320 + 1560 + 600 + 1600);
  EXPECT_THAT(Saved(FindBlock(program, "embedding")), Contains("virtual.encoder.0.activated"));
  job.training.adapter.encoder_hidden_size.reset();
  EXPECT_EQ(Valid(job)->adapter->encoder_hidden_size, 64);
}

// Keys and values of four layers, 32 wide, behind those of the prefix; a mask of its own.
TEST(VirtualTokensTest, APrefixIsKeysAndValues) {
  JobSpec job = PromptJob("prefix-tuning");
  const Program program = ProgramOf(job);
  EXPECT_EQ(SumParameters(program, program.stages.front()).parameters, 5 * 4 * 2 * 32);
  const Block& layer = FindBlock(program, "layer");
  EXPECT_EQ(InNumbers(FindTensor(layer, "layer.input").shape), "[2, 32, 64]");
  EXPECT_EQ(InNumbers(FindTensor(layer, "attention.key.cached").shape), "[2, 37, 32]");
  EXPECT_EQ(InNumbers(FindTensor(layer, "attention.mask").shape), "[2, 32, 40]");
  EXPECT_THAT(Saved(layer), Contains("attention.key.expanded"));
  const State* const cache = FindState(program, "prefix.cache");
  ASSERT_NE(cache, nullptr);
  EXPECT_EQ(cache->fixed_bytes, 2 * 2 * 37 * 32 * 2);
  job.training.adapter.prefix_projection = true;
  const Program projected = ProgramOf(job);
  EXPECT_EQ(SumParameters(projected, projected.stages.front()).parameters,
            5 * 32 + (32 * 32 + 32) + (32 * 256 + 256));
}

// Heads with keys of their own keep what the cache has; those of a prompt hold no more than is
// kept where layers run again.
TEST(VirtualTokensTest, WhatIsKeptAnywayIsHeldOnce) {
  JobSpec job = PromptJob("prefix-tuning");
  Shape(job).kv_head_count = Shape(job).head_count;
  EXPECT_EQ(FindState(ProgramOf(job), "prefix.cache"), nullptr);
  job = PromptJob("prompt-tuning");
  EXPECT_EQ(FindState(ProgramOf(job), "prompt.held")->fixed_bytes, 2 * (37 + 5) * 64 * 2);
  job.training.recompute.mode = "full";
  EXPECT_EQ(FindState(ProgramOf(job), "prompt.held")->fixed_bytes, 2 * 5 * 64 * 2);
}

}  // namespace
}  // namespace plimsoll
