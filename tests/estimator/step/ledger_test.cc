// Lifetimes on blocks made by hand: each tensor has as many bytes as its name
// says, so that every sum can be checked in the head.
#include "estimator/step/ledger.h"

#include <initializer_list>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

constexpr auto kFused = WeightGradient::kFused;

// A block of tensors of one byte an element.
class Hand {
 public:
  TensorId Make(absl::string_view name, int64_t bytes, Role role = Role::kActivation) {
    const auto id = static_cast<TensorId>(block_.tensors.size());
    Tensor tensor;
    tensor.name = name;
    tensor.shape.rank = 1;
    tensor.shape.extents[0].size = bytes;
    tensor.dtype = DType::kFp8;
    tensor.role = role;
    tensor.storage = id;
    block_.tensors.push_back(tensor);
    return id;
  }
  TensorId View(absl::string_view name, TensorId storage, int64_t bytes) {
    const TensorId id = Make(name, bytes);
    block_.tensors[id].storage = storage;
    return id;
  }
  TensorId Weight(int64_t elements) {
    const auto id = static_cast<TensorId>(block_.parameters.size());
    Parameter parameter;
    parameter.shape.rank = 1;
    parameter.shape.extents[0].size = elements;
    block_.parameters.push_back(parameter);
    return id;
  }
  Op& Then(absl::string_view name, Ids inputs, Ids outputs, Ids saved) {
    Op op;
    op.name = name;
    op.inputs = inputs;
    op.outputs = outputs;
    op.saved = saved;
    block_.ops.push_back(op);
    return block_.ops.back();
  }
  Block& Between(TensorId input, TensorId output) {
    block_.input = input;
    block_.output = output;
    return block_;
  }
  Block& block() { return block_; }

 private:
  Block block_;
};

BlockRun RunFused(const Block& block) { return plimsoll::Run(block, kFused, DType::kFp8); }

TEST(LedgerTest, KeepsWhatIsSavedAndNoMore) {
  Hand hand;
  const TensorId x = hand.Make("x", 10);
  const TensorId a = hand.Make("a", 20);
  const TensorId y = hand.Make("y", 40);
  hand.Then("f", {x}, {a}, {x});
  hand.Then("g", {a}, {y}, {a});
  const BlockRun run = RunFused(hand.Between(x, y));
  EXPECT_EQ(run.kept.total, 10 + 20);
  EXPECT_EQ(run.forward.total, 10 + 20 + 40);
  EXPECT_EQ(run.backward.whole.total, 10 + 20 + 40 + 20) << "kept, y's gradient, a's gradient";
  EXPECT_EQ(run.kept.roles[static_cast<size_t>(Role::kActivation)], 30);
  EXPECT_EQ(run.backward.whole.roles[static_cast<size_t>(Role::kTemporary)], 40 + 20);
}

TEST(LedgerTest, WhatNothingSavesIsGone) {
  Hand hand;
  const TensorId x = hand.Make("x", 10);
  const TensorId a = hand.Make("a", 20);
  const TensorId b = hand.Make("b", 20);
  const TensorId y = hand.Make("y", 10);
  hand.Then("f", {x}, {a}, {});
  hand.Then("g", {a}, {b}, {});
  hand.Then("h", {b}, {y}, {});
  const BlockRun run = RunFused(hand.Between(x, y));
  EXPECT_EQ(run.kept.total, 0);
  EXPECT_EQ(run.forward.total, 20 + 20) << "one and the next";
}

TEST(LedgerTest, ATensorThatTwoOpsSaveCountsOnce) {
  Hand hand;
  const TensorId x = hand.Make("x", 10);
  const TensorId a = hand.Make("a", 3);
  const TensorId b = hand.Make("b", 4);
  const TensorId y = hand.Make("y", 5);
  hand.Then("f", {x}, {a}, {x});
  hand.Then("g", {x}, {b}, {x});
  hand.Then("h", {a, b}, {y}, {a, b});
  EXPECT_EQ(RunFused(hand.Between(x, y)).kept.total, 10 + 3 + 4);
}

