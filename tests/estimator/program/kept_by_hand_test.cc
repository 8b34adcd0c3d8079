// What a block keeps for backward, by formulas written out by hand: each term is a tensor of the
// framework's code, in bytes of one token. Sizes are such that no two terms are alike by chance.
#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

// The alphabet of estimator/README.md: T tokens of a micro-batch, A = N D, C = K D.
struct Sizes {
  int64_t B, S, H, N, K, D, F, V;
  int64_t T() const { return B * S; }
  int64_t A() const { return N * D; }
  int64_t C() const { return K * D; }
};

constexpr Sizes kSizes[] = {
    {.B = 2, .S = 32, .H = 64, .N = 4, .K = 2, .D = 16, .F = 128, .V = 256},
    {.B = 3, .S = 40, .H = 112, .N = 6, .K = 2, .D = 24, .F = 300, .V = 1000},
    {.B = 1, .S = 56, .H = 88, .N = 5, .K = 5, .D = 8, .F = 72, .V = 513},
};

JobSpec JobOf(const Sizes& s) {
  JobSpec job = SmallJob();
  TransformerSpec& shape = Shape(job);
  shape.hidden_size = s.H;
  shape.head_count = s.N;
  shape.kv_head_count = s.K;
  shape.head_size = s.D;
  shape.ffn_size = s.F;
  shape.vocab_size = s.V;
  job.training.sequence_length = s.S;
  job.training.micro_batch_size = s.B;
  return job;
}

// LayerNorm, biases, a plain MLP, dropout, no rotation: GPT-2's.
void MakeClassic(JobSpec& job) {
  TransformerSpec& shape = Shape(job);
  shape.gated_mlp = false;
  shape.position_embedding = "learned";
  shape.qkv_bias = shape.attention_output_bias = shape.mlp_bias = true;
  shape.hidden_dropout = shape.attention_dropout = 0.1;
}

void Change(JobSpec& job, void (*change)(Transformer&)) { job = WithModel(job, change); }

struct Row {
  const char* name;
  void (*edit)(JobSpec&);
  int64_t (*bytes)(const Sizes&);
};

void ExpectKept(const Row& row, absl::string_view block) {
  for (const Sizes& sizes : kSizes) {
    JobSpec job = JobOf(sizes);
    row.edit(job);
    const Program program = ProgramOf(job);
    const BlockRun run =
        Run(FindBlock(program, block), program.weight_gradient, program.gradient_dtype);
    EXPECT_EQ(run.kept.total, row.bytes(sizes)) << row.name << ", H " << sizes.H;
  }
}

