// The pass in words: logits and loss a slice of the sequence at a time, and the
// hidden state's gradient summed in fp32 beside them.
#include "estimator/program/describe.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

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
  ASSERT_EQ(head.buffers.size(), 1u);
  EXPECT_EQ(head.buffers[0].name, "head.hidden.gradient");
  EXPECT_EQ(head.buffers[0].backward_bytes, 4 * 2 * 32 * 64);
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
