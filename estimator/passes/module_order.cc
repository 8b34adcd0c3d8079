#include "estimator/passes/module_order.h"

#include <algorithm>
#include <utility>

#include "absl/strings/string_view.h"

namespace plimsoll {
namespace {

absl::string_view ModuleOf(absl::string_view name) { return name.substr(0, name.rfind('.')); }

// The parameter whose tensor it is a part of, or itself.
uint8_t Whole(const Block& block, uint8_t id) {
  return block.parameters[id].packed() ? block.parameters[id].packed_into : id;
}

const Block& LayerAt(const std::pmr::vector<Block>& blocks, int64_t layer) {
  return *std::find_if(blocks.begin(), blocks.end(), [layer](const Block& block) {
    return block.kind == BlockKind::kLayer && block.layers.Has(layer);
  });
}

class NetworkReader {
 public:
  explicit NetworkReader(const std::pmr::vector<Block>& blocks) : blocks_(blocks) {}

  Network Read(int64_t layer_count) && {
    for (const Block& block : blocks_) {
      if (block.kind == BlockKind::kEmbedding) Append(block, 0);
    }
    for (int64_t layer = 0; layer < layer_count; ++layer) {
      Append(LayerAt(blocks_, layer), static_cast<size_t>(layer) + 1);
    }
    for (const Block& block : blocks_) {
      if (block.kind == BlockKind::kHead) Append(block, static_cast<size_t>(layer_count) + 1);
    }
    return std::move(network_);
  }

 private:
  // Adds the block's modules, in the order in which its ops read them.
  void Append(const Block& block, size_t at) {
    network_.blocks.resize(at + 1);
    std::vector<Module>& modules = network_.blocks[at];
    std::vector<int32_t> numbers(block.parameters.size(), -1);
    absl::string_view last;
    for (const Op& op : block.ops) {
      for (const uint8_t read : op.parameters) {
        const uint8_t id = Whole(block, read);
        if (numbers[id] >= 0) continue;
        numbers[id] = NumberOf(block, id);
        const absl::string_view name = ModuleOf(block.parameters[id].name);
        if (modules.empty() || name != last) modules.emplace_back();
        modules.back().weights.push_back(numbers[id]);
        modules.back().head = name == "head";
        modules.back().gates = name == "mlp.gate";
        modules.back().normalizes = name == "attention.norm" || name == "mlp.norm";
        last = name;
      }
    }
  }

  int32_t NumberOf(const Block& block, uint8_t id) {
    const Parameter& parameter = block.parameters[id];
    if (parameter.tied && table_ >= 0) return table_;
    const auto number = static_cast<int32_t>(network_.weights.size());
    if (parameter.embedding && table_ < 0) table_ = number;
    Weight weight;
    weight.persists = StaysWhole(parameter);
    weight.trained = !parameter.frozen;
    weight.vector = parameter.shape.rank == 1;
    for (size_t part = 0; part < block.parameters.size(); ++part) {
      if (Whole(block, static_cast<uint8_t>(part)) != id) continue;
      const Parameter& piece = block.parameters[part];
      weight.elements = Add(weight.elements, piece.Elements());
      weight.bytes = Add(weight.bytes, Bytes(piece.dtype, piece.Elements()));
    }
    network_.weights.push_back(weight);
    return number;
  }

  const std::pmr::vector<Block>& blocks_;
  Network network_;
  int32_t table_ = -1;  // the first, which a head may share
};

// Puts a block's modules behind those that have run. Those without parameters are looked ahead at
// as well: the layer, its attention, its MLP and that one's activation; the model, the one around
// its layers, and the rotary angles.
// Source: deepspeed/runtime/zero/parameter_offload.py, _register_deepspeed_module (all modules).
class Order {
 public:
  Order(const Network& network, HeadUse head) : network_(network), head_(head) {
    // Of each module forward and backward, and about five around those of a layer.
    visits_.reserve(2 * network.weights.size() + 10 * network.blocks.size());
  }

  void Forward() {
    for (size_t block = 0; block < network_.blocks.size(); ++block) {
      Forward(block, static_cast<uint32_t>(block));
    }
  }

  // No backward needs what the model has.
  void EndForward() {
    const auto turn = static_cast<uint32_t>(network_.blocks.size()) - 1;
    if (head_ == HeadUse::kRead) visits_.push_back({.module = HeadWeights(), .turn = turn});
  }

