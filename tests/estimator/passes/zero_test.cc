// The pass in words: over how many ranks each state is shared, per framework and
// stage, and which buffers that costs.
#include <algorithm>

#include "estimator/base/units.h"
#include "estimator/catalog/model.h"
#include "estimator/program/parameter_sums.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kRanks = 8;

JobSpec Job(const char* framework, int64_t stage) {
  JobSpec job = With(SmallJob(), framework);
  job.parallelism.data_parallel_size = kRanks;
  job.parallelism.zero_stage = stage;
  job.training.gradient_clipping = false;
  return job;
}

Program Sharded(const JobSpec& job) { return ProgramAfter(Valid(job), PassId::kZero); }

std::vector<std::string> SharedStates(const JobSpec& job) {
  std::vector<std::string> names;
  for (const State& state : Sharded(job).states) {
    if (state.shards == kRanks) names.emplace_back(state.name);
  }
  return names;
}

std::vector<std::string> Buffers(const JobSpec& job) {
  std::vector<std::string> names;
  for (const State& state : Sharded(job).states) {
    if (state.role == Role::kCommunication) names.emplace_back(state.name);
  }
  return names;
}

TEST(ZeroTest, DdpSharesNothingAndHasBuckets) {
  EXPECT_THAT(SharedStates(Job("ddp", 0)), IsEmpty());
  EXPECT_THAT(Buffers(Job("ddp", 0)), ElementsAre("gradients.buckets"));
  JobSpec views = Job("ddp", 0);
  views.runtime.gradient_as_bucket_view = true;
  EXPECT_THAT(Buffers(views), IsEmpty());
  JobSpec alone = With(SmallJob(), "ddp");
  EXPECT_THAT(Buffers(alone), IsEmpty()) << "nobody to reduce with";
}

TEST(ZeroTest, MegatronSharesMastersAndStates) {
  EXPECT_THAT(SharedStates(Job("megatron-core", 0)), IsEmpty());
  EXPECT_THAT(SharedStates(Job("megatron-core", 1)),
              ElementsAre("master_weights", "optimizer.momentum", "optimizer.variance"));
}

// Each rank steps its share alone: it flattens the gradients of that share and
// widens them. All are gone but for these once they are reduced.
// Source: deepspeed/runtime/zero/stage_1_and_2.py, step.
TEST(ZeroTest, DeepSpeedsPipelineCopiesTheGradientsOfItsShare) {
  JobSpec job = Job("megatron-deepspeed", 1);
  job.training.precision.preset = "fp16-mixed";
  EXPECT_THAT(SharedStates(job),
              ElementsAre("master_weights", "gradients.main", "optimizer.momentum",
                          "optimizer.variance", "step.gradients", "step.gradients.flat"));
  const Program program = Sharded(job);
  constexpr Alive kReduction =
      During(Phase::kGradientReduction, Phase::kGradientReduction, true, true);
  EXPECT_EQ(FindState(program, "gradients")->alive, kReduction);
  for (const char* flat : {"weights", "master_weights", "optimizer.momentum", "gradients.main"}) {
    EXPECT_EQ(FindState(program, flat)->buffers, 1) << flat;
  }
  job.parallelism.zero_stage = 0;
  EXPECT_THAT(SharedStates(job), IsEmpty());
}

// No bucket is larger than all gradients, nor than it was asked to be.
TEST(ZeroTest, DeepSpeedsPipelineReducesBucketsOfACopy) {
  JobSpec job = Job("megatron-deepspeed", 1);
  job.training.precision.preset = "fp16-mixed";
  ParameterSums sums;
  sums.parameters = 5000;
  EXPECT_EQ(StateBytes(*FindState(Sharded(job), "reduce.flat"), sums), 10000);
  job.runtime.reduce_bucket_element_count = 1000;
  EXPECT_EQ(StateBytes(*FindState(Sharded(job), "reduce.flat"), sums), 2000);
}

// The BF16 optimizer reduces its fp32 sums as one 16-bit copy, and steps on them.
// Source: deepspeed/runtime/bf16_optimizer.py; runtime/engine.py, allreduce_bucket.
TEST(ZeroTest, DeepSpeedsBf16OptimizerReducesAllAtOnce) {
  JobSpec job = Job("megatron-deepspeed", 1);
  job.training.precision.preset = "bf16-optimizer";
  EXPECT_THAT(SharedStates(job),
              ElementsAre("master_weights", "optimizer.momentum", "optimizer.variance"));
  ParameterSums sums;
  sums.parameters = 5000;
  EXPECT_EQ(StateBytes(*FindState(Sharded(job), "reduce.flat"), sums), 10000);
}

