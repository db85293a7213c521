#pragma once
// Strided memory of any dtype to and from tiles: the one place where element types are converted on the CPU, and the
// coalescing of dimensions that every strided kernel starts with. Included by kernels/cpu/*.cpp alone.

#include <algorithm>
#include <cmath>

#include "tern/kernels/view.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// bool is read as a byte: memory from outside may hold more than 0 and 1.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

/// One element from dtype From to dtype To by the rules in copy.h.
template <class From, class To>
inline Stored<To> convert(Stored<From> value) {
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
    // The bound above kHigh is a power of two: exact in every floating type, while kHigh itself may not be.
    const From limit = From(2) * static_cast<From>(uint64_t{1} << (std::numeric_limits<To>::digits - 1));
    const bool inside = value > static_cast<From>(kLow) - From(1) && value < limit;
    const To outside = value >= limit ? kHigh : value < From(0) ? kLow : To(0);
    return inside ? static_cast<To>(value) : outside;
  } else {
    return static_cast<To>(value);
  }
}

/// y[i * y_stride] = x[i * x_stride], converted.
template <class From, class To>
void convert_strided(const Stored<From>* x, int64_t x_stride, Stored<To>* y, int64_t y_stride, int64_t n) {
  if (x_stride == 1 && y_stride == 1) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = convert<From, To>(x[i]);
  } else if (x_stride == 0 && y_stride == 1) {
    const Stored<To> value = convert<From, To>(x[0]);
    for (int64_t i = 0; i < n; ++i) y[i] = value;
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i * y_stride] = convert<From, To>(x[i * x_stride]);
  }
}

/// tile[i] = the n elements from `offset` (in elements) on, `stride` apart.
template <class F>
void load_tile(DType dtype, const void* data, int64_t offset, int64_t stride, int64_t n, F* tile) {
  dispatch_any(dtype, [&]<class T>() {
    convert_strided<T, F>(static_cast<const Stored<T>*>(data) + offset, stride, tile, 1, n);
  });
}
template <class F>
void store_tile(DType dtype, void* data, int64_t offset, int64_t stride, int64_t n, const F* tile) {
  dispatch_any(dtype,
               [&]<class T>() { convert_strided<F, T>(tile, 1, static_cast<Stored<T>*>(data) + offset, stride, n); });
}

inline const void* advance(const void* data, DType dtype, int64_t elements) {
  return static_cast<const char*>(data) + elements * size_of(dtype);
}
inline void* advance(void* data, DType dtype, int64_t elements) {
  return static_cast<char*>(data) + elements * size_of(dtype);
}

/// The common iteration space of several operands of one shape: dimensions of size 1 dropped, the rest in order of the
/// first operand's strides (largest first), and neighbours merged where every operand allows it. There is always at
/// least one dimension.
template <int kOperands>
struct Layout {
  int dims = 0;
  int64_t shape[kMaxDims];
  int64_t strides[kOperands][kMaxDims];

  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < dims; ++d) n *= shape[d];
    return n;
  }
  int64_t inner() const { return shape[dims - 1]; }
  int64_t inner_stride(int operand) const { return strides[operand][dims - 1]; }
  /// True when the operand's elements lie in iteration order without gaps.
  bool is_linear(int operand) const { return dims == 1 && (strides[operand][0] == 1 || shape[0] == 1); }
  /// Offset of an operand's element at the start of row `row`: a row is the last dimension.
  int64_t row_offset(int operand, int64_t row) const {
    int64_t offset = 0;
    for (int d = dims - 2; d >= 0; --d) {
      offset += row % shape[d] * strides[operand][d];
      row /= shape[d];
    }
    return offset;
  }

  void append(int64_t size, const int64_t* operand_strides) {
    shape[dims] = size;
    for (int k = 0; k < kOperands; ++k) strides[k][dims] = operand_strides[k];
    ++dims;
  }
  void swap_dims(int a, int b) {
    std::swap(shape[a], shape[b]);
    for (int k = 0; k < kOperands; ++k) std::swap(strides[k][a], strides[k][b]);
  }
  /// Stable: dimensions of equal stride (broadcast ones) keep their order.
  void sort() {
    for (int i = 1; i < dims; ++i)
      for (int j = i; j > 0 && strides[0][j - 1] < strides[0][j]; --j) swap_dims(j - 1, j);
  }
  void merge() {
    int last = 0;
    for (int d = 1; d < dims; ++d) {
      bool mergeable = true;
      for (int k = 0; k < kOperands; ++k) mergeable &= strides[k][last] == strides[k][d] * shape[d];
      if (mergeable) {
        shape[last] *= shape[d];
      } else {
        ++last;
        shape[last] = shape[d];
      }
      for (int k = 0; k < kOperands; ++k) strides[k][last] = strides[k][d];
    }
    if (dims > 0) dims = last + 1;
  }
  void finish() {
    const int64_t ones[kOperands] = {};
    if (dims == 0) append(1, ones);
  }
};

/// `strides[k]` points at operand k's strides.
template <int kOperands>
Layout<kOperands> make_layout(int dims, const int64_t* shape, const int64_t* const (&strides)[kOperands]) {
  Layout<kOperands> layout;
  for (int d = 0; d < dims; ++d) {
    if (shape[d] == 1) continue;
    int64_t steps[kOperands];
    for (int k = 0; k < kOperands; ++k) steps[k] = strides[k][d];
    layout.append(shape[d], steps);
  }
  layout.sort();
  layout.merge();
  layout.finish();
  return layout;
}

}  // namespace
}  // namespace tern::kernels::TERN_CPU
