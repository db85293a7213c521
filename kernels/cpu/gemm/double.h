#pragma once
// fp64 products by Eigen, because oneDNN has none.

#include <cstdint>

namespace tern::kernels::TERN_CPU {

/// c[m, n] = alpha * op(a) op(b) + beta * c, row-major, any row strides. All threads, in fixed blocks of rows.
void gemm_double(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, double alpha, const double* a,
                 int64_t lda, const double* b, int64_t ldb, double beta, double* c, int64_t ldc);

}  // namespace tern::kernels::TERN_CPU