  void Forward(size_t block, uint32_t turn) {
    const auto& modules = network_.blocks[block];
    if (block == 0) Model(turn, false);
    if (IsLayer(block)) Around(1, turn, false);
    for (const Module& module : modules) {
      const bool reads = module.head && head_ != HeadUse::kCalled;
      visits_.push_back(
          {.module = module.weights, .turn = turn, .reads = reads, .head = module.head && !reads});
      if (module.normalizes || module.gates) Around(1, turn, false);
    }
    if (block == 0) Around(1, turn, false);
  }

  void Backward(size_t block, uint32_t turn) {
    const auto& modules = network_.blocks[block];
    const bool head = block + 1 == network_.blocks.size();
    if (head) Model(turn, true);
    if (IsLayer(block)) Around(1, turn, true);
    size_t end = modules.size();
    while (end > 0) {  // what runs behind a norm is one module
      size_t begin = end - 1;
      while (begin > 0 && !modules[begin].normalizes) --begin;
      if (IsLayer(block)) Around(1, turn, true);
      for (; end > begin; --end) {
        Call(modules[end - 1], turn);
        if (head && end == modules.size()) Around(1, turn, true);
      }
    }
  }

  std::vector<Visit> Take() && { return std::move(visits_); }

 private:
  // Backward, of a head whose module runs.
  void Call(const Module& module, uint32_t turn) {
    if (module.head && head_ != HeadUse::kCalled) return;
    visits_.push_back(
        {.module = module.weights, .turn = turn, .backward = true, .head = module.head});
  }

  bool IsLayer(size_t block) const { return block > 0 && block + 1 < network_.blocks.size(); }
  void Around(size_t count, uint32_t turn, bool backward) {
    visits_.insert(visits_.end(), count, Visit{{}, turn, backward});
  }

  // The model, and forward the one around its layers: the head's weights are the model's own once
  // they have been read.
  void Model(uint32_t turn, bool backward) {
    const bool own = head_ == HeadUse::kRead || (backward && head_ == HeadUse::kFirstRead);
    visits_.push_back({.turn = turn, .backward = backward});
    if (own) {
      visits_.back().module = HeadWeights();
      visits_.back().stays = true;
    }
    if (!backward) Around(1, turn, false);
  }

  absl::Span<const int32_t> HeadWeights() const {
    for (const Module& module : network_.blocks.back()) {
      if (module.head) return module.weights;
    }
    return {};
  }

  const Network& network_;
  const HeadUse head_;
  std::vector<Visit> visits_;
};

}  // namespace

Network ReadNetwork(const std::pmr::vector<Block>& blocks, int64_t layer_count) {
  return NetworkReader(blocks).Read(layer_count);
}

std::vector<Visit> ForwardOrderOf(const Network& network, HeadUse head) {
  Order order(network, head);
  order.Forward();
  order.EndForward();
  return std::move(order).Take();
}

std::vector<Visit> OrderOf(const std::pmr::vector<Block>& blocks, const Network& network,
                           HeadUse head) {
  Order order(network, head);
  order.Forward();
  const size_t count = network.blocks.size();
  auto turn = static_cast<uint32_t>(count);
  size_t made = count - 1;  // layers from here on have run again
  for (size_t block = count; block-- > 0; ++turn) {
    const bool layer = block > 0 && block + 1 < count;
    const auto index = static_cast<int64_t>(block) - 1;
    const int64_t unit = layer ? LayerAt(blocks, index).recompute_unit : 0;
    if (unit > 0 && block < made) {
      made = static_cast<size_t>(index - index % unit) + 1;
      for (size_t again = made; again <= block; ++again) order.Forward(again, turn);
    }
    order.Backward(block, turn);
  }
  return std::move(order).Take();
}

void ForEachGradient(const Network& network, const std::vector<Visit>& order,
                     absl::FunctionRef<void(size_t id, size_t turn)> take) {
  std::vector<size_t> last(network.weights.size(), 0);
  for (size_t step = 0; step < order.size(); ++step) {
    for (const int32_t id : order[step].module) last[static_cast<size_t>(id)] = step;
  }
  for (size_t step = 0; step < order.size(); ++step) {
    if (!order[step].backward) continue;
    for (const int32_t number : order[step].module) {
      const auto id = static_cast<size_t>(number);
      if (network.weights[id].trained && last[id] == step) take(id, order[step].turn);
    }
  }
}

// Source: deepspeed/runtime/zero/config.py, param_persistence_threshold.
bool StaysWhole(const Parameter& parameter) {
  constexpr int64_t kPersistentElements = 100000;
  return parameter.Elements() <= kPersistentElements;
}

}  // namespace plimsoll
