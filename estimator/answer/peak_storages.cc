#include "estimator/answer/peak_storages.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"

namespace plimsoll {
namespace {

constexpr size_t kMaxNamedOps = 3;

// What the timeline makes beside tensors, buffers and states.
struct Special {
  absl::string_view name;
  absl::string_view made;
  absl::string_view alive;
};
constexpr Special kSpecials[] = {
    {"checkpoint", "end of the layer's forward", "kept so that the layer can run again"},
    {"gathered.weights", "before a block that reads it runs, or earlier",
     "until its next use is far off"},
    {"reduce.bucket", "backward of the bucket's last parameter",
     "whole gradients, until so many more are on their way to other ranks"},
    {"reduce.flat", "backward of the block", "gradients on their way to other ranks"},
    {"gradients.flat", "end of the unit's backward",
     "its gradients as one tensor, until their shard is there"},
    {"gradients.head", "backward of the head", "of a shared table, until the embedding's is there"},
    {"gradients.sent", "backward of the block",
     "of gradients that were sent, until backward is over"},
    {"gather.input", "before a block runs", "what its weights are gathered from, freed at once"},
    {"reduce.input", "end of the block's backward", "being reduced over the ranks"},
    {"stage.output", "received from the next stage", "until backward of the stage's last block"},
    {"kernel.tuning", "first use of a kernel", "while kernels are tuned"},
};

// When a storage is made and freed: phases as TimelineEvent counts them.
struct Life {
  int32_t birth = 0;
  int32_t death = -1;  // -1: never
};

std::vector<Life> FindLives(const Timeline& timeline) {
  std::vector<Life> lives(timeline.storages.size());
  int32_t phase = 0;
  for (const TimelineEvent& event : timeline.events) {
    if (event.kind == TimelineEventKind::kPhase) phase = event.value;
    if (event.kind == TimelineEventKind::kBirth) {
      lives[static_cast<size_t>(event.value)].birth = phase;
    }
    if (event.kind == TimelineEventKind::kDeath) {
      lives[static_cast<size_t>(event.value)].death = phase;
    }
  }
  return lives;
}

absl::string_view PhaseOf(int32_t value) {
  return Name(static_cast<Phase>(static_cast<size_t>(value) % kPhaseCount));
}

// "0-3,5" of {0, 1, 2, 3, 5}.
std::string Ranges(std::vector<int32_t> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  std::string text;
  for (size_t i = 0; i < values.size();) {
    size_t last = i;
    while (last + 1 < values.size() && values[last + 1] == values[last] + 1) ++last;
    absl::StrAppend(&text, text.empty() ? "" : ",", values[i]);
    if (last > i) absl::StrAppend(&text, "-", values[last]);
    i = last + 1;
  }
  return text;
}

std::string Names(const std::vector<absl::string_view>& ops) {
  const auto shown = static_cast<int64_t>(std::min(ops.size(), kMaxNamedOps));
  std::string text = absl::StrJoin(ops.begin(), ops.begin() + shown, ", ");
  if (ops.size() > kMaxNamedOps) {
    absl::StrAppend(&text, " and ", ops.size() - kMaxNamedOps, " more");
  }
  return text;
}

// Tells of one tensor of one block.
class TensorStory {
 public:
  TensorStory(const Block& block, TensorId tensor)
      : block_(block), root_(block.tensors[tensor].storage) {}

  std::string Made(bool gradient, bool again) const {
    const std::vector<absl::string_view> ops = gradient ? Readers() : Makers();
    if (ops.empty()) return absl::StrCat(block_.name, gradient ? ", backward" : ", forward");
    // Of those that read a tensor, backward begins with the last.
    return absl::StrCat(block_.name, gradient ? ", backward of " : ", forward of ",
                        gradient ? ops.back() : ops.front(), again ? ", run again" : "");
  }

  std::string Alive(bool gradient) const {
    if (gradient) {
      const std::vector<absl::string_view> makers = Makers();
      if (root_ == block_.input) return "until backward of the block before";
      return makers.empty() ? "until backward has read it"
                            : absl::StrCat("until backward of ", makers.front());
    }
    const std::vector<absl::string_view> savers = Ops(&Op::saved);
    if (!savers.empty()) return absl::StrCat("kept for backward of ", Names(savers));
    const Tensor& tensor = block_.tensors[root_];
    if (tensor.checkpointed) return "kept so that it need not be made again";
    if (block_.output != kNoTensor && root_ == block_.tensors[block_.output].storage) {
      return block_.recompute_unit > 0 ? "the next block's input, from which that runs again"
                                       : "the next block's input, kept for its backward";
    }
    if (tensor.held) return "a Python local holds it until the block returns";
    const int last = LastUse();
    return last < 0
               ? "while its op runs"
               : absl::StrCat("until ", block_.ops[static_cast<size_t>(last)].name, " is done");
  }

