// What `transformers` knows of each `model_type`, as rows: the names of its
// fields, what its modelling file fixes, and the defaults of what it leaves to
// the configuration. hf_config.cc is the loop over a row.
#ifndef PLIMSOLL_ESTIMATOR_CATALOG_HF_FAMILIES_H_
#define PLIMSOLL_ESTIMATOR_CATALOG_HF_FAMILIES_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "estimator/base/layer_set.h"
#include "estimator/catalog/model.h"

namespace plimsoll {

// Names of the sizes in a config.json. Alternatives are separated by '|'; the
// first is the one that violations name. Empty: the family has no such field.
struct HfNames {
  absl::string_view hidden_size;
  absl::string_view layers;
  absl::string_view heads;
  absl::string_view kv_heads;
  absl::string_view head_size;
  absl::string_view ffn_size;
  absl::string_view positions;
  absl::string_view activation;
};

// A boolean of the configuration and all that it decides.
struct HfSwitch {
  absl::string_view name;
  bool fallback = false;
  bool Transformer::*decides[3] = {};
};

// A dropout rate of the configuration.
struct HfDropout {
  absl::string_view name;
  double fallback = 0;
  double Transformer::*rate = nullptr;
};

// Sizes that released configurations leave to the class's defaults. 0: the
// field is required, or follows from others (kv_heads from heads, as where it is null, head_size
// from hidden_size / heads, ffn_size from `ffn_multiple`).
struct HfDefaults {
  int64_t hidden_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;
  int64_t ffn_size = 0;
  int64_t ffn_multiple = 0;  // of hidden_size, where ffn_size is unset
  int64_t vocab_size = 0;
  int64_t token_types = 2;
  int64_t sliding_window = 0;
  LayerSet windowed{};  // layers with a window, where layer_types is unset
};

struct HfExpertDefaults {
  int64_t count = 0;
  int64_t active_count = 0;
  int64_t ffn_size = 0;
  int64_t shared_ffn_size = 0;
  int64_t shared_count = 0;
  int64_t dense_layer_count = 0;
  bool renormalizes = true;
};

// Fields that say what experts a network has, and the class's defaults.
struct HfExperts {
  absl::string_view count = {};  // empty: it has none
  absl::string_view active_count = {};
  absl::string_view ffn_size = {};
  absl::string_view input_size = {};       // null, unset and empty: they read what layers give
  absl::string_view shared_ffn_size = {};  // empty: there is no shared one
  absl::string_view renormalizes = {};     // empty: as the default says
  absl::string_view group_method = {};     // its group_limited_greedy masks groups
  HfExpertDefaults defaults = {};
  bool shared_gate = false;
  bool wide_weights = false;   // the router does not cast its weights back
  bool picks_layers = false;   // by decoder_sparse_step and mlp_only_layers
  bool may_lack = false;       // a count of 0 is a network without experts
  bool counts_shared = false;  // n_shared_experts, each as wide as one; first_k_dense_replace
  bool biases = false;         // Experts::biases
  bool clamps = false;         // Experts::clamps
  ExpertWords words = ExpertWords::kProducts;
  Router router = Router::kSoftmax;
};

// The class's defaults of latent attention.
struct HfLatent {
  int64_t query_rank = 0;
  int64_t key_value_rank = 0;  // 0: it has none
  int64_t plain_size = 0;
  int64_t rotary_size = 0;
  int64_t value_size = 0;
};

// The class's defaults of linear attention, in all layers but every fourth.
struct HfLinear {
  int64_t key_head_count = 0;
  int64_t value_head_count = 0;
  // As many as of attention, keys three quarters of hidden_size together, values twice as wide;
  // some layers have it and some have not, and no field says how often.
  bool by_heads = false;
  DeltaProjections projections = DeltaProjections::kFour;
  bool norms_before = false;  // LinearAttention::norms_before

  bool Any() const { return value_head_count > 0 || by_heads; }
};

// Fields that say what state space layers have, and the class's defaults. What has no name is as
// the default says.
struct HfStateSpace {
  absl::string_view head_count = {};  // of Mamba 2
  absl::string_view head_size = {};   // "auto" and unset: what `expansion` leaves
  absl::string_view state_size = {};
  absl::string_view group_count = {};
  absl::string_view kernel_size = {};
  absl::string_view chunk_size = {};
  absl::string_view expansion =
      {};  // empty: heads need not be as wide as a multiple of hidden_size
  absl::string_view bias = {};
  absl::string_view convolution_bias = {};
  absl::string_view attention_layers =
      {};                            // numbers of layers; empty: a list of what each layer is
  absl::string_view step_rank = {};  // of Mamba 1: "auto" and unset are a sixteenth of hidden_size
  absl::string_view wide_residual = {};  // Transformer::wide_residual, which is the default
  StateSpace defaults = {};
  bool one_sublayer = false;  // Transformer::one_sublayer
  bool alone = false;         // all layers have one, and nothing else

