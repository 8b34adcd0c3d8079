// Plans without loops: each rule of a pair's order walked layer by layer, against the loops of
// random jobs; and whole plans as text.
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "estimator/step/plan.h"
#include "gtest/gtest.h"
#include "tests/testing/hand_program.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

using Words = std::vector<std::string>;

constexpr absl::string_view kKinds[] = {"phase", "receive",  "gather", "forward", "end",
                                        "send",  "backward", "again",  "reduce",  "grow"};

// "forward 3@7": block 3 as the stage's layer 7; "r" behind one of the reference, "(" before the
// first layer of a unit and ")" before the last.
std::string Word(const Slot& slot) {
  const auto kind = kKinds[static_cast<size_t>(slot.kind)];
  if (slot.kind == SlotKind::kPhase) return absl::StrCat("phase ", static_cast<int>(slot.phase));
  if (slot.kind == SlotKind::kReceive || slot.kind == SlotKind::kSend) return std::string(kind);
  return absl::StrCat(kind, slot.opens ? "(" : "", slot.closes ? ")" : "", " ", slot.at.block, "@",
                      slot.at.layer, slot.at.reference ? "r" : "");
}

Words WordsOf(const Slots& slots) {
  Words words;
  slots.ForEach([&](const Slot& slot) { words.push_back(Word(slot)); });
  return words;
}

// The order of one virtual stage, without loops.
class Naive {
 public:
  Naive(const Program& program, const Stage& stage, size_t chunk)
      : program_(program), chunk_(VirtualStage(stage, chunk)) {
    for (size_t i = 0; i < chunk; ++i) first_ += stage.virtual_stages[i].count;
  }

  Words Forward() {
    Begin(Phase::kForward);
    const bool refers = !program_.reference.empty();
    if (refers && program_.reference_first) Reference();
    if (chunk_.embedding) Run(At(BlockKind::kEmbedding));
    if (!chunk_.embedding && (Layers() > 0 || chunk_.head)) Add({.kind = SlotKind::kReceive});
    for (int64_t i = 0; i < Layers(); ++i) Run(Layer(i));
    if (chunk_.head) {
      Begin(Phase::kLoss);
      Run(At(BlockKind::kHead));
      if (refers && !program_.reference_first) Reference();
    }
    Add({.kind = SlotKind::kSend});
    return words_;
  }

  Words Backward() {
    words_.clear();
    if (chunk_.head) Begin(Phase::kLoss);
    if (chunk_.head) Back(At(BlockKind::kHead), true);
    if (Layers() > 0 || chunk_.embedding) {
      Begin(Phase::kBackward);
      if (!chunk_.head) Add({.kind = SlotKind::kReceive});
    }
    for (int64_t end = Layers(); end > 0;) end = BackUnit(end);
    if (chunk_.embedding) Back(At(BlockKind::kEmbedding), true);
    return words_;
  }

 private:
  int64_t Layers() const { return chunk_.layer_count; }
  const Block& BlockOf(const Slot& slot) const { return BlockAt(program_, slot.at); }
  void Add(const Slot& slot) { words_.push_back(Word(slot)); }
  void Add(SlotKind kind, Slot slot) {
    slot.kind = kind;
    Add(slot);
  }
  void Begin(Phase phase) { Add({.kind = SlotKind::kPhase, .phase = phase}); }
  void Run(const Slot& slot) {
    Add(SlotKind::kGather, slot);
    Add(SlotKind::kForward, slot);
  }

  // The network's, or the reference's, embedding or head.
  Slot At(BlockKind kind, bool reference = false) const {
    const auto& network = reference ? program_.reference : program_.blocks;
    uint32_t block = 0;
    while (network[block].kind != kind) ++block;
    return {.at = {block, -1, reference}};
  }
  // The virtual stage's layer so far from its first.
  Slot Layer(int64_t index, bool reference = false) const {
    const auto& network = reference ? program_.reference : program_.blocks;
    const int64_t begin = chunk_.virtual_stages[0].begin;
    uint32_t block = 0;
    while (network[block].kind != BlockKind::kLayer || !network[block].layers.Has(begin + index)) {
      ++block;
    }
    Slot slot{.at = {block, static_cast<int32_t>(first_ + index), reference}};
    const int64_t unit = network[block].recompute_unit;
    if (reference || unit <= 1) return slot;
    slot.opens = index % unit == 0;
    slot.closes = (index + 1) % unit == 0 || index + 1 == Layers();
    return slot;
  }

  void Reference() {
    if (chunk_.embedding) Run(At(BlockKind::kEmbedding, true));
    for (int64_t i = 0; i < Layers(); ++i) Run(Layer(i, true));
    if (chunk_.embedding) Add(SlotKind::kEnd, At(BlockKind::kEmbedding, true));
    Run(At(BlockKind::kHead, true));
    for (int64_t i = 0; i < Layers(); ++i) Add(SlotKind::kEnd, Layer(i, true));
    Add(SlotKind::kEnd, At(BlockKind::kHead, true));
  }

