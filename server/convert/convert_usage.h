// ReportUsage between plimsoll.v1 and the estimator's types. Its own rules are
// checked here: the estimator knows nothing of what jobs used.
#ifndef PLIMSOLL_SERVER_CONVERT_CONVERT_USAGE_H_
#define PLIMSOLL_SERVER_CONVERT_CONVERT_USAGE_H_

#include <variant>

#include "estimator/base/violation.h"
#include "estimator/catalog/catalog.h"
#include "plimsoll/v1/planner.pb.h"
#include "server/convert/usage.h"
#include "server/wire/wire_writer.h"

namespace plimsoll {

// Bounds of a report.
inline constexpr int kMaxReportedPeaks = 100000;
inline constexpr size_t kMaxReportedTextBytes = 128;
inline constexpr int64_t kMaxReportedBytes = (int64_t{1} << 50) - 1;

// Returns the report, or all that is wrong with it. A job that breaks the rules of
// this version is no reason to refuse: it ran, and is counted as unknown.
std::variant<UsageReport, Violations> FromProto(const v1::ReportUsageRequest& request,
                                                const Catalog& catalog);

// Writes the fields of a ReportUsageResponse.
void Encode(const UsageReport& report, WireWriter* to);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_CONVERT_CONVERT_USAGE_H_
