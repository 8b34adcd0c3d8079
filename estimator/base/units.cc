#include "estimator/base/units.h"

#include "absl/strings/str_format.h"

namespace plimsoll {

std::string FormatGib(int64_t bytes) {
  constexpr double kGib = 1 << 30;
  return absl::StrFormat("%.1f GiB", static_cast<double>(bytes) / kGib);
}

}  // namespace plimsoll
