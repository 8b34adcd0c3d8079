// What ZeRO 3 has gathered: the figures of DeepSpeed's own coordinator, and what must hold of any
// job's.
#include "estimator/passes/coordinator.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "estimator/base/units.h"
#include "estimator/passes/module_order.h"
#include "estimator/program/parameter_sums.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

constexpr int64_t kRanks = 8;

JobSpec Job(JobSpec job, bool recompute) {
  job = With(std::move(job), "deepspeed");
  job.parallelism = ParallelismSpec();
  job.parallelism.data_parallel_size = kRanks;
  job.parallelism.zero_stage = 3;
  job.training.recompute = RecomputeSpec();
  job.training.recompute.mode = recompute ? "full" : "none";
  return job;
}

// Llama 3.2 1B, or one that is smaller in every way.
JobSpec Llama1B(int64_t layers = 16) {
  JobSpec job = SmallJob();
  TransformerSpec& shape = Shape(job);
  shape.layer_count = layers;
  shape.hidden_size = 2048;
  shape.head_count = 32;
  shape.kv_head_count = 8;
  shape.ffn_size = 8192;
  shape.vocab_size = 128256;
  shape.tied_embeddings = true;
  return Job(job, false);
}

Gathers GathersOf(const JobSpec& job) { return ProgramAfter(Valid(job), PassId::kZero).gathers; }

int64_t MostFlat(const Gathers& gathers) {
  int64_t most = 0;
  for (const GatherTurn& turn : gathers.backward) most = std::max(most, turn.flat_bytes);
  return most;
}

// DeepSpeed 0.19.8 under the phantom, transformers 5.23: the coordinator's __n_available_params,
// and what the allocator had in the stream of gathers, as the head ran, when its backward was over
// and when all was; the pool of the stream that reduces.
TEST(CoordinatorTest, HasWhatDeepSpeedItselfHas) {
  const Gathers large = GathersOf(Job(Llama8B(), true));
  EXPECT_NEAR(static_cast<double>(large.forward.back().bytes), 2.0 * 1020264448, 40e6);
  EXPECT_NEAR(static_cast<double>(large.backward.back().rest), 1308622848, 120e6);
  EXPECT_EQ(large.backward.front().rest, 2 * int64_t{525336576});
  EXPECT_NEAR(static_cast<double>(MostFlat(large)), 991952896, 2.0 * kMiB);
  const Gathers small = GathersOf(Llama1B());
  EXPECT_EQ(small.forward.back().bytes, 2 * int64_t{1009254400});
  EXPECT_EQ(small.backward.front().rest, 2 * int64_t{262668288});
}

// One rank has all weights: none is gathered, but from the host, each by itself.
TEST(CoordinatorTest, OneRankGathersFromTheHostAlone) {
  JobSpec job = Llama1B(2);
  job.parallelism.data_parallel_size = 1;
  EXPECT_FALSE(GathersOf(job).Any());
  job.runtime.offload_parameters = true;
  const Gathers gathers = GathersOf(job);
  ASSERT_TRUE(gathers.Any());
  int64_t bytes = 0;
  for (const GatherEvent& event : gathers.events) bytes = std::max(bytes, event.bytes);
  EXPECT_EQ(bytes, 2 * int64_t{128256} * 2048) << "the table";
}

// A model that is smaller than what may stay: all of it is there at the loss, and nothing is copied
// a second time.
TEST(CoordinatorTest, ASmallModelStays) {
  const JobSpec job = Llama1B(2);
  int64_t bytes = 0;
  const Program program = ProgramAfter(Valid(job), PassId::kZero);
  for (const Block& block : program.blocks) {
    const int64_t times = CountOnStage(block, WholeStage(Valid(job)->model->layer_count));
    for (const Parameter& parameter : block.parameters) {
      if (StaysWhole(parameter) || parameter.tied) continue;
      bytes += times * Bytes(parameter.dtype, parameter.Elements());
    }
  }
  EXPECT_EQ(program.gathers.forward.back().rest, bytes);
}

// Events from `at` on, which then is their end, tell what turns say: each tensor is made once and
// let go once at most.
void CheckEvents(const Gathers& gathers, const GatherTurns& forward, const GatherTurns& backward,
                 uint32_t& at) {
  std::vector<int64_t> bytes(static_cast<size_t>(gathers.tensor_count), -1);
  int64_t live = 0;
  const auto play = [&](uint32_t end) {
    for (; at < end; ++at) {
      const GatherEvent& event = gathers.events[at];
      int64_t& of = bytes[static_cast<size_t>(event.tensor)];
      const bool made = event.bytes > 0;
      ASSERT_EQ(of == -1, made) << "tensor " << event.tensor;
      live += made ? event.bytes : -of;
      of = event.bytes;
    }
  };
  GatherTurns turns = forward;
  turns.insert(turns.end(), backward.rbegin(), backward.rend());
  for (const GatherTurn& turn : turns) {
    ASSERT_EQ(turn.begin, at);
    ASSERT_LE(turn.begin, turn.run);
    if (turn.runs_again) {
      ASSERT_LE(turn.begin, turn.again);
      ASSERT_LE(turn.again, turn.run);
      play(turn.again);
      ASSERT_EQ(live, turn.again_bytes);
    }
    ASSERT_LE(turn.run, turn.end);
    play(turn.run);
    ASSERT_EQ(live, turn.bytes);
    play(turn.end);
    ASSERT_EQ(live, turn.rest);
    ASSERT_LE(turn.rest, turn.bytes);
  }
}

