#pragma once
// Attention for the tests: a case, its tensors and an element-wise definition in fp64.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tern/kernels/attention.h"
#include "tern/tests/kernels/workspace.h"

namespace tern::kernels::attention_test {

inline constexpr double kInf = std::numeric_limits<double>::infinity();

/// A call without its tensors.
struct Case {
  std::vector<int32_t> query_offsets, key_offsets;
  int64_t heads = 1, kv_heads = 1, head_dim = 8, spare_tokens = 0, misalignment = 0;
  double scale = 1;
  bool causal = false, fused = false, masked = false, keyed_rows = false;
  int64_t window = -1, bias_sequences = 0, bias_heads = 0;  // bias_sequences == 0: no bias
  Dropout dropout;
  uint64_t seed = 0;

  int64_t sequences() const { return static_cast<int64_t>(query_offsets.size()) - 1; }
  int64_t query_tokens() const { return query_offsets.back() + spare_tokens; }
  int64_t key_tokens() const { return key_offsets.back() + spare_tokens; }
  static int64_t longest(const std::vector<int32_t>& offsets) {
    int64_t result = 0;
    for (size_t i = 1; i < offsets.size(); ++i) result = std::max<int64_t>(result, offsets[i] - offsets[i - 1]);
    return result;
  }
};

inline std::string describe(const Case& c) {
  std::ostringstream s;
  s << "queries";
  for (int32_t o : c.query_offsets) s << ' ' << o;
  s << " keys";
  for (int32_t o : c.key_offsets) s << ' ' << o;
  s << " heads " << c.heads << '/' << c.kv_heads << " d " << c.head_dim << (c.causal ? " causal" : "") << " window "
    << c.window << (c.masked ? " masked" : "") << (c.fused ? " fused" : "") << " bias " << c.bias_sequences << 'x'
    << c.bias_heads << " p " << c.dropout.p << " seed " << c.seed;
  return s.str();
}

/// A tensor [tokens, heads, head_dim] inside rows of `token_stride`, starting after `offset` elements.
template <class T>
struct Tensor {
  std::vector<T>* store;
  int64_t offset, tokens, heads, head_dim, token_stride;
  T* at(int64_t token, int64_t head) const { return store->data() + offset + token * token_stride + head * head_dim; }
  View view() const {
    const int64_t shape[] = {tokens, heads, head_dim}, strides[] = {token_stride, head_dim, 1};
    return View(store->data() + offset, dtype_of<T>(), 3, shape, strides);
  }
};

/// Inputs and outputs of one call in T's storage.
template <class T>
struct Trial {
  using F = ComputeType<T>;
  static constexpr float kSentinel = 77;
  Case c;
  std::vector<T> q_store, k_store, v_store, dq_store, dk_store, dv_store, out_store, dout_store, bias_store;
  std::vector<uint8_t> mask;
  std::vector<int64_t> row_keys;
  std::vector<F> lse, dbias;
  Tensor<T> q, k, v, dq, dk, dv, out, dout;
  AttentionParams params;

  explicit Trial(const Case& config) : c(config) {
    const int64_t d = c.head_dim, qt = c.query_tokens(), kt = c.key_tokens();
    if (c.fused) {  // one row per token: q of all heads, then k, then v; gradients likewise
      const int64_t row = (c.heads + 2 * c.kv_heads) * d;
      q_store.resize(c.misalignment + qt * row);
      dq_store.resize(q_store.size());
      const auto slice = [&](std::vector<T>& store, int64_t first_head, int64_t heads) {
        return Tensor<T>{&store, c.misalignment + first_head * d, qt, heads, d, row};
      };
      q = slice(q_store, 0, c.heads);
      dq = slice(dq_store, 0, c.heads);
      k = slice(q_store, c.heads, c.kv_heads);
      dk = slice(dq_store, c.heads, c.kv_heads);
      v = slice(q_store, c.heads + c.kv_heads, c.kv_heads);
      dv = slice(dq_store, c.heads + c.kv_heads, c.kv_heads);
    } else {
      const int64_t gap = c.misalignment;  // a gap after each row, which must not be written
      const auto make = [&](std::vector<T>& store, int64_t tokens, int64_t heads) {
        store.resize(c.misalignment + tokens * (heads * d + gap));
        return Tensor<T>{&store, c.misalignment, tokens, heads, d, heads * d + gap};
      };
      q = make(q_store, qt, c.heads);
      dq = make(dq_store, qt, c.heads);
      k = make(k_store, kt, c.kv_heads);
      dk = make(dk_store, kt, c.kv_heads);
      v = make(v_store, kt, c.kv_heads);
      dv = make(dv_store, kt, c.kv_heads);
    }
    out_store.resize(c.misalignment + qt * c.heads * d);
    dout_store.resize(out_store.size());
    out = {&out_store, c.misalignment, qt, c.heads, d, c.heads * d};
    dout = {&dout_store, c.misalignment, qt, c.heads, d, c.heads * d};
    lse.resize(c.heads * qt);
    fill();
  }

