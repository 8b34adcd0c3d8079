// A run in the place of an architecture: what it says of itself, and that the job is that run.
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "estimator/base/units.h"
#include "estimator/job/nccl_version.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
namespace {

constexpr KnownField kGpu("model.profiled.measured_gpu");
constexpr KnownField kGpuCount("model.profiled.measured_gpu_count");
constexpr KnownField kRank("model.profiled.measured_rank");
constexpr KnownField kFramework("model.profiled.measured_framework");
constexpr size_t kMostCommunicators = 64;
constexpr size_t kMostDTypes = 64;

// What a job may say beside a run: where it is to run. All else was the script's.
constexpr absl::string_view kBeside[] = {
    "cluster.gpu",
    "cluster.gpu_count",
    "cluster.gpus_per_node",
    "cluster.reserved_for_others_bytes",
};

// The value of a field as messages show it; nothing where it is unset.
struct ValueText {
  using Text = std::optional<std::string>;

  Text operator()(std::monostate /*nowhere*/) const { return std::nullopt; }
  Text operator()(const std::optional<bool>* value) const {
    if (!value->has_value()) return std::nullopt;
    return **value ? "true" : "false";
  }
  template <typename Value>
  Text operator()(const std::optional<Value>* value) const {
    return value->has_value() ? Text(absl::StrCat(**value)) : std::nullopt;
  }
  template <typename Value>
  Text operator()(const std::vector<Value>* values) const {
    return values->empty() ? std::nullopt : Text(absl::StrJoin(*values, ", "));
  }
};

void CheckBeside(JobSpec spec, Check& check) {
  const auto refuse = [&check](absl::string_view field, absl::string_view value) {
    check.Fail(field, value,
               "must be unset beside model.profiled: it was the script's own to say, and what was "
               "measured holds for that alone",
               ViolationCode::kConflict, {"model.profiled"});
  };
  for (const FieldRow& row : kFieldRows) {
    const bool beside =
        std::find(std::begin(kBeside), std::end(kBeside), row.path) != std::end(kBeside);
    if (row.place == nullptr || beside || absl::StartsWith(row.path, "model.profiled.")) continue;
    const auto text = std::visit(ValueText(), row.place(spec));
    if (text.has_value()) refuse(row.path, *text);
  }
  for (const auto& [package, version] : spec.runtime.versions) {
    refuse(absl::StrCat("runtime.versions.", package.substr(0, 64)), version);
  }
}

// The GPU that was measured; null and a violation where no GPU is called so.
const Gpu* MeasuredGpu(const ProfiledSpec& spec, const Catalog& catalog, Check& check) {
  if (!spec.measured_gpu.has_value()) {
    check.Fail(kGpu, "unset", "must be set", ViolationCode::kMissing);
    return nullptr;
  }
  const Gpu* const gpu = FindGpu(*spec.measured_gpu, catalog);
  if (gpu == nullptr) {
    check.Fail(kGpu, *spec.measured_gpu, NotAGpu(*spec.measured_gpu, catalog),
               ViolationCode::kUnknownName);
  }
  return gpu;
}

// The job's GPUs are those that were measured, as they are where it names none.
void CheckGpus(const JobSpec& spec, const ProfiledSpec& profiled, const Catalog& catalog,
               Check& check, Job& job) {
  ClusterSpec cluster = spec.cluster;
  const Gpu* const measured = MeasuredGpu(profiled, catalog, check);
  if (measured != nullptr && !cluster.gpu.has_value() && !cluster.gpu_memory_bytes.has_value()) {
    cluster.gpu = measured->id;
    check.Assume("cluster.gpu", measured->id, "the GPU that was measured");
  }
  if (measured != nullptr || cluster.gpu.has_value()) CheckCluster(cluster, catalog, check, job);
  if (measured != nullptr && job.gpu != nullptr && job.gpu != measured) {
    check.Fail("cluster.gpu", *cluster.gpu,
               absl::StrCat("must be ", measured->id,
                            ", the GPU that was measured: another chooses other kernels and has "
                            "other room; plimsoll measure --gpu ",
                            job.gpu->id, " asks for it"),
               ViolationCode::kConflict, {kGpu});
  }
  job.gpu_count = check.Required(kGpuCount, profiled.measured_gpu_count);
  if (cluster.gpu_count.has_value() && *cluster.gpu_count != job.gpu_count) {
    check.Fail("cluster.gpu_count", *cluster.gpu_count,
               absl::StrCat("must be ", job.gpu_count,
                            ", the ranks of the run that was measured: another number shards "
                            "otherwise"),
               ViolationCode::kConflict, {kGpuCount});
  }
  if (!cluster.gpu_count.has_value()) {
    check.Assume("cluster.gpu_count", job.gpu_count, "the ranks of the run that was measured");
  }
  job.data_parallel_size = job.gpu_count;
  SettleGpusPerNode(check, job);
}

void CheckRun(const ProfiledSpec& spec, Check& check, Job& job, Profiled& profiled) {
  profiled.rank = check.Number(kRank, spec.measured_rank, 0);
  if (profiled.rank >= job.gpu_count) {
    check.Fail(kRank, profiled.rank,
               absl::StrCat("must be below measured_gpu_count ", job.gpu_count),
               ViolationCode::kConflict, {kGpuCount});
  }
  Framework framework = FrameworkOf(/*zero_stage=*/0);
  if (spec.measured_framework.has_value()) {
    framework =
        check.Meaning(kFramework, *spec.measured_framework, kFrameworks).value_or(framework);
  } else {
    check.Assume(kFramework, "ddp", "it moves the upper bound alone");
  }
  job.profile = FindProfile(framework, -1);
  job.zero_stage = job.profile->sharding == Sharding::kUnits ? 3 : 0;
  profiled.torch_version = spec.torch_version.value_or("");
  if (spec.torch_version.has_value()) {
    const std::optional<int> version = ParseVersion(*spec.torch_version);
    job.torch_version = version.value_or(-1);
    if (!version.has_value()) {
      check.Fail("model.profiled.torch_version", *spec.torch_version,
                 "must be a version such as 2.15.0", ViolationCode::kMalformed);
    }
  }
  job.nccl_version = DefaultNccl(framework, job.torch_version);
}

void CheckCommunicators(const ProfiledSpec& spec, Check& check, const Job& job,
                        Profiled& profiled) {
  constexpr KnownField size_field("model.profiled.communicator_size");
  constexpr KnownField stride_field("model.profiled.communicator_stride");
  const std::vector<int64_t>& sizes = spec.communicator_size;
  const std::vector<int64_t>& strides = spec.communicator_stride;
  if (!check.FewEnough(size_field, sizes.size(), "numbers", kMostCommunicators)) return;
  if (strides.size() != sizes.size()) {
    return check.Fail(stride_field, absl::StrCat(strides.size(), " numbers"),
                      absl::StrCat("must be ", sizes.size(), ", one for each of communicator_size"),
                      ViolationCode::kConflict, {size_field});
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 2 || sizes[i] > job.gpu_count) {
      check.Fail(absl::StrCat(size_field->path, "[", i, "]"), sizes[i],
                 absl::StrCat("must be from 2 to measured_gpu_count ", job.gpu_count),
                 ViolationCode::kConflict, {kGpuCount});
    } else if (strides[i] < 1 || Multiply(sizes[i] - 1, strides[i]) >= job.gpu_count) {
      check.Fail(absl::StrCat(stride_field->path, "[", i, "]"), strides[i],
                 absl::StrCat("must be from 1 to ", (job.gpu_count - 1) / (sizes[i] - 1), ", for ",
                              sizes[i], " of ", job.gpu_count, " ranks"),
                 ViolationCode::kConflict, {size_field});
    } else {
      profiled.communicators.push_back({.size = sizes[i], .stride = strides[i]});
    }
  }
}

