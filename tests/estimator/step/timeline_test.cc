// The timeline and the closed form are two ways to the same figure, to the byte.
#include "estimator/step/timeline.h"

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "estimator/step/sum_plan.h"
#include "gtest/gtest.h"
#include "tests/testing/both_peaks.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

constexpr int kJobs = 300;

// Returns how many stages there are.
int Compare(const JobSpec& spec) {
  const std::vector<BothPeaks> peaks = PeaksBothWays(spec);
  for (size_t stage = 0; stage < peaks.size(); ++stage) {
    EXPECT_EQ(peaks[stage].summed, peaks[stage].played)
        << *spec.runtime.framework << ", stage " << stage;
  }
  return static_cast<int>(peaks.size());
}

// Deals the job's layers anew: two to four virtual stages on each stage, of none
// to three layers each, and one at least in all.
void Interleave(std::mt19937_64& random, JobSpec& spec) {
  const int64_t stages = *spec.parallelism.pipeline_parallel_size;
  const auto chunks = static_cast<int64_t>(2 + random() % 3);
  spec.parallelism.virtual_pipeline_size = chunks;
  Shape(spec).layer_count = 0;
  const bool even = random() % 2 == 0;
  for (int64_t i = 0; i < stages * chunks; ++i) {
    const auto layers = static_cast<int64_t>(even ? 2 : random() % 4);
    spec.parallelism.pipeline_layout.push_back(layers);
    *Shape(spec).layer_count += layers;
  }
  if (*Shape(spec).layer_count == 0) {
    spec.parallelism.pipeline_layout.back() = 1;
    Shape(spec).layer_count = 1;
  }
  spec.training.recompute.unit_layer_count.reset();
  const int64_t micro_batches = stages * static_cast<int64_t>(1 + random() % 5);
  spec.training.global_batch_size =
      *spec.training.micro_batch_size * *spec.parallelism.data_parallel_size * micro_batches;
  const auto group = stages + static_cast<int64_t>(random() % 3);
  const int64_t rest = micro_batches % group;
  const bool legal = micro_batches >= group && (rest == 0 || rest >= stages);
  if (spec.runtime.framework == "megatron-core" && legal) {
    spec.parallelism.micro_batch_group_size = group;
  }
}

// More layers than a loop's ends: one to nine on each stage, recomputed by other units and
// intervals.
bool Deepen(std::mt19937_64& random, JobSpec& spec) {
  if (!spec.parallelism.pipeline_layout.empty()) return false;
  const int64_t stages = spec.parallelism.pipeline_parallel_size.value_or(1) *
                         spec.parallelism.virtual_pipeline_size.value_or(1);
  Shape(spec).layer_count = stages * static_cast<int64_t>(1 + random() % 9);
  RecomputeSpec& recompute = spec.training.recompute;
  if (recompute.interval.has_value()) recompute.interval = static_cast<int64_t>(1 + random() % 5);
  if (recompute.unit_layer_count.has_value()) {
    recompute.unit_layer_count = static_cast<int64_t>(1 + random() % 4);
  }
  return std::holds_alternative<ValidJob>(Validate(spec, SmallCatalog()));
}

TEST(TimelineTest, AgreesWithTheClosedFormOfManyLayers) {
  std::mt19937_64 random(20261124);
  const int jobs = Rounds(5000);
  int stages = 0;
  for (int i = 0; i < jobs && !HasFailure(); ++i) {
    JobSpec spec = RandomJob(random);
    if (Deepen(random, spec)) stages += Compare(spec);
  }
  EXPECT_GT(stages, jobs / 2);
}

// A reference of one layer, at its attention: what its embedding gave is kept, and the layer reads
// it.
TEST(TimelineTest, AgreesWhereAReferencesOnlyLayerIsThePeak) {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  Shape(job).layer_count = 1;
  job.training.sequence_length = 1024;
  job.training.attention = "eager";
  job.training.micro_batch_size = 8;  // more than a slice of the loss
  job.training.preference.method = "dpo";
  EXPECT_EQ(Compare(job), 1);
}

