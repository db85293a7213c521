// Flash attention, forward (Dao, arXiv:2307.08691): online softmax over tiles of keys on the tensor cores. A block
// takes a tile of queries of one head of one sequence; each warp its own rows, so warps meet only to hand over tiles.

#include "tern/kernels/attention.h"

#include <atomic>

#include "tern/kernels/cuda/attention_alternative.h"
#include "tern/kernels/cuda/attention_tile.h"

namespace tern::kernels::cuda {
namespace attention {
namespace {

/// Sizes for one row length. Two tiles of 16 queries a warp share the right operands they read from shared memory; with
/// long rows there are no registers for it.
template <int kDim>
struct Shape {
  static constexpr int kRowTiles = kDim <= 64 ? 2 : 1;
  static constexpr int kQueries = kWarps * 16 * kRowTiles;
  static constexpr int kKeys = 64;
  static constexpr int kTile = kKeys * kRowStride<kDim>;
  /// Queries, then two stages of keys and values.
  static constexpr int kElements = kQueries * kRowStride<kDim> + 4 * kTile;
};

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
      for (int j = 0; j < 2; ++j) top = scores[n].r[half * 2 + j] > top ? scores[n].r[half * 2 + j] : top;
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

template <class T, int kDim, bool kDropout>
class Forward {
 public:
  using S = Shape<kDim>;
  static constexpr int kKeyTiles = S::kKeys / 8;

  __device__ Forward(const Call& call, const Sequence& s, int head, int first_query, T* shared)
      : call_(call),
        s_(s),
        head_(head),
        first_query_(first_query + static_cast<int>(threadIdx.x) / kWarpSize * 16 * S::kRowTiles),
        queries_(shared),
        stages_(shared + S::kQueries * kRowStride<kDim>) {}

  /// Starts copying the block's queries.
  __device__ void load_queries(const Rows<const T>& q, int block_query) {
    const T* from = q.at(s_.query_begin + block_query, head_);
    load_tile<S::kQueries, kDim>(from, q.token_stride, call_.head_dim, queries_,
                                 [&](int row) { return block_query + row < s_.queries; });
  }
  /// Starts copying a tile of keys and values.
  __device__ void load_keys(const Rows<const T>& k, const Rows<const T>& v, int first_key, int stage) {
    const int kv_head = head_ / call_.group;
    const auto on = [&](int row) { return s_.is_valid(call_, first_key + row); };
    T* to = stages_ + stage * 2 * S::kTile;
    load_tile<S::kKeys, kDim>(k.at(s_.key_begin + first_key, kv_head), k.token_stride, call_.head_dim, to, on);
    load_tile<S::kKeys, kDim>(v.at(s_.key_begin + first_key, kv_head), v.token_stride, call_.head_dim, to + S::kTile,
                              on);
  }

  /// Takes the queries, which have arrived, into registers.
  __device__ void read_queries() {
    const int row = static_cast<int>(threadIdx.x) / kWarpSize * 16 * S::kRowTiles;
#pragma unroll
    for (int m = 0; m < S::kRowTiles; ++m) {
#pragma unroll
      for (int c = 0; c < kDim / 16; ++c) query_[m][c] = load_left<kDim>(queries_, row + m * 16, c * 16);
    }
  }

  /// One tile of keys and values, which have arrived.
  __device__ void step(int first_key, int stage, RowState<kDim> (&state)[S::kRowTiles]) {
    const T *keys = stages_ + stage * 2 * S::kTile, *values = keys + S::kTile;
    // Random numbers come before the scores: there are not registers enough for both.
    uint32_t kept[S::kRowTiles];
    if constexpr (kDropout) {
#pragma unroll
      for (int m = 0; m < S::kRowTiles; ++m) {
        kept[m] = kept_in_rows<kKeyTiles>(call_, s_, head_, first_query_ + m * 16, first_key);
        asm volatile("" : "+r"(kept[m]));  // and here: else the compiler mixes them with the products
      }
    }
    FragmentC scores[S::kRowTiles][kKeyTiles];
    multiply_keys(keys, scores);
    const ValidKeys<S::kKeys> valid(call_, s_, first_key);
    const float scale = positive_scale_log2(call_);
#pragma unroll
    for (int m = 0; m < S::kRowTiles; ++m) {
      apply_sign(call_, scores[m]);
      mask_scores(call_, s_, valid, first_query_ + m * 16, first_key, scores[m]);
      softmax_step<kDim>(scale, scores[m], state[m]);
      if constexpr (kDropout) drop(kept[m], scores[m]);
    }
    multiply_values(values, scores, state);
  }

