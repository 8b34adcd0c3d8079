// Jobs with a run in the place of an architecture: what the run must say, and that the job is it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "estimator/job/fields.h"
#include "tests/testing/jobs.h"
#include "tests/testing/profiled_job.h"

namespace plimsoll {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

struct Case {
  std::function<void(JobSpec&)> edit;
  const char* refusal;
};

TEST(ValidateProfiledTest, TakesARun) {
  EXPECT_THAT(Refusals(ProfiledJob()), IsEmpty());
  JobSpec job = ProfiledJob();
  job.cluster.gpu = "h100";  // an alias of it
  job.cluster.gpu_count = 16;
  job.cluster.gpus_per_node = 4;
  job.cluster.reserved_for_others_bytes = 1 << 20;
  job.risk = 0.1;
  job.detail = "summary";
  EXPECT_THAT(Refusals(job), IsEmpty());
  EXPECT_EQ(Valid(job)->gpus_per_node, 4);
  EXPECT_EQ(Valid(ProfiledJob())->gpu_count, 16);
  EXPECT_EQ(Valid(ProfiledJob())->gpu->id, "h100-80gb-sxm");
}

TEST(ValidateProfiledTest, RefusesAnotherJobThanTheRun) {
  const Case cases[] = {
      {[](JobSpec& job) { job.cluster.gpu = "a100-80gb-sxm"; },
       "job.cluster.gpu: a100-80gb-sxm; must be h100-80gb-sxm, the GPU that was measured: another "
       "chooses other kernels and has other room; plimsoll measure --gpu a100-80gb-sxm asks for "
       "it"},
      {[](JobSpec& job) { job.cluster.gpu_count = 8; },
       "job.cluster.gpu_count: 8; must be 16, the ranks of the run that was measured: another "
       "number shards otherwise"},
      {[](JobSpec& job) { job.training.micro_batch_size = 4; },
       "job.training.micro_batch_size: 4; must be unset beside model.profiled: it was the script's "
       "own to say, and what was measured holds for that alone"},
      {[](JobSpec& job) { job.runtime.versions["torch"] = "2.14"; },
       "job.runtime.versions.torch: 2.14; must be unset beside model.profiled: it was the script's "
       "own to say, and what was measured holds for that alone"},
      {[](JobSpec& job) {
         job.parallelism.pipeline_layout = {1, 2};
       },
       "job.parallelism.pipeline_layout: 1, 2; must be unset beside model.profiled: it was the "
       "script's own to say, and what was measured holds for that alone"},
  };
  for (const auto& [edit, refusal] : cases) {
    JobSpec job = ProfiledJob();
    edit(job);
    EXPECT_THAT(Refusals(job), ElementsAre(refusal));
  }
}

// Every field of a job but those of the run and of where it goes.
TEST(ValidateProfiledTest, IgnoresNoField) {
  int refused = 0;
  for (const FieldRow& row : kFieldRows) {
    JobSpec job = ProfiledJob();
    if (row.place == nullptr || absl::StartsWith(row.path, "model.")) continue;
    const FieldPlace place = row.place(job);
    if (auto* const* number = std::get_if<std::optional<int64_t>*>(&place)) **number = row.least;
    if (auto* const* share = std::get_if<std::optional<double>*>(&place)) **share = 0.5;
    if (auto* const* text = std::get_if<std::optional<std::string>*>(&place)) **text = "x";
    if (auto* const* flag = std::get_if<std::optional<bool>*>(&place)) **flag = false;
    if (auto* const* list = std::get_if<std::vector<int64_t>*>(&place)) (*list)->push_back(1);
    if (auto* const* list = std::get_if<std::vector<std::string>*>(&place)) (*list)->push_back("x");
    const std::vector<std::string> refusals = Refusals(job);
    const bool beside =
        row.path == "cluster.gpus_per_node" || row.path == "cluster.reserved_for_others_bytes";
    if (beside) {
      EXPECT_THAT(refusals, IsEmpty()) << row.path;
    } else {
      EXPECT_THAT(refusals, Contains(StartsWith(absl::StrCat("job.", row.path, ": ")))) << row.path;
      ++refused;
    }
  }
  EXPECT_GT(refused, 60);
}

TEST(ValidateProfiledTest, RefusesARunThatSaysTooLittle) {
  const Case cases[] = {
      {[](JobSpec& job) { RunOf(job).measured_gpu.reset(); },
       "job.model.profiled.measured_gpu: unset; must be set"},
      {[](JobSpec& job) { RunOf(job).measured_gpu_count.reset(); },
       "job.model.profiled.measured_gpu_count: unset; must be set"},
      {[](JobSpec& job) { RunOf(job).first_step = {}; },
       "job.model.profiled.first_step: unset; must have the peaks of at least one phase"},
      {[](JobSpec& job) { RunOf(job).steady_step = {}; },
       "job.model.profiled.steady_step: unset; must have the peaks of at least one phase"},
      {[](JobSpec& job) { RunOf(job).steady_step.forward.reserved_bytes.reset(); },
       "job.model.profiled.steady_step.forward.reserved_bytes: unset; must be set"},
      {[](JobSpec& job) { RunOf(job).communicator_stride.pop_back(); },
       "job.model.profiled.communicator_stride: 1 numbers; must be 2, one for each of "
       "communicator_size"},
  };
  for (const auto& [edit, refusal] : cases) {
    JobSpec job = ProfiledJob();
    edit(job);
    EXPECT_THAT(Refusals(job), Contains(refusal));
  }
}

TEST(ValidateProfiledTest, RefusesARunThatContradictsItself) {
  const Case cases[] = {
      {[](JobSpec& job) { RunOf(job).measured_gpu = "h1000"; },
       "job.model.profiled.measured_gpu: h1000; must be one of"},
      {[](JobSpec& job) { RunOf(job).measured_rank = 16; },
       "job.model.profiled.measured_rank: 16; must be below measured_gpu_count 16"},
      {[](JobSpec& job) { RunOf(job).measured_framework = "jax"; },
       "job.model.profiled.measured_framework: jax; "},
      {[](JobSpec& job) { RunOf(job).torch_version = "new"; },
       "job.model.profiled.torch_version: new; must be a version such as 2.15.0"},
      {[](JobSpec& job) { RunOf(job).communicator_size[1] = 32; },
       "job.model.profiled.communicator_size[1]: 32; must be from 2 to measured_gpu_count 16"},
      {[](JobSpec& job) { RunOf(job).communicator_stride[1] = 3; },
       "job.model.profiled.communicator_stride[1]: 3; must be from 1 to 2, for 8 of 16 ranks"},
      {[](JobSpec& job) { RunOf(job).communicator_size.assign(65, 2); },
       "job.model.profiled.communicator_size: 65 numbers; must be at most 64"},
      {[](JobSpec& job) { RunOf(job).parameter_counts["bf16"] = -1; },
       "job.model.profiled.parameter_counts.bf16: -1; must be from 0 to 1125899906842624"},
      {[](JobSpec& job) { RunOf(job).steady_step.backward = PeakOf(2, 1); },
       "job.model.profiled.steady_step.backward.reserved_bytes: 1; must be at least "
       "allocated_bytes 2"},
  };
  for (const auto& [edit, refusal] : cases) {
    JobSpec job = ProfiledJob();
    edit(job);
    EXPECT_THAT(Refusals(job), Contains(StartsWith(refusal)));
  }
}

}  // namespace
}  // namespace plimsoll