// Groups smaller than all ranks: each keeps more.
TEST(ZeroTest, AShardGroupIsWhatShares) {
  JobSpec job = Job("megatron-core", 1);
  job.parallelism.shard_group_size = 2;
  const Program program = Sharded(job);
  EXPECT_EQ(FindState(program, "master_weights")->shards, 2);
}

// What the step makes for each parameter that it steps is of the rank's share.
TEST(ZeroTest, AStepOfSharesMakesTemporariesOfShares) {
  JobSpec job = Job("megatron-core", 1);
  job.training.optimizer.implementation = "foreach";
  EXPECT_THAT(SharedStates(job), Contains("optimizer.temporaries"));
}

TEST(ZeroTest, DeepSpeedSharesMoreByStage) {
  EXPECT_THAT(SharedStates(Job("deepspeed", 0)), IsEmpty());
  EXPECT_THAT(SharedStates(Job("deepspeed", 1)), Contains("optimizer.momentum"));
  EXPECT_NE(FindState(Sharded(Job("deepspeed", 1)), "gradients"), nullptr);
  EXPECT_EQ(FindState(Sharded(Job("deepspeed", 2)), "gradients"), nullptr);
  EXPECT_THAT(SharedStates(Job("deepspeed", 2)), Not(Contains("weights")));
  EXPECT_THAT(SharedStates(Job("deepspeed", 3)), Contains("weights"));
}

// Source: deepspeed/runtime/zero/stage_1_and_2.py, single_partition_of_fp32_groups, step.
TEST(ZeroTest, DeepSpeedsShareIsFlat) {
  const Program program = Sharded(Job("deepspeed", 1));
  for (const char* flat : {"master_weights", "optimizer.momentum", "optimizer.variance",
                           "step.gradients", "step.gradients.fp32"}) {
    ASSERT_NE(FindState(program, flat), nullptr) << flat;
    EXPECT_EQ(FindState(program, flat)->buffers, 1) << flat;
  }
}

// 500 million elements in 16 bits; twice where communication overlaps.
TEST(ZeroTest, DeepSpeedReducesThroughBucketsOfAFixedSize) {
  for (const int64_t stage : {1, 2, 3}) {
    const Program program = Sharded(Job("deepspeed", stage));
    const State* bucket = FindState(program, "reduce.bucket");
    ASSERT_NE(bucket, nullptr) << stage;
    EXPECT_EQ(bucket->fixed_bytes, 1000000000) << stage;
  }
  JobSpec job = Job("deepspeed", 2);
  EXPECT_EQ(FindState(Sharded(job), "reduce.bucket.second"), nullptr);
  job.runtime.overlap_communication = true;
  job.runtime.reduce_bucket_element_count = 1000;
  for (const int64_t stage : {1, 2}) {
    job.parallelism.zero_stage = stage;
    job.training.global_batch_size = *job.training.micro_batch_size * kRanks * 2;
    const Program program = Sharded(job);
    const State* second = FindState(program, "reduce.bucket.second");
    ASSERT_NE(second, nullptr) << stage;
    EXPECT_EQ(second->fixed_bytes, 2000) << stage;
    EXPECT_EQ(second->alive, FindState(program, "reduce.bucket")->alive) << stage;
  }
}

// A rank keeps whole what its share has a part of until it is widened: in the second step's forward
// too, where micro-batches are added up.
TEST(ZeroTest, DeepSpeedKeepsTheGradientsThatAShareHasAPartOf) {
  constexpr Alive kStep = During(Phase::kOptimizer, Phase::kOptimizer, false, true);
  JobSpec job = Job("deepspeed", 2);
  const State part = *FindState(Sharded(job), "gradients.partition");
  EXPECT_EQ(part.alive,
            During(Phase::kGradientReduction, Phase::kGradientReduction, true, true) | kStep);
  EXPECT_GE(part.fixed_bytes, 2 * CountParameters(*Valid(job)->model) / kRanks);
  job.training.global_batch_size = *job.training.micro_batch_size * kRanks * 2;
  EXPECT_EQ(FindState(Sharded(job), "gradients.partition")->alive,
            During(Phase::kForward, Phase::kGradientReduction, true, true) | kStep);
}

