// Flash attention, backward (Dao, arXiv:2307.08691): scores are recomputed tile by tile from log_sum_exp.
//   P = exp(S - lse), dP = keep dO V^T, dS = P (dP - delta), dV = (keep P)^T dO, dK = dS^T Q, dQ = dS K.
// Two passes, so that each output has one writer and a fixed order of sums: a block of the first takes a tile of
// queries and goes through the keys for dq; a block of the second takes a tile of keys and goes through the queries of
// all heads of its group for dk and dv. The first also leaves delta for the second.

#include "tern/kernels/attention.h"

#include "tern/kernels/cuda/attention_alternative.h"
#include "tern/kernels/cuda/attention_tile.h"

namespace tern::kernels::cuda {
namespace attention {
namespace {

/// A block of either pass holds 64 rows of its own, 16 a warp, and goes through tiles of kOther rows, two stages.
template <int kDim>
struct Shape {
  static constexpr int kOwn = kWarps * 16;
  static constexpr int kOther = kDim <= 64 ? 64 : 32;
  static constexpr int kOwnTile = kOwn * kRowStride<kDim>, kOtherTile = kOther * kRowStride<kDim>;
  static constexpr int kElements = 2 * kOwnTile + 4 * kOtherTile;
};

template <class T>
struct Inputs {
  Rows<const T> q, k, v, out, dout;
  LogSumExp<const float> log_sum_exp;
  Delta<float> delta;
};

/// log_sum_exp in base 2; infinity (so that P = 0) for rows that are not there and queries that see no key.
template <class T>
__device__ float base2_lse(const Inputs<T>& x, const Sequence& s, int head, int query) {
  if (query >= s.queries) return kInfinity;
  const float lse = x.log_sum_exp.at(s.query_begin + query, head);
  return lse == -kInfinity ? kInfinity : lse * kLog2e;
}

/// c += left rows row .. row + 15 times the transpose of all rows of `right`.
template <int kDim, class T, int kTiles>
__device__ void multiply_transposed(const T* left, int row, const T* right, FragmentC (&c)[kTiles]) {
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) {
    const FragmentA a = load_left<kDim>(left, row, k * 16);
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      const RightPair b = load_right_transposed<kDim>(right, n * 8, k * 16);
      mma<T>(c[n], a, b.b[0]);
      mma<T>(c[n + 1], a, b.b[1]);
    }
  }
}
/// c += weights times the rows of `right`.
template <int kDim, class T, int kTiles>
__device__ void multiply(const FragmentC (&weights)[kTiles], const T* right, FragmentC (&c)[kDim / 8]) {
#pragma unroll
  for (int k = 0; k < kTiles; k += 2) {
    const FragmentA a = to_left<T>(weights[k], weights[k + 1]);
#pragma unroll
    for (int n = 0; n < kDim / 8; n += 2) {
      const RightPair b = load_right<kDim>(right, k * 8, n * 8);
      mma<T>(c[n], a, b.b[0]);
      mma<T>(c[n + 1], a, b.b[1]);
    }
  }
}

// ---- dq

template <class T, int kDim, bool kDropout>
class QueryPass {
 public:
  using S = Shape<kDim>;
  static constexpr int kTiles = S::kOther / 8;

  __device__ QueryPass(const Call& call, const Inputs<T>& x, const Sequence& s, int head, int block_query, T* shared)
      : call_(call),
        x_(x),
        s_(s),
        head_(head),
        block_query_(block_query),
        row_(static_cast<int>(threadIdx.x) / kWarpSize * 16),
        queries_(shared),
        dout_(shared + S::kOwnTile),
        stages_(shared + 2 * S::kOwnTile) {
    set_zero(dq_);
#pragma unroll
    for (int half = 0; half < 2; ++half) lse_[half] = base2_lse(x, s, head, query(half));
  }

