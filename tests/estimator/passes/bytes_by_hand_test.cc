// Bytes of one parameter, as papers and frameworks' own guides state them: weights, gradients,
// fp32 masters and states of each framework, over d ranks.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

struct PerParameter {
  double weights, gradients, masters, states;

  double Sum() const { return weights + gradients + masters + states; }
};

struct Row {
  const char* framework;
  const char* preset;
  const char* optimizer;
  int64_t zero_stage;
  PerParameter (*bytes)(double d);
};

// At the end of backward of a steady step.
PerParameter BytesOf(const JobSpec& job) {
  const Program program = ProgramOf(job);
  const ParameterSums sums = SumParameters(program, program.stages.front());
  const auto of = [&](Role role) {
    return static_cast<double>(RoleBytesAt(program, role, Phase::kGradientReduction)) /
           static_cast<double>(sums.parameters);
  };
  return {of(Role::kWeight), of(Role::kGradient), of(Role::kMasterWeight),
          of(Role::kOptimizerState)};
}

JobSpec JobOf(const Row& row, int64_t ranks) {
  JobSpec job = With(SmallJob(), row.framework, row.preset);
  job.training.optimizer.name = row.optimizer;
  job.parallelism.zero_stage = row.zero_stage;
  job.parallelism.data_parallel_size = ranks;
  return job;
}

constexpr Row kRows[] = {
    // PyTorch: gradients are as weights, states as what is stepped.
    // Source: torch/optim/adam.py, sgd.py, rmsprop.py, adagrad.py (zeros_like of the parameter).
    {"ddp", "fp32", "adamw", 0,
     [](double) {
       return PerParameter{4, 4, 0, 8};
     }},
    {"ddp", "fp32", "sgd", 0,
     [](double) {
       return PerParameter{4, 4, 0, 0};
     }},
    {"ddp", "fp32", "sgd-momentum", 0,
     [](double) {
       return PerParameter{4, 4, 0, 4};
     }},
    {"ddp", "fp32", "rmsprop", 0,
     [](double) {
       return PerParameter{4, 4, 0, 4};
     }},
    {"ddp", "fp32", "adagrad", 0,
     [](double) {
       return PerParameter{4, 4, 0, 4};
     }},
    {"ddp", "fp32", "lion", 0,
     [](double) {
       return PerParameter{4, 4, 0, 4};
     }},
    {"ddp", "fp32", "lamb", 0,
     [](double) {
       return PerParameter{4, 4, 0, 8};
     }},
    {"ddp", "bf16-pure", "adamw", 0,
     [](double) {
       return PerParameter{2, 2, 0, 4};
     }},
    {"ddp", "bf16-autocast", "adamw", 0,
     [](double) {
       return PerParameter{4, 4, 0, 8};
     }},
    // Sixteen bytes: Rajbhandari et al. 2020 (arXiv 1910.02054), section 3.1.
    {"ddp", "bf16-mixed", "adamw", 0,
     [](double) {
       return PerParameter{2, 2, 4, 8};
     }},
    {"ddp", "fp16-mixed", "adamw", 0,
     [](double) {
       return PerParameter{2, 2, 4, 8};
     }},
    // 4 + 12/d, 2 + 14/d, 16/d: the same, section 5, figure 1.
    {"deepspeed", "bf16-mixed", "adamw", 0,
     [](double) {
       return PerParameter{2, 2, 4, 8};
     }},
    {"deepspeed", "bf16-mixed", "adamw", 1,
     [](double d) {
       return PerParameter{2, 2 / d, 4 / d, 8 / d};
     }},
    {"deepspeed", "fp16-mixed", "adamw", 1,
     [](double d) {
       return PerParameter{2, 2 / d, 4 / d, 8 / d};
     }},
    {"deepspeed", "bf16-mixed", "adamw", 2,
     [](double d) {
       return PerParameter{2, 2 / d, 4 / d, 8 / d};
     }},
    {"deepspeed", "fp16-mixed", "adamw", 2,
     [](double d) {
       return PerParameter{2, 2 / d, 4 / d, 8 / d};
     }},
    {"deepspeed", "bf16-mixed", "adamw", 3,
     [](double d) {
       return PerParameter{2 / d, 2 / d, 4 / d, 8 / d};
     }},
    // 18, and 6 + 12/d with the distributed optimizer; fp16 sums gradients in fp16: 16.
    // Source: Megatron-LM docs/source/api-guide/dist_optimizer.md, theoretical memory savings.
    {"megatron-core", "bf16-mixed", "adamw", 0,
     [](double) {
       return PerParameter{2, 4, 4, 8};
     }},
    {"megatron-core", "bf16-mixed", "adamw", 1,
     [](double d) {
       return PerParameter{2, 4, 4 / d, 8 / d};
     }},
    {"megatron-core", "fp16-mixed", "adamw", 0,
     [](double) {
       return PerParameter{2, 2, 4, 8};
     }},
    {"megatron-core", "bf16-mixed", "sgd", 0,
     [](double) {
       return PerParameter{2, 4, 4, 0};
     }},
    // The main gradients stand beside the model's. Source: Megatron-LM 2.4, optimizer.py.
    {"megatron-lm", "fp16-mixed", "adamw", 0,
     [](double) {
       return PerParameter{2, 6, 4, 8};
     }},
    // nanotron sums in fp32 of its own. Source: nanotron optim/gradient_accumulator.py.
    {"nanotron", "bf16-mixed", "adamw", 0,
     [](double) {
       return PerParameter{2, 4, 4, 8};
     }},
    {"nanotron", "bf16-mixed", "adamw", 1,
     [](double d) {
       return PerParameter{2, 4, 4 / d, 8 / d};
     }},
    // FSDP's shards are what is stepped; 16 bits are gathered of them as layers run.
    // Source: torch/distributed/fsdp/_fully_shard/_fsdp_param.py; fsdp/_flat_param.py.
    {"fsdp2", "fp32", "adamw", 3,
     [](double d) {
       return PerParameter{4 / d, 4 / d, 0, 8 / d};
     }},
    {"fsdp2", "bf16-mixed", "adamw", 3,
     [](double d) {
       return PerParameter{0, 4 / d, 4 / d, 8 / d};
     }},
    {"fsdp2", "bf16-mixed", "adamw", 2,
     [](double d) {
       return PerParameter{0, 4 / d, 4 / d, 8 / d};
     }},
    {"fsdp2", "bf16-pure", "adamw", 3,
     [](double d) {
       return PerParameter{2 / d, 2 / d, 0, 4 / d};
     }},
    {"fsdp1", "bf16-mixed", "adamw", 3,
     [](double d) {
       return PerParameter{0, 4 / d, 4 / d, 8 / d};
     }},
};

