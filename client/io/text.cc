#include "client/io/text.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace plimsoll {
namespace {

constexpr int kMinLastColumn = 32;

// The start of `text` that takes `width` columns; colours are not expected.
absl::string_view FirstColumns(absl::string_view text, int width) {
  size_t end = 0;
  for (int column = 0; end < text.size(); ++end) {
    if ((text[end] & 0xC0) != 0x80 && ++column > width) break;
  }
  return text.substr(0, end);
}

}  // namespace

std::string FormatBytes(int64_t bytes) {
  const double value = static_cast<double>(bytes);
  if (std::abs(value) >= kGib) return absl::StrFormat("%.1f GiB", value / kGib);
  if (std::abs(value) >= kGib / 1024) return absl::StrFormat("%.1f MiB", value / kGib * 1024);
  if (std::abs(value) >= 1024) return absl::StrFormat("%.1f KiB", value / 1024);
  return absl::StrCat(bytes, " B");
}

std::string FormatInGib(int64_t bytes) {
  return absl::StrFormat("%.2f", static_cast<double>(bytes) / kGib);
}

std::string FormatCount(int64_t count) {
  const double value = static_cast<double>(count);
  const std::pair<double, const char*> units[] = {{1e12, " T"}, {1e9, " B"}, {1e6, " M"}};
  for (const auto& [unit, name] : units) {
    if (value >= unit) return absl::StrFormat("%.2f%s", value / unit, name);
  }
  return absl::StrCat(count);
}

int DisplayWidth(absl::string_view text) {
  int width = 0;
  bool escape = false;
  for (const char c : text) {
    if (c == '\x1b') escape = true;
    if (!escape && (c & 0xC0) != 0x80) ++width;
    if (escape && c == 'm') escape = false;
  }
  return width;
}

std::string PadRight(absl::string_view text, int width) {
  return absl::StrCat(
      text, std::string(static_cast<size_t>(std::max(0, width - DisplayWidth(text))), ' '));
}

std::string PadLeft(absl::string_view text, int width) {
  return absl::StrCat(
      std::string(static_cast<size_t>(std::max(0, width - DisplayWidth(text))), ' '), text);
}

std::string Wrap(absl::string_view text, int width, int indent) {
  const std::string margin(static_cast<size_t>(indent), ' ');
  std::string out;
  int column = 0;
  bool first = true;
  for (absl::string_view word : absl::StrSplit(text, ' ')) {
    if (column > indent && column + 1 + DisplayWidth(word) > width) {
      out.erase(out.find_last_not_of(' ') + 1);
      absl::StrAppend(&out, "\n", margin);
      column = indent;
    } else if (!first) {
      out += ' ';
      ++column;
    }
    first = false;
    for (; column + DisplayWidth(word) > width && width > indent; column = indent) {
      const absl::string_view part = FirstColumns(word, width - column);
      absl::StrAppend(&out, part, "\n", margin);
      word.remove_prefix(part.size());
    }
    absl::StrAppend(&out, word);
    column += DisplayWidth(word);
  }
  return out;
}

std::string Paint(absl::string_view text, int color, const Terminal& terminal) {
  return terminal.color ? absl::StrCat("\x1b[38;5;", color, "m", text, "\x1b[0m")
                        : std::string(text);
}

std::string Bold(absl::string_view text, int color, const Terminal& terminal) {
  return terminal.color ? absl::StrCat("\x1b[1;38;5;", color, "m", text, "\x1b[0m")
                        : std::string(text);
}

std::string Columns::ToText(int indent, int width) const {
  std::vector<int> widths(aligns_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i + 1 < row.size() || (i < row.size() && aligns_[i] == Align::kRight); ++i) {
      widths[i] = std::max(widths[i], DisplayWidth(row[i]));
    }
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line(static_cast<size_t>(indent), ' ');
    int hang = indent;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      hang = i + 1 == row.size() ? DisplayWidth(line) : hang;
      const bool left = aligns_[i] == Align::kLeft;
      line +=
          left ? PadRight(row[i], i + 1 == row.size() ? 0 : widths[i]) : PadLeft(row[i], widths[i]);
    }
    if (width - hang < kMinLastColumn) hang = indent + 2;
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&out, DisplayWidth(line) > width ? Wrap(line, width, hang) : line, "\n");
  }
  return out;
}

}  // namespace plimsoll
