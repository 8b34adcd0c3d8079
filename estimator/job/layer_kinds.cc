#include "estimator/job/layer_kinds.h"

namespace plimsoll {
namespace {

// Whether a group's module reads what is given to it in the dtype that its weights are gathered in.
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_api.py, MixedPrecisionPolicy
// (cast_forward_inputs); _fsdp_state.py, _pre_forward.
bool CastsInputs(const Job& job) {
  return job.profile->sharding == Sharding::kUnits && !job.profile->flat_units &&
         job.precision.master != DType::kNone;
}

}  // namespace

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
  if (StreamDType(job) == job.precision.residual) return kind;
  kind.widens = layer == 0 || CastsInputs(job);
  kind.narrows = layer + 1 < model.layer_count && CastsInputs(job);
  return kind;
}

DType StreamDType(const Job& job) {
  return job.model->wide_residual ? DType::kFp32 : job.precision.residual;
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
