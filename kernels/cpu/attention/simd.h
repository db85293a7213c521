#pragma once
// Products, transpositions, exponentials and random numbers of the attention kernels, in vectors as wide as the level's
// registers.

#include <immintrin.h>

#include "tern/kernels/cpu/simd/register_tile.h"
#include "tern/kernels/random.h"

namespace tern::kernels::TERN_CPU::attention {

inline constexpr int kWidth = kRegisterBytes / 4;  // floats in a register
// A tile of a product is kTileRows rows of kTileVectors registers.
inline constexpr int kTileRows = kRegisterBytes == 64 ? 8 : 6, kTileVectors = 2;

using Vec = Vector<float, kRegisterBytes>;
using IntVec = Vector<int32_t, kRegisterBytes>;
using WordVec = Vector<uint32_t, kRegisterBytes>;
using LongVec = Vector<uint64_t, kRegisterBytes>;

inline Vec splat(float value) { return value - Vec{}; }
inline IntVec splat_int(int32_t value) { return value - IntVec{}; }
inline Vec load(const float* p) { return load_vector<kRegisterBytes>(p); }
inline void store(float* p, Vec v) { store_vector(p, v); }

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
  const WordVec exponent = (reinterpret_cast<WordVec>(shifted) << 23) + 0x3f800000u;  // may wrap below -80
  return x < splat(-80.0f) ? splat(0.0f) : p * reinterpret_cast<Vec>(exponent);
}

/// c[rows, cols] (+)= a[rows, depth] b[depth, cols]; a is stored [depth, rows] when kTransposed. cols is a multiple of
/// kWidth; rows of b and c begin at register boundaries.
template <bool kTransposed, bool kAccumulate>
void multiply(int64_t rows, int64_t cols, int64_t depth, const float* a, int64_t lda, const float* b, int64_t ldb,
              float* c, int64_t ldc) {
  using Left = std::conditional_t<kTransposed, LeftColumns<float>, LeftRows<float>>;
  const auto panel = [&]<int kVectors>(int64_t n) {
    for_rows<kTileRows>(rows, [&]<int kRows>(int64_t m) {
      RegisterTile<kRows, kVectors, float, kRegisterBytes> tile;
      const auto row = [&](int r) { return c + (m + r) * ldc + n; };
      if constexpr (kAccumulate) tile.load(row);
      tile.multiply(depth, Left{a + m * (kTransposed ? 1 : lda), lda}, b + n, ldb);
      tile.store(row);
    });
  };
  int64_t n = 0;
  for (; n + kTileVectors * kWidth <= cols; n += kTileVectors * kWidth) panel.template operator()<kTileVectors>(n);
  for (; n < cols; n += kWidth) panel.template operator()<1>(n);
}

/// to[c][r] = scale * from[r][c] for rows x cols floats, both multiples of kWidth.
inline void transpose(int64_t rows, int64_t cols, const float* from, int64_t from_stride, float scale, float* to,
                      int64_t to_stride) {
  for (int64_t r = 0; r < rows; r += kWidth) {
    for (int64_t c = 0; c < cols; c += kWidth) {
      Vec row[kWidth];
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) row[i] = load(from + (r + i) * from_stride + c) * scale;
      transpose_square(row);
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) store(to + (c + i) * to_stride + r, row[i]);
    }
  }
}

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
