#include "tern/data/transforms/geometry.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "tern/kernels/base/check.h"

namespace tern::data {

Image crop(const Image& image, int64_t top, int64_t left, int64_t height, int64_t width, uint8_t fill) {
  TERN_CHECK(height > 0 && width > 0, "crop: ", width, " x ", height, " pixels; sizes must be positive");
  Image result(height, width, image.channels);
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
  // Rounds as Python's round(): half to even.
  const auto start = [](int64_t size, int64_t wanted) {
    return size >= wanted ? std::lrint(static_cast<double>(size - wanted) / 2) : -((wanted - size) / 2);
  };
  return crop(image, start(image.height, height), start(image.width, width), height, width);
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

AffineMatrix inverse_affine(const AffineOptions& options) {
  const auto radians = [](double degrees) { return degrees * (std::numbers::pi / 180); };
  const double rotation = radians(options.angle), shear_x = radians(options.shear_x),
               shear_y = radians(options.shear_y);
  const double moved_x = options.center_x + options.translate_x, moved_y = options.center_y + options.translate_y;
  // Rotation and shear, determinant 1.
  const double a = std::cos(rotation - shear_y) / std::cos(shear_y);
  const double b = -(a * std::tan(shear_x) + std::sin(rotation));
  const double c = std::sin(rotation - shear_y) / std::cos(shear_y);
  const double d = std::cos(rotation) - c * std::tan(shear_x);
  return {d, -b, options.center_x - d * moved_x + b * moved_y, -c, a, options.center_y + c * moved_x - a * moved_y};
}

Image affine(const Image& image, const AffineMatrix& matrix) {
  Image result(image.height, image.width, image.channels);
  const auto width = static_cast<float>(image.width), height = static_cast<float>(image.height);
  // Same rounding as torchvision's grid, whose coordinates are -1 to 1.
  float theta[6];
  for (size_t i = 0; i < 6; ++i) theta[i] = static_cast<float>(matrix[i]) / (0.5f * (i < 3 ? width : height));
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < image.width; ++x) {
      const float from_x = static_cast<float>(x) - (width - 1) / 2, from_y = static_cast<float>(y) - (height - 1) / 2;
      const float place_x = from_x * theta[0] + from_y * theta[1] + theta[2];
      const float place_y = from_x * theta[3] + from_y * theta[4] + theta[5];
      const float column = std::nearbyint(((place_x + 1) * width - 1) / 2);
      const float row = std::nearbyint(((place_y + 1) * height - 1) / 2);
      if (!(column >= 0 && column < width && row >= 0 && row < height)) continue;
      std::memcpy(result.row(y) + x * image.channels,
                  image.row(static_cast<int64_t>(row)) + static_cast<int64_t>(column) * image.channels,
                  static_cast<size_t>(image.channels));
    }
  }
  return result;
}

}  // namespace tern::data
