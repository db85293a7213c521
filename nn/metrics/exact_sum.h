#pragma once
// Sums of doubles without rounding, so that they do not depend on the order of the terms: a fixed-point number that
// covers the range of double (a superaccumulator: Kulisch, "Computer Arithmetic and Validity", 2008).

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

namespace tern::detail {

/// The words of a sum, of which word i counts 2^(32 i - 1074), and the numbers of NaN, infinities and negative
/// infinities among the terms. Two sums are added word by word, also by an all-reduce.
inline constexpr size_t kExactWords = 68, kExactSize = kExactWords + 3;

/// Moves what exceeds 32 bits of a word to the next one. Afterwards all words but the last are in [0, 2^32), and equal
/// sums have equal words.
inline void carry_exact(std::span<int64_t> sum) {
  for (size_t i = 0; i + 1 < kExactWords; ++i) {
    const int64_t carried = sum[i] >> 32;
    sum[i] -= carried << 32;
    sum[i + 1] += carried;
  }
}

/// At most 2^30 terms between two calls of carry_exact().
inline void add_exact(std::span<int64_t> sum, double value) {
  if (!std::isfinite(value)) {
    ++sum[kExactWords + (std::isnan(value) ? 0 : value > 0 ? 1 : 2)];
    return;
  }
  const auto bits = std::bit_cast<uint64_t>(value);
  const uint64_t exponent = bits >> 52 & 0x7ff, fraction = bits & ((uint64_t{1} << 52) - 1);
  const uint64_t mantissa = exponent == 0 ? fraction : fraction | uint64_t{1} << 52;
  const uint64_t place = exponent == 0 ? 0 : exponent - 1;  // the mantissa counts 2^(place - 1074)
  const int64_t sign = value < 0 ? -1 : 1;
  const uint64_t shift = place % 32, mask = 0xffffffff;
  const uint64_t low = (mantissa & mask) << shift, high = (mantissa >> 32) << shift;
  const size_t word = place / 32;
  sum[word] += sign * static_cast<int64_t>(low & mask);
  sum[word + 1] += sign * static_cast<int64_t>((low >> 32) + (high & mask));
  sum[word + 2] += sign * static_cast<int64_t>(high >> 32);
}

/// Adds the product without rounding, unless a part of it is below the smallest double.
inline void add_exact_product(std::span<int64_t> sum, double a, double b) {
  const double product = a * b;
  add_exact(sum, product);
  if (std::isfinite(product)) add_exact(sum, std::fma(a, b, -product));
}

/// The sum, with a relative error of 2^-52 at most; as the terms' sum for NaN and infinities.
inline double value_of_exact(std::span<const int64_t> given) {
  std::array<int64_t, kExactSize> sum;
  for (size_t i = 0; i < kExactSize; ++i) sum[i] = given[i];
  const bool up = sum[kExactWords + 1] != 0, down = sum[kExactWords + 2] != 0;
  if (sum[kExactWords] != 0 || (up && down)) return std::numeric_limits<double>::quiet_NaN();
  if (up || down) return up ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
  carry_exact(sum);
  const bool negative = sum[kExactWords - 1] < 0;
  if (negative) {  // the words of a magnitude, so that no high word cancels low ones
    for (size_t i = 0; i < kExactWords; ++i) sum[i] = -sum[i];
    carry_exact(sum);
  }
  double value = 0;
  for (size_t i = 0; i < kExactWords; ++i)
    if (sum[i] != 0) value += std::ldexp(static_cast<double>(sum[i]), static_cast<int>(32 * i) - 1074);
  return negative ? -value : value;
}

/// high + low, with twice the digits of a double.
struct DoublePair {
  double high = 0, low = 0;
};

/// The sum, with a relative error of 2^-103 at most.
inline DoublePair pair_of_exact(std::span<const int64_t> given) {
  const double high = value_of_exact(given);
  if (!std::isfinite(high)) return {high, 0};
  std::array<int64_t, kExactSize> rest;
  for (size_t i = 0; i < kExactSize; ++i) rest[i] = given[i];
  add_exact(rest, -high);
  return {high, value_of_exact(rest)};
}

/// a * b - c * d, also where the products cancel: with an error of about 2^-103 of the greater one.
inline double difference_of_products(DoublePair a, DoublePair b, DoublePair c, DoublePair d) {
  const double ab = a.high * b.high, cd = c.high * d.high;
  const double ab_rest = std::fma(a.high, b.high, -ab) + (a.high * b.low + a.low * b.high);
  const double cd_rest = std::fma(c.high, d.high, -cd) + (c.high * d.low + c.low * d.high);
  return (ab - cd) + (ab_rest - cd_rest);
}

}  // namespace tern::detail
