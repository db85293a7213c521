#pragma once
// Vector registers, matrix tiles, exponential and random numbers of the attention kernels, in GCC vector extensions:
// one source gives SSE, AVX2 and AVX-512 code. The CPU level's namespace prevents merging across levels by the linker.

#include <immintrin.h>

#include <bit>
#include <cstdint>
#include <utility>

#include "tern/kernels/random.h"

namespace tern::kernels::TERN_CPU::attention {

#if defined(TERN_CPU_v4)
inline constexpr int kVectorBytes = 64, kTileRows = 8;
#elif defined(TERN_CPU_v3)
inline constexpr int kVectorBytes = 32, kTileRows = 6;
#else
inline constexpr int kVectorBytes = 16, kTileRows = 6;
#endif
inline constexpr int kWidth = kVectorBytes / 4;  // floats in a register
inline constexpr int kTileVectors = 2;           // a tile is kTileRows x (kTileVectors * kWidth) floats

typedef float Vec __attribute__((vector_size(kVectorBytes), may_alias));
typedef int32_t IntVec __attribute__((vector_size(kVectorBytes), may_alias));
typedef uint32_t WordVec __attribute__((vector_size(kVectorBytes), may_alias));
typedef uint64_t LongVec __attribute__((vector_size(kVectorBytes), may_alias));

inline Vec splat(float value) { return value - Vec{}; }
inline IntVec splat_int(int32_t value) { return value - IntVec{}; }
/// Aligned access: every block in the workspace begins at a register boundary.
inline Vec load(const float* p) { return *reinterpret_cast<const Vec*>(p); }
inline Vec load_unaligned(const float* p) {
  typedef float Unaligned __attribute__((vector_size(kVectorBytes), may_alias, aligned(4)));
  return *reinterpret_cast<const Unaligned*>(p);
}
inline void store(float* p, Vec v) { *reinterpret_cast<Vec*>(p) = v; }

/// 2^x with an error of one unit in the last place, for x up to slightly above 0. Below 2^-80 the result is 0, which is
/// negligible against a row's largest probability of 1 and avoids denormal results. NaN stays NaN.
inline Vec exp2(Vec x) {
  const float shifter = 0x1.8p23f;  // adding it rounds to an integer in the low bits
  const Vec shifted = x + shifter;
  const Vec f = x - (shifted - shifter);
  Vec p = 1.3276471992851953e-3f * f + 9.675541334449414e-3f;  // minimax for the relative error on [-0.5, 0.5]
  p = p * f + 5.550713273496898e-2f;
  p = p * f + 2.4022119723840105e-1f;
  p = p * f + 6.931469670647613e-1f;
  p = p * f + 1.0000000716546849f;
  const WordVec exponent = (reinterpret_cast<const WordVec&>(shifted) << 23) + 0x3f800000u;  // may wrap below -80
  return x < splat(-80.0f) ? splat(0.0f) : p * reinterpret_cast<const Vec&>(exponent);
}

// ---- matrix product ----------------------------------------------------------------------------------------------

/// c (+)= a b for a tile of kRows x (kVectors * kWidth) held in registers. Element k of row m of a is a[m * lda + k],
/// or a[k * lda + m] when kTransposed.
template <bool kTransposed, bool kAccumulate, int kRows, int kVectors>
inline void tile(int64_t depth, const float* a, int64_t lda, const float* b, int64_t ldb, float* c, int64_t ldc) {
  Vec sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) sum[m][n] = kAccumulate ? load(c + m * ldc + n * kWidth) : Vec{};
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vec right[kVectors];
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) right[n] = load(b + k * ldb + n * kWidth);
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      const Vec left = splat(kTransposed ? a[k * lda + m] : a[m * lda + k]);
#pragma GCC unroll 4
      for (int n = 0; n < kVectors; ++n) sum[m][n] += left * right[n];
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) store(c + m * ldc + n * kWidth, sum[m][n]);
  }
}

/// The last rows of a panel: selects the tile with `rows` rows, 1 <= rows < kTileRows.
template <bool kTransposed, bool kAccumulate, int kVectors, int... kHeights>
inline void last_tile(std::integer_sequence<int, kHeights...>, int64_t rows, int64_t depth, const float* a, int64_t lda,
                      const float* b, int64_t ldb, float* c, int64_t ldc) {
  (void)((rows == kHeights + 1 &&
          (tile<kTransposed, kAccumulate, kHeights + 1, kVectors>(depth, a, lda, b, ldb, c, ldc), true)) ||
         ...);
}

template <bool kTransposed, bool kAccumulate, int kVectors>
inline void panel(int64_t rows, int64_t depth, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
                  int64_t ldc) {
  const int64_t step = kTransposed ? 1 : lda;
  int64_t m = 0;
  for (; m + kTileRows <= rows; m += kTileRows) {
    tile<kTransposed, kAccumulate, kTileRows, kVectors>(depth, a + m * step, lda, b, ldb, c + m * ldc, ldc);
  }
  last_tile<kTransposed, kAccumulate, kVectors>(std::make_integer_sequence<int, kTileRows - 1>(), rows - m, depth,
                                                a + m * step, lda, b, ldb, c + m * ldc, ldc);
}

