// Linear attention: what a model must say of it, who computes it, and what stands beside it that
// nothing was held against.
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/refusals.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

JobSpec Job(absl::string_view framework = "ddp", absl::string_view preset = "bf16-pure") {
  JobSpec job = With(SmallJob(), framework, preset);
  TransformerSpec& shape = Shape(job);
  shape.layer_count = 4;
  shape.linear_value_head_count = 4;
  shape.linear_key_head_count = 2;
  shape.linear_key_head_size = 16;
  shape.linear_value_head_size = 16;
  return job;
}

std::string NotModelled(absl::string_view field) {
  return absl::StrCat("job.", field, "; is not modelled with linear attention");
}

TEST(ValidateLinearTest, PartsNeedHeadsAndMustFit) {
  const auto needs = [](absl::string_view field) {
    return absl::StrCat("job.model.transformer.", field, "; needs linear_value_head_count");
  };
  ExpectRefusals(
      SmallJob(),
      {
          {"parts without heads",
           [](JobSpec& j) {
             Shape(j).linear_key_head_count = 2, Shape(j).linear_key_head_size = 16;
             Shape(j).linear_value_head_size = 8, Shape(j).linear_kernel_size = 4;
             Shape(j).attention_period_size = 4;
           },
           {needs("linear_key_head_count: 2"), needs("linear_key_head_size: 16"),
            needs("linear_value_head_size: 8"), needs("linear_kernel_size: 4"),
            needs("attention_period_size: 4")}},
          {"a release that moves nothing",
           [](JobSpec& j) { j.runtime.versions["transformers"] = "5.16"; },
           {"job.runtime.versions.transformers: 5.16; moves no byte of ddp; only torch and nccl "
            "do"}},
          {"who computes what is not there",
           [](JobSpec& j) { j.training.linear_attention = "fla"; },
           {"job.training.linear_attention: fla; needs a model with linear attention"}},
          {"adapters of modules that are not there",
           [](JobSpec& j) {
             j.training.adapter.method = "lora";
             j.training.adapter.target_modules = {"in_proj_qkv"};
           },
           {"job.training.adapter.target_modules: in_proj_qkv; is no module of this model",
            "job.training.adapter.target_modules: in_proj_qkv; has no module of this model"}},
      });
  ExpectRefusals(
      Job(),
      {
          {"as it is", [](JobSpec&) {}, {}},
          {"keys that values do not share",
           [](JobSpec& j) { Shape(j).linear_key_head_count = 3; },
           {"job.model.transformer.linear_key_head_count: 3; must divide "
            "linear_value_head_count 4"}},
          {"keys that no kernel takes",
           [](JobSpec& j) { Shape(j).linear_key_head_size = 512; },
           {"job.training.linear_attention: fla; takes keys of at most 256 numbers, not 512"}},
          {"the same in Python",
           [](JobSpec& j) {
             Shape(j).linear_key_head_size = 512;
             j.training.linear_attention = "torch";
           },
           {}},
          {"Python of an old release",
           [](JobSpec& j) {
             j.training.linear_attention = "torch";
             j.runtime.versions["transformers"] = "5.16";
           },
           {"job.training.linear_attention: torch; is modelled as transformers has it from 5.17 "
            "on"}},
          {"adapters of what no layer has",
           [](JobSpec& j) {
             Shape(j).layer_count = 3;
             j.training.adapter.method = "lora";
           },
           {"job.training.adapter.target_modules: unset; has no module of this model"}},
          {"adapters of products that are one",
           [](JobSpec& j) {
             j.training.adapter.method = "lora";
             j.training.adapter.target_modules = {"in_proj_qkvz", "q_proj"};
           },
           {"job.training.adapter.target_modules: in_proj_qkvz; is no module of this model"}},
          {"classes that are older than any",
           [](JobSpec& j) { j.runtime.versions["transformers"] = "4.50"; },
           {"job.runtime.versions.transformers: 4.50; has no class with linear attention: 4.57 is "
            "the first"}},
          {"no word of the API",
           [](JobSpec& j) { j.training.linear_attention = "triton"; },
           {"job.training.linear_attention: triton; must be one of fla, torch"}},
      });
}

TEST(ValidateLinearTest, RefusesWhatIsNotModelledBesideIt) {
  ExpectRefusals(Job(), {
                            {"compiled layers",
                             [](JobSpec& j) { j.runtime.compile = true; },
                             {NotModelled("runtime.compile: true")}},
                            {"parts that are run again",
                             [](JobSpec& j) { j.training.recompute.mode = "selective"; },
                             {NotModelled("training.recompute.mode: selective")}},
                            {"norms behind",
                             [](JobSpec& j) { Shape(j).norm_placement = "post"; },
                             {NotModelled("model: post")}},
                            {"adapters of its products",
                             [](JobSpec& j) {
                               j.training.adapter.method = "lora";
                               j.training.adapter.target_modules = {"all-linear", "out_proj"};
                             },
                             {}},
                        });
  ExpectNoPartsOfSequences(Job("fsdp2", "bf16-mixed"),
                           NotModelled("parallelism.context_parallel_size: 2"));
}

// OLMo Hybrid's norms are behind its attention, and before its linear attention.
TEST(ValidateLinearTest, ProjectionsApartAreAsTheClassHasThemNow) {
  const JobSpec job = WithModel(Job(), [](Transformer& model) {
    model.norm_placement = NormPlacement::kPostOnly;
    model.linear.projections = DeltaProjections::kEach;
    model.linear.norms_before = true;
  });
  ExpectRefusals(job, {
                          {"as it is", [](JobSpec&) {}, {}},
                          {"an older class",
                           [](JobSpec& j) { j.runtime.versions["transformers"] = "5.22"; },
                           {"job.runtime.versions.transformers: 5.22; is modelled with this model "
                            "from 5.23 on"}},
                          {"adapters",
                           [](JobSpec& j) {
                             j.training.adapter.method = "lora";
                             j.training.adapter.target_modules = {"all-linear"};
                           },
                           {"job.training.adapter.method: lora; is not modelled with linear "
                            "attention that projects queries, keys and values apart"}},
                      });
}

TEST(ValidateLinearTest, AGateIsAsTransformersHasIt) {
  const auto gated = [](absl::string_view framework) {
    JobSpec job = With(SmallJob(), framework, framework == "ddp" ? "bf16-pure" : "bf16-mixed");
    Shape(job).attention_gate = true;
    return Refusals(job);
  };
  EXPECT_THAT(gated("ddp"), IsEmpty());
  EXPECT_THAT(gated("megatron-core"),
              ElementsAre("job.model: gated attention; is modelled as transformers' classes have "
                          "it"));
}

TEST(ValidateLinearTest, OthersHaveLayersOfTheirOwn) {
  EXPECT_THAT(Refusals(Job("megatron-core", "bf16-mixed")),
              ElementsAre("job.model: linear attention; is not modelled with megatron-core: its "
                          "layers are its own"));
  EXPECT_THAT(Refusals(Job("nanotron", "bf16-mixed")),
              ElementsAre("job.model: linear attention; nanotron does not have it: its layers have "
                          "attention"));
}

}  // namespace
}  // namespace plimsoll
