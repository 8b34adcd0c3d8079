// The pass in words: what is no tensor of the model.
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kMib = int64_t{1} << 20;

int64_t FixedBytes(const Program& program, absl::string_view name) {
  const State* state = FindState(program, name);
  return state == nullptr ? 0 : state->fixed_bytes;
}

// From torch 2.15 on a product's workspace goes with it.
TEST(RuntimeTest, AWorkspaceOfEachProduct) {
  JobSpec job = With(SmallJob(), "ddp");
  job.cluster.gpu = "h100-80gb-sxm";
  job.runtime.versions["torch"] = "2.15";
  const Program program = ProgramOf(job);
  EXPECT_EQ(FixedBytes(program, "workspace.cublas"), 0);
  const Block& layer = FindBlock(program, "layer");
  EXPECT_EQ(FindTensor(layer, "workspace.cublas").Bytes(), 32 * kMib);
  for (const Op& op : layer.ops) {
    const bool multiplies = op.kind == OpKind::kMatrixProduct;
    EXPECT_EQ(op.workspace != kNoTensor, multiplies) << op.name;
    EXPECT_EQ(op.forward_workspace, op.workspace) << op.name;
  }
  job.runtime.versions["torch"] = "2.14";
  EXPECT_EQ(FixedBytes(ProgramOf(job), "workspace.cublas"), 2 * 32 * kMib);
}

// A bias is cuBLASLt's to add, forward: seen under the phantom, Qwen 2.5's queries, keys and
// values.
TEST(RuntimeTest, ABiasedProductHasASmallWorkspaceForward) {
  JobSpec job = With(SmallJob(), "ddp");
  job.cluster.gpu = "h100-80gb-sxm";
  job.runtime.versions["torch"] = "2.15";
  Shape(job).qkv_bias = true;
  const Program program = ProgramOf(job);
  const Block& layer = FindBlock(program, "layer");
  for (const Op& op : layer.ops) {
    if (op.kind != OpKind::kMatrixProduct) continue;
    const bool biased = op.parameters.count == 2;
    EXPECT_EQ(layer.tensors[op.forward_workspace].Bytes(), (biased ? 1 : 32) * kMib) << op.name;
    EXPECT_EQ(layer.tensors[op.workspace].Bytes(), 32 * kMib) << op.name;
  }
}

// One cuBLAS workspace for each of two threads.
TEST(RuntimeTest, WorkspacesAreTwo) {
  JobSpec job = SmallJob();
  EXPECT_EQ(FixedBytes(ProgramOf(job), "workspace.cublas"), 2 * 8519680);
  job.cluster.gpu = "h100";
  EXPECT_EQ(FixedBytes(ProgramOf(job), "workspace.cublas"), 2 * 32 * kMib);
}

TEST(RuntimeTest, TransformerEngineHasItsOwn) {
  JobSpec job = With(SmallJob(), "megatron-core");
  EXPECT_EQ(FixedBytes(ProgramOf(job), "workspace.transformer_engine"), 4 * kMib);
  job.cluster.gpu = "h100";
  EXPECT_EQ(FixedBytes(ProgramOf(job), "workspace.transformer_engine"), 32 * kMib + 1024);
  job.runtime.transformer_implementation = "local";
  EXPECT_EQ(FixedBytes(ProgramOf(job), "workspace.transformer_engine"), 0);
}

// fp32 angles [S, D] of a rank's part of the sequence, for each virtual stage.
TEST(RuntimeTest, RotaryAnglesStay) {
  JobSpec job = With(SmallJob(), "megatron-core");
  EXPECT_EQ(FixedBytes(ProgramOf(job), "attention.rotary.angles"), 4 * 32 * 16);
  job.parallelism.context_parallel_size = 2;
  EXPECT_EQ(FixedBytes(ProgramOf(job), "attention.rotary.angles"), 4 * 16 * 16);
  job.parallelism.pipeline_parallel_size = 2;
  job.parallelism.pipeline_schedule = "interleaved-1f1b";
  EXPECT_EQ(FixedBytes(ProgramOf(job), "attention.rotary.angles"), 2 * 4 * 16 * 16);
  Shape(job).position_embedding = "none";
  EXPECT_EQ(FixedBytes(ProgramOf(job), "attention.rotary.angles"), 0);
}

// Tokens, labels, positions of 8 bytes and a mask of 4, a token; where asked a
// byte for each pair of tokens.
TEST(RuntimeTest, TheBatchIsThere) {
  JobSpec job = With(SmallJob(), "megatron-core");
  EXPECT_EQ(FixedBytes(ProgramOf(job), "batch"), 2 * 32 * 28);
  EXPECT_EQ(FixedBytes(ProgramOf(job), "batch.attention_mask"), 0);
  job.runtime.attention_mask = true;
  EXPECT_EQ(FixedBytes(ProgramOf(job), "batch.attention_mask"), 2 * 32 * 32);
}

