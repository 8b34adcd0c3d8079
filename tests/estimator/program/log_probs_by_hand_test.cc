// The head that makes log-probabilities from tiles of logits, against what its function allocates:
// one tile, sums in fp32, and nothing as wide as the vocabulary but the weight's gradient.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/kept_words.h"

namespace plimsoll {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::Not;

struct Sizes {
  int64_t B, S, H, V;
  int64_t Tokens() const { return B * (S - 1); }  // a sequence's last predicts nothing
  int64_t TileRows() const { return std::min<int64_t>(Tokens(), 4096); }
};

constexpr Sizes kSizes[] = {
    {.B = 2, .S = 40, .H = 112, .V = 1000},
    {.B = 3, .S = 2048, .H = 64, .V = 40000},
    {.B = 1, .S = 4097, .H = 128, .V = 32768},
};

JobSpec JobOf(const Sizes& s, absl::string_view preset = "bf16-pure") {
  JobSpec job = With(SmallJob(), "ddp", preset);
  job.runtime.trainer = "trl";
  TransformerSpec& shape = Shape(job);
  shape.hidden_size = s.H;
  shape.vocab_size = s.V;
  job.training.sequence_length = s.S;
  job.training.micro_batch_size = s.B;
  return job;
}

Block HeadOf(const JobSpec& job) { return FindBlock(Lowered(Valid(job)), "head"); }

int64_t BytesOf(const Block& block, const Ids& ids, absl::string_view name) {
  int64_t bytes = 0;
  for (const TensorId id : ids) {
    if (block.tensors[id].name == name) bytes += block.tensors[id].Bytes();
  }
  return bytes;
}

// save_for_backward: tokens, the weight, targets, the logarithm of each sum and each entropy.
// Before it stands the last norm, of all tokens.
TEST(LogProbsByHandTest, KeepsTokensTargetsAndTwoNumbersOfEach) {
  for (const Sizes& s : kSizes) {
    const std::vector<std::string> kept = KeptBy(HeadOf(JobOf(s)));
    EXPECT_THAT(kept, Contains(absl::StrCat("head.tokens ", s.Tokens() * 2 * s.H)));
    EXPECT_THAT(kept, Contains(absl::StrCat("head.targets ", s.Tokens() * 8)));
    EXPECT_THAT(kept, Contains(absl::StrCat("head.statistics ", s.Tokens() * 2 * 4)));
    int64_t head = 0;
    for (const std::string& line : kept) head += line.rfind("head.", 0) == 0 ? 1 : 0;
    EXPECT_EQ(head, 3) << "and no logits";
  }
}

// torch.empty((min(N, 4096), 32768)): whole, however small the vocabulary is.
TEST(LogProbsByHandTest, ATileIsOfFixedSize) {
  for (const Sizes& s : kSizes) {
    const Block block = HeadOf(JobOf(s));
    const int64_t tile = s.TileRows() * 32768 * 2;
    const Op& forward = FindOp(block, "head.log_probs");
    EXPECT_EQ(BytesOf(block, forward.forward_temporaries, "head.tile"), tile) << s.V;
    EXPECT_EQ(BytesOf(block, forward.backward_temporaries, "head.tile"), tile) << s.V;
    EXPECT_EQ(FindTensor(block, "head.tile").dtype, DType::kBf16);
  }
}

// Under autocast a tile's tokens are cast, and of the weight as many rows as a tile has words.
TEST(LogProbsByHandTest, AutocastCastsSlices) {
  for (const Sizes& s : kSizes) {
    const Block block = HeadOf(JobOf(s, "bf16-autocast"));
    const Op& op = FindOp(block, "head.log_probs");
    const int64_t tokens = s.TileRows() * s.H * 2;
    const int64_t words = std::min<int64_t>(s.V, 32768) * s.H * 2;
    EXPECT_EQ(BytesOf(block, op.forward_temporaries, "head.tile.tokens"), tokens) << s.V;
    EXPECT_EQ(BytesOf(block, op.forward_temporaries, "head.tile.weight"), words) << s.V;
    EXPECT_EQ(BytesOf(block, op.backward_temporaries, "head.tile.weight"), words) << s.V;
    EXPECT_TRUE(FindParameter(block, "head.weight").uncached) << "slices are no whole cast";
  }
}

TEST(LogProbsByHandTest, NothingIsCastInOneDtype) {
  for (const char* const preset : {"bf16-pure", "fp32"}) {
    const Block block = HeadOf(JobOf(kSizes[0], preset));
    for (const Tensor& tensor : block.tensors) {
      EXPECT_NE(tensor.name, "head.tile.tokens") << preset;
      EXPECT_NE(tensor.name, "head.tile.weight") << preset;
      EXPECT_NE(tensor.name, "head.tile.weights") << preset;
    }
  }
}

// grad_hidden and grad_weight are fp32 zeros to begin with; each is cast when backward returns.
TEST(LogProbsByHandTest, GradientsAreSummedInFp32) {
  for (const Sizes& s : kSizes) {
    const Block block = HeadOf(JobOf(s));
    EXPECT_EQ(FindTensor(block, "head.tokens.sum").Bytes(), s.Tokens() * 4 * s.H);
    EXPECT_EQ(FindTensor(block, "head.weight.sum").Bytes(), 4 * s.V * s.H);
    const Block wide = HeadOf(JobOf(s, "fp32"));
    std::vector<std::string> names;
    for (const Tensor& tensor : wide.tensors) names.emplace_back(tensor.name);
    EXPECT_THAT(names, Each(Not(::testing::StrEq("head.weight.sum")))) << "that is its gradient";
  }
}

// The peak of backward: the tile, both sums, what forward kept, and no logits of all tokens; with
// 65536 times as many words as tokens are wide, it is far below what plain logits take.
TEST(LogProbsByHandTest, BackwardHasNoLogits) {
  const Sizes s = {.B = 2, .S = 8192, .H = 64, .V = 131072};
  const auto backward = [](const JobSpec& job) {
    return plimsoll::Run(HeadOf(job), WeightGradient::kFused, DType::kBf16).backward.whole.total;
  };
  JobSpec plain = JobOf(s);
  plain.runtime.trainer.reset();
  const int64_t sums = s.Tokens() * 4 * s.H + 4 * s.V * s.H;
  const int64_t tile = s.TileRows() * 32768 * 2;
  const int64_t tiled = backward(JobOf(s));
  EXPECT_GE(tiled, tile + sums);
  EXPECT_LT(tiled, tile + 2 * sums + s.Tokens() * (8 * s.H + 64));
  EXPECT_GT(backward(plain), s.B * s.S * 12 * s.V);
}

// A frozen head sums nothing up for its weight.
TEST(LogProbsByHandTest, BesideAdaptersTheWeightHasNoSum) {
  JobSpec job = JobOf(kSizes[0]);
  job.training.adapter.method = "lora";
  const Block block = HeadOf(job);
  for (const Tensor& tensor : block.tensors) EXPECT_NE(tensor.name, "head.weight.sum");
}

// The table is the embedding's where they are tied; its shape is what the vocabulary has.
TEST(LogProbsByHandTest, TheWeightIsTheHeads) {
  for (const bool tied : {false, true}) {
    JobSpec job = JobOf(kSizes[0]);
    Shape(job).tied_embeddings = tied;
    const Parameter weight = FindParameter(HeadOf(job), "head.weight");
    EXPECT_EQ(InNumbers(weight.shape), "[1000, 112]");
    EXPECT_EQ(weight.tied, tied);
    EXPECT_EQ(weight.tensor_axis, 0);
  }
}

}  // namespace
}  // namespace plimsoll
