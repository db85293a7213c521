#include "tern/data/transforms/resize.h"

#include <algorithm>
#include <cmath>

#include "tern/core/tensor/size_checks.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

/// Indices and weights before they are written to a table.
template <class F>
struct Taps {
  int64_t first = 0;
  std::vector<F> weights;
};

template <class F>
Taps<F> smoothed_taps(int64_t from, F scale, int64_t place, bool bicubic) {
  const F support = (bicubic ? 2 : 1) * std::max(scale, F(1)), inverse = scale >= 1 ? 1 / scale : F(1);
  const F center = static_cast<F>(scale * (static_cast<double>(place) + 0.5));
  Taps<F> taps;
  taps.first = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
  const int64_t end = std::min<int64_t>(static_cast<int64_t>(center + support + 0.5), from);
  F total = 0;
  for (int64_t i = taps.first; i < end; ++i) {
    const F x = static_cast<F>((static_cast<double>(static_cast<F>(i) - center) + 0.5) * inverse);
    taps.weights.push_back(bicubic ? cubic<F>(x, F(-0.5)) : std::max(F(0), 1 - std::abs(x)));
    total += taps.weights.back();
  }
  for (F& weight : taps.weights) weight = total != 0 ? weight / total : weight;
  return taps;
}

template <class F>
Taps<F> plain_taps(int64_t from, F scale, int64_t place, bool bicubic) {
  F center = scale * (static_cast<F>(place) + F(0.5)) - F(0.5);
  if (!bicubic) center = std::max(center, F(0));
  const F floor = std::floor(center), rest = center - floor;
  const int64_t size = bicubic ? 4 : 2, start = static_cast<int64_t>(floor) - (bicubic ? 1 : 0);
  Taps<F> taps;
  taps.first = std::clamp<int64_t>(start, 0, from - 1);
  taps.weights.resize(static_cast<size_t>(std::clamp<int64_t>(start + size - 1, 0, from - 1) - taps.first + 1));
  for (int64_t k = 0; k < size; ++k) {
    const F distance = static_cast<F>(k - (bicubic ? 1 : 0)) - rest;
    const F weight = bicubic ? cubic<F>(distance, F(-0.75)) : 1 - std::abs(distance);
    taps.weights[static_cast<size_t>(std::clamp<int64_t>(start + k, 0, from - 1) - taps.first)] += weight;
  }
  return taps;
}

template <class F>
std::vector<Taps<F>> all_taps(int64_t from, int64_t to, const ResizeOptions& options) {
  const bool bicubic = options.interpolation == Interpolation::kBicubic;
  const F scale = static_cast<F>(from) / static_cast<F>(to);
  std::vector<Taps<F>> taps;
  for (int64_t i = 0; i < to; ++i) {
    taps.push_back(options.antialias ? smoothed_taps<F>(from, scale, i, bicubic)
                                     : plain_taps<F>(from, scale, i, bicubic));
  }
  return taps;
}

}  // namespace

template <class F>
ResizeTable<F> resize_table(int64_t from, int64_t to, const ResizeOptions& options) {
  TERN_CHECK(from > 0 && to > 0, "resize: from ", from, " to ", to, " pixels; sizes must be positive");
  tern::detail::check_host_list("resize", to, sizeof(Taps<double>) + 8 * sizeof(double));
  using Exact = std::conditional_t<std::is_same_v<F, int32_t>, double, F>;
  const std::vector<Taps<Exact>> all = all_taps<Exact>(from, to, options);
  ResizeTable<F> table;
  for (const Taps<Exact>& taps : all) table.taps = std::max(table.taps, static_cast<int32_t>(taps.weights.size()));
  table.weights.resize(static_cast<size_t>(to * table.taps));
  for (int64_t i = 0; i < to; ++i) {
    const Taps<Exact>& taps = all[static_cast<size_t>(i)];
    // Near the end the unused weights come first, so that all indices are inside the image.
    const int64_t first = std::min(taps.first, from - table.taps);
    table.first.push_back(static_cast<int32_t>(first));
    for (size_t k = 0; k < taps.weights.size(); ++k) {
      F& weight = table.weights[static_cast<size_t>(i * table.taps + taps.first - first) + k];
      if constexpr (std::is_same_v<F, int32_t>)
        weight = static_cast<int32_t>(std::lround(taps.weights[k] * (1 << kernels::kResizeBits)));
      else
        weight = taps.weights[k];
    }
  }
  return table;
}
template ResizeTable<int32_t> resize_table(int64_t from, int64_t to, const ResizeOptions& options);
template ResizeTable<float> resize_table(int64_t from, int64_t to, const ResizeOptions& options);

