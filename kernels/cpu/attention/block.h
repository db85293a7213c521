#pragma once
// Code shared by the forward and backward attention kernels: the call with derived values, the key ranges that queries
// see, packing, and the element-wise passes over one block of scores.
//
// A block of scores is stored transposed, [keys][kQueryBlock]: registers hold consecutive queries. So a softmax needs
// no horizontal sums, a key mask affects a whole row, and one Philox block gives 8 columns of a register in place.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "tern/kernels/attention.h"
#include "tern/kernels/cpu/attention/simd.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU::attention {

inline constexpr int64_t kQueryBlock = 64;   // queries in a block of scores
inline constexpr int64_t kDropoutGroup = 8;  // columns of one Philox block; key blocks begin at multiples of it
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kLog2e = 1.4426950408889634f;
inline constexpr double kLn2 = 0.6931471805599453;

constexpr int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

/// Number of scratch slots: at most one per thread (FixedThreads keeps that number constant). A task's result does not
/// depend on its slot.
inline int64_t slot_count(int64_t tasks) { return std::max<int64_t>(1, std::min<int64_t>(tasks, num_threads())); }

/// Allocates blocks of floats aligned to cache lines; with a null base it only computes the size.
class Arena {
 public:
  explicit Arena(float* base) : base_(base) {}
  float* take(int64_t floats) {
    float* result = base_ == nullptr ? nullptr : base_ + used_;
    used_ += round_up(floats, 16);
    return result;
  }
  int64_t used() const { return used_; }

 private:
  float* base_;
  int64_t used_ = 0;
};

inline float* align(void* workspace) {
  return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(workspace) + 63) & ~uintptr_t{63});
}
constexpr int64_t bytes_with_alignment(int64_t floats) { return floats * 4 + 64; }

/// True when waking another thread would take longer than the call.
inline bool is_small(const AttentionParams& p) {
  return p.sequences * p.max_query_length * p.max_key_length * p.heads * p.head_dim < (int64_t{1} << 16);
}

/// Runs body(task, slot) for every task; a slot takes the next task when it has finished one.
template <class Body>
void run_tasks(const AttentionParams& params, int64_t tasks, Body&& body) {
  if (tasks <= 0) return;
  if (is_small(params)) {
    for (int64_t task = 0; task < tasks; ++task) body(task, int64_t{0});
    return;
  }
  std::atomic<int64_t> next = 0;
  parallel_for(slot_count(tasks), 1, [&](int64_t slot, int64_t) {
    for (int64_t task = next++; task < tasks; task = next++) body(task, slot);
  });
}

/// A tensor of shape [tokens, heads, head_dim].
template <class T>
struct Rows {
  T* data;
  int64_t token_stride, head_stride;
  template <class AnyView>
  explicit Rows(const AnyView& view)
      : data(static_cast<T*>(view.data)), token_stride(view.strides[0]), head_stride(view.strides[1]) {}
  T* at(int64_t token, int64_t head) const { return data + token * token_stride + head * head_stride; }
};

/// One sequence. Query i has key position i + shift: queries and keys are aligned at their ends.
struct Sequence {
  int64_t query_begin, queries, key_begin, keys, shift;
  int64_t visible_keys;  // keys without the masked ones at the end
  Sequence(const AttentionParams& p, int64_t index)
      : query_begin(p.query_offsets[index]),
        queries(p.query_offsets[index + 1] - query_begin),
        key_begin(p.key_offsets[index]),
        keys(p.key_offsets[index + 1] - key_begin),
        shift(keys - queries),
        visible_keys(keys) {
    while (p.key_mask != nullptr && visible_keys > 0 && !p.key_mask[key_begin + visible_keys - 1]) --visible_keys;
  }
};

/// Zeroes the tokens after the last sequence (spare room of a packed batch), so that they are never uninitialised.
template <class T>
void clear_unused(const Rows<T>& rows, int64_t used, int64_t tokens, int64_t heads, int64_t head_dim) {
  for (int64_t token = used; token < tokens; ++token) {
    for (int64_t h = 0; h < heads; ++h) std::fill_n(rows.at(token, h), head_dim, T(0.0f));
  }
}
template <class T>
void clear_unused(const View& log_sum_exp, int64_t used) {
  for (int64_t h = 0; h < log_sum_exp.shape[0]; ++h) {
    for (int64_t token = used; token < log_sum_exp.shape[1]; ++token) {
      log_sum_exp.as<T>()[h * log_sum_exp.strides[0] + token * log_sum_exp.strides[1]] =
          -std::numeric_limits<T>::infinity();
    }
  }
}

/// Keys [begin, end).
struct KeyRange {
  int64_t begin, end;
  int64_t size() const { return std::max<int64_t>(0, end - begin); }
};

/// The call and values derived from it.
struct Call {
  const AttentionParams& params;
  int64_t group;       // query heads per key-value head
  int64_t padded_dim;  // head_dim rounded up to whole registers: the row length of packed blocks
  int64_t window;      // as in params, but limited so that sums do not overflow; -1: none
  float scale_log2;
  float keep_scale = 1;
  bool drops;
  DropoutMask dropout;