  // The layers of the last unit before `end`; returns where it begins.
  int64_t BackUnit(int64_t end) {
    const int64_t unit = BlockOf(Layer(end - 1)).recompute_unit;
    int64_t begin = end - 1;
    while (unit > 1 && begin % unit != 0) --begin;
    Add(SlotKind::kGather, Layer(end - 1));
    for (int64_t i = begin; i < end && unit > 0; ++i) Add(SlotKind::kAgain, Layer(i));
    for (int64_t i = end - 1; i >= begin; --i) Back(Layer(i), i < end - 1);
    return begin;
  }
  void Back(const Slot& slot, bool gathers) {
    if (gathers) Add(SlotKind::kGather, slot);
    Add(SlotKind::kBackward, slot);
    const BlockKind kind = BlockOf(slot).kind;
    const bool together = program_.ends_are_one_group && chunk_.embedding && chunk_.head;
    if (together && kind == BlockKind::kHead) return;
    if (BlockOf(slot).reduce_bytes > 0) Add(SlotKind::kReduce, slot);
    if (together && kind == BlockKind::kEmbedding) Add(SlotKind::kGrow, At(BlockKind::kHead));
    Add(SlotKind::kGrow, slot);
  }

  const Program& program_;
  const Stage chunk_;
  int64_t first_ = 0;
  Words words_;
};

// Returns how many virtual stages there are.
int Compare(const Program& program) {
  int count = 0;
  for (const Stage& stage : program.stages) {
    for (size_t chunk = 0; chunk < stage.virtual_stages.size(); ++chunk, ++count) {
      const Plan plan = PlanPair(program, stage, chunk);
      Naive naive(program, stage, chunk);
      EXPECT_EQ(WordsOf(plan.forward), naive.Forward());
      EXPECT_EQ(WordsOf(plan.backward), naive.Backward());
    }
  }
  return count;
}

TEST(PlanNaiveTest, LoopsAreWhatTheirLayersDo) {
  std::mt19937_64 random(20261127);
  int count = 0;
  const int jobs = Rounds(1000);
  for (int i = 0; i < jobs && !HasFailure(); ++i) {
    JobSpec spec = i % 4 == 0 ? RandomDispatchedJob(random) : RandomJob(random);
    count += Compare(ProgramOf(spec));
  }
  EXPECT_GE(count, jobs);
}

// Layers of one rule each, which together are all: 18 at least, as many as a range below ends at.
std::vector<std::vector<LayerSet>> AnyRules() {
  LayerSet some;
  LayerSet others;
  for (int64_t i = 0; i < 18; ++i) (i % 7 < 3 || i == 11 ? some : others).List(i);
  return {{{}},
          {{.begin = 3}, {.end = 3}},
          {{.period = 2}, {.period = 2, .from = 1, .to = 2}},
          {{.period = 3, .from = 1, .to = 3}, {.period = 3}},
          {{.end = 2},
           {.begin = 2, .period = 4, .to = 3},
           {.begin = 2, .period = 4, .from = 3, .to = 4}},
          {some, others}};
}

Program ProgramOfKinds(const std::vector<LayerSet>& kinds) {
  Program program = HandProgram(1);
  const Block layer = program.blocks[1];
  program.blocks[1].layers = kinds[0];
  for (size_t i = 1; i < kinds.size(); ++i) {
    program.blocks.push_back(layer);
    program.blocks.back().layers = kinds[i];
  }
  return program;
}

// One to three virtual stages of layers from anywhere in the network.
Stage AnyStage(std::mt19937_64& random) {
  Stage stage;
  const size_t chunks = 1 + random() % 3;
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    const auto begin = static_cast<int64_t>(random() % 9);
    const auto count = static_cast<int64_t>(random() % 9);
    stage.virtual_stages.push_back({begin, count});
    stage.layer_count += count;
  }
  stage.embedding = random() % 2 == 0;
  stage.head = random() % 2 == 0;
  return stage;
}

// Where there is one kind, recomputed by any unit.
TEST(PlanNaiveTest, AnyLayersOfAnyKinds) {
  std::mt19937_64 random(20261128);
  const auto rules = AnyRules();
  for (int i = 0; i < Rounds(3000) && !HasFailure(); ++i) {
    const auto& kinds = rules[random() % rules.size()];
    Program program = ProgramOfKinds(kinds);
    if (kinds.size() == 1) program.blocks[1].recompute_unit = static_cast<int64_t>(random() % 5);
    program.blocks[1].reduce_bytes = static_cast<int64_t>(random() % 2);
    program.ends_are_one_group = random() % 2 == 0;
    program.stages[0] = AnyStage(random);
    EXPECT_GE(Compare(program), 1);
  }
}

