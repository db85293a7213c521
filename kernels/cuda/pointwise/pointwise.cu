// Element-wise ops: calls the kernels of the op that a call selects.

#include "tern/kernels/pointwise/pointwise.h"

#include "tern/kernels/base/check.h"
#include "tern/kernels/cuda/pointwise/builtin.h"

namespace tern::kernels::cuda {
namespace {

template <class F>
PointwiseFunction* find_in(int index) {
  if (PointwiseFunction* even = builtin_pointwise<F, PointwiseGroup::kUnaryEven>(index)) return even;
  if (PointwiseFunction* odd = builtin_pointwise<F, PointwiseGroup::kUnaryOdd>(index)) return odd;
  return builtin_pointwise<F, PointwiseGroup::kOthers>(index);
}

PointwiseFunction* find(const PointwiseCall& call) {
  if (call.builtin < 0) return call.on_cuda;
  if (call.compute == DType::kFloat64) return find_in<double>(call.builtin);
  if (call.compute == DType::kInt64) return find_in<int64_t>(call.builtin);
  return find_in<float>(call.builtin);
}

}  // namespace

void pointwise(Stream stream, const PointwiseCall& call, const ConstView* inputs, int count, View y) {
  if (y.numel() == 0) return;
  PointwiseFunction* function = find(call);
  TERN_CHECK(
      function,
      "pointwise: this op has no CUDA kernels; declare `static tern::kernels::PointwiseFunction on_cuda;` in its "
      "struct and define it in a .cu file with kernels/cuda/pointwise/kernel.h, or move the tensors to the CPU");
  function(stream, call, inputs, count, y);
}

}  // namespace tern::kernels::cuda
