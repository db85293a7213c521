// Flash attention, forward (Dao, arXiv:2307.08691): online softmax over tiles of keys on the tensor cores. A block
// takes a tile of queries of one head of one sequence; each warp its own rows, so warps meet only to hand over tiles.

#include "tern/kernels/attention.h"

#include <atomic>

#include "tern/kernels/cuda/attention_alternative.h"
#include "tern/kernels/cuda/attention_mma.h"
#include "tern/kernels/cuda/attention_sm90.h"
#include "tern/kernels/cuda/attention_softmax.h"

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
  using Tile = PaddedRows<kDim>;
  static constexpr int kQueryTile = Tile::at(kQueries, 0), kTile = Tile::at(kKeys, 0);
  /// Queries, then two stages of keys and values.
  static constexpr int kElements = kQueryTile + 4 * kTile;
};

template <class T, int kDim, bool kDropout>
class Forward {
 public:
  using S = Shape<kDim>;
  using Tile = typename S::Tile;
  static constexpr int kKeyTiles = S::kKeys / 8;

  __device__ Forward(const Call& call, const Sequence& s, int head, int first_query, T* shared)
      : call_(call),
        s_(s),
        head_(head),
        first_query_(first_query + static_cast<int>(threadIdx.x) / kWarpSize * 16 * S::kRowTiles),
        queries_(shared),
        stages_(shared + S::kQueryTile) {}

  /// Starts copying the block's queries.
  __device__ void load_queries(const Rows<const T>& q, int block_query) {
    const T* from = q.at(s_.query_begin + block_query, head_);
    load_tile<Tile, S::kQueries, kThreads>(from, q.token_stride, call_.head_dim, queries_,
                                           [&](int row) { return block_query + row < s_.queries; });
  }
  /// Starts copying a tile of keys and values.
  __device__ void load_keys(const Rows<const T>& k, const Rows<const T>& v, int first_key, int stage) {
    const int kv_head = head_ / call_.group;
    const auto on = [&](int row) { return s_.is_valid(call_, first_key + row); };
    T* to = stages_ + stage * 2 * S::kTile;
    load_tile<Tile, S::kKeys, kThreads>(k.at(s_.key_begin + first_key, kv_head), k.token_stride, call_.head_dim, to,
                                        on);
    load_tile<Tile, S::kKeys, kThreads>(v.at(s_.key_begin + first_key, kv_head), v.token_stride, call_.head_dim,
                                        to + S::kTile, on);
  }

  /// Takes the queries, which have arrived, into registers.
  __device__ void read_queries() {
    const int row = static_cast<int>(threadIdx.x) / kWarpSize * 16 * S::kRowTiles;
#pragma unroll
    for (int m = 0; m < S::kRowTiles; ++m) {
#pragma unroll
      for (int c = 0; c < kDim / 16; ++c) query_[m][c] = load_left<Tile>(queries_, row + m * 16, c * 16);
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
      if constexpr (kDropout) drop<kKeyTiles>(kept[m], scores[m]);
    }
    multiply_values(values, scores, state);
  }

  /// Writes a warp's m-th 16 rows; the query tile is used no more.
  __device__ void store(int m, const RowState<kDim>& state, const Rows<T>& out, const LogSumExp<float>& log_sum_exp) {
    const int row = (static_cast<int>(threadIdx.x) / kWarpSize * S::kRowTiles + m) * 16;
    store_result<Tile>(call_, s_, head_, first_query_ + m * 16, state, queries_, row, out, log_sum_exp);
  }

 private:
  __device__ void multiply_keys(const T* keys, FragmentC (&scores)[S::kRowTiles][kKeyTiles]) const {
#pragma unroll
    for (int m = 0; m < S::kRowTiles; ++m) set_zero(scores[m]);
#pragma unroll
    for (int c = 0; c < kDim / 16; ++c) {
#pragma unroll
      for (int n = 0; n < kKeyTiles; n += 2) {
        const RightPair right = load_right_transposed<Tile>(keys, n * 8, c * 16);
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
        const RightPair right = load_right<Tile>(values, k * 8, n * 8);
#pragma unroll
        for (int m = 0; m < S::kRowTiles; ++m) {
          mma<T>(state[m].out[n], left[m], right.b[0]);
          mma<T>(state[m].out[n + 1], left[m], right.b[1]);
        }
      }
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
  if (task.sequence == call.sequences) return clear_result(call, out, log_sum_exp, task, tiles);
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
  for (int m = 0; m < S::kRowTiles; ++m) forward.store(m, state[m], out, log_sum_exp);
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
  if (takes_wgmma(stream, call)) return forward_sm90(stream, call, q, k, v, out, log_sum_exp);
  dispatch_tensor_cores<32, 64, 96, 128>(call, q.dtype, [&]<class T, int kDim, bool kDropout>() {
    using S = Shape<kDim>;
    const int tiles = static_cast<int>(tile_count(call.max_queries, S::kQueries));
    launch(flash_forward_kernel<T, kDim, kDropout>, task_grid(call, call.heads, tiles), dim3(kThreads),
           S::kElements * sizeof(T), stream, call, Rows<const T>(q), Rows<const T>(k), Rows<const T>(v), Rows<T>(out),
           LogSumExp<float>(log_sum_exp), tiles);
  });
}

}  // namespace tern::kernels::cuda