  __device__ int first_query() const { return first_query_; }
  /// This warp's rows of the query tile.
  __device__ T* own_rows(int m) const {
    return queries_ + (threadIdx.x / kWarpSize * S::kRowTiles + m) * 16 * kRowStride<kDim>;
  }

 private:
  __device__ void multiply_keys(const T* keys, FragmentC (&scores)[S::kRowTiles][kKeyTiles]) const {
#pragma unroll
    for (int m = 0; m < S::kRowTiles; ++m) set_zero(scores[m]);
#pragma unroll
    for (int c = 0; c < kDim / 16; ++c) {
#pragma unroll
      for (int n = 0; n < kKeyTiles; n += 2) {
        const RightPair right = load_right_transposed<kDim>(keys, n * 8, c * 16);
#pragma unroll
        for (int m = 0; m < S::kRowTiles; ++m) {
          mma<T>(scores[m][n], query_[m][c], right.b[0]);
          mma<T>(scores[m][n + 1], query_[m][c], right.b[1]);
        }
      }
    }
  }

  __device__ void multiply_values(const T* values, const FragmentC (&p)[S::kRowTiles][kKeyTiles],
                                  RowState<kDim> (&state)[S::kRowTiles]) const {
#pragma unroll
    for (int k = 0; k < kKeyTiles; k += 2) {
      FragmentA left[S::kRowTiles];
#pragma unroll
      for (int m = 0; m < S::kRowTiles; ++m) left[m] = to_left<T>(p[m][k], p[m][k + 1]);
#pragma unroll
      for (int n = 0; n < kDim / 8; n += 2) {
        const RightPair right = load_right<kDim>(values, k * 8, n * 8);
#pragma unroll
        for (int m = 0; m < S::kRowTiles; ++m) {
          mma<T>(state[m].out[n], left[m], right.b[0]);
          mma<T>(state[m].out[n + 1], left[m], right.b[1]);
        }
      }
    }
  }

  __device__ static void drop(uint32_t kept, FragmentC (&p)[kKeyTiles]) {
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (!is_kept<kKeyTiles>(kept, n, i)) p[n].r[i] = 0;
    }
  }

