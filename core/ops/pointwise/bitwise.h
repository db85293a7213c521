#pragma once
// Ops on the bits of integers (int64, int32, uint8) and of bool, in two's complement, by PyTorch's names and rules.
// They broadcast and promote as the ops of pointwise.h do and have no gradient. Floating tensors throw Error.

#include <concepts>

#include "tern/core/tensor.h"

namespace tern {

Tensor bitwise_and(const Tensor& a, const Tensor& b);
Tensor bitwise_or(const Tensor& a, const Tensor& b);
Tensor bitwise_xor(const Tensor& a, const Tensor& b);
/// Every bit inverted: -1 - x, of uint8 255 - x; of bool logical_not.
Tensor bitwise_not(const Tensor& x);
/// a 2^b, modulo 2 to the number of the dtype's bits; 0 for a b that is negative or not less than that number. Integers
/// only.
Tensor bitwise_left_shift(const Tensor& a, const Tensor& b);
/// floor(a / 2^b); for a b that is negative or too large 0, or -1 where a is negative. Integers only.
Tensor bitwise_right_shift(const Tensor& a, const Tensor& b);

namespace detail {
/// An int64 tensor without dimensions on a's device.
Tensor integer_beside(const Tensor& a, int64_t value);
}  // namespace detail

// With a C++ integer, which promotes as a tensor without dimensions.
template <std::integral I>
Tensor bitwise_and(const Tensor& a, I b) {
  return bitwise_and(a, detail::integer_beside(a, b));
}
template <std::integral I>
Tensor bitwise_or(const Tensor& a, I b) {
  return bitwise_or(a, detail::integer_beside(a, b));
}
template <std::integral I>
Tensor bitwise_xor(const Tensor& a, I b) {
  return bitwise_xor(a, detail::integer_beside(a, b));
}
template <std::integral I>
Tensor bitwise_left_shift(const Tensor& a, I b) {
  return bitwise_left_shift(a, detail::integer_beside(a, b));
}
template <std::integral I>
Tensor bitwise_right_shift(const Tensor& a, I b) {
  return bitwise_right_shift(a, detail::integer_beside(a, b));
}

// Comparisons beside the operators on masks need parentheses, as in Python: (x > 0) & ~mask.
inline Tensor operator&(const Tensor& a, const Tensor& b) { return bitwise_and(a, b); }
inline Tensor operator|(const Tensor& a, const Tensor& b) { return bitwise_or(a, b); }
inline Tensor operator^(const Tensor& a, const Tensor& b) { return bitwise_xor(a, b); }
inline Tensor operator<<(const Tensor& a, const Tensor& b) { return bitwise_left_shift(a, b); }
inline Tensor operator>>(const Tensor& a, const Tensor& b) { return bitwise_right_shift(a, b); }
template <std::integral I>
Tensor operator&(const Tensor& a, I b) {
  return bitwise_and(a, b);
}
template <std::integral I>
Tensor operator|(const Tensor& a, I b) {
  return bitwise_or(a, b);
}
template <std::integral I>
Tensor operator^(const Tensor& a, I b) {
  return bitwise_xor(a, b);
}
template <std::integral I>
Tensor operator<<(const Tensor& a, I b) {
  return bitwise_left_shift(a, b);
}
template <std::integral I>
Tensor operator>>(const Tensor& a, I b) {
  return bitwise_right_shift(a, b);
}
inline Tensor operator~(const Tensor& x) { return bitwise_not(x); }
/// In place, in a's dtype and shape, which the result must have.
Tensor& operator&=(Tensor& a, const Tensor& b);
Tensor& operator|=(Tensor& a, const Tensor& b);
Tensor& operator^=(Tensor& a, const Tensor& b);

}  // namespace tern