// One of three views is saved: all of what is behind them stays.
TEST(LedgerTest, AViewPinsItsStorage) {
  Hand hand;
  const TensorId x = hand.Make("x", 10);
  const TensorId packed = hand.Make("packed", 30);
  const TensorId query = hand.View("query", packed, 10);
  const TensorId key = hand.View("key", packed, 10);
  const TensorId y = hand.Make("y", 10);
  hand.Then("project", {x}, {packed}, {});
  hand.Then("split", {packed}, {query, key}, {});
  hand.Then("use", {query}, {y}, {query});
  const BlockRun run = RunFused(hand.Between(x, y));
  EXPECT_EQ(run.kept.total, 30);
  EXPECT_EQ(run.forward.total, 10 + 30) << "views are no memory of their own";
}

// A Python local holds a tensor until the block returns; backward has no use for it.
TEST(LedgerTest, AHeldTensorLivesUntilTheBlockReturns) {
  for (const bool held : {false, true}) {
    Hand hand;
    const TensorId x = hand.Make("x", 10);
    const TensorId a = hand.Make("a", 100);
    const TensorId b = hand.Make("b", 10);
    const TensorId c = hand.Make("c", 10);
    const TensorId y = hand.Make("y", 50);
    hand.Then("f", {x}, {a}, {});
    hand.Then("g", {a}, {b}, {});
    hand.Then("h", {b}, {c}, {});
    hand.Then("i", {c}, {y}, {});
    hand.block().tensors[a].held = held;
    const BlockRun run = RunFused(hand.Between(x, y));
    EXPECT_EQ(run.forward.total, held ? 100 + 10 + 50 : 10 + 100) << held;
    EXPECT_EQ(run.kept.total, 0) << held;
  }
}

TEST(LedgerTest, TemporariesLiveWhileTheirOpRuns) {
  Hand hand;
  const TensorId x = hand.Make("x", 10);
  const TensorId y = hand.Make("y", 10);
  const TensorId forward = hand.Make("forward", 100, Role::kTemporary);
  const TensorId backward = hand.Make("backward", 200, Role::kCommunication);
  Op& op = hand.Then("f", {x}, {y}, {x});
  op.forward_temporaries = {forward};
  op.backward_temporaries = {backward};
  const BlockRun run = RunFused(hand.Between(x, y));
  EXPECT_EQ(run.forward.total, 10 + 10 + 100);
  EXPECT_EQ(run.kept.total, 10);
  EXPECT_EQ(run.backward.whole.total, 10 + 10 + 200 + 10)
      << "x, y's gradient, temporary, x's gradient";
  EXPECT_EQ(run.backward.whole.roles[static_cast<size_t>(Role::kCommunication)], 200);
}

// y = x + f(x): the sum hands its own gradient on, f's is a second one.
TEST(LedgerTest, AResidualSumSharesGradients) {
  Hand hand;
  const TensorId x = hand.Make("x", 10);
  const TensorId f = hand.Make("f", 10);
  const TensorId y = hand.Make("y", 10);
  hand.Then("f", {x}, {f}, {x});
  hand.Then("sum", {x, f}, {y}, {}).input_gradient = InputGradient::kShared;
  const BlockRun run = RunFused(hand.Between(x, y));
  EXPECT_EQ(run.kept.total, 10);
  EXPECT_EQ(run.backward.whole.total, 10 + 10 + 10) << "x, the shared gradient, f's for x";
  hand.block().ops[1].input_gradient = InputGradient::kFresh;
  EXPECT_EQ(RunFused(hand.block()).backward.whole.total, 10 + 30) << "one each";
}

