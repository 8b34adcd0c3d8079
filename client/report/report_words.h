// What `plimsoll report` says of a job, for people.
#ifndef PLIMSOLL_CLIENT_REPORT_REPORT_WORDS_H_
#define PLIMSOLL_CLIENT_REPORT_REPORT_WORDS_H_

#include <string>

#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

// Returns the gauge of the prediction that was measured.
const v1::Gauge& MeasuredGauge(const v1::ReportUsageRequest& request);

// Returns one line, as "finished: 61.20 of 66.00 GiB predicted, ratio 0.93, under the
// bound of 72.10 GiB".
std::string ReportLine(const v1::ReportUsageRequest& request);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_REPORT_REPORT_WORDS_H_
