#include "tern/core/ops/reduce/run_reduction.h"

#include "tern/core/ops/workspace.h"
#include "tern/core/tensor/recorded_call.h"
#include "tern/core/tensor/tensor_impl.h"

namespace tern::detail {

uint32_t dimension_bits(const char* op, const Tensor& x, const std::vector<int>& dims) {
  if (dims.empty()) return (1u << x.dim()) - 1;
  uint32_t bits = 0;
  const Shape shape = x.dim() == 0 ? Shape{1} : x.shape();
  for (int d : dims) {
    const uint32_t bit = 1u << shape.wrap(d);
    TERN_CHECK(!(bits & bit), op, ": dimension ", d, " is repeated");
    bits |= bit;
  }
  return x.dim() == 0 ? 0 : bits;
}

Shape reduced_shape(const Shape& shape, uint32_t bits, bool keepdim) {
  std::vector<int64_t> sizes;
  for (int d = 0; d < shape.dims(); ++d) {
    if (!(bits >> d & 1))
      sizes.push_back(shape[d]);
    else if (keepdim)
      sizes.push_back(1);
  }
  return Shape(sizes);
}

DType accumulation_type(DType dtype) {
  return is_floating(dtype) && dtype != DType::kFloat64 ? DType::kFloat32 : dtype;
}

Tensor run_reduction(kernels::Reduction reduction, const Tensor& x, uint32_t bits, bool keepdim, DType dtype) {
  if (TraceSink* const sink = active_trace())
    return record_call(
        *sink,
        reduction == kernels::Reduction::kAll   ? "all"
        : reduction == kernels::Reduction::kAny ? "any"
                                                : "reduce",
        [](const auto&... all) { return run_reduction(all...); }, reduction, x, bits, keepdim, dtype);
  const Shape shape = reduced_shape(x.shape(), bits, true);
  const TensorOptions options{dtype, x.device()};
  const Tensor y = keepdim && has_channels_last(x) ? empty_channels_last(shape, options) : empty(shape, options);
  const kernels::Stream stream = current_stream(x.device());
  const Workspace workspace(x.device(), [&] { return kernels::reduce_workspace(stream, x.view(), bits, y.view()); });
  kernels::reduce(stream, reduction, x.view(), bits, workspace.data(), y.view());
  return keepdim ? y : y.reshape(reduced_shape(x.shape(), bits, false));
}

}  // namespace tern::detail
