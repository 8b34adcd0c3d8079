// Bytes of a stage's states, by walking its parameters one by one: against the sums that the peak
// follows from, and against the storages that the timeline makes.
#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "estimator/step/stage_states.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/hand_program.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

std::vector<StageBlock> AllBlocks(const Program& program, const Stage& stage) {
  std::vector<StageBlock> all;
  for (size_t chunk = 0; chunk < stage.virtual_stages.size(); ++chunk) {
    const std::vector<StageBlock> blocks = BlocksOf(PlanPair(program, stage, chunk));
    all.insert(all.end(), blocks.begin(), blocks.end());
  }
  return all;
}

// Walks the parameters of a stage, each as often as the stage has it.
class Walk {
 public:
  Walk(const Program& program, const Stage& stage) : program_(program), stage_(stage) {
    for (const StageBlock& at : AllBlocks(program, stage)) {
      const Block& block = program.blocks[at.block];
      for (const Parameter& parameter : block.parameters) {
        if (!parameter.tied || !stage.embedding) all_.push_back({&block, &parameter});
      }
    }
  }

  int64_t BytesOf(const State& state) const {
    const bool elsewhere = (state.place == Place::kHeadStage && !stage_.head) ||
                           (state.place == Place::kEmbeddingStage && !stage_.embedding);
    return elsewhere ? 0 : std::min(Uncapped(state), state.most_bytes);
  }
  bool HasPacked() const {
    return std::any_of(all_.begin(), all_.end(),
                       [](const auto& at) { return at.second->packed(); });
  }

 private:
  using At = std::pair<const Block*, const Parameter*>;

  template <typename Is>
  int64_t Count(const Is& is) const {
    int64_t elements = 0;
    for (const At& at : all_) {
      if (is(*at.second)) elements += at.second->Elements();
    }
    return elements;
  }
  static std::pair<int64_t, int64_t> Sides(const Parameter& p) {
    return std::minmax(int64_t{p.shape.extents[0].Local()}, int64_t{p.shape.extents[1].Local()});
  }
  template <typename Side>
  int64_t Projected(const Side& side) const {
    int64_t elements = 0;
    for (const At& at : all_) {
      if (at.second->projected_rank == 0) continue;
      const auto [shorter, longer] = Sides(*at.second);
      elements += side(shorter, longer) * at.second->projected_rank;
    }
    return elements;
  }
  int64_t Factors() const {
    int64_t elements = 0;
    for (const At& at : all_) {
      if (at.second->projected_rank == 0) continue;
      const int64_t shorter = Sides(*at.second).first;
      elements += shorter * shorter;
    }
    return elements;
  }
  // Of as many numbers in blocks, those of one rank.
  static int64_t Shared(const State& state, int64_t elements) {
    const int64_t numbers = CeilDivide(elements, state.block_size);
    return Bytes(state.dtype, CeilDivide(numbers, state.shards));
  }
  static bool IsTrained(const Parameter& p) { return !p.frozen && !p.quantized; }
  static bool IsPaged(const State& state, const Parameter& p) {
    return state.pages && IsTrained(p) && p.Elements() >= 100000;
  }

