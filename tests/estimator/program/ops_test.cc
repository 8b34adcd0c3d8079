// Single blocks against what others measured of them: Liger-Kernel's benchmarks
// of torch's and Hugging Face's modules, and Apple's table of losses. The ids
// are those of the rows that were collected (github:linkedin/Liger-Kernel@ead96b61
// benchmark/data/all_benchmark_data.csv, A100; github:apple/ml-cross-entropy@18e76ada
// README.md). No constant here is fitted.
#include <algorithm>
#include <memory_resource>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "estimator/step/ledger.h"
#include "gtest/gtest.h"
#include "server/catalog/catalog.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

constexpr double kMib = 1 << 20;

// The benchmarks call backward with retain_graph, so what forward saved outlives
// it, and hold the inputs, the output, its gradient, and the gradients that an
// earlier call left.
struct Peaks {
  double forward = 0;
  double backward = 0;
};

// Plays the tape of a block: its input and its output's gradient are the
// caller's, its output is held.
Peaks Play(const Block& block) {
  const Tape tape = Record(block, WeightGradient::kAdded, DType::kBf16);
  std::vector<bool> saved(tape.pieces.size(), false);
  Peaks peaks;
  int64_t alive = 0;
  for (size_t i = 0; i < tape.events.size(); ++i) {
    const TapeEvent& event = tape.events[i];
    if (i == tape.forward_end) peaks.backward = static_cast<double>(alive);
    const int16_t piece = event.piece;
    if (piece < 0 || piece == tape.input || piece == tape.output_gradient) continue;
    const bool in_backward = i >= tape.again_end;
    if (event.kind == TapeEventKind::kBirth) {
      saved[piece] = !in_backward;
      alive += tape.pieces[piece].bytes;
    } else if (event.kind == TapeEventKind::kDeath && piece != tape.output &&
               !(in_backward && saved[piece])) {
      alive -= tape.pieces[piece].bytes;
    }
    double& peak = in_backward ? peaks.backward : peaks.forward;
    peak = std::max(peak, static_cast<double>(alive));
  }
  return peaks;
}

// The square is named alike in each norm: what it gives tells which it is of.
bool IsOf(const Block& block, const Op& op, absl::string_view prefix) {
  if (op.name != "norm.square") return absl::StartsWith(op.name, prefix);
  return absl::StartsWith(block.tensors[op.outputs.ids[0]].name, prefix);
}

// The ops of `block` whose names begin with `prefix`, but for those of norms, as
// a block of their own.
Block Cut(Block block, absl::string_view prefix, bool norms) {
  std::pmr::vector<Op> ops;
  for (const Op& op : block.ops) {
    if (IsOf(block, op, prefix) && absl::StrContains(op.name, "norm") == norms &&
        !absl::StrContains(op.name, "residual")) {
      ops.push_back(op);
    }
  }
  block.ops = ops;
  for (TensorId id = 0; id < block.tensors.size(); ++id) {  // nobody holds what is not there
    const bool there = std::any_of(ops.begin(), ops.end(), [id](const Op& op) {
      const auto has = [id](const Ids& ids) {
        return std::find(ids.begin(), ids.end(), id) != ids.end();
      };
      return has(op.inputs) || has(op.outputs);
    });
    if (!there) block.tensors[id].held = false;
    block.tensors[id].held_until = 255;
  }
  block.input = *ops.front().inputs.begin();
  const bool loss = ops.back().name == "loss";
  block.output = loss ? kNoTensor : *ops.back().outputs.begin();
  return block;
}

// A block cut out of SmallJob's, of other sizes.
struct Case {
  const char* framework = "ddp";
  const char* preset = "bf16-pure";
  bool compile = false;
  int64_t tokens = 0;
  int64_t hidden = 64;
  int64_t ffn = 64;
  int64_t vocab = 64;
  const char* norm = "rms-norm";
};

