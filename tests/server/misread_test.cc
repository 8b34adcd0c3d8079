// Which refusals follow from a part of the request that could not be read.
#include "server/misread.h"

#include <string>

#include "gtest/gtest.h"

namespace plimsoll {
namespace {

const Violation kGpuCountIsText = {"job.cluster.gpu_count", "\"many\"",
                                   "must be an integer of 64 bits"};
const Violation kMisspelt = {"job.training.sequenceLenght", "1",
                             "no such field, did you mean sequence_length"};
const Violation kElsewhere = {"job.training.gpuCount", "8",
                              "no such field here, it is job.cluster.gpu_count"};
const Violation kPlanned = {"job.training.peft", "an object", "not modelled yet"};
const Violation kOneOfAList = {"job.parallelism.pipeline_layout[1]", "null",
                               "must be an integer of 64 bits"};
const Violation kModelIsText = {"job.model", "\"gpt2\"", "must be an object"};
const Violation kFrameworkIsANumber = {"job.runtime.framework", "7", "must be a string"};

TEST(FollowsFromTest, NothingFollowsFromNothing) {
  EXPECT_FALSE(FollowsFrom({}, {"job.model", "unset", "must be set"}));
}

TEST(FollowsFromTest, EverythingFollowsFromTheWhole) {
  const Violations misread = {{"request", "7", "must be an object"}};
  EXPECT_TRUE(FollowsFrom(misread, {"job.model", "unset", "must be set"}));
  EXPECT_TRUE(FollowsFrom(misread, {"job.training.sequence_length", "unset", "must be set"}));
}

TEST(FollowsFromTest, KnowsWhatWasLost) {
  const struct {
    Violation misread;
    Violation violation;
    bool follows;
  } kCases[] = {
      // At the field itself, or below it.
      {kGpuCountIsText, {"job.cluster.gpu_count", "unset", "must be set"}, true},
      {kModelIsText, {"job.model.name", "unset", "must be set"}, true},
      {kModelIsText, {"job.model", "unset", "must be set"}, true},
      {kModelIsText, {"job.models", "7", "must be 8"}, false},
      {kGpuCountIsText, {"job.cluster.gpu", "x", "is not known"}, false},
      // A list is lost as a whole.
      {kOneOfAList, {"job.parallelism.pipeline_layout", "unset", "must be set"}, true},
      {kOneOfAList, {"job.parallelism.zero_stage", "9", "must be 0 to 3"}, false},
      // What the misspelt name stands for, where that is unset.
      {kMisspelt, {"job.training.sequence_length", "unset", "must be set"}, true},
      {kMisspelt, {"job.training.micro_batch_size", "0", "must be at least 1"}, false},
      {kElsewhere, {"job.cluster.gpu_count", "unset", "must be set"}, true},
      {kElsewhere, {"job.cluster.gpu_count", "9", "must be at most 8"}, false},
      // A rule that speaks of it.
      {kGpuCountIsText, {"job.cluster.gpus_per_node", "9", "must divide gpu_count 8"}, true},
      {kMisspelt,
       {"job.model.transformer.position_count", "9", "must be at least sequence_length 16"},
       true},
      {kMisspelt, {"job.cluster.gpus_per_node", "9", "must divide gpu_count 8"}, false},
      // Degrees follow from one another.
      {kGpuCountIsText,
       {"job.parallelism.zero_stage", "3", "must be 0 with data_parallel_size 1"},
       true},
      {kMisspelt,
       {"job.parallelism.zero_stage", "3", "must be 0 with data_parallel_size 1"},
       false},
      // A framework that was guessed.
      {kFrameworkIsANumber,
       {"job.parallelism.zero_stage", "2", "must be 0 or 1 with megatron-core"},
       true},
      {kMisspelt, {"job.parallelism.zero_stage", "2", "must be 0 or 1 with megatron-core"}, false},
      // What is planned has no name that others may speak of.
      {kPlanned, {"job.training.optimizer.name", "x", "must be adam with peft"}, false},
      {kPlanned, {"job.training.peft", "unset", "must be set"}, true},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(FollowsFrom({test.misread}, test.violation), test.follows)
        << ToText(test.misread) << "\n"
        << ToText(test.violation);
  }
}

TEST(FollowsFromTest, OneOfSeveralIsEnough) {
  const Violation violation = {"job.cluster.gpu_count", "unset", "must be set"};
  EXPECT_FALSE(FollowsFrom({kMisspelt, kModelIsText}, violation));
  EXPECT_TRUE(FollowsFrom({kMisspelt, kModelIsText, kGpuCountIsText}, violation));
}

}  // namespace
}  // namespace plimsoll
