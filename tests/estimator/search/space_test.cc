// The space of a search against the plainest walk there is: every combination
// of values, asked of Validate one by one.
#include "estimator/search/space.h"

#include <array>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include "estimator/program/describe.h"
#include "estimator/time/step_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

Space SpaceOfJob(const RecommendSpec& spec) { return SpaceOf(spec, Valid(spec.job)); }

std::set<Choice> Visited(const RecommendSpec& spec) {
  std::set<Choice> visited;
  const ValidJob base = Valid(spec.job);
  VisitLegal(SpaceOf(spec, base), base, SmallCatalog(), [&](const Choice& choice, const Job&) {
    EXPECT_TRUE(visited.insert(choice).second) << "visited twice";
    return true;
  });
  return visited;
}

// Every combination of the values of single knobs.
void Combine(const Space& space, const Job& base, size_t index, Choice& choice,
             std::set<Choice>& legal) {
  if (index == kKnobCount) {
    JobSpec job = space.job;
    Set(space.menu, choice, job);
    if (Refusals(job).empty()) legal.insert(choice);
    return;
  }
  const KnobId knob = kKnobs[index].id;
  for (const int32_t value : ValuesOf(space, base, choice, knob)) {
    choice[knob] = value;
    Combine(space, base, index + 1, choice, legal);
  }
}

RecommendSpec RandomSpec(std::mt19937_64& random) {
  RecommendSpec spec;
  spec.job = RandomJob(random);
  spec.job.cluster.gpu = "a100-80gb-sxm";
  spec.job.cluster.gpu_memory_bytes.reset();
  return spec;
}

// Whether all its combinations can be looked at in a moment.
bool IsSmall(const RecommendSpec& spec) {
  if (!Refusals(spec.job).empty()) return false;
  const ValidJob base = Valid(spec.job);
  return base->gpu_count <= 32 && base->global_batch_size <= 64;
}

TEST(SpaceTest, HoldsEveryLegalCombinationOnce) {
  std::mt19937_64 random(20261121);
  int64_t legal_count = 0;
  for (int i = 0; i < 40; ++i) {
    const RecommendSpec spec = RandomSpec(random);
    if (!IsSmall(spec)) continue;
    const ValidJob base = Valid(spec.job);
    std::set<Choice> legal;
    Choice choice;
    Combine(SpaceOf(spec, base), *base, 0, choice, legal);
    EXPECT_EQ(Visited(spec), legal) << "job " << i;
    legal_count += static_cast<int64_t>(legal.size());
  }
  EXPECT_GT(legal_count, 1000) << "the jobs are worth it";
}

TEST(SpaceTest, HoldsTheJobItself) {
  RecommendSpec spec;
  spec.job = TightJob();
  const Space space = SpaceOfJob(spec);
  EXPECT_THAT(Visited(spec), ::testing::Contains(space.own));
}

TEST(SpaceTest, FrozenFieldsKeepTheirValue) {
  RecommendSpec spec;
  spec.job = TightJob();
  spec.job.parallelism.tensor_parallel_size = 2;
  spec.frozen = {"parallelism.tensor_parallel_size", "training.recompute"};
  const Space space = SpaceOfJob(spec);
  const std::set<Choice> visited = Visited(spec);
  EXPECT_GT(visited.size(), 20u);
  for (const Choice& choice : visited) {
    EXPECT_EQ(choice[KnobId::kTensorParallel], 2);
    EXPECT_EQ(choice[KnobId::kRecompute], space.own[KnobId::kRecompute]);
  }
}

TEST(SpaceTest, FrozenDataParallelismIsKeptThoughItFollows) {
  RecommendSpec spec;
  spec.job = TightJob();
  spec.job.parallelism.tensor_parallel_size = 2;
  spec.frozen = {"parallelism.data_parallel_size"};
  for (const Choice& choice : Visited(spec)) EXPECT_EQ(DataParallelSize(choice), 4);
}

// 4 stages of up to 5 ranks are more than 8 GPUs, and than 2.
TEST(SpaceTest, FrozenDegreesMayAskForMoreGpusThanThereAre) {
  RecommendSpec spec;
  spec.job = TightJob();
  spec.job.parallelism.pipeline_parallel_size = 4;
  spec.frozen = {"parallelism.pipeline_parallel_size"};
  spec.gpu_counts = {2, 8};
  const std::set<Choice> visited = Visited(spec);
  EXPECT_THAT(visited, Not(IsEmpty()));
  for (const Choice& choice : visited) EXPECT_EQ(choice[KnobId::kGpuCount], 8);
}

