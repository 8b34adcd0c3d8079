// State-space layers: what is modelled beside them; and how many layers of several kinds.
#include <string>

#include "absl/strings/str_cat.h"
#include "estimator/base/version.h"
#include "estimator/job/beside.h"
#include "estimator/job/layer_kinds.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
namespace {

// The first that was held against its code: before it classes are called otherwise, or are not
// there.
constexpr int kFirst = 5000;

// Source: causal_conv1d 1.7, csrc/causal_conv1d.cpp, causal_conv1d_fwd.
constexpr int64_t kLeastTokens = 2;
constexpr int64_t kMostTokens = 4;

// Source: mamba_ssm 2.3, csrc/selective_scan/selective_scan.cpp, selective_scan_fwd.
constexpr int64_t kMostStates = 256;

void CheckKernels(const StateSpace& space, Check& check) {
  if (space.kernel_size < kLeastTokens || space.kernel_size > kMostTokens) {
    check.Fail("model", space.kernel_size,
               "tokens that a convolution reads: causal-conv1d takes 2 to 4",
               ViolationCode::kNotSupported);
  }
  if (space.Selective() && space.state_size > kMostStates) {
    check.Fail("model", space.state_size,
               absl::StrCat("states of a channel: mamba-ssm takes at most ", kMostStates),
               ViolationCode::kNotSupported);
  }
}

}  // namespace

void CheckStateSpace(const JobSpec& spec, Check& check, const Job& job) {
  const Transformer& model = *job.model;
  if (!model.state_space.Any() && !model.one_sublayer) return;
  if (!CheckAbility(Ability::kStateSpace, "model", "state-space layers", check, job)) return;
  const Beside layers("state-space layers", "model", check);
  layers.RefuseTuning(spec.training, job);
  layers.RefuseSplits(job);
  layers.Refuse(job.compile, "runtime.compile", "true");
  const bool chunked = model.state_space.Any() && !model.state_space.Selective();
  layers.Refuse(chunked && job.precision.activation == DType::kFp16, "training.precision.preset",
                spec.training.precision.preset.value_or("fp16"));
  layers.RefusePartsAgain(spec.training.recompute, job);
  layers.RefuseOtherModels(model);
  layers.Refuse(RowOf(job.optimizer).sees_shapes, "training.optimizer.name",
                NameOf(job.optimizer, kOptimizers));
  if (IsBefore(job.transformers_version, kFirst)) {
    check.Fail("runtime.versions.transformers", VersionText(job.transformers_version),
               "state-space layers are modelled as transformers has them from 5.0 on",
               ViolationCode::kNotModelled, {"model"});
  }
  if (!model.state_space.Any()) return;
  // Seen under the phantom; deepspeed runtime/zero/parameter_offload.py,
  // pre_sub_module_forward_hook.
  if (job.profile->sharding == Sharding::kEngine && job.zero_stage == 3) {
    check.Fail("parallelism.zero_stage", 3,
               "does not run state-space layers: it gathers weights of modules that run, and their "
               "kernels read those of others",
               ViolationCode::kNotSupported, {"model"});
  }
  CheckKernels(model.state_space, check);
  check.Assume("model", "mamba-ssm and causal-conv1d",
               "their kernels run state-space layers; PyTorch's own way keeps far more");
}

// A set is found for each kind where a list has room for all layers.
void CheckLayerKinds(Check& check, const Job& job) {
  const int64_t count = job.model->layer_count;
  if (count <= LayerSet::kMostListed || HasOneKindOfLayer(job)) return;
  check.Fail("model", count,
             absl::StrCat("layers of several kinds are modelled up to ", LayerSet::kMostListed),
             ViolationCode::kNotModelled);
}

}  // namespace plimsoll
