// Backward pass of flash attention (Dao, arXiv:2307.08691). Scores are recomputed by tiles from log_sum_exp:
//   P = exp(S - lse), dP = keep dO V^T, dS = P (dP - delta), dV = (keep P)^T dO, dK = dS^T Q, dQ = dS K.
// Two passes, so that each output has one writer and a fixed order of sums. In the first, a block holds a tile of
// queries and iterates over the keys to compute dq. In the second, a block holds a tile of keys and iterates over the
// queries of all heads of its group to compute dk and dv. The first also stores delta for the second.

#include "tern/kernels/attention.h"

#include "tern/kernels/cuda/attention/alternative.h"
#include "tern/kernels/cuda/attention/mma.h"
#include "tern/kernels/cuda/attention/passes.h"
#include "tern/kernels/cuda/attention/sm90.h"

namespace tern::kernels::cuda {
namespace attention {
namespace {

/// In both passes a block holds 64 rows, 16 per warp.
template <int kDim>
struct Shape {
  static constexpr int kThreads = attention::kThreads;
  using FixedTile = PaddedRows<kDim, kWarps * 16>;
  using StreamedTile = PaddedRows<kDim, kDim <= 64 ? 64 : 32>;
  static constexpr int kElements = 2 * FixedTile::kElements + 4 * StreamedTile::kElements;
  __device__ static void show_copies() {}
};

/// c += rows row .. row + 15 of `left` times the transpose of all rows of `right`.
template <class Left, class Right, class T, int kTiles>
__device__ void multiply_transposed(const T* left, int row, const T* right, FragmentC (&c)[kTiles]) {
#pragma unroll
  for (int k = 0; k < Left::kDim / 16; ++k) {
    const FragmentA a = load_left<Left>(left, row, k * 16);
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      const RightPair b = load_right_transposed<Right>(right, n * 8, k * 16);
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
class QueryPass : public QueryPassTiles<T, Shape<kDim>> {
 public:
  using Base = QueryPassTiles<T, Shape<kDim>>;
  using Base::Base;
  using typename Base::FixedTile;
  using typename Base::StreamedTile;
  static constexpr int kOther = StreamedTile::kRows, kTiles = kOther / 8;

  /// Processes one tile of keys and values, whose copies have completed.
  __device__ void step(int first_key, int stage, bool only_tile) {
    const T *keys = stage_of(stage), *values = keys + StreamedTile::kElements;
    // Random numbers are drawn before the scores are computed: the registers do not hold both.
    [[maybe_unused]] uint32_t kept = 0;
    if constexpr (kDropout) kept = kept_in_rows<kTiles>(call_, s_, head_, rows_.first, first_key);
    FragmentC p[kTiles], ds[kTiles];
    set_zero(p);
    set_zero(ds);
    multiply_transposed<FixedTile, StreamedTile>(queries_, warp_row(), keys, p);
    apply_sign(call_, p);
    mask_scores(call_, s_, ValidKeys<kOther>(call_, s_, first_key), rows_.first, first_key, p);
    multiply_transposed<FixedTile, StreamedTile>(dout_, warp_row(), values, ds);
    rows_.probabilities(call_, p);
    rows_.template score_gradients<kDropout>(call_, kept, p, only_tile, ds);
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) multiply<StreamedTile>(to_left<T>(ds[n], ds[n + 1]), keys, n * 8, dq_);
  }

 private:
  using Base::call_, Base::dout_, Base::dq_, Base::head_, Base::queries_, Base::rows_, Base::s_, Base::stage_of;
};

/// Minimum number of blocks per multiprocessor. With a bound of three, ptxas saves the few registers that rows of 64
/// without dropout would exceed it by. With dropout it would spill registers for three blocks on sm_100; on sm_120,
/// whose shared memory holds one block of such rows, for more than one.
template <int kDim, bool kDropout>
constexpr int query_blocks() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
  if (kDim > 32) return 1;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
  if (kDim > 32 && kDropout) return 2;
#endif
  return kDim <= 96 ? 3 : 2;
}

template <class T, int kDim, bool kDropout>
__global__ void __launch_bounds__(kThreads, query_blocks<kDim, kDropout>())
    flash_dq_kernel(TERN_GRID_CONSTANT(Call) call, TERN_GRID_CONSTANT(Inputs<T>) x, Rows<T> dq, int tiles) {
  TERN_DYNAMIC_SHARED(T, shared);
  run_query_pass<QueryPass<T, kDim, kDropout>, Shape<kDim>>(call, x, dq, tiles, shared);
}

// ---- dk and dv

template <class T, int kDim, bool kDropout>
class KeyPass : public KeyPassTiles<T, Shape<kDim>> {
 public:
  using Base = KeyPassTiles<T, Shape<kDim>>;
  using Base::Base;
  using typename Base::Columns;
  using typename Base::FixedTile;
  using typename Base::StreamedTile;
  static constexpr int kTiles = StreamedTile::kRows / 8;

  /// Processes one tile of queries, whose copies have completed.
  __device__ void step(int head, int first_query, int stage) {
    const T *queries = stage_of(stage), *dout = queries + StreamedTile::kElements;
    const Columns& columns = columns_[stage];
    [[maybe_unused]] uint32_t kept = 0;
    if constexpr (kDropout) kept = rows_.kept_in_columns(call_, head, columns);  // before the scores, as above
    FragmentC p[kTiles], ds[kTiles];
    set_zero(p);
    set_zero(ds);
    multiply_transposed<FixedTile, StreamedTile>(keys_, warp_row(), queries, p);
    multiply_transposed<FixedTile, StreamedTile>(values_, warp_row(), dout, ds);
    apply_sign(call_, p);
    rows_.mask_scores(call_, s_, first_query, p);
    columns.probabilities(call_, p);
    columns.template score_gradients<kDropout>(call_, kept, p, ds);
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) multiply<StreamedTile>(kept_left<kDropout, T>(p, n, kept), dout, n * 8, dv_);
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) multiply<StreamedTile>(to_left<T>(ds[n], ds[n + 1]), queries, n * 8, dk_);
  }

 private:
  using Base::call_, Base::columns_, Base::dk_, Base::dv_, Base::keys_, Base::rows_, Base::s_, Base::stage_of,
      Base::values_;
};

template <class T, int kDim, bool kDropout>
__global__ void __launch_bounds__(kThreads, 2)
    flash_dkv_kernel(TERN_GRID_CONSTANT(Call) call, TERN_GRID_CONSTANT(Inputs<T>) x, Rows<T> dk, Rows<T> dv,
                     int tiles) {
  TERN_DYNAMIC_SHARED(T, shared);
  run_key_pass<KeyPass<T, kDim, kDropout>, Shape<kDim>, kDropout>(call, x, dk, dv, tiles, shared);
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
  tern_attention_backward(stream, params, q, k, v, out, dout, log_sum_exp, dq, dk, dv, dbias, workspace);
}

void tern_attention_backward(Stream stream, const AttentionParams& params, ConstView q, ConstView k, ConstView v,
                             ConstView out, ConstView dout, ConstView log_sum_exp, View dq, View dk, View dv,
                             View dbias, void* workspace) {
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
    launch_passes<Shape<kDim>, T>(stream, call, flash_dq_kernel<T, kDim, kDropout>, flash_dkv_kernel<T, kDim, kDropout>,
                                  q, k, v, out, dout, log_sum_exp, dq, dk, dv, workspace);
  });
}

}  // namespace tern::kernels::cuda