TEST(SpaceTest, EverythingFrozenIsTheJobAlone) {
  RecommendSpec spec;
  spec.job = TightJob();
  spec.frozen = {"*"};
  EXPECT_THAT(Visited(spec), ElementsAre(SpaceOfJob(spec).own));
}

TEST(SpaceTest, SectionsFreezeWhatIsInThem) {
  struct Case {
    const char* path;
    const char* field;
    bool frozen;
  };
  const Case cases[] = {
      {"*", "parallelism.zero_stage", true},
      {"parallelism", "parallelism.zero_stage", true},
      {"parallelism.zero_stage", "parallelism.zero_stage", true},
      {"parallelism.zero", "parallelism.zero_stage", false},
      {"training.recompute.mode", "training.recompute", true},
      {"training", "parallelism.zero_stage", false},
  };
  for (const Case& c : cases) EXPECT_EQ(IsFrozen({c.path}, c.field), c.frozen) << c.path;
}

TEST(SpaceTest, AFieldMayChangeThatIsAllowedAndNotFrozen) {
  struct Case {
    std::vector<std::string> allowed;
    std::vector<std::string> frozen;
    bool may_change;
  };
  const Case cases[] = {
      {{}, {}, true},
      {{"*"}, {}, true},
      {{"parallelism"}, {}, true},
      {{"training", "parallelism.zero_stage"}, {}, true},
      {{"parallelism.zero"}, {}, false},
      {{"training"}, {}, false},
      {{"parallelism"}, {"parallelism.zero_stage"}, false},
      {{"parallelism.zero_stage"}, {"parallelism"}, false},
      {{}, {"*"}, false},
  };
  for (const Case& c : cases) {
    RecommendSpec spec;
    spec.allowed_changes = c.allowed;
    spec.frozen = c.frozen;
    EXPECT_EQ(MayChange(spec, "parallelism.zero_stage"), c.may_change)
        << (c.allowed.empty() ? "" : c.allowed.front());
  }
}

// Some knobs allowed are all the others frozen; and whatever differs in these
// alone is found.
TEST(SpaceTest, AllowedIsTheComplementOfFrozen) {
  std::mt19937_64 random(20261121);
  size_t restricted_count = 0;
  for (int i = 0; i < 60; ++i) {
    const RecommendSpec spec = RandomSpec(random);
    if (!IsSmall(spec)) continue;
    const ValidJob base = Valid(spec.job);
    RecommendSpec allowing = spec;
    RecommendSpec freezing = spec;
    std::array<bool, kKnobCount> allowed{};
    for (const Knob& knob : kKnobs) {
      const bool allow = random() % 2 == 0;
      allowed[static_cast<size_t>(knob.id)] = allow;
      (allow ? allowing.allowed_changes : freezing.frozen).emplace_back(knob.field);
    }
    if (allowing.allowed_changes.empty()) continue;
    const std::set<Choice> visited = Visited(allowing);
    EXPECT_EQ(visited, Visited(freezing)) << "job " << i;
    const Space space = SpaceOf(allowing, base);
    for (const Choice& choice : Visited(spec)) {
      bool differs_elsewhere = false;
      for (size_t knob = 0; knob < kKnobCount; ++knob) {
        if (!allowed[knob] && choice.values[knob] != space.own.values[knob]) {
          differs_elsewhere = true;
        }
      }
      EXPECT_TRUE(differs_elsewhere || visited.count(choice) > 0) << "job " << i;
    }
    restricted_count += visited.size();
  }
  EXPECT_GT(restricted_count, 100u) << "the jobs are worth it";
}

// What a search takes for the blocks of all that agree in other knobs is each one's own.
TEST(SpaceTest, BlocksAreThoseOfTheKnobsThatMoveThem) {
  std::mt19937_64 random(20261123);
  size_t shared_count = 0;
  for (int i = 0; i < 20; ++i) {
    const RecommendSpec spec = RandomSpec(random);
    if (!IsSmall(spec)) continue;
    const Space space = SpaceOf(spec, Valid(spec.job));
    std::map<std::tuple<Choice, const Profile*, bool, int32_t, int64_t>, std::string> blocks;
    for (const Choice& choice : Visited(spec)) {
      JobSpec job = space.job;
      Set(space.menu, choice, job);
      const ValidJob valid = Valid(job);
      const std::string text = Describe(BlocksProgram(valid));
      const auto [of_key, is_new] = blocks.emplace(
          std::tuple(MovingBlocks(choice), valid->profile, valid->micro_batch_count > 1,
                     EngineStage(*valid), valid->gpus_per_node),
          text);
      EXPECT_EQ(of_key->second, text) << "job " << i;
      if (!is_new) ++shared_count;
    }
  }
  EXPECT_GT(shared_count, 100u) << "the jobs are worth it";
}

