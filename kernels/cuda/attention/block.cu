// Attention by blocks of 32 queries and 32 keys, for every dtype, head_dim up to 256, stride and option. Rows go
// through shared memory 32 columns at a time; scores are in registers and in one 32 x 32 tile of shared memory.
//   P = exp(S - lse), dP = keep dO V^T, dS = P (dP - delta), dV = (keep P)^T dO, dK = dS^T Q, dQ = dS K.

#include "tern/kernels/cuda/attention/call.h"
#include "tern/kernels/cuda/support/convert.h"
#include "tern/kernels/cuda/support/reduce.h"
#include "tern/kernels/math/math.h"

namespace tern::kernels::cuda::attention {
namespace {

constexpr int kBlock = 32, kSide = 16, kPer = kBlock / kSide;  // a thread has kPer x kPer scores, kSide apart
constexpr int kThreads = kSide * kSide;
constexpr int kCols = 32;  // columns of rows in shared memory at a time

/// kBlock rows in memory, `stride` apart; rows that do not exist or are masked are not read.
template <class T>
struct RowBlock {
  const T* first;
  int64_t stride;
  int count;
  const uint8_t* mask = nullptr;
  __device__ bool has(int row) const { return row < count && (mask == nullptr || mask[row] != 0); }
};

template <class F>
using ColumnTile = F[kBlock][kCols + 1];
template <class F>
using ScoreTile = F[kBlock][kBlock + 1];

__device__ int thread_row(int a) { return static_cast<int>(threadIdx.x) / kSide + a * kSide; }
__device__ int thread_col(int b) { return static_cast<int>(threadIdx.x) % kSide + b * kSide; }

template <class F, class T>
__device__ void load_columns(const RowBlock<T>& rows, int first_col, int head_dim, ColumnTile<F>& tile) {
  for (int i = threadIdx.x; i < kBlock * kCols; i += kThreads) {
    const int row = i / kCols, col = first_col + i % kCols;
    tile[row][i % kCols] = col < head_dim && rows.has(row) ? F(to_compute(rows.first[row * rows.stride + col])) : F(0);
  }
}

/// sum[a][b] = left row . right row, over all columns.
template <class F, class T>
__device__ void multiply_rows(const RowBlock<T>& left, const RowBlock<T>& right, int head_dim, F (&sum)[kPer][kPer]) {
  TERN_SHARED(ColumnTile<F>, left_tile);
  TERN_SHARED(ColumnTile<F>, right_tile);
  for (auto& row : sum)
    for (F& x : row) x = 0;
  for (int first = 0; first < head_dim; first += kCols) {
    block_barrier();
    load_columns<F>(left, first, head_dim, left_tile);
    load_columns<F>(right, first, head_dim, right_tile);
    block_barrier();
#pragma unroll 8
    for (int c = 0; c < kCols; ++c) {
#pragma unroll
      for (int a = 0; a < kPer; ++a) {
#pragma unroll
        for (int b = 0; b < kPer; ++b) sum[a][b] += left_tile[thread_row(a)][c] * right_tile[thread_col(b)][c];
      }
    }
  }
}

/// sum[a][i] += weights times rows: the thread's row thread_row(a), columns thread_col(0) + kSide i. kTransposed: the
/// weights are transposed.
template <bool kTransposed, int kSteps, class F, class T>
__device__ void accumulate(const ScoreTile<F>& weights, const RowBlock<T>& rows, int head_dim, F (&sum)[kPer][kSteps]) {
  TERN_SHARED(ColumnTile<F>, tile);
  constexpr int kStepsPerTile = kCols / kSide;
#pragma unroll
  for (int chunk = 0; chunk < kSteps / kStepsPerTile; ++chunk) {
    if (chunk * kCols >= head_dim) break;
    block_barrier();  // the weights are written and no thread reads the tile
    load_columns<F>(rows, chunk * kCols, head_dim, tile);
    block_barrier();
#pragma unroll 4
    for (int j = 0; j < kBlock; ++j) {
#pragma unroll
      for (int a = 0; a < kPer; ++a) {
        const F weight = kTransposed ? weights[j][thread_row(a)] : weights[thread_row(a)][j];
#pragma unroll
        for (int i = 0; i < kStepsPerTile; ++i) sum[a][chunk * kStepsPerTile + i] += weight * tile[j][thread_col(i)];
      }
    }
  }
}

/// Writes the first `count` rows of sums, each multiplied by its factor.
template <int kSteps, class F, class T>
__device__ void store_sums(const F (&sum)[kPer][kSteps], const F (&factor)[kPer], T* to, int64_t stride, int count,
                           int head_dim) {
#pragma unroll
  for (int a = 0; a < kPer; ++a) {
    if (thread_row(a) >= count) continue;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int col = thread_col(0) + i * kSide;
      if (col < head_dim) to[thread_row(a) * stride + col] = from_compute<T>(sum[a][i] * factor[a]);
    }
  }
}

struct Larger {
  template <class F>
  __device__ F operator()(F a, F b) const {
    return b > a ? b : a;
  }
};
/// Sum over the threads that share rows.
template <class F>
__device__ F row_sum(F x) {
  return warp_sum<kSide>(x);
}

/// One (sequence, head), with the mask, bias and dropout of its pairs of query and key.
template <class F, class T>
struct Head {
  const Call& call;
  const Sequence& s;
  int head;