TEST(BytesByHandTest, EachFrameworkHoldsWhatItsGuideSays) {
  for (const Row& row : kRows) {
    for (const int64_t ranks : {2, 8}) {
      const PerParameter seen = BytesOf(JobOf(row, ranks));
      const PerParameter stated = row.bytes(static_cast<double>(ranks));
      const std::string name = absl::StrCat(row.framework, " ", row.preset, " ", row.optimizer,
                                            " ZeRO ", row.zero_stage, " over ", ranks);
      // Shares are padded: to whole rows, or to what the ranks divide.
      EXPECT_NEAR(seen.weights, stated.weights, 0.01) << name;
      // DeepSpeed keeps each that the share has a part of, whole: one more matrix.
      const bool parts = row.zero_stage == 1 || row.zero_stage == 2;
      const bool whole = parts && row.framework == absl::string_view("deepspeed");
      EXPECT_NEAR(seen.gradients, stated.gradients, whole ? 2.0 * 16384 / 180800 : 0.01) << name;
      EXPECT_NEAR(seen.masters, stated.masters, 0.01) << name;
      EXPECT_NEAR(seen.states, stated.states, 0.01) << name;
    }
  }
}

// A higher stage holds no more, nor do more ranks; all ranks together hold no less than one did.
TEST(BytesByHandTest, SharingOnlyEverSaves) {
  for (const char* framework : {"deepspeed", "megatron-core", "nanotron", "fsdp2"}) {
    double before = 1e9;
    for (const int64_t stage : {0, 1, 2, 3}) {
      const Row row = {framework, "bf16-mixed", "adamw", stage, nullptr};
      if (!Refusals(JobOf(row, 2)).empty()) continue;
      const double two = BytesOf(JobOf(row, 2)).Sum();
      EXPECT_LE(two, before + 1e-9) << framework << " " << stage;
      before = two;
      double fewer = two;
      for (const int64_t ranks : {4, 8, 16}) {
        const double sum = BytesOf(JobOf(row, ranks)).Sum();
        EXPECT_LE(sum, fewer + 1e-9) << framework << " " << stage << " " << ranks;
        EXPECT_GE(sum * static_cast<double>(ranks), 2 * two - 1e-9);
        fewer = sum;
      }
    }
  }
}

// A group that shards is what counts, not how many of them there are.
TEST(BytesByHandTest, CopiesOfShardsHoldTheSame) {
  const Row row = {"fsdp2", "bf16-mixed", "adamw", 3, nullptr};
  JobSpec hybrid = JobOf(row, 16);
  hybrid.parallelism.shard_group_size = 4;
  EXPECT_DOUBLE_EQ(BytesOf(hybrid).Sum(), BytesOf(JobOf(row, 4)).Sum());
}

// Each stage of a pipeline has its layers' share; tensor parallelism splits all but norms.
TEST(BytesByHandTest, OtherDegreesLeaveBytesOfAParameterAlone) {
  const Row row = {"megatron-core", "bf16-mixed", "adamw", 0, nullptr};
  const double alone = BytesOf(JobOf(row, 1)).Sum();
  JobSpec tensor = JobOf(row, 1);
  tensor.parallelism.tensor_parallel_size = 2;
  EXPECT_NEAR(BytesOf(tensor).Sum(), alone, 1e-9);
  JobSpec pipeline = JobOf(row, 1);
  pipeline.parallelism.pipeline_parallel_size = 2;
  EXPECT_NEAR(BytesOf(pipeline).Sum(), alone, 1e-9);
}

}  // namespace
}  // namespace plimsoll