// Megatron's cross entropy writes the logits' gradient over the softmax.
TEST(LedgerTest, AnInPlaceGradientIsNoNewMemory) {
  for (const bool in_place : {true, false}) {
    Hand hand;
    const TensorId x = hand.Make("x", 10);
    const TensorId logits = hand.Make("logits", 100, Role::kLoss);
    const TensorId loss = hand.Make("loss", 1, Role::kLoss);
    hand.Then("head", {x}, {logits}, {x});
    Op& op = hand.Then("loss", {logits}, {loss}, {logits});
    if (in_place) op.input_gradient = InputGradient::kInPlace;
    hand.block().kind = BlockKind::kHead;
    const BlockRun run = RunFused(hand.Between(x, kNoTensor));
    EXPECT_EQ(run.backward.whole.total, in_place ? 10 + 100 + 10 : 10 + 100 + 100) << in_place;
  }
}

TEST(LedgerTest, WhatIsNotDifferentiableGetsNoGradient) {
  Hand hand;
  const TensorId x = hand.Make("x", 10);
  const TensorId y = hand.Make("y", 10);
  const TensorId mask = hand.Make("mask", 5);
  hand.Then("dropout", {x}, {y, mask}, {mask});
  hand.block().tensors[mask].differentiable = false;
  EXPECT_EQ(RunFused(hand.Between(x, y)).backward.whole.total, 5 + 10 + 10);
  hand.block().tensors[x].differentiable = false;
  EXPECT_EQ(RunFused(hand.block()).backward.whole.total, 5 + 10);
}

TEST(LedgerTest, GradientsOfWeightsStayDieOrAreNeverBorn) {
  Hand hand;
  const TensorId x = hand.Make("x", 10);
  const TensorId a = hand.Make("a", 10);
  const TensorId y = hand.Make("y", 10);
  hand.Then("f", {x}, {a}, {x}).parameters = {hand.Weight(100)};
  hand.Then("g", {a}, {y}, {a}).parameters = {hand.Weight(50)};
  const Block& block = hand.Between(x, y);
  const auto backward = [&block](WeightGradient fate) {
    return plimsoll::Run(block, fate, DType::kBf16).backward.whole;
  };
  EXPECT_EQ(backward(WeightGradient::kFused).total, 20 + 10 + 10);
  EXPECT_EQ(backward(WeightGradient::kAdded).total, 10 + 10 + 10 + 2 * 100) << "f's alone";
  EXPECT_EQ(backward(WeightGradient::kKept).total, 10 + 10 + 10 + 2 * 150) << "f's beside g's";
  EXPECT_EQ(backward(WeightGradient::kKept).roles[static_cast<size_t>(Role::kGradient)], 300);
  EXPECT_EQ(backward(WeightGradient::kAdded).roles[static_cast<size_t>(Role::kGradient)], 0);
}

// What is born in backward, in its order: a weight's gradient by the weight's name, a tensor's by
// the tensor's. The output's gradient, which is given, is left out.
std::string BornInBackward(const Block& block) {
  const Tape tape = Record(block, WeightGradient::kKept, DType::kBf16);
  std::string born;
  for (size_t i = tape.again_end; i < tape.events.size(); ++i) {
    const TapeEvent& event = tape.events[i];
    if (event.kind != TapeEventKind::kBirth || event.piece == tape.output_gradient) continue;
    const TapePiece& piece = tape.pieces[static_cast<size_t>(event.piece)];
    const absl::string_view name =
        piece.tensor == kNoTensor ? piece.suffix : block.tensors[piece.tensor].name;
    absl::StrAppend(&born, born.empty() ? "" : " ", name);
  }
  return born;
}