// The gradient of a head that reads the table waits for the table's own: where it is in the graph
// that autograd runs.
TEST(ZeroTest, AHeadsGradientWaitsForTheTables) {
  for (const char* framework : {"ddp", "deepspeed", "fsdp2", "nanotron"}) {
    JobSpec job = Job(framework, framework == std::string("ddp") ? 0 : 1);
    if (framework == std::string("fsdp2")) job.parallelism.zero_stage = 3;
    EXPECT_EQ(Sharded(job).waiting_gradient_bytes, 0) << framework;
    Shape(job).tied_embeddings = true;
    const bool seen = framework == std::string("ddp") || framework == std::string("deepspeed");
    const Program program = Sharded(job);
    const int64_t table = Bytes(program.gradient_dtype, 256 * 64);
    EXPECT_EQ(program.waiting_gradient_bytes, seen ? table : 0) << framework;
  }
}

// States of DeepSpeed's engine are made by the first step, behind what its gradients were widened
// to.
TEST(ZeroTest, DeepSpeedMakesStatesInItsFirstStep) {
  for (const int64_t stage : {1, 2, 3}) {
    const Program program = Sharded(Job("deepspeed", stage));
    const State* momentum = FindState(program, "optimizer.momentum");
    EXPECT_EQ(momentum->alive, During(Phase::kOptimizer, Phase::kEndOfStep, true, false) |
                                   During(Phase::kForward, Phase::kEndOfStep, false, true))
        << stage;
    EXPECT_FALSE(momentum->beside_others) << stage;
    EXPECT_LT(FindState(program, "step.gradients.fp32"), momentum) << stage;
  }
}

// Weights are laid flat beside what they were, from 0.19 on, where the GPU has room for both; a
// share becomes a wider one. A trainer's second group of parameters empties the cache before zeros
// are made.
TEST(ZeroTest, DeepSpeedFlattensWeightsOnTheGpu) {
  const auto set_up = [](const JobSpec& job) {
    std::vector<std::string> names;
    for (const State& state : Sharded(job).states) {
      if (state.becomes != Part::kOther || state.sets_up_behind) names.emplace_back(state.name);
    }
    return names;
  };
  for (const int64_t stage : {1, 2}) {
    JobSpec job = Job("deepspeed", stage);
    const Program program = Sharded(job);
    EXPECT_TRUE(program.empties_cache);
    EXPECT_THAT(set_up(job), ElementsAre("set_up.weights", "set_up.share"));
    EXPECT_EQ(FindState(program, "set_up.weights") + 1, FindState(program, "weights"));
    EXPECT_EQ(FindState(program, "set_up.share") + 1, FindState(program, "master_weights"));
    job.runtime.trainer = "hf-trainer";
    EXPECT_THAT(set_up(job), ElementsAre("set_up.weights", "set_up.share", "set_up.gradients"));
    job.runtime.versions["deepspeed"] = "0.18";
    EXPECT_THAT(set_up(job), ElementsAre("set_up.share", "set_up.gradients"));
    if (stage == 1) continue;
    job.runtime.offload_optimizer = true;
    EXPECT_THAT(set_up(job), IsEmpty());
  }
  EXPECT_THAT(set_up(With(Job("deepspeed", 1), "deepspeed", "fp32")),
              ElementsAre("set_up.weights"));
  JobSpec third = Job("deepspeed", 3);
  EXPECT_THAT(set_up(third), ElementsAre("set_up.share"));
  EXPECT_EQ(FindState(Sharded(third), "set_up.share")->dtype, DType::kFp32);
  EXPECT_TRUE(Sharded(third).empties_cache);
  third.runtime.trainer = "hf-trainer";
  EXPECT_FALSE(Sharded(third).empties_cache);
}

// Without ZeRO gradients are widened beside those that backward made: 20 bytes a parameter.
TEST(ZeroTest, DeepSpeedWidensAllGradientsWithoutZero) {
  const Program program = Sharded(Job("deepspeed", 0));
  const State* wide = FindState(program, "gradients.step");
  ASSERT_NE(wide, nullptr);
  EXPECT_EQ(wide->dtype, DType::kFp32);
  EXPECT_EQ(wide->shards, 1);
  EXPECT_EQ(FindState(Sharded(With(Job("deepspeed", 0), "deepspeed", "fp32")), "gradients.step"),
            nullptr);
}

