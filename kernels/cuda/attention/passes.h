#pragma once
// The two passes of flash attention's backward kernels (described in attention/backward.cu): a block's copies and its
// loop over tiles. The kernels differ in the products, hence in step() and in the layout of tiles.
//
// S is the shape of a block: FixedTile and StreamedTile are the tile types of the rows that it holds and of those that
// it iterates over; kThreads; kElements (of two own tiles and two stages of two others); show_copies() makes a thread's
// copies visible to the products.

#include "tern/kernels/cuda/attention/gradient.h"

namespace tern::kernels::cuda::attention {

// ---- dq

template <class T, class S>
class QueryPassTiles {
 public:
  using FixedTile = typename S::FixedTile;
  using StreamedTile = typename S::StreamedTile;

  __device__ QueryPassTiles(const Call& call, const Inputs<T>& x, const Sequence& s, int head, int block_query,
                            T* shared)
      : call_(call),
        x_(x),
        s_(s),
        head_(head),
        block_query_(block_query),
        rows_(x, s, head, block_query + warp_row()),
        queries_(shared),
        dout_(shared + FixedTile::kElements),
        stages_(shared + 2 * FixedTile::kElements) {
    set_zero(dq_);
  }

  __device__ void load_own() {
    load_tiles<FixedTile, S::kThreads>(call_, x_.q, x_.dout, s_.query_begin + block_query_, head_, queries_,
                                       [&](int row) { return block_query_ + row < s_.queries; });
  }
  __device__ void load_keys(int first_key, int stage) {
    load_tiles<StreamedTile, S::kThreads>(call_, x_.k, x_.v, s_.key_begin + first_key, head_ / call_.group,
                                          stage_of(stage),
                                          [&](int row) { return s_.is_valid(call_, first_key + row); });
  }
  /// Requires that the copies of dout's rows have completed.
  __device__ void read_delta() { rows_.template read_delta<FixedTile>(call_, x_, s_, head_, dout_, warp_row()); }

  /// Requires that no thread uses the query tile any more.
  __device__ void store(const Rows<T>& dq) {
    rows_.write_delta(call_, x_, s_, head_);
    const auto scale = static_cast<float>(call_.scale);
    store_rows<FixedTile>(dq_, {scale, scale}, queries_, warp_row(), dq.at(s_.query_begin + rows_.first, head_),
                          dq.token_stride, s_.queries - rows_.first, call_.head_dim);
  }

 protected:
  /// The tile of keys of a stage; the tile of values follows it.
  __device__ T* stage_of(int stage) const { return stages_ + stage * 2 * StreamedTile::kElements; }

  const Call& call_;
  const Inputs<T>& x_;
  const Sequence& s_;
  int head_, block_query_;
  QueryRows<T> rows_;
  T *queries_, *dout_, *stages_;
  FragmentC dq_[FixedTile::kDim / 8];
};

/// A block of the pass for dq. Pass derives from QueryPassTiles; step(key, stage, only_tile) is called once the copies
/// of a tile of keys and values have completed.
template <class Pass, class S, class T>
__device__ void run_query_pass(const Call& call, const Inputs<T>& x, const Rows<T>& dq, int tiles, T* shared) {
  constexpr int kOwn = S::FixedTile::kRows, kOther = S::StreamedTile::kRows;
  const Task task(call.heads, tiles);
  if (task.sequence == call.sequences)
    return clear_unused(dq, call.query_offsets[call.sequences], task, tiles, call.head_dim);
  const Sequence s(call, task.sequence);
  const int block_query = task.tile * kOwn;
  if (block_query >= s.queries) return;
  Pass pass(call, x, s, task.head, block_query, shared);
  const Range range = s.keys_of(call, block_query, min(block_query + kOwn, s.queries) - 1);
  const int begin = range.begin / kOther * kOther;
  const bool only_tile = begin + kOther >= range.end;
  if (begin < range.end) {
    pass.load_own();
    pass.load_keys(begin, 0);
    cp_async_commit();
  }
  int stage = 0;
  for (int key = begin; key < range.end; key += kOther, stage ^= 1) {
    cp_async_wait<0>();
    S::show_copies();
    block_barrier();  // this tile is complete for all threads, and none uses the previous one
    if (key + kOther < range.end) pass.load_keys(key + kOther, stage ^ 1);
    cp_async_commit();
    if (key == begin && !only_tile) pass.read_delta();
    pass.step(key, stage, only_tile);
  }
  block_barrier();  // no thread uses the queries any more
  pass.store(dq);
}

// ---- dk and dv

template <class T, class S>
class KeyPassTiles {
 public:
  using FixedTile = typename S::FixedTile;
  using StreamedTile = typename S::StreamedTile;
  using Columns = QueryColumns<StreamedTile::kRows>;
  static constexpr size_t kBytes = S::kElements * sizeof(T) + 2 * sizeof(Columns);  // of shared memory

