#pragma once
// Helpers of the row kernels: conversion to the compute type, and sums whose order is the same at every CPU level.
// Included only by kernels/cpu.

#include <algorithm>
#include <utility>

#include "tern/kernels/cpu/simd/halves.h"
#include "tern/kernels/cpu/simd/vector.h"
#include "tern/kernels/types.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// Elements of a row that kernels hold in a local array at a time.
inline constexpr int64_t kTile = 256;

/// The row in the compute type: the row itself, or `buffer` after filling it with n converted elements.
template <class F, class T>
inline const F* widen(const T* __restrict row, F* __restrict buffer, int64_t n) {
  if constexpr (std::is_same_v<T, F>) {
    return row;
  } else if constexpr (kIsHalf<T> && std::is_same_v<F, float>) {
    widen_halves(row, buffer, n);
    return buffer;
  } else {
    for (int64_t i = 0; i < n; ++i) buffer[i] = static_cast<F>(static_cast<ComputeType<T>>(row[i]));
    return buffer;
  }
}

template <class F, class T>
inline void narrow(const F* __restrict from, T* __restrict to, int64_t n) {
  if constexpr (kIsHalf<T> && std::is_same_v<F, float>) return narrow_to_halves(from, to, n);
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(static_cast<ComputeType<T>>(from[i]));
}

/// Elements of a 16-bit row that map_row() converts at a time: in registers where the level has their conversions.
#if defined(__AVX2__)
inline constexpr int64_t kPiece = 2 * kHalfWidth;
#else
inline constexpr int64_t kPiece = kTile;
#endif

/// map_row() for n <= kPiece elements of 16 bits.
template <class F, class T, class Map, size_t... K, class... X>
[[gnu::always_inline]] inline void map_piece(T* y, int64_t n, const Map& map, std::index_sequence<K...>,
                                             const X*... x) {
  alignas(64) F results[kPiece], inputs[sizeof...(X)][kPiece];
  const auto apply = [&](const auto*... rows) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) results[i] = map(rows[i]...);
  };
  apply(widen(x, inputs[K], n)...);
  narrow(results, y, n);
}

/// y[i] = map(x[i]...) for n elements, computed in F. Rows of x have elements of T or F; y may be one of them.
template <class F, class T, class Map, class... X>
inline void map_row(T* y, int64_t n, const Map& map, const X*... x) {
  if constexpr (kIsHalf<T>) {
    constexpr auto kRows = std::index_sequence_for<X...>();
    int64_t i = 0;
    for (; i + kPiece <= n; i += kPiece) map_piece<F>(y + i, kPiece, map, kRows, (x + i)...);
    if (i < n) map_piece<F>(y + i, n - i, map, kRows, (x + i)...);
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = map(x[i]...);
  }
}

/// sums[i] += x[i].
template <class F>
inline void add_to(F* __restrict sums, const F* __restrict x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sums[i] += x[i];
}

/// A sum in 128 bytes of lanes that continues over several pieces of a row; total() adds the lanes pairwise. Every
/// piece except the last has a multiple of kLanes elements.
template <class F>
class LaneSum {
 public:
  static constexpr int kLanes = kLaneBytes / sizeof(F);

  /// Adds map(x[i]...) for i in [0, n). map accepts numbers and vectors.
  template <class Map, class... X>
  void add(int64_t n, const Map& map, const X*... x) {
    constexpr int kWidth = kVectorBytes / sizeof(F), kVectors = kLaneBytes / kVectorBytes;
    Vector<F> sums[kVectors];
    for (int v = 0; v < kVectors; ++v) sums[v] = load_vector(lane_ + v * kWidth);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (int v = 0; v < kVectors; ++v) sums[v] += map(load_vector(x + i + v * kWidth)...);
    for (int v = 0; v < kVectors; ++v) store_vector(lane_ + v * kWidth, sums[v]);
    for (int l = 0; i < n; ++i, ++l) lane_[l] += map(x[i]...);
  }
  F total() {
    fold<kLanes / 2>();
    return lane_[0];
  }

 private:
  template <int kHalf>
  void fold() {  // constant trip counts: loops are unrolled completely
    for (int l = 0; l < kHalf; ++l) lane_[l] += lane_[l + kHalf];
    if constexpr (kHalf > 1) fold<kHalf / 2>();
  }
  F lane_[kLanes] = {};
};

}  // namespace
}  // namespace tern::kernels::TERN_CPU
