// The two ends of the network, lowered: tables, norms, logits and each loss.
#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Ops(const JobSpec& job, absl::string_view block) {
  const Program program = Lowered(Valid(job));
  std::vector<std::string> names;
  for (const Op& op : FindBlock(program, block).ops) names.emplace_back(op.name);
  return names;
}

BlockRun RunHead(const JobSpec& job) {
  const Program program = Lowered(Valid(job));
  return plimsoll::Run(FindBlock(program, "head"), WeightGradient::kFused, DType::kBf16);
}

constexpr int64_t kTokens = 2 * 32;
constexpr int64_t kVocab = 256;

TEST(LowerEmbeddingTest, LooksUpAndDropsOut) {
  EXPECT_THAT(Ops(SmallJob(), "embedding"), ElementsAre("embedding.lookup"));
  EXPECT_THAT(Ops(ClassicJob(), "embedding"), ElementsAre("embedding.lookup", "embedding.dropout"));
  const Program program = Lowered(Valid(ClassicJob()));
  const Block& embedding = FindBlock(program, "embedding");
  EXPECT_EQ(InSymbols(FindParameter(embedding, "embedding.tokens.weight").shape), "[V, E]");
  EXPECT_EQ(InNumbers(FindParameter(embedding, "embedding.positions.weight").shape), "[32, 64]");
  for (const Parameter& table : embedding.parameters) EXPECT_TRUE(table.embedding) << table.name;
}

// A lookup keeps the indices, 8 bytes each, and nothing of its output.
TEST(LowerEmbeddingTest, KeepsIndices) {
  const Program program = Lowered(Valid(SmallJob()));
  const BlockRun run =
      plimsoll::Run(FindBlock(program, "embedding"), WeightGradient::kFused, DType::kBf16);
  EXPECT_EQ(run.kept.total, 8 * kTokens);
}

TEST(LowerHeadTest, ATiedHeadSaysSo) {
  JobSpec job = SmallJob();
  for (const bool tied : {false, true}) {
    Shape(job).tied_embeddings = tied;
    const Program program = Lowered(Valid(job));
    EXPECT_EQ(FindParameter(FindBlock(program, "head"), "head.weight").tied, tied);
  }
}

TEST(LowerHeadTest, PostNormHasNoLastNorm) {
  JobSpec job = With(SmallJob(), "megatron-core");
  EXPECT_EQ(Ops(job, "head").front(), "final.norm");
  Shape(job).norm_placement = "post";
  EXPECT_EQ(Ops(job, "head").front(), "head");
}

TEST(LowerHeadTest, EachFrameworkHasItsLoss) {
  const auto last = [](const char* framework) {
    std::vector<std::string> ops = Ops(With(SmallJob(), framework), "head");
    ops.erase(ops.begin(), std::find(ops.begin(), ops.end(), "head"));
    return ops;
  };
  EXPECT_THAT(last("ddp"), ElementsAre("head", "loss.logits.fp32", "loss.log_softmax", "loss"));
  EXPECT_THAT(last("megatron-core"), ElementsAre("head", "loss.logits.fp32", "loss"));
  EXPECT_THAT(last("nanotron"), ElementsAre("head", "loss.logits.fp32", "loss.softmax", "loss"));
}

// In fp32 the logits need no second copy.
TEST(LowerHeadTest, Fp32LogitsAreNotCopied) {
  const std::vector<std::string> ops = Ops(With(SmallJob(), "ddp", "fp32"), "head");
  EXPECT_THAT(ops, ::testing::Not(::testing::Contains("loss.logits.fp32")));
}

// PyTorch's cross entropy: log-softmax, its gradient and the logits' in fp32, 12
// bytes a logit in backward. Megatron's writes in place: 6, the 16-bit gradient
// beside the fp32 softmax. Source: memory-internals 8.5.
TEST(LowerHeadTest, BackwardPeaksPerLogit) {
  JobSpec plain = SmallJob();
  JobSpec megatron = With(SmallJob(), "megatron-core");
  for (JobSpec* job : {&plain, &megatron}) Shape(*job).hidden_size = 64;
  const auto per_logit = [](const JobSpec& job) {
    return static_cast<double>(
               RunHead(job).backward.whole.roles[static_cast<size_t>(Role::kLoss)]) /
           static_cast<double>(kTokens * kVocab);
  };
  EXPECT_NEAR(per_logit(plain), 12, 0.1);
  EXPECT_NEAR(per_logit(megatron), 6, 0.1);
}

