#include "estimator/job/hf_experts.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "estimator/base/units.h"
#include "estimator/job/hf_layers.h"

namespace plimsoll {
namespace {

using Kind = ConfigValue::Kind;

constexpr int64_t kMostExperts = 65536;
constexpr int64_t kMostLayers = 4096;
constexpr int64_t kMostWidth = int64_t{1} << 20;

// Layers that have experts, of those that the model has.
void SetLayers(absl::string_view field, const std::vector<bool>& layers, HfReader& reader,
               Transformer& model) {
  if (std::find(layers.begin(), layers.end(), true) == layers.end()) {
    model.experts.count = 0;
    return;
  }
  model.experts.layers = ReadSet(field, layers, reader);
}

// Every n-th layer has experts, but for those that are named.
// Source: transformers, models/qwen3_moe/modeling_qwen3_moe.py, Qwen3MoeDecoderLayer.
void ReadLayers(HfReader& reader, Transformer& model) {
  const int64_t step = std::max<int64_t>(reader.Size("decoder_sparse_step", kMostLayers, 1), 1);
  std::vector<bool> layers;
  for (int64_t i = 0; i < model.layer_count; ++i) layers.push_back((i + 1) % step == 0);
  const ConfigValue* const plain = reader.Find("mlp_only_layers");
  if (plain != nullptr && plain->kind != Kind::kList && plain->kind != Kind::kNull) {
    reader.Refuse("mlp_only_layers", SeenValue(*plain), "must be a list");
  }
  if (plain != nullptr && plain->kind == Kind::kList) {
    for (const ConfigValue& item : plain->items) {
      const bool is_layer = item.kind == Kind::kNumber && item.number >= 0 &&
                            item.number < static_cast<double>(model.layer_count) &&
                            item.number == std::floor(item.number);
      if (is_layer) layers[static_cast<size_t>(item.number)] = false;
    }
  }
  SetLayers("mlp_only_layers", layers, reader, model);
}

// A list of which layers are "sparse", where there is one.
// Source: transformers, models/hy_v3/modeling_hy_v3.py, HYV3DecoderLayer;
// models/mellum/configuration_mellum.py.
bool ReadList(HfReader& reader, Transformer& model) {
  const ConfigValue* const types = reader.Find("mlp_layer_types");
  if (types == nullptr || types->kind == Kind::kNull) return false;
  std::vector<bool> layers;
  bool known = types->kind == Kind::kList;
  for (const ConfigValue& type : types->items) {
    layers.push_back(type.text == "sparse");
    known = known && (layers.back() || type.text == "dense");
  }
  if (known && static_cast<int64_t>(layers.size()) == model.layer_count) {
    SetLayers("mlp_layer_types", layers, reader, model);
  } else {
    reader.Refuse(
        "mlp_layer_types", SeenValue(*types),
        absl::StrCat("must be dense or sparse for each of ", model.layer_count, " layers"));
  }
  return true;
}

// One MLP as wide as all shared experts together, and layers in front that have no experts.
// Source: transformers, models/deepseek_v3/modeling_deepseek_v3.py, DeepseekV3MoE and
// DeepseekV3DecoderLayer.
void ReadCounts(const HfExperts& row, bool listed, HfReader& reader, Transformer& model) {
  const HfExpertDefaults& defaults = row.defaults;
  const int64_t shared =
      reader.Size("n_shared_experts|num_shared_experts", kMostExperts, defaults.shared_count, 0);
  model.experts.shared_ffn_size = Multiply(shared, model.experts.ffn_size);
  if (listed) return;
  model.experts.layers.begin =
      reader.Size("first_k_dense_replace", kMostLayers, defaults.dense_layer_count, 0);
  if (model.experts.layers.begin >= model.layer_count) model.experts.count = 0;
}

// What a class does beside, if it is told to.
void RefuseRest(HfReader& reader) {
  if (reader.Flag("output_router_logits", false)) {
    reader.Refuse("output_router_logits", "true", "the router's own loss is not modelled yet",
                  ViolationCode::kNotModelled);
  }
  for (const absl::string_view name : {"router_jitter_noise", "clip_qkv"}) {
    const ConfigValue* const value = reader.Find(name);
    if (value == nullptr || !IsOn(*value)) continue;
    reader.Refuse(name, SeenValue(*value), "is not modelled yet", ViolationCode::kNotModelled);
  }
}

// The class reads one name as the other: which of two values is left depends on their order.
void RefuseTwoCounts(absl::string_view names, HfReader& reader) {
  const std::vector<absl::string_view> both = absl::StrSplit(names, '|');
  if (both.size() < 2 || !reader.Has(both[0]) || !reader.Has(both[1])) return;
  const std::string second = SeenValue(*reader.Find(both[1]));
  if (SeenValue(*reader.Find(both[0])) == second) return;
  reader.Refuse(both[1], second, absl::StrCat("must be as ", both[0], ", or unset"));
}

// Layers that are experts need some.
void RefuseNone(absl::string_view count, HfReader& reader, Transformer& model) {
  if (model.one_sublayer && model.experts.layers.CountOf(model.layer_count) > 0) {
    reader.Refuse(count, "0", "must be above 0 where layers are experts");
  }
  model.experts = {};
}

}  // namespace

void ReadExperts(const HfExperts& row, HfReader& reader, Transformer& model) {
  if (row.count.empty()) return;
  Experts& experts = model.experts;
  experts.count = reader.Size(row.count, kMostExperts, row.defaults.count,
                              row.picks_layers || row.may_lack ? 0 : 1);
  RefuseTwoCounts(row.count, reader);
  if (row.may_lack && experts.count == 0) return RefuseNone(reader.Name(row.count), reader, model);
  experts.active_count = reader.Size(row.active_count, kMostExperts, row.defaults.active_count);
  experts.ffn_size = reader.Size(row.ffn_size, kMostWidth, row.defaults.ffn_size);
  if (!row.input_size.empty()) {
    experts.input_size = reader.Size(row.input_size, kMostWidth, 0, 0);
  }
  if (!row.shared_ffn_size.empty()) {
    const int64_t shared = row.defaults.shared_ffn_size;  // where it is 0, there may be none
    experts.shared_ffn_size =
        reader.Size(row.shared_ffn_size, kMostWidth, shared, std::min<int64_t>(shared, 1));
  }
  const bool listed = ReadList(reader, model);
  if (row.counts_shared) ReadCounts(row, listed, reader, model);
  experts.shared_gate = row.shared_gate;
  experts.wide_weights = row.wide_weights;
  experts.router = row.router;
  experts.biases = row.biases;
  experts.clamps = row.clamps;
  experts.words = row.words;
  experts.masks_groups =
      !row.group_method.empty() && reader.Text(row.group_method, "") == "group_limited_greedy";
  experts.renormalizes = row.renormalizes.empty()
                             ? row.defaults.renormalizes
                             : reader.Flag(row.renormalizes, row.defaults.renormalizes);
  if (experts.count > 0 && experts.active_count > experts.count) {
    reader.Refuse(reader.Name(row.active_count), absl::StrCat(experts.active_count),
                  absl::StrCat("must be at most ", reader.Name(row.count), " ", experts.count));
  }
  if (row.picks_layers && model.layer_count > 0) ReadLayers(reader, model);
  const bool none = model.one_sublayer && experts.layers.CountOf(model.layer_count) == 0;
  if (experts.count == 0 || none) experts = {};
  RefuseRest(reader);
}

}  // namespace plimsoll
