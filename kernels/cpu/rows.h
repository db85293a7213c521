#pragma once
// Helpers of the row kernels: conversion to the compute type, and sums whose order is the same at every CPU level.
// Included only by kernels/cpu/*.cpp.

#include <algorithm>

#include "tern/kernels/cpu/halves.h"
#include "tern/kernels/cpu/vector.h"
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

/// y[i] = value(i) for n elements. value(i) may read element i of a row that y replaces.
template <class F, class T, class Value>
inline void store_row(T* y, int64_t n, const Value& value) {
  if constexpr (kIsHalf<T>) {
    alignas(64) F buffer[kTile];
    for (int64_t j = 0; j < n; j += kTile) {
      const int64_t count = std::min(kTile, n - j);
      for (int64_t i = 0; i < count; ++i) buffer[i] = value(j + i);
      narrow(buffer, y + j, count);
    }
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = value(i);
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