// A loop's variable keeps fp32 logits until it is assigned again; in the loss the
// head's own are they.
TEST(RuntimeTest, LogitsLingerUntilTheNext) {
  JobSpec job = With(SmallJob(), "ddp");
  job.runtime.trainer = "litgpt";
  const Program program = ProgramOf(job);
  const State* held = FindState(program, "logits.held");
  ASSERT_NE(held, nullptr);
  EXPECT_EQ(held->fixed_bytes, 4 * 2 * 32 * 256);
  EXPECT_EQ(held->place, Place::kHeadStage);
  EXPECT_NE(held->alive & Bit(Phase::kOptimizer, true), 0);
  EXPECT_EQ(held->alive & Bit(Phase::kLoss, false), 0);
  EXPECT_EQ(held->alive & Bit(Phase::kForward, true), 0) << "there are none yet";
  job.runtime.trainer = "torchtune";
  EXPECT_EQ(FindState(ProgramOf(job), "logits.held"), nullptr);
}

TEST(RuntimeTest, TheContextFollowsTheGpu) {
  const auto context = [](const char* gpu) {
    JobSpec job = SmallJob();
    job.cluster.gpu = gpu;
    return ProgramOf(job).outside.context_bytes;
  };
  EXPECT_EQ(context("a100-80gb-sxm"), 768 * kMib);
  EXPECT_EQ(context("v100-32gb-sxm"), 1271 * kMib);
  EXPECT_EQ(context("rtx-4090"), 426 * kMib);
}

// nanotron gathers inputs into buffers that it keeps, whole on each rank.
TEST(RuntimeTest, NanotronKeepsItsGatherBuffers) {
  JobSpec job = With(SmallJob(), "nanotron");
  EXPECT_EQ(FixedBytes(ProgramOf(job), "gather.buffers"), 0);
  job.parallelism.tensor_parallel_size = 2;
  EXPECT_EQ(FixedBytes(ProgramOf(job), "gather.buffers"), 2 * 2 * 2 * 32 * 64);
}

// Fused accumulation returns a dummy gradient for each shape of weight.
TEST(RuntimeTest, DummyGradientsAreKept) {
  JobSpec job = With(SmallJob(), "megatron-core");
  EXPECT_EQ(FixedBytes(ProgramOf(job), "gradients.dummy"), 2 * 36864);
  job.runtime.gradient_accumulation_fusion = false;
  EXPECT_EQ(FixedBytes(ProgramOf(job), "gradients.dummy"), 0);
}

// Until torch 2.5 a compiled loss is tuned on clones of its fp32 logits, in the first step alone.
TEST(RuntimeTest, ACompiledLossIsTunedInTheFirstStep) {
  constexpr int64_t kLogits = 4 * 64 * 256;
  JobSpec job = With(SmallJob(), "megatron-core");
  job.training.loss.implementation = "fused-cross-entropy";
  for (const auto& [torch, clones] : {std::pair{"2.2", 2}, {"2.3", 1}, {"2.5", 1}, {"2.6", 0}}) {
    job.runtime.versions["torch"] = torch;
    const Program program = ProgramOf(job);
    EXPECT_EQ(FixedBytes(program, "loss.tuning.clones"), clones * kLogits) << torch;
    EXPECT_EQ(FixedBytes(program, "loss.tuning"), clones > 0 ? 256000000 : 0) << torch;
  }
  EXPECT_EQ(FixedBytes(ProgramOf(With(SmallJob(), "megatron-core")), "loss.tuning"), 0);
  job.runtime.versions["torch"] = "2.5";
  const State tuning = *FindState(ProgramOf(job), "loss.tuning");
  EXPECT_EQ(tuning.alive, Bit(Phase::kLoss, true));
  EXPECT_EQ(tuning.place, Place::kHeadStage);
  job.runtime.versions.clear();
  EXPECT_EQ(FixedBytes(ProgramOf(job), "loss.tuning"), 0) << "the newest torch";
}

