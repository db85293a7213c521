#pragma once
// Parts, mirrors and affine maps of images, with torchvision's semantics: exactly its pixels.

#include <array>
#include <cstdint>

#include "tern/data/images/image.h"

namespace tern::data {

/// Value of all channels where there is no image.
inline constexpr uint8_t kBlack = 0;

/// Rows top .. top + height - 1 and columns left .. left + width - 1; what lies outside of the image is `fill`. So
/// padding is a crop that begins at negative places. Throws Error when a size is not positive.
Image crop(const Image& image, int64_t top, int64_t left, int64_t height, int64_t width, uint8_t fill = kBlack);
/// The middle; black where the image is smaller.
Image center_crop(const Image& image, int64_t height, int64_t width);
/// Left and right exchanged.
Image flip_horizontal(Image image);

/// {a, b, c, d, e, f}: the result's pixel (x, y) shows the image's (a x + b y + c, d x + e y + f), in pixels from the
/// middle of the image.
using AffineMatrix = std::array<double, 6>;
/// What torchvision's affine() does to images: rotation (degrees, clockwise), then moved by whole pixels, sheared by
/// angles (degrees) around `center` (pixels from the middle).
struct AffineOptions {
  double angle = 0;
  double translate_x = 0, translate_y = 0;
  double shear_x = 0, shear_y = 0;
  double center_x = 0, center_y = 0;
};
AffineMatrix inverse_affine(const AffineOptions& options);

/// The nearest pixel (half way: the even one), black outside of the image.
Image affine(const Image& image, const AffineMatrix& matrix);

}  // namespace tern::data
