// The pass in words: what each mode drops, and what backward makes again.
#include <algorithm>

#include "absl/strings/match.h"
#include "estimator/program/describe.h"
#include "estimator/step/ledger.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

// Bytes of one [B, S, H] in 16 bits.
constexpr int64_t kHidden = 2 * 2 * 32 * 64;

JobSpec Job(const char* mode, std::vector<std::string> modules = {}) {
  JobSpec job = With(SmallJob(), "megatron-core");
  job.training.recompute.mode = mode;
  job.training.recompute.modules = std::move(modules);
  return job;
}

int64_t Kept(const JobSpec& job) { return KeptByLayer(ProgramOf(job)); }

TEST(RecomputeTest, FullKeepsInputsAlone) { EXPECT_EQ(Kept(Job("full")), kHidden); }

// NeMo Automodel: a checkpoint each of both norms, of attention and of the MLP, which keep what
// they read: the layer's input twice over, the first sum, and what both norms give.
TEST(RecomputeTest, EachModuleKeepsItsInput) {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  job.runtime.trainer = "nemo-automodel";
  job.cluster.gpu_count = 1;
  job.training.recompute.mode = "full";
  const Program program = ProgramAfter(Valid(job), PassId::kRecompute);
  uint8_t last = 0;
  for (const Op& op : FindBlock(program, "layer").ops) {
    EXPECT_EQ(op.segment == 0, absl::EndsWith(op.name, ".residual")) << op.name;
    last = std::max(last, op.segment);
  }
  EXPECT_EQ(last, 4);
  EXPECT_EQ(Kept(job), 4 * kHidden);
}

// A norm's output is made again from its input, and 4 bytes of statistics a token.
TEST(RecomputeTest, ModulesDropTheirOutputs) {
  JobSpec none = Job("none");
  JobSpec norms = Job("selective", {"norm"});
  none.runtime.transformer_implementation = norms.runtime.transformer_implementation = "local";
  EXPECT_EQ(Kept(none) - Kept(norms), 2 * (kHidden + 4 * 2 * 32));
}

// The MLP keeps its input: gate and up, 2F, and the product, F, go. That is what the norm gave, but
// for Transformer Engine's, which is a part of the MLP.
TEST(RecomputeTest, TheMlpKeepsItsInput) {
  JobSpec none = Job("none");
  JobSpec mlp = Job("selective", {"mlp"});
  const int64_t dropped = 3 * 2 * 2 * 32 * 128;
  EXPECT_EQ(Kept(none) - Kept(mlp), dropped + kHidden + 4 * 2 * 32);
  none.runtime.transformer_implementation = mlp.runtime.transformer_implementation = "local";
  EXPECT_EQ(Kept(none) - Kept(mlp), dropped);
}

// Eager attention: scores as large as N S^2 go, and keys and values of all four heads; keys of two,
// queries, and what values are a part of, A + 2C, stay.
TEST(RecomputeTest, CoreAttentionDropsTheScores) {
  JobSpec none = Job("none");
  JobSpec selective = Job("selective");
  none.training.attention = selective.training.attention = "eager";
  const int64_t probabilities = 2 * 2 * 4 * 32 * 32;
  const int64_t copies = 2 * 2 * 32 * (2 * 64 - 32 - (64 + 2 * 32));
  EXPECT_EQ(Kept(none) - Kept(selective), probabilities + copies);
}

// 64 tokens, each sent to two of eight experts of width 32, and a shared one of 96.
JobSpec Routed(std::vector<std::string> modules) {
  JobSpec job = With(SmallJob(), "megatron-core");
  TransformerSpec& shape = Shape(job);
  shape.mlp_bias = false;
  shape.activation = "silu";
  shape.gated_mlp = true;
  shape.expert_count = 8;
  shape.active_expert_count = 2;
  shape.expert_ffn_size = 32;
  shape.shared_expert_ffn_size = 96;
  job.runtime.grouped_gemm = true;
  if (modules.empty()) return job;
  job.training.recompute.mode = "selective";
  job.training.recompute.modules = std::move(modules);
  return job;
}

int64_t Dropped(std::vector<std::string> modules) {
  return Kept(Routed({})) - Kept(Routed(std::move(modules)));
}

// Of 128 rows the product, 32 wide; of shared experts gate, up and product, 3 x 96.
TEST(RecomputeTest, PartsOfExpertsDropWhatTheyMade) {
  EXPECT_EQ(Dropped({"activation"}), 128 * 32 * 2);
  EXPECT_EQ(Dropped({"shared-experts"}), 64 * 3 * 96 * 2);
  EXPECT_EQ(Dropped({"activation", "shared-experts"}),
            Dropped({"activation"}) + Dropped({"shared-experts"}));
}

