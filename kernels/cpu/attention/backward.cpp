// Backward pass of fused attention (Dao et al., arXiv:2307.08691). Scores are recomputed by blocks from log_sum_exp:
//   P = exp2(S - lse), dP = keep dO V^T, dS = P (dP - rowsum(dO O)), dV = (keep P)^T dO, dK = dS^T Q, dQ = dS K.
// A task is a chunk of keys of one (sequence, key-value head); only it writes their dk and dv. When there are few tasks
// the keys are split into several chunks, each with a partial dq; a second pass adds these in order.

#include "tern/kernels/attention.h"

#include "tern/kernels/cpu/attention/block.h"

namespace tern::kernels::TERN_CPU {
namespace attention {
namespace {

constexpr int64_t kKeyBlock = 128;
constexpr int64_t kFewTasks = 32, kSmallestChunk = 128, kBiasChunk = 512;

/// Keys of a task. Depends only on the call, never on the number of threads.
int64_t key_chunk(const AttentionParams& p) {
  const int64_t units = std::max<int64_t>(1, p.sequences * p.kv_heads);
  const int64_t parts = (kFewTasks + units - 1) / units;
  return std::max(kSmallestChunk, round_up((p.max_key_length + parts - 1) / parts, kKeyBlock));
}
int64_t chunk_count(const AttentionParams& p) {
  return std::max<int64_t>(1, (p.max_key_length + key_chunk(p) - 1) / key_chunk(p));
}
int64_t task_count(const AttentionParams& p) { return p.sequences * p.kv_heads * chunk_count(p); }

struct Scratch {
  float *keys, *values, *dkeys, *dvalues;  // [key_chunk][padded_dim]
  float *rows, *drows;                     // q and dout of a block, [kQueryBlock][padded_dim]
  float *queries, *dqueries;               // their transposes, q scaled
  float *scores, *dscores;                 // [kKeyBlock][kQueryBlock]: keep P and dS
  float* sum;                              // dq of a block, [kQueryBlock][padded_dim]
  float *lse, *delta;                      // [kQueryBlock]; lse in base 2
  float *bias_rows, *bias, *dbias;         // [kQueryBlock][kKeyBlock], its transpose; dbias [kBiasChunk][kQueryBlock]
  int64_t floats;

