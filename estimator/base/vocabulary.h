// Names that users write, as tables: parsing, and the nearest names for one
// that is not known.
#ifndef PLIMSOLL_ESTIMATOR_BASE_VOCABULARY_H_
#define PLIMSOLL_ESTIMATOR_BASE_VOCABULARY_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace plimsoll {

// One name and what it means.
template <typename Value>
struct Word {
  absl::string_view name;
  Value value;
};

// Returns at most three of `names` that are within a third of their length in
// edits of `seen`, nearest first, ties by name.
std::vector<absl::string_view> NearestNames(absl::string_view seen,
                                            const std::vector<absl::string_view>& names);

// Returns "must be one of a, b, c", or where that is more than twelve names,
// "is not known; nearest: a, b", or "is not known" where none is near.
std::string NotAWord(absl::string_view seen, const std::vector<absl::string_view>& names);

// Returns what `name` means, or nothing where it is not among `words`.
template <typename Value, size_t kCount>
std::optional<Value> FindWord(absl::string_view name, const Word<Value> (&words)[kCount]) {
  for (const Word<Value>& word : words) {
    if (word.name == name) return word.value;
  }
  return std::nullopt;
}

// The name of `value`, which is among `words`.
template <typename Value, typename Other, size_t kCount>
absl::string_view NameOf(const Other& value, const Word<Value> (&words)[kCount]) {
  for (const Word<Value>& word : words) {
    if (word.value == value) return word.name;
  }
  return {};
}

// The same rule for a name that is not among `words`.
template <typename Value, size_t kCount>
std::string NotAWord(absl::string_view seen, const Word<Value> (&words)[kCount]) {
  std::vector<absl::string_view> names;
  for (const Word<Value>& word : words) names.push_back(word.name);
  return NotAWord(seen, names);
}

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_BASE_VOCABULARY_H_
