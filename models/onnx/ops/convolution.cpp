// Convolutions.

#include <algorithm>

#include "tern/core/autograd/function.h"
#include "tern/core/ops/convolution/call.h"
#include "tern/kernels/base/check.h"
#include "tern/models/onnx/ops/layers.h"
#include "tern/models/onnx/ops/windows.h"
#include "tern/models/onnx/registry.h"

namespace tern::onnx {

Windows Windows::of(const Call& call, const Tensor& x, const Numbers& kernel) {
  Windows w;
  w.dims = x.dim() - 2;
  TERN_CHECK(w.dims >= 1 && w.dims <= 3, "expected images of one to three dimensions, got ", x.describe());
  const auto count = static_cast<size_t>(w.dims);
  const Numbers ones(count, 1), pads = call.numbers("pads", Numbers(2 * count, 0));
  w.kernel = call.numbers("kernel_shape", kernel);
  w.stride = call.numbers("strides", ones);
  w.dilation = call.numbers("dilations", ones);
  TERN_CHECK(w.kernel.size() == count && w.stride.size() == count && w.dilation.size() == count &&
                 pads.size() == 2 * count && (kernel.empty() || w.kernel == kernel),
             "kernel, strides, dilations or pads do not fit ", x.describe());
  for (size_t d = 0; d < count; ++d)
    TERN_CHECK(w.kernel[d] > 0 && w.stride[d] > 0 && w.dilation[d] > 0 && w.kernel[d] < (1 << 30) &&
                   w.dilation[d] < (1 << 30) && w.stride[d] < (1 << 30) && pads[d] < (1 << 30) &&
                   pads[d + count] < (1 << 30) && pads[d] > -(1 << 30) && pads[d + count] > -(1 << 30),
               "a kernel, stride, dilation or padding is out of range");
  w.front.assign(pads.begin(), pads.begin() + w.dims);
  w.back.assign(pads.begin() + w.dims, pads.end());
  const std::string mode = call.text("auto_pad", "NOTSET");
  TERN_CHECK(mode == "NOTSET" || mode == "VALID" || mode == "SAME_UPPER" || mode == "SAME_LOWER", "auto_pad '", mode,
             "'");
  if (mode == "VALID") w.front.assign(count, 0), w.back.assign(count, 0);
  for (size_t d = 0; d < count && mode.starts_with("SAME"); ++d) {
    const int64_t size = x.size(static_cast<int>(d) + 2), outputs = (size + w.stride[d] - 1) / w.stride[d];
    const int64_t total = std::max<int64_t>(0, (outputs - 1) * w.stride[d] + w.extent(d) - size);
    w.front[d] = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
    w.back[d] = total - w.front[d];
  }
  return w;
}

bool Windows::symmetric(bool pooling) const {
  for (size_t d = 0; d < kernel.size(); ++d)
    if (front[d] != back[d] || front[d] < 0 || (pooling && front[d] > kernel[d] / 2)) return false;
  return true;
}

Tensor Windows::padded(const Tensor& x, double value, const Numbers& more) const {
  Numbers padding;
  bool any = false;
  for (size_t d = kernel.size(); d-- > 0;) {
    padding.insert(padding.end(), {front[d], back[d] + (more.empty() ? 0 : more[d])});
    any = any || padding[padding.size() - 1] != 0 || padding[padding.size() - 2] != 0;
  }
  return any ? pad(x, padding, PadMode::kConstant, value) : x;
}

Numbers Windows::counts(const Tensor& x, bool ceil_mode) const {
  Numbers result;
  for (size_t d = 0; d < kernel.size(); ++d) {
    const int64_t size = x.size(static_cast<int>(d) + 2), whole = size + front[d] + back[d] - extent(d);
    TERN_CHECK(whole >= 0 || ceil_mode, "a window of ", extent(d), " is larger than the image of ", size);
    int64_t count = std::max<int64_t>(0, whole + (ceil_mode ? stride[d] - 1 : 0)) / stride[d] + 1;
    if (ceil_mode && (count - 1) * stride[d] >= size + front[d]) --count;  // the last window begins in the padding
    result.push_back(count);
  }
  return result;
}

Numbers kernel_size(const Tensor& weight) {
  TERN_CHECK(weight.dim() >= 3, "a convolution's weight is ", weight.describe());
  return {weight.shape().begin() + 2, weight.shape().end()};
}

namespace {

struct Convolution {
  Tensor x, weight, bias;
  ConvolutionOptions options;
  int64_t dims;

