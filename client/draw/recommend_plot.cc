#include "client/draw/recommend_plot.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/draw/label_placer.h"
#include "client/draw/plot_axis.h"
#include "client/draw/recommend_plot_legend.h"
#include "client/draw/recommend_plot_scale.h"
#include "client/draw/recommend_points.h"
#include "client/format/xml_writer.h"
#include "client/io/text.h"
#include "client/show/recommend_words.h"
#include "client/show/role_style.h"
#include "server/wire/shorten.h"

namespace plimsoll {
namespace {

constexpr double kWidth = 1120;
constexpr double kMargin = 24;
constexpr double kBold = 1.12;  // times as wide
constexpr double kLineHeight = 16;
constexpr double kPointRadius = 4.5;
constexpr double kBadgeSize = 19;

constexpr char kPlotStyle[] = R"(
.ground{fill:#fff}.ink{fill:#1b2027}.faint{fill:#59626d}.grid{stroke:#dfe3e8}
.halo{stroke:#fff;stroke-width:4;stroke-linejoin:round;paint-order:stroke}
.fits{fill:#1a7f37}.risk{fill:#9a6700}.over{fill:#cf222e}
.capacity{stroke:#cf222e;stroke-width:2;stroke-dasharray:7 4}
.beyond{fill:#cf222e;opacity:.06}
.front{fill:none;stroke-width:2;opacity:.75}.range{stroke-width:2;opacity:.6}
.leader{stroke:#59626d}.mark{stroke:#fff;stroke-width:1.2}
.badge{fill:#fff;stroke-width:2}.asked{fill:#fff;stroke:#1b2027;stroke-width:2}
@media (prefers-color-scheme:dark){
.ground{fill:#14171b}.ink{fill:#e8ebef}.faint{fill:#a3acb6}.grid{stroke:#2d333b}
.halo{stroke:#14171b}.fits{fill:#4cc26a}.risk{fill:#e3b341}.over{fill:#ff7b72}
.capacity{stroke:#ff7b72}.beyond{fill:#ff7b72}.leader{stroke:#a3acb6}.mark{stroke:#14171b}
.badge{fill:#14171b}.asked{fill:#14171b;stroke:#e8ebef}}
)";

double TextWidth(absl::string_view text) { return DisplayWidth(text) * kCharacterWidth; }

class Picture {
 public:
  explicit Picture(const v1::RecommendConfigResponse& response)
      : response_(response),
        all_(CollectPoints(response)),
        memory_(MemoryAxis(all_)),
        time_(TimeAxis(all_)),
        placer_(kPlotBox) {}

  std::string Write() &&;

 private:
  double X(const v1::Candidate& c) const { return memory_.At(Gib(c.device().bound_bytes())); }
  double Y(const v1::Candidate& c) const { return time_.At(c.step_time().seconds()); }
  std::string ColorOf(size_t series) const { return SeriesColor(series, all_.series.size()); }

  void Header();
  void Grid();
  void Capacities();
  void ReserveMarks();
  void ReserveLine(const v1::Candidate& from, const v1::Candidate& to);
  void Fronts();
  void Points();
  void Point(const RecommendPoint& point);
  void Mark(const RecommendPoint& point);
  void Badge(const RecommendPoint& point);
  void SeriesLabels();
  void Words(double x, double y, const char* style, absl::string_view words,
             const char* anchor = "start");
  void Line(double x1, double y1, double x2, double y2, const char* style);

  const v1::RecommendConfigResponse& response_;
  const RecommendPoints all_;
  const PlotAxis memory_;
  const PlotAxis time_;
  LabelPlacer placer_;
  XmlWriter xml_;
};

void Picture::Words(double x, double y, const char* style, absl::string_view words,
                    const char* anchor) {
  xml_.Leaf("text",
            {{"x", Coordinate(x)}, {"y", Coordinate(y)}, {"class", style}, {"text-anchor", anchor}},
            words);
}

void Picture::Line(double x1, double y1, double x2, double y2, const char* style) {
  xml_.Empty("line", {{"x1", Coordinate(x1)},
                      {"y1", Coordinate(y1)},
                      {"x2", Coordinate(x2)},
                      {"y2", Coordinate(y2)},
                      {"class", style}});
}

std::string Tooltip(const RecommendPoint& point) {
  const v1::Candidate& c = *point.candidate;
  return absl::StrCat(
      point.name.empty() ? "" : absl::StrCat(point.name, ": "), ChangeWords(c, Glyphs::kUnicode),
      "; ", GpuWords(c.job(), Glyphs::kUnicode), ", bound ",
      MemoryWords(c.device().bound_bytes(), c), ", expected ",
      FormatBytes(c.device().expected_bytes()), ", ", FormatSeconds(c.step_time().seconds()),
      " a step (", FormatSeconds(c.step_time().low_seconds()), " to ",
      FormatSeconds(c.step_time().high_seconds()), "), ",
      absl::StrFormat("%.0f %% MFU", c.step_time().model_flops_utilization() * 100));
}

void Picture::Header() {
  const v1::Candidate& asked = response_.requested();
  const bool fits = response_.candidates_size() > 0;
  const char* const style = asked.verdict() == v1::VERDICT_FITS      ? "fits"
                            : asked.verdict() == v1::VERDICT_AT_RISK ? "risk"
                                                                     : "over";
  xml_.Open("text",
            {{"x", Coordinate(kMargin)}, {"y", "36"}, {"font-size", "20"}, {"font-weight", "600"}});
  xml_.Leaf("tspan", {{"class", "ink"}},
            absl::StrCat(ModelWords(asked.job().model()), " on ",
                         GpuWords(asked.job(), Glyphs::kUnicode)));
  xml_.Leaf("tspan", {{"class", style}, {"dx", "8"}}, VerdictName(asked.verdict()));
  xml_.Leaf("tspan", {{"class", "faint"}, {"dx", "8"}, {"font-weight", "400"}}, "as asked");
  xml_.Close();
  const v1::Candidate& shown = fits ? response_.candidates(0) : response_.obstacle().nearest();
  if (fits || response_.has_obstacle()) {
    Words(kMargin, 60, "ink",
          absl::StrCat(
              fits ? "Best: " : "Nothing fits; the nearest: ", ChangeWords(shown, Glyphs::kUnicode),
              "; bound ", MemoryWords(shown.device().bound_bytes(), shown), ", ",
              FormatSeconds(shown.step_time().seconds()), " a step"));
  }
  const bool front = std::any_of(all_.series.begin(), all_.series.end(),
                                 [](const auto& series) { return series.front.size() > 1; });
  Words(kMargin, 79, "faint",
        absl::StrCat(
            CountWords(response_), response_.truncated() ? "; cut short by the deadline" : "",
            front ? ". On the lines: what no other beats in time, GPUs and memory at once." : "."));
}

void Picture::Grid() {
  for (const double seconds : time_.Ticks()) {
    const double y = time_.At(seconds);
    Line(kPlotBox.left, y, kPlotBox.right, y, "grid");
    Words(kPlotBox.left - 8, y + 4, "faint",
          seconds < 1 ? absl::StrFormat("%g ms", seconds * 1000) : absl::StrFormat("%g s", seconds),
          "end");
  }
  for (const double gib : memory_.Ticks()) {
    const double x = memory_.At(gib);
    Line(x, kPlotBox.top, x, kPlotBox.bottom, "grid");
    Words(x, kPlotBox.bottom + 18, "faint", absl::StrFormat("%g", gib), "middle");
  }
  Words(kMargin, kPlotBox.top - 40, "faint",
        time_.logarithmic() ? "Time of a step (logarithmic), lower is better"
                            : "Time of a step, lower is better");
  Words(kPlotBox.right, kPlotBox.bottom + 38, "faint",
        "Upper bound of the memory of each GPU, GiB; the line to its left reaches to the expected "
        "figure",
        "end");
}

// What each type of GPU has; labels in two rows where they are close.
void Picture::Capacities() {
  std::map<int64_t, std::set<std::string>> names;
  for (const RecommendPoint& point : all_.points) {
    names[point.candidate->usable_bytes()].insert(Clean(point.candidate->job().cluster().gpu()));
  }
  const double most = memory_.At(Gib(names.rbegin()->first));
  xml_.Empty("rect", {{"x", Coordinate(most)},
                      {"y", Coordinate(kPlotBox.top)},
                      {"width", Coordinate(kPlotBox.right - most)},
                      {"height", Coordinate(kPlotBox.bottom - kPlotBox.top)},
                      {"class", "beyond"}});
  double taken[] = {0, 0};  // to the right of each row's last label
  for (const auto& [bytes, gpus] : names) {
    const double x = memory_.At(Gib(bytes));
    Line(x, kPlotBox.top - 6, x, kPlotBox.bottom, "capacity");
    placer_.Discourage(
        {.left = x - 2, .right = x + 2, .top = kPlotBox.top, .bottom = kPlotBox.bottom});
    const std::string words = absl::StrCat(FormatBytes(bytes), " ", absl::StrJoin(gpus, ", "));
    const double middle = std::min(x, kPlotBox.right - TextWidth(words) / 2);
    const size_t row = middle - TextWidth(words) / 2 > taken[0] ? 0 : 1;
    if (middle - TextWidth(words) / 2 <= taken[row]) continue;  // a third so near: its tooltips say
    taken[row] = middle + TextWidth(words) / 2 + 8;
    Words(middle, kPlotBox.top - 10 - 15 * static_cast<double>(row), "over", words, "middle");
  }
}

// Marks come first: no label may cover one. Lines had better stay free too.
void Picture::ReserveMarks() {
  for (const RecommendPoint& point : all_.points) {
    const double x = X(*point.candidate);
    const double y = Y(*point.candidate);
    const double radius = kPointRadius + (point.name.empty() ? 0 : 3);
    placer_.Block(
        {.left = x - radius, .right = x + radius, .top = y - radius, .bottom = y + radius});
  }
  for (const RecommendSeries& series : all_.series) {
    for (size_t i = 1; i < series.front.size(); ++i) {
      ReserveLine(*all_.points[series.front[i - 1]].candidate,
                  *all_.points[series.front[i]].candidate);
    }
  }
}

void Picture::ReserveLine(const v1::Candidate& from, const v1::Candidate& to) {
  const double length = std::hypot(X(to) - X(from), Y(to) - Y(from));
  for (int i = 0; 6 * i < length; ++i) {
    const double x = X(from) + (X(to) - X(from)) * 6 * i / length;
    const double y = Y(from) + (Y(to) - Y(from)) * 6 * i / length;
    placer_.Discourage({.left = x - 3, .right = x + 3, .top = y - 3, .bottom = y + 3});
  }
}

void Picture::Fronts() {
  for (size_t s = 0; s < all_.series.size(); ++s) {
    const RecommendSeries& series = all_.series[s];
    if (series.front.size() < 2) continue;
    std::string path;
    for (const size_t i : series.front) {
      const v1::Candidate& candidate = *all_.points[i].candidate;
      absl::StrAppend(&path, path.empty() ? "M" : "L", Coordinate(X(candidate)), " ",
                      Coordinate(Y(candidate)));
    }
    xml_.Open("path", {{"class", "front"}, {"stroke", ColorOf(s)}, {"d", path}});
    xml_.Leaf("title", {}, SeriesName(all_, series));
    xml_.Close();
  }
}

// A circle; a diamond for what is not recommended; an arrow at the edge for what
// is beyond it.
void Picture::Mark(const RecommendPoint& point) {
  const double x = X(*point.candidate);
  const double y = Y(*point.candidate);
  const bool beyond = !memory_.Holds(Gib(point.candidate->device().bound_bytes()));
  const bool odd = point.name == "asked" || point.name == "nearest";
  if (!beyond && !odd) {
    xml_.Empty("circle", {{"cx", Coordinate(x)},
                          {"cy", Coordinate(y)},
                          {"r", Coordinate(kPointRadius)},
                          {"fill", ColorOf(point.series)},
                          {"class", "mark"}});
    return;
  }
  const double r = kPointRadius + 2.5;
  const std::string shape =
      beyond ? absl::StrCat("M", Coordinate(x - 2 * r), " ", Coordinate(y - r), "L", Coordinate(x),
                            " ", Coordinate(y), "L", Coordinate(x - 2 * r), " ", Coordinate(y + r),
                            "Z")
             : absl::StrCat("M", Coordinate(x - r), " ", Coordinate(y), "L", Coordinate(x), " ",
                            Coordinate(y - r), "L", Coordinate(x + r), " ", Coordinate(y), "L",
                            Coordinate(x), " ", Coordinate(y + r), "Z");
  xml_.Empty("path", {{"class", "asked"}, {"d", shape}});
}

// The name beside the mark, with a line to it where it is not next to it.
void Picture::Badge(const RecommendPoint& point) {
  const double x = X(*point.candidate);
  const double y = Y(*point.candidate);
  const bool number = point.name.find_first_not_of("0123456789") == std::string::npos;
  const bool beyond = !memory_.Holds(Gib(point.candidate->device().bound_bytes()));
  const std::string words =
      beyond ? absl::StrCat(point.name, ": ", FormatBytes(point.candidate->device().bound_bytes()))
             : point.name;
  const auto place = placer_.Place({.x = beyond ? x - kPointRadius * 2 : x,
                                    .y = y,
                                    .width = number && !beyond ? kBadgeSize : TextWidth(words) + 4,
                                    .height = number && !beyond ? kBadgeSize : kLineHeight,
                                    .gap = 9});
  if (!place.has_value()) return;  // the rows below and the tooltip have it
  const double middle_x = (place->left + place->right) / 2;
  const double middle_y = (place->top + place->bottom) / 2;
  if (std::hypot(middle_x - x, middle_y - y) > 34 && number) {
    Line(x, y, middle_x, middle_y, "leader");
  }
  if (number && !beyond) {
    xml_.Empty("circle", {{"cx", Coordinate(middle_x)},
                          {"cy", Coordinate(middle_y)},
                          {"r", Coordinate(kBadgeSize / 2)},
                          {"stroke", ColorOf(point.series)},
                          {"class", "badge"}});
  }
  Words(middle_x, middle_y + 4.4, number && !beyond ? "ink" : "ink halo", words, "middle");
}

void Picture::Point(const RecommendPoint& point) {
  xml_.Open("g", {{"class", "point"}});
  xml_.Leaf("title", {}, Tooltip(point));
  if (!point.name.empty()) {  // from the expected figure to the bound
    const double from = memory_.At(Gib(point.candidate->device().expected_bytes()));
    xml_.Empty("line", {{"x1", Coordinate(from)},
                        {"x2", Coordinate(X(*point.candidate))},
                        {"y1", Coordinate(Y(*point.candidate))},
                        {"y2", Coordinate(Y(*point.candidate))},
                        {"stroke", ColorOf(point.series)},
                        {"class", "range"}});
  }
  Mark(point);
  if (!point.name.empty()) Badge(point);
  xml_.Close();
}

// What is recommended lies above the rest, the best on top.
void Picture::Points() {
  for (const RecommendPoint& point : all_.points) {
    if (point.name.empty()) Point(point);
  }
  for (auto point = all_.points.rbegin(); point != all_.points.rend(); ++point) {
    if (!point->name.empty()) Point(*point);
  }
}

// At one of the ends of each line, where there is room.
void Picture::SeriesLabels() {
  for (size_t s = 0; s < all_.series.size(); ++s) {
    const RecommendSeries& series = all_.series[s];
    if (series.front.size() < 2) continue;
    const std::string name = SeriesName(all_, series);
    for (const size_t end : {series.front.back(), series.front.front()}) {
      const v1::Candidate& candidate = *all_.points[end].candidate;
      const auto place = placer_.Place({.x = X(candidate),
                                        .y = Y(candidate),
                                        .width = TextWidth(name) * kBold + 4,
                                        .height = kLineHeight,
                                        .gap = 9});
      if (!place.has_value()) continue;
      xml_.Leaf("text",
                {{"x", Coordinate(place->left + 2)},
                 {"y", Coordinate(place->bottom - 4)},
                 {"class", "halo"},
                 {"fill", ColorOf(s)},
                 {"font-weight", "600"}},
                name);
      break;
    }
  }
}

std::string Picture::Write() && {
  Header();
  Grid();
  Capacities();
  ReserveMarks();
  Fronts();
  Points();
  SeriesLabels();
  const double height = WriteLegend(all_, kMargin, kPlotBox.bottom + 66, &xml_);
  XmlWriter xml;
  xml.Open("svg", {{"xmlns", "http://www.w3.org/2000/svg"},
                   {"viewBox", absl::StrCat("0 0 ", Coordinate(kWidth), " ", Coordinate(height))},
                   {"width", Coordinate(kWidth)},
                   {"height", Coordinate(height)},
                   {"role", "img"},
                   {"font-family", "system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif"},
                   {"font-size", "12.5"}});
  xml.Leaf("title", {},
           absl::StrCat("Time against memory: ", ModelWords(response_.requested().job().model())));
  xml.Open("style");
  xml.Raw(kPlotStyle);
  xml.Close();
  xml.Empty("rect",
            {{"width", Coordinate(kWidth)}, {"height", Coordinate(height)}, {"class", "ground"}});
  xml.Raw(std::move(xml_).Take());
  xml.Close();
  return std::move(xml).Take();
}

}  // namespace

std::string RecommendPlot(const v1::RecommendConfigResponse& response) {
  return Picture(response).Write();
}

}  // namespace plimsoll
