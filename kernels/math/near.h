#pragma once
// Near: a float whose trigonometric functions and remainders are branch-free, so that loops over them vectorise, but
// right for ordinary arguments only. An op that has is_near() gets such loops (pointwise/tiles.h); the elements that
// are not near are computed with the functions of float.

#include "tern/kernels/math/functions.h"

namespace tern::kernels::math {

struct Near {
  float value = 0;
  Near() = default;
  template <class T>
  requires std::is_arithmetic_v<T>
  explicit constexpr Near(T v) : value(static_cast<float>(v)) {}
  explicit constexpr operator float() const { return value; }
  friend constexpr bool operator!=(Near a, Near b) { return a.value != b.value; }
  friend constexpr bool operator<(Near a, Near b) { return a.value < b.value; }
  friend constexpr bool operator==(Near a, Near b) { return a.value == b.value; }
  friend constexpr Near operator-(Near a) { return Near(-a.value); }
  friend constexpr Near operator+(Near a, Near b) { return Near(a.value + b.value); }
  friend constexpr Near operator-(Near a, Near b) { return Near(a.value - b.value); }
  friend constexpr Near operator*(Near a, Near b) { return Near(a.value * b.value); }
  friend constexpr Near operator/(Near a, Near b) { return Near(a.value / b.value); }
};
inline Near round(Near x) { return Near(std::rint(x.value)); }
constexpr Near select(bool condition, Near a, Near b) { return Near(condition ? a.value : b.value); }

/// The angles for which sin, cos and tan of Near are right, and NaN; 8191 quarter turns.
inline bool is_near_angle(float x) { return !(abs(x) > 12866.0f); }
/// The quotients for which fmod of Near is right, and NaN: their product by y is exact in double.
inline bool is_near_quotient(float x, float y) { return !(abs(x) >= 0x1p28f * abs(y)); }

namespace detail {

/// x = quarters pi/2 + rest with |rest| <= pi/4: sin and cos of the rest. The parts of pi/2 have so few bits that their
/// products by 13-bit numbers are exact (Cody and Waite). Minimax polynomials, relative errors 2^-28 and 2^-33.
struct NearAngle {
  float sin, cos;
  uint32_t quarters;  // modulo 2^22

  explicit NearAngle(float x) {
    constexpr float kShift = 0x1.8p23f;
    const float shifted = x * 0x1.45f306p-1f + kShift;
    quarters = std::bit_cast<uint32_t>(shifted) & 0x3fffffu;
    const float n = shifted - kShift;
    const float exact = (x - n * 0x1.92p+0f) - n * 0x1.fb4p-12f, third = n * 0x1.444p-24f;
    const float high = exact - third, lost = (exact - high) - third;
    const float rest = high - ((n * 0x1.68cp-39f + n * 0x1.1a6264p-54f) - lost);
    const float square = rest * rest;
    const float s = (-0x1.994e5cp-13f * square + 0x1.110760p-7f) * square + -0x1.555546p-3f;
    const float c = (0x1.9a020ap-16f * square + -0x1.6c0c8ap-10f) * square + 0x1.55554ap-5f;
    sin = rest + (rest * square) * s;
    cos = 1.0f + square * (square * c - 0.5f);
  }
};
inline float with_sign_of_bit_1(float x, uint32_t bits) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x) ^ ((bits & 2u) << 30));
}

}  // namespace detail

/// At most 1.6 units in the last place.
inline Near sin(Near x) {
  const detail::NearAngle a(x.value);
  const float magnitude = select((a.quarters & 1u) != 0, a.cos, a.sin);
  return Near(select(x.value == 0.0f, x.value, detail::with_sign_of_bit_1(magnitude, a.quarters)));
}
inline Near cos(Near x) {
  const detail::NearAngle a(x.value);
  return Near(detail::with_sign_of_bit_1(select((a.quarters & 1u) != 0, a.sin, a.cos), a.quarters + 1u));
}
/// At most 3.4 units in the last place.
inline Near tan(Near x) {
  const detail::NearAngle a(x.value);
  const bool odd = (a.quarters & 1u) != 0;
  return Near(select(x.value == 0.0f, x.value, select(odd, -a.cos, a.sin) / select(odd, a.sin, a.cos)));
}

/// Exact. A quotient that is no integer is at least 2^-24 below the next one, so that its rounding to double, which
/// moves it by at most 2^-25, does not reach that.
inline Near fmod(Near x, Near y) {
  const double a = std::fabs(static_cast<double>(x.value)), b = std::fabs(static_cast<double>(y.value));
  const double rest = a - std::trunc(a / b) * b;
  return Near(std::copysign(static_cast<float>(b == std::numeric_limits<double>::infinity() ? a : rest), x.value));
}

}  // namespace tern::kernels::math
