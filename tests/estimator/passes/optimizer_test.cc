// The pass in words: the states of each optimizer and framework.
#include <utility>

#include "estimator/program/parameter_sums.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Names(const JobSpec& job) {
  std::vector<std::string> names;
  for (const State& state : ProgramAfter(Valid(job), PassId::kOptimizer).states) {
    names.push_back(absl::StrCat(state.name, " ", Name(state.dtype)));
  }
  return names;
}

JobSpec Unclipped(const char* framework, const char* preset) {
  JobSpec job = With(SmallJob(), framework, preset);
  job.training.gradient_clipping = false;
  job.training.optimizer.implementation = "fused";
  return job;
}

TEST(OptimizerTest, PlainPytorch) {
  EXPECT_THAT(Names(Unclipped("ddp", "fp32")),
              ElementsAre("weights fp32", "gradients fp32", "optimizer.momentum fp32",
                          "optimizer.variance fp32"));
  EXPECT_THAT(Names(Unclipped("ddp", "bf16-mixed")),
              ElementsAre("weights bf16", "master_weights fp32", "gradients bf16",
                          "optimizer.momentum fp32", "optimizer.variance fp32"));
}

TEST(OptimizerTest, AutocastKeepsSixteenBitCopies) {
  EXPECT_THAT(Names(Unclipped("ddp", "bf16-autocast")),
              ElementsAre("weights fp32", "gradients fp32", "optimizer.momentum fp32",
                          "optimizer.variance fp32"));
  const Program program =
      ProgramAfter(Valid(Unclipped("ddp", "bf16-autocast")), PassId::kOptimizer);
  const Block& layer = FindBlock(program, "layer");
  const Op& down = FindOp(layer, "mlp.down");
  const Tensor& cast = layer.tensors[down.saved.ids[down.saved.count - 1]];
  EXPECT_EQ(cast.name, "weight.cast");
  EXPECT_EQ(cast.Bytes(), 2 * 64 * 128);
}

// Layers that run again cast again: the first copies go when autocast ends, before the loss runs
// backward.
TEST(OptimizerTest, CopiesGoBeforeBackwardWhereLayersRunAgain) {
  JobSpec job = Unclipped("ddp", "bf16-autocast");
  job.training.recompute.mode = "full";
  const Program program = ProgramOf(job);
  const State& copies = *FindState(program, "weights.cast");
  EXPECT_TRUE(copies.until_backward);
  EXPECT_EQ(copies.alive, During(Phase::kForward, Phase::kLoss, true, true));
}

// Bytes of casts in a layer, and how many there are.
std::pair<int64_t, int> Casts(const JobSpec& job) {
  const Program program = ProgramOf(job);
  std::pair<int64_t, int> casts;
  for (const Tensor& tensor : FindBlock(program, "layer").tensors) {
    if (tensor.name != "weight.cast") continue;
    casts.first += tensor.Bytes();
    ++casts.second;
  }
  return casts;
}

// Seven matrices of a layer are cast again where it runs again.
TEST(OptimizerTest, LayersThatRunAgainCastTheirWeightsAgain) {
  JobSpec job = Unclipped("ddp", "bf16-autocast");
  job.training.recompute.mode = "full";
  EXPECT_EQ(Casts(job).second, 7);
  EXPECT_EQ(Casts(job).first, 2 * (64 * (64 + 2 * 32) + 64 * 64 + 3 * 64 * 128));
}

TEST(OptimizerTest, MegatronSumsInOneBuffer) {
  EXPECT_THAT(Names(Unclipped("megatron-core", "bf16-mixed")),
              ElementsAre("weights bf16", "master_weights fp32", "gradients.main fp32",
                          "optimizer.momentum fp32", "optimizer.variance fp32"));
}

TEST(OptimizerTest, ANarrowBufferIsCopiedForTheStep) {
  JobSpec job = Unclipped("megatron-core", "bf16-mixed");
  job.training.precision.gradient_accumulation_dtype = "bf16";
  EXPECT_THAT(Names(job), ElementsAre("weights bf16", "master_weights fp32", "gradients.main bf16",
                                      "gradients.step fp32", "optimizer.momentum fp32",
                                      "optimizer.variance fp32"));
}

