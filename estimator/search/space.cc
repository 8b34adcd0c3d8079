#include "estimator/search/space.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "estimator/base/units.h"
#include "estimator/job/job_abilities.h"
#include "estimator/job/validate_sections.h"

namespace plimsoll {
namespace {

// Tokens from which on a sequence is split unasked.
// Source: Megatron-LM docs/user-guide/parallelism-guide.md, "Context Parallelism".
constexpr int64_t kLongSequence = 8192;

constexpr int64_t kMostMicroBatch = 1024;  // that a search considers
constexpr int64_t kGoOnInterval = 64;      // checks between two questions whether to go on

// GPUs of one node, by Validate's rule where the job does not say.
int64_t NodeSize(const Space& space, const Choice& choice) {
  return space.job.cluster.gpus_per_node.value_or(std::min<int64_t>(choice[KnobId::kGpuCount], 8));
}

// A recomputation that a search considers, and what it takes.
struct UsualRecompute {
  const char* mode;
  std::vector<std::string> modules;
  std::optional<int64_t> interval;
  AbilitySet needs;
};

// None, what each framework calls selective, every n-th layer, all.
const std::vector<UsualRecompute>& UsualRecomputes() {
  constexpr Ability kSelective = Ability::kRecomputeSelective;
  constexpr Ability kAttention = Ability::kCoreAttentionAgain;
  constexpr Ability kEveryNth = Ability::kRecomputeEveryNth;
  constexpr Ability kNorm = Ability::kNormAgain;
  static const auto* const kUsual = new std::vector<UsualRecompute>{
      {"none", {}, std::nullopt, {Ability::kRecomputeNone}},
      {"selective", {"core-attention"}, std::nullopt, {kSelective, kAttention}},
      {"selective",
       {"core-attention", "mlp"},
       std::nullopt,
       {kSelective, kAttention, Ability::kMlpAgain}},
      {"per-op", {}, std::nullopt, {Ability::kRecomputePerOp}},
      {"every-nth", {}, 4, {kEveryNth}},
      {"every-nth", {}, 3, {kEveryNth}},
      {"every-nth", {}, 2, {kEveryNth}},
      {"full", {}, std::nullopt, {Ability::kRecomputeFull}},
      {"selective", {"norm"}, std::nullopt, {kSelective, kNorm}},
      {"selective", {"core-attention", "norm"}, std::nullopt, {kSelective, kAttention, kNorm}},
  };
  return *kUsual;
}

bool HasAll(const Capabilities& capabilities, const AbilitySet& abilities) {
  for (const AbilityName& name : kAbilityNames) {
    if (abilities.Has(name.ability) && !capabilities.Has(name.ability)) return false;
  }
  return true;
}

bool Same(const RecomputeSpec& a, const RecomputeSpec& b) {
  return a.mode.value_or("none") == b.mode.value_or("none") && a.modules == b.modules &&
         a.interval == b.interval && a.unit_layer_count == b.unit_layer_count;
}

std::vector<int32_t> Divisors(int64_t of, int64_t most) {
  std::vector<int32_t> divisors;
  for (int64_t i = 1; i <= std::min(of, most); ++i) {
    if (of % i == 0) divisors.push_back(static_cast<int32_t>(i));
  }
  return divisors;
}

void AddValue(std::vector<int32_t>& values, int32_t value) {
  const auto at = std::lower_bound(values.begin(), values.end(), value);
  if (at == values.end() || *at != value) values.insert(at, value);
}

std::vector<int32_t> Indices(size_t count) {
  std::vector<int32_t> indices(count);
  for (size_t i = 0; i < count; ++i) indices[i] = static_cast<int32_t>(i);
  return indices;
}

// Embedding and head count as layers where the layers alone are not divided.
std::vector<int32_t> VirtualSizes(const Job& base, const Choice& choice) {
  const int64_t stages = choice[KnobId::kPipelineParallel];
  const int64_t layers = base.model->layer_count;
  std::vector<int32_t> sizes{1};
  if (stages == 1) return sizes;
  for (int64_t size = 2; stages * size <= layers; ++size) {
    const int64_t chunks = stages * size;
    if (layers % chunks == 0 || (layers + 2) % chunks == 0) {
      sizes.push_back(static_cast<int32_t>(size));
    }
  }
  return sizes;
}

std::vector<int32_t> PipelineSizes(const Job& base, const Choice& choice) {
  const int32_t ranks = choice[KnobId::kTensorParallel] * choice[KnobId::kContextParallel];
  if (choice[KnobId::kGpuCount] % ranks != 0) return {};
  return Divisors(choice[KnobId::kGpuCount] / ranks, base.model->layer_count);
}

std::vector<int32_t> MicroBatches(const Job& base, const Choice& choice) {
  const int64_t ranks = DataParallelSize(choice);
  if (ranks == 0 || base.global_batch_size % ranks != 0) return {};
  return Divisors(base.global_batch_size / ranks, kMostMicroBatch);
}

std::vector<int32_t> ShardGroups(const Space& space, const Choice& choice) {
  const int64_t ranks = ReplicaCount(choice);
  const int64_t in_node = NodeSize(space, choice) / choice[KnobId::kTensorParallel];
  if (choice[KnobId::kZeroStage] == 0 || in_node <= 1 || ranks <= in_node || ranks % in_node != 0 ||
      in_node % choice[KnobId::kContextParallel] != 0) {
    return {0};
  }
  return {0, static_cast<int32_t>(in_node)};
}

// Visits one knob after the other; the last two, which no rule of Validate
// couples, at once.
class Walk {
 public:
  Walk(const Space& space, const Job& base, const Catalog& catalog, const Visitor& visit,
       const std::function<bool()>& go_on)
      : space_(space),
        base_(base),
        catalog_(catalog),
        visit_(visit),
        go_on_(go_on),
        job_(space.job) {}

