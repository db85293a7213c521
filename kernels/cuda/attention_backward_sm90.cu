// Flash attention, backward, for sm_90a: the passes of attention_backward.cu with wgmma. A warpgroup's own rows stay in
// shared memory, where wgmma reads them; the softmax of one product runs while the tensor cores are at the next.

#include "tern/kernels/cuda/attention_gradient.h"
#include "tern/kernels/cuda/attention_sm90.h"

namespace tern::kernels::cuda::attention {
namespace {

/// A block of either pass holds 128 rows of its own, 64 a warpgroup, and goes through tiles of kOther rows, two stages.
template <int kDim>
struct Shape {
  static constexpr int kWarpgroups = 2, kThreads = kWarpgroups * kWarpgroupSize;
  static constexpr int kOwn = kWarpgroups * 64;
  static constexpr int kOther = kDim <= 64 ? 64 : 32;
  using OwnTile = SwizzledRows<kDim, kOwn>;
  using OtherTile = SwizzledRows<kDim, kOther>;
  static constexpr int kElements = 2 * OwnTile::kElements + 4 * OtherTile::kElements;
};

// ---- dq

template <class T, int kDim, bool kDropout>
class QueryPass {
 public:
  using S = Shape<kDim>;
  using OwnTile = typename S::OwnTile;
  using OtherTile = typename S::OtherTile;
  static constexpr int kTiles = S::kOther / 8;

  __device__ QueryPass(const Call& call, const Inputs<T>& x, const Sequence& s, int head, int block_query, T* shared)
      : call_(call),
        x_(x),
        s_(s),
        head_(head),
        block_query_(block_query),
        group_row_(warpgroup_index() * 64),
        rows_(x, s, head, block_query + warp_row()),
        queries_(shared),
        dout_(shared + OwnTile::kElements),
        stages_(shared + 2 * OwnTile::kElements) {
    set_zero(dq_);
    const int first = block_query + group_row_;
    if (first < s.queries) seen_ = s.keys_of(call, first, min(first + 64, s.queries) - 1);
  }

  __device__ void load_own() {
    const auto on = [&](int row) { return block_query_ + row < s_.queries; };
    const int64_t token = s_.query_begin + block_query_;
    load_tile<OwnTile, S::kOwn, S::kThreads>(x_.q.at(token, head_), x_.q.token_stride, call_.head_dim, queries_, on);
    load_tile<OwnTile, S::kOwn, S::kThreads>(x_.dout.at(token, head_), x_.dout.token_stride, call_.head_dim, dout_, on);
  }
  __device__ void load_keys(int first_key, int stage) {
    const auto on = [&](int row) { return s_.is_valid(call_, first_key + row); };
    const int64_t token = s_.key_begin + first_key, kv_head = head_ / call_.group;
    T *keys = stages_ + stage * 2 * OtherTile::kElements, *values = keys + OtherTile::kElements;
    load_tile<OtherTile, S::kOther, S::kThreads>(x_.k.at(token, kv_head), x_.k.token_stride, call_.head_dim, keys, on);
    load_tile<OtherTile, S::kOther, S::kThreads>(x_.v.at(token, kv_head), x_.v.token_stride, call_.head_dim, values,
                                                 on);
  }

  /// From rows of dout that have arrived.
  __device__ void read_delta() { rows_.template read_delta<OwnTile>(call_, x_, s_, head_, dout_, warp_row()); }

  /// One tile of keys and values, which have arrived. A warpgroup none of whose queries sees them has nothing to do.
  __device__ void step(int first_key, int stage, bool only_tile) {
    if (first_key >= seen_.end || first_key + S::kOther <= seen_.begin) return;
    const T *keys = stages_ + stage * 2 * OtherTile::kElements, *values = keys + OtherTile::kElements;
    FragmentC p[kTiles], ds[kTiles];
    start_rows_product<OwnTile, OtherTile>(queries_, group_row_, keys, p);
    [[maybe_unused]] uint32_t kept = 0;
    if constexpr (kDropout) kept = kept_in_rows<kTiles>(call_, s_, head_, rows_.first, first_key);
    wgmma_wait<0>(p);
    apply_sign(call_, p);
    mask_scores(call_, s_, ValidKeys<S::kOther>(call_, s_, first_key), rows_.first, first_key, p);
    start_rows_product<OwnTile, OtherTile>(dout_, group_row_, values, ds);  // no sooner: too many registers
    rows_.probabilities(call_, p);
    wgmma_wait<0>(ds);
    rows_.template score_gradients<kDropout>(call_, kept, p, only_tile, ds);
    FragmentA weights[kTiles / 2];
    to_left_operands<T>(ds, weights);
    start_weighted_sum<OtherTile>(weights, keys, dq_);
    wgmma_wait<0>(dq_);
  }

