// An HTTP status on a line, and what follows it, as Prometheus or another server answers a
// query.
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "client/report/prometheus_query.h"
#include "tests/fuzz/fuzzer.h"

namespace plimsoll {

void FuzzPrometheus(absl::string_view input) {
  int code = 0;
  if (!absl::SimpleAtoi(TakeLine(&input), &code)) return;
  const std::string url = "http://localhost:9090";
  const auto values = ReadPrometheusAnswer(url, code, std::string(input));
  if (values.ok()) return Promise(code == 200, "an error is none of Prometheus's answers");
  const absl::string_view line(values.status().message().data(), values.status().message().size());
  Promise(absl::StartsWith(line, url), "an error begins with the URL");
  Promise(std::none_of(line.begin(), line.end(),
                       [](unsigned char c) { return absl::ascii_iscntrl(c); }),
          "an error is one line");
}

}  // namespace plimsoll