// Two products, each with a workspace. Of mm autograd multiplies for the weight first, of addmm for
// what was read, as a framework's own linear layer does.
TEST(LedgerTest, EachProductHasItsWorkspace) {
  Hand hand;
  const TensorId x = hand.Make("x", 10);
  const TensorId y = hand.Make("y", 10);
  const TensorId workspace = hand.Make("workspace", 1000, Role::kWorkspace);
  const TensorId weight = hand.Weight(100);
  const TensorId bias = hand.Weight(5);
  Op& op = hand.Then("product", {x}, {y}, {x});
  op.kind = OpKind::kMatrixProduct;
  op.workspace = workspace;
  op.forward_workspace = hand.Make("workspace forward", 30, Role::kWorkspace);
  op.parameters = {weight};
  Block& block = hand.Between(x, y);
  block.parameters[weight].name = "weight";
  block.parameters[weight].shape.rank = 2;
  block.parameters[weight].shape.extents[1].size = 1;
  block.parameters[bias].name = "bias";
  EXPECT_EQ(BornInBackward(block), "weight workspace x workspace");
  const BlockRun run = plimsoll::Run(block, WeightGradient::kKept, DType::kBf16);
  EXPECT_EQ(run.forward.total, 10 + 10 + 30);
  EXPECT_EQ(run.backward.whole.total, 10 + 10 + 200 + 10 + 1000)
      << "x, y's gradient, both, the last's";
  block.ops[0].parameters = {weight, bias};
  EXPECT_EQ(BornInBackward(block), "x workspace weight bias workspace");
  block.ops[0].parameters = {weight};
  block.own_products = true;
  EXPECT_EQ(BornInBackward(block), "x workspace weight workspace");
  block.own_products = false;
  block.tensors[x].differentiable = false;
  EXPECT_EQ(BornInBackward(block), "weight workspace");
}

// A bias's gradient is summed up behind the products; where layers run again, when what backward
// read is gone.
TEST(LedgerTest, ASumOfRowsHasAWorkspace) {
  const auto peak = [](int64_t sum, bool again) {
    Hand hand;
    const TensorId x = hand.Make("x", 10);
    const TensorId a = hand.Make("a", 200);
    const TensorId y = hand.Make("y", 10);
    hand.Then("f", {x}, {a}, {x});
    const TensorId workspace = hand.Make("workspace", 100, Role::kWorkspace);
    const TensorId of_sum = hand.Make("workspace.sum", sum, Role::kWorkspace);
    const TensorId bias = hand.Weight(5);
    Op& op = hand.Then("product", {a}, {y}, {a});
    op.kind = OpKind::kMatrixProduct;
    op.parameters = {bias};
    op.workspace = workspace;
    op.sum_workspace = of_sum;
    Block& block = hand.Between(x, y);
    block.recompute_unit = again ? 1 : 0;
    block.stops_early = again;
    return plimsoll::Run(block, WeightGradient::kKept, DType::kFp8).backward.whole.total;
  };
  constexpr int64_t kBeside = 10 + 10 + 200 + 5;  // x, gradients of y, a and the bias
  EXPECT_EQ(peak(1000, false), kBeside + 200 + 1000);
  EXPECT_EQ(peak(1000, true), kBeside + 1000);
  EXPECT_EQ(peak(50, false), kBeside + 200 + 100) << "one workspace after the other";
  EXPECT_EQ(peak(50, true), kBeside + 200 + 100);
}

// What its input's gradient is given from is there while that is made, and gone before what else
// the op makes.
TEST(LedgerTest, AGradientIsGivenFromATemporary) {
  Hand hand;
  const TensorId x = hand.Make("x", 10);
  const TensorId y = hand.Make("y", 20);
  Op& op = hand.Then("f", {x}, {y}, {});
  op.gives_first = true;
  op.given_from = hand.Make("half", 100);
  op.backward_temporaries = {hand.Make("slice", 60)};
  Block& block = hand.Between(x, y);
  EXPECT_EQ(BornInBackward(block), "half x slice");
  EXPECT_EQ(RunFused(block).backward.whole.total, 20 + 100 + 10);
  block.tensors[op.backward_temporaries.ids[0]].shape.extents[0].size = 130;
  EXPECT_EQ(RunFused(block).backward.whole.total, 20 + 10 + 130);
}

