// The turns of each schedule as text: F2 is micro-batch 2's forward, B2 its
// backward; F2.1 is that of the second virtual stage. Orders are those of
// Narayanan et al. 2021 (arXiv 2104.04473), figures 3 and 4.
#include "estimator/program/schedule.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

struct Pipeline {
  PipelineSchedule schedule = PipelineSchedule::k1F1B;
  int64_t stages = 1;
  int64_t chunks = 1;
  int64_t micro_batches = 1;
  int64_t group = 0;  // 0: as many as there are stages
};

std::vector<Turn> Turns(const Pipeline& pipeline, int64_t stage) {
  Job job;
  job.pipeline_schedule = pipeline.schedule;
  job.pipeline_parallel_size = pipeline.stages;
  job.virtual_pipeline_size = pipeline.chunks;
  job.micro_batch_count = pipeline.micro_batches;
  job.micro_batch_group_size = pipeline.group > 0 ? pipeline.group : pipeline.stages;
  return ScheduleTurns(OrderOf(job, stage), static_cast<size_t>(pipeline.chunks));
}

std::string InWords(const std::vector<Turn>& turns, bool chunks) {
  return absl::StrJoin(turns, " ", [chunks](std::string* out, const Turn& turn) {
    absl::StrAppend(out, turn.backward ? "B" : "F", turn.micro_batch);
    if (chunks) absl::StrAppend(out, ".", turn.chunk);
  });
}

constexpr auto kGpipe = PipelineSchedule::kGpipe;
constexpr auto k1F1B = PipelineSchedule::k1F1B;
constexpr auto kInterleaved = PipelineSchedule::kInterleaved1F1B;

TEST(ScheduleTest, Turns) {
  const struct {
    Pipeline pipeline;
    int64_t stage;
    const char* turns;
  } cases[] = {
      // One stage has no reason to wait.
      {{k1F1B, 1, 1, 1}, 0, "F0 B0"},
      {{k1F1B, 1, 1, 3}, 0, "F0 B0 F1 B1 F2 B2"},
      // More micro-batches than show anything new are left out.
      {{k1F1B, 1, 1, 100}, 0, "F0 B0 F1 B1 F2 B2"},
      // All forward, then all backward.
      {{kGpipe, 1, 1, 3}, 0, "F0 F1 F2 B0 B1 B2"},
      {{kGpipe, 4, 1, 4}, 0, "F0 F1 F2 F3 B0 B1 B2 B3"},
      {{kGpipe, 4, 1, 4}, 3, "F0 F1 F2 F3 B0 B1 B2 B3"},
      // Groups of three, then the two that are left: the table in Megatron's
      // schedules.py, forward_backward_pipelining_with_interleaving.
      {{kInterleaved, 2, 2, 5, 3},
       1,
       "F0.0 F1.0 F2.0 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 F3.0 B0.0 F4.0 B1.0 F3.1 B2.0 F4.1 B3.1 B4.1 "
       "B3.0 B4.0"},
      // As many forward first as there are stages behind.
      {{k1F1B, 4, 1, 8}, 0, "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5"},
      {{k1F1B, 4, 1, 8}, 1, "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4"},
      {{k1F1B, 4, 1, 8}, 2, "F0 F1 B0 F2 B1 F3 B2 B3"},
      {{k1F1B, 4, 1, 8}, 3, "F0 B0 F1 B1 F2 B2"},
      // Fewer micro-batches than stages: no steady state.
      {{k1F1B, 4, 1, 2}, 0, "F0 F1 B0 B1"},
      {{k1F1B, 4, 1, 2}, 3, "F0 B0 F1 B1"},
      // Groups of as many micro-batches as stages, by virtual stage.
      {{kInterleaved, 2, 2, 2}, 0, "F0.0 F1.0 F0.1 F1.1 B0.1 B1.1 B0.0 B1.0"},
      {{kInterleaved, 2, 2, 2}, 1, "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 B0.0 B1.0"},
      {{kInterleaved, 2, 2, 4},
       1,
       "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(InWords(Turns(c.pipeline, c.stage), c.pipeline.chunks > 1), c.turns)
        << c.pipeline.stages << " stages, stage " << c.stage;
  }
}

// Most pairs of micro-batch and virtual stage that are between forward and
// backward at once.
int64_t MostInFlight(const std::vector<Turn>& turns) {
  int64_t now = 0;
  int64_t most = 0;
  for (const Turn& turn : turns) {
    now += turn.backward ? -1 : 1;
    most = std::max(most, now);
  }
  return most;
}

TEST(ScheduleTest, AsManyInFlightAsThePaperSays) {
  for (const int64_t stages : {2, 4, 8}) {
    for (int64_t stage = 0; stage < stages; ++stage) {
      EXPECT_EQ(MostInFlight(Turns({k1F1B, stages, 1, 64}, stage)), stages - stage);
      EXPECT_EQ(MostInFlight(Turns({kGpipe, stages, 1, 64}, stage)), 64);
      for (const int64_t chunks : {2, 3}) {
        const int64_t warm_up = 2 * (stages - stage - 1) + (chunks - 1) * stages;
        EXPECT_EQ(MostInFlight(Turns({kInterleaved, stages, chunks, 64}, stage)), warm_up + 1);
      }
    }
  }
}

// Whatever is left out, every forward has its backward, after it, and backward
// of a micro-batch passes its virtual stages last to first.
TEST(ScheduleTest, EveryForwardHasItsBackward) {
  for (const PipelineSchedule schedule : {kGpipe, k1F1B, kInterleaved}) {
    for (const int64_t stages : {1, 2, 3, 8}) {
      for (const int64_t micro_batches : {1, 2, 3, 8, 24}) {
        const bool interleaved = schedule == kInterleaved;
        if (interleaved && (stages == 1 || micro_batches % stages != 0)) continue;
        const Pipeline pipeline{schedule, stages, interleaved ? 2 : 1, micro_batches};
        for (int64_t stage = 0; stage < stages; ++stage) {
          std::map<std::pair<int32_t, int32_t>, int> seen;
          for (const Turn& turn : Turns(pipeline, stage)) {
            int& passes = seen[{turn.micro_batch, turn.chunk}];
            EXPECT_EQ(passes, turn.backward ? 1 : 0);
            ++passes;
            if (turn.backward && turn.chunk + 1 < pipeline.chunks) {
              EXPECT_EQ((seen[{turn.micro_batch, turn.chunk + 1}]), 2) << "backward out of order";
            }
          }
          for (const auto& [turn, passes] : seen) EXPECT_EQ(passes, 2);
          EXPECT_LE(seen.size(), static_cast<size_t>(micro_batches * pipeline.chunks));
        }
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll
