// The rows of a job's fields: each once, and what they say of ranges and words is what
// Validate holds a job to.
#include "estimator/job/fields.h"

#include <algorithm>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "estimator/base/vocabulary.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/profiled_job.h"

namespace plimsoll {
namespace {

bool IsOfProfiled(const FieldRow& row) { return absl::StartsWith(row.path, "model.profiled."); }

// A job that has a place for the row.
JobSpec JobWith(const FieldRow& row) { return IsOfProfiled(row) ? ProfiledJob() : SmallJob(); }

// Jobs of which one at least reads each field.
std::vector<JobSpec> ReadingJobs(const FieldRow& row) {
  if (IsOfProfiled(row)) return {ProfiledJob()};
  std::vector<JobSpec> jobs = {SmallJob(), With(SmallJob(), "megatron-core"),
                               With(SmallJob(), "deepspeed"), With(SmallJob(), "fsdp1")};
  JobSpec labels = SmallJob();
  Shape(labels).head = "token-classification";
  jobs.push_back(labels);
  JobSpec learned = SmallJob();
  Shape(learned).position_embedding = "learned";
  jobs.push_back(learned);
  JobSpec every_nth = With(SmallJob(), "fsdp2");
  every_nth.training.recompute.mode = "every-nth";
  jobs.push_back(every_nth);
  JobSpec projected = With(SmallJob(), "ddp");
  projected.training.optimizer.name = "galore-adamw";
  jobs.push_back(projected);
  JobSpec vectors = SmallJob();
  vectors.training.adapter.method = "ia3";
  jobs.push_back(vectors);
  JobSpec tokens = SmallJob();
  tokens.training.adapter.method = "p-tuning";
  jobs.push_back(tokens);
  return jobs;
}

// Whether some job with the field so is refused by exactly this rule.
template <typename Value>
bool IsRefused(const FieldRow& row, const Value& value, const std::string& shown,
               const std::string& rule) {
  const std::string refusal = absl::StrCat("job.", row.path, ": ", shown, "; ", rule);
  for (JobSpec job : ReadingJobs(row)) {
    const FieldPlace place = row.place(job);
    if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
      *std::get<std::vector<std::string>*>(place) = value;
    } else {
      *std::get<std::optional<Value>*>(place) = value;
    }
    const std::vector<std::string> found = Refusals(job);
    if (std::find(found.begin(), found.end(), refusal) != found.end()) return true;
  }
  return false;
}

bool IsOf(const FieldRow& row, size_t index) {
  JobSpec job = JobWith(row);
  return row.place != nullptr && row.place(job).index() == index;
}
const size_t kInt64 = FieldPlace(static_cast<std::optional<int64_t>*>(nullptr)).index();
const size_t kDouble = FieldPlace(static_cast<std::optional<double>*>(nullptr)).index();
const size_t kWords = FieldPlace(static_cast<std::vector<std::string>*>(nullptr)).index();

TEST(FieldsTest, EachStandsOnce) {
  const std::set<absl::string_view> distinct(FieldPaths().begin(), FieldPaths().end());
  EXPECT_EQ(distinct.size(), FieldPaths().size());
  for (const FieldRow& row : kFieldRows) EXPECT_EQ(FindFieldRow(row.path), &row);
  EXPECT_EQ(FindFieldRow("training.sequence"), nullptr);
  EXPECT_EQ(KnownField("parallelism.zero_stage")->most, 3);
}

TEST(FieldsTest, EachIsAPlaceOfItsOwn) {
  JobSpec small = SmallJob();
  JobSpec profiled = ProfiledJob();
  std::set<FieldPlace> places;
  for (const FieldRow& row : kFieldRows) {
    if (row.place == nullptr) continue;
    JobSpec& job = IsOfProfiled(row) ? profiled : small;
    EXPECT_TRUE(places.insert(row.place(job)).second) << row.path;
  }
  EXPECT_GT(places.size(), 75u);
}

TEST(FieldsTest, NumbersAreHeldToTheirRanges) {
  for (const FieldRow& row : kFieldRows) {
    const std::string rule = absl::StrCat("must be from ", row.least, " to ", row.most);
    if (IsOf(row, kInt64)) {
      for (const int64_t wrong : {row.least - 1, row.most + 1}) {
        EXPECT_TRUE(IsRefused(row, wrong, absl::StrCat(wrong), rule)) << row.path;
      }
    } else if (IsOf(row, kDouble)) {
      EXPECT_TRUE(IsRefused(row, -0.5, "-0.5", rule)) << row.path;
      EXPECT_TRUE(IsRefused(row, 1.5, "1.5", rule)) << row.path;
    }
  }
}

TEST(FieldsTest, WordsAreThoseThatTheApiTakes) {
  for (const FieldRow& row : kFieldRows) {
    if (row.words.empty()) continue;
    const std::string word = "zzz";
    const std::string rule = NotAWord(word, {row.words.begin(), row.words.end()});
    const bool refused = IsOf(row, kWords) ? IsRefused(row, std::vector{word}, word, rule)
                                           : IsRefused(row, word, word, rule);
    EXPECT_TRUE(refused) << row.path << ": " << rule;
  }
}

}  // namespace
}  // namespace plimsoll