// It reduces them as flat copies: all of a small model's at once.
TEST(ZeroTest, DeepSpeedFlattensGradientsWithoutZero) {
  JobSpec job = Job("deepspeed", 0);
  const int64_t all = Estimate(job).parameter_count;
  EXPECT_EQ(FindState(Sharded(job), "reduce.flat")->fixed_bytes, 2 * all);
  job.parallelism.data_parallel_size = 1;
  EXPECT_EQ(FindState(Sharded(job), "reduce.flat"), nullptr);
}

// The engine steps a copy of its share where weights are fp32 too; their gradients need no
// widening.
TEST(ZeroTest, DeepSpeedCopiesAShareOfFp32Weights) {
  for (const int64_t stage : {1, 2, 3}) {
    JobSpec job = With(Job("deepspeed", stage), "deepspeed", "fp32");
    const Program program = Sharded(job);
    const State* master = FindState(program, "master_weights");
    ASSERT_NE(master, nullptr) << stage;
    EXPECT_EQ(master->dtype, DType::kFp32);
    EXPECT_EQ(master->shards, kRanks);
    EXPECT_NE(FindState(program, "step.gradients"), nullptr);
    EXPECT_EQ(FindState(program, "step.gradients.fp32"), nullptr);
  }
}

// What Adagrad made for the weights it was given stays beside the states of the share; Adafactor
// finds no rows in a flat share.
TEST(ZeroTest, DeepSpeedStepsFlatShares) {
  JobSpec job = Job("deepspeed", 1);
  job.training.optimizer.name = "adagrad";
  for (const int64_t stage : {0, 1, 2, 3}) {
    job.parallelism.zero_stage = stage;
    const Program program = Sharded(job);
    const State* unused = FindState(program, "optimizer.variance.unused");
    ASSERT_EQ(unused != nullptr, stage < 3) << stage;
    if (stage == 3) continue;
    EXPECT_EQ(unused->shards, 1);
  }
  for (const char* framework : {"deepspeed", "fsdp1"}) {
    JobSpec factored = Job(framework, 3);
    factored.training.optimizer.name = "adafactor";
    EXPECT_EQ(FindState(Sharded(factored), "optimizer.factors")->basis, Basis::kParameters);
  }
}

// DeepSpeed's Adam that sends signs steps all as one tensor, gradients of backward gone; LAMB has
// momenta in one, and widens gradients beside them. What errors ranks keep is as long as whole
// bytes of signs for each: a copy is made of what is not. SmallJob() has a multiple of 64
// parameters.
TEST(ZeroTest, SignsAreSentInThePlaceOfGradients) {
  JobSpec job = Job("deepspeed", 0);
  job.runtime.versions["deepspeed"] = "0.18";
  job.training.optimizer.name = "onebit-adam";
  const Program flat = Sharded(job);
  EXPECT_EQ(FindState(flat, "reduce.flat"), nullptr);
  EXPECT_EQ(FindState(flat, "gradients")->alive, kReductionPhase);
  EXPECT_EQ(FindState(flat, "gradients.step")->alive, kReductionPhase | kOptimizerPhase);
  EXPECT_EQ(FindState(flat, "optimizer.padded"), nullptr);
  for (const char* name : {"weights", "master_weights", "gradients.step", "optimizer.momentum",
                           "optimizer.worker_error", "optimizer.temporaries"}) {
    EXPECT_EQ(FindState(flat, name)->buffers, 1) << name;
  }
  EXPECT_EQ(FindState(flat, "optimizer.server_error")->shards, kRanks);
  job.training.optimizer.name = "onebit-lamb";
  const Program single = Sharded(job);
  EXPECT_EQ(FindState(single, "gradients.widened"), nullptr);
  EXPECT_EQ(FindState(single, "gradients")->alive & kOptimizerPhase, kOptimizerPhase);
  EXPECT_EQ(FindState(single, "optimizer.momentum")->buffers, 1);
  EXPECT_EQ(FindState(single, "optimizer.variance")->buffers, 0);
  job.training.optimizer.name = "zero-one-adam";
  Shape(job).vocab_size = 257;
  Shape(job).hidden_size = 60;
  Shape(job).head_size = 16;
  EXPECT_NE(FindState(Sharded(job), "optimizer.padded"), nullptr);
}

