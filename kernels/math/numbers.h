#pragma once
// The numbers that pointwise ops compute with besides float and double: Integer (int64 that wraps) and Dual (a value
// with its derivative); and selection and comparison of all of them.

#include <compare>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tern/kernels/types.h"

namespace tern::kernels::math {

/// int64 arithmetic modulo 2^64, as tensors compute it: overflow is defined.
struct Integer {
  int64_t value = 0;
  Integer() = default;
  template <class T>
  requires std::is_integral_v<T> TERN_HD explicit constexpr Integer(T v) : value(static_cast<int64_t>(v)) {}
  /// Saturates, so that an infinite bound becomes the largest integer; NaN gives 0.
  TERN_HD explicit constexpr Integer(double v)
      : value(v >= 0x1p63    ? std::numeric_limits<int64_t>::max()
              : v >= -0x1p63 ? static_cast<int64_t>(v)
              : v < -0x1p63  ? std::numeric_limits<int64_t>::min()
                             : 0) {}
  TERN_HD explicit constexpr operator bool() const { return value != 0; }
  TERN_HD explicit constexpr operator int64_t() const { return value; }
  constexpr bool operator==(const Integer&) const = default;
  constexpr auto operator<=>(const Integer&) const = default;
  TERN_HD static constexpr Integer wrap(uint64_t v) { return Integer(static_cast<int64_t>(v)); }
  TERN_HD constexpr uint64_t bits() const { return static_cast<uint64_t>(value); }
};
TERN_HD constexpr Integer operator+(Integer a, Integer b) { return Integer::wrap(a.bits() + b.bits()); }
TERN_HD constexpr Integer operator-(Integer a, Integer b) { return Integer::wrap(a.bits() - b.bits()); }
TERN_HD constexpr Integer operator*(Integer a, Integer b) { return Integer::wrap(a.bits() * b.bits()); }
/// Towards 0; 0 where b is 0. C leaves that and the least number by -1 undefined.
TERN_HD constexpr Integer operator/(Integer a, Integer b) {
  const bool defined = b.value != 0 && b.value != -1;
  const int64_t quotient = defined ? a.value / (defined ? b.value : 1) : 0;
  return b.value == -1 ? Integer::wrap(0 - a.bits()) : Integer(quotient);
}
TERN_HD constexpr Integer operator-(Integer a) { return Integer::wrap(0 - a.bits()); }

/// A value and its derivative in one direction (forward-mode differentiation). Comparisons use only the value.
template <class F>
struct Dual {
  F value = F(0);
  F tangent = F(0);
  Dual() = default;
  TERN_HD constexpr Dual(F v, F t) : value(v), tangent(t) {}
  template <class T>
  requires std::is_arithmetic_v<T> TERN_HD explicit constexpr Dual(T v) : value(static_cast<F>(v)) {}
  TERN_HD friend constexpr bool operator==(Dual a, Dual b) { return a.value == b.value; }
  TERN_HD friend constexpr bool operator!=(Dual a, Dual b) { return a.value != b.value; }
  TERN_HD friend constexpr bool operator<(Dual a, Dual b) { return a.value < b.value; }
  TERN_HD friend constexpr bool operator>(Dual a, Dual b) { return a.value > b.value; }
  TERN_HD friend constexpr bool operator<=(Dual a, Dual b) { return a.value <= b.value; }
  TERN_HD friend constexpr bool operator>=(Dual a, Dual b) { return a.value >= b.value; }
  TERN_HD friend constexpr Dual operator-(Dual a) { return {-a.value, -a.tangent}; }
  TERN_HD friend constexpr Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.tangent + b.tangent}; }
  TERN_HD friend constexpr Dual operator-(Dual a, Dual b) { return {a.value - b.value, a.tangent - b.tangent}; }
  TERN_HD friend constexpr Dual operator*(Dual a, Dual b) {
    return {a.value * b.value, a.tangent * b.value + a.value * b.tangent};
  }
  TERN_HD friend constexpr Dual operator/(Dual a, Dual b) {
    const F quotient = a.value / b.value;
    return {quotient, (a.tangent - quotient * b.tangent) / b.value};
  }
};

/// condition ? a : b with both sides evaluated, so that vectorised loops use a blend.
template <class F>
TERN_HD constexpr F select(bool condition, F a, F b) {
  return condition ? a : b;
}
TERN_HD constexpr Integer select(bool condition, Integer a, Integer b) {
  return Integer(condition ? a.value : b.value);
}
template <class F>
TERN_HD constexpr Dual<F> select(bool condition, Dual<F> a, Dual<F> b) {
  return {condition ? a.value : b.value, condition ? a.tangent : b.tangent};
}

template <class F>
TERN_HD constexpr bool isnan(F x) {
  return x != x;
}
template <class F>
requires std::is_floating_point_v<F> TERN_HD constexpr bool isfinite(F x) {
  return x - x == F(0);  // infinity and NaN give NaN
}
template <class F>
TERN_HD constexpr bool isfinite(Dual<F> x) {
  return isfinite(x.value);
}
TERN_HD constexpr bool isfinite(Integer) { return true; }

/// PyTorch's maximum and minimum: NaN when either is NaN.
template <class F>
TERN_HD constexpr F max(F a, F b) {
  return select(a > b || isnan(a), a, b);
}
template <class F>
TERN_HD constexpr F min(F a, F b) {
  return select(a < b || isnan(a), a, b);
}

}  // namespace tern::kernels::math
