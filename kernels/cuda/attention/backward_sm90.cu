// Backward pass of flash attention for sm_90a: the passes of attention/backward.cu with wgmma. The rows that a
// warpgroup holds stay in shared memory, where wgmma reads them; the softmax of one product overlaps the next product.

#include "tern/kernels/cuda/attention/passes.h"
#include "tern/kernels/cuda/attention/sm90.h"

namespace tern::kernels::cuda::attention {
namespace {

/// In both passes a block holds 128 rows, 64 per warpgroup.
template <int kDim>
struct Shape {
  static constexpr int kWarpgroups = 2, kThreads = kWarpgroups * kWarpgroupSize;
  using FixedTile = SwizzledRows<kDim, kWarpgroups * 64>;
  using StreamedTile = SwizzledRows<kDim, kDim <= 64 ? 64 : 32>;
  static constexpr int kElements = 2 * FixedTile::kElements + 4 * StreamedTile::kElements;
  __device__ static void show_copies() { async_proxy_fence(); }
};

// ---- dq

template <class T, int kDim, bool kDropout>
class QueryPass : public QueryPassTiles<T, Shape<kDim>> {
 public:
  using Base = QueryPassTiles<T, Shape<kDim>>;
  using typename Base::FixedTile;
  using typename Base::StreamedTile;
  static constexpr int kOther = StreamedTile::kRows, kTiles = kOther / 8;

  __device__ QueryPass(const Call& call, const Inputs<T>& x, const Sequence& s, int head, int block_query, T* shared)
      : Base(call, x, s, head, block_query, shared), group_row_(warpgroup_index() * 64) {
    const int first = block_query + group_row_;
    if (first < s.queries) seen_ = s.keys_of(call, first, min(first + 64, s.queries) - 1);
  }

  /// Processes one tile of keys and values, whose copies have completed. Skipped by a warpgroup whose queries see none.
  __device__ void step(int first_key, int stage, bool only_tile) {
    if (first_key >= seen_.end || first_key + kOther <= seen_.begin) return;
    const T *keys = stage_of(stage), *values = keys + StreamedTile::kElements;
    FragmentC p[kTiles], ds[kTiles];
    start_rows_product<FixedTile, StreamedTile>(queries_, group_row_, keys, p);
    [[maybe_unused]] uint32_t kept = 0;
    if constexpr (kDropout) kept = kept_in_rows<kTiles>(call_, s_, head_, rows_.first, first_key);
    wgmma_wait<0>(p);
    apply_sign(call_, p);
    mask_scores(call_, s_, ValidKeys<kOther>(call_, s_, first_key), rows_.first, first_key, p);
    start_rows_product<FixedTile, StreamedTile>(dout_, group_row_, values, ds);  // not earlier: too many registers
    rows_.probabilities(call_, p);
    wgmma_wait<0>(ds);
    rows_.template score_gradients<kDropout>(call_, kept, p, only_tile, ds);
    FragmentA weights[kTiles / 2];
    to_left_operands<T>(ds, weights);
    start_weighted_sum<StreamedTile>(weights, keys, dq_);
    wgmma_wait<0>(dq_);
  }

 private:
  using Base::call_, Base::dout_, Base::dq_, Base::head_, Base::queries_, Base::rows_, Base::s_, Base::stage_of;
  int group_row_;
  Range seen_{0, 0};  // keys that the warpgroup's queries see
};

template <class T, int kDim, bool kDropout>
__global__ void __launch_bounds__(Shape<kDim>::kThreads, kDim <= 64 ? 2 : 1)
    flash_dq_sm90_kernel(TERN_GRID_CONSTANT(Call) call, TERN_GRID_CONSTANT(Inputs<T>) x, Rows<T> dq, int tiles) {
#if defined(TERN_SIMT) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = Shape<kDim>;
  TERN_ALIGNED_DYNAMIC_SHARED(T, shared, S::FixedTile::kAlignment);
  run_query_pass<QueryPass<T, kDim, kDropout>, S>(call, x, dq, tiles, shared);
#endif
}

// ---- dk and dv

template <class T, int kDim, bool kDropout>
class KeyPass : public KeyPassTiles<T, Shape<kDim>> {
 public:
  using Base = KeyPassTiles<T, Shape<kDim>>;
  using typename Base::Columns;
  using typename Base::FixedTile;
  using typename Base::StreamedTile;
  static constexpr int kOther = StreamedTile::kRows, kTiles = kOther / 8;

