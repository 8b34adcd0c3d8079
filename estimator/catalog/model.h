// The architecture of a transformer: all that its tensors follow from.
#ifndef PLIMSOLL_ESTIMATOR_CATALOG_MODEL_H_
#define PLIMSOLL_ESTIMATOR_CATALOG_MODEL_H_

#include <cstdint>
#include <string>

#include "estimator/base/layer_set.h"

namespace plimsoll {

// kGeluNew is the tanh form of GELU written op by op in Python (GPT-2's).
enum class Activation : uint8_t { kGelu, kGeluTanh, kGeluNew, kSilu, kRelu, kRelu2 };
enum class Norm : uint8_t { kLayerNorm, kRmsNorm };
// Where norms stand in a layer. kPre: before each sublayer. kPost: after each
// residual sum (BERT). kSandwich: before and after each sublayer (Gemma 2).
// kParallel: attention and MLP read one norm (Falcon 7B, Phi, Cohere).
// kParallelTwo: each reads its own (GPT-NeoX, Falcon 40B). kPostOnly: after
// each sublayer, before the sum (OLMo 2).
enum class NormPlacement : uint8_t { kPre, kPost, kSandwich, kParallel, kParallelTwo, kPostOnly };
// Norms on queries and keys, weights only but for kPerHeadBias. kPerHead: one of
// head_size that all heads share (Qwen 3, Gemma 3); kPerHeadBias: with a bias too
// (Phi, Persimmon). kFull: one over all heads together (OLMo 2).
// kPerHeadAffine: each head is normed alone, with weights of its own (Cohere,
// StableLM 2 12B). kPerRank: one over each rank of latent attention (DeepSeek).
enum class QkNorm : uint8_t { kNone, kPerHead, kPerHeadBias, kFull, kPerHeadAffine, kPerRank };
// How transformers' class writes a norm, hence what autograd keeps of it where no kernel does
// all of it.
//   kUsual    RMSNorm: the input in fp32, and its normalised copy cast back, before the weight
//             (Llama's); LayerNorm: one op of PyTorch
//   kWide     RMSNorm whose weight is multiplied in fp32, as the copy is kept (Gemma's, OLMo 2's)
//   kCentred  LayerNorm in Python: what is left of the input without its mean, twice, and the
//             normalised copy, all in fp32 (Cohere's)
// Source: transformers models/llama/modeling_llama.py, gemma/modeling_gemma.py,
// olmo2/modeling_olmo2.py, cohere2/modeling_cohere2.py.
enum class NormClass : uint8_t { kUsual, kWide, kCentred };
enum class PositionEmbedding : uint8_t { kRotary, kLearned, kAlibi, kNone };
// What stands behind the last layer, and with it what the loss reads.
//   kLanguageModel           logits of every token: one product
//   kMaskedLanguageModel     the same behind BERT's transform: dense H x H with
//                            bias, activation, norm; the product has a bias
//   kSequenceClassification  label_count scores of each sequence (reward models)
//   kTokenClassification     label_count scores of each token
//   kQuestionAnswering       where an answer begins and ends: two of each token
//   kNone                    nothing; the loss reads one vector of each sequence
enum class Head : uint8_t {
  kLanguageModel,
  kMaskedLanguageModel,
  kSequenceClassification,
  kTokenClassification,
  kQuestionAnswering,
  kNone,
};
// Whether the head predicts tokens: logits as wide as the vocabulary.
inline bool PredictsTokens(Head head) {
  return head == Head::kLanguageModel || head == Head::kMaskedLanguageModel;
}

// How transformers' class computes eager attention.
//   kWideSoftmax  softmax in fp32, cast to what queries are
//   kOwnSoftmax   softmax in what the product gives
//   kFloored      the same, of scores above a floor, and those are kept (XGLM)
//   kWideScores   queries and keys in fp32, and so all until values are multiplied
enum class EagerScores : uint8_t { kWideSoftmax, kOwnSoftmax, kFloored, kWideScores };

// The table of cosines and sines that torchtune's builders make for a model, in fp32; torchtitan's
// are each layer's own, of a sequence's positions.
//   kPairs   each layer with adapters its own, [P, D/2, 2]
//   kShared  the same, one for all layers (Llama 3.1's rule)
//   kHalves  each its own, [P, 2 D], of which a layer keeps 16-bit copies (Qwen's)
enum class RotaryTable : uint8_t { kPairs, kShared, kHalves };

// What a router makes of each token, before it picks the largest.
//   kSoftmax      over all experts, of logits that activations' dtype has
//   kSigmoid      of those too, each score alone (MiniMax M2)
//   kWideSoftmax  over all experts, of logits that fp32 copies of input and weight give (V2 of
//                 DeepSeek)
//   kWideSigmoid  of those, each score alone (DeepSeek V3)
//   kPicked       nothing: it picks logits, and those alone get a softmax (gpt-oss)
//   kWidePicked   the same of logits in fp32 (Granite)
enum class Router : uint8_t {
  kSoftmax,
  kSigmoid,
  kWideSoftmax,
  kWideSigmoid,
  kPicked,
  kWidePicked
};

// What of adapters' target_modules reaches them, as parameters, in PEFT: experts were modules of
// their own before transformers 5.
//   kNone       nothing: names of products and `all-linear` are of the modules beside them
//   kAllLinear  `all-linear`, and names that are the class's own (Mixtral's w1)
//   kProducts   that, and `gate_proj` with `up_proj`, or `down_proj`: of experts, not of modules
// Source: peft utils/transformers_weight_conversion.py, _MOE_TARGET_MODULE_MAPPING; transformers
// conversion_mapping.py, _MODEL_TO_CONVERSION_PATTERN.
enum class ExpertWords : uint8_t { kNone, kAllLinear, kProducts };

// MLPs of which a router picks some for each token, in place of one. Symbols: X count,
// K active_count, G ffn_size, U shared_ffn_size.
// Source: Shazeer et al. 2017 (arXiv 1701.06538); Dai et al. 2024 (arXiv 2401.06066), section 3.2.
struct Experts {
  int64_t count = 0;  // 0: there are none
  int64_t active_count = 0;
  int64_t ffn_size = 0;
  int64_t input_size = 0;       // they read and give so much, a product before and behind; 0: H
  int64_t shared_ffn_size = 0;  // of the MLP that every token passes; 0: none
  bool shared_gate = false;     // what that one gives is weighed, token by token
  bool renormalizes = false;    // the weights of those picked are made to sum to 1
  bool wide_weights = false;    // they stay in fp32, and so does what they weigh
  bool masks_groups = false;    // scores of groups that are not picked are masked
  bool biases = false;          // of the router and of each expert's products
  bool clamps = false;          // gate and up are clamped, and up is added 1 to (gpt-oss)
  ExpertWords words = ExpertWords::kProducts;
  Router router = Router::kSoftmax;
  LayerSet layers{};  // that have them; the others have one MLP

