#pragma once
// The element-wise steps of flash attention's backward kernels (attention/backward.cu describes the method). In the
// pass for dq rows are queries and columns are keys; in the pass for dk and dv rows are keys and columns are queries.

#include "tern/kernels/cuda/attention/tile.h"

namespace tern::kernels::cuda::attention {

template <class T>
struct Inputs {
  Rows<const T> q, k, v, out, dout;
  LogSumExp<const float> log_sum_exp;
  Delta<float> delta;
};

/// log_sum_exp in base 2; infinity (hence P = 0) for rows outside the sequence and queries that see no key.
template <class T>
__device__ float base2_lse(const Inputs<T>& x, const Sequence& s, int head, int query) {
  if (query >= s.queries) return kInfinity;
  const float lse = x.log_sum_exp.at(s.query_begin + query, head);
  return lse == -kInfinity ? kInfinity : lse * kLog2e;
}

// ---- rows are queries

/// A lane's two rows of a warp's 16.
template <class T>
struct QueryRows {
  int first;  // the warp's first query
  float lse[2], delta[2] = {0, 0};

  __device__ QueryRows(const Inputs<T>& x, const Sequence& s, int head, int first_query) : first(first_query) {
#pragma unroll
    for (int half = 0; half < 2; ++half) lse[half] = base2_lse(x, s, head, query(half));
  }
  __device__ int query(int half) const { return first + static_cast<int>(threadIdx.x) % kWarpSize / 4 + half * 8; }

  /// delta = rowsum(dout * out); the rows of dout start at row `row` of a tile.
  template <class Tile>
  __device__ void read_delta(const Call& call, const Inputs<T>& x, const Sequence& s, int head, const T* dout_tile,
                             int row) {
    const int lane = threadIdx.x % kWarpSize;
    float sum[2] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (query(half) >= s.queries) continue;
      const T* out = x.out.at(s.query_begin + query(half), head);
      for (int c = lane % 4 * 8; c < call.head_dim; c += 32) {
        const Vector<T, 8> a = load_readonly<8>(out + c),
                           b = load_vector<8>(dout_tile + Tile::at(row + lane / 4 + half * 8, c));
#pragma unroll
        for (int i = 0; i < 8; ++i) sum[half] += to_compute(a.v[i]) * to_compute(b.v[i]);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) delta[half] = quad_sum(sum[half]);
  }
  __device__ void write_delta(const Call& call, const Inputs<T>& x, const Sequence& s, int head) const {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (threadIdx.x % 4 == 0 && query(half) < s.queries) x.delta.at(call, head, s.index, query(half)) = delta[half];
  }

  /// Converts scores to probabilities.
  template <int kTiles>
  __device__ void probabilities(const Call& call, FragmentC (&p)[kTiles]) const {
    const float scale = positive_scale_log2(call);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) p[n].r[i] = fast_exp2(p[n].r[i] * scale - lse[i / 2]);
    }
  }

  /// Converts dP to dS = P (keep dP - delta). only_tile: there are no other keys; delta is then rowsum(P dP), which
  /// equals rowsum(dout * out) but without the error of out's rounding to 16 bits.
  template <bool kDropout, int kTiles>
  __device__ void score_gradients(const Call& call, uint32_t kept, const FragmentC (&p)[kTiles], bool only_tile,
                                  FragmentC (&ds)[kTiles]) {
    [[maybe_unused]] const auto keep_scale = static_cast<float>(call.keep_scale);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = 0;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int i = half * 2; i < half * 2 + 2; ++i) {
          float& dp = ds[n].r[i];
          if constexpr (kDropout) dp = is_kept<kTiles>(kept, n, i) ? dp * keep_scale : 0;
          sum += p[n].r[i] * dp;
        }
      }
      if (only_tile) delta[half] = quad_sum(sum);
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int i = half * 2; i < half * 2 + 2; ++i) ds[n].r[i] = p[n].r[i] * (ds[n].r[i] - delta[half]);
      }
    }
  }
};

// ---- rows are keys

/// Values for each query of a tile, other than q and dout, in shared memory.
template <int kQueries>
struct QueryColumns {
  float lse[kQueries], delta[kQueries];
  uint64_t row_keys[kQueries];

  /// Loads them for the queries from first_query on; all kThreads threads of the block call it.
  template <bool kDropout, int kThreads, class T>
  __device__ void load(const Call& call, const Inputs<T>& x, const Sequence& s, int head, int first_query) {
    static_assert(kQueries <= kThreads);
    const int i = static_cast<int>(threadIdx.x), query = first_query + i;
    if (i >= kQueries) return;
    lse[i] = base2_lse(x, s, head, query);
    delta[i] = query < s.queries ? x.delta.at(call, head, s.index, query) : 0;
    if constexpr (kDropout) row_keys[i] = s.row_key(call, query);
  }

