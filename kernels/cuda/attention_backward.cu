// Flash attention, backward (Dao, arXiv:2307.08691): scores are recomputed tile by tile from log_sum_exp.
//   P = exp(S - lse), dP = keep dO V^T, dS = P (dP - delta), dV = (keep P)^T dO, dK = dS^T Q, dQ = dS K.
// Two passes, so that each output has one writer and a fixed order of sums: a block of the first takes a tile of
// queries and goes through the keys for dq; a block of the second takes a tile of keys and goes through the queries of
// all heads of its group for dk and dv. The first also leaves delta for the second.

#include "tern/kernels/attention.h"

#include "tern/kernels/cuda/attention_alternative.h"
#include "tern/kernels/cuda/attention_gradient.h"
#include "tern/kernels/cuda/attention_mma.h"
#include "tern/kernels/cuda/attention_sm90.h"

namespace tern::kernels::cuda {
namespace attention {
namespace {

/// A block of either pass holds 64 rows of its own, 16 a warp, and goes through tiles of kOther rows, two stages.
template <int kDim>
struct Shape {
  using Tile = PaddedRows<kDim>;
  static constexpr int kOwn = kWarps * 16;
  static constexpr int kOther = kDim <= 64 ? 64 : 32;
  static constexpr int kOwnTile = Tile::at(kOwn, 0), kOtherTile = Tile::at(kOther, 0);
  static constexpr int kElements = 2 * kOwnTile + 4 * kOtherTile;
};

/// c += left rows row .. row + 15 times the transpose of all rows of `right`.
template <class Tile, class T, int kTiles>
__device__ void multiply_transposed(const T* left, int row, const T* right, FragmentC (&c)[kTiles]) {
#pragma unroll
  for (int k = 0; k < Tile::kDim / 16; ++k) {
    const FragmentA a = load_left<Tile>(left, row, k * 16);
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      const RightPair b = load_right_transposed<Tile>(right, n * 8, k * 16);
      mma<T>(c[n], a, b.b[0]);
      mma<T>(c[n + 1], a, b.b[1]);
    }
  }
}
/// c += weights times rows row .. row + 15 of `right`.
template <class Tile, class T>
__device__ void multiply(const FragmentA& weights, const T* right, int row, FragmentC (&c)[Tile::kDim / 8]) {
#pragma unroll
  for (int n = 0; n < Tile::kDim / 8; n += 2) {
    const RightPair b = load_right<Tile>(right, row, n * 8);
    mma<T>(c[n], weights, b.b[0]);
    mma<T>(c[n + 1], weights, b.b[1]);
  }
}

// ---- dq

template <class T, int kDim, bool kDropout>
class QueryPass {
 public:
  using S = Shape<kDim>;
  using Tile = typename S::Tile;
  static constexpr int kTiles = S::kOther / 8;

  __device__ QueryPass(const Call& call, const Inputs<T>& x, const Sequence& s, int head, int block_query, T* shared)
      : call_(call),
        x_(x),
        s_(s),
        head_(head),
        block_query_(block_query),
        row_(static_cast<int>(threadIdx.x) / kWarpSize * 16),
        rows_(x, s, head, block_query + row_),
        queries_(shared),
        dout_(shared + S::kOwnTile),
        stages_(shared + 2 * S::kOwnTile) {
    set_zero(dq_);
  }

  __device__ void load_own() {
    const auto on = [&](int row) { return block_query_ + row < s_.queries; };
    const int64_t token = s_.query_begin + block_query_;
    load_tile<Tile, S::kOwn, kThreads>(x_.q.at(token, head_), x_.q.token_stride, call_.head_dim, queries_, on);
    load_tile<Tile, S::kOwn, kThreads>(x_.dout.at(token, head_), x_.dout.token_stride, call_.head_dim, dout_, on);
  }
  __device__ void load_keys(int first_key, int stage) {
    const auto on = [&](int row) { return s_.is_valid(call_, first_key + row); };
    const int64_t token = s_.key_begin + first_key, kv_head = head_ / call_.group;
    T *keys = stages_ + stage * 2 * S::kOtherTile, *values = keys + S::kOtherTile;
    load_tile<Tile, S::kOther, kThreads>(x_.k.at(token, kv_head), x_.k.token_stride, call_.head_dim, keys, on);
    load_tile<Tile, S::kOther, kThreads>(x_.v.at(token, kv_head), x_.v.token_stride, call_.head_dim, values, on);
  }