// A job's first micro-batch asks for nothing ahead, and so has no more than later ones have.
void CheckMicroBatches(const Gathers& gathers) {
  uint32_t at = 0;
  CheckEvents(gathers, gathers.forward, gathers.backward, at);
  ASSERT_EQ(at, gathers.EventCount());
  CheckEvents(gathers, gathers.first_forward, gathers.first_backward, at);
  ASSERT_EQ(at, gathers.events.size());
  for (size_t i = 0; i < gathers.forward.size(); ++i) {
    ASSERT_LE(gathers.first_forward[i].bytes, gathers.forward[i].bytes) << i;
    ASSERT_LE(gathers.first_backward[i].bytes, gathers.backward[i].bytes) << i;
  }
}

// What a block reads is there while it runs, or is too small ever to go.
void CheckTurns(const Program& program) {
  const auto layer_count = static_cast<int64_t>(program.gathers.forward.size()) - 2;
  for (const Block& block : program.blocks) {
    int64_t largest = 0;
    for (const Parameter& parameter : block.parameters) {
      const bool gathered = !StaysWhole(parameter) && !parameter.packed();
      if (gathered) {
        largest = std::max(largest, Bytes(parameter.dtype, parameter.Elements()));
      }
    }
    const bool counted = block.kind == BlockKind::kLayer;
    if (counted && block.layers.CountOf(layer_count) == 0) continue;  // a kind that has none
    const auto layer = static_cast<int32_t>(counted ? block.layers.First() : 0);
    EXPECT_GE(program.gathers.At(block.kind, layer, false).bytes, largest) << block.name;
    EXPECT_GE(program.gathers.At(block.kind, layer, true).bytes, largest) << block.name;
  }
}

TEST(CoordinatorTest, EventsAddUpOverRandomJobs) {
  std::mt19937_64 random(20261125);
  int checked = 0;
  for (int i = 0; i < 9000 && !HasFailure(); ++i) {
    JobSpec spec = RandomJob(random);
    if (spec.runtime.framework != "deepspeed" || spec.parallelism.zero_stage != 3) continue;
    const Program program = ProgramOf(spec);
    if (!program.gathers.Any()) continue;
    ++checked;
    CheckMicroBatches(program.gathers);
    CheckTurns(program);
  }
  EXPECT_GT(checked, 50);
}

// Until the order of modules is known each is gathered as it runs and goes behind it: of a layer
// its largest product's. TRL reads the head's weights without running it.
TEST(CoordinatorTest, TheFirstMicroBatchAsksForNothingAhead) {
  JobSpec job = Llama1B();
  const Gathers own = GathersOf(job);
  const int64_t table = 2 * int64_t{128256} * 2048;
  EXPECT_EQ(own.first_forward[0].rest, 0);
  EXPECT_EQ(own.first_forward[1].bytes, 2 * int64_t{2048} * 8192);
  EXPECT_EQ(own.first_forward.back().bytes, table);
  const auto read = [](const GatherEvent& event) { return event.when_read; };
  EXPECT_EQ(std::count_if(own.events.begin(), own.events.end(), read), 0);
  job.runtime.trainer = "trl";
  const Gathers trl = GathersOf(job);
  const auto apart = std::find_if(trl.events.begin(), trl.events.end(), read);
  ASSERT_NE(apart, trl.events.end());
  EXPECT_EQ(apart->bytes, table);
  EXPECT_EQ(apart - trl.events.begin(), trl.first_forward.back().begin);
}

// A reference's engine gathers beside the policy's, forward alone, and keeps none of it. It runs as
// the policy without adapters on that one's engine.
TEST(CoordinatorTest, AReferenceGathersApart) {
  JobSpec job = Llama1B();
  job.runtime.trainer = "trl";
  job.training.preference.method = "dpo";
  Program program = ProgramAfter(Valid(job), PassId::kZero);
  const Gathers& own = program.reference_gathers;
  EXPECT_EQ(own.stream, Stream::kReferenceGather);
  EXPECT_TRUE(own.backward.empty());
  EXPECT_EQ(own.forward.size(), program.gathers.forward.size());
  for (const GatherTurns* turns : {&own.forward, &own.first_forward}) {
    EXPECT_GE(turns->back().bytes, 2 * int64_t{128256} * 2048);
    EXPECT_EQ(turns->back().rest, 0);
  }
  job.training.adapter.method = "lora";
  job.training.adapter.rank = 8;
  EXPECT_FALSE(ProgramAfter(Valid(job), PassId::kZero).reference_gathers.Any());
}

// Gradients that find no room in the bucket send what is in it first; of frozen weights there are
// none.
TEST(CoordinatorTest, ABucketIsFlattenedAsItIsFull) {
  JobSpec job = Llama1B();
  job.runtime.reduce_bucket_element_count = 100 * kMiB;
  const Gathers gathers = GathersOf(job);
  EXPECT_LE(MostFlat(gathers), 200 * kMiB);
  EXPECT_GT(MostFlat(gathers), 100 * kMiB);
  job.training.adapter.method = "lora";
  job.training.adapter.rank = 8;
  EXPECT_LT(MostFlat(GathersOf(job)), 32 * kMiB);
}

}  // namespace
}  // namespace plimsoll
