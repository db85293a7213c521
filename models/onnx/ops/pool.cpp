// Pooling.

#include <algorithm>
#include <cmath>

#include "tern/kernels/base/check.h"
#include "tern/models/onnx/ops/windows.h"
#include "tern/models/onnx/registry.h"

namespace tern::onnx {
namespace {

using Reduction = Tensor (*)(const Tensor&, const std::vector<int>&, bool);

template <Reduction kReduce>
void over_pixels(Call& c) {
  const Tensor x = c.in(0);
  std::vector<int> dims;
  for (int d = 2; d < x.dim(); ++d) dims.push_back(d);
  c.set(dims.empty() ? x : kReduce(x, dims, true));
}

void power_over_pixels(Call& c) {
  const Tensor x = c.in(0);
  std::vector<int> dims;
  for (int d = 2; d < x.dim(); ++d) dims.push_back(d);
  c.set(vector_norm(x, static_cast<double>(c.integer("p", 2)), dims, true));
}

/// Places in padded images as places in images, of the whole tensor: row-major, or column-major over the pixels.
Tensor places_of(const Tensor& places, const Windows& w, const Tensor& x, bool padded, bool column_major) {
  const auto count = static_cast<size_t>(w.dims);
  Tensor rest = places, result;
  std::vector<Tensor> by_dim(count);
  for (size_t d = count; d-- > 0;) {
    const int64_t own = x.size(static_cast<int>(d) + 2), size = own + (padded ? w.front[d] + w.back[d] : 0);
    by_dim[d] = remainder(rest, static_cast<double>(size)) - static_cast<double>(padded ? w.front[d] : 0);
    rest = floor_divide(rest, static_cast<double>(size));
  }
  int64_t factor = 1;
  for (size_t i = 0; i < count; ++i) {
    const size_t d = column_major ? i : count - 1 - i;
    const Tensor part = by_dim[d] * static_cast<double>(factor);
    result = result.defined() ? result + part : part;
    factor *= x.size(static_cast<int>(d) + 2);
  }
  const TensorOptions options{int64, x.device()};
  std::vector<int64_t> rows(static_cast<size_t>(x.dim()), 1), channels = rows;
  rows[0] = x.size(0);
  channels[1] = x.size(1);
  const Tensor row = arange(0, static_cast<double>(x.size(0)), 1, options).reshape(rows);
  const Tensor channel = arange(0, static_cast<double>(x.size(1)), 1, options).reshape(channels);
  return result + (row * static_cast<double>(x.size(1)) + channel) * static_cast<double>(factor);
}

void max_pool(Call& c) {
  const Tensor given = c.in(0);
  const bool whole = !is_floating(given.dtype());
  const Tensor x = whole ? given.to(float32) : given;
  const Windows w = Windows::of(c, x, {});
  const bool ceil_mode = c.flag("ceil_mode"), symmetric = w.symmetric(true);
  MaxPoolOptions options{.stride = w.stride, .dilation = w.dilation, .ceil_mode = ceil_mode};
  if (symmetric) options.padding = w.front;
  const Tensor padded = symmetric ? x : w.padded(x, -INFINITY);
  if (!c.wants(1)) {
    const auto op = w.dims == 1 ? max_pool1d : w.dims == 2 ? max_pool2d : max_pool3d;
    const Tensor y = op(padded, w.kernel, options);
    return c.set(0, whole ? y.to(given.dtype()) : y, c.element(0));
  }
  const auto op = w.dims == 1   ? max_pool1d_with_indices
                  : w.dims == 2 ? max_pool2d_with_indices
                                : max_pool3d_with_indices;
  const MaxPoolResult result = op(padded, w.kernel, options);
  c.set(0, whole ? result.values.to(given.dtype()) : result.values, c.element(0));
  c.set(1, places_of(result.indices, w, x, !symmetric, c.integer("storage_order", 0) != 0), kInt64);
}

/// The sum of each window, by a convolution with ones: for dilations and paddings that pooling lacks.
Tensor window_sums(const Tensor& x, const Windows& w, const Numbers& counts) {
  Numbers more(w.kernel.size());
  for (size_t d = 0; d < more.size(); ++d) {
    const int64_t needed = (counts[d] - 1) * w.stride[d] + w.extent(d);
    more[d] = needed - (x.size(static_cast<int>(d) + 2) + w.front[d] + w.back[d]);
  }
  const int64_t channels = x.size(1);
  std::vector<int64_t> sizes = {channels, 1};
  sizes.insert(sizes.end(), w.kernel.begin(), w.kernel.end());
  const auto op = w.dims == 1 ? conv1d : w.dims == 2 ? conv2d : conv3d;
  return op(w.padded(x, 0, more), ones(Shape(sizes), x.options()), {},
            {.stride = w.stride, .dilation = w.dilation, .groups = channels});
}

bool is_dilated(const Windows& w) {
  return std::any_of(w.dilation.begin(), w.dilation.end(), [](int64_t d) { return d != 1; });
}

void mean_pool(Call& c) {
  const Tensor x = c.in(0);
  const Windows w = Windows::of(c, x, {});
  const bool ceil_mode = c.flag("ceil_mode"), with_padding = c.flag("count_include_pad");
  if (w.symmetric(true) && !is_dilated(w)) {
    const auto op = w.dims == 1 ? avg_pool1d : w.dims == 2 ? avg_pool2d : avg_pool3d;
    AvgPoolOptions options{.stride = w.stride, .padding = w.front, .ceil_mode = ceil_mode};
    options.count_include_pad = with_padding;
    return c.set(op(x, w.kernel, options));
  }
  const Numbers counts = w.counts(x, ceil_mode);
  Tensor elements = ones_like(x.narrow(0, 0, std::min<int64_t>(1, x.size(0))).narrow(1, 0, 1));
  Windows inner = w;
  if (with_padding) {
    elements = w.padded(elements, 1);
    inner.front.assign(w.kernel.size(), 0);
    inner.back.assign(w.kernel.size(), 0);
  }
  c.set(window_sums(x, w, counts) / window_sums(elements, inner, counts));
}

void power_pool(Call& c) {
  const Tensor x = c.in(0);
  const Windows w = Windows::of(c, x, {});
  const auto p = static_cast<double>(c.integer("p", 2));
  const Numbers counts = w.counts(x, c.flag("ceil_mode"));
  const Tensor powers = p == 2 ? square(x) : pow(abs(x), p);
  c.set(pow(window_sums(powers, w, counts), 1 / p));
}

/// Indices are places in the whole output tensor: row-major.
void max_unpool(Call& c) {
  const Tensor x = c.in(0);
  const Windows w = Windows::of(c, x, {});
  std::vector<int64_t> own = {x.size(0), x.size(1)};
  for (size_t d = 0; d < w.kernel.size(); ++d)
    own.push_back((x.size(static_cast<int>(d) + 2) - 1) * w.stride[d] - w.front[d] - w.back[d] + w.kernel[d]);
  const std::vector<int64_t> sizes = c.has(2) ? c.list(2) : own;
  TERN_CHECK(sizes.size() == own.size(), "output_shape has ", sizes.size(), " entries");
  const Shape shape(sizes);
  // The indices are those of the unpadded size that the kernel gives.
  const Tensor index = c.in(1).flatten();
  Tensor place = index;
  if (sizes != own) {
    Tensor rest = index;
    std::vector<Tensor> by_dim(own.size());
    for (size_t d = own.size(); d-- > 0;) {
      by_dim[d] = remainder(rest, static_cast<double>(own[d]));
      rest = floor_divide(rest, static_cast<double>(own[d]));
    }
    place = by_dim[0];
    for (size_t d = 1; d < own.size(); ++d) place = place * static_cast<double>(sizes[d]) + by_dim[d];
  }
  c.set(scatter(zeros({shape.numel()}, x.options()), 0, place, x.flatten()).reshape(shape));
}

/// Regions of images by bilinear samples (He et al., arXiv:1703.06870).
void roi_align(Call& c) {
  const Tensor x = c.in(0);
  const std::vector<double> rois = c.in(1).to_vector<double>();
  const Numbers batch = c.list(2);
  const int64_t height = c.integer("output_height", 1), width = c.integer("output_width", 1);
  const int64_t ratio = c.integer("sampling_ratio", 0);
  const double scale = c.number("spatial_scale", 1);
  const std::string transform = c.text("coordinate_transformation_mode", "half_pixel"), mode = c.text("mode", "avg");
  const bool half = c.opset() >= 16 && transform == "half_pixel";
  TERN_CHECK(x.dim() == 4 && rois.size() == 4 * batch.size() && height > 0 && width > 0 && height < 65536 &&
                 width < 65536 && ratio < 65536,
             "regions do not fit ", x.describe());
  TERN_CHECK(mode == "avg" || mode == "max", "the mode '", mode, "'");
  Tensors results;
  for (size_t r = 0; r < batch.size(); ++r) {
    TERN_CHECK(batch[r] >= 0 && batch[r] < x.size(0), "region ", r, " is of image ", batch[r]);
    // Samples along each axis: two pixels and their weights.
    struct Samples {
      int64_t count = 0;
      Tensor low, high, low_weight, high_weight;
    } axes[2];
    for (int a = 0; a < 2; ++a) {
      const int64_t bins = a == 0 ? height : width, size = x.size(2 + a);
      const double begin = rois[4 * r + static_cast<size_t>(1 - a)] * scale - (half ? 0.5 : 0);
      double extent = rois[4 * r + static_cast<size_t>(3 - a)] * scale - (half ? 0.5 : 0) - begin;
      if (!half) extent = std::max(extent, 1.0);
      const double bin = extent / static_cast<double>(bins);
      TERN_CHECK(std::isfinite(bin) && std::abs(bin) < 1e6, "region ", r, " is not finite or too large");
      Samples& s = axes[a];
      s.count = ratio > 0 ? ratio : std::max<int64_t>(0, static_cast<int64_t>(std::ceil(bin)));
      TERN_CHECK(s.count > 0, "region ", r, " is empty");
      Numbers low, high;
      std::vector<double> low_weight, high_weight;
      for (int64_t b = 0; b < bins; ++b)
        for (int64_t i = 0; i < s.count; ++i) {
          double place = begin + static_cast<double>(b) * bin +
                         (static_cast<double>(i) + 0.5) * bin / static_cast<double>(s.count);
          const bool outside = place < -1 || place > static_cast<double>(size);
          place = std::clamp(place, 0.0, static_cast<double>(size - 1));
          low.push_back(static_cast<int64_t>(place));
          high.push_back(std::min(low.back() + 1, size - 1));
          const double part = place - static_cast<double>(low.back());
          low_weight.push_back(outside ? 0 : 1 - part);
          high_weight.push_back(outside ? 0 : part);
        }
      const auto count = static_cast<int64_t>(low.size());
      const auto put = [&](const auto& values) { return from_vector(values, {count}).to(x.device()); };
      s.low = put(low);
      s.high = put(high);
      s.low_weight = put(low_weight).to(x.dtype());
      s.high_weight = put(high_weight).to(x.dtype());
    }
    const Tensor image = x[batch[r]];
    const auto corner = [&](bool bottom, bool right) {
      const Tensor rows = index_select(image, 1, bottom ? axes[0].high : axes[0].low);
      const Tensor pixels = index_select(rows, 2, right ? axes[1].high : axes[1].low);
      const Tensor down = (bottom ? axes[0].high_weight : axes[0].low_weight).unsqueeze(1);
      return pixels * (down * (right ? axes[1].high_weight : axes[1].low_weight));
    };
    const Tensor a = corner(false, false), b = corner(false, true), d = corner(true, false), e = corner(true, true);
    const auto bins = [&](const Tensor& y) {
      return y.reshape({x.size(1), height, axes[0].count, width, axes[1].count});
    };
    if (mode == "avg")
      results.push_back(mean(bins(a + b + d + e), {2, 4}));
    else
      results.push_back(max(bins(maximum(maximum(a, b), maximum(d, e))), {2, 4}));
  }
  c.set(results.empty() ? zeros({0, x.size(1), height, width}, x.options()) : stack(results));
}

Tensor max_pixels(const Tensor& x, const std::vector<int>& dims, bool keep) { return max(x, dims, keep); }
Tensor mean_pixels(const Tensor& x, const std::vector<int>& dims, bool keep) { return mean(x, dims, keep); }

}  // namespace

void add_pool_ops(Rows& rows) {
  const Rows own = {
      {"MaxPool", 1, max_pool},
      {"AveragePool", 7, mean_pool},
      {"LpPool", 2, power_pool},
      {"GlobalAveragePool", 1, over_pixels<mean_pixels>},
      {"GlobalMaxPool", 1, over_pixels<max_pixels>},
      {"GlobalLpPool", 2, power_over_pixels},
      {"MaxUnpool", 9, max_unpool},
      {"RoiAlign", 10, roi_align},
  };
  rows.insert(rows.end(), own.begin(), own.end());
}

}  // namespace tern::onnx
