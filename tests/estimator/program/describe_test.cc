// Every word that a program's text has, each made true by itself.
#include "estimator/program/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/testing/hand_program.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The lines of `program` that the one that is plain does not have.
std::vector<std::string> NewLines(const Program& program) {
  const std::vector<std::string> plain = absl::StrSplit(Describe(HandProgram(2)), '\n');
  std::vector<std::string> lines;
  for (const auto& line : absl::StrSplit(Describe(program), '\n')) {
    if (std::find(plain.begin(), plain.end(), line) == plain.end()) lines.emplace_back(line);
  }
  return lines;
}

TEST(DescribeTest, AHandMadeProgramInFull) {
  EXPECT_EQ(Describe(HandProgram(2)),
            "embedding (embedding): from tokens, to e\n"
            "  tensor tokens [8] [8] fp8 activation; no gradient\n"
            "  tensor e [100] [100] fp8 activation\n"
            "  op lookup: tokens -> e; saves tokens\n"
            "layer (layer): from x, to y\n"
            "  parameter w [7] [7] bf16\n"
            "  tensor x [100] [100] fp8 activation\n"
            "  tensor a [300] [300] fp8 activation\n"
            "  tensor y [100] [100] fp8 activation\n"
            "  op up: x -> a; saves x, trains w\n"
            "  op down: a -> y; saves a\n"
            "head (head): from h\n"
            "  tensor h [100] [100] fp8 activation\n"
            "  tensor l [500] [500] fp8 loss\n"
            "  tensor loss [1] [1] fp8 loss\n"
            "  op head: h -> l; saves h\n"
            "  op loss: l -> loss; saves l\n"
            "state FLBROE FLBROE weights: weight, bf16 of bytes; 1000 bytes\n"
            "state ....OE FLBROE momentum: optimizer state, bf16 of bytes; 2000 bytes\n"
            "stage: layers 2, embedding, head; pairs 1, warm-up 0, groups of 1, played 1\n"
            "gradients of weights: bf16, fused\n"
            "outside: context 0, nccl 0\n");
}

struct Row {
  const char* name;
  void (*edit)(Program&);
  const char* line;
};

Block& Layer(Program& program) { return program.blocks[1]; }

constexpr PassMarks MarkOf(PassId pass) {
  return static_cast<PassMarks>(1u << static_cast<unsigned>(pass));
}

