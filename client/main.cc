// `plimsoll`: where the memory of a training job goes, and whether it fits.
#include <clocale>

#include "client/command/command_line.h"

int main(int argc, char** argv) {
  std::setlocale(LC_CTYPE, "");
  return static_cast<int>(plimsoll::RunCommandLine(argc, argv));
}
