// Latent attention: what a model must say of it, which kernel takes its heads, and what stands
// beside it that nothing was held against.
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/refusals.h"

namespace plimsoll {
namespace {

// H 64, N 4; heads of 24 of which 8 are rotated, values of 16.
JobSpec Job(absl::string_view framework = "ddp", absl::string_view preset = "bf16-pure") {
  JobSpec job = With(SmallJob(), framework, preset);
  TransformerSpec& shape = Shape(job);
  shape.kv_head_count.reset();
  shape.head_size = 24;
  shape.key_value_rank = 32;
  shape.query_rank = 48;
  shape.rotary_head_size = 8;
  shape.qk_norm = "per-rank";
  return job;
}

std::string NotModelled(absl::string_view field) {
  return absl::StrCat("job.", field, "; is not modelled with latent attention");
}

TEST(ValidateLatentTest, PartsNeedTheRankAndMustFit) {
  ExpectRefusals(SmallJob(),
                 {
                     {"parts without the rank",
                      [](JobSpec& j) {
                        Shape(j).query_rank = 8, Shape(j).rotary_head_size = 8;
                        Shape(j).value_head_size = 8, Shape(j).qk_norm = "per-rank";
                      },
                      {"job.model.transformer.query_rank: 8; needs key_value_rank",
                       "job.model.transformer.rotary_head_size: 8; needs key_value_rank",
                       "job.model.transformer.value_head_size: 8; needs key_value_rank",
                       "job.model.transformer.qk_norm: per-rank; needs key_value_rank"}},
                     {"nothing that is rotated",
                      [](JobSpec& j) { Shape(j).key_value_rank = 8; },
                      {"job.model.transformer.rotary_head_size: unset; must be set"}},
                 });
  ExpectRefusals(
      Job(),
      {
          {"as it is", [](JobSpec&) {}, {}},
          {"more rotated than there is",
           [](JobSpec& j) {
             Shape(j).rotary_head_size = 24;
             Shape(j).value_head_size = 16;
           },
           {"job.model.transformer.rotary_head_size: 24; must be below head_size 24"}},
          {"fewer keys than queries",
           [](JobSpec& j) { Shape(j).kv_head_count = 2; },
           {"job.model.transformer.kv_head_count: 2; must be head_count 4 with key_value_rank"}},
          {"norms of heads",
           [](JobSpec& j) { Shape(j).qk_norm = "per-head"; },
           {"job.model.transformer.qk_norm: per-head; must be none or per-rank with "
            "key_value_rank"}},
          {"slopes in the place of rotation",
           [](JobSpec& j) { Shape(j).position_embedding = "alibi"; },
           {"job.model.transformer.position_embedding: alibi; must be another with "
            "key_value_rank, which rotates"}},
      });
}

TEST(ValidateLatentTest, RefusesWhatIsNotModelledBesideIt) {
  ExpectRefusals(
      Job(), {
                 {"adapters",
                  [](JobSpec& j) {
                    j.training.adapter.method = "lora";
                    j.training.adapter.target_modules = {"kv_b_proj"};
                  },
                  {}},
                 {"adapters of modules that it has not",
                  [](JobSpec& j) {
                    j.training.adapter.method = "lora";
                    j.training.adapter.target_modules = {"k_proj"};
                  },
                  {"job.training.adapter.target_modules: k_proj; has no module of this model"}},
                 {"compiled layers",
                  [](JobSpec& j) { j.runtime.compile = true; },
                  {NotModelled("runtime.compile: true")}},
                 {"autocast", [](JobSpec& j) { j = Job("ddp", "bf16-autocast"); }, {}},
                 {"ranks without norms",
                  [](JobSpec& j) { Shape(j).qk_norm = "none"; },
                  {"job.model.transformer.qk_norm: none; must be per-rank: its classes norm each "
                   "rank"}},
                 {"norms behind sublayers",
                  [](JobSpec& j) { Shape(j).norm_placement = "sandwich"; },
                  {NotModelled("model: sandwich")}},
             });
  ExpectRefusals(Job("megatron-core", "bf16-mixed"),
                 {
                     {"as it is", [](JobSpec&) {}, {}},
                     {"ranks without norms", [](JobSpec& j) { Shape(j).qk_norm = "none"; }, {}},
                     {"Megatron's own modules",
                      [](JobSpec& j) { j.runtime.transformer_implementation = "local"; },
                      {NotModelled("runtime.transformer_implementation: local")}},
                     {"up-projections that are run again",
                      [](JobSpec& j) {
                        j.training.recompute.mode = "selective";
                        j.training.recompute.modules = {"up-projection"};
                      },
                      {}},
                     {"queries without a rank",
                      [](JobSpec& j) {
                        Shape(j).query_rank.reset();
                        j.runtime.versions["megatron-core"] = "0.18";
                      },
                      {}},
                     {"those of 0.19, which norms their input once more",
                      [](JobSpec& j) { Shape(j).query_rank.reset(); },
                      {"job.model: norms of ranks without query_rank; is not modelled with "
                       "megatron-core: the norm of queries' projection is one more"}},
                     {"an old core",
                      [](JobSpec& j) { j.runtime.versions["megatron-core"] = "0.13"; },
                      {"job.model: latent attention; is not modelled with megatron-core: its "
                       "down-projections were split and gathered"}},
                 });
}

AttentionKernel KernelOf(JobSpec job, int64_t keys, int64_t values, const char* gpu) {
  Shape(job).head_size = keys;
  Shape(job).value_head_size = values;
  job.cluster.gpu = gpu;
  return Valid(job)->attention;
}

// Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp; transformer_engine
// fused_attn.cpp, nvte_get_fused_attn_backend.
TEST(ValidateLatentTest, TheKernelIsOneThatTakesTheHeads) {
  constexpr char kHopper[] = "h100-80gb-sxm";
  constexpr char kAmpere[] = "a100-80gb-sxm";
  const JobSpec torch = Job();
  EXPECT_EQ(KernelOf(torch, 192, 128, kHopper), AttentionKernel::kCudnn);
  EXPECT_EQ(KernelOf(torch, 256, 192, kHopper), AttentionKernel::kMemoryEfficient);
  EXPECT_EQ(KernelOf(torch, 200, 64, kHopper), AttentionKernel::kMemoryEfficient);
  EXPECT_EQ(KernelOf(torch, 192, 128, "b200-180gb"), AttentionKernel::kCudnn);
  EXPECT_EQ(KernelOf(torch, 192, 128, kAmpere), AttentionKernel::kMemoryEfficient);
  JobSpec before = torch;
  before.runtime.versions["torch"] = "2.10";
  EXPECT_EQ(KernelOf(before, 192, 128, kHopper), AttentionKernel::kMemoryEfficient);
  EXPECT_EQ(KernelOf(torch, 128, 128, kHopper), AttentionKernel::kFlash);
  EXPECT_EQ(KernelOf(torch, 20, 16, kHopper), AttentionKernel::kEager) << "no row of 16 bytes";
  const JobSpec core = Job("megatron-core", "bf16-mixed");
  EXPECT_EQ(KernelOf(core, 192, 128, kHopper), AttentionKernel::kCudnn);
  EXPECT_EQ(KernelOf(core, 256, 192, kHopper), AttentionKernel::kEager);
  EXPECT_EQ(KernelOf(core, 192, 128, kAmpere), AttentionKernel::kEager);
  EXPECT_EQ(KernelOf(core, 96, 64, kAmpere), AttentionKernel::kCudnn);
}

TEST(ValidateLatentTest, TorchtitansIsCompiled) {
  JobSpec job = Job("fsdp2", "bf16-mixed");
  job.runtime.trainer = "torchtitan";
  EXPECT_EQ(Valid(job)->attention, AttentionKernel::kFlex);
  ExpectRefusals(job, {{"SDPA's",
                        [](JobSpec& j) { j.training.attention = "memory-efficient"; },
                        {"job.training.attention: memory-efficient; must be flex for latent "
                         "attention"}},
                       {"before it was held",
                        [](JobSpec& j) { j.runtime.versions["torchtitan"] = "2026.06"; },
                        {"job.model: latent attention; is not modelled with torchtitan: its "
                         "attention was another"}}});
}

TEST(ValidateLatentTest, AKernelThatIsNamedMustTakeThem) {
  ExpectRefusals(
      Job("megatron-core", "bf16-mixed"),
      {
          {"flash",
           [](JobSpec& j) { j.training.attention = "flash"; },
           {"job.training.attention: flash; takes heads of values as wide as those of keys, not 24 "
            "and 16"}},
          {"as wide as keys",
           [](JobSpec& j) {
             j.training.attention = "flash";
             Shape(j).value_head_size = 24;
           },
           {}},
          {"cuDNN on Ampere",
           [](JobSpec& j) {
             j.training.attention = "cudnn";
             Shape(j).head_size = 192;
           },
           {"job.training.attention: cudnn; does not train with heads of keys and values of 192 "
            "and 184"}},
          {"odd heads",
           [](JobSpec& j) {
             j.training.attention = "cudnn";
             Shape(j).head_size = 20;
           },
           {"job.training.attention: cudnn; takes heads of keys and values of multiples of 8, not "
            "20 and 12"}},
      });
}

// An old checkpoint's own code is read, and refused where it would run.
TEST(ValidateLatentTest, CodeOfACheckpointIsTransformersNot) {
  const auto remote = [](JobSpec job) {
    return WithModel(std::move(job), [](Transformer& model) { model.remote_code = true; });
  };
  EXPECT_THAT(Refusals(remote(Job())), testing::ElementsAre(NotModelled("model: remote code")));
  EXPECT_THAT(Refusals(remote(Job("megatron-core", "bf16-mixed"))), testing::IsEmpty());
}

}  // namespace
}  // namespace plimsoll
