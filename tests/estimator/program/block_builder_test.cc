// Blocks, row by row: what each kind of row declares of itself, and how symbols become sizes.
#include "estimator/program/block_builder.h"

#include <cstdint>
#include <memory_resource>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

// All that has a letter, each of another size.
JobSpec EverySize() {
  JobSpec job = SmallJob();
  job.training.micro_batch_size = 3;
  job.training.sequence_length = 48;
  return WithModel(job, [](Transformer& model) {
    model.hidden_size = 112;
    model.embedding_size = 104;
    model.head_count = 6;
    model.kv_head_count = 2;
    model.head_size = 24;
    model.ffn_size = 300;
    model.vocab_size = 1000;
    model.position_count = 77;
    model.token_type_count = 5;
    model.linear = {.key_head_count = 3,
                    .value_head_count = 9,
                    .key_size = 13,
                    .value_size = 11,
                    .kernel_size = 4};
  });
}

TEST(BlockBuilderTest, SymbolsAreSizesOfTheJob) {
  const ValidJob valid = Valid(EverySize());
  const Sizes sizes(*valid);
  const std::pair<Symbol, int64_t> rows[] = {
      {Symbol::kB, 3},   {Symbol::kS, 48},     {Symbol::kH, 112},    {Symbol::kE, 104},
      {Symbol::kF, 300}, {Symbol::kA, 6 * 24}, {Symbol::kC, 2 * 24}, {Symbol::kN, 6},
      {Symbol::kD, 24},  {Symbol::kV, 1000},   {Symbol::kP, 77},     {Symbol::kT, 5},
      {Symbol::kR, 0},   {Symbol::kX, 0},      {Symbol::kL, 3 * 13}, {Symbol::kM, 9 * 11},
      {Symbol::kO, 9},   {Symbol::kOne, 1}};
  for (const auto& [symbol, size] : rows) {
    EXPECT_EQ(sizes(symbol).size, size) << static_cast<int>(symbol);
    EXPECT_EQ(sizes(symbol, 3).size, 3 * size) << static_cast<int>(symbol);
    EXPECT_EQ(sizes(symbol, 3).times, 3);
    EXPECT_EQ(sizes(symbol, 3).symbol, symbol);
  }
}

TEST(BlockBuilderTest, SizesOfExpertsRanksAndStates) {
  JobSpec job = SmallJob();
  Shape(job).expert_count = 12;
  Shape(job).active_expert_count = 3;
  Shape(job).expert_ffn_size = 40;
  Shape(job).shared_expert_ffn_size = 72;
  const Sizes experts(*Valid(job));
  EXPECT_EQ(experts(Symbol::kX).size, 12);
  EXPECT_EQ(experts(Symbol::kK).size, 3);
  EXPECT_EQ(experts(Symbol::kG).size, 40);
  EXPECT_EQ(experts(Symbol::kU).size, 72);
  const Sizes latent(*Valid(WithModel(SmallJob(), [](Transformer& model) {
    model.kv_head_count = model.head_count;
    model.qk_norm = QkNorm::kPerRank;
    model.latent = {.query_rank = 20, .key_value_rank = 28, .rotary_size = 8, .value_size = 12};
  })));
  EXPECT_EQ(latent(Symbol::kQ).size, 20);
  EXPECT_EQ(latent(Symbol::kJ).size, 28);
  EXPECT_EQ(latent(Symbol::kY).size, 8);
  EXPECT_EQ(latent(Symbol::kW).size, 4 * 12);
  const Sizes states(*Valid(WithModel(SmallJob(), [](Transformer& model) {
    model.state_space = {.head_count = 6, .head_size = 10, .state_size = 14, .group_count = 2};
  })));
  EXPECT_EQ(states(Symbol::kI).size, 60);
  EXPECT_EQ(states(Symbol::kZ).size, 28);
}

// Of a preference a sample is two sequences; a vocabulary is as wide as it is padded.
TEST(BlockBuilderTest, SizesFollowTheJobAndNotTheModelAlone) {
  JobSpec pairs = With(SmallJob(), "ddp", "bf16-pure");
  pairs.training.preference.method = "dpo";
  EXPECT_EQ(Sizes(*Valid(pairs))(Symbol::kB).size, 2 * 2);
  JobSpec padded = With(SmallJob(), "megatron-core");
  Shape(padded).vocab_size = 300;
  padded.runtime.vocab_size_divisor = 128;
  EXPECT_EQ(Sizes(*Valid(padded))(Symbol::kV).size, 384);
  JobSpec adapted = SmallJob();
  adapted.training.adapter.method = "lora";
  adapted.training.adapter.rank = 12;
  EXPECT_EQ(Sizes(*Valid(adapted))(Symbol::kR).size, 12);
}

struct Built {
  ValidJob job = Valid(SmallJob());
  BlockBuilder b{*job, "block", BlockKind::kLayer, std::pmr::get_default_resource()};
};

