#include "server/convert/usage.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "estimator/catalog/profile.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {
namespace {

std::string StrategyOf(const Job& job) {
  std::vector<std::string> parts;
  if (job.zero_stage > 0 && job.data_parallel_size > 1) {
    parts.push_back(absl::StrCat("zero", job.zero_stage));
  }
  if (job.tensor_parallel_size > 1) parts.emplace_back("tp");
  if (job.pipeline_parallel_size > 1) parts.emplace_back("pp");
  if (parts.empty()) return job.data_parallel_size > 1 ? "ddp" : "none";
  return absl::StrJoin(parts, "-");
}

}  // namespace

UsageLabels LabelsOf(const ValidJob& job) {
  UsageLabels labels;
  labels.framework = std::string(NameOf(job->profile->framework, kFrameworks));
  labels.gpu = job->gpu == nullptr ? "other" : job->gpu->id;
  labels.strategy = StrategyOf(*job);
  return labels;
}

}  // namespace plimsoll
