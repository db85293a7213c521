#include "tern/data/transforms/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

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

/// Clockwise from the upper left one.
std::array<ImagePoint, 4> image_corners(int64_t height, int64_t width) {
  const double right = static_cast<double>(width - 1), bottom = static_cast<double>(height - 1);
  return {ImagePoint{0, 0}, {right, 0}, {right, bottom}, {0, bottom}};
}

}  // namespace

RandomStream image_random(const ItemKey& key) { return item_random(key, Draw::kImage); }

ImageTransform compose(std::vector<ImageStep> steps) {
  return [steps = std::move(steps)](Image image, const ItemKey& key) {
    RandomStream random = image_random(key);
    for (const ImageStep& step : steps) image = step(std::move(image), random);
    return image;
  };
}

CropPlace RandomCrop::choose(int64_t image_height, int64_t image_width, RandomStream& random) const {
  const int64_t rows = image_height + 2 * padding - height, columns = image_width + 2 * padding - width;
  TERN_CHECK(height > 0 && width > 0 && padding >= 0 && rows >= 0 && columns >= 0, "random crop: ", width, " x ",
             height, " pixels of an image of ", image_width, " x ", image_height, " with ", padding, " of padding");
  const int64_t top = place(rows, random) - padding;
  return {top, place(columns, random) - padding};
}

Image RandomCrop::operator()(const Image& image, RandomStream& random) const {
  const CropPlace at = choose(image.height, image.width, random);
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

Image RandomApply::operator()(Image image, RandomStream& random) const {
  return random.uniform() < probability ? step(std::move(image), random) : image;
}

Image RandomRotation::operator()(const Image& image, RandomStream& random) const {
  return rotate(image, random.uniform(smallest, largest), warp, expand);
}

AffineOptions RandomAffine::choose(int64_t height, int64_t width, RandomStream& random) const {
  const auto shift = [&](double share, int64_t side) {
    const double most = share * static_cast<double>(side);
    return static_cast<double>(rounded(random.uniform(-most, most)));
  };
  AffineOptions options;
  options.angle = random.uniform(-degrees, degrees);
  options.translate_x = shift(translate_x, width);
  options.translate_y = shift(translate_y, height);
  options.scale = random.uniform(smallest, largest);
  options.shear_x = random.uniform(-shear_x, shear_x);
  options.shear_y = random.uniform(-shear_y, shear_y);
  return options;
}

Image RandomAffine::operator()(const Image& image, RandomStream& random) const {
  return affine(image, inverse_affine(choose(image.height, image.width, random)), warp);
}

std::array<ImagePoint, 4> RandomPerspective::choose(int64_t height, int64_t width, RandomStream& random) const {
  TERN_CHECK(distortion >= 0 && distortion <= 1, "random perspective: the distortion must be 0 to 1, got ", distortion);
  const auto inset = [&](int64_t side) {
    return static_cast<double>(place(static_cast<int64_t>(distortion * static_cast<double>(side / 2)), random));
  };
  const double right = static_cast<double>(width - 1), bottom = static_cast<double>(height - 1);
  std::array<ImagePoint, 4> corners = image_corners(height, width);
  for (ImagePoint& corner : corners) {
    const double x = inset(width), y = inset(height);
    corner = {corner.x == 0 ? x : right - x, corner.y == 0 ? y : bottom - y};
  }
  return corners;
}

Image RandomPerspective::operator()(Image image, RandomStream& random) const {
  if (random.uniform() >= probability || image.height < 2 || image.width < 2) return image;
  const std::array<ImagePoint, 4> corners = choose(image.height, image.width, random);
  return perspective(image, perspective_between(image_corners(image.height, image.width), corners), warp);
}

Image RandomBlur::operator()(const Image& image, RandomStream& random) const {
  return gaussian_blur(image, size, random.uniform(smallest, largest));
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
