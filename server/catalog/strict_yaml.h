// Reading of a table of constants that refuses whatever it does not know, with
// one line that says where.
#ifndef PLIMSOLL_SERVER_CATALOG_STRICT_YAML_H_
#define PLIMSOLL_SERVER_CATALOG_STRICT_YAML_H_

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "estimator/base/vocabulary.h"
#include "server/catalog/data_files.h"

namespace plimsoll {

// Thrown inside ReadStrictly only, as yaml-cpp reports by exceptions anyway.
struct BadTable {
  std::string text;
};

[[noreturn]] inline void Refuse(absl::string_view field, absl::string_view what) {
  throw BadTable{absl::StrCat(field, ": ", what)};
}

template <size_t kCount>
void CheckFields(const YAML::Node& map, const absl::string_view (&known)[kCount],
                 absl::string_view where) {
  if (!map || !map.IsMap()) Refuse(where, "must be a map");
  std::set<std::string> seen;
  for (const auto& entry : map) {
    const std::string& name = entry.first.Scalar();
    if (std::find(std::begin(known), std::end(known), name) == std::end(known)) {
      Refuse(where, absl::StrCat(name, " is not known"));
    }
    if (!seen.insert(name).second) Refuse(where, absl::StrCat(name, " is there twice"));
  }
}

template <typename Value>
Value Read(const YAML::Node& node, absl::string_view field, absl::string_view what) {
  Value value{};
  if (!node || !YAML::convert<Value>::decode(node, value)) Refuse(field, what);
  return value;
}

template <typename Value, size_t kCount>
Value WordNamed(const std::string& name, absl::string_view field,
                const Word<Value> (&words)[kCount]) {
  const std::optional<Value> value = FindWord(name, words);
  if (!value.has_value()) Refuse(field, absl::StrCat(name, " ", NotAWord(name, words)));
  return *value;
}

template <typename Value, size_t kCount>
Value ReadWord(const YAML::Node& node, absl::string_view field,
               const Word<Value> (&words)[kCount]) {
  return WordNamed(Read<std::string>(node, field, "must be a text"), field, words);
}

// Returns what `read` makes of the file's YAML.
//
// Errors: INVALID_ARGUMENT "<path>: <field>: <what is wrong>"
template <typename Table>
absl::StatusOr<Table> ReadStrictly(const DataFile& file, Table (*read)(const YAML::Node&)) {
  try {
    return read(YAML::Load(std::string(file.text)));
  } catch (const BadTable& bad) {
    return absl::InvalidArgumentError(absl::StrCat(file.path, ": ", bad.text));
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(file.path, ": ", error.what()));
  }
}

// Returns the text of a file of a site's own, of at most a mebibyte.
//
// Errors: INVALID_ARGUMENT "<path>: <why it cannot be read>"
absl::StatusOr<std::string> ReadSiteFile(const std::string& path);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_CATALOG_STRICT_YAML_H_