// The sum of all dtypes.
int64_t CheckCounts(absl::string_view field, const std::map<std::string, int64_t>& counts,
                    Check& check) {
  if (!check.FewEnough(field, counts.size(), "dtypes", kMostDTypes)) return 0;
  int64_t sum = 0;
  for (const auto& [dtype, count] : counts) {
    if (count < 0 || count > kMostProfiledBytes) {
      check.Fail(absl::StrCat(field, ".", dtype.substr(0, 64)), count,
                 absl::StrCat("must be from 0 to ", kMostProfiledBytes),
                 ViolationCode::kOutOfRange);
    } else {
      sum = Add(sum, count);
    }
  }
  return sum;
}

// Fields of one phase of a step.
struct PhaseFields {
  Phase phase;
  PhasePeakSpec ProfiledStepSpec::*peak;
  KnownField allocated;
  KnownField reserved;
};

// Both gauges of a phase, or neither.
void CheckPeak(const PhaseFields& fields, const PhasePeakSpec& spec, bool first_step, Check& check,
               Profiled& profiled) {
  if (!spec.allocated_bytes.has_value() && !spec.reserved_bytes.has_value()) return;
  const size_t before = check.violations().size();
  const ProfiledPeak peak = {
      .phase = fields.phase,
      .first_step = first_step,
      .allocated_bytes = check.Required(fields.allocated, spec.allocated_bytes),
      .reserved_bytes = check.Required(fields.reserved, spec.reserved_bytes)};
  if (check.violations().size() > before) return;
  if (peak.reserved_bytes < peak.allocated_bytes) {
    check.Fail(fields.reserved, peak.reserved_bytes,
               absl::StrCat("must be at least allocated_bytes ", peak.allocated_bytes),
               ViolationCode::kConflict, {fields.allocated});
  }
  profiled.peaks.push_back(peak);
}

