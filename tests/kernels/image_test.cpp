// Image kernels on the CPU against plain loops.

#include "tern/tests/kernels/image_reference.h"

namespace tern::kernels {
namespace {

struct Case {
  int64_t n, image_height, image_width, height, width;
};
const std::vector<Case> kCases = {{0, 4, 4, 4, 4},  {1, 1, 1, 1, 1},   {5, 8, 8, 8, 8},
                                  {3, 7, 5, 9, 11}, {2, 33, 21, 6, 3}, {2, 3, 70, 5, 129}};

TEST(Image, AugmentationEqualsPlainLoops) {
  int64_t uncertain = 0, compared = 0;  // elements with several accepted values, and all elements
  std::mt19937_64 random = fresh_random();
  for (const DType dtype : kFloatTypes)
    for (const Case& size : kCases)
      for (const PlanKinds kinds : {PlanKinds{}, {.colors = true}, {.mixing = true}, {true, true, true}}) {
        SCOPED_TRACE(testing::Message() << name_of(dtype) << ", " << size.n << " of " << size.image_height << "x"
                                        << size.image_width << " to " << size.height << "x" << size.width << ", "
                                        << kinds.colors << kinds.contrast << kinds.mixing);
        const Array images = random_images(random, size.n, size.image_height, size.image_width);
        const std::vector<ImageAugment> plans =
            random_plans(random, size.n, size.image_height, size.image_width, size.height, size.width, kinds);
        const ImageNormalization normalization = test_normalization();
        const std::vector<std::vector<double>> expected =
            plain_augmentation(images, plans, normalization, size.height, size.width);
        for_each_level([&] {
          Array result(dtype, {size.n, 3, size.height, size.width});
          std::vector<int32_t> contrast(static_cast<size_t>(size.n) + 1, 77);
          expect_same_for_any_threads(result, [&] {
            image_contrast({}, images.cview(), plans.data(), normalization, size.height, size.width, contrast.data());
            augment_images({}, images.cview(), plans.data(), normalization, kinds.contrast ? contrast.data() : nullptr,
                           result.view());
          });
          EXPECT_EQ(contrast.back(), 77);
          for (int64_t i = 0; i < result.numel(); ++i) {
            const std::vector<double>& all = expected[static_cast<size_t>(i)];
            uncertain += all.size() > 1, ++compared;
            // Three operations in fp32 on numbers below 4, and the result's rounding.
            ASSERT_TRUE(std::any_of(all.begin(), all.end(),
                                    [&](double value) { return near(result.at(i), value, epsilon_of(dtype), 1e-6); }))
                << i << ": " << result.at(i) << " for " << all[0] << " and " << all.size() - 1 << " more";
          }
        });
      }
  EXPECT_LE(uncertain, compared / 3);  // otherwise too few are compared exactly
}

TEST(Image, ResizingEqualsPlainLoops) {
  std::mt19937_64 random = fresh_random();
  for (const Case& size : kCases) {
    SCOPED_TRACE(testing::Message() << size.n << " of " << size.image_height << "x" << size.image_width << " to "
                                    << size.height << "x" << size.width);
    const Array images = random_images(random, size.n, size.image_height, size.image_width);
    const RandomAxis rows = random_axis(random, size.image_height, size.height);
    const RandomAxis columns = random_axis(random, size.image_width, size.width);
    const std::vector<double> expected = plain_resize(images, rows, columns);
    for_each_level([&] {
      Array result(uint8, {size.n, size.height, size.width, 3});
      MarkedWorkspace workspace(resize_images_workspace({}, images.cview(), size.width));
      expect_same_for_any_threads(result, [&] {
        resize_images({}, images.cview(), rows.axis(), columns.axis(), workspace.data(), result.view());
      });
      EXPECT_EQ(result.values(), expected);
    });
  }
}

// Colour changes at the extremes of their parameters.
TEST(Image, Colors) {
  constexpr int32_t kOne = 1 << kColorBits;
  const Rgb pixel{{200, 100, 50}};
  const auto equal = [](const Rgb& a, int r, int g, int b) {
    return a.channel[0] == r && a.channel[1] == g && a.channel[2] == b;
  };
  EXPECT_TRUE(equal(change_color(pixel, {ColorOp::kBrightness, kOne}, 0), 200, 100, 50));
  EXPECT_TRUE(equal(change_color(pixel, {ColorOp::kBrightness, 2 * kOne}, 0), 255, 200, 100));
  EXPECT_TRUE(equal(change_color(pixel, {ColorOp::kSaturation, 0}, 0), 124, 124, 124));  // floor(124.18)
  EXPECT_TRUE(equal(change_color(pixel, {ColorOp::kContrast, 0}, contrast_offset(0, 500, 5)), 100, 100, 100));
  EXPECT_TRUE(equal(change_color(pixel, {ColorOp::kHue, 0}, 0), 200, 100, 50));
  EXPECT_TRUE(equal(change_color(pixel, {ColorOp::kHue, 2 * kOne}, 0), 50, 200, 100));
  EXPECT_TRUE(equal(change_color(pixel, {ColorOp::kHue, 4 * kOne}, 0), 100, 50, 200));
  EXPECT_TRUE(equal(change_color({{255, 255, 255}}, {ColorOp::kHue, 3 * kOne}, 0), 255, 255, 255));
  const auto most = static_cast<int32_t>(kMaxColorFactor * kOne);
  EXPECT_TRUE(equal(change_color({{255, 0, 255}}, {ColorOp::kSaturation, most}, 0), 255, 0, 255));
  EXPECT_TRUE(
      equal(change_color({{255, 0, 254}}, {ColorOp::kContrast, most}, contrast_offset(most, 254, 1)), 255, 0, 254));
  // A rotation by any angle and back ends near the original.
  std::mt19937_64 random = fresh_random();
  for (int i = 0; i < 20000; ++i) {
    const Rgb from{{in_range(random, 0, 255), in_range(random, 0, 255), in_range(random, 0, 255)}};
    const int32_t turn = in_range(random, 1, 6 * kOne - 1);
    const Rgb there = turn_hue(from, turn), back = turn_hue(there, 6 * kOne - turn);
    for (int c = 0; c < 3; ++c) {
      ASSERT_TRUE(there.channel[c] >= 0 && there.channel[c] <= 255);
      ASSERT_NEAR(back.channel[c], from.channel[c], 3);
    }
  }
}

}  // namespace
}  // namespace tern::kernels