// transformers, an op at a time. A norm keeps its input in fp32, the normalised copy, and its
// output, which products read: 8 bytes an element of H; and of each token the inverse root of the
// mean of squares, 4 bytes.
// Source: transformers models/llama/modeling_llama.py, LlamaRMSNorm, LlamaMLP; each product of
// torch keeps its input, silu its own, a product of two tensors both, rsqrt what it gave.
constexpr Row kTransformers[] = {
    {"Llama", [](JobSpec&) {},
     [](const Sizes& s) {
       return s.T() * (2 * (8 * s.H + 4) + 2 * (2 * s.A() + 2 * s.C()) + 4 * s.N + 4 * 2 * s.F);
     }},
    {"Llama under FSDP2", [](JobSpec& job) { job = With(job, "fsdp2"); },
     [](const Sizes& s) {
       return s.T() * (2 * (8 * s.H + 4) + 2 * (2 * s.A() + 2 * s.C()) + 4 * s.N + 4 * 2 * s.F);
     }},
    // fp32 has nothing to cast: a norm keeps its input itself.
    {"Llama in fp32", [](JobSpec& job) { job = With(job, "ddp", "fp32"); },
     [](const Sizes& s) {
       return s.T() * (2 * (3 * 4 * s.H + 4) + 4 * (2 * s.A() + 2 * s.C()) + 4 * s.N + 4 * 4 * s.F);
     }},
    // Each product casts its own input, and its weight.
    {"Llama under autocast", [](JobSpec& job) { job = With(job, "ddp", "bf16-autocast"); },
     [](const Sizes& s) {
       const int64_t matrices = 2 * s.A() * s.H + 2 * s.C() * s.H + 3 * s.F * s.H;
       return s.T() * (2 * (8 * s.H + 4) + 5 * 2 * s.H + 2 * (2 * s.A() + 2 * s.C()) + 4 * s.N +
                       4 * 2 * s.F) +
              2 * matrices;
     }},
    // Keys and values are copied to all heads; softmax is fp32, and cast.
    {"eager attention", [](JobSpec& job) { job.training.attention = "eager"; },
     [](const Sizes& s) {
       return s.T() * (2 * (8 * s.H + 4) + 2 * 4 * s.A() + (4 + 2) * s.N * s.S + 4 * 2 * s.F);
     }},
    {"a parallel layer has one norm", [](JobSpec& job) { Shape(job).norm_placement = "parallel"; },
     [](const Sizes& s) {
       return s.T() * (8 * s.H + 4 + 2 * (2 * s.A() + 2 * s.C()) + 4 * s.N + 4 * 2 * s.F);
     }},
    {"or two", [](JobSpec& job) { Shape(job).norm_placement = "parallel-two"; },
     [](const Sizes& s) {
       return s.T() * (2 * (8 * s.H + 4) + 2 * (2 * s.A() + 2 * s.C()) + 4 * s.N + 4 * 2 * s.F);
     }},
    // What a norm behind a sublayer gives, nobody reads again: 6 bytes.
    {"a sandwich", [](JobSpec& job) { Shape(job).norm_placement = "sandwich"; },
     [](const Sizes& s) {
       return s.T() *
              ((2 * 8 + 2 * 6) * s.H + 4 * 4 + 2 * (2 * s.A() + 2 * s.C()) + 4 * s.N + 4 * 2 * s.F);
     }},
    // Products read the residual itself.
    {"norms behind alone", [](JobSpec& job) { Shape(job).norm_placement = "post-only"; },
     [](const Sizes& s) {
       return s.T() *
              ((2 * 2 + 2 * 6) * s.H + 2 * 4 + 2 * (2 * s.A() + 2 * s.C()) + 4 * s.N + 4 * 2 * s.F);
     }},
    // LayerNorm is one op: its input, which is the sum, and two fp32 statistics.
    {"BERT's order",
     [](JobSpec& job) {
       Shape(job).norm_placement = "post";
       Shape(job).norm = "layer-norm";
     },
     [](const Sizes& s) {
       return s.T() * (4 * 2 * s.H + 2 * 8 + 2 * (2 * s.A() + 2 * s.C()) + 4 * s.N + 4 * 2 * s.F);
     }},
    {"norms on queries and keys", [](JobSpec& job) { Shape(job).qk_norm = "per-head"; },
     [](const Sizes& s) {
       return s.T() * (2 * (8 * s.H + 4) + 2 * (2 * s.A() + 2 * s.C()) + 6 * (s.A() + s.C()) +
                       4 * (s.N + s.K) + 4 * s.N + 4 * 2 * s.F);
     }},
    {"Gemma's norm multiplies in fp32",
     [](JobSpec& job) {
       Change(job, [](Transformer& model) { model.norm_class = NormClass::kWide; });
     },
     [](const Sizes& s) {
       return s.T() *
              (2 * ((4 + 4 + 2) * s.H + 4) + 2 * (2 * s.A() + 2 * s.C()) + 4 * s.N + 4 * 2 * s.F);
     }},
    {"Cohere's takes the mean away twice",
     [](JobSpec& job) {
       Change(job, [](Transformer& model) {
         model.norm = Norm::kLayerNorm;
         model.norm_class = NormClass::kCentred;
       });
     },
     [](const Sizes& s) {
       return s.T() * (2 * ((4 + 4 + 4 + 2) * s.H + 4) + 2 * (2 * s.A() + 2 * s.C()) + 4 * s.N +
                       4 * 2 * s.F);
     }},
    // Values are a view of all that one product gave.
    {"GPT-NeoX's one projection",
     [](JobSpec& job) { Change(job, [](Transformer& model) { model.joint_qkv = true; }); },
     [](const Sizes& s) {
       return s.T() * (2 * (8 * s.H + 4) + 2 * (s.A() + 2 * s.C()) + 2 * (2 * s.A() + s.C()) +
                       4 * s.N + 4 * 2 * s.F);
     }},
    // One kernel for a norm, one for silu and product.
    {"compiled", [](JobSpec& job) { job.runtime.compile = true; },
     [](const Sizes& s) {
       return s.T() * (4 * 2 * s.H + 2 * 4 + 2 * (2 * s.A() + 2 * s.C()) + 4 * s.N + 3 * 2 * s.F);
     }},
    {"recomputed", [](JobSpec& job) { job.training.recompute.mode = "full"; },
     [](const Sizes& s) { return s.T() * 2 * s.H; }},
};

TEST(KeptByHandTest, TransformersLayers) {
  for (const Row& row : kTransformers) ExpectKept(row, "layer");
}

