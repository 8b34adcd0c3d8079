// A stage's states on its timeline: which blocks are its own, what is made one
// by one, and when gradients come and go.
#include "estimator/step/stage_states.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/hand_program.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// "layer@2", or "head".
std::vector<std::string> Names(const Program& program, const Stage& stage, size_t chunk) {
  std::vector<std::string> names;
  for (const StageBlock& at : BlocksOf(PlanPair(program, stage, chunk))) {
    names.push_back(at.layer < 0 ? std::string(program.blocks[at.block].name)
                                 : absl::StrCat(program.blocks[at.block].name, "@", at.layer));
  }
  return names;
}

TEST(BlocksOfTest, OneStageHasAll) {
  const Program program = HandProgram(2);
  EXPECT_THAT(Names(program, program.stages[0], 0),
              ElementsAre("embedding", "layer@0", "layer@1", "head"));
}

// The first virtual stage has the embedding, the last the head; layers are
// counted on.
TEST(BlocksOfTest, VirtualStagesShareTheLayers) {
  const Program program = HandProgram(5);
  Stage stage = program.stages[0];
  stage.virtual_stages = {{0, 2}, {0, 3}};
  EXPECT_THAT(Names(program, stage, 0), ElementsAre("embedding", "layer@0", "layer@1"));
  EXPECT_THAT(Names(program, stage, 1), ElementsAre("layer@2", "layer@3", "layer@4", "head"));
  stage.embedding = stage.head = false;
  EXPECT_THAT(Names(program, stage, 0), ElementsAre("layer@0", "layer@1"));
}

// Every third layer is another block; each virtual stage begins anew.
TEST(BlocksOfTest, KindsOfLayersTakeTurns) {
  Program program = HandProgram(4);
  program.blocks[1].layers = {.period = 3, .from = 1, .to = 3};
  Block other = program.blocks[1];
  other.name = "other";
  other.layers = Others(other.layers);
  program.blocks.push_back(other);
  EXPECT_THAT(Names(program, program.stages[0], 0),
              ElementsAre("embedding", "other@0", "layer@1", "layer@2", "other@3", "head"));
}

// What states do to a timeline: "+weights 1000", "-weights".
class Rank {
 public:
  explicit Rank(Program program)
      : program_(std::move(program)),
        states_(program_, program_.stages[0], BlocksOf(PlanPair(program_, program_.stages[0], 0)),
                writer_) {}

  StageStates& states() { return states_; }
  TimelineWriter& writer() { return writer_; }
  const Program& program() const { return program_; }

  std::vector<std::string> Enter(Phase phase, bool first_step = false) {
    states_.Enter(phase, first_step);
    return News();
  }
  // What happened since it was last asked.
  std::vector<std::string> News() {
    TimelineWriter copy = writer_;
    const Timeline timeline = std::move(copy).Take();
    std::vector<std::string> news;
    for (; seen_ < timeline.events.size(); ++seen_) {
      const TimelineEvent& event = timeline.events[seen_];
      if (event.kind == TimelineEventKind::kEmptyCache) {
        news.emplace_back("empty");
        continue;
      }
      const TimelineStorage& storage = timeline.storages[static_cast<size_t>(event.value)];
      const std::string name =
          absl::StrCat(storage.name, storage.suffix.empty() ? "" : ":", storage.suffix);
      news.push_back(event.kind == TimelineEventKind::kBirth
                         ? absl::StrCat("+", name, " ", storage.bytes)
                         : absl::StrCat("-", name));
    }
    return news;
  }

 private:
  const Program program_;
  TimelineWriter writer_;
  StageStates states_;
  size_t seen_ = 0;
};

TEST(StageStatesTest, MadeWhenTheirPhaseBegins) {
  Rank rank(HandProgram(1));
  EXPECT_THAT(rank.Enter(Phase::kForward, true), ElementsAre("+weights 1000"));
  EXPECT_THAT(rank.Enter(Phase::kBackward, true), IsEmpty());
  EXPECT_THAT(rank.Enter(Phase::kOptimizer, true), ElementsAre("+momentum 2000"));
  EXPECT_THAT(rank.Enter(Phase::kForward), IsEmpty()) << "both stay";
  EXPECT_THAT(rank.Enter(Phase::kOptimizer), IsEmpty());
}