  bool Any() const { return count > 0; }
};

// Multi-head latent attention: keys and values of all heads are made of a few numbers, and so may
// queries. A head of queries and keys is head_size wide, `rotary_size` of which is rotated; that
// part of the key is one for all heads. Symbols: Q query_rank, J key_value_rank, Y rotary_size,
// W head_count x value_size.
// Source: DeepSeek-AI 2024 (arXiv 2405.04434), section 2.1.
struct LatentAttention {
  int64_t query_rank = 0;      // 0: queries are projected at once
  int64_t key_value_rank = 0;  // 0: attention is no latent one
  int64_t rotary_size = 0;
  int64_t value_size = 0;

  bool Any() const { return key_value_rank > 0; }
};

// How classes of gated delta networks project what they read.
//   kFour   what is convolved, the gate, what corrects and what decays (Qwen3.5)
//   kJoint  what is convolved and the gate; what corrects and decays (Qwen3-Next)
//   kEach   queries, keys and values, which are joined; behind the convolution what corrects and
//           what decays, and behind the rule the gate (OLMo Hybrid)
enum class DeltaProjections : uint8_t { kFour, kJoint, kEach };

// Gated delta networks in place of attention: a state of each head is decayed, corrected and read,
// chunk by chunk. Symbols: L key_head_count x key_size, M value_head_count x value_size, O
// value_head_count. Each key is read by value_head_count / key_head_count heads of values.
// Source: Yang et al. 2024 (arXiv 2412.06464); transformers models/qwen3_5/modeling_qwen3_5.py,
// Qwen3_5GatedDeltaNet.
struct LinearAttention {
  int64_t key_head_count = 0;
  int64_t value_head_count = 0;  // 0: there is none
  int64_t key_size = 0;
  int64_t value_size = 0;
  int64_t kernel_size = 0;  // tokens that the convolution before it reads
  DeltaProjections projections = DeltaProjections::kFour;
  bool norms_before = false;  // its layers' norms are, whatever the others'
  bool doubles = false;       // what corrects is twice a sigmoid
  LayerSet layers{};          // that have it; the others have attention

  bool Any() const { return value_head_count > 0; }
};

// State-space layers in place of attention, or beside layers that have that: a state of each head
// is decayed, added to and read, chunk by chunk. Symbols: I head_count x head_size, Z group_count x
// state_size. Heads of a group share what writes their states and what reads them. Of Mamba 1 each
// channel is a head, all of one group, and steps, what writes and what reads are made of what the
// convolution gave.
// Source: Dao and Gu 2024 (arXiv 2405.21060), Mamba 2; transformers models/bamba/modeling_bamba.py,
// BambaMixer. Gu and Dao 2023 (arXiv 2312.00752), Mamba 1; models/mamba/modeling_mamba.py,
// MambaMixer.
struct StateSpace {
  int64_t head_count = 0;  // 0: there is none
  int64_t head_size = 0;
  int64_t state_size = 0;
  int64_t group_count = 1;
  int64_t kernel_size = 4;  // tokens that the convolution before it reads
  int64_t chunk_size = 256;
  int64_t step_rank = 0;  // numbers that steps are made of; 0: Mamba 2
  bool bias = false;      // of its products
  bool convolution_bias = true;
  LayerSet layers{};  // that have it

