// Both FSDPs: what is sharded, what is gathered when, and who groups what.
#include <algorithm>
#include <numeric>

#include "estimator/program/parameter_sums.h"
#include "estimator/step/plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr int64_t kRanks = 8;
constexpr int64_t kVocab = 256;
constexpr int64_t kHidden = 64;

JobSpec Job(const char* framework, int64_t stage) {
  JobSpec job = With(SmallJob(), framework);
  job.parallelism.data_parallel_size = kRanks;
  job.parallelism.zero_stage = stage;
  job.training.gradient_clipping = false;
  return job;
}

JobSpec Torchtitan(const char* month) {
  JobSpec job = Job("fsdp2", 3);
  job.runtime.trainer = "torchtitan";
  job.runtime.versions["torchtitan"] = month;
  return job;
}

Program Sharded(const JobSpec& job) { return ProgramAfter(Valid(job), PassId::kZero); }

int64_t Elements(const Block& block) {
  int64_t elements = 0;
  for (const Parameter& parameter : block.parameters) elements += parameter.Elements();
  return elements;
}

std::vector<std::string> BufferNames(const Block& block) {
  std::vector<std::string> names;
  for (const BlockBuffer& buffer : block.buffers) names.emplace_back(buffer.name);
  return names;
}

JobSpec WithExperts(int64_t apart) {
  JobSpec job = Torchtitan("2026.07");
  job.training.precision.preset = "bf16-mixed";
  Shape(job).expert_count = 8;
  Shape(job).active_expert_count = 2;
  Shape(job).expert_ffn_size = 96;
  job.parallelism.expert_parallel_size = apart;
  return job;
}

// What is told to be gathered next is there while a block runs forward, and a layer's own experts,
// which are a group of a mesh of their own; the embedding is one group.
// Source: torchtitan distributed/fsdp.py, apply_fsdp_to_decoder.
TEST(FsdpTest, BesideExpertsApartTheNextGroupIsGatheredAhead) {
  const Program program = Sharded(WithExperts(4));
  const Block& layer = FindBlock(program, "layer");
  EXPECT_THAT(BufferNames(layer),
              ElementsAre("gathered.weights", "gather.output", "gather.output"));
  const int64_t experts = 2 * 3 * 96 * 64;  // two of eight, of three matrices
  const int64_t group = Elements(layer);
  EXPECT_EQ(layer.buffers[1].forward.bytes, 2 * (experts + group));
  const Block& embedding = FindBlock(program, "embedding");
  EXPECT_EQ(embedding.buffers[0].forward.bytes, 2 * (Elements(embedding) + group));
  EXPECT_THAT(BufferNames(FindBlock(Sharded(WithExperts(1)), "layer")),
              ElementsAre("gather.output", "gathered.weights", "gather.output"));
}

// Of sixteen ranks and eight experts each has rows of all, which are copied out twice.
TEST(FsdpTest, WhatIsSharedAlongAnInnerAxisIsJoined) {
  JobSpec job = WithExperts(1);
  job.parallelism.data_parallel_size = 16;
  const Program program = Sharded(job);
  const Block& layer = FindBlock(program, "layer");
  const int64_t experts = 2 * 8 * 3 * 96 * 64;
  EXPECT_EQ(layer.buffers[1].name, "gathered.weights");
  EXPECT_EQ(layer.buffers[1].forward.input_bytes, experts);
  EXPECT_EQ(layer.buffers[1].backward.input_bytes, layer.buffers[1].backward.bytes + experts);
}

// Slices of a loss are backwards of their own, the last of which waits for what it reduces.
TEST(FsdpTest, WhatAHeadInSlicesReducesIsThereBeforeTheLayersRun) {
  JobSpec job = Torchtitan("2026.07");
  job.training.loss.implementation = "chunked";
  EXPECT_TRUE(FindBlock(Sharded(job), "head").reduced_at_once);
  EXPECT_FALSE(FindBlock(Sharded(job), "layer").reduced_at_once);
  job.training.loss.implementation = "plain";
  EXPECT_FALSE(FindBlock(Sharded(job), "head").reduced_at_once);
}

// FSDP2 gathers a layer at a time: its weights, and a flat copy on the way.
TEST(FsdpTest, FsdpGathersALayerAtATime) {
  const Program program = Sharded(Job("fsdp2", 3));
  const Block& layer = FindBlock(program, "layer");
  const int64_t elements = Elements(layer);
  EXPECT_THAT(BufferNames(layer),
              ElementsAre("gather.output", "gathered.weights", "gather.output"));
  EXPECT_EQ(layer.buffers[0].end, BufferEnd::kNextBuffer) << "the next one's is there";
  EXPECT_EQ(layer.buffers[0].forward.bytes, 2 * elements);
  EXPECT_EQ(layer.buffers[0].backward.bytes, 0) << "goes as weights are copied out of it";
  EXPECT_EQ(layer.buffers[1].forward.bytes, 2 * elements);
  EXPECT_EQ(layer.buffers[1].backward.input_bytes, 2 * elements);
  EXPECT_EQ(layer.buffers[2].forward.bytes, 0);
  EXPECT_EQ(layer.gathered.bytes, 2 * elements);
  EXPECT_EQ(layer.reduce_bytes, 4 * elements) << "fp32 on the wire";
  EXPECT_EQ(program.reduce_stream, Stream::kCompute);
}