// Three products of x give its gradient three times. The first is a view, so that the sum with the
// second is a tensor of its own; the third is added in place.
TEST(LedgerTest, TheFirstSumOfViewsIsATensorOfItsOwn) {
  Hand hand;
  const TensorId x = hand.Make("x", 100);
  Ids products;
  for (const char* const name : {"q", "k", "v"}) {
    products.Add(hand.Make(name, 10));
    hand.Then(name, {x}, {products.ids[products.count - 1]}, {x}).kind = OpKind::kMatrixProduct;
  }
  const TensorId y = hand.Make("y", 10);
  hand.Then("sum", products, {y}, {}).input_gradient = InputGradient::kShared;
  Block& block = hand.Between(x, y);
  EXPECT_EQ(BornInBackward(block), "x x x x");
  block.own_products = true;
  EXPECT_EQ(BornInBackward(block), "x x x");
}

// A segment keeps what it reads, and makes the rest again.
TEST(LedgerTest, ARecomputedSegmentKeepsItsInputs) {
  Hand hand;
  const TensorId x = hand.Make("x", 10);
  const TensorId scores = hand.Make("scores", 100);
  const TensorId softmax = hand.Make("softmax", 100);
  const TensorId y = hand.Make("y", 10);
  hand.Then("scores", {x}, {scores}, {x});
  hand.Then("softmax", {scores}, {softmax}, {softmax});
  hand.Then("context", {softmax}, {y}, {softmax});
  Block& block = hand.Between(x, y);
  EXPECT_EQ(RunFused(block).kept.total, 10 + 100);
  for (Op& op : block.ops) op.segment = 1;
  const BlockRun run = RunFused(block);
  EXPECT_EQ(run.kept.total, 10);
  EXPECT_GE(run.backward.whole.total, 10 + 100 + 10 + 100) << "softmax again, with its gradient";
}

// Only the output goes; the op runs again from what it keeps anyway.
TEST(LedgerTest, ADiscardedOutputIsMadeAgainInBackward) {
  Hand hand;
  const TensorId x = hand.Make("x", 10);
  const TensorId norm = hand.Make("norm", 40);
  const TensorId y = hand.Make("y", 10);
  hand.Then("norm", {x}, {norm}, {x});
  hand.Then("project", {norm}, {y}, {norm});
  Block& block = hand.Between(x, y);
  const BlockRun whole = RunFused(block);
  block.tensors[norm].discarded = true;
  const BlockRun run = RunFused(block);
  EXPECT_EQ(whole.kept.total, 10 + 40);
  EXPECT_EQ(run.kept.total, 10);
  EXPECT_EQ(run.forward.total, whole.forward.total);
  EXPECT_EQ(run.backward.whole.total, whole.backward.whole.total);
}

TEST(LedgerTest, ARecomputedBlockKeepsItsInputAlone) {
  Hand hand;
  const TensorId x = hand.Make("x", 10);
  const TensorId a = hand.Make("a", 20);
  const TensorId b = hand.Make("b", 30);
  const TensorId y = hand.Make("y", 10);
  hand.Then("f", {x}, {a}, {x});
  hand.Then("g", {a}, {b}, {a});
  hand.Then("h", {b}, {y}, {b});
  Block& block = hand.Between(x, y);
  const BlockRun whole = RunFused(block);
  block.recompute_unit = 1;
  const BlockRun run = RunFused(block);
  EXPECT_EQ(whole.kept.total, 10 + 20 + 30);
  EXPECT_EQ(run.kept.total, 10);
  EXPECT_EQ(run.forward.total, 10 + 20 + 30) << "x stays, others go as they are used";
  EXPECT_EQ(run.backward.whole.total, whole.backward.whole.total);
  EXPECT_EQ(run.unit.total, whole.kept.total) << "each further layer of a unit";
}

