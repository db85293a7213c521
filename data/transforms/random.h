#pragma once
// Random transforms of single images, drawn as torchvision's v2 does. A draw depends only on (seed, epoch, row) of the
// image, not on the worker or the batch. Every transform has choose(), the draw, separate from its application.

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "tern/data/images/image.h"
#include "tern/data/loader_images.h"
#include "tern/data/samplers/shuffle.h"
#include "tern/data/transforms/geometry.h"
#include "tern/data/transforms/resize.h"
#include "tern/kernels/image.h"

namespace tern::data {

/// One step of a pipeline; it may draw any number of values from the stream.
using ImageStep = std::function<Image(Image image, RandomStream& random)>;

/// Applies the steps in order; for ImageLoaderOptions::transform.
ImageTransform compose(std::vector<ImageStep> steps);
/// The random numbers of an image.
RandomStream image_random(const ItemKey& key);

/// Pads all sides with black, then crops at a random place. Throws Error if the image is too small.
struct RandomCrop {
  int64_t height = 0, width = 0;
  int64_t padding = 0;

  struct Place {
    int64_t top = 0, left = 0;  // in the image without padding; may be negative
  };
  Place choose(int64_t image_height, int64_t image_width, RandomStream& random) const;
  Image operator()(const Image& image, RandomStream& random) const;
};

/// A crop of random area and aspect ratio, resized (Inception's crop).
struct RandomResizedCrop {
  int64_t height = 0, width = 0;
  double smallest = 0.08, largest = 1;               // share of the area
  double narrowest = 3.0 / 4.0, widest = 4.0 / 3.0;  // width / height
  ResizeOptions resampling = {};

  kernels::ImageBox choose(int64_t image_height, int64_t image_width, RandomStream& random) const;
  Image operator()(const Image& image, RandomStream& random) const;
};

struct RandomFlip {
  double probability = 0.5;

  bool choose(RandomStream& random) const { return random.uniform() < probability; }
  Image operator()(Image image, RandomStream& random) const;
};

/// Factors from [max(0, 1 - x), 1 + x], the hue shift from [-hue, hue], in random order. 0 omits an operation.
struct ColorJitter {
  double brightness = 0, contrast = 0, saturation = 0, hue = 0;

  using Steps = std::array<kernels::ColorStep, kernels::kColorSteps>;
  Steps choose(RandomStream& random) const;
  Image operator()(Image image, RandomStream& random) const;
};

/// The operations of RandAugment (Cubuk et al., arXiv:1909.13719), in torchvision's order.
enum class AugmentOp : uint8_t {
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize
};
inline constexpr int kAugmentOps = 14;
/// Magnitude of `bin` (0 .. bins - 1) for an image of this size, as in torchvision's table.
double augment_magnitude(AugmentOp op, int bin, int bins, int64_t height, int64_t width);
bool has_sign(AugmentOp op);
Image apply_augment(const Image& image, AugmentOp op, double magnitude);

struct RandAugment {
  int operations = 2;
  int magnitude = 9, bins = 31;

  struct Choice {
    AugmentOp op = AugmentOp::kIdentity;
    double magnitude = 0;
  };
  Choice choose(int64_t height, int64_t width, RandomStream& random) const;
  Image operator()(Image image, RandomStream& random) const;
};

/// A box of random area and aspect ratio that is erased after normalisation (Zhong et al., arXiv:1708.04896).
struct RandomErasing {
  double probability = 0.5;
  double smallest = 0.02, largest = 0.33;
  double narrowest = 0.3, widest = 3.3;  // height / width

  /// The box is empty if nothing is erased.
  kernels::ImageBox choose(int64_t height, int64_t width, RandomStream& random) const;
};

/// Beta(alpha, alpha), for the weights of MixUp and CutMix.
double draw_beta(double alpha, RandomStream& random);

/// CutMix's box for a weight: 1 - weight of the area around a random centre, clipped at the borders (Yun et al.,
/// arXiv:1905.04899).
kernels::ImageBox choose_cutmix_box(double weight, int64_t height, int64_t width, RandomStream& random);

}  // namespace tern::data