// Gradients of a table that embedding and head share, flat, beside those of earlier micro-batches.
TEST(TimelineTest, AgreesWhereAFlatGradientIsOfASharedTable) {
  JobSpec job = With(SmallJob(), "fsdp1");
  Shape(job).tied_embeddings = true;
  Shape(job).vocab_size = 32000;
  job.runtime.trainer = "hf-trainer";
  job.training.precision.reduce_dtype = "fp32";
  job.parallelism.data_parallel_size = 8;
  job.training.global_batch_size = 3 * 8 * *job.training.micro_batch_size;
  EXPECT_EQ(Compare(job), 1);
}

// Such a table's two gradients are one before they are sent, where the host keeps them too.
TEST(TimelineTest, AgreesWhereTheHostTakesTheGradientsOfASharedTable) {
  JobSpec job = With(SmallJob(), "fsdp2");
  Shape(job).tied_embeddings = true;
  Shape(job).vocab_size = 32000;
  job.training.precision.reduce_dtype = "fp32";
  job.training.loss.implementation = "fused";  // no logits, that would be more
  job.parallelism.data_parallel_size = 8;
  job.training.global_batch_size = 8 * *job.training.micro_batch_size;
  job.runtime.offload_parameters = true;
  EXPECT_EQ(Compare(job), 1);
}

// A step in backward makes what it keeps of a parameter, in its first step, while the gradient is
// there: of the head, then of each layer, last of the table.
TEST(TimelineTest, StatesAreMadeWithGradientsWhereTheStepIsInBackward) {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  Shape(job).layer_count = 1;
  job.runtime.trainer = "torchtune";
  job.cluster.gpu_count = 1;
  job.training.gradient_clipping = false;
  job.training.optimizer.in_backward = true;
  const Program program = ProgramOf(job);
  const Timeline timeline = *Unroll(program, Tapes(program), program.stages[0]);
  std::string words;
  int32_t phase = 0;
  for (const TimelineEvent& event : timeline.events) {
    if (event.kind == TimelineEventKind::kPhase) phase = event.value;
    if (event.kind == TimelineEventKind::kPhase) continue;
    const TimelineStorage& storage = timeline.storages[static_cast<size_t>(event.value)];
    const bool state = storage.role == Role::kOptimizerState;
    const bool gradient =
        storage.name == "head.weight" || storage.name == "embedding.tokens.weight";
    if (phase >= static_cast<int32_t>(kPhaseCount)) continue;  // of later steps
    const bool weight = gradient && storage.role == Role::kTemporary;
    if (!weight && (!state || storage.layer >= 0)) continue;
    const char* const how = event.kind == TimelineEventKind::kBirth ? " +" : " -";
    absl::StrAppend(&words, how, storage.name, state ? " of " : "", state ? storage.suffix : "");
  }
  EXPECT_EQ(words,
            " +head.weight +optimizer.momentum of head.weight +optimizer.variance of head.weight"
            " -head.weight +optimizer.momentum of final.norm.weight"
            " +optimizer.variance of final.norm.weight +embedding.tokens.weight"
            " +optimizer.momentum of embedding.tokens.weight"
            " +optimizer.variance of embedding.tokens.weight -embedding.tokens.weight");
}

