// Forward pass of flash attention (Dao, arXiv:2307.08691): online softmax over tiles of keys on the tensor cores. A
// block computes a tile of queries of one head of one sequence. Warps have separate rows and synchronise only for
// tiles.

#include "tern/kernels/attention.h"

#include <atomic>

#include "tern/kernels/cuda/attention/alternative.h"
#include "tern/kernels/cuda/attention/mma.h"
#include "tern/kernels/cuda/attention/sm90.h"
#include "tern/kernels/cuda/attention/softmax.h"

namespace tern::kernels::cuda {
namespace attention {
namespace {

/// Sizes for one row length. With two tiles of 16 queries, a warp reads each right operand from shared memory once for
/// both; for long rows there are too few registers.
template <int kDim>
struct Shape {
  static constexpr int kThreads = attention::kThreads, kRowTiles = kDim <= 64 ? 2 : 1;
  using QueryTile = PaddedRows<kDim, kWarps * 16 * kRowTiles>;
  using KeyTile = PaddedRows<kDim, 64>;
  static constexpr int kElements = QueryTile::kElements + 4 * KeyTile::kElements;
  __device__ static void show_copies() {}
};

template <class T, int kDim, bool kDropout>
class Forward : public ForwardTiles<T, Shape<kDim>> {
 public:
  using Base = ForwardTiles<T, Shape<kDim>>;
  using typename Base::KeyTile;
  using typename Base::QueryTile;
  static constexpr int kRowTiles = Shape<kDim>::kRowTiles, kKeys = KeyTile::kRows, kKeyTiles = kKeys / 8;

  __device__ Forward(const Call& call, const Sequence& s, int head, int block_query, T* shared)
      : Base(call, s, head, block_query, shared), row_(warp_row() * kRowTiles), first_query_(block_query + row_) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) set_zero(state_[m].out);
  }

  /// Loads the queries into registers.
  __device__ void start() {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int c = 0; c < kDim / 16; ++c) query_[m][c] = load_left<QueryTile>(queries_, row_ + m * 16, c * 16);
    }
  }

  /// Processes one tile of keys and values, whose copies have completed.
  __device__ void step(int first_key, int stage) {
    const T *keys = stage_of(stage), *values = keys + KeyTile::kElements;
    // Random numbers are drawn before the scores are computed: the registers do not hold both.
    uint32_t kept[kRowTiles];
    if constexpr (kDropout) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        kept[m] = kept_in_rows<kKeyTiles>(call_, s_, head_, first_query_ + m * 16, first_key);
        asm volatile("" : "+r"(kept[m]));  // without this the compiler mixes them with the products
      }
    }
    FragmentC scores[kRowTiles][kKeyTiles];
    multiply_keys(keys, scores);
    const ValidKeys<kKeys> valid(call_, s_, first_key);
    const float scale = positive_scale_log2(call_);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      apply_sign(call_, scores[m]);
      mask_scores(call_, s_, valid, first_query_ + m * 16, first_key, scores[m]);
      softmax_step<kDim>(scale, scores[m], state_[m]);
      if constexpr (kDropout) drop<kKeyTiles>(kept[m], scores[m]);
    }
    multiply_values(values, scores);
  }

  __device__ void store(const Rows<T>& out, const LogSumExp<float>& log_sum_exp) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
      store_result<QueryTile>(call_, s_, head_, first_query_ + m * 16, state_[m], queries_, row_ + m * 16, out,
                              log_sum_exp);
  }

 private:
  __device__ void multiply_keys(const T* keys, FragmentC (&scores)[kRowTiles][kKeyTiles]) const {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) set_zero(scores[m]);
#pragma unroll
    for (int c = 0; c < kDim / 16; ++c) {
#pragma unroll
      for (int n = 0; n < kKeyTiles; n += 2) {
        const RightPair right = load_right_transposed<KeyTile>(keys, n * 8, c * 16);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          mma<T>(scores[m][n], query_[m][c], right.b[0]);
          mma<T>(scores[m][n + 1], query_[m][c], right.b[1]);
        }
      }
    }
  }

  __device__ void multiply_values(const T* values, const FragmentC (&p)[kRowTiles][kKeyTiles]) {
#pragma unroll
    for (int k = 0; k < kKeyTiles; k += 2) {
      FragmentA left[kRowTiles];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) left[m] = to_left<T>(p[m][k], p[m][k + 1]);
#pragma unroll
      for (int n = 0; n < kDim / 8; n += 2) {
        const RightPair right = load_right<KeyTile>(values, k * 8, n * 8);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          mma<T>(state_[m].out[n], left[m], right.b[0]);
          mma<T>(state_[m].out[n + 1], left[m], right.b[1]);
        }
      }
    }
  }

  using Base::call_, Base::head_, Base::queries_, Base::s_, Base::stage_of;
  int row_, first_query_;  // of the warp: within the tile, within the sequence
  FragmentA query_[kRowTiles][kDim / 16];
  RowState<kDim> state_[kRowTiles];
};

template <class T, int kDim, bool kDropout>
__global__ void __launch_bounds__(kThreads, 2)
    flash_forward_kernel(TERN_GRID_CONSTANT(Call) call, Rows<const T> q, Rows<const T> k, Rows<const T> v, Rows<T> out,
                         LogSumExp<float> log_sum_exp, int tiles) {
  TERN_DYNAMIC_SHARED(T, shared);
  run_forward<Forward<T, kDim, kDropout>, Shape<kDim>>(call, q, k, v, out, log_sum_exp, tiles, shared);
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
  tern_attention_forward(stream, params, q, k, v, out, log_sum_exp);
}

void tern_attention_forward(Stream stream, const AttentionParams& params, ConstView q, ConstView k, ConstView v,
                            View out, View log_sum_exp) {
  using namespace attention;
  const Call call(params);
  if (call.heads == 0) return;
  const bool aligned = has_aligned_rows(q) && has_aligned_rows(k) && has_aligned_rows(v) && has_aligned_rows(out);
  if (!aligned || !takes_tensor_cores(call, q.dtype)) return block_forward(stream, call, q, k, v, out, log_sum_exp);
  if (takes_wgmma(stream, call)) return forward_sm90(stream, call, q, k, v, out, log_sum_exp);
  dispatch_tensor_cores<32, 64, 96, 128>(call, q.dtype, [&]<class T, int kDim, bool kDropout>() {
    launch_forward<Shape<kDim>, T>(stream, call, flash_forward_kernel<T, kDim, kDropout>, q, k, v, out, log_sum_exp);
  });
}

}  // namespace tern::kernels::cuda