  /// From rows of dout that have arrived.
  __device__ void read_delta() { rows_.template read_delta<Tile>(call_, x_, s_, head_, dout_, row_); }

  /// One tile of keys and values, which have arrived.
  __device__ void step(int first_key, int stage, bool only_tile) {
    const T *keys = stages_ + stage * 2 * S::kOtherTile, *values = keys + S::kOtherTile;
    // Random numbers come before the scores: there are not registers enough for both.
    [[maybe_unused]] uint32_t kept = 0;
    if constexpr (kDropout) kept = kept_in_rows<kTiles>(call_, s_, head_, rows_.first, first_key);
    FragmentC p[kTiles], ds[kTiles];
    set_zero(p);
    set_zero(ds);
    multiply_transposed<Tile>(queries_, row_, keys, p);
    apply_sign(call_, p);
    mask_scores(call_, s_, ValidKeys<S::kOther>(call_, s_, first_key), rows_.first, first_key, p);
    multiply_transposed<Tile>(dout_, row_, values, ds);
    rows_.probabilities(call_, p);
    rows_.template score_gradients<kDropout>(call_, kept, p, only_tile, ds);
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) multiply<Tile>(to_left<T>(ds[n], ds[n + 1]), keys, n * 8, dq_);
  }

  __device__ void store(const Rows<T>& dq) {
    rows_.write_delta(call_, x_, s_, head_);
    const auto scale = static_cast<float>(call_.scale);
    store_rows<Tile>(dq_, {scale, scale}, queries_, row_, dq.at(s_.query_begin + rows_.first, head_), dq.token_stride,
                     s_.queries - rows_.first, call_.head_dim);
  }

 private:
  const Call& call_;
  const Inputs<T>& x_;
  const Sequence& s_;
  int head_, block_query_, row_;
  QueryRows<T> rows_;
  T *queries_, *dout_, *stages_;
  FragmentC dq_[kDim / 8];
};

template <class T, int kDim, bool kDropout>
__global__ void __launch_bounds__(kThreads, 2)
    flash_dq_kernel(TERN_GRID_CONSTANT(Call) call, TERN_GRID_CONSTANT(Inputs<T>) x, Rows<T> dq, int tiles) {
  using S = Shape<kDim>;
  TERN_DYNAMIC_SHARED(T, shared);
  const Task task(call.heads, tiles);
  if (task.sequence == call.sequences)
    return clear_behind(dq, call.query_offsets[call.sequences], task, tiles, call.head_dim);
  const Sequence s(call, task.sequence);
  const int block_query = task.tile * S::kOwn;
  if (block_query >= s.queries) return;
  QueryPass<T, kDim, kDropout> pass(call, x, s, task.head, block_query, shared);
  const Range range = s.keys_of(call, block_query, min(block_query + S::kOwn, s.queries) - 1);
  const int begin = range.begin / S::kOther * S::kOther;
  const bool only_tile = begin + S::kOther >= range.end;
  if (begin < range.end) {
    pass.load_own();
    pass.load_keys(begin, 0);
    cp_async_commit();
    cp_async_wait<0>();
    block_barrier();
    if (!only_tile) pass.read_delta();
  }
  int stage = 0;
  for (int key = begin; key < range.end; key += S::kOther, stage ^= 1) {
    if (key + S::kOther < range.end) pass.load_keys(key + S::kOther, stage ^ 1);
    cp_async_commit();
    pass.step(key, stage, only_tile);
    cp_async_wait<0>();
    block_barrier();  // the next tile is there for all, and all are done with this one
  }
  pass.store(dq);
}

// ---- dk and dv

template <class T, int kDim, bool kDropout>
class KeyPass {
 public:
  using S = Shape<kDim>;
  using Tile = typename S::Tile;
  static constexpr int kTiles = S::kOther / 8;
  using Columns = QueryColumns<S::kOther>;

  __device__ KeyPass(const Call& call, const Inputs<T>& x, const Sequence& s, int kv_head, int first_key, T* shared,
                     Columns* columns)
      : call_(call),
        x_(x),
        s_(s),
        kv_head_(kv_head),
        first_key_(first_key),
        row_(static_cast<int>(threadIdx.x) / kWarpSize * 16),
        rows_(call, s, first_key + row_),
        keys_(shared),
        values_(shared + S::kOwnTile),
        stages_(shared + 2 * S::kOwnTile),
        columns_(columns) {
    set_zero(dk_);
    set_zero(dv_);
  }

