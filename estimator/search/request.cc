#include "estimator/search/request.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "estimator/base/vocabulary.h"
#include "estimator/job/check.h"
#include "estimator/job/validate_sections.h"
#include "estimator/search/fields.h"
#include "estimator/search/space.h"

namespace plimsoll {
namespace {

constexpr size_t kMostGpuTypes = 16;
constexpr size_t kMostGpuCounts = 256;
constexpr size_t kMostPaths = 64;
constexpr size_t kMostPrices = 64;
constexpr int64_t kUsualGpusPerNode = 8;
constexpr int64_t kMostGpusPerNode = KnownField("cluster.gpus_per_node")->most;
constexpr int64_t kMostOpenGpus = 64;  // considered where nothing says how many
constexpr int64_t kMostResults = 100;
constexpr int64_t kMostSettledRanks = 1024;

constexpr Word<Objective> kObjectives[] = {
    {"fastest", Objective::kFastest},
    {"fewest-gpus", Objective::kFewestGpus},
    {"cheapest", Objective::kCheapest},
    {"smallest-change", Objective::kSmallestChange},
};

// Collects what is wrong beside the job.
class RequestCheck {
 public:
  RequestCheck(const Catalog& catalog, Violations& violations, std::vector<Warning>& warnings)
      : catalog_(catalog), violations_(violations), warnings_(warnings) {}

  // `others` as of a Violation.
  void Fail(std::string field, absl::string_view value, std::string rule, ViolationCode code,
            std::vector<std::string> others = {}) {
    violations_.push_back(
        {std::move(field), ShownValue(value), std::move(rule), code, std::move(others)});
  }

  // The id that a name or an alias stands for; the name itself where neither.
  std::string GpuId(const std::string& field, const std::string& name) {
    const Gpu* const gpu = FindGpu(name, catalog_);
    if (gpu == nullptr) {
      Fail(field, name, NotAGpu(name, catalog_), ViolationCode::kUnknownName);
      return name;
    }
    if (const AmbiguousGpu* const ambiguous = FindAmbiguousGpu(name, catalog_)) {
      warnings_.push_back({"ambiguous-gpu", field,
                           absl::StrCat(name, " is taken as ", gpu->id, "; ", ambiguous->others)});
    }
    return gpu->id;
  }

  void Frozen(const std::vector<std::string>& frozen) {
    if (!ArePaths("frozen", frozen)) return;
    for (const std::string& path : frozen) {
      if (UseOf(path).has_value()) continue;
      Fail("frozen", path, NotAWord(path, FieldPaths()), ViolationCode::kUnknownName);
    }
  }

  // What no search changes is not allowed in vain.
  void Allowed(const std::vector<std::string>& allowed) {
    if (!ArePaths("allowed_changes", allowed)) return;
    for (const std::string& path : allowed) {
      if (std::string rule = NotAllowed(path); !rule.empty()) {
        Fail("allowed_changes", path, std::move(rule), ViolationCode::kInvalidValue);
      }
    }
  }

  // What is to be considered may change.
  void Considered(const RecommendSpec& spec) {
    constexpr char kRule[] = "must be empty where job.";
    if (!spec.gpus.empty() && !MayChange(spec, "cluster.gpu")) {
      Fail("gpus", spec.gpus[0], absl::StrCat(kRule, "cluster.gpu may not change"),
           ViolationCode::kConflict, {"cluster.gpu"});
    }
    if (!spec.gpu_counts.empty() && !MayChange(spec, "cluster.gpu_count")) {
      Fail("gpu_counts", absl::StrCat(spec.gpu_counts[0]),
           absl::StrCat(kRule, "cluster.gpu_count may not change"), ViolationCode::kConflict,
           {"cluster.gpu_count"});
    }
  }

  void Counts(const std::vector<int64_t>& counts) {
    if (counts.size() > kMostGpuCounts) {
      Fail("gpu_counts", absl::StrCat(counts.size(), " numbers"),
           absl::StrCat("must be at most ", kMostGpuCounts), ViolationCode::kTooLarge);
    }
    for (const int64_t count : counts) {
      if (count >= 1 && count <= kMostJobGpus) continue;
      Fail("gpu_counts", absl::StrCat(count), absl::StrCat("must be from 1 to ", kMostJobGpus),
           ViolationCode::kOutOfRange);
    }
  }

  std::vector<std::string> Gpus(const std::vector<std::string>& gpus) {
    std::vector<std::string> ids;
    if (gpus.size() > kMostGpuTypes) {
      Fail("gpus", absl::StrCat(gpus.size(), " GPUs"),
           absl::StrCat("must be at most ", kMostGpuTypes), ViolationCode::kTooLarge);
      return ids;
    }
    for (const std::string& gpu : gpus) ids.push_back(GpuId("gpus", gpu));
    return ids;
  }

