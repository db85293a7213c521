#include "tern/core/ops/matmul.h"

#include <algorithm>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/function.h"
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

/// c[batch, m, n] = a[batch, m, k] b[batch, k, n], or the same for single matrices.
struct Matmul final : Function<Matmul> {
  static constexpr const char* kName = "matmul";
  static constexpr bool kTwiceDifferentiable = true;
  Saved a_, b_;
  Tensor forward(const Tensor& a, const Tensor& b) {
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
  TERN_CHECK(a.dtype() == b.dtype() && is_floating(a.dtype()),
             "matmul: expected two tensors of one floating dtype, got ", a.dtype(), " and ", b.dtype(),
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

}  // namespace tern
