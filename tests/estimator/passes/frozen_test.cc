// The pass in words: which weights are trained, and what is kept of layers.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/estimator/passes/adapted.h"

namespace plimsoll {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Four layers, with biases of queries, keys and values; tables of their own.
JobSpec Job(std::vector<std::string> modules) {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  Shape(job).qkv_bias = true;
  Shape(job).tied_embeddings = false;
  job.training.trained.modules = std::move(modules);
  return job;
}

JobSpec LastOf(JobSpec job, int64_t layer_count) {
  job.training.trained.layer_count = layer_count;
  return job;
}

Program Frozen(const JobSpec& job) { return ProgramAfter(Valid(job), PassId::kFrozen); }

// Of each part what is trained, in the first block of each kind.
TEST(FrozenTest, PartsAreNamed) {
  struct Case {
    const char* part;
    std::vector<std::string> of_layer;
  };
  const Case cases[] = {
      {"attention",
       {"attention.query.weight", "attention.query.bias", "attention.key.weight",
        "attention.key.bias", "attention.value.weight", "attention.value.bias",
        "attention.out.weight"}},
      {"norm", {"attention.norm.weight", "mlp.norm.weight"}},
      {"bias", {"attention.query.bias", "attention.key.bias", "attention.value.bias"}},
  };
  for (const Case& at : cases) {
    const Program program = Frozen(Job({at.part}));
    std::vector<std::string> trained = Trained(FindBlock(program, "first layer"));
    std::sort(trained.begin(), trained.end());
    std::vector<std::string> expected = at.of_layer;
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(trained, expected) << at.part;
    EXPECT_THAT(Trained(FindBlock(program, "embedding")), IsEmpty()) << at.part;
  }
  const Program mlp = Frozen(Job({"mlp"}));
  EXPECT_THAT(Trained(FindBlock(mlp, "layer")), Each(HasSubstr("mlp.")));
  const Program ends = Frozen(Job({"embedding", "head"}));
  EXPECT_THAT(Trained(FindBlock(ends, "embedding")), ElementsAre("embedding.tokens.weight"));
  EXPECT_THAT(Trained(FindBlock(ends, "layer")), IsEmpty());
  EXPECT_THAT(Trained(FindBlock(ends, "head")), ElementsAre("head.weight"));
}

// A frozen product does not keep what it reads, one of whose bias alone is trained neither; what
// passes gradients on keeps the rest.
TEST(FrozenTest, FrozenProductsKeepNoInput) {
  const Program biases = Frozen(Job({"bias"}));
  const std::vector<std::string> kept = Saved(FindBlock(biases, "layer"));
  EXPECT_THAT(kept, Not(Contains("mlp.product")));
  EXPECT_THAT(kept, Not(Contains("mlp.norm")));
  EXPECT_THAT(kept, Contains("attention.query.rotated"));  // of attention itself
  const Program mlps = Frozen(Job({"mlp"}));
  EXPECT_THAT(Saved(FindBlock(mlps, "layer")), Contains("mlp.norm"));
  EXPECT_THAT(Saved(FindBlock(mlps, "layer")), Not(Contains("attention.norm")));
}

// Below what is trained nothing is kept, unless the embedding is trained too.
TEST(FrozenTest, LayersBelowKeepNothing) {
  const std::vector<std::string> layers = {"attention", "mlp", "norm"};
  const Program program = Frozen(LastOf(Job(layers), 1));
  const Block& below = FindBlock(program, "frozen layer");
  EXPECT_EQ(below.layers.CountOf(4), 3);
  EXPECT_THAT(Saved(below), IsEmpty());
  EXPECT_FALSE(below.tensors[below.output].differentiable);
  EXPECT_FALSE(FindBlock(program, "first layer").tensors[below.input].differentiable);
  std::vector<std::string> with_embedding = layers;
  with_embedding.emplace_back("embedding");
  const Program passed = Frozen(LastOf(Job(with_embedding), 1));
  const Block& passes = FindBlock(passed, "layer below");
  EXPECT_EQ(passes.layers.CountOf(4), 3);
  EXPECT_THAT(Trained(passes), IsEmpty());
  EXPECT_THAT(Saved(passes), Contains("attention.query.rotated"));
}

// A head alone keeps what its product reads, and no layer anything.
TEST(FrozenTest, AHeadAlone) {
  const Program program = Frozen(Job({"head"}));
  for (const Block& block : program.blocks) {
    if (block.kind == BlockKind::kLayer && block.layers.CountOf(4) > 0) {
      EXPECT_THAT(Saved(block), IsEmpty()) << block.name;
    }
  }
  const Block& head = FindBlock(program, "head");
  EXPECT_FALSE(head.tensors[head.input].differentiable);
  EXPECT_THAT(Saved(head), Contains("final.norm"));
}

// A table that both ends share goes by the embedding.
TEST(FrozenTest, ASharedTableIsTheEmbeddings) {
  JobSpec job = Job({"head", "norm"});
  Shape(job).tied_embeddings = true;
  EXPECT_THAT(Trained(FindBlock(Frozen(job), "head")), Not(Contains("head.weight")));
  job.training.trained.modules = {"embedding"};
  EXPECT_THAT(Trained(FindBlock(Frozen(job), "head")), Contains("head.weight"));
}

// Frozen weights have no gradients, masters or states; shards of FSDP2 are in the master's dtype.
TEST(FrozenTest, WhatIsFrozenHasWeightsAlone) {
  JobSpec job = Job({"norm"});
  job.training.precision.preset = "bf16-mixed";
  job.runtime.framework = "fsdp2";
  const Program program = ProgramOf(job);
  const State& frozen = *FindState(program, "weights.frozen");
  EXPECT_EQ(frozen.of, Selection::kFrozen);
  EXPECT_EQ(frozen.dtype, DType::kFp32);
  const ParameterSums sums = SumParameters(program, program.stages.front());
  EXPECT_GT(StateBytes(frozen, sums),
            100 * StateBytes(*FindState(program, "master_weights"), sums));
}

TEST(FrozenTest, WithoutItAllIsTrained) {
  JobSpec job = Job({});
  for (const Block& block : Frozen(job).blocks) {
    EXPECT_EQ(Trained(block).size(), block.parameters.size());
  }
}

}  // namespace
}  // namespace plimsoll
