#include "tern/core/ops/image/grid_sample.h"

#include <algorithm>
#include <cmath>

#include "tern/core/ops/indexing/gather.h"
#include "tern/core/ops/indexing/join.h"
#include "tern/core/ops/matmul/matmul.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/tensor/tensor_impl.h"

namespace tern {
namespace {

/// A pixel along one dimension for every place of the grid, or along several.
struct Tap {
  Tensor index;   // int64, inside of the image
  Tensor inside;  // bool
  Tensor weight;  // undefined: 1
};

/// |place - low| folded into the image (ATen/native/GridSampler.h, reflect_coordinates).
Tensor reflected(const Tensor& place, double size, bool align_corners) {
  const double low = align_corners ? 0 : -0.5, span = align_corners ? size - 1 : size;
  if (span == 0) return mul(place, 0);
  const Tensor distance = abs(sub(place, low));
  // Farther away floats have no fractions: PyTorch takes the first pixel.
  const Tensor extra = where(lt(distance.detach(), 0x1p31), fmod(distance, span), 0.0);
  const Tensor turned = gt(fmod(floor(div(distance, span)), 2), 0.5);
  return add(where(turned, span - extra, extra), low);
}

Tensor padded_place(const Tensor& place, double size, const GridSampleOptions& options) {
  if (options.padding == GridPadding::kZeros) return place;
  const bool reflects = options.padding == GridPadding::kReflection;
  return clamp(reflects ? reflected(place, size, options.align_corners) : place, 0, size - 1);
}

/// The pixel at a whole place.
Tap tap_at(const Tensor& place, double size, const Tensor& weight) {
  const Tensor whole = place.detach();
  return {clamp(whole, 0, size - 1).to(DType::kInt64), logical_and(ge(whole, 0), le(whole, size - 1)), weight};
}

/// Keys' cubic convolution at a distance of less than 1, and between 1 and 2.
Tensor near_cubic(const Tensor& x) { return add(mul(mul(sub(mul(x, 1.25), 2.25), x), x), 1); }
Tensor far_cubic(const Tensor& x) { return add(mul(add(mul(add(mul(x, -0.75), 3.75), x), -6), x), 3); }

/// The pixels along a dimension of `size` for coordinates in [-1, 1].
std::vector<Tap> taps_of(const Tensor& coordinate, int64_t pixels, const GridSampleOptions& options) {
  const auto size = static_cast<double>(pixels);
  const Tensor scaled =
      options.align_corners ? mul(add(coordinate, 1), (size - 1) / 2) : div(sub(mul(add(coordinate, 1), size), 1), 2);
  // Infinities are far outside, as is NaN: nothing is computed with them.
  constexpr double kFar = 0x1p60;
  const Tensor bounded = clamp(scaled, -kFar, kFar), finite = where(isnan(bounded.detach()), -100.0, bounded);
  if (options.mode == GridSampleMode::kNearest) return {tap_at(round(padded_place(finite, size, options)), size, {})};
  if (options.mode == GridSampleMode::kLinear) {
    const Tensor place = padded_place(finite, size, options), first = floor(place.detach()), share = sub(place, first);
    return {tap_at(first, size, 1.0 - share), tap_at(add(first, 1), size, share)};
  }
  const Tensor first = floor(finite.detach()), share = sub(finite, first), rest = 1.0 - share;
  const Tensor weights[] = {far_cubic(add(share, 1)), near_cubic(share), near_cubic(rest), far_cubic(add(rest, 1))};
  std::vector<Tap> taps;
  for (int k = 0; k < 4; ++k)
    taps.push_back(tap_at(round(padded_place(add(first, k - 1), size, options)), size, weights[k]));
  return taps;
}

/// All pairs of a pixel of the dimensions so far and one of the next dimension, of `size`.
std::vector<Tap> combined(const std::vector<Tap>& so_far, const std::vector<Tap>& next, int64_t size) {
  std::vector<Tap> taps;
  for (const Tap& a : so_far)
    for (const Tap& b : next)
      taps.push_back({add(mul(a.index, static_cast<double>(size)), b.index), logical_and(a.inside, b.inside),
                      a.weight.defined() ? mul(a.weight, b.weight) : Tensor()});
  return taps;
}

}  // namespace

Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options) {
  const int dims = x.dim() - 2;
  TERN_CHECK(is_floating(x.dtype()) && (dims == 2 || dims == 3),
             "grid_sample: x must be floating [batch, channels, 2 or 3 spatial dimensions], got ", x.describe());
  TERN_CHECK(is_floating(grid.dtype()) && grid.dim() == x.dim() && grid.size(0) == x.size(0) && grid.size(-1) == dims,
             "grid_sample: the grid must be floating [", x.size(0), ", ", dims, " dimensions of the result, ", dims,
             "], got ", grid.describe());
  TERN_CHECK(options.mode != GridSampleMode::kCubic || dims == 2,
             "grid_sample: kCubic takes two spatial dimensions, got ", x.shape());
  int64_t pixels = 1;
  for (int d = 2; d < x.dim(); ++d) pixels *= x.size(d);
  TERN_CHECK(pixels > 0, "grid_sample: the images of ", x.shape(), " are empty");

  const DType wide = x.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const Tensor places = grid.to(wide);
  std::vector<Tap> taps = taps_of(places.select(-1, dims - 1), x.size(2), options);
  for (int d = 1; d < dims; ++d)
    taps = combined(taps, taps_of(places.select(-1, dims - 1 - d), x.size(d + 2), options), x.size(d + 2));

  // Pixels are rows of channels; the one after them, of zeros, is what lies outside.
  const int64_t all = x.size(0) * pixels;
  const Tensor inner = x.to(wide).movedim(1, -1).reshape({all, x.size(1)});
  const Tensor rows = cat({inner, zeros({1, x.size(1)}, inner.options())});
  std::vector<int64_t> per_image(static_cast<size_t>(dims) + 1, 1);
  per_image[0] = x.size(0);
  const TensorOptions indices{DType::kInt64, x.device()};
  const Tensor images =
      arange(0, static_cast<double>(x.size(0)), 1, indices).reshape(per_image) * static_cast<double>(pixels);
  const Tensor outside = full({}, static_cast<double>(all), indices);
  Tensor sum;
  for (const Tap& tap : taps) {
    const Tensor places_of_rows = where(tap.inside, add(tap.index, images), outside).flatten();
    const Tensor values = index_select(rows, 0, places_of_rows);
    if (!tap.weight.defined()) {
      sum = values;  // the only one
      break;
    }
    const Tensor weight = tap.weight.reshape({-1, 1});
    sum = sum.defined() ? addcmul(sum, values, weight) : mul(values, weight);
  }
  std::vector<int64_t> sizes = grid.shape().vec();
  sizes.back() = x.size(1);
  const Tensor y = sum.reshape(sizes).to(x.dtype()).movedim(-1, 1);
  return detail::has_channels_last(x) ? y : y.contiguous();
}

