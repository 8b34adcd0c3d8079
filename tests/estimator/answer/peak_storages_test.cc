// Every byte at the peak has a name, a place where it was made and a reason.
#include "estimator/answer/peak_storages.h"

#include <limits>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "estimator/replay/rank_replay.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

using testing::Contains;
using testing::IsSupersetOf;

constexpr int kJobs = 100;
constexpr size_t kAll = std::numeric_limits<size_t>::max();

// Alive at the peak of the last step.
struct Moment {
  Program program;
  Timeline timeline;
  std::vector<int32_t> alive;
  std::vector<int64_t> bytes;  // of each storage: of the tensor, not of its block
};

Moment PeakOf(const JobSpec& spec) {
  Moment moment;
  moment.program = ProgramOf(spec);
  moment.timeline = *Unroll(moment.program, Tapes(moment.program), moment.program.stages[0]);
  for (const TimelineStorage& storage : moment.timeline.storages) {
    moment.bytes.push_back(storage.bytes);
  }
  std::vector<ReplayPoint> points;
  Replay(moment.timeline, {}, &points);
  size_t peak = points.size() - 1;
  const auto in_last_step = [&moment](size_t event) {
    const TimelineEvent& at = moment.timeline.events[event];
    return at.kind != TimelineEventKind::kPhase ||
           at.value > (kTimelineSteps - 1) * static_cast<int32_t>(kPhaseCount);
  };
  for (size_t i = peak; i > 0 && in_last_step(i); --i) {
    if (points[i].allocated >= points[peak].allocated) peak = i;
  }
  moment.alive = AliveAt(moment.timeline, peak);
  return moment;
}

std::vector<PeakStorage> AtPeak(const JobSpec& spec, size_t limit = kAll) {
  const Moment moment = PeakOf(spec);
  return LargestStorages(moment.program, moment.timeline, moment.alive, moment.bytes, limit);
}

// "8 x name, layers 0-3 of 0: made; alive".
std::vector<std::string> Lines(const std::vector<PeakStorage>& storages) {
  std::vector<std::string> lines;
  for (const PeakStorage& storage : storages) {
    lines.push_back(absl::StrCat(storage.count, " x ", storage.name, ", layers ", storage.layers,
                                 " of ", storage.micro_batches, ": ", storage.made, "; ",
                                 storage.alive));
  }
  return lines;
}

TEST(PeakStoragesTest, TheyAddUpToThePeak) {
  std::mt19937_64 random(11);
  for (int i = 0; i < kJobs; ++i) {
    const JobSpec spec = RandomJob(random);
    const Moment moment = PeakOf(spec);
    int64_t alive = 0;
    for (const int32_t id : moment.alive) alive += moment.bytes[static_cast<size_t>(id)];
    int64_t told = 0;
    for (const PeakStorage& storage : AtPeak(spec)) told += storage.bytes * storage.count;
    EXPECT_EQ(told, alive) << i;
  }
}

TEST(PeakStoragesTest, EachIsExplained) {
  std::mt19937_64 random(13);
  for (int i = 0; i < kJobs; ++i) {
    for (const PeakStorage& storage : AtPeak(RandomJob(random))) {
      EXPECT_NE(storage.name, "") << i;
      EXPECT_NE(storage.made, "") << i << ": " << storage.name;
      EXPECT_NE(storage.alive, "") << i << ": " << storage.name;
      EXPECT_GT(storage.count, 0) << i << ": " << storage.name;
    }
  }
}

TEST(PeakStoragesTest, TheLargestInAllComeFirst) {
  const std::vector<PeakStorage> all = AtPeak(Llama8B());
  for (size_t i = 1; i < all.size(); ++i) {
    EXPECT_GE(all[i - 1].bytes * all[i - 1].count, all[i].bytes * all[i].count) << all[i].name;
  }
  const std::vector<PeakStorage> three = AtPeak(Llama8B(), 3);
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(three[2].name, all[2].name);
}

JobSpec Fsdp2() {
  JobSpec job = With(Llama8B(), "fsdp2");
  job.parallelism.zero_stage = 3;
  return job;
}

// Layers are merged where the tensor is the same; its readers say why it lives.
TEST(PeakStoragesTest, KeptTensorsNameTheOpsThatWaitForThem) {
  EXPECT_THAT(Lines(AtPeak(Fsdp2())),
              IsSupersetOf({
                  "32 x mlp.gate.activation, layers 0-31 of 0: layer, forward of mlp.gate; kept "
                  "for backward of mlp.activation",
                  "32 x attention.norm, layers 0-31 of 0: layer, forward of attention.norm; kept "
                  "for backward of attention.query, attention.key, attention.value",
                  "1 x loss.log_softmax, layers  of 0: head, forward of loss.log_softmax; kept for "
                  "backward of loss.log_softmax, loss",
              }));
}

TEST(PeakStoragesTest, GradientsNameTheOpThatTakesThem) {
  JobSpec outside = Fsdp2();  // the loss
  outside.runtime.trainer = "torchtitan";
  outside.training.loss.implementation = "plain";
  EXPECT_THAT(Lines(AtPeak(outside)),
              Contains("1 x loss.log_softmax.gradient, layers  of 0: head, backward of loss; until "
                       "backward of loss.log_softmax"));
  EXPECT_THAT(Lines(AtPeak(SmallJob())),
              Contains("4 x mlp.up.weight.gradient, layers 0-3 of 0: layer, backward of mlp.up; "
                       "freed at the end of the step"));
}

TEST(PeakStoragesTest, StatesSayWhenTheyWereMade) {
  EXPECT_THAT(
      Lines(AtPeak(SmallJob())),
      IsSupersetOf({
          "4 x master_weights mlp.up.weight, layers 0-3 of : before the first step; state of the "
          "training",
          "4 x optimizer.variance mlp.up.weight, layers 0-3 of : earlier step's optimizer; state "
          "of the training",
          "4 x optimizer.temporaries mlp.up.weight, layers 0-3 of : optimizer; freed at the end of "
          "the step",
      }));
}

TEST(PeakStoragesTest, ARecomputedLayerIsKeptAsItsInput) {
  JobSpec job = Fsdp2();
  job.training.recompute.mode = "full";
  EXPECT_THAT(Lines(AtPeak(job)),
              Contains("31 x mlp.residual, layers 0-30 of 0: layer, forward of mlp.residual; the "
                       "next block's input, from which that runs again"));
}

TEST(PeakStoragesTest, BuffersAreOfTheBlockAtWork) {
  EXPECT_THAT(
      Lines(AtPeak(Fsdp2())),
      Contains("1 x gathered.weights head.weight, layers  of 0: before head runs; buffer of "
               "the block at work"));
}

TEST(PeakStoragesTest, MicroBatchesInFlightAreMerged) {
  JobSpec job = Llama8B();
  job.parallelism.pipeline_parallel_size = 2;
  job.training.global_batch_size = 64;
  EXPECT_THAT(Lines(AtPeak(job)),
              Contains("32 x attention.norm, layers 0-15 of 2-3: layer, forward of attention.norm; "
                       "kept for backward of attention.qkv"));
}

}  // namespace
}  // namespace plimsoll