// What is in bytes is no part of FSDP2's groups: each rank has all of it.
TEST(FsdpTest, QuantizedWeightsAreWholeUnderFsdp2) {
  const auto shards = [](const char* framework) {
    JobSpec job = Job(framework, 3);
    job.runtime.trainer = "trl";
    job.training.precision.preset = "bf16-pure";
    job.training.adapter.method = "qlora";
    job.training.adapter.adapter_dtype = "bf16";
    const Program program = Sharded(job);
    EXPECT_EQ(FindState(program, "weights.frozen")->shards, kRanks);
    return FindState(program, "weights.quantized")->shards;
  };
  EXPECT_EQ(shards("fsdp1"), kRanks);
  EXPECT_EQ(shards("fsdp2"), 1);
}

// What is gathered is a rank's share, cast to 16 bits; weights that are 16 bits
// already are read where they are.
TEST(FsdpTest, SharesAreCastToBeGathered) {
  JobSpec job = Job("fsdp2", 3);
  const auto input = [&] {
    const Program program = Sharded(job);
    const Block& layer = FindBlock(program, "layer");
    EXPECT_EQ(layer.buffers[0].forward.input_bytes, layer.gathered.input_bytes);
    return std::pair{layer.gathered.input_bytes, 2 * CeilDivide(Elements(layer), kRanks)};
  };
  EXPECT_EQ(input().first, input().second);
  job.training.precision.preset = "bf16-pure";
  EXPECT_EQ(input().first, 0);
}

// Backward it is the next block's weights that are on their way: the embedding's behind the first
// layer, where that is a group of its own. Micro-batches of a pipeline find another layer.
TEST(FsdpTest, BackwardTheNextBlocksWeightsAreOnTheirWay) {
  const auto behind = [](const Program& program, int32_t layer) {
    const BlockBuffer& buffer = FindBlock(program, "layer").buffers.back();
    return buffer.At(true, GatheredBehind(program, {.block = 1, .layer = layer})).bytes;
  };
  JobSpec job = Job("fsdp2", 3);
  const Program apart = Sharded(job);
  EXPECT_EQ(behind(apart, 0), 2 * Elements(FindBlock(apart, "embedding")));
  EXPECT_EQ(behind(apart, 1), 2 * Elements(FindBlock(apart, "layer")));
  const Program flat = Sharded(Job("fsdp1", 3));
  EXPECT_EQ(behind(flat, 0), 0) << "the root stands already";
  EXPECT_EQ(behind(flat, 1), 2 * Elements(FindBlock(flat, "layer")));
  job.parallelism.pipeline_parallel_size = 2;
  const Program piped = Sharded(job);
  EXPECT_EQ(behind(piped, 0), behind(piped, 1));
}

// Weights that stay gathered are all there when forward ends, and go a layer at a time.
TEST(FsdpTest, FsdpWithoutReshardingHoldsWeightsUntilTheirBackward) {
  const Program program = Sharded(Job("fsdp2", 2));
  for (const Block& block : program.blocks) {
    std::vector<int64_t> gathered;
    for (const Tensor& tensor : block.tensors) {
      if (tensor.name == "gathered.weights") gathered.push_back(tensor.Bytes());
    }
    EXPECT_EQ(gathered.size(), block.parameters.size()) << block.name;
    EXPECT_EQ(std::accumulate(gathered.begin(), gathered.end(), int64_t{0}), 2 * Elements(block));
    EXPECT_EQ(block.ops.front().name, "gathered.weights")
        << "before all, so that it goes after all";
    EXPECT_THAT(BufferNames(block), ElementsAre("gather.output"));
  }
  EXPECT_EQ(FindState(program, "gathered.layers"), nullptr);
}

// A recomputed layer does not gather once more what it still has.
TEST(FsdpTest, ARecomputedLayerKeepsItsWeightsToo) {
  JobSpec job = Job("fsdp2", 2);
  job.training.recompute.mode = "full";
  const Program program = Sharded(job);
  EXPECT_TRUE(FindTensor(FindBlock(program, "layer"), "gathered.weights").checkpointed);
}

