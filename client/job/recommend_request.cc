#include "client/job/recommend_request.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/words/gpu_counts.h"

namespace plimsoll {
namespace {

// The parts of lists that were given one by one or with commas.
std::vector<std::string> Parts(const std::vector<std::string>& lists) {
  std::vector<std::string> parts;
  for (const std::string& list : lists) {
    for (const absl::string_view part : absl::StrSplit(list, ',', absl::SkipEmpty())) {
      parts.emplace_back(part);
    }
  }
  return parts;
}

void AddPrices(const std::vector<std::string>& prices, v1::RecommendConfigRequest* request,
               std::vector<std::string>* wrong) {
  for (const std::string& part : Parts(prices)) {
    const std::vector<std::string> sides = absl::StrSplit(part, '=');
    double price = 0;
    if (sides.size() != 2 || sides[0].empty() || !absl::SimpleAtod(sides[1], &price)) {
      wrong->push_back(
          absl::StrCat("--price: ", part, "; must be GPU=PRICE, as h100-80gb-sxm=2.5"));
      continue;
    }
    if (!request->mutable_gpu_hour_prices()->insert({sides[0], price}).second) {
      wrong->push_back(absl::StrCat("--price: ", part, "; is a second price of ", sides[0]));
    }
  }
}

void AddGpuCounts(const std::string& text, v1::RecommendConfigRequest* request,
                  std::vector<std::string>* wrong) {
  if (text.empty()) return;
  const v1::Cluster& cluster = request->job().cluster();
  const absl::StatusOr<std::vector<int64_t>> counts = ReadGpuCounts(
      text, cluster.has_gpus_per_node() ? cluster.gpus_per_node() : kUsualGpusPerNode);
  if (!counts.ok()) {
    wrong->emplace_back(counts.status().message());
    return;
  }
  request->mutable_gpu_counts()->Assign(counts->begin(), counts->end());
}

// What the job leaves open is the first GPU of those that may be considered, and
// the most of them: a batch that follows from these suits fewer. The job's own alone
// need not be considered: they may be frozen.
void CompleteJob(v1::RecommendConfigRequest* request) {
  v1::Job* job = request->mutable_job();
  if (request->gpus_size() > 0 && !job->cluster().has_gpu() &&
      !job->cluster().has_gpu_memory_bytes()) {
    job->mutable_cluster()->set_gpu(request->gpus(0));
  }
  if (request->gpu_counts_size() > 0 && !job->cluster().has_gpu_count() &&
      !job->parallelism().has_data_parallel_size()) {
    job->mutable_cluster()->set_gpu_count(
        *std::max_element(request->gpu_counts().begin(), request->gpu_counts().end()));
  }
  const v1::Cluster& cluster = job->cluster();
  if (request->gpus_size() == 1 && request->gpus(0) == cluster.gpu()) request->clear_gpus();
  if (request->gpu_counts_size() == 1 && request->gpu_counts(0) == cluster.gpu_count()) {
    request->clear_gpu_counts();
  }
}

}  // namespace

absl::StatusOr<v1::RecommendConfigRequest> ToRequest(const RecommendCommand& command, v1::Job job) {
  v1::RecommendConfigRequest request;
  std::vector<std::string> wrong;
  *request.mutable_job() = std::move(job);
  AddGpuCounts(command.gpu_counts, &request, &wrong);
  AddPrices(command.prices, &request, &wrong);
  for (const std::string& gpu : Parts(command.gpus)) request.add_gpus(gpu);
  for (const std::string& path : Parts(command.frozen)) request.add_frozen(path);
  for (const std::string& path : Parts(command.allowed_changes)) request.add_allowed_changes(path);
  if (!wrong.empty()) return absl::InvalidArgumentError(absl::StrJoin(wrong, "\n"));
  if (!command.objective.empty()) request.set_objective(command.objective);
  if (command.max_results.has_value()) request.set_max_results(*command.max_results);
  if (command.risk.has_value()) request.set_risk(*command.risk);
  if (!command.detail.empty()) request.set_detail(command.detail);
  CompleteJob(&request);
  return request;
}

}  // namespace plimsoll
