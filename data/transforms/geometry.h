#pragma once
// Crops, flips and affine maps of images, with torchvision's semantics: pixels are equal to its.

#include <array>
#include <cstdint>

#include "tern/data/images/image.h"

namespace tern::data {

/// Value of all channels outside the image.
inline constexpr uint8_t kBlack = 0;

/// Rows top .. top + height - 1 and columns left .. left + width - 1; pixels outside the image are `fill`. A crop that
/// begins at negative coordinates therefore pads. Throws Error if a size is not positive.
Image crop(const Image& image, int64_t top, int64_t left, int64_t height, int64_t width, uint8_t fill = kBlack);
/// Crops the centre; black where the image is smaller.
Image center_crop(const Image& image, int64_t height, int64_t width);
/// Mirrors left and right.
Image flip_horizontal(Image image);

/// {a, b, c, d, e, f}: pixel (x, y) of the result is pixel (a x + b y + c, d x + e y + f) of the image, with
/// coordinates relative to the image centre.
using AffineMatrix = std::array<double, 6>;
/// torchvision's affine(): rotation (degrees, clockwise), translation by whole pixels and shear (degrees) around
/// `center` (pixels from the image centre).
struct AffineOptions {
  double angle = 0;
  double translate_x = 0, translate_y = 0;
  double shear_x = 0, shear_y = 0;
  double center_x = 0, center_y = 0;
};
AffineMatrix inverse_affine(const AffineOptions& options);

/// Nearest pixel (ties to even), black outside the image.
Image affine(const Image& image, const AffineMatrix& matrix);

}  // namespace tern::data
