// Whole pipelines, played: each stage runs its turns in its order, a turn as soon as what it reads
// has come. What one stage's order does not show: that no stage waits for ever, and how long all
// of them take together.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "estimator/program/schedule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

using ::testing::Optional;

constexpr auto kGpipe = PipelineSchedule::kGpipe;
constexpr auto k1F1B = PipelineSchedule::k1F1B;
constexpr auto kInterleaved = PipelineSchedule::kInterleaved1F1B;

struct Pipeline {
  PipelineSchedule schedule = k1F1B;
  int64_t stages = 1;
  int64_t chunks = 1;
  int64_t micro_batches = 1;
  int64_t group = 0;  // 0: as many as there are stages
};

Job JobOf(const Pipeline& pipeline) {
  Job job;
  job.pipeline_schedule = pipeline.schedule;
  job.pipeline_parallel_size = pipeline.stages;
  job.virtual_pipeline_size = pipeline.chunks;
  job.micro_batch_count = pipeline.micro_batches;
  job.micro_batch_group_size = pipeline.group > 0 ? pipeline.group : pipeline.stages;
  return job;
}

// Every turn of each stage, also those that repeat what came before.
std::vector<std::vector<Turn>> AllTurns(const Pipeline& pipeline) {
  std::vector<std::vector<Turn>> turns;
  for (int64_t stage = 0; stage < pipeline.stages; ++stage) {
    PairOrder order = OrderOf(JobOf(pipeline), stage);
    order.played_micro_batches = pipeline.micro_batches;
    turns.push_back(ScheduleTurns(order, static_cast<size_t>(pipeline.chunks)));
  }
  return turns;
}

// A virtual stage of one micro-batch on one stage, forward or backward.
struct Work {
  int64_t stage;
  int32_t micro_batch;
  int32_t chunk;
  bool backward;

  auto Key() const { return std::tuple(stage, micro_batch, chunk, backward); }
};

// Plays a pipeline.
class Play {
 public:
  Play(const Pipeline& pipeline, int64_t forward_time, int64_t backward_time)
      : pipeline_(pipeline), times_{forward_time, backward_time} {}

  // Returns when the last turn is done; nothing where all wait for each other.
  std::optional<int64_t> End(const std::vector<std::vector<Turn>>& turns) {
    std::vector<size_t> next(turns.size(), 0);
    std::vector<int64_t> free_at(turns.size(), 0);
    size_t left = 0;
    for (const auto& of_stage : turns) left += of_stage.size();
    while (left > 0) {
      const size_t before = left;
      for (size_t stage = 0; stage < turns.size(); ++stage) {
        while (next[stage] < turns[stage].size() &&
               Run(static_cast<int64_t>(stage), turns[stage][next[stage]], free_at[stage])) {
          ++next[stage];
          --left;
        }
      }
      if (left == before) return std::nullopt;
    }
    return *std::max_element(free_at.begin(), free_at.end());
  }

 private:
  // What a turn reads: forward the virtual stage before it, backward the one behind it and, of the
  // last, its own forward.
  std::optional<Work> ReadBy(const Work& work) const {
    const int64_t last = pipeline_.stages - 1;
    const auto last_chunk = static_cast<int32_t>(pipeline_.chunks - 1);
    Work read = work;
    if (!work.backward) {
      if (work.stage == 0 && work.chunk == 0) return std::nullopt;
      read.stage = work.stage == 0 ? last : work.stage - 1;
      if (work.stage == 0) --read.chunk;
      return read;
    }
    if (work.stage == last && work.chunk == last_chunk) {
      read.backward = false;
      return read;
    }
    read.stage = work.stage == last ? 0 : work.stage + 1;
    if (work.stage == last) ++read.chunk;
    return read;
  }

  bool Run(int64_t stage, const Turn& turn, int64_t& free_at) {
    const Work work{stage, turn.micro_batch, turn.chunk, turn.backward};
    int64_t begin = free_at;
    if (const std::optional<Work> read = ReadBy(work)) {
      const auto done = done_at_.find(read->Key());
      if (done == done_at_.end()) return false;
      begin = std::max(begin, done->second);
    }
    free_at = begin + times_[turn.backward ? 1 : 0];
    done_at_[work.Key()] = free_at;
    return true;
  }

  const Pipeline pipeline_;
  const int64_t times_[2];
  std::map<std::tuple<int64_t, int32_t, int32_t, bool>, int64_t> done_at_;
};

std::optional<int64_t> EndOf(const Pipeline& pipeline, int64_t forward, int64_t backward) {
  return Play(pipeline, forward, backward).End(AllTurns(pipeline));
}

std::string Words(const Pipeline& pipeline) {
  return ::testing::PrintToString(std::vector<int64_t>{static_cast<int64_t>(pipeline.schedule),
                                                       pipeline.stages, pipeline.chunks,
                                                       pipeline.micro_batches, pipeline.group});
}

