#include "server/catalog/hf_id_table.h"

#include <cstdlib>
#include <iostream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/catalog/strict_yaml.h"

namespace plimsoll {
namespace {

constexpr size_t kMaxIdBytes = 256;

HfIdTable ReadTable(const YAML::Node& table) {
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

HfIdTable LoadTable() {
  for (const DataFile& file : EmbeddedFiles()) {
    if (file.path != "hf_ids.yaml") continue;
    absl::StatusOr<HfIdTable> table = ReadHfIdTable(file);
    if (table.ok()) return *std::move(table);
    std::cerr << "plimsoll: the catalog is broken: " << table.status().message() << "\n";
    std::abort();
  }
  return {};
}

}  // namespace

absl::StatusOr<HfIdTable> ReadHfIdTable(const DataFile& file) {
  return ReadStrictly<HfIdTable>(file, ReadTable);
}

const HfIdTable& LoadHfIds() {
  static const auto* const table = new HfIdTable(LoadTable());
  return *table;
}

std::string CatalogName(const std::string& name) {
  // A name of the catalog has no slash: most need no look.
  if (name.size() > kMaxIdBytes || name.find('/') == std::string::npos) return name;
  const auto found = LoadHfIds().find(absl::AsciiStrToLower(name));
  return found == LoadHfIds().end() ? name : found->second.model;
}

}  // namespace plimsoll
