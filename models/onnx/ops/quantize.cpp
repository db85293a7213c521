// Quantised nodes, computed in float.

#include <cmath>

#include "tern/kernels/base/check.h"
#include "tern/models/onnx/ops/windows.h"
#include "tern/models/onnx/registry.h"

namespace tern::onnx {
namespace {

/// A scale or zero point as it broadcasts to x: one number, one for each place of an axis, or of each block of it.
Tensor spread(const Call& c, const Tensor& value, const Tensor& x) {
  if (value.numel() == 1) return value.flatten()[0];
  const int axis = wrapped(c.integer("axis", 1), x.dim());
  const int64_t block = c.integer("block_size", 0);
  if (block == 0) {
    TERN_CHECK(value.dim() == 1 && value.size(0) == x.size(axis), "a scale ", value.describe(), " for axis ", axis,
               " of ", x.shape());
    std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
    sizes[static_cast<size_t>(axis)] = value.size(0);
    return value.reshape(sizes);
  }
  TERN_CHECK(block > 0 && value.dim() == x.dim() && value.size(axis) == (x.size(axis) + block - 1) / block, "a scale ",
             value.describe(), " for blocks of ", block, " of ", x.shape());
  return repeat_interleave(value, block, axis).narrow(axis, 0, x.size(axis));
}

DType wide_type(const Tensor& scale) { return is_low_precision(scale.dtype()) ? float32 : scale.dtype(); }

void dequantize(Call& c) {
  const Tensor x = c.in(0), scale = c.in(1);
  const DType wide = wide_type(scale);
  Tensor y = x.to(wide);
  if (c.has(2)) y = y - spread(c, c.in(2), x).to(wide);
  y = y * spread(c, scale, x).to(wide);
  const auto out = static_cast<int32_t>(c.integer("output_dtype", 0));
  c.set(0, y.to(out == 0 ? scale.dtype() : storage_of(out)), out == 0 ? c.element(1) : out);
}

std::string refuse_quantized(const NodeDef& node, int64_t) {
  const auto out = node.attributes.find("output_dtype");
  if (out != node.attributes.end() && !is_supported(static_cast<int32_t>(out->second.i)) && out->second.i != 0)
    return "elements of type " + element_name(static_cast<int32_t>(out->second.i));
  return "";
}

/// Rounded, moved by the zero point and kept in the range; its gradient is that of the numbers before.
Tensor in_range(const Tensor& x, const Tensor& zero, int32_t element) {
  const IntegerRange range = range_of(element);
  Tensor y = round(x);
  if (zero.defined()) y = y + zero.to(x.dtype());
  return clamp(y, static_cast<double>(range.low), static_cast<double>(range.high)).to(storage_of(element));
}

void quantize(Call& c) {
  const Tensor x = c.in(0), scale = c.in(1);
  auto element = static_cast<int32_t>(c.integer("output_dtype", 0));
  if (c.has(2)) element = c.element(2);
  if (element == 0) element = kUInt8;
  DType wide = is_floating(x.dtype()) && !is_low_precision(x.dtype()) ? x.dtype() : float32;
  const auto precision = static_cast<int32_t>(c.integer("precision", 0));
  Tensor y = x.to(wide) / spread(c, scale, x).to(wide);
  if (precision != 0) y = y.to(storage_of(precision)).to(wide);
  if (is_small_float(element)) {
    if (c.has(2) && element == kFloat4E2M1) y = y + spread(c, c.in(2), x);
    return c.set(0, rounded_to(y, element, c.flag("saturate", true)), element);
  }
  c.set(0, in_range(y, c.has(2) ? spread(c, c.in(2), x) : Tensor(), element), element);
}

void quantize_dynamically(Call& c) {
  const Tensor x = c.in(0);
  const Tensor zero = zeros({}, x.options());
  const Tensor high = maximum(max(x), zero), low = minimum(min(x), zero), span = high - low;
  const Tensor scale = where(span == 0.0, ones_like(span), span) / 255.0;
  const Tensor point = round(clamp(zero - low / scale, 0, 255));
  c.set(0, in_range(x / scale, point, kUInt8), kUInt8);
  c.set(1, scale, kFloat);
  c.set(2, point.to(uint8), kUInt8);
}

/// Less its zero point, as int32; one for each place of `axis` if it is a vector.
Tensor centred(const Tensor& x, const Tensor& zero, int axis) {
  const Tensor wide = x.to(int32);
  if (!zero.defined()) return wide;
  const Tensor point = zero.to(int32);
  if (point.numel() == 1) return wide - point.flatten()[0];
  if (point.dim() != 1) return wide - point;
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
  sizes[static_cast<size_t>(wrapped(axis, x.dim()))] = point.size(0);
  return wide - point.reshape(sizes);
}

void integer_product(Call& c) {
  c.set(0, matmul(centred(c.in(0), c.in_or_none(2), -2), centred(c.in(1), c.in_or_none(3), -1)), kInt32);
}

Tensor shaped_scale(const Tensor& scale, int dims, int axis) {
  if (scale.numel() == 1) return scale.flatten()[0];
  if (scale.dim() != 1) return scale;
  std::vector<int64_t> sizes(static_cast<size_t>(dims), 1);
  sizes[static_cast<size_t>(wrapped(axis, dims))] = scale.size(0);
  return scale.reshape(sizes);
}

void quantized_product(Call& c) {
  const Tensor a = centred(c.in(0), c.in_or_none(2), -2), b = centred(c.in(3), c.in_or_none(5), -1);
  const Tensor products = matmul(a, b).to(float32);
  const Tensor scale = shaped_scale(c.in(1).to(float32), a.dim(), -2) * shaped_scale(c.in(4).to(float32), b.dim(), -1) /
                       c.in(6).to(float32).flatten()[0];
  const int32_t element = c.has(7) ? c.element(7) : c.element(0);
  // In range() after the zero point is added, so that halves are rounded as the specification's sum is.
  Tensor y = products * scale;
  c.set(0, in_range(y, c.has(7) ? c.in(7).flatten()[0] : Tensor(), element), element);
}

/// Of whole numbers, which fp64 sums exactly.
Tensor integer_convolution(Call& c, const Tensor& x, const Tensor& weight) {
  const Windows w = Windows::of(c, x, kernel_size(weight));
  const auto op = w.dims == 1 ? conv1d : w.dims == 2 ? conv2d : conv3d;
  return op(w.padded(x.to(float64)), weight.to(float64), {},
            {.stride = w.stride, .dilation = w.dilation, .groups = c.integer("group", 1)});
}

void convolve_integers(Call& c) {
  const Tensor x = centred(c.in(0), c.in_or_none(2), 1), weight = centred(c.in(1), c.in_or_none(3), 0);
  c.set(0, integer_convolution(c, x, weight).to(int32), kInt32);
}

void convolve_quantized(Call& c) {
  const Tensor x = centred(c.in(0), c.in_or_none(2), 1), weight = centred(c.in(3), c.in_or_none(5), 0);
  Tensor sums = integer_convolution(c, x, weight);
  if (c.has(8)) sums = sums + shaped_scale(c.in(8).to(float64), sums.dim(), 1);
  const Tensor scale = c.in(1).to(float64).flatten()[0] * shaped_scale(c.in(4).to(float64), sums.dim(), 1) /
                       c.in(6).to(float64).flatten()[0];
  const int32_t element = c.has(7) ? c.element(7) : c.element(0);
  c.set(0, in_range(sums * scale, c.has(7) ? c.in(7).flatten()[0] : Tensor(), element), element);
}

}  // namespace

void add_quantize_ops(Rows& rows) {
  const Rows own = {
      {"DequantizeLinear", 10, dequantize, refuse_quantized},
      {"QuantizeLinear", 10, quantize, refuse_quantized},
      {"DynamicQuantizeLinear", 11, quantize_dynamically},
      {"MatMulInteger", 10, integer_product},
      {"QLinearMatMul", 10, quantized_product},
      {"ConvInteger", 10, convolve_integers},
      {"QLinearConv", 10, convolve_quantized},
  };
  rows.insert(rows.end(), own.begin(), own.end());
}

}  // namespace tern::onnx
