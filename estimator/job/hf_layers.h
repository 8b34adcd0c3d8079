// Which layers of a config.json are of one kind.
#ifndef PLIMSOLL_ESTIMATOR_JOB_HF_LAYERS_H_
#define PLIMSOLL_ESTIMATOR_JOB_HF_LAYERS_H_

#include <optional>
#include <vector>

#include "estimator/base/layer_set.h"

namespace plimsoll {

// The set of layers that are true, of one shape or another; none where no set is so.
std::optional<LayerSet> SetOf(const std::vector<bool>& layers);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_JOB_HF_LAYERS_H_
