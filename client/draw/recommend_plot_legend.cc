#include "client/draw/recommend_plot_legend.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/draw/recommend_plot_scale.h"
#include "client/io/text.h"
#include "client/show/recommend_words.h"
#include "server/wire/shorten.h"

namespace plimsoll {
namespace {

constexpr double kRowHeight = 22;
constexpr double kSwatchColumn = 206;
constexpr size_t kSwatchColumns = 5;

void Words(double x, double y, const char* style, absl::string_view words, XmlWriter* xml) {
  xml->Leaf("text", {{"x", Coordinate(x)}, {"y", Coordinate(y)}, {"class", style}}, words);
}

// The colours; returns where they end.
double WriteColors(const RecommendPoints& all, double left, double top, XmlWriter* xml) {
  for (size_t s = 0; s < all.series.size(); ++s) {
    const double x = left + kSwatchColumn * static_cast<double>(s % kSwatchColumns);
    const size_t row = s / kSwatchColumns;
    const double y = top + kRowHeight * static_cast<double>(row);
    xml->Empty("rect", {{"x", Coordinate(x)},
                        {"y", Coordinate(y - 11)},
                        {"width", "14"},
                        {"height", "14"},
                        {"rx", "2"},
                        {"fill", SeriesColor(s, all.series.size())}});
    Words(x + 21, y + 1, "ink", SeriesName(all, all.series[s]), xml);
  }
  const size_t rows = (all.series.size() - 1) / kSwatchColumns + 1;
  return top + kRowHeight * static_cast<double>(rows);
}

// What is recommended, a row each; returns where it ends.
double WriteRows(const RecommendPoints& all, double left, double top, XmlWriter* xml) {
  const double columns[] = {left, 94, 286, 404, 486, 546};
  const char* const heads[] = {"", "GPUs", "GiB, bound", "step", "MFU", "what changes"};
  for (size_t i = 0; i < std::size(columns); ++i) Words(columns[i], top, "faint", heads[i], xml);
  const int change_width = static_cast<int>((kPlotBox.right - columns[5]) / kCharacterWidth);
  double y = top + kRowHeight;
  for (const RecommendPoint& point : all.points) {
    if (point.name.empty()) continue;
    const v1::Candidate& c = *point.candidate;
    const std::string cells[] = {
        point.name, GpuWords(c.job(), Glyphs::kUnicode),
        absl::StrFormat("%.1f of %.1f", Gib(c.device().bound_bytes()), Gib(c.usable_bytes())),
        FormatSeconds(c.step_time().seconds()),
        absl::StrFormat("%.0f%%", c.step_time().model_flops_utilization() * 100)};
    for (size_t i = 0; i < std::size(cells); ++i) Words(columns[i], y, "ink", cells[i], xml);
    const std::string changes = Wrap(ChangeWords(c, Glyphs::kUnicode), change_width, 0);
    for (const absl::string_view line : absl::StrSplit(changes, '\n')) {
      Words(columns[5], y, "ink", line, xml);
      y += kRowHeight;
    }
  }
  return y;
}

}  // namespace

std::string SeriesName(const RecommendPoints& all, const RecommendSeries& series) {
  const bool one_type = std::all_of(all.series.begin(), all.series.end(),
                                    [&](const auto& other) { return other.gpu == series.gpu; });
  if (!one_type) return absl::StrCat(series.gpu_count, " × ", Clean(series.gpu));
  return absl::StrCat(series.gpu_count, series.gpu_count == 1 ? " GPU" : " GPUs");
}

double WriteLegend(const RecommendPoints& all, double left, double top, XmlWriter* xml) {
  return WriteRows(all, left, WriteColors(all, left, top, xml) + 10, xml);
}

}  // namespace plimsoll