  bool From(size_t index) {
    const Knob& knob = kKnobs[index];
    if (knob.id == KnobId::kMicroBatch) return Training();
    const bool lays_out =
        knob.id == KnobId::kPipelineParallel || knob.id == KnobId::kVirtualPipeline;
    const ParallelismSpec before = lays_out ? job_.parallelism : ParallelismSpec();
    for (const int32_t value : ValuesOf(space_, base_, choice_, knob.id)) {
      if (lays_out) job_.parallelism = before;
      Put(knob.id, value);
      if (!From(index + 1)) return false;
    }
    if (lays_out) job_.parallelism = before;
    return true;
  }

 private:
  void Put(KnobId id, int32_t value) {
    choice_[id] = value;
    kKnobs[static_cast<size_t>(id)].set(space_.menu, value, job_);
  }

  std::variant<ValidJob, Violations> Check(int32_t micro_batch, int32_t recompute) {
    Put(KnobId::kMicroBatch, micro_batch);
    Put(KnobId::kRecompute, recompute);
    if (++checked_ % kGoOnInterval == 0 && !go_on_()) ended_ = true;
    return Validate(job_, catalog_);
  }
  bool IsLegal(int32_t micro_batch, int32_t recompute) {
    return std::holds_alternative<ValidJob>(Check(micro_batch, recompute));
  }

  // Whether another batch or recomputation may make a job legal.
  static bool MayBeCured(const Violations& violations) {
    return std::all_of(violations.begin(), violations.end(), [](const Violation& violation) {
      return absl::StartsWith(violation.field, "job.training.");
    });
  }

  // Micro-batches and recomputations: each is legal with all of the others, or
  // with none.
  bool Training() {
    if (space_.data_parallel_frozen && DataParallelSize(choice_) != space_.data_parallel_size) {
      return true;
    }
    const auto micro_batches = ValuesOf(space_, base_, choice_, KnobId::kMicroBatch);
    const auto recomputes = ValuesOf(space_, base_, choice_, KnobId::kRecompute);
    for (const int32_t recompute : recomputes) {
      for (const int32_t micro_batch : micro_batches) {
        const auto checked = Check(micro_batch, recompute);
        const auto* const violations = std::get_if<Violations>(&checked);
        if (violations == nullptr)
          return Product(micro_batches, micro_batch, recomputes, recompute);
        if (!MayBeCured(*violations)) return true;
        if (ended_) return false;
      }
    }
    return true;
  }

  bool Product(const std::vector<int32_t>& micro_batches, int32_t legal_micro_batch,
               const std::vector<int32_t>& recomputes, int32_t legal_recompute) {
    std::vector<int32_t> legal;
    for (const int32_t recompute : recomputes) {
      if (recompute == legal_recompute || IsLegal(legal_micro_batch, recompute)) {
        legal.push_back(recompute);
      }
    }
    for (const int32_t micro_batch : micro_batches) {
      const auto checked = Check(micro_batch, legal_recompute);
      const auto* const valid = std::get_if<ValidJob>(&checked);
      if (valid == nullptr) continue;
      for (const int32_t recompute : legal) {
        choice_[KnobId::kRecompute] = recompute;
        if (ended_ || !visit_(choice_, **valid)) return false;
      }
    }
    return true;
  }

