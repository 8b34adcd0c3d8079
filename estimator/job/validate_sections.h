// The sections of Validate, in the order in which they may rely on each other.
#ifndef PLIMSOLL_ESTIMATOR_JOB_VALIDATE_SECTIONS_H_
#define PLIMSOLL_ESTIMATOR_JOB_VALIDATE_SECTIONS_H_

#include <memory>

#include "estimator/catalog/capabilities.h"
#include "estimator/catalog/catalog.h"
#include "estimator/job/check.h"
#include "estimator/job/job.h"

namespace plimsoll {

// Returns whether the job's framework and trainer have `ability`; where they do not,
// adds why.
bool CheckAbility(Ability ability, absl::string_view field, absl::string_view value, Check& check,
                  const Job& job);
inline bool CheckAbility(Ability ability, absl::string_view field, int64_t value, Check& check,
                         const Job& job) {
  return job.capabilities.Has(ability) ||
         CheckAbility(ability, field, absl::StrCat(value), check, job);
}

// Each reads `spec`, fills in its part of `job`, and adds to `check` what is
// wrong. After a violation its part holds values that are safe to compute with.
//
// CheckModel returns null where there is no architecture to go on with; the
// architecture is the catalog's, or `own`.
// The catalog's model of a name, or of an id of Hugging Face's hub; null where it has none.
const Transformer* FindModel(absl::string_view field, const std::string& name,
                             const Catalog& catalog, Check& check);
// The rule of a name that is none: what is near, with who published the model or without.
std::string NotAModel(const std::string& name, const Catalog& catalog);
const Transformer* CheckModel(const JobSpec& spec, const Catalog& catalog, Check& check, Job& job,
                              std::shared_ptr<const Transformer>& own);
// Returns the GPU of this id or alias; null where there is none.
const Gpu* FindGpu(const std::string& name, const Catalog& catalog);
// Returns what else such a name may mean; null where it is clear, or no GPU's.
const AmbiguousGpu* FindAmbiguousGpu(const std::string& name, const Catalog& catalog);
// Returns the rule that a name which FindGpu does not know breaks.
std::string NotAGpu(const std::string& name, const Catalog& catalog);
void CheckCluster(const ClusterSpec& spec, const Catalog& catalog, Check& check, Job& job);
// The framework of a job that names none.
Framework FrameworkOf(int64_t zero_stage);
void CheckFramework(const JobSpec& spec, Check& check, Job& job);
// Where nothing says how many GPUs a node has.
void SettleGpusPerNode(Check& check, Job& job);
// "2.4" or "2.4.1" as 2004, "2025.3" as 2025003; nothing where it is neither.
std::optional<int> ParseVersion(absl::string_view text);
// All sections of a job whose model is a run.
//
// Requires: spec.model.source is a ProfiledSpec
void CheckProfiled(const JobSpec& spec, const Catalog& catalog, Check& check, Job& job);
void CheckParallelism(const JobSpec& spec, Check& check, Job& job);
// Before the rest of their section, and what stands beside them after all.
void ReadAdapter(const AdapterSpec& spec, Check& check, Job& job);
// What of PEFT's methods beside matrices of a rank has, and what stands beside it after all.
void ReadScaling(const AdapterSpec& spec, Check& check, const Job& job, Adapter& adapter);
void ReadVirtualTokens(const AdapterSpec& spec, Check& check, Job& job);
void CheckScaling(const JobSpec& spec, Check& check, const Job& job);
void CheckVirtualTokens(const JobSpec& spec, Check& check, const Job& job);
void ReadAdapterDType(const AdapterSpec& spec, Check& check, Job& job);
void CheckAdapter(const JobSpec& spec, Check& check, const Job& job);
void ReadQuantization(const QuantizationSpec& spec, Check& check, Job& job);
void CheckQuantization(const TrainingSpec& spec, Check& check, Job& job);
// `preset`: of the job.
void ReadFp8(const PrecisionSpec& spec, PresetName preset, Check& check, Job& job);
void CheckFp8(const JobSpec& spec, Check& check, const Job& job);
// What of the model is trained, once its layers are known.
void ReadTrained(const TrainedSpec& spec, Check& check, Job& job);
void CheckTrained(const JobSpec& spec, Check& check, const Job& job);
// What optimizers need that project gradients, and those that send signs.
void ReadProjection(const TrainingSpec& spec, Check& check, Job& job);
void CheckCompressed(const TrainingSpec& spec, Check& check, const Job& job);
void ReadDistillation(const DistillationSpec& spec, const Catalog& catalog, Check& check, Job& job);
void CheckDistillation(const JobSpec& spec, Check& check, Job& job);
void ReadPreference(const PreferenceSpec& spec, Check& check, Job& job);
void CheckPreference(const JobSpec& spec, Check& check, Job& job);
// Linear attention of a model that is spelled out; who computes it; what stands beside it.
void ReadLinear(const TransformerSpec& spec, Check& check, Transformer& model);
void ReadLinearAttention(const TrainingSpec& spec, Check& check, Job& job);
void CheckLinear(const JobSpec& spec, Check& check, const Job& job);
void CheckLiger(const JobSpec& spec, Check& check, const Job& job);
// Requires: the job has Megatron-FSDP; the sections above and below have run
void CheckMegatronFsdp(const JobSpec& spec, Check& check, const Job& job);
void CheckClasses(Check& check, const Job& job);
void CheckStateSpace(const JobSpec& spec, Check& check, const Job& job);
void CheckLayerKinds(Check& check, const Job& job);
// Latent attention of a model that is spelled out.
void ReadLatent(const TransformerSpec& spec, Check& check, Transformer& model);
// The kernel that takes its values, which are not as wide as keys, where `usual` does not.
//
// Requires: the model has latent attention
AttentionKernel LatentKernel(const Job& job, AttentionKernel usual);
// Requires: the model has latent attention; the sections above and below have run
void CheckLatent(Check& check, const Job& job);
// What of experts ranks split between them.
void ReadExpertParallel(const JobSpec& spec, Check& check, Job& job);
// Requires: the model has experts; the sections above and below have run
void CheckExperts(const JobSpec& spec, Check& check, const Job& job);
void CheckRecompute(const RecomputeSpec& spec, Check& check, Job& job);
// Requires: the sections above and below have run
void CheckModules(Check& check, const Job& job);
void CheckTraining(const TrainingSpec& spec, Check& check, Job& job);
void CheckKnobs(const JobSpec& job_spec, Check& check, Job& job);
void CheckAllocator(const AllocatorSpec& spec, Check& check, Job& job);
// Requires: job.model is not null; the sections above have run
void CheckAgainstModel(const JobSpec& spec, Check& check, Job& job);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_JOB_VALIDATE_SECTIONS_H_
