// What a stage keeps beside the pair at work: tables by hand, and any order of turns, counted.
#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "estimator/program/schedule.h"
#include "estimator/step/in_flight.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kNever = -1;

// The most bytes beside a pair of `chunk`, and how many pairs of each of two virtual stages these
// are.
struct MostRow {
  size_t chunk;
  bool backward;
  bool later;
  int64_t bytes;
  std::vector<int64_t> kept;
};

void ExpectRows(const InFlightTable& table, const std::vector<MostRow>& rows) {
  for (const MostRow& row : rows) {
    const std::string what = absl::StrCat(row.chunk, row.backward ? " backward" : " forward",
                                          row.later ? ", later" : ", first");
    const InFlight& at = table.At(row.chunk, row.backward, row.later);
    EXPECT_EQ(at.bytes, row.bytes) << what;
    if (row.bytes == kNever) continue;
    for (size_t i = 0; i < row.kept.size(); ++i) {
      EXPECT_EQ(table.KeptAt(at, i), row.kept[i]) << what << ", of " << i;
    }
  }
}

// The first of two stages of two virtual stages each, four micro-batches, two in a group.
//   forward   0 0 1 1 0 0 1 1, of which 2 x 1 + 2 are warm-up
//   backward  1 1 0 0 1 1 0 0
// Kept beside each turn, of the virtual stages in their order:
//   warm-up   F0 0,0  F0 1,0  F1 2,0  F1 2,1
//   in turn   F0 2,2  B1 3,1  F0 3,1  B1 4,0  F1 4,0  B0 3,1  F1 3,1  B0 2,2
//   the rest  B1 2,1  B1 2,0  B0 1,0  B0 0,0
constexpr PairOrder kOrder{.warm_up = 4, .pairs = 8, .group = 2, .played_micro_batches = 4};

TEST(InFlightCountTest, TwoVirtualStagesByHand) {
  const std::vector<int64_t> pair = {100, 1};
  const std::vector<int64_t> none = {0};
  ExpectRows(InFlightTable(kOrder, pair, none), {{0, false, false, 301, {3, 1}},
                                                 {1, false, false, 400, {4, 0}},
                                                 {0, true, false, 301, {3, 1}},
                                                 {1, true, false, 400, {4, 0}},
                                                 {0, false, true, kNever, {}},
                                                 {1, true, true, kNever, {}}});
}

// The second's gradients, 7 B, are there from the first B1 on, the first's, 1000 B more, from the
// first B0 on: it is later for a virtual stage when its own are.
TEST(InFlightCountTest, GradientsThatGrowByHand) {
  const std::vector<int64_t> pair = {100, 1};
  const std::vector<int64_t> grown = {0, 7, 1007};
  ExpectRows(InFlightTable(kOrder, pair, grown), {{0, false, false, 301 + 7, {3, 1}},
                                                  {0, false, true, kNever, {}},
                                                  {1, false, false, 201, {2, 1}},
                                                  {1, false, true, 301 + 1007, {3, 1}},
                                                  {0, true, false, 301 + 7, {3, 1}},
                                                  {0, true, true, 202 + 1007, {2, 2}},
                                                  {1, true, false, 301, {3, 1}},
                                                  {1, true, true, 201 + 1007, {2, 1}}});
}

struct OneChunkRow {
  const char* name;
  PipelineSchedule schedule;
  int64_t micro_batches;
  std::vector<int64_t> kept;  // on each of four stages, beside the pair at work
};

// 1f1b: stage s of four runs 3 - s forward before it goes backward, or as many as there are, of
// which the last is at work. GPipe runs all: all but one are kept.
TEST(InFlightCountTest, OneVirtualStageByHand) {
  const OneChunkRow rows[] = {
      {"1f1b of many", PipelineSchedule::k1F1B, 100, {3, 2, 1, 0}},
      {"1f1b of four", PipelineSchedule::k1F1B, 4, {3, 2, 1, 0}},
      {"1f1b of two", PipelineSchedule::k1F1B, 2, {1, 1, 1, 0}},
      {"1f1b of one", PipelineSchedule::k1F1B, 1, {0, 0, 0, 0}},
      {"gpipe of five", PipelineSchedule::kGpipe, 5, {4, 4, 4, 4}},
      {"gpipe of one", PipelineSchedule::kGpipe, 1, {0, 0, 0, 0}},
  };
  const std::vector<int64_t> pair = {10};
  const std::vector<int64_t> none = {0};
  for (const OneChunkRow& row : rows) {
    Job job;
    job.pipeline_schedule = row.schedule;
    job.pipeline_parallel_size = 4;
    job.micro_batch_count = row.micro_batches;
    for (size_t stage = 0; stage < row.kept.size(); ++stage) {
      const InFlightTable table(OrderOf(job, static_cast<int64_t>(stage)), pair, none);
      EXPECT_EQ(table.At(0, false, false).bytes, 10 * row.kept[stage]) << row.name << " " << stage;
      EXPECT_EQ(table.At(0, true, false).bytes, 10 * row.kept[stage]) << row.name << " " << stage;
    }
  }
}

// An order of turns that no schedule need have, and bytes.
struct Case {
  PairOrder order;
  std::vector<int64_t> pair;
  std::vector<int64_t> grown;
};