// torch.optim makes both of a parameter's before the next parameter's.
TEST(StageStatesTest, StatesOfAParameterAreMadeTogether) {
  Program program = HandProgram(2);
  program.states.clear();
  for (const absl::string_view name : {"momentum", "variance"}) {
    program.states.push_back({.name = name, .beside_others = true, .alive = kOptimizerPhase});
  }
  Rank rank(std::move(program));
  std::vector<std::string> names;
  for (const std::string& news : rank.Enter(Phase::kOptimizer, true)) {
    names.push_back(news.substr(1, news.find(':') - 1));
  }
  ASSERT_GE(names.size(), 4u);
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(names[i], i % 2 == 0 ? "momentum" : "variance") << i;
  }
}

// A thread's first product makes its workspace, which stays.
TEST(StageStatesTest, AThreadsFirstProductMakesItsWorkspace) {
  Program program = HandProgram(1);
  program.states.push_back({.name = "workspace",
                            .basis = Basis::kBytes,
                            .fixed_bytes = 64,
                            .buffers = 2,
                            .of_threads = true});
  Rank rank(std::move(program));
  EXPECT_THAT(rank.Enter(Phase::kForward, true), ElementsAre("+weights 1000"));
  rank.states().MakeWorkspace(Thread::kMain);
  EXPECT_THAT(rank.News(), ElementsAre("+workspace 32"));
  rank.states().MakeWorkspace(Thread::kMain);
  EXPECT_THAT(rank.News(), IsEmpty());
  rank.states().MakeWorkspace(Thread::kAutograd);
  EXPECT_THAT(rank.News(), ElementsAre("+workspace 32"));
}

// What is freed is freed before anything is made.
TEST(StageStatesTest, FreedBeforeOthersAreMade) {
  Program program = HandProgram(1);
  program.states[0].alive = During(Phase::kForward, Phase::kForward, true, true);
  program.states[1].alive = During(Phase::kBackward, Phase::kBackward, true, true);
  Rank rank(std::move(program));
  rank.Enter(Phase::kForward, true);
  rank.News();
  EXPECT_THAT(rank.Enter(Phase::kBackward, true), ElementsAre("-weights", "+momentum 2000"));
  EXPECT_THAT(rank.Enter(Phase::kForward), ElementsAre("-momentum", "+weights 1000"));
}

// A state of the parameters is a storage for each, or so many buffers.
TEST(StageStatesTest, AStorageForEachParameter) {
  Program program = HandProgram(2);
  program.states.resize(1);
  State& master = program.states[0];
  master.basis = Basis::kParameters;
  master.dtype = DType::kFp32;
  master.name = "master";
  EXPECT_THAT(Rank(program).Enter(Phase::kForward, true),
              ElementsAre("+master:w 28", "+master:w 28"));
  master.buffers = 1;
  EXPECT_THAT(Rank(program).Enter(Phase::kForward, true), ElementsAre("+master 56"));
  master.buffers = 4;
  EXPECT_THAT(Rank(program).Enter(Phase::kForward, true),
              ElementsAre("+master 14", "+master 14", "+master 14", "+master 14"));
}

TEST(StageStatesTest, BytesOfEachLayer) {
  Program program = HandProgram(3);
  program.states.resize(1);
  program.states[0].basis = Basis::kBytesPerLayer;
  program.states[0].fixed_bytes = 11;
  EXPECT_THAT(Rank(program).Enter(Phase::kForward, true),
              ElementsAre("+weights 11", "+weights 11", "+weights 11"));
}