// Three ops, of which the last saves nothing: its gradient is there before forward runs again,
// which ends where the second has saved what it reads.
Block& EarlyStop(Hand& hand) {
  const TensorId x = hand.Make("x", 10);
  const TensorId a = hand.Make("a", 20);
  const TensorId b = hand.Make("b", 300);
  const TensorId y = hand.Make("y", 10);
  hand.Then("f", {x}, {a}, {x});
  hand.Then("g", {a}, {b}, {a});
  hand.Then("h", {b}, {y}, {});
  Block& block = hand.Between(x, y);
  block.recompute_unit = 1;
  return block;
}

TEST(LedgerTest, ABlockThatStopsEarlyMakesNoMoreThanWasSaved) {
  Hand hand;
  Block& block = EarlyStop(hand);
  const BlockRun whole = RunFused(block);
  EXPECT_EQ(whole.again.total, 10 + 10 + 20 + 300 + 10) << "input, gradient, a, b and y";
  block.stops_early = true;
  const BlockRun run = RunFused(block);
  EXPECT_EQ(run.kept.total, whole.kept.total);
  EXPECT_EQ(run.forward.total, whole.forward.total);
  EXPECT_EQ(run.again.total, 10 + 300 + 20) << "input, b's gradient, a; b is not made";
  EXPECT_EQ(run.backward.whole.total, 10 + 300 + 20 + 20) << "and a's gradient";
}

// An op that saves what it gives has to run.
TEST(LedgerTest, ABlockThatStopsEarlyRunsAnOpThatSavesWhatItGives) {
  Hand hand;
  Block& block = EarlyStop(hand);
  block.stops_early = true;
  block.ops[1].saved = {block.ops[1].outputs.ids[0]};
  EXPECT_EQ(RunFused(block).again.total, 10 + 300 + 20 + 300);
}

// A gradient that is a cast of a temporary: hooks have let go of what was saved by then.
TEST(LedgerTest, HooksLetGoBeforeGradientsAreCast) {
  const auto peak = [](bool casts) {
    Hand hand;
    const TensorId x = hand.Make("x", 10);
    const TensorId a = hand.Make("a", 200);
    const TensorId y = hand.Make("y", 10);
    const TensorId wide = hand.Make("wide", 400);
    hand.Then("f", {x}, {a}, {x});
    Op& op = hand.Then("g", {a}, {y}, {a});
    op.backward_temporaries = {wide};
    op.casts_gradients = casts;
    Block& block = hand.Between(x, y);
    block.recompute_unit = 1;
    block.stops_early = true;
    return RunFused(block).backward.whole.total;
  };
  EXPECT_EQ(peak(false), 10 + 10 + 200 + 400 + 200);
  EXPECT_EQ(peak(true), 10 + 10 + 400 + 200);
}

TEST(LedgerTest, HolesAreAddedUp) {
  Hand hand;
  const TensorId x = hand.Make("x", 10);
  const TensorId a = hand.Make("a", 20);
  const TensorId y = hand.Make("y", 10);
  hand.Then("f", {x}, {a}, {x});
  hand.Then("g", {a}, {y}, {});
  EXPECT_EQ(RunFused(hand.Between(x, y)).hole_bytes, 0);
  hand.block().tensors[a].leaves_hole = true;
  EXPECT_EQ(RunFused(hand.block()).hole_bytes, 20);
}

