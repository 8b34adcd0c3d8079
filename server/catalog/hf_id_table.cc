#include "server/catalog/hf_id_table.h"

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/catalog/strict_yaml.h"

namespace plimsoll {
namespace {

HfIdTable HfIdsOf(const YAML::Node& table) {
  if (!table.IsMap()) Refuse("table", "must be a map of models");
  HfIdTable ids;
  for (const auto& entry : table) {
    const std::string& model = entry.first.Scalar();
    if (!entry.second.IsSequence()) Refuse(model, "must be a list of ids");
    for (const YAML::Node& item : entry.second) {
      const auto id = Read<std::string>(item, model, "must be a list of ids");
      const auto [old, is_new] = ids.emplace(absl::AsciiStrToLower(id), HfId{id, model});
      if (!is_new) Refuse(id, absl::StrCat("is already of ", old->second.model));
    }
  }
  return ids;
}

}  // namespace

absl::StatusOr<HfIdTable> ReadHfIdTable(const DataFile& file) {
  return ReadStrictly<HfIdTable>(file, HfIdsOf);
}

}  // namespace plimsoll
