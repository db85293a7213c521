#pragma once
// Batches of 8-bit images: resizing, and augmentation fused with normalisation. The semantics are those of torchvision
// (transforms v2 on tensors). Pixels are computed in integers or by single IEEE operations, so CPU levels and CUDA give
// the same bits.

#include "tern/kernels/kernel.h"

namespace tern::kernels {

/// Fraction bits of fixed-point numbers: 16 in colour factors, 22 in resize weights.
inline constexpr int kColorBits = 16, kResizeBits = 22;
/// The largest colour factor; a larger one would overflow 32 bits.
inline constexpr double kMaxColorFactor = 60;

/// Red, green and blue, each in 0 .. 255.
struct Rgb {
  int32_t channel[3];
};

TERN_HD inline int32_t clamp_byte(int32_t value) { return value < 0 ? 0 : value > 255 ? 255 : value; }

/// Luma by ITU-R 601 with torchvision's rounding: floor(0.2989 red + 0.587 green + 0.114 blue).
TERN_HD inline int32_t grey_of(const Rgb& pixel) {
  constexpr int kBits = 22;
  constexpr int32_t kRed = 1253677, kGreen = 2462056, kBlue = 478151;
  return (kRed * pixel.channel[0] + kGreen * pixel.channel[1] + kBlue * pixel.channel[2]) >> kBits;
}

/// factor * value + offset; factor and offset have kColorBits fraction bits.
TERN_HD inline Rgb scaled(const Rgb& pixel, int32_t factor, int32_t offset) {
  Rgb result;
  for (int c = 0; c < 3; ++c) result.channel[c] = clamp_byte((factor * pixel.channel[c] + offset) >> kColorBits);
  return result;
}

/// Rotates the hue (HSV) by `turn`: sixths of a circle with kColorBits fraction bits, 0 <= turn < 6. Branch-free, so
/// that loops over it vectorise.
TERN_HD inline Rgb turn_hue(const Rgb& pixel, int32_t turn) {
  constexpr int32_t kOne = 1 << kColorBits, kCircle = 6 * kOne;
  const int32_t r = pixel.channel[0], g = pixel.channel[1], b = pixel.channel[2];
  const int32_t larger = r > g ? r : g, smaller = r < g ? r : g;
  const int32_t high = larger > b ? larger : b, low = smaller < b ? smaller : b, range = high - low;
  const int32_t start = high == r ? 0 : high == g ? 2 * kOne : 4 * kOne;
  const int32_t difference = high == r ? g - b : high == g ? b - r : r - g;
  // The numerator is exact in a float, so the quotient is rounded equally on every device.
  const float quotient = static_cast<float>(difference * kOne) / static_cast<float>(range > 0 ? range : 1);
  int32_t hue = start + static_cast<int32_t>(quotient) + turn;
  hue = hue < 0 ? hue + kCircle : hue;
  hue = hue >= kCircle ? hue - kCircle : hue;
  Rgb result;
  for (int c = 0; c < 3; ++c) {
    // Distance of the hue from this channel's hue. The channel is highest within one sixth and lowest beyond two.
    const int32_t apart = hue > 2 * c * kOne ? hue - 2 * c * kOne : 2 * c * kOne - hue;
    const int32_t rest = 2 * kOne - (apart < kCircle - apart ? apart : kCircle - apart);
    const int32_t share = rest < 0 ? 0 : rest > kOne ? kOne : rest;
    const int32_t value = low * kOne + range * share;
    result.channel[c] = (value + (value >> 8)) >> kColorBits;  // floor(255.999 x), as torchvision computes bytes
  }
  return result;
}

enum class ColorOp : int32_t { kNone, kBrightness, kContrast, kSaturation, kHue };

/// One colour change. amount: a factor with kColorBits fraction bits; for kHue the `turn` of turn_hue().
struct ColorStep {
  ColorOp op = ColorOp::kNone;
  int32_t amount = 0;
};
inline constexpr int kColorSteps = 4;

/// The offset of a contrast change: (1 - factor) * mean. `grey_sum`: the sum of grey_of() over `pixels` pixels.
TERN_HD inline int32_t contrast_offset(int32_t factor, int64_t grey_sum, int64_t pixels) {
  const int64_t total = ((int64_t{1} << kColorBits) - factor) * grey_sum;
  return static_cast<int32_t>((total >= 0 ? total + pixels / 2 : total - pixels / 2) / pixels);
}

/// Applies one colour change. `offset`: contrast_offset(), used by kContrast only.
TERN_HD inline Rgb change_color(const Rgb& pixel, const ColorStep& step, int32_t offset) {
  switch (step.op) {
    case ColorOp::kBrightness:
      return scaled(pixel, step.amount, 0);
    case ColorOp::kContrast:
      return scaled(pixel, step.amount, offset);
    case ColorOp::kSaturation:
      return scaled(pixel, step.amount, ((1 << kColorBits) - step.amount) * grey_of(pixel));
    case ColorOp::kHue:
      return turn_hue(pixel, step.amount);
    default:
      return pixel;
  }
}

/// Rows [top, bottom) and columns [left, right).
struct ImageBox {
  int32_t top = 0, left = 0, bottom = 0, right = 0;
  TERN_HD bool contains(int64_t y, int64_t x) const { return y >= top && y < bottom && x >= left && x < right; }
};

/// Pixels outside of an image: `fill`, or the mirror image at its border, which is not repeated (torchvision's
/// "reflect").
enum class ImageBorder : int32_t { kFill, kReflect };

/// The index inside [0, size) that is shown at `i`, for kReflect; -size < i < 2 size - 1.
TERN_HD inline int64_t reflected(int64_t i, int64_t size) { return i < 0 ? -i : i >= size ? 2 * (size - 1) - i : i; }

/// The augmentation of one image, in this order: crop (and pad), mirror, colours, normalisation, erasing, mixing.
struct ImageAugment {
  int32_t top = 0, left = 0;  // corner of the crop in the image
  ImageBorder border = ImageBorder::kFill;
  int32_t mirrored = 0;           // 1: the crop is mirrored left to right
  ColorStep colors[kColorSteps];  // at most one kContrast: its mean is that of the image after the steps before it
  ImageBox erased;                // in coordinates of the result
  int32_t partner = 0;            // index of the image of the batch that is mixed in, after that image's augmentation
  float weight = 1;               // MixUp: weight * this + (1 - weight) * partner
  ImageBox pasted;                // CutMix: the box that is taken from the partner

