#include "tern/data/transforms/auto_augment.h"

#include <cmath>
#include <iterator>
#include <numbers>
#include <utility>

#include "tern/data/transforms/color.h"
#include "tern/data/transforms/geometry.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

/// Strengths of share 1. The table of RandAugment, and that of TrivialAugmentWide.
struct Strength {
  double usual = 0, wide = 0;
};

Image moved(const Image& image, const AffineOptions& options) { return affine(image, inverse_affine(options)); }

/// Keeps the upper left corner fixed.
Image sheared(const Image& image, double slope_x, double slope_y) {
  const auto degrees = [](double slope) { return std::atan(slope) * (180 / std::numbers::pi); };
  return moved(image, {.shear_x = degrees(slope_x),
                       .shear_y = degrees(slope_y),
                       .center_x = -0.5 * static_cast<double>(image.width),
                       .center_y = -0.5 * static_cast<double>(image.height)});
}

struct AugmentRow {
  bool has_sign;
  Strength strength;
  Image (*apply)(const Image& image, double magnitude);
};
constexpr Strength kNone = {0, 0}, kSlope = {0.3, 0.99}, kPixels = {150.0 / 331.0, 32}, kDegrees = {30, 135},
                   kColorChange = {0.9, 0.99}, kLostBits = {4, 6}, kThreshold = {1, 1};
// In the order of AugmentOp.
constexpr AugmentRow kAugmentRows[] = {
    {false, kNone, [](const Image& image, double) { return image; }},
    {true, kSlope, [](const Image& image, double slope) { return sheared(image, slope, 0); }},
    {true, kSlope, [](const Image& image, double slope) { return sheared(image, 0, slope); }},
    {true, kPixels, [](const Image& image, double x) { return moved(image, {.translate_x = std::trunc(x)}); }},
    {true, kPixels, [](const Image& image, double y) { return moved(image, {.translate_y = std::trunc(y)}); }},
    {true, kDegrees, [](const Image& image, double degrees) { return moved(image, {.angle = -degrees}); }},
    {true, kColorChange, [](const Image& image, double change) { return adjust_brightness(image, 1 + change); }},
    {true, kColorChange, [](const Image& image, double change) { return adjust_saturation(image, 1 + change); }},
    {true, kColorChange, [](const Image& image, double change) { return adjust_contrast(image, 1 + change); }},
    {true, kColorChange, [](const Image& image, double change) { return adjust_sharpness(image, 1 + change); }},
    {false, kLostBits, [](const Image& image, double bits) { return posterize(image, static_cast<int>(bits)); }},
    {false, kThreshold, [](const Image& image, double threshold) { return solarize(image, 255 * threshold); }},
    {false, kNone, [](const Image& image, double) { return autocontrast(image); }},
    {false, kNone, [](const Image& image, double) { return equalize(image); }},
    {false, kNone, [](const Image& image, double) { return invert(image); }}};
static_assert(std::size(kAugmentRows) == kAugmentOps);

const AugmentRow& row_of(AugmentOp op) { return kAugmentRows[static_cast<size_t>(op)]; }

double magnitude_of(AugmentOp op, double strength, int bin, int bins) {
  TERN_CHECK(bin >= 0 && bin < bins && bins >= 2, "augmentation: magnitude ", bin, " of ", bins, " bins");
  const double share = static_cast<double>(bin) / (bins - 1);
  if (op == AugmentOp::kPosterize) return std::nearbyint(8 - strength * share);
  if (op == AugmentOp::kSolarize) return 1 - strength * share;
  return strength * share;
}

double with_sign(AugmentOp op, double magnitude, RandomStream& random) {
  return has_sign(op) && random.uniform() < 0.5 ? -magnitude : magnitude;
}

