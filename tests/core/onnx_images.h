#pragma once
// ONNX's ops on images by Tern's.

#include <algorithm>

#include "tern/tests/core/onnx.h"

namespace tern::test::onnx {

using Numbers = std::vector<int64_t>;

/// The attributes that windows share; zeros of the padding are in front and behind, by dimension.
struct Windows {
  int dims;
  Numbers kernel, stride, dilation, front, back;

  Windows(const Case& c, int spatial, const Numbers& size) : dims(spatial) {
    const Numbers ones(static_cast<size_t>(dims), 1), pads = c.get("pads", Numbers(2 * static_cast<size_t>(dims), 0));
    kernel = c.get("kernel_shape", size);
    stride = c.get("strides", ones);
    dilation = c.get("dilations", ones);
    front.assign(pads.begin(), pads.begin() + dims);
    back.assign(pads.begin() + dims, pads.end());
  }
  /// auto_pad SAME: as many outputs as inputs, divided by the stride.
  void pad_same(const Case& c, const Tensor& x) {
    const std::string mode = c.get<std::string>("auto_pad", "NOTSET");
    for (size_t d = 0; d < kernel.size() && mode.starts_with("SAME"); ++d) {
      const int64_t size = x.size(static_cast<int>(d) + 2), outputs = (size + stride[d] - 1) / stride[d];
      divide(d, std::max<int64_t>(0, (outputs - 1) * stride[d] + (kernel[d] - 1) * dilation[d] + 1 - size), mode);
    }
  }
  void divide(size_t d, int64_t total, const std::string& mode) {
    front[d] = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
    back[d] = total - front[d];
  }
  bool symmetric() const {
    for (size_t d = 0; d < kernel.size(); ++d)
      if (front[d] != back[d] || front[d] > kernel[d] / 2) return false;
    return true;
  }
  Tensor padded(const Tensor& x, double value = 0) const {
    Numbers padding;
    for (size_t d = kernel.size(); d-- > 0;) padding.insert(padding.end(), {front[d], back[d]});
    return pad(x, padding, PadMode::kConstant, value);
  }
};

inline Windows windows_of(const Case& c) {
  Windows windows(c, c.in(0).dim() - 2, {});
  windows.pad_same(c, c.in(0));
  return windows;
}

inline Numbers kernel_size(const Tensor& weight) {
  const Numbers sizes = weight.shape().vec();
  return {sizes.begin() + 2, sizes.end()};
}

inline Tensor convolved(const Case& c) {
  Windows w(c, c.in(0).dim() - 2, kernel_size(c.in(1)));
  w.pad_same(c, c.in(0));
  const auto op = w.dims == 1 ? conv1d : w.dims == 2 ? conv2d : conv3d;
  return op(w.padded(c.in(0)), c.in(1), c.in(2),
            {.stride = w.stride, .dilation = w.dilation, .groups = c.integer("group", 1)});
}

/// Paddings are what is cut from the result; output_shape says how much.
inline Tensor convolved_transposed(const Case& c) {
  Windows w(c, c.in(0).dim() - 2, kernel_size(c.in(1)));
  Numbers more = c.get("output_padding", Numbers(w.kernel.size(), 0));
  const std::string mode = c.get<std::string>("auto_pad", "NOTSET");
  const Numbers wanted = c.get("output_shape", Numbers());
  for (size_t d = 0; d < w.kernel.size(); ++d) {
    const int64_t size = c.in(0).size(static_cast<int>(d) + 2);
    const int64_t whole = (size - 1) * w.stride[d] + (w.kernel[d] - 1) * w.dilation[d] + 1;
    if (!wanted.empty() && wanted[d] > whole)
      more[d] = wanted[d] - whole;
    else if (mode.starts_with("SAME") || !wanted.empty())
      w.divide(d, whole + more[d] - (wanted.empty() ? size * w.stride[d] : wanted[d]), mode);
  }
  const auto op = w.dims == 1 ? conv_transpose1d : w.dims == 2 ? conv_transpose2d : conv_transpose3d;
  Tensor y = op(c.in(0), c.in(1), c.in(2),
                {.stride = w.stride, .output_padding = more, .dilation = w.dilation, .groups = c.integer("group", 1)});
  for (int d = 0; d < w.dims; ++d) {
    const auto i = static_cast<size_t>(d);
    y = y.slice(d + 2, w.front[i], y.size(d + 2) - w.back[i]);
  }
  return y;
}

inline Tensors max_pooled(const Case& c) {
  const Windows w = windows_of(c);
  MaxPoolOptions options{.stride = w.stride, .dilation = w.dilation, .ceil_mode = c.integer("ceil_mode", 0) != 0};
  if (w.symmetric()) options.padding = w.front;
  const auto op = w.dims == 1   ? max_pool1d_with_indices
                  : w.dims == 2 ? max_pool2d_with_indices
                                : max_pool3d_with_indices;
  const MaxPoolResult result = op(w.symmetric() ? c.in(0) : w.padded(c.in(0), -INFINITY), w.kernel, options);
  return c.outputs.size() == 2 ? Tensors{result.values, result.indices} : Tensors{result.values};
}

inline Tensor mean_pooled(const Case& c) {
  const Windows w = windows_of(c);
  const auto op = w.dims == 1 ? avg_pool1d : w.dims == 2 ? avg_pool2d : avg_pool3d;
  AvgPoolOptions options{.stride = w.stride, .ceil_mode = c.integer("ceil_mode", 0) != 0};
  options.count_include_pad = c.integer("count_include_pad", 0) != 0;
  if (w.symmetric()) {
    options.padding = w.front;
    return op(c.in(0), w.kernel, options);
  }
  const Tensor sums = op(w.padded(c.in(0)), w.kernel, options);
  return options.count_include_pad ? sums : sums / op(w.padded(ones_like(c.in(0))), w.kernel, options);
}

inline Tensor power_pooled(const Case& c) {
  const Windows w = windows_of(c);
  const auto op = w.dims == 1 ? lp_pool1d : w.dims == 2 ? lp_pool2d : lp_pool3d;
  return op(w.padded(abs(c.in(0))), static_cast<double>(c.integer("p", 2)), w.kernel, {.stride = w.stride});
}

inline Tensor over_pixels(const Tensor& x, Tensor (*reduce)(const Tensor&, const std::vector<int>&, bool)) {
  std::vector<int> dims;
  for (int d = 2; d < x.dim(); ++d) dims.push_back(d);
  return reduce(x, dims, true);
}

/// Sizes or factors of the last two dimensions of an image, by `axes` or of all dimensions.
inline Tensor resized(const Case& c) {
  const std::string mode = c.get<std::string>("mode", "nearest");
  InterpolateOptions options{.mode = mode == "linear"  ? InterpolateMode::kLinear
                                     : mode == "cubic" ? InterpolateMode::kCubic
                                                       : InterpolateMode::kNearestExact};
  const std::string places = c.get<std::string>("coordinate_transformation_mode", "half_pixel");
  options.align_corners = places == "align_corners";
  options.antialias = c.integer("antialias", 0) != 0;
  const Numbers axes = c.get("axes", Numbers{0, 1, 2, 3});
  const std::vector<double> values = (c.has(3) ? c.in(3) : c.in(c.has(2) ? 2 : 1)).to_vector<double>();
  std::vector<double> by_axis(4, 1);
  for (size_t i = 0; i < axes.size(); ++i) by_axis[static_cast<size_t>(axes[i])] = values[i];
  if (c.has(3))
    options.size = {static_cast<int64_t>(by_axis[2]), static_cast<int64_t>(by_axis[3])};
  else
    options.scale_factor = {by_axis[2], by_axis[3]};
  return interpolate(c.in(0), options);
}

inline Tensor sampled(const Case& c) {
  const std::string mode = c.get<std::string>("mode", "linear"), padding = c.get<std::string>("padding_mode", "zeros");
  const bool linear = mode == "linear" || mode == "bilinear";
  return grid_sample(c.in(0), c.in(1),
                     {linear              ? GridSampleMode::kLinear
                      : mode == "nearest" ? GridSampleMode::kNearest
                                          : GridSampleMode::kCubic,
                      padding == "zeros"    ? GridPadding::kZeros
                      : padding == "border" ? GridPadding::kBorder
                                            : GridPadding::kReflection,
                      c.integer("align_corners", 0) != 0});
}

inline Tensor unpooled(const Case& c) {
  const Windows w = windows_of(c);
  MaxUnpoolOptions options{.stride = w.stride};
  if (c.has(2)) {
    const Numbers sizes = c.list(2);
    options.size = Numbers(sizes.begin() + 2, sizes.end());
  }
  return max_unpool2d(c.in(0), c.in(1), w.kernel, options);
}

inline void add_images(Table& table) {
  table["Conv"] = [](const Case& c) { return Tensors{convolved(c)}; };
  table["ConvTranspose"] = [](const Case& c) { return Tensors{convolved_transposed(c)}; };
  table["MaxPool"] = max_pooled;
  table["AveragePool"] = [](const Case& c) { return Tensors{mean_pooled(c)}; };
  table["LpPool"] = [](const Case& c) { return Tensors{power_pooled(c)}; };
  table["GlobalAveragePool"] = [](const Case& c) { return Tensors{over_pixels(c.in(0), mean)}; };
  table["GlobalMaxPool"] = [](const Case& c) { return Tensors{over_pixels(c.in(0), max)}; };
  table["MaxUnpool"] = [](const Case& c) { return Tensors{unpooled(c)}; };
  table["Resize"] = [](const Case& c) { return Tensors{resized(c)}; };
  table["GridSample"] = [](const Case& c) { return Tensors{sampled(c)}; };
  table["AffineGrid"] = [](const Case& c) {
    return Tensors{affine_grid(c.in(0), Shape(c.list(1)), c.integer("align_corners", 0) != 0)};
  };
  table["GroupNormalization"] = [](const Case& c) {
    return Tensors{group_norm(c.in(0), c.integer("num_groups", 1), c.in(1), c.in(2), c.get("epsilon", 1e-5))};
  };
  table["InstanceNormalization"] = [](const Case& c) {
    return Tensors{instance_norm(c.in(0), {}, {}, c.in(1), c.in(2), {.eps = c.get("epsilon", 1e-5)})};
  };
  table["LRN"] = [](const Case& c) {
    return Tensors{local_response_norm(c.in(0), c.integer("size", 1),
                                       {c.get("alpha", 1e-4), c.get("beta", 0.75), c.get("bias", 1.0)})};
  };
  table["Col2Im"] = [](const Case& c) {
    const Numbers pads = c.get("pads", Numbers{0, 0, 0, 0});
    return Tensors{
        fold(c.in(0), c.list(1), c.list(2),
             {c.get("dilations", Numbers{1, 1}), Numbers{pads[0], pads[1]}, c.get("strides", Numbers{1, 1})})};
  };
}

}  // namespace tern::test::onnx
