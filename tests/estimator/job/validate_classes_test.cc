// Models of which NeMo Automodel has classes that were held against its code, and what it does that
// was not.
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/refusals.h"

namespace plimsoll {
namespace {

JobSpec Job(absl::string_view framework = "fsdp2") {
  JobSpec job = With(SmallJob(), framework, "bf16-pure");
  job.runtime.trainer = "nemo-automodel";
  return job;
}

std::string NotModelled(absl::string_view field) {
  return absl::StrCat("job.", field, "; is not modelled with the classes of nemo-automodel");
}

TEST(ValidateClassesTest, LayersAreLlamasOrQwens) {
  ExpectRefusals(
      Job(),
      {
          {"Llama's", [](JobSpec&) {}, {}},
          {"Qwen 2's", [](JobSpec& j) { Shape(j).qkv_bias = true; }, {}},
          {"Qwen 3's", [](JobSpec& j) { Shape(j).qk_norm = "per-head"; }, {}},
          {"Gemma's",
           [](JobSpec& j) { Shape(j).activation = "gelu-tanh"; },
           {NotModelled("model: an MLP that SiLU does not gate")}},
          {"Granite's, by transformers' class",
           [](JobSpec& j) { j = WithModel(j, [](Transformer& m) { m.model_type = "granite"; }); },
           {NotModelled("model: granite")}},
          {"norms behind sublayers",
           [](JobSpec& j) { Shape(j).norm_placement = "post-only"; },
           {NotModelled("model: post-only")}},
          {"norms of all heads",
           [](JobSpec& j) { Shape(j).qk_norm = "full"; },
           {NotModelled("model: full")}},
      });
}

TEST(ValidateClassesTest, AdaptersWithoutMore) {
  JobSpec job = Job();
  job.training.adapter.method = "lora";
  ExpectRefusals(job, {
                          {"plain ones", [](JobSpec&) {}, {}},
                          {"dropout",
                           [](JobSpec& j) { j.training.adapter.dropout = 0.1; },
                           {"job.training.adapter.dropout: 0.1 under nemo-automodel; is not "
                            "modelled with adapters"}},
                      });
}

// Without FSDP2 its weights are cast by nobody: what is usual is bf16 alone.
TEST(ValidateClassesTest, OneGpuHasNoMasters) {
  JobSpec job = Job("ddp");
  job.cluster.gpu_count = 1;
  job.training.precision.preset.reset();
  EXPECT_EQ(Valid(job)->precision.master, DType::kNone);
  EXPECT_EQ(Valid(job)->precision.parameter, DType::kBf16);
  job.training.precision.preset = "bf16-mixed";
  EXPECT_THAT(Refusals(job), ::testing::SizeIs(1));
}

TEST(ValidateClassesTest, Fsdp2ReducesInFp32) {
  EXPECT_EQ(Valid(Job())->precision.reduce, DType::kFp32);
  EXPECT_EQ(Valid(Job())->precision.parameter, DType::kBf16);
}

}  // namespace
}  // namespace plimsoll