 private:
  std::vector<absl::string_view> Ops(Ids Op::*list) const {
    std::vector<absl::string_view> names;
    for (const Op& op : block_.ops) {
      const Ids& ids = op.*list;
      const bool uses = std::any_of(ids.begin(), ids.end(), [this](TensorId id) {
        return block_.tensors[id].storage == root_;
      });
      if (uses) names.push_back(op.name);
    }
    return names;
  }
  std::vector<absl::string_view> Readers() const { return Ops(&Op::inputs); }
  // The last op that reads it, or that a Python local holds it for; -1 where there is none.
  int LastUse() const {
    const uint8_t held = block_.tensors[root_].held_until;
    int last = held == 255 ? -1 : held;
    for (int i = last + 1; i < static_cast<int>(block_.ops.size()); ++i) {
      const Ids& inputs = block_.ops[static_cast<size_t>(i)].inputs;
      const bool reads = std::any_of(inputs.begin(), inputs.end(), [this](TensorId id) {
        return block_.tensors[id].storage == root_;
      });
      if (reads) last = i;
    }
    return last;
  }
  std::vector<absl::string_view> Makers() const {
    for (Ids Op::*list : {&Op::outputs, &Op::forward_temporaries, &Op::backward_temporaries}) {
      std::vector<absl::string_view> names = Ops(list);
      if (!names.empty()) return names;
    }
    return {};
  }

  const Block& block_;
  const TensorId root_;
};

// Finds out what a storage is by its name, in the order that Unroll names them.
class Teller {
 public:
  Teller(const Program& program, const Timeline& timeline, const std::vector<int32_t>& alive)
      : program_(program), timeline_(timeline), lives_(FindLives(timeline)) {
    for (const int32_t id : alive) step_ = std::max(step_, StepOf(id));
  }

  PeakStorage Tell(int32_t id) const {
    const TimelineStorage& storage = timeline_.storages[static_cast<size_t>(id)];
    PeakStorage told;
    told.name = std::string(storage.name);
    told.role = storage.role;
    if (!storage.suffix.empty() && storage.suffix.front() != '.') told.name += " ";
    absl::StrAppend(&told.name, storage.suffix);
    const bool known = TellState(id, told) || TellBuffer(id, told) || TellSpecial(storage, told) ||
                       TellTensor(id, told) || TellWeightGradient(id, told);
    if (!known) told.alive = Until(id);
    return told;
  }

 private:
  // The step in which a storage was made.
  int32_t StepOf(int32_t id) const {
    return lives_[static_cast<size_t>(id)].birth / static_cast<int32_t>(kPhaseCount);
  }

  std::string Until(int32_t id) const {
    const int32_t death = lives_[static_cast<size_t>(id)].death;
    if (death < 0) return "state of the training";
    return PhaseOf(death) == Name(Phase::kEndOfStep) ? "freed at the end of the step"
                                                     : absl::StrCat("freed in ", PhaseOf(death));
  }

  bool TellState(int32_t id, PeakStorage& told) const {
    const absl::string_view name = timeline_.storages[static_cast<size_t>(id)].name;
    const bool state = std::any_of(program_.states.begin(), program_.states.end(),
                                   [name](const State& at) { return at.name == name; });
    if (!state) return false;
    const int32_t birth = lives_[static_cast<size_t>(id)].birth;
    told.made = birth == 0
                    ? "before the first step"
                    : absl::StrCat(StepOf(id) == step_ ? "" : "earlier step's ", PhaseOf(birth));
    told.alive = Until(id);
    return true;
  }

  static bool TellSpecial(const TimelineStorage& storage, PeakStorage& told) {
    for (const Special& special : kSpecials) {
      if (special.name != storage.name) continue;
      told.made = std::string(special.made);
      told.alive = std::string(special.alive);
      return true;
    }
    return false;
  }

  // Whether so many bytes are what some block's weights are gathered into.
  bool IsGathered(int64_t bytes) const {
    return std::any_of(program_.blocks.begin(), program_.blocks.end(),
                       [bytes](const Block& at) { return at.gathered.bytes == bytes; });
  }

  bool IsLike(const Block& block, const BlockBuffer& buffer, const TimelineStorage& storage) const {
    if (!buffer.by_parameter) {
      return storage.bytes == buffer.forward.bytes || storage.bytes == buffer.backward.bytes ||
             (buffer.of_next && IsGathered(storage.bytes));
    }
    const bool here = storage.layer < 0 || block.layers.Has(storage.layer);
    return here && std::any_of(block.parameters.begin(), block.parameters.end(),
                               [&](const Parameter& at) { return at.name == storage.suffix; });
  }

