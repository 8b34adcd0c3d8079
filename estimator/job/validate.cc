#include <memory>
#include <utility>

#include "estimator/job/job.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
namespace {

void CheckDetail(const JobSpec& spec, Check& check, Job& job) {
  if (!spec.detail.has_value()) return;
  for (const Word<Detail>& word : kDetails) {
    if (word.name == *spec.detail) job.detail = word.value;
  }
  if (job.detail.has_value()) return;
  check.violations().push_back({"detail", spec.detail->substr(0, 64), "must be summary or replay",
                                ViolationCode::kUnknownName});
}

// Gives the head a table of its own where the trainer's model has it so.
void UntieHead(Job& job, std::shared_ptr<const Transformer>& own) {
  if (!job.model->tied_embeddings) return;
  auto untied = std::make_shared<Transformer>(*job.model);
  untied->tied_embeddings = false;
  own = std::move(untied);
  job.model = own.get();
  job.warnings.push_back({"head-untied", "job.runtime.trainer",
                          absl::StrCat(job.profile->trainer_name,
                                       " ties no head: its table is a parameter of its own")});
}

// A reward model is loaded as a class that scores sequences, whatever its file says.
// Source: trl trainer/reward_trainer.py, __init__ (AutoModelForSequenceClassification, num_labels).
void ScoreSequences(Job& job, std::shared_ptr<const Transformer>& own) {
  const bool scored = job.model->head == Head::kSequenceClassification;
  if (job.model->head != Head::kLanguageModel && !(scored && job.model->label_count != 1)) return;
  auto scores = std::make_shared<Transformer>(*job.model);
  scores->head = Head::kSequenceClassification;
  scores->label_count = 1;
  if (!scored) scores->head_bias = false;
  scores->tied_embeddings = false;
  own = std::move(scores);
  job.model = own.get();
}

bool TunesRewards(const TrainingSpec& spec) {
  return spec.preference.method.has_value() &&
         FindWord(*spec.preference.method, kPreferenceMethods) == PreferenceMethod::kReward;
}

// litgpt's models have one projection of queries, keys and values, and concatenate what is rotated
// of each head with the rest.
// Source: litgpt model.py, CausalSelfAttention.forward.
void JoinQkv(Job& job, std::shared_ptr<const Transformer>& own) {
  auto joint = std::make_shared<Transformer>(*job.model);
  joint->joint_qkv = true;
  joint->concatenates_rotary = job.model->position_embedding == PositionEmbedding::kRotary;
  own = std::move(joint);
  job.model = own.get();
}

// torchtune's models have a module for each projection.
// Source: torchtune models/phi3/_component_builders.py, phi3, phi3_mlp.
void PartProjections(Job& job, std::shared_ptr<const Transformer>& own) {
  if (!job.model->joint_qkv && !job.model->joint_gate) return;
  auto parted = std::make_shared<Transformer>(*job.model);
  parted->joint_qkv = parted->joint_gate = false;
  own = std::move(parted);
  job.model = own.get();
}

// TRL drops nothing of a policy, nor of its reference.
// Source: trl trainer/dpo_config.py, disable_dropout; trainer/utils.py, disable_dropout_in_model.
void DropNothing(Job& job, std::shared_ptr<const Transformer>& own) {
  const bool of_adapter = job.adapter.has_value() && job.adapter->dropout > 0;
  const bool of_model =
      job.model != nullptr && (job.model->hidden_dropout > 0 || job.model->embedding_dropout > 0);
  if (!of_adapter && !of_model) return;
  job.warnings.push_back({"dropout-off", of_adapter ? "job.training.adapter.dropout" : "job.model",
                          "TRL's trainer switches dropout off: none is counted"});
  if (of_adapter) job.adapter->dropout = 0;
  if (!of_model) return;
  auto whole = std::make_shared<Transformer>(*job.model);
  whole->hidden_dropout = 0;
  whole->embedding_dropout = 0;
  own = std::move(whole);
  job.model = own.get();
}

// All sections of a job whose model is an architecture.
void CheckModelled(const JobSpec& spec, const Catalog& catalog, Check& check, Job& job,
                   std::shared_ptr<const Transformer>& own) {
  job.model = CheckModel(spec, catalog, check, job, own);
  CheckCluster(spec.cluster, catalog, check, job);
  CheckFramework(spec, check, job);
  if (job.profile == nullptr) {
    job.profile = &UnknownFramework();
    job.capabilities = AllCapabilities();
  }
  if (job.model != nullptr && job.profile->unties_head) UntieHead(job, own);
  if (job.model != nullptr && job.profile->separate_projections) PartProjections(job, own);
  if (job.model != nullptr && TunesRewards(spec.training)) ScoreSequences(job, own);
  CheckParallelism(spec, check, job);
  ReadExpertParallel(spec, check, job);
  ReadDistillation(spec.training.distillation, catalog, check, job);
  CheckTraining(spec.training, check, job);
  const bool pairs = job.preference.has_value() && !RowOf(*job.preference).samples;
  const bool whole = (pairs && !job.profile->drops_in_pairs) || job.distillation.has_value();
  if (whole) DropNothing(job, own);
  const bool joins = job.adapter.has_value() && job.profile->joint_adapters;
  if (job.model != nullptr && joins) JoinQkv(job, own);
  CheckKnobs(spec, check, job);
  if (job.adapter.has_value() && job.profile != &UnknownFramework()) CheckAdapter(spec, check, job);
  if (job.trained.has_value() && job.profile != &UnknownFramework()) CheckTrained(spec, check, job);
  if (job.quantization.has_value()) CheckQuantization(spec.training, check, job);
  const bool fp4 = job.fp8.has_value() && job.fp8->IsFp4();
  if (job.fp8.has_value() && job.capabilities.Has(fp4 ? Ability::kFp4Mixed : Ability::kFp8Mixed)) {
    CheckFp8(spec, check, job);
  }
  if (job.preference.has_value() && job.profile != &UnknownFramework()) {
    CheckPreference(spec, check, job);
  }
  if (job.distillation.has_value()) CheckDistillation(spec, check, job);
  if (job.profile != &UnknownFramework() && job.model != nullptr) {
    if (job.model->experts.Any()) CheckExperts(spec, check, job);
    if (job.model->latent.Any()) CheckLatent(check, job);
    CheckLinear(spec, check, job);
    CheckLiger(spec, check, job);
    CheckClasses(check, job);
    if (job.megatron_fsdp != nullptr) CheckMegatronFsdp(spec, check, job);
    CheckStateSpace(spec, check, job);
    CheckLayerKinds(check, job);
    CheckModules(check, job);
  }
  CheckAllocator(spec.runtime.allocator, check, job);
}

}  // namespace