  const Space& space_;
  const Job& base_;
  const Catalog& catalog_;
  const Visitor& visit_;
  const std::function<bool()>& go_on_;
  int64_t checked_ = 0;
  bool ended_ = false;
  JobSpec job_;
  Choice choice_;
};

Choice ChoiceOf(const Job& job) {
  Choice own;
  own[KnobId::kGpuCount] = static_cast<int32_t>(job.gpu_count);
  own[KnobId::kTensorParallel] = static_cast<int32_t>(job.tensor_parallel_size);
  own[KnobId::kSequenceParallel] = job.sequence_parallel ? 1 : 0;
  own[KnobId::kContextParallel] = static_cast<int32_t>(job.context_parallel_size);
  own[KnobId::kPipelineParallel] = static_cast<int32_t>(job.pipeline_parallel_size);
  own[KnobId::kVirtualPipeline] = static_cast<int32_t>(job.virtual_pipeline_size);
  own[KnobId::kZeroStage] = static_cast<int32_t>(job.zero_stage);
  const bool all = job.shard_group_size == job.ReplicaCount();
  own[KnobId::kShardGroup] = all ? 0 : static_cast<int32_t>(job.shard_group_size);
  own[KnobId::kMicroBatch] = static_cast<int32_t>(job.micro_batch_size);
  return own;
}

}  // namespace

bool IsFrozen(const std::vector<std::string>& frozen, absl::string_view field) {
  for (const std::string& path : frozen) {
    const bool same = path == "*" || field == path;
    const bool within = absl::StartsWith(field, absl::StrCat(path, "."));
    const bool contains = absl::StartsWith(path, absl::StrCat(field, "."));
    if (same || within || contains) return true;
  }
  return false;
}

bool MayChange(const RecommendSpec& spec, absl::string_view field) {
  if (IsFrozen(spec.frozen, field)) return false;
  const auto allows = [&](const std::string& path) {
    return path == "*" || field == path || absl::StartsWith(field, absl::StrCat(path, "."));
  };
  const std::vector<std::string>& allowed = spec.allowed_changes;
  return allowed.empty() || std::any_of(allowed.begin(), allowed.end(), allows);
}

namespace {

// Which knobs stand still.
void Freeze(const RecommendSpec& spec, Space& space) {
  const auto freeze = [&](KnobId id) { space.frozen[static_cast<size_t>(id)] = true; };
  for (const Knob& knob : kKnobs) {
    if (!MayChange(spec, knob.field)) freeze(knob.id);
  }
  const bool layout = !spec.job.parallelism.pipeline_layout.empty() &&
                      IsFrozen(spec.frozen, "parallelism.pipeline_layout");
  if (layout) freeze(KnobId::kPipelineParallel);
  if (layout || IsFrozen(spec.frozen, "parallelism.pipeline_schedule")) {
    freeze(KnobId::kVirtualPipeline);
  }
  space.data_parallel_frozen = IsFrozen(spec.frozen, "parallelism.data_parallel_size");
}

void ListGpus(const RecommendSpec& spec, Space& space) {
  std::vector<std::string>& gpus = space.menu.gpus;
  if (spec.gpus.empty()) return;
  for (const std::string& gpu : spec.gpus) {
    if (std::find(gpus.begin(), gpus.end(), gpu) == gpus.end()) gpus.push_back(gpu);
  }
  // The job's own comes first, but is considered only where it is asked for.
  space.own_gpu_considered =
      std::find(spec.gpus.begin(), spec.gpus.end(), gpus[0]) != spec.gpus.end();
}

}  // namespace

namespace {

// Of whatever framework follows from a ZeRO stage.
Capabilities CapabilitiesOfOpen(const Job& job) {
  Capabilities any = job.capabilities;
  for (int64_t stage = 0; stage <= 3; ++stage) {
    any = any | CapabilitiesOf(FrameworkOf(stage), kAnyVersion, job.profile->trainer, kAnyVersion);
  }
  return any;
}

void AddUsualRecomputes(Space& space) {
  std::vector<RecomputeSpec>& recomputes = space.menu.recomputes;
  for (const UsualRecompute& usual : UsualRecomputes()) {
    if (!HasAll(space.capabilities, usual.needs)) continue;
    RecomputeSpec recompute;
    recompute.mode = usual.mode;
    recompute.modules = usual.modules;
    recompute.interval = usual.interval;
    if (!Same(recompute, recomputes[0])) recomputes.push_back(std::move(recompute));
  }
}

std::vector<int32_t> ZeroStages(const Capabilities& capabilities) {
  std::vector<int32_t> stages;
  for (int32_t stage = 0; stage <= 3; ++stage) {
    if (capabilities.Has(AbilityOfZero(stage))) stages.push_back(stage);
  }
  return stages;
}

}  // namespace

Space SpaceOf(const RecommendSpec& spec, const ValidJob& valid) {
  Space space;
  space.job = spec.job;
  space.job.model.source = std::make_shared<const Transformer>(*valid->model);
  space.job.training.global_batch_size = valid->global_batch_size;
  space.own = ChoiceOf(*valid);
  space.asked = space.own;
  space.data_parallel_size = valid->data_parallel_size;
  Freeze(spec, space);
  space.menu.layer_count = valid->model->layer_count;
  // A framework that is left open follows from the ZeRO stage.
  const bool open = !spec.job.runtime.framework.has_value();
  if (open && IsFrozen(spec.frozen, "runtime.framework")) {
    space.job.runtime.framework = std::string(valid->profile->name);
  }
  space.own_framework = valid->profile->name;
  const bool fixed = space.job.runtime.framework.has_value();
  space.capabilities = fixed ? valid->capabilities : CapabilitiesOfOpen(*valid);
  // What is not asked for is offered where the framework's own method is modelled, for long
  // sequences.
  const bool asked =
      valid->context_parallel_size > 1 || spec.job.parallelism.context_parallel_method.has_value();
  const bool offered = fixed && valid->sequence_length >= kLongSequence;
  space.context_parallel =
      (asked || offered) && space.capabilities.Has(AbilityOf(valid->context_parallel_method));
  const bool layout = IsFrozen(spec.frozen, "parallelism.pipeline_layout");
  space.menu.even_stages = fixed && !layout && valid->profile->stages == StageRule::kEqual;
  space.menu.gpus.push_back(valid->gpu->id);
  space.menu.own_gpu = *spec.job.cluster.gpu;
  ListGpus(spec, space);
  space.menu.recomputes.push_back(spec.job.training.recompute);
  AddUsualRecomputes(space);
  for (const int64_t count : spec.gpu_counts) {
    AddValue(space.gpu_counts, static_cast<int32_t>(count));
  }
  if (space.gpu_counts.empty()) space.gpu_counts.push_back(space.own[KnobId::kGpuCount]);
  return space;
}

// Megatron-FSDP is another way to train, whose time was held against no measured step: a job that
// has it keeps it, and no other is given it.
void KeepMegatronFsdp(int32_t own, std::vector<int32_t>& stages) {
  std::erase_if(stages, [own](int32_t stage) { return own > 1 ? stage != own : stage > 1; });
}

std::vector<int32_t> ValuesOf(const Space& space, const Job& base, const Choice& choice,
                              KnobId knob) {
  const int32_t own = space.own[knob];
  if (space.frozen[static_cast<size_t>(knob)]) return {own};
  std::vector<int32_t> values;
  switch (knob) {
    case KnobId::kGpu:
      values = Indices(space.menu.gpus.size());
      if (!space.own_gpu_considered) values.erase(values.begin());
      break;
    case KnobId::kGpuCount:
      return space.gpu_counts;
    case KnobId::kTensorParallel:
      if (!space.capabilities.Has(Ability::kTensorParallel)) return {1};
      values = Divisors(base.model->head_count, NodeSize(space, choice));
      AddValue(values, own);
      break;
    case KnobId::kSequenceParallel:
      if (choice[KnobId::kTensorParallel] == 1) return {0};
      if (!space.capabilities.Has(Ability::kSequenceParallel)) return {0};
      return {0, 1};
    case KnobId::kContextParallel:
      if (!space.context_parallel) return {own};
      values = Divisors(base.model->head_count / choice[KnobId::kTensorParallel],
                        choice[KnobId::kGpuCount] / choice[KnobId::kTensorParallel]);
      AddValue(values, own);
      break;
    case KnobId::kPipelineParallel:
      if (!space.capabilities.Has(Ability::kPipelineParallel)) return {1};
      return PipelineSizes(base, choice);
    case KnobId::kVirtualPipeline:
      if (!space.capabilities.Has(Ability::kInterleaved1F1B)) return {1};
      values = VirtualSizes(base, choice);
      AddValue(values, own);
      break;
    case KnobId::kZeroStage:
      values = ZeroStages(space.capabilities);
      if (base.profile->sharding == Sharding::kStates) KeepMegatronFsdp(own, values);
      break;
    case KnobId::kShardGroup:
      if (!space.capabilities.Has(Ability::kShardGroups)) return {0};
      values = ShardGroups(space, choice);
      AddValue(values, own);
      break;
    case KnobId::kMicroBatch:
      values = MicroBatches(base, choice);
      AddValue(values, own);
      break;
    case KnobId::kRecompute:
      return Indices(space.menu.recomputes.size());
  }
  return values;
}

void VisitLegal(const Space& space, const ValidJob& base, const Catalog& catalog,
                const Visitor& visit, const std::function<bool()>& go_on) {
  Walk(space, *base, catalog, visit, go_on).From(0);
}

}  // namespace plimsoll