double PerLogit(const BlockRun& run, const Usage& usage) {
  EXPECT_GT(run.forward.total, 0);
  return static_cast<double>(usage.roles[static_cast<size_t>(Role::kLoss)]) /
         static_cast<double>(kTokens * kVocab);
}

JobSpec Torchtitan(const char* month, const char* loss, bool compile = false) {
  JobSpec job = With(SmallJob(), "fsdp2");
  job.runtime.trainer = "torchtitan";
  job.runtime.versions["torchtitan"] = month;
  job.runtime.compile = compile;
  job.training.loss.implementation = loss;
  return job;
}

// Bytes a logit in forward and in backward.
//   until May 2024   fp32 logits held through backward
//   later            deleted before it: a hole of the 16-bit ones stays
//   compiled         from April 2025 on: the 16-bit logits and their gradient
//   sliced           eight slices: 16-bit logits, the log-softmax, one fp32 slice
TEST(LowerHeadTest, TorchtitansLossesByEra) {
  const auto check = [](const JobSpec& job, double forward, double backward, int64_t hole) {
    const BlockRun run = RunHead(job);
    EXPECT_NEAR(PerLogit(run, run.forward), forward, 0.1);
    EXPECT_NEAR(PerLogit(run, run.backward.whole), backward, 0.1);
    EXPECT_EQ(run.hole_bytes, hole * kTokens * kVocab);
  };
  check(Torchtitan("2024.3", "plain"), 8, 16, 2);
  check(Torchtitan("2024.12", "plain"), 8, 12, 2);
  check(Torchtitan("2025.3", "plain", true), 8, 12, 2);
  check(Torchtitan("2025.4", "plain", true), 2, 4, 0);
  check(Torchtitan("2025.3", "chunked-cross-entropy"), 2 + 4 + 0.5, 4 + 2 * 0.5, 0);
}

// Backward of each slice in eight makes a gradient of the whole table, beside the sum so far and
// the logits' gradient of one slice less.
TEST(LowerHeadTest, TorchtunesSlicesMakeAGradientEach) {
  JobSpec job = With(SmallJob(), "ddp");
  job.runtime.trainer = "torchtune";
  const auto beside = [&job](const char* loss) {
    job.training.loss.implementation = loss;
    const Program program = Lowered(Valid(job));
    const Block& block = FindBlock(program, "head");
    int64_t bytes = 0;
    for (const Op& op : block.ops) {
      if (op.name != "head") continue;
      for (const TensorId id : op.backward_temporaries) bytes += block.tensors[id].Bytes();
    }
    return bytes;
  };
  const int64_t hidden = *Shape(job).hidden_size;
  EXPECT_EQ(beside("plain"), 0);
  EXPECT_EQ(beside("chunked-cross-entropy"), 2 * kVocab * (hidden - kTokens / 8));
}

// Slices of the tokens, of which the log-softmax alone is left until backward begins. Its second
// slice makes the weight's gradient once more, and the sum of both.
TEST(LowerHeadTest, TorchtunesSlicesWaitForTheLast) {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  job.runtime.trainer = "torchtune";
  job.runtime.versions["torchtune"] = "0.7";
  job.training.loss.implementation = "chunked";
  const Program program = Lowered(Valid(job));
  const Block& block = FindBlock(program, "head");
  constexpr int64_t kLogits = kTokens * kVocab;
  EXPECT_EQ(FindTensor(block, "head.logits").Bytes(), 2 * kLogits / 8);
  EXPECT_EQ(FindTensor(block, "loss.log_softmax").Bytes(), 4 * kLogits);
  const auto slices = std::find_if(block.ops.begin(), block.ops.end(),
                                   [](const Op& op) { return op.name == "head.slices"; });
  ASSERT_NE(slices, block.ops.end());
  int64_t bytes = 0;
  for (const TensorId id : slices->backward_temporaries) bytes += block.tensors[id].Bytes();
  EXPECT_EQ(bytes, 4 * kLogits * 6 / 8 + 2 * 2 * kVocab * *Shape(job).hidden_size);
}

