#include "client/show/bar.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/io/text.h"
#include "client/show/role_style.h"

namespace plimsoll {
namespace {

constexpr int kGrey = 242;

double CellsOf(int64_t bytes, const BarScale& scale) {
  return static_cast<double>(bytes) / static_cast<double>(scale.full_bytes) * scale.cell_count;
}

// The cell that a mark at `bytes` stands in.
size_t MarkCell(int64_t bytes, const BarScale& scale) {
  const int cell = static_cast<int>(CellsOf(bytes, scale));
  return static_cast<size_t>(std::clamp(cell, 0, scale.cell_count - 1));
}

// The smallest of 1, 2, 5, 10, 20, ... that leaves room between figures.
double RulerStep(double full_gib, int cell_count) {
  const double least = full_gib / cell_count * 10;
  const double decade = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (decade * factor >= least) return decade * factor;
  }
  return decade * 10;
}

void PutFigure(const std::string& figure, size_t cell, std::string* line) {
  if (line->size() < cell) line->resize(cell, ' ');
  line->replace(cell, figure.size(), figure);
}

}  // namespace

std::string CapacityMark(const Terminal& terminal) {
  return Bold(terminal.unicode ? "┃" : "|", kWhite, terminal);
}

std::string BoundMark(const Terminal& terminal) {
  return Bold(terminal.unicode ? "╎" : ":", kWhite, terminal);
}

std::string DrawBar(const v1::RankMemory& rank, const BarScale& scale, const Terminal& terminal) {
  std::vector<std::string> cells(static_cast<size_t>(scale.cell_count), " ");
  int64_t total_bytes = 0;
  size_t filled = 0;
  for (const v1::RoleBytes& part : rank.breakdown()) {
    total_bytes += part.bytes();
    const size_t end = static_cast<size_t>(
        std::clamp(std::lround(CellsOf(total_bytes, scale)), 0L, long{scale.cell_count}));
    for (; filled < end; ++filled) cells[filled] = RoleCell(part.role(), terminal);
  }
  const size_t bound = MarkCell(rank.device().bound_bytes(), scale);
  const std::string dot = Paint(terminal.unicode ? "·" : ".", kGrey, terminal);
  for (; filled < bound; ++filled) cells[filled] = dot;
  cells[bound] = BoundMark(terminal);
  cells[MarkCell(scale.capacity_bytes, scale)] = CapacityMark(terminal);
  return absl::StrJoin(cells, "");
}

std::string DrawRuler(const BarScale& scale) {
  const double full_gib = static_cast<double>(scale.full_bytes) / kGib;
  const double step = RulerStep(full_gib, scale.cell_count);
  const size_t capacity = MarkCell(scale.capacity_bytes, scale);
  const std::string capacity_figure =
      absl::StrFormat("%.4g", static_cast<double>(scale.capacity_bytes) / kGib);
  std::string line = "0 GiB";
  for (int i = 1; i * step <= full_gib; ++i) {
    const std::string figure = absl::StrFormat("%g", i * step);
    const size_t cell = MarkCell(static_cast<int64_t>(i * step * kGib), scale);
    const bool clear =
        cell + figure.size() + 1 <= capacity || cell >= capacity + capacity_figure.size() + 1;
    if (clear && cell >= 7) PutFigure(figure, cell, &line);
  }
  if (capacity >= 7) PutFigure(capacity_figure, capacity, &line);
  return line;
}

}  // namespace plimsoll
