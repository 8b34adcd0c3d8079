#include "estimator/base/vocabulary.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace plimsoll {
namespace {

// Longer names are cut before they are compared: the work is bounded.
constexpr size_t kLongestCompared = 64;
constexpr size_t kMostListed = 12;

// Levenshtein's distance.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::vector<absl::string_view> NearestNames(absl::string_view seen,
                                            const std::vector<absl::string_view>& names) {
  const absl::string_view cut = seen.substr(0, kLongestCompared);
  std::vector<std::pair<size_t, absl::string_view>> near;
  for (absl::string_view name : names) {
    const size_t distance = EditDistance(cut, name);
    const bool begins = cut.size() >= 3 && name.substr(0, cut.size()) == cut;
    if (begins || distance * 3 <= name.size() + 2) near.emplace_back(distance, name);
  }
  std::sort(near.begin(), near.end());
  std::vector<absl::string_view> nearest;
  for (const auto& entry : near) {
    if (nearest.size() < 3) nearest.push_back(entry.second);
  }
  return nearest;
}

std::string NotAWord(absl::string_view seen, const std::vector<absl::string_view>& names) {
  if (names.size() <= kMostListed) {
    return absl::StrCat("must be one of ", absl::StrJoin(names, ", "));
  }
  const std::vector<absl::string_view> nearest = NearestNames(seen, names);
  if (nearest.empty()) return "is not known";
  return absl::StrCat("is not known; nearest: ", absl::StrJoin(nearest, ", "));
}

}  // namespace plimsoll
