#pragma once
// The definition of attention in fp64, and error bounds of the results: one rule for every kernel, dtype and input.

#include "tern/tests/kernels/contracts/attention.h"

namespace tern::kernels::attention_test {

inline constexpr double kInf = std::numeric_limits<double>::infinity();

/// The exact results of a trial, and their largest errors, element by element, to first order plus a tenth: the
/// rounding of each step of the definition, propagated to the results by the derivatives of the later steps. The error
/// of a sum of n terms is at most n u sum|terms|, with u the unit of the compute type, and exceeds 6 sqrt(n) u
/// sum|terms| with a probability below 1e-7 (Higham and Mary, "A new approach to probabilistic rounding error
/// analysis", 2019). delta = sum(dO O) contains the rounding of the stored O: where a query sees one key, dS consists
/// of this error alone.
class Definition {
 public:
  Results exact, bound;

  /// `rounds_factors`: the factors of products on tensor cores (P, P after dropout, and dS) are rounded to the dtype.
  Definition(const Trial& t, bool rounds_factors)
      : exact{std::vector<double>(t.out.view.numel()), std::vector<double>(t.lse.numel(), -kInf),
              std::vector<double>(t.dq.view.numel()),  std::vector<double>(t.dk.view.numel()),
              std::vector<double>(t.dv.view.numel()),  std::vector<double>(t.c.has_bias() ? t.dbias.numel() : 0)},
        t_(t),
        c_(t.c),
        unit_(c_.dtype == float64 ? 0x1p-53 : 0x1p-24),
        stored_(epsilon_of(c_.dtype)),
        tiny_(c_.dtype == float16   ? 0x1p-25
              : c_.dtype == float64 ? 0x1p-1000
                                    : 0x1p-126),
        factor_(rounds_factors ? stored_ : 0),
        factor_tiny_(rounds_factors ? tiny_ : 0),
        p_tiny_(factor_tiny_ + kFlushed),
        q_(values_of(t.q.view)),
        k_(values_of(t.k.view)),
        v_(values_of(t.v.view)),
        dout_(values_of(t.dout.view)),
        bias_(t.bias.values()),
        bias_count_(exact.dbias.size()) {
    for (const auto& [name, part] : kParts) (bound.*part).resize((exact.*part).size());
    terms_ = bound;
    for (int64_t s = 0; s < c_.sequences(); ++s)
      for (int64_t h = 0; h < c_.heads; ++h)
        for (int64_t i = 0; i < c_.query_offsets[s + 1] - c_.query_offsets[s]; ++i) add_query({s, h, i});
    finish();
  }
  explicit Definition(const Trial& t) : Definition(t, !target().is_cpu() && is_low_precision(t.c.dtype)) {}

 private:
  /// Probabilities below this may become zero.
  static constexpr double kFlushed = 0x1p-79;

  struct Query {
    int64_t sequence, head, i;
  };
  /// A key that a query sees. P is before dropout, which multiplies it by `keep`; dp is the gradient of their product.
  struct Key {
    int64_t first;  // its elements in k and v
    int64_t bias;   // its element in bias
    double keep, score = 0, p = 0, relative = 0 /* error of p */, dp = 0, dp_error = 0;
  };

  double sum_error(int64_t terms) const {
    const auto n = static_cast<double>(terms + 3);
    return unit_ * std::min(n, 6 * std::sqrt(n));
  }
  int64_t keys_in(int64_t s) const { return c_.key_offsets[s + 1] - c_.key_offsets[s]; }
  int64_t row_of(const Query& a) const {
    return ((c_.query_offsets[a.sequence] + a.i) * c_.heads + a.head) * c_.head_dim;
  }