  /// Converts scores to probabilities.
  __device__ void probabilities(const Call& call, FragmentC (&p)[kQueries / 8]) const {
    const float scale = positive_scale_log2(call);
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) p[n].r[i] = fast_exp2(p[n].r[i] * scale - lse[column(n, i)]);
    }
  }
  /// Converts dP to dS = P (keep dP - delta).
  template <bool kDropout>
  __device__ void score_gradients(const Call& call, uint32_t kept, const FragmentC (&p)[kQueries / 8],
                                  FragmentC (&ds)[kQueries / 8]) const {
    [[maybe_unused]] const auto keep_scale = static_cast<float>(call.keep_scale);
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& dp = ds[n].r[i];
        if constexpr (kDropout) dp = (kept >> (4 * n + i) & 1) != 0 ? dp * keep_scale : 0;
        dp = p[n].r[i] * (dp - delta[column(n, i)]);
      }
    }
  }

 private:
  __device__ static int column(int n, int i) { return n * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2; }
};

/// A warp's 16 keys.
struct KeyRows {
  int first;
  bool valid[2], all_valid;  // for a lane's two rows; for all rows

  __device__ KeyRows(const Call& call, const Sequence& s, int first_key) : first(first_key) {
#pragma unroll
    for (int half = 0; half < 2; ++half) valid[half] = s.is_valid(call, key(half));
    all_valid = __all_sync(kFullWarp, valid[0] && valid[1]) != 0;
  }
  __device__ int key(int half) const { return first + static_cast<int>(threadIdx.x) % kWarpSize / 4 + half * 8; }

  /// Sets scores to -infinity where a query may not see the key. Columns are the queries from first_query on.
  template <int kTiles>
  __device__ void mask_scores(const Call& call, const Sequence& s, int first_query, FragmentC (&scores)[kTiles]) const {
    if (all_valid && s.all_seen(call, first_query, first_query + kTiles * 8 - 1, {first, first + 16})) return;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const Range range = s.keys_of(call, first_query + n * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + j);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const bool seen = valid[half] && key(half) >= range.begin && key(half) < range.end;
          if (!seen) scores[n].r[half * 2 + j] = -kInfinity;
        }
      }
    }
  }

  /// The dropout mask of this lane's values: bit 4 n + i is 1 if value i of column tile n is kept. For each query a
  /// warp's 16 keys take two Philox blocks. For 16 queries at a time each lane draws one block (a byte of `drawn`) and
  /// reads the bits of its keys from the lanes that drew for its queries.
  template <int kQueries>
  __device__ uint32_t kept_in_columns(const Call& call, int head, const QueryColumns<kQueries>& columns) const {
    static_assert(kQueries % 16 == 0 && kQueries <= 64);
    const int lane = threadIdx.x % kWarpSize;
    const uint64_t dropout = philox_key(call.random);
    uint32_t drawn = 0, kept = 0;
#pragma unroll
    for (int n = 0; n < kQueries / 8; n += 2) {
      const Philox4 words = philox(dropout, columns.row_keys[n * 8 + lane % 16], static_cast<uint32_t>(head),
                                   static_cast<uint32_t>(first / 8 + lane / 16));
      drawn |= kept_of_block(call, words) << (4 * n);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {  // value i % 4 of the first or second of two column tiles
      const int from = i / 4 * 8 + lane % 4 * 2 + i % 2 + i / 2 % 2 * 16;
      kept |= (__shfl_sync(kFullWarp, drawn, from) >> (lane / 4) & 0x01010101u) << i;
    }
    return kept;
  }
};

/// Two neighbouring column tiles of probabilities, with dropped ones set to 0, as a left operand for dv.
template <bool kDropout, class T, int kTiles>
__device__ FragmentA kept_left(const FragmentC (&p)[kTiles], int n, [[maybe_unused]] uint32_t kept) {
  if constexpr (!kDropout) {
    return to_left<T>(p[n], p[n + 1]);
  } else {
    FragmentC c[2];
#pragma unroll
    for (int i = 0; i < 8; ++i) c[i / 4].r[i % 4] = (kept >> (4 * n + i) & 1) != 0 ? p[n + i / 4].r[i % 4] : 0;
    return to_left<T>(c[0], c[1]);
  }
}

}  // namespace tern::kernels::cuda::attention