TEST(BlockBuilderTest, WideTensorsAreSplitByWidthNarrowOnesBySequence) {
  Built built;
  BlockBuilder& b = built.b;
  const TensorId wide = b.Wide("wide", b.Size(Symbol::kF, 2), DType::kBf16, Role::kTemporary);
  const TensorId narrow = b.Narrow("narrow", b.Size(Symbol::kH), DType::kFp32);
  const Tensor& first = b.block().tensors[wide];
  EXPECT_EQ(InSymbols(first.shape), "[B, S, 2F]");
  EXPECT_EQ(InNumbers(first.shape), "[2, 32, 256]");
  EXPECT_EQ(first.Bytes(), 2 * 2 * 32 * 256);
  EXPECT_EQ(first.tensor_axis, 2);
  EXPECT_EQ(first.sequence_axis, kNoAxis);
  EXPECT_EQ(first.role, Role::kTemporary);
  const Tensor& second = b.block().tensors[narrow];
  EXPECT_EQ(InSymbols(second.shape), "[B, S, H]");
  EXPECT_EQ(second.Bytes(), 4 * 2 * 32 * 64);
  EXPECT_EQ(second.tensor_axis, kNoAxis);
  EXPECT_EQ(second.sequence_axis, 1);
  EXPECT_EQ(second.role, Role::kActivation);
}

// A view has a shape of its own and its storage's memory; a view of a view has the first one's.
TEST(BlockBuilderTest, ViewsShareTheStorageOfTheFirst) {
  Built built;
  BlockBuilder& b = built.b;
  const TensorId whole = b.Wide("whole", b.Size(Symbol::kF, 2), DType::kBf16);
  const TensorId half = b.View("half", whole, b.Size(Symbol::kF));
  const TensorId part = b.View("part", half, b.Size(Symbol::kD));
  EXPECT_EQ(b.block().tensors[whole].storage, whole);
  EXPECT_EQ(b.block().tensors[half].storage, whole);
  EXPECT_EQ(b.block().tensors[part].storage, whole);
  EXPECT_EQ(InSymbols(b.block().tensors[part].shape), "[B, S, D]");
  EXPECT_EQ(b.block().tensors[part].tensor_axis, 2);
}

// All of a row's words reach the tensor.
TEST(BlockBuilderTest, RowsSayWhatTensorsAre) {
  Built built;
  BlockBuilder& b = built.b;
  const TensorId plain = b.Add("plain", {Number(7)}, {});
  const TensorId other = b.Add("other", {Number(7), b.Size(Symbol::kS)},
                               {.dtype = DType::kInt64,
                                .tensor_axis = 0,
                                .sequence_axis = 1,
                                .expert_axis = 0,
                                .at_experts = true,
                                .role = Role::kLoss,
                                .differentiable = false,
                                .held = true});
  const Tensor& first = b.block().tensors[plain];
  EXPECT_EQ(InNumbers(first.shape), "[7]");
  EXPECT_TRUE(first.differentiable && !first.held && !first.at_experts);
  EXPECT_EQ(first.expert_axis, kNoAxis);
  const Tensor& second = b.block().tensors[other];
  EXPECT_EQ(second.Bytes(), 8 * 7 * 32);
  EXPECT_TRUE(!second.differentiable && second.held && second.at_experts);
  EXPECT_EQ(second.tensor_axis, 0);
  EXPECT_EQ(second.sequence_axis, 1);
  EXPECT_EQ(second.expert_axis, 0);
  EXPECT_EQ(second.role, Role::kLoss);
}

// Weights are of the parameters' dtype, whatever activations are.
TEST(BlockBuilderTest, WeightsHaveTheParametersDtype) {
  const std::pair<const char*, DType> presets[] = {{"fp32", DType::kFp32},
                                                   {"bf16-pure", DType::kBf16},
                                                   {"fp16-mixed", DType::kFp16},
                                                   {"bf16-autocast", DType::kFp32}};
  for (const auto& [preset, dtype] : presets) {
    const ValidJob job = Valid(With(SmallJob(), "ddp", preset));
    BlockBuilder b(*job, "block", BlockKind::kLayer, std::pmr::get_default_resource());
    const TensorId id = b.Weight("w", {b.Size(Symbol::kF), b.Size(Symbol::kH)}, 0);
    EXPECT_EQ(b.block().parameters[id].dtype, dtype) << preset;
    EXPECT_EQ(b.block().parameters[id].Elements(), 128 * 64);
    EXPECT_FALSE(b.block().parameters[id].packed());
  }
}

TEST(BlockBuilderTest, BlocksAreWhatWasAddedInItsOrder) {
  Built built;
  BlockBuilder& b = built.b;
  const TensorId in = b.Narrow("in", b.Size(Symbol::kH), DType::kBf16);
  const TensorId out = b.Narrow("out", b.Size(Symbol::kH), DType::kBf16);
  b.Then("first", {in}, {out}, {in}).kind = OpKind::kAttention;
  b.Then("second", {out}, {in}, {});
  const Block block = std::move(b).Build(in, out);
  EXPECT_EQ(block.name, "block");
  EXPECT_EQ(block.kind, BlockKind::kLayer);
  EXPECT_EQ(block.input, in);
  EXPECT_EQ(block.output, out);
  ASSERT_EQ(block.ops.size(), 2u);
  EXPECT_EQ(block.ops[0].name, "first");
  EXPECT_EQ(block.ops[0].kind, OpKind::kAttention);
  EXPECT_EQ(block.ops[0].saved.count, 1);
  EXPECT_EQ(block.ops[1].saved.count, 0);
  EXPECT_EQ(block.tensors.size(), 2u);
}

}  // namespace
}  // namespace plimsoll
