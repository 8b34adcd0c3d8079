// Asks Prometheus what the GPUs of a job held at most.
#ifndef PLIMSOLL_CLIENT_REPORT_PROMETHEUS_QUERY_H_
#define PLIMSOLL_CLIENT_REPORT_PROMETHEUS_QUERY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace plimsoll {

// PromQL for the highest DCGM_FI_DEV_FB_USED of each GPU over `window`, in bytes.
// `matchers` select the job, as `hpc_job="4711"`.
std::string DcgmQuery(const std::string& matchers, const std::string& window);

// A PromQL string literal with this content.
std::string PromqlQuoted(absl::string_view text);

struct PrometheusQuery {
  std::string url;  // http://HOST:PORT or https://..., perhaps with a path before /api
  std::string promql;
  absl::Time time = absl::InfiniteFuture();  // of evaluation; or Prometheus's own now
  absl::Duration timeout;                    // of the whole
};

// Returns the values of the series that the query gives; none where it gives none.
//
// Errors, each one line that begins with the URL: INVALID_ARGUMENT for a URL that is
// none; UNAVAILABLE and DEADLINE_EXCEEDED where it does not answer; INTERNAL for an
// answer that is an error, too large, or no instant vector.
absl::StatusOr<std::vector<double>> Ask(const PrometheusQuery& query);

// The same of an answer that came from `url` with an HTTP status.
absl::StatusOr<std::vector<double>> ReadPrometheusAnswer(const std::string& url, int code,
                                                         const std::string& body);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_REPORT_PROMETHEUS_QUERY_H_
