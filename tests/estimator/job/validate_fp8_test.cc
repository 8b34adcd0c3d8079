// Every rule of matrix products in fp8, and what stands beside them.
#include "estimator/job/job.h"
#include "gtest/gtest.h"
#include "tests/testing/refusals.h"

namespace plimsoll {
namespace {

JobSpec Job() {
  JobSpec job = With(SmallJob(), "megatron-core", "fp8-mixed");
  job.training.precision.fp8_recipe = "tensorwise";
  job.cluster.gpu = "h100-80gb-sxm";
  return job;
}

TEST(ValidateFp8Test, ReadsTheRecipe) {
  const ValidJob job = Valid(Job());
  ASSERT_TRUE(job->fp8.has_value());
  EXPECT_EQ(job->fp8->recipe, Fp8Recipe::kTensorwise);
  EXPECT_FALSE(job->fp8->parameters);
  EXPECT_EQ(job->precision.parameter, DType::kBf16);
  EXPECT_EQ(job->precision.accumulation, DType::kFp32);
  EXPECT_EQ(job->precision.master, DType::kFp32);
}

TEST(ValidateFp8Test, ARecipeIsAPreset) {
  JobSpec spec = Job();
  spec.training.precision.preset.reset();
  EXPECT_TRUE(Valid(spec)->fp8.has_value());
  EXPECT_FALSE(Valid(With(SmallJob(), "megatron-core"))->fp8.has_value());
}

TEST(ValidateFp8Test, TheDefaultIsSaid) {
  JobSpec spec = Job();
  spec.training.precision.fp8_recipe.reset();
  ValidJob job = Valid(spec);
  EXPECT_EQ(job->fp8->recipe, Fp8Recipe::kDelayed);
  bool said = false;
  for (const Assumption& at : job.TakeAssumptions()) {
    said = said || (at.field == "training.precision.fp8_recipe" && at.text == "delayed");
  }
  EXPECT_TRUE(said);
}

TEST(ValidateFp8Test, OldMeaningHasItsOwnName) {
  const ValidJob job = Valid(With(SmallJob(), "ddp", "fp8-lm"));
  EXPECT_FALSE(job->fp8.has_value());
  EXPECT_EQ(job->precision.parameter, DType::kFp8);
}

TEST(ValidateFp8Test, RefusesWhatIsNoRecipe) {
  ExpectRefusals(
      Job(), {
                 {"a recipe of four bits",
                  [](JobSpec& j) { j.training.precision.fp8_recipe = "nvfp4"; },
                  {"job.training.precision.fp8_recipe: nvfp4; must be one of delayed, tensorwise, "
                   "blockwise, mxfp8"}},
                 {"another preset",
                  [](JobSpec& j) { j.training.precision.preset = "bf16-mixed"; },
                  {"job.training.precision.fp8_recipe: tensorwise; needs preset fp8-mixed"}},
                 {"fp8 weights of another preset",
                  [](JobSpec& j) {
                    j.training.precision.preset = "bf16-mixed";
                    j.training.precision.fp8_recipe.reset();
                    j.training.precision.fp8_parameters = true;
                  },
                  {"job.training.precision.fp8_parameters: true; needs preset fp8-mixed"}},
             });
}

TEST(ValidateFp8Test, EachRecipeNeedsItsGpus) {
  ExpectRefusals(
      Job(), {
                 {"Ampere",
                  [](JobSpec& j) { j.cluster.gpu = "a100-80gb-sxm"; },
                  {"job.training.precision.fp8_recipe: tensorwise; needs an Ada or newer GPU"}},
                 {"AMD's",
                  [](JobSpec& j) { j.cluster.gpu = "mi300x-192gb"; },
                  {"job.training.precision.fp8_recipe: tensorwise; needs an Ada or newer GPU"}},
                 {"blocks on Ada",
                  [](JobSpec& j) {
                    j.cluster.gpu = "rtx-4090";
                    j.training.precision.fp8_recipe = "blockwise";
                  },
                  {"job.training.precision.fp8_recipe: blockwise; needs a Hopper or newer GPU"}},
                 {"small blocks on Hopper",
                  [](JobSpec& j) { j.training.precision.fp8_recipe = "mxfp8"; },
                  {"job.training.precision.fp8_recipe: mxfp8; needs a Blackwell GPU"}},
             });
}

TEST(ValidateFp8Test, RefusesWhatIsNotModelledBesideIt) {
  ExpectRefusals(
      Job(),
      {
          {"Megatron's own layers",
           [](JobSpec& j) { j.runtime.transformer_implementation = "local"; },
           {"job.training.precision.preset: fp8-mixed; needs transformer_implementation "
            "transformer-engine"}},
          {"parts of layers again",
           [](JobSpec& j) {
             j.training.recompute.mode = "selective";
             j.training.recompute.modules = {"core-attention", "mlp"};
           },
           {"job.training.recompute.mode: selective; is not modelled with matrix products in fp8"}},
          {"odd sides",
           [](JobSpec& j) { Shape(j).ffn_size = 24; },
           {"job.model: ffn_size of a rank 24; must be a multiple of 16 with fp8_recipe "
            "tensorwise"}},
      });
  JobSpec again = Job();
  again.training.recompute.mode = "selective";
  EXPECT_TRUE(Valid(again)->fp8.has_value()) << "attention's kernel alone";
}

TEST(ValidateFp8Test, OthersFrameworksHaveTheirOwn) {
  ExpectRefusals(Job(), {{"FSDP2",
                          [](JobSpec& j) { j.runtime.framework = "fsdp2"; },
                          {"job.training.precision.preset: fp8-mixed; is not modelled with fsdp2: "
                           "Transformer Engine's recipes are modelled with megatron-core"}}});
}

}  // namespace
}  // namespace plimsoll
