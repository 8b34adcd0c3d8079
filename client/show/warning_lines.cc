#include "client/show/warning_lines.h"

#include "absl/strings/str_cat.h"
#include "client/io/text.h"
#include "server/wire/shorten.h"

namespace plimsoll {

std::string AssumedLines(const google::protobuf::RepeatedPtrField<v1::Assumption>& assumptions,
                         const Terminal& terminal) {
  if (assumptions.empty()) return "";
  Columns columns({Columns::Align::kLeft, Columns::Align::kLeft});
  for (const v1::Assumption& assumption : assumptions) {
    absl::string_view field = assumption.field();
    if (field.substr(0, 4) == "job.") field.remove_prefix(4);
    columns.Add({Clean(field),
                 absl::StrCat(Clean(assumption.value()), " (", Clean(assumption.reason()), ")")});
  }
  return "\nAssumed\n" + columns.ToText(1, terminal.width);
}

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