  __device__ RowBlock<T> query_rows(const Rows<const T>& x, int first) const {
    return {x.at(s.query_begin + first, head), x.token_stride, s.queries - first};
  }
  /// Masked keys become zeros: their values must not enter a product.
  __device__ RowBlock<T> key_rows(const Rows<const T>& x, int first) const {
    const uint8_t* mask = call.key_mask == nullptr ? nullptr : call.key_mask + s.key_begin + first;
    return {x.at(s.key_begin + first, head / call.group), x.token_stride, s.keys - first, mask};
  }

  /// Converts dot products to scores: -infinity where the query does not see the key.
  __device__ void finish_scores(int first_query, int first_key, F (&score)[kPer][kPer]) const {
#pragma unroll
    for (int a = 0; a < kPer; ++a) {
      const int query = first_query + thread_row(a);
      const Range range = s.keys_of(call, query);
#pragma unroll
      for (int b = 0; b < kPer; ++b) {
        const int key = first_key + thread_col(b);
        const bool seen = query < s.queries && key >= range.begin && key < range.end && s.is_valid(call, key);
        score[a][b] = seen ? score[a][b] * static_cast<F>(call.scale) : -std::numeric_limits<F>::infinity();
        if (seen && call.bias.data != nullptr) score[a][b] += call.bias.template at<F>(s.index, head, query, key);
      }
    }
  }

  __device__ bool keeps(int query, int key) const {
    return !call.drops || dropout_keeps(philox_key(call.random), s.row_key(call, query), static_cast<uint32_t>(head),
                                        static_cast<uint32_t>(key), call.threshold);
  }
};

// ---- Forward

/// Requires kSteps * 16 >= head_dim.
template <class T, int kSteps>
__global__ void __launch_bounds__(kThreads, 1)
    block_forward_kernel(TERN_GRID_CONSTANT(Call) call, Rows<const T> q, Rows<const T> k, Rows<const T> v, Rows<T> out,
                         LogSumExp<ComputeType<T>> log_sum_exp, int tiles) {
  using F = ComputeType<T>;
  constexpr F kLowest = -std::numeric_limits<F>::infinity();
  TERN_SHARED(ScoreTile<F>, weights);
  const Task task(call.heads, tiles);
  if (task.sequence == call.sequences) {
    const int64_t used = call.query_offsets[call.sequences];
    clear_unused(out, used, task, tiles, call.head_dim);
    for (int64_t token = used + task.tile + static_cast<int64_t>(threadIdx.x) * tiles; token < out.tokens;
         token += static_cast<int64_t>(kThreads) * tiles)
      log_sum_exp.at(token, task.head) = kLowest;
    return;
  }
  const Sequence s(call, task.sequence);
  const int first_query = task.tile * kBlock;
  if (first_query >= s.queries) return;
  const Head<F, T> head{call, s, task.head};
  F sum[kPer][kSteps] = {}, maximum[kPer], total[kPer] = {};
  for (F& x : maximum) x = kLowest;
  const Range range = s.keys_of(call, first_query, min(first_query + kBlock, s.queries) - 1);
  for (int key = range.begin / kBlock * kBlock; key < range.end; key += kBlock) {
    F score[kPer][kPer];
    multiply_rows<F>(head.query_rows(q, first_query), head.key_rows(k, key), call.head_dim, score);
    head.finish_scores(first_query, key, score);
#pragma unroll
    for (int a = 0; a < kPer; ++a) {
      F top = maximum[a], part = 0;
#pragma unroll
      for (int b = 0; b < kPer; ++b) top = Larger{}(top, score[a][b]);
      top = warp_reduce<kSide>(top, Larger{});
      const F origin = top == kLowest ? F(0) : top, decay = math::exp(maximum[a] - origin);
#pragma unroll
      for (int b = 0; b < kPer; ++b) {
        const F p = math::exp(score[a][b] - origin);
        part += p;
        weights[thread_row(a)][thread_col(b)] = head.keeps(first_query + thread_row(a), key + thread_col(b)) ? p : F(0);
      }
      maximum[a] = top;
      total[a] = total[a] * decay + row_sum(part);
#pragma unroll
      for (F& x : sum[a]) x *= decay;
    }
    accumulate<false, kSteps>(weights, head.key_rows(v, key), call.head_dim, sum);
  }
  F factor[kPer];
#pragma unroll
  for (int a = 0; a < kPer; ++a) {
    factor[a] = total[a] == 0 ? F(0) : static_cast<F>(call.drops ? call.keep_scale : 1.0) / total[a];
    const int query = first_query + thread_row(a);
    if (thread_col(0) == 0 && query < s.queries)
      log_sum_exp.at(s.query_begin + query, task.head) = total[a] == 0 ? kLowest : maximum[a] + math::log(total[a]);
  }
  store_sums(sum, factor, out.at(s.query_begin + first_query, task.head), out.token_stride, s.queries - first_query,
             call.head_dim);
}

// ---- Backward

/// The tensors that the backward passes read.
template <class T>
struct Inputs {
  Rows<const T> q, k, v, out, dout;
  LogSumExp<const ComputeType<T>> log_sum_exp;
  Delta<ComputeType<T>> delta;
};

/// Computes P and keep * dP of a block of queries and a block of keys.
template <class F, class T>
struct Gradient {
  F p[kPer][kPer], dp[kPer][kPer];
  bool kept[kPer][kPer];

