#include "client/show/diff_table.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/io/text.h"
#include "client/show/recommend_words.h"
#include "client/show/role_style.h"
#include "client/show/warning_lines.h"
#include "server/admit/job_environment.h"
#include "server/wire/shorten.h"

namespace plimsoll {
namespace {

using Align = Columns::Align;

constexpr int kFigures = 53;  // columns beside the bars
constexpr int kMinCells = 4;
constexpr int kMaxCells = 20;

std::string StepWords(const v1::StepTime& time) {
  return absl::StrCat(time.basis() == "spec-only" ? "~" : "", FormatSeconds(time.seconds()));
}

// The job in a line, and the verdict on it in another.
std::string Heading(const char* name, const v1::ComparedJob& compared, const Terminal& terminal) {
  const v1::EstimateMemoryResponse& answer = compared.estimate();
  const v1::Gauge& device = LimitingRank(answer).device();
  const std::string job = absl::StrCat(
      name, "  ", compared.source() == "-" ? "standard input" : Clean(compared.source()), "  ",
      ModelWords(compared.job().model()), " on ",
      GpuWords(compared.job(), terminal.unicode ? Glyphs::kUnicode : Glyphs::kAscii));
  const std::string verdict = absl::StrCat(
      "   ", VerdictWord(answer.verdict(), terminal), "  ",
      absl::StrFormat("%.1f of %s on ", Gib(device.expected_bytes()),
                      FormatBytes(answer.usable_bytes())),
      answer.ranks_size() > 1 ? "the fullest" : "each", ", bound ",
      FormatBytes(device.bound_bytes()),
      compared.has_step_time() ? absl::StrCat(", ", StepWords(compared.step_time()), " a step")
                               : "");
  return absl::StrCat(Wrap(job, terminal.width, 3), "\n", Wrap(verdict, terminal.width, 5), "\n");
}

std::string ValueWords(const std::string& text, bool assumed) {
  return text.empty() ? "-" : absl::StrCat(Clean(text), assumed ? " *" : "");
}

std::string Fields(const v1::JobComparison& comparison, const Terminal& terminal) {
  if (comparison.fields().empty()) return "The jobs say the same\n";
  Columns columns({Align::kLeft, Align::kLeft, Align::kLeft});
  columns.Add({"What differs", "A", "B"});
  bool any_assumed = false;
  for (const v1::FieldDifference& field : comparison.fields()) {
    columns.Add({absl::StrCat(" ", Clean(field.field())),
                 ValueWords(field.first(), field.first_assumed()),
                 ValueWords(field.second(), field.second_assumed())});
    any_assumed = any_assumed || field.first_assumed() || field.second_assumed();
  }
  return absl::StrCat(columns.ToText(0, terminal.width),
                      any_assumed ? " * assumed: the job leaves it open\n" : "");
}

// "+1.25", "-0.50", or "=" where the figures shown are the same; in red what is for the
// worse.
std::string Difference(double value, bool more_is_worse, const Terminal& terminal) {
  const std::string text = absl::StrFormat("%+.2f", value);
  if (text == "+0.00" || text == "-0.00") return "=";
  return Paint(text, (value > 0) == more_is_worse ? kRed : kGreen, terminal);
}

// A bar to the left of the middle for less, to the right for more.
std::string Bar(double value, double largest, int cells, const Terminal& terminal) {
  const auto length = static_cast<int>(std::lround(std::abs(value) / largest * cells));
  std::string bar;
  for (int i = 0; i < length; ++i) bar += terminal.unicode ? "█" : value > 0 ? "+" : "-";
  const std::string painted = bar.empty() ? "" : Paint(bar, value > 0 ? kRed : kGreen, terminal);
  const std::string middle = terminal.unicode ? "│" : "|";
  return value > 0 ? absl::StrCat(PadLeft("", cells), middle, painted)
                   : absl::StrCat(PadLeft(painted, cells), middle);
}

std::string Roles(const v1::JobComparison& comparison, const Terminal& terminal) {
  const int cells = std::clamp((terminal.width - kFigures) / 2, kMinCells, kMaxCells);
  double largest = 1e-12;
  for (const v1::RoleDifference& role : comparison.roles()) {
    largest = std::max(largest, std::abs(Gib(role.difference_bytes())));
  }
  Columns columns({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kLeft});
  columns.Add({"GiB", "A", "B", "B - A", ""});
  for (const v1::RoleDifference& role : comparison.roles()) {
    const double difference = Gib(role.difference_bytes());
    columns.Add({RoleName(role.role()), FormatInGib(role.first_bytes()),
                 FormatInGib(role.second_bytes()), Difference(difference, true, terminal),
                 Bar(difference, largest, cells, terminal)});
  }
  const v1::RankMemory& first = LimitingRank(comparison.first().estimate());
  const v1::RankMemory& second = LimitingRank(comparison.second().estimate());
  const std::string heading = absl::StrCat(
      "Where it goes on the fullest GPU of each, at its peak in ", PhaseName(first.peak_phase()),
      first.peak_phase() == second.peak_phase()
          ? ""
          : absl::StrCat(" (A), in ", PhaseName(second.peak_phase()), " (B)"));
  return absl::StrCat(Wrap(heading, terminal.width, 2), "\n", columns.ToText(1, terminal.width));
}

std::string Gauges(const v1::JobComparison& comparison, const Terminal& terminal) {
  Columns columns({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight,
                   Align::kRight, Align::kRight});
  columns.Add({"GiB", "A", "bound", "B", "bound", "B - A", "bound"});
  for (const v1::GaugeDifference& gauge : comparison.gauges()) {
    const bool more_is_worse = gauge.gauge() != "headroom";
    const auto difference = [&](int64_t bytes) {
      return Difference(Gib(bytes), more_is_worse, terminal);
    };
    columns.Add(
        {Clean(gauge.gauge()), FormatInGib(gauge.first().expected_bytes()),
         FormatInGib(gauge.first().bound_bytes()), FormatInGib(gauge.second().expected_bytes()),
         FormatInGib(gauge.second().bound_bytes()), difference(gauge.difference().expected_bytes()),
         difference(gauge.difference().bound_bytes())});
  }
  return columns.ToText(1, terminal.width);
}

std::string PercentOf(double value, double of, bool more_is_worse, const Terminal& terminal) {
  if (of <= 0) return "";
  const std::string percent = PacePercent(value, of);
  if (value == of) return "=";
  return Paint(percent, (value > of) == more_is_worse ? kRed : kGreen, terminal);
}

std::string Speed(const v1::JobComparison& comparison, const Terminal& terminal) {
  const v1::ComparedJob& a = comparison.first();
  const v1::ComparedJob& b = comparison.second();
  if (!a.has_step_time() && !b.has_step_time()) return "";
  const bool both = a.has_step_time() && b.has_step_time();
  const auto shown = [](const v1::ComparedJob& job, auto text) {
    return job.has_step_time() ? text(job.step_time()) : std::string("-");
  };
  Columns columns({Align::kLeft, Align::kRight, Align::kRight, Align::kRight});
  const auto add = [&](const char* name, auto text, double of_a, double of_b, bool worse) {
    columns.Add(
        {name, shown(a, text), shown(b, text), both ? PercentOf(of_b, of_a, worse, terminal) : ""});
  };
  columns.Add({"", "A", "B", "B to A"});
  const v1::StepTime& first = a.step_time();
  const v1::StepTime& second = b.step_time();
  add("one step", StepWords, first.seconds(), second.seconds(), true);
  add(
      "tokens/s",
      [](const v1::StepTime& time) {
        return FormatGrouped(std::llround(time.tokens_per_second()));
      },
      first.tokens_per_second(), second.tokens_per_second(), false);
  add(
      "GPU-hours for 1e9 tokens",
      [](const v1::StepTime& time) {
        return FormatGrouped(std::llround(time.gpu_hours_per_billion_tokens()));
      },
      first.gpu_hours_per_billion_tokens(), second.gpu_hours_per_billion_tokens(), true);
  return columns.ToText(1, terminal.width);
}

// What the answers warn of, said once where both do.
std::string Notices(const v1::JobComparison& comparison, const Terminal& terminal) {
  google::protobuf::RepeatedPtrField<v1::Warning> warnings =
      comparison.first().estimate().warnings();
  for (const v1::Warning& warning : comparison.second().estimate().warnings()) {
    const bool known = std::any_of(warnings.begin(), warnings.end(), [&](const v1::Warning& w) {
      return w.code() == warning.code() && w.text() == warning.text();
    });
    if (!known) *warnings.Add() = warning;
  }
  const v1::EstimateMemoryResponse& answer = comparison.first().estimate();
  return absl::StrCat(
      WarningLines(warnings, terminal), "\n",
      Wrap(absl::StrCat("Estimator ", Clean(answer.estimator_version()), ", calibration ",
                        Clean(answer.calibration_id()), ", ", Clean(answer.detail())),
           terminal.width, 2),
      "\n");
}

}  // namespace

std::string ToTable(const v1::JobComparison& comparison, const Terminal& terminal) {
  const std::string speed = Speed(comparison, terminal);
  return absl::StrCat(Heading("A", comparison.first(), terminal),
                      Heading("B", comparison.second(), terminal), "\n",
                      Fields(comparison, terminal), "\n", Roles(comparison, terminal), "\n",
                      Gauges(comparison, terminal), speed.empty() ? "" : "\n", speed,
                      Notices(comparison, terminal));
}

}  // namespace plimsoll