TEST(StageStatesTest, StatesOfOtherStagesAreNotMade) {
  Program program = HandProgram(1);
  program.states[0].place = Place::kHeadStage;
  program.states[1].alive = kAlways;
  program.states[1].place = Place::kEmbeddingStage;
  EXPECT_THAT(Rank(program).Enter(Phase::kForward, true),
              ElementsAre("+weights 1000", "+momentum 2000"));
  program.stages[0].head = false;
  EXPECT_THAT(Rank(program).Enter(Phase::kForward, true), ElementsAre("+momentum 2000"));
  program.stages[0].embedding = false;
  EXPECT_THAT(Rank(program).Enter(Phase::kForward, true), IsEmpty());
}

// A tied head's parameter is the embedding's, where that is here.
TEST(StageStatesTest, TiedParametersAreOne) {
  Program program = HandProgram(1);
  program.states.resize(1);
  program.states[0].basis = Basis::kParameters;
  program.states[0].dtype = DType::kFp8;
  Parameter tied = program.blocks[1].parameters[0];
  tied.name = "tied";
  tied.tied = true;
  program.blocks[2].parameters = {tied};
  EXPECT_THAT(Rank(program).Enter(Phase::kForward, true), ElementsAre("+weights:w 7"));
  program.stages[0].embedding = false;
  EXPECT_THAT(Rank(program).Enter(Phase::kForward, true),
              ElementsAre("+weights:w 7", "+weights:tied 7"));
}

// A program whose gradients grow in backward.
Program Growing(WeightGradient weight_gradient, Alive alive) {
  Program program = HandProgram(1);
  program.weight_gradient = weight_gradient;
  program.states.resize(1);
  State& gradients = program.states[0];
  gradients.name = "gradients";
  gradients.role = Role::kGradient;
  gradients.basis = Basis::kParameters;
  gradients.dtype = DType::kBf16;
  gradients.grows_in_backward = true;
  gradients.alive = alive;
  return program;
}
constexpr Alive kUntilTheStep = During(Phase::kGradientReduction, Phase::kOptimizer, true, true);
constexpr StageBlock kLayer{1, 0};

// What backward made is the gradient; it is freed when the step is over.
TEST(StageStatesTest, TakesTheGradientsThatBackwardMade) {
  Rank rank(Growing(WeightGradient::kKept, kUntilTheStep));
  EXPECT_THAT(rank.Enter(Phase::kBackward, true), IsEmpty());
  EXPECT_TRUE(rank.states().GrowsIn(0));
  TimelineStorage made;
  made.bytes = 14;
  made.name = "made";
  rank.states().GrowBlock(0, kLayer, {rank.writer().Birth(made)});
  EXPECT_THAT(rank.News(), ElementsAre("+made 14"));
  rank.states().EndBackward(0);
  EXPECT_FALSE(rank.states().GrowsIn(0)) << "a second micro-batch adds to it";
  EXPECT_THAT(rank.Enter(Phase::kOptimizer, true), IsEmpty());
  EXPECT_THAT(rank.Enter(Phase::kEndOfStep, true), ElementsAre("-made"));
  EXPECT_TRUE(rank.states().GrowsIn(0));
}

// Sharded gradients are storages of their own; what backward made is dropped.
TEST(StageStatesTest, ShardedGradientsAreTheirOwn) {
  Program program = Growing(WeightGradient::kKept, kUntilTheStep);
  program.states[0].shards = 7;
  Rank rank(std::move(program));
  TimelineStorage made;
  made.bytes = 14;
  made.name = "made";
  rank.states().GrowBlock(0, kLayer, {rank.writer().Birth(made)});
  EXPECT_THAT(rank.News(), ElementsAre("+made 14", "+gradients 2", "-made"));
}

// Where backward keeps none, gradients are made as it passes.
TEST(StageStatesTest, MakesWhatBackwardDidNot) {
  Rank rank(Growing(WeightGradient::kFused, kUntilTheStep));
  rank.states().GrowBlock(0, kLayer, {});
  EXPECT_THAT(rank.News(), ElementsAre("+gradients 14"));
}

