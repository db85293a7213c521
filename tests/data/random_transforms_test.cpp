// The random draws of transforms: what they depend on, their ranges and frequencies.

#include <cmath>
#include <map>
#include <set>

#include "tern/data/transforms/auto_augment.h"
#include "tern/data/transforms/color.h"
#include "tern/data/transforms/geometry.h"
#include "tern/data/transforms/random.h"
#include "tern/tests/data/support.h"
#include "tern/tests/data/transforms_golden.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

using kernels::ColorOp;
using kernels::ImageBox;

// Bounds on counts and means are 7 standard deviations, which are exceeded with probability 1e-11.

RandomStream stream_of(int32_t row) { return image_random({fresh_seed(), 3, row}); }
double deviations(double variance, int draws) { return 7 * std::sqrt(variance / draws); }

TEST(Draws, DependOnSeedEpochAndRowAlone) {
  const ImageTransform transform =
      compose({RandomCrop{13, 17, 3}, RandomFlip{}, RandAugment{}, ColorJitter{.4, .4, .4, .1}});
  const Image image = golden_image("waves");
  const uint64_t seed = fresh_seed();
  const Image first = transform(image, {seed, 2, 3});
  EXPECT_EQ(transform(image, {seed, 2, 3}).pixels, first.pixels);
  const auto bytes = [](const Image& made) { return std::string(made.pixels.begin(), made.pixels.end()); };
  std::set<std::string> seen = {bytes(first)};
  for (const ItemKey key : {ItemKey{seed + 1, 2, 3}, {seed, 3, 3}, {seed, 2, 4}, {seed, 0, 3}})
    seen.insert(bytes(transform(image, key)));
  EXPECT_EQ(seen.size(), 5u);
}

TEST(Draws, CropsCoverEveryPlace) {
  std::set<std::pair<int64_t, int64_t>> places;
  for (int32_t row = 0; row < 2000; ++row) {
    RandomStream random = stream_of(row);
    const CropPlace place = RandomCrop{4, 5, 1}.choose(6, 6, random);
    places.insert({place.top, place.left});
  }
  EXPECT_EQ(places.size(), 20u);  // tops -1 .. 3, lefts -1 .. 2
  EXPECT_EQ(places.begin()->first, -1);
  EXPECT_EQ(places.rbegin()->first, 3);
  EXPECT_EQ(places.rbegin()->second, 2);
  RandomStream random = stream_of(0);
  const RandomCrop large{9, 9, 1};
  EXPECT_TRUE(fails([&] { large.choose(6, 8, random); }, {"9 x 9", "8 x 6", "1 of padding"}));
  const Image image = golden_image("waves");
  const Image padded = crop(image, -2, -3, 4, 5, 9);
  EXPECT_EQ(padded.row(1)[14], 9);
  EXPECT_EQ(padded.row(2)[9], image.row(0)[0]);
  EXPECT_EQ(crop(image, 50, 0, 1, 1).pixels, std::vector<uint8_t>(3, 0));
}

TEST(Draws, ResizedCropsHaveTheAreaAndTheShape) {
  double area = 0;
  constexpr int kDraws = 20000;
  for (int32_t row = 0; row < kDraws; ++row) {
    RandomStream random = stream_of(row);
    const ImageBox box = RandomResizedCrop{8, 8}.choose(300, 400, random);
    const double height = box.bottom - box.top, width = box.right - box.left;
    ASSERT_TRUE(box.top >= 0 && box.left >= 0 && box.bottom <= 300 && box.right <= 400 && height > 0 && width > 0);
    ASSERT_TRUE(width / height > 0.73 && width / height < 1.36) << width << "x" << height;
    area += height * width / 120000;
  }
  // torchvision's mean is 0.4351: large crops often do not fit. Area shares from 0.08 to 1 have a smaller variance than
  // uniform numbers.
  EXPECT_NEAR(area / kDraws, 0.4351, deviations(0.92 * 0.92 / 12, kDraws) + 5e-4);
  RandomStream random = stream_of(1);
  const ImageBox strip = RandomResizedCrop{8, 8}.choose(10, 900, random);
  EXPECT_EQ(strip.bottom - strip.top, 10);
  EXPECT_EQ(strip.right - strip.left, 13);
  EXPECT_EQ(strip.left, 443);
  const Image result = RandomResizedCrop{5, 6}(golden_image("waves"), random);
  EXPECT_EQ(result.height, 5);
  EXPECT_EQ(result.width, 6);
}

