// One layer, lowered: which tensors each option adds, by name, shape and dtype.
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsSupersetOf;
using ::testing::Not;

// "name [symbols] dtype" of each weight.
std::vector<std::string> Weights(const JobSpec& job, absl::string_view block = "layer") {
  const Program program = Lowered(Valid(job));
  std::vector<std::string> rows;
  for (const Parameter& parameter : FindBlock(program, block).parameters) {
    rows.push_back(
        absl::StrCat(parameter.name, " ", InSymbols(parameter.shape), " ", Name(parameter.dtype)));
  }
  return rows;
}

std::vector<std::string> Ops(const JobSpec& job, absl::string_view block = "layer") {
  const Program program = Lowered(Valid(job));
  std::vector<std::string> names;
  for (const Op& op : FindBlock(program, block).ops) names.emplace_back(op.name);
  return names;
}

TEST(LowerLayerTest, ALlamaHasTheseWeights) {
  EXPECT_THAT(Weights(SmallJob()),
              ElementsAre("attention.norm.weight [H] bf16", "attention.query.weight [A, H] bf16",
                          "attention.key.weight [C, H] bf16", "attention.value.weight [C, H] bf16",
                          "attention.out.weight [H, A] bf16", "mlp.norm.weight [H] bf16",
                          "mlp.gate.weight [F, H] bf16", "mlp.up.weight [F, H] bf16",
                          "mlp.down.weight [H, F] bf16"));
}

TEST(LowerLayerTest, AClassicBlockHasBiases) {
  EXPECT_THAT(
      Weights(ClassicJob()),
      ElementsAre("attention.norm.weight [H] bf16", "attention.norm.bias [H] bf16",
                  "attention.query.weight [A, H] bf16", "attention.key.weight [C, H] bf16",
                  "attention.value.weight [C, H] bf16", "attention.query.bias [A] bf16",
                  "attention.key.bias [C] bf16", "attention.value.bias [C] bf16",
                  "attention.out.weight [H, A] bf16", "attention.out.bias [H] bf16",
                  "mlp.norm.weight [H] bf16", "mlp.norm.bias [H] bf16", "mlp.up.weight [F, H] bf16",
                  "mlp.up.bias [F] bf16", "mlp.down.weight [H, F] bf16", "mlp.down.bias [H] bf16"));
}

TEST(LowerLayerTest, MegatronPacksAndFuses) {
  const JobSpec core = With(SmallJob(), "megatron-core");
  EXPECT_THAT(Ops(core), Contains("attention.qkv"));
  EXPECT_THAT(Ops(core), Contains("mlp.gate_up"));
  EXPECT_THAT(Ops(core), Not(Contains("mlp.activation"))) << "in the product's kernel";
  EXPECT_THAT(Ops(SmallJob()), Contains("attention.query"));
  EXPECT_THAT(Ops(SmallJob()), Contains("mlp.activation"));
}

// Flash kernels make no scores; eager makes them as tensors.
// torchtitan's joint product of July 2026: queries, keys and values, not gate and up.
TEST(LowerLayerTest, TorchtitanJoinsQueriesKeysAndValues) {
  JobSpec job = With(SmallJob(), "fsdp2");
  job.runtime.trainer = "torchtitan";
  EXPECT_THAT(Ops(job), AllOf(Contains("attention.qkv"), Contains("mlp.gate")));
  job.runtime.versions["torchtitan"] = "2026.6";
  EXPECT_THAT(Ops(job), AllOf(Contains("attention.query"), Not(Contains("attention.qkv"))));
}

TEST(LowerLayerTest, ScoresAreTensorsOfEagerAttentionAlone) {
  JobSpec job = SmallJob();
  EXPECT_THAT(Ops(job), Contains("attention.flash"));
  job.training.attention = "eager";
  EXPECT_THAT(Ops(job), Not(Contains("attention.flash")));
  const Program program = Lowered(Valid(job));
  const Block& layer = FindBlock(program, "layer");
  EXPECT_EQ(InSymbols(FindTensor(layer, "attention.scores").shape), "[B, N, S, S]");
  EXPECT_EQ(FindTensor(layer, "attention.softmax").dtype, DType::kFp32);
  EXPECT_EQ(FindTensor(layer, "attention.probabilities").dtype, DType::kBf16);
}

