// The rows in order, and what must hold of each.
#include "estimator/catalog/optimizers.h"

#include <algorithm>
#include <set>

#include "gtest/gtest.h"

namespace plimsoll {
namespace {

TEST(OptimizersTest, RowsAreInTheirOrderAndSayWhoseTheyAre) {
  for (size_t i = 0; i < kOptimizerCount; ++i) {
    const OptimizerRow& row = kOptimizerRows[i];
    EXPECT_EQ(static_cast<size_t>(row.optimizer), i);
    EXPECT_EQ(&RowOf(row.optimizer), &row);
    EXPECT_FALSE(row.source.empty()) << i;
    EXPECT_TRUE(std::any_of(row.implementations.begin(), row.implementations.end(), [](bool has) {
      return has;
    })) << i;
  }
}

TEST(OptimizersTest, StatesHaveNamesOfTheirOwn) {
  for (const OptimizerRow& row : kOptimizerRows) {
    std::set<absl::string_view> names;
    for (const OptimizerState& state : row.states) {
      EXPECT_TRUE(names.insert(state.name).second) << state.name;
      EXPECT_GT(state.block_size, 0) << state.name;
    }
  }
}

// What has states of some alone picks these, and each state that is narrow has its scales.
TEST(OptimizersTest, WhoPicksHasStatesOfBoth) {
  for (const OptimizerRow& row : kOptimizerRows) {
    int picked = 0;
    int narrow = 0;
    int scales = 0;
    for (const OptimizerState& state : row.states) {
      picked += state.of == StateBasis::kPicked || state.of == StateBasis::kProjected;
      narrow += state.dtype == DType::kInt8;
      scales += state.block_size > 1;
    }
    EXPECT_EQ(picked > 0, row.picks != Picks::kNone) << row.source;
    EXPECT_EQ(narrow, scales) << row.source;
    EXPECT_EQ(narrow > 0, row.picks == Picks::kLarge) << row.source;
  }
}

// Who sends signs keeps what these lose, of its own and of what it sums up.
TEST(OptimizersTest, WhoCompressesKeepsErrors) {
  for (const OptimizerRow& row : kOptimizerRows) {
    const auto shared = std::count_if(
        row.states.begin(), row.states.end(),
        [](const OptimizerState& state) { return state.of == StateBasis::kReplicaShare; });
    EXPECT_EQ(shared, row.compresses ? 1 : 0) << row.source;
    EXPECT_TRUE(row.compresses || !(row.steps_flat || row.pads_copy)) << row.source;
  }
}

// bitsandbytes pages what it steps, and has one kernel for each.
TEST(OptimizersTest, BitsandbytesPagesAll) {
  for (const OptimizerRow& row : kOptimizerRows) {
    if (!row.fused_is_bitsandbytes) continue;
    EXPECT_TRUE(row.pages) << row.source;
    EXPECT_TRUE(row.Has(OptimizerImplementation::kFused)) << row.source;
    EXPECT_FALSE(row.Has(OptimizerImplementation::kForeach)) << row.source;
  }
}

}  // namespace
}  // namespace plimsoll
