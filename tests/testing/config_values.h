// A config.json without its text, and what a reading of it says.
#ifndef PLIMSOLL_TESTS_TESTING_CONFIG_VALUES_H_
#define PLIMSOLL_TESTS_TESTING_CONFIG_VALUES_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "estimator/base/config_value.h"
#include "estimator/job/hf_config.h"

namespace plimsoll {

inline constexpr absl::string_view kConfig = "job.model.hf_config";

inline ConfigValue NumberValue(double number) {
  ConfigValue value;
  value.kind = ConfigValue::Kind::kNumber;
  value.number = number;
  return value;
}

inline ConfigValue TextValue(absl::string_view text) {
  ConfigValue value;
  value.kind = ConfigValue::Kind::kString;
  value.text = std::string(text);
  return value;
}

inline ConfigValue FlagValue(bool on) {
  ConfigValue value;
  value.kind = ConfigValue::Kind::kBool;
  value.boolean = on;
  return value;
}

inline ConfigValue ListValue(std::vector<ConfigValue> items) {
  ConfigValue value;
  value.kind = ConfigValue::Kind::kList;
  value.items = std::move(items);
  return value;
}

inline ConfigValue ObjectValue(std::map<std::string, ConfigValue> fields) {
  ConfigValue value;
  value.kind = ConfigValue::Kind::kObject;
  value.fields = std::move(fields);
  return value;
}

// "<field below the path>: <value>; <rule>", a line for each violation.
inline std::vector<std::string> SaidOf(const HfConfig& config) {
  std::vector<std::string> lines;
  for (const Violation& violation : config.violations) {
    const std::string text = ToText(violation);
    const bool below = text.rfind(std::string(kConfig) + ".", 0) == 0;
    lines.push_back(below ? text.substr(kConfig.size() + 1) : text);
  }
  return lines;
}

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_TESTING_CONFIG_VALUES_H_
