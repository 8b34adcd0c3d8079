#include "client/io/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cwchar>

#include "absl/strings/numbers.h"

namespace plimsoll {
namespace {

constexpr int kMinWidth = 40;
constexpr int kMaxWidth = 160;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int Width(int file) {
  int columns = 0;
  if (absl::SimpleAtoi(Environment("COLUMNS"), &columns) && columns > 0) return columns;
  winsize size{};
  if (isatty(file) && ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

bool HasColor(int file, const std::string& color) {
  if (color != "auto") return color == "always";
  return isatty(file) && Environment("NO_COLOR").empty() && Environment("TERM") != "dumb";
}

// Whether the locale reads the bytes of U+2588 as one character.
bool HasUnicode() {
  wchar_t character = 0;
  std::mbstate_t state{};
  return std::mbrtowc(&character, "\u2588", 3, &state) == 3 && character == L'\u2588';
}

}  // namespace

Terminal DescribeTerminal(int file, const std::string& color) {
  return {.width = std::clamp(Width(file), kMinWidth, kMaxWidth),
          .unicode = HasUnicode(),
          .color = HasColor(file, color)};
}

}  // namespace plimsoll