  int64_t Uncapped(const State& state) const {
    const auto shared = [&](const auto& is) {
      return Shared(state, Count([&](const Parameter& p) { return IsTrained(p) && is(p); }));
    };
    switch (state.basis) {
      case Basis::kParameters:
        return OfParameters(state);
      case Basis::kCached:
        return Shared(state, Cached());
      case Basis::kPicked:
        return shared([&](const Parameter& p) { return p.picked && !IsPaged(state, p); });
      case Basis::kOthers:
        return shared([&](const Parameter& p) { return !p.picked && !IsPaged(state, p); });
      case Basis::kFp8:
        return shared([](const Parameter& p) { return p.fp8; });
      case Basis::kNotFp8:
        return shared([](const Parameter& p) { return !p.fp8; });
      case Basis::kRowsAndColumns:
        return Shared(state, Sides());
      case Basis::kProjected:
        return Shared(state, Projected([](int64_t, int64_t longer) { return longer; }));
      case Basis::kProjectors:
        return Shared(state, Projected([](int64_t shorter, int64_t) { return shorter; }));
      case Basis::kFactors:
        return Shared(state, Factors());
      case Basis::kLargest:
        return Shared(state, Largest());
      case Basis::kBytes:
        return state.fixed_bytes;
      case Basis::kBytesPerLayer:
        return state.fixed_bytes * stage_.layer_count;
    }
    return 0;
  }
  int64_t OfParameters(const State& state) const {
    const auto is = [&](const Parameter& p) { return IsOf(state, p) && !IsPaged(state, p); };
    if (state.shards_rows) return OfRows(state);
    if (state.expert_shards == 0) return Shared(state, Count(is));
    const auto experts = [](const Parameter& p) { return IsTrained(p) && p.of_experts(); };
    const int64_t of_experts = Count(experts);
    return Shared(state, Count([&](const Parameter& p) { return IsOf(state, p); }) - of_experts) +
           Bytes(state.dtype, CeilDivide(of_experts, state.expert_shards));
  }
  // Of each parameter the largest part of its rows, over the ranks that have the same.
  int64_t OfRows(const State& state) const {
    int64_t elements = 0;
    for (const auto& [block, parameter] : all_) {
      if (!IsOf(state, *parameter) || parameter->quantized) continue;
      const auto axis = static_cast<size_t>(parameter->shard_axis);
      const int64_t rows = parameter->shape.extents[axis].Local();
      const int64_t ranks = std::max<int64_t>(program_.row_shards / parameter->spread_over, 1);
      elements += CeilDivide(rows, ranks) * (parameter->Elements() / rows);
    }
    return Bytes(state.dtype, elements);
  }
  int64_t Cached() const {
    int64_t elements = 0;
    for (const auto& [block, p] : all_) {
      const bool matrix = p->shape.rank == 2 && block->kind == BlockKind::kLayer;
      if (IsTrained(*p) && matrix && !p->uncached) elements += p->Elements();
    }
    return elements;
  }
  int64_t Sides() const {
    int64_t sides = 0;
    for (const auto& [block, p] : all_) {
      if (!IsTrained(*p)) continue;
      sides += p->shape.extents[0].size + (p->shape.rank == 2 ? p->shape.extents[1].size : 0);
    }
    return sides;
  }
  int64_t Largest() const {
    int64_t largest = 0;
    for (const auto& [block, p] : all_) {
      if (IsTrained(*p)) largest = std::max(largest, p->Elements());
    }
    return largest;
  }

  const Program& program_;
  const Stage& stage_;
  std::vector<At> all_;
};

// A state as if it were there from the first forward on, and nothing else were.
State Alone(State state) {
  State alone = std::move(state);
  alone.part = Part::kOther;
  alone.alive = kAlways;
  alone.in_passing = 0;
  alone.becomes = Part::kOther;
  for (bool State::*flag :
       {&State::grows_in_backward, &State::adds_up, &State::fills_in, &State::takes_grown,
        &State::until_backward, &State::until_reduced, &State::until_temporaries, &State::sets_up,
        &State::sets_up_behind, &State::sets_up_beside, &State::remakes_last, &State::beside_others,
        &State::from_backward, &State::with_gradients, &State::of_threads}) {
    alone.*flag = false;
  }
  return alone;
}

// The storages of a program's states when the first forward begins: bytes by name and parameter.
std::map<std::string, std::vector<int64_t>> Storages(const Program& program, const Stage& stage) {
  TimelineWriter writer;
  StageStates states(program, stage, AllBlocks(program, stage), writer);
  states.Enter(Phase::kForward, true);
  std::map<std::string, std::vector<int64_t>> storages;
  for (const TimelineStorage& storage : std::move(writer).Take().storages) {
    storages[std::string(storage.name)].push_back(storage.bytes);
  }
  return storages;
}

int64_t Sum(const std::vector<int64_t>& bytes) {
  int64_t sum = 0;
  for (const int64_t of : bytes) sum += of;
  return sum;
}

void ExpectWalked(Program program, const Stage& stage) {
  const Walk walk(program, stage);
  const ParameterSums sums = SumParameters(program, stage);
  const auto states = std::exchange(program.states, {});
  for (const State& state : states) {
    // Of parameters that are one tensor the largest is theirs: walked apart.
    if (state.basis == Basis::kLargest && walk.HasPacked()) continue;
    const int64_t bytes = walk.BytesOf(state);
    EXPECT_EQ(StateBytes(state, sums), bytes) << state.name;
    program.states = {Alone(state)};
    EXPECT_EQ(Sum(Storages(program, stage)[std::string(state.name)]), bytes) << state.name;
  }
}

TEST(StatesWalkTest, SumsAndStoragesAreWhatParametersHave) {
  std::mt19937_64 random(20261127);
  for (int i = 0; i < Rounds(600) && !HasFailure(); ++i) {
    const JobSpec spec = i % 4 == 0   ? RandomDispatchedJob(random)
                         : i % 4 == 1 ? RandomFp8Job(random)
                                      : RandomJob(random);
    SCOPED_TRACE(*spec.runtime.framework);
    const Program program = ProgramOf(spec);
    for (const Stage& stage : program.stages) ExpectWalked(program, stage);
  }
}

