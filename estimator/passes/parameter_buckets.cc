#include "estimator/passes/parameter_buckets.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "estimator/program/parameter_sums.h"

namespace plimsoll {
namespace {

// A parameter of the module, or all experts' matrices of one kind.
struct Item {
  int64_t elements = 0;
  int64_t row = 1;  // of all axes but the first
  int32_t block = 0;
};

// Those of one unit, or of none.
struct Group {
  bool is_unit = false;
  bool of_experts = false;
  int32_t unit = 0;
  std::vector<Item> items;
};

int64_t RowOf(const Parameter& parameter) {
  if (parameter.shape.rank == 1) return 1;
  return parameter.shape.extents[parameter.shape.rank - size_t{1}].Local();
}

int64_t Multiple(int64_t a, int64_t b) { return Multiply(a / std::gcd(a, b), b); }

// Rows of one bucket end where shares do: larger items begin at whole ones, and what is smaller
// than one fills what these leave.
int64_t Padded(const std::vector<Item>& items, int64_t shards) {
  int64_t row = 1;
  for (const Item& item : items) row = std::max(row, item.row);
  for (const Item& item : items) {
    const bool even = row % item.row == 0 && item.elements % row == 0;
    if (!even && item.elements >= row) row = Multiple(row, item.row);
  }
  int64_t whole = 0;
  int64_t gaps = 0;
  int64_t fragments = 0;
  for (const Item& item : items) {
    if (item.elements < row) {
      fragments = Add(fragments, item.elements);
      continue;
    }
    const int64_t rounded = Multiply(CeilDivide(item.elements, row), row);
    gaps = Add(gaps, rounded - item.elements);
    whole = Add(whole, rounded);
  }
  const int64_t all = Add(whole, std::max<int64_t>(fragments - gaps, 0));
  const int64_t even = Multiply(shards, row);
  return Multiply(CeilDivide(all, even), even);
}

class Grouper {
 public:
  Grouper(const Job& job, bool layers_are_units) : job_(job), layers_are_units_(layers_are_units) {}

  void AddBlock(const Block& block, int32_t at) {
    for (size_t i = 0; i < block.parameters.size(); ++i) {
      const Parameter& parameter = block.parameters[i];
      if (parameter.packed() || parameter.tied) continue;
      Group& group = GroupOf(block.kind == BlockKind::kLayer, at, parameter.of_experts());
      group.items.push_back({PackedElements(block, i), RowOf(parameter), at});
    }
  }

  std::vector<ParameterBucket> Take(int64_t bucket_elements) && {
    for (const Group& group : groups_) Split(group, bucket_elements);
    return std::move(buckets_);
  }

 private:
  Group& GroupOf(bool layer, int32_t at, bool of_experts) {
    const bool is_unit = layer && layers_are_units_;
    const int32_t unit = is_unit ? at : 0;
    for (auto group = groups_.rbegin(); group != groups_.rend(); ++group) {
      if (group->unit == unit && group->of_experts == of_experts) return *group;
    }
    groups_.push_back({is_unit, of_experts, unit, {}});
    return groups_.back();
  }

  void Split(const Group& group, int64_t bucket_elements) {
    std::vector<Item> items;
    int64_t elements = 0;
    for (const Item& item : group.items) {
      items.push_back(item);
      elements = Add(elements, item.elements);
      const bool full = !group.is_unit && bucket_elements > 0 && elements >= bucket_elements;
      if (!full && &item != &group.items.back()) continue;
      Close(group, std::exchange(items, {}));
      elements = 0;
    }
  }

  void Close(const Group& group, const std::vector<Item>& items) {
    const int64_t shards = group.of_experts ? job_.ExpertShardCount() : job_.shard_group_size;
    buckets_.push_back({.elements = Padded(items, shards),
                        .shards = shards,
                        .is_unit = group.is_unit,
                        .of_experts = group.of_experts,
                        .first_block = items.front().block,
                        .last_block = items.back().block});
  }

  const Job& job_;
  const bool layers_are_units_;
  std::vector<Group> groups_;
  std::vector<ParameterBucket> buckets_;
};

}  // namespace

std::vector<ParameterBucket> BucketsOf(const Job& job, const std::pmr::vector<Block>& blocks,
                                       bool layers_are_units, int64_t bucket_elements) {
  Grouper grouper(job, layers_are_units);
  const auto layers = static_cast<int32_t>(job.model->layer_count);
  for (int32_t at = 0; at < layers + 2; ++at) {
    for (const Block& block : blocks) {
      const bool is = block.kind == BlockKind::kEmbedding ? at == 0
                      : block.kind == BlockKind::kHead    ? at == layers + 1
                                                       : at <= layers && block.layers.Has(at - 1);
      if (is) grouper.AddBlock(block, at);
    }
  }
  return std::move(grouper).Take(bucket_elements);
}

}  // namespace plimsoll