  bool Any() const { return !head_count.empty() || !step_rank.empty(); }
};

// What is left after names, switches and dropouts.
enum class HfQuirk : uint8_t {
  kNone,
  kBert,           // is_decoder, position_embedding_type
  kBigCode,        // multi_query
  kCohere,         // use_qk_norm
  kErnie,          // as kBert, and use_task_id
  kGraniteHybrid,  // position_embedding_type
  kGlm,            // use_qk_norm, of each head; sliding_window is no field of its class
  kFalcon,         // multi_query, new_decoder_architecture, parallel_attn, alibi
  kMpt,            // attn_config, no_bias
  kNeo,            // window_size
  kNeoX,           // use_parallel_residual
  kNoWindow,       // sliding_window is no field of its class
  kOffset,         // two more positions
  kOlmoHybrid,     // rope_theta, null where no token is rotated; sliding_window is no field
  kOpt,            // word_embed_proj_dim, do_layer_norm_before, two more positions
  kPersimmon,      // qk_layernorm, on
  kPhi,            // qk_layernorm
  kPostNorm,       // use_post_norm
  kQwen1,          // no_bias; intermediate_size is both branches
  kSmolLm,         // use_sliding_window, for layers that know no positions
  kSoftcap,        // final_logit_softcapping, attn_logit_softcapping
  kStableLm,       // use_parallel_residual, qk_layernorm
  kOwnWindow,      // use_sliding_window, by a rule of the class's own
  kWindow,         // use_sliding_window, max_window_layers
};

// What a class for sequence classification scores.
//   kOfTokens    every token: one product without a bias
//   kPooled      the first token behind BERT's pooler, with a bias
//   kUnmodelled  something else
enum class HfScores : uint8_t { kOfTokens, kPooled, kUnmodelled };

// One family. What is not said is Llama's.
struct HfFamily {
  absl::string_view model_type;
  const HfNames* names = nullptr;
  absl::string_view activation = "silu";  // where the field is unset
  bool tied_embeddings = false;           // where tie_word_embeddings is unset
  bool gated_mlp = true;
  Norm norm = Norm::kRmsNorm;
  NormPlacement norm_placement = NormPlacement::kPre;
  NormClass norm_class = NormClass::kUsual;
  bool norm_weight = true;
  bool norm_bias = false;
  bool embedding_norm = false;
  bool final_norm = true;
  bool qkv_bias = false;
  bool joint_qkv = false;
  bool joint_gate = false;
  bool concatenates_rotary = false;
  bool attention_output_bias = false;
  bool mlp_bias = false;
  bool head_bias = false;
  bool masked_lm_head = false;
  bool sentence_head = false;      // its ForPreTraining has BERT's second head
  bool base_pooler = false;        // its class without a head has BERT's pooler
  bool answers_by_labels = false;  // its question answering has a score for each label
  bool second_head_bias = false;   // a masked head that is not tied has two biases
  bool deep_reward = false;        // its reward models score behind a layer of their own
  HfScores sequence_scores = HfScores::kOfTokens;
  bool predicts_alone = false;  // it has no class that scores anything
  bool causal = true;
  bool attention_sinks = false;
  bool eager_attention = false;  // _supports_sdpa is false
  EagerScores eager_scores = EagerScores::kWideSoftmax;
  QkNorm qk_norm = QkNorm::kNone;
  bool norms_as_projected = false;  // queries before keys are projected, and keys before values
  PositionEmbedding position_embedding = PositionEmbedding::kRotary;
  HfDefaults defaults = {};
  HfExperts experts = {};
  HfLatent latent = {};
  HfLinear linear = {};
  HfStateSpace state_space = {};
  bool attention_gate = false;
  bool wide_logits = false;
  bool remote_code = false;            // transformers 5.23 has no class of it
  absl::string_view next_tokens = {};  // layers that predict further tokens, which it leaves out
  HfSwitch switches[3] = {};
  HfDropout dropouts[4] = {};
  HfQuirk quirk = HfQuirk::kNone;
};

// Returns all families, sorted by model_type.
absl::Span<const HfFamily> HfFamilies();

// Returns the row of `model_type`, or null.
const HfFamily* FindHfFamily(absl::string_view model_type);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_CATALOG_HF_FAMILIES_H_
