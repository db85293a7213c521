#pragma once
// Error bounds of attention's results: one rule for every kernel, dtype and input.

#include "tern/tests/kernels/attention_reference.h"

namespace tern::kernels::attention_test {

/// The intermediate values that a kernel rounds to the dtype of q.
enum class Inner {
  kCompute,  // none: products use the compute type
  kStorage   // the factors of products on tensor cores: P, P after dropout, and dS
};

/// The largest error of each result, element by element, to first order plus a tenth: the rounding of each step of the
/// definition, propagated to the results by the derivatives of the later steps. u is the storage type's unit, w the
/// compute type's. The error of a sum of n terms is at most n w sum|terms|, and exceeds 6 sqrt(n) w sum|terms| with a
/// probability below 1e-7 (Higham and Mary, "A new approach to probabilistic rounding error analysis", 2019). delta =
/// sum(dO O) contains the rounding of the stored O: where a query sees one key, dS consists of this error alone.
template <class T>
class Bounds {
 public:
  Bounds(const Trial<T>& r, const Results& exact, Inner inner)
      : r_(r),
        c_(r.c),
        exact_(exact),
        inner_(inner == Inner::kStorage ? kStored : 0),
        inner_tiny_(inner == Inner::kStorage ? kTiny : 0),
        p_tiny_(inner_tiny_ + kFlushed),
        q_(values(r.q)),
        k_(values(r.k)),
        v_(values(r.v)),
        dout_(values(r.dout)),
        bound{std::vector<double>(exact.out.size()), std::vector<double>(exact.lse.size()),
              std::vector<double>(exact.dq.size()),  std::vector<double>(exact.dk.size()),
              std::vector<double>(exact.dv.size()),  std::vector<double>(exact.dbias.size())},
        key_terms_(exact.dk.size()),
        value_terms_(exact.dv.size()),
        bias_terms_(exact.dbias.size()),
        bias_count_(exact.dbias.size()) {
    for (int64_t s = 0; s < c_.sequences(); ++s)
      for (int64_t h = 0; h < c_.heads; ++h)
        for (int64_t i = 0; i < c_.query_offsets[s + 1] - c_.query_offsets[s]; ++i) add_query(s, h, i);
    finish();
  }

  /// The bounds.
  const Results& get() const { return bound; }

 private:
  using F = ComputeType<T>;
  static constexpr double kUnit = sizeof(F) == 8 ? 0x1p-53 : 0x1p-24;
  static constexpr bool kIs16 = sizeof(T) == 2;
  static constexpr double kStored = !kIs16 ? kUnit : dtype_of<T>() == bfloat16 ? 0x1p-8 : 0x1p-11;
  /// Half of the storage type's smallest step.
  static constexpr double kTiny = dtype_of<T>() == float16 ? 0x1p-25 : sizeof(T) == 8 ? 0x1p-1000 : 0x1p-126;
  /// Probabilities below this may become zero.
  static constexpr double kFlushed = 0x1p-79;

  static double sum_error(int64_t terms) {
    const auto n = static_cast<double>(terms + 3);
    return kUnit * std::min(n, 6 * std::sqrt(n));
  }

