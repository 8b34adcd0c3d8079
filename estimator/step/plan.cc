#include "estimator/step/plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace plimsoll {
namespace {

using Network = std::pmr::vector<Block>;

// Layers [begin, end) of a virtual stage, of which each `period` is like the one before.
struct Span {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t period = 1;
};

using Spans = absl::InlinedVector<Span, 4>;

LayerRange LayersOf(const Stage& chunk) {
  return chunk.virtual_stages.empty() ? LayerRange{0, chunk.layer_count} : chunk.virtual_stages[0];
}

// After how many layers all kinds that the span has repeat.
int64_t PeriodOf(const Network& network, const Span& span, const LayerRange& range) {
  int64_t period = 1;
  for (const Block& block : network) {
    const LayerSet& layers = block.layers;
    const bool here = layers.begin <= range.begin + span.begin &&
                      span.end <= std::min(layers.end - range.begin, range.count);
    if (block.kind != BlockKind::kLayer || !here) continue;
    period = std::lcm(period, layers.Turn());
    period = std::lcm(period, std::max<int64_t>(block.recompute_unit, 1));
  }
  return period;
}

// Where in a network the kinds of layers change for good, and what repeats in between.
Spans SpansOf(const Network& network, const LayerRange& range) {
  absl::InlinedVector<int64_t, 8> cuts = {0, range.count};
  for (const Block& block : network) {
    if (block.kind != BlockKind::kLayer) continue;
    for (const int64_t end : {block.layers.begin, block.layers.end}) {
      const int64_t cut = end - range.begin;
      if (0 < cut && cut < range.count) cuts.push_back(cut);
    }
  }
  std::sort(cuts.begin(), cuts.end());
  Spans spans;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    Span span{cuts[i], cuts[i + 1], 1};
    if (span.begin == span.end) continue;
    span.period = PeriodOf(network, span, range);
    spans.push_back(span);
  }
  return spans;
}

class Planner {
 public:
  // `first_layer` is what the chunk's first layer is called.
  Planner(const Program& program, const Stage& chunk, int64_t first_layer)
      : program_(program),
        chunk_(chunk),
        first_layer_(static_cast<int32_t>(first_layer)),
        layers_(LayersOf(chunk)),
        spans_(SpansOf(program.blocks, layers_)) {}

  Plan Run() && {
    Forward();
    Backward();
    return std::move(plan_);
  }

 private:
  LayerRange ReferenceLayers() const {
    const int64_t count = program_.reference_layer_count;
    return count > 0 ? LayerRange{0, count} : layers_;
  }
  StageBlock LayerAt(int64_t layer, bool reference) const;
  StageBlock Head() const;
  void Add(SlotKind kind, const StageBlock& at = {});
  void EachOf(BlockKind kind, bool reference, absl::FunctionRef<void(const StageBlock&)> add);
  void Once(absl::FunctionRef<void()> add) { Repeat(1, 0, add); }
  void Begin(Phase phase) {
    Once([&] { slots_->slots.push_back({.kind = SlotKind::kPhase, .phase = phase}); });
  }
  void Repeat(int64_t times, int64_t stride, absl::FunctionRef<void()> add);
  void Forward();
  void ForwardLayers(bool reference, absl::FunctionRef<void(const StageBlock&)> add);
  void ForwardReference();
  void EndReference(BlockKind kind);
  void ForwardBlock(const StageBlock& at);
  void Backward();
  void BackwardLayers(int64_t begin, int64_t end);
  void BackwardBlock(const StageBlock& at, bool gathers);

  const Program& program_;
  const Stage& chunk_;
  const int32_t first_layer_;
  const LayerRange layers_;
  const Spans spans_;
  Plan plan_;
  Slots* slots_ = &plan_.forward;
};

// Layers come as the chunk counts them.
void Planner::Add(SlotKind kind, const StageBlock& at) {
  Slot slot{.kind = kind, .at = at};
  const bool kept = at.layer >= 0 && !at.reference;
  const int64_t unit = kept ? BlockAt(program_, at).recompute_unit : 1;
  if (unit > 1) {
    slot.opens = at.layer % unit == 0;
    slot.closes = at.layer % unit == unit - 1 || at.layer + 1 == chunk_.layer_count;
  }
  if (at.layer >= 0) slot.at.layer += first_layer_;
  slots_->slots.push_back(slot);
}

// Adds slots as a loop, unless it is one that never runs.
void Planner::Repeat(int64_t times, int64_t stride, absl::FunctionRef<void()> add) {
  if (times == 0) return;
  const auto first = static_cast<uint32_t>(slots_->slots.size());
  add();
  const uint32_t count = static_cast<uint32_t>(slots_->slots.size()) - first;
  if (count == 0) return;
  slots_->loops.push_back(
      {first, count, static_cast<int32_t>(times), static_cast<int32_t>(stride)});
}

