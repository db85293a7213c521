#pragma once
// The contract of the image kernels: cases, random plans and batches, and a simple reference.

#include <array>
#include <set>

#include "tern/kernels/image.h"
#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels {

struct ImageCase {
  int64_t n, image_height, image_width, height, width;
};
inline const std::vector<ImageCase> kImageCases = {
    {0, 4, 4, 4, 4},  {1, 1, 1, 1, 1},   {5, 8, 8, 8, 8},    {3, 8, 8, 12, 8},    {3, 8, 8, 12, 20}, {3, 7, 5, 9, 11},
    {2, 9, 5, 7, 11}, {2, 33, 21, 6, 3}, {2, 3, 70, 5, 129}, {2, 40, 36, 36, 40}, {2, 40, 36, 11, 7}};
inline std::string describe(const ImageCase& size) {
  return (testing::Message() << size.n << " of " << size.image_height << "x" << size.image_width << " to "
                             << size.height << "x" << size.width)
      .GetString();
}

inline Array random_images(std::mt19937_64& random, int64_t n, int64_t height, int64_t width) {
  Array images(uint8, {n, height, width, 3});
  for (int64_t i = 0; i < images.numel(); ++i) images.set(i, static_cast<double>(random() % 256));
  return images;
}

struct PlanKinds {
  bool colors = false, contrast = false, mixing = false;
};

inline int32_t in_range(std::mt19937_64& random, int64_t low, int64_t high) {
  return static_cast<int32_t>(low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1)));
}

inline ImageBox random_box(std::mt19937_64& random, int64_t height, int64_t width) {
  const int32_t top = in_range(random, 0, height), left = in_range(random, 0, width);
  return {top, left, in_range(random, top, height), in_range(random, left, width)};
}

inline std::vector<ImageAugment> random_plans(std::mt19937_64& random, int64_t n, int64_t image_height,
                                              int64_t image_width, int64_t height, int64_t width,
                                              const PlanKinds& kinds) {
  std::vector<ImageAugment> plans(static_cast<size_t>(n));
  constexpr int32_t kOne = 1 << kColorBits;
  for (ImageAugment& plan : plans) {
    plan.top = in_range(random, -height - 1, image_height + 1);
    plan.left = in_range(random, -width - 1, image_width + 1);
    if (random() % 2 == 0) {  // most of the image is visible
      plan.top = in_range(random, -2, 2);
      plan.left = in_range(random, -2, 2);
    }
    plan.mirrored = static_cast<int32_t>(random() % 2);
    const auto has_reflection = [](int64_t begin, int64_t count, int64_t size) {
      return begin > -size && begin + count < 2 * size;
    };
    if (random() % 2 == 0 && has_reflection(plan.top, height, image_height) &&
        has_reflection(plan.left, width, image_width))
      plan.border = ImageBorder::kReflect;
    if (kinds.colors) {
      std::array<ColorStep, 3> steps = {{{ColorOp::kBrightness, in_range(random, 0, 2 * kOne)},
                                         {ColorOp::kSaturation, in_range(random, 0, 3 * kOne)},
                                         {ColorOp::kHue, in_range(random, 0, 6 * kOne - 1)}}};
      std::shuffle(steps.begin(), steps.end(), random);
      std::copy(steps.begin(), steps.end(), plan.colors + random() % 2);
    }
    if (kinds.contrast && random() % 3 != 0) {
      ColorStep& step = plan.colors[random() % kColorSteps];
      step = {ColorOp::kContrast, in_range(random, 0, 2 * kOne)};
    }
    if (random() % 2 == 0) plan.erased = random_box(random, height, width);
    plan.partner = in_range(random, 0, n - 1);
    if (kinds.mixing && random() % 4 != 0) {
      plan.weight = random() % 2 == 0 ? 1 : static_cast<float>(random() % 1000) / 1000;
      plan.pasted = random() % 2 == 0 ? ImageBox{} : random_box(random, height, width);
    }
  }
  return plans;
}

inline ImageNormalization test_normalization() {
  return {{0.4914f, 0.48216f, 0.44653f}, {0.24703f, 0.24349f, 0.26159f}, {7, 0, 200}, {0, -0.5f, 2}};
}