// Flash's backward sums the query's gradient in fp32, over sequences rounded to
// 128 and heads to 32.
TEST(LowerLayerTest, FlashRoundsItsAccumulator) {
  const Program program = Lowered(Valid(SmallJob()));
  const Block& layer = FindBlock(program, "layer");
  const Tensor& sum = FindTensor(layer, "attention.query.gradient.accumulator");
  EXPECT_EQ(InNumbers(sum.shape), "[2, 128, 4, 32]") << "S 32, D 16";
  EXPECT_EQ(sum.dtype, DType::kFp32);
}

TEST(LowerLayerTest, RotationMakesNewQueriesAndKeys) {
  JobSpec job = With(SmallJob(), "fsdp2");
  job.runtime.trainer = "torchtitan";
  EXPECT_THAT(Ops(job), Contains("attention.rotary"));
  JobSpec python = SmallJob();  // an op at a time, each for queries and for keys
  EXPECT_THAT(Ops(python),
              testing::IsSupersetOf({"attention.rotary.cosines", "attention.rotary.turned",
                                     "attention.rotary.sines", "attention.query.rotated",
                                     "attention.key.rotated"}));
  EXPECT_THAT(Ops(python), Not(Contains("attention.rotary")));
  for (const char* position : {"learned", "alibi", "none"}) {
    for (JobSpec* const spec : {&job, &python}) {
      Shape(*spec).position_embedding = position;
      EXPECT_THAT(Ops(*spec), Not(Contains(testing::StartsWith("attention.rotary")))) << position;
    }
  }
}

// Queries and keys lie behind heads as soon as each is projected; some classes norm them before the
// next product. A norm of all heads comes before they are laid out.
// Source: transformers, modeling_llama.py, modeling_qwen3.py and modeling_olmo2.py, forward of each
// attention (view, transpose).
TEST(LowerLayerTest, QueriesAndKeysAreLaidOutAsProjected) {
  const std::set<std::string> steps = {
      "attention.query",     "attention.query.heads", "attention.query.norm", "attention.key",
      "attention.key.heads", "attention.key.norm",    "attention.value"};
  const auto order = [&steps](const char* norm, bool as_projected) {
    JobSpec job = SmallJob();
    Shape(job).qk_norm = norm;
    job = WithModel(job, [=](Transformer& model) { model.norms_as_projected = as_projected; });
    std::string words;
    for (const std::string& op : Ops(job)) {
      if (steps.count(op) > 0) absl::StrAppend(&words, " ", op.substr(10));
    }
    return words;
  };
  EXPECT_EQ(order("none", false), " query query.heads key key.heads value") << "Llama";
  EXPECT_EQ(order("per-head", true), " query query.heads query.norm key key.heads key.norm value")
      << "Qwen3";
  EXPECT_EQ(order("per-head", false), " query query.heads key key.heads value query.norm key.norm");
  EXPECT_EQ(order("full", false), " query key value query.norm key.norm query.heads key.heads")
      << "OLMo 2";
}

// Python's arguments live until what was called returns, its locals until what has them does; a
// kernel, and a compiled layer, have none.
// Source: transformers, modeling_llama.py, LlamaDecoderLayer, LlamaAttention and LlamaRMSNorm,
// forward.
TEST(LowerLayerTest, ArgumentsAndLocalsAreHeldUntilTheirModuleReturns) {
  const auto until = [](const JobSpec& job, absl::string_view tensor) {
    const Program program = Lowered(Valid(job));
    const Block& layer = FindBlock(program, "layer");
    const uint8_t op = FindTensor(layer, tensor).held_until;
    return op == 255 ? std::string("none") : std::string(layer.ops[op].name);
  };
  constexpr std::pair<const char*, const char*> kHeld[] = {
      {"layer.input", "attention.norm"},
      {"attention.norm", "attention.out"},
      {"attention.query.activation", "attention.key.rotated"},
      {"attention.key.activation", "attention.key.rotated"},
      {"attention.query.rotated", "attention.out"},
      {"attention.key.rotated", "attention.out"},
      {"attention.value.activation", "attention.out"},
      {"attention.residual", "mlp.norm"},
      {"mlp.norm", "mlp.down"},
  };
  for (const auto& [tensor, op] : kHeld) EXPECT_EQ(until(SmallJob(), tensor), op) << tensor;
  JobSpec compiled = SmallJob();
  compiled.runtime.compile = true;
  for (const JobSpec& job : {compiled, With(SmallJob(), "megatron-core")}) {
    for (const char* tensor : {"layer.input", "attention.norm", "mlp.norm"}) {
      EXPECT_EQ(until(job, tensor), "none") << tensor;
    }
  }
}

