// Which refusals follow from a part of the request that could not be read.
#include "server/wire/misread.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace plimsoll {
namespace {

using Code = ViolationCode;

const Violation kGpuCountIsText = {"job.cluster.gpu_count", "\"many\"",
                                   "must be an integer of 64 bits", Code::kMalformed};
const Violation kMisspelt = {.field = "job.training.sequenceLenght",
                             .value = "1",
                             .rule = "no such field, did you mean sequence_length",
                             .code = Code::kUnknownField,
                             .meant = "job.training.sequence_length"};
const Violation kElsewhere = {.field = "job.training.gpuCount",
                              .value = "8",
                              .rule = "no such field here, it is job.cluster.gpu_count",
                              .code = Code::kUnknownField,
                              .meant = "job.cluster.gpu_count"};
const Violation kPlanned = {"job.training.peft", "an object", "not modelled yet",
                            Code::kNotModelled};
const Violation kOneOfAList = {"job.parallelism.pipeline_layout[1]", "null",
                               "must be an integer of 64 bits", Code::kMalformed};
const Violation kModelIsText = {"job.model", "\"gpt2\"", "must be an object", Code::kMalformed};
const Violation kFrameworkIsANumber = {"job.runtime.framework", "7", "must be a string",
                                       Code::kMalformed};
const Violation kClusterIsText = {"job.cluster", "\"8\"", "must be an object", Code::kMalformed};

Violation Missing(const char* field) { return {field, "unset", "must be set", Code::kMissing}; }

// A rule that weighs the field against others; its words are nobody's to read.
Violation Weighed(const char* field, std::vector<std::string> others) {
  return {field, "9", "must be otherwise", Code::kConflict, std::move(others)};
}

TEST(FollowsFromTest, NothingFollowsFromNothing) {
  EXPECT_FALSE(FollowsFrom({}, Missing("job.model")));
}

TEST(FollowsFromTest, EverythingFollowsFromTheWhole) {
  const Violations misread = {{"request", "7", "must be an object", Code::kMalformed}};
  EXPECT_TRUE(FollowsFrom(misread, Missing("job.model")));
  EXPECT_TRUE(FollowsFrom(misread, Missing("job.training.sequence_length")));
}

TEST(FollowsFromTest, KnowsWhatWasLost) {
  const struct {
    Violation misread;
    Violation violation;
    bool follows;
  } kCases[] = {
      // At the field itself, or below it.
      {kGpuCountIsText, Missing("job.cluster.gpu_count"), true},
      {kModelIsText, Missing("job.model.name"), true},
      {kModelIsText, Missing("job.model"), true},
      {kModelIsText, Weighed("job.models", {}), false},
      {kGpuCountIsText, Weighed("job.cluster.gpu", {}), false},
      // A list is lost as a whole.
      {kOneOfAList, Missing("job.parallelism.pipeline_layout"), true},
      {kOneOfAList, Weighed("job.parallelism.zero_stage", {}), false},
      // What the misspelt name stands for, where that is missing.
      {kMisspelt, Missing("job.training.sequence_length"), true},
      {kMisspelt, Weighed("job.training.micro_batch_size", {}), false},
      {kElsewhere, Missing("job.cluster.gpu_count"), true},
      {kElsewhere, Weighed("job.cluster.gpu_count", {}), false},
      // A rule that weighs it.
      {kGpuCountIsText, Weighed("job.cluster.gpus_per_node", {"cluster.gpu_count"}), true},
      {kMisspelt, Weighed("job.model.transformer.position_count", {"training.sequence_length"}),
       true},
      {kMisspelt, Weighed("job.cluster.gpus_per_node", {"cluster.gpu_count"}), false},
      {kModelIsText, Weighed("job.training.loss.chunk_count", {"model.transformer.head_count"}),
       true},
      // Degrees follow from one another.
      {kGpuCountIsText, Weighed("job.parallelism.zero_stage", {"parallelism.data_parallel_size"}),
       true},
      {kClusterIsText, Weighed("job.parallelism.zero_stage", {"parallelism.data_parallel_size"}),
       true},
      {kMisspelt, Weighed("job.parallelism.zero_stage", {"parallelism.data_parallel_size"}), false},
      // A framework that was guessed.
      {kFrameworkIsANumber, Weighed("job.parallelism.zero_stage", {"runtime.framework"}), true},
      {kMisspelt, Weighed("job.parallelism.zero_stage", {"runtime.framework"}), false},
      // What is planned stands for no field that others may weigh.
      {kPlanned, Weighed("job.training.optimizer.name", {"training"}), false},
      {kPlanned, Missing("job.training.peft"), true},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(FollowsFrom({test.misread}, test.violation), test.follows)
        << ToText(test.misread) << "\n"
        << ToText(test.violation);
  }
}

TEST(FollowsFromTest, OneOfSeveralIsEnough) {
  const Violation violation = Missing("job.cluster.gpu_count");
  EXPECT_FALSE(FollowsFrom({kMisspelt, kModelIsText}, violation));
  EXPECT_TRUE(FollowsFrom({kMisspelt, kModelIsText, kGpuCountIsText}, violation));
}

TEST(WithRefusedTest, AddsWhatDoesNotFollow) {
  EXPECT_EQ(ToText(WithRefused({kGpuCountIsText}, {Missing("job.cluster.gpu_count"),
                                                   Missing("job.training.sequence_length")})),
            "job.cluster.gpu_count: \"many\"; must be an integer of 64 bits\n"
            "job.training.sequence_length: unset; must be set");
}

}  // namespace
}  // namespace plimsoll
