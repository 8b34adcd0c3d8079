#include "server/words/change_words.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "estimator/job/fields.h"
#include "server/wire/shorten.h"
#include "server/words/gpu_counts.h"

namespace plimsoll {
namespace {

// A path without a word of its own: "parallelism.ring_size" is "ring size".
std::string LastPart(const std::string& field) {
  return absl::StrReplaceAll(field.substr(field.rfind('.') + 1), {{"_", " "}});
}

std::string ChangeWord(const v1::Change& change, Glyphs glyphs) {
  const FieldRow* const row = FindFieldRow(change.field());
  const bool said = row != nullptr && !row->said.empty();
  std::string name = said ? std::string(row->said) : LastPart(Clean(change.field()));
  const std::string to = change.to().empty() ? "default" : Clean(change.to());
  if (to == "true") return name;
  if (to == "false") return absl::StrCat("no ", name);
  const bool enough = row != nullptr && row->says_enough;
  if (enough || change.from().empty()) return absl::StrCat(name, " ", to);
  return absl::StrCat(name, " ", Clean(change.from()), glyphs == Glyphs::kUnicode ? " → " : " -> ",
                      to);
}

// What the size of data parallelism follows from.
constexpr absl::string_view kSplits[] = {"parallelism.tensor_parallel_size",
                                         "parallelism.pipeline_parallel_size", "cluster.gpu_count"};

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
  return (p.has_data_parallel_size() ? p.data_parallel_size() : 1) * ModelRanks(p);
}

double Gib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

}  // namespace plimsoll