// A pipeline runs other micro-batches with them: they stay until its last backward.
TEST(FsdpTest, APipelineHoldsAllWeightsFromForwardToBackward) {
  JobSpec job = Job("fsdp2", 2);
  job.parallelism.pipeline_parallel_size = 2;
  job.cluster.gpu_count = 2 * kRanks;
  const Program program = Sharded(job);
  const State* gathered = FindState(program, "gathered.layers");
  ASSERT_NE(gathered, nullptr);
  EXPECT_EQ(gathered->fixed_bytes, 2 * Elements(FindBlock(program, "layer")));
  EXPECT_EQ(gathered->alive, kForwardToBackward);
  for (const char* name : {"gathered.embedding", "gathered.head"}) {
    ASSERT_NE(FindState(program, name), nullptr) << name;
    EXPECT_EQ(FindState(program, name)->fixed_bytes,
              2 * kVocab * kHidden + (name[9] == 'h') * 2 * kHidden);
  }
}

// What a head's op refers to by that name.
bool Reads(const Block& head, absl::string_view op, absl::string_view tensor) {
  const auto at =
      std::find_if(head.ops.begin(), head.ops.end(), [&](const Op& one) { return one.name == op; });
  return std::any_of(at->inputs.begin(), at->inputs.end(),
                     [&](TensorId id) { return head.tensors[id].name == tensor; });
}

// The result that was gathered last goes when the model's forward ends: behind the loss where that
// is the model's, before it where it is the loop's.
TEST(FsdpTest, TheLastResultGoesWithTheModelsForward) {
  JobSpec job = Job("fsdp2", 3);
  const Program inside = Sharded(job);
  const Block& head = FindBlock(inside, "head");
  EXPECT_THAT(BufferNames(head), ElementsAre("gather.output", "gathered.weights"));
  EXPECT_EQ(head.buffers[0].end, BufferEnd::kMade) << "an op's from there";
  EXPECT_EQ(FindTensor(head, "gather.output").Bytes(), 2 * Elements(head));
  EXPECT_TRUE(Reads(head, "loss", "gather.output"));
  EXPECT_FALSE(Reads(head, "head", "gather.output"));
  job.runtime.trainer = "torchtitan";
  job.training.loss.implementation = "plain";
  const Program outside = Sharded(job);
  EXPECT_FALSE(Reads(FindBlock(outside, "head"), "loss", "gather.output"));
  EXPECT_TRUE(Reads(FindBlock(outside, "head"), "head", "gather.output"));
}

// accelerate's groups: none for the whole but those of their own, from 1.14 on.
TEST(FsdpTest, AcceleratesGroups) {
  JobSpec job = Job("fsdp2", 3);
  job.runtime.trainer = "hf-trainer";
  const Program own = Sharded(job);
  EXPECT_EQ(FindState(own, "gathered.embedding"), nullptr);
  job.runtime.versions["hf-trainer"] = "5.11";
  const Program root = Sharded(job);
  EXPECT_NE(FindTensor(FindBlock(root, "embedding"), "gathered.root").Bytes(), 0);
}

// A layer's matrices are whole on the GPU in fp32 as they are cut, then both tables.
TEST(FsdpTest, GroupsAreWholeAsTheyAreCut) {
  JobSpec job = With(Llama8B(), "fsdp2");
  job.runtime.trainer = "hf-trainer";
  std::vector<int64_t> bytes;
  std::vector<bool> alone;
  for (const State& state : Sharded(job).states) {
    if (state.name != "set_up.whole") continue;
    bytes.push_back(state.fixed_bytes >> 20);
    alone.push_back(!state.sets_up_beside);
  }
  EXPECT_THAT(bytes, ElementsAre(64, 16, 16, 64, 224, 224, 224, 2004, 2004));
  EXPECT_THAT(alone, ElementsAre(true, false, false, false, false, false, false, true, false));
}

// TRL's reference is one group, which is whole while it runs.
TEST(FsdpTest, AReferenceIsGatheredWhole) {
  JobSpec job = Job("fsdp2", 3);
  job.training.preference.method = "dpo";
  const Program program = Sharded(job);
  int64_t whole = 0;
  for (const Block& block : program.blocks) {
    whole += Elements(block) * (block.kind == BlockKind::kLayer ? 4 : 1);
  }
  for (const Block& block : program.reference) {
    for (const char* const name : {"gathered.reference", "gather.output"}) {
      EXPECT_EQ(FindTensor(block, name).Bytes(), 2 * whole) << block.name;
    }
  }
  const State& weights = *FindState(program, "weights.reference");
  EXPECT_EQ(weights.dtype, DType::kFp32);
  EXPECT_EQ(weights.shards, kRanks);
  const State& set_up = *FindState(program, "set_up.reference");
  EXPECT_EQ(set_up.of, weights.of);
  EXPECT_EQ(set_up.dtype, weights.dtype);
  EXPECT_EQ(set_up.shards, 1) << "whole as it is cut";
}

// Beside adapters a reference is what is frozen, not the adapters.
TEST(FsdpTest, AReferenceBesideAdaptersIsWhatIsFrozen) {
  JobSpec job = Job("fsdp2", 3);
  job.training.adapter.method = "lora";
  job.training.preference.method = "dpo";
  job.training.preference.reference = "model";
  const Program program = Sharded(job);
  EXPECT_EQ(FindState(program, "set_up.reference")->of, Selection::kFrozen);
}