StageBlock Planner::LayerAt(int64_t layer, bool reference) const {
  const Network& network = reference ? program_.reference : program_.blocks;
  const auto is = [at = layers_.begin + layer](const Block& block) {
    return block.kind == BlockKind::kLayer && block.layers.Has(at);
  };
  const auto at = std::find_if(network.begin(), network.end(), is);
  return {static_cast<uint32_t>(at - network.begin()), static_cast<int32_t>(layer), reference};
}

void Planner::EachOf(BlockKind kind, bool reference,
                     absl::FunctionRef<void(const StageBlock&)> add) {
  const Network& network = reference ? program_.reference : program_.blocks;
  for (uint32_t i = 0; i < network.size(); ++i) {
    if (network[i].kind == kind) Once([&] { add({i, -1, reference}); });
  }
}

void Planner::ForwardLayers(bool reference, absl::FunctionRef<void(const StageBlock&)> add) {
  const Spans spans = reference ? SpansOf(program_.reference, ReferenceLayers()) : spans_;
  for (const Span& span : spans) {
    const auto layers = [&](int64_t begin, int64_t end) {
      for (int64_t layer = begin; layer < end; ++layer) add(LayerAt(layer, reference));
    };
    const int64_t times = (span.end - span.begin) / span.period;  // 0 where it never repeats
    const int64_t rest = span.begin + times * span.period;
    Repeat(times, span.period, [&] { layers(span.begin, span.begin + span.period); });
    Once([&] { layers(rest, span.end); });
  }
}

void Planner::Forward() {
  slots_ = &plan_.forward;
  Begin(Phase::kForward);
  const auto run = [this](const StageBlock& at) { ForwardBlock(at); };
  if (program_.reference_first) ForwardReference();
  if (chunk_.embedding) EachOf(BlockKind::kEmbedding, false, run);
  const bool receives = !chunk_.embedding && (chunk_.layer_count > 0 || chunk_.head);
  if (receives) Once([&] { Add(SlotKind::kReceive); });
  ForwardLayers(false, run);
  if (chunk_.head) {
    Begin(Phase::kLoss);
    EachOf(BlockKind::kHead, false, run);
    if (!program_.reference_first) ForwardReference();
    if (program_.reference_teaches) EndReference(BlockKind::kHead);
  }
  Once([&] { Add(SlotKind::kSend); });
}

void Planner::ForwardBlock(const StageBlock& at) {
  Add(SlotKind::kGather, at);
  Add(SlotKind::kForward, at);
}

// Keeps nothing for backward. Its embedding and layers are one module, which returns before the
// head runs.
void Planner::ForwardReference() {
  if (program_.reference.empty()) return;
  const auto run = [this](const StageBlock& at) { ForwardBlock(at); };
  if (chunk_.embedding) EachOf(BlockKind::kEmbedding, true, run);
  ForwardLayers(true, run);
  if (chunk_.embedding) EndReference(BlockKind::kEmbedding);
  EachOf(BlockKind::kHead, true, run);
  ForwardLayers(true, [this](const StageBlock& at) { Add(SlotKind::kEnd, at); });
  if (!program_.reference_teaches) EndReference(BlockKind::kHead);
}

void Planner::EndReference(BlockKind kind) {
  EachOf(kind, true, [this](const StageBlock& at) { Add(SlotKind::kEnd, at); });
}

void Planner::BackwardBlock(const StageBlock& at, bool gathers) {
  if (gathers) Add(SlotKind::kGather, at);
  Add(SlotKind::kBackward, at);
  const Block& block = BlockAt(program_, at);
  const bool together = EndsTogether(program_, chunk_);
  if (together && block.kind == BlockKind::kHead) return;  // with the embedding's
  if (block.reduce_bytes > 0) Add(SlotKind::kReduce, at);
  if (together && block.kind == BlockKind::kEmbedding) Add(SlotKind::kGrow, Head());
  Add(SlotKind::kGrow, at);
}

StageBlock Planner::Head() const {
  const auto is = [](const Block& block) { return block.kind == BlockKind::kHead; };
  const auto at = std::find_if(program_.blocks.begin(), program_.blocks.end(), is);
  return {static_cast<uint32_t>(at - program_.blocks.begin()), -1, false};
}

// Weights are gathered before layers run again; of those that do together, the last one's.
void Planner::BackwardLayers(int64_t begin, int64_t end) {
  while (end > begin) {
    const StageBlock last = LayerAt(end - 1, false);
    const int64_t unit = BlockAt(program_, last).recompute_unit;
    const int64_t first = end - 1 - (unit > 1 ? (end - 1) % unit : 0);
    Add(SlotKind::kGather, last);
    for (int64_t i = first; i < end && unit > 0; ++i) {
      Add(SlotKind::kAgain, LayerAt(i, false));
    }
    for (int64_t i = end - 1; i >= first; --i) BackwardBlock(LayerAt(i, false), i + 1 != end);
    end = first;
  }
}

