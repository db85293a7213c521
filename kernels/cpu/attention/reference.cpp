// Fused attention in fp64, for gradient checks: plain loops, one query row at a time.

#include "tern/kernels/cpu/attention/block.h"

namespace tern::kernels::TERN_CPU::attention {
namespace {

/// The scores and probabilities of one (sequence, head), row by row.
class RowOfScores {
 public:
  RowOfScores(const Call& call, const Rows<const double>& q, const Rows<const double>& k, int64_t sequence,
              int64_t head, double* row)
      : call_(call), p_(call.params), q_(q), k_(k), s_(p_, sequence), sequence_(sequence), head_(head), row_(row) {}

  const Sequence& sequence() const { return s_; }
  KeyRange range(int64_t query) const { return call_.range_of_query(s_, query); }
  bool sees(int64_t key) const { return p_.key_mask == nullptr || p_.key_mask[s_.key_begin + key]; }

  /// row[key] = scale * q k + bias, -infinity for keys that the query does not see.
  void scores(int64_t query) const {
    const KeyRange r = range(query);
    const double* left = q_.at(s_.query_begin + query, head_);
    for (int64_t key = r.begin; key < r.end; ++key) {
      row_[key] = -std::numeric_limits<double>::infinity();
      if (!sees(key)) continue;
      const double* right = k_.at(s_.key_begin + key, head_ / call_.group);
      double sum = 0;
      for (int64_t c = 0; c < p_.head_dim; ++c) sum += left[c] * right[c];
      row_[key] = sum * p_.scale;
    }
    if (p_.bias) add_bias(query, r);
  }

  /// The dropout factor: 0 for a dropped probability, else 1 / (1 - p).
  double keep(int64_t query, int64_t key) const {
    if (!call_.drops) return 1;
    const int64_t token = s_.query_begin + query;
    const auto row = static_cast<uint64_t>(p_.row_keys != nullptr ? p_.row_keys[token] : token);
    const bool kept = p_.dropout.p < 1 && dropout_keeps(philox_key(p_.dropout.key), row, static_cast<uint32_t>(head_),
                                                        static_cast<uint32_t>(key), dropout_threshold(p_.dropout.p));
    return kept ? 1 / (1 - p_.dropout.p) : 0;
  }

 private:
  void add_bias(int64_t query, KeyRange r) const {
    const ConstView& b = p_.bias;
    const int64_t offset =
        (b.shape[0] == 1 ? 0 : sequence_ * b.strides[0]) + (b.shape[1] == 1 ? 0 : head_ * b.strides[1]);
    dispatch_float(b.dtype, [&]<class T>() {
      const T* from = b.as<T>() + offset + query * b.strides[2];
      for (int64_t key = r.begin; key < r.end; ++key) {
        row_[key] += static_cast<double>(static_cast<ComputeType<T>>(from[key * b.strides[3]]));
      }
    });
  }

