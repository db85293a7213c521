#pragma once
// Random transforms of single images, drawn as torchvision's v2 does. A draw depends only on (seed, epoch, row) of the
// image, not on the worker or the batch. Every transform has choose(), the draw, separate from its application.

#include <array>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "tern/data/images/image.h"
#include "tern/data/loaders/image_loader.h"
#include "tern/data/plan/shuffle.h"
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

  /// In the image without padding; may be negative.
  CropPlace choose(int64_t image_height, int64_t image_width, RandomStream& random) const;
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
  /// In batches: an image is mirrored in every second epoch, from its first or its second one on by chance, so that two
  /// epochs show both sides of every image (Jordan, arXiv:2404.00498, section 3.5), unless `probability` is 0.
  bool alternating = false;

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

/// A step with a probability. With the functions of color.h and geometry.h it is torchvision's RandomGrayscale,
/// RandomInvert, RandomPosterize, RandomSolarize, RandomAutocontrast, RandomEqualize, RandomAdjustSharpness or
/// RandomVerticalFlip: RandomApply{plain_step(grayscale), 0.1}.
struct RandomApply {
  ImageStep step;
  double probability = 0.5;

  Image operator()(Image image, RandomStream& random) const;
};
/// A step that draws nothing: any function from an image to an image.
template <class Change>
ImageStep plain_step(Change change) {
  return [change](Image image, RandomStream&) { return change(std::move(image)); };
}

/// rotate() by degrees from smallest to largest.
struct RandomRotation {
  double smallest = 0, largest = 0;
  WarpOptions warp = {};
  bool expand = false;

  Image operator()(const Image& image, RandomStream& random) const;
};

/// affine() by an angle and shears from -x to x degrees, a scale, and shifts of up to a share of the sides.
struct RandomAffine {
  double degrees = 0;
  double translate_x = 0, translate_y = 0;  // shares of width and height
  double smallest = 1, largest = 1;         // scale
  double shear_x = 0, shear_y = 0;
  WarpOptions warp = {};

  AffineOptions choose(int64_t height, int64_t width, RandomStream& random) const;
  Image operator()(const Image& image, RandomStream& random) const;
};

/// Moves each corner inwards by up to `distortion` of half the sides. An image with a side of one pixel is unchanged.
struct RandomPerspective {
  double distortion = 0.5;
  double probability = 0.5;
  WarpOptions warp = {.sampling = Sampling::kBilinear};

  /// Where the corners are moved to, clockwise from the upper left one.
  std::array<ImagePoint, 4> choose(int64_t height, int64_t width, RandomStream& random) const;
  Image operator()(Image image, RandomStream& random) const;
};

/// gaussian_blur() with sigma from smallest to largest.
struct RandomBlur {
  int64_t size = 3;
  double smallest = 0.1, largest = 2;

  Image operator()(const Image& image, RandomStream& random) const;
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