  void fill() {
    std::mt19937_64 random(c.seed);
    std::normal_distribution<float> normal;
    for (auto* store : {&q_store, &k_store, &v_store, &dout_store}) {
      for (T& x : *store) x = T(normal(random));
    }
    if (c.masked) {
      mask.resize(c.key_tokens());
      const int style = static_cast<int>(random() % 3);  // scattered, whole sequences in places, padding at the end
      for (int64_t s = 0; s < c.sequences(); ++s) {
        const int64_t length = c.key_offsets[s + 1] - c.key_offsets[s],
                      valid = length == 0 ? 0 : random() % (length + 1);
        for (int64_t i = 0; i < length; ++i) {
          mask[c.key_offsets[s] + i] = style == 0 ? random() % 3 != 0 : style == 1 ? s % 2 : i < valid;
        }
      }
    }
    if (c.keyed_rows) {
      row_keys.resize(c.query_tokens());
      for (int64_t& key : row_keys) key = static_cast<int64_t>(random());
    }
    params.sequences = c.sequences();
    params.query_offsets = c.query_offsets.data();
    params.key_offsets = c.key_offsets.data();
    params.max_query_length = Case::longest(c.query_offsets);
    params.max_key_length = Case::longest(c.key_offsets);
    params.heads = c.heads;
    params.kv_heads = c.kv_heads;
    params.head_dim = c.head_dim;
    params.scale = c.scale;
    params.causal = c.causal;
    params.window = c.window;
    params.key_mask = c.masked ? mask.data() : nullptr;
    params.dropout = c.dropout;
    params.row_keys = c.keyed_rows ? row_keys.data() : nullptr;
    if (c.bias_sequences > 0) {
      const int64_t mq = params.max_query_length, mk = params.max_key_length, pad = c.seed % 2;
      const int64_t shape[] = {c.bias_sequences, c.bias_heads, mq, mk};
      int64_t strides[] = {c.bias_heads * mq * (mk + pad), mq * (mk + pad), mk + pad, 1};
      if (c.seed % 3 == 0) {
        strides[2] = 1;
        strides[3] = mq;
      }  // a transposed bias
      bias_store.resize(c.bias_sequences * c.bias_heads * mq * (mk + pad) + 1);
      for (T& x : bias_store) x = T(normal(random));
      params.bias = ConstView(bias_store.data(), dtype_of<T>(), 4, shape, strides);
      dbias.resize(c.bias_sequences * c.bias_heads * mq * mk);
    }
  }

  View lse_view() {
    const int64_t shape[] = {c.heads, c.query_tokens()}, strides[] = {c.query_tokens(), 1};
    return View(lse.data(), dtype_of<F>(), 2, shape, strides);
  }
  View dbias_view() {
    if (dbias.empty()) return {};
    const ConstView& b = params.bias;
    const int64_t strides[] = {b.shape[1] * b.shape[2] * b.shape[3], b.shape[2] * b.shape[3], b.shape[3], 1};
    return View(dbias.data(), dtype_of<F>(), 4, b.shape, strides);
  }

