// Flash attention, forward, for sm_90a: as attention_forward.cu, with wgmma (Shah et al., FlashAttention-3,
// arXiv:2407.08608, without its producer warps: rows of packed sequences are copied with cp.async, which leaves out
// what is masked or of another sequence). A warpgroup takes 64 queries; while one waits for the tensor cores, the
// others of the multiprocessor compute their softmax.

#include "tern/kernels/cuda/attention_sm90.h"
#include "tern/kernels/cuda/attention_softmax.h"

namespace tern::kernels::cuda::attention {
namespace {

template <int kDim>
struct Shape {
  static constexpr int kWarpgroups = 2, kThreads = kWarpgroups * kWarpgroupSize;
  static constexpr int kBlocks = kDim <= 64 ? 2 : 1;  // that share a multiprocessor, by registers
  static constexpr int kQueries = kWarpgroups * 64, kKeys = 64;
  using QueryTile = SwizzledRows<kDim, kQueries>;
  using KeyTile = SwizzledRows<kDim, kKeys>;
  /// Queries, then two stages of keys and values.
  static constexpr int kElements = QueryTile::kElements + 4 * KeyTile::kElements;
};

template <class T, int kDim, bool kDropout>
class Forward {
 public:
  using S = Shape<kDim>;
  using QueryTile = typename S::QueryTile;
  using KeyTile = typename S::KeyTile;
  static constexpr int kKeyTiles = S::kKeys / 8;

  __device__ Forward(const Call& call, const Sequence& s, int head, int block_query, T* shared)
      : call_(call),
        s_(s),
        head_(head),
        block_query_(block_query),
        group_row_(warpgroup_index() * 64),
        queries_(shared),
        stages_(shared + QueryTile::kElements) {
    set_zero(state_.out);
    const int first = block_query + group_row_;
    if (first < s.queries) keys_ = s.keys_of(call, first, min(first + 64, s.queries) - 1);
  }

  /// Starts copying the block's queries.
  __device__ void load_queries(const Rows<const T>& q) {
    const auto on = [&](int row) { return block_query_ + row < s_.queries; };
    load_tile<QueryTile, S::kQueries, S::kThreads>(q.at(s_.query_begin + block_query_, head_), q.token_stride,
                                                   call_.head_dim, queries_, on);
  }
  /// Starts copying a tile of keys and values.
  __device__ void load_keys(const Rows<const T>& k, const Rows<const T>& v, int first_key, int stage) {
    const int64_t token = s_.key_begin + first_key, kv_head = head_ / call_.group;
    const auto on = [&](int row) { return s_.is_valid(call_, first_key + row); };
    T* to = stages_ + stage * 2 * KeyTile::kElements;
    load_tile<KeyTile, S::kKeys, S::kThreads>(k.at(token, kv_head), k.token_stride, call_.head_dim, to, on);
    load_tile<KeyTile, S::kKeys, S::kThreads>(v.at(token, kv_head), v.token_stride, call_.head_dim,
                                              to + KeyTile::kElements, on);
  }

  /// One tile of keys and values, which have arrived. A warpgroup none of whose queries sees them has nothing to do.
  __device__ void step(int first_key, int stage) {
    if (first_key >= keys_.end || first_key + S::kKeys <= keys_.begin) return;
    const T *keys = stages_ + stage * 2 * KeyTile::kElements, *values = keys + KeyTile::kElements;
    FragmentC scores[kKeyTiles];
    start_rows_product<QueryTile, KeyTile>(queries_, group_row_, keys, scores);
    [[maybe_unused]] uint32_t kept = 0;
    if constexpr (kDropout) kept = kept_in_rows<kKeyTiles>(call_, s_, head_, first_query(), first_key);
    const ValidKeys<S::kKeys> valid(call_, s_, first_key);
    wgmma_wait<0>(scores);
    apply_sign(call_, scores);
    mask_scores(call_, s_, valid, first_query(), first_key, scores);
    softmax_step<kDim>(positive_scale_log2(call_), scores, state_);
    if constexpr (kDropout) drop<kKeyTiles>(kept, scores);
    FragmentA weights[kKeyTiles / 2];
    to_left_operands<T>(scores, weights);
    start_weighted_sum<KeyTile>(weights, values, state_.out);
    wgmma_wait<0>(state_.out);
  }

  /// Nobody uses the query tile any more.
  __device__ void store(const Rows<T>& out, const LogSumExp<float>& log_sum_exp) {
    store_result<QueryTile>(call_, s_, head_, first_query(), state_, queries_, warp_row(), out, log_sum_exp);
  }

 private:
  __device__ int first_query() const { return block_query_ + warp_row(); }

  const Call& call_;
  const Sequence& s_;
  int head_, block_query_, group_row_;
  Range keys_{0, 0};  // that the warpgroup's queries see
  T *queries_, *stages_;
  RowState<kDim> state_;
};

template <class T, int kDim, bool kDropout>
__global__ void __launch_bounds__(Shape<kDim>::kThreads, Shape<kDim>::kBlocks)
    flash_forward_sm90_kernel(TERN_GRID_CONSTANT(Call) call, Rows<const T> q, Rows<const T> k, Rows<const T> v,
                              Rows<T> out, LogSumExp<float> log_sum_exp, int tiles) {
#if defined(TERN_SIMT) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = Shape<kDim>;
  TERN_ALIGNED_DYNAMIC_SHARED(T, shared, S::QueryTile::kAlignment);
  const Task task(call.heads, tiles);
  if (task.sequence == call.sequences) return clear_result(call, out, log_sum_exp, task, tiles);
  const Sequence s(call, task.sequence);
  const int block_query = task.tile * S::kQueries;
  if (block_query >= s.queries) return;
  Forward<T, kDim, kDropout> forward(call, s, task.head, block_query, shared);
  const Range range = s.keys_of(call, block_query, min(block_query + S::kQueries, s.queries) - 1);
  const int begin = range.begin / S::kKeys * S::kKeys;
  if (begin < range.end) {
    forward.load_queries(q);
    forward.load_keys(k, v, begin, 0);
    cp_async_commit();
  }
  int stage = 0;
  for (int key = begin; key < range.end; key += S::kKeys, stage ^= 1) {
    cp_async_wait<0>();
    async_proxy_fence();
    block_barrier();  // this tile is there for all, and all are done with the one before
    if (key + S::kKeys < range.end) forward.load_keys(k, v, key + S::kKeys, stage ^ 1);
    cp_async_commit();
    forward.step(key, stage);
  }
  block_barrier();  // all are done with the queries
  forward.store(out, log_sum_exp);
#endif
}

}  // namespace

void forward_sm90(Stream stream, const Call& call, const ConstView& q, const ConstView& k, const ConstView& v,
                  const View& out, const View& log_sum_exp) {
  dispatch_tensor_cores<64, 128>(call, q.dtype, [&]<class T, int kDim, bool kDropout>() {
    using S = Shape<kDim>;
    const int tiles = static_cast<int>(tile_count(call.max_queries, S::kQueries));
    launch(flash_forward_sm90_kernel<T, kDim, kDropout>, task_grid(call, call.heads, tiles), dim3(S::kThreads),
           S::kElements * sizeof(T), stream, call, Rows<const T>(q), Rows<const T>(k), Rows<const T>(v), Rows<T>(out),
           LogSumExp<float>(log_sum_exp), tiles);
  });
}

}  // namespace tern::kernels::cuda::attention
