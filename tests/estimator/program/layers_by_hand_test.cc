// Which block each layer of a network is, and what stands in front of the first: names by hand for
// networks of several kinds of layers, rows of embeddings, and masks that recomputation holds.
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "estimator/job/layer_kinds.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

// The name of the block that each layer is.
std::vector<std::string> LayersOf(const JobSpec& job) {
  const ValidJob valid = Valid(job);
  const Program program = Lowered(valid);
  std::vector<std::string> names;
  for (int64_t layer = 0; layer < valid->model->layer_count; ++layer) {
    std::vector<std::string> are;
    for (const Block& block : program.blocks) {
      if (block.kind == BlockKind::kLayer && block.layers.Has(layer)) {
        are.emplace_back(block.name);
      }
    }
    names.push_back(absl::StrJoin(are, " and "));
  }
  return names;
}

LayerSet Of(std::initializer_list<int64_t> layers) {
  LayerSet set;
  for (const int64_t layer : layers) set.List(layer);
  return set;
}

StateSpace SmallStates(std::initializer_list<int64_t> layers) {
  return {.head_count = 4, .head_size = 16, .state_size = 16, .layers = Of(layers)};
}

TEST(LayersByHandTest, LayersOfOneKindAreOneBlock) {
  EXPECT_THAT(LayersOf(SmallJob()), ElementsAre("layer", "layer", "layer", "layer"));
  const JobSpec experts = WithModel(SmallJob(), [](Transformer& model) {
    model.experts = {.count = 4, .active_count = 2, .ffn_size = 32};
  });
  EXPECT_THAT(LayersOf(experts), ElementsAre("layer", "layer", "layer", "layer"));
}

TEST(LayersByHandTest, MixersAndExpertsTellLayersApart) {
  const JobSpec behind_one = WithModel(SmallJob(), [](Transformer& model) {
    model.experts = {.count = 4, .active_count = 2, .ffn_size = 32, .layers = {.begin = 1}};
  });
  EXPECT_THAT(LayersOf(behind_one),
              ElementsAre("layer", "expert layer", "expert layer", "expert layer"));
  const JobSpec linear = WithModel(SmallJob(), [](Transformer& model) {
    model.linear = {.key_head_count = 2,
                    .value_head_count = 4,
                    .key_size = 8,
                    .value_size = 8,
                    .kernel_size = 4,
                    .layers = {.period = 4, .to = 3}};
  });
  EXPECT_THAT(LayersOf(linear),
              ElementsAre("linear layer", "linear layer", "linear layer", "layer"));
  const JobSpec both = WithModel(linear, [](Transformer& model) {
    model.experts = {.count = 4, .active_count = 2, .ffn_size = 32, .layers = Of({1, 3})};
  });
  EXPECT_THAT(LayersOf(both),
              ElementsAre("linear layer", "linear expert layer", "linear layer", "expert layer"));
  const JobSpec states = WithModel(SmallJob(), [](Transformer& model) {
    model.state_space = SmallStates({0, 2});
  });
  EXPECT_THAT(LayersOf(states),
              ElementsAre("state-space layer", "layer", "state-space layer", "layer"));
}

// Nemotron-H's layers are one sublayer each.
TEST(LayersByHandTest, SublayersAreLayersOfTheirOwn) {
  const JobSpec job = WithModel(SmallJob(), [](Transformer& model) {
    model.layer_count = 6;
    model.one_sublayer = true;
    model.state_space = SmallStates({0, 2});
    model.attended = Of({3});
    model.experts = {.count = 4, .active_count = 2, .ffn_size = 32, .layers = Of({4})};
  });
  EXPECT_THAT(LayersOf(job), ElementsAre("state-space layer", "MLP layer", "state-space layer",
                                         "attention layer", "expert layer", "MLP layer"));
}

// Windows tell layers apart where SDPA has a mask for them: longer sequences than the window, in
// transformers' classes, unless a job says which kernel there is.
TEST(LayersByHandTest, WindowsTellLayersApartWhereTheyHaveMasks) {
  const auto windowed = [](int64_t window, const char* framework) {
    return WithModel(With(SmallJob(), framework), [window](Transformer& model) {
      model.sliding_window = window;
      model.windowed = {.period = 2};
    });
  };
  JobSpec job = windowed(8, "ddp");
  EXPECT_THAT(LayersOf(job), ElementsAre("windowed layer", "layer", "windowed layer", "layer"));
  job.training.attention = "flash";
  EXPECT_THAT(LayersOf(job), ElementsAre("layer", "layer", "layer", "layer"));
  for (const JobSpec& other : {windowed(4096, "ddp"), windowed(8, "megatron-core")}) {
    EXPECT_THAT(LayersOf(other), ElementsAre("layer", "layer", "layer", "layer"));
  }
}

