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

const Block& LayerAt(const Program& program, int64_t layer) {
  return *std::find_if(program.blocks.begin(), program.blocks.end(), [layer](const Block& block) {
    return block.kind == BlockKind::kLayer && block.layers.Has(layer);
  });
}

class NetworkReader {
 public:
  explicit NetworkReader(const Program& program) : program_(program) {}

  Network Read(int64_t layer_count) && {
    for (const Block& block : program_.blocks) {
      if (block.kind == BlockKind::kEmbedding) Append(block, 0);
    }
    for (int64_t layer = 0; layer < layer_count; ++layer) {
      Append(LayerAt(program_, layer), static_cast<size_t>(layer) + 1);
    }
    for (const Block& block : program_.blocks) {
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

  const Program& program_;
  Network network_;
  int32_t table_ = -1;  // the first, which a head may share
};

// Puts a block's modules behind those that have run. Those without parameters are looked ahead at
// as well: the layer, its attention, its MLP and that one's activation; the model, the one around
// its layers, and the rotary angles.
// Source: deepspeed/runtime/zero/parameter_offload.py, _register_deepspeed_module (all modules).
class Order {
 public:
  explicit Order(const Network& network) : network_(network) {}

  void Forward(size_t block, uint32_t turn) {
    const auto& modules = network_.blocks[block];
    if (block == 0) Around(2, turn, false);
    if (IsLayer(block)) Around(1, turn, false);
    for (const Module& module : modules) {
      visits_.push_back({module.weights, turn, false});
      if (module.normalizes || module.gates) Around(1, turn, false);
    }
    if (block == 0) Around(1, turn, false);
  }

  void Backward(size_t block, uint32_t turn) {
    const auto& modules = network_.blocks[block];
    const bool head = block + 1 == network_.blocks.size();
    if (head || IsLayer(block)) Around(1, turn, true);
    size_t end = modules.size();
    while (end > 0) {  // what runs behind a norm is one module
      size_t begin = end - 1;
      while (begin > 0 && !modules[begin].normalizes) --begin;
      if (IsLayer(block)) Around(1, turn, true);
      for (; end > begin; --end) {
        visits_.push_back({modules[end - 1].weights, turn, true});
        if (head && end == modules.size()) Around(1, turn, true);
      }
    }
  }

  std::vector<Visit> Take() && { return std::move(visits_); }

 private:
  bool IsLayer(size_t block) const { return block > 0 && block + 1 < network_.blocks.size(); }
  void Around(size_t count, uint32_t turn, bool backward) {
    visits_.insert(visits_.end(), count, Visit{{}, turn, backward});
  }

  const Network& network_;
  std::vector<Visit> visits_;
};

}  // namespace

Network ReadNetwork(const Program& program, int64_t layer_count) {
  return NetworkReader(program).Read(layer_count);
}

std::vector<Visit> OrderOf(const Program& program, const Network& network) {
  Order order(network);
  const size_t blocks = network.blocks.size();
  for (size_t block = 0; block < blocks; ++block) {
    order.Forward(block, static_cast<uint32_t>(block));
  }
  auto turn = static_cast<uint32_t>(blocks);
  size_t made = blocks - 1;  // layers from here on have run again
  for (size_t block = blocks; block-- > 0; ++turn) {
    const bool layer = block > 0 && block + 1 < blocks;
    const auto index = static_cast<int64_t>(block) - 1;
    const int64_t unit = layer ? LayerAt(program, index).recompute_unit : 0;
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
