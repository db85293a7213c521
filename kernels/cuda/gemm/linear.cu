// Backward pass of a linear layer's activation and bias in one pass over memory: stores the gradient of the
// pre-activation and sums its columns.

#include "tern/kernels/cuda/support/column_parts.h"
#include "tern/kernels/gemm.h"
#include "tern/kernels/pointwise/ops.h"
#include "tern/kernels/pointwise/tiles.h"
#include "tern/kernels/reduce.h"

namespace tern::kernels::cuda {
namespace {

/// Writes dy * activation'(pre) to dpre; the sums use it before rounding. ReLU's derivative is the same at its output
/// as at its input.
template <class Op, class Element>
struct Gradients {
  using T = Element;
  using F = ComputeType<T>;
  static constexpr int kWidth = vector_width<T>;
  static constexpr int kAhead = sizeof(T) == 8 ? 1 : 2;
  struct Raw {
    Vector<T, kWidth> dy, pre;
  };
  const T *dy, *pre;
  T* dpre;
  int64_t cols;

  __device__ Raw load(int64_t row, int64_t column) const {
    return {load_columns(dy + row * cols, column, cols), load_columns(pre + row * cols, column, cols)};
  }
  __device__ Vector<F, kWidth> value(const Raw& raw, int64_t row, int64_t column) const {
    Vector<F, kWidth> gradient = to_compute(raw.dy);
    const Vector<F, kWidth> input = to_compute(raw.pre);
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
      gradient.v[k] = kernels::detail::chain<masks_gradient<Op>()>(gradient.v[k], Op().derivative(input.v[k]));
    store_columns(dpre + row * cols, column, cols, from_compute<T>(gradient));
    return gradient;
  }
};

template <class Op>
void backward(Stream stream, const ConstView& dy, const ConstView& pre, const View& dpre, const View& dbias,
              void* workspace) {
  if (dbias) {
    dispatch_float(dy.dtype, [&]<class T>() {
      const Gradients<Op, T> gradients{dy.as<T>(), pre.as<T>(), dpre.as<T>(), dy.cols()};
      sum_columns(stream, gradients, dy.rows(), dy.cols(), false, workspace, dbias);
    });
  } else {
    const Op op;
    const ConstView inputs[] = {dy, pre};
    const DType compute = dy.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    pointwise(stream, make_call(op, {PointwisePass::kBackward}, compute), inputs, 2, dpre);
  }
}

}  // namespace

int64_t linear_activation_backward_workspace(Stream stream, ConstView dy) {
  const int64_t rows = dy.rows(), cols = dy.cols();
  const int64_t fused = dispatch_float(dy.dtype, [&]<class T>() -> int64_t {
    return choose_column_cut<T>(rows, cols, Gradients<Relu, T>::kAhead).template workspace_bytes<T>(cols);
  });
  return std::max(fused, column_sum_workspace(stream, rows, cols, dy.dtype));
}

void linear_activation_backward(Stream stream, ConstView dy, ConstView pre, Activation activation, View dpre,
                                View dbias, void* workspace) {
  if (dy.cols() == 0) return;
  switch (activation) {
    case Activation::kGelu:
      return backward<Gelu>(stream, dy, pre, dpre, dbias, workspace);
    case Activation::kRelu:
      return backward<Relu>(stream, dy, pre, dpre, dbias, workspace);
    case Activation::kNone:
      if (dbias) column_sum(stream, dy, false, workspace, dbias);
  }
}

}  // namespace tern::kernels::cuda
