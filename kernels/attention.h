#pragma once
// Fused scaled dot-product attention (Dao et al., arXiv:2205.14135, 2307.08691): softmax(scale * Q K^T + bias) V by
// blocks of queries and keys; the score matrix never reaches memory.

#include "tern/kernels/kernel.h"
#include "tern/kernels/random.h"

namespace tern::kernels {

/// Shapes and options of one call. q: [query tokens, heads, head_dim]; k, v: [key tokens, kv_heads, head_dim]; out like
/// q. The last dimension is contiguous; token and head strides are free, so q, k, v may be slices of one fused
/// projection. Sequences are packed: sequence s has the tokens offsets[s] .. offsets[s+1]-1. A padded batch [B, S] is
/// the same with offsets 0, S, 2S, ... and key_mask. dtype: fp64, fp32, bf16, fp16; fp32 (fp64) inside.
struct AttentionParams {
  int64_t sequences = 0;
  const int32_t* query_offsets = nullptr;  // [sequences + 1], device memory
  const int32_t* key_offsets = nullptr;    // [sequences + 1]; equal to query_offsets in self-attention
  int64_t max_query_length = 0;            // longest sequence, at least (host-known bound)
  int64_t max_key_length = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads: grouped-query attention; head h uses kv head h / (heads / kv_heads)
  int64_t head_dim = 0;
  double scale = 1;
  bool causal = false;                // key position <= query position, aligned at the end when lengths differ
  int64_t window = -1;                // >= 0: only keys within this distance of the query, each side, aligned alike
  const uint8_t* key_mask = nullptr;  // [key tokens], 0 = this key is padding; absent: all valid
  ConstView bias;                     // absent, or [sequences or 1, heads or 1, max query, max key], strides free
  Dropout dropout;                    // on the probabilities: lane = head, column = key position in its sequence
  const int64_t* row_keys = nullptr;  // [query tokens] or absent (then the query token's index; see random.h)
};

/// log_sum_exp: fp32 (fp64) [heads, query tokens], saved for backward. A query that may see no key gives 0 and
/// log_sum_exp = -infinity; so do tokens outside all sequences.
TERN_KERNEL(int64_t, attention_forward_workspace, Stream stream, const AttentionParams& params, DType dtype);
TERN_KERNEL(void, attention_forward, Stream stream, const AttentionParams& params, ConstView q, ConstView k,
            ConstView v, View out, View log_sum_exp, void* workspace);

/// Gradients, written (not accumulated) with free token and head strides: they may be slices of one fused gradient.
/// dbias may be absent; it has bias's shape, contiguous, fp32 (fp64). Tokens outside all sequences
/// get 0. Deterministic: each output element has one writer.
TERN_KERNEL(int64_t, attention_backward_workspace, Stream stream, const AttentionParams& params, DType dtype);
TERN_KERNEL(void, attention_backward, Stream stream, const AttentionParams& params, ConstView q, ConstView k,
            ConstView v, ConstView out, ConstView dout, ConstView log_sum_exp, View dq, View dk, View dv, View dbias,
            void* workspace);

}  // namespace tern::kernels
