#pragma once
// Products of matrices in registers, of which kernels/cpu/convolution_*.cpp build theirs: six rows of a result and two
// vectors of its columns are summed at a time. Included only by kernels/cpu.

#include "tern/kernels/cpu/simd/vector.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// Whether Tern's own convolutions and products of fp32 are faster than oneDNN's, for the shapes that they suit:
/// measured at level v3 alone (docs/performance.md). oneDNN uses the processor's vectors, whatever the level is.
#if defined(__AVX2__) && !defined(__AVX512F__)
inline constexpr bool kOwnIsFaster = true;
#else
inline constexpr bool kOwnIsFaster = false;
#endif

using Lanes = Vector<float>;
constexpr int64_t kLanes = kVectorBytes / 4;
constexpr int64_t kPanel = 2 * kLanes;  // columns of the result that are computed at a time
constexpr int kRows = 6;                // rows of it: with them twelve sums are in registers

constexpr int64_t padded(int64_t columns) { return (columns + kPanel - 1) / kPanel * kPanel; }

/// sums[i] (+)= the products of columns [0, kCount) of `rows` and kVectors vectors of `others`, over all rows.
template <int kCount, int kVectors = 2>
[[gnu::noinline]] void multiply_columns(const float* rows, int64_t row, const float* others, int64_t others_row,
                                        int64_t count, bool add, float* sums, int64_t sums_row) {
  Lanes total[kCount][kVectors] = {};
#pragma GCC unroll 6
  for (int i = 0; add && i < kCount; ++i)
    for (int v = 0; v < kVectors; ++v) total[i][v] = load_vector(sums + i * sums_row + v * kLanes);
  for (int64_t r = 0; r < count; ++r, rows += row, others += others_row) {
    Lanes other[kVectors];
    for (int v = 0; v < kVectors; ++v) other[v] = load_vector(others + v * kLanes);
#pragma GCC unroll 6
    for (int i = 0; i < kCount; ++i) {
      for (int v = 0; v < kVectors; ++v) total[i][v] += rows[i] * other[v];
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kCount; ++i)
    for (int v = 0; v < kVectors; ++v) store_vector(sums + i * sums_row + v * kLanes, total[i][v]);
}

/// body.operator()<kCount>(first) for [0, count), kRows at a time.
template <int kCount = kRows, class Body>
void for_rows(int64_t count, const Body& body, int64_t first = 0) {
  for (; count - first >= kCount; first += kCount) body.template operator()<kCount>(first);
  if constexpr (kCount > 1) for_rows<kCount - 1>(count, body, first);
}

}  // namespace
}  // namespace tern::kernels::TERN_CPU
