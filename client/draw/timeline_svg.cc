#include "client/draw/timeline_svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/draw/timeline_scale.h"
#include "client/io/text.h"
#include "client/show/role_style.h"
#include "client/show/timeline_words.h"

namespace plimsoll {
namespace {

constexpr double kWidth = 1120;
constexpr double kPlotHeight = 372;
constexpr double kNoteHeight = 19;
constexpr double kPhaseHeight = 20;
constexpr double kTextWidth = 7.4;  // of small text, about
constexpr double kLabelGap = 34;    // between two labels of two lines
constexpr double kLegendRow = 22;
constexpr double kLegendColumn = 268;
constexpr size_t kLegendColumns = 4;
constexpr double kMargin = 24;

// What changes least lies lowest, so that what changes can be read.
constexpr std::array<v1::Role, 9> kFromBelow = {
    v1::ROLE_OPTIMIZER_STATE, v1::ROLE_MASTER_WEIGHT, v1::ROLE_WEIGHT,
    v1::ROLE_WORKSPACE,       v1::ROLE_GRADIENT,      v1::ROLE_ACTIVATION,
    v1::ROLE_COMMUNICATION,   v1::ROLE_LOSS,          v1::ROLE_TEMPORARY};

// By the number of v1::Phase.
struct PhaseStyle {
  const char* name;
  const char* color;
};
constexpr PhaseStyle kPhases[] = {{"", "#c9ced4"},          {"forward", "#a9c5e4"},
                                  {"loss", "#efb0bd"},      {"backward", "#cbb6e2"},
                                  {"reduction", "#f0c592"}, {"optimizer", "#a8d3a6"},
                                  {"end", "#c9ced4"}};

constexpr char kTimelineStyle[] = R"(
.ground{fill:#fff}.ink{fill:#1b2027}.faint{fill:#59626d}.grid{stroke:#dfe3e8}
.halo{stroke:#fff;stroke-width:4;stroke-linejoin:round;paint-order:stroke}
.fits{fill:#1a7f37}.risk{fill:#9a6700}.over{fill:#cf222e}.phase{fill:#1b2027}
.reserved{fill:none;stroke:#1b2027;stroke-width:1.6}
.capacity{stroke:#cf222e;stroke-width:2;stroke-dasharray:7 4}
.peak{fill:#fff;stroke:#1b2027;stroke-width:2}
@media (prefers-color-scheme:dark){
.ground{fill:#14171b}.ink{fill:#e8ebef}.faint{fill:#a3acb6}.grid{stroke:#2d333b}
.halo{stroke:#14171b}.fits{fill:#4cc26a}.risk{fill:#e3b341}.over{fill:#ff7b72}
.reserved{stroke:#e8ebef}.capacity{stroke:#ff7b72}.peak{fill:#14171b;stroke:#e8ebef}}
)";

const PhaseStyle& StyleOf(v1::Phase phase) {
  return kPhases[phase >= 0 && phase < static_cast<int>(std::size(kPhases)) ? phase : 0];
}

const char* VerdictClass(v1::Verdict verdict) {
  if (verdict == v1::VERDICT_FITS) return "fits";
  return verdict == v1::VERDICT_AT_RISK ? "risk" : "over";
}

// A line that keeps its height from one event to the next, from `left` to
// `right`, without the moves that cannot be seen.
std::string Steps(const std::vector<std::pair<double, double>>& points, double right) {
  std::string path;
  std::string height;
  for (const auto& [x, y] : points) {
    std::string next = Coordinate(y);
    if (next == height) continue;
    absl::StrAppend(&path, path.empty() ? "" : absl::StrCat("H", Coordinate(x), "V"), next);
    height = std::move(next);
  }
  return absl::StrCat(path, "H", Coordinate(right));
}

class Picture {
 public:
  Picture(const v1::EstimateMemoryResponse& response, const v1::Job& job, XmlWriter* xml)
      : response_(response),
        timeline_(response.timeline()),
        title_(JobTitle(response, job)),
        notes_(TimelineNotes(response)),
        box_(BoxBelow(notes_.size())),
        scale_(timeline_, box_),
        xml_(*xml) {}

  void Write();

 private:
  struct LegendCell {
    std::string color;
    std::string words;  // empty: a gap
  };

  static PlotBox BoxBelow(size_t notes) {
    const double top = 66 + kNoteHeight * static_cast<double>(notes);
    return {.left = 64, .right = kWidth - 112, .top = top, .bottom = top + kPlotHeight};
  }

  void Header();
  void Grid();
  void Areas();
  void Lines();
  void LineLabel(double y, const char* name, int64_t bytes, const char* style);
  void Peak();
  void Phases();
  void Legend();
  std::vector<LegendCell> LegendCells() const;
  void Words(double x, double y, const char* style, absl::string_view words,
             const char* anchor = "start");
  std::vector<std::pair<v1::Role, int>> Stack() const;

  const v1::EstimateMemoryResponse& response_;
  const v1::Timeline& timeline_;
  const std::string title_;
  const std::vector<std::string> notes_;
  const PlotBox box_;
  const TimelineScale scale_;
  XmlWriter& xml_;
};

void Picture::Words(double x, double y, const char* style, absl::string_view words,
                    const char* anchor) {
  xml_.Leaf("text",
            {{"x", Coordinate(x)}, {"y", Coordinate(y)}, {"class", style}, {"text-anchor", anchor}},
            words);
}

void Picture::Header() {
  xml_.Open("text",
            {{"x", Coordinate(kMargin)}, {"y", "36"}, {"font-size", "20"}, {"font-weight", "600"}});
  xml_.Leaf("tspan", {{"class", VerdictClass(response_.verdict())}},
            VerdictName(response_.verdict()));
  xml_.Leaf("tspan", {{"class", "ink"}, {"dx", "8"}}, title_);
  xml_.Close();
  double y = 60;
  for (const std::string& note : notes_) {
    Words(kMargin, y, "faint", note);
    y += kNoteHeight;
  }
}

void Picture::Grid() {
  const double step = scale_.step_bytes();
  const double gib = static_cast<double>(int64_t{1} << 30);
  for (int i = 0; i * step < scale_.top_bytes(); ++i) {
    const double y = scale_.Y(i * step);
    xml_.Empty("line", {{"x1", Coordinate(box_.left)},
                        {"x2", Coordinate(box_.right)},
                        {"y1", Coordinate(y)},
                        {"y2", Coordinate(y)},
                        {"class", "grid"}});
    Words(box_.left - 8, y + 4, "faint", absl::StrFormat("%g", i * step / gib), "end");
  }
  Words(box_.left - 8, box_.top - 4, "faint", "GiB", "end");
}

// The roles from below, each with its index in the points.
std::vector<std::pair<v1::Role, int>> Picture::Stack() const {
  std::vector<std::pair<v1::Role, int>> stack;
  stack.reserve(static_cast<size_t>(timeline_.roles_size()));
  for (int i = 0; i < timeline_.roles_size(); ++i) stack.emplace_back(timeline_.roles(i), i);
  const auto rank = [](const std::pair<v1::Role, int>& at) {
    return std::find(kFromBelow.begin(), kFromBelow.end(), at.first) - kFromBelow.begin();
  };
  std::stable_sort(stack.begin(), stack.end(),
                   [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  return stack;
}

// Each area reaches down to the axis, the next is drawn over it: no gaps show.
void Picture::Areas() {
  const auto stack = Stack();
  for (size_t height = stack.size(); height > 0; --height) {
    std::vector<std::pair<double, double>> edge;
    for (const v1::TimelinePoint& point : timeline_.points()) {
      int64_t bytes = 0;
      for (size_t i = 0; i < height; ++i) bytes += point.role_bytes(stack[i].second);
      edge.emplace_back(scale_.X(point.event()), scale_.Y(static_cast<double>(bytes)));
    }
    const v1::Role role = stack[height - 1].first;
    xml_.Open("path",
              {{"class", "area"},
               {"fill", RoleColor(role)},
               {"d", absl::StrCat("M", Coordinate(box_.left), " ", Coordinate(box_.bottom), "V",
                                  Steps(edge, box_.right), "V", Coordinate(box_.bottom), "Z")}});
    xml_.Leaf("title", {}, RoleName(role));
    xml_.Close();
  }
}

void Picture::LineLabel(double y, const char* name, int64_t bytes, const char* style) {
  Words(box_.right + 8, y, style, name);
  Words(box_.right + 8, y + 15, style, FormatBytes(bytes));
}

void Picture::Lines() {
  std::vector<std::pair<double, double>> reserved;
  for (const v1::TimelinePoint& point : timeline_.points()) {
    reserved.emplace_back(scale_.X(point.event()),
                          scale_.Y(static_cast<double>(point.reserved_bytes())));
  }
  xml_.Empty("path",
             {{"class", "reserved"},
              {"d", absl::StrCat("M", Coordinate(box_.left), " ", Steps(reserved, box_.right))}});
  double at = reserved.back().second;
  if (scale_.shows_capacity()) {
    const double y = scale_.Y(static_cast<double>(timeline_.capacity_bytes()));
    xml_.Empty("line", {{"x1", Coordinate(box_.left)},
                        {"x2", Coordinate(box_.right)},
                        {"y1", Coordinate(y)},
                        {"y2", Coordinate(y)},
                        {"class", "capacity"}});
    const bool below = at >= y;  // keep the labels apart
    const double space = std::max(0.0, kLabelGap - std::abs(at - y));
    LineLabel(below ? y - space / 2 : y + space / 2, "capacity", timeline_.capacity_bytes(),
              "over");
    at += below ? space / 2 : -space / 2;
  } else {
    LineLabel(box_.top - 14, "↑ capacity", timeline_.capacity_bytes(), "over");
    at = std::max(at, box_.top - 14 + kLabelGap);
  }
  LineLabel(at, "reserved", timeline_.points().rbegin()->reserved_bytes(), "ink");
}

void Picture::Peak() {
  const v1::TimelinePoint& peak = PeakPoint(timeline_);
  const double x = scale_.X(peak.event());
  const double y = scale_.Y(static_cast<double>(peak.allocated_bytes()));
  xml_.Empty("circle",
             {{"cx", Coordinate(x)}, {"cy", Coordinate(y)}, {"r", "4.5"}, {"class", "peak"}});
  const char* anchor = "middle";
  if (x < box_.left + 120) anchor = "start";
  if (x > box_.right - 120) anchor = "end";
  xml_.Leaf(
      "text",
      {{"x", Coordinate(x)},
       {"y", Coordinate(y - 11)},
       {"class", "ink halo"},
       {"font-weight", "600"},
       {"text-anchor", anchor}},
      absl::StrCat("peak ", FormatBytes(peak.allocated_bytes()), " in ", PhaseName(peak.phase())));
}

// A strip below the axis. Phases too narrow to be seen join the next.
void Picture::Phases() {
  const double top = box_.bottom + 6;
  double drawn = box_.left;
  for (const v1::TimelinePhase& phase : timeline_.phases()) {
    const double end = scale_.X(phase.end_event());
    if (end - drawn < 0.5) continue;
    const PhaseStyle& style = StyleOf(phase.phase());
    xml_.Empty("rect", {{"x", Coordinate(drawn)},
                        {"y", Coordinate(top)},
                        {"width", Coordinate(end - drawn)},
                        {"height", Coordinate(kPhaseHeight)},
                        {"fill", style.color}});
    const absl::string_view name = style.name;
    if (static_cast<double>(name.size()) * kTextWidth < end - drawn) {
      Words((drawn + end) / 2, top + 14, "phase", name, "middle");
    }
    drawn = end;
  }
  Words(box_.left, top + kPhaseHeight + 17, "faint",
        "Allocations and frees of one step, in their order →");
}

// What the legend says, in rows: a colour and words each.
std::vector<Picture::LegendCell> Picture::LegendCells() const {
  const v1::TimelinePoint& peak = PeakPoint(timeline_);
  const auto stack = Stack();
  std::vector<LegendCell> cells;
  for (size_t i = stack.size(); i > 0; --i) {
    const auto& [role, index] = stack[i - 1];
    cells.push_back(
        {RoleColor(role), absl::StrCat(RoleName(role), " ", FormatBytes(peak.role_bytes(index)))});
  }
  std::map<v1::Phase, int> counts;
  for (const v1::TimelinePhase& phase : timeline_.phases()) ++counts[phase.phase()];
  while (cells.size() % kLegendColumns != 0) cells.emplace_back();
  for (const auto& [phase, count] : counts) {  // the others have their names below the axis
    if (count > 1) cells.push_back({StyleOf(phase).color, PhaseName(phase)});
  }
  return cells;
}

void Picture::Legend() {
  const double top = box_.bottom + kPhaseHeight + 56;
  Words(kMargin, top, "faint", "What is held at the peak, and the colours");
  const std::vector<LegendCell> cells = LegendCells();
  for (size_t i = 0; i < cells.size(); ++i) {
    const double x = kMargin + kLegendColumn * static_cast<double>(i % kLegendColumns);
    const size_t row = i / kLegendColumns + 1;
    const double y = top + kLegendRow * static_cast<double>(row);
    if (cells[i].words.empty()) continue;
    xml_.Empty("rect", {{"x", Coordinate(x)},
                        {"y", Coordinate(y - 11)},
                        {"width", "14"},
                        {"height", "14"},
                        {"rx", "2"},
                        {"fill", cells[i].color}});
    Words(x + 21, y + 1, "ink", cells[i].words);
  }
}

void Picture::Write() {
  std::vector<std::string> at;
  for (const v1::TimelinePoint& point : timeline_.points()) {
    at.push_back(Coordinate(scale_.X(point.event())));
  }
  std::vector<std::string> roles;
  for (const int role : timeline_.roles()) roles.push_back(RoleName(static_cast<v1::Role>(role)));
  const size_t rows = (LegendCells().size() + kLegendColumns - 1) / kLegendColumns;
  const double height = box_.bottom + kPhaseHeight + 74 + kLegendRow * static_cast<double>(rows);
  xml_.Open("svg", {{"xmlns", "http://www.w3.org/2000/svg"},
                    {"viewBox", absl::StrCat("0 0 ", Coordinate(kWidth), " ", Coordinate(height))},
                    {"width", Coordinate(kWidth)},
                    {"height", Coordinate(height)},
                    {"role", "img"},
                    {"font-family", "system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif"},
                    {"font-size", "12.5"},
                    {"data-top", Coordinate(box_.top)},
                    {"data-height", Coordinate(kPlotHeight)},
                    {"data-roles", absl::StrJoin(roles, "|")},
                    {"data-x", absl::StrJoin(at, " ")}});
  xml_.Leaf("title", {}, absl::StrCat(VerdictName(response_.verdict()), ": ", title_));
  xml_.Open("style");
  xml_.Raw(kTimelineStyle);
  xml_.Close();
  xml_.Empty("rect",
             {{"width", Coordinate(kWidth)}, {"height", Coordinate(height)}, {"class", "ground"}});
  Header();
  Grid();
  Areas();
  Lines();
  Peak();
  Phases();
  Legend();
  xml_.Close();
}

}  // namespace

void WriteTimelineSvg(const v1::EstimateMemoryResponse& response, const v1::Job& job,
                      XmlWriter* xml) {
  Picture(response, job, xml).Write();
}

std::string TimelineSvg(const v1::EstimateMemoryResponse& response, const v1::Job& job) {
  XmlWriter xml;
  WriteTimelineSvg(response, job, &xml);
  return std::move(xml).Take();
}

}  // namespace plimsoll
