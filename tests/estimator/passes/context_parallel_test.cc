// The pass in words: what each rank has of a sequence.
#include <string>
#include <vector>

#include "estimator/program/describe.h"
#include "gtest/gtest.h"
#include "tests/testing/tensors.h"

namespace plimsoll {
namespace {

TEST(ContextParallelTest, SplitsTheSequence) {
  const Program program = Exchanged(2);
  ExpectShapes(FindBlock(program, "embedding"), {{"embedding.tokens", "[B, S/cp]", "[2, 16]"},
                                                 {"embedding.sum", "[B, S/cp, H]", "[2, 16, 64]"}});
  ExpectShapes(FindBlock(program, "layer"),
               {{"layer.input", "[B, S/cp, H]", "[2, 16, 64]"},
                {"attention.query.rotated", "[B, S/cp, A]", "[2, 16, 64]"},
                {"attention.key.rotated", "[B, S/cp, C]", "[2, 16, 32]"},
                {"attention.out.activation", "[B, S/cp, H]", "[2, 16, 64]"},
                {"mlp.product.activation", "[B, S/cp, F]", "[2, 16, 128]"}});
  ExpectShapes(FindBlock(program, "head"),
               {{"head.logits", "[B, S/cp, V]", "[2, 16, 256]"}, {"loss", "[B, S/cp]", "[2, 16]"}});
}

TEST(ContextParallelTest, StandsBesideTensorAndSequenceParallelism) {
  JobSpec job = WithSequenceParallelism(OverContext("fsdp2", 2), 2);
  job.cluster.gpu_count = 4;
  const Program program = ProgramAfter(Valid(job), PassId::kSequenceParallel);
  ExpectShapes(FindBlock(program, "layer"),
               {{"layer.input", "[B, S/cp/tp, H]", "[2, 8, 64]"},
                {"attention.query.exchanged", "[B, S, A/cp/tp]", "[2, 32, 16]"},
                {"attention.context.exchanged", "[B, S/cp, A/tp]", "[2, 16, 32]"},
                {"mlp.product.activation", "[B, S/cp, F/tp]", "[2, 16, 64]"}});
}

TEST(ContextParallelTest, OneRankChangesNothing) {
  const ValidJob job = Valid(OverContext("deepspeed", 1));
  EXPECT_EQ(Describe(ProgramAfter(job, PassId::kContextParallel)),
            Describe(ProgramAfter(job, PassId::kTensorParallel)));
}

}  // namespace
}  // namespace plimsoll