// The sum of such a table's two gradients is made last, beside both, and outlives them.
TEST(TimelineTest, TheSumOfASharedTablesGradientsStays) {
  for (const char* framework : {"ddp", "fsdp2"}) {
    JobSpec job = With(SmallJob(), framework);
    Shape(job).tied_embeddings = true;
    job.parallelism.data_parallel_size = 8;
    job.training.global_batch_size = 8 * *job.training.micro_batch_size;
    const Program program = ProgramOf(job);
    EXPECT_EQ(program.ends_are_one_group, framework == std::string("fsdp2"));
    const Timeline timeline = *Unroll(program, Tapes(program), program.stages[0]);
    constexpr auto kSteady = static_cast<int32_t>(2 * kPhaseCount);
    std::string words;
    int32_t phase = 0;
    for (const TimelineEvent& event : timeline.events) {
      if (event.kind == TimelineEventKind::kPhase) phase = event.value;
      if (event.kind == TimelineEventKind::kPhase || phase < kSteady) continue;
      const TimelineStorage& storage = timeline.storages[static_cast<size_t>(event.value)];
      if (storage.role != Role::kGradient || storage.bytes != 256 * 64 * 2) continue;
      absl::StrAppend(&words, event.kind == TimelineEventKind::kBirth ? " +" : " -", storage.name);
    }
    EXPECT_EQ(words,
              " +head.weight +embedding.tokens.weight.gradient.sum +embedding.tokens.weight"
              " -embedding.tokens.weight.gradient.sum -head.weight -embedding.tokens.weight")
        << framework;
  }
}

TEST(TimelineTest, AgreesWithTheClosedFormOverRandomJobs) {
  std::mt19937_64 random(20261121);
  const int jobs = Rounds(5000);
  int stages = 0;
  for (int i = 0; i < jobs && !HasFailure(); ++i) {
    const JobSpec spec = RandomJob(random);
    const Program program = ProgramOf(spec);
    EXPECT_LE(program.blocks.size() + program.reference.size(), kMaxRuns);
    stages += Compare(spec);
  }
  EXPECT_GE(stages, jobs);
}

TEST(TimelineTest, AgreesWithTheClosedFormWhereStagesAreInterleaved) {
  std::mt19937_64 random(20261122);
  int stages = 0;
  for (int i = 0; i < 6 * kJobs && !HasFailure(); ++i) {
    JobSpec spec = RandomJob(random);
    if (spec.parallelism.pipeline_schedule != "interleaved-1f1b") continue;
    Interleave(random, spec);
    stages += Compare(spec);
  }
  EXPECT_GT(stages, kJobs);
}

TEST(TimelineTest, AgreesWithTheClosedFormWhereTokensAreSentToExperts) {
  std::mt19937_64 random(20261124);
  int stages = 0;
  for (int i = 0; i < kJobs && !HasFailure(); ++i) stages += Compare(RandomDispatchedJob(random));
  EXPECT_GE(stages, kJobs);
}

TEST(TimelineTest, AgreesWithTheClosedFormWhereProductsReadFp8) {
  std::mt19937_64 random(20261125);
  int stages = 0;
  for (int i = 0; i < kJobs && !HasFailure(); ++i) stages += Compare(RandomFp8Job(random));
  EXPECT_GE(stages, kJobs);
}

TEST(TimelineTest, AgreesWithTheClosedFormWhereKernelsAreLigers) {
  std::mt19937_64 random(20261126);
  int stages = 0;
  for (int i = 0; i < kJobs && !HasFailure(); ++i) stages += Compare(RandomLigerJob(random));
  EXPECT_EQ(stages, kJobs);
}

TEST(TimelineTest, AgreesWithTheClosedFormOfAStudent) {
  std::mt19937_64 random(20261129);
  int stages = 0;
  for (int i = 0; i < kJobs && !HasFailure(); ++i) stages += Compare(RandomDistilledJob(random));
  EXPECT_EQ(stages, kJobs);
}

TEST(TimelineTest, AgreesWithTheClosedFormOfStateSpacesAlone) {
  std::mt19937_64 random(20261130);
  int stages = 0;
  for (int i = 0; i < kJobs && !HasFailure(); ++i) stages += Compare(RandomMambaJob(random));
  EXPECT_EQ(stages, kJobs);
}

TEST(TimelineTest, AgreesWithTheClosedFormWhereSignsAreSentOrGradientsProjected) {
  std::mt19937_64 random(20261128);
  int stages = 0;
  for (int i = 0; i < kJobs && !HasFailure(); ++i) stages += Compare(RandomSteppedJob(random));
  EXPECT_EQ(stages, kJobs);
}

