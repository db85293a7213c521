#include "tern/kernels/cpu/gemm/double.h"

// GCC 12 reports uninitialised values inside its AVX-512 intrinsics.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>

#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {

void gemm_double(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, double alpha, const double* a,
                 int64_t lda, const double* b, int64_t ldb, double beta, double* c, int64_t ldc) {
  // Eigen is fast when unit strides are known at compile time: one instance per layout.
  using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using ColMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;
  using Stride = Eigen::OuterStride<>;
  const auto block = [&]<class Left, class Right>(int64_t begin, int64_t rows) {
    const Eigen::Map<const Left, Eigen::Unaligned, Stride> left(a + begin * (transpose_a ? 1 : lda), rows, k,
                                                                Stride(lda));
    const Eigen::Map<const Right, Eigen::Unaligned, Stride> right(b, k, n, Stride(ldb));
    Eigen::Map<RowMajor, Eigen::Unaligned, Stride> out(c + begin * ldc, rows, n, Stride(ldc));
    if (beta == 0) out.setZero();
    if (k > 0 && alpha != 0) out.noalias() += alpha * (left * right);
  };
  parallel_for(m, 64, [&](int64_t begin, int64_t end) {
    const int64_t rows = end - begin;
    if (transpose_a && transpose_b)
      block.template operator()<ColMajor, ColMajor>(begin, rows);
    else if (transpose_a)
      block.template operator()<ColMajor, RowMajor>(begin, rows);
    else if (transpose_b)
      block.template operator()<RowMajor, ColMajor>(begin, rows);
    else
      block.template operator()<RowMajor, RowMajor>(begin, rows);
  });
}

}  // namespace tern::kernels::TERN_CPU