Tensor affine_grid(const Tensor& theta, const Shape& size, bool align_corners) {
  const int dims = size.dims() - 2;
  TERN_CHECK(dims == 2 || dims == 3, "affine_grid: size must be [batch, channels, 2 or 3 spatial dimensions], got ",
             size);
  TERN_CHECK(is_floating(theta.dtype()) && theta.shape() == (Shape{size[0], dims, dims + 1}),
             "affine_grid: theta must be floating [", size[0], ", ", dims, ", ", dims + 1, "], got ", theta.describe());
  std::vector<int64_t> grid_size(static_cast<size_t>(dims) + 1, 1);
  int64_t places = 1;
  for (int d = 0; d < dims; ++d) places *= grid_size[static_cast<size_t>(d)] = size[d + 2];
  TERN_CHECK(places > 0, "affine_grid: a spatial dimension of ", size, " is empty");
  // Homogeneous coordinates (x, y, z, 1) of all places.
  std::vector<Tensor> columns;
  for (int d = dims; d-- > 0;) {
    const int64_t n = size[d + 2];
    const double end = n == 1 ? 0 : align_corners ? 1 : static_cast<double>(n - 1) / static_cast<double>(n);
    std::vector<int64_t> along(static_cast<size_t>(dims) + 1, 1);
    along[static_cast<size_t>(d)] = n;
    columns.push_back(linspace(-end, end, n, theta.options()).reshape(along).expand(grid_size));
  }
  columns.push_back(ones(Shape(grid_size), theta.options()));
  const Tensor base = cat(columns, dims).reshape({1, places, dims + 1}).expand({size[0], places, dims + 1});
  grid_size.insert(grid_size.begin(), size[0]);
  grid_size.back() = dims;
  return matmul(base, theta.transpose(1, 2)).reshape(grid_size);
}

}  // namespace tern