  __device__ void load_own() {
    const auto on = [&](int row) { return s_.is_valid(call_, first_key_ + row); };
    const int64_t token = s_.key_begin + first_key_;
    load_tile<Tile, S::kOwn, kThreads>(x_.k.at(token, kv_head_), x_.k.token_stride, call_.head_dim, keys_, on);
    load_tile<Tile, S::kOwn, kThreads>(x_.v.at(token, kv_head_), x_.v.token_stride, call_.head_dim, values_, on);
  }
  __device__ void load_queries(int head, int first_query, int stage) {
    const auto on = [&](int row) { return first_query + row < s_.queries; };
    const int64_t token = s_.query_begin + first_query;
    T *queries = stages_ + stage * 2 * S::kOtherTile, *dout = queries + S::kOtherTile;
    load_tile<Tile, S::kOther, kThreads>(x_.q.at(token, head), x_.q.token_stride, call_.head_dim, queries, on);
    load_tile<Tile, S::kOther, kThreads>(x_.dout.at(token, head), x_.dout.token_stride, call_.head_dim, dout, on);
    columns_[stage].template load<kDropout, kThreads>(call_, x_, s_, head, first_query);
  }

  /// One tile of queries, which have arrived.
  __device__ void step(int head, int first_query, int stage) {
    const T *queries = stages_ + stage * 2 * S::kOtherTile, *dout = queries + S::kOtherTile;
    const Columns& columns = columns_[stage];
    [[maybe_unused]] uint32_t kept = 0;
    if constexpr (kDropout) kept = rows_.kept_in_columns(call_, head, columns);  // before the scores, as above
    FragmentC p[kTiles], ds[kTiles];
    set_zero(p);
    set_zero(ds);
    multiply_transposed<Tile>(keys_, row_, queries, p);
    multiply_transposed<Tile>(values_, row_, dout, ds);
    apply_sign(call_, p);
    rows_.mask_scores(call_, s_, first_query, p);
    columns.probabilities(call_, p);
    columns.template score_gradients<kDropout>(call_, kept, p, ds);
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) multiply<Tile>(kept_left<kDropout, T>(p, n, kept), dout, n * 8, dv_);
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) multiply<Tile>(to_left<T>(ds[n], ds[n + 1]), queries, n * 8, dk_);
  }

  __device__ void store(const Rows<T>& dk, const Rows<T>& dv) {
    const int64_t token = s_.key_begin + rows_.first;
    const int count = s_.keys - rows_.first;
    const auto scale = static_cast<float>(call_.scale), keep_scale = static_cast<float>(call_.keep_scale);
    store_rows<Tile>(dk_, {scale, scale}, keys_, row_, dk.at(token, kv_head_), dk.token_stride, count, call_.head_dim);
    store_rows<Tile>(dv_, {keep_scale, keep_scale}, values_, row_, dv.at(token, kv_head_), dv.token_stride, count,
                     call_.head_dim);
  }

 private:
  const Call& call_;
  const Inputs<T>& x_;
  const Sequence& s_;
  int kv_head_, first_key_, row_;
  KeyRows rows_;
  T *keys_, *values_, *stages_;
  Columns* columns_;
  FragmentC dk_[kDim / 8], dv_[kDim / 8];
};