// HSDP: groups of two shard, and the shard is reduced once more between groups.
TEST(FsdpTest, HybridShardingReducesTheShardOnceMore) {
  JobSpec job = Job("fsdp2", 3);
  job.parallelism.shard_group_size = 2;
  const Program program = Sharded(job);
  const Block& layer = FindBlock(program, "layer");
  EXPECT_EQ(layer.buffers.back().name, "all_reduce.input");
  EXPECT_EQ(layer.buffers.back().backward.bytes, layer.reduce_bytes / 2);
}

// What is reduced last in 16 bits is there when backward is over, and what it becomes before that
// is cast: of the embedding, or of a root group.
TEST(FsdpTest, WhatIsReducedLastIsCast) {
  JobSpec job = Job("fsdp2", 3);
  EXPECT_EQ(FindState(Sharded(job), "reduce.output"), nullptr) << "it is reduced in fp32";
  job.training.precision.reduce_dtype = "bf16";
  const auto reduced = [](const JobSpec& asked) {
    const Program program = Sharded(asked);
    EXPECT_EQ(FindState(program, "reduce.output")->stream, Stream::kReduceScatter);
    return std::pair{FindState(program, "reduce.input")->fixed_bytes,
                     FindState(program, "reduce.output")->fixed_bytes};
  };
  constexpr int64_t kTable = 2 * kVocab * kHidden;
  EXPECT_EQ(reduced(job), std::pair(kTable, kTable / kRanks));
  job.runtime.trainer = "hf-trainer";
  job.runtime.versions["hf-trainer"] = "4.57";  // one root group, with the last norm
  EXPECT_EQ(reduced(job).first, 2 * kTable + 2 * kHidden);
  job.runtime.framework = "fsdp1";
  EXPECT_EQ(FindState(Sharded(job), "reduce.output"), nullptr) << "it casts what it gathers";
}

// Each first axis is split in whole rows: 8 ranks hold 100 rows as 13 each.
TEST(FsdpTest, FsdpPadsToWholeRows) {
  JobSpec job = Job("fsdp2", 3);
  Shape(job).ffn_size = 100;
  const Program program = Sharded(job);
  const ParameterSums sums = SumParameters(program, WholeStage(4));
  const int64_t plain = sums.parameters / kRanks;
  const int64_t padding = 4 * 2 * 64 * (13 * kRanks - 100) / kRanks;
  EXPECT_EQ(sums.row_shard, plain + padding);
}

// A tensor for each parameter, of which those that are padded are gathered with their padding.
TEST(FsdpTest, EachParameterIsGatheredAsATensor) {
  JobSpec job = Job("fsdp2", 3);
  Shape(job).ffn_size = 100;
  const Program program = Sharded(job);
  const Block& layer = FindBlock(program, "layer");
  const BlockBuffer& weights = layer.buffers[1];
  EXPECT_TRUE(weights.by_parameter);
  int64_t bytes = 0;
  for (const Parameter& parameter : layer.parameters) {
    const int64_t rows = parameter.shape.extents[0].Local();
    const int64_t padded = RoundUp(rows, kRanks) * (parameter.Elements() / rows);
    EXPECT_EQ(parameter.gathered_bytes, 2 * padded) << parameter.name;
    bytes += parameter.gathered_bytes;
  }
  EXPECT_EQ(weights.forward.bytes, bytes);
}

// Of a root group FSDP2 has a tensor for each end.
std::vector<int64_t> RootParts(const Block& block) {
  std::vector<int64_t> parts;
  for (const Tensor& tensor : block.tensors) {
    if (tensor.name == "gathered.root") parts.push_back(tensor.Bytes());
  }
  return parts;
}

// torchtitan of early 2025: embedding, norm and head are one group, gathered before the first
// block and dropped after its backward; the head's gradients wait for the embedding's, and both
// go at once.
TEST(FsdpTest, OneRootGroupIsGatheredAllAlong) {
  const Program program = Sharded(Torchtitan("2025.3"));
  const Block& embedding = FindBlock(program, "embedding");
  const int64_t table = kVocab * kHidden;
  const int64_t head = table + kHidden;
  EXPECT_THAT(RootParts(embedding), UnorderedElementsAre(2 * table, 2 * head));
  EXPECT_EQ(FindState(program, "gathered.embedding"), nullptr);
  EXPECT_TRUE(program.ends_are_one_group);
  EXPECT_EQ(embedding.reduce_bytes, 4 * (table + head));
  EXPECT_EQ(FindBlock(program, "head").reduce_bytes, 0);
  EXPECT_THAT(BufferNames(FindBlock(program, "head")), IsEmpty());
  ASSERT_THAT(BufferNames(embedding), ElementsAre("gather.output"));
  EXPECT_EQ(embedding.buffers[0].forward.bytes, 2 * (table + head));
  EXPECT_EQ(embedding.buffers[0].end, BufferEnd::kNextBuffer) << "the first layer's is there";
}