TEST(PipelinePlayTest, NoStageWaitsForEver) {
  for (const int64_t stages : {1, 2, 3, 4, 7}) {
    for (const int64_t micro_batches : {1, 2, 3, 5, 8, 21}) {
      for (const PipelineSchedule schedule : {kGpipe, k1F1B}) {
        const Pipeline pipeline{schedule, stages, 1, micro_batches};
        EXPECT_NE(EndOf(pipeline, 1, 2), std::nullopt) << Words(pipeline);
      }
    }
    for (const int64_t chunks : {2, 3}) {
      for (const int64_t group : {stages, stages + 1, 2 * stages}) {
        // What is left over makes a last round that is no shorter than the pipeline.
        for (const int64_t micro_batches : {group, 2 * group, 3 * group + stages}) {
          if (stages == 1) continue;
          const Pipeline pipeline{kInterleaved, stages, chunks, micro_batches, group};
          EXPECT_NE(EndOf(pipeline, 1, 2), std::nullopt) << Words(pipeline);
        }
      }
    }
  }
}

// Of m micro-batches on p stages the step takes as long as m + p - 1 of them.
// Source: Narayanan et al. 2021 (arXiv 2104.04473), section 2.2.1.
TEST(PipelinePlayTest, TheBubbleIsThatOfAllStagesButOne) {
  for (const PipelineSchedule schedule : {kGpipe, k1F1B}) {
    for (const int64_t stages : {1, 2, 4, 8}) {
      for (const int64_t micro_batches : {1, 2, 7, 16}) {
        const Pipeline pipeline{schedule, stages, 1, micro_batches};
        EXPECT_THAT(EndOf(pipeline, 3, 5), Optional((micro_batches + stages - 1) * (3 + 5)))
            << Words(pipeline);
      }
    }
  }
}

// v virtual stages make the bubble a vth. Source: the same, section 2.2.2.
TEST(PipelinePlayTest, VirtualStagesDivideTheBubble) {
  for (const int64_t stages : {2, 4, 8}) {
    for (const int64_t chunks : {2, 3, 4}) {
      for (const int64_t rounds : {1, 2, 5}) {
        const Pipeline pipeline{kInterleaved, stages, chunks, rounds * stages};
        const int64_t busy = pipeline.micro_batches * chunks * (3 + 5);
        EXPECT_THAT(EndOf(pipeline, 3, 5), Optional(busy + (stages - 1) * (3 + 5)))
            << Words(pipeline);
      }
    }
  }
}

// One pair fewer in front, and the first stage stands still more.
TEST(PipelinePlayTest, NoSmallerWarmUpIsAsFast) {
  for (const int64_t stages : {2, 4, 8}) {
    const Pipeline pipeline{k1F1B, stages, 1, 3 * stages};
    std::vector<std::vector<Turn>> turns = AllTurns(pipeline);
    PairOrder fewer = OrderOf(JobOf(pipeline), 0);
    fewer.played_micro_batches = pipeline.micro_batches;
    --fewer.warm_up;
    turns[0] = ScheduleTurns(fewer, 1);
    const std::optional<int64_t> end = Play(pipeline, 1, 1).End(turns);
    ASSERT_NE(end, std::nullopt);
    EXPECT_GT(*end, *EndOf(pipeline, 1, 1)) << stages;
  }
}

// Pairs that each virtual stage keeps, and whose turn it is.
using State = std::tuple<bool, int32_t, std::vector<int64_t>>;

std::set<State> StatesOf(const std::vector<Turn>& turns, int64_t chunks) {
  std::set<State> states;
  std::vector<int64_t> kept(static_cast<size_t>(chunks), 0);
  for (const Turn& turn : turns) {
    kept[static_cast<size_t>(turn.chunk)] += turn.backward ? -1 : 0;
    states.insert({turn.backward, turn.chunk, kept});
    kept[static_cast<size_t>(turn.chunk)] += turn.backward ? 0 : 1;
  }
  return states;
}

// Micro-batches that are left out repeat what came before: of those that are played a stage
// is in every state that it is ever in.
TEST(PipelinePlayTest, NothingNewIsLeftOut) {
  const auto expect_all = [](const Pipeline& pipeline) {
    const std::vector<std::vector<Turn>> all = AllTurns(pipeline);
    for (int64_t stage = 0; stage < pipeline.stages; ++stage) {
      const std::vector<Turn> played =
          ScheduleTurns(OrderOf(JobOf(pipeline), stage), static_cast<size_t>(pipeline.chunks));
      const auto& of_stage = all[static_cast<size_t>(stage)];
      EXPECT_LE(played.size(), of_stage.size());
      EXPECT_EQ(StatesOf(played, pipeline.chunks), StatesOf(of_stage, pipeline.chunks))
          << Words(pipeline) << " stage " << stage;
    }
  };
  for (const int64_t stages : {1, 2, 3, 4, 8}) {
    for (const int64_t micro_batches : {1, 2, 3, 4, 9, 40}) {
      expect_all({k1F1B, stages, 1, micro_batches});
      expect_all({kGpipe, stages, 1, micro_batches});
    }
    for (const int64_t chunks : {2, 3}) {
      for (const int64_t micro_batches : {1, 2, 3, 4, 9}) {
        if (stages > 1) expect_all({kInterleaved, stages, chunks, micro_batches * stages});
      }
      if (stages > 1)
        expect_all({kInterleaved, stages, chunks, 5 * (stages + 1) + stages, stages + 1});
    }
  }
}

}  // namespace
}  // namespace plimsoll
