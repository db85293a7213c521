// Image batches on the CUDA device are bit-equal to those of the CPU.

#include "tern/data/transforms/augment.h"

#include "tern/tests/cuda/device_test.h"

namespace tern::data {
namespace {

class Augment : public DeviceTest {
 protected:
  std::mt19937_64 random = fresh_random();

  ImageBatch batch(int64_t n, int64_t height, int64_t width) {
    ImageBatch batch;
    std::vector<uint8_t> pixels(static_cast<size_t>(n * height * width * 3));
    for (uint8_t& value : pixels) value = static_cast<uint8_t>(random());
    batch.images = from_vector(pixels, {n, height, width, 3});
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < n; ++i) {
      batch.rows.push_back(static_cast<int32_t>(random() % 100000));
      labels.push_back(static_cast<int64_t>(random() % 10));
    }
    batch.labels = from_vector(labels, {n});
    batch.row_keys = from_vector(std::vector<int64_t>(batch.rows.begin(), batch.rows.end()), {n});
    batch.epoch = static_cast<int64_t>(random() % 100);
    batch.step = static_cast<int64_t>(random() % 100);
    return batch;
  }
};

TEST_F(Augment, BatchesHaveTheBitsOfTheCpu) {
  const kernels::ImageNormalization normalization = {{0.4914f, 0.48216f, 0.44653f}, {0.24703f, 0.24349f, 0.26159f}};
  const ColorJitter jitter = {0.4, 0.4, 0.4, 0.1};
  for (const DType dtype : {float32, bfloat16, float16}) {
    const std::vector<BatchAugmentOptions> all = {
        {.normalization = normalization, .dtype = dtype},
        {.padding = 4, .flip = {}, .erasing = {}, .normalization = normalization, .dtype = dtype},
        {.padding = 2, .jitter = jitter, .mixup = 0.8, .normalization = normalization, .dtype = dtype},
        {.height = 24, .width = 40, .padding = 3, .flip = {}, .jitter = jitter, .cutmix = 1, .dtype = dtype},
        {.height = 9, .width = 7, .resampling = {Interpolation::kBicubic}, .dtype = dtype},
    };
    for (size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(testing::Message() << name_of(dtype) << ", options " << i);
      const ImageBatch images = batch(5, 16, 16);
      const BatchAugment augment(all[i], random());
      const ImageBatch expected = augment(images, cpu), result = augment(images, kCuda);
      expect_same(expected.images, result.images, 0, "images");
      expect_same(expected.labels, result.labels, 0, "labels");
      expect_same(expected.row_keys, result.row_keys, 0, "row keys");
      ASSERT_EQ(expected.partner_labels.defined(), result.partner_labels.defined());
      if (!expected.partner_labels.defined()) continue;
      expect_same(expected.partner_labels, result.partner_labels, 0, "partners' labels");
      expect_same(expected.label_weights, result.label_weights, 0, "weights");
    }
  }
}

TEST_F(Augment, ResizedBytesAreTheCpus) {
  for (const Interpolation interpolation : {Interpolation::kBilinear, Interpolation::kBicubic})
    for (const bool antialias : {true, false})
      for (const auto& [height, width] : {std::pair(64, 64), {5, 9}, {16, 1}}) {
        const Tensor images = batch(3, 17, 13).images;
        const ResizeOptions options = {interpolation, antialias};
        expect_same(resize_images(images, height, width, options),
                    resize_images(images.to(kCuda), height, width, options), 0, "resized");
      }
}

TEST_F(Augment, BatchOnTheDeviceStays) {
  const ImageBatch images = batch(3, 8, 8), there = images.to(kCuda);
  EXPECT_EQ(there.images.device(), kCuda);
  const BatchAugment augment({.padding = 1, .mixup = 1}, random());
  expect_same(augment(images, cpu).images, augment(there, kCuda).images, 0, "images");
}

}  // namespace
}  // namespace tern::data
