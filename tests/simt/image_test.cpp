// CUDA image kernels in the emulator: the same bits as the CPU kernels.

#include "tern/tests/kernels/image_reference.h"
#include "tern/tests/simt/results.h"

namespace tern::kernels {
namespace {

struct Case {
  int64_t n, image_height, image_width, height, width;
};

TEST(SimtImage, AugmentationHasTheBitsOfTheCpu) {
  std::mt19937_64 random = fresh_random();
  const ImageNormalization normalization = test_normalization();
  for (const DType dtype : kFloatTypes)
    for (const Order order : {Order::kContiguous, Order::kMisaligned})
      for (const Case& size : std::vector<Case>{
               {0, 4, 4, 4, 4}, {1, 1, 1, 1, 1}, {3, 8, 8, 12, 8}, {2, 9, 5, 7, 11}, {2, 40, 36, 36, 40}}) {
        SCOPED_TRACE(testing::Message() << name_of(dtype) << ", " << size.n << " of " << size.image_height << "x"
                                        << size.image_width << " to " << size.height << "x" << size.width);
        for (const PlanKinds kinds : {PlanKinds{}, {true, true, true}}) {
          const Array images = random_images(random, size.n, size.image_height, size.image_width);
          const std::vector<ImageAugment> plans =
              random_plans(random, size.n, size.image_height, size.image_width, size.height, size.width, kinds);
          Array expected(dtype, {size.n, 3, size.height, size.width}), result(dtype, expected.shape(), order);
          Array offsets(int32, {size.n}), cpu_offsets(int32, {size.n});
          const auto* contrast = kinds.contrast ? cpu_offsets.cview().as<int32_t>() : nullptr;
          image_contrast({}, images.cview(), plans.data(), normalization, size.height, size.width,
                         cpu_offsets.view().as<int32_t>());
          augment_images({}, images.cview(), plans.data(), normalization, contrast, expected.view());
          expect_same_for_all_schedules({&result, &offsets}, [&] {
            cuda::image_contrast(kCuda, images.cview(), plans.data(), normalization, size.height, size.width,
                                 offsets.view().as<int32_t>());
            cuda::augment_images(kCuda, images.cview(), plans.data(), normalization,
                                 contrast ? offsets.cview().as<int32_t>() : nullptr, result.view());
          });
          EXPECT_EQ(offsets.values(), cpu_offsets.values());
          EXPECT_EQ(result.values(), expected.values());
        }
      }
}

TEST(SimtImage, ResizingHasTheBytesOfTheCpu) {
  std::mt19937_64 random = fresh_random();
  for (const Case& size : std::vector<Case>{{0, 4, 4, 4, 4}, {1, 1, 1, 1, 1}, {3, 8, 8, 12, 20}, {2, 40, 36, 11, 7}}) {
    const Array images = random_images(random, size.n, size.image_height, size.image_width);
    const RandomAxis rows = random_axis(random, size.image_height, size.height);
    const RandomAxis columns = random_axis(random, size.image_width, size.width);
    Array result(uint8, {size.n, size.height, size.width, 3});
    EXPECT_EQ(cuda::resize_images_workspace(kCuda, images.cview(), size.width), 0);
    expect_same_for_all_schedules({&result}, [&] {
      cuda::resize_images(kCuda, images.cview(), rows.axis(), columns.axis(), nullptr, result.view());
    });
    EXPECT_EQ(result.values(), plain_resize(images, rows, columns));
  }
}

/// More images than the grid's second dimension.
TEST(SimtImage, ManyImages) {
  std::mt19937_64 random = fresh_random();
  const int64_t n = 2048 + 7;
  const Array images = random_images(random, n, 1, 1);
  const ImageNormalization normalization = test_normalization();
  std::vector<ImageAugment> plans(static_cast<size_t>(n));
  for (ImageAugment& plan : plans) plan.colors[1] = {ColorOp::kContrast, 0};
  Array result(float32, {n, 3, 1, 1});
  Array offsets(int32, {n});
  cuda::image_contrast(kCuda, images.cview(), plans.data(), normalization, 1, 1, offsets.view().as<int32_t>());
  cuda::augment_images(kCuda, images.cview(), plans.data(), normalization, offsets.cview().as<int32_t>(),
                       result.view());
  for (const int64_t i : {int64_t{0}, int64_t{2047}, int64_t{2048}, n - 1}) {
    const Rgb pixel{{static_cast<int>(images.at(i * 3)), static_cast<int>(images.at(i * 3 + 1)),
                     static_cast<int>(images.at(i * 3 + 2))}};
    for (int c = 0; c < 3; ++c) EXPECT_EQ(result.at(i * 3 + c), normalization.value(c, grey_of(pixel))) << i;
  }
}

}  // namespace
}  // namespace tern::kernels