  /// Adds one query of one head: its row of the results, and its contribution to those of the keys.
  void add_query(int64_t s, int64_t h, int64_t i) {
    const int64_t d = c_.head_dim, kv_row = c_.kv_heads * d, kh = h / (c_.heads / c_.kv_heads);
    const int64_t q0 = c_.query_offsets[s], nq = c_.query_offsets[s + 1] - q0, k0 = c_.key_offsets[s],
                  nk = c_.key_offsets[s + 1] - k0, row = (q0 + i) * c_.heads * d + h * d;
    const double lse = exact_.lse[h * c_.query_tokens() + q0 + i];
    if (lse == -kInf) return;
    const double scale = std::abs(c_.scale);
    std::vector<double> p(nk, 0), keep(nk, 1), relative(nk, 0), dp(nk, 0), dp_error(nk, 0);
    double lse_error = 0;
    for (int64_t j = 0; j < nk; ++j) {
      const int64_t distance = (i + nk - nq) - j, key = (k0 + j) * kv_row + kh * d;
      if ((c_.causal && distance < 0) || (c_.window >= 0 && std::abs(distance) > c_.window)) continue;
      if (c_.masked && !r_.mask[k0 + j]) continue;
      double dot = 0, dot_terms = 0, dp_terms = 0;
      for (int64_t e = 0; e < d; ++e) {
        dot += q_[row + e] * k_[key + e];
        dot_terms += std::abs(q_[row + e] * k_[key + e]);
        dp[j] += dout_[row + e] * v_[key + e];
        dp_terms += std::abs(dout_[row + e] * v_[key + e]);
      }
      const double bias = bias_of(s, h, i, j), score = dot * c_.scale + bias;
      p[j] = std::exp(score - lse);
      keep[j] = kept(h, q0 + i, j);
      dp_error[j] = sum_error(d) * dp_terms;
      // The score, its conversion to base 2, the difference to the largest one and 2^x.
      relative[j] = sum_error(d) * dot_terms * scale + kUnit * (4 * std::abs(score) + 2 * std::abs(bias)) +
                    kUnit * (2 * std::abs(lse) + 3 * std::abs(score - lse) + 8);
      lse_error += p[j] * relative[j];
    }
    lse_error += sum_error(nk) + kUnit * (4 * std::abs(lse) + 8);
    bound.lse[h * c_.query_tokens() + q0 + i] = lse_error;
    for (double& x : relative) x = std::expm1(std::min(x + lse_error, 100.0));

    double delta = 0, delta_error = 0, from_out = 0;
    for (int64_t e = 0; e < d; ++e) {
      double error = 0, terms = 0, tiny = 0;
      for (int64_t j = 0; j < nk; ++j) {
        const double term = p[j] * keep[j] * std::abs(v_[(k0 + j) * kv_row + kh * d + e]);
        error += term * (relative[j] + 2 * kUnit + inner_);
        terms += term;
        if (p[j] > 0) tiny += p_tiny_ * keep[j] * std::abs(v_[(k0 + j) * kv_row + kh * d + e]);
      }
      error += sum_error(nk) * terms + tiny;
      const double out = exact_.out[row + e];
      bound.out[row + e] = error + kStored * std::abs(out) + kTiny;
      from_out += std::abs(dout_[row + e]) * (bound.out[row + e] + sum_error(d) * std::abs(out));
      delta += dout_[row + e] * out;
    }
    double terms_of_delta = 0;
    for (int64_t j = 0; j < nk; ++j) {
      delta_error += p[j] * keep[j] * (relative[j] * std::abs(dp[j]) + dp_error[j]);
      terms_of_delta += p[j] * keep[j] * std::abs(dp[j]);
    }
    delta_error = std::max(from_out, delta_error + sum_error(nk) * terms_of_delta);

    std::vector<double> ds_error(nk), ds(nk);
    for (int64_t j = 0; j < nk; ++j) {
      if (p[j] == 0) continue;
      const double own = keep[j] * dp[j];
      ds[j] = std::abs(p[j] * (own - delta));
      ds_error[j] = p[j] * (keep[j] * dp_error[j] + delta_error) + relative[j] * (ds[j] + p[j] * delta_error) +
                    (3 * kUnit * p[j] + kFlushed) * (std::abs(own) + std::abs(delta));
      // dS, and its rounding where it is a factor of a product.
      add_bias(s, h, i, j, ds_error[j], ds[j]);
      ds_error[j] += inner_ * (ds[j] + ds_error[j]) + inner_tiny_;
    }
    for (int64_t e = 0; e < d; ++e) {
      double error = 0, terms = 0;
      for (int64_t j = 0; j < nk; ++j) {
        if (p[j] == 0) continue;
        const int64_t key = (k0 + j) * kv_row + kh * d + e;
        error += ds_error[j] * scale * std::abs(k_[key]);
        terms += ds[j] * scale * std::abs(k_[key]);
        bound.dk[key] += ds_error[j] * scale * std::abs(q_[row + e]);
        key_terms_[key] += ds[j] * scale * std::abs(q_[row + e]);
        const double value = p[j] * keep[j] * std::abs(dout_[row + e]);
        bound.dv[key] += value * (relative[j] + 2 * kUnit + inner_) + p_tiny_ * keep[j] * std::abs(dout_[row + e]);
        value_terms_[key] += value;
      }
      bound.dq[row + e] = error + sum_error(nk) * terms + kStored * std::abs(exact_.dq[row + e]) + kTiny;
    }
  }