  __device__ Gradient(const Head<F, T>& head, const Inputs<T>& x, int first_query, int first_key) {
    const Call& call = head.call;
    const Sequence& s = head.s;
    multiply_rows<F>(head.query_rows(x.q, first_query), head.key_rows(x.k, first_key), call.head_dim, p);
    head.finish_scores(first_query, first_key, p);
    multiply_rows<F>(head.query_rows(x.dout, first_query), head.key_rows(x.v, first_key), call.head_dim, dp);
#pragma unroll
    for (int a = 0; a < kPer; ++a) {
      const int query = first_query + thread_row(a);
      F lse = -std::numeric_limits<F>::infinity();
      if (query < s.queries) lse = x.log_sum_exp.at(s.query_begin + query, head.head);
      const bool sees_none = lse == -std::numeric_limits<F>::infinity();
#pragma unroll
      for (int b = 0; b < kPer; ++b) {
        p[a][b] = sees_none ? F(0) : math::exp(p[a][b] - lse);
        kept[a][b] = head.keeps(query, first_key + thread_col(b));
        dp[a][b] = kept[a][b] ? dp[a][b] * static_cast<F>(call.keep_scale) : F(0);
      }
    }
  }
};

template <class F, class T>
__device__ F delta_of(const Head<F, T>& head, const Inputs<T>& x, int query) {
  F sum = 0;
  if (query < head.s.queries) {
    const T* out = x.out.at(head.s.query_begin + query, head.head);
    const T* dout = x.dout.at(head.s.query_begin + query, head.head);
    for (int c = thread_col(0); c < head.call.head_dim; c += kSide)
      sum += F(to_compute(out[c])) * F(to_compute(dout[c]));
  }
  return row_sum(sum);
}

/// Computes dq of a block of queries and stores delta.
template <class T, int kSteps>
__global__ void __launch_bounds__(kThreads, 1)
    block_dq_kernel(TERN_GRID_CONSTANT(Call) call, TERN_GRID_CONSTANT(Inputs<T>) x, Rows<T> dq, int tiles) {
  using F = ComputeType<T>;
  TERN_SHARED(ScoreTile<F>, weights);
  const Task task(call.heads, tiles);
  if (task.sequence == call.sequences)
    return clear_unused(dq, call.query_offsets[call.sequences], task, tiles, call.head_dim);
  const Sequence s(call, task.sequence);
  const int first_query = task.tile * kBlock;
  if (first_query >= s.queries) return;
  const Head<F, T> head{call, s, task.head};
  const Range range = s.keys_of(call, first_query, min(first_query + kBlock, s.queries) - 1);
  const int begin = range.begin / kBlock * kBlock;
  // With all keys in one block delta is rowsum(P dP): the same value without the error of out's rounding to 16 bits.
  const bool one_block = begin + kBlock >= range.end;
  F sum[kPer][kSteps] = {}, delta[kPer] = {}, factor[kPer];
  if (!one_block)
    for (int a = 0; a < kPer; ++a) delta[a] = delta_of(head, x, first_query + thread_row(a));
  for (int key = begin; key < range.end; key += kBlock) {
    const Gradient<F, T> g(head, x, first_query, key);
#pragma unroll
    for (int a = 0; a < kPer; ++a) {
      if (one_block) {
        F part = 0;
#pragma unroll
        for (int b = 0; b < kPer; ++b) part += g.p[a][b] * g.dp[a][b];
        delta[a] = row_sum(part);
      }
#pragma unroll
      for (int b = 0; b < kPer; ++b) weights[thread_row(a)][thread_col(b)] = g.p[a][b] * (g.dp[a][b] - delta[a]);
    }
    accumulate<false, kSteps>(weights, head.key_rows(x.k, key), call.head_dim, sum);
  }
#pragma unroll
  for (int a = 0; a < kPer; ++a) {
    factor[a] = static_cast<F>(call.scale);
    const int query = first_query + thread_row(a);
    if (thread_col(0) == 0 && query < s.queries) x.delta.at(call, task.head, s.index, query) = delta[a];
  }
  store_sums(sum, factor, dq.at(s.query_begin + first_query, task.head), dq.token_stride, s.queries - first_query,
             call.head_dim);
}

/// Computes dk and dv of a block of keys from all queries and all heads of the group, in order.
template <class T, int kSteps>
__global__ void __launch_bounds__(kThreads, 1)
    block_dkv_kernel(TERN_GRID_CONSTANT(Call) call, TERN_GRID_CONSTANT(Inputs<T>) x, Rows<T> dk, Rows<T> dv,
                     int tiles) {
  using F = ComputeType<T>;
  TERN_SHARED(ScoreTile<F>, kept_p);
  TERN_SHARED(ScoreTile<F>, ds);
  const Task task(call.kv_heads, tiles);
  if (task.sequence == call.sequences) {
    clear_unused(dk, call.key_offsets[call.sequences], task, tiles, call.head_dim);
    return clear_unused(dv, call.key_offsets[call.sequences], task, tiles, call.head_dim);
  }
  const Sequence s(call, task.sequence);
  const int first_key = task.tile * kBlock;
  if (first_key >= s.keys) return;
  F dk_sum[kPer][kSteps] = {}, dv_sum[kPer][kSteps] = {};
  const Range range = s.queries_of(call, first_key, min(first_key + kBlock, s.keys) - 1);
  for (int number = task.head * call.group; number < (task.head + 1) * call.group; ++number) {
    const Head<F, T> head{call, s, number};
    for (int query = range.begin / kBlock * kBlock; query < range.end; query += kBlock) {
      const Gradient<F, T> g(head, x, query, first_key);
#pragma unroll
      for (int a = 0; a < kPer; ++a) {
        const int row = query + thread_row(a);
        const F delta = row < s.queries ? x.delta.at(call, number, s.index, row) : F(0);
#pragma unroll
        for (int b = 0; b < kPer; ++b) {
          kept_p[thread_row(a)][thread_col(b)] = g.kept[a][b] ? g.p[a][b] : F(0);
          ds[thread_row(a)][thread_col(b)] = g.p[a][b] * (g.dp[a][b] - delta);
        }
      }
      accumulate<true, kSteps>(kept_p, head.query_rows(x.dout, query), call.head_dim, dv_sum);
      accumulate<true, kSteps>(ds, head.query_rows(x.q, query), call.head_dim, dk_sum);
    }
  }
  F dk_factor[kPer], dv_factor[kPer];
#pragma unroll
  for (int a = 0; a < kPer; ++a) {
    dk_factor[a] = static_cast<F>(call.scale);
    dv_factor[a] = static_cast<F>(call.keep_scale);
  }
  const int64_t token = s.key_begin + first_key;
  store_sums(dk_sum, dk_factor, dk.at(token, task.head), dk.token_stride, s.keys - first_key, call.head_dim);
  store_sums(dv_sum, dv_factor, dv.at(token, task.head), dv.token_stride, s.keys - first_key, call.head_dim);
}

/// dbias [shape[0], shape[1], shape[2], shape[3]], contiguous. A block computes kBlock x kBlock elements as the sum
/// over the sequences and heads that share them.
template <class F>
struct BiasGradient {
  F* data;
  int64_t shape[4];
};
template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    block_dbias_kernel(TERN_GRID_CONSTANT(Call) call, TERN_GRID_CONSTANT(Inputs<T>) x,
                       TERN_GRID_CONSTANT(BiasGradient<ComputeType<T>>) dbias, int key_tiles, int query_tiles) {
  using F = ComputeType<T>;
  int64_t rest = blockIdx.x;
  const int first_key = static_cast<int>(rest % key_tiles) * kBlock;
  rest /= key_tiles;
  const int first_query = static_cast<int>(rest % query_tiles) * kBlock;
  rest /= query_tiles;
  const int64_t own_head = rest % dbias.shape[1], own_sequence = rest / dbias.shape[1];
  const int64_t sequence_end = dbias.shape[0] == 1 ? call.sequences : own_sequence + 1;
  const int head_end = dbias.shape[1] == 1 ? call.heads : static_cast<int>(own_head) + 1;
  F sum[kPer][kPer] = {};
  for (int64_t number = own_sequence; number < sequence_end; ++number) {
    const Sequence s(call, number);
    if (first_query >= s.queries || first_key >= s.keys) continue;
    for (int h = static_cast<int>(own_head); h < head_end; ++h) {
      const Gradient<F, T> g(Head<F, T>{call, s, h}, x, first_query, first_key);
#pragma unroll
      for (int a = 0; a < kPer; ++a) {
        const int query = first_query + thread_row(a);
        const F delta = query < s.queries ? x.delta.at(call, h, number, query) : F(0);
#pragma unroll
        for (int b = 0; b < kPer; ++b) sum[a][b] += g.p[a][b] * (g.dp[a][b] - delta);
      }
    }
  }
#pragma unroll
  for (int a = 0; a < kPer; ++a) {
    for (int b = 0; b < kPer; ++b) {
      const int64_t query = first_query + thread_row(a), key = first_key + thread_col(b);
      if (query < dbias.shape[2] && key < dbias.shape[3])
        dbias.data[((own_sequence * dbias.shape[1] + own_head) * dbias.shape[2] + query) * dbias.shape[3] + key] =
            sum[a][b];
    }
  }
}

/// Calls f.operator()<T, kSteps>().
template <class F>
void dispatch_steps(const Call& call, DType dtype, const F& f) {
  dispatch_float(dtype, [&]<class T>() {
    if (call.head_dim <= 8 * kSide)
      f.template operator()<T, 8>();
    else
      f.template operator()<T, 16>();
  });
}

}  // namespace

