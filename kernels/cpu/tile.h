#pragma once
// Copies between strided memory of any dtype and tiles. Included only by kernels/cpu/*.cpp.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tern/kernels/convert.h"
#include "tern/kernels/layout.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// Copies bytes that do not overlap. For more than 2 KB memcpy may use the instruction "rep movsb", which takes ten
/// times as long on some processors if the distance is not a multiple of their lines: such copies are made in pieces.
inline void copy_bytes(const void* from, void* to, int64_t bytes) {
  constexpr int64_t kPiece = 2048;
  const auto* source = static_cast<const char*>(from);
  auto* target = static_cast<char*>(to);
  if ((target - source) % 64 != 0)
    for (; bytes > kPiece; bytes -= kPiece, source += kPiece, target += kPiece) std::memcpy(target, source, kPiece);
  if (bytes > 0) std::memcpy(target, source, static_cast<size_t>(bytes));
}

/// y[i * y_stride] = x[i * x_stride], converted, for n elements.
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

/// tile[i] = the i-th of n elements that begin at `offset` and are `stride` apart (both in elements).
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

}  // namespace
}  // namespace tern::kernels::TERN_CPU