  __device__ KeyPassTiles(const Call& call, const Inputs<T>& x, const Sequence& s, int kv_head, int block_key,
                          T* shared)
      : call_(call),
        x_(x),
        s_(s),
        kv_head_(kv_head),
        block_key_(block_key),
        rows_(call, s, block_key + warp_row()),
        keys_(shared),
        values_(shared + FixedTile::kElements),
        stages_(shared + 2 * FixedTile::kElements),
        columns_(reinterpret_cast<Columns*>(shared + S::kElements)) {
    set_zero(dk_);
    set_zero(dv_);
  }

  __device__ void load_own() {
    load_tiles<FixedTile, S::kThreads>(call_, x_.k, x_.v, s_.key_begin + block_key_, kv_head_, keys_,
                                       [&](int row) { return s_.is_valid(call_, block_key_ + row); });
  }
  template <bool kDropout>
  __device__ void load_queries(int head, int first_query, int stage) {
    load_tiles<StreamedTile, S::kThreads>(call_, x_.q, x_.dout, s_.query_begin + first_query, head, stage_of(stage),
                                          [&](int row) { return first_query + row < s_.queries; });
    columns_[stage].template load<kDropout, S::kThreads>(call_, x_, s_, head, first_query);
  }

  /// Requires that no thread uses the tiles of keys and values any more.
  __device__ void store(const Rows<T>& dk, const Rows<T>& dv) {
    const int64_t token = s_.key_begin + rows_.first;
    const int count = s_.keys - rows_.first;
    const auto scale = static_cast<float>(call_.scale), keep_scale = static_cast<float>(call_.keep_scale);
    store_rows<FixedTile>(dk_, {scale, scale}, keys_, warp_row(), dk.at(token, kv_head_), dk.token_stride, count,
                          call_.head_dim);
    store_rows<FixedTile>(dv_, {keep_scale, keep_scale}, values_, warp_row(), dv.at(token, kv_head_), dv.token_stride,
                          count, call_.head_dim);
  }

 protected:
  /// The tile of queries of a stage; the tile of dout follows it.
  __device__ T* stage_of(int stage) const { return stages_ + stage * 2 * StreamedTile::kElements; }

  const Call& call_;
  const Inputs<T>& x_;
  const Sequence& s_;
  int kv_head_, block_key_;
  KeyRows rows_;
  T *keys_, *values_, *stages_;
  Columns* columns_;  // of the two stages, in shared memory after the tiles
  FragmentC dk_[FixedTile::kDim / 8], dv_[FixedTile::kDim / 8];
};

/// Position in the pass for dk and dv: the heads of a group in turn, and for each the query tiles of a range.
struct QueryTiles {
  int begin, end, tile;  // the range, and the size of a tile
  int head, query;       // current position

