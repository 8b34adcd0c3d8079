// The cluster section, and which framework runs on it.
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "estimator/job/nccl_version.h"
#include "estimator/job/validate_sections.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
namespace {

constexpr size_t kMaxVersions = 64;  // names, of which few mean anything

// Versions that a job names; -1: none, so the newest.
struct Versions {
  int framework = -1;
  int torch = -1;
  int trainer = -1;
  int nccl = -1;
  int transformers = -1;
  int liger = -1;
};

// Whether a model's class in transformers has habits of its release.
bool IsOfTransformers(const Profile& profile, const Job& job) {
  return profile.transformers_attention && job.model != nullptr &&
         (job.model->linear.Any() || job.model->state_space.Any());
}

Versions ReadVersions(const RuntimeSpec& spec, const Profile& newest, absl::string_view trainer,
                      Check& check, const Job& job) {
  Versions versions;
  if (!check.FewEnough("runtime.versions", spec.versions.size(), "names", kMaxVersions)) {
    return versions;
  }
  for (const auto& [package, text] : spec.versions) {
    const std::string field = absl::StrCat("runtime.versions.", package.substr(0, 64));
    const bool of_trainer = !trainer.empty() && trainer == package;
    const bool of_nccl = package == "nccl";
    const bool of_torch = package == "torch";
    const bool of_class = package == "transformers" && IsOfTransformers(newest, job);
    const bool of_liger = package == "liger-kernel" && spec.liger_kernel.value_or(false);
    const bool moves = package == newest.package || of_trainer || of_nccl || of_torch;
    if (!moves && !of_class && !of_liger) {
      const absl::string_view own = newest.package == "torch" ? "" : newest.package;
      check.Fail(field, text,
                 absl::StrCat("moves no byte of ", newest.name, "; only ", trainer,
                              trainer.empty() ? "" : ", ", own, own.empty() ? "" : ", ",
                              "torch and nccl do"),
                 ViolationCode::kNotSupported, {"runtime.framework", "runtime.trainer"});
      continue;
    }
    const std::optional<int> parsed = ParseVersion(text);
    if (!parsed.has_value()) {
      check.Fail(field, text, "must be a version such as 2.4", ViolationCode::kMalformed);
    } else if (of_trainer) {
      versions.trainer = *parsed;
    } else if (of_nccl) {
      versions.nccl = *parsed;
    } else if (of_class) {
      versions.transformers = *parsed;
    } else if (of_liger) {
      versions.liger = *parsed;
    } else {
      if (of_torch) versions.torch = *parsed;
      if (package == newest.package) versions.framework = *parsed;
    }
  }
  return versions;
}

void FailAsTooOld(absl::string_view package, int version, Check& check) {
  check.Fail(absl::StrCat("runtime.versions.", package), VersionText(version),
             "is older than every era that is modelled", ViolationCode::kNotModelled);
}

// The frameworks that a trainer runs on.
std::vector<absl::string_view> FrameworksOf(Trainer trainer) {
  std::vector<absl::string_view> names;
  for (const auto& framework : kFrameworks) {
    const Profile* const newest = FindProfile(framework.value, -1);
    if (FindTrainerProfile(*newest, trainer, -1) != nullptr) names.push_back(framework.name);
  }
  return names;
}

// The framework as the trainer runs it, in the era that `version` names.
const Profile* FindTrainerEra(const Profile& framework, Trainer trainer, int version,
                              Check& check) {
  const absl::string_view name = NameOf(trainer, kTrainers);
  if (FindTrainerProfile(framework, trainer, -1) == nullptr) {
    check.Fail("runtime.trainer", name, absl::StrCat("does not run on ", framework.name),
               ViolationCode::kNotSupported, {"runtime.framework"});
    return nullptr;
  }
  const Profile* const run = FindTrainerProfile(framework, trainer, version);
  if (run == nullptr) FailAsTooOld(name, version, check);
  return run;
}

// Finds the era that `versions` names for this framework, as the trainer runs it, and
// what they can do.
void FindEra(const RuntimeSpec& spec, Framework framework, std::optional<Trainer> trainer,
             Check& check, Job& job) {
  const Profile* newest = FindProfile(framework, -1);
  const absl::string_view name = trainer.has_value() ? NameOf(*trainer, kTrainers) : "";
  const Versions versions = ReadVersions(spec, *newest, name, check, job);
  job.torch_version = versions.torch;
  job.nccl_version = versions.nccl >= 0 ? versions.nccl : DefaultNccl(framework, versions.torch);
  job.transformers_version = versions.transformers;
  job.liger_version = versions.liger;
  job.liger_kernel = spec.liger_kernel.value_or(false);
  const bool says = trainer == Trainer::kHfTrainer && versions.transformers < 0;
  if (says) job.transformers_version = versions.trainer;
  job.profile = FindProfile(framework, versions.framework);
  const bool core = framework == Framework::kMegatronCore;
  if (core) job.megatron_fsdp = FindMegatronFsdp(versions.framework);
  if (job.profile == nullptr) {
    FailAsTooOld(newest->package, versions.framework, check);
    job.profile = newest;
  }
  const Profile* run = nullptr;
  if (trainer.has_value()) {
    run = FindTrainerEra(*job.profile, *trainer, versions.trainer, check);
  }
  if (run != nullptr) job.profile = run;
  const int trained_by = trainer.has_value() ? MonthOrRelease(*trainer, versions.trainer) : -1;
  job.capabilities =
      CapabilitiesOf(framework, versions.framework, job.profile->trainer, trained_by);
}

}  // namespace

