#pragma once
// Tiles of 16-bit rows in shared memory, and flash attention's operations on a warp's 16 rows of scores in registers:
// masks, dropout, output. The kernels differ in the instruction that multiplies: mma.sync (attention/forward.cu,
// attention/backward.cu) or, on sm_90a, wgmma (attention/forward_sm90.cu, attention/backward_sm90.cu).

#include "tern/kernels/cuda/attention/call.h"
#include "tern/kernels/cuda/support/mma.h"
#include "tern/kernels/cuda/support/reduce.h"

namespace tern::kernels::cuda::attention {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

/// 2^x with a relative error of 2^-22; 0 for results below 2^-126.
__device__ inline float fast_exp2(float x) {
#ifdef TERN_SIMT
  return std::exp2(x);
#else
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#endif
}

/// The scale's magnitude in base 2, never zero, so that it can multiply -infinity.
__device__ inline float positive_scale_log2(const Call& call) {
  const float scale = fabsf(static_cast<float>(call.scale)) * kLog2e;
  return scale == 0 ? 1e-30f : scale;
}

/// First row of the warp among its block's rows; a warp has 16.
__device__ inline int warp_row() { return static_cast<int>(threadIdx.x) / kWarpSize * 16; }

/// Starts copying Tile::kRows rows of head_dim values, `stride` apart, to a tile; all kThreads threads of the block
/// call it. Rows for which on(row) is false, and columns from head_dim on, become zeros: values of padding, NaN
/// included, must not enter a product.
template <class Tile, int kThreads, class T, class On>
__device__ void load_tile(const T* from, int64_t stride, int head_dim, T* tile, const On& on) {
  constexpr int kPieces = Tile::kDim / 8, kOfThread = Tile::kRows * kPieces / kThreads;
  static_assert(kOfThread * kThreads == Tile::kRows * kPieces);
#pragma unroll 2
  for (int n = 0; n < kOfThread; ++n) {
    const int i = n * kThreads + static_cast<int>(threadIdx.x), row = i / kPieces, col = i % kPieces * 8;
    const bool valid = col < head_dim && on(row);
    cp_async16(tile + Tile::at(row, col), valid ? from + row * stride + col : from, valid);
  }
}
/// Copies the same rows of two tensors to two consecutive tiles.
template <class Tile, int kThreads, class T, class On>
__device__ void load_tiles(const Call& call, const Rows<const T>& first, const Rows<const T>& second, int64_t token,
                           int64_t head, T* tiles, const On& on) {
  load_tile<Tile, kThreads>(first.at(token, head), first.token_stride, call.head_dim, tiles, on);
  load_tile<Tile, kThreads>(second.at(token, head), second.token_stride, call.head_dim, tiles + Tile::kElements, on);
}

/// Converts two neighbouring 16 x 8 results to one 16 x 16 left operand.
template <class T>
__device__ FragmentA to_left(const FragmentC& first, const FragmentC& second) {
  return {{pack2<T>(first.r[0], first.r[1]), pack2<T>(first.r[2], first.r[3]), pack2<T>(second.r[0], second.r[1]),
           pack2<T>(second.r[2], second.r[3])}};
}

template <int kCount>
__device__ void set_zero(FragmentC (&c)[kCount]) {
#pragma unroll
  for (int n = 0; n < kCount; ++n) c[n] = {{0, 0, 0, 0}};
}

/// The sum of a row's values over the four lanes that hold it.
__device__ inline float quad_sum(float x) { return warp_sum<4>(x); }
/// The largest of a row's values, ignoring NaN.
__device__ inline float quad_max(float x) {
#pragma unroll
  for (int distance = 2; distance > 0; distance /= 2) x = fmaxf(x, shuffle_xor(x, distance));
  return x;
}

/// One bit for each of kKeys keys from first_key on: the key exists and is not masked. The whole warp calls it.
template <int kKeys>
struct ValidKeys {
  uint32_t word[kKeys / 32];
  __device__ ValidKeys(const Call& call, const Sequence& s, int first_key) {
#pragma unroll
    for (int w = 0; w < kKeys / 32; ++w)
      word[w] = __ballot_sync(kFullWarp, s.is_valid(call, first_key + w * 32 + static_cast<int>(threadIdx.x) % 32));
  }
  __device__ bool all() const {
    uint32_t both = ~0u;
#pragma unroll
    for (int w = 0; w < kKeys / 32; ++w) both &= word[w];
    return both == ~0u;
  }
  /// The bit of key 8 * n + within.
  __device__ bool has(int n, int within) const { return (word[n / 4] >> (n % 4 * 8 + within) & 1) != 0; }
};

/// Sets scores to -infinity where a query may not see the key. `scores`: those of a warp's 16 queries from first_query
/// on and the keys from first_key on.
template <int kTiles>
__device__ void mask_scores(const Call& call, const Sequence& s, const ValidKeys<kTiles * 8>& valid, int first_query,
                            int first_key, FragmentC (&scores)[kTiles]) {
  if (valid.all() && s.all_seen(call, first_query, first_query + 15, {first_key, first_key + kTiles * 8})) return;
  const int lane = threadIdx.x % kWarpSize;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Range range = s.keys_of(call, first_query + lane / 4 + half * 8);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int within = lane % 4 * 2 + j, key = first_key + n * 8 + within;
        const bool seen = key >= range.begin && key < range.end && valid.has(n, within);
        if (!seen) scores[n].r[half * 2 + j] = -kInfinity;
      }
    }
  }
}

