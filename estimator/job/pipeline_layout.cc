#include "estimator/job/pipeline_layout.h"

#include "estimator/base/units.h"

namespace plimsoll {
namespace {

std::vector<int64_t> DealByCost(const Transformer& model, int64_t stage_count, bool reached) {
  const int64_t hidden = model.hidden_size;
  const int64_t heads = Multiply(model.head_count, model.head_size);
  const int64_t layer_cost =
      Add(Multiply(Multiply(4, heads), hidden), Multiply(Multiply(3, model.ffn_size), hidden));
  const int64_t total =
      Add(Multiply(model.layer_count, layer_cost), Multiply(model.vocab_size, hidden));
  std::vector<int64_t> layout(stage_count, 0);
  int64_t stage = 0;
  int64_t cost = 0;
  for (int64_t layer = 0; layer < model.layer_count; ++layer) {
    ++layout[stage];
    cost = Add(cost, layer_cost);
    const double share = static_cast<double>(total) *
                         (static_cast<double>(stage + 1) / static_cast<double>(stage_count));
    const auto running = static_cast<double>(cost);
    const bool closes = reached ? running >= share : running > share;
    if (closes && stage + 1 < stage_count) ++stage;
  }
  return layout;
}

}  // namespace

std::vector<int64_t> DealLayers(const Transformer& model, int64_t stage_count, StageRule rule) {
  const bool evenly = rule == StageRule::kEven || rule == StageRule::kEqual;
  if (!evenly && stage_count > 1) {
    return DealByCost(model, stage_count, rule == StageRule::kByCostReached);
  }
  std::vector<int64_t> layout(stage_count, model.layer_count / stage_count);
  for (int64_t stage = 0; stage < model.layer_count % stage_count; ++stage) ++layout[stage];
  return layout;
}

LayerCounts VirtualStages(const std::vector<int64_t>& layout, int64_t stage_count,
                          int64_t chunk_count, int64_t stage) {
  const auto stages = static_cast<size_t>(stage_count);
  LayerCounts layers;
  if (layout.size() == stages) {
    const int64_t whole = layout[static_cast<size_t>(stage)];
    if (chunk_count == 1) return {whole};
    layers.assign(static_cast<size_t>(chunk_count), whole / chunk_count);
    for (int64_t i = 0; i < whole % chunk_count; ++i) ++layers[static_cast<size_t>(i)];
    return layers;
  }
  for (size_t entry = static_cast<size_t>(stage); entry < layout.size(); entry += stages) {
    layers.push_back(layout[entry]);
  }
  return layers;
}

}  // namespace plimsoll