  Scratch(const Call& call, float* base) {
    Arena arena(base);
    const bool biased = static_cast<bool>(call.params.bias);
    const int64_t chunk =
        std::max(std::min(key_chunk(call.params), round_up(call.params.max_key_length, kDropoutGroup)),
                 biased ? kKeyBlock : 0) *
        call.padded_dim;
    const int64_t block = kQueryBlock * call.padded_dim;
    for (float** p : {&keys, &values, &dkeys, &dvalues}) *p = arena.take(chunk);
    for (float** p : {&rows, &drows, &queries, &dqueries, &sum}) *p = arena.take(block);
    for (float** p : {&scores, &dscores}) *p = arena.take(kKeyBlock * kQueryBlock);
    for (float** p : {&lse, &delta}) *p = arena.take(kQueryBlock);
    for (float** p : {&bias_rows, &bias}) *p = arena.take(biased ? kKeyBlock * kQueryBlock : 0);
    dbias = arena.take(biased ? kBiasChunk * kQueryBlock : 0);
    floats = arena.used();
  }
};

float dot(const float* a, const float* b, int64_t size) {
  Vec sum = {};
  for (int64_t c = 0; c < size; c += kWidth) sum += load(a + c) * load(b + c);
  float total = 0;
  for (int i = 0; i < kWidth; ++i) total += sum[i];
  return total;
}

/// scores: S becomes P; dscores: dO V^T becomes keep dO V^T. A dropped probability is stored as -P for the next pass.
void probabilities_block(const Call& call, const QueryLanes& lanes, int64_t head, int64_t key, int64_t keys,
                         int64_t cols, const Scratch& t) {
  if (call.drops) {
    for_each_kept(call, lanes, head, key, keys, cols, [&](int64_t n, int64_t j, IntVec kept) {
      float *s = t.scores + j * kQueryBlock + n, *ds = t.dscores + j * kQueryBlock + n;
      const Vec p = exp2(load(s) - load(t.lse + n));
      store(s, kept ? p : -p);
      store(ds, kept ? load(ds) * call.keep_scale : splat(0.0f));
    });
    return;
  }
  for (int64_t j = 0; j < keys; ++j) {
    for (int64_t n = 0; n < cols; n += kWidth) {
      float* s = t.scores + j * kQueryBlock + n;
      store(s, exp2(load(s) - load(t.lse + n)));
    }
  }
}

inline Vec magnitude(Vec x) { return x < splat(0.0f) ? -x : x; }

/// delta = rowsum(P dP) of queries whose keys are all in this block. Equals rowsum(dO O) but without the error of O's
/// rounding to 16 bits, which is largest when there are few keys.
void delta_of_block(int64_t keys, int64_t cols, const Scratch& t) {
  for (int64_t n = 0; n < cols; n += kWidth) {
    Vec sum = {};
    for (int64_t j = 0; j < keys; ++j) {
      sum += magnitude(load(t.scores + j * kQueryBlock + n)) * load(t.dscores + j * kQueryBlock + n);
    }
    store(t.delta + n, sum);
  }
}

/// scores: becomes keep P; dscores: becomes dS = P (dP - delta).
void differentiate_block(int64_t keys, int64_t cols, const Scratch& t) {
  for (int64_t j = 0; j < keys; ++j) {
    for (int64_t n = 0; n < cols; n += kWidth) {
      float *s = t.scores + j * kQueryBlock + n, *ds = t.dscores + j * kQueryBlock + n;
      const Vec p = load(s);
      store(ds, magnitude(p) * (load(ds) - load(t.delta + n)));
      store(s, p < splat(0.0f) ? splat(0.0f) : p);
    }
  }
}

template <class T>
class Backward {
 public:
  Backward(const Call& call, const ConstView& q, const ConstView& k, const ConstView& v, const ConstView& out,
           const ConstView& dout, const ConstView& lse, const View& dq, const View& dk, const View& dv, float* partial)
      : call_(call),
        p_(call.params),
        q_(q),
        k_(k),
        v_(v),
        out_(out),
        dout_(dout),
        lse_(lse),
        dq_(dq),
        dk_(dk),
        dv_(dv),
        partial_(partial),
        chunk_(key_chunk(p_)),
        chunks_(chunk_count(p_)) {}

  void run(int64_t task, const Scratch& t) const {
    const int64_t index = task % chunks_, kv_head = task / chunks_ % p_.kv_heads,
                  sequence = task / chunks_ / p_.kv_heads;
    const Sequence s(p_, sequence);
    const KeyRange chunk{index * chunk_, std::min((index + 1) * chunk_, s.keys)};
    const KeyRange seen{chunk.begin, std::min(chunk.end, s.visible_keys)};
    pack_keys(s, kv_head, seen, t);
    std::fill_n(t.dkeys, chunk.size() * call_.padded_dim, 0.0f);
    std::fill_n(t.dvalues, chunk.size() * call_.padded_dim, 0.0f);
    for (int64_t query = 0; query < s.queries; query += kQueryBlock) {
      const int64_t count = std::min(kQueryBlock, s.queries - query);
      const QueryLanes lanes(call_, s, query, count);
      for (int64_t head = kv_head * call_.group; head < (kv_head + 1) * call_.group; ++head) {
        query_block(s, sequence, head, query, count, lanes, seen, t);
        write_dq(s, index, head, query, count, t);
      }
    }
    for (int64_t i = 0; i < chunk.size(); ++i) {
      const int64_t token = s.key_begin + chunk.begin + i, row = i * call_.padded_dim;
      unpack(t.dkeys + row, static_cast<float>(p_.scale), p_.head_dim, dk_.at(token, kv_head));
      unpack(t.dvalues + row, call_.keep_scale, p_.head_dim, dv_.at(token, kv_head));
    }
  }