  __device__ void load_own() {
    const auto on = [&](int row) { return block_query_ + row < s_.queries; };
    const int64_t token = s_.query_begin + block_query_;
    load_tile<S::kOwn, kDim>(x_.q.at(token, head_), x_.q.token_stride, call_.head_dim, queries_, on);
    load_tile<S::kOwn, kDim>(x_.dout.at(token, head_), x_.dout.token_stride, call_.head_dim, dout_, on);
  }
  __device__ void load_keys(int first_key, int stage) {
    const auto on = [&](int row) { return s_.is_valid(call_, first_key + row); };
    const int64_t token = s_.key_begin + first_key, kv_head = head_ / call_.group;
    T* to = stages_ + stage * 2 * S::kOtherTile;
    load_tile<S::kOther, kDim>(x_.k.at(token, kv_head), x_.k.token_stride, call_.head_dim, to, on);
    load_tile<S::kOther, kDim>(x_.v.at(token, kv_head), x_.v.token_stride, call_.head_dim, to + S::kOtherTile, on);
  }

  /// delta = rowsum(dout * out), from rows of dout that have arrived.
  __device__ void read_delta() {
    const int lane = threadIdx.x % kWarpSize;
    float sum[2] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (query(half) >= s_.queries) continue;
      const T* out = x_.out.at(s_.query_begin + query(half), head_);
      const T* dout = dout_ + (row_ + lane / 4 + half * 8) * kRowStride<kDim>;
      for (int c = lane % 4 * 8; c < call_.head_dim; c += 32) {
        const Vector<T, 8> a = load_readonly<8>(out + c), b = load_vector<8>(dout + c);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum[half] += to_compute(a.v[i]) * to_compute(b.v[i]);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) delta_[half] = quad_sum(sum[half]);
  }

  /// One tile of keys and values, which have arrived. only_tile: there is no other, and delta is rowsum(P dP): equal to
  /// rowsum(dout * out), but not spoilt by the rounding of out to 16 bits.
  __device__ void step(int first_key, int stage, bool only_tile) {
    const T *keys = stages_ + stage * 2 * S::kOtherTile, *values = keys + S::kOtherTile;
    // Random numbers come before the scores: there are not registers enough for both.
    [[maybe_unused]] uint32_t kept = 0;
    if constexpr (kDropout) kept = kept_in_rows<kTiles>(call_, s_, head_, block_query_ + row_, first_key);
    FragmentC p[kTiles], ds[kTiles];
    set_zero(p);
    set_zero(ds);
    multiply_transposed<kDim>(queries_, row_, keys, p);
    apply_sign(call_, p);
    mask_scores(call_, s_, ValidKeys<S::kOther>(call_, s_, first_key), block_query_ + row_, first_key, p);
    multiply_transposed<kDim>(dout_, row_, values, ds);
    const float scale = positive_scale_log2(call_);
    [[maybe_unused]] const auto keep_scale = static_cast<float>(call_.keep_scale);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = 0;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float &score = p[n].r[half * 2 + j], &dp = ds[n].r[half * 2 + j];
          score = fast_exp2(score * scale - lse_[half]);
          if constexpr (kDropout) dp = is_kept<kTiles>(kept, n, half * 2 + j) ? dp * keep_scale : 0;
          sum += score * dp;
        }
      }
      if (only_tile) delta_[half] = quad_sum(sum);
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j)
          ds[n].r[half * 2 + j] = p[n].r[half * 2 + j] * (ds[n].r[half * 2 + j] - delta_[half]);
      }
    }
    multiply<kDim>(ds, keys, dq_);
  }

  __device__ void store(const Rows<T>& dq) {
    const int lane = threadIdx.x % kWarpSize;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (lane % 4 == 0 && query(half) < s_.queries) x_.delta.at(call_, head_, s_.index, query(half)) = delta_[half];
    const int first = block_query_ + row_;
    const auto scale = static_cast<float>(call_.scale);
    store_rows<kDim>(dq_, {scale, scale}, queries_ + row_ * kRowStride<kDim>, dq.at(s_.query_begin + first, head_),
                     dq.token_stride, s_.queries - first, call_.head_dim);
  }

 private:
  __device__ int query(int half) const {
    return block_query_ + row_ + static_cast<int>(threadIdx.x) % kWarpSize / 4 + half * 8;
  }
  const Call& call_;
  const Inputs<T>& x_;
  const Sequence& s_;
  int head_, block_query_, row_;
  T *queries_, *dout_, *stages_;
  float lse_[2], delta_[2] = {0, 0};
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