  /// Nobody uses the query tile any more.
  __device__ void store(const Rows<T>& dq) {
    rows_.write_delta(call_, x_, s_, head_);
    const auto scale = static_cast<float>(call_.scale);
    store_rows<OwnTile>(dq_, {scale, scale}, queries_, warp_row(), dq.at(s_.query_begin + rows_.first, head_),
                        dq.token_stride, s_.queries - rows_.first, call_.head_dim);
  }

 private:
  const Call& call_;
  const Inputs<T>& x_;
  const Sequence& s_;
  int head_, block_query_, group_row_;
  QueryRows<T> rows_;
  Range seen_{0, 0};  // by the warpgroup's queries
  T *queries_, *dout_, *stages_;
  FragmentC dq_[kDim / 8];
};

template <class T, int kDim, bool kDropout>
__global__ void __launch_bounds__(Shape<kDim>::kThreads, kDim <= 64 ? 2 : 1)
    flash_dq_sm90_kernel(TERN_GRID_CONSTANT(Call) call, TERN_GRID_CONSTANT(Inputs<T>) x, Rows<T> dq, int tiles) {
#if defined(TERN_SIMT) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = Shape<kDim>;
  TERN_ALIGNED_DYNAMIC_SHARED(T, shared, S::OwnTile::kAlignment);
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
  }
  int stage = 0;
  for (int key = begin; key < range.end; key += S::kOther, stage ^= 1) {
    cp_async_wait<0>();
    async_proxy_fence();
    block_barrier();  // this tile is there for all, and all are done with the one before
    if (key + S::kOther < range.end) pass.load_keys(key + S::kOther, stage ^ 1);
    cp_async_commit();
    if (key == begin && !only_tile) pass.read_delta();
    pass.step(key, stage, only_tile);
  }
  block_barrier();  // all are done with the queries
  pass.store(dq);
#endif
}

// ---- dk and dv

template <class T, int kDim, bool kDropout>
class KeyPass {
 public:
  using S = Shape<kDim>;
  using OwnTile = typename S::OwnTile;
  using OtherTile = typename S::OtherTile;
  static constexpr int kTiles = S::kOther / 8;
  using Columns = QueryColumns<S::kOther>;

  __device__ KeyPass(const Call& call, const Inputs<T>& x, const Sequence& s, int kv_head, int block_key, T* shared)
      : call_(call),
        x_(x),
        s_(s),
        kv_head_(kv_head),
        block_key_(block_key),
        group_row_(warpgroup_index() * 64),
        rows_(call, s, block_key + warp_row()),
        keys_(shared),
        values_(shared + OwnTile::kElements),
        stages_(shared + 2 * OwnTile::kElements),
        columns_(reinterpret_cast<Columns*>(shared + S::kElements)) {
    set_zero(dk_);
    set_zero(dv_);
    const int first = block_key + group_row_;
    if (first < s.keys) seeing_ = s.queries_of(call, first, min(first + 64, s.keys) - 1);
  }

  __device__ void load_own() {
    const auto on = [&](int row) { return s_.is_valid(call_, block_key_ + row); };
    const int64_t token = s_.key_begin + block_key_;
    load_tile<OwnTile, S::kOwn, S::kThreads>(x_.k.at(token, kv_head_), x_.k.token_stride, call_.head_dim, keys_, on);
    load_tile<OwnTile, S::kOwn, S::kThreads>(x_.v.at(token, kv_head_), x_.v.token_stride, call_.head_dim, values_, on);
  }
  __device__ void load_queries(int head, int first_query, int stage) {
    const auto on = [&](int row) { return first_query + row < s_.queries; };
    const int64_t token = s_.query_begin + first_query;
    T *queries = stages_ + stage * 2 * OtherTile::kElements, *dout = queries + OtherTile::kElements;
    load_tile<OtherTile, S::kOther, S::kThreads>(x_.q.at(token, head), x_.q.token_stride, call_.head_dim, queries, on);
    load_tile<OtherTile, S::kOther, S::kThreads>(x_.dout.at(token, head), x_.dout.token_stride, call_.head_dim, dout,
                                                 on);
    columns_[stage].template load<kDropout, S::kThreads>(call_, x_, s_, head, first_query);
  }

  /// One tile of queries, which have arrived. A warpgroup none of whose keys they see has nothing to do.
  __device__ void step(int head, int first_query, int stage) {
    if (first_query >= seeing_.end || first_query + S::kOther <= seeing_.begin) return;
    const T *queries = stages_ + stage * 2 * OtherTile::kElements, *dout = queries + OtherTile::kElements;
    const Columns& columns = columns_[stage];
    FragmentC p[kTiles], ds[kTiles];
    start_rows_product<OwnTile, OtherTile>(keys_, group_row_, queries, p);
    start_rows_product<OwnTile, OtherTile>(values_, group_row_, dout, ds);
    [[maybe_unused]] uint32_t kept = 0;
    if constexpr (kDropout) kept = rows_.kept_in_columns(call_, head, columns);
    wgmma_wait<1>(p);
    apply_sign(call_, p);
    rows_.mask_scores(call_, s_, first_query, p);
    columns.probabilities(call_, p);
    FragmentA kept_p[kTiles / 2], weights[kTiles / 2];
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) kept_p[n / 2] = kept_left<kDropout, T>(p, n, kept);
    start_weighted_sum<OtherTile>(kept_p, dout, dv_);
    wgmma_wait<1>(ds);
    columns.template score_gradients<kDropout>(call_, kept, p, ds);
    to_left_operands<T>(ds, weights);
    start_weighted_sum<OtherTile>(weights, queries, dk_);
    wgmma_wait<0>(dk_, dv_);
  }