// nanotron's rotated queries keep the copy that they lie in; grouped, they have their own.
TEST(LowerLayerTest, NanotronsQueriesKeepTheirCopy) {
  const auto query_storage = [](int64_t kv_heads) {
    JobSpec job = With(SmallJob(), "nanotron");
    Shape(job).kv_head_count = kv_heads;
    const Program program = Lowered(Valid(job));
    const Block& layer = FindBlock(program, "layer");
    for (const Op& op : layer.ops) {
      if (op.name != "attention.flash") continue;
      return std::string(layer.tensors[layer.tensors[op.saved.ids[0]].storage].name);
    }
    return std::string("none");
  };
  EXPECT_EQ(query_storage(4), "attention.qkv.copy");
  EXPECT_EQ(query_storage(1), "attention.query.copy");
}

TEST(LowerLayerTest, NormsStandWhereThePlacementSays) {
  const std::pair<const char*, std::vector<std::string>> rows[] = {
      {"pre", {"attention.norm", "attention.residual", "mlp.norm", "mlp.residual"}},
      {"post", {"attention.residual", "attention.norm", "mlp.residual", "mlp.norm"}},
      {"sandwich",
       {"attention.norm", "attention.post_norm", "attention.residual", "mlp.norm", "mlp.post_norm",
        "mlp.residual"}},
      {"post-only", {"attention.post_norm", "attention.residual", "mlp.post_norm", "mlp.residual"}},
      {"parallel", {"attention.norm", "attention.residual", "mlp.residual"}},
      {"parallel-two", {"attention.norm", "mlp.norm", "attention.residual", "mlp.residual"}},
  };
  for (const auto& [placement, expected] : rows) {
    JobSpec job = With(SmallJob(), "megatron-core");
    Shape(job).norm_placement = placement;
    std::vector<std::string> seen;
    for (const std::string& name : Ops(job)) {
      for (const char* of : {"attention.norm", "attention.post_norm", "attention.residual",
                             "mlp.norm", "mlp.post_norm", "mlp.residual"}) {
        if (name == of) seen.push_back(name);
      }
    }
    EXPECT_EQ(seen, expected) << placement;
  }
}

TEST(LowerLayerTest, DropoutKeepsAMaskOfOneByte) {
  const Program with = Lowered(Valid(ClassicJob()));
  const Block& layer = FindBlock(with, "layer");
  for (const char* name : {"attention.dropout.hidden_mask", "mlp.dropout.mask"}) {
    EXPECT_EQ(FindTensor(layer, name).dtype, DType::kBool) << name;
    EXPECT_FALSE(FindTensor(layer, name).differentiable) << name;
  }
  JobSpec without = ClassicJob();
  Shape(without).hidden_dropout = 0;
  const Program program = Lowered(Valid(without));
  for (const Tensor& tensor : FindBlock(program, "layer").tensors) {
    EXPECT_NE(tensor.name, "mlp.dropout.mask");
  }
}

TEST(LowerLayerTest, QueryAndKeyNormsHaveTheirWeights) {
  JobSpec job = SmallJob();
  Shape(job).qk_norm = "per-head";
  EXPECT_THAT(Weights(job), Contains("attention.query.norm.weight [D] bf16"));
  EXPECT_THAT(Weights(job), Contains("attention.key.norm.weight [D] bf16"));
  Shape(job).qk_norm = "full";
  EXPECT_THAT(Weights(job), Contains("attention.query.norm.weight [A] bf16"));
  EXPECT_THAT(Weights(job), Contains("attention.key.norm.weight [C] bf16"));
}

// "name dtype" of what ops keep for backward whose name begins so, in their order.
std::vector<std::string> Saved(const JobSpec& job, absl::string_view begin) {
  const Program program = Lowered(Valid(job));
  const Block& layer = FindBlock(program, "layer");
  std::vector<std::string> rows;
  for (const Op& op : layer.ops) {
    for (const TensorId id : op.saved) {
      const Tensor& tensor = layer.tensors[id];
      if (!absl::StartsWith(op.name, begin)) continue;
      rows.push_back(absl::StrCat(tensor.name, " ", Name(tensor.dtype)));
    }
  }
  return rows;
}

