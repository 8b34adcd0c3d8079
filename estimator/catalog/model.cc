#include "estimator/catalog/model.h"

#include <initializer_list>

#include "estimator/base/units.h"

namespace plimsoll {
namespace {

int64_t Product(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (int64_t factor : factors) product = Multiply(product, factor);
  return product;
}

int64_t Sum(std::initializer_list<int64_t> terms) {
  int64_t sum = 0;
  for (int64_t term : terms) sum = Add(sum, term);
  return sum;
}

// Parameters behind the last layer and its norm.
int64_t CountHead(const Transformer& m, int64_t embedding_size, int64_t norm) {
  const int64_t H = m.hidden_size, E = embedding_size, V = m.vocab_size;
  const int64_t dense = Sum({Product({H, H}), H});
  const bool masked = m.head == Head::kMaskedLanguageModel;
  return Sum({
      Product({masked, Sum({dense, norm, V})}),  // transform, and the bias of its product
      Product({m.sentence_head, Sum({dense, Product({2, H}), 2})}),
      Product({m.pooler, dense}),
      Product({PredictsTokens(m.head) && !m.tied_embeddings, V, E}),
      Product({PredictsTokens(m.head) && m.head_bias, V}),
      Product({m.label_count, E}),
      Product({m.head_bias, m.label_count}),
  });
}

// Norms over the hidden size in one layer.
int64_t NormsPerLayer(NormPlacement placement) {
  switch (placement) {
    case NormPlacement::kParallel:
      return 1;
    case NormPlacement::kSandwich:
      return 4;
    case NormPlacement::kPre:
    case NormPlacement::kPost:
    case NormPlacement::kParallelTwo:
    case NormPlacement::kPostOnly:
      return 2;
  }
  return 2;
}

// Of one MLP, with its biases; `width` is that of one branch.
int64_t CountMlp(const Transformer& m, int64_t width) {
  const int64_t ups = m.gated_mlp ? 2 : 1;
  return Sum({Product({ups + 1, m.hidden_size, width}),
              Product({m.mlp_bias, Add(Multiply(ups, width), m.hidden_size)})});
}

// How many layers have what.
struct LayerCounts {
  int64_t attention = 0;
  int64_t linear = 0;
  int64_t state_space = 0;
  int64_t mlp = 0;
  int64_t experts = 0;
};

LayerCounts CountLayers(const Transformer& m) {
  const int64_t L = m.layer_count;
  LayerCounts counts;
  counts.linear = m.linear.Any() ? m.linear.layers.CountOf(L) : 0;
  counts.state_space = m.state_space.Any() ? m.state_space.layers.CountOf(L) : 0;
  counts.experts = m.experts.Any() ? m.experts.layers.CountOf(L) : 0;
  const int64_t others = L - counts.linear - counts.state_space;
  counts.attention = m.one_sublayer ? m.attended.CountOf(L) : others;
  counts.mlp = (m.one_sublayer ? others - counts.attention : L) - counts.experts;
  return counts;
}

// Of all layers, and of as many routed experts in each as are asked for.
int64_t CountMlps(const Transformer& m, const LayerCounts& layers, int64_t routed) {
  const Experts& experts = m.experts;
  const int64_t shared = experts.shared_ffn_size == 0 ? 0 : CountMlp(m, experts.shared_ffn_size);
  const int64_t H = m.hidden_size;
  const int64_t width = experts.input_size == 0 ? H : experts.input_size;
  const int64_t projections = Sum({Product({2, H, width}), Product({m.mlp_bias, Add(H, width)})});
  const int64_t layer = Sum({
      Product({experts.count, Add(H, experts.biases)}),  // router
      Product({experts.input_size > 0, projections}),
      Product({routed, m.gated_mlp ? 3 : 2, width, experts.ffn_size}),
      Product(
          {routed, experts.biases, Add(Multiply(m.gated_mlp ? 2 : 1, experts.ffn_size), width)}),
      shared,
      Product({experts.shared_gate, H}),
  });
  return Sum({Product({layers.mlp, CountMlp(m, m.ffn_size)}), Product({layers.experts, layer})});
}

// Of one layer's latent attention.
int64_t CountLatent(const Transformer& m) {
  const LatentAttention& latent = m.latent;
  const int64_t H = m.hidden_size, Q = latent.query_rank, J = latent.key_value_rank;
  const int64_t A = Multiply(m.head_count, m.head_size);
  const int64_t W = Multiply(m.head_count, latent.value_size);
  const int64_t plain = Multiply(m.head_count, m.head_size - latent.rotary_size);
  const int64_t shared = Add(J, latent.rotary_size);
  return Sum({
      Q == 0 ? Product({H, A}) : Sum({Product({H, Q}), Product({Q, A})}),
      Product({H, shared}),
      Product({J, Add(plain, W)}),
      Product({W, H}),
      Product({m.qkv_bias, Add(Q, shared)}),
      Product({m.attention_output_bias, H}),
      Product({m.qk_norm == QkNorm::kPerRank, m.norm_weight + m.norm_bias, Add(Q, J)}),
  });
}

// Of one layer's linear attention, the norm of what it gives with it.
int64_t CountLinear(const Transformer& m) {
  const LinearAttention& linear = m.linear;
  const int64_t H = m.hidden_size, O = linear.value_head_count;
  const int64_t L = Multiply(linear.key_head_count, linear.key_size);
  const int64_t M = Multiply(O, linear.value_size);
  const int64_t convolved = Sum({Product({2, L}), M});
  return Sum({
      Product({H, Sum({convolved, M, Product({2, O})})}),
      Product({convolved, linear.kernel_size}),
      Product({2, O}),  // of the decay: its rate, and what is added to its step
      linear.value_size,
      Product({M, H}),
  });
}

// Of one layer's state space of Mamba 1.
int64_t CountSelective(const Transformer& m) {
  const StateSpace& space = m.state_space;
  const int64_t H = m.hidden_size, I = space.head_count, N = space.state_size;
  return Sum({
      Product({2, H, I}),
      Product({I, Add(space.kernel_size, space.convolution_bias)}),
      Product({I, Add(space.step_rank, Multiply(2, N))}),  // steps, what writes and what reads
      Product({I, Add(space.step_rank, 1)}),
      Product({I, Add(N, 1)}),  // decay, and what passes by
      Product({I, H}),
      Product({space.bias, Sum({I, I, H})}),
  });
}

// Of one layer's state space, the norm of what it gives with it.
int64_t CountStateSpace(const Transformer& m) {
  const StateSpace& space = m.state_space;
  if (space.Selective()) return CountSelective(m);
  const int64_t H = m.hidden_size;
  const int64_t I = Multiply(space.head_count, space.head_size);
  const int64_t convolved = Add(I, Product({2, space.group_count, space.state_size}));
  const int64_t projected = Sum({I, convolved, space.head_count});
  return Sum({
      Product({H, projected}),
      Product({convolved, Add(space.kernel_size, space.convolution_bias)}),
      Product({3, space.head_count}),  // decay, step, and what passes by
      I,
      Product({I, H}),
      Product({space.bias, Add(projected, H)}),
  });
}

// Of one layer's attention, norms on queries and keys with it.
int64_t CountAttention(const Transformer& m) {
  if (m.latent.Any()) return CountLatent(m);
  const int64_t H = m.hidden_size;
  const int64_t Q = Multiply(m.head_count, m.head_size);
  const int64_t KV = Product({2, m.kv_head_count, m.head_size});
  const int64_t projected = Add(Multiply(m.attention_gate ? 2 : 1, Q), KV);
  const int64_t qk_norm = m.qk_norm == QkNorm::kNone          ? 0
                          : m.qk_norm == QkNorm::kPerHead     ? Multiply(2, m.head_size)
                          : m.qk_norm == QkNorm::kPerHeadBias ? Multiply(4, m.head_size)
                                                              : Add(Q, KV / 2);
  return Sum({
      Product({H, projected}),                // query and its gate, key, value
      Product({m.qkv_bias, projected}),       //
      Product({Q, H}),                        // attention output
      Product({m.attention_output_bias, H}),  //
      Product({m.attention_sinks, m.head_count}),
      qk_norm,
  });
}

int64_t Count(const Transformer& m, int64_t routed) {
  const int64_t H = m.hidden_size, V = m.vocab_size;
  const int64_t E = m.embedding_size == 0 ? H : m.embedding_size;
  const int64_t norm = Multiply(m.norm_weight + m.norm_bias, H);
  const int64_t norms = m.one_sublayer ? 1 : NormsPerLayer(m.norm_placement);
  const LayerCounts layers = CountLayers(m);
  return Sum({
      Product({V, E}),                    // token embedding
      Product({m.position_count, H}),     // learned positions
      Product({m.token_type_count, H}),   // BERT's segments
      Product({m.embedding_norm, norm}),  //
      Product({E == H ? 0 : 2, E, H}),    // projections in and out (OPT 350M)
      Product({layers.attention, CountAttention(m)}),
      Product({layers.linear, CountLinear(m)}),
      Product({layers.state_space, CountStateSpace(m)}),
      Product({m.layer_count, norms, norm}),
      CountMlps(m, layers, routed),   //
      Product({m.final_norm, norm}),  //
      CountHead(m, E, norm),
  });
}

}  // namespace

int64_t CountParameters(const Transformer& model) { return Count(model, model.experts.count); }

int64_t CountActiveParameters(const Transformer& model) {
  return Count(model, model.experts.active_count);
}

}  // namespace plimsoll