// Its LAMB takes 16-bit gradients: two flat copies, and one that is widened, of whose norm it asks.
TEST(ZeroTest, LambTakesNarrowGradients) {
  JobSpec job = Job("deepspeed", 0);
  job.training.optimizer.name = "lamb";
  const Program program = Sharded(job);
  EXPECT_EQ(FindState(program, "gradients.step"), nullptr);
  for (const auto& [name, dtype] : {std::pair{"gradients.flat", DType::kBf16},
                                    {"gradients.flat.norm", DType::kBf16},
                                    {"gradients.widened", DType::kFp32}}) {
    EXPECT_EQ(FindState(program, name)->dtype, dtype) << name;
    EXPECT_EQ(FindState(program, name)->buffers, 1) << name;
  }
}

// Sums in fp32 are, with ZeRO 1, one buffer of all gradients, beside 16-bit ones that stay; with
// ZeRO 2 a rank's share, which is stepped from where it is; with ZeRO 3 there is nothing else.
TEST(ZeroTest, DeepSpeedSumsInFp32) {
  const auto sums = [](int64_t stage) {
    JobSpec job = Job("deepspeed", stage);
    job.training.precision.gradient_accumulation_dtype = "fp32";
    return Sharded(job);
  };
  const Program first = sums(1);
  EXPECT_EQ(FindState(first, "gradients.main")->buffers, 1);
  EXPECT_EQ(FindState(first, "gradients.main")->shards, 1);
  EXPECT_FALSE(FindState(first, "gradients")->grows_in_backward);
  EXPECT_EQ(FindState(first, "reduce.bucket"), nullptr);
  const int64_t all = CountParameters(*Valid(Job("deepspeed", 2))->model);
  EXPECT_EQ(FindState(first, "reduce.flat")->fixed_bytes, 2 * all) << "as weights are";
  JobSpec wide = Job("deepspeed", 1);
  wide.training.precision.gradient_accumulation_dtype = "fp32";
  wide.training.precision.reduce_dtype = "fp32";
  EXPECT_EQ(FindState(Sharded(wide), "reduce.flat")->fixed_bytes, 4 * 256 * 64)
      << "the table, widened to be added up";
  const Program second = sums(2);
  EXPECT_EQ(FindState(second, "gradients.partition")->fixed_bytes, 4 * CeilDivide(all, kRanks));
  EXPECT_EQ(FindState(second, "step.gradients.fp32"), nullptr);
  const Program third = sums(3);
  EXPECT_EQ(FindState(third, "gradients.main")->shards, kRanks);
  EXPECT_EQ(FindState(third, "gradients"), nullptr);
  EXPECT_EQ(FindState(third, "step.gradients"), nullptr);
}

// What a step makes for itself is there once flat gradients are gone: of both the larger is
// counted.
TEST(ZeroTest, AStepsTensorsComeBehindFlatGradients) {
  JobSpec job = Job("deepspeed", 3);
  job.training.optimizer.implementation = "fused";
  EXPECT_EQ(FindState(Sharded(job), "step.gradients")->alive, kOptimizerPhase);
  job.training.optimizer.implementation = "foreach";
  EXPECT_EQ(FindState(Sharded(job), "step.gradients")->alive, 0);
  EXPECT_EQ(FindState(Sharded(job), "optimizer.temporaries")->alive, kOptimizerPhase);
  job.training.optimizer.implementation = "for-loop";
  EXPECT_EQ(FindState(Sharded(job), "optimizer.temporaries")->basis, Basis::kParameters)
      << "a flat share is one tensor";
}

// A share that is summed up is what is stepped: it stays beside what the step makes.
TEST(ZeroTest, AShareThatIsSummedUpStaysInTheStep) {
  JobSpec job = Job("deepspeed", 2);
  job.training.precision.gradient_accumulation_dtype = "fp32";
  job.training.optimizer.implementation = "for-loop";
  const Program program = Sharded(job);
  EXPECT_NE(FindState(program, "gradients.partition")->alive & kOptimizerPhase, 0);
  EXPECT_EQ(FindState(program, "optimizer.temporaries")->alive, kOptimizerPhase);
}