/// Pixels of an augmented image, computed step by step over the whole image in real numbers. The kernels' integers have
/// a limited number of fraction bits: where a step's result is closer to an integer than their error, both neighbours
/// are accepted, and so are the results of the next steps from either.
class PlainImage {
 public:
  using Pixel = std::array<int, 3>;
  PlainImage(const Array& images, const ImageAugment& plan, int64_t image, const ImageNormalization& normalization,
             int64_t height, int64_t width)
      : width_(width), pixels_(static_cast<size_t>(height * width)) {
    const int64_t from_height = images.shape()[1], from_width = images.shape()[2];
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x) {
        int64_t row = y + plan.top, column = x + plan.left;
        const int64_t to = plan.mirrored ? width - 1 - x : x;
        if (plan.border == ImageBorder::kReflect) {
          row = from_height - 1 - std::abs(from_height - 1 - std::abs(row));
          column = from_width - 1 - std::abs(from_width - 1 - std::abs(column));
        }
        const bool inside = row >= 0 && row < from_height && column >= 0 && column < from_width;
        Pixel pixel;
        for (int c = 0; c < 3; ++c) {
          const int64_t from = ((image * from_height + row) * from_width + column) * 3 + c;
          pixel[static_cast<size_t>(c)] = inside ? static_cast<int>(images.at(from)) : normalization.fill[c];
        }
        pixels_[static_cast<size_t>(y * width + to)] = {pixel};
      }
    for (const ColorStep& step : plan.colors) change(step);
  }

  /// The accepted values of a pixel's channel: usually one.
  std::vector<int> at(int64_t y, int64_t x, int64_t c) const {
    std::set<int> values;
    for (const Pixel& pixel : pixels_[static_cast<size_t>(y * width_ + x)])
      values.insert(pixel[static_cast<size_t>(c)]);
    return {values.begin(), values.end()};
  }

 private:
  /// The possible bytes from floor() of a number with an error of at most `error`.
  struct Range {
    int low, high;
    Range(double from, double to, double error)
        : low(static_cast<int>(std::floor(std::clamp(from - error, 0.0, 255.0)))),
          high(static_cast<int>(std::floor(std::clamp(to + error, 0.0, 255.0)))) {}
  };

  /// The weights of the colours have 22 fraction bits.
  static Range grey(const Pixel& p) {
    const double x = 0.2989 * p[0] + 0.587 * p[1] + 0.114 * p[2];
    return Range(x, x, 3 * 255 * 0x1p-23);
  }

  void change(const ColorStep& step) {
    if (step.op == ColorOp::kNone) return;
    const double factor = step.amount / 65536.0;  // exact, as are its products with bytes
    double smaller = 0, larger = 0;
    for (const std::vector<Pixel>& pixel : pixels_) {
      int low = 255, high = 0;
      for (const Pixel& p : pixel) {
        low = std::min(low, grey(p).low);
        high = std::max(high, grey(p).high);
      }
      smaller += low / static_cast<double>(pixels_.size());
      larger += high / static_cast<double>(pixels_.size());
    }
    for (std::vector<Pixel>& pixel : pixels_) {
      std::set<Pixel> next;
      for (const Pixel& p : pixel) {
        switch (step.op) {
          case ColorOp::kHue:
            add_all(turned(p, factor), next);
            break;
          case ColorOp::kSaturation:
            for (int other = grey(p).low; other <= grey(p).high; ++other)
              add_all(blended(p, factor, other, other, 0), next);
            break;
          case ColorOp::kContrast:  // (1 - factor) * mean has 16 fraction bits
            add_all(blended(p, factor, smaller, larger, 0x1p-17 + 1e-9), next);
            break;
          default:
            add_all(blended(p, factor, 0, 0, 0), next);
        }
      }
      pixel.assign(next.begin(), next.end());
    }
  }

  static std::array<Range, 3> blended(const Pixel& p, double factor, double smaller, double larger, double error) {
    const auto channel = [&](int value) {
      const double a = factor * value + (1 - factor) * smaller, b = factor * value + (1 - factor) * larger;
      return Range(std::min(a, b), std::max(a, b), error);
    };
    return {channel(p[0]), channel(p[1]), channel(p[2])};
  }

  /// Rotates the hue in HSV with fractions of 1; `turn` in sixths of the circle.
  static std::array<Range, 3> turned(const Pixel& p, double turn) {
    const double high = std::max({p[0], p[1], p[2]}), low = std::min({p[0], p[1], p[2]}), range = high - low;
    if (range == 0) return {Range(p[0], p[0], 0), Range(p[1], p[1], 0), Range(p[2], p[2], 0)};
    double hue = high == p[0]   ? (p[1] - p[2]) / range
                 : high == p[1] ? 2 + (p[2] - p[0]) / range
                                : 4 + (p[0] - p[1]) / range;
    hue = std::fmod(hue + turn + 12, 6.0);
    const auto channel = [&](int c) {
      // Distance of the hue from the channel's hue: full intensity within 1, none beyond 2.
      double distance = std::fabs(hue - 2 * c);
      distance = std::min(distance, 6 - distance);
      const double value = (low + range * std::clamp(2 - distance, 0.0, 1.0)) / 255 * 255.999;
      // The hue has 16 fraction bits; so has the 2^-8 part of the kernels' approximation 1 + 2^-8 of 255.999 / 255.
      return Range(value, value, 2 * range * 0x1p-16 + value * (255.999 / 255 - 1 - 0x1p-8) + 2 * 0x1p-16);
    };
    return {channel(0), channel(1), channel(2)};
  }

  static void add_all(const std::array<Range, 3>& ranges, std::set<Pixel>& to) {
    for (int r = ranges[0].low; r <= ranges[0].high; ++r)
      for (int g = ranges[1].low; g <= ranges[1].high; ++g)
        for (int b = ranges[2].low; b <= ranges[2].high; ++b) to.insert(Pixel{r, g, b});
  }

  int64_t width_;
  std::vector<std::vector<Pixel>> pixels_;
};