  /// dq of one token: adds the partial results of all key chunks in order.
  void reduce_token(int64_t token) const {
    const int64_t row = p_.heads * p_.head_dim, size = p_.query_offsets[p_.sequences] * row;
    for (int64_t h = 0; h < p_.heads; ++h) {
      T* to = dq_.at(token, h);
      for (int64_t c = 0; c < p_.head_dim; ++c) {
        const float* from = partial_ + token * row + h * p_.head_dim + c;
        float sum = 0;
        for (int64_t i = 0; i < chunks_; ++i) sum += from[i * size];
        to[c] = static_cast<T>(sum);
      }
    }
  }

  /// One block of dbias, kQueryBlock queries by kBiasChunk keys: the sum over the sequences and heads that share it.
  void bias_task(int64_t task, const View& dbias, const Scratch& t) const {
    const int64_t query_blocks = (dbias.shape[2] + kQueryBlock - 1) / kQueryBlock;
    const int64_t key_blocks = (dbias.shape[3] + kBiasChunk - 1) / kBiasChunk;
    const int64_t first_key = task % key_blocks * kBiasChunk, query = task / key_blocks % query_blocks * kQueryBlock;
    const int64_t h = task / key_blocks / query_blocks % dbias.shape[1],
                  b = task / key_blocks / query_blocks / dbias.shape[1];
    std::fill_n(t.dbias, kBiasChunk * kQueryBlock, 0.0f);
    const bool all_sequences = dbias.shape[0] == 1, all_heads = dbias.shape[1] == 1;
    for (int64_t sequence = all_sequences ? 0 : b; sequence < (all_sequences ? p_.sequences : b + 1); ++sequence) {
      const Sequence s(p_, sequence);
      const int64_t count = std::min(kQueryBlock, s.queries - query);
      if (count <= 0) continue;
      const QueryLanes lanes(call_, s, query, count);
      for (int64_t head = all_heads ? 0 : h; head < (all_heads ? p_.heads : h + 1); ++head) {
        add_to_dbias(s, sequence, head, query, count, lanes, first_key, t);
      }
    }
    const int64_t rows = std::min(kQueryBlock, dbias.shape[2] - query),
                  cols = std::min(kBiasChunk, dbias.shape[3] - first_key);
    float* to = dbias.as<float>() + ((b * dbias.shape[1] + h) * dbias.shape[2] + query) * dbias.shape[3] + first_key;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) to[i * dbias.shape[3] + j] = t.dbias[j * kQueryBlock + i];
    }
  }
  static int64_t bias_tasks(const View& dbias) {
    return dbias.shape[0] * dbias.shape[1] * ((dbias.shape[2] + kQueryBlock - 1) / kQueryBlock) *
           ((dbias.shape[3] + kBiasChunk - 1) / kBiasChunk);
  }

 private:
  void pack_keys(const Sequence& s, int64_t kv_head, KeyRange range, const Scratch& t) const {
    const int64_t token = s.key_begin + range.begin;
    const uint8_t* mask = p_.key_mask == nullptr ? nullptr : p_.key_mask + token;
    pack(k_.at(token, kv_head), k_.token_stride, range.size(), p_.head_dim, call_.padded_dim, mask, t.keys);
    pack(v_.at(token, kv_head), v_.token_stride, range.size(), p_.head_dim, call_.padded_dim, mask, t.values);
  }

  /// True when all keys that the queries see fit into one block of scores, in tasks over keys and over dbias.
  bool in_one_block(const Sequence& s, int64_t query, int64_t count) const {
    return call_.range_of_queries(s, query, count).size() <= kKeyBlock && s.keys <= kSmallestChunk;
  }

  /// Packs a block of queries: q, dout, their transposes, lse and, unless delta_of_block computes it, rowsum(dout *
  /// out).
  void pack_queries(const Sequence& s, int64_t head, int64_t query, int64_t count, bool one_block,
                    const Scratch& t) const {
    const int64_t d = p_.head_dim, dp = call_.padded_dim, token = s.query_begin + query, cols = round_up(count, kWidth);
    pack(q_.at(token, head), q_.token_stride, count, d, dp, nullptr, t.rows);
    pack(dout_.at(token, head), dout_.token_stride, count, d, dp, nullptr, t.drows);
    if (!one_block) pack(out_.at(token, head), out_.token_stride, count, d, dp, nullptr, t.sum);
    for (float* rows : {t.rows, t.drows}) std::fill(rows + count * dp, rows + cols * dp, 0.0f);
    transpose(cols, dp, t.rows, dp, call_.scale_log2, t.queries, kQueryBlock);
    transpose(cols, dp, t.drows, dp, 1, t.dqueries, kQueryBlock);
    for (int64_t i = 0; i < cols; ++i) {
      t.lse[i] = kInfinity;  // lanes without a query and queries that see no key: P = 0
      t.delta[i] = 0;
      if (i >= count) continue;
      const float lse = lse_.as<float>()[head * lse_.strides[0] + (token + i) * lse_.strides[1]];
      if (lse == -kInfinity) continue;
      t.lse[i] = lse * kLog2e;
      if (!one_block) t.delta[i] = dot(t.drows + i * dp, t.sum + i * dp, dp);
    }
  }