// torchtune to 0.6 with torch 2.8 and later: the root group goes when forward is over, and is
// gathered again behind the loss's backward.
TEST(FsdpTest, AFrozenRootGroupGoesBetweenForwardAndBackward) {
  JobSpec job = With(Job("fsdp2", 3), "fsdp2", "bf16-pure");
  job.runtime.trainer = "torchtune";
  job.training.adapter.method = "lora";
  job.runtime.versions["torchtune"] = "0.7";
  EXPECT_EQ(FindState(Sharded(job), "gathered.root"), nullptr) << "it stays";
  job.runtime.versions.clear();
  const Program program = Sharded(job);
  const int64_t root = 2 * kVocab * kHidden + kHidden;
  const State* const gathered = FindState(program, "gathered.root");
  ASSERT_NE(gathered, nullptr);
  EXPECT_EQ(gathered->fixed_bytes, 2 * root);
  EXPECT_NE(gathered->alive & Bit(Phase::kBackward, false), 0);
  EXPECT_EQ(gathered->alive & Bit(Phase::kLoss, false), 0);
  const Block& head = FindBlock(program, "head");
  constexpr int64_t kEnd = 2 * kVocab * kHidden;
  EXPECT_EQ(gathered->buffers, 2);
  EXPECT_THAT(RootParts(head), UnorderedElementsAre(kEnd, kEnd + 2 * kHidden));
  const auto gathers = [](const Op& op) { return op.name == "gathered.root"; };
  const auto again = std::find_if(head.ops.begin(), head.ops.end(), gathers);
  ASSERT_NE(again, head.ops.end());
  EXPECT_EQ(again->backward_temporaries.count, 3) << "the buffer, and what is copied out of it";
  EXPECT_EQ((again - 1)->name, "head");
  job.runtime.reshard_after_forward = false;
  EXPECT_EQ(FindState(Sharded(job), "gathered.root"), nullptr);
}

// NeMo Automodel: tables that are trained have groups of their own, frozen ones are the root's.
TEST(FsdpTest, FrozenTablesAreTheRoots) {
  JobSpec job = With(Job("fsdp2", 3), "fsdp2", "bf16-pure");
  job.runtime.trainer = "nemo-automodel";
  EXPECT_EQ(FindState(Sharded(job), "gathered.root"), nullptr);
  job.training.adapter.method = "lora";
  const Program program = Sharded(job);
  EXPECT_THAT(BufferNames(FindBlock(program, "embedding")), ElementsAre("gather.output"));
  EXPECT_EQ(FindBlock(program, "head").reduce_bytes, 0);
  EXPECT_NE(FindState(program, "gathered.last_layer"), nullptr);
}

// Embedding, norm and head are one group, and the loss is the model's.
JobSpec OfOneGroup() {
  JobSpec job = Job("fsdp2", 3);
  job.runtime.trainer = "hf-trainer";
  job.runtime.versions["hf-trainer"] = "5.11";
  return job;
}

// A group that is told to goes with the model's forward, and is gathered whole before the loss runs
// backward: from torch 2.8 on, where a root is told, too.
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_state.py, _lazy_init.
TEST(FsdpTest, ARootGroupIsGatheredBehindTheModelsLoss) {
  JobSpec job = OfOneGroup();
  const Program program = Sharded(job);
  const Block& head = FindBlock(program, "head");
  const Op& again = head.ops.back();
  ASSERT_EQ(again.name, "gathered.root");
  ASSERT_EQ(again.backward_temporaries.count, 1);
  EXPECT_EQ(head.tensors[again.backward_temporaries.ids[0]].Bytes(),
            2 * (Elements(FindBlock(program, "embedding")) + Elements(head)));
  job.runtime.versions["torch"] = "2.7";
  EXPECT_NE(FindBlock(Sharded(job), "head").ops.back().name, "gathered.root");
}

// The last layer's weights are on their way while the loss runs backward, where they are not
// there already and the loss is the model's.
TEST(FsdpTest, ARootGroupsLossPrefetchesTheLastLayer) {
  JobSpec job = OfOneGroup();
  const Program program = Sharded(job);
  const Block& head = FindBlock(program, "head");
  EXPECT_THAT(BufferNames(head), ElementsAre());
  const Ids& beside = FindOp(head, "loss").backward_temporaries;
  const TensorId next = beside.ids[beside.count - 1];
  EXPECT_EQ(head.tensors[next].name, "gather.output");
  EXPECT_EQ(head.tensors[next].Bytes(), 2 * Elements(FindBlock(program, "layer")));
  job.runtime.reshard_after_forward = false;
  EXPECT_EQ(FindOp(FindBlock(Sharded(job), "head"), "loss").backward_temporaries.count,
            beside.count - 1);
  JobSpec outside = Torchtitan("2025.3");
  outside.runtime.reshard_after_forward = true;
  EXPECT_THAT(BufferNames(FindBlock(Sharded(outside), "head")), ElementsAre());
}