// In their order of size: two states may have one name, and are then told apart by nothing else.
std::map<std::string, std::vector<int64_t>> SortedStorages(const Program& program,
                                                           const Stage& stage) {
  auto storages = Storages(program, stage);
  for (auto& [name, bytes] : storages) std::sort(bytes.begin(), bytes.end());
  return storages;
}

// Made parameter by parameter beside another state, it has the same storages as by itself.
TEST(StatesWalkTest, StatesMadeTogetherAreTheSame) {
  std::mt19937_64 random(20261128);
  int compared = 0;
  for (int i = 0; i < Rounds(300) && !HasFailure(); ++i) {
    Program program = ProgramOf(RandomJob(random));
    const Stage& stage = program.stages[random() % program.stages.size()];
    std::erase_if(program.states, [](const State& state) {
      return state.buffers > 0 || state.basis == Basis::kBytes || state.basis == Basis::kLargest ||
             state.basis == Basis::kBytesPerLayer;
    });
    for (State& state : program.states) state = Alone(state);
    const auto apart = SortedStorages(program, stage);
    for (State& state : program.states) state.beside_others = true;
    EXPECT_EQ(SortedStorages(program, stage), apart);
    compared += program.states.size() > 1 ? 1 : 0;
  }
  EXPECT_GT(compared, Rounds(300) / 2);
}

// Gradients that grow block by block, from the last to the first, are at last all of a state.
TEST(StatesWalkTest, GradientsGrowToAllOfAState) {
  std::mt19937_64 random(20261129);
  int grown = 0;
  for (int i = 0; i < Rounds(600) && !HasFailure(); ++i) {
    Program program = ProgramOf(RandomJob(random));
    program.weight_gradient = WeightGradient::kFused;  // none is what backward of a block made
    program.host_states.clear();
    std::erase_if(program.states, [](const State& state) { return !state.grows_in_backward; });
    if (program.states.empty()) continue;
    const Stage& stage = program.stages[random() % program.stages.size()];
    std::vector<StageBlock> blocks = AllBlocks(program, stage);
    TimelineWriter writer;
    StageStates states(program, stage, blocks, writer);
    std::reverse(blocks.begin(), blocks.end());
    for (const StageBlock& at : blocks) EXPECT_TRUE(states.GrowBlock(0, at, {}).empty());
    int64_t made = 0;
    for (const TimelineStorage& storage : std::move(writer).Take().storages) made += storage.bytes;
    int64_t walked = 0;
    for (const State& state : program.states) walked += Walk(program, stage).BytesOf(state);
    EXPECT_EQ(made, walked);
    ++grown;
  }
  EXPECT_GT(grown, Rounds(600) / 10);
}

// Three parameters of 7, 5 and 3 elements, fp32, over ranks that split all of them as one:
//   of 2  8 of 15 (15 / 2 up): 4 of the first 7, 6 - 4 of 12 / 2, 8 - 6
//   of 4  4 of 15: 2 of 7, 3 - 2 of 12, 4 - 3
// and in blocks of 8 elements that have one number each: 1 of 7, 2 - 1 of 12, 2 - 2 of 15.
TEST(StatesWalkTest, WhatRanksSplitByHand) {
  Program program = HandProgram(1);
  HandBlock hand("layer", BlockKind::kLayer);
  hand.Weight("a", 7);
  hand.Weight("b", 5);
  hand.Weight("c", 3);
  program.blocks[1].parameters = hand.Between(0, 0).parameters;
  State master{.name = "master", .dtype = DType::kFp32};
  const auto bytes = [&](int64_t shards, int64_t block_size) {
    master.shards = shards;
    master.block_size = block_size;
    program.states = {master};
    return Storages(program, program.stages[0])["master"];
  };
  EXPECT_THAT(bytes(1, 1), ElementsAre(4 * 7, 4 * 5, 4 * 3));
  EXPECT_THAT(bytes(2, 1), ElementsAre(4 * 4, 4 * 2, 4 * 2));
  EXPECT_THAT(bytes(4, 1), ElementsAre(4 * 2, 4 * 1, 4 * 1));
  EXPECT_THAT(bytes(1, 8), ElementsAre(4 * 1, 4 * 1)) << "the third has no number of its own";
  master.most_bytes = 40;  // 28 of the first, 12 that are left
  EXPECT_THAT(bytes(1, 1), ElementsAre(28, 12));
}

// Of 100 B as three buffers: 34, then half of 66, then the rest.
TEST(StatesWalkTest, BuffersAreAsEvenAsCanBe) {
  Program program = HandProgram(1);
  program.states = {{.name = "buffer", .basis = Basis::kBytes, .fixed_bytes = 100, .buffers = 3}};
  EXPECT_THAT(Storages(program, program.stages[0])["buffer"], ElementsAre(34, 33, 33));
}

}  // namespace
}  // namespace plimsoll
