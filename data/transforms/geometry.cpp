#include "tern/data/transforms/geometry.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <numbers>
#include <utility>

#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

/// Where a centred part begins: rounds as Python's round(), half to even.
int64_t center_start(int64_t size, int64_t wanted) {
  return size >= wanted ? std::lrint(static_cast<double>(size - wanted) / 2) : -((wanted - size) / 2);
}

Image transposed(const Image& image) {
  Image result(image.width, image.height, image.channels);
  for (int64_t y = 0; y < image.height; ++y)
    for (int64_t x = 0; x < image.width; ++x)
      std::copy_n(image.row(y) + x * image.channels, image.channels, result.row(x) + y * image.channels);
  return result;
}

uint8_t rounded_byte(float value) { return static_cast<uint8_t>(std::clamp(std::nearbyint(value), 0.0f, 255.0f)); }

/// The mean of the four pixels around a place, weighted by their nearness; those outside the image are `fill`.
void sample_bilinear(const Image& image, float row, float column, const std::optional<uint8_t>& fill, uint8_t* out) {
  const float top = std::floor(row), left = std::floor(column);
  const float south = row - top, east = column - left, north = 1 - south, west = 1 - east;
  const float weights[4] = {north * west, north * east, south * west, south * east};
  const uint8_t* pixels[4] = {};
  float inside = 0;
  for (int k = 0; k < 4; ++k) {
    const float y = top + static_cast<float>(k / 2), x = left + static_cast<float>(k % 2);
    if (!(y >= 0 && y < static_cast<float>(image.height) && x >= 0 && x < static_cast<float>(image.width))) continue;
    pixels[k] = image.row(static_cast<int64_t>(y)) + static_cast<int64_t>(x) * image.channels;
    inside += weights[k];
  }
  for (int64_t c = 0; c < image.channels; ++c) {
    float sum = 0;
    for (int k = 0; k < 4; ++k)
      if (pixels[k]) sum += static_cast<float>(pixels[k][c]) * weights[k];
    if (fill) sum = (sum - static_cast<float>(*fill)) * inside + static_cast<float>(*fill);
    out[c] = rounded_byte(sum);
  }
}

/// Writes the pixel at a place of the image, in pixels from the centre of the upper left one. NaN is outside.
void sample(const Image& image, float row, float column, const WarpOptions& options, uint8_t* out) {
  const auto width = static_cast<float>(image.width), height = static_cast<float>(image.height);
  const bool bilinear = options.sampling == Sampling::kBilinear;
  if (!bilinear) {
    row = std::nearbyint(row);
    column = std::nearbyint(column);
  }
  const float margin = bilinear ? 1 : 0;
  if (!(column >= -margin && column < width && row >= -margin && row < height)) {
    std::fill_n(out, image.channels, options.fill.value_or(kBlack));
    return;
  }
  if (bilinear) return sample_bilinear(image, row, column, options.fill, out);
  std::copy_n(image.row(static_cast<int64_t>(row)) + static_cast<int64_t>(column) * image.channels, image.channels,
              out);
}

Image affine_of_size(const Image& image, const AffineMatrix& matrix, int64_t to_height, int64_t to_width,
                     const WarpOptions& options) {
  Image result(to_height, to_width, image.channels);
  const auto width = static_cast<float>(image.width), height = static_cast<float>(image.height);
  // Same rounding as torchvision's grid, whose coordinates are -1 to 1.
  float theta[6];
  for (size_t i = 0; i < 6; ++i) theta[i] = static_cast<float>(matrix[i]) / (0.5f * (i < 3 ? width : height));
  for (int64_t y = 0; y < to_height; ++y) {
    for (int64_t x = 0; x < to_width; ++x) {
      const float from_x = static_cast<float>(x) - (static_cast<float>(to_width) - 1) / 2;
      const float from_y = static_cast<float>(y) - (static_cast<float>(to_height) - 1) / 2;
      const float place_x = from_x * theta[0] + from_y * theta[1] + theta[2];
      const float place_y = from_x * theta[3] + from_y * theta[4] + theta[5];
      sample(image, ((place_y + 1) * height - 1) / 2, ((place_x + 1) * width - 1) / 2, options,
             result.row(y) + x * image.channels);
    }
  }
  return result;
}

