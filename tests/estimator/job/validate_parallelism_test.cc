// Every rule of the parallelism section: degrees, what frameworks combine, and
// what degrees must divide.
#include <limits>

#include "tests/testing/refusals.h"

namespace plimsoll {
namespace {

const std::vector<Refusal>& Degrees() {
  static const auto* const kRows = new std::vector<Refusal>{
      {"tensor zero",
       [](JobSpec& j) { j.parallelism.tensor_parallel_size = 0; },
       {"job.parallelism.tensor_parallel_size: 0; must be from 1 to 1024"}},
      {"tensor too large",
       [](JobSpec& j) { j.parallelism.tensor_parallel_size = 1025; },
       {"job.parallelism.tensor_parallel_size: 1025; must be from 1 to 1024"}},
      {"pipeline negative",
       [](JobSpec& j) { j.parallelism.pipeline_parallel_size = -2; },
       {"job.parallelism.pipeline_parallel_size: -2; must be from 1 to 4096"}},
      {"data zero",
       [](JobSpec& j) { j.parallelism.data_parallel_size = 0; },
       {"job.parallelism.data_parallel_size: 0; must be from 1 to 1048576"}},
      {"data too large",
       [](JobSpec& j) { j.parallelism.data_parallel_size = std::numeric_limits<int64_t>::max(); },
       {"job.parallelism.data_parallel_size: 9223372036854775807; must be from 1 to 1048576"}},
      {"counts that contradict",
       [](JobSpec& j) {
         j.cluster.gpu_count = 16;
         j.parallelism.data_parallel_size = 2;
         j.parallelism.tensor_parallel_size = 2;
       },
       {"job.cluster.gpu_count: 16; must be data x tensor x context x pipeline "
        "parallel size, 2 x 2 x 1 x 1"}},
      {"a count that degrees do not divide",
       [](JobSpec& j) {
         j.cluster.gpu_count = 7;
         j.parallelism.tensor_parallel_size = 2;
       },
       {"job.cluster.gpu_count: 7; must be data x tensor x context x pipeline "
        "parallel size, 3 x 2 x 1 x 1"}},
      {"a million and more GPUs",
       [](JobSpec& j) {
         j.parallelism.data_parallel_size = 1 << 20;
         j.parallelism.tensor_parallel_size = 2;
       },
       {"job.parallelism: 2097152; must use at most 1048576 GPUs"}},
      {"heads that do not split",
       [](JobSpec& j) { Shape(j).kv_head_count = 4, j.parallelism.tensor_parallel_size = 8; },
       {"job.parallelism.tensor_parallel_size: 8; must divide head_count 4"}},
      {"kv heads that do not split",
       [](JobSpec& j) { j.parallelism.tensor_parallel_size = 4; },
       {"job.parallelism.tensor_parallel_size: 4; must divide kv_head_count 2"}},
      {"an MLP that does not split",
       [](JobSpec& j) { Shape(j).ffn_size = 129, j.parallelism.tensor_parallel_size = 2; },
       {"job.parallelism.tensor_parallel_size: 2; must divide ffn_size 129"}},
      {"a sequence that does not split",
       [](JobSpec& j) {
         j.training.sequence_length = 33;
         j.parallelism.tensor_parallel_size = 2;
         j.parallelism.sequence_parallel = true;
       },
       {"job.parallelism.tensor_parallel_size: 2; must divide sequence_length 33"}},
      {"sequence parallelism of one",
       [](JobSpec& j) { j.parallelism.sequence_parallel = true; },
       {"job.parallelism.sequence_parallel: true; needs tensor_parallel_size above 1"}},
  };
  return *kRows;
}

const std::vector<Refusal>& Stages() {
  static const auto* const kRows = new std::vector<Refusal>{
      {"a schedule without stages",
       [](JobSpec& j) { j.parallelism.pipeline_schedule = "gpipe"; },
       {"job.parallelism.pipeline_schedule: gpipe; needs pipeline_parallel_size above 1"}},
      {"an unknown schedule",
       [](JobSpec& j) {
         j.parallelism.pipeline_parallel_size = 2;
         j.parallelism.pipeline_schedule = "two-steps";
       },
       {"job.parallelism.pipeline_schedule: two-steps; must be one of gpipe, 1f1b, "
        "interleaved-1f1b"}},
      {"virtual stages of 1F1B",
       [](JobSpec& j) {
         j.parallelism.pipeline_parallel_size = 2;
         j.parallelism.virtual_pipeline_size = 2;
       },
       {"job.parallelism.virtual_pipeline_size: 2; needs pipeline_schedule interleaved-1f1b"}},
      {"one virtual stage",
       [](JobSpec& j) {
         j.parallelism.pipeline_parallel_size = 2;
         j.parallelism.pipeline_schedule = "interleaved-1f1b";
         j.parallelism.virtual_pipeline_size = 1;
       },
       {"job.parallelism.virtual_pipeline_size: 1; must be from 2 to 1024"}},
      {"micro-batches that do not interleave",
       [](JobSpec& j) {
         j.parallelism.pipeline_parallel_size = 2;
         j.parallelism.pipeline_schedule = "interleaved-1f1b";
         j.training.global_batch_size = 6;
       },
       {"job.training.global_batch_size: 6; must give each rank a multiple of "
        "pipeline_parallel_size 2 micro-batches, not 3, with interleaved-1f1b"}},
      {"a group of micro-batches of 1F1B",
       [](JobSpec& j) {
         j.parallelism.pipeline_parallel_size = 2;
         j.parallelism.micro_batch_group_size = 2;
       },
       {"job.parallelism.micro_batch_group_size: 2; needs pipeline_schedule interleaved-1f1b"}},
      {"a group smaller than the pipeline",
       [](JobSpec& j) {
         j.parallelism.pipeline_parallel_size = 2;
         j.parallelism.pipeline_schedule = "interleaved-1f1b";
         j.parallelism.micro_batch_group_size = 1;
         j.training.global_batch_size = 8;
       },
       {"job.parallelism.micro_batch_group_size: 1; must be at least pipeline_parallel_size 2"}},
      {"groups with a rest that does not fill the pipeline",
       [](JobSpec& j) {
         j.parallelism.pipeline_parallel_size = 2;
         j.parallelism.pipeline_schedule = "interleaved-1f1b";
         j.parallelism.micro_batch_group_size = 3;
         j.training.global_batch_size = 8;
       },
       {"job.training.global_batch_size: 8; must give each rank micro_batch_group_size 3 or more, "
        "and a rest of 0 or at least pipeline_parallel_size 2 micro-batches, not 4, with "
        "interleaved-1f1b"}},
      {"groups with a rest that does",
       [](JobSpec& j) {
         j.parallelism.pipeline_parallel_size = 2;
         j.parallelism.pipeline_schedule = "interleaved-1f1b";
         j.parallelism.micro_batch_group_size = 3;
         j.training.global_batch_size = 10;
       },
       {}},
      {"more stages than layers",
       [](JobSpec& j) { j.parallelism.pipeline_parallel_size = 8; },
       {"job.parallelism.pipeline_parallel_size: 8; needs at least 8 layers, the model has 4"}},
      {"stages that do not divide",
       [](JobSpec& j) { j.parallelism.pipeline_parallel_size = 3; },
       {"job.parallelism.pipeline_parallel_size: 3; stages x virtual stages 3 must divide the "
        "model's 4 layers, or pipeline_layout be set"}},
      {"the same with a layout",
       [](JobSpec& j) {
         j.parallelism.pipeline_parallel_size = 3;
         j.parallelism.pipeline_layout = {1, 2, 1};
       },
       {}},
      {"a layout too short",
       [](JobSpec& j) {
         j.parallelism.pipeline_parallel_size = 2;
         j.parallelism.pipeline_layout = {4};
       },
       {"job.parallelism.pipeline_layout: 1 entries; must have one entry for each of "
        "pipeline_parallel_size 2 stages, or of 2 virtual stages"}},
      {"a layout of too many layers",
       [](JobSpec& j) {
         j.parallelism.pipeline_parallel_size = 2;
         j.parallelism.pipeline_layout = {3, 2};
       },
       {"job.parallelism.pipeline_layout: sum 5; must be counts that add up to the model's 4 "
        "layers"}},
      {"a layout below zero",
       [](JobSpec& j) {
         j.parallelism.pipeline_parallel_size = 2;
         j.parallelism.pipeline_layout = {5, -1};
       },
       {"job.parallelism.pipeline_layout: an entry out of range; must be counts that add up to "
        "the model's 4 layers"}},
  };
  return *kRows;
}

const std::vector<Refusal>& Sharding() {
  static const auto* const kRows = new std::vector<Refusal>{
      {"a stage that is none",
       [](JobSpec& j) { j.parallelism.zero_stage = 4; },
       {"job.parallelism.zero_stage: 4; must be from 0 to 3"}},
      {"a stage that 2021's Megatron lacks",
       [](JobSpec& j) { j.runtime.framework = "megatron-lm", j.parallelism.zero_stage = 2; },
       {"job.parallelism.zero_stage: 2; must be 0 with megatron-lm"}},
      {"FSDP without sharding",
       [](JobSpec& j) { j.runtime.framework = "fsdp2", j.parallelism.zero_stage = 1; },
       {"job.parallelism.zero_stage: 1; must be 2 or 3 with fsdp2: 2 keeps weights gathered until "
        "backward"}},
      {"DDP with sharding",
       [](JobSpec& j) { j.runtime.framework = "ddp", j.parallelism.zero_stage = 1; },
       {"job.parallelism.zero_stage: 1; is not modelled with ddp: ZeroRedundancyOptimizer shards "
        "states"}},
      {"DDP with tensor parallelism",
       [](JobSpec& j) { j.runtime.framework = "ddp", j.parallelism.tensor_parallel_size = 2; },
       {"job.parallelism.tensor_parallel_size: 2; ddp does not have it: it splits no matrices"}},
      {"DDP with a pipeline",
       [](JobSpec& j) { j.runtime.framework = "ddp", j.parallelism.pipeline_parallel_size = 2; },
       {"job.parallelism.pipeline_parallel_size: 2; is not modelled with ddp: "
        "torch.distributed.pipelining runs fsdp2 here"}},
      {"DeepSpeed with both",
       [](JobSpec& j) {
         j.runtime.framework = "deepspeed";
         j.parallelism.tensor_parallel_size = j.parallelism.pipeline_parallel_size = 2;
       },
       {"job.parallelism.tensor_parallel_size: 2; is not modelled with deepspeed: AutoTP splits "
        "matrices",
        "job.parallelism.pipeline_parallel_size: 2; is not modelled with deepspeed: its pipeline "
        "over Megatron's layers is megatron-deepspeed"}},
      {"groups that do not divide",
       [](JobSpec& j) {
         j.parallelism.zero_stage = 1;
         j.parallelism.data_parallel_size = 4;
         j.parallelism.shard_group_size = 3;
       },
       {"job.parallelism.shard_group_size: 3; must divide data x context parallel size 4"}},
      {"groups with nothing to shard",
       [](JobSpec& j) {
         j.parallelism.data_parallel_size = 4;
         j.parallelism.shard_group_size = 2;
       },
       {"job.parallelism.shard_group_size: 2; needs a zero_stage above 0: nothing is sharded"}},
      {"groups that a framework lacks",
       [](JobSpec& j) {
         j.runtime.framework = "deepspeed";
         j.parallelism.zero_stage = 3;
         j.parallelism.data_parallel_size = 4;
         j.parallelism.shard_group_size = 2;
       },
       {"job.parallelism.shard_group_size: 2; is not modelled with deepspeed: MiCS and hpZ shard "
        "within groups"}},
      {"sequence parallelism in 2021",
       [](JobSpec& j) {
         j.runtime.framework = "megatron-lm";
         j.parallelism.tensor_parallel_size = 2;
         j.parallelism.sequence_parallel = true;
       },
       {"job.parallelism.sequence_parallel: true; megatron-lm does not have it: it is of 2021"}},
      {"a divisor of zero",
       [](JobSpec& j) { j.runtime.vocab_size_divisor = 0; },
       {"job.runtime.vocab_size_divisor: 0; must be from 1 to 65536"}},
  };
  return *kRows;
}

JobSpec Core() { return With(SmallJob(), "megatron-core"); }

TEST(ValidateParallelismTest, DegreesAreInRangeAndDivide) { ExpectRefusals(Core(), Degrees()); }
TEST(ValidateParallelismTest, StagesHaveLayers) { ExpectRefusals(Core(), Stages()); }
TEST(ValidateParallelismTest, FrameworksShardWhatTheyCan) { ExpectRefusals(Core(), Sharding()); }

// SmallJob(): 4 heads, 2 of keys and values, 32 tokens.
std::vector<Refusal> Contexts() {
  return {
      {"a framework whose ranks have whole sequences",
       [](JobSpec& j) { j.parallelism.context_parallel_size = 2; },
       {"job.parallelism.context_parallel_size: 2; ddp does not have it: its ranks have whole "
        "sequences"}},
      {"torch's own method, of an order before that of today",
       [](JobSpec& j) {
         j.runtime.framework = "fsdp2";
         j.runtime.versions["torch"] = "2.5";
         j.parallelism.context_parallel_size = 2;
       },
       {"job.parallelism.context_parallel_size: 2; is not modelled with fsdp2: before 2.6 torch's "
        "context_parallel has another order"}},
      {"torch's own method, of pieces from both ends",
       [](JobSpec& j) {
         j.runtime.framework = "fsdp2";
         j.training.sequence_length = 34;
         j.parallelism.context_parallel_size = 2;
       },
       {"job.parallelism.context_parallel_size: 2; twice it must divide sequence_length 34"}},
      {"a method that its kernels did not have yet",
       [](JobSpec& j) {
         j.runtime.framework = "megatron-core";
         j.runtime.versions["megatron-core"] = "0.9";
         j.parallelism.context_parallel_method = "all-gather";
       },
       {"job.parallelism.context_parallel_method: all-gather; megatron-core has it from "
        "0.10 on"}},
      {"pieces from both ends of a sequence",
       [](JobSpec& j) {
         j.runtime.framework = "megatron-core";
         j.training.sequence_length = 34;
         j.parallelism.context_parallel_size = 2;
       },
       {"job.parallelism.context_parallel_size: 2; twice it must divide sequence_length 34"}},
      {"heads that its kernels do not copy",
       [](JobSpec& j) {
         j.runtime.framework = "megatron-core";
         j.parallelism.context_parallel_method = "ulysses";
         j.parallelism.context_parallel_size = 4;
       },
       {"job.parallelism.context_parallel_size: 4; must divide the key and value heads of each "
        "tensor-parallel rank, 2"}},
      {"layers of its own",
       [](JobSpec& j) {
         j.runtime.framework = "megatron-core";
         j.runtime.transformer_implementation = "local";
         j.training.attention = "flash";
         j.parallelism.context_parallel_size = 2;
       },
       {"job.runtime.transformer_implementation: local; must be transformer-engine with "
        "context_parallel_size above 1"}},
      {"a method that nobody has",
       [](JobSpec& j) { j.parallelism.context_parallel_method = "spiral"; },
       {"job.parallelism.context_parallel_method: spiral; must be one of ulysses, ring, "
        "all-gather"}},
      {"before DeepSpeed had it",
       [](JobSpec& j) {
         j.runtime.framework = "deepspeed";
         j.runtime.versions["deepspeed"] = "0.16";
         j.parallelism.context_parallel_size = 2;
       },
       {"job.parallelism.context_parallel_size: 2; is not modelled with deepspeed: before 0.17 "
        "it is in a model's own code"}},
      {"tokens and heads that do not divide",
       [](JobSpec& j) {
         j.runtime.framework = "deepspeed";
         j.parallelism.context_parallel_size = 3;
       },
       {"job.parallelism.context_parallel_size: 3; must divide sequence_length 32",
        "job.parallelism.context_parallel_size: 3; must divide the heads of each "
        "tensor-parallel rank, 4"}},
      {"heads of keys that do not divide",
       [](JobSpec& j) {
         j.runtime.framework = "deepspeed";
         Shape(j).head_count = 12;
         Shape(j).kv_head_count = 6;
         Shape(j).hidden_size = 192;
         j.parallelism.context_parallel_size = 4;
       },
       {"job.parallelism.context_parallel_size: 4; must divide the key and value heads of each "
        "tensor-parallel rank, 6, or be a multiple of them"}},
      {"scores as tensors",
       [](JobSpec& j) {
         j.runtime.framework = "deepspeed";
         j.training.attention = "eager";
         j.parallelism.context_parallel_size = 2;
       },
       {"job.training.attention: eager; must be another with context_parallel_size above 1: it "
        "needs a mask of all tokens"}},
      {"groups that are no whole contexts",
       [](JobSpec& j) {
         j.runtime.framework = "fsdp2";
         j.parallelism.context_parallel_method = "ulysses";
         j.parallelism.context_parallel_size = 4;
         j.parallelism.data_parallel_size = 2;
         j.parallelism.shard_group_size = 2;
       },
       {"job.parallelism.shard_group_size: 2; must be a multiple of context_parallel_size 4"}},
  };
}

// Source: torch distributed/tensor/experimental/_context_parallel/_attention.py, is_causal.
TEST(ValidateParallelismTest, TorchsContextsSeeAllTokensBefore) {
  JobSpec job = With(SmallJob(), "fsdp2");
  job.parallelism.context_parallel_size = 2;
  job.cluster.gpu_count = 2;
  const auto refusals = [&](absl::FunctionRef<void(Transformer&)> change) {
    return Refusals(WithModel(job, change));
  };
  EXPECT_THAT(refusals([](Transformer&) {}), testing::IsEmpty());
  EXPECT_THAT(refusals([](Transformer& model) { model.sliding_window = 16; }),
              testing::Contains("job.parallelism.context_parallel_method: all-gather; must be "
                                "another for a model whose layers see windows"));
  EXPECT_THAT(refusals([](Transformer& model) { model.causal = false; }),
              testing::ElementsAre("job.parallelism.context_parallel_method: all-gather; must be "
                                   "another for a model whose tokens see those behind them"));
}

TEST(ValidateParallelismTest, ContextsDivideTokensAndHeads) {
  ExpectRefusals(With(SmallJob(), "ddp"), Contexts());
}

// All ranks with the same weights shard between them, unless the job says fewer.
TEST(ValidateParallelismTest, ContextsShardToo) {
  JobSpec job = With(SmallJob(), "deepspeed");
  job.cluster.gpu_count = 8;
  job.parallelism.context_parallel_size = 4;
  job.parallelism.zero_stage = 3;
  const ValidJob valid = Valid(job);
  EXPECT_EQ(valid->data_parallel_size, 2);
  EXPECT_EQ(valid->shard_group_size, 8);
  EXPECT_EQ(valid->LocalSequenceLength(), 8);
  EXPECT_EQ(valid->LocalTokens(), 16) << "of two sequences";
  EXPECT_EQ(valid->precision.reduce, DType::kFp32) << "DeepSpeed's default for parts of sequences";
  job.training.precision.reduce_dtype = "bf16";
  EXPECT_EQ(Valid(job)->precision.reduce, DType::kBf16);
}

// Any two of gpu_count, data-parallel size and the model's degrees give the third.
TEST(ValidateParallelismTest, DegreesFollowFromTheGpuCount) {
  JobSpec job = Core();
  job.cluster.gpu_count = 16;
  job.parallelism.tensor_parallel_size = 2;
  job.parallelism.pipeline_parallel_size = 2;
  EXPECT_EQ(Valid(job)->data_parallel_size, 4);
  job.cluster.gpu_count.reset();
  job.parallelism.data_parallel_size = 8;
  EXPECT_EQ(Valid(job)->gpu_count, 32);
}

// A batch that is left open keeps a pipeline busy.
TEST(ValidateParallelismTest, AMicroBatchForEachStage) {
  JobSpec job = Core();
  job.parallelism.pipeline_parallel_size = 4;
  job.parallelism.data_parallel_size = 2;
  EXPECT_EQ(Valid(job)->global_batch_size, 2 * 2 * 4);
  EXPECT_EQ(Valid(job)->micro_batch_count, 4);
}

TEST(ValidateParallelismTest, TheVocabularyIsPadded) {
  JobSpec job = Core();
  Shape(job).vocab_size = 257;
  EXPECT_EQ(Valid(job)->padded_vocab_size, 384) << "128";
  job.parallelism.tensor_parallel_size = 2;
  EXPECT_EQ(Valid(job)->padded_vocab_size, 512) << "128 x 2";
  job.runtime.vocab_size_divisor = 1;
  EXPECT_EQ(Valid(job)->padded_vocab_size, 258) << "1 x 2";
  EXPECT_EQ(Valid(With(job, "nanotron"))->padded_vocab_size, 258);
}

}  // namespace
}  // namespace plimsoll
