// What an answer says beside its figures: assumptions and warnings.
#ifndef PLIMSOLL_ESTIMATOR_BASE_NOTICE_H_
#define PLIMSOLL_ESTIMATOR_BASE_NOTICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace plimsoll {

// Something that the request left open and Validate decided. Views point to
// static text or into the catalog; `number` is the value where `text` is empty.
struct Assumption {
  absl::string_view field;  // below "job.", as "training.attention"
  absl::string_view text;
  int64_t number = 0;
  absl::string_view reason;
};

// Something that the reader should know about the figures.
struct Warning {
  std::string code;   // a stable word, as "fp16-diverges"
  std::string field;  // path, or empty
  std::string text;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_BASE_NOTICE_H_