// Hooks keep what the loss saves second, and bring the first back in a stream of copies.
TEST(LowerHeadTest, OffloadedLogSoftmaxComesBack) {
  JobSpec job = With(SmallJob(), "ddp");
  job.runtime.trainer = "hf-trainer";
  job.training.recompute.mode = "full";
  const BlockRun kept = RunHead(job);
  job.runtime.offload_activations = true;
  const Program program = Lowered(Valid(job));
  const Block& head = FindBlock(program, "head");
  const auto op = std::find_if(head.ops.begin(), head.ops.end(),
                               [](const Op& at) { return at.name == "loss.log_softmax"; });
  ASSERT_NE(op, head.ops.end());
  EXPECT_EQ(op->saved.count, 0);
  ASSERT_EQ(op->backward_temporaries.count, 1);
  const Tensor& fetched = head.tensors[op->backward_temporaries.ids[0]];
  EXPECT_EQ(fetched.stream, Stream::kHostCopy);
  EXPECT_EQ(fetched.Bytes(), 4 * kTokens * kVocab);
  EXPECT_EQ(RunHead(job).backward.whole.total, kept.backward.whole.total);
}

// torchtune's compile_loss reaches a loss over slices alone: 16-bit logits, and while
// the loss itself runs the gradient of one slice in eight.
TEST(LowerHeadTest, TorchtuneCompilesSlicesAlone) {
  JobSpec job = With(SmallJob(), "ddp");
  constexpr int64_t kWide = 8192;  // beside which the norm's backward is nothing
  constexpr int64_t kTimes = 64;   // so that a slice has more tokens than the head's input is wide
  Shape(job).vocab_size = kWide;
  job.runtime.trainer = "torchtune";
  job.runtime.compile = true;
  job.training.micro_batch_size = kTimes * *job.training.micro_batch_size;
  job.training.global_batch_size.reset();
  const auto backward = [&](const char* loss) {
    job.training.loss.implementation = loss;
    const BlockRun run = RunHead(job);
    return PerLogit(run, run.backward.whole) * kVocab / kWide / kTimes;
  };
  EXPECT_NEAR(backward("plain"), 12, 0.1);
  EXPECT_NEAR(backward("chunked-cross-entropy"), 2 + 2 / 8.0, 0.1);
  job.runtime.compile = false;
  EXPECT_NEAR(backward("chunked-cross-entropy"), 4 + 2 * 0.5, 0.1);
}

// Split logits: the gradient takes exponentials of their size, 16 bytes each.
TEST(LowerHeadTest, ASplitLossTakesExponentials) {
  JobSpec job = Torchtitan("2025.9", "plain");
  job.parallelism.tensor_parallel_size = 2;
  const BlockRun run = RunHead(job);  // before the split itself
  EXPECT_NEAR(PerLogit(run, run.backward.whole), 16, 0.1);
}

// Transformer Engine's loss writes its gradient over the 16-bit logits.
TEST(LowerHeadTest, TransformerEnginesLossIsInPlace) {
  JobSpec job = With(SmallJob(), "megatron-core");
  job.training.loss.implementation = "te-cross-entropy";
  const BlockRun run = RunHead(job);
  EXPECT_NEAR(PerLogit(run, run.forward), 2, 0.1);
  EXPECT_NEAR(PerLogit(run, run.backward.whole), 2, 0.1);
}

// Megatron's loss is in place but where it is compiled, and before core 0.8:
// 16-bit and fp32 logits and the exponentials side by side, in fp32 the latter two.
TEST(LowerHeadTest, MegatronsLossOutOfPlace) {
  JobSpec job = With(SmallJob(), "megatron-core");
  const auto forward = [](const JobSpec& spec) {
    const BlockRun run = RunHead(spec);
    return PerLogit(run, run.forward);
  };
  EXPECT_NEAR(forward(job), 6, 0.1);
  job.runtime.versions["megatron-core"] = "0.8";
  EXPECT_NEAR(forward(job), 6, 0.1);
  job.runtime.versions["megatron-core"] = "0.7";
  EXPECT_NEAR(forward(job), 10, 0.1);
  job.training.precision.preset = "fp32";
  EXPECT_NEAR(forward(job), 8, 0.1);
  JobSpec compiled = With(SmallJob(), "megatron-core");
  compiled.training.loss.implementation = "fused-cross-entropy";
  EXPECT_NEAR(forward(compiled), 10, 0.1);
}

