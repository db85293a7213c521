#pragma once

#include <array>
#include <optional>

#include "tern/core/ops/attention/attention.h"
#include "tern/core/ops/attention/rotary.h"
#include "tern/nn/key_value_cache.h"
#include "tern/nn/layers/linear.h"

namespace tern::nn {

struct PackedAttentionOptions {
  bool bias = true;      // of the projections
  bool qkv_bias = true;  // false: the output's projection alone has one
  double dropout = 0;    // of the probabilities, in training
  bool causal = false;
  int64_t window = -1;                       // sliding window, see AttentionOptions
  int64_t kv_heads = 0;                      // of keys and values, divides heads (grouped-query attention); 0: heads
  std::optional<RotaryOptions> rotary = {};  // rotary embeddings of queries and keys, in self-attention
  Initializer weight_init = {};              // of all projections; torch.nn.MultiheadAttention's unless given
};

/// Multi-head attention (Vaswani et al., arXiv:1706.03762), with fewer heads of keys and values on request (Ainslie et
/// al., arXiv:2305.13245). Parameters: "qkv" [width + 2 * kv_width, width], whose rows are the query's, the key's and
/// the value's projection (torch's in_proj_weight), and "out" [width, width]; kv_width is width / heads * kv_heads.
class PackedAttention final : public Module {
 public:
  /// width must be a multiple of heads.
  PackedAttention(const Scope& s, int64_t width, int64_t heads, const PackedAttentionOptions& options = {});

  /// Self-attention of packed or flattened sequences. x: [tokens, width]; result the same.
  Tensor forward(const Tensor& x, const SequenceLayout& layout) const;
  /// Self-attention of a padded batch. x: [batch, length, width]; key_mask: [batch, length] of bool or integers, 0
  /// where a token is padding. Throws Error on a floating mask, as PyTorch's additive ones are.
  Tensor forward(const Tensor& x, const Tensor& key_mask = {}) const;
  /// Cross-attention: queries from x [tokens, width], keys and values from memory [memory tokens, width].
  Tensor forward(const Tensor& x, const SequenceLayout& layout, const Tensor& memory,
                 const SequenceLayout& memory_layout) const;
  /// Causal self-attention of the new tokens of a cache, x: [new tokens, width], to all tokens of their sequences. The
  /// layer must be causal; `layer` is its number in the cache, whose extend() was called for the new tokens.
  Tensor forward(const Tensor& x, KeyValueCache& cache, int64_t layer) const;

  // The same, for more steps.
  RowChain chain(const Tensor& x, const SequenceLayout& layout) const;
  RowChain chain(const Tensor& x, const SequenceLayout& layout, const Tensor& memory,
                 const SequenceLayout& memory_layout) const;

  /// The probabilities that forward(x, layout) weights values with, without dropout: [sequences, heads, length,
  /// length], of sequences of one length. x: [tokens, width].
  Tensor probabilities(const Tensor& x, const SequenceLayout& layout) const;

 private:
  RowChain steps(const Tensor& x, const SequenceLayout& layout) const;
  RowChain steps(const Tensor& x, const SequenceLayout& layout, const Tensor& memory,
                 const SequenceLayout& memory_layout) const;
  std::array<Tensor, 3> projections(const Tensor& x) const;
  Tensor rotated(const Tensor& x, const Tensor& positions) const;
  AttentionOptions attention_options() const;
  void check_tokens(const Tensor& x, const char* what) const;

  int64_t width_, heads_, kv_heads_;
  double dropout_;
  bool causal_;
  int64_t window_;
  std::optional<RotaryOptions> rotary_;
  Linear qkv_, out_;
};

}  // namespace tern::nn
