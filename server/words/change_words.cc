#include "server/words/change_words.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "server/wire/shorten.h"

namespace plimsoll {
namespace {

// How the change of one field is said. `both`: the value before matters too.
struct FieldWord {
  const char* field;
  const char* word;  // empty: the value says enough
  bool both;
};

constexpr FieldWord kFields[] = {
    {"parallelism.zero_stage", "ZeRO", true},
    {"parallelism.shard_group_size", "shard group", true},
    {"parallelism.data_parallel_size", "DP", true},
    {"parallelism.tensor_parallel_size", "TP", true},
    {"parallelism.pipeline_parallel_size", "PP", true},
    {"parallelism.context_parallel_size", "CP", true},
    {"parallelism.expert_parallel_size", "EP", true},
    {"parallelism.expert_tensor_parallel_size", "ETP", true},
    {"parallelism.virtual_pipeline_size", "virtual stages", true},
    {"parallelism.pipeline_schedule", "schedule", false},
    {"parallelism.pipeline_layout", "layers per stage", false},
    {"parallelism.micro_batch_group_size", "micro-batches in a row", true},
    {"training.micro_batch_size", "micro-batch", true},
    {"training.global_batch_size", "global batch", true},
    {"training.sequence_length", "sequence", true},
    {"training.recompute", "recompute", false},
    {"training.recompute.mode", "recompute", false},
    {"training.recompute.modules", "recompute of", false},
    {"training.recompute.interval", "recompute interval", true},
    {"training.recompute.unit_layer_count", "layers recomputed at once", true},
    {"training.precision.preset", "precision", true},
    {"training.optimizer.name", "optimizer", true},
    {"training.loss.implementation", "loss", false},
    {"runtime.framework", "framework", true},
    {"runtime.trainer", "trainer", true},
    {"cluster.gpu_count", "GPUs", true},
    {"cluster.gpu", "GPU", false},
    {"cluster.gpu_memory_bytes", "GPU memory", true},
    {"cluster.gpus_per_node", "GPUs per node", true},
};

// A path without a word of its own: "parallelism.ring_size" is "ring size".
std::string LastPart(const std::string& field) {
  return absl::StrReplaceAll(field.substr(field.rfind('.') + 1), {{"_", " "}});
}

std::string ChangeWord(const v1::Change& change, Glyphs glyphs) {
  const auto* const known =
      std::find_if(std::begin(kFields), std::end(kFields),
                   [&](const FieldWord& word) { return word.field == change.field(); });
  const bool found = known != std::end(kFields);
  const std::string name = found ? known->word : LastPart(Clean(change.field()));
  const std::string to = change.to().empty() ? "default" : Clean(change.to());
  if (to == "true") return name;
  if (to == "false") return absl::StrCat("no ", name);
  if ((found && !known->both) || change.from().empty()) return absl::StrCat(name, " ", to);
  return absl::StrCat(name, " ", Clean(change.from()), glyphs == Glyphs::kUnicode ? " → " : " -> ",
                      to);
}

// What the size of data parallelism follows from.
constexpr absl::string_view kSplits[] = {"parallelism.tensor_parallel_size",
                                         "parallelism.pipeline_parallel_size",
                                         "parallelism.context_parallel_size", "cluster.gpu_count"};

// Whether the change only keeps the product of the sizes what it must be, or is
// what virtual stages mean.
bool Follows(const v1::Change& change, const v1::Candidate& candidate) {
  const auto& changes = candidate.changes();
  if (change.field() == "parallelism.pipeline_schedule") {
    return std::any_of(changes.begin(), changes.end(), [](const v1::Change& other) {
      return other.field() == "parallelism.virtual_pipeline_size";
    });
  }
  if (change.field() != "parallelism.data_parallel_size") return false;
  return std::any_of(changes.begin(), changes.end(), [](const v1::Change& other) {
    return std::find(std::begin(kSplits), std::end(kSplits), other.field()) != std::end(kSplits);
  });
}

}  // namespace

std::string ChangeWords(const v1::Candidate& candidate, Glyphs glyphs) {
  std::vector<std::string> words;
  for (const v1::Change& change : candidate.changes()) {
    if (!Follows(change, candidate)) words.push_back(ChangeWord(change, glyphs));
  }
  return words.empty() ? "as asked" : absl::StrJoin(words, ", ");
}

std::string PaceWords(double seconds, double asked) {
  const double ratio = seconds / asked;
  if (ratio >= 2) return absl::StrFormat("%.1f times as long", ratio);
  const long percent = std::lround((ratio - 1) * 100);
  if (percent == 0) return "as fast";
  return percent > 0 ? absl::StrCat(percent, " % slower") : absl::StrCat(-percent, " % less time");
}

int64_t GpuCount(const v1::Job& job) {
  if (job.cluster().has_gpu_count()) return job.cluster().gpu_count();
  const v1::Parallelism& p = job.parallelism();
  return (p.has_data_parallel_size() ? p.data_parallel_size() : 1) *
         (p.has_tensor_parallel_size() ? p.tensor_parallel_size() : 1) *
         (p.has_pipeline_parallel_size() ? p.pipeline_parallel_size() : 1);
}

double Gib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

}  // namespace plimsoll
