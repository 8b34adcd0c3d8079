// Whether a network's layers are alike.
#ifndef PLIMSOLL_ESTIMATOR_JOB_LAYER_KINDS_H_
#define PLIMSOLL_ESTIMATOR_JOB_LAYER_KINDS_H_

#include "estimator/job/job.h"

namespace plimsoll {

// Whether all layers have the same mixer, the same mask and the same MLP or experts.
inline bool HasOneKindOfLayer(const Job& job) {
  const Transformer& model = *job.model;
  const auto some = [&model](bool any, const LayerSet& layers) {
    return any && !layers.HasAllOf(model.layer_count);
  };
  return !model.one_sublayer && !some(model.linear.Any(), model.linear.layers) &&
         !some(model.state_space.Any(), model.state_space.layers) &&
         !some(job.masks_windows, model.windowed) &&
         !some(model.experts.Any(), model.experts.layers);
}

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_JOB_LAYER_KINDS_H_
