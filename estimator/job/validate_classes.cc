// Models of which a trainer has classes of its own, with layers that keep other tensors.
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "estimator/job/beside.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
namespace {

// Those that were held against its code; a model that is spelled out is taken to be a Llama, or a
// Qwen 3 where queries and keys have norms. Others of its classes are for experts or images; what
// it has none for is transformers', with Liger's kernels where they are installed.
// Source: nemo_automodel 0.7, _transformers/registry.py, MODEL_ARCH_MAPPING; auto_model.py,
// _build_model.
constexpr absl::string_view kOwnClasses[] = {"", "llama", "qwen2", "qwen3"};

}  // namespace

void CheckClasses(Check& check, const Job& job) {
  if (!job.profile->composed_norms) return;
  const Transformer& model = *job.model;
  const std::string own = absl::StrCat("the classes of ", job.profile->trainer_name);
  const Beside classes(own, "runtime.trainer", check);
  classes.Refuse(!absl::c_linear_search(kOwnClasses, model.model_type), "model", model.model_type);
  classes.Refuse(!model.gated_mlp || model.activation != Activation::kSilu, "model",
                 "an MLP that SiLU does not gate");
  classes.RefuseOtherLayers(model);
  classes.Refuse(model.sliding_window > 0, "model", "layers with windows");
  classes.Refuse(model.logit_softcap, "model", "logits that are capped");
  classes.RefuseOtherModels(model);
}

}  // namespace plimsoll
