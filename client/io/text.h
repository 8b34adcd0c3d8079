// Text for people: bytes in GiB, columns, wrapped lines, colours.
#ifndef PLIMSOLL_CLIENT_IO_TEXT_H_
#define PLIMSOLL_CLIENT_IO_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/io/terminal.h"

namespace plimsoll {

inline constexpr double kGib = 1 << 30;

// Colours, of a terminal's 256.
inline constexpr int kGreen = 77;
inline constexpr int kYellow = 220;
inline constexpr int kRed = 203;
inline constexpr int kWhite = 255;

// Bytes in the largest of GiB (2^30), MiB, KiB and B that gives one or more, as
// "61.3 GiB".
std::string FormatBytes(int64_t bytes);

// Bytes in GiB without the unit, with two digits: "61.25".
std::string FormatInGib(int64_t bytes);

// A count with two digits behind the point, as "8.03 B" for 8,030,261,248.
std::string FormatCount(int64_t count);

// The columns that `text` takes: its characters, without colours.
int DisplayWidth(absl::string_view text);

// `text` with blanks after it, or before it, up to `width` columns.
std::string PadRight(absl::string_view text, int width);
std::string PadLeft(absl::string_view text, int width);

// `text` in lines of at most `width` columns, broken at blanks, or within
// a word that is wider; all but the first are indented by `indent`. No line
// feed at the end.
std::string Wrap(absl::string_view text, int width, int indent);

// `text` in one of the terminal's 256 colours, or bold, where it has colours.
std::string Paint(absl::string_view text, int color, const Terminal& terminal);
std::string Bold(absl::string_view text, int color, const Terminal& terminal);

// Columns of cells as wide as their widest; numbers to the right. The last
// column has no blanks after it.
class Columns {
 public:
  enum class Align { kLeft, kRight };

  explicit Columns(std::vector<Align> aligns) : aligns_(std::move(aligns)) {}

  void Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  // Every row, indented by `indent`, two blanks between columns. A line that
  // would be wider than `width` goes on under its own last column's start, or,
  // where that leaves under 32 columns, two blanks in.
  std::string ToText(int indent, int width) const;

 private:
  std::vector<Align> aligns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_IO_TEXT_H_