// Source: transformers 5.23, modeling_llama.py, modeling_gemma.py and modeling_olmo2.py,
// modeling_cohere2.py; each seen in the list of what is alive at a peak.
TEST(LowerLayerTest, ANormKeepsWhatItsClassDoes) {
  const auto of = [](NormClass how) {
    return WithModel(With(SmallJob(), "ddp"), [how](Transformer& model) {
      model.norm_class = how;
      if (how == NormClass::kCentred) model.norm = Norm::kLayerNorm;
    });
  };
  EXPECT_THAT(
      Saved(of(NormClass::kUsual), "mlp.norm"),
      ElementsAre("mlp.norm.upcast fp32", "mlp.norm.statistics fp32", "mlp.norm.normalized bf16"));
  EXPECT_THAT(
      Saved(of(NormClass::kWide), "mlp.norm"),
      ElementsAre("mlp.norm.upcast fp32", "mlp.norm.statistics fp32", "mlp.norm.normalized fp32"));
  EXPECT_THAT(Saved(of(NormClass::kCentred), "mlp.norm"),
              ElementsAre("mlp.norm.centred fp32", "mlp.norm.centred fp32",
                          "mlp.norm.statistics fp32", "mlp.norm.normalized fp32"));
  JobSpec fused = of(NormClass::kCentred);
  fused.runtime.framework = "megatron-core";
  EXPECT_THAT(Saved(fused, "mlp.norm"),
              ElementsAre("attention.residual bf16", "mlp.norm.statistics fp32"))
      << "a kernel does all of it";
}

// Source: transformers, activations.py, NewGELUActivation: torch.pow is fp32 under autocast.
TEST(LowerLayerTest, AutocastRaisesGeluNewToFp32) {
  JobSpec job = With(ClassicJob(), "ddp", "bf16-mixed");
  Shape(job).activation = "gelu-new";
  EXPECT_THAT(Saved(job, "mlp.gelu"), ElementsAre("mlp.up.activation bf16", "mlp.gelu.tanh bf16"));
  job.training.precision.preset = "bf16-autocast";
  EXPECT_THAT(Saved(job, "mlp.gelu"), ElementsAre("mlp.gelu.base fp32", "mlp.gelu.tanh fp32"));
  EXPECT_THAT(Saved(job, "mlp.activation"),
              ElementsAre("mlp.gelu.half bf16", "mlp.gelu.shifted fp32"));
}

// Under autocast weights and residual are fp32, and each product casts its own
// input: five casts a layer.
TEST(LowerLayerTest, AutocastCastsEachInput) {
  const JobSpec job = With(SmallJob(), "ddp", "bf16-autocast");
  const std::vector<std::string> ops = Ops(job);
  EXPECT_EQ(std::count(ops.begin(), ops.end(), "attention.input.cast"), 3);
  EXPECT_EQ(std::count(ops.begin(), ops.end(), "mlp.input.cast"), 2);
  EXPECT_THAT(Weights(job), Contains("mlp.down.weight [H, F] fp32"));
  EXPECT_THAT(Ops(SmallJob()), Not(Contains("mlp.input.cast")));
  const std::vector<std::string> joint =
      Ops(WithModel(job, [](Transformer& model) { model.joint_qkv = true; }));
  EXPECT_EQ(std::count(joint.begin(), joint.end(), "attention.input.cast"), 1) << "of one product";
}

// transformers' GPT-NeoX: values are a view of what its one projection gave, and pin it.
TEST(LowerLayerTest, AJointProjectionIsPinnedByItsValues) {
  const JobSpec job =
      WithModel(With(SmallJob(), "ddp"), [](Transformer& model) { model.joint_qkv = true; });
  const Program program = Lowered(Valid(job));
  const Block& layer = FindBlock(program, "layer");
  const Op& flash = FindOp(layer, "attention.flash");
  EXPECT_EQ(layer.tensors[flash.saved.ids[0]].name, "attention.query.rotated");
  const Tensor& value = layer.tensors[flash.saved.ids[2]];
  EXPECT_EQ(layer.tensors[value.storage].name, "attention.qkv.activation");
}