  bool TellBuffer(int32_t id, PeakStorage& told) const {
    const TimelineStorage& storage = timeline_.storages[static_cast<size_t>(id)];
    const bool loss = PhaseOf(lives_[static_cast<size_t>(id)].birth) == Name(Phase::kLoss);
    for (const Block& block : program_.blocks) {
      if ((block.kind == BlockKind::kHead) != loss) continue;
      for (const BlockBuffer& buffer : block.buffers) {
        if (buffer.name != storage.name || !IsLike(block, buffer, storage)) continue;
        told.made = absl::StrCat("before ", block.name, " runs");
        told.alive = "buffer of the block at work";
        return true;
      }
    }
    return false;
  }

  static bool IsOf(const Block& block, const TimelineStorage& storage) {
    return (block.kind == BlockKind::kLayer) == (storage.layer >= 0);
  }

  bool TellTensor(int32_t id, PeakStorage& told) const {
    return TellTensorOf(program_.blocks, id, told) || TellTensorOf(program_.reference, id, told);
  }

  bool TellTensorOf(absl::Span<const Block> blocks, int32_t id, PeakStorage& told) const {
    const TimelineStorage& storage = timeline_.storages[static_cast<size_t>(id)];
    const int32_t born_in = lives_[static_cast<size_t>(id)].birth;
    const bool gradient = !storage.suffix.empty();
    for (const Block& block : blocks) {
      if (!IsOf(block, storage)) continue;
      for (size_t tensor = 0; tensor < block.tensors.size(); ++tensor) {
        if (block.tensors[tensor].name != storage.name) continue;
        const TensorStory story(block, static_cast<TensorId>(tensor));
        const bool again =
            !gradient && block.recompute_unit > 0 && PhaseOf(born_in) == Name(Phase::kBackward);
        told.made = story.Made(gradient, again);
        told.alive = story.Alive(gradient);
        return true;
      }
    }
    return false;
  }

  bool TellWeightGradient(int32_t id, PeakStorage& told) const {
    const TimelineStorage& storage = timeline_.storages[static_cast<size_t>(id)];
    for (const Block& block : program_.blocks) {
      const Op* const op = IsOf(block, storage) ? OpOf(block, storage.name) : nullptr;
      if (op == nullptr) continue;
      told.made = absl::StrCat(block.name, ", backward of ", op->name);
      told.alive = Until(id);
      return true;
    }
    return false;
  }

  // The op that has the parameter; null where none has.
  static const Op* OpOf(const Block& block, absl::string_view parameter) {
    const auto has = [&](const Op& op) {
      return std::any_of(op.parameters.begin(), op.parameters.end(),
                         [&](TensorId id) { return block.parameters[id].name == parameter; });
    };
    const auto op = std::find_if(block.ops.begin(), block.ops.end(), has);
    return op == block.ops.end() ? nullptr : &*op;
  }

  const Program& program_;
  const Timeline& timeline_;
  const std::vector<Life> lives_;
  int32_t step_ = 0;  // the one at whose peak they are alive
};

struct Group {
  PeakStorage told;
  std::vector<int32_t> layers;
  std::vector<int32_t> micro_batches;
};

}  // namespace

std::vector<PeakStorage> LargestStorages(const Program& program, const Timeline& timeline,
                                         const std::vector<int32_t>& alive,
                                         const std::vector<int64_t>& blocks, size_t limit) {
  using Key = std::tuple<absl::string_view, absl::string_view, Role, int64_t, bool>;
  const Teller teller(program, timeline, alive);
  std::map<Key, Group> groups;
  for (const int32_t id : alive) {
    const TimelineStorage& storage = timeline.storages[static_cast<size_t>(id)];
    const int64_t bytes = blocks[static_cast<size_t>(id)];
    Group& group = groups[{storage.name, storage.suffix, storage.role, bytes, storage.layer < 0}];
    if (group.told.count == 0) group.told = teller.Tell(id);
    group.told.bytes = bytes;
    ++group.told.count;
    if (storage.layer >= 0) group.layers.push_back(storage.layer);
    if (storage.micro_batch >= 0) group.micro_batches.push_back(storage.micro_batch);
  }
  std::vector<PeakStorage> largest;
  for (auto& [key, group] : groups) {
    group.told.layers = Ranges(std::move(group.layers));
    group.told.micro_batches = Ranges(std::move(group.micro_batches));
    largest.push_back(std::move(group.told));
  }
  std::stable_sort(largest.begin(), largest.end(), [](const PeakStorage& a, const PeakStorage& b) {
    return Multiply(a.bytes, a.count) > Multiply(b.bytes, b.count);
  });
  if (largest.size() > limit) largest.resize(limit);
  return largest;
}

}  // namespace plimsoll
