#pragma once
// What a scatter does with an element that an index names.

#include "tern/kernels/types.h"

namespace tern::kernels {

/// kAdd and kMultiply are "or" and "and" for bool. NaN is the maximum and the minimum.
enum class ScatterMode : uint8_t { kAssign, kAdd, kMultiply, kMaximum, kMinimum };

/// Whether a scatter keeps its results in fp32 until all are combined: each would otherwise be rounded to 16 bits, in
/// which sums of many small numbers stop growing.
constexpr bool combines_in_float(ScatterMode mode, DType dtype) {
  return is_low_precision(dtype) && (mode == ScatterMode::kAdd || mode == ScatterMode::kMultiply);
}

/// The new value of an element: `value` replaces `target` or is combined with it. Integers wrap around.
template <class F>
TERN_HD inline F combined(ScatterMode mode, F target, F value) {
  const bool is_nan = value != value;
  if (mode == ScatterMode::kAssign) return value;
  if (mode == ScatterMode::kMaximum) return value > target || is_nan ? value : target;
  if (mode == ScatterMode::kMinimum) return value < target || is_nan ? value : target;
  if constexpr (std::is_same_v<F, bool>) {
    return mode == ScatterMode::kAdd ? target || value : target && value;
  } else if constexpr (std::is_integral_v<F>) {
    using U = std::make_unsigned_t<F>;
    const U a = static_cast<U>(target), b = static_cast<U>(value);
    return static_cast<F>(mode == ScatterMode::kAdd ? a + b : a * b);
  } else {
    return mode == ScatterMode::kAdd ? target + value : target * value;
  }
}

}  // namespace tern::kernels