// Dropout keeps a byte for each element that may go.
constexpr Row kClassic[] = {
    {"GPT-2", MakeClassic,
     [](const Sizes& s) {
       return s.T() *
              (4 * 2 * s.H + 2 * s.H + 2 * 8 + 2 * (2 * s.A() + 2 * s.C()) + 4 * s.N + 2 * 2 * s.F);
     }},
    // 0.5 x (1 + tanh(...)): what tanh gave, half of x, and what is shifted by one.
    {"GELU in Python",
     [](JobSpec& job) {
       MakeClassic(job);
       Shape(job).activation = "gelu-new";
     },
     [](const Sizes& s) {
       return s.T() *
              (4 * 2 * s.H + 2 * s.H + 2 * 8 + 2 * (2 * s.A() + 2 * s.C()) + 4 * s.N + 5 * 2 * s.F);
     }},
    // ReLU reads its output, which the next product keeps.
    {"ReLU",
     [](JobSpec& job) {
       MakeClassic(job);
       Shape(job).activation = "relu";
     },
     [](const Sizes& s) {
       return s.T() *
              (4 * 2 * s.H + 2 * s.H + 2 * 8 + 2 * (2 * s.A() + 2 * s.C()) + 4 * s.N + 2 * s.F);
     }},
};

TEST(KeptByHandTest, ClassicLayers) {
  for (const Row& row : kClassic) ExpectKept(row, "layer");
}

// s b h (34 + 5 a s / h), of heads that fill H, four times H in the MLP; LayerNorm's statistics,
// which the paper leaves out, are 16 bytes a token.
// Source: Korthikanti et al. 2022 (arXiv 2205.05198), equation 1.
TEST(KeptByHandTest, MegatronsLayerIsThatOfThePaper) {
  for (Sizes sizes : kSizes) {
    sizes.K = sizes.N;
    sizes.H = sizes.A();
    sizes.F = 4 * sizes.H;
    JobSpec job = With(JobOf(sizes), "megatron-lm");
    MakeClassic(job);
    job.training.attention = "eager";
    EXPECT_EQ(KeptByLayer(ProgramOf(job)), sizes.T() * (34 * sizes.H + 5 * sizes.N * sizes.S + 16));
  }
}

// Kernels of Transformer Engine, Apex and flash-attention keep inputs, not what lies between.
// Source: megatron/core/extensions/transformer_engine.py; torchtitan models/llama3/model.py.
constexpr Row kFused[] = {
    // The attention's output is copied for the next product.
    {"Megatron-Core", [](JobSpec& job) { job = With(job, "megatron-core"); },
     [](const Sizes& s) {
       return s.T() * (4 * 2 * s.H + 2 * 4 + 2 * (3 * s.A() + 2 * s.C()) + 4 * s.N + 3 * 2 * s.F);
     }},
    {"torchtitan",
     [](JobSpec& job) {
       job = With(job, "fsdp2");
       job.runtime.trainer = "torchtitan";
     },
     [](const Sizes& s) {  // and the angles of each token's position, in fp32
       return s.T() *
              (4 * 2 * s.H + 2 * 4 + 2 * (2 * s.A() + 2 * s.C()) + 4 * s.N + 4 * 2 * s.F + 4 * s.D);
     }},
};

// Liger's norms keep their inputs, its gated product gate and up; queries and keys are rotated
// where they are, and are what attention keeps. With norms of heads they are what these gave.
// Source: Liger-Kernel ops/rms_norm.py, swiglu.py, rope.py.
constexpr Row kLiger[] = {
    {"Llama's", [](JobSpec& job) { job.runtime.liger_kernel = true; },
     [](const Sizes& s) {
       return s.T() * (4 * 2 * s.H + 2 * 4 + 2 * (2 * s.A() + 2 * s.C()) + 4 * s.N + 3 * 2 * s.F);
     }},
    {"Qwen3's",
     [](JobSpec& job) {
       job.runtime.liger_kernel = true;
       Shape(job).qk_norm = "per-head";
     },
     [](const Sizes& s) {
       return s.T() * (4 * 2 * s.H + 2 * 4 + 4 * (s.N + s.K) + 2 * (3 * s.A() + 3 * s.C()) +
                       4 * s.N + 3 * 2 * s.F);
     }},
    {"one product of queries, keys and values",
     [](JobSpec& job) {
       job.runtime.liger_kernel = true;
       Change(job, [](Transformer& model) { model.joint_qkv = true; });
     },
     [](const Sizes& s) {
       const int64_t packed = s.A() + 2 * s.C();  // whole, for its values
       return s.T() *
              (4 * 2 * s.H + 2 * 4 + 2 * (packed + 2 * s.A() + s.C()) + 4 * s.N + 3 * 2 * s.F);
     }},
};

