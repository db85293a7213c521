#pragma once
// Colour transforms of images of 3 channels, with torchvision's semantics on bytes: within 1 of its values.

#include <cstdint>
#include <utility>

#include "tern/data/images/image.h"
#include "tern/kernels/image.h"

namespace tern::data {

/// One colour change for change_color() or an augmentation plan. Brightness, contrast and saturation: a factor from 0
/// to kernels::kMaxColorFactor, 1 changes nothing; hue: -0.5 to 0.5 of the colour circle. Throws Error if out of range.
kernels::ColorStep color_step(kernels::ColorOp op, double amount);
Image change_color(Image image, const kernels::ColorStep& step);

inline Image adjust_brightness(Image image, double factor) {
  return change_color(std::move(image), color_step(kernels::ColorOp::kBrightness, factor));
}
/// Relative to the mean grey of the image.
inline Image adjust_contrast(Image image, double factor) {
  return change_color(std::move(image), color_step(kernels::ColorOp::kContrast, factor));
}
/// Relative to each pixel's grey.
inline Image adjust_saturation(Image image, double factor) {
  return change_color(std::move(image), color_step(kernels::ColorOp::kSaturation, factor));
}
inline Image adjust_hue(Image image, double turn) {
  return change_color(std::move(image), color_step(kernels::ColorOp::kHue, turn));
}

/// Each pixel's grey, in all three channels.
inline Image grayscale(Image image) { return adjust_saturation(std::move(image), 0); }

/// Blends with a 3 x 3 blur; border pixels are unchanged.
Image adjust_sharpness(const Image& image, double factor);
/// Keeps the upper `bits` (0 to 8) bits of each value.
Image posterize(Image image, int bits);
/// Inverts values >= `threshold`.
Image solarize(Image image, double threshold);
/// 255 - value.
Image invert(Image image);
/// Rescales each channel's values to 0 .. 255.
Image autocontrast(Image image);
/// Equalizes each channel's histogram.
Image equalize(Image image);

/// Convolves with a Gaussian of `size` x `size` pixels (odd); the image is continued by its mirror image. sigma:
/// standard deviation in pixels; 0: 0.15 size + 0.35. Throws Error if the size is even, or if its half is not smaller
/// than the image's sides.
Image gaussian_blur(const Image& image, int64_t size, double sigma = 0);

}  // namespace tern::data