  const Call& call_;
  const AttentionParams& p_;
  const Rows<const double>&q_, &k_;
  Sequence s_;
  int64_t sequence_, head_;
  double* row_;
};

double dot(const double* a, const double* b, int64_t size) {
  double sum = 0;
  for (int64_t c = 0; c < size; ++c) sum += a[c] * b[c];
  return sum;
}
void add_scaled(const double* from, double factor, int64_t size, double* to) {
  for (int64_t c = 0; c < size; ++c) to[c] += factor * from[c];
}

double& at(const View& log_sum_exp, int64_t head, int64_t token) {
  return log_sum_exp.as<double>()[head * log_sum_exp.strides[0] + token * log_sum_exp.strides[1]];
}

void forward_head(const Call& call, const RowOfScores& scores, const Rows<const double>& v, const Rows<double>& out,
                  const View& log_sum_exp, int64_t head, double* row) {
  const Sequence& s = scores.sequence();
  const int64_t d = call.params.head_dim;
  for (int64_t query = 0; query < s.queries; ++query) {
    const int64_t token = s.query_begin + query;
    const KeyRange r = scores.range(query);
    double* to = out.at(token, head);
    std::fill_n(to, d, 0.0);
    scores.scores(query);
    double top = -std::numeric_limits<double>::infinity(), total = 0;
    for (int64_t key = r.begin; key < r.end; ++key) top = std::max(top, row[key]);
    const double origin = std::isinf(top) && top < 0 ? 0 : top;
    for (int64_t key = r.begin; key < r.end; ++key) total += row[key] = std::exp(row[key] - origin);
    for (int64_t key = r.begin; key < r.end; ++key) {
      if (!scores.sees(key)) continue;
      add_scaled(v.at(s.key_begin + key, head / call.group), row[key] / total * scores.keep(query, key), d, to);
    }
    at(log_sum_exp, head, token) = total == 0 ? -std::numeric_limits<double>::infinity() : origin + std::log(total);
    if (total == 0) std::fill_n(to, d, 0.0);
  }
}

struct Gradients {
  Rows<double> dq, dk, dv;
  View dbias;
};

void backward_head(const Call& call, const RowOfScores& scores, const Rows<const double>& q,
                   const Rows<const double>& k, const Rows<const double>& v, const Rows<const double>& out,
                   const Rows<const double>& dout, const ConstView& log_sum_exp, const Gradients& g, int64_t sequence,
                   int64_t head, double* row) {
  const Sequence& s = scores.sequence();
  const int64_t d = call.params.head_dim, kv_head = head / call.group;
  for (int64_t query = 0; query < s.queries; ++query) {
    const int64_t token = s.query_begin + query;
    double* dq = g.dq.at(token, head);
    std::fill_n(dq, d, 0.0);
    const double lse = log_sum_exp.as<double>()[head * log_sum_exp.strides[0] + token * log_sum_exp.strides[1]];
    if (std::isinf(lse) && lse < 0) continue;
    const double *upstream = dout.at(token, head), *left = q.at(token, head);
    const double delta = dot(upstream, out.at(token, head), d);
    scores.scores(query);
    const KeyRange r = scores.range(query);
    for (int64_t key = r.begin; key < r.end; ++key) {
      if (!scores.sees(key)) continue;
      const int64_t other = s.key_begin + key;
      const double p = std::exp(row[key] - lse), keep = scores.keep(query, key);
      const double ds = p * (keep * dot(upstream, v.at(other, kv_head), d) - delta);
      add_scaled(upstream, p * keep, d, g.dv.at(other, kv_head));
      add_scaled(k.at(other, kv_head), ds * call.params.scale, d, dq);
      add_scaled(left, ds * call.params.scale, d, g.dk.at(other, kv_head));
      if (g.dbias) {
        const int64_t b = g.dbias.shape[0] == 1 ? 0 : sequence, h = g.dbias.shape[1] == 1 ? 0 : head;
        g.dbias.as<double>()[((b * g.dbias.shape[1] + h) * g.dbias.shape[2] + query) * g.dbias.shape[3] + key] += ds;
      }
    }
  }
}

double* row_of(const Call& call, void* workspace, int64_t slot) {
  return static_cast<double*>(workspace) + slot * std::max<int64_t>(call.params.max_key_length, 1);
}
int64_t task_count(const AttentionParams& p) { return p.sequences * p.kv_heads; }

}  // namespace

int64_t reference_workspace(const AttentionParams& params) {
  return slot_count(task_count(params)) * std::max<int64_t>(params.max_key_length, 1) * 8;
}

void reference_forward(const AttentionParams& params, ConstView q, ConstView k, ConstView v, View out, View log_sum_exp,
                       void* workspace) {
  const Call call(params);
  const Rows<const double> query(q), key(k), value(v);
  const Rows<double> result(out);
  run_tasks(params, task_count(params), [&](int64_t task, int64_t slot) {
    double* row = row_of(call, workspace, slot);
    for (int64_t h = task % params.kv_heads * call.group, end = h + call.group; h < end; ++h) {
      const RowOfScores scores(call, query, key, task / params.kv_heads, h, row);
      forward_head(call, scores, value, result, log_sum_exp, h, row);
    }
  });
  const int64_t used = params.query_offsets[params.sequences];
  clear_unused(result, used, out.shape[0], params.heads, params.head_dim);
  clear_unused<double>(log_sum_exp, used);
}

void reference_backward(const AttentionParams& params, ConstView q, ConstView k, ConstView v, ConstView out,
                        ConstView dout, ConstView log_sum_exp, View dq, View dk, View dv, View dbias, void* workspace) {
  const Call call(params);
  const Rows<const double> query(q), key(k), value(v), result(out), upstream(dout);
  const Gradients g{Rows<double>(dq), Rows<double>(dk), Rows<double>(dv), dbias};
  const int64_t last_query = params.query_offsets[params.sequences];
  clear_unused(g.dk, 0, dk.shape[0], params.kv_heads, params.head_dim);
  clear_unused(g.dv, 0, dv.shape[0], params.kv_heads, params.head_dim);
  clear_unused(g.dq, last_query, dq.shape[0], params.heads, params.head_dim);
  if (dbias) std::fill_n(dbias.as<double>(), dbias.numel(), 0.0);
  const auto run = [&](int64_t task, int64_t slot) {
    double* row = row_of(call, workspace, slot);
    for (int64_t h = task % params.kv_heads * call.group, end = h + call.group; h < end; ++h) {
      const RowOfScores scores(call, query, key, task / params.kv_heads, h, row);
      backward_head(call, scores, query, key, value, result, upstream, log_sum_exp, g, task / params.kv_heads, h, row);
    }
  };
  if (!dbias) return run_tasks(params, task_count(params), run);
  for (int64_t task = 0; task < task_count(params); ++task) run(task, 0);  // sums into dbias in one order
}

}  // namespace tern::kernels::TERN_CPU::attention
