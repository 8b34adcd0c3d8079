#include "estimator/search/remedies.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "estimator/job/fields.h"
#include "estimator/job/job_abilities.h"
#include "estimator/job/vocabularies.h"
#include "estimator/search/evaluation.h"
#include "estimator/search/fields.h"
#include "estimator/search/next_framework.h"
#include "estimator/search/ranking.h"
#include "estimator/search/space.h"

namespace plimsoll {
namespace {

constexpr int64_t kMostTimes = 64;

// The value at a field's place, for people.
struct Show {
  std::string operator()(std::monostate /*nowhere*/) const { return ""; }
  std::string operator()(const std::optional<bool>* value) const {
    return value->has_value() ? (**value ? "true" : "false") : "unset";
  }
  template <typename Value>
  std::string operator()(const std::optional<Value>* value) const {
    return value->has_value() ? absl::StrCat(**value) : "unset";
  }
  template <typename Value>
  std::string operator()(const std::vector<Value>* value) const {
    return value->empty() ? "none" : absl::StrJoin(*value, ", ");
  }
};

class Remedies {
 public:
  Remedies(const Request& request, const Catalog& catalog, const StopPredicate& stop)
      : request_(request),
        catalog_(catalog),
        stop_([&stop](double) { return stop(kExplainedBy); }),
        asked_(SpaceOf(request.spec, request.job).own) {}

  void TryOtherLoss();
  void TrySmallerBatches();
  void TryOtherFrameworks();
  void TryMoreGpus();
  void TryLargerGpus();
  void TryShorterSequences();
  void TrySmallerStates();
  void TryAdapters();
  std::vector<Candidate> Take() { return std::move(found_); }

 private:
  // Adds the fastest configuration of a changed request that fits, if one does;
  // `changes` say beside those of the search what the request itself gave up.
  bool Try(RecommendSpec changed, std::vector<Change> changes, absl::string_view reason);
  std::optional<Candidate> FindFit(const Request& request) const;
  // The first of `jobs` that is valid, and keeps what the request wants kept; nothing where none
  // does. What it has otherwise is put behind `changes`.
  std::optional<RecommendSpec> FirstOf(std::vector<JobSpec> jobs,
                                       std::vector<Change>& changes) const;
  std::vector<JobSpec> Adapted(AdapterMethod method, const PrecisionSpec& precision) const;
  std::vector<PrecisionSpec> Precisions() const;
  // Whether the request lets all of that change, but for what `changes` say of themselves: what
  // lies in the section of the first of these need not be named.
  bool AddDifferences(JobSpec job, std::vector<Change>& changes) const;

  // What would be another training is offered where the request allows it by name.
  bool MayTrainOtherwise(absl::string_view field) const {
    return IsNamed(request_.spec.allowed_changes, field) && MayChange(request_.spec, field);
  }

