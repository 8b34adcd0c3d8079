// The rows in order, and what must hold of each.
#include "estimator/catalog/preferences.h"

#include "estimator/job/vocabularies.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

TEST(PreferencesTest, RowsAreInTheirOrderAndWhatScoresComparesWithNothing) {
  for (const Word<PreferenceMethod>& word : kPreferenceMethods) {
    const PreferenceRow& row = RowOf(word.value);
    EXPECT_EQ(row.method, word.value) << word.name;
    EXPECT_TRUE(row.sequences == 1 || row.sequences == 2) << word.name;
    EXPECT_FALSE(row.compares && row.scores) << word.name;
    EXPECT_TRUE(row.compares || !row.unasked) << word.name;
    EXPECT_TRUE(!row.compares_twice || (row.compares && row.runs_twice)) << word.name;
  }
}

}  // namespace
}  // namespace plimsoll
