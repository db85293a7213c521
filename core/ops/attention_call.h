#pragma once
// One call of attention, and its gradients made of ops.

#include "tern/core/ops/attention.h"
#include "tern/kernels/attention.h"

namespace tern::detail {

/// The options and index tensors of one call, and the kernel's parameters made from them. Keeps the tensors alive.
struct AttentionCall {
  SequenceLayout query, key;
  Tensor bias;
  kernels::AttentionParams params;
};

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