  void call() {
    for (auto* store : {&dq_store, &dk_store, &dv_store, &out_store})
      std::fill(store->begin(), store->end(), T(kSentinel));
    std::fill(lse.begin(), lse.end(), kSentinel);
    std::fill(dbias.begin(), dbias.end(), kSentinel);
    MarkedWorkspace forward(attention_forward_workspace({}, params, dtype_of<T>()));
    attention_forward({}, params, q.view(), k.view(), v.view(), out.view(), lse_view(), forward.data());
    MarkedWorkspace backward(attention_backward_workspace({}, params, dtype_of<T>()));
    attention_backward({}, params, q.view(), k.view(), v.view(), out.view(), dout.view(), lse_view(), dq.view(),
                       dk.view(), dv.view(), dbias_view(), backward.data());
  }
};

template <class T>
double value(T x) {
  return static_cast<double>(static_cast<ComputeType<T>>(x));
}
template <class T>
std::vector<double> values(const Tensor<T>& t) {
  std::vector<double> result;
  for (int64_t i = 0; i < t.tokens; ++i) {
    for (int64_t h = 0; h < t.heads; ++h) {
      for (int64_t e = 0; e < t.head_dim; ++e) result.push_back(value(t.at(i, h)[e]));
    }
  }
  return result;
}
template <class T>
std::vector<double> values(const std::vector<T>& v) {
  std::vector<double> result;
  for (T x : v) result.push_back(value(x));
  return result;
}

/// All results of a call in fp64.
struct Results {
  std::vector<double> out, lse, dq, dk, dv, dbias;
};
template <class T>
Results results(const Trial<T>& r) {
  return {values(r.out), values(r.lse), values(r.dq), values(r.dk), values(r.dv), values(r.dbias)};
}

/// The definition, in fp64.
template <class T>
Results reference(const Trial<T>& r) {
  const Case& c = r.c;
  const int64_t d = c.head_dim, group = c.heads / c.kv_heads, row = c.heads * d, kv_row = c.kv_heads * d;
  const std::vector<double> q = values(r.q), k = values(r.k), v = values(r.v), dout = values(r.dout);
  Results z{std::vector<double>(q.size()), std::vector<double>(r.lse.size(), -kInf),
            std::vector<double>(q.size()), std::vector<double>(k.size()),
            std::vector<double>(k.size()), std::vector<double>(r.dbias.size())};
  const uint32_t threshold = dropout_threshold(c.dropout.p);
  for (int64_t s = 0; s < c.sequences(); ++s) {
    const int64_t q0 = c.query_offsets[s], nq = c.query_offsets[s + 1] - q0, k0 = c.key_offsets[s],
                  nk = c.key_offsets[s + 1] - k0;
    for (int64_t h = 0; h < c.heads; ++h) {
      const int64_t kh = h / group;
      for (int64_t i = 0; i < nq; ++i) {
        std::vector<double> score(nk, -kInf), p(nk), keep(nk, 1.0), ds(nk);
        double total = 0, top = -kInf;
        for (int64_t j = 0; j < nk; ++j) {
          const int64_t distance = (i + nk - nq) - j;
          if (c.causal && distance < 0) continue;
          if (c.window >= 0 && std::abs(distance) > c.window) continue;
          if (c.masked && !r.mask[k0 + j]) continue;
          double dot = 0;
          for (int64_t e = 0; e < d; ++e) dot += q[(q0 + i) * row + h * d + e] * k[(k0 + j) * kv_row + kh * d + e];
          score[j] = dot * c.scale;
          if (r.params.bias) {
            const ConstView& b = r.params.bias;
            const int64_t bs = c.bias_sequences == 1 ? 0 : s, bh = c.bias_heads == 1 ? 0 : h;
            score[j] +=
                value(r.bias_store[bs * b.strides[0] + bh * b.strides[1] + i * b.strides[2] + j * b.strides[3]]);
          }
          top = std::max(top, score[j]);
        }
        if (top == -kInf) continue;
        for (int64_t j = 0; j < nk; ++j) total += std::exp(score[j] - top);
        z.lse[h * c.query_tokens() + q0 + i] = top + std::log(total);
        const int64_t row_key = c.keyed_rows ? r.row_keys[q0 + i] : q0 + i;
        for (int64_t j = 0; j < nk; ++j) {
          p[j] = std::exp(score[j] - top) / total;
          if (c.dropout.p > 0) {
            const bool kept = c.dropout.p < 1 && dropout_keeps(philox_key(c.dropout.key), row_key, h, j, threshold);
            keep[j] = kept ? 1 / (1 - c.dropout.p) : 0;
          }
        }
        double delta = 0;
        for (int64_t e = 0; e < d; ++e) {
          double sum = 0;
          for (int64_t j = 0; j < nk; ++j) sum += p[j] * keep[j] * v[(k0 + j) * kv_row + kh * d + e];
          z.out[(q0 + i) * row + h * d + e] = sum;
        }
        for (int64_t j = 0; j < nk; ++j) {
          double dot = 0;
          for (int64_t e = 0; e < d; ++e) dot += dout[(q0 + i) * row + h * d + e] * v[(k0 + j) * kv_row + kh * d + e];
          ds[j] = keep[j] * dot;
          delta += p[j] * ds[j];
        }
        for (int64_t j = 0; j < nk; ++j) {
          ds[j] = p[j] * (ds[j] - delta);
          for (int64_t e = 0; e < d; ++e) {
            const int64_t at_q = (q0 + i) * row + h * d + e, at_k = (k0 + j) * kv_row + kh * d + e;
            z.dq[at_q] += ds[j] * c.scale * k[at_k];
            z.dk[at_k] += ds[j] * c.scale * q[at_q];
            z.dv[at_k] += p[j] * keep[j] * dout[at_q];
          }
          if (r.params.bias) {
            const ConstView& b = r.params.bias;
            const int64_t bs = c.bias_sequences == 1 ? 0 : s, bh = c.bias_heads == 1 ? 0 : h;
            z.dbias[((bs * b.shape[1] + bh) * b.shape[2] + i) * b.shape[3] + j] += ds[j];
          }
        }
      }
    }
  }
  return z;
}

/// The largest difference; infinite when one side is NaN or infinite and the other is not the same infinity.
inline double difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return kInf;
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    const double e = std::abs(a[i] - b[i]);
    if (!(e <= worst)) worst = std::isfinite(e) ? e : kInf;
  }
  return worst;
}
inline double largest(const std::vector<double>& a) {
  double result = 0;
  for (double x : a) result = std::max(result, std::isinf(x) ? 0 : std::abs(x));
  return result;
}