  std::vector<Key> keys_of(const Query& a) const {
    const int64_t nq = c_.query_offsets[a.sequence + 1] - c_.query_offsets[a.sequence], nk = keys_in(a.sequence),
                  token = c_.query_offsets[a.sequence] + a.i, kv_head = a.head / (c_.heads / c_.kv_heads),
                  bias_sequence = c_.bias_sequences == 1 ? 0 : a.sequence, bias_head = c_.bias_heads == 1 ? 0 : a.head,
                  bias_row = (bias_sequence * c_.bias_heads + bias_head) * Case::longest(c_.query_offsets) + a.i;
    std::vector<Key> keys;
    for (int64_t j = 0; j < nk; ++j) {
      const int64_t distance = (a.i + nk - nq) - j, key = c_.key_offsets[a.sequence] + j;
      if ((c_.causal && distance < 0) || (c_.window >= 0 && std::abs(distance) > c_.window)) continue;
      if (c_.masked && !t_.mask[key]) continue;
      keys.push_back({(key * c_.kv_heads + kv_head) * c_.head_dim, bias_row * Case::longest(c_.key_offsets) + j,
                      kept(token, a.head, j)});
    }
    return keys;
  }
  double kept(int64_t token, int64_t head, int64_t j) const {
    const double p = c_.dropout.p;
    if (p == 0) return 1;
    const bool kept = p < 1 && dropout_keeps(philox_key(c_.dropout.key), c_.keyed_rows ? t_.row_keys[token] : token,
                                             head, static_cast<uint32_t>(j), dropout_threshold(p));
    return kept ? 1 / (1 - p) : 0;
  }

  /// Adds one query of one head: its row of the results, and its part of those of the keys.
  void add_query(const Query& a) {
    std::vector<Key> keys = keys_of(a);
    if (keys.empty()) return;
    add_softmax(a, keys);
    double delta = 0, delta_error = 0, terms = 0;
    for (const Key& key : keys) {
      delta += key.p * key.keep * key.dp;
      delta_error += key.p * key.keep * (key.relative * std::abs(key.dp) + key.dp_error);
      terms += key.p * key.keep * std::abs(key.dp);
    }
    delta_error += sum_error(keys_in(a.sequence)) * terms;
    add_gradients(a, keys, delta, std::max(delta_error, add_output(a, keys)));
  }

  /// The probabilities, and the gradients of the products with the values.
  void add_softmax(const Query& a, std::vector<Key>& keys) {
    const int64_t d = c_.head_dim, row = row_of(a);
    double top = -kInf, total = 0, error = 0;
    for (Key& key : keys) {
      double dot_terms = 0, dp_terms = 0;
      for (int64_t e = 0; e < d; ++e) {
        const double product = q_[row + e] * k_[key.first + e], gradient = dout_[row + e] * v_[key.first + e];
        key.score += product;
        dot_terms += std::abs(product);
        key.dp += gradient;
        dp_terms += std::abs(gradient);
      }
      const double bias = c_.has_bias() ? bias_[key.bias] : 0;
      key.score = key.score * c_.scale + bias;
      key.relative =
          sum_error(d) * dot_terms * std::abs(c_.scale) + unit_ * (4 * std::abs(key.score) + 2 * std::abs(bias));
      key.dp_error = sum_error(d) * dp_terms;
      top = std::max(top, key.score);
    }
    for (const Key& key : keys) total += std::exp(key.score - top);
    const double lse = top + std::log(total);
    for (Key& key : keys) {
      key.p = std::exp(key.score - top) / total;
      // The conversion of the score to base 2, the difference to the largest one and 2^x.
      key.relative += unit_ * (2 * std::abs(lse) + 3 * std::abs(key.score - lse) + 8);
      error += key.p * key.relative;
    }
    error += sum_error(keys_in(a.sequence)) + unit_ * (4 * std::abs(lse) + 8);
    for (Key& key : keys) key.relative = std::expm1(std::min(key.relative + error, 100.0));
    const int64_t at = a.head * c_.query_tokens() + c_.query_offsets[a.sequence] + a.i;
    exact.lse[at] = lse;
    bound.lse[at] = error;
  }

  /// The row of the output. Returns the error of delta as the sum of dO O.
  double add_output(const Query& a, const std::vector<Key>& keys) {
    const int64_t row = row_of(a);
    double from_out = 0;
    for (int64_t e = 0; e < c_.head_dim; ++e) {
      double out = 0, error = 0, terms = 0;
      for (const Key& key : keys) {
        const double v = key.keep * v_[key.first + e], term = key.p * std::abs(v);
        out += key.p * v;
        error += term * (key.relative + 2 * unit_ + factor_) + p_tiny_ * std::abs(v);
        terms += term;
      }
      exact.out[row + e] = out;
      bound.out[row + e] = error + sum_error(keys_in(a.sequence)) * terms + stored_ * std::abs(out) + tiny_;
      from_out += std::abs(dout_[row + e]) * (bound.out[row + e] + sum_error(c_.head_dim) * std::abs(out));
    }
    return from_out;
  }

