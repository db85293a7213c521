#pragma once
// Crops, flips and maps of images, with torchvision's semantics (transforms.v2 on byte tensors): pixels are equal to
// its, those of kBilinear within 1.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "tern/data/images/image.h"

namespace tern::data {

/// Value of all channels outside the image.
inline constexpr uint8_t kBlack = 0;

/// Rows top .. top + height - 1 and columns left .. left + width - 1; pixels outside the image are `fill`. A crop that
/// begins at negative coordinates therefore pads. Throws Error if a size is not positive.
Image crop(const Image& image, int64_t top, int64_t left, int64_t height, int64_t width, uint8_t fill = kBlack);
/// Crops the centre; black where the image is smaller.
Image center_crop(const Image& image, int64_t height, int64_t width);
/// The upper left corner of a crop, in pixels of the image.
struct CropPlace {
  int64_t top = 0, left = 0;
};
/// The four corners (upper left, upper right, lower left, lower right) and the centre. Throws Error if the crops are
/// larger than the image.
std::array<CropPlace, 5> five_crop_places(int64_t image_height, int64_t image_width, int64_t height, int64_t width);
/// The crops at five_crop_places().
std::vector<Image> five_crop(const Image& image, int64_t height, int64_t width);
/// five_crop() of the image, then of its mirror image.
std::vector<Image> ten_crop(const Image& image, int64_t height, int64_t width);
/// Mirrors left and right.
Image flip_horizontal(Image image);
/// Mirrors top and bottom.
Image flip_vertical(Image image);

/// The value of a place between pixels.
enum class Sampling : uint8_t { kNearest, kBilinear };  // nearest: ties to even
struct WarpOptions {
  Sampling sampling = Sampling::kNearest;
  // Outside the image; nothing: black. With kBilinear, 0 differs from nothing within a pixel of the border: the fill is
  // blended in by the share of the place that lies outside, after black was.
  std::optional<uint8_t> fill = {};
};

/// {a, b, c, d, e, f}: pixel (x, y) of the result is pixel (a x + b y + c, d x + e y + f) of the image, with
/// coordinates relative to the image centre.
using AffineMatrix = std::array<double, 6>;
/// torchvision's affine(): rotation (degrees, clockwise), scale, translation by whole pixels and shear (degrees) around
/// `center` (pixels from the image centre).
struct AffineOptions {
  double angle = 0;
  double translate_x = 0, translate_y = 0;
  double scale = 1;
  double shear_x = 0, shear_y = 0;
  double center_x = 0, center_y = 0;
};
/// Throws Error if the scale is not positive.
AffineMatrix inverse_affine(const AffineOptions& options);

/// An image of the same size.
Image affine(const Image& image, const AffineMatrix& matrix, const WarpOptions& options = {});
/// Counterclockwise around the centre, in degrees. `expand`: the result holds the whole rotated image; otherwise it has
/// the image's size.
Image rotate(const Image& image, double degrees, const WarpOptions& options = {}, bool expand = false);

/// A point of an image: x to the right, y downwards, in pixels.
struct ImagePoint {
  double x = 0, y = 0;
};
/// {a, b, c, d, e, f, g, h}: the place (x, y) of the result is ((a x + b y + c) / (g x + h y + 1), (d x + e y + f) /
/// (g x + h y + 1)) of the image, with the origin at its upper left corner.
using PerspectiveMatrix = std::array<double, 8>;
/// The map that moves each of four points to another. Throws Error if there is none: three points on a line.
PerspectiveMatrix perspective_between(const std::array<ImagePoint, 4>& from, const std::array<ImagePoint, 4>& to);
/// An image of the same size.
Image perspective(const Image& image, const PerspectiveMatrix& matrix,
                  const WarpOptions& options = {.sampling = Sampling::kBilinear});

}  // namespace tern::data