/// What the key pass knows of a tile of queries, beside q and dout.
template <int kQueries>
struct QueryColumns {
  float lse[kQueries], delta[kQueries];
  uint64_t row_keys[kQueries];
};

template <class T, int kDim, bool kDropout>
class KeyPass {
 public:
  using S = Shape<kDim>;
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
        keys_(shared),
        values_(shared + S::kOwnTile),
        stages_(shared + 2 * S::kOwnTile),
        columns_(columns) {
    set_zero(dk_);
    set_zero(dv_);
#pragma unroll
    for (int half = 0; half < 2; ++half) valid_[half] = s.is_valid(call, key(half));
    all_valid_ = __all_sync(kFullWarp, valid_[0] && valid_[1]) != 0;
  }

  __device__ void load_own() {
    const auto on = [&](int row) { return s_.is_valid(call_, first_key_ + row); };
    const int64_t token = s_.key_begin + first_key_;
    load_tile<S::kOwn, kDim>(x_.k.at(token, kv_head_), x_.k.token_stride, call_.head_dim, keys_, on);
    load_tile<S::kOwn, kDim>(x_.v.at(token, kv_head_), x_.v.token_stride, call_.head_dim, values_, on);
  }
  __device__ void load_queries(int head, int first_query, int stage) {
    const auto on = [&](int row) { return first_query + row < s_.queries; };
    const int64_t token = s_.query_begin + first_query;
    T* to = stages_ + stage * 2 * S::kOtherTile;
    load_tile<S::kOther, kDim>(x_.q.at(token, head), x_.q.token_stride, call_.head_dim, to, on);
    load_tile<S::kOther, kDim>(x_.dout.at(token, head), x_.dout.token_stride, call_.head_dim, to + S::kOtherTile, on);
    for (int i = threadIdx.x; i < S::kOther; i += kThreads) {
      Columns& c = columns_[stage];
      const int query = first_query + i;
      c.lse[i] = base2_lse(x_, s_, head, query);
      c.delta[i] = query < s_.queries ? x_.delta.at(call_, head, s_.index, query) : 0;
      if constexpr (kDropout) c.row_keys[i] = s_.row_key(call_, query);
    }
  }