  void add_gradients(const Query& a, const std::vector<Key>& keys, double delta, double delta_error) {
    const int64_t row = row_of(a);
    for (const Key& key : keys) {
      const double own = key.keep * key.dp, ds = key.p * (own - delta), size = std::abs(ds);
      double ds_error = key.p * (key.keep * key.dp_error + delta_error) + key.relative * (size + key.p * delta_error) +
                        (3 * unit_ * key.p + kFlushed) * (std::abs(own) + std::abs(delta));
      if (c_.has_bias()) {
        exact.dbias[key.bias] += ds;
        bound.dbias[key.bias] += ds_error;
        terms_.dbias[key.bias] += size;
        ++bias_count_[key.bias];
      }
      ds_error += factor_ * (size + ds_error) + factor_tiny_;
      for (int64_t e = 0; e < c_.head_dim; ++e) {
        const double q = c_.scale * q_[row + e], k = c_.scale * k_[key.first + e], dout = key.keep * dout_[row + e];
        add(&Results::dq, row + e, ds * k, ds_error * std::abs(k));
        add(&Results::dk, key.first + e, ds * q, ds_error * std::abs(q));
        add(&Results::dv, key.first + e, key.p * dout,
            (key.p * (key.relative + 2 * unit_ + factor_) + p_tiny_) * std::abs(dout));
      }
    }
    for (int64_t e = 0; e < c_.head_dim; ++e) bound.dq[row + e] += sum_error(keys_in(a.sequence)) * terms_.dq[row + e];
  }
  void add(std::vector<double> Results::*part, int64_t at, double term, double error) {
    (exact.*part)[at] += term;
    (bound.*part)[at] += error;
    (terms_.*part)[at] += std::abs(term);
  }

  /// Adds the errors of the sums over queries and of rounding the stored results.
  void finish() {
    const int64_t queries = c_.heads / c_.kv_heads * Case::longest(c_.query_offsets);
    for (size_t i = 0; i < bound.dk.size(); ++i) {
      bound.dk[i] += sum_error(queries) * terms_.dk[i];
      bound.dv[i] += sum_error(queries) * terms_.dv[i];
    }
    for (auto part : {&Results::dq, &Results::dk, &Results::dv})
      for (size_t i = 0; i < (bound.*part).size(); ++i)
        (bound.*part)[i] += stored_ * std::abs((exact.*part)[i]) + tiny_;
    for (size_t i = 0; i < bound.dbias.size(); ++i)
      bound.dbias[i] += sum_error(bias_count_[i]) * terms_.dbias[i] + 0x1p-126;
    for (const auto& [name, part] : kParts)
      for (double& x : bound.*part) x *= 1.1;
  }

  const Trial& t_;
  const Case& c_;
  const double unit_, stored_;  // the units of the compute type and of the dtype
  const double tiny_;           // half of the dtype's smallest step
  const double factor_, factor_tiny_, p_tiny_;
  const std::vector<double> q_, k_, v_, dout_, bias_;
  Results terms_;  // sums of magnitudes
  std::vector<int64_t> bias_count_;
};

/// Expects every element of every result within its bound of the exact one; NaN fails.
inline void expect_within(const Results& got, const Definition& definition) {
  for (const auto& [name, part] : kParts) {
    const std::vector<double>&a = got.*part, &b = definition.exact.*part, &bound = definition.bound.*part;
    ASSERT_EQ(a.size(), b.size()) << name;
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i] == b[i]) continue;
      const double ratio = std::abs(a[i] - b[i]) / bound[i];
      if (!(ratio <= worst)) {
        worst = std::isfinite(ratio) ? ratio : kInf;
        at = i;
      }
    }
    EXPECT_LE(worst, 1) << name << "[" << at << "]: " << a[at] << " for " << b[at];
  }
}
inline void expect_within(const Trial& t) { expect_within(t.results(), Definition(t)); }

}  // namespace tern::kernels::attention_test
