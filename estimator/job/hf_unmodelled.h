// What says, in a config.json, that the network is none that the rows of
// hf_families.h can describe: fields, networks inside it, names of layers.
#ifndef PLIMSOLL_ESTIMATOR_JOB_HF_UNMODELLED_H_
#define PLIMSOLL_ESTIMATOR_JOB_HF_UNMODELLED_H_

#include <string>

#include "absl/strings/string_view.h"
#include "estimator/catalog/hf_families.h"
#include "estimator/job/hf_config.h"

namespace plimsoll {

// Adds violations, not modelled, for the signs of experts, state-space layers,
// other networks beside the text and so on: one of each kind, in the object and in
// all networks inside it. `family` is the row of its model_type, or null: what a field
// means is known where another type might mean something else by it.
void RefuseUnmodelled(const ConfigValue& config, const std::string& path, const HfFamily* family,
                      HfConfig* out);

// Returns why a `model_type` is not modelled, of those whose files need not show
// it; empty for any other.
absl::string_view RuleOfModelType(absl::string_view model_type);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_JOB_HF_UNMODELLED_H_
