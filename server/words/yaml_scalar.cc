#include "server/words/yaml_scalar.h"

#include <cmath>

#include "absl/strings/numbers.h"

namespace plimsoll {

std::string Shown(const YAML::Node& node) {
  if (node.IsMap()) return "a mapping";
  if (node.IsSequence()) return "a list";
  if (node.IsNull()) return "null";
  return node.Scalar();
}

bool ToInt64(const std::string& text, int64_t* value) {
  if (absl::SimpleAtoi(text, value)) return true;
  double number = 0;
  if (!absl::SimpleAtod(text, &number) || std::trunc(number) != number) return false;
  if (std::abs(number) > 9007199254740992.0) return false;  // 2^53
  *value = static_cast<int64_t>(number);
  return true;
}

bool ToDouble(const std::string& text, double* value) {
  return absl::SimpleAtod(text, value) && std::isfinite(*value);
}

bool ToBool(const std::string& text, bool* value) {
  *value = text == "true" || text == "True" || text == "TRUE";
  return *value || text == "false" || text == "False" || text == "FALSE";
}

}  // namespace plimsoll