  /// Adds the errors of the sums over queries and of rounding the stored results.
  void finish() {
    const int64_t queries = c_.heads / c_.kv_heads * Case::longest(c_.query_offsets);
    for (size_t i = 0; i < bound.dk.size(); ++i) {
      bound.dk[i] += sum_error(queries) * key_terms_[i] + kStored * std::abs(exact_.dk[i]) + kTiny;
      bound.dv[i] += sum_error(queries) * value_terms_[i] + kStored * std::abs(exact_.dv[i]) + kTiny;
    }
    for (size_t i = 0; i < bound.dbias.size(); ++i)
      bound.dbias[i] += sum_error(bias_count_[i]) * bias_terms_[i] + 0x1p-126;
    for (auto part : {&Results::out, &Results::lse, &Results::dq, &Results::dk, &Results::dv, &Results::dbias})
      for (double& x : bound.*part) x *= 1.1;
  }

  double bias_of(int64_t s, int64_t h, int64_t i, int64_t j) const {
    if (!r_.params.bias) return 0;
    const ConstView& b = r_.params.bias;
    return value(r_.bias_store[(c_.bias_sequences == 1 ? 0 : s) * b.strides[0] +
                               (c_.bias_heads == 1 ? 0 : h) * b.strides[1] + i * b.strides[2] + j * b.strides[3]]);
  }
  void add_bias(int64_t s, int64_t h, int64_t i, int64_t j, double error, double term) {
    if (!r_.params.bias || bound.dbias.empty()) return;
    const ConstView& b = r_.params.bias;
    const int64_t bs = c_.bias_sequences == 1 ? 0 : s, bh = c_.bias_heads == 1 ? 0 : h,
                  at = ((bs * b.shape[1] + bh) * b.shape[2] + i) * b.shape[3] + j;
    bound.dbias[at] += error;
    bias_terms_[at] += term;
    ++bias_count_[at];
  }
  double kept(int64_t h, int64_t token, int64_t j) const {
    if (c_.dropout.p == 0) return 1;
    const int64_t row_key = c_.keyed_rows ? r_.row_keys[token] : token;
    const bool kept = c_.dropout.p < 1 && dropout_keeps(philox_key(c_.dropout.key), row_key, h,
                                                        static_cast<uint32_t>(j), dropout_threshold(c_.dropout.p));
    return kept ? 1 / (1 - c_.dropout.p) : 0;
  }

  const Trial<T>& r_;
  const Case& c_;
  const Results& exact_;
  const double inner_, inner_tiny_, p_tiny_;
  const std::vector<double> q_, k_, v_, dout_;
  Results bound;
  std::vector<double> key_terms_, value_terms_, bias_terms_;
  std::vector<int64_t> bias_count_;
};

/// Expects every element of every result within its bound of the exact one; NaN fails.
inline void expect_within(const Results& got, const Results& exact, const Results& bounds, const std::string& what) {
  for (const auto& [name, part] : kParts) {
    const std::vector<double>&a = got.*part, &b = exact.*part, &bound = bounds.*part;
    ASSERT_EQ(a.size(), b.size()) << name << " of " << what;
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
    EXPECT_LE(worst, 1) << name << "[" << at << "]: " << a[at] << " for " << b[at] << " of " << what;
  }
}
template <class T>
void expect_within(const Trial<T>& r, Inner inner, const std::string& what) {
  const Results exact_results = reference(r);
  expect_within(results(r), exact_results, Bounds<T>(r, exact_results, inner).get(), what);
}

}  // namespace tern::kernels::attention_test