  /// Computes keep P and dS of one block; the packed keys and values begin at key `packed`.
  void score_block(const Sequence& s, const BiasTile& bias, int64_t head, int64_t query, int64_t count,
                   const QueryLanes& lanes, int64_t key, int64_t keys, int64_t packed, bool one_block,
                   const Scratch& t) const {
    const int64_t d = p_.head_dim, dp = call_.padded_dim, cols = round_up(count, kWidth), row = (key - packed) * dp;
    multiply<false, false>(keys, cols, d, t.keys + row, dp, t.queries, kQueryBlock, t.scores, kQueryBlock);
    multiply<false, false>(keys, cols, d, t.values + row, dp, t.dqueries, kQueryBlock, t.dscores, kQueryBlock);
    bias.add(query, count, key, keys, t.bias_rows, t.bias, t.scores);
    mask_scores(call_, s, lanes, key, keys, cols, t.scores);
    probabilities_block(call_, lanes, head, key, keys, cols, t);
    if (one_block) delta_of_block(keys, cols, t);
    differentiate_block(keys, cols, t);
  }

  /// Adds to dkeys and dvalues and writes the chunk's part of dq to t.sum.
  void query_block(const Sequence& s, int64_t sequence, int64_t head, int64_t query, int64_t count,
                   const QueryLanes& lanes, KeyRange chunk, const Scratch& t) const {
    const int64_t dp = call_.padded_dim;
    KeyRange range = call_.range_of_queries(s, query, count);
    range = {std::max(range.begin, chunk.begin), std::min(range.end, chunk.end)};
    const bool one_block = in_one_block(s, query, count);
    if (range.size() > 0) pack_queries(s, head, query, count, one_block, t);
    std::fill_n(t.sum, count * dp, 0.0f);
    const BiasTile bias(call_, sequence, head);
    for (int64_t key = range.begin; key < range.end; key += kKeyBlock) {
      const int64_t keys = std::min(kKeyBlock, range.end - key), row = (key - chunk.begin) * dp;
      score_block(s, bias, head, query, count, lanes, key, keys, chunk.begin, one_block, t);
      multiply<false, true>(keys, dp, count, t.scores, kQueryBlock, t.drows, dp, t.dvalues + row, dp);
      multiply<false, true>(keys, dp, count, t.dscores, kQueryBlock, t.rows, dp, t.dkeys + row, dp);
      multiply<true, true>(count, dp, keys, t.dscores, kQueryBlock, t.keys + row, dp, t.sum, dp);
    }
  }

  void write_dq(const Sequence& s, int64_t chunk, int64_t head, int64_t query, int64_t count, const Scratch& t) const {
    const auto scale = static_cast<float>(p_.scale);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t token = s.query_begin + query + i;
      const float* from = t.sum + i * call_.padded_dim;
      if (partial_ == nullptr) {
        unpack(from, scale, p_.head_dim, dq_.at(token, head));
      } else {
        const int64_t part = chunk * p_.query_offsets[p_.sequences] + token;
        unpack(from, scale, p_.head_dim, partial_ + (part * p_.heads + head) * p_.head_dim);
      }
    }
  }

