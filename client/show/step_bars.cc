#include "client/show/step_bars.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/io/text.h"
#include "client/show/recommend_words.h"

namespace plimsoll {
namespace {

using Align = Columns::Align;

constexpr int kMinCells = 10;
constexpr int kMaxCells = 60;
constexpr int kFigures = 53;  // columns beside the bar
constexpr int kBlue = 33;     // work that trains
constexpr int kOrange = 208;  // work done again
constexpr int kViolet = 134;  // sending
constexpr int kGrey = 245;    // waiting

int TermColor(v1::StepTerm term) {
  switch (term) {
    case v1::STEP_TERM_RECOMPUTE:
      return kOrange;
    case v1::STEP_TERM_TENSOR_COMMUNICATION:
    case v1::STEP_TERM_CONTEXT_COMMUNICATION:
    case v1::STEP_TERM_PIPELINE_COMMUNICATION:
    case v1::STEP_TERM_DATA_COMMUNICATION:
      return kViolet;
    case v1::STEP_TERM_KERNEL_LAUNCH:
    case v1::STEP_TERM_PIPELINE_BUBBLE:
    case v1::STEP_TERM_FIXED:
      return kGrey;
    default:
      return kBlue;
  }
}

struct BarPart {
  v1::StepTerm term;
  double best_seconds = 0;
  double asked_seconds = 0;
};

// The parts that take time in either step, the longest of the best first.
std::vector<BarPart> PartsOf(const v1::StepTime& best, const v1::StepTime& asked) {
  std::map<v1::StepTerm, BarPart> parts;
  for (const v1::StepTermSeconds& term : best.terms()) {
    parts[term.term()].best_seconds += term.seconds();
  }
  for (const v1::StepTermSeconds& term : asked.terms()) {
    parts[term.term()].asked_seconds += term.seconds();
  }
  std::vector<BarPart> sorted;
  for (auto& [term, part] : parts) {
    part.term = term;
    if (part.best_seconds > 0 || part.asked_seconds > 0) sorted.push_back(part);
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const BarPart& a, const BarPart& b) {
    return a.best_seconds > b.best_seconds;
  });
  return sorted;
}

std::string Bar(const BarPart& part, double longest, int cells, const Terminal& terminal) {
  const long count = std::lround(part.best_seconds / longest * cells);
  std::string bar;
  for (long i = 0; i < count; ++i) bar += terminal.unicode ? "█" : "#";
  return bar.empty() ? "" : Paint(bar, TermColor(part.term), terminal);
}

}  // namespace

std::string StepBars(const char* name, const v1::StepTime& best, const v1::StepTime& asked,
                     const Terminal& terminal) {
  const std::vector<BarPart> parts = PartsOf(best, asked);
  if (parts.empty()) return "";
  const double longest = std::max(parts.front().best_seconds, 1e-12);
  const int cells = std::clamp(terminal.width - kFigures, kMinCells, kMaxCells);
  Columns columns({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kLeft});
  columns.Add({"", name, "", "asked", ""});
  const auto time_of = [](double seconds) {
    return seconds > 0 ? FormatSeconds(seconds) : std::string("-");
  };
  for (const BarPart& part : parts) {
    columns.Add(
        {TermName(part.term), time_of(part.best_seconds),
         absl::StrFormat("%.0f%%", part.best_seconds / std::max(best.seconds(), 1e-12) * 100),
         time_of(part.asked_seconds), Bar(part, longest, cells, terminal)});
  }
  columns.Add({"one step", FormatSeconds(best.seconds()), "", FormatSeconds(asked.seconds()), ""});
  return absl::StrCat("\nWhere the time of a step goes, on the slowest pipeline stage\n",
                      columns.ToText(1, terminal.width));
}

}  // namespace plimsoll
