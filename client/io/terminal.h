// What the place that is written to can show.
#ifndef PLIMSOLL_CLIENT_IO_TERMINAL_H_
#define PLIMSOLL_CLIENT_IO_TERMINAL_H_

#include <string>

namespace plimsoll {

struct Terminal {
  int width = 80;        // columns
  bool unicode = false;  // block characters, or ASCII
  bool color = false;
};

// Describes what `file` (a descriptor) leads to. `color` is `auto`, `always` or
// `never`; `auto` means a terminal that is not dumb, with NO_COLOR unset.
//
// The width is COLUMNS, else the terminal's own, else 80. Characters follow the
// locale, which setlocale must have taken from the environment.
Terminal DescribeTerminal(int file, const std::string& color);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_IO_TERMINAL_H_
