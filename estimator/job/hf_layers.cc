#include "estimator/job/hf_layers.h"

#include <optional>

#include "absl/strings/str_cat.h"

namespace plimsoll {

LayerSet ReadSet(absl::string_view field, const std::vector<bool>& layers, HfReader& reader) {
  const std::optional<LayerSet> set = SetOf(layers);
  if (set.has_value()) return *set;
  reader.Refuse(
      field, absl::StrCat(layers.size(), " layers"),
      absl::StrCat("layers that come in no turns are modelled up to ", LayerSet::kMostListed),
      ViolationCode::kNotModelled);
  return {};
}

}  // namespace plimsoll
