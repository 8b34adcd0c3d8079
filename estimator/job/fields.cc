#include "estimator/job/fields.h"

#include <algorithm>
#include <iterator>

namespace plimsoll {

const FieldRow* FindFieldRow(absl::string_view path) {
  const auto* const row = std::find_if(std::begin(kFieldRows), std::end(kFieldRows),
                                       [path](const FieldRow& row) { return row.path == path; });
  return row == std::end(kFieldRows) ? nullptr : row;
}

const std::vector<absl::string_view>& FieldPaths() {
  static const auto* const paths = [] {
    auto* const all = new std::vector<absl::string_view>;
    for (const FieldRow& row : kFieldRows) all->push_back(row.path);
    return all;
  }();
  return *paths;
}

}  // namespace plimsoll
