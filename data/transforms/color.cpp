#include "tern/data/transforms/color.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

using kernels::ColorOp;
using kernels::ColorStep;
using kernels::Rgb;

void check_channels(const Image& image) {
  TERN_CHECK(image.channels == 3, "colours: expected an image of 3 channels, got ", image.channels);
}

Rgb read(const uint8_t* pixel) { return {{pixel[0], pixel[1], pixel[2]}}; }

int64_t sum_of_grey(const Image& image) {
  int64_t sum = 0;
  for (size_t i = 0; i < image.pixels.size(); i += 3) sum += kernels::grey_of(read(&image.pixels[i]));
  return sum;
}

/// Maps the values of each channel by its table.
Image look_up(Image image, const std::array<std::array<uint8_t, 256>, 3>& tables) {
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = tables[i % 3][image.pixels[i]];
  return image;
}

std::vector<double> gaussian_weights(int64_t size, double sigma) {
  std::vector<double> weights;
  double total = 0;
  for (int64_t k = 0; k < size; ++k) {
    const double x = static_cast<double>(k - size / 2) / sigma;
    weights.push_back(std::exp(-0.5 * x * x));
    total += weights.back();
  }
  for (double& weight : weights) weight /= total;
  return weights;
}

/// The pixel in place of one that may be outside: the image is mirrored at its border pixels.
int64_t mirrored(int64_t place, int64_t size) {
  return place < 0 ? -place : place >= size ? 2 * size - 2 - place : place;
}

}  // namespace

ColorStep color_step(ColorOp op, double amount) {
  constexpr double kOne = 1 << kernels::kColorBits;
  if (op == ColorOp::kHue) {
    TERN_CHECK(amount >= -0.5 && amount <= 0.5, "hue: expected -0.5 to 0.5 of a circle, got ", amount);
    constexpr int32_t kCircle = 6 << kernels::kColorBits;
    const auto turn = static_cast<int32_t>(std::lround(amount * 6 * kOne));
    return {op, turn < 0 ? turn + kCircle : turn};
  }
  TERN_CHECK(amount >= 0 && amount <= kernels::kMaxColorFactor, "colours: a factor must be 0 to ",
             kernels::kMaxColorFactor, ", got ", amount);
  return {op, static_cast<int32_t>(std::lround(amount * kOne))};
}

Image change_color(Image image, const ColorStep& step) {
  check_channels(image);
  if (image.pixels.empty() || step.op == ColorOp::kNone) return image;
  int32_t offset = 0;
  if (step.op == ColorOp::kContrast)
    offset = kernels::contrast_offset(step.amount, sum_of_grey(image), image.height * image.width);
  for (size_t i = 0; i < image.pixels.size(); i += 3) {
    const Rgb pixel = kernels::change_color(read(&image.pixels[i]), step, offset);
    for (size_t c = 0; c < 3; ++c) image.pixels[i + c] = static_cast<uint8_t>(pixel.channel[c]);
  }
  return image;
}

Image adjust_sharpness(const Image& image, double factor) {
  check_channels(image);
  const int32_t rest = (1 << kernels::kColorBits) - color_step(ColorOp::kBrightness, factor).amount;
  Image result = image;
  if (image.height <= 2 || image.width <= 2) return result;
  for (int64_t y = 1; y + 1 < image.height; ++y) {
    const uint8_t *above = image.row(y - 1), *here = image.row(y), *below = image.row(y + 1);
    for (int64_t i = 3; i + 3 < image.row_bytes(); ++i) {
      int32_t sum = 4 * here[i];  // weights: 1 around, 5 in the centre
      for (const int64_t place : {i - 3, i, i + 3}) sum += above[place] + here[place] + below[place];
      const int32_t blurred = (2 * sum + 13) / 26;
      const int32_t value = here[i] * (1 << kernels::kColorBits) + rest * (blurred - here[i]);
      result.row(y)[i] = static_cast<uint8_t>(kernels::clamp_byte(value >> kernels::kColorBits));
    }
  }
  return result;
}

Image posterize(Image image, int bits) {
  TERN_CHECK(bits >= 0 && bits <= 8, "posterize: expected 0 to 8 bits, got ", bits);
  const auto mask = static_cast<uint8_t>(0xff00 >> bits);
  for (uint8_t& value : image.pixels) value &= mask;
  return image;
}

