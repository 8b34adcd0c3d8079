// The gated delta rule by itself: what kernels and Python keep, make in passing and multiply, each
// tensor written down from the code that makes it.
#include <algorithm>
#include <cstdint>
#include <memory_resource>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "estimator/program/block_builder.h"
#include "estimator/program/lower_delta_rule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/kept_words.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// O heads of values, each V wide, K heads of keys, each D wide.
struct Sizes {
  int64_t B, S, O, K, D, V;
  int64_t T() const { return B * S; }
  int64_t Chunks() const { return B * ((S + 63) / 64); }
  // Q is keys once each head of values has its own.
  Widths Letters() const {
    return {{'L', K * D}, {'M', O * V}, {'O', O}, {'K', K}, {'Q', O * D}, {'D', D}};
  }
};

constexpr Sizes kSizes[] = {
    {.B = 2, .S = 128, .O = 6, .K = 3, .D = 16, .V = 20},
    {.B = 1, .S = 100, .O = 4, .K = 4, .D = 24, .V = 16},
    {.B = 3, .S = 64, .O = 8, .K = 2, .D = 32, .V = 36},
};

JobSpec JobOf(const Sizes& s, absl::string_view preset = "bf16-pure") {
  JobSpec job = With(SmallJob(), "ddp", preset);
  TransformerSpec& shape = Shape(job);
  shape.linear_value_head_count = s.O;
  shape.linear_key_head_count = s.K;
  shape.linear_key_head_size = s.D;
  shape.linear_value_head_size = s.V;
  job.training.sequence_length = s.S;
  job.training.micro_batch_size = s.B;
  return job;
}

JobSpec InPython(JobSpec job) {
  job.training.linear_attention = "torch";
  return job;
}

// Queries, keys and values side by side, of which gates are made, then the rule.
Block RuleOf(const Job& job) {
  BlockBuilder b(job, "rule", BlockKind::kLayer, std::pmr::get_default_resource());
  const DType dtype = job.precision.activation;
  const Extent width = Number(b.Size(Symbol::kL, 2).size + b.Size(Symbol::kM).size);
  const TensorId mixed = b.Wide("mixed", width, dtype);
  const DeltaGates gates{b.Wide("beta", b.Size(Symbol::kO), dtype),
                         b.Wide("decay", b.Size(Symbol::kO), DType::kFp32)};
  b.Then("gates", {mixed}, {gates.beta, gates.decay}, {});
  const TensorId output = LowerDeltaRule(b, mixed, gates);
  return std::move(b).Build(mixed, output);
}

// ChunkGatedDeltaRuleFunction.forward, save_for_backward: queries and keys normed, what one over
// their lengths was, values, sums of decays in fp32, beta, and the inverse of a chunk's system.
constexpr char kOfKernels[] =
    "linear.query.normed 2L; linear.key.normed 2L; linear.query.length 4K; linear.key.length 4K; "
    "linear.value 2M; linear.decay.sum 4O; beta 2O; linear.delta.system 128O";

TEST(DeltaRuleByHandTest, KernelsKeepWhatTheirFunctionSaves) {
  for (const Sizes& s : kSizes) {
    const ValidJob valid = Valid(JobOf(s));
    EXPECT_EQ(KeptBy(RuleOf(*valid)), KeptByHand(kOfKernels, s.Letters(), s.T())) << s.D;
  }
}

std::string Name(const Block& block, TensorId id) {
  return absl::StrCat(block.tensors[id].name, " ", block.tensors[id].Bytes());
}

std::vector<std::string> Lines(const Block& block, const Ids& ids) {
  std::vector<std::string> lines;
  for (const TensorId id : ids) lines.push_back(Name(block, id));
  return lines;
}

// chunk_gated_delta_rule_fwd: w and u of recompute_w_u_fwd, v_new and h of
// chunk_gated_delta_rule_fwd_h, all in 16 bits; backward makes these again, then gradients.
TEST(DeltaRuleByHandTest, KernelsMakeStatesInPassing) {
  for (const Sizes& s : kSizes) {
    const Block block = RuleOf(*Valid(JobOf(s)));
    const Op& op = FindOp(block, "linear.delta");
    const int64_t keys = s.T() * 2 * s.O * s.D;
    const int64_t values = s.T() * 2 * s.O * s.V;
    const int64_t states = s.Chunks() * 2 * s.O * s.V * s.D;
    std::vector<std::string> made = {absl::StrCat("linear.delta.corrections ", keys),
                                     absl::StrCat("linear.delta.values ", values),
                                     absl::StrCat("linear.delta.values.new ", values),
                                     absl::StrCat("linear.delta.states ", states)};
    EXPECT_EQ(Lines(block, op.forward_temporaries), made) << s.D;
    made.push_back(absl::StrCat("linear.delta.states.gradient ", states));
    made.push_back(absl::StrCat("linear.delta.values.gradient ", values));
    made.push_back(absl::StrCat("linear.delta.corrections.gradient ", keys));
    made.push_back(absl::StrCat("linear.delta.keys.gradient ", keys));
    if (s.K != s.O) {  // several heads of values share a key, whose gradients are summed up
      made.push_back(absl::StrCat("linear.delta.keys.gradient.sum ", s.T() * 2 * s.K * s.D));
    }
    EXPECT_EQ(Lines(block, op.backward_temporaries), made) << s.D;
  }
}