Block BlockOf(const Case& wanted, absl::string_view block, absl::string_view prefix, bool norms) {
  JobSpec job = With(SmallJob(), wanted.framework, wanted.preset);
  TransformerSpec& shape = Shape(job);
  shape.hidden_size = wanted.hidden;
  shape.ffn_size = wanted.ffn;
  shape.vocab_size = wanted.vocab;
  shape.norm = wanted.norm;
  job.training.sequence_length = wanted.tokens;
  job.training.micro_batch_size = 1;
  job.runtime.compile = wanted.compile;
  return Cut(FindBlock(Lowered(Valid(job)), block), prefix, norms);
}

enum Mode { kForward, kBackward };

// Two cuBLAS workspaces of 8.125 MiB, one for each thread of the process that made
// matrix products. Source: aten/src/ATen/cuda/CublasHandlePool.cpp.
constexpr double kWorkspaces = 2 * 8.125;

struct GluRow {
  const char* id;
  Mode mode;
  int64_t tokens;
  double mib;
};

constexpr int64_t kHidden = 4096;
constexpr int64_t kFfn = 11008;

// Weights, the input; in backward their gradients of an earlier call, and the
// output's gradient.
double GluMib(const GluRow& row, bool compile) {
  const Block block =
      BlockOf({.compile = compile, .tokens = row.tokens, .hidden = kHidden, .ffn = kFfn}, "layer",
              "mlp.", false);
  const Peaks peaks = Play(block);
  const double weights = 3.0 * 2 * kHidden * kFfn;
  const double hidden = 2.0 * static_cast<double>(row.tokens) * kHidden;
  const double bytes = row.mode == kForward ? weights + hidden + peaks.forward
                                            : 2 * weights + 3 * hidden + peaks.backward;
  return bytes / kMib + kWorkspaces;
}

// down(act(gate(x)) * up(x)), an op at a time, as transformers has it.
constexpr GluRow kGlu[] = {
    {"op-0043", kForward, 8 * 2048, 1906.25},   // geglu, huggingface, forward
    {"op-0050", kBackward, 8 * 1024, 1992.25},  // geglu, huggingface, backward
    {"op-0052", kBackward, 8 * 4096, 6372.25},  // geglu, huggingface, backward
    {"op-0096", kBackward, 4 * 1024, 1294.25},  // swiglu, huggingface, full
    {"op-0098", kBackward, 4 * 4096, 3452.25},  // swiglu, huggingface, full
};

TEST(OpsTest, GatedMlp) {
  for (const GluRow& row : kGlu) {
    EXPECT_NEAR(GluMib(row, false) / row.mib, 1, 0.002) << row.id << ": " << GluMib(row, false);
  }
}

// One kernel for act(gate) * up keeps both of its inputs, as a compiled layer
// does.
constexpr GluRow kFusedGlu[] = {
    {"op-0038", kForward, 8 * 1024, 918.25},   // geglu, liger, forward
    {"op-0039", kForward, 8 * 2048, 1562.25},  // geglu, liger, forward
    {"op-0040", kForward, 8 * 4096, 2850.25},  // geglu, liger, forward
};

TEST(OpsTest, FusedGatedMlp) {
  for (const GluRow& row : kFusedGlu) {
    EXPECT_NEAR(GluMib(row, true) / row.mib, 1, 0.002) << row.id << ": " << GluMib(row, true);
  }
}

struct NormRow {
  const char* id;
  const char* norm;
  int64_t rows;
  int64_t width;
  double mib;
};

// The input and its earlier gradient, and the output's.
double NormMib(const NormRow& row, const char* preset, int64_t bytes) {
  const Case wanted{.preset = preset, .tokens = row.rows, .hidden = row.width, .norm = row.norm};
  const Peaks peaks = Play(BlockOf(wanted, "layer", "mlp.norm", true));
  const double matrix = static_cast<double>(bytes * row.rows * row.width);
  return (3 * matrix + peaks.backward) / kMib;
}

