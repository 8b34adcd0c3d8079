// The one line that people see.
#include "client/report/report_words.h"

#include "gtest/gtest.h"

namespace plimsoll {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;

v1::ReportUsageRequest Report() {
  v1::ReportUsageRequest request;
  v1::Prediction& prediction = *request.mutable_prediction();
  prediction.set_verdict(v1::VERDICT_AT_RISK);
  prediction.mutable_device()->set_expected_bytes(66 * kGib);
  prediction.mutable_device()->set_bound_bytes(72 * kGib);
  prediction.mutable_allocated()->set_expected_bytes(50 * kGib);
  prediction.mutable_allocated()->set_bound_bytes(51 * kGib);
  prediction.mutable_reserved()->set_expected_bytes(60 * kGib);
  prediction.mutable_reserved()->set_bound_bytes(61 * kGib);
  request.set_outcome("finished");
  request.set_gauge("device");
  request.add_actual_peak_bytes(60 * kGib);
  request.add_actual_peak_bytes(62 * kGib);
  return request;
}

TEST(ReportLineTest, ComparesTheFullestGpu) {
  v1::ReportUsageRequest request = Report();
  EXPECT_EQ(ReportLine(request),
            "finished: 62.00 of 66.00 GiB predicted, ratio 0.94, under the bound of 72.00 GiB");
  request.set_actual_peak_bytes(0, 72 * kGib);
  EXPECT_EQ(ReportLine(request),
            "finished: 72.00 of 66.00 GiB predicted, ratio 1.09, under the bound of 72.00 GiB");
  request.set_actual_peak_bytes(0, 73 * kGib);
  EXPECT_EQ(ReportLine(request),
            "finished: 73.00 of 66.00 GiB predicted, ratio 1.11, over the bound of 72.00 GiB");
}

TEST(ReportLineTest, IsOfTheGaugeThatWasMeasured) {
  v1::ReportUsageRequest request = Report();
  request.set_gauge("allocated");
  EXPECT_EQ(MeasuredGauge(request).expected_bytes(), 50 * kGib);
  request.set_gauge("reserved");
  EXPECT_EQ(MeasuredGauge(request).expected_bytes(), 60 * kGib);
  EXPECT_EQ(ReportLine(request),
            "finished: 62.00 of 60.00 GiB predicted, ratio 1.03, over the bound of 61.00 GiB");
}

// No ratio: it held less than it needed.
TEST(ReportLineTest, SaysTheVerdictOfAJobThatEndedEarly) {
  v1::ReportUsageRequest request = Report();
  request.set_outcome("out-of-memory");
  EXPECT_EQ(ReportLine(request),
            "out-of-memory: 62.00 of 66.00 GiB predicted when it ended, the verdict was AT RISK");
  request.clear_actual_peak_bytes();
  request.mutable_prediction()->set_verdict(v1::VERDICT_FITS);
  EXPECT_EQ(ReportLine(request), "out-of-memory: 66.00 GiB predicted, the verdict was FITS");
  request.set_outcome("other");
  request.mutable_prediction()->set_verdict(v1::VERDICT_DOES_NOT_FIT);
  EXPECT_EQ(ReportLine(request), "other: 66.00 GiB predicted, the verdict was DOES NOT FIT");
}

}  // namespace
}  // namespace plimsoll
