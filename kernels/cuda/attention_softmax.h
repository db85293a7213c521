#pragma once
// What the forward kernels of flash attention share: online softmax over a warp's rows, and the way out.

#include "tern/kernels/cuda/attention_tile.h"

namespace tern::kernels::cuda::attention {

/// The state of one warp's 16 query rows: unnormalised output, and per half (rows 0 to 7, 8 to 15) the largest score so
/// far and this lane's part of the sum.
template <int kDim>
struct RowState {
  FragmentC out[kDim / 8];
  float maximum[2] = {-kInfinity, -kInfinity}, total[2] = {0, 0};
};

/// Turns scores into probabilities relative to the largest score so far, and brings the state up to date.
template <int kDim, int kTiles>
__device__ void softmax_step(float scale, FragmentC (&scores)[kTiles], RowState<kDim>& state) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float top = state.maximum[half];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) top = fmaxf(top, scores[n].r[half * 2 + j]);
    }
    top = quad_max(top);
    const float origin = top == -kInfinity ? 0 : top * scale;  // no key seen so far: 2^(-inf - 0) is 0, not NaN
    const float decay = fast_exp2(state.maximum[half] * scale - origin);
    float total = 0;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& p = scores[n].r[half * 2 + j];
        p = fast_exp2(p * scale - origin);
        total += p;
      }
    }
    state.maximum[half] = top;
    state.total[half] = state.total[half] * decay + total;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      state.out[n].r[half * 2] *= decay;
      state.out[n].r[half * 2 + 1] *= decay;
    }
  }
}

/// Probabilities that dropout does not keep become zero; the sums have them already.
template <int kTiles>
__device__ void drop(uint32_t kept, FragmentC (&p)[kTiles]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (!is_kept<kTiles>(kept, n, i)) p[n].r[i] = 0;
  }
}

/// Writes a warp's 16 rows, those of the queries from `query` on, by way of the tile's rows from `row` on.
template <class Tile, class T>
__device__ void store_result(const Call& call, const Sequence& s, int head, int query,
                             const RowState<Tile::kDim>& state, T* tile, int row, const Rows<T>& out,
                             const LogSumExp<float>& log_sum_exp) {
  const int lane = threadIdx.x % kWarpSize;
  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = quad_sum(state.total[half]);
    factor[half] = total == 0 ? 0.0f : static_cast<float>(call.keep_scale) / total;
    const int own = query + lane / 4 + half * 8;
    if (lane % 4 == 0 && own < s.queries) {
      const float top = state.maximum[half] * positive_scale_log2(call);
      log_sum_exp.at(s.query_begin + own, head) = total == 0 ? -kInfinity : kLn2 * (top + log2f(total));
    }
  }
  store_rows<Tile>(state.out, factor, tile, row, out.at(s.query_begin + query, head), out.token_stride,
                   s.queries - query, call.head_dim);
}

/// One head of the tokens behind the last sequence, `tiles` blocks taking turns: zeros, and no key seen.
template <class T>
__device__ void clear_result(const Call& call, const Rows<T>& out, const LogSumExp<float>& log_sum_exp,
                             const Task& task, int tiles) {
  const int64_t used = call.query_offsets[call.sequences];
  clear_behind(out, used, task, tiles, call.head_dim);
  for (int64_t token = used + task.tile + static_cast<int64_t>(threadIdx.x) * tiles; token < out.tokens;
       token += static_cast<int64_t>(blockDim.x) * tiles)
    log_sum_exp.at(token, task.head) = -kInfinity;
}

// attention_forward_sm90.cu: as own_attention_forward, for what takes_wgmma().
void forward_sm90(Stream stream, const Call& call, const ConstView& q, const ConstView& k, const ConstView& v,
                  const View& out, const View& log_sum_exp);

}  // namespace tern::kernels::cuda::attention