// BERT's second head: a pooler of H x H and two classes, with biases, whole on each rank.
TEST(LowerHeadTest, ASentenceHeadIsItsWeights) {
  JobSpec job = With(ClassicJob(), "megatron-core");
  job.parallelism.tensor_parallel_size = 2;
  Shape(job).masked_lm_head = true;
  const int64_t without = Estimate(job).ranks[0].parameter_count;
  Shape(job).sentence_head = true;
  const int64_t wide = *Shape(job).hidden_size;
  EXPECT_EQ(Estimate(job).ranks[0].parameter_count, without + wide * wide + 3 * wide + 2);
}

// nanotron's 16-bit logits leave a hole that fp32 tensors cannot use.
TEST(LowerHeadTest, NanotronsLogitsLeaveAHole) {
  EXPECT_EQ(RunHead(With(SmallJob(), "nanotron")).hole_bytes, 2 * kTokens * kVocab);
  EXPECT_EQ(RunHead(With(SmallJob(), "megatron-core")).hole_bytes, 0);
}

// Liger's kernel: 64 tokens, V / H = 4 slices of 16; gradients of both inputs in
// forward.
TEST(LowerHeadTest, AFusedLossNeverMakesAllLogits) {
  JobSpec job = With(SmallJob(), "fsdp2");
  job.training.loss.implementation = "fused";
  const Program program = Lowered(Valid(job));
  const Block& head = FindBlock(program, "head");
  EXPECT_EQ(InNumbers(FindTensor(head, "head.slice.logits").shape), "[16, 256]");
  EXPECT_EQ(InNumbers(FindTensor(head, "head.weight_gradient").shape), "[256, 64]");
}

// What it makes beside its logits: a weight's gradient in the weight's dtype, a cast of the weight
// under autocast, and a product in fp32 that is added to the gradient, of 16 bits before 0.8.
TEST(LowerHeadTest, AFusedLossAddsSlicesUp) {
  const auto made = [](const char* preset, const char* version) {
    JobSpec job = With(SmallJob(), "ddp", preset);
    job.runtime.liger_kernel = true;
    job.runtime.versions["liger-kernel"] = version;
    const Program program = Lowered(Valid(job));
    const Block& head = FindBlock(program, "head");
    std::vector<std::string> names;
    for (const Op& op : head.ops) {
      for (const TensorId id : op.forward_temporaries) {
        names.push_back(absl::StrCat(head.tensors[id].name, " ", Name(head.tensors[id].dtype)));
      }
    }
    return names;
  };
  EXPECT_THAT(made("bf16-pure", "0.8"),
              testing::ElementsAre("head.slice.logits bf16", "head.weight_gradient bf16"));
  EXPECT_THAT(made("bf16-pure", "0.7"),
              testing::ElementsAre("head.slice.logits bf16", "head.weight_gradient bf16",
                                   "head.slice.weight_gradient bf16",
                                   "head.slice.weight_gradient.fp32 fp32"));
  EXPECT_THAT(made("bf16-autocast", "0.8.5"),
              testing::ElementsAre("head.slice.logits bf16", "head.weight.cast bf16",
                                   "head.weight_gradient fp32"));
  EXPECT_THAT(made("fp32", "0.8"),
              testing::ElementsAre("head.slice.logits fp32", "head.weight_gradient fp32",
                                   "head.slice.weight_gradient.fp32 fp32"));
}

// A class that makes logits fp32 drops those that its head gave; the model's fp32 output is a local
// of the class under autocast, where the head reads a copy.
TEST(LowerHeadTest, LocalsOfTheClassLiveUntilItReturns) {
  const auto held = [](const char* preset, bool wide) {
    const JobSpec job = WithModel(With(SmallJob(), "ddp", preset),
                                  [wide](Transformer& model) { model.wide_logits = wide; });
    std::vector<std::string> names;
    const Program program = ProgramOf(job);
    for (const Tensor& tensor : FindBlock(program, "head").tensors) {
      if (tensor.held) names.emplace_back(tensor.name);
    }
    return names;
  };
  EXPECT_THAT(held("bf16-pure", false), testing::ElementsAre("head.logits"));
  EXPECT_THAT(held("bf16-pure", true), testing::ElementsAre("loss.logits.fp32"));
  EXPECT_THAT(held("fp32", true), testing::ElementsAre("head.logits"));
  EXPECT_THAT(held("bf16-autocast", false), testing::ElementsAre("final.norm", "head.logits"));
}

}  // namespace
}  // namespace plimsoll
