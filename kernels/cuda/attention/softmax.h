#pragma once
// Code shared by flash attention's forward kernels: a block's tiles and its loop over keys, online softmax over a
// warp's rows, and the output.

#include "tern/kernels/cuda/attention/tile.h"

namespace tern::kernels::cuda::attention {

/// The state of one warp's 16 query rows: the unnormalised output and, for each half (rows 0 to 7, 8 to 15), the
/// largest score so far and this lane's part of the sum.
template <int kDim>
struct RowState {
  FragmentC out[kDim / 8];
  float maximum[2] = {-kInfinity, -kInfinity}, total[2] = {0, 0};
};

/// Converts scores to probabilities relative to the largest score so far, and updates the state.
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

/// Sets dropped probabilities to zero; the sums already include them.
template <int kTiles>
__device__ void drop(uint32_t kept, FragmentC (&p)[kTiles]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (!is_kept<kTiles>(kept, n, i)) p[n].r[i] = 0;
  }
}

/// Writes a warp's 16 rows, for the queries from `query` on, using the tile's rows from `row` on as a buffer.
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
    const int query_row = query + lane / 4 + half * 8;
    if (lane % 4 == 0 && query_row < s.queries) {
      const float top = state.maximum[half] * positive_scale_log2(call);
      log_sum_exp.at(s.query_begin + query_row, head) = total == 0 ? -kInfinity : kLn2 * (top + log2f(total));
    }
  }
  store_rows<Tile>(state.out, factor, tile, row, out.at(s.query_begin + query, head), out.token_stride,
                   s.queries - query, call.head_dim);
}

/// Clears one head of the tokens after the last sequence: out is 0, log_sum_exp -infinity. `tiles` blocks take turns.
template <class T>
__device__ void clear_result(const Call& call, const Rows<T>& out, const LogSumExp<float>& log_sum_exp,
                             const Task& task, int tiles) {
  const int64_t used = call.query_offsets[call.sequences];
  clear_unused(out, used, task, tiles, call.head_dim);
  for (int64_t token = used + task.tile + static_cast<int64_t>(threadIdx.x) * tiles; token < out.tokens;
       token += static_cast<int64_t>(blockDim.x) * tiles)
    log_sum_exp.at(token, task.head) = -kInfinity;
}

/// The copies of a block in either kernel: S::QueryTile::kRows queries of one head once, and the tiles of keys and
/// values in turn, in two stages. S defines the tile types, kThreads and kElements, the elements of all tiles.
template <class T, class S>
class ForwardTiles {
 public:
  using QueryTile = typename S::QueryTile;
  using KeyTile = typename S::KeyTile;

  __device__ ForwardTiles(const Call& call, const Sequence& s, int head, int block_query, T* shared)
      : call_(call),
        s_(s),
        head_(head),
        block_query_(block_query),
        queries_(shared),
        stages_(shared + QueryTile::kElements) {}

  __device__ void load_queries(const Rows<const T>& q) {
    load_tile<QueryTile, S::kThreads>(q.at(s_.query_begin + block_query_, head_), q.token_stride, call_.head_dim,
                                      queries_, [&](int row) { return block_query_ + row < s_.queries; });
  }
  __device__ void load_keys(const Rows<const T>& k, const Rows<const T>& v, int first_key, int stage) {
    load_tiles<KeyTile, S::kThreads>(call_, k, v, s_.key_begin + first_key, head_ / call_.group, stage_of(stage),
                                     [&](int row) { return s_.is_valid(call_, first_key + row); });
  }

 protected:
  __device__ T* stage_of(int stage) const { return stages_ + stage * 2 * KeyTile::kElements; }

  const Call& call_;
  const Sequence& s_;
  int head_, block_query_;
  T *queries_, *stages_;
};

/// A block of either kernel. Block derives from ForwardTiles. start() is called once the copies of the queries have
/// completed, step(key, stage) once those of a tile of keys and values have, store(out, log_sum_exp) when no thread
/// uses the query tile any more. S::show_copies() makes a thread's copies visible to the products.
template <class Block, class S, class T>
__device__ void run_forward(const Call& call, const Rows<const T>& q, const Rows<const T>& k, const Rows<const T>& v,
                            const Rows<T>& out, const LogSumExp<float>& log_sum_exp, int tiles, T* shared) {
  constexpr int kQueries = S::QueryTile::kRows, kKeys = S::KeyTile::kRows;
  const Task task(call.heads, tiles);
  if (task.sequence == call.sequences) return clear_result(call, out, log_sum_exp, task, tiles);
  const Sequence s(call, task.sequence);
  const int block_query = task.tile * kQueries;
  if (block_query >= s.queries) return;
  Block block(call, s, task.head, block_query, shared);
  const Range range = s.keys_of(call, block_query, min(block_query + kQueries, s.queries) - 1);
  const int begin = range.begin / kKeys * kKeys;
  if (begin < range.end) {
    block.load_queries(q);
    block.load_keys(k, v, begin, 0);
    cp_async_commit();
    cp_async_wait<0>();
    S::show_copies();
    block_barrier();
    block.start();
  }
  int stage = 0;
  for (int key = begin; key < range.end; key += kKeys, stage ^= 1) {
    if (key + kKeys < range.end) block.load_keys(k, v, key + kKeys, stage ^ 1);
    cp_async_commit();
    block.step(key, stage);
    cp_async_wait<0>();
    S::show_copies();
    block_barrier();  // the next tile is complete for all threads, and none uses this one
  }
  block.store(out, log_sum_exp);
}

template <class S, class T, class Kernel>
void launch_forward(Stream stream, const Call& call, Kernel* kernel, const ConstView& q, const ConstView& k,
                    const ConstView& v, const View& out, const View& log_sum_exp) {
  const int tiles = static_cast<int>(tile_count(call.max_queries, S::QueryTile::kRows));
  launch(kernel, task_grid(call, call.heads, tiles), dim3(S::kThreads), S::kElements * sizeof(T), stream, call,
         Rows<const T>(q), Rows<const T>(k), Rows<const T>(v), Rows<T>(out), LogSumExp<float>(log_sum_exp), tiles);
}

// attention/forward_sm90.cu: like tern_attention_forward, for calls that takes_wgmma() accepts.
void forward_sm90(Stream stream, const Call& call, const ConstView& q, const ConstView& k, const ConstView& v,
                  const View& out, const View& log_sum_exp);

}  // namespace tern::kernels::cuda::attention
