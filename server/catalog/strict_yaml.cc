#include "server/catalog/strict_yaml.h"

#include <cerrno>
#include <cstring>
#include <fstream>

namespace plimsoll {

absl::StatusOr<std::string> ReadSiteFile(const std::string& path) {
  constexpr std::streamsize kMostBytes = 1 << 20;
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.gcount() == 0 && !file.eof())) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  if (file.gcount() > kMostBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": must be at most ", kMostBytes, " bytes"));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

}  // namespace plimsoll
