#include "estimator/search/next_framework.h"

#include <string>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "estimator/job/fields.h"
#include "estimator/job/job_abilities.h"
#include "estimator/job/vocabularies.h"
#include "estimator/search/space.h"

namespace plimsoll {
namespace {

// What to try after a framework. Source: estimator/catalog/capability_rows.cc, and what each
// keeps, estimator/README.md.
struct Successor {
  Framework from;
  Framework to;
  absl::string_view reason;
};
constexpr Successor kSuccessors[] = {
    {Framework::kDdp, Framework::kFsdp2,
     "fsdp2 shards weights, gradients and optimizer states, which ddp holds whole on each GPU"},
    {Framework::kDdp, Framework::kDeepSpeed,
     "deepspeed shards weights, gradients and optimizer states, which ddp holds whole on each GPU"},
    {Framework::kDdp, Framework::kFsdp1,
     "fsdp1 shards weights, gradients and optimizer states, which ddp holds whole on each GPU"},
    {Framework::kFsdp1, Framework::kFsdp2, "fsdp2 also splits matrices and layers over GPUs"},
    {Framework::kDeepSpeed, Framework::kFsdp2, "fsdp2 also splits matrices and layers over GPUs"},
    {Framework::kFsdp2, Framework::kMegatronCore,
     "megatron-core's fused layers and loss keep less for backward"},
    {Framework::kMegatronCore, Framework::kFsdp2,
     "fsdp2 shards weights and gradients too, not optimizer states alone"},
    {Framework::kMegatronLm, Framework::kMegatronCore,
     "megatron-core shards optimizer states, and splits what tensor parallelism leaves whole"},
    {Framework::kMegatronDeepSpeed, Framework::kMegatronCore,
     "megatron-core splits along the sequence what tensor parallelism leaves whole"},
    {Framework::kNanotron, Framework::kMegatronCore,
     "megatron-core's fused layers and loss keep less for backward"},
};

bool RunsOn(Trainer trainer, Framework framework) {
  return trainer == Trainer::kNone ||
         FindTrainerProfile(*FindProfile(framework, kAnyVersion), trainer, kAnyVersion) != nullptr;
}

// Unsets the field at a place, and says whether it was set.
struct Unset {
  template <typename Value>
  bool operator()(std::optional<Value>* value) const {
    const bool set = value->has_value();
    value->reset();
    return set;
  }
  template <typename Other>
  bool operator()(Other /*place*/) const {  // no field that may be open
    return false;
  }
};

// Leaves what the next framework lacks, a field at a time.
class Move {
 public:
  Move(const RecommendSpec& spec, const Job& job, const Capabilities& capabilities)
      : frozen_(spec.frozen), job_(job), capabilities_(capabilities), moved_{spec, {}} {}

  void Framework(const NextFramework& next);
  void Parallelism();
  void Pipeline();
  void Training();
  void Knobs();
  std::optional<Moved> Take() {
    return possible_ ? std::optional<Moved>(std::move(moved_)) : std::nullopt;
  }

 private:
  bool Recomputes() const;
  void Change(absl::string_view field, std::string from, std::string to) {
    if (IsFrozen(frozen_, field)) possible_ = false;
    moved_.changes.push_back({field, std::move(from), std::move(to)});
  }
  // What a search chooses is said by the search.
  template <typename Value>
  void Forget(Ability ability, absl::string_view field, std::optional<Value>& value) {
    if (!capabilities_.Has(ability)) Leave(field, value);
  }
  template <typename Value>
  void Leave(absl::string_view field, std::optional<Value>& value) {
    if (value.has_value() && IsFrozen(frozen_, field)) possible_ = false;
    value.reset();
  }

