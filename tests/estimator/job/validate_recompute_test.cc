// Modules that run again, and what of a model each of them needs.
#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/refusals.h"

namespace plimsoll {
namespace {

JobSpec Job() {
  JobSpec job = With(SmallJob(), "megatron-core");
  job.training.recompute.mode = "selective";
  return job;
}

JobSpec Routed() {
  JobSpec job = Job();
  TransformerSpec& shape = Shape(job);
  shape.mlp_bias = false;
  shape.expert_count = 8;
  shape.active_expert_count = 2;
  job.runtime.grouped_gemm = true;
  return job;
}

TEST(ValidateRecomputeTest, ModulesNeedWhatTheyAreOf) {
  const std::string field = "job.training.recompute.modules: ";
  ExpectRefusals(Job(),
                 {
                     {"of experts",
                      [](JobSpec& j) {
                        j.training.recompute.modules = {"activation", "experts", "shared-experts"};
                      },
                      {field + "activation; needs a model with experts",
                       field + "experts; needs a model with experts",
                       field + "shared-experts; needs shared experts"}},
                     {"of latent attention",
                      [](JobSpec& j) { j.training.recompute.modules = {"up-projection"}; },
                      {field + "up-projection; needs latent attention"}},
                     {"of layers",
                      [](JobSpec& j) {
                        j.training.recompute.modules = {"core-attention", "mlp"};
                      },
                      {}},
                 });
}

// A checkpoint of several layers is of one kind of them.
TEST(ValidateRecomputeTest, UnitsAreOfOneKindOfLayer) {
  JobSpec job = Routed();
  job.training.recompute = {};
  job.training.recompute.mode = "full";
  job.training.recompute.unit_layer_count = 2;
  EXPECT_THAT(Refusals(job), ::testing::IsEmpty());
  Shape(job).dense_layer_count = 1;
  EXPECT_THAT(Refusals(job),
              ::testing::ElementsAre("job.training.recompute.unit_layer_count: 2; is not modelled "
                                     "where some layers have experts and some have none"));
}

// Only norms in front of a sublayer are modules of their own.
TEST(ValidateRecomputeTest, NormsElsewhereDoNotRunAgain) {
  JobSpec job = Job();
  job.runtime.transformer_implementation = "local";
  job.training.recompute.modules = {"norm"};
  for (const char* placement : {"post", "post-only", "parallel", "parallel-two"}) {
    Shape(job).norm_placement = placement;
    EXPECT_THAT(Refusals(job),
                ::testing::Contains("job.training.recompute.modules: norm; is not modelled but for "
                                    "norms before attention and MLP"))
        << placement;
  }
}

TEST(ValidateRecomputeTest, SaysThatNoLayerHasAnMlp) {
  JobSpec job = Routed();
  job.training.recompute.modules = {"mlp"};
  const auto says = [&job] {
    const ValidJob valid = Valid(job);
    return std::any_of(valid->assumptions.begin(), valid->assumptions.end(),
                       [](const Assumption& one) { return one.text == "no MLP runs again"; });
  };
  EXPECT_TRUE(says());
  Shape(job).dense_layer_count = 1;
  EXPECT_FALSE(says());
}

TEST(ValidateRecomputeTest, PartsOfExperts) {
  const std::string field = "job.training.recompute.modules: ";
  ExpectRefusals(
      Routed(),
      {
          {"as Megatron has them",
           [](JobSpec& j) {
             j.training.recompute.modules = {"core-attention", "mlp", "norm", "activation"};
           },
           {}},
          {"whole",
           [](JobSpec& j) {
             j.training.recompute.modules = {"experts", "norm"};
           },
           {}},
          {"whole, and a part",
           [](JobSpec& j) {
             j.training.recompute.modules = {"experts", "activation"};
           },
           {field + "activation; is not modelled with experts that run again whole"}},
          {"one after the other",
           [](JobSpec& j) {
             j.runtime.grouped_gemm = false;
             j.training.recompute.modules = {"activation"};
           },
           {field + "activation; needs runtime.grouped_gemm"}},
          {"shared ones that are none",
           [](JobSpec& j) { j.training.recompute.modules = {"shared-experts"}; },
           {field + "shared-experts; needs shared experts"}},
          {"shared ones before 0.14",
           [](JobSpec& j) {
             Shape(j).shared_expert_ffn_size = 32;
             j.runtime.versions["megatron-core"] = "0.13";
             j.training.recompute.modules = {"shared-experts"};
           },
           {field + "shared-experts; megatron-core has it from 0.14 on"}},
      });
}

// Other modes of a model with experts, and other frameworks, have no modules.
TEST(ValidateRecomputeTest, OthersRunNoPartsOfExpertsAgain) {
  JobSpec job = Routed();
  job.runtime.framework = "ddp";
  job.runtime.grouped_gemm.reset();
  job.training.precision.preset = "bf16-pure";
  job.training.recompute.modules = {"core-attention"};
  const std::vector<std::string> refusals = Refusals(job);
  EXPECT_THAT(refusals, ::testing::Contains("job.training.recompute.mode: selective; is not "
                                            "modelled with experts"));
}

}  // namespace
}  // namespace plimsoll
