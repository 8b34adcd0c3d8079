#include "estimator/job/pipeline_layout.h"

#include "estimator/base/units.h"
#include "estimator/job/layer_kinds.h"

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

int64_t CountAt(const Job& job, int64_t stage, int64_t chunk) {
  const std::vector<int64_t>& layout = job.pipeline_layout;
  const int64_t stages = job.pipeline_parallel_size;
  if (layout.size() != static_cast<size_t>(stages)) {
    return layout[static_cast<size_t>(chunk * stages + stage)];
  }
  const int64_t whole = layout[static_cast<size_t>(stage)];
  const int64_t chunks = job.virtual_pipeline_size;
  return whole / chunks + (chunk < whole % chunks ? 1 : 0);
}

int64_t BeginAt(const Job& job, int64_t stage, int64_t chunk) {
  const int64_t stages = job.pipeline_parallel_size;
  int64_t begin = 0;
  for (int64_t i = 0; i < chunk * stages + stage; ++i) {
    begin = Add(begin, CountAt(job, i % stages, i / stages));
  }
  return begin;
}

// Where layers of the same kinds in the same order begin first.
int64_t FirstAlike(const Job& job, const LayerRange& range) {
  const auto alike = [&](int64_t begin) {
    for (int64_t i = 0; i < range.count; ++i) {
      if (!(KindOf(job, begin + i) == KindOf(job, range.begin + i))) return false;
    }
    return true;
  };
  int64_t first = 0;
  while (first < range.begin && !alike(first)) ++first;
  return first;
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

LayerRanges VirtualStages(const Job& job, int64_t stage) {
  const bool alike = HasOneKindOfLayer(job);
  LayerRanges ranges;
  for (int64_t chunk = 0; chunk < job.virtual_pipeline_size; ++chunk) {
    LayerRange& range = ranges.emplace_back();
    range.count = CountAt(job, stage, chunk);
    if (!alike) range.begin = FirstAlike(job, {BeginAt(job, stage, chunk), range.count});
  }
  return ranges;
}

}  // namespace plimsoll