// Groups are of whole weights, until they have a thousand million elements.
// Source: deepspeed/runtime/zero/stage3.py, _create_fp16_sub_groups.
TEST(ZeroTest, DeepSpeedStepsGroupsOfWholeWeights) {
  const auto elements = [](int64_t ffn_size) {
    JobSpec job = Job("deepspeed", 3);
    Shape(job).hidden_size = 16384;
    Shape(job).ffn_size = ffn_size;
    Shape(job).layer_count = 1;
    job.parallelism.data_parallel_size = 1;
    job.training.global_batch_size = *job.training.micro_batch_size;
    EXPECT_GT(CountParameters(*Valid(job)->model), 1000000000);
    return FindState(Sharded(job), "step.gradients.fp32")->most_bytes / 4;
  };
  constexpr int64_t kHidden = 16384;
  constexpr int64_t kVocab = 256;
  EXPECT_EQ(elements(kHidden), kVocab * kHidden + 2 * kHidden + 4 * kHidden * kHidden)
      << "the table, attention with half as many keys and values, the MLP's first product";
}

// With ZeRO 1 all gradients are there when backward is over; with overlap they are sent in it, but
// where those of several micro-batches are added up.
TEST(ZeroTest, OverlapSendsGradientsInBackward) {
  JobSpec job = Job("deepspeed", 1);
  EXPECT_EQ(Sharded(job).weight_gradient, WeightGradient::kKept);
  job.runtime.overlap_communication = true;
  EXPECT_EQ(Sharded(job).weight_gradient, WeightGradient::kAdded);
  job.training.global_batch_size = *job.training.micro_batch_size * kRanks * 2;
  EXPECT_EQ(Sharded(job).weight_gradient, WeightGradient::kKept);
}

// The largest gradient of a rank's share in 8 bytes an element, of ZeRO 3 its piece of it.
TEST(ZeroTest, DeepSpeedWidensAGradientForItsNorm) {
  const auto norm = [](const JobSpec& job) {
    return FindState(Sharded(job), "norm.gradient")->fixed_bytes;
  };
  constexpr int64_t kTable = 256 * 64;
  const int64_t share = CeilDivide(CountParameters(*Valid(Job("deepspeed", 2))->model), kRanks);
  EXPECT_EQ(norm(Job("deepspeed", 2)), 8 * std::min(kTable, share));
  EXPECT_EQ(norm(Job("deepspeed", 3)), 8 * CeilDivide(kTable, kRanks));
  EXPECT_EQ(norm(Job("deepspeed", 1)), norm(Job("deepspeed", 2)));
}

// Elements of the whole model, as DeepSpeed has it: on one stage.
int64_t StepElements(const JobSpec& job, const char* state) {
  const Program program = ProgramOf(job);
  const State* const found = FindState(program, state);
  if (found == nullptr) return 0;
  const ParameterSums sums = SumParameters(program, program.stages.front());
  return StateBytes(*found, sums) / Bytes(found->dtype, 1);
}

// Layers that are recomputed and layers that are not are two blocks: each counts as
// often as there are layers of it.
TEST(ZeroTest, DeepSpeedStepsEachParameterOnce) {
  JobSpec job = Job("deepspeed", 3);
  const int64_t parameters = CountParameters(*Valid(job)->model);
  for (const char* mode : {"none", "full", "every-nth"}) {
    job.training.recompute = RecomputeSpec();
    job.training.recompute.mode = mode;
    if (*job.training.recompute.mode == "every-nth") job.training.recompute.interval = 2;
    EXPECT_EQ(StepElements(job, "step.gradients"), CeilDivide(parameters, kRanks)) << mode;
    EXPECT_EQ(StepElements(job, "step.gradients.fp32"), CeilDivide(parameters, kRanks)) << mode;
  }
}

// A tied head has no parameter of its own.
TEST(ZeroTest, DeepSpeedStepsATiedHeadOnce) {
  JobSpec job = Job("deepspeed", 3);
  Shape(job).tied_embeddings = true;
  const int64_t parameters = CountParameters(*Valid(job)->model);
  EXPECT_EQ(StepElements(job, "step.gradients"), CeilDivide(parameters, kRanks));
}

std::vector<std::string> NamesOf(const std::vector<State>& states) {
  std::vector<std::string> names;
  for (const State& state : states) names.emplace_back(state.name);
  return names;
}