TEST(OptimizerTest, NanotronMakesSixteenBitGradientsBesideTheSum) {
  EXPECT_THAT(Names(Unclipped("nanotron", "bf16-mixed")),
              ElementsAre("weights bf16", "master_weights fp32", "gradients.main fp32",
                          "gradients bf16", "optimizer.momentum fp32", "optimizer.variance fp32"));
}

int64_t StateBytesIn(const Program& program) {
  const ParameterSums sums = SumParameters(program, WholeStage(4));
  int64_t bytes = 0;
  for (const State& state : program.states) {
    if (state.role == Role::kOptimizerState) bytes += StateBytes(state, sums);
  }
  return bytes;
}

// Optimizers that treat some apart. SmallJob() has in each of its 4 layers matrices of 36864
// elements and 2 norms of 64; table and head of 256 x 64; a last norm of 64. Muon has the layers'
// matrices; keys and values, of 2048, are too small for 8 bits.
TEST(OptimizerTest, SomeParametersAreTreatedApart) {
  constexpr int64_t kMatrices = 4 * 36864;
  constexpr int64_t kRest = 2 * 256 * 64 + 9 * 64;
  JobSpec job = With(SmallJob(), "ddp", "fp32");
  job.training.optimizer.name = "muon";
  EXPECT_EQ(StateBytesIn(ProgramAfter(Valid(job), PassId::kOptimizer)),
            4 * (kMatrices + 2 * kRest));
  constexpr int64_t kNarrow = 4 * (36864 - 2 * 2048) + 2 * 256 * 64;
  constexpr int64_t kWide = 4 * 2 * 2048 + 9 * 64;
  job.training.optimizer.name = "adamw-8bit";
  EXPECT_EQ(StateBytesIn(ProgramAfter(Valid(job), PassId::kOptimizer)),
            2 * (kNarrow + kNarrow / 256 * 4) + 2 * 4 * kWide);
  job.training.optimizer.name = "lion-8bit";
  EXPECT_EQ(StateBytesIn(ProgramAfter(Valid(job), PassId::kOptimizer)),
            kNarrow + kNarrow / 256 * 4 + 4 * kWide);
  job.training.optimizer.name = "ademamix-8bit";
  EXPECT_EQ(StateBytesIn(ProgramAfter(Valid(job), PassId::kOptimizer)),
            3 * (kNarrow + kNarrow / 256 * 4) + 3 * 4 * kWide);
}

// bitsandbytes' states of 16-bit weights are fp32; lion-pytorch's are of the weights' dtype.
TEST(OptimizerTest, StatesOfSixteenBitWeights) {
  const int64_t all = Estimate(With(SmallJob(), "ddp", "fp32")).parameter_count;
  const auto bytes = [](const char* name, const char* implementation) {
    JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
    job.training.optimizer.name = name;
    job.training.optimizer.implementation = implementation;
    return StateBytesIn(ProgramAfter(Valid(job), PassId::kOptimizer));
  };
  EXPECT_EQ(bytes("lion", "fused"), 4 * all);
  EXPECT_EQ(bytes("lion", "for-loop"), 2 * all);
  EXPECT_EQ(bytes("ademamix", "fused"), 3 * 4 * all);
  EXPECT_EQ(bytes("schedule-free-adamw", "foreach"), 2 * 2 * all);
}

// A gradient goes as soon as it is stepped, and the first backward makes states.
TEST(OptimizerTest, AStepInBackwardKeepsNoGradients) {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  job.parallelism.data_parallel_size = 1;
  job.training.global_batch_size = job.training.micro_batch_size;
  job.training.optimizer.implementation = "fused";
  job.training.optimizer.in_backward = true;
  job.training.gradient_clipping.reset();
  const Program program = ProgramOf(job);
  EXPECT_EQ(FindState(program, "gradients"), nullptr);
  EXPECT_EQ(FindState(program, "gradients.norms"), nullptr) << "nothing to clip";
  EXPECT_EQ(program.weight_gradient, WeightGradient::kAdded);
  const State& momentum = *FindState(program, "optimizer.momentum");
  EXPECT_NE(momentum.alive & Bit(Phase::kBackward, true), 0);
  EXPECT_EQ(momentum.alive & Bit(Phase::kForward, true), 0);
}

