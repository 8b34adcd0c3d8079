#include "estimator/catalog/preferences.h"

#include <cstddef>

namespace plimsoll {

const PreferenceRow& RowOf(PreferenceMethod method) {
  static constexpr PreferenceRow kRows[] = {
      {PreferenceMethod::kDpo, 2, true, false},
      {PreferenceMethod::kKto, 1, true, false},
      {PreferenceMethod::kReward, 2, false, true},
  };
  return kRows[static_cast<size_t>(method)];
}

}  // namespace plimsoll