/// The accepted results of augment_images, [n, 3, height, width]: usually one value each.
inline std::vector<std::vector<double>> plain_augmentation(const Array& images, const std::vector<ImageAugment>& plans,
                                                           const ImageNormalization& normalization, int64_t height,
                                                           int64_t width) {
  std::vector<PlainImage> plain;
  const int64_t n = static_cast<int64_t>(plans.size());
  for (int64_t i = 0; i < n; ++i) plain.emplace_back(images, plans[i], i, normalization, height, width);
  const auto values = [&](int64_t i, int64_t c, int64_t y, int64_t x) {
    const ImageBox& box = plans[i].erased;
    const bool erased = y >= box.top && y < box.bottom && x >= box.left && x < box.right;
    if (erased) return std::vector<double>{normalization.erased[c]};
    std::vector<double> all;
    for (const int byte : plain[i].at(y, x, c))
      all.push_back((byte / 255.0 - normalization.mean[c]) / normalization.std[c]);
    return all;
  };
  std::vector<std::vector<double>> result;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t c = 0; c < 3; ++c)
      for (int64_t y = 0; y < height; ++y)
        for (int64_t x = 0; x < width; ++x) {
          const ImageAugment& plan = plans[i];
          const ImageBox& box = plan.pasted;
          const bool pasted = y >= box.top && y < box.bottom && x >= box.left && x < box.right;
          std::vector<double>& all = result.emplace_back();
          for (const double other : values(plan.partner, c, y, x)) {
            if (pasted) all.push_back(other);
            for (const double own : pasted ? std::vector<double>{} : values(i, c, y, x))
              all.push_back(plan.weight * own + (1 - plan.weight) * other);
          }
        }
  return result;
}

/// Random weights for resizing a dimension; the weights of an output sum to about 1, single ones may be negative.
struct RandomAxis {
  std::vector<int32_t> first, weights;
  int32_t taps = 0;
  ResizeAxis axis(Call& on) {
    return {on.memory(first.data(), static_cast<int64_t>(first.size())),
            on.memory(weights.data(), static_cast<int64_t>(weights.size())), taps};
  }
};
inline RandomAxis random_axis(std::mt19937_64& random, int64_t from, int64_t to) {
  RandomAxis axis;
  axis.taps = in_range(random, 1, std::min<int64_t>(from, 7));
  for (int64_t i = 0; i < to; ++i) {
    axis.first.push_back(in_range(random, 0, from - axis.taps));
    int32_t rest = 1 << kResizeBits;
    for (int32_t k = 0; k + 1 < axis.taps; ++k) {
      axis.weights.push_back(in_range(random, -(1 << (kResizeBits - 4)), 1 << (kResizeBits - 3)));
      rest -= axis.weights.back();
    }
    axis.weights.push_back(rest);
  }
  std::sort(axis.first.begin(), axis.first.end());  // as in every real resize
  return axis;
}

/// The expected result of resize_images.
inline std::vector<double> plain_resize(const Array& images, const RandomAxis& rows, const RandomAxis& columns) {
  const int64_t n = images.shape()[0], from_height = images.shape()[1], from_width = images.shape()[2];
  const int64_t height = static_cast<int64_t>(rows.first.size()), width = static_cast<int64_t>(columns.first.size());
  const auto byte = [](int64_t sum) {
    return std::clamp(std::floor(static_cast<double>(sum) / (1 << kResizeBits) + 0.5), 0.0, 255.0);
  };
  std::vector<double> result;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x)
        for (int64_t c = 0; c < 3; ++c) {
          int64_t down = 0;
          for (int32_t r = 0; r < rows.taps; ++r) {
            int64_t across = 0;
            for (int32_t k = 0; k < columns.taps; ++k) {
              const int64_t row = rows.first[y] + r, column = columns.first[x] + k;
              const int64_t weight = columns.weights[x * columns.taps + k];
              across +=
                  weight * static_cast<int64_t>(images.at(((i * from_height + row) * from_width + column) * 3 + c));
            }
            down += rows.weights[y * rows.taps + r] * static_cast<int64_t>(byte(across));
          }
          result.push_back(byte(down));
        }
  return result;
}

}  // namespace tern::kernels