  /// One tile of queries, which have arrived.
  __device__ void step(int head, int first_query, int stage) {
    const T *queries = stages_ + stage * 2 * S::kOtherTile, *dout = queries + S::kOtherTile;
    const Columns& c = columns_[stage];
    uint32_t kept = ~0u;
    if constexpr (kDropout) kept = kept_in_tile(head, c);  // before the scores, as above
    FragmentC p[kTiles], ds[kTiles];
    set_zero(p);
    set_zero(ds);
    multiply_transposed<kDim>(keys_, row_, queries, p);
    multiply_transposed<kDim>(values_, row_, dout, ds);
    apply_sign(call_, p);
    mask(first_query, p);
    const float scale = positive_scale_log2(call_);
    [[maybe_unused]] const auto keep_scale = static_cast<float>(call_.keep_scale);
    const int quarter = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = n * 8 + quarter * 2 + i % 2;
        float &score = p[n].r[i], &dp = ds[n].r[i];
        const bool keep = !kDropout || (kept >> (4 * n + i) & 1) != 0;
        const float probability = fast_exp2(score * scale - c.lse[column]);
        if constexpr (kDropout) dp = keep ? dp * keep_scale : 0;
        dp = probability * (dp - c.delta[column]);
        score = keep ? probability : 0;
      }
    }
    multiply<kDim>(p, dout, dv_);
    multiply<kDim>(ds, queries, dk_);
  }

  __device__ void store(const Rows<T>& dk, const Rows<T>& dv) {
    const int64_t first = first_key_ + row_, token = s_.key_begin + first;
    const int count = s_.keys - static_cast<int>(first);
    const auto scale = static_cast<float>(call_.scale), keep_scale = static_cast<float>(call_.keep_scale);
    store_rows<kDim>(dk_, {scale, scale}, keys_ + row_ * kRowStride<kDim>, dk.at(token, kv_head_), dk.token_stride,
                     count, call_.head_dim);
    store_rows<kDim>(dv_, {keep_scale, keep_scale}, values_ + row_ * kRowStride<kDim>, dv.at(token, kv_head_),
                     dv.token_stride, count, call_.head_dim);
  }

 private:
  __device__ int key(int half) const {
    return first_key_ + row_ + static_cast<int>(threadIdx.x) % kWarpSize / 4 + half * 8;
  }

  /// Scores become -infinity where a query may not see the key. Rows are keys here, columns queries.
  __device__ void mask(int first_query, FragmentC (&scores)[kTiles]) const {
    const int first_key = first_key_ + row_;
    if (all_valid_ && s_.all_seen(call_, first_query, first_query + S::kOther - 1, {first_key, first_key + 16})) return;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const Range range = s_.keys_of(call_, first_query + n * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + j);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const bool seen = valid_[half] && key(half) >= range.begin && key(half) < range.end;
          if (!seen) scores[n].r[half * 2 + j] = -kInfinity;
        }
      }
    }
  }

  /// Which of this lane's values dropout keeps: bit 4 n + i stands for value i of scores[n]. A warp's 16 keys are two
  /// Philox blocks for each query: for 16 queries at a time every lane draws one, and reads the others' from shared
  /// memory.
  __device__ uint32_t kept_in_tile(int head, const Columns& c) const {
    TERN_SHARED(uint32_t, all_words, [kWarps][kWarpSize][4]);
    auto& words = all_words[threadIdx.x / kWarpSize];
    const int lane = threadIdx.x % kWarpSize, key = lane / 4;
    const uint64_t dropout = philox_key(call_.random);
    uint32_t kept = 0;
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      const Philox4 drawn = philox(dropout, c.row_keys[n * 8 + lane % 16], static_cast<uint32_t>(head),
                                   static_cast<uint32_t>((first_key_ + row_) / 8 + lane / 16));
      __syncwarp();  // all have read what the words were before
      store_vector(words[lane], Vector<uint32_t, 4>{{drawn.word[0], drawn.word[1], drawn.word[2], drawn.word[3]}});
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int from = i / 4 * 8 + lane % 4 * 2 + i % 2 + i / 2 % 2 * 16;
        const uint32_t word = words[from][key / 2], number = key % 2 == 0 ? word & 0xffffu : word >> 16;
        kept |= static_cast<uint32_t>(number >= call_.threshold) << (4 * n + i);
      }
    }
    return kept;
  }

  const Call& call_;
  const Inputs<T>& x_;
  const Sequence& s_;
  int kv_head_, first_key_, row_;
  T *keys_, *values_, *stages_;
  Columns* columns_;
  bool valid_[2], all_valid_;
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
  const int steps = begin < range.end ? (range.end - begin + S::kOther - 1) / S::kOther : 0;  // of one head
  const auto load = [&](int step) {
    pass.load_queries(task.head * call.group + step / steps, begin + step % steps * S::kOther, step % 2);
  };
  if (steps > 0) {
    pass.load_own();
    load(0);
    cp_async_commit();
    cp_async_wait<0>();
    block_barrier();
  }
  for (int step = 0; step < steps * call.group; ++step) {
    if (step + 1 < steps * call.group) load(step + 1);
    cp_async_commit();
    pass.step(task.head * call.group + step / steps, begin + step % steps * S::kOther, step % 2);
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
  dispatch_tensor_cores(call, q.dtype, [&]<class T, int kDim, bool kDropout>() {
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
