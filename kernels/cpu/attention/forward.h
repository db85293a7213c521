#pragma once
// Forward pass of fused attention: online softmax over blocks of keys (Milakov & Gimelshein, arXiv:1805.02867; Dao et
// al., arXiv:2205.14135). A task is a chunk of queries of one (sequence, key-value head), for all query heads of its
// group; it packs the keys and values that they see once.

#include "tern/kernels/cpu/attention/block.h"

namespace tern::kernels::TERN_CPU::attention {

inline constexpr int64_t kKeyBlock = 256;
inline constexpr int64_t kQueryChunk = 512, kSmallQueryChunk = 128, kFewTasks = 64;

/// Queries of a task. Depends only on the call, never on the number of threads.
inline int64_t query_chunk(const AttentionParams& p) {
  return p.sequences * p.kv_heads >= kFewTasks ? kQueryChunk : kSmallQueryChunk;
}
inline int64_t task_count(const AttentionParams& p) {
  const int64_t chunk = query_chunk(p);
  return p.sequences * p.kv_heads * ((p.max_query_length + chunk - 1) / chunk);
}

struct ForwardScratch {
  float *keys, *values;            // [max keys][padded_dim]
  float *rows, *queries;           // [kQueryBlock][padded_dim] and its transpose, scaled
  float *scores, *sum;             // [kKeyBlock][kQueryBlock]; output before division [kQueryBlock][padded_dim]
  float *maximum, *total, *decay;  // [kQueryBlock]
  float *bias_rows, *bias;         // [kQueryBlock][kKeyBlock] and its transpose
  int64_t floats;

  ForwardScratch(const Call& call, float* base) {
    Arena arena(base);
    const int64_t key_rows = round_up(call.params.max_key_length, kDropoutGroup), block = kQueryBlock * call.padded_dim;
    keys = arena.take(key_rows * call.padded_dim);
    values = arena.take(key_rows * call.padded_dim);
    rows = arena.take(block);
    queries = arena.take(block);
    scores = arena.take(kKeyBlock * kQueryBlock);
    sum = arena.take(block);
    maximum = arena.take(kQueryBlock);
    total = arena.take(kQueryBlock);
    decay = arena.take(kQueryBlock);
    bias_rows = call.params.bias ? arena.take(kKeyBlock * kQueryBlock) : nullptr;
    bias = call.params.bias ? arena.take(kKeyBlock * kQueryBlock) : nullptr;
    floats = arena.used();
  }
};

/// Replaces a block of scores by exp2(score - maximum); updates maximum, total and decay, the factor of earlier
/// results.
inline void softmax_block(int64_t keys, int64_t cols, const ForwardScratch& t) {
  for (int64_t n = 0; n < cols; n += kWidth) {
    float* p = t.scores + n;
    Vec top = load(p);
    for (int64_t j = 1; j < keys; ++j) {
      const Vec s = load(p + j * kQueryBlock);
      top = s > top ? s : top;
    }
    const Vec before = load(t.maximum + n);
    top = before > top ? before : top;
    const Vec lowest = splat(-kInfinity);
    const Vec origin = top == lowest ? splat(0.0f) : top;  // no key seen so far: exp2(-inf - 0) is 0, not NaN
    Vec total = {};
    for (int64_t j = 0; j < keys; ++j) {
      const Vec e = exp2(load(p + j * kQueryBlock) - origin);
      total += e;
      store(p + j * kQueryBlock, e);
    }
    const Vec decay = exp2(before - origin);
    store(t.maximum + n, top);
    store(t.decay + n, decay);
    store(t.total + n, load(t.total + n) * decay + total);
  }
}

template <class T>
class Forward {
 public:
  /// lse may be absent. chunk: queries per task.
  Forward(const Call& call, const ConstView& q, const ConstView& k, const ConstView& v, const View& out,
          const View& lse, int64_t chunk)
      : call_(call), p_(call.params), q_(q), k_(k), v_(v), out_(out), lse_(lse), chunk_(chunk) {}