// What people read: each storage with its birth, its death, and whether it is kept.
TEST(LedgerTest, LogsEveryStorage) {
  Hand hand;
  const TensorId x = hand.Make("x", 10);
  const TensorId a = hand.Make("a", 20);
  const TensorId y = hand.Make("y", 40);
  hand.Then("f", {x}, {a}, {x});
  hand.Then("g", {a}, {y}, {});
  std::vector<Storage> storages;
  plimsoll::Run(hand.Between(x, y), kFused, DType::kFp8, &storages);
  struct Row {
    TensorId tensor;
    absl::string_view suffix;
    int64_t bytes;
    bool kept;
  };
  const Row rows[] = {{x, "", 10, true},           {a, "", 20, false},
                      {y, "", 40, false},          {y, ".gradient", 40, false},
                      {a, ".gradient", 20, false}, {x, ".gradient", 10, false}};
  ASSERT_EQ(storages.size(), std::size(rows));
  for (size_t i = 0; i < storages.size(); ++i) {
    EXPECT_EQ(storages[i].tensor, rows[i].tensor) << i;
    EXPECT_EQ(storages[i].suffix, rows[i].suffix) << i;
    EXPECT_EQ(storages[i].bytes, rows[i].bytes) << i;
    EXPECT_EQ(storages[i].kept, rows[i].kept) << i;
    EXPECT_LE(storages[i].birth, storages[i].death) << i;
  }
  EXPECT_EQ(storages[1].death, 1) << "a dies with g";
  EXPECT_EQ(storages[0].death, 3) << "x with the backward of f: the fourth of four";
}

// On the blocks of every framework: what is kept was there in forward, backward
// begins with it, and the log of what is kept adds up to it.
TEST(LedgerTest, HoldsOnRealBlocks) {
  for (const char* framework :
       {"ddp", "fsdp2", "deepspeed", "megatron-core", "megatron-lm", "nanotron"}) {
    for (const char* attention : {"eager", "flash"}) {
      JobSpec job = With(ClassicJob(), framework);
      job.training.attention = attention;
      const Program program = ProgramOf(job);
      for (const Block& block : program.blocks) {
        std::vector<Storage> storages;
        const BlockRun run =
            plimsoll::Run(block, program.weight_gradient, program.gradient_dtype, &storages);
        EXPECT_LE(run.kept.total, run.forward.total) << framework << " " << block.name;
        EXPECT_LE(run.kept.total, run.backward.whole.total) << framework << " " << block.name;
        int64_t kept = 0;
        for (const Storage& storage : storages) kept += storage.kept ? storage.bytes : 0;
        EXPECT_EQ(kept, run.kept.total) << framework << " " << block.name;
        int64_t roles = 0;
        for (int64_t bytes : run.backward.whole.roles) {
          EXPECT_GE(bytes, 0) << framework << " " << block.name;
          roles += bytes;
        }
        EXPECT_EQ(roles, run.backward.whole.total) << framework << " " << block.name;
      }
    }
  }
}

// Whatever runs again, a piece that a layer makes dies once; what its neighbours share is theirs.
TEST(LedgerTest, EveryPieceDiesOnce) {
  std::mt19937_64 random(31);
  int remade = 0;
  for (int i = 0; i < Rounds(200) && !HasFailure(); ++i) {
    const JobSpec job = RandomDispatchedJob(random);
    const Program program = ProgramOf(job);
    for (const Block& block : program.blocks) {
      for (const Op& op : block.ops) remade += op.remakes != 0 ? 1 : 0;
      const Tape tape = Record(block, kFused, program.gradient_dtype);
      std::vector<int> lives(tape.pieces.size());
      for (const TapeEvent& event : tape.events) {
        if (event.kind == TapeEventKind::kBirth) ++lives[event.piece];
        if (event.kind == TapeEventKind::kDeath) lives[event.piece] += 1000;
      }
      for (const int16_t shared : {tape.input, tape.output, tape.output_again, tape.output_gradient,
                                   tape.input_gradient}) {
        if (shared >= 0) lives[shared] = 1001;
      }
      for (size_t k = 0; k < lives.size(); ++k) {
        const TensorId id = tape.pieces[k].tensor;
        EXPECT_EQ(lives[k], 1001) << block.name << " "
                                  << (id == kNoTensor ? "a parameter's" : block.tensors[id].name)
                                  << tape.pieces[k].suffix;
      }
    }
  }
  EXPECT_GT(remade, Rounds(50));
}

}  // namespace
}  // namespace plimsoll