// transformers' Trainer tells bitsandbytes to keep an embedding's states in fp32.
TEST(OptimizerTest, AnEmbeddingsStatesAreWideUnderTheTrainer) {
  JobSpec job = With(SmallJob(), "ddp", "fp32");
  job.training.optimizer.name = "adamw-8bit";
  const int64_t bare = StateBytesIn(ProgramAfter(Valid(job), PassId::kOptimizer));
  job.runtime.trainer = "hf-trainer";
  constexpr int64_t kTable = 256 * 64;
  EXPECT_EQ(StateBytesIn(ProgramAfter(Valid(job), PassId::kOptimizer)) - bare,
            2 * (4 * kTable - (kTable + kTable / 256 * 4)));
}

// Adagrad's constructor makes its states, and its step two values a parameter; a loop makes one
// copy of the largest, transformers' Adafactor two, and of 16-bit weights four in fp32.
TEST(OptimizerTest, EachStepHasTemporariesOfItsOwn) {
  const auto program = [](const char* name, const char* preset, const char* implementation) {
    JobSpec job = With(SmallJob(), "ddp", preset);
    job.training.optimizer.name = name;
    job.training.optimizer.implementation = implementation;
    return ProgramAfter(Valid(job), PassId::kOptimizer);
  };
  const auto temporaries = [](const Program& of) {
    const ParameterSums sums = SumParameters(of, WholeStage(4));
    int64_t bytes = 0;
    for (const State& state : of.states) {
      if (state.part == Part::kStepTemporaries) bytes += StateBytes(state, sums);
    }
    return bytes;
  };
  constexpr int64_t kTable = 256 * 64;
  const int64_t all = Estimate(With(SmallJob(), "ddp", "fp32")).parameter_count;
  EXPECT_EQ(FindState(program("adagrad", "fp32", "foreach"), "optimizer.variance")->alive, kAlways);
  EXPECT_EQ(temporaries(program("adagrad", "fp32", "foreach")), 2 * 4 * all);
  EXPECT_EQ(temporaries(program("adagrad", "fp32", "for-loop")), 4 * kTable);
  EXPECT_EQ(temporaries(program("rmsprop", "fp32", "for-loop")), 4 * kTable);
  EXPECT_EQ(temporaries(program("adafactor", "fp32", "for-loop")), 2 * 4 * kTable);
  EXPECT_EQ(temporaries(program("adafactor", "bf16-pure", "for-loop")), 4 * 4 * kTable);
  constexpr int64_t kMlp = 64 * 128;  // a gate: its momentum, two copies, two squares
  const int64_t muon = 4 * kMlp + 2 * 2 * kMlp + 2 * 2 * 64 * 64 + (int64_t{32} << 20);
  EXPECT_EQ(temporaries(program("muon", "fp32", "for-loop")), muon);
}

// Where tables take more than a matrix does, AdamW's step has a value of each other parameter, a
// tensor of its own (seen under the phantom: Llama 3.1 8B's table and head).
TEST(OptimizerTest, MuonsOthersAreMadeOneByOne) {
  JobSpec job = With(SmallJob(), "ddp", "fp32");
  job.training.optimizer.name = "muon";
  Shape(job).vocab_size = int64_t{1} << 20;
  const Program program = ProgramOf(job);
  const State* const made = FindState(program, "optimizer.temporaries");
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->basis, Basis::kOthers);
  EXPECT_EQ(made->buffers, 0) << "one for each parameter";
  const ParameterSums sums = SumParameters(program, program.stages.front());
  EXPECT_EQ(StateBytes(*made, sums), 4 * (sums.parameters - sums.picked));
}

