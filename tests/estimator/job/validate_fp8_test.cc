// Every rule of matrix products in fp8, and what stands beside them.
#include <variant>

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

// Compute capability 12.0, which has no NVLink.
TEST(ValidateFp8Test, WorkstationsBlackwellsHaveNoMxfp8) {
  Catalog catalog = SmallCatalog();
  catalog.gpus.at("b200-180gb").interconnect = "pcie5";
  JobSpec job = Job();
  job.cluster.gpu = "b200-180gb";
  job.training.precision.fp8_recipe = "mxfp8";
  EXPECT_EQ(Valid(job)->fp8->recipe, Fp8Recipe::kMxfp8);
  const auto wrong = Validate(job, catalog);
  ASSERT_TRUE(std::holds_alternative<Violations>(wrong));
  const auto& violations = std::get<Violations>(wrong);
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(ToText(violations[0]),
            "job.training.precision.fp8_recipe: mxfp8; is not supported by Transformer Engine on "
            "GPUs of compute capability 12.0");
  EXPECT_EQ(violations[0].code, ViolationCode::kNotSupported);
  for (const char* recipe : {"delayed", "tensorwise", "blockwise"}) {
    job.training.precision.fp8_recipe = recipe;
    EXPECT_TRUE(std::holds_alternative<ValidJob>(Validate(job, catalog))) << recipe;
  }
}

TEST(ValidateFp8Test, RefusesWhatIsNotModelledBesideIt) {
  ExpectRefusals(
      Job(),
      {
          {"Megatron's own layers",
           [](JobSpec& j) { j.runtime.transformer_implementation = "local"; },
           {"job.training.precision.preset: fp8-mixed; needs transformer_implementation "
            "transformer-engine"}},
          {"several layers again at once",
           [](JobSpec& j) {
             j.training.recompute.mode = "full";
             j.training.recompute.unit_layer_count = 2;
           },
           {"job.training.recompute.unit_layer_count: 2; is not modelled with matrix products in "
            "fp8"}},
          {"odd sides",
           [](JobSpec& j) { Shape(j).ffn_size = 24; },
           {"job.model: ffn_size of a rank 24; must be a multiple of 16 with fp8_recipe "
            "tensorwise"}},
      });
  JobSpec again = Job();
  again.training.recompute.mode = "selective";
  again.training.recompute.modules = {"core-attention", "mlp"};
  EXPECT_TRUE(Valid(again)->fp8.has_value());
}

// H 64, experts 96 wide.
JobSpec Routed() {
  JobSpec job = Job();
  Shape(job).expert_count = 8;
  Shape(job).active_expert_count = 2;
  Shape(job).expert_ffn_size = 96;
  job.runtime.grouped_gemm = true;
  return job;
}

TEST(ValidateFp8Test, ExpertsAreGroupedAndTheirSidesWhole) {
  ExpectRefusals(
      Routed(),
      {
          {"as it is", [](JobSpec&) {}, {}},
          {"one after the other",
           [](JobSpec& j) { j.runtime.grouped_gemm = false; },
           {"job.runtime.grouped_gemm: false; is not modelled with matrix products in fp8"}},
          {"odd experts",
           [](JobSpec& j) { Shape(j).expert_ffn_size = 100; },
           {"job.model: expert_ffn_size of a rank 100; must be a multiple of 16 with fp8_recipe "
            "tensorwise"}},
          {"odd shared experts",
           [](JobSpec& j) { Shape(j).shared_expert_ffn_size = 24; },
           {"job.model: shared_expert_ffn_size of a rank 24; must be a multiple of 16 with "
            "fp8_recipe tensorwise"}},
          {"an odd MLP that no layer has", [](JobSpec& j) { Shape(j).ffn_size = 24; }, {}},
          {"an odd MLP of one layer",
           [](JobSpec& j) {
             Shape(j).ffn_size = 24;
             Shape(j).dense_layer_count = 1;
           },
           {"job.model: ffn_size of a rank 24; must be a multiple of 16 with fp8_recipe "
            "tensorwise"}},
      });
}