// From August 2025 on the embedding, and norm with head, are groups of their own.
TEST(FsdpTest, TwoGroupsAreGatheredWhenTheyRun) {
  const Program program = Sharded(Torchtitan("2025.8"));
  EXPECT_EQ(FindState(program, "gathered.embedding"), nullptr);
  EXPECT_FALSE(program.ends_are_one_group);
  EXPECT_THAT(BufferNames(FindBlock(program, "head")),
              ElementsAre("gather.output", "gathered.weights"));
  EXPECT_EQ(FindBlock(program, "head").reduce_bytes, 4 * (kVocab * kHidden + kHidden));
}

// Groups of their own are one where they share a table: it goes between forward and backward, but
// with torchtitan, which gathers it for either end, and the head's gradient of it waits for the
// embedding's, to which it is added in a third tensor.
TEST(FsdpTest, ASharedTableIsOneGroup) {
  JobSpec job = Job("fsdp2", 3);
  Shape(job).tied_embeddings = true;
  const Program program = Sharded(job);
  const Block& embedding = FindBlock(program, "embedding");
  constexpr int64_t kTable = kVocab * kHidden;
  constexpr int64_t kGroup = kTable + kHidden;  // and the final norm
  const State& gathered = *FindState(program, "gathered.root");
  EXPECT_EQ(gathered.fixed_bytes, 2 * kGroup);
  EXPECT_EQ(gathered.alive & Bit(Phase::kLoss, false), 0);
  EXPECT_TRUE(gathered.until_reduced);
  EXPECT_TRUE(program.ends_are_one_group);
  EXPECT_EQ(FindTensor(embedding, "embedding.tokens.weight.gradient.sum").Bytes(), 2 * kTable);
  EXPECT_EQ(embedding.reduce_bytes, 4 * kGroup);
  EXPECT_EQ(FindBlock(program, "head").reduce_bytes, 0);
  JobSpec kept = Torchtitan("2025.8");
  Shape(kept).tied_embeddings = true;
  const Program all_along = Sharded(kept);
  EXPECT_THAT(RootParts(FindBlock(all_along, "embedding")),
              UnorderedElementsAre(2 * kTable, 2 * kGroup));
  EXPECT_EQ(FindState(all_along, "gathered.root"), nullptr);
}

// Parameters, gradients and states are the host's; the GPU has what is gathered and reduced, and
// a share of a group's weights on its way.
TEST(FsdpTest, OffloadedStatesAreInTheHostsMemory) {
  JobSpec job = Torchtitan("2025.8");
  const Program here = Sharded(job);
  job.runtime.offload_parameters = true;
  const Program program = Sharded(job);
  for (const State& state : program.states) EXPECT_EQ(state.part, Part::kOther) << state.name;
  EXPECT_EQ(program.states.size() + program.host_states.size(), here.states.size());
  const Block& layer = FindBlock(program, "layer");
  const BlockBuffer& output = layer.buffers[0];
  int64_t largest = 0;
  for (const Parameter& parameter : layer.parameters) {
    largest = std::max(largest, parameter.Elements());
  }
  EXPECT_EQ(output.forward.input_bytes, (2 * Elements(layer) + 4 * largest) / kRanks);
  EXPECT_EQ(output.forward.bytes, FindBlock(here, "layer").buffers[0].forward.bytes);
  EXPECT_EQ(layer.reduce_bytes, FindBlock(here, "layer").reduce_bytes);
}

// Frozen weights are in forward's dtype already: what is set up casts adapters alone.
TEST(FsdpTest, TheFirstSetsUpNoCastOfFrozenWeights) {
  const auto wide = [](const JobSpec& job) {
    std::vector<int64_t> bytes;
    for (const State& state : Sharded(job).states) {
      if (state.name == "set_up.gathered.wide") bytes.push_back(state.fixed_bytes);
    }
    return bytes;
  };
  JobSpec job = Job("fsdp1", 3);
  const int64_t layer = Elements(FindBlock(Sharded(job), "layer"));
  EXPECT_THAT(wide(job), ElementsAre(4 * (2 * kVocab * kHidden + kHidden), 4 * layer));
  job.training.adapter.method = "lora";
  job.training.adapter.rank = 4;
  job.training.adapter.target_modules = {"q_proj"};
  EXPECT_THAT(wide(job), ElementsAre(4 * 2 * 4 * kHidden));
}

