#include "server/admit/requested_job.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/catalog/gpu_names.h"
#include "server/wire/shorten.h"
#include "server/words/change_words.h"

namespace plimsoll {
namespace {

// Whether `name` is one GPU's, and one that `open`, a name of several, may mean.
bool Decides(const std::string& name, const std::string& open) {
  const std::vector<std::string> meant = GpusCalled(name);
  const std::vector<std::string> ids = GpusCalled(open);
  return meant.size() == 1 && ids.size() > 1 &&
         std::find(ids.begin(), ids.end(), meant[0]) != ids.end();
}

// The GPU that the scheduler will give, in the catalog's words where the rules know
// them; empty where that is open. Of a type that may mean several GPUs, the rules or
// the job must say which it is.
std::string GivenGpu(const GpuRequest& gpus, const v1::AdmissionRules& rules,
                     const std::string& said, Violations* wrong) {
  if (gpus.type.empty()) return rules.gpu();
  const auto known = rules.gpu_types().find(gpus.type);
  if (known != rules.gpu_types().end()) return known->second;
  const std::vector<std::string> ids = GpusCalled(gpus.type);
  if (ids.size() < 2) return gpus.type;
  if (Decides(rules.gpu(), gpus.type)) return rules.gpu();
  if (Decides(said, gpus.type)) return said;
  wrong->push_back({"cluster.gpu", Clean(gpus.type),
                    absl::StrCat("must be one of ", absl::StrJoin(ids, ", "),
                                 ": the job's gpu, or gpu_types of the policy, must say which"),
                    ViolationCode::kAmbiguousName});
  return "";
}

void AddGpu(const std::string& given, SameGpu same_gpu, v1::Cluster* cluster, Violations* wrong) {
  if (given.empty()) return;
  if (cluster->has_gpu_memory_bytes()) {
    wrong->push_back(
        {"cluster.gpu_memory_bytes", absl::StrCat(cluster->gpu_memory_bytes()),
         absl::StrCat("the job asks the scheduler for ", Clean(given), ", whose memory is known"),
         ViolationCode::kConflict});
  } else if (!cluster->has_gpu() || Decides(given, cluster->gpu())) {
    cluster->set_gpu(given);
  } else if (cluster->gpu() != given && !same_gpu(cluster->gpu(), given)) {
    wrong->push_back({"cluster.gpu", Clean(cluster->gpu()),
                      absl::StrCat("the job asks the scheduler for ", Clean(given)),
                      ViolationCode::kConflict});
  }
}

void AddCount(int64_t count, v1::Job* job, Violations* wrong) {
  if (count == 0) return;
  v1::Cluster& cluster = *job->mutable_cluster();
  if (!cluster.has_gpu_count()) {
    cluster.set_gpu_count(count);
  } else if (cluster.gpu_count() != count) {
    wrong->push_back(
        {"cluster.gpu_count", absl::StrCat(cluster.gpu_count()),
         absl::StrCat("the job asks the scheduler for ", count, count == 1 ? " GPU" : " GPUs"),
         ViolationCode::kConflict});
  }
}

}  // namespace

void AddCluster(const GpuRequest& gpus, const v1::AdmissionRules& rules, SameGpu same_gpu,
                v1::Job* job, Violations* wrong) {
  v1::Cluster& cluster = *job->mutable_cluster();
  AddGpu(GivenGpu(gpus, rules, cluster.gpu(), wrong), same_gpu, &cluster, wrong);
  AddCount(gpus.count, job, wrong);
  // How the GPUs lie is the request's to say, then the operator's.
  if (gpus.per_node > 0 && gpus.count > gpus.per_node) {
    cluster.set_gpus_per_node(gpus.per_node);
  } else if (rules.has_gpus_per_node()) {
    cluster.set_gpus_per_node(rules.gpus_per_node());
  }
  if (rules.reserved_for_others_bytes() > cluster.reserved_for_others_bytes()) {
    cluster.set_reserved_for_others_bytes(rules.reserved_for_others_bytes());
  }
}

}  // namespace plimsoll
