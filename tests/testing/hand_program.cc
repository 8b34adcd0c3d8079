#include "tests/testing/hand_program.h"

#include "absl/strings/str_cat.h"

namespace plimsoll {
namespace {

constexpr Alive kFromFirstStep = During(Phase::kOptimizer, Phase::kEndOfStep, true, false) |
                                 During(Phase::kForward, Phase::kEndOfStep, false, true);

Block HandEmbedding() {
  HandBlock hand("embedding", BlockKind::kEmbedding);
  const TensorId tokens = hand.Make("tokens", 8);
  const TensorId out = hand.Make("e", 100);
  hand.Then("lookup", {tokens}, {out}, {tokens});
  Block block = hand.Between(tokens, out);
  block.tensors[tokens].differentiable = false;
  return block;
}

Block HandLayer() {
  HandBlock hand("layer", BlockKind::kLayer);
  const TensorId x = hand.Make("x", 100);
  const TensorId a = hand.Make("a", 300);
  const TensorId y = hand.Make("y", 100);
  hand.Then("up", {x}, {a}, {x}).parameters = {hand.Weight("w", 7)};
  hand.Then("down", {a}, {y}, {a});
  return hand.Between(x, y);
}

Block HandHead() {
  HandBlock hand("head", BlockKind::kHead);
  const TensorId x = hand.Make("h", 100);
  const TensorId logits = hand.Make("l", 500, Role::kLoss);
  const TensorId loss = hand.Make("loss", 1, Role::kLoss);
  hand.Then("head", {x}, {logits}, {x});
  hand.Then("loss", {logits}, {loss}, {logits});
  return hand.Between(x, kNoTensor);
}

State FixedState(absl::string_view name, Role role, int64_t bytes, Alive alive) {
  State state;
  state.name = name;
  state.role = role;
  state.basis = Basis::kBytes;
  state.fixed_bytes = bytes;
  state.alive = alive;
  return state;
}

absl::string_view PhaseWord(size_t phase) {
  constexpr absl::string_view kWords[] = {"forward",   "loss",      "backward",
                                          "reduction", "optimizer", "end"};
  return kWords[phase];
}

}  // namespace

HandBlock::HandBlock(absl::string_view name, BlockKind kind) {
  block_.name = name;
  block_.kind = kind;
}

TensorId HandBlock::Make(absl::string_view name, int64_t bytes, Role role) {
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

TensorId HandBlock::Weight(absl::string_view name, int64_t elements) {
  const auto id = static_cast<TensorId>(block_.parameters.size());
  Parameter parameter;
  parameter.name = name;
  parameter.shape.rank = 1;
  parameter.shape.extents[0].size = elements;
  block_.parameters.push_back(parameter);
  return id;
}

Op& HandBlock::Then(absl::string_view name, Ids inputs, Ids outputs, Ids saved) {
  Op op;
  op.name = name;
  op.inputs = inputs;
  op.outputs = outputs;
  op.saved = saved;
  block_.ops.push_back(op);
  return block_.ops.back();
}

Block HandBlock::Between(TensorId input, TensorId output) {
  block_.input = input;
  block_.output = output;
  return block_;
}

Program HandProgram(int64_t layers) {
  Program program;
  program.blocks = {HandEmbedding(), HandLayer(), HandHead()};
  program.states = {FixedState("weights", Role::kWeight, 1000, kAlways),
                    FixedState("momentum", Role::kOptimizerState, 2000, kFromFirstStep)};
  program.weight_gradient = WeightGradient::kFused;
  Stage stage;
  stage.layer_count = layers;
  stage.virtual_stages = {{0, layers}};
  stage.embedding = stage.head = true;
  program.stages = {stage};
  return program;
}

Job HandJob() { return Job(); }

std::string StepInWords(const Timeline& timeline, int step) {
  std::string text;
  int now = 0;
  for (const TimelineEvent& event : timeline.events) {
    if (event.kind == TimelineEventKind::kPhase) {
      now = event.value / static_cast<int>(kPhaseCount);
      if (now != step) continue;
      const size_t phase = static_cast<size_t>(event.value) % kPhaseCount;
      absl::StrAppend(&text, text.empty() ? "" : "\n", PhaseWord(phase), ":");
    } else if (now == step) {
      const TimelineStorage& storage = timeline.storages[static_cast<size_t>(event.value)];
      absl::StrAppend(&text, event.kind == TimelineEventKind::kBirth ? " +" : " -", storage.name,
                      storage.suffix);
      if (storage.layer >= 0) absl::StrAppend(&text, "@", storage.layer);
    }
  }
  return text;
}

}  // namespace plimsoll
