// Which layers of a config.json are of one kind.
#ifndef PLIMSOLL_ESTIMATOR_JOB_HF_LAYERS_H_
#define PLIMSOLL_ESTIMATOR_JOB_HF_LAYERS_H_

#include <vector>

#include "absl/strings/string_view.h"
#include "estimator/base/layer_set.h"
#include "estimator/job/hf_reader.h"

namespace plimsoll {

// The set of layers that are true, which `field` says; refuses those that none has.
LayerSet ReadSet(absl::string_view field, const std::vector<bool>& layers, HfReader& reader);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_JOB_HF_LAYERS_H_
