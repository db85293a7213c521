#pragma once
// Augmentation policies, as torchvision's v2 applies them: nearest pixels, black outside the image.

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "tern/data/images/image.h"
#include "tern/data/plan/shuffle.h"

namespace tern::data {

/// The operations of the policies.
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
  kEqualize,
  kInvert
};
inline constexpr int kAugmentOps = 15;
/// What RandAugment and TrivialAugmentWide draw from: all but kInvert.
inline constexpr int kRandomAugmentOps = 14;
/// Magnitude of `bin` (0 .. bins - 1) for an image of this size, as in torchvision's table of RandAugment and
/// AutoAugment. 0 for an operation without one.
double augment_magnitude(AugmentOp op, int bin, int bins, int64_t height, int64_t width);
/// The same, of TrivialAugmentWide's table.
double wide_augment_magnitude(AugmentOp op, int bin, int bins);
bool has_sign(AugmentOp op);
Image apply_augment(const Image& image, AugmentOp op, double magnitude);

struct AugmentChoice {
  AugmentOp op = AugmentOp::kIdentity;
  double magnitude = 0;
};

/// Operations drawn with equal probability, all of one magnitude (Cubuk et al., arXiv:1909.13719).
struct RandAugment {
  int operations = 2;
  int magnitude = 9, bins = 31;

  AugmentChoice choose(int64_t height, int64_t width, RandomStream& random) const;
  Image operator()(Image image, RandomStream& random) const;
};

/// One operation of random magnitude (Mueller and Hutter, arXiv:2103.10158).
struct TrivialAugmentWide {
  int bins = 31;

  AugmentChoice choose(RandomStream& random) const;
  Image operator()(const Image& image, RandomStream& random) const;
};

/// One of two operations of a sub-policy: with this probability, with the magnitude of `bin` of 10.
struct PolicyStep {
  AugmentOp op = AugmentOp::kIdentity;
  double probability = 0;
  int bin = 0;
};
struct SubPolicy {
  PolicyStep steps[2];
};
enum class AugmentPolicy : uint8_t { kImageNet, kCifar10, kSvhn };
inline constexpr std::pair<const char*, AugmentPolicy> kNamedPolicies[] = {
    {"cifar10", AugmentPolicy::kCifar10}, {"imagenet", AugmentPolicy::kImageNet}, {"svhn", AugmentPolicy::kSvhn}};
/// The 25 sub-policies that were found for a data set (Cubuk et al., arXiv:1805.09501, tables 7 to 9).
std::span<const SubPolicy> sub_policies(AugmentPolicy policy);

/// One sub-policy, drawn with equal probability.
struct AutoAugment {
  AugmentPolicy policy = AugmentPolicy::kImageNet;

  Image operator()(Image image, RandomStream& random) const;
};

}  // namespace tern::data
