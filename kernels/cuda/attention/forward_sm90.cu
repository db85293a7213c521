// Forward pass of flash attention for sm_90a: attention/forward.cu with wgmma (Shah et al., FlashAttention-3,
// arXiv:2407.08608, but without producer warps: cp.async copies rows of packed sequences and skips those that are
// masked or of another sequence). A warpgroup has 64 queries; while one waits for the tensor cores, the other
// warpgroups of the multiprocessor compute their softmax.

#include "tern/kernels/cuda/attention/sm90.h"
#include "tern/kernels/cuda/attention/softmax.h"

namespace tern::kernels::cuda::attention {
namespace {

template <int kDim>
struct Shape {
  static constexpr int kWarpgroups = 2, kThreads = kWarpgroups * kWarpgroupSize;
  static constexpr int kBlocks = kDim <= 64 ? 2 : 1;  // per multiprocessor, limited by registers
  using QueryTile = SwizzledRows<kDim, kWarpgroups * 64>;
  using KeyTile = SwizzledRows<kDim, 64>;
  static constexpr int kElements = QueryTile::kElements + 4 * KeyTile::kElements;
  __device__ static void show_copies() { async_proxy_fence(); }
};

template <class T, int kDim, bool kDropout>
class Forward : public ForwardTiles<T, Shape<kDim>> {
 public:
  using Base = ForwardTiles<T, Shape<kDim>>;
  using typename Base::KeyTile;
  using typename Base::QueryTile;
  static constexpr int kKeys = KeyTile::kRows, kKeyTiles = kKeys / 8;

  __device__ Forward(const Call& call, const Sequence& s, int head, int block_query, T* shared)
      : Base(call, s, head, block_query, shared), group_row_(warpgroup_index() * 64) {
    set_zero(state_.out);
    const int first = block_query + group_row_;
    if (first < s.queries) keys_ = s.keys_of(call, first, min(first + 64, s.queries) - 1);
  }
  __device__ void start() {}

  /// Processes one tile of keys and values, whose copies have completed. Skipped by a warpgroup whose queries see none.
  __device__ void step(int first_key, int stage) {
    if (first_key >= keys_.end || first_key + kKeys <= keys_.begin) return;
    const T *keys = stage_of(stage), *values = keys + KeyTile::kElements;
    FragmentC scores[kKeyTiles];
    start_rows_product<QueryTile, KeyTile>(queries_, group_row_, keys, scores);
    [[maybe_unused]] uint32_t kept = 0;
    if constexpr (kDropout) kept = kept_in_rows<kKeyTiles>(call_, s_, head_, first_query(), first_key);
    const ValidKeys<kKeys> valid(call_, s_, first_key);
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

  __device__ void store(const Rows<T>& out, const LogSumExp<float>& log_sum_exp) {
    store_result<QueryTile>(call_, s_, head_, first_query(), state_, queries_, warp_row(), out, log_sum_exp);
  }

 private:
  __device__ int first_query() const { return block_query_ + warp_row(); }

  using Base::block_query_, Base::call_, Base::head_, Base::queries_, Base::s_, Base::stage_of;
  int group_row_;
  Range keys_{0, 0};  // keys that the warpgroup's queries see
  RowState<kDim> state_;
};

template <class T, int kDim, bool kDropout>
__global__ void __launch_bounds__(Shape<kDim>::kThreads, Shape<kDim>::kBlocks)
    flash_forward_sm90_kernel(TERN_GRID_CONSTANT(Call) call, Rows<const T> q, Rows<const T> k, Rows<const T> v,
                              Rows<T> out, LogSumExp<float> log_sum_exp, int tiles) {
#if defined(TERN_SIMT) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = Shape<kDim>;
  TERN_ALIGNED_DYNAMIC_SHARED(T, shared, S::QueryTile::kAlignment);
  run_forward<Forward<T, kDim, kDropout>, S>(call, q, k, v, out, log_sum_exp, tiles, shared);
#endif
}

}  // namespace

void forward_sm90(Stream stream, const Call& call, const ConstView& q, const ConstView& k, const ConstView& v,
                  const View& out, const View& log_sum_exp) {
  dispatch_tensor_cores<64, 128>(call, q.dtype, [&]<class T, int kDim, bool kDropout>() {
    launch_forward<Shape<kDim>, T>(stream, call, flash_forward_sm90_kernel<T, kDim, kDropout>, q, k, v, out,
                                   log_sum_exp);
  });
}

}  // namespace tern::kernels::cuda::attention