  explicit Call(const AttentionParams& p)
      : params(p),
        group(p.heads / std::max<int64_t>(p.kv_heads, 1)),
        padded_dim(round_up(p.head_dim, kWidth)),
        window(std::min(p.window, p.max_query_length + p.max_key_length)),
        scale_log2(static_cast<float>(p.scale) * kLog2e),
        drops(p.dropout.p > 0),
        dropout(philox_key(p.dropout.key), dropout_threshold(p.dropout.p)) {
    if (drops) keep_scale = p.dropout.p < 1 ? static_cast<float>(1 / (1 - p.dropout.p)) : 0.0f;
  }

  /// Keys that a query sees according to its position.
  KeyRange range_of_query(const Sequence& s, int64_t query) const {
    const int64_t position = query + s.shift;
    KeyRange range{0, s.visible_keys};
    if (window >= 0) range = {std::max<int64_t>(0, position - window), std::min(range.end, position + window + 1)};
    if (params.causal) range.end = std::min(range.end, position + 1);
    return range;
  }
  /// The union of the queries' key ranges, extended to begin at a dropout group.
  KeyRange range_of_queries(const Sequence& s, int64_t first, int64_t count) const {
    const KeyRange low = range_of_query(s, first), high = range_of_query(s, first + count - 1);
    return {low.begin / kDropoutGroup * kDropoutGroup, high.end};
  }
};

/// Converts from[0 .. cols) to floats and pads with zeros up to `padded`, a whole number of registers.
template <class T>
inline void pack_row(const T* from, int64_t cols, int64_t padded, float* to) {
  int64_t c = 0;
  if constexpr (std::is_same_v<T, float>) {
    for (; c + kWidth <= cols; c += kWidth) store(to + c, load(from + c));
  }
  for (; c < cols; ++c) to[c] = static_cast<float>(from[c]);
  for (; c < padded; ++c) to[c] = 0;
}

/// pack_row for rows `stride` apart. Rows whose mask byte is 0 become zeros: values of padding, NaN included, must not
/// enter a product. Later rows are prefetched, because hardware does not predict short rows that are far apart.
template <class T>
void pack(const T* from, int64_t stride, int64_t rows, int64_t cols, int64_t padded, const uint8_t* mask, float* to) {
  constexpr int64_t kAhead = 8, kLine = 64 / sizeof(T);
  for (int64_t i = 0; i < rows; ++i, from += stride, to += padded) {
    if (i + kAhead < rows) {
      for (int64_t c = 0; c < cols; c += kLine) __builtin_prefetch(from + kAhead * stride + c);
    }
    if (mask != nullptr && !mask[i]) {
      std::fill(to, to + padded, 0.0f);
    } else {
      pack_row(from, cols, padded, to);
    }
  }
}

template <class T>
void unpack(const float* from, float scale, int64_t cols, T* to) {
  for (int64_t c = 0; c < cols; ++c) to[c] = static_cast<T>(from[c] * scale);
}

/// Per-query values for the element-wise passes over a block; lanes after the last query repeat it.
struct QueryLanes {
  alignas(64) int32_t key_begin[kQueryBlock];  // range of keys by position; set only for causal or window
  alignas(64) int32_t key_end[kQueryBlock];
  alignas(64) uint64_t even_rows[kQueryBlock / 2];  // dropout row keys of queries 0, 2, 4, ... and of 1, 3, 5, ...
  alignas(64) uint64_t odd_rows[kQueryBlock / 2];
  KeyRange common;  // keys that every query sees by position

  QueryLanes(const Call& call, const Sequence& s, int64_t first, int64_t count) : common{0, s.keys} {
    const int64_t lanes = round_up(count, kWidth);
    if (call.params.causal || call.window >= 0) {
      for (int64_t i = 0; i < lanes; ++i) {
        const KeyRange range = call.range_of_query(s, first + std::min(i, count - 1));
        key_begin[i] = static_cast<int32_t>(range.begin);
        key_end[i] = static_cast<int32_t>(range.end);
        common = {std::max(common.begin, range.begin), std::min(common.end, range.end)};
      }
    }
    if (call.drops) {
      for (int64_t i = 0; i < lanes; ++i) {
        const int64_t token = s.query_begin + first + std::min(i, count - 1);
        const int64_t* keys = call.params.row_keys;
        uint64_t* rows = i % 2 ? odd_rows : even_rows;
        rows[i / 2] = static_cast<uint64_t>(keys != nullptr ? keys[token] : token);
      }
    }
  }
};

template <class V, class Element>
inline V load_as(const Element* p) {
  return *reinterpret_cast<const V*>(p);
}