  __device__ KeyPass(const Call& call, const Inputs<T>& x, const Sequence& s, int kv_head, int block_key, T* shared)
      : Base(call, x, s, kv_head, block_key, shared), group_row_(warpgroup_index() * 64) {
    const int first = block_key + group_row_;
    if (first < s.keys) seeing_ = s.queries_of(call, first, min(first + 64, s.keys) - 1);
  }

  /// Processes one tile of queries, whose copies have completed. Skipped by a warpgroup whose keys they do not see.
  __device__ void step(int head, int first_query, int stage) {
    if (first_query >= seeing_.end || first_query + kOther <= seeing_.begin) return;
    const T *queries = stage_of(stage), *dout = queries + StreamedTile::kElements;
    const Columns& columns = columns_[stage];
    FragmentC p[kTiles], ds[kTiles];
    start_rows_product<FixedTile, StreamedTile>(keys_, group_row_, queries, p);
    start_rows_product<FixedTile, StreamedTile>(values_, group_row_, dout, ds);
    [[maybe_unused]] uint32_t kept = 0;
    if constexpr (kDropout) kept = rows_.kept_in_columns(call_, head, columns);
    wgmma_wait<1>(p);
    apply_sign(call_, p);
    rows_.mask_scores(call_, s_, first_query, p);
    columns.probabilities(call_, p);
    FragmentA kept_p[kTiles / 2], weights[kTiles / 2];
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) kept_p[n / 2] = kept_left<kDropout, T>(p, n, kept);
    start_weighted_sum<StreamedTile>(kept_p, dout, dv_);
    wgmma_wait<1>(ds);
    columns.template score_gradients<kDropout>(call_, kept, p, ds);
    to_left_operands<T>(ds, weights);
    start_weighted_sum<StreamedTile>(weights, queries, dk_);
    wgmma_wait<0>(dk_, dv_);
  }

 private:
  using Base::call_, Base::columns_, Base::dk_, Base::dv_, Base::keys_, Base::rows_, Base::s_, Base::stage_of,
      Base::values_;
  int group_row_;
  Range seeing_{0, 0};  // the queries that see any of the warpgroup's keys
};

template <class T, int kDim, bool kDropout>
__global__ void __launch_bounds__(Shape<kDim>::kThreads, 1)
    flash_dkv_sm90_kernel(TERN_GRID_CONSTANT(Call) call, TERN_GRID_CONSTANT(Inputs<T>) x, Rows<T> dk, Rows<T> dv,
                          int tiles) {
#if defined(TERN_SIMT) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = Shape<kDim>;
  TERN_ALIGNED_DYNAMIC_SHARED(T, shared, S::FixedTile::kAlignment);
  run_key_pass<KeyPass<T, kDim, kDropout>, S, kDropout>(call, x, dk, dv, tiles, shared);
#endif
}

}  // namespace

void backward_sm90(Stream stream, const Call& call, const ConstView& q, const ConstView& k, const ConstView& v,
                   const ConstView& out, const ConstView& dout, const ConstView& log_sum_exp, const View& dq,
                   const View& dk, const View& dv, void* workspace) {
  dispatch_tensor_cores<64, 128>(call, q.dtype, [&]<class T, int kDim, bool kDropout>() {
    launch_passes<Shape<kDim>, T>(stream, call, flash_dq_sm90_kernel<T, kDim, kDropout>,
                                  flash_dkv_sm90_kernel<T, kDim, kDropout>, q, k, v, out, dout, log_sum_exp, dq, dk, dv,
                                  workspace);
  });
}

}  // namespace tern::kernels::cuda::attention
