// What stands beside experts and nothing was held against.
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/refusals.h"

namespace plimsoll {
namespace {

JobSpec Job() {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  Shape(job).expert_count = 8;
  Shape(job).active_expert_count = 2;
  return job;
}

std::string NotModelled(absl::string_view field) {
  return absl::StrCat("job.", field, "; is not modelled with experts");
}

TEST(ValidateExpertsTest, RefusesWhatIsNotModelledBesideThem) {
  ExpectRefusals(
      Job(),
      {
          {"as it is", [](JobSpec&) {}, {}},
          {"adapters of attention", [](JobSpec& j) { j.training.adapter.method = "lora"; }, {}},
          {"adapters of an MLP",
           [](JobSpec& j) {
             j.training.adapter.method = "lora";
             j.training.adapter.target_modules = {"q_proj", "down_proj"};
           },
           {NotModelled("training.adapter.target_modules: q_proj, down_proj")}},
          {"quantized weights",
           [](JobSpec& j) {
             j.training.adapter.method = "qlora";
             j.training.quantization.format = "nf4";
           },
           {NotModelled("training.adapter.method: qlora")}},
          {"pairs",
           [](JobSpec& j) { j.training.preference.method = "dpo"; },
           {NotModelled("training.preference.method: dpo")}},
          {"an optimizer that sees matrices",
           [](JobSpec& j) { j.training.optimizer.name = "muon"; },
           {NotModelled("training.optimizer.name: muon")}},
          {"8-bit products",
           [](JobSpec& j) { j.training.precision.preset = "fp8-mixed"; },
           {NotModelled("training.precision.preset: fp8-mixed")}},
          {"compiled layers",
           [](JobSpec& j) { j.runtime.compile = true; },
           {NotModelled("runtime.compile: true")}},
          {"an old GPU",
           [](JobSpec& j) { j.cluster.gpu = "v100-32gb-sxm"; },
           {NotModelled("cluster.gpu: a GPU older than Ampere")}},
          {"an old PyTorch",
           [](JobSpec& j) { j.runtime.versions["torch"] = "2.8"; },
           {NotModelled("runtime.versions: torch before 2.9")}},
      });
}

TEST(ValidateExpertsTest, RefusesOtherSplitsUnderFsdp) {
  JobSpec job = Job();
  job.runtime.framework = "fsdp2";
  ExpectRefusals(job,
                 {
                     {"split matrices and layers",
                      [](JobSpec& j) {
                        j.parallelism.tensor_parallel_size = 2;
                        j.parallelism.pipeline_parallel_size = 2;
                      },
                      {NotModelled("parallelism.tensor_parallel_size: 2"),
                       NotModelled("parallelism.pipeline_parallel_size: 2")}},
                     {"split sequences",
                      [](JobSpec& j) {
                        j.parallelism.context_parallel_method = "ulysses";
                        j.parallelism.context_parallel_size = 2;
                      },
                      {NotModelled("parallelism.context_parallel_size: 2")}},
                     {"parts run again",
                      [](JobSpec& j) { j.training.recompute.mode = "per-op"; },
                      {NotModelled("training.recompute.mode: per-op")}},
                     {"a trainer's own experts",
                      [](JobSpec& j) { j.runtime.trainer = "torchtitan"; },
                      {"job.model: 8 experts; is not modelled with torchtitan: its own experts are "
                       "dispatched"}},
                 });
}

TEST(ValidateExpertsTest, RefusesShapesThatNoClassHas) {
  ExpectRefusals(Job(), {
                            {"norms behind",
                             [](JobSpec& j) { Shape(j).norm_placement = "sandwich"; },
                             {NotModelled("model: sandwich")}},
                            {"biases",
                             [](JobSpec& j) { Shape(j).mlp_bias = true; },
                             {NotModelled("model: biases of MLPs")}},
                            {"an activation in Python",
                             [](JobSpec& j) { Shape(j).activation = "gelu-new"; },
                             {NotModelled("model: gelu-new")}},
                            {"scores",
                             [](JobSpec& j) { Shape(j).head = "sequence-classification"; },
                             {NotModelled("model: sequence-classification")}},
                        });
}

TEST(ValidateExpertsTest, RefusesLayersInNoRegularOrder) {
  const auto with = [](absl::FunctionRef<void(Transformer&)> change) {
    return Refusals(WithModel(Job(), change));
  };
  EXPECT_THAT(with([](Transformer& model) { model.experts.irregular = true; }),
              testing::ElementsAre(NotModelled("model: experts on layers in no regular order")));
  EXPECT_THAT(
      with([](Transformer& model) {
        model.sliding_window = 16;
        model.windowed = {.period = 2};
        model.experts.layers = {.begin = 1};
      }),
      testing::ElementsAre(NotModelled("model: windows on some layers and experts on some")));
}

}  // namespace
}  // namespace plimsoll
