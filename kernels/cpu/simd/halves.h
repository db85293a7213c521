#pragma once
// Conversion of contiguous bfloat16 and float16 elements to floats and back, with the values of types.h. The compiler's
// vectors of those functions take twice as many instructions. Included only by kernels/cpu.

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <type_traits>

#include "tern/kernels/types.h"

namespace tern::kernels::TERN_CPU {
namespace {

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

// Vectors of the level: kHalfWidth floats, and the same elements with 16 bits. narrow_pair() takes two of the former.
#if defined(__AVX512BW__)
inline constexpr int64_t kHalfWidth = 16;

inline __m512 load_halves(const BFloat16* x) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline __m512 load_halves(const Float16* x) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
}
inline void store_floats(float* y, __m512 x) { _mm512_storeu_ps(y, x); }

/// The bfloat16 is the upper half of each word.
inline __m512i round_to_bfloat16(const float* x) {
  const __m512i bits = _mm512_loadu_si512(x);
  const __mmask16 is_odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(_mm512_castsi512_ps(bits), _mm512_castsi512_ps(bits), _CMP_UNORD_Q);
  const __m512i half = _mm512_mask_blend_epi32(is_odd, _mm512_set1_epi32(0x7fff), _mm512_set1_epi32(0x8000));
  return _mm512_mask_or_epi32(_mm512_add_epi32(bits, half), is_nan, bits, _mm512_set1_epi32(0x400000));
}
inline void narrow_pair(const float* x, BFloat16* y) {
  typedef int16_t Indices __attribute__((vector_size(64)));
  constexpr Indices kUpper = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                              33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  const __m512i low = round_to_bfloat16(x), high = round_to_bfloat16(x + kHalfWidth);
  _mm512_storeu_si512(y, _mm512_permutex2var_epi16(low, reinterpret_cast<__m512i>(kUpper), high));
}
inline __m256i round_to_float16(const float* x) {
  const __m512i bits = _mm512_loadu_si512(x);
  const __mmask16 is_nan = _mm512_cmp_ps_mask(_mm512_castsi512_ps(bits), _mm512_castsi512_ps(bits), _CMP_UNORD_Q);
  // A NaN keeps its sign alone: (bits & sign) | quiet.
  const __m512i sign = _mm512_set1_epi32(INT32_MIN), quiet = _mm512_set1_epi32(0x7fc00000);
  const __m512i kept = _mm512_mask_ternarylogic_epi32(bits, is_nan, sign, quiet, 0xea);
  return _mm512_cvtps_ph(_mm512_castsi512_ps(kept), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline void narrow_pair(const float* x, Float16* y) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), round_to_float16(x));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(y + kHalfWidth), round_to_float16(x + kHalfWidth));
}
#elif defined(__AVX2__)
inline constexpr int64_t kHalfWidth = 8;

inline __m256 load_halves(const BFloat16* x) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline __m256 load_halves(const Float16* x) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
}
inline void store_floats(float* y, __m256 x) { _mm256_storeu_ps(y, x); }

/// The bfloat16 is the lower half of each word, the upper one is 0.
inline __m256i round_to_bfloat16(const float* x) {
  const __m256 value = _mm256_loadu_ps(x);
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256 is_nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
  const __m256 result = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), is_nan);
  return _mm256_srli_epi32(_mm256_castps_si256(result), 16);
}
inline void narrow_pair(const float* x, BFloat16* y) {
  const __m256i packed = _mm256_packus_epi32(round_to_bfloat16(x), round_to_bfloat16(x + kHalfWidth));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), _mm256_permute4x64_epi64(packed, 0xd8));  // pack is per 16 bytes
}
inline __m128i round_to_float16(const float* x) {
  const __m256 value = _mm256_loadu_ps(x), is_nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
  // A NaN keeps its sign alone.
  const __m256 sign = _mm256_and_ps(value, _mm256_castsi256_ps(_mm256_set1_epi32(INT32_MIN)));
  const __m256 quiet = _mm256_or_ps(sign, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)));
  return _mm256_cvtps_ph(_mm256_blendv_ps(value, quiet, is_nan), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline void narrow_pair(const float* x, Float16* y) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(y), round_to_float16(x));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(y + kHalfWidth), round_to_float16(x + kHalfWidth));
}
#endif

/// y[i] = x[i] for n elements that do not overlap; T is BFloat16 or Float16.
template <class T>
inline void widen_halves(const T* __restrict x, float* __restrict y, int64_t n) {
  int64_t i = 0;
#if defined(__AVX2__)
  for (; i + kHalfWidth <= n; i += kHalfWidth) store_floats(y + i, load_halves(x + i));
#endif
  for (; i < n; ++i) y[i] = static_cast<float>(x[i]);
}
template <class T>
inline void narrow_to_halves(const float* __restrict x, T* __restrict y, int64_t n) {
  int64_t i = 0;
#if defined(__AVX2__)
  for (; i + 2 * kHalfWidth <= n; i += 2 * kHalfWidth) narrow_pair(x + i, y + i);
#endif
  for (; i < n; ++i) y[i] = T(x[i]);
}

}  // namespace
}  // namespace tern::kernels::TERN_CPU