void block_forward(Stream stream, const Call& call, const ConstView& q, const ConstView& k, const ConstView& v,
                   const View& out, const View& log_sum_exp) {
  const int tiles = static_cast<int>(tile_count(call.max_queries, kBlock));
  dispatch_steps(call, q.dtype, [&]<class T, int kSteps>() {
    launch(block_forward_kernel<T, kSteps>, task_grid(call, call.heads, tiles), dim3(kThreads), 0, stream, call,
           Rows<const T>(q), Rows<const T>(k), Rows<const T>(v), Rows<T>(out), LogSumExp<ComputeType<T>>(log_sum_exp),
           tiles);
  });
}

void block_backward(Stream stream, const Call& call, const ConstView& q, const ConstView& k, const ConstView& v,
                    const ConstView& out, const ConstView& dout, const ConstView& log_sum_exp, const View& dq,
                    const View& dk, const View& dv, const View& dbias, void* workspace) {
  const int query_tiles = static_cast<int>(tile_count(call.max_queries, kBlock));
  const int key_tiles = static_cast<int>(tile_count(call.max_keys, kBlock));
  dispatch_steps(call, q.dtype, [&]<class T, int kSteps>() {
    using F = ComputeType<T>;
    const Inputs<T> x{Rows<const T>(q),
                      Rows<const T>(k),
                      Rows<const T>(v),
                      Rows<const T>(out),
                      Rows<const T>(dout),
                      LogSumExp<const F>(log_sum_exp),
                      {static_cast<F*>(workspace)}};
    launch(block_dq_kernel<T, kSteps>, task_grid(call, call.heads, query_tiles), dim3(kThreads), 0, stream, call, x,
           Rows<T>(dq), query_tiles);
    launch(block_dkv_kernel<T, kSteps>, task_grid(call, call.kv_heads, key_tiles), dim3(kThreads), 0, stream, call, x,
           Rows<T>(dk), Rows<T>(dv), key_tiles);
    if (!dbias || dbias.numel() == 0) return;
    BiasGradient<F> target{dbias.as<F>(), {}};
    for (int d = 0; d < 4; ++d) target.shape[d] = dbias.shape[d];
    const int64_t blocks = dbias.shape[0] * dbias.shape[1] * query_tiles * key_tiles;
    launch(block_dbias_kernel<T>, dim3(grid_blocks(blocks)), dim3(kThreads), 0, stream, call, x, target, key_tiles,
           query_tiles);
  });
}

}  // namespace tern::kernels::cuda::attention
