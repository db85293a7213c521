#pragma once

#include <vector>

#include "tern/core/ops/dropout.h"
#include "tern/core/tensor.h"

namespace tern {

/// How sequences lie in the token dimension. offsets: int32 [sequences + 1], cumulative lengths from 0 (packed, or 0,
/// S, 2S, ... for a padded batch); max_length is the longest. key_mask: uint8 or bool [tokens], 0 where a token is
/// padding and anything else where it is none. A floating mask (PyTorch's additive one, where 0 means the opposite) is
/// an Error.
struct SequenceLayout {
  Tensor offsets;
  int64_t max_length = 0;
  Tensor key_mask;
  Tensor row_keys;        // int64 [tokens] or undefined, see DropoutOptions
  Tensor positions = {};  // int64 or int32 [tokens], see rotary(); undefined: that of sequence_positions()
  int64_t tokens = -1;  // the last offset, if the host has it: on a GPU nothing else detects offsets that are too large
  int64_t sequences() const { return offsets.numel() - 1; }
};

struct AttentionOptions {
  double scale = 0;  // 0: 1 / sqrt(head_dim)
  bool causal = false;
  int64_t window = -1;  // sliding window: keys at most this far away, on each side
  double dropout = 0;   // of the probabilities
  Generator* generator = nullptr;
  Tensor bias = {};  // added to the scores: [sequences or 1, heads or 1, queries, keys], of any floating dtype
};

/// Fused scaled dot-product attention; no score matrix in memory, except for a second derivative: its first gradient
/// (create_graph) is made of ops, sequence by sequence. q: [tokens, heads, head_dim], k, v: [tokens,
/// kv_heads, head_dim]; result like q. Query and key sequences may differ (cross-attention). Where their lengths do,
/// causal and window align them at their ends: the last query has the position of the last key (as in flash-attention;
/// PyTorch's is_causal aligns the beginnings).
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const SequenceLayout& query_layout,
                 const SequenceLayout& key_layout, const AttentionOptions& options = {});

/// The same with keys and values in one tensor kv: [tokens, 2, kv_heads, head_dim], whose gradient is written as one.
/// Result [query tokens, heads * head_dim].
Tensor cross_attention(const Tensor& q, const Tensor& kv, const SequenceLayout& query_layout,
                       const SequenceLayout& key_layout, const AttentionOptions& options = {});

/// Self-attention on a fused projection qkv: [tokens, 3, heads, head_dim] (query, key, value); its gradient is written
/// as one tensor. Result [tokens, heads * head_dim].
Tensor self_attention(const Tensor& qkv, const SequenceLayout& layout, const AttentionOptions& options = {});

/// The layout of `batch` sequences of `length` tokens each, with an optional mask [batch, length] of bool or integers,
/// 0 where a token is padding. Throws Error on a floating mask.
SequenceLayout padded_layout(int64_t batch, int64_t length, const Tensor& key_mask = {}, Device device = {});
/// The layout of packed sequences of these lengths.
SequenceLayout packed_layout(const std::vector<int64_t>& lengths, Device device = {});
/// Each token's position in its sequence: int64 [tokens]. Tokens after the last sequence are counted from its end.
Tensor sequence_positions(const SequenceLayout& layout, int64_t tokens);

}  // namespace tern
