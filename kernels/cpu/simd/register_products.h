#pragma once
// Products of matrices in registers, for convolutions and gradients of weights: six rows of a result and two vectors of
// its columns are summed at a time. Included only by kernels/cpu.

#include "tern/kernels/cpu/simd/register_tile.h"

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
  RegisterTile<kCount, kVectors> tile;
  const auto place = [=](int r) { return sums + r * sums_row; };
  if (add) tile.load(place);
  tile.multiply(count, LeftColumns<float>{rows, row}, others, others_row);
  tile.store(place);
}

}  // namespace
}  // namespace tern::kernels::TERN_CPU
