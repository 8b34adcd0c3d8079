// The part of JobTranslator that sets what follows from numbers of nodes and of
// micro-batches.
#include "absl/strings/str_cat.h"
#include "server/words/gpu_counts.h"
#include "server/words/job_translator.h"

namespace plimsoll {
namespace {

constexpr double kMostBatch = 1e12;  // above the API's

// Data-parallel ranks; 0 where nothing says how many GPUs there are.
int64_t Replicas(const v1::Job& job) {
  const v1::Parallelism& parallelism = job.parallelism();
  if (parallelism.has_data_parallel_size()) {
    return OrOne(parallelism.data_parallel_size());
  }
  return job.cluster().has_gpu_count() ? job.cluster().gpu_count() / ModelRanks(parallelism) : 0;
}

}  // namespace

// Whether what is written counts: a setting stands before a file.
bool JobTranslator::Stands(const Written& written, absl::string_view field) const {
  return written.by_setting || !set_.contains(std::string(field));
}

void JobTranslator::CountNodes(v1::Cluster* cluster) {
  constexpr char kField[] = "cluster.gpu_count";
  if (!Stands(*nodes_, kField)) return;
  const bool overrides = nodes_->by_setting && !set_.contains(kField);
  const bool of_each = gpus_.has_value() && cluster->has_gpus_per_node() &&
                       gpus_->number == cluster->gpus_per_node();
  if (overrides || of_each) cluster->clear_gpu_count();
  const bool unclear =
      gpus_.has_value() && !overrides && !cluster->has_gpus_per_node() && nodes_->number > 1;
  if (unclear) {
    Fail(gpus_->name, absl::StrCat(gpus_->number),
         absl::StrCat("may be of each of ", nodes_->number,
                      " nodes or of all: say gpus_per_node or gpu_count"),
         ViolationCode::kAmbiguousName);
    return;
  }
  if (cluster->has_gpu_count() && !cluster->has_gpus_per_node()) {
    if (cluster->gpu_count() % nodes_->number == 0) {
      cluster->set_gpus_per_node(cluster->gpu_count() / nodes_->number);
      return Note("cluster.gpus_per_node", nodes_->name, absl::StrCat(nodes_->number));
    }
    return Fail(nodes_->name, absl::StrCat(nodes_->number),
                absl::StrCat("must divide gpu_count ", cluster->gpu_count()),
                ViolationCode::kConflict);
  }
  const int64_t per_node =
      cluster->has_gpus_per_node() ? cluster->gpus_per_node() : kUsualGpusPerNode;
  if (per_node < 1 || per_node > kMostGpus) return;  // the service refuses it
  const int64_t count = nodes_->number * per_node;
  if (cluster->has_gpu_count() && cluster->gpu_count() != count) {
    return Fail(nodes_->name, absl::StrCat(nodes_->number),
                absl::StrCat("with gpus_per_node ", per_node, " are ", count,
                             " GPUs, but gpu_count is ", cluster->gpu_count()),
                ViolationCode::kConflict);
  }
  cluster->set_gpu_count(count);
  Note(kField, nodes_->name, absl::StrCat(nodes_->number, ", of ", per_node, " GPUs"));
}

// Source: the trainers that have the word: each rank takes so many micro-batches before
// a step.
void JobTranslator::CountMicroBatches(v1::Job* job) {
  constexpr char kField[] = "training.global_batch_size";
  if (!Stands(*accumulation_, kField)) return;
  v1::Training& training = *job->mutable_training();
  if (accumulation_->by_setting && !set_.contains(kField)) training.clear_global_batch_size();
  const std::string number = absl::StrCat(accumulation_->number);
  const int64_t replicas = Replicas(*job);
  if (replicas < 1) {
    return Fail(accumulation_->name, number,
                "needs cluster.gpu_count: global_batch_size is this x micro_batch_size x "
                "data_parallel_size",
                ViolationCode::kMissing);
  }
  const int64_t micro = OrOne(training.micro_batch_size());
  const double batch = static_cast<double>(accumulation_->number) * static_cast<double>(replicas) *
                       static_cast<double>(micro);
  if (batch > kMostBatch) {
    return Fail(accumulation_->name, number, "is too large", ViolationCode::kOutOfRange);
  }
  const auto whole = static_cast<int64_t>(batch);
  if (training.has_global_batch_size() && training.global_batch_size() != whole) {
    return Fail(accumulation_->name, number,
                absl::StrCat("makes global_batch_size ", whole, ", but that is ",
                             training.global_batch_size()),
                ViolationCode::kConflict);
  }
  training.set_global_batch_size(whole);
  Note(kField, accumulation_->name, number);
}

}  // namespace plimsoll