/// Height and width of the box around the rotated image, to 1e-4 of a pixel.
std::pair<int64_t, int64_t> rotated_size(const AffineMatrix& matrix, int64_t height, int64_t width) {
  const double half_width = 0.5 * static_cast<double>(width), half_height = 0.5 * static_cast<double>(height);
  const auto extent = [](double reach, double half) {
    const auto cut = [](double value) { return std::trunc(value * 1e4) * 1e-4; };
    return static_cast<int64_t>(std::ceil(cut(half + reach)) - std::floor(cut(half - reach)));
  };
  return {extent(std::abs(matrix[3]) * half_width + std::abs(matrix[4]) * half_height, half_height),
          extent(std::abs(matrix[0]) * half_width + std::abs(matrix[1]) * half_height, half_width)};
}

}  // namespace

Image crop(const Image& image, int64_t top, int64_t left, int64_t height, int64_t width, uint8_t fill) {
  TERN_CHECK(height > 0 && width > 0, "crop: ", width, " x ", height, " pixels; sizes must be positive");
  Image result(height, width, image.channels);
  constexpr int64_t kFar = int64_t{1} << 60;  // outside of every image
  top = std::clamp(top, -kFar, kFar);
  left = std::clamp(left, -kFar, kFar);
  const int64_t begin = std::clamp<int64_t>(-left, 0, width), end = std::clamp(image.width - left, begin, width);
  for (int64_t y = 0; y < height; ++y) {
    uint8_t* out = result.row(y);
    const int64_t row = top + y;
    if (row < 0 || row >= image.height || begin == end) {
      std::memset(out, fill, static_cast<size_t>(result.row_bytes()));
      continue;
    }
    std::memset(out, fill, static_cast<size_t>(begin * image.channels));
    std::memcpy(out + begin * image.channels, image.row(row) + (left + begin) * image.channels,
                static_cast<size_t>((end - begin) * image.channels));
    std::memset(out + end * image.channels, fill, static_cast<size_t>((width - end) * image.channels));
  }
  return result;
}

Image center_crop(const Image& image, int64_t height, int64_t width) {
  TERN_CHECK(height > 0 && width > 0, "crop: ", width, " x ", height, " pixels; sizes must be positive");
  return crop(image, center_start(image.height, height), center_start(image.width, width), height, width);
}

std::array<CropPlace, 5> five_crop_places(int64_t image_height, int64_t image_width, int64_t height, int64_t width) {
  TERN_CHECK(height > 0 && width > 0 && height <= image_height && width <= image_width, "five crops: ", width, " x ",
             height, " pixels of an image of ", image_width, " x ", image_height,
             "; crops must be positive and no larger than the image");
  const int64_t bottom = image_height - height, right = image_width - width;
  return {CropPlace{0, 0},
          {0, right},
          {bottom, 0},
          {bottom, right},
          {center_start(image_height, height), center_start(image_width, width)}};
}

std::vector<Image> five_crop(const Image& image, int64_t height, int64_t width) {
  std::vector<Image> crops;
  for (const CropPlace& place : five_crop_places(image.height, image.width, height, width))
    crops.push_back(crop(image, place.top, place.left, height, width));
  return crops;
}

std::vector<Image> ten_crop(const Image& image, int64_t height, int64_t width) {
  std::vector<Image> crops = five_crop(image, height, width);
  for (Image& mirrored : five_crop(flip_horizontal(image), height, width)) crops.push_back(std::move(mirrored));
  return crops;
}

Image flip_horizontal(Image image) {
  const int64_t channels = image.channels;
  for (int64_t y = 0; y < image.height; ++y) {
    uint8_t* left = image.row(y);
    uint8_t* right = left + (image.width - 1) * channels;
    for (; left < right; left += channels, right -= channels) std::swap_ranges(left, left + channels, right);
  }
  return image;
}

Image flip_vertical(Image image) {
  for (int64_t y = 0; y < image.height / 2; ++y)
    std::swap_ranges(image.row(y), image.row(y) + image.row_bytes(), image.row(image.height - 1 - y));
  return image;
}