  bool Any() const { return head_count > 0; }
  bool Selective() const { return step_rank > 0; }  // Mamba 1
};

// A transformer, decoder or encoder. Symbols (estimator/README.md): H
// hidden_size, L layer_count, N head_count, K kv_head_count, D head_size,
// F ffn_size, V vocab_size.
//
// Requires: only Validate and ReadHfConfig make one that lowering may trust.
struct Transformer {
  std::string model_type;  // as in config.json; empty when spelled out
  int64_t hidden_size = 0;
  int64_t layer_count = 0;
  int64_t head_count = 0;
  int64_t kv_head_count = 0;
  int64_t head_size = 0;
  int64_t ffn_size = 0;
  int64_t vocab_size = 0;
  int64_t position_count = 0;         // rows of a learned table, else 0
  int64_t rotary_position_count = 0;  // those that a config with rotary positions states, else 0
  RotaryTable rotary_table = RotaryTable::kPairs;
  int64_t token_type_count = 0;  // rows of BERT's segment table, else 0
  int64_t embedding_size = 0;    // OPT's word_embed_proj_dim; hidden_size elsewhere
  int64_t sliding_window = 0;    // 0: none. Flash kernels keep no scores either way
  LayerSet windowed{};           // the layers that have it
  Activation activation = Activation::kSilu;
  bool gated_mlp = true;
  Norm norm = Norm::kRmsNorm;
  NormPlacement norm_placement = NormPlacement::kPre;
  NormClass norm_class = NormClass::kUsual;
  bool norm_weight = true;      // false: OLMo 1's norm without parameters
  bool norm_bias = false;       // LayerNorm with a bias
  bool embedding_norm = false;  // BLOOM, BERT: a norm behind the embedding
  bool final_norm = true;       // false: BERT, OPT-350m
  bool qkv_bias = false;
  // transformers' class projects queries, keys and values at once: they are views.
  bool joint_qkv = false;
  bool joint_gate = false;  // and an MLP's gate and up at once, likewise
  // It rotates a part of each head and concatenates: heads come first, and the attention's
  // output, laid out as its queries, is copied for the next product.
  bool concatenates_rotary = false;
  bool attention_output_bias = false;
  bool mlp_bias = false;
  Head head = Head::kLanguageModel;
  bool head_bias = false;   // bias on the output head: Phi, scores behind a pooler
  int64_t label_count = 0;  // scores of a head that classifies, else 0
  // BERT: dense H x H with bias over a sequence's first token, before its scores
  // or where there is no head.
  bool pooler = false;
  QkNorm qk_norm = QkNorm::kNone;
  bool tied_embeddings = false;  // of a head that predicts tokens, with the embedding
  bool sentence_head = false;    // BERT's second: pooler H x H with bias, two classes with theirs
  PositionEmbedding position_embedding = PositionEmbedding::kRotary;
  bool causal = true;
  bool logit_softcap = false;      // Gemma 2: tanh over the logits
  bool attention_softcap = false;  // and over the scores of eager attention
  bool attention_sinks = false;    // a score of each head stands beside those of tokens (gpt-oss)
  bool eager_attention = false;    // transformers' class has no SDPA
  EagerScores eager_scores = EagerScores::kWideSoftmax;
  Experts experts;
  LatentAttention latent;
  LinearAttention linear;
  StateSpace state_space;
  // A layer is one sublayer: a state space, attention, experts or an MLP (Nemotron-H).
  bool one_sublayer = false;
  LayerSet attended{};              // of such layers, those that have attention
  bool wide_residual = false;       // what goes from layer to layer is fp32, whatever weights are
  bool norms_as_projected = false;  // queries' norm runs before keys are projected, in transformers
  bool attention_gate = false;  // what attention gives is weighed by numbers made beside queries
  bool wide_logits = false;     // its class makes them fp32, and drops those that the head gave
  bool remote_code = false;     // transformers has no class of it: a checkpoint brings its own
  double hidden_dropout = 0;
  double attention_dropout = 0;
  double embedding_dropout = 0;
  double head_dropout = 0;  // before a classification head's scores

  // Width of a value's head.
  int64_t ValueSize() const { return latent.Any() ? latent.value_size : head_size; }
};

// Returns the number of parameters of the whole model, tied tensors once, no
// padding; saturates.
int64_t CountParameters(const Transformer& model);

// Returns how many of them one token passes: of routed experts those that are picked.
int64_t CountActiveParameters(const Transformer& model);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_CATALOG_MODEL_H_