// Before transformers 5.23 the class gave each head of values a copy of its key: kernels see no
// groups.
TEST(DeltaRuleByHandTest, OlderClassesRepeatKeysForTheKernels) {
  for (const Sizes& s : kSizes) {
    JobSpec job = JobOf(s);
    job.runtime.versions = {{"transformers", "5.22"}};
    const Block block = RuleOf(*Valid(job));
    EXPECT_EQ(KeptBy(block),
              KeptByHand("linear.query.normed 2Q; linear.key.normed 2Q; linear.query.length 4O; "
                         "linear.key.length 4O; linear.value 2M; linear.decay.sum 4O; beta 2O; "
                         "linear.delta.system 128O",
                         s.Letters(), s.T()));
    for (const TensorId id : FindOp(block, "linear.delta").backward_temporaries) {
      EXPECT_NE(block.tensors[id].name, "linear.delta.keys.gradient.sum");
    }
  }
}

// Each line of torch_chunk_gated_delta_rule that autograd keeps something of, in fp32 and padded to
// whole chunks. Norms are of what is not padded, yet tensors are counted as if they were.
constexpr char kOfPython[] =
    "linear.query.wide 4Q; linear.key.wide 4Q; linear.query.length 4O; linear.key.length 4O; "
    "linear.key.padded 4Q; linear.beta.padded 4O; linear.value.padded 4M; linear.query.padded 4Q; "
    "linear.key.scaled 4Q; linear.decay.pairs 256O; "
    "linear.delta.system.raw 256O; linear.delta.system 256O; "
    "linear.delta.scores.raw 256O; linear.delta.scores 256O; "
    "linear.delta.values 4M; linear.delta.corrections 4Q; linear.decay.exponential 4O; "
    "linear.query.decay 4O; linear.key.decay 4O; linear.query.decayed 4Q; linear.key.decayed 4Q; "
    "linear.delta.values.new 4M";

std::vector<std::string> WithStates(std::vector<std::string> lines, const Sizes& s) {
  lines.push_back(absl::StrCat("linear.delta.states ", s.Chunks() * 4 * s.O * s.V * s.D));
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST(DeltaRuleByHandTest, PythonKeepsALineAfterTheOther) {
  for (const Sizes& s : kSizes) {
    for (const char* const preset : {"bf16-pure", "fp32"}) {
      const Block block = RuleOf(*Valid(InPython(JobOf(s, preset))));
      EXPECT_EQ(KeptBy(block), WithStates(KeptByHand(kOfPython, s.Letters(), s.Chunks() * 64), s))
          << preset << ", " << s.D;
    }
  }
}

// repeat_interleave makes copies in the activations' dtype before they are widened, where heads
// share keys.
TEST(DeltaRuleByHandTest, PythonRepeatsKeysInPassing) {
  for (const Sizes& s : kSizes) {
    const Block block = RuleOf(*Valid(InPython(JobOf(s))));
    const std::vector<std::string> made =
        Lines(block, FindOp(block, "linear.split").forward_temporaries);
    if (s.K == s.O) {
      EXPECT_THAT(made, IsEmpty());
      continue;
    }
    const int64_t bytes = s.T() * 2 * s.O * s.D;
    EXPECT_THAT(made, ElementsAre(absl::StrCat("linear.query.repeated ", bytes),
                                  absl::StrCat("linear.key.repeated ", bytes)));
  }
}

// What comes out is in the activations' dtype; in fp32 Python has nothing to cast.
TEST(DeltaRuleByHandTest, OutputsAreWhatTheGateReads) {
  const Sizes& s = kSizes[0];
  for (const bool python : {false, true}) {
    for (const auto& [preset, dtype] :
         {std::pair("bf16-pure", DType::kBf16), std::pair("fp32", DType::kFp32)}) {
      JobSpec job = JobOf(s, preset);
      if (python) job = InPython(job);
      const Block block = RuleOf(*Valid(job));
      const Tensor& out = block.tensors[block.output];
      EXPECT_EQ(out.dtype, dtype) << preset;
      EXPECT_EQ(out.shape.extents[2].size, s.O * s.V) << preset;
    }
  }
}

// Multiply-adds of a token and a head: within a chunk of 64 three products over keys (with one
// another, of queries, of the inverse) and two over values (of the inverse, of scores); between
// chunks a state is corrected, renewed and read, D times V each. Source: arXiv 2412.06464, 3.3.
TEST(DeltaRuleByHandTest, DepthIsThatOfThePaper) {
  for (const Sizes& s : kSizes) {
    const Block block = RuleOf(*Valid(JobOf(s)));
    const int64_t by_hand = 64 * (3 * s.D + 2 * s.V) + 3 * s.D * s.V;
    const int64_t counted = FindOp(block, "linear.delta").product_depth * s.V;
    EXPECT_GE(counted, by_hand);
    EXPECT_LT(counted, by_hand + s.V) << "a depth is a whole number";
  }
}

}  // namespace
}  // namespace plimsoll