AffineMatrix inverse_affine(const AffineOptions& options) {
  TERN_CHECK(options.scale > 0, "affine: the scale must be positive, got ", options.scale);
  const auto radians = [](double degrees) { return degrees * (std::numbers::pi / 180); };
  const double rotation = radians(options.angle), shear_x = radians(options.shear_x),
               shear_y = radians(options.shear_y);
  const double moved_x = options.center_x + options.translate_x, moved_y = options.center_y + options.translate_y;
  // Rotation and shear, determinant 1; their inverse has the reciprocal scale.
  const double a = std::cos(rotation - shear_y) / std::cos(shear_y);
  const double b = -(a * std::tan(shear_x) + std::sin(rotation));
  const double c = std::sin(rotation - shear_y) / std::cos(shear_y);
  const double d = std::cos(rotation) - c * std::tan(shear_x);
  const double xx = d / options.scale, xy = -b / options.scale, yx = -c / options.scale, yy = a / options.scale;
  return {xx, xy, options.center_x - xx * moved_x - xy * moved_y,
          yx, yy, options.center_y - yx * moved_x - yy * moved_y};
}

Image affine(const Image& image, const AffineMatrix& matrix, const WarpOptions& options) {
  return affine_of_size(image, matrix, image.height, image.width, options);
}

Image rotate(const Image& image, double degrees, const WarpOptions& options, bool expand) {
  TERN_CHECK(std::isfinite(degrees), "rotate: the angle must be finite, got ", degrees);
  const double angle = degrees - 360 * std::floor(degrees / 360);
  if (angle == 0) return image;
  if (angle == 180) return flip_vertical(flip_horizontal(image));
  if (expand || image.height == image.width) {
    if (angle == 90) return flip_vertical(transposed(image));
    if (angle == 270) return flip_horizontal(transposed(image));
  }
  const AffineMatrix matrix = inverse_affine({.angle = -angle});
  if (!expand) return affine(image, matrix, options);
  const auto [height, width] = rotated_size(matrix, image.height, image.width);
  return affine_of_size(image, matrix, height, width, options);
}

PerspectiveMatrix perspective_between(const std::array<ImagePoint, 4>& from, const std::array<ImagePoint, 4>& to) {
  // Two equations for each point, [coefficients | right side], solved by elimination with row pivots.
  double rows[8][9] = {};
  for (size_t i = 0; i < 4; ++i) {
    const auto [x, y] = to[i];
    const auto [u, v] = from[i];
    const double first[9] = {x, y, 1, 0, 0, 0, -u * x, -u * y, u}, second[9] = {0, 0, 0, x, y, 1, -v * x, -v * y, v};
    std::copy(std::begin(first), std::end(first), rows[2 * i]);
    std::copy(std::begin(second), std::end(second), rows[2 * i + 1]);
  }
  for (size_t column = 0; column < 8; ++column) {
    size_t pivot = column;
    for (size_t row = column + 1; row < 8; ++row)
      if (std::abs(rows[row][column]) > std::abs(rows[pivot][column])) pivot = row;
    TERN_CHECK(std::abs(rows[pivot][column]) > 1e-9,
               "perspective: no map moves these points to the others; no three of four may lie on a line");
    std::swap(rows[pivot], rows[column]);
    for (size_t row = 0; row < 8; ++row) {
      if (row == column) continue;
      const double factor = rows[row][column] / rows[column][column];
      for (size_t k = column; k < 9; ++k) rows[row][k] -= factor * rows[column][k];
    }
  }
  PerspectiveMatrix matrix{};
  for (size_t i = 0; i < 8; ++i) matrix[i] = rows[i][8] / rows[i][i];
  return matrix;
}

Image perspective(const Image& image, const PerspectiveMatrix& matrix, const WarpOptions& options) {
  Image result(image.height, image.width, image.channels);
  const auto width = static_cast<float>(image.width), height = static_cast<float>(image.height);
  float m[8], grid[6];  // the grid's coordinates are 0 to 2 before the division
  for (size_t i = 0; i < 8; ++i) m[i] = static_cast<float>(matrix[i]);
  for (size_t i = 0; i < 6; ++i) grid[i] = m[i] / (0.5f * (i < 3 ? width : height));
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < image.width; ++x) {
      const float at_x = static_cast<float>(x) + 0.5f, at_y = static_cast<float>(y) + 0.5f;
      const float depth = at_x * m[6] + at_y * m[7] + 1;
      const float place_x = (at_x * grid[0] + at_y * grid[1] + grid[2]) / depth - 1;
      const float place_y = (at_x * grid[3] + at_y * grid[4] + grid[5]) / depth - 1;
      sample(image, (((place_y + 1) * height) - 1) / 2, (((place_x + 1) * width) - 1) / 2, options,
             result.row(y) + x * image.channels);
    }
  }
  return result;
}

}  // namespace tern::data