  void run(int64_t task, const ForwardScratch& t) const {
    const int64_t chunks = (p_.max_query_length + chunk_ - 1) / chunk_;
    const int64_t kv_head = task / chunks % p_.kv_heads, sequence = task / chunks / p_.kv_heads;
    const Sequence s(p_, sequence);
    const int64_t begin = task % chunks * chunk_, end = std::min(begin + chunk_, s.queries);
    if (begin >= end) return;
    const KeyRange packed = call_.range_of_queries(s, begin, end - begin);
    pack_keys(k_, s, kv_head, packed, t.keys);
    pack_keys(v_, s, kv_head, packed, t.values);
    for (int64_t query = begin; query < end; query += kQueryBlock) {
      const int64_t count = std::min(kQueryBlock, end - query);
      const QueryLanes lanes(call_, s, query, count);
      for (int64_t head = kv_head * call_.group; head < (kv_head + 1) * call_.group; ++head) {
        attend(s, sequence, head, query, count, lanes, packed, t);
        finish(s, head, query, count, t);
      }
    }
  }

 private:
  void pack_keys(const Rows<const T>& from, const Sequence& s, int64_t kv_head, KeyRange range, float* to) const {
    const int64_t token = s.key_begin + range.begin;
    const uint8_t* mask = p_.key_mask == nullptr ? nullptr : p_.key_mask + token;
    pack(from.at(token, kv_head), from.token_stride, range.size(), p_.head_dim, call_.padded_dim, mask, to);
  }

  /// Writes the unnormalised output to t.sum, the row sums to t.total and the maxima to t.maximum.
  void attend(const Sequence& s, int64_t sequence, int64_t head, int64_t query, int64_t count, const QueryLanes& lanes,
              KeyRange packed, const ForwardScratch& t) const {
    const int64_t d = p_.head_dim, dp = call_.padded_dim, cols = round_up(count, kWidth);
    pack(q_.at(s.query_begin + query, head), q_.token_stride, count, d, dp, nullptr, t.rows);
    std::fill(t.rows + count * dp, t.rows + cols * dp, 0.0f);
    transpose(cols, dp, t.rows, dp, call_.scale_log2, t.queries, kQueryBlock);
    std::fill(t.maximum, t.maximum + cols, -kInfinity);
    std::fill(t.total, t.total + cols, 0.0f);
    const BiasTile bias(call_, sequence, head);
    const KeyRange range = call_.range_of_queries(s, query, count);
    for (int64_t key = range.begin; key < range.end; key += kKeyBlock) {
      const int64_t keys = std::min(kKeyBlock, range.end - key), row = (key - packed.begin) * dp;
      multiply<false, false>(keys, cols, d, t.keys + row, dp, t.queries, kQueryBlock, t.scores, kQueryBlock);
      bias.add(query, count, key, keys, t.bias_rows, t.bias, t.scores);
      mask_scores(call_, s, lanes, key, keys, cols, t.scores);
      softmax_block(keys, cols, t);
      if (call_.drops) drop(head, key, keys, cols, lanes, t.scores);
      if (key == range.begin) {
        multiply<true, false>(count, dp, keys, t.scores, kQueryBlock, t.values + row, dp, t.sum, dp);
      } else {
        rescale(count, t);
        multiply<true, true>(count, dp, keys, t.scores, kQueryBlock, t.values + row, dp, t.sum, dp);
      }
    }
    if (range.size() == 0) std::fill(t.sum, t.sum + count * dp, 0.0f);
  }

  void drop(int64_t head, int64_t key, int64_t keys, int64_t cols, const QueryLanes& lanes, float* scores) const {
    for_each_kept(call_, lanes, head, key, keys, cols, [&](int64_t n, int64_t j, IntVec kept) {
      float* p = scores + j * kQueryBlock + n;
      store(p, kept ? load(p) : splat(0.0f));
    });
  }

  void rescale(int64_t count, const ForwardScratch& t) const {
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t c = 0; c < call_.padded_dim; c += kWidth) {
        float* p = t.sum + i * call_.padded_dim + c;
        store(p, load(p) * t.decay[i]);
      }
    }
  }

  void finish(const Sequence& s, int64_t head, int64_t query, int64_t count, const ForwardScratch& t) const {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t token = s.query_begin + query + i;
      const float total = t.total[i];
      unpack(t.sum + i * call_.padded_dim, total == 0 ? 0.0f : call_.keep_scale / total, p_.head_dim,
             out_.at(token, head));
      if (!lse_) continue;
      const double lse = total == 0 ? -kInfinity : kLn2 * (t.maximum[i] + std::log2(total));
      lse_.as<float>()[head * lse_.strides[0] + token * lse_.strides[1]] = static_cast<float>(lse);
    }
  }

  const Call& call_;
  const AttentionParams& p_;
  Rows<const T> q_, k_, v_;
  Rows<T> out_;
  View lse_;
  int64_t chunk_;
};

}  // namespace tern::kernels::TERN_CPU::attention