/// Sets the scores of keys that a query may not see to -infinity. `cols`: number of queries, in whole registers.
inline void mask_scores(const Call& call, const Sequence& s, const QueryLanes& lanes, int64_t first_key, int64_t keys,
                        int64_t cols, float* scores) {
  const bool by_position = first_key < lanes.common.begin || first_key + keys > lanes.common.end;
  const uint8_t* mask = call.params.key_mask == nullptr ? nullptr : call.params.key_mask + s.key_begin + first_key;
  if (mask == nullptr && !by_position) return;
  for (int64_t j = 0; j < keys; ++j) {
    float* row = scores + j * kQueryBlock;
    if (mask != nullptr && !mask[j]) {
      std::fill(row, row + cols, -kInfinity);
    } else if (by_position) {
      const IntVec key = splat_int(static_cast<int32_t>(first_key + j));
      for (int64_t n = 0; n < cols; n += kWidth) {
        const IntVec seen = (key >= load_as<IntVec>(lanes.key_begin + n)) & (key < load_as<IntVec>(lanes.key_end + n));
        store(row + n, seen ? load(row + n) : splat(-kInfinity));
      }
    }
  }
}

/// Calls use(n, j, mask of kept elements) for each register of queries n and key j of a block aligned to dropout
/// groups.
template <class Use>
inline void for_each_kept(const Call& call, const QueryLanes& lanes, int64_t head, int64_t first_key, int64_t keys,
                          int64_t cols, Use&& use) {
  const auto lane = static_cast<uint32_t>(head);
  for (int64_t n = 0; n < cols; n += kWidth) {
    const auto even = load_as<LongVec>(lanes.even_rows + n / 2), odd = load_as<LongVec>(lanes.odd_rows + n / 2);
    for (int64_t j = 0; j < keys; j += kDropoutGroup) {
      IntVec words[4];
      call.dropout.draw(even, odd, lane, static_cast<uint32_t>((first_key + j) / kDropoutGroup), words);
      if (j + kDropoutGroup <= keys) {
#pragma GCC unroll 4
        for (int w = 0; w < 4; ++w) {
          use(n, j + 2 * w, call.dropout.template keeps<false>(words[w]));
          use(n, j + 2 * w + 1, call.dropout.template keeps<true>(words[w]));
        }
      } else {
        for (int w = 0; w < 4; ++w) {
          if (j + 2 * w < keys) use(n, j + 2 * w, call.dropout.template keeps<false>(words[w]));
          if (j + 2 * w + 1 < keys) use(n, j + 2 * w + 1, call.dropout.template keeps<true>(words[w]));
        }
      }
    }
  }
}

/// The additive bias of one (sequence, head), of any floating dtype and strides.
class BiasTile {
 public:
  BiasTile(const Call& call, int64_t sequence, int64_t head) : view_(call.params.bias) {
    if (!view_) return;
    offset_ =
        (view_.shape[0] == 1 ? 0 : sequence * view_.strides[0]) + (view_.shape[1] == 1 ? 0 : head * view_.strides[1]);
  }
  /// scores[key][query] += log2(e) * bias[query][key]. rows and transposed are scratch of kQueryBlock x round_up(keys,
  /// kWidth) floats.
  void add(int64_t first_query, int64_t queries, int64_t first_key, int64_t keys, float* rows, float* transposed,
           float* scores) const {
    if (!view_) return;
    const int64_t padded = round_up(keys, kWidth), cols = round_up(queries, kWidth);
    const float* from_rows = rows;
    int64_t stride = padded;
    dispatch_float(view_.dtype, [&]<class T>() {
      const T* from = view_.as<T>() + offset_ + first_query * view_.strides[2] + first_key * view_.strides[3];
      const bool dense = view_.strides[3] == 1;
      if constexpr (std::is_same_v<T, float>) {
        if (dense && cols == queries && padded == keys) {
          from_rows = from;
          stride = view_.strides[2];
          return;
        }
      }
      for (int64_t i = 0; i < queries; ++i) {
        float* row = rows + i * padded;
        const T* source = from + i * view_.strides[2];
        if (dense)  // a loop that is vectorised
          for (int64_t j = 0; j < keys; ++j) row[j] = static_cast<float>(source[j]);
        else
          for (int64_t j = 0; j < keys; ++j) row[j] = static_cast<float>(source[j * view_.strides[3]]);
        std::fill(row + keys, row + padded, 0.0f);
      }
      std::fill(rows + queries * padded, rows + cols * padded, 0.0f);
    });
    transpose(cols, padded, from_rows, stride, kLog2e, transposed, kQueryBlock);
    for (int64_t j = 0; j < keys; ++j) {
      for (int64_t n = 0; n < cols; n += kWidth) {
        float* p = scores + j * kQueryBlock + n;
        store(p, load(p) + load(transposed + j * kQueryBlock + n));
      }
    }
  }

 private:
  ConstView view_;
  int64_t offset_ = 0;
};

// The fp64 path in plain loops (attention/reference.cpp).
int64_t reference_workspace(const AttentionParams& params);
void reference_forward(const AttentionParams& params, ConstView q, ConstView k, ConstView v, View out, View log_sum_exp,
                       void* workspace);
void reference_backward(const AttentionParams& params, ConstView q, ConstView k, ConstView v, ConstView out,
                        ConstView dout, ConstView log_sum_exp, View dq, View dk, View dv, View dbias, void* workspace);

}  // namespace tern::kernels::TERN_CPU::attention