  /// The index of the kContrast step, or kColorSteps.
  TERN_HD int contrast_step() const {
    int s = 0;
    while (s < kColorSteps && colors[s].op != ColorOp::kContrast) ++s;
    return s;
  }
  TERN_HD bool changes_colors() const {
    bool any = false;
    for (const ColorStep& step : colors) any = any || step.op != ColorOp::kNone;
    return any;
  }
  TERN_HD bool mixes() const { return weight != 1 || pasted.bottom > pasted.top; }
};

/// result = (byte / 255 - mean) / std, computed by the same operations as torchvision's ToTensor and Normalize.
struct ImageNormalization {
  float mean[3] = {0, 0, 0}, std[3] = {1, 1, 1};
  uint8_t fill[3] = {0, 0, 0};  // bytes of pixels outside the image
  float erased[3] = {0, 0, 0};  // normalised values inside the erased box

  TERN_HD float value(int channel, int32_t byte) const {
    return (static_cast<float>(byte) / 255.0f - mean[channel]) / std[channel];
  }
};

/// The pixels of one augmented image before mixing. All devices use this definition.
struct AugmentedImage {
  const uint8_t* pixels;              // [image_height, image_width, 3]
  int64_t image_height, image_width;  // of the source
  int64_t width;                      // of the result
  const ImageAugment* plan;
  const ImageNormalization* normalization;
  int32_t offset;  // contrast_offset(); any value before the kContrast step

  TERN_HD Rgb cropped(int64_t y, int64_t x) const {
    int64_t row = plan->top + y, column = plan->left + (plan->mirrored ? width - 1 - x : x);
    if (plan->border == ImageBorder::kReflect) {
      row = reflected(row, image_height);
      column = reflected(column, image_width);
    }
    const bool inside = row >= 0 && row < image_height && column >= 0 && column < image_width;
    const uint8_t* in = inside ? pixels + (row * image_width + column) * 3 : normalization->fill;
    return {{in[0], in[1], in[2]}};
  }
  /// The pixel after the first `steps` colour changes.
  TERN_HD Rgb colored(int64_t y, int64_t x, int steps) const {
    Rgb pixel = cropped(y, x);
    for (int s = 0; s < steps; ++s) pixel = change_color(pixel, plan->colors[s], offset);
    return pixel;
  }
};

/// Computes the offsets that augment_images needs when any plan has a kContrast step: for each image contrast_offset()
/// of its height x width result before that step, 0 for an image without one. images: uint8 [n, H, W, 3], contiguous;
/// plans, offsets: [n] on the device.
TERN_KERNEL(void, image_contrast, Stream stream, ConstView images, const ImageAugment* plans,
            const ImageNormalization& normalization, int64_t height, int64_t width, int32_t* offsets);

/// Augments images uint8 [n, H, W, 3] into result [n, 3, height, width] of any floating type. Both are contiguous; one
/// image of either has less than 2^31 values. plans: [n] on the device, partners in 0 .. n - 1. contrast: the result of
/// image_contrast, or null when no plan has a kContrast step.
TERN_KERNEL(void, augment_images, Stream stream, ConstView images, const ImageAugment* plans,
            const ImageNormalization& normalization, const int32_t* contrast, View result);

/// The weights of one resized dimension: output i is the sum of weights[i * taps + k] times input first[i] + k for
/// k < taps. Every first[i] + taps is at most the input size. On the device.
struct ResizeAxis {
  const int32_t* first = nullptr;
  const int32_t* weights = nullptr;  // with kResizeBits fraction bits
  int32_t taps = 0;
};

/// Rounds a fixed-point sum to the nearest byte.
TERN_HD inline uint8_t resized_byte(int32_t sum) {
  return static_cast<uint8_t>(clamp_byte((sum + (1 << (kResizeBits - 1))) >> kResizeBits));
}

/// Resizes images uint8 [n, H, W, 3] to result uint8 [n, h, w, 3], both contiguous: first along the width, rounded to
/// bytes, then along the height, as Pillow does (and torchvision for bytes).
TERN_KERNEL(void, resize_images, Stream stream, ConstView images, ResizeAxis rows, ResizeAxis columns, void* workspace,
            View result);
/// Bytes of workspace for resize_images.
TERN_KERNEL(int64_t, resize_images_workspace, Stream stream, ConstView images, int64_t width);

}  // namespace tern::kernels