TEST(SpaceTest, NeverChangesTheTrainingRun) {
  RecommendSpec spec;
  spec.job = TightJob();
  spec.gpu_counts = {8, 16};
  spec.gpus = {"h100-80gb-sxm"};
  const Space space = SpaceOfJob(spec);
  const ValidJob valid = Valid(spec.job);
  const Job& base = *valid;
  for (const Choice& choice : Visited(spec)) {
    JobSpec job = space.job;
    Set(space.menu, choice, job);
    const ValidJob valid = Valid(job);
    EXPECT_EQ(valid->global_batch_size, base.global_batch_size);
    EXPECT_EQ(valid->sequence_length, base.sequence_length);
    EXPECT_EQ(valid->optimizer, base.optimizer);
    EXPECT_EQ(valid->gpu->id, "h100-80gb-sxm");
  }
}

TEST(SpaceTest, ValuesOfOneKnob) {
  RecommendSpec spec;
  spec.job = TightJob();
  const Space space = SpaceOfJob(spec);
  const ValidJob valid = Valid(spec.job);
  const Job& base = *valid;
  Choice choice = space.own;
  const auto values = [&](KnobId id) { return ValuesOf(space, base, choice, id); };
  EXPECT_THAT(values(KnobId::kTensorParallel), ElementsAre(1, 2, 4, 5)) << "divide 20 heads";
  EXPECT_THAT(values(KnobId::kSequenceParallel), ElementsAre(0)) << "nothing to split";
  EXPECT_THAT(values(KnobId::kPipelineParallel), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(values(KnobId::kVirtualPipeline), ElementsAre(1));
  EXPECT_THAT(values(KnobId::kMicroBatch), ElementsAre(1, 2)) << "of 16 over 8 ranks";
  choice[KnobId::kTensorParallel] = 3;
  EXPECT_THAT(values(KnobId::kPipelineParallel), IsEmpty()) << "8 GPUs are no multiple of 3";
  choice[KnobId::kTensorParallel] = 2;
  choice[KnobId::kPipelineParallel] = 2;
  EXPECT_THAT(values(KnobId::kSequenceParallel), ElementsAre(0, 1));
  EXPECT_THAT(values(KnobId::kVirtualPipeline), ElementsAre(1, 2, 3, 4, 6, 12)) << "24 layers";
  EXPECT_THAT(values(KnobId::kMicroBatch), ElementsAre(1, 2, 4, 8));
  choice[KnobId::kPipelineParallel] = 13;
  EXPECT_THAT(values(KnobId::kVirtualPipeline), ElementsAre(1))
      << "13 divide 24 layers and two edges, 26 are more than there are layers";
}

// A node has as many GPUs as there are, at most eight, where the job does not say.
TEST(SpaceTest, NodesGrowWithTheGpusConsidered) {
  RecommendSpec spec;
  spec.job = TightJob();
  spec.job.cluster.gpu_count = 1;
  spec.gpu_counts = {1, 16};
  std::set<int32_t> degrees;
  for (const Choice& choice : Visited(spec)) degrees.insert(choice[KnobId::kTensorParallel]);
  EXPECT_THAT(degrees, ElementsAre(1, 2, 4));
}

// ddp has no tensor parallelism, but the framework that ZeRO 3 makes it has.
TEST(SpaceTest, AFrameworkLeftOpenIsNoLimit) {
  RecommendSpec spec;
  spec.job = TightJob();
  spec.job.runtime.framework.reset();
  const auto split = [&spec] {
    int64_t count = 0;
    for (const Choice& choice : Visited(spec)) {
      count += choice[KnobId::kTensorParallel] > 1 && choice[KnobId::kZeroStage] == 3 ? 1 : 0;
    }
    return count;
  };
  EXPECT_GT(split(), 0);
  spec.frozen = {"runtime"};
  EXPECT_EQ(split(), 0) << "ddp it stays";
}

TEST(SpaceTest, HoldsTheJobWithAnOddLayoutToo) {
  RecommendSpec spec;
  spec.job = TightJob();
  Shape(spec.job).layer_count = 22;
  spec.job.parallelism.pipeline_parallel_size = 2;
  spec.job.parallelism.pipeline_schedule = "interleaved-1f1b";
  spec.job.parallelism.virtual_pipeline_size = 3;
  spec.job.parallelism.pipeline_layout = {11, 11};
  EXPECT_THAT(Visited(spec), ::testing::Contains(SpaceOfJob(spec).own));
}

TEST(SpaceTest, EndsThoughNothingIsLegal) {
  RecommendSpec spec;
  spec.job = TightJob();
  spec.job.training.global_batch_size = 8;
  spec.frozen = {"training.micro_batch_size"};
  for (int64_t count = 4097; count < 4353; ++count) spec.gpu_counts.push_back(count);
  const ValidJob base = Valid(spec.job);
  int asked = 0;
  VisitLegal(
      SpaceOf(spec, base), base, SmallCatalog(), [](const Choice&, const Job&) { return true; },
      [&asked] { return ++asked < 3; });
  EXPECT_EQ(asked, 3);
}

// As the tight job, with a sequence that is split unasked.
JobSpec LongJob(absl::string_view framework) {
  JobSpec job = With(TightJob(), framework);
  job.training.sequence_length = 8192;
  return job;
}

// A size of context parallelism is tried where the framework's own method, or the job's, is
// modelled.
TEST(SpaceTest, ContextsDivideHeadsWhereTheirMethodIsModelled) {
  RecommendSpec spec;
  const auto values = [&spec] {
    const Space space = SpaceOfJob(spec);
    return ValuesOf(space, *Valid(spec.job), space.own, KnobId::kContextParallel);
  };
  spec.job = LongJob("deepspeed");
  EXPECT_THAT(values(), ElementsAre(1, 2, 4, 5)) << "divide 20 heads";
  spec.job.training.sequence_length = 8000;
  EXPECT_THAT(values(), ElementsAre(1)) << "short";
  spec.job.parallelism.context_parallel_method = "ulysses";
  EXPECT_THAT(values(), ElementsAre(1, 2, 4, 5)) << "short, and asked for";
  spec.frozen = {"parallelism.context_parallel_size"};
  EXPECT_THAT(values(), ElementsAre(1));
  spec.frozen.clear();
  spec.job = With(TightJob(), "fsdp2");
  EXPECT_THAT(values(), ElementsAre(1)) << "torch's own is not modelled";
  spec.job.parallelism.context_parallel_method = "ulysses";
  EXPECT_THAT(values(), ElementsAre(1, 2, 4, 5));
  spec.job = With(TightJob(), "ddp");
  EXPECT_THAT(values(), ElementsAre(1));
}

// Sequences are as long as they are: what a node cannot hold is spread over several.
TEST(SpaceTest, ContextsMaySpanNodes) {
  RecommendSpec spec;
  spec.job = LongJob("deepspeed");
  spec.job.cluster.gpu_count = 32;
  spec.job.cluster.gpus_per_node = 4;
  spec.job.training.global_batch_size = 32;
  const Space space = SpaceOfJob(spec);
  EXPECT_THAT(ValuesOf(space, *Valid(spec.job), space.own, KnobId::kContextParallel),
              ElementsAre(1, 2, 4, 5, 10, 20));
}

TEST(SpaceTest, ContextsAndReplicasShareTheRanks) {
  RecommendSpec spec;
  spec.job = LongJob("deepspeed");
  int64_t split = 0;
  for (const Choice& choice : Visited(spec)) {
    split += choice[KnobId::kContextParallel] > 1 ? 1 : 0;
    EXPECT_EQ(DataParallelSize(choice) * choice[KnobId::kContextParallel], ReplicaCount(choice));
  }
  EXPECT_GT(split, 0);
}

TEST(SpaceTest, ShardGroupsAreAllRanksOrANode) {
  RecommendSpec spec;
  spec.job = With(TightJob(), "fsdp2");
  spec.job.cluster.gpu_count = 16;
  spec.job.cluster.gpus_per_node = 8;
  const Space space = SpaceOfJob(spec);
  EXPECT_THAT(ValuesOf(space, *Valid(spec.job), space.own, KnobId::kShardGroup), ElementsAre(0, 8));
}

}  // namespace
}  // namespace plimsoll
