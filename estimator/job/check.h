// Checks single fields and collects what is wrong with them.
#ifndef PLIMSOLL_ESTIMATOR_JOB_CHECK_H_
#define PLIMSOLL_ESTIMATOR_JOB_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "estimator/base/notice.h"
#include "estimator/base/violation.h"
#include "estimator/base/vocabulary.h"
#include "estimator/job/fields.h"

namespace plimsoll {

inline constexpr size_t kMostNames = 64;  // in a list

// Returns what was seen as messages show it: escaped, cut to 64 bytes.
std::string ShownValue(absl::string_view value);

// Collects violations and assumptions of one job. Field paths are given below
// "job.".
class Check {
 public:
  explicit Check(std::vector<Assumption>& assumptions) : assumptions_(assumptions) {}

  // Adds a violation; `value` is cut to 64 bytes.
  void Fail(absl::string_view field, absl::string_view value, std::string rule, ViolationCode code,
            std::initializer_list<absl::string_view> others = {});
  void Fail(absl::string_view field, int64_t value, std::string rule, ViolationCode code,
            std::initializer_list<absl::string_view> others = {}) {
    Fail(field, absl::StrCat(value), std::move(rule), code, others);
  }
  // Adds the violation of a name that is not among a field's words: that it is not modelled
  // where it is one that others have, else `rule`.
  void FailWord(absl::string_view field, absl::string_view name, std::string rule);
  void Assume(absl::string_view field, absl::string_view text, absl::string_view reason) {
    assumptions_.push_back({field, text, 0, reason});
  }
  void Assume(absl::string_view field, int64_t number, absl::string_view reason) {
    assumptions_.push_back({field, {}, number, reason});
  }

  // Returns the number if it is set and in the field's range; else adds a violation
  // (where it is set and out of range) and returns `otherwise`.
  int64_t Number(KnownField field, const std::optional<int64_t>& number, int64_t otherwise);
  // The same for a number that must be set; returns the least where it is not.
  int64_t Required(KnownField field, const std::optional<int64_t>& number);
  // Returns the share if it is from 0 to 1, else adds a violation.
  double Share(absl::string_view field, const std::optional<double>& share, double otherwise);

  // Returns whether a list has at most `most` entries, else adds a violation; `what` says of what.
  bool FewEnough(absl::string_view field, size_t count, absl::string_view what, size_t most);

  // Returns the meaning of a name, or nothing and a violation where it is not
  // among `words`.
  template <typename Value, size_t kCount>
  std::optional<Value> Meaning(absl::string_view field, absl::string_view name,
                               const Word<Value> (&words)[kCount]) {
    const std::optional<Value> value = FindWord(name, words);
    if (!value.has_value()) FailWord(field, name, NotAWord(name, words));
    return value;
  }

  Violations& violations() { return violations_; }

 private:
  std::vector<Assumption>& assumptions_;
  Violations violations_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_JOB_CHECK_H_