  __device__ void advance() {
    query += tile;
    if (query < end) return;
    query = begin;
    ++head;
  }
};

/// A block of the pass for dk and dv. Pass derives from KeyPassTiles; step(head, query, stage) is called once the
/// copies of a tile of queries have completed.
template <class Pass, class S, bool kDropout, class T>
__device__ void run_key_pass(const Call& call, const Inputs<T>& x, const Rows<T>& dk, const Rows<T>& dv, int tiles,
                             T* shared) {
  constexpr int kOwn = S::FixedTile::kRows, kOther = S::StreamedTile::kRows;
  const Task task(call.kv_heads, tiles);
  if (task.sequence == call.sequences) {
    clear_unused(dk, call.key_offsets[call.sequences], task, tiles, call.head_dim);
    return clear_unused(dv, call.key_offsets[call.sequences], task, tiles, call.head_dim);
  }
  const Sequence s(call, task.sequence);
  const int block_key = task.tile * kOwn;
  if (block_key >= s.keys) return;
  Pass pass(call, x, s, task.head, block_key, shared);
  const Range range = s.queries_of(call, block_key, min(block_key + kOwn, s.keys) - 1);
  const int begin = range.begin / kOther * kOther;
  const int heads_end = begin < range.end ? (task.head + 1) * call.group : task.head * call.group;
  QueryTiles at{begin, range.end, kOther, task.head * call.group, begin};
  if (at.head < heads_end) {
    pass.load_own();
    pass.template load_queries<kDropout>(at.head, at.query, 0);
    cp_async_commit();
  }
  for (int stage = 0; at.head < heads_end; stage ^= 1) {
    cp_async_wait<0>();
    S::show_copies();
    block_barrier();  // this tile is complete for all threads, and none uses the previous one
    const int head = at.head, query = at.query;
    at.advance();
    if (at.head < heads_end) pass.template load_queries<kDropout>(at.head, at.query, stage ^ 1);
    cp_async_commit();
    pass.step(head, query, stage);
  }
  block_barrier();  // no thread uses the keys and values any more
  pass.store(dk, dv);
}

// ---- the launches

/// Runs both passes; query_kernel stores delta for key_kernel in the workspace.
template <class S, class T, class QueryKernel, class KeyKernel>
void launch_passes(Stream stream, const Call& call, QueryKernel* query_kernel, KeyKernel* key_kernel,
                   const ConstView& q, const ConstView& k, const ConstView& v, const ConstView& out,
                   const ConstView& dout, const ConstView& log_sum_exp, const View& dq, const View& dk, const View& dv,
                   void* workspace) {
  const Inputs<T> x{Rows<const T>(q),
                    Rows<const T>(k),
                    Rows<const T>(v),
                    Rows<const T>(out),
                    Rows<const T>(dout),
                    LogSumExp<const float>(log_sum_exp),
                    {static_cast<float*>(workspace)}};
  const int query_tiles = static_cast<int>(tile_count(call.max_queries, S::FixedTile::kRows));
  const int key_tiles = static_cast<int>(tile_count(call.max_keys, S::FixedTile::kRows));
  launch(query_kernel, task_grid(call, call.heads, query_tiles), dim3(S::kThreads), S::kElements * sizeof(T), stream,
         call, x, Rows<T>(dq), query_tiles);
  launch(key_kernel, task_grid(call, call.kv_heads, key_tiles), dim3(S::kThreads), KeyPassTiles<T, S>::kBytes, stream,
         call, x, Rows<T>(dk), Rows<T>(dv), key_tiles);
}

// attention/backward_sm90.cu: like tern_attention_backward, for calls that takes_wgmma() accepts.
void backward_sm90(Stream stream, const Call& call, const ConstView& q, const ConstView& k, const ConstView& v,
                   const ConstView& out, const ConstView& dout, const ConstView& log_sum_exp, const View& dq,
                   const View& dk, const View& dv, void* workspace);

}  // namespace tern::kernels::cuda::attention
