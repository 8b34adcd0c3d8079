// A JSON value, as ReadHfConfig takes it: no library's type, so that the
// estimator depends on none.
#ifndef PLIMSOLL_ESTIMATOR_BASE_CONFIG_VALUE_H_
#define PLIMSOLL_ESTIMATOR_BASE_CONFIG_VALUE_H_

#include <map>
#include <string>
#include <vector>

namespace plimsoll {

struct ConfigValue {
  enum class Kind { kNull, kBool, kNumber, kString, kList, kObject };
  Kind kind = Kind::kNull;
  bool boolean = false;
  double number = 0;
  std::string text;
  std::vector<ConfigValue> items;
  std::map<std::string, ConfigValue> fields;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_BASE_CONFIG_VALUE_H_
