// Image kernels against plain loops, and with the CPU's bits on every target.

#include "tern/tests/kernels/contracts/image.h"

namespace tern::kernels {
namespace {

class Image : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, Image, testing::ValuesIn(all_targets()), name_of_target);

/// A batch and what is done with it.
struct Augmentation {
  Array images;
  std::vector<ImageAugment> plans;
  bool contrast;

  void run(Call& on, std::vector<int32_t>& offsets, Array& result) {
    const int64_t height = result.shape()[2], width = result.shape()[3];
    int32_t* const places = on.memory(offsets.data(), static_cast<int64_t>(offsets.size()));
    const ImageAugment* const todo = on.memory(plans.data(), static_cast<int64_t>(plans.size()));
    image_contrast(on.stream(), on(images), todo, test_normalization(), height, width, places);
    augment_images(on.stream(), on(images), todo, test_normalization(), contrast ? places : nullptr, on(result));
  }
};

TEST_P(Image, AugmentationEqualsPlainLoops) {
  int64_t uncertain = 0, compared = 0;  // elements with several accepted values, and all elements
  for (const DType dtype : kFloatTypes)
    for (const ImageCase& size : kImageCases)
      for (const PlanKinds kinds : {PlanKinds{}, {.colors = true}, {.mixing = true}, {true, true, true}}) {
        if (!takes_case(size.n * size.height * size.width, random)) continue;
        SCOPED_TRACE(testing::Message() << name_of(dtype) << ", " << describe(size) << ", " << kinds.colors
                                        << kinds.contrast << kinds.mixing);
        Augmentation all{
            random_images(random, size.n, size.image_height, size.image_width),
            random_plans(random, size.n, size.image_height, size.image_width, size.height, size.width, kinds),
            kinds.contrast};
        const Shape shape = {size.n, 3, size.height, size.width};
        Array result(dtype, shape, random() % 2 ? Order::kContiguous : Order::kMisaligned), cpu(dtype, shape);
        std::vector<int32_t> offsets(static_cast<size_t>(size.n) + 1, 77), cpu_offsets = offsets;
        expect_same_in_every_run({&result}, [&](Call& on) { all.run(on, offsets, result); });
        image_contrast({}, all.images.cview(), all.plans.data(), test_normalization(), size.height, size.width,
                       cpu_offsets.data());
        augment_images({}, all.images.cview(), all.plans.data(), test_normalization(),
                       kinds.contrast ? cpu_offsets.data() : nullptr, cpu.view());
        EXPECT_EQ(offsets, cpu_offsets);
        EXPECT_EQ(offsets.back(), 77);
        EXPECT_EQ(result.values(), cpu.values());
        const std::vector<std::vector<double>> expected =
            plain_augmentation(all.images, all.plans, test_normalization(), size.height, size.width);
        for (int64_t i = 0; i < result.numel(); ++i) {
          const std::vector<double>& accepted = expected[static_cast<size_t>(i)];
          uncertain += accepted.size() > 1;
          ++compared;
          // Three operations in fp32 on numbers below 4, and the result's rounding.
          ASSERT_TRUE(std::any_of(accepted.begin(), accepted.end(),
                                  [&](double value) { return near(result.at(i), value, epsilon_of(dtype), 1e-6); }))
              << i << ": " << result.at(i) << " for " << accepted[0] << " and " << accepted.size() - 1 << " more";
        }
      }
  if (target().one_in() == 1) {
    EXPECT_LE(uncertain, compared / 3);  // otherwise too few are compared exactly
  }
}

TEST_P(Image, ResizingEqualsPlainLoops) {
  for (const ImageCase& size : kImageCases) {
    SCOPED_TRACE(describe(size));
    const Array images = random_images(random, size.n, size.image_height, size.image_width);
    RandomAxis rows = random_axis(random, size.image_height, size.height);
    RandomAxis columns = random_axis(random, size.image_width, size.width);
    Array result(uint8, {size.n, size.height, size.width, 3});
    expect_same_in_every_run({&result}, [&](Call& on) {
      const int64_t bytes = resize_images_workspace(on.stream(), on(images), size.width);
      EXPECT_TRUE(target().is_cpu() || bytes == 0);
      resize_images(on.stream(), on(images), rows.axis(on), columns.axis(on), on.workspace(bytes), on(result));
    });
    EXPECT_EQ(result.values(), plain_resize(images, rows, columns));
  }
}

/// More images than the second dimension of CUDA's grid.
TEST_P(Image, ManyImages) {
  const int64_t n = 2048 + 7;
  Augmentation all{random_images(random, n, 1, 1), std::vector<ImageAugment>(static_cast<size_t>(n)), true};
  for (ImageAugment& plan : all.plans) plan.colors[1] = {ColorOp::kContrast, 0};
  Array result(float32, {n, 3, 1, 1});
  std::vector<int32_t> offsets(static_cast<size_t>(n));
  run_kernel([&](Call& on) { all.run(on, offsets, result); });
  for (const int64_t i : {int64_t{0}, int64_t{2047}, int64_t{2048}, n - 1}) {
    const Rgb pixel{{static_cast<int>(all.images.at(i * 3)), static_cast<int>(all.images.at(i * 3 + 1)),
                     static_cast<int>(all.images.at(i * 3 + 2))}};
    for (int c = 0; c < 3; ++c) EXPECT_EQ(result.at(i * 3 + c), test_normalization().value(c, grey_of(pixel))) << i;
  }
}

// Colour changes at the extremes of their parameters.
TEST(ImageColors, AtTheExtremesOfTheirParameters) {
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
  const auto max_factor = static_cast<int32_t>(kMaxColorFactor * kOne);
  EXPECT_TRUE(equal(change_color({{255, 0, 255}}, {ColorOp::kSaturation, max_factor}, 0), 255, 0, 255));
  EXPECT_TRUE(
      equal(change_color({{255, 0, 254}}, {ColorOp::kContrast, max_factor}, contrast_offset(max_factor, 254, 1)), 255,
            0, 254));
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
