#include "client/report/prediction_text.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/io/text.h"
#include "server/wire/json.h"
#include "server/wire/shorten.h"
#include "server/words/document.h"

namespace plimsoll {
namespace {

constexpr char kVariable[] = "PLIMSOLL_PREDICTION";
constexpr char kField[] = "prediction";

absl::Status Refused(Violations violations) {
  std::vector<std::string> lines;
  for (Violation& violation : violations) {
    if (violation.field == "request") violation.field = kField;
    lines.push_back(Clean(ToText(violation)));
  }
  return absl::InvalidArgumentError(absl::StrJoin(lines, "\n"));
}

absl::StatusOr<std::string> ReadText(const std::string& file) {
  if (!file.empty()) return ReadDocument(file);
  const char* const text = std::getenv(kVariable);
  if (text != nullptr && *text != '\0') return std::string(text);
  return absl::InvalidArgumentError(
      absl::StrCat("--prediction: unset; must be a file, or ", kVariable, " must be set"));
}

}  // namespace

absl::StatusOr<v1::Prediction> ReadPrediction(const std::string& file) {
  const absl::StatusOr<std::string> text = ReadText(file);
  if (!text.ok()) return text.status();
  absl::string_view json = absl::StripAsciiWhitespace(*text);
  if (absl::ConsumePrefix(&json, "plimsoll")) json = absl::StripLeadingAsciiWhitespace(json);
  google::protobuf::Value value;
  Violations violations = ReadJsonValue(json, &value);
  v1::Prediction prediction;
  if (violations.empty()) violations = ReadJsonMessage(std::move(value), kField, &prediction);
  if (!violations.empty()) return Refused(std::move(violations));
  return prediction;
}

}  // namespace plimsoll