// One product of gate and up: one tensor, of which both are views, and which Liger's kernel copies.
TEST(LowerLayerTest, GateAndUpMayBeOneProduct) {
  JobSpec job =
      WithModel(With(SmallJob(), "ddp"), [](Transformer& model) { model.joint_gate = true; });
  const auto storage_of = [&job](absl::string_view name) {
    const Program program = Lowered(Valid(job));
    const Block& layer = FindBlock(program, "layer");
    const Tensor& tensor = FindTensor(layer, name);
    return std::string(layer.tensors[tensor.storage].name);
  };
  EXPECT_EQ(storage_of("mlp.gate.activation"), "mlp.gate_up.activation");
  EXPECT_EQ(storage_of("mlp.up.activation"), "mlp.gate_up.activation");
  job.runtime.liger_kernel = true;
  EXPECT_EQ(storage_of("mlp.up.activation"), "mlp.up.activation");
}

TEST(LowerLayerTest, ConcatenatedHeadsHaveTheOutputCopied) {
  JobSpec job = WithModel(With(SmallJob(), "ddp"),
                          [](Transformer& model) { model.concatenates_rotary = true; });
  job.training.attention = "flash";
  EXPECT_THAT(Ops(job), Contains("attention.context.copy"));
  job.training.attention = "memory-efficient";
  EXPECT_THAT(Ops(job), Not(Contains("attention.context.copy"))) << "its layout is its own";
}

// What lowering makes has as many parameters as the model, whatever its traits.
TEST(LowerLayerTest, ALayerCountsWhatTheModelDoes) {
  for (const char* placement :
       {"pre", "post", "sandwich", "parallel", "parallel-two", "post-only"}) {
    for (const bool bias : {false, true}) {
      JobSpec job = SmallJob();
      TransformerSpec& shape = Shape(job);
      shape.norm_placement = placement;
      shape.qkv_bias = shape.attention_output_bias = shape.mlp_bias = bias;
      shape.norm = bias ? "layer-norm" : "rms-norm";
      const MemoryEstimate estimate = Estimate(job);
      EXPECT_EQ(estimate.ranks[0].parameter_count, estimate.parameter_count)
          << placement << " " << bias;
    }
  }
}

// Keys and values of two heads are copied to all four, and a mask is kept; layers without a
// window have neither.
TEST(LowerLayerTest, WindowsAreMasksToSdpa) {
  const JobSpec job = WithModel(SmallJob(), [](Transformer& model) {
    model.sliding_window = 16;
    model.windowed = {.period = 2};
  });
  const Program program = Lowered(Valid(job));
  const Block& windowed = FindBlock(program, "windowed layer");
  EXPECT_EQ(windowed.layers, (LayerSet{.period = 2}));
  EXPECT_EQ(FindBlock(program, "layer").layers, Others(windowed.layers));
  EXPECT_THAT(Ops(job, "windowed layer"),
              testing::IsSupersetOf({"attention.mask", "attention.key.expanded"}));
  EXPECT_THAT(Ops(job), Not(Contains("attention.mask")));
  const Tensor& mask = FindTensor(windowed, "attention.mask");
  EXPECT_EQ(mask.Bytes(), 2 * 32 * 32 * 2);
  EXPECT_EQ(KeptNamed(windowed, {"attention.mask"}), mask.Bytes());
}

// A block for each kind of layer that there is, whatever makes them differ, and whatever turns they
// come in.
TEST(LowerLayerTest, LayersOfEachKindAreABlock) {
  const auto blocks = [](absl::FunctionRef<void(Transformer&)> change) {
    const Program program = Lowered(Valid(WithModel(SmallJob(), [&](Transformer& model) {
      model.layer_count = 8;
      model.activation = Activation::kSilu;
      change(model);
    })));
    std::vector<std::string> rows;
    for (const Block& block : program.blocks) {
      if (block.kind != BlockKind::kLayer) continue;
      std::vector<int64_t> layers;
      for (int64_t i = 0; i < 8; ++i) {
        if (block.layers.Has(i)) layers.push_back(i);
      }
      rows.push_back(absl::StrCat(block.name, " ", absl::StrJoin(layers, "")));
    }
    return rows;
  };
  const auto add_experts = [](Transformer& model, const LayerSet& layers) {
    model.experts = {.count = 4, .active_count = 2, .ffn_size = 32, .layers = layers};
  };
  EXPECT_THAT(blocks([](Transformer&) {}), ElementsAre("layer 01234567"));
  EXPECT_THAT(blocks([&](Transformer& model) { add_experts(model, {}); }),
              ElementsAre("layer 01234567"));
  EXPECT_THAT(blocks([&](Transformer& model) { add_experts(model, {.begin = 2}); }),
              ElementsAre("layer 01", "expert layer 234567"));
  EXPECT_THAT(blocks([&](Transformer& model) {
                add_experts(model, {.begin = 1});
                model.sliding_window = 16;
                model.windowed = {.period = 4, .to = 3};
              }),
              ElementsAre("expert layer 37", "windowed layer 0", "windowed expert layer 12456"));
  EXPECT_THAT(
      blocks([&](Transformer& model) {
        add_experts(model, {.end = 3});
        model.linear = {1, 1, 16, 16, 4};
        model.linear.layers = {.period = 3, .from = 1, .to = 2};
      }),
      ElementsAre("layer 356", "expert layer 02", "linear layer 47", "linear expert layer 1"));
}

