#include "tern/data/transforms/random.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>
#include <optional>

#include "tern/data/transforms/color.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

using kernels::ColorOp;
using kernels::ImageBox;

constexpr int kTries = 10;

/// Rounds as Python's round(): half to even.
int64_t rounded(double value) { return std::lrint(value); }

int64_t place(int64_t room, RandomStream& random) {
  return static_cast<int64_t>(random.below(static_cast<uint64_t>(room + 1)));
}

double draw_ratio(double low, double high, RandomStream& random) {
  return std::exp(random.uniform(std::log(low), std::log(high)));
}

ImageBox box_at(int64_t top, int64_t left, int64_t height, int64_t width) {
  return {static_cast<int32_t>(top), static_cast<int32_t>(left), static_cast<int32_t>(top + height),
          static_cast<int32_t>(left + width)};
}

double draw_normal(RandomStream& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

/// Logarithm of a Gamma(shape) variate (Marsaglia and Tsang, ACM TOMS 26, 2000); logarithms, because variates of small
/// shapes often underflow a double.
double draw_log_gamma(double shape, RandomStream& random) {
  if (shape < 1) return draw_log_gamma(shape + 1, random) + std::log(1 - random.uniform()) / shape;
  const double d = shape - 1.0 / 3.0, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double normal = draw_normal(random), root = 1 + c * normal;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(1 - random.uniform()) < 0.5 * normal * normal + d - d * v + d * std::log(v)) return std::log(d * v);
  }
}

double no_magnitude(double, int64_t, int64_t) { return 0; }
double shear(double share, int64_t, int64_t) { return 0.3 * share; }
double translation(double share, int64_t side) { return 150.0 / 331.0 * static_cast<double>(side) * share; }
double color_change(double share, int64_t, int64_t) { return 0.9 * share; }

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
  double (*magnitude)(double share, int64_t height, int64_t width);
  Image (*apply)(const Image& image, double magnitude);
};
// In the order of AugmentOp.
constexpr AugmentRow kAugmentRows[] = {
    {false, no_magnitude, [](const Image& image, double) { return image; }},
    {true, shear, [](const Image& image, double slope) { return sheared(image, slope, 0); }},
    {true, shear, [](const Image& image, double slope) { return sheared(image, 0, slope); }},
    {true, [](double share, int64_t, int64_t width) { return translation(share, width); },
     [](const Image& image, double pixels) { return moved(image, {.translate_x = std::trunc(pixels)}); }},
    {true, [](double share, int64_t height, int64_t) { return translation(share, height); },
     [](const Image& image, double pixels) { return moved(image, {.translate_y = std::trunc(pixels)}); }},
    {true, [](double share, int64_t, int64_t) { return 30 * share; },
     [](const Image& image, double degrees) { return moved(image, {.angle = -degrees}); }},
    {true, color_change, [](const Image& image, double change) { return adjust_brightness(image, 1 + change); }},
    {true, color_change, [](const Image& image, double change) { return adjust_saturation(image, 1 + change); }},
    {true, color_change, [](const Image& image, double change) { return adjust_contrast(image, 1 + change); }},
    {true, color_change, [](const Image& image, double change) { return adjust_sharpness(image, 1 + change); }},
    {false, [](double share, int64_t, int64_t) { return static_cast<double>(rounded(8 - 4 * share)); },
     [](const Image& image, double bits) { return posterize(image, static_cast<int>(bits)); }},
    {false, [](double share, int64_t, int64_t) { return 1 - share; },
     [](const Image& image, double threshold) { return solarize(image, 255 * threshold); }},
    {false, no_magnitude, [](const Image& image, double) { return autocontrast(image); }},
    {false, no_magnitude, [](const Image& image, double) { return equalize(image); }}};
static_assert(std::size(kAugmentRows) == kAugmentOps);

const AugmentRow& row_of(AugmentOp op) { return kAugmentRows[static_cast<size_t>(op)]; }

}  // namespace

RandomStream image_random(const ItemKey& key) { return item_random(key, Draw::kImage); }

ImageTransform compose(std::vector<ImageStep> steps) {
  return [steps = std::move(steps)](Image image, const ItemKey& key) {
    RandomStream random = image_random(key);
    for (const ImageStep& step : steps) image = step(std::move(image), random);
    return image;
  };
}

RandomCrop::Place RandomCrop::choose(int64_t image_height, int64_t image_width, RandomStream& random) const {
  const int64_t rows = image_height + 2 * padding - height, columns = image_width + 2 * padding - width;
  TERN_CHECK(height > 0 && width > 0 && padding >= 0 && rows >= 0 && columns >= 0, "random crop: ", width, " x ",
             height, " pixels of an image of ", image_width, " x ", image_height, " with ", padding, " of padding");
  const int64_t top = place(rows, random) - padding;
  return {top, place(columns, random) - padding};
}

Image RandomCrop::operator()(const Image& image, RandomStream& random) const {
  const Place at = choose(image.height, image.width, random);
  return crop(image, at.top, at.left, height, width);
}