Case AnyCase(std::mt19937_64& random) {
  const auto chunks = static_cast<int64_t>(1 + random() % 4);
  const auto micro_batches = static_cast<int64_t>(1 + random() % 40);
  Case any;
  any.order.group = static_cast<int64_t>(1 + random() % 6);
  any.order.pairs = chunks * micro_batches;
  any.order.warm_up = static_cast<int64_t>(random() % static_cast<uint64_t>(any.order.pairs + 1));
  any.grown = {0};
  const bool grows = random() % 2 == 0;
  for (int64_t i = 0; i < chunks; ++i) {
    any.pair.push_back(static_cast<int64_t>(random() % 100));
    if (grows) any.grown.push_back(any.grown.back() + static_cast<int64_t>(random() % 500));
  }
  return any;
}

// The virtual stages of all turns, in forward's order.
std::vector<size_t> ChunksInOrder(const Case& any) {
  const size_t chunks = any.pair.size();
  const int64_t micro_batches = any.order.pairs / static_cast<int64_t>(chunks);
  std::vector<size_t> turns;
  for (int64_t left = micro_batches; left > 0; left -= any.order.group) {
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      turns.insert(turns.end(), static_cast<size_t>(std::min(left, any.order.group)), chunk);
    }
  }
  return turns;
}

// Plays all turns of a case, and keeps the most beside each kind of pair.
class Player {
 public:
  explicit Player(const Case& any)
      : any_(any), forward_(ChunksInOrder(any)), kept_(any.pair.size()) {
    for (const size_t chunk : forward_) backward_.push_back(kept_.size() - 1 - chunk);
    const auto warm_up = static_cast<size_t>(any.order.warm_up);
    for (size_t i = 0; i < forward_.size() + warm_up; ++i) {
      if (i < forward_.size()) Turn(forward_[i], false);
      if (i >= warm_up) Turn(backward_[i - warm_up], true);
    }
  }

  // Whether no pair goes backward that has not run forward.
  bool possible() const { return possible_; }
  int64_t Most(size_t chunk, bool backward, bool later) const {
    const auto at = most_.find({chunk, backward, later});
    return at == most_.end() ? kNever : at->second;
  }
  // Of the turns done at a moment, counted.
  int64_t KeptAt(const InFlight& at, size_t chunk) const {
    const auto count = [chunk](const std::vector<size_t>& turns, int64_t done) {
      return std::count(turns.begin(), turns.begin() + done, chunk);
    };
    return count(forward_, at.forwards) - count(backward_, at.backwards);
  }

 private:
  void Turn(size_t chunk, bool backward) {
    if (backward) --kept_[chunk];
    possible_ = possible_ && kept_[chunk] >= 0;
    int64_t bytes = any_.grown[grown_];
    for (size_t i = 0; i < kept_.size(); ++i) bytes += kept_[i] * any_.pair[i];
    const bool later = chunk + grown_ >= kept_.size();
    int64_t& most = most_.try_emplace({chunk, backward, later}, bytes).first->second;
    most = std::max(most, bytes);
    if (!backward) ++kept_[chunk];
    if (backward && !later && any_.grown.size() > 1) ++grown_;
  }

  const Case& any_;
  const std::vector<size_t> forward_;
  std::vector<size_t> backward_;
  std::vector<int64_t> kept_;
  size_t grown_ = 0;
  bool possible_ = true;
  std::map<std::tuple<size_t, bool, bool>, int64_t> most_;
};

void ExpectCounted(const Case& any, const Player& player) {
  const InFlightTable table(any.order, any.pair, any.grown);
  for (size_t i = 0; i < 4 * any.pair.size(); ++i) {
    const size_t chunk = i / 4;
    const bool backward = i % 2 == 1;
    const bool later = i / 2 % 2 == 1;
    const InFlight& at = table.At(chunk, backward, later);
    ASSERT_EQ(at.bytes, player.Most(chunk, backward, later));
    if (at.bytes == kNever) continue;
    int64_t bytes = any.grown[at.grown];
    for (size_t other = 0; other < any.pair.size(); ++other) {
      ASSERT_EQ(table.KeptAt(at, other), player.KeptAt(at, other));
      bytes += any.pair[other] * table.KeptAt(at, other);
    }
    ASSERT_EQ(bytes, at.bytes) << "what is kept adds up";
  }
}

TEST(InFlightCountTest, AnyOrderIsCounted) {
  std::mt19937_64 random(20261127);
  int counted = 0;
  for (int i = 0; i < 4000 && !HasFatalFailure(); ++i) {
    const Case any = AnyCase(random);
    const Player player(any);
    if (!player.possible()) continue;
    SCOPED_TRACE(absl::StrCat("v ", any.pair.size(), " g ", any.order.group, " pairs ",
                              any.order.pairs, " warm-up ", any.order.warm_up, " grows ",
                              any.grown.size() - 1));
    ExpectCounted(any, player);
    ++counted;
  }
  EXPECT_GT(counted, 1000);
}

// A moment says what it is made of: nothing is kept before the first pair, nor behind the last.
TEST(InFlightCountTest, OnePairAloneKeepsNothing) {
  const std::vector<int64_t> pair = {100};
  const std::vector<int64_t> grown = {0, 30};
  const InFlightTable table(PairOrder{}, pair, grown);
  for (const bool backward : {false, true}) {
    const InFlight& at = table.At(0, backward, false);
    EXPECT_EQ(at.bytes, 0);
    EXPECT_THAT((std::vector<int64_t>{at.forwards, at.backwards}),
                ElementsAre(backward ? 1 : 0, backward ? 1 : 0));
    EXPECT_EQ(table.At(0, backward, true).bytes, kNever);
  }
}

}  // namespace
}  // namespace plimsoll
