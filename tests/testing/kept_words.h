// What a block keeps for backward, in words: the name of each tensor and its bytes of one token, as
// "mlp.up.activation 2F".
#ifndef PLIMSOLL_TESTS_TESTING_KEPT_WORDS_H_
#define PLIMSOLL_TESTS_TESTING_KEPT_WORDS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "estimator/step/ledger.h"
#include "gtest/gtest.h"

namespace plimsoll {

// How wide each letter of a shape is.
using Widths = std::map<char, int64_t>;

// "2H" of a token is twice as many bytes as H; "8" is 8 bytes.
inline int64_t BytesOfToken(absl::string_view words, const Widths& widths) {
  const bool has_letter = !words.empty() && absl::ascii_isalpha(words.back());
  const int64_t width = has_letter ? widths.at(words.back()) : 1;
  int64_t times = 0;
  EXPECT_TRUE(absl::SimpleAtoi(words.substr(0, words.size() - (has_letter ? 1 : 0)), &times))
      << words;
  return times * width;
}

// "up 2F; down 2H" as lines, sorted, each with all its bytes of so many tokens.
inline std::vector<std::string> KeptByHand(absl::string_view words, const Widths& widths,
                                           int64_t tokens) {
  std::vector<std::string> lines;
  for (const absl::string_view row : absl::StrSplit(words, "; ", absl::SkipEmpty())) {
    const std::vector<absl::string_view> pair = absl::StrSplit(row, ' ');
    lines.push_back(absl::StrCat(pair[0], " ", tokens * BytesOfToken(pair[1], widths)));
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

// The same of what a run of the block keeps.
inline std::vector<std::string> KeptBy(const Block& block) {
  std::vector<Storage> storages;
  Run(block, WeightGradient::kFused, DType::kBf16, &storages);
  std::vector<std::string> lines;
  for (const Storage& storage : storages) {
    if (!storage.kept) continue;
    lines.push_back(absl::StrCat(block.tensors[storage.tensor].name, " ", storage.bytes));
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_TESTING_KEPT_WORDS_H_
