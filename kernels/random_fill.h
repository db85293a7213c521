#pragma once
// Conversion of random words to uniform and normal numbers, for copy.h's fills on all devices.

#include <cmath>

#include "tern/kernels/random.h"

namespace tern::kernels {

/// The largest value of T below `bound`, in T's compute type: rounding must not give the open end of an interval.
template <class T>
ComputeType<T> largest_below(double bound) {
  using F = ComputeType<T>;
  if constexpr (std::is_same_v<T, F>) {
    const F value = static_cast<F>(bound);
    return value < bound ? value : std::nextafter(value, -std::numeric_limits<F>::infinity());
  } else {
    T value(static_cast<float>(bound));
    if (static_cast<float>(value) < bound) return static_cast<float>(value);
    // Step to the next lower value in sign-magnitude bits.
    if ((value.bits & 0x7fffu) == 0)
      value.bits = 0x8001u;
    else
      value.bits = static_cast<uint16_t>(value.bits & 0x8000u ? value.bits + 1 : value.bits - 1);
    return static_cast<float>(value);
  }
}

/// sin and cos of 2 pi u for u in [0, 1). The reduction to an eighth of a turn is exact; the polynomials are minimax
/// fits (Remez exchange; relative error 3.3e-9, absolute 5e-11 before rounding to float).
TERN_HD inline void sin_cos_turns(float u, float* sine, float* cosine) {
  const float quarter = static_cast<float>(static_cast<int32_t>(u * 4.0f + 0.5f));
  const int32_t quadrant = static_cast<int32_t>(quarter);
  const float f = u * 4.0f - quarter;  // in [-1/2, 1/2], in quarter turns
  const float square = f * f;
  const float s =
      f * (0x1.921fb6p+0f + square * (-0x1.4abbb8p-1f + square * (0x1.465e90p-4f + square * -0x1.2d9278p-8f)));
  const float c = 1.0f + square * (-0x1.3bd3ccp+0f +
                                   square * (0x1.03c1dcp-2f + square * (-0x1.55c578p-6f + square * 0x1.d9c290p-11f)));
  const float first = quadrant & 1 ? c : s, second = quadrant & 1 ? s : c;
  *sine = quadrant & 2 ? -first : first;
  *cosine = (quadrant + 1) & 2 ? -second : second;
}

/// low + an integer in [0, count) from two of the words: see fill_random_integers in copy.h.
TERN_HD inline int64_t random_integer(const Philox4& words, int pair, int64_t low, uint64_t count) {
  const uint64_t bits = uint64_t{words.word[2 * pair + 1]} << 32 | words.word[2 * pair];
#ifdef __CUDA_ARCH__
  const uint64_t number = __umul64hi(bits, count);
#else
  const uint64_t number = static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * count) >> 64);
#endif
  return static_cast<int64_t>(static_cast<uint64_t>(low) + number);
}

}  // namespace tern::kernels