// The first FSDP's gradients are the GPU's too, until backward is over; so is a share that was
// copied, where it is not cast, beside what is gathered of it.
TEST(FsdpTest, TheFirstOffloadsWhenBackwardIsOver) {
  JobSpec job = Job("fsdp1", 3);
  const Program here = Sharded(job);
  job.runtime.offload_parameters = true;
  const Program program = Sharded(job);
  const State& gradients = *FindState(program, "gradients");
  EXPECT_TRUE(gradients.grows_in_backward);
  EXPECT_EQ(gradients.alive, 0);
  const int64_t layer = Elements(FindBlock(program, "layer"));
  const BlockBuffer& output = FindBlock(program, "layer").buffers[0];
  EXPECT_EQ(output.input_stream, Stream::kCopyIn);
  EXPECT_EQ(output.forward.bytes, 2 * layer);
  EXPECT_EQ(output.forward.input_bytes, 2 * layer / kRanks);
  const int64_t root = CeilDivide(2 * kVocab * kHidden + kHidden, kRanks);
  EXPECT_EQ(FindState(here, "set_up.copied"), nullptr);
  EXPECT_EQ(FindState(program, "set_up.cast")->fixed_bytes, 2 * root);
  EXPECT_EQ(FindState(program, "set_up.copied")->fixed_bytes, 4 * root);
  EXPECT_TRUE(FindState(program, "set_up.copied")->sets_up_beside);

  const Program pure = Sharded(With(job, "fsdp1", "bf16-pure"));
  const BlockBuffer& kept = FindBlock(pure, "layer").buffers[0];
  EXPECT_EQ(kept.forward.bytes, 2 * layer + 2 * layer / kRanks);
  EXPECT_EQ(kept.forward.input_bytes, 0);
  EXPECT_EQ(FindState(pure, "gathered.root")->fixed_bytes, 2 * (kRanks + 1) * root);
}

// Under no_sync backward adds to whole gradients; what is left of them in the step
// is a shard.
TEST(FsdpTest, GradientsOfSeveralMicroBatchesStayWhole) {
  JobSpec job = Job("fsdp1", 3);
  job.runtime.trainer = "litgpt";
  job.training.global_batch_size = *job.training.micro_batch_size * kRanks;
  const Program once = Sharded(job);
  EXPECT_EQ(FindState(once, "gradients.reduced"), nullptr);
  EXPECT_EQ(FindState(once, "gradients")->shards, kRanks);
  EXPECT_GT(FindBlock(once, "layer").reduce_bytes, 0);

  job.training.global_batch_size = 4 * *job.training.global_batch_size;
  const Program program = Sharded(job);
  const State& whole = *FindState(program, "gradients");
  EXPECT_EQ(whole.stream, Stream::kAllGather) << "a view of what is gathered";
  EXPECT_TRUE(Persists(whole));
  EXPECT_EQ(whole.alive, 0) << "gone when the last micro-batch is over";
  const Alive reduction = Bit(Phase::kGradientReduction, false);
  EXPECT_EQ(FindState(program, "gradients.reduced")->shards, kRanks);
  EXPECT_NE(FindState(program, "gradients.reduced")->alive & reduction, 0);
  EXPECT_EQ(FindBlock(program, "layer").reduce_bytes, 0) << "of the last micro-batch alone";
  EXPECT_NE(FindState(program, "gradients.head"), nullptr) << "waits for the flat gradient";

  // The root's, when the last micro-batch is over: two whole ones, and what they are cast to.
  const int64_t root = 2 * kVocab * kHidden + kHidden;
  int64_t bytes[3] = {};
  for (const State& state : program.states) {
    if (state.alive != (reduction | Bit(Phase::kGradientReduction, true))) continue;
    bytes[static_cast<size_t>(state.stream)] += state.fixed_bytes;
  }
  EXPECT_EQ(bytes[static_cast<size_t>(Stream::kAllGather)], 2 * 2 * root);
  EXPECT_EQ(bytes[static_cast<size_t>(Stream::kReduceScatter)], 4 * root);
  EXPECT_EQ(program.flat_cast, DType::kFp32);
  EXPECT_TRUE(program.adds_flat && program.adds_flat_ends);
  job.training.global_batch_size = *job.training.global_batch_size / 2;
  EXPECT_FALSE(Sharded(job).adds_flat_ends) << "the second of two is the last";

  job.runtime.framework = "fsdp2";
  job.runtime.trainer = "hf-trainer";
  EXPECT_EQ(FindState(Sharded(job), "gradients.head"), nullptr);
  EXPECT_EQ(FindState(Sharded(job), "gradients")->dtype, DType::kBf16) << "as they are reduced";
  EXPECT_EQ(Sharded(job).adds_whole, AddsWhole::kParameters) << "as autograd does";
  job.training.precision.reduce_dtype = "fp32";
  EXPECT_EQ(FindState(Sharded(job), "gradients")->dtype, DType::kFp32);
  EXPECT_EQ(Sharded(job).adds_whole, AddsWhole::kParameters);
  job.runtime.versions["torch"] = "2.14";
  EXPECT_EQ(Sharded(job).adds_whole, AddsWhole::kBlocks)
      << "each was cast when all of it was there";

  job.runtime.trainer = "torchtitan";
  EXPECT_EQ(FindState(Sharded(job), "gradients")->shards, kRanks) << "reduces each one's";
  EXPECT_EQ(Sharded(job).adds_whole, AddsWhole::kNone);
}