constexpr Row kRows[] = {
    // Blocks.
    {"recomputed", [](Program& p) { Layer(p).recompute_unit = 2; },
     "layer (layer): recomputed by 2, from x, to y"},
    {"holds its output", [](Program& p) { Layer(p).holds_output = true; },
     "layer (layer): holds its output, from x, to y"},
    {"forward only", [](Program& p) { Layer(p).forward_only = true; },
     "layer (layer): forward only, from x, to y"},
    {"checkpoint", [](Program& p) { Layer(p).checkpoint_bytes = 5; },
     "layer (layer): keeps 5, from x, to y"},
    {"reduced", [](Program& p) { Layer(p).reduce_bytes = 6; },
     "layer (layer): reduces 6, from x, to y"},
    {"one layer", [](Program& p) { Layer(p).layers = {.begin = 3, .end = 4}; },
     "layer (layer): layer 3, from x, to y"},
    {"from a layer on", [](Program& p) { Layer(p).layers = {.begin = 3}; },
     "layer (layer): layers from 3, from x, to y"},
    {"up to a layer", [](Program& p) { Layer(p).layers = {.end = 5}; },
     "layer (layer): layers to 4, from x, to y"},
    {"every fourth", [](Program& p) { Layer(p).layers = {.period = 4}; },
     "layer (layer): layers 0 of 4, from x, to y"},
    {"some of six", [](Program& p) { Layer(p).layers = {.period = 6, .from = 1, .to = 4}; },
     "layer (layer): layers 1 to 3 of 6, from x, to y"},
    {"some of six from one on",
     [](Program& p) { Layer(p).layers = {.begin = 1, .period = 6, .from = 0, .to = 5}; },
     "layer (layer): layers from 1, 0 to 4 of 6, from x, to y"},
    // Parameters.
    {"split", [](Program& p) { Layer(p).parameters[0].tensor_axis = 0; },
     "  parameter w [7] [7] bf16; tensor axis 0"},
    {"lookup", [](Program& p) { Layer(p).parameters[0].embedding = true; },
     "  parameter w [7] [7] bf16; lookup"},
    {"tied", [](Program& p) { Layer(p).parameters[0].tied = true; },
     "  parameter w [7] [7] bf16; tied"},
    {"frozen and quantized",
     [](Program& p) {
       Layer(p).parameters[0].frozen = Layer(p).parameters[0].quantized = true;
       Layer(p).parameters[0].dtype = DType::kNf4;
     },
     "  parameter w [7] [7] nf4; frozen, quantized"},
    {"shrunk",
     [](Program& p) {
       Layer(p).parameters[0].shrunk_by = MarkOf(PassId::kTensorParallel) | MarkOf(PassId::kZero);
     },
     "  parameter w [7] [7] bf16; tensor-parallel, zero"},
    // Tensors.
    {"a view", [](Program& p) { Layer(p).tensors[2].storage = 1; },
     "  tensor y [100] [100] fp8 activation; view of a"},
    {"axes",
     [](Program& p) {
       Layer(p).tensors[2].tensor_axis = 0;
       Layer(p).tensors[2].sequence_axis = 1;
     },
     "  tensor y [100] [100] fp8 activation; tensor axis 0, sequence axis 1"},
    {"recorded on a stream",
     [](Program& p) {
       Layer(p).tensors[2].recorded = true;
       Layer(p).tensors[2].stream = Stream::kAllGather;
     },
     "  tensor y [100] [100] fp8 activation; recorded, all-gather"},
    {"held", [](Program& p) { Layer(p).tensors[2].held = true; },
     "  tensor y [100] [100] fp8 activation; held"},
    {"held until", [](Program& p) { Layer(p).tensors[1].held_until = 1; },
     "  tensor a [300] [300] fp8 activation; held until down"},
    {"lingers", [](Program& p) { Layer(p).tensors[2].lingers = true; },
     "  tensor y [100] [100] fp8 activation; lingers"},
    {"a hole", [](Program& p) { Layer(p).tensors[2].leaves_hole = true; },
     "  tensor y [100] [100] fp8 activation; leaves a hole"},
    {"made again",
     [](Program& p) { Layer(p).tensors[2].discarded = Layer(p).tensors[2].checkpointed = true; },
     "  tensor y [100] [100] fp8 activation; discarded, checkpointed"},
    // Ops.
    {"a product",
     [](Program& p) {
       Layer(p).ops[1].kind = OpKind::kMatrixProduct;
       Layer(p).ops[1].product_depth = 9;
     },
     "  op down (product): a -> y; saves a, depth 9"},
    {"temporaries",
     [](Program& p) {
       Layer(p).ops[1].forward_temporaries = {0};
       Layer(p).ops[1].backward_temporaries = {1};
     },
     "  op down: a -> y; saves a, forward with x, backward with a"},
    {"gradients", [](Program& p) { Layer(p).ops[1].input_gradient = InputGradient::kInPlace; },
     "  op down: a -> y; saves a, gradient in place"},
    {"reads what is frozen", [](Program& p) { Layer(p).parameters[0].frozen = true; },
     "  op up: x -> a; saves x, reads w"},
    {"collectives",
     [](Program& p) {
       Layer(p).ops[1].forward_collectives.Add({.kind = CollectiveKind::kReduceScatter,
                                                .axes = Along(Axis::kTensor, Axis::kContext),
                                                .tensor = 2});
       Layer(p).ops[1].backward_collectives.Add({.kind = CollectiveKind::kGather,
                                                 .axes = Along(Axis::kTensor),
                                                 .tensor = 2,
                                                 .shared = true});
     },
     "  op down: a -> y; saves a, forward reduce-scatters y along tensor, context, backward "
     "gathers y along tensor, once"},
    {"recomputed together",
     [](Program& p) {
       Layer(p).ops[1].modules = 2;
       Layer(p).ops[1].segment = 3;
     },
     "  op down: a -> y; saves a, modules 2, segment 3"},
    {"a buffer",
     [](Program& p) {
       Layer(p).buffers.push_back({.name = "gathered",
                                   .stream = Stream::kAllGather,
                                   .end = BufferEnd::kNextBuffer,
                                   .forward = {3, 2},
                                   .backward = {4, 0}});
     },
     "  buffer gathered: communication, all-gather, forward 3 from 2, backward 4 from 0; until the "
     "next buffer"},
    {"a buffer of the next block",
     [](Program& p) { Layer(p).buffers.push_back({.name = "gathered", .of_next = true}); },
     "  buffer gathered: communication, compute, forward 0 from 0, backward the next block's"},
    // States.
    {"shared rows",
     [](Program& p) {
       p.states[0].shards = 8;
       p.states[0].shards_rows = true;
       p.states[0].part = Part::kWeights;
     },
     "state FLBROE FLBROE weights: weight, bf16 of bytes; weights, 1000 bytes, 1/8, whole rows"},
    {"of frozen ones, on one stage",
     [](Program& p) {
       p.states[0].of = Selection::kFrozen;
       p.states[0].place = Place::kHeadStage;
       p.states[0].basis = Basis::kParameters;
     },
     "state FLBROE FLBROE weights: weight, bf16 of parameters; frozen, 1000 bytes, head's stage"},
    {"grows, capped",
     [](Program& p) {
       p.states[0].grows_in_backward = true;
       p.states[0].most_bytes = 99;
       p.states[0].block_size = 64;
     },
     "state FLBROE FLBROE weights: weight, bf16 of bytes; 1000 bytes, at most 99, one for 64, "
     "grows in backward"},
    // The rest.
    {"a stage that sends", [](Program& p) { p.stages[0].edge_bytes = 12; },
     "stage: layers 2, embedding, head, sends 12 and keeps it; pairs 1, warm-up 0, groups of 1, "
     "played 1"},
    {"gradients of shares",
     [](Program& p) {
       p.row_shards = 4;
       p.reduce_stream = Stream::kReduceScatter;
       p.weight_gradient = WeightGradient::kAdded;
     },
     "gradients of weights: bf16, added, rows over 4, reduced in a stream of their own"},
    {"outside",
     [](Program& p) {
       p.outside = {.context_bytes = 1, .nccl_bytes = 2};
       p.tuning_bytes = 3;
       p.synchronizes_receives = true;
     },
     "outside: context 1, nccl 2; tuning 3, synchronizes receives"},
};

TEST(DescribeTest, EachWordByItself) {
  for (const Row& row : kRows) {
    Program program = HandProgram(2);
    row.edit(program);
    EXPECT_THAT(NewLines(program), ::testing::Contains(row.line)) << row.name;
  }
}

TEST(DescribeTest, TensorsOfOneNameAreNumbered) {
  Program program = HandProgram(1);
  Layer(program).tensors[1].name = "x";
  EXPECT_THAT(Describe(program), HasSubstr("  tensor x#2 [300] [300] fp8 activation\n"));
  EXPECT_THAT(Describe(program), HasSubstr("  op up: x -> x#2; saves x, trains w\n"));
}

TEST(DescribeTest, PassesAreNamedInTheirOrder) {
  EXPECT_THAT(PassNames(0), IsEmpty());
  EXPECT_THAT(PassNames(1), ElementsAre(kPassNames[0]));
  PassMarks all = 0;
  for (size_t pass = 0; pass < kPassCount; ++pass) all |= static_cast<PassMarks>(1u << pass);
  EXPECT_EQ(PassNames(all).size(), kPassCount);
  EXPECT_EQ(PassNames(all).back(), kPassNames[kPassCount - 1]);
}

}  // namespace
}  // namespace plimsoll