ImageBox RandomResizedCrop::choose(int64_t image_height, int64_t image_width, RandomStream& random) const {
  const auto area = static_cast<double>(image_height * image_width);
  for (int i = 0; i < kTries; ++i) {
    const double wanted = area * random.uniform(smallest, largest), ratio = draw_ratio(narrowest, widest, random);
    const int64_t w = rounded(std::sqrt(wanted * ratio)), h = rounded(std::sqrt(wanted / ratio));
    if (w <= 0 || w > image_width || h <= 0 || h > image_height) continue;
    const int64_t top = place(image_height - h, random);
    return box_at(top, place(image_width - w, random), h, w);
  }
  // Fallback: a centre crop, as large as the ratios allow.
  const double ratio = static_cast<double>(image_width) / static_cast<double>(image_height);
  int64_t w = image_width, h = image_height;
  if (ratio < narrowest) h = rounded(static_cast<double>(w) / narrowest);
  if (ratio > widest) w = rounded(static_cast<double>(h) * widest);
  h = std::clamp<int64_t>(h, 1, image_height);
  w = std::clamp<int64_t>(w, 1, image_width);
  return box_at((image_height - h) / 2, (image_width - w) / 2, h, w);
}

Image RandomResizedCrop::operator()(const Image& image, RandomStream& random) const {
  const ImageBox box = choose(image.height, image.width, random);
  return resize(crop(image, box.top, box.left, box.bottom - box.top, box.right - box.left), height, width, resampling);
}

Image RandomFlip::operator()(Image image, RandomStream& random) const {
  return choose(random) ? flip_horizontal(std::move(image)) : image;
}

ColorJitter::Steps ColorJitter::choose(RandomStream& random) const {
  for (const double range : {brightness, contrast, saturation, hue})
    TERN_CHECK(range >= 0, "colour jitter: ranges must not be negative, got ", range);
  std::array<int, kernels::kColorSteps> order = {0, 1, 2, 3};
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  const auto factor = [&](ColorOp op, double range) {
    if (range == 0) return kernels::ColorStep();
    return color_step(op, random.uniform(std::max(0.0, 1 - range), 1 + range));
  };
  const Steps steps = {factor(ColorOp::kBrightness, brightness), factor(ColorOp::kContrast, contrast),
                       factor(ColorOp::kSaturation, saturation),
                       hue == 0 ? kernels::ColorStep() : color_step(ColorOp::kHue, random.uniform(-hue, hue))};
  Steps ordered;
  for (size_t i = 0; i < order.size(); ++i) ordered[i] = steps[static_cast<size_t>(order[i])];
  return ordered;
}

Image ColorJitter::operator()(Image image, RandomStream& random) const {
  for (const kernels::ColorStep& step : choose(random)) image = change_color(std::move(image), step);
  return image;
}

bool has_sign(AugmentOp op) { return row_of(op).has_sign; }

double augment_magnitude(AugmentOp op, int bin, int bins, int64_t height, int64_t width) {
  TERN_CHECK(bin >= 0 && bin < bins && bins >= 2, "RandAugment: magnitude ", bin, " of ", bins, " bins");
  return row_of(op).magnitude(static_cast<double>(bin) / (bins - 1), height, width);
}

Image apply_augment(const Image& image, AugmentOp op, double magnitude) { return row_of(op).apply(image, magnitude); }

RandAugment::Choice RandAugment::choose(int64_t height, int64_t width, RandomStream& random) const {
  const auto op = static_cast<AugmentOp>(random.below(kAugmentOps));
  const double strength = augment_magnitude(op, magnitude, bins, height, width);
  return {op, has_sign(op) && random.uniform() < 0.5 ? -strength : strength};
}

Image RandAugment::operator()(Image image, RandomStream& random) const {
  for (int i = 0; i < operations; ++i) {
    const Choice choice = choose(image.height, image.width, random);
    image = apply_augment(image, choice.op, choice.magnitude);
  }
  return image;
}

ImageBox RandomErasing::choose(int64_t height, int64_t width, RandomStream& random) const {
  if (random.uniform() >= probability) return {};
  const auto area = static_cast<double>(height * width);
  for (int i = 0; i < kTries; ++i) {
    const double wanted = area * random.uniform(smallest, largest), ratio = draw_ratio(narrowest, widest, random);
    const int64_t h = rounded(std::sqrt(wanted * ratio)), w = rounded(std::sqrt(wanted / ratio));
    if (h >= height || w >= width) continue;
    const int64_t top = place(height - h, random);
    return box_at(top, place(width - w, random), h, w);
  }
  return {};
}

double draw_beta(double alpha, RandomStream& random) {
  TERN_CHECK(alpha > 0, "MixUp and CutMix: alpha must be positive, got ", alpha);
  const double a = draw_log_gamma(alpha, random), b = draw_log_gamma(alpha, random);
  return 1 / (1 + std::exp(b - a));
}

ImageBox choose_cutmix_box(double weight, int64_t height, int64_t width, RandomStream& random) {
  const auto x = static_cast<int64_t>(random.below(static_cast<uint64_t>(width)));
  const auto y = static_cast<int64_t>(random.below(static_cast<uint64_t>(height)));
  const double half = 0.5 * std::sqrt(1 - weight);
  const auto half_width = static_cast<int64_t>(half * static_cast<double>(width));
  const auto half_height = static_cast<int64_t>(half * static_cast<double>(height));
  const int64_t left = std::max<int64_t>(x - half_width, 0), top = std::max<int64_t>(y - half_height, 0);
  return box_at(top, left, std::min(y + half_height, height) - top, std::min(x + half_width, width) - left);
}

}  // namespace tern::data