std::pair<int64_t, int64_t> shorter_size(int64_t height, int64_t width, int64_t size) {
  TERN_CHECK(height > 0 && width > 0 && size > 0 && size <= INT32_MAX, "resize: the shorter side of ", width, " x ",
             height, " pixels to ", size, "; sizes must be positive and below 2^31");
  const int64_t longer =
      static_cast<int64_t>(static_cast<double>(tern::detail::checked_product("resize", size, std::max(height, width))) /
                           static_cast<double>(std::min(height, width)));
  return width <= height ? std::pair(longer, size) : std::pair(size, longer);
}

Image resize(const Image& image, int64_t height, int64_t width, const ResizeOptions& options) {
  TERN_CHECK(image.channels == 3, "resize: expected an image of 3 channels, got ", image.channels);
  if (image.height == height && image.width == width) return image;
  const ResizeTable<int32_t> rows = resize_table<int32_t>(image.height, height, options);
  const ResizeTable<int32_t> columns = resize_table<int32_t>(image.width, width, options);
  Image result(height, width, 3);
  const int64_t from[] = {1, image.height, image.width, 3}, to[] = {1, height, width, 3};
  const int64_t from_strides[] = {0, image.row_bytes(), 3, 1}, to_strides[] = {0, result.row_bytes(), 3, 1};
  const kernels::ConstView in(image.pixels.data(), DType::kUInt8, 4, from, from_strides);
  std::vector<uint8_t> workspace(static_cast<size_t>(kernels::resize_images_workspace({}, in, width)));
  kernels::resize_images({}, in, {rows.first.data(), rows.weights.data(), rows.taps},
                         {columns.first.data(), columns.weights.data(), columns.taps}, workspace.data(),
                         kernels::View(result.pixels.data(), DType::kUInt8, 4, to, to_strides));
  return result;
}

Image resize_shorter(const Image& image, int64_t size, const ResizeOptions& options) {
  const auto [height, width] = shorter_size(image.height, image.width, size);
  return resize(image, height, width, options);
}

Tensor resize(const Tensor& images, int64_t height, int64_t width, const ResizeOptions& options) {
  TERN_CHECK(images.dim() >= 2 && images.dtype() == DType::kFloat32 && images.device().is_cpu(),
             "resize: expected float32 [..., height, width] on the CPU, got ", images.describe());
  const Tensor in = images.detach().contiguous();
  const int64_t from_height = in.size(-2), from_width = in.size(-1);
  const ResizeTable<float> rows = resize_table<float>(from_height, height, options);
  const ResizeTable<float> columns = resize_table<float>(from_width, width, options);
  const Shape shape = in.shape().with(in.dim() - 2, height).with(in.dim() - 1, width);
  Tensor out = empty(shape);
  std::vector<float> narrow(static_cast<size_t>(from_height * width));
  const int64_t planes = in.numel() / (from_height * from_width);
  for (int64_t p = 0; p < planes; ++p) {
    const float* plane = in.data<float>() + p * from_height * from_width;
    std::fill(narrow.begin(), narrow.end(), 0.0f);
    for (int64_t y = 0; y < from_height; ++y)
      for (int64_t x = 0; x < width; ++x)
        for (int32_t k = 0; k < columns.taps; ++k)
          narrow[y * width + x] += columns.weights[x * columns.taps + k] * plane[y * from_width + columns.first[x] + k];
    float* to = out.data<float>() + p * height * width;
    std::fill_n(to, height * width, 0.0f);
    for (int64_t y = 0; y < height; ++y)
      for (int32_t k = 0; k < rows.taps; ++k)
        for (int64_t x = 0; x < width; ++x)
          to[y * width + x] += rows.weights[y * rows.taps + k] * narrow[(rows.first[y] + k) * width + x];
  }
  return out;
}

}  // namespace tern::data