  const std::vector<std::string>& frozen_;
  const Job& job_;
  const Capabilities& capabilities_;
  Moved moved_;
  bool possible_ = true;
};

// Versions of what is left behind say nothing.
void Move::Framework(const NextFramework& next) {
  RuntimeSpec& runtime = moved_.spec.job.runtime;
  const Profile& to = *FindProfile(next.framework, kAnyVersion);
  if (next.framework != job_.profile->framework) {
    Change("runtime.framework", std::string(job_.profile->name), std::string(to.name));
  }
  runtime.framework = std::string(to.name);
  const absl::string_view trainer = NameOf(next.trainer, kTrainers);
  if (next.trainer != job_.profile->trainer) {
    Change("runtime.trainer", std::string(job_.profile->trainer_name), std::string(trainer));
  }
  runtime.trainer.reset();
  if (!trainer.empty()) runtime.trainer = std::string(trainer);
  for (auto at = runtime.versions.begin(); at != runtime.versions.end();) {
    const bool kept = at->first == "torch" || at->first == "nccl" || at->first == to.package ||
                      at->first == trainer;
    at = kept ? std::next(at) : runtime.versions.erase(at);
  }
}

void Move::Parallelism() {
  ParallelismSpec& parallelism = moved_.spec.job.parallelism;
  Forget(Ability::kTensorParallel, "parallelism.tensor_parallel_size",
         parallelism.tensor_parallel_size);
  const bool splits = parallelism.tensor_parallel_size.has_value();
  if (!splits) parallelism.sequence_parallel.reset();
  Forget(Ability::kSequenceParallel, "parallelism.sequence_parallel",
         parallelism.sequence_parallel);
  // Each framework splits a sequence its own way, over heads or not: a search chooses anew.
  if (moved_.spec.job.runtime.framework != job_.profile->name) {
    Leave("parallelism.context_parallel_size", parallelism.context_parallel_size);
    Leave("parallelism.context_parallel_method", parallelism.context_parallel_method);
  }
  const Ability contexts = AbilityOf(job_.context_parallel_method);
  Forget(contexts, "parallelism.context_parallel_size", parallelism.context_parallel_size);
  Forget(contexts, "parallelism.context_parallel_method", parallelism.context_parallel_method);
  Forget(Ability::kShardGroups, "parallelism.shard_group_size", parallelism.shard_group_size);
  Forget(Ability::kExpertParallel, "parallelism.expert_parallel_size",
         parallelism.expert_parallel_size);
  if (!capabilities_.Has(Ability::kExpertParallel)) {
    parallelism.expert_tensor_parallel_size.reset();
    parallelism.token_dispatcher.reset();
  }
  // Of Megatron-Core these are Megatron-FSDP's, which a search does not choose.
  const bool units = moved_.spec.job.runtime.framework == "megatron-core" && job_.zero_stage > 1;
  if (units) Leave("parallelism.zero_stage", parallelism.zero_stage);
  Forget(AbilityOfZero(job_.zero_stage), "parallelism.zero_stage", parallelism.zero_stage);
}

void Move::Pipeline() {
  ParallelismSpec& parallelism = moved_.spec.job.parallelism;
  Forget(Ability::kPipelineParallel, "parallelism.pipeline_parallel_size",
         parallelism.pipeline_parallel_size);
  Forget(AbilityOf(job_.pipeline_schedule), "parallelism.pipeline_schedule",
         parallelism.pipeline_schedule);
  if (!parallelism.pipeline_parallel_size.has_value()) parallelism.pipeline_schedule.reset();
  if (!parallelism.pipeline_schedule.has_value()) {
    parallelism.virtual_pipeline_size.reset();
    parallelism.pipeline_layout.clear();
  }
  Forget(Ability::kMicroBatchGroups, "parallelism.micro_batch_group_size",
         parallelism.micro_batch_group_size);
}

// Whether the next framework recomputes all that the job does.
bool Move::Recomputes() const {
  for (const Word<RecomputeModule>& module : kRecomputeModules) {
    const bool asked = (job_.recompute_modules & BitOf(module.value)) != 0;
    if (asked && !capabilities_.Has(AbilityOf(module.value))) return false;
  }
  const bool units = job_.recompute_unit_layer_count > 1;
  if (units && !capabilities_.Has(Ability::kRecomputeUnits)) return false;
  return capabilities_.Has(AbilityOf(job_.recompute));
}

void Move::Training() {
  TrainingSpec& training = moved_.spec.job.training;
  if (!Recomputes()) {
    Change("training.recompute", training.recompute.mode.value_or("none"), "none");
    training.recompute = {};
  }
  if (!capabilities_.Has(AbilityOf(job_.loss))) {
    Change("training.loss.implementation", training.loss.implementation.value_or("plain"), "plain");
    training.loss = {};
  }
}

void Move::Knobs() {
  for (const AbilityName& knob : kAbilityNames) {
    if (!absl::StartsWith(knob.field, "runtime.") || capabilities_.Has(knob.ability)) continue;
    const FieldPlace place = FindFieldRow(knob.field)->place(moved_.spec.job);
    if (std::visit(Unset(), place)) Change(knob.field, "set", "unset");
  }
}

}  // namespace

std::vector<NextFramework> NextFrameworks(const Job& job) {
  std::vector<NextFramework> next;
  const Trainer trainer = job.profile->trainer;
  for (const Successor& successor : kSuccessors) {
    if (successor.from != job.profile->framework || !RunsOn(trainer, successor.to)) continue;
    next.push_back({successor.to, trainer, successor.reason});
  }
  if (trainer != Trainer::kNone && trainer != Trainer::kTorchtitan) {
    next.push_back(
        {Framework::kFsdp2, Trainer::kTorchtitan,
         "torchtitan runs tensor and pipeline parallelism, and recomputes by operation"});
  }
  return next;
}

std::optional<Moved> MoveTo(const RecommendSpec& spec, const Job& job, const NextFramework& next) {
  const Capabilities capabilities =
      CapabilitiesOf(next.framework, kAnyVersion, next.trainer, kAnyVersion);
  Move move(spec, job, capabilities);
  move.Framework(next);
  move.Parallelism();
  move.Pipeline();
  move.Training();
  move.Knobs();
  return move.Take();
}

}  // namespace plimsoll