// Rows of a mask are padded to eight.
TEST(LowerLayerTest, MasksHaveFullVectors) {
  JobSpec job = WithModel(SmallJob(), [](Transformer& model) { model.sliding_window = 16; });
  job.training.sequence_length = 33;
  EXPECT_EQ(FindTensor(FindBlock(Lowered(Valid(job)), "layer"), "attention.mask").Bytes(),
            2 * 33 * 40 * 2);
}

// Bytes of scores that one layer keeps, for each of them.
int64_t ScoreBytes(EagerScores scores, absl::string_view preset, bool softcap = false) {
  JobSpec job = With(SmallJob(), "ddp", preset);
  job.training.attention = "eager";
  job = WithModel(job, [&](Transformer& model) {
    model.eager_scores = scores;
    model.attention_softcap = softcap;
  });
  const Program program = Lowered(Valid(job));
  return KeptNamed(FindBlock(program, "layer"), {"attention.scores", "attention.softcap",
                                                 "attention.softmax", "attention.probabilities"}) /
         (int64_t{2} * 4 * 32 * 32);
}

TEST(LowerLayerTest, EagerScoresAreAsTheClassComputesThem) {
  EXPECT_EQ(ScoreBytes(EagerScores::kWideSoftmax, "bf16-pure"), 4 + 2);
  EXPECT_EQ(ScoreBytes(EagerScores::kWideSoftmax, "bf16-pure", true), 2 + 4 + 2);
  EXPECT_EQ(ScoreBytes(EagerScores::kWideSoftmax, "fp32"), 4) << "a cast to itself is none";
  EXPECT_EQ(ScoreBytes(EagerScores::kOwnSoftmax, "bf16-pure"), 2);
  EXPECT_EQ(ScoreBytes(EagerScores::kOwnSoftmax, "bf16-autocast"), 4 + 2);
  EXPECT_EQ(ScoreBytes(EagerScores::kFloored, "bf16-pure"), 2 + 2);
  EXPECT_EQ(ScoreBytes(EagerScores::kWideScores, "bf16-pure"), 4 + 2);
}

// By hand: B 2, N 4, S 32. A column more, in one dtype; under autocast what masks and sinks widen,
// and a cast of the shares. Of each row the place of its largest.
// Source: transformers, models/gpt_oss/modeling_gpt_oss.py, eager_attention_forward.
TEST(LowerLayerTest, SinksAreAColumnOfScores) {
  const auto kept = [](absl::string_view preset) {
    JobSpec job = With(SmallJob(), "ddp", preset);
    job.training.attention = "eager";
    job = WithModel(job, [](Transformer& model) { model.attention_sinks = true; });
    const Program program = Lowered(Valid(job));
    const Block& layer = FindBlock(program, "layer");
    EXPECT_EQ(InSymbols(FindParameter(layer, "attention.sinks").shape), "[N]");
    return KeptNamed(layer, {"attention.softmax", "attention.probabilities",
                             "attention.scores.largest", "attention.scores.shifted"});
  };
  constexpr int64_t kRows = int64_t{2} * 4 * 32;
  EXPECT_EQ(kept("bf16-pure"), kRows * (33 * 2 + 8));
  EXPECT_EQ(kept("bf16-autocast"), kRows * (33 * 4 + 32 * 2 + 8));
}