Image solarize(Image image, double threshold) {
  for (uint8_t& value : image.pixels) value = value >= threshold ? static_cast<uint8_t>(255 - value) : value;
  return image;
}

Image invert(Image image) {
  for (uint8_t& value : image.pixels) value = static_cast<uint8_t>(255 - value);
  return image;
}

Image autocontrast(Image image) {
  check_channels(image);
  int32_t low[3] = {255, 255, 255}, high[3] = {0, 0, 0};
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    low[i % 3] = std::min<int32_t>(low[i % 3], image.pixels[i]);
    high[i % 3] = std::max<int32_t>(high[i % 3], image.pixels[i]);
  }
  std::array<std::array<uint8_t, 256>, 3> tables{};
  for (size_t c = 0; c < 3; ++c) {
    for (int32_t value = 0; value < 256; ++value) {
      const int32_t range = high[c] - low[c];
      const int32_t stretched = range > 0 ? (std::clamp(value, low[c], high[c]) - low[c]) * 255 / range : value;
      tables[c][static_cast<size_t>(value)] = static_cast<uint8_t>(stretched);
    }
  }
  return look_up(std::move(image), tables);
}

Image equalize(Image image) {
  check_channels(image);
  std::array<std::array<int64_t, 256>, 3> counts{};
  for (size_t i = 0; i < image.pixels.size(); ++i) ++counts[i % 3][image.pixels[i]];
  std::array<std::array<uint8_t, 256>, 3> tables{};
  const int64_t pixels = image.height * image.width;
  for (size_t c = 0; c < 3; ++c) {
    size_t largest = 255;
    while (largest > 0 && counts[c][largest] == 0) --largest;
    const int64_t step = (pixels - counts[c][largest]) / 255;
    int64_t below = 0;
    for (size_t value = 0; value < 256; ++value) {
      tables[c][value] = static_cast<uint8_t>(step == 0 ? static_cast<int64_t>(value)
                                                        : std::min<int64_t>((below + step / 2) / step, 255));
      below += counts[c][value];
    }
  }
  return look_up(std::move(image), tables);
}

Image gaussian_blur(const Image& image, int64_t size, double sigma) {
  TERN_CHECK(size > 0 && size % 2 == 1, "gaussian_blur: the size must be odd and positive, got ", size);
  TERN_CHECK(sigma >= 0 && std::isfinite(sigma), "gaussian_blur: sigma must be positive, or 0 for the rule, got ",
             sigma);
  TERN_CHECK(image.pixels.empty() || (size / 2 < image.height && size / 2 < image.width), "gaussian_blur: a kernel of ",
             size, " pixels needs sides of more than ", size / 2, " pixels, the image is ", image.width, " x ",
             image.height);
  if (image.pixels.empty()) return image;
  const std::vector<double> weights =
      gaussian_weights(size, sigma > 0 ? sigma : 0.15 * static_cast<double>(size) + 0.35);
  const int64_t half = size / 2, channels = image.channels;
  std::vector<double> narrow(image.pixels.size());  // blurred along the rows
  for (int64_t y = 0; y < image.height; ++y)
    for (int64_t x = 0; x < image.width; ++x)
      for (int64_t k = 0; k < size; ++k)
        for (int64_t c = 0; c < channels; ++c)
          narrow[static_cast<size_t>((y * image.width + x) * channels + c)] +=
              weights[static_cast<size_t>(k)] * image.row(y)[mirrored(x + k - half, image.width) * channels + c];
  Image result(image.height, image.width, channels);
  std::vector<double> sums(static_cast<size_t>(image.row_bytes()));
  for (int64_t y = 0; y < image.height; ++y) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int64_t k = 0; k < size; ++k) {
      const double* from = narrow.data() + mirrored(y + k - half, image.height) * image.row_bytes();
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += weights[static_cast<size_t>(k)] * from[i];
    }
    for (size_t i = 0; i < sums.size(); ++i) result.row(y)[i] = static_cast<uint8_t>(std::lrint(sums[i]));
  }
  return result;
}

}  // namespace tern::data