using enum AugmentOp;
constexpr SubPolicy kImageNetPolicy[] = {
    {{{kPosterize, 0.4, 8}, {kRotate, 0.6, 9}}},  {{{kSolarize, 0.6, 5}, {kAutoContrast, 0.6, 0}}},
    {{{kEqualize, 0.8, 0}, {kEqualize, 0.6, 0}}}, {{{kPosterize, 0.6, 7}, {kPosterize, 0.6, 6}}},
    {{{kEqualize, 0.4, 0}, {kSolarize, 0.2, 4}}}, {{{kEqualize, 0.4, 0}, {kRotate, 0.8, 8}}},
    {{{kSolarize, 0.6, 3}, {kEqualize, 0.6, 0}}}, {{{kPosterize, 0.8, 5}, {kEqualize, 1, 0}}},
    {{{kRotate, 0.2, 3}, {kSolarize, 0.6, 8}}},   {{{kEqualize, 0.6, 0}, {kPosterize, 0.4, 6}}},
    {{{kRotate, 0.8, 8}, {kColor, 0.4, 0}}},      {{{kRotate, 0.4, 9}, {kEqualize, 0.6, 0}}},
    {{{kEqualize, 0, 0}, {kEqualize, 0.8, 0}}},   {{{kInvert, 0.6, 0}, {kEqualize, 1, 0}}},
    {{{kColor, 0.6, 4}, {kContrast, 1, 8}}},      {{{kRotate, 0.8, 8}, {kColor, 1, 2}}},
    {{{kColor, 0.8, 8}, {kSolarize, 0.8, 7}}},    {{{kSharpness, 0.4, 7}, {kInvert, 0.6, 0}}},
    {{{kShearX, 0.6, 5}, {kEqualize, 1, 0}}},     {{{kColor, 0.4, 0}, {kEqualize, 0.6, 0}}},
    {{{kEqualize, 0.4, 0}, {kSolarize, 0.2, 4}}}, {{{kSolarize, 0.6, 5}, {kAutoContrast, 0.6, 0}}},
    {{{kInvert, 0.6, 0}, {kEqualize, 1, 0}}},     {{{kColor, 0.6, 4}, {kContrast, 1, 8}}},
    {{{kEqualize, 0.8, 0}, {kEqualize, 0.6, 0}}},
};
constexpr SubPolicy kCifar10Policy[] = {
    {{{kInvert, 0.1, 0}, {kContrast, 0.2, 6}}},         {{{kRotate, 0.7, 2}, {kTranslateX, 0.3, 9}}},
    {{{kSharpness, 0.8, 1}, {kSharpness, 0.9, 3}}},     {{{kShearY, 0.5, 8}, {kTranslateY, 0.7, 9}}},
    {{{kAutoContrast, 0.5, 0}, {kEqualize, 0.9, 0}}},   {{{kShearY, 0.2, 7}, {kPosterize, 0.3, 7}}},
    {{{kColor, 0.4, 3}, {kBrightness, 0.6, 7}}},        {{{kSharpness, 0.3, 9}, {kBrightness, 0.7, 9}}},
    {{{kEqualize, 0.6, 0}, {kEqualize, 0.5, 0}}},       {{{kContrast, 0.6, 7}, {kSharpness, 0.6, 5}}},
    {{{kColor, 0.7, 7}, {kTranslateX, 0.5, 8}}},        {{{kEqualize, 0.3, 0}, {kAutoContrast, 0.4, 0}}},
    {{{kTranslateY, 0.4, 3}, {kSharpness, 0.2, 6}}},    {{{kBrightness, 0.9, 6}, {kColor, 0.2, 8}}},
    {{{kSolarize, 0.5, 2}, {kInvert, 0, 0}}},           {{{kEqualize, 0.2, 0}, {kAutoContrast, 0.6, 0}}},
    {{{kEqualize, 0.2, 0}, {kEqualize, 0.6, 0}}},       {{{kColor, 0.9, 9}, {kEqualize, 0.6, 0}}},
    {{{kAutoContrast, 0.8, 0}, {kSolarize, 0.2, 8}}},   {{{kBrightness, 0.1, 3}, {kColor, 0.7, 0}}},
    {{{kSolarize, 0.4, 5}, {kAutoContrast, 0.9, 0}}},   {{{kTranslateY, 0.9, 9}, {kTranslateY, 0.7, 9}}},
    {{{kAutoContrast, 0.9, 0}, {kSolarize, 0.8, 3}}},   {{{kEqualize, 0.8, 0}, {kInvert, 0.1, 0}}},
    {{{kTranslateY, 0.7, 9}, {kAutoContrast, 0.9, 0}}},
};
constexpr SubPolicy kSvhnPolicy[] = {
    {{{kShearX, 0.9, 4}, {kInvert, 0.2, 0}}},       {{{kShearY, 0.9, 8}, {kInvert, 0.7, 0}}},
    {{{kEqualize, 0.6, 0}, {kSolarize, 0.6, 6}}},   {{{kInvert, 0.9, 0}, {kEqualize, 0.6, 0}}},
    {{{kEqualize, 0.6, 0}, {kRotate, 0.9, 3}}},     {{{kShearX, 0.9, 4}, {kAutoContrast, 0.8, 0}}},
    {{{kShearY, 0.9, 8}, {kInvert, 0.4, 0}}},       {{{kShearY, 0.9, 5}, {kSolarize, 0.2, 6}}},
    {{{kInvert, 0.9, 0}, {kAutoContrast, 0.8, 0}}}, {{{kEqualize, 0.6, 0}, {kRotate, 0.9, 3}}},
    {{{kShearX, 0.9, 4}, {kSolarize, 0.3, 3}}},     {{{kShearY, 0.8, 8}, {kInvert, 0.7, 0}}},
    {{{kEqualize, 0.9, 0}, {kTranslateY, 0.6, 6}}}, {{{kInvert, 0.9, 0}, {kEqualize, 0.6, 0}}},
    {{{kContrast, 0.3, 3}, {kRotate, 0.8, 4}}},     {{{kInvert, 0.8, 0}, {kTranslateY, 0, 2}}},
    {{{kShearY, 0.7, 6}, {kSolarize, 0.4, 8}}},     {{{kInvert, 0.6, 0}, {kRotate, 0.8, 4}}},
    {{{kShearY, 0.3, 7}, {kTranslateX, 0.9, 3}}},   {{{kShearX, 0.1, 6}, {kInvert, 0.6, 0}}},
    {{{kSolarize, 0.7, 2}, {kTranslateY, 0.6, 7}}}, {{{kShearY, 0.8, 4}, {kInvert, 0.8, 0}}},
    {{{kShearX, 0.7, 9}, {kTranslateY, 0.8, 3}}},   {{{kShearY, 0.8, 5}, {kAutoContrast, 0.7, 0}}},
    {{{kShearX, 0.7, 2}, {kInvert, 0.1, 0}}},
};

}  // namespace

