#include "tern/core/ops/convolution/convolution.h"

#include <algorithm>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/function.h"
#include "tern/core/ops/convolution/epilogue.h"
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

using detail::image_shape, detail::rows_of;
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

void count_operations(const ConvolutionShape& s, DType dtype) {
  detail::count_product(s.batch * s.out_pixels(), s.out_channels, s.depth_of_sums(), dtype);
}

/// x and y with their channels last, the others contiguous.
void run_forward(const ConvolutionShape& s, const Tensor& x, const Tensor& weight, const kernels::ConvolutionEnd& end,
                 const Tensor& y) {
  const kernels::Stream stream = current_stream(x.device());
  const bool packed = end.packed_weight != nullptr;
  const Workspace workspace(x.device(), [&] { return kernels::convolution_workspace(stream, s, x.dtype(), packed); });
  kernels::convolution_forward(stream, s, rows_of(x), weight.view(), end, rows_of(y), workspace.data());
  count_operations(s, x.dtype());
}

// A convolution is linear in its input and in its weight. Its two gradients are linear too, so each of the three ops
// has the other two as its gradients, any number of times.

/// y of x and weight.
struct Convolution final : Function<Convolution> {
  static constexpr const char* kName = "convolution";
  static constexpr bool kTwiceDifferentiable = true;
  Saved x_, weight_;
  ConvolutionShape shape_;
  DType weight_dtype_ = DType::kFloat32, bias_dtype_ = DType::kFloat32;

  Tensor forward(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvolutionShape& shape);
  Grads backward(const Tensor& dy) override;
};

/// The gradient of x, of dy and weight.
struct ConvolutionInput final : Function<ConvolutionInput> {
  static constexpr const char* kName = "convolution_input";
  static constexpr bool kTwiceDifferentiable = true;
  Saved dy_, weight_;
  ConvolutionShape shape_;
  DType weight_dtype_ = DType::kFloat32;

  Tensor forward(const Tensor& dy, const Tensor& weight, const ConvolutionShape& shape);
  Grads backward(const Tensor& g) override;
};

/// The gradient of the weight, of dy and x, as a tensor of `dtype`.
struct ConvolutionWeight final : Function<ConvolutionWeight> {
  static constexpr const char* kName = "convolution_weight";
  static constexpr bool kTwiceDifferentiable = true;
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

/// What conv2d and conv_transpose2d check and compute alike.
struct Call {
  const char* op;
  int dims;
  Tensor x, weight, bias;
  bool batched = true;

  Call(const char* name, int spatial, const Tensor& input, const Tensor& weight_in, const Tensor& bias_in)
      : op(name), dims(spatial), x(input), weight(weight_in), bias(bias_in) {
    detail::check_one_device(op, {&x, &weight, &bias});
    TERN_CHECK(x.dim() == dims + 2 || x.dim() == dims + 1, op, ": x must be [batch, channels, ", dims,
               " spatial dimensions] or without batch, got ", x.shape());
    TERN_CHECK(weight.dim() == dims + 2, op, ": weight must have ", dims + 2, " dimensions, got ", weight.shape());
    batched = x.dim() == dims + 2;
    if (!batched) x = x.unsqueeze(0);
    detail::autocast_inputs("convolution", {&x});
    for (Tensor* t : {&weight, &bias})
      if (t->defined() && (t->dtype() != float32 || !is_low_precision(x.dtype())))
        detail::autocast_inputs("convolution", {t});
    const bool cast = weight.dtype() == float32 && x.dtype() == autocast_active_dtype(x.device());
    TERN_CHECK((x.dtype() == weight.dtype() || cast) && is_floating(x.dtype()), op, ": x is ", x.dtype(),
               " and weight ", weight.dtype(), "; they must be of one floating dtype", detail::dtype_hint({x, weight}));
    TERN_CHECK(!bias.defined() || bias.dtype() == x.dtype() || bias.dtype() == float32, op, ": bias is ", bias.dtype(),
               ", expected ", x.dtype(), " or float32", detail::dtype_hint({x, bias}));
    for (int d = 0; d < dims; ++d)
      TERN_CHECK(weight.size(d + 2) >= 1, op, ": weight ", weight.shape(), " has an empty kernel");
  }