// fp32, in one kernel.
constexpr NormRow kLayerNorm[] = {
    {"op-0059", "layer-norm", 4096, 1024, 80.0625},      // huggingface 0.2.1
    {"op-0061", "layer-norm", 4096, 4096, 320.15625},    // huggingface 0.2.1
    {"op-0062", "layer-norm", 4096, 8192, 640.28125},    // huggingface 0.2.1
    {"op-0063", "layer-norm", 4096, 16384, 1280.53125},  // huggingface 0.2.1
    {"op-0100", "layer-norm", 4096, 1024, 80.0625},      // liger 0.6.0
    {"op-0103", "layer-norm", 4096, 8192, 640.28125},    // liger 0.6.0
    {"op-0104", "layer-norm", 4096, 16384, 1280.53125},  // liger 0.6.0
    {"op-0105", "layer-norm", 4096, 1024, 80.0625},      // huggingface 0.6.0
    {"op-0107", "layer-norm", 4096, 4096, 320.15625},    // huggingface 0.6.0
    {"op-0108", "layer-norm", 4096, 8192, 640.28125},    // huggingface 0.6.0
    {"op-0109", "layer-norm", 4096, 16384, 1280.53125},  // huggingface 0.6.0
};

TEST(OpsTest, LayerNorm) {
  for (const NormRow& row : kLayerNorm) {
    const double mib = NormMib(row, "fp32", 4);
    EXPECT_NEAR(mib / row.mib, 1, 0.002) << row.id << ": " << mib;
  }
}

// bf16, upcast, an op at a time: a known gap of 6 bytes a value, of 40, which are
// what the benchmark itself may hold: the input, the output and its gradient.
constexpr NormRow kRmsNorm[] = {
    {"op-0070", "rms-norm", 2048, 1024, 80.01953125},  // huggingface 0.2.1
    {"op-0071", "rms-norm", 2048, 2048, 160.03125},    // huggingface 0.2.1
    {"op-0072", "rms-norm", 2048, 4096, 320.0546875},  // huggingface 0.2.1
};

TEST(OpsTest, RmsNorm) {
  for (const NormRow& row : kRmsNorm) {
    const double mib = NormMib(row, "bf16-pure", 2);
    EXPECT_NEAR(mib / row.mib, 0.85, 0.002) << row.id << ": " << mib;
  }
}

struct CrossEntropyRow {
  const char* id;
  int64_t vocab;
  double mib;
};

// Of fp32 logits of 8 x 2048 tokens: those and their earlier gradient are held.
constexpr CrossEntropyRow kCrossEntropy[] = {
    {"op-0016", 4096, 1280.1259765625},
    {"op-0018", 16384, 5120.1259765625},
    {"op-0021", 131072, 40960.125},
};

TEST(OpsTest, CrossEntropy) {
  constexpr int64_t kTokens = 8 * 2048;
  for (const CrossEntropyRow& row : kCrossEntropy) {
    const Case wanted{.preset = "fp32", .tokens = kTokens, .vocab = row.vocab};
    const Peaks peaks = Play(BlockOf(wanted, "head", "loss", false));
    const double mib = (2.0 * 4 * kTokens * static_cast<double>(row.vocab) + peaks.backward) / kMib;
    EXPECT_NEAR(mib / row.mib, 1, 0.002) << row.id << ": " << mib;
  }
}

// Gemma 2 2B's head and loss over 8192 tokens, with its soft cap: what the loss
// adds to its input, in whole MiB as published; loss-bw is what backward adds to
// what forward kept.
TEST(OpsTest, HeadAndCrossEntropy) {
  JobSpec spec = SmallJob();
  spec.model.source = std::string("gemma-2-2b");
  spec.training.sequence_length = 8192;
  spec.training.micro_batch_size = 1;
  spec.training.precision.preset = "bf16-pure";
  const auto valid = Validate(spec, LoadCatalog());
  ASSERT_TRUE(std::holds_alternative<ValidJob>(valid));
  const Block block = Cut(FindBlock(Lowered(std::get<ValidJob>(valid)), "head"), "", false);
  const BlockRun run = plimsoll::Run(block, WeightGradient::kFused, DType::kBf16);
  const auto mib = [input = 8192 * 2304 * 2](int64_t bytes) {
    return static_cast<double>(bytes - input) / kMib;
  };
  EXPECT_EQ(mib(run.forward.total), 24000) << "op-0003, baseline loss-fw";
  EXPECT_EQ(mib(run.backward.whole.total), 28000) << "op-0009, baseline loss-fw-bw";
  EXPECT_EQ(mib(run.backward.whole.total) - mib(run.kept.total), 16000)
      << "op-0006, baseline loss-bw";
}