// FSDP1 makes and frees what it gathers into before the first step, of the root and of a layer; a
// loop over its flat shards copies a parameter of one at most.
TEST(FsdpTest, FlatUnitsAreSetUp) {
  JobSpec job = Job("fsdp1", 3);
  job.training.optimizer.implementation = "for-loop";
  const Program program = Sharded(job);
  const int64_t root = 2 * kVocab * kHidden + kHidden;
  std::vector<int64_t> bytes;
  for (const State& state : program.states) {
    if (state.sets_up_behind) bytes.push_back(state.fixed_bytes);
  }
  const int64_t layer = Elements(FindBlock(program, "layer"));
  const auto padded = [](int64_t elements) { return CeilDivide(elements, kRanks) * kRanks; };
  const auto share = [](int64_t elements) { return CeilDivide(elements, kRanks); };
  EXPECT_THAT(bytes, ElementsAre(2 * share(root), 2 * padded(root), 4 * root, 2 * share(root),
                                 2 * share(layer), 2 * padded(layer), 4 * layer, 2 * share(layer)));
  EXPECT_EQ(FindState(program, "optimizer.temporaries")->most_bytes,
            4 * CeilDivide(std::max(root, layer), kRanks));
  Shape(job).tied_embeddings = true;
  const Program shared = Sharded(job);
  const Tensor& sum =
      FindTensor(FindBlock(shared, "embedding"), "embedding.tokens.weight.gradient.sum");
  EXPECT_EQ(sum.Bytes(), 2 * kVocab * kHidden);
  EXPECT_EQ(sum.stream, Stream::kAllGather) << "of a view of what is gathered";
  const Program narrow = Sharded(With(job, "fsdp1", "fp32"));
  EXPECT_EQ(FindState(narrow, "set_up.shard"), nullptr);
  EXPECT_NE(FindState(narrow, "set_up.gathered"), nullptr);
}

// A loop over FSDP2's parameters copies a rank's rows of the largest.
TEST(FsdpTest, ALoopIsOverRowsOfARank) {
  JobSpec job = Job("fsdp2", 3);
  job.training.optimizer.implementation = "for-loop";
  EXPECT_EQ(FindState(Sharded(job), "optimizer.temporaries")->shards, kRanks);
}

// Until then the last layer was not resharded either, unless a job asks for it.
TEST(FsdpTest, TheLastLayerStaysGathered) {
  JobSpec job = Torchtitan("2025.3");
  const Program program = Sharded(job);
  const State* last = FindState(program, "gathered.last_layer");
  ASSERT_NE(last, nullptr);
  EXPECT_EQ(last->fixed_bytes, 2 * Elements(FindBlock(program, "layer")));
  EXPECT_EQ(last->alive, During(Phase::kLoss, Phase::kLoss, true, true));
  job.runtime.reshard_after_forward = true;
  EXPECT_EQ(FindState(Sharded(job), "gathered.last_layer"), nullptr);
  EXPECT_EQ(FindState(Sharded(Torchtitan("2025.8")), "gathered.last_layer"), nullptr);
}

// The first FSDP's weights are views of what is gathered, this unit's and the
// next one's, in a stream of their own; shards are of a flat tensor, not of rows.
TEST(FsdpTest, TheFirstGathersOnce) {
  const Program program = Sharded(Job("fsdp1", 3));
  const Block& layer = FindBlock(program, "layer");
  ASSERT_THAT(BufferNames(layer), ElementsAre("gather.output", "gather.output"));
  for (const BlockBuffer& buffer : layer.buffers) {
    EXPECT_EQ(buffer.stream, Stream::kAllGather);
    EXPECT_EQ(buffer.forward.bytes, 2 * Elements(layer));
    EXPECT_EQ(buffer.At(true, layer.gathered).bytes, 2 * Elements(layer));
  }
  EXPECT_EQ(program.row_shards, 1);
  EXPECT_EQ(program.reduce_stream, Stream::kReduceScatter) << "where gradients become fp32";
  const State& root = *FindState(program, "gathered.root");
  EXPECT_EQ(root.stream, Stream::kAllGather);
  EXPECT_TRUE(root.until_reduced) << "behind the flat gradient";
  for (const State& state : program.states) EXPECT_FALSE(state.shards_rows) << state.name;
}

// Either keeps less than all weights gathered, and more than none.
TEST(FsdpTest, ReshardingSavesMemory) {
  for (const char* framework : {"fsdp1", "fsdp2"}) {
    EXPECT_LT(PeakBytes(Job(framework, 3)), PeakBytes(Job(framework, 2))) << framework;
  }
}

}  // namespace
}  // namespace plimsoll