  std::map<std::string, double> Prices(const std::map<std::string, double>& prices) {
    std::map<std::string, double> by_id;
    if (prices.size() > kMostPrices) {
      Fail("gpu_hour_prices", absl::StrCat(prices.size(), " prices"),
           absl::StrCat("must be at most ", kMostPrices), ViolationCode::kTooLarge);
      return by_id;
    }
    for (const auto& [gpu, price] : prices) {
      const std::string field = absl::StrCat("gpu_hour_prices.", gpu.substr(0, 64));
      const std::string id = GpuId(field, gpu);
      if (!by_id.emplace(id, price).second) {
        Fail(field, absl::StrCat(price), absl::StrCat("is a second price of ", id),
             ViolationCode::kConflict);
      }
      if (price > 0 && price < 1e9) continue;
      Fail(field, absl::StrCat(price), "must be above 0, below 10^9", ViolationCode::kOutOfRange);
    }
    return by_id;
  }

 private:
  bool ArePaths(const char* field, const std::vector<std::string>& paths) {
    if (paths.size() <= kMostPaths) return true;
    Fail(field, absl::StrCat(paths.size(), " fields"), absl::StrCat("must be at most ", kMostPaths),
         ViolationCode::kTooLarge);
    return false;
  }

  const Catalog& catalog_;
  Violations& violations_;
  std::vector<Warning>& warnings_;
};

void CheckOptions(const RecommendSpec& spec, RequestCheck& check, Request& request) {
  if (spec.objective.has_value()) {
    const std::optional<Objective> objective = FindWord(*spec.objective, kObjectives);
    if (!objective.has_value()) {
      check.Fail("objective", *spec.objective, NotAWord(*spec.objective, kObjectives),
                 ViolationCode::kUnknownName);
    }
    request.objective = objective.value_or(Objective::kFastest);
  }
  request.max_results = spec.max_results.value_or(5);
  if (request.max_results < 0 || request.max_results > kMostResults) {
    check.Fail("max_results", absl::StrCat(request.max_results),
               absl::StrCat("must be from 0 to ", kMostResults), ViolationCode::kOutOfRange);
  }
  check.Frozen(spec.frozen);
  check.Allowed(spec.allowed_changes);
  check.Considered(spec);
  check.Counts(spec.gpu_counts);
  request.spec.gpus = check.Gpus(spec.gpus);
  request.spec.gpu_hour_prices = check.Prices(spec.gpu_hour_prices);
}

// The cheapest needs a price for all that it compares.
void CheckPriced(const Request& request, const Job* job, RequestCheck& check) {
  if (request.objective != Objective::kCheapest) return;
  std::vector<std::string> gpus = request.spec.gpus;
  if (gpus.empty() && job != nullptr && job->gpu != nullptr) gpus.push_back(job->gpu->id);
  for (const std::string& gpu : gpus) {
    if (request.spec.gpu_hour_prices.contains(gpu)) continue;
    check.Fail("gpu_hour_prices", "unset",
               absl::StrCat("must have ", gpu, " with objective cheapest"),
               ViolationCode::kMissing);
  }
}

// A job that says neither how many GPUs nor how many replicas it has is taken on the
// most of those considered that it is legal on.
void SettleGpuCount(const Catalog& catalog, Request& request) {
  JobSpec& job = request.spec.job;
  const bool open = !job.cluster.gpu_count.has_value() &&
                    !job.parallelism.data_parallel_size.has_value() &&
                    MayChange(request.spec, "cluster.gpu_count");
  if (!open) return;
  std::vector<int64_t>& counts = request.spec.gpu_counts;
  const bool usual = counts.empty();
  if (usual) {
    const int64_t per_node = job.cluster.gpus_per_node.value_or(kUsualGpusPerNode);
    if (per_node < 1 || per_node > kMostGpusPerNode) return;  // Validate refuses it
    counts = UsualGpuCounts(per_node);
  }
  std::vector<int64_t> falling = counts;
  std::sort(falling.rbegin(), falling.rend());
  if (falling.size() > kMostGpuCounts || falling.front() > kMostJobGpus || falling.back() < 1) {
    return;  // refused below
  }
  for (const int64_t count : falling) {
    job.cluster.gpu_count = count;
    if (std::holds_alternative<ValidJob>(Validate(job, catalog))) break;
    job.cluster.gpu_count = falling.front();
  }
  if (usual) {
    request.assumptions.push_back({"gpu_counts", absl::StrJoin(counts, ", "),
                                   "powers of two within a node, then of whole nodes"});
  }
  request.assumptions.push_back({"job.cluster.gpu_count", absl::StrCat(*job.cluster.gpu_count),
                                 "the most of those considered that the job is legal on"});
  if (request.spec.objective.has_value()) return;
  request.objective = Objective::kFewestGpus;
  request.assumptions.push_back({"objective", "fewest-gpus", "more GPUs are always faster"});
}

// What was asked for, with what it leaves open so that as many ranks hold the model.
ParallelismSpec SplitBy(const ParallelismSpec& asked, int64_t tensor, int64_t pipeline) {
  ParallelismSpec split = asked;
  if (!asked.tensor_parallel_size.has_value()) split.tensor_parallel_size = tensor;
  if (!asked.pipeline_parallel_size.has_value()) split.pipeline_parallel_size = pipeline;
  return split;
}

// What a job leaves open may make it illegal, as 1,024 GPUs that split no model
// do with a batch of 512. Then the smallest tensor and pipeline parallelism that
// make it legal are its own.
std::variant<ValidJob, Violations> ValidateSettled(JobSpec& spec, const Catalog& catalog) {
  auto validated = Validate(spec, catalog);
  ParallelismSpec& parallelism = spec.parallelism;
  const bool open = !parallelism.tensor_parallel_size.has_value() ||
                    !parallelism.pipeline_parallel_size.has_value();
  if (std::holds_alternative<ValidJob>(validated) || !open) return validated;
  const ParallelismSpec asked = parallelism;
  for (int64_t ranks = 2; ranks <= kMostSettledRanks; ranks *= 2) {
    for (int64_t tensor = std::min<int64_t>(ranks, 8); tensor >= 1; tensor /= 2) {
      parallelism = SplitBy(asked, tensor, ranks / tensor);
      auto settled = Validate(spec, catalog);
      if (std::holds_alternative<ValidJob>(settled)) return settled;
    }
  }
  parallelism = asked;
  return validated;
}

void RefuseOffload(const Job& job, RequestCheck& check) {
  const auto refuse = [&check](const char* field, bool offloads, const char* what) {
    if (!offloads) return;
    check.Fail(
        field, "true",
        absl::StrCat("is not modelled in a search: nothing tells how long the host's ", what),
        ViolationCode::kNotModelled);
  };
  constexpr char kStep[] = "link and its optimizer take";
  refuse("job.runtime.offload_parameters", job.offload_parameters, kStep);
  refuse("job.runtime.offload_optimizer", job.offload_optimizer, kStep);
  refuse("job.runtime.offload_activations", job.offload_activations, "link takes");
}

}  // namespace

std::vector<int64_t> UsualGpuCounts(int64_t gpus_per_node) {
  std::vector<int64_t> counts;
  for (int64_t count = 1; count < gpus_per_node && count <= kMostOpenGpus; count *= 2) {
    counts.push_back(count);
  }
  for (int64_t count = gpus_per_node; count <= std::max(kMostOpenGpus, gpus_per_node); count *= 2) {
    counts.push_back(count);
  }
  return counts;
}

std::variant<Request, Violations> CheckRequest(const RecommendSpec& spec, const Catalog& catalog) {
  Violations violations;
  if (std::holds_alternative<ProfiledSpec>(spec.job.model.source)) {
    return Violations{
        {"job.model.profiled", "set",
         "not modelled: what a run held says nothing of another sharding, batch or GPU, "
         "so there is nothing to search; plimsoll measure runs the script with another",
         ViolationCode::kNotModelled}};
  }
  Request request{.spec = spec};
  SettleGpuCount(catalog, request);
  auto validated = ValidateSettled(request.spec.job, catalog);
  auto* const valid = std::get_if<ValidJob>(&validated);
  if (valid == nullptr) violations = std::get<Violations>(validated);
  RequestCheck check(catalog, violations, request.warnings);
  if (valid != nullptr && (*valid)->gpu != nullptr) {
    check.GpuId("job.cluster.gpu", *request.spec.job.cluster.gpu);
  }
  CheckOptions(spec, check, request);
  CheckPriced(request, valid != nullptr ? &**valid : nullptr, check);
  if (valid != nullptr) RefuseOffload(**valid, check);
  if (valid != nullptr && (*valid)->gpu == nullptr) {
    check.Fail("job.cluster.gpu", "unset", "must be set: the time of a step follows from it",
               ViolationCode::kMissing);
  }
  if (!violations.empty()) return violations;
  const auto estimate = EstimateMemory(request.spec.job, catalog, {});
  if (const auto* too_large = std::get_if<Violations>(&estimate)) return *too_large;
  request.job = std::move(*valid);
  request.detail = request.job->detail.value_or(Detail::kReplay);
  return request;
}

}  // namespace plimsoll
