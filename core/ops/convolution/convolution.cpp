#include "tern/core/ops/convolution/convolution.h"

#include <algorithm>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/function.h"
#include "tern/core/ops/convolution/call.h"
#include "tern/core/ops/image/images.h"
#include "tern/core/ops/indexing/rearrange.h"
#include "tern/core/ops/matmul/linear_inputs.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/ops/workspace.h"
#include "tern/core/profiler/profiler.h"
#include "tern/core/tensor/tensor_impl.h"
#include "tern/kernels/convolution/convolution.h"

namespace tern {

using detail::ConvolutionCall, detail::count_operations, detail::image_shape, detail::rows_of, detail::run_forward;
using kernels::ConvolutionShape;

std::vector<int64_t> SpatialSizes::of(const char* op, const char* what, int dims) const {
  if (values_.size() == 1) return std::vector<int64_t>(static_cast<size_t>(dims), values_[0]);
  TERN_CHECK(values_.size() == static_cast<size_t>(dims), op, ": ", what, " has ", values_.size(),
             " numbers, expected one, or one for each of the ", dims, " spatial dimensions");
  return values_;
}

namespace {

Shape input_shape(const ConvolutionShape& s, int dims) { return image_shape(s.batch, s.in_channels, s.in, dims); }
Shape output_shape(const ConvolutionShape& s, int dims) { return image_shape(s.batch, s.out_channels, s.out, dims); }

// A convolution is linear in its input and in its weight. Its two gradients are linear too, so each of the three ops
// has the other two as its gradients, any number of times.

/// y of x and weight.
struct Convolution final : TwiceDifferentiable<Convolution> {
  static constexpr const char* kName = "convolution";
  Saved x_, weight_;
  ConvolutionShape shape_;
  DType weight_dtype_ = DType::kFloat32, bias_dtype_ = DType::kFloat32;

  Tensor forward(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvolutionShape& shape);
  Grads backward(const Tensor& dy) override;
};

/// The gradient of x, of dy and weight.
struct ConvolutionInput final : TwiceDifferentiable<ConvolutionInput> {
  static constexpr const char* kName = "convolution_input";
  Saved dy_, weight_;
  ConvolutionShape shape_;
  DType weight_dtype_ = DType::kFloat32;

  Tensor forward(const Tensor& dy, const Tensor& weight, const ConvolutionShape& shape);
  Grads backward(const Tensor& g) override;
};

/// The gradient of the weight, of dy and x, as a tensor of `dtype`.
struct ConvolutionWeight final : TwiceDifferentiable<ConvolutionWeight> {
  static constexpr const char* kName = "convolution_weight";
  Saved dy_, x_;
  ConvolutionShape shape_;

