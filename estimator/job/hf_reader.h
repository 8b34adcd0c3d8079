// Reads fields of one JSON object and collects what is wrong with them, so that
// all violations are told at once.
#ifndef PLIMSOLL_ESTIMATOR_JOB_HF_READER_H_
#define PLIMSOLL_ESTIMATOR_JOB_HF_READER_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "estimator/base/config_value.h"
#include "estimator/job/hf_config.h"

namespace plimsoll {

// Returns at most 64 bytes of text, whole UTF-8 characters only.
std::string CutText(absl::string_view text);

// Returns the text in quotes, cut: as violations show what was seen.
std::string SeenText(absl::string_view text);

// Returns a value as violations show it: numbers and quoted strings, "a list".
std::string SeenValue(const ConfigValue& value);

// Returns whether a field switches its feature on: true, not zero, not empty.
bool IsOn(const ConfigValue& value);

// Every reading function returns its fallback, or 0, for what it refuses. Names
// may be alternatives, as "n_embd|hidden_size": the first that is set is read.
// Null is as good as absent.
class HfReader {
 public:
  // Requires: `object` and `out` outlive the reader.
  HfReader(const ConfigValue& object, std::string path, HfConfig* out);

  // Returns the field, null included, or nullptr where it is absent.
  const ConfigValue* Find(absl::string_view name) const;

  // Returns the alternative that is set, or the first.
  absl::string_view Name(absl::string_view names) const;

  bool Has(absl::string_view names) const;

  // Returns a whole number from `min` to `max`. A fallback of 0 makes the field
  // required, unless 0 is in range.
  int64_t Size(absl::string_view names, int64_t max, int64_t fallback, int64_t min = 1);

  bool Flag(absl::string_view name, bool fallback);

  // Returns a number from 0 to 1.
  double Rate(absl::string_view name, double fallback);

  // Returns a view into the object, or the fallback.
  absl::string_view Text(absl::string_view names, absl::string_view fallback);

  // Adds a violation of the field, the first one only.
  void Refuse(absl::string_view name, std::string value, absl::string_view rule,
              ViolationCode code = ViolationCode::kInvalidValue);

  void Warn(absl::string_view code, absl::string_view name, std::string text);

  const std::string& path() const { return path_; }

 private:
  const ConfigValue& object_;
  const std::string path_;
  HfConfig* const out_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_JOB_HF_READER_H_