  const Call& call_;
  const Sequence& s_;
  int head_, first_query_;
  T *queries_, *stages_;
  FragmentA query_[S::kRowTiles][kDim / 16];
};

template <class T, int kDim, bool kDropout>
__global__ void __launch_bounds__(kThreads, 2)
    flash_forward_kernel(TERN_GRID_CONSTANT(Call) call, Rows<const T> q, Rows<const T> k, Rows<const T> v, Rows<T> out,
                         LogSumExp<float> log_sum_exp, int tiles) {
  using S = Shape<kDim>;
  TERN_DYNAMIC_SHARED(T, shared);
  const Task task(call.heads, tiles);
  if (task.sequence == call.sequences) {
    const int64_t used = call.query_offsets[call.sequences];
    clear_behind(out, used, task, tiles, call.head_dim);
    for (int64_t token = used + task.tile + static_cast<int64_t>(threadIdx.x) * tiles; token < out.tokens;
         token += static_cast<int64_t>(kThreads) * tiles)
      log_sum_exp.at(token, task.head) = -kInfinity;
    return;
  }
  const Sequence s(call, task.sequence);
  const int block_query = task.tile * S::kQueries;
  if (block_query >= s.queries) return;
  Forward<T, kDim, kDropout> forward(call, s, task.head, block_query, shared);
  RowState<kDim> state[S::kRowTiles];
#pragma unroll
  for (int m = 0; m < S::kRowTiles; ++m) set_zero(state[m].out);
  const Range range = s.keys_of(call, block_query, min(block_query + S::kQueries, s.queries) - 1);
  const int begin = range.begin / S::kKeys * S::kKeys;
  if (begin < range.end) {
    forward.load_queries(q, block_query);
    forward.load_keys(k, v, begin, 0);
    cp_async_commit();
    cp_async_wait<0>();
    block_barrier();
    forward.read_queries();
  }
  int stage = 0;
  for (int key = begin; key < range.end; key += S::kKeys, stage ^= 1) {
    if (key + S::kKeys < range.end) forward.load_keys(k, v, key + S::kKeys, stage ^ 1);
    cp_async_commit();
    forward.step(key, stage, state);
    cp_async_wait<0>();
    block_barrier();  // the next tile is there for all, and all are done with this one
  }
#pragma unroll
  for (int m = 0; m < S::kRowTiles; ++m) {
    const int query = forward.first_query() + m * 16, lane = threadIdx.x % kWarpSize;
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = quad_sum(state[m].total[half]);
      factor[half] = total == 0 ? 0.0f : static_cast<float>(call.keep_scale) / total;
      const int row = query + lane / 4 + half * 8;
      if (lane % 4 == 0 && row < s.queries) {
        const float top = state[m].maximum[half] * positive_scale_log2(call);
        log_sum_exp.at(s.query_begin + row, task.head) = total == 0 ? -kInfinity : kLn2 * (top + log2f(total));
      }
    }
    store_rows<kDim>(state[m].out, factor, forward.own_rows(m), out.at(s.query_begin + query, task.head),
                     out.token_stride, s.queries - query, call.head_dim);
  }
}

}  // namespace
}  // namespace attention

namespace {
std::atomic<const AttentionAlternative*> the_alternative = nullptr;
}  // namespace

void set_attention_alternative(const AttentionAlternative* alternative) {
  the_alternative.store(alternative, std::memory_order_release);
}
const AttentionAlternative* attention_alternative() { return the_alternative.load(std::memory_order_acquire); }

int64_t attention_forward_workspace(Stream stream, const AttentionParams& params, DType dtype) {
  const AttentionAlternative* other = attention_alternative();
  return other ? other->forward_workspace(stream, params, dtype) : 0;
}

void attention_forward(Stream stream, const AttentionParams& params, ConstView q, ConstView k, ConstView v, View out,
                       View log_sum_exp, void* workspace) {
  const AttentionAlternative* other = attention_alternative();
  if (other && other->forward(stream, params, q, k, v, out, log_sum_exp, workspace)) return;
  own_attention_forward(stream, params, q, k, v, out, log_sum_exp);
}

void own_attention_forward(Stream stream, const AttentionParams& params, ConstView q, ConstView k, ConstView v,
                           View out, View log_sum_exp) {
  using namespace attention;
  const Call call(params);
  if (call.heads == 0) return;
  const bool aligned = has_aligned_rows(q) && has_aligned_rows(k) && has_aligned_rows(v) && has_aligned_rows(out);
  if (!aligned || !takes_tensor_cores(call, q.dtype)) return block_forward(stream, call, q, k, v, out, log_sum_exp);
  dispatch_tensor_cores(call, q.dtype, [&]<class T, int kDim, bool kDropout>() {
    using S = Shape<kDim>;
    const int tiles = static_cast<int>(tile_count(call.max_queries, S::kQueries));
    launch(flash_forward_kernel<T, kDim, kDropout>, task_grid(call, call.heads, tiles), dim3(kThreads),
           S::kElements * sizeof(T), stream, call, Rows<const T>(q), Rows<const T>(k), Rows<const T>(v), Rows<T>(out),
           LogSumExp<float>(log_sum_exp), tiles);
  });
}

}  // namespace tern::kernels::cuda
