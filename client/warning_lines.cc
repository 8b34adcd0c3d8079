#include "client/warning_lines.h"

#include "absl/strings/str_cat.h"
#include "client/text.h"

namespace plimsoll {
namespace {

constexpr int kYellow = 220;

}  // namespace

std::string WarningLines(const google::protobuf::RepeatedPtrField<v1::Warning>& warnings,
                         const Terminal& terminal) {
  std::string out;
  for (const v1::Warning& warning : warnings) {
    const std::string at =
        warning.field().empty() ? "" : absl::StrCat(" (", Clean(warning.field()), ")");
    out += WarningLine(absl::StrCat(Clean(warning.code()), at), Clean(warning.text()), terminal);
  }
  return out;
}

std::string WarningLine(const std::string& code, const std::string& text,
                        const Terminal& terminal) {
  const std::string line = absl::StrCat(Bold("Warning", kYellow, terminal), " ", code, ": ", text);
  return absl::StrCat("\n", Wrap(line, terminal.width, 2), "\n");
}

}  // namespace plimsoll