std::optional<int> ParseVersion(absl::string_view text) {
  const std::vector<absl::string_view> parts =
      absl::StrSplit(text.substr(0, 32), absl::MaxSplits('.', 2));
  int major = 0;
  int minor = 0;
  if (!absl::SimpleAtoi(parts[0], &major) || major < 0 || major > 9999) return std::nullopt;
  if (parts.size() > 1 && (!absl::SimpleAtoi(parts[1], &minor) || minor < 0 || minor > 999)) {
    return std::nullopt;
  }
  return major * 1000 + minor;
}

void SettleGpusPerNode(Check& check, Job& job) {
  if (job.gpus_per_node != 0) return;
  job.gpus_per_node = job.gpu_count < 8 ? job.gpu_count : 8;
  check.Assume("cluster.gpus_per_node", job.gpus_per_node, "8, or all where there are fewer");
}

const Gpu* FindGpu(const std::string& name, const Catalog& catalog) {
  const auto found = catalog.gpus.find(name);
  if (found != catalog.gpus.end()) return &found->second;
  if (name.size() > 256) return nullptr;
  const auto alias = catalog.gpu_aliases.find(absl::AsciiStrToLower(name));
  return alias != catalog.gpu_aliases.end() ? &catalog.gpus.find(alias->second)->second : nullptr;
}

const AmbiguousGpu* FindAmbiguousGpu(const std::string& name, const Catalog& catalog) {
  if (name.size() > 256) return nullptr;
  const auto found = catalog.ambiguous_gpus.find(absl::AsciiStrToLower(name));
  return found != catalog.ambiguous_gpus.end() ? &found->second : nullptr;
}

std::string NotAGpu(const std::string& name, const Catalog& catalog) {
  std::vector<absl::string_view> names;
  for (const auto& entry : catalog.gpus) names.push_back(entry.first);
  return NotAWord(name, names);
}

