#pragma once

#include <optional>

#include "tern/nn/layers/linear.h"

namespace tern::nn {

struct MultiheadAttentionOptions {
  double dropout = 0;  // of the probabilities, in training
  bool bias = true;    // of the projections
  int64_t kdim = -1;   // width of the keys; -1: the embedding's
  int64_t vdim = -1;   // width of the values; -1: the embedding's
  bool batch_first = false;
};

struct MultiheadAttentionMasks {
  /// [batch, keys] ([keys] without a batch): bool, true where a key is ignored, or floating, added to the scores.
  Tensor key_padding_mask = {};
  /// [queries, keys] or [batch * heads, queries, keys]: bool, true where attention is not allowed, or floating, added.
  Tensor attn_mask = {};
};

struct AttentionOutput {
  Tensor output;   // like query
  Tensor weights;  // [batch, queries, keys], or [batch, heads, queries, keys]; undefined unless wanted
};

enum class AttentionWeights { kNone, kAverage, kPerHead };

/// torch.nn.MultiheadAttention, with its arguments and parameter names ("in_proj_weight" or "q_proj_weight", ...,
/// "in_proj_bias", "out_proj.weight"), without add_bias_kv and add_zero_attn (Vaswani et al., arXiv:1706.03762).
/// PackedAttention takes packed sequences and is what Tern's encoder is made of.
class MultiheadAttention final : public Module {
 public:
  /// embed must be a multiple of heads.
  MultiheadAttention(const Scope& s, int64_t embed, int64_t heads, const MultiheadAttentionOptions& options = {});

  /// query: [queries, batch, embed], key: [keys, batch, kdim], value: [keys, batch, vdim], batch and length exchanged
  /// with batch_first, or all three without a batch dimension. Without weights the fused attention computes; there a
  /// query whose keys are all masked gives zeros, with weights NaN.
  AttentionOutput forward(const Tensor& query, const Tensor& key, const Tensor& value,
                          const MultiheadAttentionMasks& masks = {},
                          AttentionWeights weights = AttentionWeights::kAverage) const;

 private:
  struct Heads {
    Tensor q, k, v;  // [batch, length, heads, size]
  };
  Heads project(const Tensor& query, const Tensor& key, const Tensor& value) const;
  Tensor score_bias(const MultiheadAttentionMasks& masks, const Heads& in) const;
  AttentionOutput batched(const Tensor& query, const Tensor& key, const Tensor& value,
                          const MultiheadAttentionMasks& masks, AttentionWeights weights) const;

  int64_t embed_, heads_;
  double dropout_;
  bool batch_first_;
  std::optional<Parameter> in_proj_weight_, q_proj_weight_, k_proj_weight_, v_proj_weight_, in_proj_bias_;
  Linear out_proj_;
};

/// float32 [length, length]: 0 on and below the diagonal, -infinity above: a causal attn_mask.
Tensor generate_square_subsequent_mask(int64_t length, Device device = {});

}  // namespace tern::nn