// nanotron's 16-bit gradients are added to a buffer when backward is over.
TEST(StageStatesTest, GradientsOfNoPhaseEndWithBackward) {
  Rank rank(Growing(WeightGradient::kKept, 0));
  TimelineStorage made;
  made.bytes = 14;
  made.name = "made";
  rank.states().GrowBlock(0, kLayer, {rank.writer().Birth(made)});
  EXPECT_THAT(rank.News(), ElementsAre("+made 14"));
  rank.states().EndBackward(0);
  EXPECT_THAT(rank.News(), ElementsAre("-made"));
  EXPECT_TRUE(rank.states().GrowsIn(0));
}

// What backward made lives on as another state, where it is, until that ends.
TEST(StageStatesTest, AStateTakesTheGradientsThatGrew) {
  Program program = Growing(WeightGradient::kKept, kUntilTheStep);
  State stale = program.states[0];
  stale.name = "stale";
  stale.grows_in_backward = false;
  stale.takes_grown = true;
  stale.alive = During(Phase::kEndOfStep, Phase::kEndOfStep, true, true) |
                During(Phase::kForward, Phase::kBackward, false, true);
  program.states.push_back(stale);
  Rank rank(std::move(program));
  TimelineStorage made;
  made.bytes = 14;
  made.name = "made";
  rank.states().GrowBlock(0, kLayer, {rank.writer().Birth(made)});
  EXPECT_THAT(rank.News(), ElementsAre("+made 14"));
  EXPECT_THAT(rank.Enter(Phase::kEndOfStep, true), IsEmpty());
  EXPECT_TRUE(rank.states().GrowsIn(0)) << "the next backward makes its own";
  EXPECT_THAT(rank.Enter(Phase::kBackward), IsEmpty());
  EXPECT_THAT(rank.Enter(Phase::kGradientReduction), ElementsAre("-made"));
}

// Each storage of the state before it is freed once its successor is there.
TEST(StageStatesTest, MakesTheLastStateAnew) {
  Program program = HandProgram(2);
  State& copies = program.states[0];
  copies.name = "copies";
  copies.basis = Basis::kParameters;
  copies.dtype = DType::kFp32;
  State& next = program.states[1];
  next.remakes_last = true;
  next.alive = During(Phase::kOptimizer, Phase::kOptimizer, false, true);
  Rank rank(std::move(program));
  EXPECT_THAT(rank.Enter(Phase::kOptimizer, true), ElementsAre("+copies:w 28", "+copies:w 28"));
  EXPECT_THAT(rank.Enter(Phase::kForward), IsEmpty());
  const auto remade = ElementsAre("+copies:w 28", "-copies:w", "+copies:w 28", "-copies:w");
  EXPECT_THAT(rank.Enter(Phase::kOptimizer), remade);
  EXPECT_THAT(rank.Enter(Phase::kEndOfStep), IsEmpty());
  EXPECT_THAT(rank.Enter(Phase::kOptimizer), remade);
}

// What sets a rank up is gone before anything else is made, and never comes back.
TEST(StageStatesTest, SetsUpOnce) {
  Program program = HandProgram(1);
  program.states[1].sets_up = true;
  program.states[1].alive = 0;
  Rank rank(std::move(program));
  EXPECT_THAT(rank.Enter(Phase::kForward, true),
              ElementsAre("+momentum 2000", "-momentum", "+weights 1000"));
  EXPECT_THAT(rank.Enter(Phase::kBackward, true), IsEmpty());
  EXPECT_THAT(rank.Enter(Phase::kForward), IsEmpty());
}

// Or is made and freed when all else is there.
TEST(StageStatesTest, SetsUpBehindTheRest) {
  Program program = HandProgram(1);
  program.states[0].sets_up_behind = true;
  program.states[0].alive = 0;
  program.states[1].alive = kAlways;
  Rank rank(std::move(program));
  EXPECT_THAT(rank.Enter(Phase::kForward, true),
              ElementsAre("+momentum 2000", "+weights 1000", "-weights"));
  EXPECT_THAT(rank.Enter(Phase::kForward), IsEmpty());
}

