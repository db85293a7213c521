#pragma once
// Loops for fp32 products so small that a library call takes longer than the arithmetic.

#include "tern/kernels/cpu/simd/register_tile.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// Depends only on one product's shape, so that its bits do not depend on threads, batch or strides.
inline bool is_tiny_product(int64_t m, int64_t n, int64_t k) { return k <= 256 && m * n <= 4096 && m * n * k <= 4096; }

/// One row-major product as in sgemm().
struct TinyProduct {
  bool transpose_a, transpose_b;
  int64_t m, n, k;
  float alpha;
  const float* a;
  int64_t lda;
  const float* b;
  int64_t ldb;
  float beta;
  float* c;
  int64_t ldc;
};

namespace tiny {

constexpr int kCols = 8;

/// Computes kRows rows of kCols columns and stores `cols` of them; b: [k, kCols], rows `stride` apart.
template <int kRows>
void rows_of(const TinyProduct& p, int64_t row, const float* b, int64_t stride, int64_t cols, float* c) {
  RegisterTile<kRows, kCols * sizeof(float) / kVectorBytes> tile;
  if (p.transpose_a)
    tile.multiply(p.k, LeftColumns<float>{p.a + row, p.lda}, b, stride);
  else
    tile.multiply(p.k, LeftRows<float>{p.a + row * p.lda, p.lda}, b, stride);
  alignas(kVectorBytes) float sums[kRows][kCols];
  tile.store([&](int r) { return sums[r]; });
  for (int r = 0; r < kRows; ++r) {
    float* to = c + (row + r) * p.ldc;
    for (int64_t j = 0; j < cols; ++j) {
      const float sum = p.alpha * sums[r][j];
      to[j] = p.beta == 0 ? sum : sum + p.beta * to[j];
    }
  }
}

}  // namespace tiny

/// c = alpha op(a) op(b) + beta c; requires is_tiny_product().
inline void gemm_tiny(const TinyProduct& p) {
  using tiny::kCols;
  float packed[256 * kCols];
  for (int64_t col = 0; col < p.n; col += kCols) {
    const int64_t cols = p.n - col < kCols ? p.n - col : kCols;
    const float* b = p.b + col;
    int64_t stride = p.ldb;
    if (p.transpose_b || cols < kCols) {
      const int64_t row_step = p.transpose_b ? 1 : p.ldb, col_step = p.transpose_b ? p.ldb : 1;
      for (int64_t l = 0; l < p.k; ++l)
        for (int64_t j = 0; j < kCols; ++j)
          packed[l * kCols + j] = j < cols ? p.b[l * row_step + (col + j) * col_step] : 0.0f;
      b = packed;
      stride = kCols;
    }
    for_rows<4>(p.m, [&]<int kRows>(int64_t row) { tiny::rows_of<kRows>(p, row, b, stride, cols, p.c + col); });
  }
}

}  // namespace
}  // namespace tern::kernels::TERN_CPU