inline const std::vector<std::pair<const char*, std::vector<double> Results::*>> kParts = {
    {"out", &Results::out}, {"lse", &Results::lse}, {"dq", &Results::dq},
    {"dk", &Results::dk},   {"dv", &Results::dv},   {"dbias", &Results::dbias}};

inline bool same_bits(const Results& a, const Results& b) {
  return std::all_of(kParts.begin(), kParts.end(), [&](const auto& entry) {
    const auto &x = a.*entry.second, &y = b.*entry.second;
    return x.size() == y.size() && (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0);
  });
}

/// Expects that gaps between rows and elements before the first row are unchanged.
template <class T>
void expect_gaps_untouched(const Trial<T>& r) {
  if (r.c.fused) {
    for (int64_t i = 0; i < r.c.misalignment; ++i) EXPECT_EQ(value(r.dq_store[i]), 77);
    return;
  }
  for (const Tensor<T>* t : {&r.dq, &r.dk, &r.dv}) {
    for (int64_t i = 0; i < t->tokens; ++i) {
      for (int64_t e = t->heads * t->head_dim; e < t->token_stride; ++e) {
        const int64_t at = t->offset + i * t->token_stride + e;
        if (at >= static_cast<int64_t>(t->store->size())) continue;
        ASSERT_EQ(value((*t->store)[at]), 77);
      }
    }
  }
}

}  // namespace tern::kernels::attention_test