void CheckCluster(const ClusterSpec& spec, const Catalog& catalog, Check& check, Job& job) {
  if (spec.gpu.has_value()) {
    job.gpu = FindGpu(*spec.gpu, catalog);
    if (job.gpu == nullptr) {
      check.Fail("cluster.gpu", *spec.gpu, NotAGpu(*spec.gpu, catalog),
                 ViolationCode::kUnknownName);
    } else if (const AmbiguousGpu* const ambiguous = FindAmbiguousGpu(*spec.gpu, catalog)) {
      check.Assume("cluster.gpu", job.gpu->id, ambiguous->others);
    }
  }
  if (spec.gpu.has_value() == spec.gpu_memory_bytes.has_value()) {
    check.Fail(spec.gpu.has_value() ? "cluster.gpu_memory_bytes" : "cluster.gpu",
               spec.gpu.has_value() ? absl::StrCat(*spec.gpu_memory_bytes) : "unset",
               "exactly one of gpu and gpu_memory_bytes must be set",
               spec.gpu.has_value() ? ViolationCode::kConflict : ViolationCode::kMissing,
               {"cluster.gpu", "cluster.gpu_memory_bytes"});
  }
  int64_t memory = check.Number("cluster.gpu_memory_bytes", spec.gpu_memory_bytes, 0);
  if (job.gpu != nullptr) {
    memory = job.gpu->runtime_memory_bytes;
    job.architecture = job.gpu->architecture;
  } else if (memory > 0) {
    job.warnings.push_back({"unknown-gpu", "job.cluster.gpu_memory_bytes",
                            "the CUDA context, NCCL and workspaces are taken as on an A100"});
  }
  const int64_t others =
      check.Number("cluster.reserved_for_others_bytes", spec.reserved_for_others_bytes, 0);
  if (memory > 0 && others >= memory) {
    check.Fail("cluster.reserved_for_others_bytes", others,
               absl::StrCat("must be below the GPU's memory of ", memory, " bytes"),
               ViolationCode::kConflict, {"cluster.gpu", "cluster.gpu_memory_bytes"});
  }
  job.usable_bytes = memory > others ? memory - others : 0;
  job.gpus_per_node = check.Number("cluster.gpus_per_node", spec.gpus_per_node, 0);
  check.Number("cluster.gpu_count", spec.gpu_count, 1);
  const Gpu unknown;
  const Gpu& gpu = job.gpu != nullptr ? *job.gpu : unknown;
  job.interconnect_bytes_per_second =
      check.Number("cluster.interconnect_bytes_per_second", spec.interconnect_bytes_per_second,
                   gpu.interconnect_bytes_per_second);
  job.network_bytes_per_second =
      check.Number("cluster.network_bytes_per_second", spec.network_bytes_per_second,
                   gpu.network_bytes_per_second);
}

// The trainer that a job names, or that tunes by preferences or distils as it asks.
std::optional<Trainer> TrainerOf(const JobSpec& spec, Framework framework, Check& check) {
  constexpr absl::string_view kField = "runtime.trainer";
  const std::optional<std::string>& said = spec.runtime.trainer;
  if (!said.has_value()) {
    const bool distils = spec.training.distillation.teacher.has_value();
    const bool prefers = distils || spec.training.preference.method.has_value();
    const Profile& newest = *FindProfile(framework, -1);
    if (!prefers || FindTrainerProfile(newest, Trainer::kTrl, -1) == nullptr) return std::nullopt;
    check.Assume(kField, "trl",
                 distils ? "its GKDTrainer distils" : "its trainers tune by preferences");
    return Trainer::kTrl;
  }
  if (FindWord(*said, kFrameworks).has_value()) {
    check.Fail(kField, *said, "is a framework: it goes to runtime.framework",
               ViolationCode::kUnknownName);
    return std::nullopt;
  }
  return check.Meaning(kField, *said, kTrainers);
}

Framework FrameworkOf(int64_t zero_stage) {
  if (zero_stage <= 0) return Framework::kDdp;
  return zero_stage == 3 ? Framework::kFsdp2 : Framework::kDeepSpeed;
}

void CheckFramework(const JobSpec& spec, Check& check, Job& job) {
  Framework framework = Framework::kDdp;
  if (spec.runtime.framework.has_value()) {
    const std::string& name = *spec.runtime.framework;
    if (const auto trainer = FindWord(name, kTrainers)) {
      check.Fail("runtime.framework", name,
                 absl::StrCat("is a trainer: it goes to runtime.trainer, with one of ",
                              absl::StrJoin(FrameworksOf(*trainer), ", "), " as the framework"),
                 ViolationCode::kUnknownName);
      return;
    }
    const auto meaning = check.Meaning("runtime.framework", name, kFrameworks);
    if (!meaning.has_value()) return;
    framework = *meaning;
  } else {
    const bool offloads = spec.runtime.offload_optimizer.value_or(false);
    framework =
        offloads ? Framework::kDeepSpeed : FrameworkOf(spec.parallelism.zero_stage.value_or(0));
    check.Assume("runtime.framework", FindProfile(framework, -1)->name,
                 offloads ? "follows from runtime.offload_optimizer"
                          : "follows from parallelism.zero_stage");
  }
  FindEra(spec.runtime, framework, TrainerOf(spec, framework, check), check, job);
  check.Assume("runtime.versions", job.profile->era, "the era whose rules apply");
  if (job.profile->trainer != Trainer::kNone) {
    check.Assume("runtime.trainer", job.profile->trainer_era, "the era whose rules apply");
  }
}

}  // namespace plimsoll