// All but what the router reads, which is the norm's output.
TEST(RecomputeTest, ExpertsThatRunAgainKeepTheirInput) {
  const int64_t norm = kHidden + 4 * 64;
  EXPECT_EQ(Kept(Routed({"experts"})) - Kept(Routed({"experts", "norm"})), norm);
  const Program program = ProgramOf(Routed({"experts"}));
  const Block& layer = FindBlock(program, "layer");
  const auto of_experts = [](const Op& op) {
    return absl::StartsWith(op.name, "router") || absl::StartsWith(op.name, "experts") ||
           absl::StartsWith(op.name, "mlp.gate") || op.name == "mlp.product" ||
           op.name == "mlp.down";
  };
  for (const Op& op : layer.ops) EXPECT_EQ(op.segment != 0, of_experts(op)) << op.name;
}

// Layers without experts keep what their MLP needs; the others have none of its kind.
TEST(RecomputeTest, MlpsThatRunAgainAreOfLayersWithoutExperts) {
  const auto kept = [](std::vector<std::string> modules, absl::string_view layer) {
    JobSpec job = Routed(std::move(modules));
    Shape(job).dense_layer_count = 1;
    const Program program = ProgramOf(job);
    return plimsoll::Run(FindBlock(program, layer), WeightGradient::kFused, DType::kBf16)
        .kept.total;
  };
  EXPECT_EQ(kept({}, "expert layer"), kept({"mlp"}, "expert layer"));
  EXPECT_EQ(kept({}, "layer") - kept({"mlp"}, "layer"), 3 * 2 * 64 * 128 + kHidden + 4 * 64);
}