  void add_to_dbias(const Sequence& s, int64_t sequence, int64_t head, int64_t query, int64_t count,
                    const QueryLanes& lanes, int64_t first_key, const Scratch& t) const {
    KeyRange range = call_.range_of_queries(s, query, count);
    range = {std::max(range.begin, first_key), std::min(range.end, first_key + kBiasChunk)};
    if (range.size() == 0) return;
    const bool one_block = in_one_block(s, query, count);
    pack_queries(s, head, query, count, one_block, t);
    const BiasTile bias(call_, sequence, head);
    for (int64_t key = range.begin; key < range.end; key += kKeyBlock) {
      const int64_t keys = std::min(kKeyBlock, range.end - key);
      pack_keys(s, head / call_.group, {key, key + keys}, t);
      score_block(s, bias, head, query, count, lanes, key, keys, key, one_block, t);
      for (int64_t j = 0; j < keys; ++j) {
        float* to = t.dbias + (key - first_key + j) * kQueryBlock;
        for (int64_t i = 0; i < count; ++i) to[i] += t.dscores[j * kQueryBlock + i];
      }
    }
  }

  const Call& call_;
  const AttentionParams& p_;
  Rows<const T> q_, k_, v_, out_, dout_;
  ConstView lse_;
  Rows<T> dq_, dk_, dv_;
  float* partial_;  // [chunks][query tokens][heads][head_dim], null for a single chunk
  int64_t chunk_, chunks_;
};

int64_t partial_floats(const AttentionParams& p) {
  if (chunk_count(p) == 1 || p.sequences == 0) return 0;
  return round_up(chunk_count(p) * p.query_offsets[p.sequences] * p.heads * p.head_dim, 16);
}

/// Tasks over keys and over dbias share the slots. With a bias there may be more of the latter: one slot per thread.
int64_t slots(const AttentionParams& p) {
  return slot_count(p.bias ? std::numeric_limits<int64_t>::max() : task_count(p));
}

}  // namespace
}  // namespace attention

int64_t attention_backward_workspace(Stream stream, const AttentionParams& params, DType dtype) {
  using namespace attention;
  if (dtype == float64) return reference_workspace(params);
  const Call call(params);
  return bytes_with_alignment(partial_floats(params) + slots(params) * Scratch(call, nullptr).floats);
}

void attention_backward(Stream stream, const AttentionParams& params, ConstView q, ConstView k, ConstView v,
                        ConstView out, ConstView dout, ConstView log_sum_exp, View dq, View dk, View dv, View dbias,
                        void* workspace) {
  using namespace attention;
  if (q.dtype == float64) {
    return reference_backward(params, q, k, v, out, dout, log_sum_exp, dq, dk, dv, dbias, workspace);
  }
  const Call call(params);
  float* partial = partial_floats(params) > 0 ? align(workspace) : nullptr;
  float* base = align(workspace) + partial_floats(params);
  const int64_t slot_floats = Scratch(call, nullptr).floats;
  const auto scratch = [&](int64_t slot) { return Scratch(call, base + slot * slot_floats); };
  const int64_t query_tokens = params.query_offsets[params.sequences],
                key_tokens = params.key_offsets[params.sequences];
  const auto run = [&]<class T>() {
    const Backward<T> backward(call, q, k, v, out, dout, log_sum_exp, dq, dk, dv, partial);
    run_tasks(params, task_count(params), [&](int64_t task, int64_t slot) { backward.run(task, scratch(slot)); });
    if (partial != nullptr) {
      parallel_for(query_tokens, 64, [&](int64_t begin, int64_t end) {
        for (int64_t token = begin; token < end; ++token) backward.reduce_token(token);
      });
    }
    if (dbias) {
      run_tasks(params, Backward<T>::bias_tasks(dbias),
                [&](int64_t task, int64_t slot) { backward.bias_task(task, dbias, scratch(slot)); });
    }
    clear_unused(Rows<T>(dq), query_tokens, dq.shape[0], params.heads, params.head_dim);
    clear_unused(Rows<T>(dk), key_tokens, dk.shape[0], params.kv_heads, params.head_dim);
    clear_unused(Rows<T>(dv), key_tokens, dv.shape[0], params.kv_heads, params.head_dim);
  };
  if (q.dtype == bfloat16) return run.template operator()<BFloat16>();
  if (q.dtype == float16) return run.template operator()<Float16>();
  run.template operator()<float>();
}

}  // namespace tern::kernels::TERN_CPU
