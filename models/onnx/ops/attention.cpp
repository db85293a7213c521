// Attention, rotary positions, and layers of sequences that take their place.

#include <cmath>

#include "tern/kernels/base/check.h"
#include "tern/models/onnx/ops/attention.h"
#include "tern/models/onnx/registry.h"

namespace tern::onnx {

Tensor with_heads(const Tensor& x, int64_t heads) {
  if (x.dim() == 4) return x;
  TERN_CHECK(x.dim() == 3 && heads > 0 && x.size(2) % heads == 0, heads, " heads of ", x.describe());
  return x.reshape({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

namespace {

/// The mask with -infinity at keys that the causal order, the window or the lengths hide; undefined if there is none.
Tensor whole_mask(const AttentionCall& a) {
  if (!a.causal && a.left < 0 && a.right < 0 && !a.key_lengths.defined()) return a.mask;
  const int64_t queries = a.q.size(2), keys = a.k.size(2);
  const TensorOptions options{.dtype = int64, .device = a.q.device()};
  const Tensor key = arange(0, static_cast<double>(keys), 1, options);
  Tensor query = arange(0, static_cast<double>(queries), 1, options).unsqueeze(1) + static_cast<double>(a.before);
  Tensor lengths;
  if (a.key_lengths.defined()) {
    lengths = a.key_lengths.to(int64).reshape({-1, 1, 1, 1});
    query = query + lengths - static_cast<double>(queries);
  }
  Tensor seen = ones({1, 1, queries, keys}, {.dtype = boolean, .device = a.q.device()});
  if (a.causal) seen = logical_and(seen, key <= query);
  if (a.left >= 0) seen = logical_and(seen, key >= query - static_cast<double>(a.left));
  if (a.right >= 0) seen = logical_and(seen, key <= query + static_cast<double>(a.right));
  if (lengths.defined()) seen = logical_and(seen, key < lengths);
  const Tensor mask = a.mask.defined() ? a.mask : zeros({1, 1, 1, 1}, {a.q.dtype(), a.q.device()});
  return where(seen, mask, -INFINITY);
}

/// [batch, heads, length, size] as tokens [batch length, heads, size], with zeros up to the size.
Tensor tokens_of(const Tensor& x, int64_t size) {
  const Tensor y = x.size(3) == size ? x : pad(x, {0, size - x.size(3)});
  return y.transpose(1, 2).reshape({y.size(0) * y.size(2), y.size(1), size});
}

}  // namespace

Tensor fused_attention(AttentionCall a) {
  const int64_t batch = a.q.size(0), queries = a.q.size(2), size = std::max(a.q.size(3), a.v.size(3));
  const int64_t last = a.before + queries, width = a.v.size(3);
  AttentionOptions options{.scale = a.scale};
  if (a.causal && !a.key_lengths.defined() && last <= a.k.size(2) && a.right < 0) {
    a.k = a.k.narrow(2, 0, last);  // no query sees more
    a.v = a.v.narrow(2, 0, last);
    options.causal = true;
    options.window = a.left;
    if (a.mask.defined()) options.bias = a.mask.size(3) == 1 ? a.mask : a.mask.narrow(3, 0, last);
  } else {
    options.bias = whole_mask(a);
  }
  const SequenceLayout keys = padded_layout(batch, a.k.size(2), {}, a.q.device());
  if (options.bias.defined()) {
    const Tensor& bias = options.bias;
    options.bias = bias.expand({bias.size(0), bias.size(1), queries, a.k.size(2)}).contiguous();
  }
  const Tensor y = attention(tokens_of(a.q, size), tokens_of(a.k, size), tokens_of(a.v, size),
                             padded_layout(batch, queries, {}, a.q.device()), keys, options);
  const Tensor heads = y.reshape({batch, queries, a.q.size(1), size}).transpose(1, 2);
  return width == size ? heads : heads.narrow(3, 0, width);
}

namespace {

/// By products and a softmax: the result, and the scores as qk_matmul_output_mode says.
std::pair<Tensor, Tensor> separate_attention(const AttentionCall& a, double cap, int64_t mode) {
  const int64_t repeats = a.q.size(1) / std::max<int64_t>(1, a.k.size(1));
  const Tensor k = repeats == 1 ? a.k : repeat_interleave(a.k, repeats, 1);
  const Tensor v = repeats == 1 ? a.v : repeat_interleave(a.v, repeats, 1);
  Tensor scores = matmul(a.q, k.t()) * a.scale;
  if (cap > 0) scores = tanh(scores / cap) * cap;
  const Tensor mask = whole_mask(a);
  if (!mask.defined()) {
    const Tensor probabilities = softmax(scores);
    return {matmul(probabilities, v), mode == 3 ? probabilities : scores};
  }
  const Tensor masked = scores + mask;
  // A query without keys gets 0. Its scores are replaced, because a softmax of -infinities has no gradient.
  const Tensor none = max(mask.detach(), {-1}, true) == -INFINITY;
  const Tensor probabilities = where(none, 0.0, softmax(where(none, 0.0, masked))).to(a.q.dtype());
  return {matmul(probabilities, v), mode == 2 ? masked.to(a.q.dtype()) : mode == 3 ? probabilities : scores};
}

void attention_of(Call& c) {
  const int64_t q_heads = c.integer("q_num_heads", 0), kv_heads = c.integer("kv_num_heads", 0);
  AttentionCall a{.q = with_heads(c.in(0), q_heads),
                  .k = with_heads(c.in(1), kv_heads),
                  .v = with_heads(c.in(2), kv_heads),
                  .key_lengths = c.in_or_none(6),
                  .left = c.integer("left_window_size", -1),
                  .right = c.integer("right_window_size", -1),
                  .causal = c.flag("is_causal")};
  TERN_CHECK(a.k.size(1) > 0 && a.q.size(1) % a.k.size(1) == 0, a.q.size(1), " heads of queries for ", a.k.size(1),
             " of keys");
  a.scale = c.number("scale", 1 / std::sqrt(static_cast<double>(a.q.size(-1))));
  TERN_CHECK(c.has(4) == c.has(5), "past keys and values come together");
  if (c.has(4)) {
    a.before = c.in(4).size(2);
    a.k = cat({c.in(4), a.k}, 2);
    a.v = cat({c.in(5), a.v}, 2);
  }
  if (c.has(3)) {
    const Tensor given = c.in(3);
    a.mask = given.dtype() == boolean ? where(given, zeros(given.shape(), a.q.options()), -INFINITY) : given;
    if (a.mask.size(-1) < a.k.size(2) && a.mask.size(-1) != 1)
      a.mask = pad(a.mask, {0, a.k.size(2) - a.mask.size(-1)}, PadMode::kConstant, -INFINITY);
    while (a.mask.dim() < 4) a.mask = a.mask.unsqueeze(0);
  }
  const double cap = c.number("softcap", 0);
  Tensor result, scores;
  // The fused op has no scores to return; and where a query sees no key at all, the separate one gives 0.
  if (cap > 0 || c.wants(3) || a.key_lengths.defined() || a.scale == 0) {
    std::tie(result, scores) = separate_attention(a, cap, c.integer("qk_matmul_output_mode", 0));
  } else {
    result = fused_attention(a);
  }
  if (c.in(0).dim() == 3) result = result.transpose(1, 2).flatten(2);
  c.set(0, result);
  if (c.wants(1)) c.set(1, a.k);
  if (c.wants(2)) c.set(2, a.v);
  if (c.wants(3)) c.set(3, scores);
}

/// Scores and probabilities may pass through graphs.
void flex_attention(Call& c) {
  const Tensor q = c.in(0);
  Tensor k = c.in(1), v = c.in(2);
  const int64_t repeats = q.size(1) / std::max<int64_t>(1, k.size(1));
  if (repeats > 1) {
    k = repeat_interleave(k, repeats, 1);
    v = repeat_interleave(v, repeats, 1);
  }
  const double scale = c.number("scale", 1 / std::sqrt(static_cast<double>(q.size(-1))));
  const auto through = [&](const char* name, const Tensor& x) {
    if (!c.has_attribute(name)) return x;
    const std::vector<Value> results = c.run_body(name, {{x, element_of(x.dtype())}});
    TERN_CHECK(results.size() == 1, "its graph '", name, "' has ", results.size(), " outputs");
    return results[0].tensor;
  };
  const Tensor scores = through("score_mod", matmul(q, k.t()) * scale);
  const Tensor probabilities = through("prob_mod", softmax(scores).to(q.dtype()));
  c.set(matmul(probabilities, v));
}

void rotary_of(Call& c) {
  const Tensor given = c.in(0);
  const int64_t heads = c.integer("num_heads", 0);
  const Tensor x = with_heads(given, heads).transpose(1, 2);  // [batch, length, heads, size]
  int64_t rotated = c.integer("rotary_embedding_dim", 0);
  if (rotated == 0) rotated = x.size(3);
  TERN_CHECK(rotated > 0 && rotated <= x.size(3) && rotated % 2 == 0, "it rotates ", rotated, " of ", x.size(3));
  Tensor cosine = c.in(1), sine = c.in(2);
  if (c.has(3)) {
    cosine = embedding(cosine, c.in(3).to(int64));
    sine = embedding(sine, c.in(3).to(int64));
  }
  cosine = cosine.unsqueeze(2);
  sine = sine.unsqueeze(2);
  const bool interleaved = c.flag("interleaved");
  const Tensor part = rotated == x.size(3) ? x : x.narrow(3, 0, rotated);
  const Tensor a = interleaved ? part.slice(3, 0, INT64_MAX, 2) : part.narrow(3, 0, rotated / 2);
  const Tensor b = interleaved ? part.slice(3, 1, INT64_MAX, 2) : part.narrow(3, rotated / 2, rotated / 2);
  const Tensor real = cosine * a - sine * b, imaginary = sine * a + cosine * b;
  Tensor y = interleaved ? stack({real, imaginary}, -1).flatten(3) : cat({real, imaginary}, 3);
  if (rotated < x.size(3)) y = cat({y, x.slice(3, rotated)}, 3);
  c.set((given.dim() == 3 ? y.reshape(given.shape()) : y.transpose(1, 2)).to(given.dtype()));
}

/// A state of each head that is read by queries and written by keys and values, step by step.
void linear_attention(Call& c) {
  const Tensor given = c.in(0);
  const int64_t q_heads = c.integer("q_num_heads", 0), heads = c.integer("kv_num_heads", 0);
  const std::string rule = c.text("update_rule", "gated_delta");
  const bool gates = rule == "gated" || rule == "gated_delta", corrects = rule == "delta" || rule == "gated_delta";
  TERN_CHECK(gates || corrects || rule == "linear", "the rule '", rule, "'");
  TERN_CHECK(heads > 0 && q_heads > 0 && q_heads % heads == 0, q_heads, " heads of queries for ", heads);
  TERN_CHECK(gates == c.has(4) && corrects == c.has(5), "decay or beta do not fit the rule '", rule, "'");
  const DType wide = is_low_precision(given.dtype()) ? float32 : given.dtype();
  const Tensor q = with_heads(given, q_heads).to(wide), k = with_heads(c.in(1), heads).to(wide),
               v = with_heads(c.in(2), heads).to(wide);
  const int64_t batch = q.size(0), length = q.size(2), size = q.size(3), width = v.size(3);
  Tensor decay, beta;
  if (gates) decay = exp(with_heads(c.in(4), heads).to(wide));
  if (corrects) {
    const Tensor b = c.in(5).to(wide);
    beta = with_heads(b, b.size(2) == 1 ? 1 : heads);
  }
  Tensor state = c.has(3) ? c.in(3).to(wide) : zeros({batch, heads, size, width}, {wide, q.device()});
  const double given_scale = c.number("scale", 0);
  const double scale = given_scale == 0 ? 1 / std::sqrt(static_cast<double>(size)) : given_scale;
  Tensors results;
  for (int64_t t = 0; t < length; ++t) {
    const Tensor key = k.select(2, t);
    Tensor value = v.select(2, t);
    if (gates) state = state * decay.select(2, t).unsqueeze(-1);
    if (corrects) value = beta.select(2, t) * (value - matmul(key.unsqueeze(2), state).squeeze(2));
    state = state + key.unsqueeze(-1) * value.unsqueeze(-2);
    const Tensor read = q_heads == heads ? state : repeat_interleave(state, q_heads / heads, 1);
    results.push_back(matmul(q.select(2, t).unsqueeze(2), read).squeeze(2) * scale);
  }
  TERN_CHECK(!results.empty(), "the sequence is empty");
  c.set(0, stack(results, 1).flatten(2).to(given.dtype()));
  if (c.wants(1)) c.set(1, state.to(c.has(3) ? c.in(3).dtype() : given.dtype()));
}

/// A depthwise convolution over the time so far.
void causal_convolution(Call& c) {
  const Tensor x = c.in(0), weight = c.in(1);
  TERN_CHECK(x.dim() == 3 && weight.dim() == 3, "expected [batch, channels, length], got ", x.describe());
  const int64_t before = weight.size(2) - 1;
  const Tensor past = c.has(3) ? c.in(3) : zeros({x.size(0), x.size(1), before}, x.options());
  const Tensor whole = cat({past, x}, 2);
  const Tensor y = conv1d(whole, weight, c.in_or_none(2), {.groups = x.size(1)});
  const std::string activation = c.text("activation", "none");
  TERN_CHECK(activation == "none" || activation == "silu" || activation == "swish", "the activation '", activation,
             "'");
  c.set(0, activation == "none" ? y : silu(y));
  if (c.wants(1)) c.set(1, whole.narrow(2, whole.size(2) - before, before));
}

}  // namespace

void add_attention_ops(Rows& rows) {
  const Rows own = {
      {"Attention", 23, attention_of},
      {"RotaryEmbedding", 23, rotary_of},
      {"LinearAttention", 1, linear_attention},
      {"CausalConvWithState", 1, causal_convolution},
      {"FlexAttention", 1, flex_attention, nullptr, "ai.onnx.preview"},
  };
  rows.insert(rows.end(), own.begin(), own.end());
}

}  // namespace tern::onnx
