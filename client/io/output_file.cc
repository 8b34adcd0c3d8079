#include "client/io/output_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace plimsoll {

absl::Status WriteFile(const std::string& flag, const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(flag, ": ", path, "; ", std::strerror(errno)));
}

}  // namespace plimsoll