// Of SmallJob()'s 4 layers 2 matrices are 64 x 64, 2 of keys and values 32 x 64, 3 of the MLP
// 128 x 64. Singular vectors of fp32 gradients are views of all of them, and no more than there
// are.
TEST(OptimizerTest, ProjectedGradientsHaveStatesOfTheirRank) {
  constexpr int64_t kLonger = 4 * (4 * 64 + 3 * 128);
  constexpr int64_t kShorter = 4 * (2 * 64 + 2 * 32 + 3 * 64);
  constexpr int64_t kSquares = 4 * (5 * 64 * 64 + 2 * 32 * 32);
  constexpr int64_t kRest = 2 * 256 * 64 + 9 * 64;
  const auto bytes = [](const char* name, const char* preset, int64_t rank) {
    JobSpec job = With(SmallJob(), "ddp", preset);
    job.training.optimizer.name = name;
    job.training.optimizer.rank = rank;
    return StateBytesIn(ProgramAfter(Valid(job), PassId::kOptimizer));
  };
  EXPECT_EQ(bytes("apollo-adamw", "fp32", 8), 4 * (8 * kShorter + 2 * 8 * kLonger + 2 * kRest));
  EXPECT_EQ(bytes("galore-adamw", "fp32", 8), 4 * (kSquares + 2 * 8 * kLonger + 2 * kRest));
  EXPECT_EQ(bytes("galore-adamw", "bf16-pure", 8), bytes("apollo-adamw", "bf16-pure", 8));
  EXPECT_EQ(bytes("apollo-adamw", "fp32", 64) - bytes("apollo-adamw", "fp32", 32),
            4 * 32 * (kShorter + 2 * kLonger));
  EXPECT_EQ(bytes("galore-adamw", "fp32", 64) - bytes("galore-adamw", "fp32", 32),
            4 * 2 * 32 * (kLonger - 4 * 2 * 64))
      << "keys' and values' have 32";
}

// A gate's gradient of 128 x 64 is made an update of its size, with APOLLO two, beside a rank of
// it, or three; singular vectors take its copy, two factors and a workspace, and products another.
TEST(OptimizerTest, ProjectedGradientsAreMadeOneByOne) {
  const auto temporaries = [](const char* name, const char* preset, int64_t vocab) {
    JobSpec job = With(SmallJob(), "ddp", preset);
    job.training.optimizer.name = name;
    job.training.optimizer.rank = 8;
    Shape(job).vocab_size = vocab;
    return FindState(ProgramOf(job), "optimizer.temporaries")->fixed_bytes;
  };
  constexpr int64_t kGate = 64 * 128;
  constexpr int64_t kWorkspace = int64_t{32} << 20;
  EXPECT_EQ(temporaries("apollo-adamw", "fp32", 64), 4 * (2 * kGate + 3 * 8 * 128) + kWorkspace);
  EXPECT_EQ(temporaries("galore-adamw", "fp32", 64),
            4 * (4 * kGate + 8 * 128 + 2 * 64 * 64) + kWorkspace);
  EXPECT_EQ(temporaries("galore-adamw", "bf16-pure", 64),
            2 * (kGate + 8 * 128) + 4 * (4 * kGate + 2 * 64 * 64) + kWorkspace);
  constexpr int64_t kVocab = int64_t{1} << 20;  // what the head left, beside queries'
  EXPECT_EQ(temporaries("apollo-adamw", "fp32", kVocab),
            4 * (2 * kVocab * 64 + 2 * 8 * 64) + kWorkspace);
  EXPECT_EQ(temporaries("galore-adamw", "fp32", kVocab), 4 * (2 * kVocab * 64 + 5 * 64 * 64))
      << "before a product";
}

// SmallJob()'s gate and up are one matrix of 256 x 64 under Megatron-Core. Of ranks that split it
// each takes its part.
TEST(OptimizerTest, MegatronsMuonMakesThreeValuesOfItsLargestMatrix) {
  const auto temporaries = [](int64_t ranks) {
    JobSpec job = With(SmallJob(), "megatron-core");
    job.training.optimizer.name = "muon";
    job.parallelism.tensor_parallel_size = ranks;
    job.cluster.gpu_count.reset();
    return FindState(ProgramAfter(Valid(job), PassId::kOptimizer), "optimizer.temporaries")
        ->fixed_bytes;
  };
  constexpr int64_t kElements = 256 * 64;
  EXPECT_EQ(temporaries(1), 3 * 4 * kElements);
  EXPECT_EQ(temporaries(2), 3 * 4 * kElements / 2);
}