// One step of the measured ones, and the names of its fields.
struct StepFields {
  absl::string_view name;
  const ProfiledStepSpec& spec;
  bool first = false;
  absl::Span<const PhaseFields> phases;
};

void CheckStep(const StepFields& step, Check& check, Profiled& profiled) {
  const size_t violations = check.violations().size();
  const size_t before = profiled.peaks.size();
  for (const PhaseFields& phase : step.phases) {
    CheckPeak(phase, step.spec.*phase.peak, step.first, check, profiled);
  }
  if (profiled.peaks.size() > before || check.violations().size() > violations) return;
  check.Fail(step.name, "unset", "must have the peaks of at least one phase",
             ViolationCode::kMissing);
}

void CheckSteps(const ProfiledSpec& spec, Check& check, Profiled& profiled) {
  static constexpr PhaseFields kFirst[] = {
      {Phase::kForward, &ProfiledStepSpec::forward,
       "model.profiled.first_step.forward.allocated_bytes",
       "model.profiled.first_step.forward.reserved_bytes"},
      {Phase::kBackward, &ProfiledStepSpec::backward,
       "model.profiled.first_step.backward.allocated_bytes",
       "model.profiled.first_step.backward.reserved_bytes"},
      {Phase::kGradientReduction, &ProfiledStepSpec::gradient_reduction,
       "model.profiled.first_step.gradient_reduction.allocated_bytes",
       "model.profiled.first_step.gradient_reduction.reserved_bytes"},
      {Phase::kOptimizer, &ProfiledStepSpec::optimizer,
       "model.profiled.first_step.optimizer.allocated_bytes",
       "model.profiled.first_step.optimizer.reserved_bytes"},
  };
  static constexpr PhaseFields kSteady[] = {
      {Phase::kForward, &ProfiledStepSpec::forward,
       "model.profiled.steady_step.forward.allocated_bytes",
       "model.profiled.steady_step.forward.reserved_bytes"},
      {Phase::kBackward, &ProfiledStepSpec::backward,
       "model.profiled.steady_step.backward.allocated_bytes",
       "model.profiled.steady_step.backward.reserved_bytes"},
      {Phase::kGradientReduction, &ProfiledStepSpec::gradient_reduction,
       "model.profiled.steady_step.gradient_reduction.allocated_bytes",
       "model.profiled.steady_step.gradient_reduction.reserved_bytes"},
      {Phase::kOptimizer, &ProfiledStepSpec::optimizer,
       "model.profiled.steady_step.optimizer.allocated_bytes",
       "model.profiled.steady_step.optimizer.reserved_bytes"},
  };
  CheckStep({"model.profiled.first_step", spec.first_step, true, kFirst}, check, profiled);
  CheckStep({"model.profiled.steady_step", spec.steady_step, false, kSteady}, check, profiled);
}

}  // namespace

void CheckProfiled(const JobSpec& spec, const Catalog& catalog, Check& check, Job& job) {
  const auto& of_run = std::get<ProfiledSpec>(spec.model.source);
  Profiled profiled;
  CheckGpus(spec, of_run, catalog, check, job);
  CheckBeside(spec, check);
  CheckRun(of_run, check, job, profiled);
  CheckCommunicators(of_run, check, job, profiled);
  profiled.parameter_count =
      CheckCounts("model.profiled.parameter_counts", of_run.parameter_counts, check);
  profiled.shard_parameter_count =
      CheckCounts("model.profiled.shard_parameter_counts", of_run.shard_parameter_counts, check);
  profiled.weight_bytes = check.Number("model.profiled.weight_bytes", of_run.weight_bytes, 0);
  profiled.optimizer_state_bytes =
      check.Number("model.profiled.optimizer_state_bytes", of_run.optimizer_state_bytes, 0);
  check.Number("model.profiled.activation_bytes", of_run.activation_bytes, 0);
  CheckSteps(of_run, check, profiled);
  job.profiled = std::move(profiled);
}

}  // namespace plimsoll
