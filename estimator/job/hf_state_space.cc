#include "estimator/job/hf_state_space.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "estimator/base/units.h"
#include "estimator/job/hf_layers.h"

namespace plimsoll {
namespace {

using Kind = ConfigValue::Kind;

constexpr int64_t kMostHeads = 65536;
constexpr int64_t kMostSize = 65536;

enum class Sublayer : uint8_t { kStateSpace, kAttention, kExperts, kMlp };

// By name, newer and older ones, and by letter.
// Source: transformers models/nemotron_h/configuration_nemotron_h.py, _pattern_to_list;
// configuration_utils.py, remap_legacy_layer_types.
struct Word {
  absl::string_view name;
  Sublayer sublayer;
};
constexpr Word kWords[] = {{"linear_attention", Sublayer::kStateSpace},
                           {"mamba", Sublayer::kStateSpace},
                           {"mamba2", Sublayer::kStateSpace},
                           {"M", Sublayer::kStateSpace},
                           {"full_attention", Sublayer::kAttention},
                           {"attention", Sublayer::kAttention},
                           {"*", Sublayer::kAttention},
                           {"moe", Sublayer::kExperts},
                           {"E", Sublayer::kExperts},
                           {"mlp", Sublayer::kMlp},
                           {"-", Sublayer::kMlp}};

class Sublayers {
 public:
  Sublayers(const HfStateSpace& row, HfReader& reader, int64_t count)
      : row_(row), reader_(reader), count_(count) {}

  // Empty where what says it is refused.
  std::vector<Sublayer> Read() {
    if (row_.alone) {
      read_.assign(static_cast<size_t>(count_), Sublayer::kStateSpace);
      return read_;
    }
    if (!row_.attention_layers.empty()) return OfIndices(row_.attention_layers);
    for (const absl::string_view field : {"layers_block_type", "layer_types"}) {
      if (reader_.Has(field)) return OfList(field, *reader_.Find(field));
    }
    constexpr absl::string_view kPattern = "hybrid_override_pattern";
    if (!row_.one_sublayer) {
      read_.assign(static_cast<size_t>(count_), Sublayer::kStateSpace);
    } else if (reader_.Has(kPattern)) {
      return OfPattern(kPattern, *reader_.Find(kPattern));
    } else {
      read_ = {Sublayer::kStateSpace, Sublayer::kExperts, Sublayer::kAttention, Sublayer::kMlp};
    }
    return read_;
  }

  // What says it, or would.
  absl::string_view field() const { return field_; }

 private:
  bool Add(absl::string_view name) {
    for (const Word& word : kWords) {
      const bool mixes =
          word.sublayer == Sublayer::kStateSpace || word.sublayer == Sublayer::kAttention;
      if (word.name != name || !(mixes || row_.one_sublayer)) continue;
      read_.push_back(word.sublayer);
      return true;
    }
    return false;
  }

  std::vector<Sublayer> Refuse(const ConfigValue& value, absl::string_view rule) {
    reader_.Refuse(field_, SeenValue(value), rule);
    return {};
  }

  // Nemotron-H has as many layers as are listed, whatever else is said.
  std::vector<Sublayer> OfList(absl::string_view field, const ConfigValue& list) {
    field_ = field;
    bool known = list.kind == Kind::kList && !list.items.empty();
    for (const ConfigValue& item : list.items) known = known && Add(item.text);
    if (known && (row_.one_sublayer || static_cast<int64_t>(read_.size()) == count_)) return read_;
    if (row_.one_sublayer) return Refuse(list, "must be a list of mamba, attention, moe and mlp");
    return Refuse(list, absl::StrCat("must be mamba or attention for each of ", count_, " layers"));
  }

  std::vector<Sublayer> OfPattern(absl::string_view field, const ConfigValue& pattern) {
    field_ = field;
    bool known = pattern.kind == Kind::kString && !pattern.text.empty();
    for (const char letter : pattern.text) known = known && Add(absl::string_view(&letter, 1));
    if (known) return read_;
    return Refuse(pattern, "must be of M, *, E and -");
  }

  std::vector<Sublayer> OfIndices(absl::string_view field) {
    field_ = field;
    read_.assign(static_cast<size_t>(count_), Sublayer::kStateSpace);
    if (!reader_.Has(field)) return read_;
    const ConfigValue& indices = *reader_.Find(field);
    bool known = indices.kind == Kind::kList;
    for (const ConfigValue& item : indices.items) {  // those of no layer are nobody's
      const bool is =
          item.kind == Kind::kNumber && item.number >= 0 && item.number == std::floor(item.number);
      if (is && item.number < static_cast<double>(count_)) {
        read_[static_cast<size_t>(item.number)] = Sublayer::kAttention;
      }
      known = known && is;
    }
    if (known) return read_;
    return Refuse(indices, "must be a list of whole numbers from 0 on");
  }