// A state that becomes the next goes once that is there; the cache is emptied before what is set up
// behind the rest.
TEST(StageStatesTest, SetsUpOneFromAnother) {
  Program program = HandProgram(1);
  program.states[0].becomes = Part::kMasterWeights;
  program.states[0].alive = 0;
  program.states[1].alive = kAlways;
  program.states[1].part = Part::kMasterWeights;
  program.states.push_back(
      {.name = "zeros", .basis = Basis::kBytes, .fixed_bytes = 8, .sets_up_behind = true});
  program.states.back().alive = 0;
  program.empties_cache = true;
  Rank rank(std::move(program));
  EXPECT_THAT(
      rank.Enter(Phase::kForward, true),
      ElementsAre("+weights 1000", "+momentum 2000", "-weights", "empty", "+zeros 8", "-zeros"));
  EXPECT_THAT(rank.Enter(Phase::kForward), IsEmpty());
}

// A step's first forward is without what its backward makes, and keeps.
TEST(StageStatesTest, MakesInBackwardWhatStays) {
  Program program = HandProgram(1);
  program.states[1].from_backward = true;
  program.states[1].alive = kForwardToBackward;
  Rank rank(std::move(program));
  EXPECT_THAT(rank.Enter(Phase::kForward, true), ElementsAre("+weights 1000"));
  EXPECT_THAT(rank.Enter(Phase::kLoss, true), IsEmpty());
  rank.states().BeginBackward();
  EXPECT_THAT(rank.Enter(Phase::kBackward, true), IsEmpty()) << "it waits for a gradient";
  rank.states().BeginGradients({0, -1, false});
  EXPECT_THAT(rank.News(), IsEmpty()) << "the embedding has no weight";
  rank.states().BeginGradients({1, 0, false});
  EXPECT_THAT(rank.News(), ElementsAre("+momentum 2000"));
  EXPECT_THAT(rank.Enter(Phase::kForward, true), IsEmpty());
  EXPECT_THAT(rank.Enter(Phase::kGradientReduction, true), ElementsAre("-momentum"));
}

// What only forward has is made when what was set up is gone.
TEST(StageStatesTest, SetsUpBeforeForwardMakesItsOwn) {
  Program program = HandProgram(1);
  program.states.push_back(
      {.name = "gathered", .basis = Basis::kBytes, .fixed_bytes = 8, .alive = kForwardToBackward});
  program.states.push_back(
      {.name = "set_up", .basis = Basis::kBytes, .fixed_bytes = 16, .sets_up_behind = true});
  program.states.back().alive = 0;
  Rank rank(std::move(program));
  EXPECT_THAT(rank.Enter(Phase::kForward, true),
              ElementsAre("+weights 1000", "+set_up 16", "-set_up", "+gathered 8"));
}

TEST(TimelineWriterTest, StoragesLiveWhileTheyAreReferredTo) {
  TimelineWriter writer;
  TimelineStorage storage;
  storage.bytes = 5;
  const int32_t id = writer.Birth(storage);
  writer.Refer(id);
  writer.Release(id);
  EXPECT_EQ(writer.event_count(), 1u);
  writer.Launch(3);
  writer.Release(id);
  writer.Record(id);
  EXPECT_EQ(writer.event_count(), 2u);
  const Timeline timeline = std::move(writer).Take();
  EXPECT_EQ(timeline.events[0].tick, 0);
  EXPECT_EQ(timeline.events[1].tick, 3);
  EXPECT_TRUE(timeline.storages[0].recorded);
}

TEST(TimelineWriterTest, NoBytesAreNoStorage) {
  TimelineWriter writer;
  const int32_t none = writer.Birth({});
  EXPECT_EQ(none, kNoStorage);
  writer.Refer(none);
  writer.Record(none);
  writer.Release(none);
  EXPECT_EQ(writer.event_count(), 0u);
}

}  // namespace
}  // namespace plimsoll
