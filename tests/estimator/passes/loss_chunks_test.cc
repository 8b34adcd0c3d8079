// The pass in words: logits and loss a slice of the sequence at a time, and the
// hidden state's gradient summed in fp32 beside them.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "estimator/program/describe.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/tensors.h"

namespace plimsoll {
namespace {

JobSpec Job(int64_t chunks) {
  JobSpec job = With(SmallJob(), "fsdp2");
  job.training.loss.implementation = "chunked";
  job.training.loss.chunk_count = chunks;
  return job;
}

TEST(LossChunksTest, CutsWhatIsAsWideAsTheVocabulary) {
  const Program program = ProgramAfter(Valid(Job(4)), PassId::kLossChunks);
  const Block& head = FindBlock(program, "head");
  for (const char* name : {"head.logits", "loss.logits.fp32", "loss.log_softmax"}) {
    EXPECT_EQ(InSymbols(FindTensor(head, name).shape), "[B, S/chunks, V]") << name;
    EXPECT_EQ(InNumbers(FindTensor(head, name).shape), "[2, 8, 256]") << name;
    EXPECT_EQ(FindTensor(head, name).shrunk_by, Mark(PassId::kLossChunks)) << name;
  }
  EXPECT_EQ(InNumbers(FindTensor(head, "final.input").shape), "[2, 32, 64]") << "whole";
}

TEST(LossChunksTest, SumsTheHiddenGradientInFp32) {
  const Program program = ProgramAfter(Valid(Job(4)), PassId::kLossChunks);
  const Block& head = FindBlock(program, "head");
  ASSERT_EQ(head.buffers.size(), 2u) << "and the weight's";
  EXPECT_EQ(head.buffers[0].name, "head.hidden.gradient");
  EXPECT_EQ(head.buffers[0].backward.bytes, 4 * 2 * 32 * 64);
}

// Source: torchtitan components/loss.py, ChunkedLossWrapper (set_requires_gradient_sync).
TEST(LossChunksTest, SumsWeightGradientsUntilTheLastSlice) {
  const Program program = ProgramAfter(Valid(Job(4)), PassId::kLossChunks);
  const Block& head = FindBlock(program, "head");
  ASSERT_EQ(head.buffers.size(), 2u);
  EXPECT_EQ(head.buffers[1].name, "head.weight.gradient.sum");
  EXPECT_EQ(head.buffers[1].forward.bytes, 0);
  EXPECT_EQ(head.buffers[1].backward.bytes, 4 * 256 * 64);
  JobSpec replicated = Job(4);
  replicated.runtime.framework = "ddp";
  EXPECT_EQ(FindBlock(ProgramAfter(Valid(replicated), PassId::kLossChunks), "head").buffers.size(),
            1u)
      << "its gradients stand anyway";
}

// Source: pytorch #197203.
TEST(LossChunksTest, ASlicesGradientsAreWidenedBeforeTheyAreAdded) {
  JobSpec job = Job(4);
  for (const auto& [torch, widens] :
       {std::pair("2.14", false), std::pair("2.15", true), std::pair("", true)}) {
    job.runtime.versions.erase("torch");
    if (*torch != 0) job.runtime.versions["torch"] = torch;
    const Program program = ProgramAfter(Valid(job), PassId::kLossChunks);
    const Block& head = FindBlock(program, "head");
    const auto names = Names(head, FindOp(head, "head").backward_temporaries);
    EXPECT_EQ(std::count(names.begin(), names.end(), "head.weight.gradient.cast"), widens) << torch;
  }
}

TEST(LossChunksTest, ASlicesLogitsStandWhileItsLossRunsBackward) {
  const Program program = ProgramAfter(Valid(Job(4)), PassId::kLossChunks);
  const Block& head = FindBlock(program, "head");
  const std::vector<std::string> names = Names(head, FindOp(head, "loss.logits.fp32").saved);
  EXPECT_EQ(std::count(names.begin(), names.end(), "head.logits"), 1);
}

// Of one sequence a slice is a part of the hidden states, of several a part of their copy; its
// gradient is as long as itself. Source: torchtitan components/loss.py, _chunk_local.
TEST(LossChunksTest, ASliceHasAGradientOfItsOwn) {
  JobSpec job = Job(4);
  const Block two = FindBlock(ProgramAfter(Valid(job), PassId::kLossChunks), "head");
  EXPECT_EQ(InNumbers(FindTensor(two, "head.slice").shape), "[2, 8, 64]");
  EXPECT_EQ(two.tensors[FindTensor(two, "head.slice").storage].name, "head.slices");
  EXPECT_EQ(FindOp(two, "head").inputs.ids[0], FindOp(two, "head.slice").outputs.ids[0]);
  job.training.micro_batch_size = 1;
  const Block one = FindBlock(ProgramAfter(Valid(job), PassId::kLossChunks), "head");
  const Tensor& storage = one.tensors[FindTensor(one, "head.slice").storage];
  EXPECT_EQ(InNumbers(storage.shape), "[1, 32, 64]") << "what the final norm gave";
  EXPECT_NE(storage.name, "head.slices");
}

// Source: torchtitan #3362, components/loss.py (torch._check).
TEST(LossChunksTest, TorchtitansSlicesAreOfOneLength) {
  JobSpec job = Job(5);
  job.runtime.trainer = "torchtitan";
  EXPECT_THAT(Refusals(job), testing::ElementsAre("job.training.loss.chunk_count: 5; must divide "
                                                  "the 32 tokens of a sequence that a rank has"));
  job.runtime.versions["torchtitan"] = "2026.5";
  EXPECT_THAT(Refusals(job), testing::IsEmpty());
}

// Source: torchtitan #2937, models/llama3/config_registry.py.
TEST(LossChunksTest, AreTorchtitansWhereNothingElseIsSaid) {
  JobSpec job = With(SmallJob(), "fsdp2");
  job.runtime.trainer = "torchtitan";
  for (const auto& [month, loss] : {std::pair("2026.4", LossImplementation::kPlain),
                                    std::pair("2026.5", LossImplementation::kChunked)}) {
    job.runtime.versions["torchtitan"] = month;
    EXPECT_EQ(Valid(job)->loss, loss) << month;
  }
}

// The last slice may be shorter; the largest counts.
TEST(LossChunksTest, RoundsUp) {
  const Program program = ProgramAfter(Valid(Job(5)), PassId::kLossChunks);
  EXPECT_EQ(InNumbers(FindTensor(FindBlock(program, "head"), "head.logits").shape), "[2, 7, 256]");
}

TEST(LossChunksTest, OneChangesNothing) {
  const ValidJob job = Valid(With(SmallJob(), "fsdp2"));
  EXPECT_EQ(Describe(ProgramAfter(job, PassId::kLossChunks)),
            Describe(ProgramAfter(job, PassId::kSequenceParallel)));
}

// With a large vocabulary the whole peak goes down.
TEST(LossChunksTest, LowersThePeakOfALargeVocabulary) {
  JobSpec plain = With(SmallJob(), "fsdp2");
  JobSpec chunked = Job(8);
  for (JobSpec* job : {&plain, &chunked}) {
    Shape(*job).vocab_size = 128256;
    job->training.sequence_length = 4096;
  }
  EXPECT_LT(PeakBytes(chunked), PeakBytes(plain) / 2);
}

}  // namespace
}  // namespace plimsoll