  explicit Convolution(const Call& c) : x(c.in(0)), weight(c.in(1)), bias(c.in_or_none(2)) {
    const Windows w = Windows::of(c, x, kernel_size(weight));
    dims = w.dims;
    options = {.stride = w.stride, .dilation = w.dilation, .groups = c.integer("group", 1)};
    if (w.symmetric(false))
      options.padding = w.front;
    else
      x = w.padded(x);
  }
  Tensor result() const {
    const auto op = dims == 1 ? conv1d : dims == 2 ? conv2d : conv3d;
    return op(x, weight, bias, options);
  }
  /// Whether activation(result + residual) may be one pass.
  bool fits_epilogue(const Tensor& residual) const {
    const Tensor* const read[] = {&x, &weight, &bias, &residual};
    if (dims != 2 || !is_floating(x.dtype()) || tern::detail::active_trace() || tern::detail::requires_record(read, 4))
      return false;
    if (!residual.defined()) return true;
    const tern::detail::ConvolutionCall call("conv2d", 2, x, weight, bias);
    const kernels::ConvolutionShape s = tern::detail::shape_of(call, options);
    return residual.dtype() == call.x.dtype() && residual.device() == x.device() &&
           residual.shape() == Shape{s.batch, s.out_channels, s.out[1], s.out[2]};
  }
};

Tensor activated(const Tensor& x, ImageActivation activation) {
  switch (activation) {
    case ImageActivation::kRelu:
      return relu(x);
    case ImageActivation::kRelu6:
      return clamp(x, 0, 6);
    case ImageActivation::kSilu:
      return silu(x);
    case ImageActivation::kHardSwish:
      return hardswish(x);
    case ImageActivation::kGelu:
      return gelu(x);
    case ImageActivation::kNone:
      break;
  }
  return x;
}

void convolve(Call& c) {
  c.check_types();
  c.set(Convolution(c).result());
}

void convolution_layer(Call& c) {
  c.check_types();
  const Convolution call(c);
  const Tensor residual = c.in_or_none(3);
  const auto activation = static_cast<ImageActivation>(c.integer("activation", 0));
  if (call.fits_epilogue(residual))
    return c.set(tern::detail::conv2d_with_epilogue(call.x, call.weight, call.bias, call.options, residual, activation,
                                                    c.memory().convolution));
  const Tensor y = call.result();
  c.set(activated(residual.defined() ? y + residual : y, activation));
}

/// Pads are what is cut from the result; output_shape says how much.
void convolve_transposed(Call& c) {
  c.check_types();
  const Tensor x = c.in(0), weight = c.in(1);
  Windows w = Windows::of(c, x, kernel_size(weight));
  Numbers more = c.numbers("output_padding", Numbers(w.kernel.size(), 0));
  TERN_CHECK(more.size() == w.kernel.size(), "output_padding has ", more.size(), " entries");
  const std::string mode = c.text("auto_pad", "NOTSET");
  Numbers wanted = c.numbers("output_shape");
  if (wanted.size() == w.kernel.size() + 2) wanted.erase(wanted.begin(), wanted.begin() + 2);
  TERN_CHECK(wanted.empty() || wanted.size() == w.kernel.size(), "output_shape has ", wanted.size(), " entries");
  for (size_t d = 0; d < w.kernel.size(); ++d) {
    const int64_t size = x.size(static_cast<int>(d) + 2), whole = (size - 1) * w.stride[d] + w.extent(d);
    if (!wanted.empty() && wanted[d] > whole) {
      more[d] = wanted[d] - whole;
      w.front[d] = w.back[d] = 0;
    } else if (mode.starts_with("SAME") || !wanted.empty()) {
      const int64_t total = std::max<int64_t>(0, whole + more[d] - (wanted.empty() ? size * w.stride[d] : wanted[d]));
      w.front[d] = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
      w.back[d] = total - w.front[d];
    }
  }
  const auto op = w.dims == 1 ? conv_transpose1d : w.dims == 2 ? conv_transpose2d : conv_transpose3d;
  TransposedConvolutionOptions options{
      .stride = w.stride, .output_padding = more, .dilation = w.dilation, .groups = c.integer("group", 1)};
  const bool symmetric = w.symmetric(false);
  if (symmetric) options.padding = w.front;
  Tensor y = op(x, weight, c.in_or_none(2), options);
  for (int d = 0; d < w.dims && !symmetric; ++d) {
    const auto i = static_cast<size_t>(d);
    const int64_t left = y.size(d + 2) - w.front[i] - w.back[i];
    TERN_CHECK(w.front[i] >= 0 && w.back[i] >= 0 && left >= 0, "pads cut more than there is");
    y = y.narrow(d + 2, w.front[i], left);
  }
  c.set(y);
}

void columns_to_image(Call& c) {
  const Numbers size = c.list(1), kernel = c.list(2);
  TERN_CHECK(size.size() == 2 && kernel.size() == 2, "images of two dimensions, not ", size.size(), ", are supported");
  const Numbers pads = c.numbers("pads", Numbers{0, 0, 0, 0});
  TERN_CHECK(pads.size() == 4, "there are ", pads.size(), " pads");
  const Numbers dilation = c.numbers("dilations", {1, 1}), stride = c.numbers("strides", {1, 1});
  if (pads[0] == pads[2] && pads[1] == pads[3])
    return c.set(fold(c.in(0), size, kernel, {dilation, Numbers{pads[0], pads[1]}, stride}));
  const Tensor whole =
      fold(c.in(0), Numbers{size[0] + pads[0] + pads[2], size[1] + pads[1] + pads[3]}, kernel, {dilation, 0, stride});
  c.set(whole.narrow(2, pads[0], size[0]).narrow(3, pads[1], size[1]));
}

}  // namespace

const OpRow kConvolutionLayer{"Conv", 1, convolution_layer};

void add_convolution_ops(Rows& rows) {
  const Rows own = {
      {"Conv", 1, convolve},
      {"ConvTranspose", 1, convolve_transposed},
      {"Col2Im", 18, columns_to_image},
  };
  rows.insert(rows.end(), own.begin(), own.end());
}

}  // namespace tern::onnx
