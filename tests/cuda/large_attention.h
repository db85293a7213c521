#pragma once
// Attention in float64, step by step, with error bounds for 16-bit results of kernels that store no score matrix.

#include <array>
#include <numeric>
#include <ostream>

#include "tern/tests/cuda/large_shapes.h"

namespace tern {

struct AttentionCase {
  DType dtype = bfloat16;
  int64_t head_dim = 64, heads = 2, kv_heads = 2;
  bool causal = false;
  int64_t window = -1;
  double dropout = 0;
  bool masked = false;
  bool first_rows = false;            // only the first query of each sequence; not with causal or window
  bool fused = false;                 // q, k and v (or k and v) are slices of one tensor; not with grouped heads
  std::vector<int64_t> lengths = {};  // of the keys

  std::vector<int64_t> query_lengths() const { return first_rows ? std::vector<int64_t>(lengths.size(), 1) : lengths; }
};

inline std::ostream& operator<<(std::ostream& out, const AttentionCase& c) {
  out << c.dtype << ", head_dim " << c.head_dim << (c.causal ? ", causal" : "");
  if (c.window >= 0) out << ", window " << c.window;
  out << (c.kv_heads < c.heads ? ", grouped heads" : "") << (c.masked ? ", mask" : "")
      << (c.dropout > 0 ? ", dropout" : "") << (c.first_rows ? ", one query of each sequence" : "")
      << (c.fused ? ", one tensor" : "") << ", lengths";
  for (const int64_t n : c.lengths) out << " " << n;
  return out;
}

/// A result and the maximum error of a kernel's result, both float64 [tokens, heads, head_dim].
struct Bounded {
  Tensor value, bound;
};

namespace large_attention {

/// One head of one sequence. All tensors float64. seen, keep: [queries, keys].
struct Head {
  Tensor q, k, v, dout, seen, keep;
  double scale;
  DType dtype;
};

/// out, dq, and this head's terms of dk and dv.
inline std::array<Bounded, 4> evaluate(const Head& x) {
  const double u = unit_of(x.dtype), tiny = smallest_of(x.dtype);
  const auto n = static_cast<double>(x.k.size(0)), d = static_cast<double>(x.q.size(1));
  const auto times = [](const Tensor& a, const Tensor& b) { return matmul(a, b); };
  const auto row_sum = [](const Tensor& a) { return sum(a, {1}, true); };
  const Tensor kt = x.k.t().contiguous(), vt = x.v.t().contiguous();
  const Tensor aq = abs(x.q), ak = abs(x.k), av = abs(x.v), ado = abs(x.dout);

  // P and its relative error r, from scores (numerator and denominator), exponentials, sums.
  const Tensor scores = x.scale * times(x.q, kt) + (x.seen - 1.0) * 1e30;
  const Tensor e = exp(scores - max(scores, {1}, true)) * x.seen;
  const Tensor p = e / maximum(row_sum(e), full({}, 1e-300, {.dtype = float64}));
  const Tensor score_error = (x.scale * d * kSum) * times(aq, ak.t().contiguous()) * x.seen;
  const Tensor r = max(score_error, {1}, true) * 2.0 + (n + 64) * kSum;

  // out: P is rounded before its product with V, then the result is rounded.
  const Tensor pd = p * x.keep, out = times(pd, x.v);
  const Tensor out_error =
      u * abs(out) + (1 + u) * (r + (u + n * kSum)) * times(pd, av) + tiny * times(x.seen * x.keep, av) + tiny;

  // dP, and delta from the rounded out, or as the row sum of P dP.
  const Tensor dp = times(x.dout, vt) * x.keep, dp_error = (d * kSum) * times(ado, abs(vt)) * x.keep;
  const Tensor delta = row_sum(x.dout * out);
  const Tensor delta_error = row_sum(ado * out_error) + (d * kSum) * row_sum(ado * abs(out)) +
                             (r + n * kSum) * row_sum(p * abs(dp)) + row_sum(p * dp_error);

  // dS is rounded before its products.
  const Tensor ds = p * (dp - delta);
  const Tensor ds_error = p * (r * (abs(dp) + abs(delta)) + dp_error + delta_error);
  const Tensor f = (1 + u) * ds_error + u * abs(ds) + tiny * x.seen + (n * kSum) * abs(ds);
  const Tensor g = (1 + u) * pd * (r + (u + n * kSum)) + tiny * x.seen * x.keep;
  const auto turned = [](const Tensor& a) { return a.t().contiguous(); };
  return {Bounded{out, out_error}, Bounded{x.scale * times(ds, x.k), x.scale * times(f, ak)},
          Bounded{x.scale * times(turned(ds), x.q), x.scale * times(turned(f), aq)},
          Bounded{times(turned(pd), x.dout), times(turned(g), ado)}};
}

/// The bound of sums that are then rounded to dtype.
inline Tensor rounded_bound(const Bounded& x, DType dtype, double additions) {
  const double u = unit_of(dtype);
  return (1 + u) * (1 + additions * kSum) * x.bound + u * abs(x.value) + smallest_of(dtype);
}

/// 1 where a query of the sequence sees a key, otherwise 0. valid: 1 or 0 for each key of the sequence.
inline Tensor seen_of(const AttentionCase& c, const std::vector<double>& valid) {
  const auto n = static_cast<int64_t>(valid.size()), queries = c.first_rows ? 1 : n;
  std::vector<double> seen(static_cast<size_t>(queries * n));
  for (int64_t i = 0; i < queries; ++i)
    for (int64_t j = 0; j < n; ++j)
      seen[static_cast<size_t>(i * n + j)] =
          (!c.causal || j <= i) && (c.window < 0 || std::abs(i - j) <= c.window) ? valid[static_cast<size_t>(j)] : 0;
  return from_vector(seen, {queries, n}, {.dtype = float64});
}

/// The factors of dropout on probabilities, [heads, queries, keys] for each sequence, from attention's results for
/// uniform weights and unit vectors as values.
inline std::vector<Tensor> keep_of(const AttentionCase& c, uint64_t seed) {
  const std::vector<int64_t> query_lengths = c.query_lengths();
  std::vector<Tensor> keep;
  if (c.dropout == 0) {
    for (size_t s = 0; s < c.lengths.size(); ++s)
      keep.push_back(ones({c.heads, query_lengths[s], c.lengths[s]}, {.dtype = float64}));
    return keep;
  }
  std::vector<std::vector<Tensor>> parts(c.lengths.size());  // parts of columns for each sequence
  const int64_t tokens = std::accumulate(c.lengths.begin(), c.lengths.end(), int64_t{0});
  const int64_t queries = std::accumulate(query_lengths.begin(), query_lengths.end(), int64_t{0});
  const int64_t longest = *std::max_element(c.lengths.begin(), c.lengths.end());
  const Tensor q = zeros({queries, c.heads, c.head_dim});
  for (int64_t first = 0; first < longest; first += c.head_dim) {
    std::vector<float> units(static_cast<size_t>(tokens * c.head_dim));
    int64_t begin = 0;
    for (const int64_t n : c.lengths) {
      for (int64_t j = first; j < std::min(n, first + c.head_dim); ++j)
        units[static_cast<size_t>((begin + j) * c.head_dim + j - first)] = 1;
      begin += n;
    }
    const Tensor v = from_vector(units, {tokens, 1, c.head_dim});
    Generator draws(seed);
    const Tensor out = attention(q, v, v, packed_layout(query_lengths), packed_layout(c.lengths),
                                 {.dropout = c.dropout, .generator = &draws});
    begin = 0;
    for (size_t s = 0; s < c.lengths.size(); ++s) {
      const int64_t rows = query_lengths[s], n = c.lengths[s], width = std::min(c.head_dim, n - first);
      if (width > 0)
        parts[s].push_back(out.slice(0, begin, begin + rows).slice(2, 0, width).to(float64) * static_cast<double>(n));
      begin += rows;
    }
  }
  for (const std::vector<Tensor>& columns : parts) {  // [rows, heads, n] to [heads, rows, n], exactly 0 or 1 / (1 - p)
    const Tensor whole = cat(columns, 2).transpose(0, 1).contiguous();
    keep.push_back(gt(whole, full({}, 0.5, {.dtype = float64})).to(float64) / (1 - c.dropout));
  }
  return keep;
}

}  // namespace large_attention

/// out, dq, dk, dv. Inputs are float64; valid: 1 or 0 for each token as a key.
inline std::array<Bounded, 4> attention_reference(const AttentionCase& c, const Tensor& q, const Tensor& k,
                                                  const Tensor& v, const Tensor& dout, const std::vector<double>& valid,
                                                  uint64_t seed) {
  using namespace large_attention;
  const std::vector<Tensor> keep = keep_of(c, seed);
  const int64_t group = c.heads / c.kv_heads;
  std::vector<std::vector<Tensor>> values(4), bounds(4);  // for each sequence, [rows, heads or kv_heads, head_dim]
  const std::vector<int64_t> query_lengths = c.query_lengths();
  int64_t begin = 0, begin_queries = 0;
  for (size_t s = 0; s < c.lengths.size(); ++s) {
    const int64_t n = c.lengths[s], rows = query_lengths[s];
    const auto part = [](const Tensor& x, int64_t first, int64_t count, int64_t head) {
      return x.slice(0, first, first + count).select(1, head).contiguous();
    };
    const auto query_head = [&](const Tensor& x, int64_t head) { return part(x, begin_queries, rows, head); };
    const auto key_head = [&](const Tensor& x, int64_t head) { return part(x, begin, n, head); };
    const Tensor seen = seen_of(c, {valid.begin() + begin, valid.begin() + begin + n});
    std::vector<std::vector<Bounded>> heads(4);
    for (int64_t h = 0; h < c.heads; ++h) {
      const int64_t kv = h / group;
      std::array<Bounded, 4> one =
          evaluate({query_head(q, h), key_head(k, kv), key_head(v, kv), query_head(dout, h), seen,
                    keep[s].select(0, h).contiguous(), 1 / std::sqrt(static_cast<double>(c.head_dim)), c.dtype});
      for (size_t i = 0; i < 4; ++i) {
        if (i < 2 || h % group == 0) {
          heads[i].push_back(one[i]);
        } else {
          heads[i].back() = {heads[i].back().value + one[i].value, heads[i].back().bound + one[i].bound};
        }
      }
    }
    for (size_t i = 0; i < 4; ++i) {
      std::vector<Tensor> value, bound;
      for (const Bounded& head : heads[i]) {
        value.push_back(head.value);
        bound.push_back(i == 0 ? head.bound : rounded_bound(head, c.dtype, static_cast<double>(n * group)));
      }
      values[i].push_back(stack(value, 1));
      bounds[i].push_back(stack(bound, 1));
    }
    begin += n;
    begin_queries += rows;
  }
  std::array<Bounded, 4> all;
  for (size_t i = 0; i < 4; ++i) all[i] = {cat(values[i], 0), cat(bounds[i], 0)};
  return all;
}

}  // namespace tern