// Blocks of a plan are those that it runs forward, of either network: each layer once.
TEST(PlanNaiveTest, BlocksOfEitherNetwork) {
  Program program = HandProgram(3);
  program.reference = program.blocks;
  const Plan plan = PlanPair(program, program.stages[0]);
  for (const bool reference : {false, true}) {
    std::vector<int32_t> layers;
    for (const StageBlock& at : BlocksOf(plan, reference)) layers.push_back(at.layer);
    // The reference's head runs when its layers have, as the network's does.
    EXPECT_EQ(layers, (std::vector<int32_t>{-1, 0, 1, 2, -1})) << reference;
  }
}

// Nothing is behind the embedding, the embedding behind layer 0, and behind each layer the kind
// that the one before it is.
TEST(PlanNaiveTest, WhatIsGatheredBehindABlock) {
  Program program = HandProgram(4);
  program.blocks[0].gathered = {50, 5};
  program.blocks[1].gathered = {100, 10};
  program.blocks[1].layers = {.period = 2};
  Block odd = program.blocks[1];
  odd.gathered = {200, 20};
  odd.layers = Others(program.blocks[1].layers);
  program.blocks.push_back(odd);
  const struct {
    StageBlock at;
    int64_t bytes;
  } rows[] = {{{0, -1}, 0}, {{1, 0}, 50}, {{3, 1}, 100}, {{1, 2}, 200}, {{3, 3}, 100}};
  for (const auto& row : rows) {
    EXPECT_EQ(GatheredBehind(program, row.at).bytes, row.bytes) << row.at.layer;
    EXPECT_EQ(GatheredBehind(program, row.at).input_bytes, row.bytes / 10) << row.at.layer;
  }
}

// The second of two virtual stages of 2 and 3 layers begins at layer 2, has no embedding, and
// sends nothing on when it has the head.
TEST(PlanNaiveTest, AVirtualStageAsAStage) {
  Stage stage = WholeStage(5);
  stage.virtual_stages = {{4, 2}, {10, 3}};
  stage.edge_bytes = 9;
  const Stage first = VirtualStage(stage, 0);
  EXPECT_EQ(first.layer_count, 2);
  EXPECT_TRUE(first.embedding && !first.head);
  EXPECT_EQ(first.edge_bytes, 9);
  const Stage last = VirtualStage(stage, 1);
  EXPECT_EQ(last.layer_count, 3);
  EXPECT_TRUE(!last.embedding && last.head);
  EXPECT_EQ(last.edge_bytes, 0);
  EXPECT_EQ(last.virtual_stages[0], (LayerRange{10, 3}));
  EXPECT_EQ(FirstLayer(stage, 0), 0);
  EXPECT_EQ(FirstLayer(stage, 1), 2);
}

// Five layers of units of two, of which gradients are reduced: the last unit has one.
TEST(PlanNaiveTest, AUnitThatIsReducedInWords) {
  Program program = HandProgram(5);
  program.blocks[1].recompute_unit = 2;
  program.blocks[1].reduce_bytes = 14;
  EXPECT_EQ(absl::StrCat("\n", Describe(program, PlanPair(program, program.stages[0]))),
            R"(
begin forward
gather embedding, forward embedding
2 times: gather layer, forward layer, gather layer, forward layer
gather layer, forward layer
begin loss
gather head, forward head
send
begin loss
gather head, backward head, grow head
begin backward
gather layer, again layer, backward layer, reduce layer, grow layer
)"
            "2 times: gather layer, again layer, again layer, "
            "backward layer, reduce layer, grow layer, gather layer, "
            "backward layer, reduce layer, grow layer\n"
            "gather embedding, backward embedding, grow embedding\n");
}

// Of seven layers the first two are dense, and every second from there on sees a window: layers
// 2, 4 and 6 of the network.
TEST(PlanNaiveTest, ThreeKindsOfLayersInWords) {
  Program program = HandProgram(7);
  Block dense = program.blocks[1];
  dense.name = "dense";
  dense.layers = {.end = 2};
  Block windowed = program.blocks[1];
  windowed.name = "windowed";
  windowed.layers = {.begin = 2, .period = 2};
  program.blocks[1].layers = {.begin = 2, .period = 2, .from = 1, .to = 2};
  program.blocks.push_back(dense);
  program.blocks.push_back(windowed);
  Stage stage = program.stages[0];
  stage.head = false;
  EXPECT_EQ(absl::StrCat("\n", Describe(program, PlanPair(program, stage))),
            R"(
begin forward
gather embedding, forward embedding
2 times: gather dense, forward dense
2 times: gather windowed, forward windowed, gather layer, forward layer
gather windowed, forward windowed
send
begin backward
receive
gather windowed, backward windowed, grow windowed
)"
            "2 times: gather layer, backward layer, grow layer, "
            "gather windowed, backward windowed, grow windowed\n"
            "2 times: gather dense, backward dense, grow dense\n"
            "gather embedding, backward embedding, grow embedding\n");
}

}  // namespace
}  // namespace plimsoll