// Two micro-batches of 64 tokens wait with 64 values in and the gradients of 256 logits.
TEST(RuntimeTest, HeadGradientsThatWaitKeepTheirInputs) {
  JobSpec job = With(SmallJob(), "megatron-core");
  job.parallelism.pipeline_parallel_size = 2;
  job.training.global_batch_size = 8;
  EXPECT_EQ(FixedBytes(ProgramOf(job), "head.deferred.gradient"), 0);
  const std::vector<RankMemory> plain = Estimate(job).ranks;
  job.runtime.deferred_embedding_gradient_count = 2;
  EXPECT_EQ(FixedBytes(ProgramOf(job), "head.deferred.input"), 2 * 64 * 64 * 2);
  EXPECT_EQ(FixedBytes(ProgramOf(job), "head.deferred.gradient"), 2 * 64 * 256 * 2);
  EXPECT_EQ(FixedBytes(ProgramOf(job), "head.deferred.gathered"), 0);
  const std::vector<RankMemory> waiting = Estimate(job).ranks;
  EXPECT_EQ(waiting[1].allocated.expected_bytes - plain[1].allocated.expected_bytes,
            2 * 64 * (64 + 256) * 2);
  EXPECT_EQ(waiting[0].allocated.expected_bytes, plain[0].allocated.expected_bytes);
}

// The last micro-batch's wait through its backward alone.
TEST(RuntimeTest, AllHeadGradientsWait) {
  JobSpec job = With(SmallJob(), "megatron-core");
  job.parallelism.pipeline_parallel_size = 2;
  job.training.global_batch_size = 8;
  job.runtime.deferred_embedding_gradient_count = 100;
  const Program program = ProgramOf(job);
  std::vector<int64_t> counts;
  for (const State& state : program.states) {
    if (state.name == "head.deferred.gradient") counts.push_back(state.buffers);
  }
  EXPECT_THAT(counts, ElementsAre(3, 1));
}

// With sequence parallelism a part of the input waits, and is gathered in the end.
TEST(RuntimeTest, HeadGradientsThatWaitAreGatheredInTheEnd) {
  JobSpec job = WithSequenceParallelism(With(SmallJob(), "megatron-core"), 2);
  job.parallelism.pipeline_parallel_size = 2;
  job.training.global_batch_size = 8;
  job.runtime.deferred_embedding_gradient_count = 2;
  EXPECT_EQ(FixedBytes(ProgramOf(job), "head.deferred.input"), 2 * 64 * 64 * 2 / 2);
  EXPECT_EQ(FixedBytes(ProgramOf(job), "head.deferred.gathered"), 2 * 64 * 64 * 2);
}

// torchtune's layers share a table; with adapters they have one each, of as many positions as the
// model has.
TEST(RuntimeTest, TorchtunesRotaryTables) {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  job.cluster.gpu_count = 1;
  EXPECT_EQ(FindState(ProgramOf(job), "attention.rotary.table"), nullptr);
  job.runtime.trainer = "torchtune";
  EXPECT_EQ(FindState(ProgramOf(job), "attention.rotary.table")->basis, Basis::kBytes);
  job.training.adapter.method = "lora";
  const ValidJob valid = Valid(job);
  const int64_t head_size = valid->model->head_size;
  EXPECT_EQ(FixedBytes(ProgramOf(job), "attention.rotary.table"), 4 * 32 * head_size)
      << "of the sequence, where no config says more";
  Transformer model = *valid->model;
  model.rotary_position_count = 4096;
  model.rotary_table = RotaryTable::kHalves;
  job.model.source = std::make_shared<const Transformer>(model);
  EXPECT_EQ(FixedBytes(ProgramOf(job), "attention.rotary.table"), 4 * 4096 * 2 * head_size);
  EXPECT_EQ(FindState(ProgramOf(job), "attention.rotary.table")->basis, Basis::kBytesPerLayer);
  model.rotary_table = RotaryTable::kShared;
  job.model.source = std::make_shared<const Transformer>(model);
  EXPECT_EQ(FindState(ProgramOf(job), "attention.rotary.table")->basis, Basis::kBytes);
}

// Source: torchtitan models/common/rope.py, RoPE.__init__.
TEST(RuntimeTest, TorchtitansLayersHaveAnglesOfASequence) {
  JobSpec job = With(SmallJob(), "fsdp2");
  job.runtime.trainer = "torchtitan";
  job.runtime.versions["torchtitan"] = "2026.06";
  EXPECT_EQ(FindState(ProgramOf(job), "attention.rotary.table"), nullptr);
  job.runtime.versions["torchtitan"] = "2026.07";
  const ValidJob valid = Valid(job);
  EXPECT_EQ(FixedBytes(ProgramOf(job), "attention.rotary.table"), 4 * 32 * 16);
  Transformer model = *valid->model;
  model.rotary_position_count = 4096;
  model.rotary_table = RotaryTable::kHalves;
  job.model.source = std::make_shared<const Transformer>(model);
  EXPECT_EQ(FixedBytes(ProgramOf(job), "attention.rotary.table"), 4 * 32 * 2 * 16);
}

}  // namespace
}  // namespace plimsoll