TEST(KeptByHandTest, LigersLayers) {
  for (const Row& row : kLiger) ExpectKept(row, "layer");
}

TEST(KeptByHandTest, FusedLayers) {
  for (const Row& row : kFused) ExpectKept(row, "layer");
}

// Grouped queries have a copy of their own; else they are a part of that of all three.
// Source: nanotron models/llama.py, CausalSelfAttention.forward.
TEST(KeptByHandTest, NanotronsLayer) {
  ExpectKept({"nanotron", [](JobSpec& job) { job = With(job, "nanotron"); },
              [](const Sizes& s) {
                const int64_t queries = s.K == s.N ? s.A() + 2 * s.C() : s.A();
                return s.T() * (4 * 2 * s.H + 2 * 4 + 2 * (queries + 2 * s.C() + s.A()) + 4 * s.N +
                                4 * 2 * s.F);
              }},
             "layer");
}

// The end of the network, in bytes a token and a logit.
constexpr Row kHeads[] = {
    // Norm as in a layer, log-softmax in fp32. Source: aten LossNLL.cpp, SoftMax.
    {"transformers", [](JobSpec&) {},
     [](const Sizes& s) { return s.T() * (8 * s.H + 4 + 4 * s.V); }},
    {"fp32", [](JobSpec& job) { job = With(job, "ddp", "fp32"); },
     [](const Sizes& s) { return s.T() * (3 * 4 * s.H + 4 + 4 * s.V); }},
    {"autocast", [](JobSpec& job) { job = With(job, "ddp", "bf16-autocast"); },
     [](const Sizes& s) {
       return s.T() * ((4 + 4 + 2) * s.H + 4) + s.T() * 4 * s.V + 2 * s.V * s.H;
     }},
    // The fp32 logits become the softmax. Source: megatron/core/tensor_parallel/cross_entropy.py.
    {"Megatron-Core",
     [](JobSpec& job) {
       job = With(job, "megatron-core");
       job.runtime.vocab_size_divisor = 1;
     },
     [](const Sizes& s) { return s.T() * (2 * 2 * s.H + 4 + 4 * s.V); }},
    // Transformer Engine's writes its gradient over the 16-bit logits.
    {"Transformer Engine's loss",
     [](JobSpec& job) {
       job = With(job, "megatron-core");
       job.runtime.vocab_size_divisor = 1;
       job.training.loss.implementation = "te-cross-entropy";
     },
     [](const Sizes& s) { return s.T() * (2 * 2 * s.H + 4 + 2 * s.V); }},
    // Both gradients are made in forward; the weight's is the parameter's own.
    // Source: Liger-Kernel ops/fused_linear_cross_entropy.py.
    {"Liger's", [](JobSpec& job) { job.training.loss.implementation = "fused"; },
     [](const Sizes& s) { return s.T() * ((4 + 2) * s.H + 4 + 2 * s.H); }},
    // Its norm keeps its input and a number of each token.
    {"all of Liger's", [](JobSpec& job) { job.runtime.liger_kernel = true; },
     [](const Sizes& s) { return s.T() * (2 * s.H + 4 + 2 * s.H); }},
    // Scores of one token of each sequence.
    {"scores of sequences", [](JobSpec& job) { Shape(job).head = "sequence-classification"; },
     [](const Sizes& s) { return s.T() * (8 * s.H + 4) + s.B * 2 * 2; }},
    {"answers", [](JobSpec& job) { Shape(job).head = "question-answering"; },
     [](const Sizes& s) { return s.T() * (8 * s.H + 4 + 2 * 2); }},
    // The mean of all tokens keeps nothing but itself.
    {"none", [](JobSpec& job) { Shape(job).head = "none"; },
     [](const Sizes& s) { return s.T() * (6 * s.H + 4) + s.B * 2 * s.H; }},
};

TEST(KeptByHandTest, Heads) {
  for (const Row& row : kHeads) ExpectKept(row, "head");
}

// Tokens are int64; dropout has its mask; positions and tokens are summed and gone.
TEST(KeptByHandTest, Embeddings) {
  ExpectKept({"Llama", [](JobSpec&) {}, [](const Sizes& s) { return s.T() * 8; }}, "embedding");
  ExpectKept({"GPT-2", MakeClassic, [](const Sizes& s) { return s.T() * (8 + s.H); }}, "embedding");
}

}  // namespace
}  // namespace plimsoll