bool has_sign(AugmentOp op) { return row_of(op).has_sign; }

double augment_magnitude(AugmentOp op, int bin, int bins, int64_t height, int64_t width) {
  const double side = op == AugmentOp::kTranslateX   ? static_cast<double>(width)
                      : op == AugmentOp::kTranslateY ? static_cast<double>(height)
                                                     : 1;
  return magnitude_of(op, row_of(op).strength.usual * side, bin, bins);
}

double wide_augment_magnitude(AugmentOp op, int bin, int bins) {
  return magnitude_of(op, row_of(op).strength.wide, bin, bins);
}

Image apply_augment(const Image& image, AugmentOp op, double magnitude) { return row_of(op).apply(image, magnitude); }

AugmentChoice RandAugment::choose(int64_t height, int64_t width, RandomStream& random) const {
  const auto op = static_cast<AugmentOp>(random.below(kRandomAugmentOps));
  return {op, with_sign(op, augment_magnitude(op, magnitude, bins, height, width), random)};
}

Image RandAugment::operator()(Image image, RandomStream& random) const {
  for (int i = 0; i < operations; ++i) {
    const AugmentChoice choice = choose(image.height, image.width, random);
    image = apply_augment(image, choice.op, choice.magnitude);
  }
  return image;
}

AugmentChoice TrivialAugmentWide::choose(RandomStream& random) const {
  TERN_CHECK(bins >= 2, "TrivialAugmentWide: there must be 2 bins or more, got ", bins);
  const auto op = static_cast<AugmentOp>(random.below(kRandomAugmentOps));
  const int bin = static_cast<int>(random.below(static_cast<uint64_t>(bins)));
  return {op, with_sign(op, wide_augment_magnitude(op, bin, bins), random)};
}

Image TrivialAugmentWide::operator()(const Image& image, RandomStream& random) const {
  const AugmentChoice choice = choose(random);
  return apply_augment(image, choice.op, choice.magnitude);
}

std::span<const SubPolicy> sub_policies(AugmentPolicy policy) {
  switch (policy) {
    case AugmentPolicy::kCifar10:
      return kCifar10Policy;
    case AugmentPolicy::kSvhn:
      return kSvhnPolicy;
    default:
      return kImageNetPolicy;
  }
}

Image AutoAugment::operator()(Image image, RandomStream& random) const {
  constexpr int kPolicyBins = 10;
  const std::span<const SubPolicy> all = sub_policies(policy);
  for (const PolicyStep& step : all[random.below(all.size())].steps) {
    if (random.uniform() >= step.probability) continue;
    const double magnitude = augment_magnitude(step.op, step.bin, kPolicyBins, image.height, image.width);
    image = apply_augment(image, step.op, with_sign(step.op, magnitude, random));
  }
  return image;
}

}  // namespace tern::data