TEST(ValidateFp8Test, RanksOfLatentAttentionAreWhole) {
  JobSpec job = Job();
  job.training.attention = "cudnn";
  TransformerSpec& shape = Shape(job);
  shape.kv_head_count = shape.head_count;
  shape.head_size = 48;
  shape.key_value_rank = 32;
  shape.rotary_head_size = 16;
  shape.value_head_size = 32;
  shape.qk_norm = "per-rank";
  shape.query_rank = 64;
  ExpectRefusals(job, {{"as it is", [](JobSpec&) {}, {}},
                       {"odd ranks",
                        [](JobSpec& j) {
                          Shape(j).query_rank = 40;
                          Shape(j).key_value_rank = 24;
                        },
                        {"job.model: query_rank 40; must be a multiple of 16 with fp8_recipe "
                         "tensorwise",
                         "job.model: key_value_rank 24; must be a multiple of 16 with fp8_recipe "
                         "tensorwise",
                         "job.model: key_value_rank and rotary_head_size 40; must be a multiple "
                         "of 16 with fp8_recipe tensorwise"}}});
}

// What is dropped behind a product is left as it is, and read anew: the delayed recipe cannot.
TEST(ValidateFp8Test, DroppedOutputsNeedScalesOfTheirOwn) {
  JobSpec job = Routed();
  job.training.recompute.mode = "selective";
  job.training.recompute.modules = {"norm", "activation"};
  ExpectRefusals(
      job, {{"as it is", [](JobSpec&) {}, {}},
            {"delayed scales",
             [](JobSpec& j) { j.training.precision.fp8_recipe = "delayed"; },
             {"job.training.recompute.modules: norm; needs an fp8_recipe whose products read 16 "
              "bits anew",
              "job.training.recompute.modules: activation; needs an fp8_recipe whose products read "
              "16 bits anew"}},
            {"before it could",
             [](JobSpec& j) { j.runtime.versions["megatron-core"] = "0.13"; },
             {"job.training.recompute.modules: norm beside fp8; megatron-core has it from 0.14 on",
              "job.training.recompute.modules: activation beside fp8; megatron-core has it from "
              "0.14 on"}},
            {"no fp8",
             [](JobSpec& j) {
               j.runtime.versions["megatron-core"] = "0.13";
               j.training.precision = {};
             },
             {}}});
}

TEST(ValidateFp8Test, Fp4HasOneRecipeAndNeedsABlackwell) {
  JobSpec job = Job();
  job.training.precision = {};
  job.training.precision.preset = "fp4-mixed";
  job.cluster.gpu = "b200-180gb";
  EXPECT_EQ(Valid(job)->fp8->recipe, Fp8Recipe::kNvfp4);
  ExpectRefusals(
      job, {{"a Hopper",
             [](JobSpec& j) { j.cluster.gpu = "h100-80gb-sxm"; },
             {"job.training.precision.preset: fp4-mixed; needs a Blackwell GPU"}},
            {"a core that is older",
             [](JobSpec& j) { j.runtime.versions["megatron-core"] = "0.14"; },
             {"job.training.precision.preset: fp4-mixed; megatron-core has it from 0.15 on"}},
            {"a recipe of fp8, and weights in it",
             [](JobSpec& j) {
               j.training.precision.fp8_recipe = "mxfp8";
               j.training.precision.fp8_parameters = true;
             },
             {"job.training.precision.fp8_recipe: mxfp8; needs preset fp8-mixed",
              "job.training.precision.fp8_parameters: true; needs preset fp8-mixed"}},
            {"odd sides",
             [](JobSpec& j) { Shape(j).ffn_size = 24; },
             {"job.model: ffn_size of a rank 24; must be a multiple of 16 with preset fp4-mixed"}},
            {"another framework",
             [](JobSpec& j) { j.runtime.framework = "fsdp2"; },
             {"job.training.precision.preset: fp4-mixed; is not modelled with fsdp2: Transformer "
              "Engine's recipes are modelled with megatron-core"}}});
}

TEST(ValidateFp8Test, OthersFrameworksHaveTheirOwn) {
  ExpectRefusals(Job(), {{"FSDP2",
                          [](JobSpec& j) { j.runtime.framework = "fsdp2"; },
                          {"job.training.precision.preset: fp8-mixed; is not modelled with fsdp2: "
                           "Transformer Engine's recipes are modelled with megatron-core"}}});
}

}  // namespace
}  // namespace plimsoll