  Tensor forward(const Tensor& dy, const Tensor& x, const ConvolutionShape& shape, DType dtype);
  Grads backward(const Tensor& g) override;
};

Tensor Convolution::forward(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvolutionShape& shape) {
  shape_ = shape;
  weight_dtype_ = weight.dtype();
  if (bias.defined()) bias_dtype_ = bias.dtype();
  if (needs_grad(1)) x_ = x;
  if (needs_grad(0)) weight_ = weight;
  const Tensor y = detail::empty_channels_last(output_shape(shape, x.dim() - 2), x.options());
  const Tensor shift = detail::contiguous_or_none(detail::bias_for(x, weight, bias));
  run_forward(shape, x.channels_last(), detail::autocast_copy(weight, x.dtype()).contiguous(), {.bias = shift.view()},
              y);
  return y;
}

Grads Convolution::backward(const Tensor& dy) {
  Grads grads(3);
  if (needs_grad(0)) grads[0] = ConvolutionInput::apply(dy, weight_.get(), shape_);
  if (needs_grad(1)) grads[1] = ConvolutionWeight::apply(dy, x_.get(), shape_, weight_dtype_);
  if (needs_grad(2)) {
    std::vector<int> dims = {0};
    for (int d = 2; d < dy.dim(); ++d) dims.push_back(d);
    grads[2] = sum(dy.to(bias_dtype_), dims);
  }
  return grads;
}

Tensor ConvolutionInput::forward(const Tensor& dy, const Tensor& weight, const ConvolutionShape& shape) {
  shape_ = shape;
  weight_dtype_ = weight.dtype();
  if (needs_grad(1)) dy_ = dy;
  if (needs_grad(0)) weight_ = weight;
  const Tensor dx = detail::empty_channels_last(input_shape(shape, dy.dim() - 2), dy.options());
  const Tensor last = dy.channels_last(), used = detail::autocast_copy(weight, dy.dtype()).contiguous();
  const kernels::Stream stream = current_stream(dy.device());
  const Workspace workspace(dy.device(),
                            [&] { return kernels::convolution_backward_input_workspace(stream, shape, dy.dtype()); });
  kernels::convolution_backward_input(stream, shape, rows_of(last), used.view(), rows_of(dx), workspace.data());
  count_operations(shape, dy.dtype());
  return dx;
}

Grads ConvolutionInput::backward(const Tensor& g) {
  Grads grads(2);
  if (needs_grad(0)) grads[0] = Convolution::apply(g, weight_.get(), Tensor(), shape_);
  if (needs_grad(1)) grads[1] = ConvolutionWeight::apply(dy_.get(), g, shape_, weight_dtype_);
  return grads;
}

Tensor ConvolutionWeight::forward(const Tensor& dy, const Tensor& x, const ConvolutionShape& shape, DType dtype) {
  shape_ = shape;
  if (needs_grad(1)) dy_ = dy;
  if (needs_grad(0)) x_ = x;
  std::vector<int64_t> sizes = {shape.out_channels, shape.group_in()};
  for (int d = 5 - x.dim(); d < 3; ++d) sizes.push_back(shape.kernel[static_cast<size_t>(d)]);
  const Tensor dweight = empty(Shape(sizes), {dtype, x.device()});
  const Tensor dy_last = dy.channels_last(), x_last = x.channels_last();
  const kernels::Stream stream = current_stream(x.device());
  const Workspace workspace(x.device(),
                            [&] { return kernels::convolution_backward_weight_workspace(stream, shape, x.dtype()); });
  kernels::convolution_backward_weight(stream, shape, rows_of(dy_last), rows_of(x_last), dweight.view(),
                                       workspace.data());
  count_operations(shape, x.dtype());
  return dweight;
}

Grads ConvolutionWeight::backward(const Tensor& g) {
  Grads grads(2);
  if (needs_grad(0)) grads[0] = Convolution::apply(x_.get(), g.to(x_.get().dtype()), Tensor(), shape_);
  if (needs_grad(1)) grads[1] = ConvolutionInput::apply(dy_.get(), g.to(dy_.get().dtype()), shape_);
  return grads;
}

Tensor convolve(const char* op, int dims, const Tensor& x, const Tensor& weight, const Tensor& bias,
                const ConvolutionOptions& options) {
  const ConvolutionCall call(op, dims, x, weight, bias);
  return call.result(Convolution::apply(call.x, call.weight, call.bias, shape_of(call, options)));
}

Tensor convolve_transposed(const char* op, int dims, const Tensor& x, const Tensor& weight, const Tensor& bias,
                           const TransposedConvolutionOptions& options) {
  ConvolutionCall call(op, dims, x, weight, bias);
  const int64_t groups = options.groups, in = call.x.size(1);
  const Shape weights = call.weight.shape();
  TERN_CHECK(weights[0] == in, op, ": weight is ", weights, " and x ", call.x.shape(),
             ": the weight's dimension 0 must be the channels of x, ", in);
  int64_t out = 0;
  TERN_CHECK(!__builtin_mul_overflow(weights[1], std::max<int64_t>(groups, 1), &out), op, ": too many channels");
  call.check_groups(groups, in, out);
  const std::vector<int64_t> stride = options.stride.of(op, "stride", dims);
  const std::vector<int64_t> padding = options.padding.of(op, "padding", dims);
  const std::vector<int64_t> more = options.output_padding.of(op, "output_padding", dims);
  const std::vector<int64_t> dilation = options.dilation.of(op, "dilation", dims);
  detail::check_sizes(op, "stride", stride, 1);
  detail::check_sizes(op, "padding", padding, 0);
  detail::check_sizes(op, "output_padding", more, 0);
  detail::check_sizes(op, "dilation", dilation, 1);
  // Rows beyond the last step of the stride are reached by further elements of x, which are 0.
  std::vector<int64_t> zero_rows(static_cast<size_t>(2 * dims), 0);  // of pad: before, after; the last dimension first
  for (size_t j = 0; j < stride.size(); ++j) zero_rows[2 * (stride.size() - j) - 1] = more[j] / stride[j];
  // The convolution whose input's gradient this is.
  ConvolutionShape s{.batch = call.x.size(0), .in_channels = out, .out_channels = in, .groups = groups};
  for (int i = 0; i < dims; ++i) {
    const auto d = static_cast<size_t>(3 - dims + i), j = static_cast<size_t>(i);
    TERN_CHECK(more[j] < std::max(stride[j], dilation[j]), op, ": output_padding (", more[j],
               ") must be smaller than stride (", stride[j], ") or dilation (", dilation[j], ")");
    const int64_t size = call.x.size(i + 2);
    s.out[d] = size + more[j] / stride[j];
    s.kernel[d] = weights[i + 2];
    s.stride[d] = stride[j];
    s.padding[d] = padding[j];
    s.dilation[d] = dilation[j];
    s.in[d] = (size - 1) * stride[j] - 2 * padding[j] + dilation[j] * (s.kernel[d] - 1) + more[j] + 1;
    TERN_CHECK(s.in[d] >= 1, op, ": dimension ", i + 2, " of the result would have ", s.in[d], " elements: padding (",
               padding[j], ") cuts off more than x ", call.x.shape(), " and weight ", weights, " give");
  }
  const bool padded = std::any_of(zero_rows.begin(), zero_rows.end(), [](int64_t rows) { return rows > 0; });
  Tensor y = ConvolutionInput::apply(padded ? pad(call.x, zero_rows) : call.x, call.weight, s);
  if (call.bias.defined()) {
    std::vector<int64_t> channel(static_cast<size_t>(dims + 1), 1);
    channel[0] = out;
    y = y + call.bias.to(y.dtype()).reshape(channel);
  }
  return call.result(y);
}

}  // namespace

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvolutionOptions& options) {
  return convolve("conv1d", 1, x, weight, bias, options);
}
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvolutionOptions& options) {
  return convolve("conv2d", 2, x, weight, bias, options);
}
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvolutionOptions& options) {
  return convolve("conv3d", 3, x, weight, bias, options);
}
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const TransposedConvolutionOptions& options) {
  return convolve_transposed("conv_transpose1d", 1, x, weight, bias, options);
}
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const TransposedConvolutionOptions& options) {
  return convolve_transposed("conv_transpose2d", 2, x, weight, bias, options);
}
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const TransposedConvolutionOptions& options) {
  return convolve_transposed("conv_transpose3d", 3, x, weight, bias, options);
}

}  // namespace tern
