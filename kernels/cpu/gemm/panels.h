#pragma once
// Products of fp32 with a matrix that was packed in advance, at the level at which oneDNN takes no packed one and
// Tern's own are faster: the matrix lies in panels of as many columns as registers hold sums of six rows for. A row's
// sums do not depend on the other rows. Included only by kernels/cpu.

#include <algorithm>
#include <cstring>

#include "tern/kernels/cpu/simd/register_products.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// Inner elements that are summed before the next panel is read, so that those of a panel stay in the first cache and
/// those of a block of rows in the second.
constexpr int64_t kPanelDepth = 512;

/// sums = kCount rows times a panel [depth, kPanel], added to one row of kPanel numbers, or without it to the sums.
template <int kCount>
[[gnu::noinline]] void multiply_panel_rows(const float* rows, int64_t row, const float* panel, int64_t depth,
                                           const float* bias, float* sums, int64_t sums_row) {
  RegisterTile<kCount, 2> tile;
  const auto place = [=](int r) { return sums + r * sums_row; };
  bias ? tile.load([=](int) { return bias; }) : tile.load(place);
  tile.multiply(depth, LeftRows<float>{rows, row}, panel, kPanel);
  tile.store(place);
}

inline int64_t panel_bytes(int64_t n, int64_t k) { return padded(n) * k * 4; }

/// b, [k, n] or with transpose_b [n, k], its rows ldb apart, as panels: [panel, k, kPanel], with zeros behind column n.
inline void pack_panels(bool transpose_b, int64_t n, int64_t k, const float* b, int64_t ldb, float* packed) {
  parallel_for(padded(n) / kPanel, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      for (int64_t i = 0; i < k; ++i)
        for (int64_t j = 0; j < kPanel; ++j) {
          const int64_t column = p * kPanel + j;
          packed[(p * k + i) * kPanel + j] = column >= n ? 0.0f : b[transpose_b ? column * ldb + i : i * ldb + column];
        }
  });
}

/// c[m, n] = a[m, k] times packed panels + bias[n]; rows lda and ldc apart.
inline void multiply_panels(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* packed,
                            const float* bias, float* c, int64_t ldc) {
  const int64_t whole = n / kPanel * kPanel;
  for (int64_t first = 0; first < k; first += kPanelDepth) {
    const int64_t depth = std::min(kPanelDepth, k - first);
    for (int64_t column = 0; column < whole; column += kPanel)
      for_rows<kRows>(m, [&]<int kCount>(int64_t row) {
        multiply_panel_rows<kCount>(a + row * lda + first, lda, packed + column * k + first * kPanel, depth,
                                    first == 0 ? bias + column : nullptr, c + row * ldc + column, ldc);
      });
  }
  if (whole == n) return;
  float last[kPanel] = {};
  std::copy(bias + whole, bias + n, last);
  for_rows<kRows>(m, [&]<int kCount>(int64_t row) {
    alignas(64) float sums[kRows * kPanel];
    multiply_panel_rows<kCount>(a + row * lda, lda, packed + whole * k, k, last, sums, kPanel);
    for (int r = 0; r < kCount; ++r) std::memcpy(c + (row + r) * ldc + whole, sums + r * kPanel, (n - whole) * 4);
  });
}

}  // namespace
}  // namespace tern::kernels::TERN_CPU
