#include "estimator/catalog/preferences.h"

#include <cstddef>

namespace plimsoll {

const PreferenceRow& RowOf(PreferenceMethod method) {
  static constexpr PreferenceRow kRows[] = {
      {.method = PreferenceMethod::kDpo},
      {.method = PreferenceMethod::kKto,
       .sequences = 1,
       .runs_twice = true,
       .compares_twice = true},
      {.method = PreferenceMethod::kReward, .compares = false, .unasked = false, .scores = true},
      {.method = PreferenceMethod::kGrpo,
       .sequences = 1,
       .unasked = false,
       .runs_twice = true,
       .samples = true},
  };
  return kRows[static_cast<size_t>(method)];
}

}  // namespace plimsoll