/// c[rows, cols] (+)= a[rows, depth] b[depth, cols]; a is stored [depth, rows] when kTransposed. cols is a multiple of
/// kWidth; rows of b and c begin at register boundaries.
template <bool kTransposed, bool kAccumulate>
void multiply(int64_t rows, int64_t cols, int64_t depth, const float* a, int64_t lda, const float* b, int64_t ldb,
              float* c, int64_t ldc) {
  int64_t n = 0;
  for (; n + kTileVectors * kWidth <= cols; n += kTileVectors * kWidth) {
    panel<kTransposed, kAccumulate, kTileVectors>(rows, depth, a, lda, b + n, ldb, c + n, ldc);
  }
  for (; n < cols; n += kWidth) panel<kTransposed, kAccumulate, 1>(rows, depth, a, lda, b + n, ldb, c + n, ldc);
}

// ---- transposition -----------------------------------------------------------------------------------------------

/// Selects lanes by index from a followed by b.
inline Vec shuffle(const Vec& a, const Vec& b, const IntVec& index) {
#ifdef __clang__  // clang's shuffle requires constant indices
  Vec result = {};
  for (int lane = 0; lane < kWidth; ++lane)
    result[lane] = index[lane] < kWidth ? a[index[lane]] : b[index[lane] - kWidth];
  return result;
#else
  return __builtin_shuffle(a, b, index);
#endif
}

/// One butterfly step: exchanges the off-diagonal kStep x kStep blocks of a kWidth x kWidth matrix of rows.
template <int kStep>
inline void exchange(Vec* row) {
  IntVec upper = {}, lower = {};
#pragma GCC unroll 16
  for (int lane = 0; lane < kWidth; ++lane) {
    upper[lane] = (lane & kStep) ? kWidth + lane - kStep : lane;
    lower[lane] = (lane & kStep) ? kWidth + lane : lane + kStep;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kWidth; ++i) {
    if (i & kStep) continue;
    const Vec a = row[i], b = row[i + kStep];
    row[i] = shuffle(a, b, upper);
    row[i + kStep] = shuffle(a, b, lower);
  }
}

/// to[c][r] = scale * from[r][c] for rows x cols floats, both multiples of kWidth.
inline void transpose(int64_t rows, int64_t cols, const float* from, int64_t from_stride, float scale, float* to,
                      int64_t to_stride) {
  for (int64_t r = 0; r < rows; r += kWidth) {
    for (int64_t c = 0; c < cols; c += kWidth) {
      Vec row[kWidth];
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) row[i] = load(from + (r + i) * from_stride + c) * scale;
      exchange<1>(row);
      exchange<2>(row);
      if constexpr (kWidth > 4) exchange<4>(row);
      if constexpr (kWidth > 8) exchange<8>(row);
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) store(to + (c + i) * to_stride + r, row[i]);
    }
  }
}

// ---- random numbers ----------------------------------------------------------------------------------------------

/// Multiplies the low halves of 64-bit lanes.
inline LongVec multiply_low_halves(LongVec a, LongVec b) {
#if defined(TERN_CPU_v4)
  // The masked form: in GCC 12 the plain one reads an undefined register, which causes a warning.
  return reinterpret_cast<LongVec>(
      _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(TERN_CPU_v3)
  return reinterpret_cast<LongVec>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  return reinterpret_cast<LongVec>(_mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#endif
}

/// philox() of random.h for kWidth rows at once: the mask of kept elements for 8 consecutive columns of each row.
class DropoutMask {
 public:
  DropoutMask(uint64_t key, uint32_t threshold) : threshold_(static_cast<int32_t>(threshold)) {
    uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u) {
      key0_[round] = k0;
      key1_[round] = k1;
    }
  }

  /// The four words of kWidth rows; lane i of words[w] is for row key even[i / 2] or odd[i / 2].
  void draw(LongVec even, LongVec odd, uint32_t lane, uint32_t block, IntVec words[4]) const {
    LongVec e[4], o[4];
    rounds(even, lane, block, e);
    rounds(odd, lane, block, o);
#pragma GCC unroll 4
    for (int w = 0; w < 4; ++w) words[w] = reinterpret_cast<IntVec>((e[w] & 0xffffffffull) | (o[w] << 32));
  }

  /// All ones in the lanes that keep column 2 * w (kHigh: 2 * w + 1) of the block; `word` is its word w.
  template <bool kHigh>
  IntVec keeps(IntVec word) const {
    const IntVec half = kHigh ? (word >> 16) & 0xffff : word & 0xffff;
    return half >= splat_int(threshold_);
  }

 private:
  /// Ten rounds on 64-bit lanes. Only the low halves are valid: multiplications ignore the high ones.
  void rounds(LongVec row, uint32_t lane, uint32_t block, LongVec c[4]) const {
    const LongVec zero = {};
    const LongVec m0 = 0xd2511f53ull + zero, m1 = 0xcd9e8d57ull + zero;
    LongVec c0 = block + zero, c1 = lane + zero, c2 = row, c3 = row >> 32;
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const LongVec p0 = multiply_low_halves(c0, m0), p1 = multiply_low_halves(c2, m1);
      c0 = (p1 >> 32) ^ c1 ^ (key0_[round] + zero);
      c1 = p1;
      c2 = (p0 >> 32) ^ c3 ^ (key1_[round] + zero);
      c3 = p0;
    }
    c[0] = c0;
    c[1] = c1;
    c[2] = c2;
    c[3] = c3;
  }

  uint64_t key0_[10], key1_[10];
  int32_t threshold_;
};

}  // namespace tern::kernels::TERN_CPU::attention