/// Applies the sign of the scale; its magnitude is applied later, so that -infinity remains.
template <int kTiles>
__device__ void apply_sign(const Call& call, FragmentC (&scores)[kTiles]) {
  if (call.scale >= 0) return;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (float& x : scores[n].r) x = -x;
  }
}

/// The dropout mask of a Philox block's eight numbers, one bit each.
__device__ inline uint32_t kept_of_block(const Call& call, const Philox4& words) {
  if (call.threshold > 0xffff) return 0;
  const uint32_t threshold = call.threshold << 16;
  uint32_t kept = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (words.word[i] << 16 >= threshold) kept |= 1u << (2 * i);  // the lower half
    if (words.word[i] >= threshold) kept |= 2u << (2 * i);
  }
  return kept;
}

/// The dropout mask of a lane's values in a warp's 16 x (8 kTiles) scores, of queries from first_query on and keys from
/// first_key (a multiple of 8) on; read by is_kept. One Philox block covers 8 keys of a query, held by four lanes: each
/// lane draws every fourth block (a byte of `drawn`) and passes the word to the other three.
template <int kTiles>
__device__ uint32_t kept_in_rows(const Call& call, const Sequence& s, int head, int first_query, int first_key) {
  static_assert(kTiles % 4 == 0 && kTiles <= 8);
  const int quarter = threadIdx.x % 4, query = first_query + static_cast<int>(threadIdx.x) % kWarpSize / 4;
  const uint64_t key = philox_key(call.random);
  uint32_t drawn = 0, kept = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint64_t row = s.row_key(call, query + 8 * half);
#pragma unroll
    for (int n = 0; n < kTiles; n += 4) {
      const Philox4 words =
          philox(key, row, static_cast<uint32_t>(head), static_cast<uint32_t>(first_key / 8 + n + quarter));
      drawn |= kept_of_block(call, words) << (half * 2 * kTiles + 2 * n);
    }
  }
#pragma unroll
  for (int distance = 0; distance < 4; ++distance) {
    const uint32_t word = distance == 0 ? drawn : shuffle_xor(drawn, distance);
    kept |= (word >> (2 * quarter) & 0x03030303u) << (2 * (quarter ^ distance));  // two numbers of each block
  }
  return kept;
}
/// True when value i of the FragmentC of column tile n is kept.
template <int kTiles>
__device__ bool is_kept(uint32_t kept, int n, int i) {
  return (kept >> (i / 2 * 2 * kTiles + 2 * n + i % 2) & 1) != 0;
}

/// Writes a warp's 16 rows of sums, multiplied by factor[0] (rows 0 to 7) and factor[1], to global memory in 16-byte
/// pieces. The rows from `row` on of a tile that is no longer used serve as a buffer. Rows from `count` on are skipped.
template <class Tile, class T>
__device__ void store_rows(const FragmentC (&sum)[Tile::kDim / 8], const float (&factor)[2], T* tile, int row, T* to,
                           int64_t stride, int count, int head_dim) {
  constexpr int kPieces = Tile::kDim / 8;
  const int lane = threadIdx.x % kWarpSize;
  __syncwarp();
#pragma unroll
  for (int n = 0; n < kPieces; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      T* at = tile + Tile::at(row + lane / 4 + half * 8, n * 8 + lane % 4 * 2);
      const Vector<uint32_t, 1> pair{
          {pack2<T>(sum[n].r[half * 2] * factor[half], sum[n].r[half * 2 + 1] * factor[half])}};
      store_vector(reinterpret_cast<uint32_t*>(at), pair);
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = lane; i < 16 * kPieces; i += kWarpSize) {
    const int r = i / kPieces, col = i % kPieces * 8;
    if (r < count && col < head_dim) store_vector(to + r * stride + col, load_vector<8>(tile + Tile::at(row + r, col)));
  }
}

}  // namespace tern::kernels::cuda::attention