  /// Nobody uses the tiles of keys and values any more.
  __device__ void store(const Rows<T>& dk, const Rows<T>& dv) {
    const int64_t token = s_.key_begin + rows_.first;
    const int count = s_.keys - rows_.first, row = warp_row();
    const auto scale = static_cast<float>(call_.scale), keep_scale = static_cast<float>(call_.keep_scale);
    store_rows<OwnTile>(dk_, {scale, scale}, keys_, row, dk.at(token, kv_head_), dk.token_stride, count,
                        call_.head_dim);
    store_rows<OwnTile>(dv_, {keep_scale, keep_scale}, values_, row, dv.at(token, kv_head_), dv.token_stride, count,
                        call_.head_dim);
  }

 private:
  const Call& call_;
  const Inputs<T>& x_;
  const Sequence& s_;
  int kv_head_, block_key_, group_row_;
  KeyRows rows_;
  Range seeing_{0, 0};  // the queries that see some of the warpgroup's keys
  T *keys_, *values_, *stages_;
  Columns* columns_;  // of the two stages, in shared memory behind the tiles
  FragmentC dk_[kDim / 8], dv_[kDim / 8];
};

template <class T, int kDim, bool kDropout>
__global__ void __launch_bounds__(Shape<kDim>::kThreads, 1)
    flash_dkv_sm90_kernel(TERN_GRID_CONSTANT(Call) call, TERN_GRID_CONSTANT(Inputs<T>) x, Rows<T> dk, Rows<T> dv,
                          int tiles) {
#if defined(TERN_SIMT) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = Shape<kDim>;
  TERN_ALIGNED_DYNAMIC_SHARED(T, shared, S::OwnTile::kAlignment);
  const Task task(call.kv_heads, tiles);
  if (task.sequence == call.sequences) {
    clear_behind(dk, call.key_offsets[call.sequences], task, tiles, call.head_dim);
    return clear_behind(dv, call.key_offsets[call.sequences], task, tiles, call.head_dim);
  }
  const Sequence s(call, task.sequence);
  const int block_key = task.tile * S::kOwn;
  if (block_key >= s.keys) return;
  KeyPass<T, kDim, kDropout> pass(call, x, s, task.head, block_key, shared);
  const Range range = s.queries_of(call, block_key, min(block_key + S::kOwn, s.keys) - 1);
  const int begin = range.begin / S::kOther * S::kOther;
  const int heads_end = begin < range.end ? (task.head + 1) * call.group : task.head * call.group;
  QueryTiles at{begin, range.end, S::kOther, task.head * call.group, begin};
  if (at.head < heads_end) {
    pass.load_own();
    pass.load_queries(at.head, at.query, 0);
    cp_async_commit();
  }
  for (int stage = 0; at.head < heads_end; stage ^= 1) {
    cp_async_wait<0>();
    async_proxy_fence();
    block_barrier();  // this tile is there for all, and all are done with the one before
    const int head = at.head, query = at.query;
    at.advance();
    if (at.head < heads_end) pass.load_queries(at.head, at.query, stage ^ 1);
    cp_async_commit();
    pass.step(head, query, stage);
  }
  block_barrier();  // all are done with the keys and values
  pass.store(dk, dv);
#endif
}

}  // namespace

void backward_sm90(Stream stream, const Call& call, const ConstView& q, const ConstView& k, const ConstView& v,
                   const ConstView& out, const ConstView& dout, const ConstView& log_sum_exp, const View& dq,
                   const View& dk, const View& dv, void* workspace) {
  dispatch_tensor_cores<64, 128>(call, q.dtype, [&]<class T, int kDim, bool kDropout>() {
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
    launch(flash_dq_sm90_kernel<T, kDim, kDropout>, task_grid(call, call.heads, query_tiles), dim3(S::kThreads),
           S::kElements * sizeof(T), stream, call, x, Rows<T>(dq), query_tiles);
    launch(flash_dkv_sm90_kernel<T, kDim, kDropout>, task_grid(call, call.kv_heads, key_tiles), dim3(S::kThreads),
           S::kElements * sizeof(T) + 2 * sizeof(QueryColumns<S::kOther>), stream, call, x, Rows<T>(dk), Rows<T>(dv),
           key_tiles);
  });
}

}  // namespace tern::kernels::cuda::attention