// Torch's softmax multiplies before it sums; Megatron's own kernels need no such tensor.
// Source: aten/src/ATen/native/cuda/SoftMax.cu, softmax_backward_cuda_out.
TEST(LowerLayerTest, SoftmaxRunsBackwardBesideAProduct) {
  const auto temporaries = [](absl::string_view framework) {
    JobSpec job = With(SmallJob(), framework, "bf16-mixed");
    job.training.attention = "eager";
    if (framework == "megatron-core") job.runtime.transformer_implementation = "local";
    const Program program = Lowered(Valid(job));
    return FindOp(FindBlock(program, "layer"), "attention.softmax").backward_temporaries.count;
  };
  EXPECT_EQ(temporaries("fsdp2"), 1);
  EXPECT_EQ(temporaries("megatron-core"), 0);
}

// Layers that run again hold the masks that they are given: one of each kind of layer.
// Source: transformers, masking_utils.py, eager_mask.
TEST(LowerLayerTest, MasksOfEagerAttentionWaitForLayersToRunAgain) {
  const auto held = [](int64_t window, absl::string_view mode) {
    JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
    job.training.attention = "eager";
    job.training.recompute.mode = std::string(mode);
    job = WithModel(job, [&](Transformer& model) {
      model.sliding_window = window;
      model.windowed = {.period = 2};
    });
    const Program program = Lowered(Valid(job));
    return KeptNamed(FindBlock(program, "embedding"), {"attention.mask", "windows.mask"});
  };
  EXPECT_EQ(held(0, "full"), 2 * 32 * 32 * 2);
  EXPECT_EQ(held(16, "full"), 2 * (2 * 32 * 32 * 2));
  EXPECT_EQ(held(16, "none"), 0);
}

// Of many tokens a table's gradient is summed up from rows: of 4,096 tokens, and 1 for each ten.
// Source: aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu.
TEST(LowerLayerTest, ATablesGradientIsSummedFromRows) {
  const auto rows = [](int64_t sequence, int64_t vocab) {
    JobSpec job = SmallJob();
    job.training.sequence_length = sequence;
    Shape(job).vocab_size = vocab;
    const Program program = Lowered(Valid(job));
    const Block& embedding = FindBlock(program, "embedding");
    const Op& lookup = FindOp(embedding, "embedding.lookup");
    if (lookup.backward_temporaries.count == 0) return std::string("none");
    return InNumbers(embedding.tensors[lookup.backward_temporaries.ids[0]].shape);
  };
  EXPECT_EQ(rows(1536, 50000), "none") << "3,072 tokens";
  EXPECT_EQ(rows(2048, 50000), "[4505, 64]");
  EXPECT_EQ(rows(2048, 1000), "[1409, 64]");
}

// Seen under the phantom, on an H100: 256 tokens of Llama 3.1 8B in two parts, 512 of Gemma 2B, one
// head's keys, in four; blocks of queries for four fifths of 264 are enough.
TEST(LowerLayerTest, FlashAttentionSplitsKeysWhereBlocksAreFew) {
  const struct {
    int64_t tokens, heads, head_size, parts;
    const char* gpu = "h100-80gb-sxm";
    const char* framework = "fsdp2";
    const char* trainer = "";
  } kRows[] = {
      {256, 32, 128, 2},
      {256, 32, 128, 2, "h100-80gb-sxm", "fsdp2", "torchtitan"},  // whose newest shares keys
      {512, 8, 256, 4},
      {256, 54, 128, 1},
      {2048, 32, 128, 1},
      {256, 32, 128, 1, "a100-80gb-sxm"},                   // whose multiprocessors are not known
      {256, 32, 128, 1, "h100-80gb-sxm", "megatron-core"},  // whose kernel is another
  };
  for (const auto& row : kRows) {
    JobSpec job = With(SmallJob(), row.framework);
    Shape(job).head_count = row.heads;
    Shape(job).kv_head_count = 1;
    Shape(job).head_size = row.head_size;
    job.training.sequence_length = row.tokens;
    job.training.micro_batch_size = 1;
    job.cluster.gpu = row.gpu;
    if (*row.trainer != '\0') job.runtime.trainer = row.trainer;
    const Program program = Lowered(Valid(job));
    int64_t parts = 1;
    for (const Tensor& tensor : FindBlock(program, "layer").tensors) {
      if (tensor.name != "attention.context.parts") continue;
      parts = tensor.Bytes() / (4 * row.tokens * row.heads * row.head_size);
    }
    EXPECT_EQ(parts, row.parts) << row.tokens << " " << row.gpu << " " << row.framework;
  }
}

}  // namespace
}  // namespace plimsoll
