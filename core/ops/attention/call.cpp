// Attention's gradients as compositions of ops, for second derivatives.

#include <limits>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/attention/call.h"
#include "tern/core/ops/indexing/join.h"
#include "tern/core/ops/matmul/matmul.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/ops/reduce/softmax.h"
#include "tern/core/ops/workspace.h"

namespace tern::detail {
namespace {

/// Keys per run of read_mask().
constexpr int64_t kKeysPerRun = 64;

std::vector<int64_t> on_host(const Tensor& offsets) { return offsets.to_vector<int64_t>(); }

/// The keys (by position in their sequence) that contribute to each query: bool [query tokens, heads, max_key_length].
/// It comes from the kernel's results for scores of 0 and values that are 1 in one position each, so it agrees with the
/// kernel: causal, window, masks of keys, and the elements that dropout keeps.
Tensor read_mask(const AttentionCall& call, int64_t query_tokens, int64_t key_tokens, bool with_dropout) {
  const NoGrad off;
  const Device device = call.query.offsets.device();
  const TensorOptions options{.dtype = float32, .device = device};
  kernels::AttentionParams params = call.params;
  params.kv_heads = 1;
  params.head_dim = kKeysPerRun;
  params.bias = {};
  if (!with_dropout) params.dropout = {};
  const Tensor q = zeros({query_tokens, params.heads, kKeysPerRun}, options);
  const Tensor k = zeros({key_tokens, 1, kKeysPerRun}, options);
  const Tensor log_sum_exp = empty({params.heads, query_tokens}, options);
  const std::vector<int64_t> offsets = on_host(call.key.offsets);
  const kernels::Stream stream = current_stream(device);
  std::vector<Tensor> runs;
  for (int64_t first = 0; first < params.max_key_length; first += kKeysPerRun) {
    const Tensor chosen = zeros({key_tokens, 1, kKeysPerRun});
    for (size_t s = 0; s + 1 < offsets.size(); ++s)
      for (int64_t i = 0; i < kKeysPerRun && offsets[s] + first + i < offsets[s + 1]; ++i)
        chosen.data<float>()[(offsets[s] + first + i) * kKeysPerRun + i] = 1;
    const Tensor v = chosen.to(device), out = empty(q.shape(), options);
    const Workspace workspace(device, [&] { return kernels::attention_forward_workspace(stream, params, float32); });
    kernels::attention_forward(stream, params, q.view(), k.view(), v.view(), out.view(), log_sum_exp.view(),
                               workspace.data());
    runs.push_back(gt(out, zeros({}, options)));
  }
  return runs.empty() ? empty({query_tokens, params.heads, 0}, {.dtype = boolean, .device = device}) : cat(runs, 2);
}

/// The rows of one sequence in the whole tensors.
struct Span {
  int64_t query_begin, queries, key_begin, keys;
};

/// Rows begin .. begin + count with heads as the first dimension: [heads, rows, head_dim].
Tensor heads_first(const Tensor& x, int64_t begin, int64_t count) {
  return x.slice(0, begin, begin + count).transpose(0, 1);
}

/// Pads x with zeros at the end of dimension d to `size`.
Tensor filled_up(const Tensor& x, int dim, int64_t size) {
  return x.size(dim) == size ? x : cat({x, zeros(x.shape().with(dim, size - x.size(dim)), x.options())}, dim);
}

class Gradients {
 public:
  Gradients(const AttentionCall& call, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias,
            const Tensor& dout)
      : p_(call.params), wide_(q.dtype() == float64 ? float64 : float32) {
    q_ = q.to(wide_);
    k_ = k.to(wide_);
    v_ = v.to(wide_);
    dout_ = dout.to(wide_);
    if (bias.defined()) bias_ = bias.to(wide_);
    visible_ = read_mask(call, q.size(0), k.size(0), false);
    if (p_.dropout.p > 0) kept_ = read_mask(call, q.size(0), k.size(0), true);
  }

  AttentionGradients run(const std::vector<int64_t>& query_offsets, const std::vector<int64_t>& key_offsets) {
    for (size_t s = 0; s + 1 < query_offsets.size(); ++s) {
      const Span span{query_offsets[s], query_offsets[s + 1] - query_offsets[s], key_offsets[s],
                      key_offsets[s + 1] - key_offsets[s]};
      skip_to(dq_, q_, span.query_begin);
      skip_to(dk_, k_, span.key_begin);
      skip_to(dv_, v_, span.key_begin);
      add_sequence(static_cast<int64_t>(s), span);
    }
    skip_to(dq_, q_, q_.size(0));
    skip_to(dk_, k_, k_.size(0));
    skip_to(dv_, v_, v_.size(0));
    AttentionGradients result{cat(dq_.parts), cat(dk_.parts), cat(dv_.parts), {}};
    if (bias_.defined()) result.bias = dbias_.empty() ? zeros_like(bias_) : cat(dbias_);
    return result;
  }

 private:
  /// The rows of a gradient in token order.
  struct Rows {
    std::vector<Tensor> parts;
    int64_t end = 0;
  };

