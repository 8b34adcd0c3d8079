// More work never needs less memory, and more sharding or recomputation never
// more; where physics says otherwise, the test says which.
#include <algorithm>
#include <functional>
#include <optional>
#include <random>

#include "absl/strings/str_cat.h"
#include "estimator/job/job_abilities.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

constexpr int kJobs = 2000;

void ForRandomJobs(const std::function<void(JobSpec)>& check) {
  std::mt19937_64 random(42);
  for (int i = 0; i < kJobs; ++i) {
    const JobSpec job = RandomJob(random);
    SCOPED_TRACE(absl::StrCat(
        "job ", i, ": ", *job.runtime.framework, " ", *job.training.precision.preset, " ",
        job.training.recompute.mode.value_or("none"), " dp ", *job.parallelism.data_parallel_size,
        " zero ", *job.parallelism.zero_stage, " pp ", *job.parallelism.pipeline_parallel_size,
        " tp ", *job.parallelism.tensor_parallel_size, " ",
        job.training.loss.implementation.value_or("plain"), " ",
        job.training.attention.value_or("auto")));
    check(job);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(MonotonyTest, MoreMicroBatchNeverLowersThePeak) {
  ForRandomJobs([](JobSpec job) {
    // A fused loss cuts its slices to a power of two of the tokens, which may
    // shrink the slices as tokens grow: Liger's chunk is no monotone function.
    if (job.training.loss.implementation == "fused") return;
    const int64_t before = PeakBytes(job);
    *job.training.micro_batch_size *= 2;
    *job.training.global_batch_size *= 2;
    EXPECT_GE(PeakBytes(job), before);
  });
}

int64_t BoundBytes(const JobSpec& job) {
  const MemoryEstimate estimate = Estimate(job);
  return estimate.usable_bytes - estimate.headroom.bound_bytes;
}

// On a GPU with room, and on one that is as large as the smaller job's bound, which ends some.
TEST(MonotonyTest, MoreMicroBatchNeverLowersTheBound) {
  ForRandomJobs([](JobSpec job) {
    if (job.training.loss.implementation == "fused") return;  // as above
    job.cluster.gpu.reset();
    job.cluster.gpu_memory_bytes = int64_t{1} << 40;
    JobSpec larger = job;
    *larger.training.micro_batch_size *= 2;
    *larger.training.global_batch_size *= 2;
    const int64_t bound = BoundBytes(job);
    EXPECT_GE(BoundBytes(larger), bound);
    for (const int64_t percent : {60, 80, 100, 120}) {
      job.cluster.gpu_memory_bytes = bound / 100 * percent;
      larger.cluster.gpu_memory_bytes = job.cluster.gpu_memory_bytes;
      EXPECT_GE(BoundBytes(larger), BoundBytes(job)) << percent;
    }
  });
}

TEST(MonotonyTest, ALongerSequenceNeverLowersThePeak) {
  ForRandomJobs([](JobSpec job) {
    if (job.training.loss.implementation == "fused") return;  // as above
    const int64_t before = PeakBytes(job);
    *job.training.sequence_length *= 2;
    EXPECT_GE(PeakBytes(job), before);
  });
}

TEST(MonotonyTest, MoreMicroBatchesNeverLowerThePeak) {
  ForRandomJobs([](JobSpec job) {
    // Gradients that stay whole are the backward's own: in 8 bits less than half of
    // them in the master's 32.
    const bool narrow = job.training.precision.preset == "fp8-lm";
    if (narrow && Valid(job)->profile->accumulates_whole) return;
    if (job.training.optimizer.in_backward == true) return;  // it has one
    const int64_t before = PeakBytes(job);
    *job.training.global_batch_size *= 2;
    EXPECT_GE(PeakBytes(job), before);
  });
}

TEST(MonotonyTest, MoreLayersNeverLowerThePeak) {
  ForRandomJobs([](JobSpec job) {
    // Layers are dealt to stages anew, or matrices to ranks: there and back, so that both tables
    // are one rank's or not.
    if (*job.parallelism.pipeline_parallel_size > 1 || Valid(job)->deals_matrices) return;
    const int64_t before = PeakBytes(job);
    *Shape(job).layer_count *= 2;
    EXPECT_GE(PeakBytes(job), before);
  });
}

// Kept activations: full <= selective <= none. DeepSpeed's pipeline keeps the
// attention mask, B S^2 bytes, with each recomputed layer: of a narrow model that
// is more than what recomputation saves, and left out here. So is what latent values are
// a part of: eager attention that runs again keeps it, not the copy that products read. Attention
// of a joint product keeps all of that, A + 2C, whatever its kernel would have.
TEST(MonotonyTest, MoreRecomputationNeverKeepsMore) {
  ForRandomJobs([](JobSpec job) {
    job.training.recompute = RecomputeSpec();
    const int64_t none = KeptByLayer(ProgramOf(job));
    const bool copies_values =
        Shape(job).key_value_rank.has_value() && Valid(job)->attention == AttentionKernel::kEager;
    const bool parts = Valid(job)->capabilities.Has(Ability::kRecomputeSelective) &&
                       !job.training.adapter.method.has_value() &&
                       !job.training.preference.method.has_value() &&
                       !Valid(job)->trained.has_value() && !Shape(job).expert_count.has_value() &&
                       !Shape(job).linear_value_head_count.has_value() && !copies_values;
    if (parts) job.training.recompute.mode = "selective";
    const int64_t selective = KeptByLayer(ProgramOf(job));
    job.training.recompute.mode = "full";
    const Program recomputed = ProgramOf(job);
    int64_t joint = 0;
    for (const Tensor& tensor : FindBlock(recomputed, "layer").tensors) {
      if (tensor.name == "attention.qkv.activation") joint = tensor.Bytes();
    }
    EXPECT_LE(selective, none + joint);
    EXPECT_LE(KeptByLayer(recomputed) - FindBlock(recomputed, "layer").checkpoint_bytes, selective);
  });
}

int64_t WeightBytes(const Program& program) {
  const ParameterSums sums = SumParameters(program, program.stages.front());
  int64_t bytes = 0;
  for (const State& state : program.states) {
    if (state.role == Role::kWeight) bytes += StateBytes(state, sums);
  }
  return bytes;
}

// The peak of a small model may rise with recomputation, by up to one layer's
// second forward, and what is gathered for it: where gradients outweigh activations, the peak is at
// the end of backward, and there the first layer runs again. Under autocast layers cast
// again, and the first copies of weights stand until the loss is made.
TEST(MonotonyTest, RecomputationRaisesThePeakByALayerAtMost) {
  ForRandomJobs([](JobSpec job) {
    if (*job.parallelism.pipeline_parallel_size > 1) return;
    job.training.recompute = RecomputeSpec();
    const int64_t weights = WeightBytes(ProgramOf(job));
    const int64_t none = PeakBytes(job);
    job.training.recompute.mode = "full";
    const Program program = ProgramOf(job);
    int64_t most = 0;  // of layers of whatever kind
    for (const Block& layer : program.blocks) {
      if (layer.kind != BlockKind::kLayer) continue;
      const BlockRun run = plimsoll::Run(layer, program.weight_gradient, program.gradient_dtype);
      int64_t gathered = 0;
      for (const BlockBuffer& buffer : layer.buffers) {
        const GatherSize size = buffer.At(true, layer.gathered);
        gathered += size.bytes + size.input_bytes;
      }
      most = std::max(most, run.forward.total + run.unit.total + gathered);
    }
    const int64_t kept = *Shape(job).layer_count * FindBlock(program, "layer").checkpoint_bytes;
    EXPECT_LE(PeakBytes(job), none + most + kept + WeightBytes(program) - weights);
  });
}

TEST(MonotonyTest, MoreRecomputationNeverRaisesThePeakOfALargeModel) {
  for (const char* framework : {"ddp", "fsdp2", "deepspeed", "megatron-core", "nanotron"}) {
    JobSpec job = Llama8B();
    job.runtime.framework = framework;
    const Capabilities capabilities = Valid(job)->capabilities;
    if (capabilities.Has(Ability::kCoreAttentionAgain)) job.training.attention = "eager";
    const auto peak = [&](const char* mode, Ability ability) {
      job.training.recompute = RecomputeSpec();
      if (capabilities.Has(ability)) job.training.recompute.mode = mode;
      return PeakBytes(job);
    };
    const int64_t none = peak("none", Ability::kRecomputeNone);
    const int64_t full = peak("full", Ability::kRecomputeFull);
    EXPECT_LE(peak("selective", Ability::kRecomputeSelective), none) << framework;
    EXPECT_LE(full, none) << framework;
    if (!capabilities.Has(Ability::kRecomputeEveryNth)) continue;
    job.training.recompute.mode = "every-nth";
    job.training.recompute.interval = 2;
    const int64_t half = PeakBytes(job);
    EXPECT_LE(half, none) << framework;
    EXPECT_LE(full, half) << framework;
  }
}

// States alone (weights, gradients, masters, optimizer states): what ZeRO is
// about. Its buffers are of a fixed size, DeepSpeed's 1 GB, so the peak of a
// tiny model may rise with the stage; see the next test for large ones.
int64_t StateBytesOf(const JobSpec& job) {
  const Program program = ProgramOf(job);
  const ParameterSums sums = SumParameters(program, program.stages.front());
  int64_t bytes = 0;
  for (const State& state : program.states) {
    const bool counted = state.part == Part::kWeights || state.part == Part::kMasterWeights ||
                         state.part == Part::kGradients || state.part == Part::kGradientSums ||
                         state.part == Part::kOptimizerStates;
    if (counted) bytes += StateBytes(state, sums);
  }
  return bytes;
}

TEST(MonotonyTest, AHigherZeroStageNeverHoldsMoreStates) {
  ForRandomJobs([](JobSpec job) {
    const ValidJob valid = Valid(job);
    const Capabilities& capabilities = valid->capabilities;
    // DeepSpeed's ZeRO copies weights that have no masters without it, keeps what an optimizer made
    // for whole weights, and has no rows in a flat share.
    const bool copies =
        valid->profile->sharding == Sharding::kEngine &&
        (valid->precision.master == DType::kNone || RowOf(valid->optimizer).made_with_it ||
         valid->optimizer == OptimizerName::kAdafactor);
    std::optional<int64_t> before;
    for (int64_t stage = copies ? 1 : 0; stage <= 3; ++stage) {
      if (!capabilities.Has(AbilityOfZero(stage))) continue;
      job.parallelism.zero_stage = stage;
      if (!Refusals(job).empty()) continue;  // not with an adapter
      const int64_t bytes = StateBytesOf(job);
      EXPECT_TRUE(!before.has_value() || bytes <= *before) << "ZeRO " << stage;
      before = bytes;
    }
  });
}

TEST(MonotonyTest, AHigherZeroStageNeverRaisesThePeakOfALargeModel) {
  for (const char* framework : {"deepspeed", "fsdp2", "megatron-core", "megatron-deepspeed"}) {
    JobSpec job = Llama8B();
    job.runtime.framework = framework;
    job.cluster.gpu_count = 64;
    const Capabilities capabilities = Valid(job)->capabilities;
    int64_t before = 0;
    for (int64_t stage = 0; stage <= 3; ++stage) {
      if (!capabilities.Has(AbilityOfZero(stage))) continue;
      job.parallelism.zero_stage = stage;
      const int64_t peak = PeakBytes(job);
      EXPECT_TRUE(before == 0 || peak <= before)
          << framework << " ZeRO " << stage << ": " << peak << " > " << before;
      before = peak;
    }
  }
}

TEST(MonotonyTest, MoreRanksNeverHoldMoreStatesEach) {
  ForRandomJobs([](JobSpec job) {
    if (*job.parallelism.zero_stage == 0 || job.parallelism.expert_parallel_size > 1) return;
    int64_t before = 0;
    for (const int64_t ranks : {1, 2, 8, 64}) {
      job.parallelism.data_parallel_size = ranks;
      job.training.global_batch_size.reset();
      const int64_t bytes = StateBytesOf(job);
      // FSDP2 pads each first axis to whole rows: up to a row a parameter more.
      const bool padded = job.runtime.framework == "fsdp2";
      EXPECT_TRUE(before == 0 || padded || bytes <= before) << ranks;
      before = bytes;
    }
  });
}

}  // namespace
}  // namespace plimsoll
