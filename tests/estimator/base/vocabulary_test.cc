// Names that are not known get the nearest ones, in bounded work.
#include "estimator/base/vocabulary.h"

#include "estimator/job/vocabularies.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<absl::string_view>& Names() {
  static const auto* const kNames = new std::vector<absl::string_view>{
      "llama-2-7b", "llama-3-8b", "llama-3.1-8b", "llama-3.1-70b", "mistral-7b",
      "qwen3-8b",   "qwen3-32b",  "gpt2",         "gpt2-xl",       "pythia-1b",
      "phi-2",      "phi-4",      "bloom-1b1",    "gemma-2-27b",
  };
  return *kNames;
}

TEST(VocabularyTest, NearestFirstThenByName) {
  EXPECT_THAT(NearestNames("llama-3.1-8", Names()),
              ElementsAre("llama-3.1-8b", "llama-3-8b", "llama-3.1-70b"));
  EXPECT_THAT(NearestNames("phi-3", Names()), ElementsAre("phi-2", "phi-4"));
  EXPECT_THAT(NearestNames("zebra", Names()), IsEmpty());
  EXPECT_THAT(NearestNames("", Names()), IsEmpty());
}

// The start of a name is near, however much is missing.
TEST(VocabularyTest, ABeginningIsNear) {
  EXPECT_THAT(NearestNames("gemma", Names()), ElementsAre("gemma-2-27b"));
  EXPECT_THAT(NearestNames("ge", Names()), IsEmpty()) << "two letters begin too much";
}

TEST(VocabularyTest, FewNamesAreListedManyAreNot) {
  EXPECT_EQ(NotAWord("x", {"a", "b", "c"}), "must be one of a, b, c");
  EXPECT_EQ(NotAWord("gpt2-xxl", Names()), "is not known; nearest: gpt2-xl");
  EXPECT_EQ(NotAWord("zebra", Names()), "is not known");
}

// A megabyte is cut before it is compared.
TEST(VocabularyTest, LongNamesAreBoundedWork) {
  EXPECT_THAT(NearestNames(std::string(1 << 20, 'a'), Names()), IsEmpty());
  EXPECT_EQ(NotAWord(std::string(1 << 20, 'a'), Names()), "is not known");
}

TEST(VocabularyTest, FindsWhatAWordMeans) {
  constexpr Word<int> kWords[] = {{"one", 1}, {"two", 2}};
  EXPECT_EQ(FindWord("two", kWords), 2);
  EXPECT_EQ(FindWord("tw", kWords), std::nullopt);
  EXPECT_EQ(NotAWord("tw", kWords), "must be one of one, two");
}

// Every word of the API is its own.
template <typename Value, size_t kCount>
void ExpectDistinct(const Word<Value> (&words)[kCount]) {
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_FALSE(words[i].name.empty());
    for (size_t j = 0; j < i; ++j) EXPECT_NE(words[i].name, words[j].name);
  }
}

TEST(VocabularyTest, WordsAreDistinct) {
  ExpectDistinct(kFrameworks);
  ExpectDistinct(kOptimizers);
  ExpectDistinct(kOptimizerImplementations);
  ExpectDistinct(kRecomputeModes);
  ExpectDistinct(kRecomputeModules);
  ExpectDistinct(kAttentionKernels);
  ExpectDistinct(kLossImplementations);
  ExpectDistinct(kPipelineSchedules);
  ExpectDistinct(kActivations);
  ExpectDistinct(kNorms);
  ExpectDistinct(kNormPlacements);
  ExpectDistinct(kQkNorms);
  ExpectDistinct(kPositionEmbeddings);
  ExpectDistinct(kPresets);
}

}  // namespace
}  // namespace plimsoll
