// The timeline and the closed form are two ways to the same figure.
#include "estimator/timeline.h"

#include <random>

#include "absl/strings/str_cat.h"
#include "estimator/replay.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

struct Both {
  int64_t closed = 0;
  int64_t replayed = 0;
  Phase closed_phase = Phase::kForward;
  std::string name;
};

std::vector<Both> Compare(const JobSpec& spec) {
  const ValidJob job = Valid(spec);
  const Program program = ProgramOf(spec);
  const std::vector<StagePeak> peaks = FindPeaks(program, RunBlocks(program));
  const Tapes tapes(program);
  std::vector<Both> stages;
  for (size_t stage = 0; stage < program.stages.size(); ++stage) {
    const std::optional<Timeline> timeline = Unroll(*job, program, tapes, stage);
    if (!timeline.has_value()) continue;
    const Replayed replayed = Replay(*timeline, {});
    if (peaks[stage].usage.total != replayed.peak_requested) {
      RoleBytes roles{};
      int ph = -1;
      for (size_t e = 0; e <= replayed.peak_event; ++e)
        if (timeline->events[e].kind == TimelineEventKind::kPhase) ph = timeline->events[e].value;
      std::string names;
      for (const int32_t id : AliveAt(*timeline, replayed.peak_event)) {
        const auto& st = timeline->storages[static_cast<size_t>(id)];
        roles[static_cast<size_t>(st.role)] += st.bytes;
        if (st.role == Role::kActivation || st.role == Role::kGradient || st.role == Role::kLoss)
          absl::StrAppend(&names, "\n        ", st.name, " ", st.suffix, " L", st.layer, " mb",
                          st.micro_batch, " ", st.bytes);
      }
      printf("%s steady %d phase %s | ours step %d %s |", job->profile->name.data(),
             peaks[stage].steady, Name(peaks[stage].phase).data(), ph / 6,
             Name(static_cast<Phase>(ph % 6)).data());
      for (size_t r = 0; r < kRoleCount; ++r)
        if (roles[r] != peaks[stage].usage.roles[r])
          printf(" %s: closed %ld ours %ld (%+ld)", Name(static_cast<Role>(r)).data(),
                 peaks[stage].usage.roles[r], roles[r], roles[r] - peaks[stage].usage.roles[r]);
      printf(" m %ld tied %d opt %d impl %d m %ld loss %d stages %zu rec %d unit %ld\n",
             job->micro_batch_count, job->model->tied_embeddings, (int)job->optimizer,
             (int)job->optimizer_implementation, job->micro_batch_count, (int)job->loss,
             program.stages.size(), (int)job->recompute, job->recompute_unit_layer_count);
      printf("%s\n", names.c_str());
    }
    stages.push_back(
        {peaks[stage].usage.total, replayed.peak_requested, peaks[stage].phase,
         absl::StrCat(job->profile->name, " stage ", stage, "/", program.stages.size(), " zero ",
                      job->zero_stage, " m ", job->micro_batch_count, " recompute ",
                      static_cast<int>(job->recompute), " unit ", job->recompute_unit_layer_count,
                      " loss ", static_cast<int>(job->loss), " sched ",
                      static_cast<int>(job->pipeline_schedule), " chunks ",
                      job->virtual_pipeline_size)});
  }
  return stages;
}

TEST(TimelineTest, FreesEverythingOfAMicroBatch) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 300; ++i) {
    const JobSpec spec = RandomJob(random);
    const ValidJob job = Valid(spec);
    const Program program = ProgramOf(spec);
    const std::optional<Timeline> timeline = Unroll(*job, program, Tapes(program), 0);
    ASSERT_TRUE(timeline.has_value());
    for (const int32_t id : AliveAt(*timeline, timeline->events.size())) {
      const TimelineStorage& storage = timeline->storages[static_cast<size_t>(id)];
      EXPECT_EQ(storage.micro_batch, -1)
          << job->profile->name << " " << storage.name << storage.suffix << " layer "
          << storage.layer << " recompute " << static_cast<int>(job->recompute) << " mb "
          << storage.micro_batch << " unit " << job->recompute_unit_layer_count;
    }
  }
}

TEST(TimelineTest, AgreesWithTheClosedFormOverRandomJobs) {
  std::mt19937_64 random(20261121);
  int far = 0;
  for (int i = 0; i < 300; ++i) {
    for (const Both& both : Compare(RandomJob(random))) {
      const double ratio = static_cast<double>(both.replayed) / static_cast<double>(both.closed);
      if (ratio != 1.0) {
        ++far;
        ADD_FAILURE() << both.name << ": closed " << both.closed << " in "
                      << Name(both.closed_phase) << ", replayed " << both.replayed << ", ratio "
                      << ratio;
      }
    }
  }
  EXPECT_EQ(far, 0);
}

}  // namespace
}  // namespace plimsoll
