#pragma once
// Attention as ONNX has it, by Tern's op.

#include "tern/models/onnx/call.h"

namespace tern::onnx {

struct AttentionCall {
  Tensor q, k, v;           // [batch, heads, length, head size]; keys and values with the earlier ones
  Tensor mask = {};         // added to the scores: broadcasts to [batch, heads, queries, keys]; may be undefined
  Tensor key_lengths = {};  // int64 [batch] or undefined
  int64_t before = 0;       // keys before the first query
  int64_t left = -1, right = -1;
  bool causal = false;
  double scale = 0;
};

/// [batch, length, heads size] or [batch, heads, length, size] as the latter.
Tensor with_heads(const Tensor& x, int64_t heads);

/// The fused op: [batch, heads, queries, size of a value].
Tensor fused_attention(AttentionCall call);

}  // namespace tern::onnx