// Backward begins by making what was dropped; before 0.17 beside the copy that the next product
// reads.
TEST(RecomputeTest, WhatWasDroppedIsMadeAgain) {
  const auto made = [](const char* version) {
    JobSpec job = Routed({"activation"});
    job.runtime.versions["megatron-core"] = version;
    const Program program = ProgramOf(job);
    const Block& layer = FindBlock(program, "layer");
    std::vector<Storage> storages;
    plimsoll::Run(layer, WeightGradient::kFused, DType::kBf16, &storages);
    int count = 0;
    for (const Storage& storage : storages) {
      if (storage.tensor == kNoTensor || !storage.suffix.empty()) continue;
      count += layer.tensors[storage.tensor].name == "experts.product.activation" ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(made("0.16"), 3) << "forward, again, and the copy";
  EXPECT_EQ(made("0.17"), 2);
}

// Latent attention: queries, keys and values of all heads go, and the norms in front of them.
TEST(RecomputeTest, UpProjectionsKeepTheRanks) {
  JobSpec job = With(SmallJob(), "megatron-core");
  TransformerSpec& shape = Shape(job);
  shape.kv_head_count = shape.head_count;
  shape.head_size = 24;
  shape.query_rank = 48;
  shape.key_value_rank = 40;
  shape.rotary_head_size = 8;
  shape.value_head_size = 16;
  shape.qk_norm = "per-rank";
  const int64_t none = Kept(job);
  job.training.recompute.mode = "selective";
  job.training.recompute.modules = {"up-projection"};
  const int64_t heads = 4 * (24 + 24 + 16);
  const int64_t norms = 48 + 40;
  EXPECT_EQ(none - Kept(job), 64 * (2 * (heads + norms) + 2 * 4 - 2 * 8)) << "the key's part stays";
}

JobSpec PerOp(bool compile) {
  JobSpec job = With(SmallJob(), "fsdp2");
  job.training.recompute.mode = "per-op";
  job.runtime.compile = compile;
  return job;
}

// Products 1, 3, 5 and 7 of a Llama layer are those of queries, values, gate and
// down: 2A, 2C, 2F and 2H; attention keeps 2A and its log-sum-exp. Compiled code
// drops what the down product gives: nothing needs it.
TEST(RecomputeTest, PerOpKeepsAttentionAndEveryOtherProduct) {
  constexpr int64_t kTokens = 2 * 32;
  const int64_t kept = kHidden + kTokens * (2 * 64 + 2 * 32 + 2 * 128 + 2 * 64 + 4 * 4);
  EXPECT_EQ(Kept(PerOp(false)), kept + kHidden);
  EXPECT_EQ(Kept(PerOp(true)), kept);
}

// Of experts the router and grouped products run again; which are picked is kept, 16 bytes of a
// number and 4 of a score for each: K 2.
// Source: torchtitan distributed/activation_checkpoint.py, SelectiveAC.
TEST(RecomputeTest, PerOpKeepsWhichExpertsArePicked) {
  JobSpec job = PerOp(false);
  job.runtime.trainer = "torchtitan";
  job.training.precision.preset = "bf16-mixed";
  const int64_t dense = Kept(job);
  Shape(job).expert_count = 8;
  Shape(job).active_expert_count = 2;
  Shape(job).expert_ffn_size = 96;
  constexpr int64_t kTokens = 2 * 32;
  const int64_t mlp = kTokens * 2 * (128 + 64);  // two of its three products
  EXPECT_EQ(Kept(job), dense - mlp + kTokens * 2 * (8 + 4));
}

// What is kept is not made again, so backward needs no more than full
// recomputation does, the kept tensors counted.
TEST(RecomputeTest, PerOpMakesNothingTwice) {
  JobSpec full = PerOp(false);
  full.training.recompute.mode = "full";
  const auto backward = [](const JobSpec& job) {
    const Program program = ProgramOf(job);
    return plimsoll::Run(FindBlock(program, "layer"), WeightGradient::kAdded, DType::kBf16)
        .backward.whole.total;
  };
  EXPECT_LE(backward(PerOp(false)), backward(full) + kHidden) << "the down product's output";
  EXPECT_GE(backward(PerOp(false)), backward(full));
}

// With tensor parallelism sums that are scattered are kept beside whole ones:
// after attention [S/tp], after the MLP both.
TEST(RecomputeTest, PerOpKeepsScatteredSums) {
  JobSpec job = PerOp(false);
  job.runtime.trainer = "torchtitan";
  job.runtime.versions["torchtitan"] = "2026.6";
  job.parallelism.tensor_parallel_size = 2;
  constexpr int64_t kTokens = 2 * 32;
  const int64_t split = kHidden + kTokens * (2 * 64 + 2 * 32 + 2 * 128 + 2 * 64 + 4 * 4);
  EXPECT_EQ(Kept(job), split / 2 + 2 * kHidden / 2 + kHidden);
  job.runtime.versions["torchtitan"] = "2026.7";
  EXPECT_EQ(Kept(job), split / 2 + 2 * kHidden / 2 + kHidden + kTokens * 2 * 32 / 2)
      << "keys too, of the joint product";
}

TEST(RecomputeTest, EveryNthMakesTwoKindsOfLayer) {
  JobSpec job = Job("every-nth");
  job.runtime.framework = "fsdp2";
  job.training.recompute.interval = 3;
  const Program program = ProgramOf(job);
  const Block& kept = FindBlock(program, "layer");
  const Block& recomputed = FindBlock(program, "recomputed layer");
  EXPECT_EQ(kept.recompute_unit, 0);
  EXPECT_EQ(recomputed.recompute_unit, 1);
  const Stage stage = WholeStage(4);
  EXPECT_EQ(CountOnStage(recomputed, stage), 2) << "layers 0 and 3";
  EXPECT_EQ(CountOnStage(kept, stage), 2);
}

TEST(RecomputeTest, EveryFirstIsAll) {
  JobSpec every = Job("every-nth");
  every.runtime.framework = "fsdp2";
  every.training.recompute.interval = 1;
  JobSpec all = Job("full");
  all.runtime.framework = "fsdp2";
  EXPECT_EQ(Describe(ProgramOf(every)), Describe(ProgramOf(all)));
}

// One input for two layers; both run again at once.
TEST(RecomputeTest, AUnitKeepsOneInput) {
  JobSpec job = Job("full");
  const int64_t single = EstimateInFull(job).trace.back().activation_bytes;
  job.training.recompute.unit_layer_count = 2;
  const int64_t twos = EstimateInFull(job).trace.back().activation_bytes;
  EXPECT_EQ(single - twos, 2 * kHidden) << "4 inputs, then 2";
}

// DeepSpeed's pipeline passes the mask through each checkpoint.
TEST(RecomputeTest, MegatronDeepSpeedKeepsTheMaskToo) {
  JobSpec job = With(SmallJob(), "megatron-deepspeed");
  job.training.recompute.mode = "full";
  EXPECT_EQ(Kept(job), kHidden + 2 * 32 * 32);
  job.runtime.attention_mask = false;
  EXPECT_EQ(Kept(job), kHidden);
}

}  // namespace
}  // namespace plimsoll