  void check_groups(int64_t groups, int64_t in, int64_t out) const {
    TERN_CHECK(groups >= 1, op, ": groups must be at least 1, got ", groups);
    TERN_CHECK(in >= 1 && out >= 1 && in % groups == 0 && out % groups == 0, op, ": groups (", groups,
               ") must divide the channels of input (", in, ") and output (", out, "), which must not be 0");
    TERN_CHECK(!bias.defined() || (bias.dim() == 1 && bias.size(0) == out), op, ": bias is ",
               bias.defined() ? bias.shape() : Shape(), ", expected [", out, "]");
  }
  Tensor result(const Tensor& y) const { return batched ? y : y.squeeze(0); }
};

/// Checks the arguments of a convolution.
ConvolutionShape shape_of(const Call& call, const ConvolutionOptions& options) {
  const char* const op = call.op;
  const int dims = call.dims;
  const int64_t groups = options.groups, in = call.x.size(1), out = call.weight.size(0);
  call.check_groups(groups, in, out);
  TERN_CHECK(call.weight.size(1) == in / groups, op, ": x has ", in, " channels and the weight is for ",
             call.weight.size(1) * groups, ": weight ", call.weight.shape(), ", x ", call.x.shape(), ", groups ",
             groups, "; the weight's dimension 1 must be ", in / groups);
  const std::vector<int64_t> stride = options.stride.of(op, "stride", dims);
  const std::vector<int64_t> padding = options.padding.of(op, "padding", dims);
  const std::vector<int64_t> dilation = options.dilation.of(op, "dilation", dims);
  detail::check_sizes(op, "stride", stride, 1);
  detail::check_sizes(op, "padding", padding, 0);
  detail::check_sizes(op, "dilation", dilation, 1);
  ConvolutionShape s{.batch = call.x.size(0), .in_channels = in, .out_channels = out, .groups = groups};
  for (int i = 0; i < dims; ++i) {
    const auto d = static_cast<size_t>(3 - dims + i), j = static_cast<size_t>(i);
    s.in[d] = call.x.size(i + 2);
    s.kernel[d] = call.weight.size(i + 2);
    s.stride[d] = stride[j];
    s.dilation[d] = dilation[j];
    const int64_t reach = dilation[j] * (s.kernel[d] - 1) + 1;
    if (options.same) {
      TERN_CHECK(stride[j] == 1, op, ": `same` needs a stride of 1, got ", stride[j]);
      s.padding[d] = (reach - 1) / 2;
      s.out[d] = s.in[d];
      continue;
    }
    s.padding[d] = padding[j];
    const int64_t padded = s.in[d] + 2 * padding[j];
    TERN_CHECK(reach <= padded, op, ": the kernel reaches over ", reach, " elements of dimension ", i + 2, " (size ",
               s.kernel[d], ", dilation ", dilation[j], "), more than the padded input has: ", padded, "; x is ",
               call.x.shape(), " and weight ", call.weight.shape());
    s.out[d] = (padded - reach) / stride[j] + 1;
  }
  return s;
}

Tensor convolve(const char* op, int dims, const Tensor& x, const Tensor& weight, const Tensor& bias,
                const ConvolutionOptions& options) {
  const Call call(op, dims, x, weight, bias);
  return call.result(Convolution::apply(call.x, call.weight, call.bias, shape_of(call, options)));
}

Tensor convolve_transposed(const char* op, int dims, const Tensor& x, const Tensor& weight, const Tensor& bias,
                           const TransposedConvolutionOptions& options) {
  Call call(op, dims, x, weight, bias);
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

namespace detail {

Tensor PackedWeight::find(const ConvolutionShape& shape, const Tensor& weight, const Tensor& used) {
  return copies_.find({shape, used.dtype()}, weight, [&] {
    const kernels::Stream stream = current_stream(used.device());
    const int64_t bytes = kernels::convolution_packed_bytes(stream, shape, used.dtype());
    if (bytes == 0) return Tensor();
    const Tensor packed = empty({bytes}, {uint8, used.device()});
    kernels::convolution_pack(stream, shape, used.view(), packed.raw_data());
    return packed;
  });
}

Tensor conv2d_with_end(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvolutionOptions& options,
                       const Tensor& residual, ImageActivation activation, PackedWeight& packed) {
  const Call call("conv2d", 2, x, weight, bias);
  const ConvolutionShape shape = shape_of(call, options);
  const ProfileRange range(Convolution::kName, RangeKind::kOp);
  const AllocationTag tag(Convolution::kName);
  const Tensor y = empty_channels_last(output_shape(shape, 2), call.x.options());
  Tensor added;
  if (residual.defined()) {
    check_one_device("conv2d", {&call.x, &residual});
    added = call.batched ? residual : residual.unsqueeze(0);
    TERN_CHECK(added.shape() == y.shape() && added.dtype() == y.dtype(), "conv2d: the residual is ", residual.shape(),
               " ", residual.dtype(), ", expected the result's ", call.result(y).shape(), " ", y.dtype());
    added = added.channels_last();
  }
  const Tensor last = call.x.channels_last(), used = autocast_copy(call.weight, y.dtype()).contiguous();
  const Tensor shift = contiguous_or_none(bias_for(call.x, call.weight, call.bias));
  const Tensor memory = packed.find(shape, call.weight, used);
  run_forward(shape, last, used,
              {.bias = shift.view(),
               .residual = added.defined() ? rows_of(added) : kernels::View(),
               .activation = activation,
               .packed_weight = memory.defined() ? memory.raw_data() : nullptr},
              y);
  const Tensor* const read[] = {&call.x, &call.weight, &call.bias, &residual};
  if (range.recording()) range.count_tensors(read, 4, &y, 1);
  if (anomaly_mode() != Anomaly::kOff) check_anomaly_forward(Convolution::kName, read, 1, y);
  return call.result(y);
}

}  // namespace detail
}  // namespace tern
