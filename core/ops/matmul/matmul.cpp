#include "tern/core/ops/matmul/matmul.h"

#include <algorithm>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/function.h"
#include "tern/core/ops/indexing/rearrange.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/ops/workspace.h"
#include "tern/core/profiler/profiler.h"
#include "tern/kernels/gemm.h"

namespace tern {
namespace {

/// A matrix in the gemm kernel's layout: the last dimension contiguous, with or without transposition; otherwise a
/// copy.
struct Operand {
  Tensor tensor;  // [batch, rows, cols] or [rows, cols], after undoing the transposition given by `transposed`
  bool transposed = false;
};

Operand as_operand(const Tensor& x) {
  const int last = x.dim() - 1;
  const int64_t rows = x.shape()[last - 1], cols = x.shape()[last];
  const int64_t row_step = x.strides()[last - 1], step = x.strides()[last];
  const bool plain = (step == 1 || cols <= 1) && (row_step >= cols || rows <= 1);
  if (plain) return {x, false};
  const bool flipped = (row_step == 1 || rows <= 1) && (step >= rows || cols <= 1);
  if (flipped) return {x.t(), true};
  return {x.contiguous(), false};
}

/// The same as Matmul, which has no derivative.
Tensor integer_product(const Tensor& a, const Tensor& b) {
  const Tensor c = empty(a.shape().with(-1, b.size(-1)), a.options());
  const auto stacked = [](const Tensor& x) { return x.dim() == 2 ? x.unsqueeze(0) : x; };
  kernels::integer_gemm(current_stream(a.device()), stacked(a).view(), stacked(b).view(), stacked(c).view());
  return c;
}

/// c[batch, m, n] = a[batch, m, k] b[batch, k, n], or the same for single matrices.
struct Matmul final : TwiceDifferentiable<Matmul> {
  static constexpr const char* kName = "matmul";
  Saved a_, b_;
  Tensor forward(const Tensor& a, const Tensor& b) {
    if (!is_floating(a.dtype())) return integer_product(a, b);
    if (needs_grad(1)) a_ = a;
    if (needs_grad(0)) b_ = b;
    const Operand left = as_operand(a), right = as_operand(b);
    const Tensor c = empty(a.shape().with(-1, b.size(-1)), a.options());
    const kernels::Stream stream = current_stream(a.device());
    const Workspace workspace(a.device(), [&] {
      return kernels::gemm_workspace(stream, left.transposed, right.transposed, left.tensor.view(), right.tensor.view(),
                                     c.view());
    });
    kernels::gemm(stream, left.transposed, right.transposed, 1, left.tensor.view(), right.tensor.view(), 0, c.view(),
                  workspace.data());
    if (profiling()) profile_flops(2.0 * static_cast<double>(c.numel()) * static_cast<double>(a.size(-1)), c.dtype());
    return c;
  }
  Grads backward(const Tensor& dc) override {
    Grads grads(2);
    if (needs_grad(0)) grads[0] = matmul(dc, b_.get().t());
    if (needs_grad(1)) grads[1] = matmul(a_.get().t(), dc);
    return grads;
  }
};

/// The leading dimensions of a matrix stack.
Shape batch_shape(const Tensor& x) { return Shape(x.shape().data(), x.dim() - 2); }

Tensor with_batch(const Tensor& x, const Shape& batch) {
  std::vector<int64_t> sizes = batch.vec();
  sizes.push_back(x.size(-2));
  sizes.push_back(x.size(-1));
  return x.expand(sizes).reshape({batch.numel(), x.size(-2), x.size(-1)});
}

Shape common_batch(const Tensor& first, const Tensor& second, const Shape& a, const Shape& b) {
  for (int d = 1; d <= std::min(a.dims(), b.dims()); ++d)
    TERN_CHECK(a.size(-d) == b.size(-d) || a.size(-d) == 1 || b.size(-d) == 1, "matmul: ", first.shape(), " and ",
               second.shape(), " do not fit: the dimensions before the matrices', ", a, " and ", b,
               ", do not broadcast (each must be equal or 1)");
  return broadcast_shapes("matmul", a, b);
}

}  // namespace

Tensor matmul(const Tensor& first, const Tensor& second) {
  Tensor a = first, b = second;
  TERN_CHECK(a.dim() >= 1 && b.dim() >= 1, "matmul: inputs must have at least one dimension, got ", a.shape(), " and ",
             b.shape());
  detail::check_one_device("matmul", {&a, &b});
  detail::autocast_inputs("matmul", {&a, &b});
  TERN_CHECK(a.dtype() == b.dtype() && a.dtype() != DType::kBool,
             "matmul: expected two tensors of one dtype other than bool, got ", a.dtype(), " and ", b.dtype(),
             detail::dtype_hint({a, b}));
  const bool row = a.dim() == 1, column = b.dim() == 1;
  if (row) a = a.unsqueeze(0);
  if (column) b = b.unsqueeze(1);
  TERN_CHECK(a.size(-1) == b.size(-2), "matmul: ", first.shape(), " and ", second.shape(),
             " do not fit: the last dimension of the first must be the second last of the second");
  if (a.dim() == 2 && b.dim() == 2) {
    const Tensor c = Matmul::apply(a, b);
    if (!row && !column) return c;
    return c.reshape(row && column ? Shape{} : Shape{c.numel()});
  }
  // A stack of matrices times one matrix is one product with a taller matrix.
  if (b.dim() == 2 && a.dim() > 2) {
    std::vector<int64_t> sizes = a.shape().vec();
    sizes.back() = b.size(1);
    const Tensor flat = a.reshape({a.numel() / std::max<int64_t>(a.size(-1), 1), a.size(-1)});
    Tensor c = a.size(-1) > 0 ? Matmul::apply(flat, b).reshape(sizes) : zeros(Shape(sizes), a.options());
    return column ? c.reshape(Shape(sizes).without(-1)) : c;
  }
  const Shape batch = common_batch(first, second, batch_shape(a), batch_shape(b));
  std::vector<int64_t> sizes = batch.vec();
  if (!row) sizes.push_back(a.size(-2));
  if (!column) sizes.push_back(b.size(-1));
  return Matmul::apply(with_batch(a, batch), with_batch(b, batch)).reshape(sizes);
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  TERN_CHECK(a.dim() == 3 && b.dim() == 3 && a.size(0) == b.size(0),
             "bmm: expected [batch, m, k] and [batch, k, n], got ", a.shape(), " and ", b.shape());
  return matmul(a, b);
}
Tensor mv(const Tensor& a, const Tensor& b) {
  TERN_CHECK(a.dim() == 2 && b.dim() == 1, "mv: expected a matrix and a vector, got ", a.shape(), " and ", b.shape());
  return matmul(a, b);
}
Tensor dot(const Tensor& a, const Tensor& b) {
  TERN_CHECK(a.dim() == 1 && b.dim() == 1, "dot: expected two vectors, got ", a.shape(), " and ", b.shape());
  return matmul(a, b);
}

namespace {
Tensor add_product(const char* op, const Tensor& x, const Tensor& product, double beta, double alpha) {
  TERN_CHECK(broadcasts_to(x.shape(), product.shape()), op, ": ", x.shape(), " does not broadcast to the product ",
             product.shape());
  const Tensor scaled = alpha == 1 ? product : mul(product, alpha);
  if (beta == 0) return scaled;
  return add(beta == 1 ? x : mul(x, beta), scaled);
}
}  // namespace

Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, double beta, double alpha) {
  TERN_CHECK(a.dim() == 2 && b.dim() == 2, "addmm: expected two matrices, got ", a.shape(), " and ", b.shape());
  return add_product("addmm", x, matmul(a, b), beta, alpha);
}
Tensor baddbmm(const Tensor& x, const Tensor& a, const Tensor& b, double beta, double alpha) {
  return add_product("baddbmm", x, bmm(a, b), beta, alpha);
}

