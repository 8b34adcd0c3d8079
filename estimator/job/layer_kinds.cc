#include "estimator/job/layer_kinds.h"

namespace plimsoll {

LayerKind KindOf(const Job& job, int64_t layer) {
  const Transformer& model = *job.model;
  LayerKind kind;
  if (model.linear.Any() && model.linear.layers.Has(layer)) {
    kind.mixer = Mixer::kLinear;
  } else if (model.state_space.Any() && model.state_space.layers.Has(layer)) {
    kind.mixer = Mixer::kStateSpace;
  } else if (model.one_sublayer && !model.attended.Has(layer)) {
    kind.mixer = Mixer::kNone;
  } else if (job.masks_windows && model.windowed.Has(layer)) {
    kind.mixer = Mixer::kWindowed;
  }
  if (model.experts.Any() && model.experts.layers.Has(layer)) kind.mlp = LayerMlp::kExperts;
  if (model.one_sublayer && kind.mixer != Mixer::kNone) kind.mlp = LayerMlp::kNone;
  return kind;
}

bool HasOneKindOfLayer(const Job& job) {
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
