#pragma once
// Element-wise ops of number theory, and of the neighbours of floating numbers. pointwise/ops.h documents the members
// and lists all ops.

#include <bit>
#include <cmath>

#include "tern/kernels/math/math.h"
#include "tern/kernels/pointwise/pointwise.h"

namespace tern::kernels {

/// The greatest common divisor, not negative but where it is 2^63; of 0 and 0 it is 0. core/ops gives it integers only.
struct Gcd {
  static constexpr const char* name = "gcd";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  TERN_HD static uint64_t magnitude(int64_t x) {
    return x < 0 ? uint64_t{0} - static_cast<uint64_t>(x) : static_cast<uint64_t>(x);
  }
  TERN_HD static uint64_t of(uint64_t a, uint64_t b) {
    while (b != 0) {
      const uint64_t rest = a % b;
      a = b;
      b = rest;
    }
    return a;
  }
  template <class F>
  TERN_HD F forward(F a, F b) const {
    return F(static_cast<int64_t>(of(magnitude(static_cast<int64_t>(a)), magnitude(static_cast<int64_t>(b)))));
  }
};

/// The least common multiple, not negative, modulo 2^64; 0 if one of them is 0.
struct Lcm {
  static constexpr const char* name = "lcm";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD F forward(F a, F b) const {
    const uint64_t x = Gcd::magnitude(static_cast<int64_t>(a)), y = Gcd::magnitude(static_cast<int64_t>(b));
    const uint64_t divisor = Gcd::of(x, y);
    return F(static_cast<int64_t>(divisor == 0 ? 0 : x / divisor * y));
  }
};

/// The next number of `dtype` after a in the direction of b; b if they are equal.
struct NextAfter {
  static constexpr const char* name = "nextafter";
  static constexpr Saves saves = Saves::kNone;
  DType dtype = DType::kFloat32;

  /// The bits of a float that are one step of a 16-bit number, and the least numbers of those formats.
  TERN_HD static float next_half(DType dtype, float a, float b) {
    const bool is_bfloat16 = dtype == DType::kBFloat16;
    if (a != a || b != b) return a + b;
    if (a == b) return b;
    const float least = is_bfloat16 ? 0x1p-133f : 0x1p-24f, least_normal = is_bfloat16 ? 0.0f : 0x1p-14f;
    const float size = std::fabs(a);
    if (size == 0) return std::copysign(least, b);
    const bool grows = (a > 0) == (b > a);
    if (!is_bfloat16 && std::isinf(a)) return std::copysign(65504.0f, a);
    if (size < least_normal || (size == least_normal && !grows))
      return std::copysign(grows ? size + least : size - least, a);
    const uint32_t step = is_bfloat16 ? 0x10000 : 0x2000, bits = std::bit_cast<uint32_t>(size);
    return std::copysign(std::bit_cast<float>(grows ? bits + step : bits - step), a);
  }
  TERN_HD float forward(float a, float b) const {
    return dtype == DType::kFloat32 ? std::nextafter(a, b) : next_half(dtype, a, b);
  }
  TERN_HD double forward(double a, double b) const { return std::nextafter(a, b); }
};

}  // namespace tern::kernels