TEST(Draws, FlipsJitterAndErasing) {
  int flips = 0, erased = 0;
  std::set<std::vector<int>> orders;
  double sums[5] = {}, extremes[2] = {9, 0};
  constexpr int kDraws = 6000;
  for (int32_t row = 0; row < kDraws; ++row) {
    RandomStream random = stream_of(row);
    flips += RandomFlip{0.3}.choose(random);
    std::vector<int> order;
    for (const kernels::ColorStep& step : ColorJitter{.4, .2, .3, .1}.choose(random)) {
      order.push_back(static_cast<int>(step.op));
      if (step.op == ColorOp::kHue) {
        const int32_t circle = 6 << kernels::kColorBits;
        ASSERT_TRUE(step.amount <= circle * 0.1 + 1 || step.amount >= circle * 0.9 - 1);
        sums[order.back()] += step.amount <= circle / 2 ? step.amount : step.amount - circle;
      } else {
        sums[order.back()] += step.amount / 65536.0;
      }
      if (step.op == ColorOp::kBrightness) extremes[0] = std::min(extremes[0], step.amount / 65536.0);
      if (step.op == ColorOp::kBrightness) extremes[1] = std::max(extremes[1], step.amount / 65536.0);
    }
    orders.insert(order);
    const ImageBox box = RandomErasing{.probability = 0.25}.choose(40, 30, random);
    erased += box.bottom > box.top;
    const double share = (box.bottom - box.top) * (box.right - box.left) / 1200.0;
    ASSERT_TRUE(box.top >= 0 && box.bottom <= 40 && box.left >= 0 && box.right <= 30 && share < 0.36);
    ASSERT_TRUE(box.bottom == box.top || share > 0.01);
  }
  EXPECT_NEAR(flips / double{kDraws}, 0.3, deviations(0.3 * 0.7, kDraws));
  EXPECT_NEAR(erased / double{kDraws}, 0.25, deviations(0.25 * 0.75, kDraws));
  EXPECT_EQ(orders.size(), 24u);
  for (const ColorOp op : {ColorOp::kBrightness, ColorOp::kContrast, ColorOp::kSaturation})
    EXPECT_NEAR(sums[static_cast<int>(op)] / kDraws, 1, deviations(0.8 * 0.8 / 12, kDraws));
  const double turn = sums[static_cast<int>(ColorOp::kHue)] / kDraws / (6 << kernels::kColorBits);
  EXPECT_NEAR(turn, 0, deviations(0.2 * 0.2 / 12, kDraws));
  EXPECT_NEAR(extremes[0], 0.6, 0.01);
  EXPECT_NEAR(extremes[1], 1.4, 0.01);
  RandomStream random = stream_of(0);
  for (const kernels::ColorStep& step : ColorJitter{}.choose(random)) EXPECT_EQ(step.op, ColorOp::kNone);
}