// Whatever the network, each layer is one block's, blocks of layers are of different kinds, and the
// ends are what they are.
TEST(LayersByHandTest, EachLayerOfARandomNetworkIsOneBlocks) {
  std::mt19937_64 random(20261127);
  for (int round = 0; round < Rounds(300); ++round) {
    const JobSpec job = RandomJob(random);
    const ValidJob valid = Valid(job);
    if (valid->model == nullptr) continue;
    const Program program = Lowered(valid);
    ASSERT_GE(program.blocks.size(), 3u);
    EXPECT_EQ(program.blocks.front().kind, BlockKind::kEmbedding);
    EXPECT_EQ(program.blocks.back().kind, BlockKind::kHead);
    int64_t layers = 0;
    for (const Block& block : program.blocks) {
      if (block.kind != BlockKind::kLayer) continue;
      layers += block.layers.CountOf(valid->model->layer_count);
      const LayerKind kind = KindOf(*valid, block.layers.First());
      for (int64_t layer = 0; layer < valid->model->layer_count; ++layer) {
        EXPECT_EQ(block.layers.Has(layer), KindOf(*valid, layer) == kind) << block.name;
      }
    }
    EXPECT_EQ(layers, valid->model->layer_count);
  }
}

// Of more than 3072 tokens rows are summed up in fp32 before they are added: a row of each ten
// tokens, and one of each token that may be another's alone, of which there are no more than the
// table has. Source: aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu.
TEST(LayersByHandTest, RowsOfAnEmbeddingsGradient) {
  struct Row {
    int64_t sequences, length, vocabulary, rows;  // 0: summed in place
  };
  for (const Row& row :
       {Row{1, 3072, 1000, 0}, Row{1, 3073, 1000, 307 + 1000}, Row{2, 2048, 50000, 409 + 4096},
        Row{3, 1024, 50000, 0}, Row{4, 4096, 50000, 1638 + 16384},
        Row{4, 4096, 16384, 1638 + 16384}, Row{4, 4096, 16383, 1638 + 16383}}) {
    JobSpec job = With(SmallJob(), "ddp");
    Shape(job).vocab_size = row.vocabulary;
    job.training.micro_batch_size = row.sequences;
    job.training.sequence_length = row.length;
    const Program program = Lowered(Valid(job));
    const Block& block = FindBlock(program, "embedding");
    int64_t bytes = 0;
    for (const TensorId id : FindOp(block, "embedding.lookup").backward_temporaries) {
      bytes += block.tensors[id].Bytes();
    }
    EXPECT_EQ(bytes, row.rows * 64 * 4) << row.length;
  }
}

// What layers that run again are given is held from the first of them on.
// Source: transformers masking_utils.py, eager_mask and sdpa_mask.
TEST(LayersByHandTest, MasksAreHeldForLayersThatRunAgain) {
  struct Row {
    const char* name;
    bool recomputed;
    const char* attention;
    int64_t windowed;  // of four layers
    std::vector<std::string> masks;
  };
  const int64_t tokens = 32;
  const std::string eager = absl::StrCat(2 * tokens * tokens * 2);  // B 2, 16 bits
  const std::string sdpa = absl::StrCat(tokens * tokens);           // a byte each
  const Row rows[] = {
      {"kept", false, "eager", 0, {}},
      {"eager", true, "eager", 0, {"attention.mask " + eager}},
      {"eager, some windowed",
       true,
       "eager",
       2,
       {"windows.mask " + eager, "attention.mask " + eager}},
      {"eager, all windowed", true, "eager", 4, {"windows.mask " + eager}},
      {"SDPA, none windowed", true, "", 0, {}},
      {"SDPA, some windowed", true, "", 2, {"windows.mask " + sdpa}},
      {"flash, some windowed", true, "flash", 2, {}},
  };
  for (const Row& row : rows) {
    JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
    if (row.recomputed) job.training.recompute.mode = "full";
    if (*row.attention != '\0') job.training.attention = row.attention;
    job = WithModel(job, [&row](Transformer& model) {
      if (row.windowed == 0) return;
      model.sliding_window = 8;
      model.windowed = {.end = row.windowed};
    });
    const Program program = Lowered(Valid(job));
    std::vector<std::string> masks;
    for (const Tensor& tensor : FindBlock(program, "embedding").tensors) {
      if (tensor.name.find("mask") == absl::string_view::npos) continue;
      masks.push_back(absl::StrCat(tensor.name, " ", tensor.Bytes()));
    }
    EXPECT_EQ(masks, row.masks) << row.name;
  }
}

// OPT's narrow table is projected; BLOOM's norm and dropout stand behind what is summed.
TEST(LayersByHandTest, WhatStandsBehindTheTables) {
  const auto ops = [](const JobSpec& job) {
    const Program program = Lowered(Valid(job));
    std::vector<std::string> names;
    for (const Op& op : FindBlock(program, "embedding").ops) names.emplace_back(op.name);
    return names;
  };
  const JobSpec opt = WithModel(SmallJob(), [](Transformer& model) { model.embedding_size = 24; });
  EXPECT_THAT(ops(opt), ElementsAre("embedding.lookup", "embedding.project"));
  const Program program = Lowered(Valid(opt));
  const Block& block = FindBlock(program, "embedding");
  EXPECT_EQ(InNumbers(FindParameter(block, "embedding.tokens.weight").shape), "[256, 24]");
  EXPECT_EQ(InNumbers(FindParameter(block, "embedding.project.weight").shape), "[64, 24]");
  const JobSpec bloom = WithModel(SmallJob(), [](Transformer& model) {
    model.norm = Norm::kLayerNorm;
    model.embedding_norm = true;
    model.embedding_dropout = 0.1;
  });
  EXPECT_THAT(ops(bloom), ElementsAre("embedding.lookup", "embedding.norm", "embedding.dropout"));
}

}  // namespace
}  // namespace plimsoll