// One Llama 2 7B layer more or less, fully sharded: weights, gradients and states
// of eight GPUs after a backward pass (github:PKU-DAIR/Hetu-Galvatron@cea12ff,
// galvatron/models/gpt/configs/memory_profiling_bf16_llama2-7b_all.json).
// Of the other rows, those of states have no row of one layer less beside them;
// what Galvatron's own layers keep and its pipeline's stages are not modelled.
struct LayerRow {
  const char* ids;
  int64_t data;
  int64_t tensor;
  double mib;  // of two layers less those of one
};
constexpr LayerRow kLayerStates[] = {
    {"galv-0046 galv-0043", 8, 1, 1292.373 - 904.333},
    {"galv-0016 galv-0013", 4, 2, 1356.521 - 968.465},
    {"galv-0040 galv-0037", 1, 8, 1549.130 - 1160.981},
};

double StatesMib(const LayerRow& row, int64_t layers) {
  JobSpec job = With(SmallJob(), "fsdp2");
  TransformerSpec& shape = Shape(job);
  shape.hidden_size = 4096;
  shape.ffn_size = 11008;
  shape.head_count = shape.kv_head_count = 32;
  shape.vocab_size = 32000;
  shape.layer_count = layers;
  job.parallelism.data_parallel_size = row.data;
  job.parallelism.tensor_parallel_size = row.tensor;
  job.parallelism.zero_stage = 3;
  const Program program = ProgramOf(job);
  int64_t bytes = 0;
  for (const Role role : {Role::kMasterWeight, Role::kGradient, Role::kOptimizerState}) {
    bytes += RoleBytesAt(program, role, Phase::kGradientReduction);
  }
  return static_cast<double>(bytes) / kMib;
}

TEST(OpsTest, StatesOfALayer) {
  for (const LayerRow& row : kLayerStates) {
    const double mib = StatesMib(row, 2) - StatesMib(row, 1);
    EXPECT_NEAR(mib / row.mib, 1, 0.006) << row.ids << ": " << mib;
  }
}

// Rows that no op of ours stands for, and why.
constexpr struct {
  const char* ids;
  const char* reason;
} kNotModelled[] = {
    {"op-0002 op-0005", "the soft cap compiled into the loss: our compiled loss begins behind it"},
    {"op-0004 op-0007", "Apple's CCE kernel"},
    {"op-0011 op-0012", "Liger's cross entropy over given logits, written over them"},
    {"op-0024", "of Liger 0.4.2, whose slices differ from those of later releases"},
    {"op-0029", "cross entropy of 16-bit logits that nothing made wider"},
    {"op-0030 op-0031 op-0032 op-0033 op-0046 op-0047 op-0049 op-0092 op-0093 op-0095",
     "Liger's GLU writes gradients over what it saved"},
    {"op-0054 op-0057", "Liger 0.2.1's LayerNorm keeps a gradient of the weight for each program"},
    {"op-0065 op-0066 op-0068 op-0069", "Liger's RMSNorm"},
    {"op-0076 op-0077 op-0079 op-0081 op-0082 op-0083 op-0087 op-0088 op-0091",
     "rotary embedding alone, with query and key made for the benchmark"},
};

TEST(OpsTest, EveryRowIsTestedOrNamed) {
  std::vector<std::string> ids = {"op-0003", "op-0006", "op-0009"};
  for (const GluRow& row : kGlu) ids.emplace_back(row.id);
  for (const GluRow& row : kFusedGlu) ids.emplace_back(row.id);
  for (const NormRow& row : kLayerNorm) ids.emplace_back(row.id);
  for (const NormRow& row : kRmsNorm) ids.emplace_back(row.id);
  for (const CrossEntropyRow& row : kCrossEntropy) ids.emplace_back(row.id);
  EXPECT_EQ(ids.size(), 28u);
  for (const auto& group : kNotModelled) {
    EXPECT_STRNE(group.reason, "");
    for (const absl::string_view id : absl::StrSplit(group.ids, ' ')) ids.emplace_back(id);
  }
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end()) << "a row in two tables";
  EXPECT_EQ(ids.size(), 61u);
}

}  // namespace
}  // namespace plimsoll