  const HfStateSpace& row_;
  HfReader& reader_;
  const int64_t count_;
  absl::string_view field_ = "num_hidden_layers";
  std::vector<Sublayer> read_;
};

std::vector<bool> Are(const std::vector<Sublayer>& sublayers, Sublayer which) {
  std::vector<bool> are;
  are.reserve(sublayers.size());
  for (const Sublayer at : sublayers) are.push_back(at == which);
  return are;
}

bool HasAny(const std::vector<bool>& layers) {
  return std::find(layers.begin(), layers.end(), true) != layers.end();
}

// Heads are as wide together as the hidden size, times so much.
void ReadHeadSize(const HfStateSpace& row, HfReader& reader, int64_t hidden_size,
                  StateSpace& space) {
  if (row.expansion.empty()) {
    space.head_size = reader.Size(row.head_size, kMostSize, row.defaults.head_size);
    return;
  }
  constexpr int64_t kExpansion = 2;
  const int64_t width = Multiply(reader.Size(row.expansion, 64, kExpansion), hidden_size);
  const bool follows = !reader.Has(row.head_size) || reader.Find(row.head_size)->text == "auto";
  const int64_t heads = std::max<int64_t>(space.head_count, 1);
  space.head_size =
      follows ? std::max<int64_t>(width / heads, 1) : reader.Size(row.head_size, kMostSize, 0);
  const bool refused = width == 0 || space.head_count == 0 || space.head_size == 0;
  if (refused) return;
  if (Multiply(space.head_count, space.head_size) == width) return;
  reader.Refuse(row.head_count, absl::StrCat(space.head_count),
                absl::StrCat("heads of ", space.head_size, " must be as wide together as ",
                             row.expansion, " times hidden_size: ", width));
}

// Each channel of what is expanded is a head of Mamba 1. Source: transformers
// models/mamba/configuration_mamba.py, __post_init__.
void ReadChannels(const HfStateSpace& row, HfReader& reader, int64_t hidden_size,
                  StateSpace& space) {
  constexpr int64_t kExpansion = 2;
  constexpr int64_t kChannelsOfStep = 16;
  space.head_count = Multiply(reader.Size(row.expansion, 64, kExpansion), hidden_size);
  space.head_size = 1;
  const bool follows = !reader.Has(row.step_rank) || reader.Find(row.step_rank)->text == "auto";
  space.step_rank = follows ? std::max<int64_t>(CeilDivide(hidden_size, kChannelsOfStep), 1)
                            : reader.Size(row.step_rank, kMostSize, 0);
}

void ReadSizes(const HfStateSpace& row, HfReader& reader, Transformer& model) {
  StateSpace& space = model.state_space;
  const StateSpace& defaults = row.defaults;
  const auto size = [&reader](absl::string_view name, int64_t fallback) {
    return reader.Size(name, kMostSize, fallback);
  };
  if (row.head_count.empty()) {
    ReadChannels(row, reader, model.hidden_size, space);
  } else {
    space.head_count = reader.Size(row.head_count, kMostHeads, defaults.head_count);
    ReadHeadSize(row, reader, model.hidden_size, space);
  }
  space.state_size = size(row.state_size, defaults.state_size);
  space.group_count = size(row.group_count, defaults.group_count);
  space.kernel_size = size(row.kernel_size, defaults.kernel_size);
  space.chunk_size = size(row.chunk_size, defaults.chunk_size);
  space.bias = reader.Flag(row.bias, defaults.bias);
  space.convolution_bias =
      reader.Flag(reader.Name(row.convolution_bias), defaults.convolution_bias);
  if (space.group_count > 0 && space.head_count % space.group_count != 0) {
    reader.Refuse(row.group_count, absl::StrCat(space.group_count),
                  absl::StrCat("must divide ", row.head_count, " ", space.head_count));
  }
}

}  // namespace

void ReadStateSpace(const HfStateSpace& row, HfReader& reader, Transformer& model) {
  if (!row.Any()) return;
  if (!row.wide_residual.empty()) model.wide_residual = reader.Flag(row.wide_residual, true);
  Sublayers source(row, reader, model.layer_count);
  const std::vector<Sublayer> sublayers = source.Read();
  if (sublayers.empty()) return;
  if (static_cast<int64_t>(sublayers.size()) > LayerSet::kMostListed) {
    return reader.Refuse(
        source.field(), absl::StrCat(sublayers.size(), " layers"),
        absl::StrCat("layers of several kinds are modelled up to ", LayerSet::kMostListed),
        ViolationCode::kNotModelled);
  }
  model.layer_count = static_cast<int64_t>(sublayers.size());
  model.one_sublayer = row.one_sublayer;
  const auto set = [&](Sublayer which) {
    return ReadSet(source.field(), Are(sublayers, which), reader);
  };
  if (HasAny(Are(sublayers, Sublayer::kStateSpace))) {
    ReadSizes(row, reader, model);
    model.state_space.layers = set(Sublayer::kStateSpace);
  }
  if (!row.one_sublayer) return;
  model.attended = set(Sublayer::kAttention);
  model.experts.layers = set(Sublayer::kExperts);
}

}  // namespace plimsoll