void Planner::Backward() {
  slots_ = &plan_.backward;
  const auto run = [this](const StageBlock& at) { BackwardBlock(at, true); };
  if (chunk_.head) Begin(Phase::kLoss);
  if (chunk_.head) EachOf(BlockKind::kHead, false, run);
  const bool more = chunk_.layer_count > 0 || chunk_.embedding;
  if (more) Begin(Phase::kBackward);
  if (more && !chunk_.head) Once([&] { Add(SlotKind::kReceive); });
  for (auto span = spans_.rbegin(); span != spans_.rend(); ++span) {
    const int64_t times = (span->end - span->begin) / span->period;
    const int64_t rest = span->begin + times * span->period;
    Once([&] { BackwardLayers(rest, span->end); });
    Repeat(times, -span->period, [&] { BackwardLayers(rest - span->period, rest); });
  }
  if (chunk_.embedding) EachOf(BlockKind::kEmbedding, false, run);
}

std::string Describe(const Program& program, const Slot& slot) {
  constexpr absl::string_view kPhases[] = {"forward", "loss", "backward"};
  constexpr absl::string_view kWords[] = {"begin", "receive",  "gather", "forward", "end",
                                          "send",  "backward", "again",  "reduce",  "grow"};
  const absl::string_view word = kWords[static_cast<size_t>(slot.kind)];
  if (slot.kind == SlotKind::kReceive || slot.kind == SlotKind::kSend) return std::string(word);
  if (slot.kind == SlotKind::kPhase) {
    return absl::StrCat(word, " ", kPhases[static_cast<size_t>(slot.phase)]);
  }
  return absl::StrCat(word, slot.at.reference ? " reference's " : " ",
                      BlockAt(program, slot.at).name);
}

// A line for each loop.
std::string Describe(const Program& program, const Slots& slots) {
  std::string text;
  for (const Loop& loop : slots.loops) {
    if (loop.times > 1) absl::StrAppend(&text, loop.times, " times: ");
    for (size_t i = loop.first; i < loop.first + loop.count; ++i) {
      absl::StrAppend(&text, i > loop.first ? ", " : "", Describe(program, slots.slots[i]));
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace

void Slots::ForEach(absl::FunctionRef<void(const Slot&)> play) const {
  for (const Loop& loop : loops) {
    for (size_t i = 0; i < static_cast<size_t>(loop.times) * loop.count; ++i) {
      play(AtTurn(slots[loop.first + i % loop.count], loop, static_cast<int32_t>(i / loop.count)));
    }
  }
}

GatherSize GatheredBehind(const Program& program, const StageBlock& at) {
  if (at.layer < 0) return {};
  for (const Block& block : program.blocks) {
    const bool layer = block.kind == BlockKind::kLayer && block.layers.Has(at.layer - 1);
    const bool first = block.kind == BlockKind::kEmbedding && at.layer == 0;
    if (at.layer > 0 ? layer : first) return block.gathered;
  }
  return {};
}

Stage VirtualStage(const Stage& stage, size_t chunk) {
  Stage part = stage;
  const size_t count = stage.virtual_stages.size();
  if (count > 1) {
    part.virtual_stages = {stage.virtual_stages[chunk]};
    part.layer_count = stage.virtual_stages[chunk].count;
    part.embedding = stage.embedding && chunk == 0;
    part.head = stage.head && chunk + 1 == count;
    part.edge_bytes = part.head ? 0 : stage.edge_bytes;
  }
  return part;
}

int64_t FirstLayer(const Stage& stage, size_t chunk) {
  int64_t first = 0;
  for (size_t i = 0; i < chunk; ++i) first += stage.virtual_stages[i].count;
  return first;
}

std::string Describe(const Program& program, const Plan& plan) {
  return absl::StrCat(Describe(program, plan.forward), Describe(program, plan.backward));
}

Plan PlanPair(const Program& program, const Stage& chunk) {
  return Planner(program, chunk, 0).Run();
}

Plan PlanPair(const Program& program, const Stage& stage, size_t chunk) {
  const Stage part = VirtualStage(stage, chunk);
  return Planner(program, part, FirstLayer(stage, chunk)).Run();
}

std::vector<StageBlock> BlocksOf(const Plan& plan, bool reference) {
  std::vector<StageBlock> blocks;
  plan.forward.ForEach([&](const Slot& slot) {
    const bool runs = slot.kind == SlotKind::kForward && slot.at.reference == reference;
    if (runs) blocks.push_back(slot.at);
  });
  return blocks;
}

}  // namespace plimsoll
