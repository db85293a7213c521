#include "tern/core/ops/convolution/call.h"

#include "tern/core/ops/image/images.h"
#include "tern/core/ops/matmul/linear_inputs.h"
#include "tern/core/ops/workspace.h"

namespace tern::detail {

using kernels::ConvolutionShape;

ConvolutionCall::ConvolutionCall(const char* name, int spatial, const Tensor& input, const Tensor& weight_in,
                                 const Tensor& bias_in)
    : op(name), dims(spatial), x(input), weight(weight_in), bias(bias_in) {
  check_one_device(op, {&x, &weight, &bias});
  TERN_CHECK(x.dim() == dims + 2 || x.dim() == dims + 1, op, ": x must be [batch, channels, ", dims,
             " spatial dimensions] or without batch, got ", x.shape());
  TERN_CHECK(weight.dim() == dims + 2, op, ": weight must have ", dims + 2, " dimensions, got ", weight.shape());
  batched = x.dim() == dims + 2;
  if (!batched) x = x.unsqueeze(0);
  autocast_inputs("convolution", {&x});
  for (Tensor* t : {&weight, &bias})
    if (t->defined() && (t->dtype() != float32 || !is_low_precision(x.dtype()))) autocast_inputs("convolution", {t});
  const bool cast = weight.dtype() == float32 && x.dtype() == autocast_active_dtype(x.device());
  TERN_CHECK((x.dtype() == weight.dtype() || cast) && is_floating(x.dtype()), op, ": x is ", x.dtype(), " and weight ",
             weight.dtype(), "; they must be of one floating dtype", dtype_hint({x, weight}));
  TERN_CHECK(!bias.defined() || bias.dtype() == x.dtype() || bias.dtype() == float32, op, ": bias is ", bias.dtype(),
             ", expected ", x.dtype(), " or float32", dtype_hint({x, bias}));
  for (int d = 0; d < dims; ++d)
    TERN_CHECK(weight.size(d + 2) >= 1, op, ": weight ", weight.shape(), " has an empty kernel");
}

void ConvolutionCall::check_groups(int64_t groups, int64_t in, int64_t out) const {
  TERN_CHECK(groups >= 1, op, ": groups must be at least 1, got ", groups);
  TERN_CHECK(in >= 1 && out >= 1 && in % groups == 0 && out % groups == 0, op, ": groups (", groups,
             ") must divide the channels of input (", in, ") and output (", out, "), which must not be 0");
  TERN_CHECK(!bias.defined() || (bias.dim() == 1 && bias.size(0) == out), op, ": bias is ",
             bias.defined() ? bias.shape() : Shape(), ", expected [", out, "]");
}

ConvolutionShape shape_of(const ConvolutionCall& call, const ConvolutionOptions& options) {
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
  check_sizes(op, "stride", stride, 1);
  check_sizes(op, "padding", padding, 0);
  check_sizes(op, "dilation", dilation, 1);
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

void count_operations(const ConvolutionShape& s, DType dtype) {
  count_product(s.batch * s.out_pixels(), s.out_channels, s.depth_of_sums(), dtype);
}

void run_forward(const ConvolutionShape& s, const Tensor& x, const Tensor& weight,
                 const kernels::ConvolutionEpilogue& epilogue, const Tensor& y) {
  const kernels::Stream stream = current_stream(x.device());
  const bool packed = epilogue.packed_weight != nullptr;
  const Workspace workspace(x.device(), [&] { return kernels::convolution_workspace(stream, s, x.dtype(), packed); });
  kernels::convolution_forward(stream, s, rows_of(x), weight.view(), epilogue, rows_of(y), workspace.data());
  count_operations(s, x.dtype());
}

}  // namespace tern::detail
