#pragma once
// Copies between strided memory of any dtype and tiles. Included only by kernels/cpu.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tern/kernels/convert.h"
#include "tern/kernels/cpu/simd/halves.h"
#include "tern/kernels/layout.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// Copies bytes that do not overlap. For more than 2 KB memcpy may use the instruction "rep movsb", which takes ten
/// times as long on some processors if the distance is not a multiple of their lines: then a loop of vectors copies.
inline void copy_bytes(const void* from, void* to, int64_t bytes) {
  typedef char Line __attribute__((vector_size(64)));
  struct Piece {
    Line lines[4];
  };
  constexpr int64_t kPiece = sizeof(Piece);
  const auto* source = static_cast<const char*>(from);
  auto* target = static_cast<char*>(to);
  if ((target - source) % 64 != 0)
    for (; bytes > kPiece; bytes -= kPiece, source += kPiece, target += kPiece) {
      Piece piece;
      std::memcpy(&piece, source, kPiece);
      std::memcpy(target, &piece, kPiece);
    }
  if (bytes > 0) std::memcpy(target, source, static_cast<size_t>(bytes));
}

/// An element as a number: the compiler makes no vectors of the structs with 16 bits.
template <class T>
using Word = std::conditional_t<kIsHalf<T>, uint16_t, Stored<T>>;
template <class T>
Word<T> word_of(Stored<T> value) {
  return std::bit_cast<Word<T>>(value);
}

/// y[i] = x[i], converted, for n bools: a selection of constants becomes vectors, a conversion does not.
template <class To>
void convert_bools(const uint8_t* x, Stored<To>* y, int64_t n) {
  const Word<To> no = word_of<To>(convert<bool, To>(0)), yes = word_of<To>(convert<bool, To>(1));
  Word<To>* const words = reinterpret_cast<Word<To>*>(y);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) words[i] = x[i] != 0 ? yes : no;
}

/// y[i * y_stride] = x[i * x_stride], converted, for n elements.
template <class From, class To>
void convert_strided(const Stored<From>* x, int64_t x_stride, Stored<To>* y, int64_t y_stride, int64_t n) {
  const bool contiguous = x_stride == 1 && y_stride == 1;
  if (x_stride == 0 && y_stride == 1) {
    const Word<To> value = word_of<To>(convert<From, To>(x[0]));
    std::fill_n(reinterpret_cast<Word<To>*>(y), n, value);
  } else if (contiguous) {
    if constexpr (std::is_same_v<From, bool>) return convert_bools<To>(x, y, n);
    if constexpr (kIsHalf<From> && std::is_same_v<To, float>) return widen_halves(x, y, n);
    if constexpr (kIsHalf<To> && std::is_same_v<From, float>) return narrow_to_halves(x, y, n);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = convert<From, To>(x[i]);
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