TEST(Draws, RandAugmentUsesEveryOperation) {
  std::map<AugmentOp, std::pair<int, int>> counts;  // positive, negative
  constexpr int kDraws = 7000;
  for (int32_t row = 0; row < kDraws; ++row) {
    RandomStream random = stream_of(row);
    const AugmentChoice choice = RandAugment{}.choose(32, 32, random);
    ++(choice.magnitude < 0 ? counts[choice.op].second : counts[choice.op].first);
  }
  EXPECT_EQ(counts.size(), 14u);
  for (const auto& [op, count] : counts) {
    const auto near = [&](int found, double share) {
      EXPECT_NEAR(found / double{kDraws}, share, deviations(share * (1 - share), kDraws)) << static_cast<int>(op);
    };
    near(count.first + count.second, 1 / 14.0);
    if (has_sign(op))
      near(count.second, 1 / 28.0);
    else
      EXPECT_EQ(count.second, 0) << static_cast<int>(op);
  }
}

TEST(Draws, TrivialAugmentUsesEveryMagnitude) {
  std::map<AugmentOp, std::set<double>> magnitudes;
  for (int32_t row = 0; row < 14 * 31 * 40; ++row) {
    RandomStream random = stream_of(row);
    const AugmentChoice choice = TrivialAugmentWide{}.choose(random);
    magnitudes[choice.op].insert(choice.magnitude);
  }
  EXPECT_EQ(magnitudes.size(), 14u);
  // A signed magnitude is drawn with probability 1/868 and missed in 17360 draws with probability 2e-9.
  EXPECT_EQ(magnitudes[AugmentOp::kShearX].size(), 61u);
  EXPECT_EQ(*magnitudes[AugmentOp::kTranslateY].begin(), -32);
  EXPECT_EQ(*magnitudes[AugmentOp::kRotate].rbegin(), 135);
  EXPECT_EQ(*magnitudes[AugmentOp::kPosterize].begin(), 2);
  EXPECT_EQ(magnitudes[AugmentOp::kSolarize].size(), 31u);
  EXPECT_EQ(magnitudes[AugmentOp::kEqualize].size(), 1u);
}

/// AutoAugment's results are those of the sub-policies' operations: an image is unchanged with the probability that no
/// step applies.
TEST(Draws, AutoAugmentAppliesItsPolicy) {
  const Image image = golden_image("noise");
  constexpr int kDraws = 3000;
  for (const AugmentPolicy policy : {AugmentPolicy::kImageNet, AugmentPolicy::kCifar10, AugmentPolicy::kSvhn}) {
    std::set<std::vector<uint8_t>> possible = {image.pixels};
    double unchanged = 0;  // at least, by the probabilities
    const auto signs_of = [](AugmentOp op) {
      return has_sign(op) ? std::vector<double>{1, -1} : std::vector<double>{1};
    };
    for (const SubPolicy& pair : sub_policies(policy)) {
      const auto [first, second] = std::pair(pair.steps[0], pair.steps[1]);
      unchanged += (1 - first.probability) * (1 - second.probability) / 25;
      const auto apply = [&](const Image& to, const PolicyStep& step, double sign) {
        return apply_augment(to, step.op, sign * augment_magnitude(step.op, step.bin, 10, to.height, to.width));
      };
      for (const double b : signs_of(second.op)) possible.insert(apply(image, second, b).pixels);
      for (const double a : signs_of(first.op)) {
        const Image once = apply(image, first, a);
        possible.insert(once.pixels);
        for (const double b : signs_of(second.op)) possible.insert(apply(once, second, b).pixels);
      }
    }
    int same = 0;
    std::set<std::vector<uint8_t>> seen;
    for (int32_t row = 0; row < kDraws; ++row) {
      RandomStream random = stream_of(row);
      const Image result = AutoAugment{policy}(image, random);
      ASSERT_TRUE(possible.contains(result.pixels));
      seen.insert(result.pixels);
      same += result.pixels == image.pixels;
    }
    EXPECT_GT(same / double{kDraws}, unchanged - deviations(unchanged * (1 - unchanged), kDraws));
    EXPECT_GT(seen.size(), 40u);
  }
}