// States, masters and gradients go, with copies in fp32 and in the gradients' own dtype.
// Source: deepspeed/runtime/zero/stage3.py, offload_optimizer.
TEST(ZeroTest, DeepSpeedsOffloadedOptimizerIsTheHosts) {
  JobSpec job = Job("deepspeed", 3);
  job.runtime.offload_optimizer = true;
  const Program program = Sharded(job);
  EXPECT_THAT(NamesOf(program.host_states),
              ElementsAre("master_weights", "optimizer.momentum", "optimizer.variance", "gradients",
                          "gradients"));
  for (const State& state : program.states) {
    EXPECT_THAT(state.role, ::testing::AnyOf(Role::kWeight, Role::kCommunication, Role::kTemporary))
        << state.name;
  }
  EXPECT_EQ(FindState(program, "step.gradients"), nullptr);
  EXPECT_EQ(FindState(program, "step.gradients.fp32"), nullptr);
  EXPECT_NE(FindState(program, "weights"), nullptr);
  JobSpec loops = job;
  loops.training.optimizer.implementation = "foreach";
  for (const State& state : Sharded(loops).states) {
    EXPECT_EQ(state.in_passing & kOptimizerPhase, 0) << state.name << ": the step is the host's";
  }
  job.runtime.offload_parameters = true;
  EXPECT_EQ(FindState(Sharded(job), "weights"), nullptr);
  EXPECT_EQ(Sharded(job).host_states.size(), 6u);
  EXPECT_EQ(Sharded(job).gathers.events.size(), program.gathers.events.size());
  job.parallelism.data_parallel_size = 1;
  EXPECT_EQ(FindState(Sharded(job), "step.gradients"), nullptr) << "on one GPU too";
}

// ZeRO 2 keeps a buffer as large as the largest gradient, and widens each on its way to the host.
TEST(ZeroTest, DeepSpeedSendsGradientsToTheHost) {
  JobSpec job = Job("deepspeed", 2);
  job.runtime.offload_optimizer = true;
  Shape(job).vocab_size = 4096;
  const Program program = Sharded(job);
  constexpr int64_t kTable = 4096 * 64;
  const State& buffer = *FindState(program, "gradients.to_host");
  EXPECT_EQ(StateBytes(buffer, SumParameters(program, WholeStage(4))), 2 * kTable);
  const int64_t share = CeilDivide(CountParameters(*Valid(job)->model), kRanks);
  const Block& embedding = FindBlock(program, "embedding");
  EXPECT_EQ(embedding.buffers.back().backward.bytes, 8 * share);
  EXPECT_EQ(embedding.buffers.back().forward.bytes, 0);
  EXPECT_EQ(FindTensor(FindBlock(program, "head"), "norm.gradient").Bytes(), 8 * share);
  EXPECT_EQ(FindState(program, "norm.gradient"), nullptr);
  Shape(job).tied_embeddings = true;
  const Program tied = Sharded(job);
  EXPECT_EQ(FindTensor(FindBlock(tied, "head"), "norm.gradient").Bytes(), 8 * 64) << "its norm's";
}

TEST(ZeroTest, NanotronGathersUpdatedWeightsInOneCall) {
  EXPECT_THAT(Buffers(Job("nanotron", 1)),
              ElementsAre("gather.input", "gather.outputs", "gather.flat"));
  EXPECT_THAT(Buffers(Job("nanotron", 0)), ElementsAre("gradients.buckets"));
}

// Gradients of a shared table: nobody else refers to what ZeRO 3's own product gave.
TEST(ZeroTest, SumsGradientsOfASharedTableInPlaceWhereOneProductIsItsOwn) {
  const auto sums = [](const char* framework, int64_t stage) {
    JobSpec job = Job(framework, stage);
    Shape(job).tied_embeddings = true;
    const Program program = Sharded(job);
    const Block& embedding = FindBlock(program, "embedding");
    return std::any_of(embedding.tensors.begin(), embedding.tensors.end(), [](const Tensor& at) {
      return at.name == "embedding.tokens.weight.gradient.sum";
    });
  };
  EXPECT_TRUE(sums("deepspeed", 2));
  EXPECT_FALSE(sums("deepspeed", 3));
  EXPECT_TRUE(sums("fsdp2", 3));
}

}  // namespace
}  // namespace plimsoll