Tensor vecdot(const Tensor& a, const Tensor& b, int dim) {
  TERN_CHECK(a.dim() > 0 && b.dim() > 0 && a.size(dim) == b.size(dim), "vecdot: ", a.shape(), " and ", b.shape(),
             " differ in dimension ", dim);
  return sum(a * b, {dim});
}

Tensor matrix_power(const Tensor& x, int64_t exponent) {
  TERN_CHECK(x.dim() >= 2 && x.size(-1) == x.size(-2), "matrix_power: expected square matrices [..., m, m], got ",
             x.shape());
  TERN_CHECK(exponent >= 0, "matrix_power: the exponent must not be negative, got ", exponent,
             "; Tern does not invert matrices");
  if (exponent == 0) return eye(x.size(-1), x.options()).expand(x.shape()).clone();
  Tensor square = x, result;
  for (int64_t rest = exponent; rest > 0; rest /= 2) {
    if (rest % 2 == 1) result = result.defined() ? matmul(result, square) : square;
    if (rest > 1) square = matmul(square, square);
  }
  return exponent == 1 ? x.clone() : result;
}

Tensor outer(const Tensor& a, const Tensor& b) {
  TERN_CHECK(a.dim() == 1 && b.dim() == 1, "outer: expected two vectors, got ", a.shape(), " and ", b.shape());
  return mul(a.unsqueeze(1), b);
}

Tensor kron(const Tensor& a, const Tensor& b) {
  const int dims = std::max(a.dim(), b.dim());
  TERN_CHECK(dims <= kMaxDims / 2, "kron: expected at most ", kMaxDims / 2, " dimensions, got ", a.shape(), " and ",
             b.shape());
  std::vector<int64_t> left, right, sizes;
  for (int d = -dims; d < 0; ++d) {
    const int64_t m = -d > a.dim() ? 1 : a.size(d), n = -d > b.dim() ? 1 : b.size(d);
    left.insert(left.end(), {m, 1});
    right.insert(right.end(), {1, n});
    sizes.push_back(m * n);
  }
  return mul(a.reshape(left), b.reshape(right)).reshape(sizes);
}

Tensor cross(const Tensor& a, const Tensor& b, int dim) {
  const Shape shape = broadcast_shapes("cross", a.shape(), b.shape());
  const int d = shape.wrap(dim);
  TERN_CHECK(a.dim() == b.dim() && a.size(d) == 3 && b.size(d) == 3, "cross: expected 3 elements along dimension ", dim,
             " of tensors with as many dimensions, got ", a.shape(), " and ", b.shape());
  const auto turned = [d](const Tensor& x, int64_t by) { return roll(x, {-by}, {d}); };
  return sub(mul(turned(a, 1), turned(b, 2)), mul(turned(a, 2), turned(b, 1)));
}

}  // namespace tern
