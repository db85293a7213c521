#pragma once
// The only conversion of an element from one dtype to another.

#include "tern/kernels/types.h"

namespace tern::kernels {

/// A bool is read as a byte: memory from outside the library may hold values other than 0 and 1.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

/// Converts one element from dtype From to dtype To by the rules in copy.h.
template <class From, class To>
TERN_HD inline Stored<To> convert(Stored<From> value) {
  constexpr bool kFromHalf = std::is_same_v<From, BFloat16> || std::is_same_v<From, Float16>;
  if constexpr (std::is_same_v<From, bool>) {
    if constexpr (std::is_same_v<To, bool>)
      return value != 0;
    else
      return convert<uint8_t, To>(value != 0);
  } else if constexpr (std::is_same_v<From, To>) {
    return value;
  } else if constexpr (kFromHalf) {
    return convert<float, To>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (std::is_same_v<To, BFloat16> || std::is_same_v<To, Float16>) {
    return To(static_cast<float>(value));
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr To kLow = std::numeric_limits<To>::min(), kHigh = std::numeric_limits<To>::max();
    // The power of two above kHigh: it is exact in every floating type, while kHigh may not be.
    const From limit = From(2) * static_cast<From>(uint64_t{1} << (std::numeric_limits<To>::digits - 1));
    const bool inside = value > static_cast<From>(kLow) - From(1) && value < limit;
    const To outside = value >= limit ? kHigh : value < From(0) ? kLow : To(0);
    return inside ? static_cast<To>(value) : outside;
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace tern::kernels
