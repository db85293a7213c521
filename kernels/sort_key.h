#pragma once
// Maps values to unsigned integers of the same order, which the sorts on all devices compare.

#include <bit>

#include "tern/kernels/convert.h"

namespace tern::kernels {

template <class T>
using SortKey = std::conditional_t<sizeof(Stored<T>) == 8, uint64_t, uint32_t>;

/// Number of low bits of the key that are used; the others are 0.
template <class T>
inline constexpr int sort_key_bits = std::is_same_v<T, bool> ? 1 : static_cast<int>(8 * sizeof(T));

/// a < b exactly when sort_key(a) < sort_key(b). -0 equals 0; NaN equals NaN and is greater than every other value, as
/// in PyTorch's sort.
template <class T>
TERN_HD inline SortKey<T> sort_key(Stored<T> value) {
  using Key = SortKey<T>;
  constexpr Key kSign = Key(1) << (sort_key_bits<T> - 1), kAll = kSign | (kSign - 1);
  if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else if constexpr (std::is_integral_v<T>) {
    return (static_cast<Key>(value) & kAll) ^ (std::is_signed_v<T> ? kSign : Key(0));
  } else {
    Key bits;
    if constexpr (sizeof(T) == 2)
      bits = value.bits;
    else
      bits = std::bit_cast<Key>(value);
    constexpr int kMantissa = std::is_same_v<T, double>     ? 52
                              : std::is_same_v<T, float>    ? 23
                              : std::is_same_v<T, BFloat16> ? 7
                                                            : 10;
    constexpr Key kInfinity = (kSign - 1) >> kMantissa << kMantissa;
    const Key magnitude = bits & (kSign - 1);
    if (magnitude > kInfinity) return kAll;
    if (magnitude == 0) return kSign;
    return bits & kSign ? ~bits & kAll : bits | kSign;
  }
}

/// The inverse of sort_key, except for bool.
template <class T>
TERN_HD inline Stored<T> value_of_sort_key(SortKey<T> key) {
  static_assert(!std::is_same_v<T, bool>, "value_of_sort_key: bytes of true differ");
  constexpr SortKey<T> kSign = SortKey<T>(1) << (sort_key_bits<T> - 1);
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(std::is_signed_v<T> ? key ^ kSign : key);
  } else {
    const SortKey<T> bits = key & kSign ? key ^ kSign : ~key & (kSign | (kSign - 1));
    Stored<T> value;
    if constexpr (sizeof(T) == 2)
      value.bits = static_cast<uint16_t>(bits);
    else
      value = std::bit_cast<T>(bits);
    return value;
  }
}

/// Whether values of other bits have this key: zeros of both signs, and NaN.
template <class T>
TERN_HD inline bool is_shared_sort_key(SortKey<T> key) {
  constexpr SortKey<T> kSign = SortKey<T>(1) << (sort_key_bits<T> - 1);
  return !std::is_integral_v<T> && (key == kSign || key == (kSign | (kSign - 1)));
}

/// XOR with this inverts the order of keys, for largest first.
template <class T>
constexpr SortKey<T> sort_key_flip(bool descending) {
  constexpr SortKey<T> kSign = SortKey<T>(1) << (sort_key_bits<T> - 1);
  return descending ? kSign | (kSign - 1) : 0;
}

}  // namespace tern::kernels