TEST(Draws, WarpsAndBlur) {
  const Image image = golden_image("waves");
  const auto drawn = [&](const ImageStep& step, int32_t row) {
    RandomStream random = stream_of(row);
    return step(image, random);
  };
  int applied = 0;
  constexpr int kDraws = 2000;
  for (int32_t row = 0; row < kDraws; ++row) {
    applied += drawn(RandomApply{plain_step(invert), 0.2}, row).pixels != image.pixels;
    RandomStream random = stream_of(row);
    const AffineOptions map =
        RandomAffine{.degrees = 20, .translate_x = 0.1, .translate_y = 0.2, .smallest = 0.5, .largest = 2, .shear_x = 8}
            .choose(30, 50, random);
    ASSERT_TRUE(std::fabs(map.angle) <= 20 && std::fabs(map.translate_x) <= 5 && std::fabs(map.translate_y) <= 6 &&
                map.scale >= 0.5 && map.scale <= 2 && std::fabs(map.shear_x) <= 8 && map.shear_y == 0);
    ASSERT_EQ(map.translate_x, std::round(map.translate_x));
    const std::array<ImagePoint, 4> corners = RandomPerspective{.distortion = 0.5}.choose(30, 51, random);
    ASSERT_TRUE(corners[0].x <= 12 && corners[0].y <= 7 && corners[2].x >= 38 && corners[2].y >= 22);
    ASSERT_TRUE(corners[1].x >= 38 && corners[1].y <= 7 && corners[3].x <= 12 && corners[3].y >= 22);
  }
  EXPECT_NEAR(applied / double{kDraws}, 0.2, deviations(0.2 * 0.8, kDraws));
  for (int32_t row = 0; row < 20; ++row) {
    const Image turned = drawn(RandomRotation{.smallest = 30, .largest = 40, .expand = true}, row);
    EXPECT_TRUE(turned.height > image.height && turned.width > image.width);
    EXPECT_EQ(drawn(RandomPerspective{.probability = 0}, row).pixels, image.pixels);
    EXPECT_EQ(drawn(RandomBlur{.size = 5}, row).width, image.width);
  }
  const Image line(1, 9, 3);
  RandomStream random = stream_of(0);
  EXPECT_EQ(RandomPerspective{.probability = 1}(line, random).pixels, line.pixels);
  EXPECT_TRUE(fails([&] { RandomPerspective{.distortion = 2}.choose(9, 9, random); }, {"0 to 1, got 2"}));
}

TEST(Draws, BetaAndCutMix) {
  for (const double alpha : {0.2, 1.0, 4.0}) {
    double mean = 0, variance = 0;
    constexpr int kDraws = 20000;
    for (int32_t row = 0; row < kDraws; ++row) {
      RandomStream random = stream_of(row);
      const double value = draw_beta(alpha, random);
      ASSERT_TRUE(value >= 0 && value <= 1);
      mean += value / kDraws;
      variance += (value - 0.5) * (value - 0.5) / kDraws;
      const ImageBox box = choose_cutmix_box(value, 32, 24, random);
      ASSERT_TRUE(box.top >= 0 && box.left >= 0 && box.bottom <= 32 && box.right <= 24 && box.top <= box.bottom &&
                  box.left <= box.right);
      ASSERT_LE((box.bottom - box.top) * (box.right - box.left) / 768.0, 1 - value + 1e-9);
    }
    const double expected = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(mean, 0.5, deviations(expected, kDraws)) << alpha;
    // A squared deviation is between 0 and 1/4: its variance is at most that of these two values with the same mean.
    EXPECT_NEAR(variance, expected, deviations(expected * (0.25 - expected), kDraws)) << alpha;
  }
  for (const double alpha : {1e-3, 1e-5}) {  // nearly always 0 or 1, never NaN
    RandomStream random = stream_of(1);
    EXPECT_TRUE(std::isfinite(draw_beta(alpha, random)));
  }
  RandomStream random = stream_of(1);
  EXPECT_TRUE(fails([&] { draw_beta(0, random); }, {"alpha"}));
}

}  // namespace
}  // namespace tern::data