  /// Adds rows of zeros up to `token`, for tokens outside all sequences.
  void skip_to(Rows& rows, const Tensor& x, int64_t token) {
    if (token > rows.end || (rows.parts.empty() && x.size(0) == 0))
      rows.parts.push_back(zeros(x.shape().with(0, token - rows.end), x.options()));
    rows.end = token;
  }
  void add(Rows& rows, const Tensor& heads_first_gradient) {
    rows.parts.push_back(heads_first_gradient.transpose(0, 1));
    rows.end += heads_first_gradient.size(1);
  }

  /// Reshapes [heads, queries, n] to [kv_heads, queries of its heads, n], and back.
  Tensor grouped(const Tensor& x) const {
    return x.reshape({p_.kv_heads, p_.heads / p_.kv_heads * x.size(1), x.size(2)});
  }
  Tensor by_head(const Tensor& x, const Span& span) const { return x.reshape({p_.heads, span.queries, x.size(2)}); }

  /// The bias of sequence s: [heads or 1, queries, keys].
  Tensor bias_of(int64_t s, const Span& span) const {
    const int64_t at = bias_.size(0) == 1 ? 0 : s;
    return bias_.select(0, at).slice(1, 0, span.queries).slice(2, 0, span.keys);
  }

  Tensor mask_of(const Tensor& mask, const Span& span) const {
    return heads_first(mask, span.query_begin, span.queries).slice(2, 0, span.keys);
  }

  /// With probabilities P, scores S, dropout's factors M and A = P * M:
  /// dV = A^T dO, dP = (dO V^T) * M, dS = P * (dP - rowsum(dP * P)), dQ = scale dS K, dK = scale dS^T Q.
  void add_sequence(int64_t s, const Span& span) {
    if (span.queries == 0 || span.keys == 0) {
      skip_to(dq_, q_, span.query_begin + span.queries);
      skip_to(dk_, k_, span.key_begin + span.keys);
      skip_to(dv_, v_, span.key_begin + span.keys);
      if (bias_.defined()) add_bias_gradient(zeros({p_.heads, span.queries, span.keys}, q_.options()));
      return;
    }
    const Tensor q = grouped(heads_first(q_, span.query_begin, span.queries));
    const Tensor dout = grouped(heads_first(dout_, span.query_begin, span.queries));
    const Tensor k = heads_first(k_, span.key_begin, span.keys), v = heads_first(v_, span.key_begin, span.keys);
    const Tensor probabilities = probabilities_of(s, span, q, k);
    Tensor factors;
    if (kept_.defined()) factors = mul(mask_of(kept_, span).to(wide_), p_.dropout.p < 1 ? 1 / (1 - p_.dropout.p) : 0);
    const auto with_factors = [&](const Tensor& x) { return factors.defined() ? mul(x, factors) : x; };
    add(dv_, matmul(grouped(with_factors(probabilities)).transpose(1, 2), dout));
    const Tensor dp = with_factors(by_head(matmul(dout, v.transpose(1, 2)), span));
    const Tensor ds = mul(probabilities, sub(dp, sum(mul(dp, probabilities), {-1}, true)));
    const Tensor scaled = grouped(mul(ds, p_.scale));
    add(dq_, by_head(matmul(scaled, k), span));
    add(dk_, matmul(scaled.transpose(1, 2), q));
    if (bias_.defined()) add_bias_gradient(ds);
  }

  /// [heads, queries, keys]; zeros for a query without visible keys.
  Tensor probabilities_of(int64_t s, const Span& span, const Tensor& q, const Tensor& k) const {
    Tensor scores = by_head(mul(matmul(q, k.transpose(1, 2)), p_.scale), span), visible = mask_of(visible_, span);
    const TensorOptions options = scores.options();
    if (bias_.defined()) {
      const Tensor bias = bias_of(s, span);
      scores = tern::add(scores, bias);
      visible = logical_and(visible, gt(bias.detach(), full({}, -std::numeric_limits<double>::infinity(), options)));
    }
    const Tensor hidden_score = full({}, std::numeric_limits<float>::lowest(), options);
    return mul(softmax(where(visible, scores, hidden_score)), visible.to(wide_));
  }

  /// Adds ds [heads, queries, keys] to the bias gradient of its sequence.
  void add_bias_gradient(const Tensor& ds) {
    const Tensor per_head = bias_.size(1) == 1 ? sum(ds, {0}, true) : ds;
    const Tensor whole = filled_up(filled_up(per_head, 1, bias_.size(2)), 2, bias_.size(3)).unsqueeze(0);
    if (bias_.size(0) == 1 && !dbias_.empty())
      dbias_[0] = tern::add(dbias_[0], whole);
    else
      dbias_.push_back(whole);
  }

  const kernels::AttentionParams& p_;
  const DType wide_;
  Tensor q_, k_, v_, bias_, dout_, visible_, kept_;
  Rows dq_, dk_, dv_;
  std::vector<Tensor> dbias_;
};

}  // namespace

AttentionGradients attention_gradients(const AttentionCall& call, const Tensor& q, const Tensor& k, const Tensor& v,
                                       const Tensor& bias, const Tensor& dout) {
  return Gradients(call, q, k, v, bias, dout).run(on_host(call.query.offsets), on_host(call.key.offsets));
}

}  // namespace tern::detail