bool CheckAbility(Ability ability, absl::string_view field, absl::string_view value, Check& check,
                  const Job& job) {
  if (job.capabilities.Has(ability)) return true;
  Denial denial = DenialOf(job.capabilities, ability, *job.profile);
  check.Fail(field, value, std::move(denial.rule), denial.code,
             {denial.of_trainer ? "runtime.trainer" : "runtime.framework"});
  return false;
}

std::variant<ValidJob, Violations> Validate(const JobSpec& spec, const Catalog& catalog) {
  ValidJob valid;
  Job& job = valid.job_;
  job.assumptions.reserve(20);
  Check check(job.assumptions);
  if (std::holds_alternative<ProfiledSpec>(spec.model.source)) {
    CheckProfiled(spec, catalog, check, job);
  } else {
    CheckModelled(spec, catalog, check, job, valid.own_model_);
  }
  CheckDetail(spec, check, job);
  if (spec.risk.has_value() && !(*spec.risk >= 0.0001 && *spec.risk <= 0.5)) {
    check.violations().push_back({"risk", absl::StrCat(*spec.risk), "must be from 0.0001 to 0.5",
                                  ViolationCode::kOutOfRange});
  }
  job.risk = spec.risk.value_or(0.01);
  if (job.model != nullptr) CheckAgainstModel(spec, check, job);
  if (!check.violations().empty()) return std::move(check.violations());
  return valid;
}

}  // namespace plimsoll