TEST(TimelineTest, AgreesWithTheClosedFormWhereMegatronGathersUnits) {
  std::mt19937_64 random(20261201);
  int stages = 0;
  for (int i = 0; i < kJobs && !HasFailure(); ++i) stages += Compare(RandomMegatronFsdpJob(random));
  EXPECT_EQ(stages, kJobs);
}

TEST(TimelineTest, AgreesWithTheClosedFormWhereParametersAreTheHosts) {
  std::mt19937_64 random(20261124);
  int stages = 0;
  for (int i = 0; i < kJobs && !HasFailure(); ++i) {
    for (const char* framework : {"fsdp1", "fsdp2", "deepspeed"}) {
      stages += Compare(RandomOffloadedJob(random, framework));
    }
  }
  EXPECT_EQ(stages, 3 * kJobs);
}

TEST(TimelineTest, AgreesWithTheClosedFormWhereInputsOfLayersAreTheHosts) {
  std::mt19937_64 random(20261128);
  const int jobs = Rounds(kJobs);
  int stages = 0;
  for (int i = 0; i < jobs && !HasFailure(); ++i) {
    stages += Compare(RandomJobOfOffloadedLayers(random));
  }
  EXPECT_EQ(stages, jobs);
}

// A layer that predicts one token further stands in the head's block.
TEST(TimelineTest, AgreesWithTheClosedFormWhereOneTokenFurtherIsPredicted) {
  std::mt19937_64 random(20261129);
  const int jobs = Rounds(kJobs);
  int stages = 0;
  for (int i = 0; i < jobs && !HasFailure(); ++i) stages += Compare(RandomMtpJob(random));
  EXPECT_GE(stages, jobs);
}

// Some of the layers see a part of the sequence, and have a mask, where attention is SDPA of
// transformers' classes.
TEST(TimelineTest, AgreesWithTheClosedFormWhereLayersSeeWindows) {
  const LayerSet sets[] = {
      {}, {.period = 2}, {.period = 3, .to = 2}, {.period = 3, .from = 2, .to = 3}, {.begin = 1}};
  std::mt19937_64 random(20261123);
  int stages = 0;
  for (int i = 0; i < 6 * kJobs && !HasFailure(); ++i) {
    const JobSpec spec = RandomJob(random);
    const LayerSet& windowed = sets[random() % 5];
    const ValidJob job = Valid(spec);
    const bool masks = job->profile->transformers_attention &&
                       windowed.CountOf(job->model->layer_count) > 0 &&
                       job->context_parallel_size == 1 && job->pipeline_parallel_size == 1 &&
                       job->recompute_interval == 1 && job->recompute_unit_layer_count == 1 &&
                       !spec.training.attention.has_value() && !job->model->linear.Any() &&
                       !job->profile->composed_norms &&  // which has none
                       (windowed.IsAll() || job->model->experts.layers.begin == 0);
    if (!masks) continue;
    const JobSpec windows = WithModel(spec, [&](Transformer& model) {
      model.sliding_window = 16;
      model.windowed = windowed;
    });
    EXPECT_TRUE(Valid(windows)->masks_windows);
    stages += Compare(windows);
  }
  EXPECT_GT(stages, kJobs / 4);
}

// But for gradients that live on as those of the last step.
TEST(TimelineTest, FreesAllThatAMicroBatchMade) {
  std::mt19937_64 random(7);
  for (int i = 0; i < kJobs; ++i) {
    const JobSpec spec = RandomJob(random);
    const Program program = ProgramOf(spec);
    const std::optional<Timeline> timeline = Unroll(program, Tapes(program), program.stages[0]);
    ASSERT_TRUE(timeline.has_value());
    for (const int32_t id : AliveAt(*timeline, timeline->events.size())) {
      const TimelineStorage& storage = timeline->storages[static_cast<size_t>(id)];
      if (storage.role == Role::kGradient) continue;
      EXPECT_EQ(storage.micro_batch, -1) << i << ": " << storage.name << storage.suffix;
    }
  }
}

}  // namespace
}  // namespace plimsoll
