#pragma once
// ONNX's Attention by Tern's attention, or by products and a softmax where it also returns scores or caps them.

#include "tern/tests/core/onnx.h"

namespace tern::test::onnx {

struct AttentionCase {
  Tensor q, k, v;           // [batch, heads, length, head size]; keys and values with the earlier ones
  Tensor mask = {};         // added to the scores: broadcasts to [batch, heads, queries, keys]; may be undefined
  Tensor key_lengths = {};  // int64 [batch] or undefined
  int64_t before = 0;       // keys before the first query
  int64_t left = -1, right = -1;
  bool causal = false;
  double scale = 0;
};

/// [batch, length, heads size] or [batch, heads, length, size] as the latter.
inline Tensor with_heads(const Tensor& x, int64_t heads) {
  return x.dim() == 4 ? x : x.reshape({x.size(0), x.size(1), heads, -1}).transpose(1, 2);
}

inline AttentionCase attention_case(const Case& c) {
  AttentionCase a{.q = with_heads(c.in(0), c.integer("q_num_heads", 0)),
                  .k = with_heads(c.in(1), c.integer("kv_num_heads", 0)),
                  .v = with_heads(c.in(2), c.integer("kv_num_heads", 0)),
                  .key_lengths = c.in(6),
                  .left = c.integer("left_window_size", -1),
                  .right = c.integer("right_window_size", -1),
                  .causal = c.integer("is_causal", 0) != 0};
  a.scale = c.get("scale", 1 / std::sqrt(static_cast<double>(a.q.size(-1))));
  if (c.has(4)) {
    a.before = c.in(4).size(2);
    a.k = cat({c.in(4), a.k}, 2);
    a.v = cat({c.in(5), a.v}, 2);
  }
  if (c.has(3)) {
    const bool choice = c.in(3).dtype() == boolean;
    a.mask = choice ? where(c.in(3), zeros_like(c.in(3)).to(a.q.dtype()), -INFINITY) : c.in(3);
    if (a.mask.size(-1) < a.k.size(2))
      a.mask = pad(a.mask, {0, a.k.size(2) - a.mask.size(-1)}, PadMode::kConstant, -INFINITY);
    while (a.mask.dim() < 4) a.mask = a.mask.unsqueeze(0);
  }
  return a;
}

/// The mask with -infinity at keys that the causal order, the window or the lengths hide; undefined if there is none.
inline Tensor whole_mask(const AttentionCase& a) {
  const int64_t queries = a.q.size(2), keys = a.k.size(2);
  const TensorOptions options = {.dtype = int64, .device = a.q.device()};
  const Tensor key = arange(0, static_cast<double>(keys), 1, options);
  Tensor query = arange(0, static_cast<double>(queries), 1, options).unsqueeze(1) + static_cast<double>(a.before);
  if (a.key_lengths.defined()) query = query + a.key_lengths.reshape({-1, 1, 1, 1}) - static_cast<double>(queries);
  Tensor seen = ones({1, 1, queries, keys}, {.dtype = boolean, .device = a.q.device()});
  if (a.causal) seen = logical_and(seen, key <= query);
  if (a.left >= 0) seen = logical_and(seen, key >= query - static_cast<double>(a.left));
  if (a.right >= 0) seen = logical_and(seen, key <= query + static_cast<double>(a.right));
  if (a.key_lengths.defined()) seen = logical_and(seen, key < a.key_lengths.reshape({-1, 1, 1, 1}));
  const Tensor mask = a.mask.defined() ? a.mask : zeros({1, 1, 1, 1}, {a.q.dtype(), a.q.device()});
  return where(seen, mask, -INFINITY);
}

/// [batch, heads, length, size] as tokens [batch length, heads, size], with zeros up to the size.
inline Tensor tokens_of(const Tensor& x, int64_t size) {
  return pad(x, {0, size - x.size(3)}).transpose(1, 2).flatten(0, 1);
}

/// By the fused op. Where queries and keys end at the same place, causal order and window are its options.
inline Tensor fused_attention(AttentionCase a) {
  const int64_t batch = a.q.size(0), queries = a.q.size(2), size = std::max(a.q.size(3), a.v.size(3));
  const int64_t last = a.before + queries, width = a.v.size(3);
  AttentionOptions options{.scale = a.scale};
  SequenceLayout keys;
  if (a.causal && !a.key_lengths.defined() && last <= a.k.size(2) && a.right < 0) {
    a.k = a.k.narrow(2, 0, last);  // no query sees more
    a.v = a.v.narrow(2, 0, last);
    options.causal = true;
    options.window = a.left;
    if (a.mask.defined()) options.bias = a.mask.narrow(3, 0, last);
  } else if (a.causal || a.left >= 0 || a.right >= 0) {
    options.bias = whole_mask(a);
  } else {
    options.bias = a.mask;
    if (a.key_lengths.defined()) {
      const Tensor key = arange(0, static_cast<double>(a.k.size(2)), 1, a.key_lengths.options());
      keys = padded_layout(batch, a.k.size(2), key < a.key_lengths.unsqueeze(1), a.q.device());
    }
  }
  if (!keys.offsets.defined()) keys = padded_layout(batch, a.k.size(2), {}, a.q.device());
  if (options.bias.defined()) {
    const Tensor& bias = options.bias;
    options.bias = bias.expand({bias.size(0), bias.size(1), queries, a.k.size(2)}).contiguous();
  }
  const Tensor y = attention(tokens_of(a.q, size), tokens_of(a.k, size), tokens_of(a.v, size),
                             padded_layout(batch, queries, {}, a.q.device()), keys, options);
  return y.reshape({batch, queries, a.q.size(1), size}).transpose(1, 2).narrow(3, 0, width);
}

/// Batches of different numbers of keys, packed: the causal order is aligned at their ends.
inline Tensor packed_attention(const AttentionCase& a) {
  const std::vector<int64_t> lengths = a.key_lengths.to_vector<int64_t>();
  Tensors keys, values;
  for (size_t b = 0; b < lengths.size(); ++b) {
    keys.push_back(a.k[static_cast<int64_t>(b)].narrow(1, 0, lengths[b]).transpose(0, 1));
    values.push_back(a.v[static_cast<int64_t>(b)].narrow(1, 0, lengths[b]).transpose(0, 1));
  }
  const Tensor y = attention(tokens_of(a.q, a.q.size(3)), cat(keys), cat(values),
                             padded_layout(a.q.size(0), a.q.size(2), {}, a.q.device()),
                             packed_layout(lengths, a.q.device()), {.scale = a.scale, .causal = a.causal});
  return y.reshape({a.q.size(0), a.q.size(2), a.q.size(1), a.q.size(3)}).transpose(1, 2);
}

/// By products and a softmax: the result, and the scores as qk_matmul_output_mode says.
inline Tensors separate_attention(const AttentionCase& a, double cap, int64_t mode) {
  const int64_t repeats = a.q.size(1) / a.k.size(1);
  const Tensor k = repeat_interleave(a.k, repeats, 1), v = repeat_interleave(a.v, repeats, 1);
  Tensor scores = matmul(a.q, k.t()) * a.scale;
  if (cap > 0) scores = tanh(scores / cap) * cap;
  const Tensor mask = whole_mask(a), masked = scores + mask;
  const Tensor none = max(mask, {-1}, true) == -INFINITY;  // a query without keys gets 0
  const Tensor probabilities = where(none, 0.0, softmax(masked));
  return {matmul(probabilities, v), mode == 2 ? masked : mode == 3 ? probabilities : scores};
}

inline void add_attention(Table& table) {
  table["FlexAttention"] = [](const Case& c) { return Tensors{fused_attention(attention_case(c))}; };
  table["Attention"] = [](const Case& c) {
    const AttentionCase a = attention_case(c);
    const double cap = c.get("softcap", 0.0);
    const bool cached = c.has(4), with_scores = c.outputs.size() == (cached ? 4 : 2);
    Tensors results;
    if (cap > 0 || with_scores)
      results = separate_attention(a, cap, c.integer("qk_matmul_output_mode", 0));
    else if (a.key_lengths.defined() && a.causal && !a.mask.defined())
      results = {packed_attention(a)};
    else
      results = {fused_attention(a)};
    if (c.in(0).dim() == 3) results[0] = results[0].transpose(1, 2).flatten(2);
    if (!with_scores) results.resize(1);
    if (cached) results.insert(results.begin() + 1, {a.k, a.v});
    return results;
  };
}

}  // namespace tern::test::onnx