// States of 100,000 elements and more are in managed memory; the others are fp32.
TEST(OptimizerTest, LargeStatesArePaged) {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  constexpr int64_t kWidth = 2048;
  Shape(job).ffn_size = kWidth;
  job.training.optimizer.paged = true;
  const Program program = ProgramOf(job);
  const ParameterSums sums = SumParameters(program, program.stages.front());
  constexpr int64_t kPaged = int64_t{4} * 3 * kWidth * 64;  // three matrices of each MLP
  EXPECT_EQ(sums.paged, kPaged);
  EXPECT_EQ(StateBytes(*FindState(program, "optimizer.momentum"), sums),
            4 * (sums.parameters - kPaged));
  EXPECT_EQ(FindState(program, "optimizer.temporaries"), nullptr) << "one kernel a tensor";
  job.training.optimizer.name = "adamw-8bit";
  const Program narrow = ProgramOf(job);
  const ParameterSums narrow_sums = SumParameters(narrow, narrow.stages.front());
  EXPECT_EQ(StateBytes(*FindState(narrow, "optimizer.momentum"), narrow_sums),
            narrow_sums.picked - kPaged);
  EXPECT_EQ(StateBytes(*FindState(narrow, "optimizer.momentum.scales"), narrow_sums),
            4 * CeilDivide(narrow_sums.picked, 256))
      << "on the GPU";
  job.training.optimizer.name = "muon";
  EXPECT_THAT(Refusals(job), testing::ElementsAre("job.training.optimizer.paged: true; needs adam, "
                                                  "adamw, lion, adamw-8bit, lion-8bit, ademamix, "
                                                  "ademamix-8bit"));
}

// Adafactor keeps a value for each row and column: q 64+64, k and v 32+64 each,
// out 64+64, gate and up 128+64 each, down 64+128; norms one each.
TEST(OptimizerTest, AdafactorKeepsRowsAndColumns) {
  constexpr int64_t kLayer = 128 + 96 + 96 + 128 + 3 * 192 + 2 * 64;
  JobSpec job = With(SmallJob(), "ddp", "fp32");
  job.training.optimizer.name = "adafactor";
  EXPECT_EQ(StateBytesIn(ProgramAfter(Valid(job), PassId::kOptimizer)),
            4 * (4 * kLayer + 2 * (256 + 64) + 64));
}

// foreach holds a value a parameter in the step, fused nothing, a loop copies of
// the largest.
TEST(OptimizerTest, TheStepNeedsRoomOfItsOwn) {
  const auto temporaries = [](const char* implementation) {
    JobSpec job = With(SmallJob(), "ddp", "fp32");
    job.training.optimizer.implementation = implementation;
    const Program program = ProgramAfter(Valid(job), PassId::kOptimizer);
    const ParameterSums sums = SumParameters(program, WholeStage(4));
    int64_t bytes = 0;
    for (const State& state : program.states) {
      if (state.part == Part::kStepTemporaries) bytes += StateBytes(state, sums);
    }
    return bytes;
  };
  EXPECT_EQ(temporaries("fused"), 0);
  EXPECT_EQ(temporaries("foreach"), 4 * Estimate(With(SmallJob(), "ddp", "fp32")).parameter_count);
  EXPECT_EQ(temporaries("for-loop"), 2 * 4 * 256 * 64);
}

// States come with the first step; before it there are none.
TEST(OptimizerTest, StatesAreMadeByTheFirstStep) {
  const Program program = ProgramAfter(Valid(Unclipped("ddp", "fp32")), PassId::kOptimizer);
  const State* momentum = FindState(program, "optimizer.momentum");
  ASSERT_NE(momentum, nullptr);
  EXPECT_EQ(momentum->alive & Bit(Phase::kForward, true), 0);
  EXPECT_NE(momentum->alive & Bit(Phase::kOptimizer, true), 0);
  EXPECT_NE(momentum->alive & Bit(Phase::kForward, false), 0);
}

// But for a run that loads them.
TEST(OptimizerTest, ACheckpointBringsStates) {
  JobSpec job = Unclipped("ddp", "fp32");
  job.training.resumed_from_checkpoint = true;
  const Program program = ProgramAfter(Valid(job), PassId::kOptimizer);
  EXPECT_EQ(FindState(program, "optimizer.momentum")->alive, kAlways);
  EXPECT_EQ(FindState(program, "optimizer.variance")->alive, kAlways);
}

}  // namespace
}  // namespace plimsoll
