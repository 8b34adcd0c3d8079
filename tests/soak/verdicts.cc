#include "tests/soak/verdicts.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace plimsoll {
namespace {

constexpr size_t kShownBugs = 3;

double Percentile(std::vector<double> seconds, double share) {
  if (seconds.empty()) return 0;
  const auto at =
      seconds.begin() + static_cast<ptrdiff_t>(share * static_cast<double>(seconds.size() - 1));
  std::nth_element(seconds.begin(), at, seconds.end());
  return *at;
}

int64_t Count(const std::map<SoakVerdict, int64_t>& counts, SoakVerdict verdict) {
  const auto found = counts.find(verdict);
  return found == counts.end() ? 0 : found->second;
}

}  // namespace

void Verdicts::Add(const std::string& kind, SoakVerdict verdict, double seconds,
                   const std::string& what) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Row& row = rows_[kind];
  ++row.counts[verdict];
  if (verdict == SoakVerdict::kRight) row.seconds.push_back(seconds);
  if (verdict == SoakVerdict::kBug && row.bugs.size() < kShownBugs) row.bugs.push_back(what);
}

int64_t Verdicts::bugs() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  int64_t bugs = 0;
  for (const auto& [kind, row] : rows_) bugs += Count(row.counts, SoakVerdict::kBug);
  return bugs;
}

void Verdicts::Print(std::ostream& out) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  out << absl::StreamFormat("%-24s %9s %9s %5s %9s %9s\n", "call", "right", "refused", "bug",
                            "p50 ms", "p99 ms");
  for (const auto& [kind, row] : rows_) {
    out << absl::StreamFormat(
        "%-24s %9d %9d %5d %9.1f %9.1f\n", kind, Count(row.counts, SoakVerdict::kRight),
        Count(row.counts, SoakVerdict::kRefused), Count(row.counts, SoakVerdict::kBug),
        1e3 * Percentile(row.seconds, 0.5), 1e3 * Percentile(row.seconds, 0.99));
  }
  for (const auto& [kind, row] : rows_) {
    for (const std::string& bug : row.bugs) out << "bug: " << kind << ": " << bug << "\n";
  }
}

}  // namespace plimsoll
