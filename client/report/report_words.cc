#include "client/report/report_words.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/io/text.h"

namespace plimsoll {
namespace {

const char* VerdictWords(v1::Verdict verdict) {
  switch (verdict) {
    case v1::VERDICT_FITS:
      return "FITS";
    case v1::VERDICT_AT_RISK:
      return "AT RISK";
    default:
      return "DOES NOT FIT";
  }
}

}  // namespace

const v1::Gauge& MeasuredGauge(const v1::ReportUsageRequest& request) {
  const v1::Prediction& prediction = request.prediction();
  if (request.gauge() == "allocated") return prediction.allocated();
  return request.gauge() == "reserved" ? prediction.reserved() : prediction.device();
}

std::string ReportLine(const v1::ReportUsageRequest& request) {
  const v1::Gauge& predicted = MeasuredGauge(request);
  const auto& peaks = request.actual_peak_bytes();
  const std::string expected =
      absl::StrCat(FormatInGib(predicted.expected_bytes()), " GiB predicted");
  const std::string verdict =
      absl::StrCat("the verdict was ", VerdictWords(request.prediction().verdict()));
  if (peaks.empty()) return absl::StrCat(request.outcome(), ": ", expected, ", ", verdict);
  const int64_t actual = *std::max_element(peaks.begin(), peaks.end());
  const std::string held =
      absl::StrCat(request.outcome(), ": ", FormatInGib(actual), " of ", expected);
  if (request.outcome() != "finished") return absl::StrCat(held, " when it ended, ", verdict);
  return absl::StrFormat(
      "%s, ratio %.2f, %s the bound of %s GiB", held,
      static_cast<double>(actual) / static_cast<double>(predicted.expected_bytes()),
      actual <= predicted.bound_bytes() ? "under" : "over", FormatInGib(predicted.bound_bytes()));
}

}  // namespace plimsoll
