// Products of matrices.

#include "tern/kernels/base/check.h"
#include "tern/models/onnx/registry.h"

namespace tern::onnx {
namespace {

void matrix_product(Call& c) {
  c.check_types();
  c.set(matmul(c.in(0), c.in(1)));
}

/// alpha A B + beta C; with a weight as nn::Linear has it, one pass.
void gemm(Call& c) {
  c.check_types();
  const Tensor a = c.flag("transA") ? c.in(0).t() : c.in(0);
  const double alpha = c.number("alpha", 1), beta = c.number("beta", 1);
  const bool transposed = c.flag("transB"), has_c = c.has(2) && beta != 0;
  TERN_CHECK(a.dim() == 2 && c.in(1).dim() == 2, "expected matrices, got ", c.in(0).describe(), " and ",
             c.in(1).describe());
  if (is_floating(a.dtype()) && transposed && alpha == 1 && (!has_c || (beta == 1 && c.in(2).dim() == 1)) &&
      (!has_c || c.in(2).size(0) == c.in(1).size(0)))
    return c.set(linear(a, c.in(1), has_c ? c.in(2) : Tensor()));
  const Tensor b = transposed ? c.in(1).t() : c.in(1);
  if (is_floating(a.dtype()) && has_c) return c.set(addmm(c.in(2), a, b, beta, alpha));
  Tensor y = matmul(a, b);
  if (alpha != 1) y = y * alpha;
  if (has_c) y = y + (beta == 1 ? c.in(2) : c.in(2) * beta);
  c.set(y.to(a.dtype()));
}

void einstein(Call& c) { c.set(einsum(c.text("equation", ""), c.all())); }

}  // namespace

void add_matmul_ops(Rows& rows) {
  const Rows own = {
      {"MatMul", 1, matrix_product},
      {"Gemm", 7, gemm},
      {"Einsum", 12, einstein},
  };
  rows.insert(rows.end(), own.begin(), own.end());
}

}  // namespace tern::onnx