  const Request& request_;
  const Catalog& catalog_;
  const StopPredicate stop_;
  const Choice asked_;
  std::vector<Candidate> found_;
};

std::optional<Candidate> Remedies::FindFit(const Request& request) const {
  Space space = SpaceOf(request.spec, request.job);
  space.asked = asked_;
  const Goal goal{Objective::kFastest, request.spec.gpu_hour_prices, request.detail};
  const Ranking ranking(space, request.job, catalog_, goal, stop_);
  Evaluation evaluation(space, ranking);
  for (const Entry& entry : ranking.entries()) {
    if (stop_(kExplainedBy)) return std::nullopt;
    if (!evaluation.Fits(entry)) continue;
    const MemoryEstimate estimate = evaluation.Judge(entry.choice);
    if (estimate.verdict == Verdict::kFits) return evaluation.CandidateOf(entry.choice, estimate);
  }
  return std::nullopt;
}

// What the request itself gave up comes first; what the search made of that is where
// it ends.
void Precede(Candidate& candidate, std::vector<Change> changes) {
  for (Change& change : candidate.changes) {
    const auto said = std::find_if(changes.begin(), changes.end(), [&](const Change& other) {
      return other.field == change.field;
    });
    if (said == changes.end()) {
      changes.push_back(std::move(change));
    } else {
      said->to = std::move(change.to);
    }
  }
  candidate.changes = std::move(changes);
}

bool Remedies::Try(RecommendSpec changed, std::vector<Change> changes, absl::string_view reason) {
  auto validated = Validate(changed.job, catalog_);
  auto* const valid = std::get_if<ValidJob>(&validated);
  if (valid == nullptr || (*valid)->gpu == nullptr) return false;
  Request request = request_;
  request.spec = std::move(changed);
  request.job = std::move(*valid);
  std::optional<Candidate> fit = FindFit(request);
  if (!fit.has_value()) return false;
  fit->reason = reason;
  Precede(*fit, std::move(changes));
  found_.push_back(std::move(*fit));
  return true;
}

bool Remedies::AddDifferences(JobSpec job, std::vector<Change>& changes) const {
  JobSpec own = request_.spec.job;
  const size_t said = changes.size();
  const absl::string_view main = changes.front().field;
  const absl::string_view section = main.substr(0, main.rfind('.') + 1);
  for (const FieldRow& row : kFieldRows) {
    if (row.place == nullptr) continue;
    const std::string from = std::visit(Show(), row.place(own));
    const std::string to = std::visit(Show(), row.place(job));
    const bool known = std::any_of(changes.begin(), changes.begin() + static_cast<ptrdiff_t>(said),
                                   [&](const Change& change) { return change.field == row.path; });
    if (from == to || known) continue;
    const bool within = absl::StartsWith(row.path, section);
    const bool kept = IsFrozen(request_.spec.frozen, row.path);
    if (within ? kept : !MayChange(request_.spec, row.path)) return false;
    changes.push_back({row.path, from, to});
  }
  return true;
}

std::optional<RecommendSpec> Remedies::FirstOf(std::vector<JobSpec> jobs,
                                               std::vector<Change>& changes) const {
  for (JobSpec& job : jobs) {
    std::vector<Change> all = changes;
    const auto validated = Validate(job, catalog_);
    if (!std::holds_alternative<ValidJob>(validated) || !AddDifferences(job, all)) continue;
    changes = std::move(all);
    RecommendSpec other = request_.spec;
    other.job = std::move(job);
    return other;
  }
  return std::nullopt;
}

// A loss, and what it spares. Those that spare most come first.
// Source: what each keeps, estimator/README.md, "The loss".
struct LossRow {
  LossImplementation loss;
  Ability ability;
  absl::string_view reason;
};
constexpr LossRow kLosses[] = {
    {LossImplementation::kFused, Ability::kFusedLoss,
     "head and loss run over slices of the tokens, so that logits are never there at once"},
    {LossImplementation::kChunked, Ability::kChunkedLoss,
     "head and loss run over slices of the tokens, so that logits are never there at once"},
    {LossImplementation::kTeCrossEntropy, Ability::kTeCrossEntropy,
     "the loss is computed in place of the logits"},
    {LossImplementation::kFusedCrossEntropy, Ability::kFusedCrossEntropy,
     "the loss makes fewer copies of the logits"},
};

absl::string_view LossName(LossImplementation loss) { return NameOf(loss, kLossImplementations); }

void Remedies::TryOtherLoss() {
  const absl::string_view field = "training.loss.implementation";
  if (!MayChange(request_.spec, field)) return;
  for (const LossRow& row : kLosses) {
    if (!request_.job->capabilities.Has(row.ability)) continue;
    if (request_.job->loss == row.loss) return;  // it has the best already
    JobSpec other = request_.spec.job;
    other.training.loss = {};
    other.training.loss.implementation = std::string(LossName(row.loss));
    std::vector<Change> changes{
        {field, std::string(LossName(request_.job->loss)), std::string(LossName(row.loss))}};
    std::optional<RecommendSpec> found = FirstOf({std::move(other)}, changes);
    if (found.has_value()) Try(*std::move(found), std::move(changes), row.reason);
    return;
  }
}

// Source: profile.h, accumulates_whole; passes/fsdp.cc, AccumulatesWhole.
void Remedies::TrySmallerBatches() {
  const Job& job = *request_.job;
  const absl::string_view field = "training.global_batch_size";
  const bool whole = job.profile->sharding == Sharding::kUnits && job.profile->accumulates_whole;
  if (!whole || job.micro_batch_count == 1 || !MayChange(request_.spec, field)) return;
  const int64_t own = job.global_batch_size;
  for (int64_t part = 2; own % part == 0; part *= 2) {
    if (own / part < job.data_parallel_size) return;
    RecommendSpec smaller = request_.spec;
    smaller.job.training.global_batch_size = own / part;
    const bool fits =
        Try(std::move(smaller), {{field, absl::StrCat(own), absl::StrCat(own / part)}},
            "gradients stay whole on each GPU until a step's last micro-batch: with "
            "one micro-batch a step they never are");
    if (fits) return;
  }
}

void Remedies::TryOtherFrameworks() {
  if (!request_.spec.job.runtime.framework.has_value()) return;  // all are searched
  if (!MayChange(request_.spec, "runtime.framework")) return;
  for (const NextFramework& next : NextFrameworks(*request_.job)) {
    if (next.trainer != request_.job->profile->trainer &&
        !MayChange(request_.spec, "runtime.trainer")) {
      continue;
    }
    std::optional<Moved> moved = MoveTo(request_.spec, *request_.job, next);
    if (!moved.has_value()) continue;
    if (Try(std::move(moved->spec), std::move(moved->changes), next.reason)) return;
  }
}

void Remedies::TryMoreGpus() {
  const RecommendSpec& spec = request_.spec;
  if (!MayChange(spec, "cluster.gpu_count")) return;
  const int64_t own = request_.job->gpu_count;
  const int64_t most = spec.gpu_counts.empty()
                           ? own
                           : *std::max_element(spec.gpu_counts.begin(), spec.gpu_counts.end());
  for (int64_t times = 2; times <= kMostTimes; times *= 2) {
    RecommendSpec more = spec;
    more.gpu_counts = {most * times};
    const bool fits =
        Try(std::move(more), {{"cluster.gpu_count", absl::StrCat(own), absl::StrCat(most * times)}},
            "more GPUs share what is sharded and split");
    if (fits) return;
  }
}

void Remedies::TryLargerGpus() {
  if (!MayChange(request_.spec, "cluster.gpu")) return;
  const Gpu& own = *request_.job->gpu;
  const auto is_amd = [](const Gpu& gpu) {
    return gpu.architecture == GpuArchitecture::kCdna2 ||
           gpu.architecture == GpuArchitecture::kCdna3;
  };
  std::vector<const Gpu*> larger;
  for (const auto& [id, gpu] : catalog_.gpus) {
    if (gpu.runtime_memory_bytes > own.runtime_memory_bytes && is_amd(gpu) == is_amd(own)) {
      larger.push_back(&gpu);
    }
  }
  std::stable_sort(larger.begin(), larger.end(), [](const Gpu* a, const Gpu* b) {
    return a->runtime_memory_bytes < b->runtime_memory_bytes;
  });
  for (const Gpu* const gpu : larger) {
    RecommendSpec other = request_.spec;
    other.gpus = {gpu->id};
    if (Try(std::move(other), {}, "each GPU has more memory")) return;
  }
}

// Optimizers, and those with the same states in 8 bits. Source: catalog/optimizers.cc.
constexpr std::pair<OptimizerName, OptimizerName> kSmallerStates[] = {
    {OptimizerName::kAdamW, OptimizerName::kAdamW8bit},
    {OptimizerName::kLion, OptimizerName::kLion8bit},
    {OptimizerName::kAdEMAMix, OptimizerName::kAdEMAMix8bit},
};

void Remedies::TrySmallerStates() {
  constexpr KnownField field("training.optimizer.name");
  const Job& job = *request_.job;
  if (!MayTrainOtherwise(field)) return;
  for (const auto& [own, smaller] : kSmallerStates) {
    if (own != job.optimizer || !job.capabilities.Has(AbilityOf(smaller))) continue;
    const std::string name(NameOf(smaller, kOptimizers));
    std::vector<Change> changes{{field, std::string(NameOf(own, kOptimizers)), name}};
    JobSpec named = request_.spec.job;
    named.training.optimizer.name = name;
    JobSpec usual = named;
    usual.training.optimizer.implementation.reset();
    std::optional<RecommendSpec> other = FirstOf({std::move(named), std::move(usual)}, changes);
    if (!other.has_value()) return;
    Try(*std::move(other), std::move(changes), "the optimizer's states take a byte of each number");
    return;
  }
}

// Beside all products, as recipes have it, or those of attention alone.
std::vector<JobSpec> Remedies::Adapted(AdapterMethod method, const PrecisionSpec& precision) const {
  std::vector<JobSpec> jobs;
  for (const char* targets : {"all-linear", "attention"}) {
    JobSpec& job = jobs.emplace_back(request_.spec.job);
    job.training.precision = precision;
    job.training.adapter.method = std::string(NameOf(method, kAdapterMethods));
    job.training.adapter.target_modules = {targets};
  }
  return jobs;
}

// In the job's own precision, or the next that is modelled with adapters: that with what else the
// job says of dtypes, or without.
std::vector<PrecisionSpec> Remedies::Precisions() const {
  const bool buckets = request_.job->profile->sharding == Sharding::kBuckets;
  const PrecisionSpec& own = request_.spec.job.training.precision;
  PrecisionSpec usual;
  usual.preset = buckets ? "bf16-autocast" : "bf16-mixed";
  PrecisionSpec kept = own;
  kept.preset = usual.preset;
  return {own, kept, usual};
}

void Remedies::TryAdapters() {
  constexpr KnownField field("training.adapter.method");
  const Job& job = *request_.job;
  if (!MayTrainOtherwise(field) || job.FreezesWeights() || job.preference.has_value()) return;
  constexpr AdapterMethod kMethods[] = {AdapterMethod::kLora, AdapterMethod::kQlora};
  for (const AdapterMethod method : kMethods) {
    if (!job.capabilities.Has(AbilityOf(method))) continue;
    size_t tried = 0;  // changes; more of them are another job
    for (const PrecisionSpec& precision : Precisions()) {
      std::vector<Change> changes{{field, "none", std::string(NameOf(method, kAdapterMethods))}};
      std::optional<RecommendSpec> other = FirstOf(Adapted(method, precision), changes);
      if (!other.has_value() || changes.size() == std::exchange(tried, changes.size())) continue;
      const bool fits =
          Try(*std::move(other), std::move(changes),
              "small matrices beside frozen weights are trained, which is another training");
      if (fits) return;
    }
  }
}

void Remedies::TryShorterSequences() {
  const int64_t own = request_.job->DataLength();
  for (int64_t part = 2; part <= kMostTimes && own % part == 0; part *= 2) {
    RecommendSpec shorter = request_.spec;
    shorter.job.training.sequence_length = own / part;
    const bool fits =
        Try(std::move(shorter),
            {{"training.sequence_length", absl::StrCat(own), absl::StrCat(own / part)}},
            "activations and logits grow with the sequence");
    if (fits) return;
  }
}

}  // namespace

std::vector<Candidate> FindRemedies(const Request& request, const Catalog& catalog,
                                    const StopPredicate& stop) {
  Remedies remedies(request, catalog, stop);
  remedies.TryOtherLoss();
  remedies.TrySmallerBatches();
  remedies.TryOtherFrameworks();
  remedies.TryMoreGpus();
  remedies.TryLargerGpus();
  remedies.TrySmallerStates();
  remedies.TryAdapters();
  remedies.TryShorterSequences();
  return remedies.Take();
}

}  // namespace plimsoll
