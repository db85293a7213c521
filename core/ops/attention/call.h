#pragma once
// One call of attention, and its gradients made of ops.

#include "tern/core/ops/attention/attention.h"
#include "tern/kernels/attention.h"

namespace tern::detail {

/// The options and index tensors of one call, and the kernel's parameters made from them. Keeps the tensors alive.
struct AttentionCall {
  SequenceLayout query, key;
  Tensor bias;
  kernels::AttentionParams params;
};

/// Self-attention of `tokens` rows of queries, keys and values on `device`. Throws Error on what does not fit.
AttentionCall self_attention_call(const SequenceLayout& layout, const AttentionOptions& options, int64_t heads,
                                  int64_t head_dim, int64_t tokens, Device device);

/// For a profile: the operations of `products` products of all pairs of a query and a key that see each other. Two in
/// forward; in backward the scores again and four. Where the offsets are not to be had without waiting, the pairs are
/// those of sequences of equal length: the least there can be in self-attention.
void count_attention_flops(const kernels::AttentionParams& params, Device device, int64_t queries, int64_t keys,
                           DType dtype, int products);

/// Undefined: not wanted.
struct AttentionGradients {
  Tensor q, k, v, bias;
};

/// The gradients as functions of q, k, v, bias and dout that can be differentiated again, any number of times. q, dout:
/// [tokens, heads, head_dim], k, v: [tokens, kv_heads, head_dim]. Sequence by sequence, with the matrix of scores in
/// memory. On a GPU the host waits for the offsets. The result of 16-bit inputs is fp32.
AttentionGradients attention_gradients(const AttentionCall& call, const Tensor& q, const Tensor& k, const Tensor& v,
                                       const Tensor& bias, const Tensor& dout);

}  // namespace tern::detail