template <class T, int kDim, bool kDropout>
__global__ void __launch_bounds__(kThreads, 2)
    flash_dkv_kernel(TERN_GRID_CONSTANT(Call) call, TERN_GRID_CONSTANT(Inputs<T>) x, Rows<T> dk, Rows<T> dv,
                     int tiles) {
  using S = Shape<kDim>;
  TERN_DYNAMIC_SHARED(T, shared);
  TERN_SHARED(QueryColumns<S::kOther>, columns, [2]);
  const Task task(call.kv_heads, tiles);
  if (task.sequence == call.sequences) {
    clear_behind(dk, call.key_offsets[call.sequences], task, tiles, call.head_dim);
    return clear_behind(dv, call.key_offsets[call.sequences], task, tiles, call.head_dim);
  }
  const Sequence s(call, task.sequence);
  const int first_key = task.tile * S::kOwn;
  if (first_key >= s.keys) return;
  KeyPass<T, kDim, kDropout> pass(call, x, s, task.head, first_key, shared, columns);
  const Range range = s.queries_of(call, first_key, min(first_key + S::kOwn, s.keys) - 1);
  const int begin = range.begin / S::kOther * S::kOther;
  const int heads_end = begin < range.end ? (task.head + 1) * call.group : task.head * call.group;
  QueryTiles at{begin, range.end, S::kOther, task.head * call.group, begin};
  if (at.head < heads_end) {
    pass.load_own();
    pass.load_queries(at.head, at.query, 0);
    cp_async_commit();
    cp_async_wait<0>();
    block_barrier();
  }
  for (int stage = 0; at.head < heads_end; stage ^= 1) {
    const int head = at.head, query = at.query;
    at.advance();
    if (at.head < heads_end) pass.load_queries(at.head, at.query, stage ^ 1);
    cp_async_commit();
    pass.step(head, query, stage);
    cp_async_wait<0>();
    block_barrier();  // the next tile is there for all, and all are done with this one
  }
  pass.store(dk, dv);
}

}  // namespace
}  // namespace attention

int64_t attention_backward_workspace(Stream stream, const AttentionParams& params, DType dtype) {
  const int64_t bytes = dtype == DType::kFloat64 ? 8 : 4;
  const AttentionAlternative* other = attention_alternative();
  return std::max(params.heads * params.sequences * params.max_query_length * bytes,
                  other ? other->backward_workspace(stream, params, dtype) : 0);
}

void attention_backward(Stream stream, const AttentionParams& params, ConstView q, ConstView k, ConstView v,
                        ConstView out, ConstView dout, ConstView log_sum_exp, View dq, View dk, View dv, View dbias,
                        void* workspace) {
  const AttentionAlternative* other = attention_alternative();
  if (other && other->backward(stream, params, q, k, v, out, dout, log_sum_exp, dq, dk, dv, workspace)) return;
  own_attention_backward(stream, params, q, k, v, out, dout, log_sum_exp, dq, dk, dv, dbias, workspace);
}

void own_attention_backward(Stream stream, const AttentionParams& params, ConstView q, ConstView k, ConstView v,
                            ConstView out, ConstView dout, ConstView log_sum_exp, View dq, View dk, View dv, View dbias,
                            void* workspace) {
  using namespace attention;
  const Call call(params);
  if (call.heads == 0) return;
  bool aligned = true;
  for (const ConstView& view : {q, k, v, out, dout, ConstView(dq), ConstView(dk), ConstView(dv)})
    aligned = aligned && has_aligned_rows(view);
  if (!aligned || !takes_tensor_cores(call, q.dtype))
    return block_backward(stream, call, q, k, v, out, dout, log_sum_exp, dq, dk, dv, dbias, workspace);
  if (takes_wgmma(stream, call))
    return backward_sm90(stream, call, q, k, v, out, dout, log_sum_exp, dq, dk, dv, workspace);
  dispatch_tensor_cores<32, 64, 96, 128>(call, q.dtype, [&]<class T, int kDim, bool kDropout>() {
    using S = Shape<kDim>;
    const Inputs<T> x{Rows<const T>(q),
                      Rows<const T>(k),
                      Rows<const T>(v),
                      Rows<const T>(out),
                      Rows<const T>(dout),
                      LogSumExp<const float>(log_sum_exp),
                      {static_cast<float*>(workspace)}};
    const int query_tiles = static_cast<int>(tile_count(call.max_queries, S::kOwn));
    const int key_tiles = static_cast<int>(tile_count(call.max_keys, S::kOwn));
    launch(flash_dq_kernel<T, kDim, kDropout>, task_grid(call, call.heads, query_tiles), dim3(kThreads),
           S::kElements * sizeof(T), stream, call, x, Rows<T>(dq), query_tiles);
    launch(flash_dkv_kernel<T, kDim, kDropout>, task_grid(call, call.kv_heads, key_tiles), dim3(kThreads),
           S::kElements * sizeof(T), stream, call, x, Rows<T>(dk), Rows<T>(dv), key_tiles);
  });
}

}  // namespace tern::kernels::cuda
