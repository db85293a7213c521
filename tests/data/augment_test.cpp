// Batches resized, augmented and normalised, compared with torchvision (tests/golden/transforms.safetensors,
// `batch/...`: the plans below as pad, crop, horizontal_flip, adjust_..., normalize and erase, then MixUp with weight
// 0.3125 and CutMix of a box, both with the preceding image), and the distribution of the plans.

#include "tern/data/transforms/augment.h"

#include <cmath>

#include "tern/core/io/safetensors.h"
#include "tern/data/loader_tokens.h"
#include "tern/data/transforms/color.h"
#include "tern/data/transforms/geometry.h"
#include "tern/tests/data/support.h"
#include "tern/tests/places.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

using kernels::ColorOp;
using kernels::ImageAugment;

const kernels::ImageNormalization kCifar10 = {{0.4914f, 0.48216f, 0.44653f}, {0.24703f, 0.24349f, 0.26159f}};

Tensor golden(const std::string& name) {
  for (const auto& [given, tensor] :
       load_safetensors(test::source_dir() + "/tests/golden/transforms.safetensors").tensors) {
    if (given == name) return tensor;
  }
  fail("no ", name);
}

/// The largest absolute difference; infinite for NaN.
double difference(const Tensor& a, const Tensor& b) {
  const std::vector<float> x = a.to(DType::kFloat32).to_vector<float>(), y = b.to_vector<float>();
  if (a.shape() != b.shape()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double difference = std::fabs(x[i] - y[i]);
    largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
  }
  return largest;
}

std::vector<ImageAugment> golden_plans() {
  std::vector<ImageAugment> plans(4);
  plans[0].top = -2;
  plans[0].left = 3;
  plans[1].top = 1;
  plans[1].left = -4;
  plans[1].mirrored = 1;
  plans[1].colors[0] = color_step(ColorOp::kBrightness, 0.8);
  plans[1].colors[1] = color_step(ColorOp::kContrast, 1.3);
  plans[1].colors[3] = color_step(ColorOp::kSaturation, 0.6);
  plans[2].mirrored = 1;
  plans[2].erased = {2, 3, 7, 7};
  plans[3].top = 3;
  plans[3].left = 5;
  plans[3].colors[1] = color_step(ColorOp::kHue, 0.1);
  plans[3].colors[2] = color_step(ColorOp::kContrast, 0.7);
  for (int i = 0; i < 4; ++i) plans[i].partner = (i + 3) % 4;
  return plans;
}

TEST(AugmentImages, EqualsTorchvision) {
  const Tensor images = golden("batch"), expected = golden("batch/augmented");
  std::vector<ImageAugment> plans = golden_plans();
  const Tensor result = augment_images(images, plans, kCifar10, 10, 12);
  for (const int64_t i : {0, 2}) EXPECT_LE(difference(result.select(0, i), expected.select(0, i)), 1e-6) << i;
  const double level = 1 / 255.0 / 0.24349;
  for (const int64_t i : {1, 3}) EXPECT_LE(difference(result.select(0, i), expected.select(0, i)), 1.001 * level) << i;
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16})  // computed in fp32 and rounded once
    EXPECT_EQ(augment_images(images, plans, kCifar10, 10, 12, dtype).to_vector<float>(),
              result.to(dtype).to_vector<float>());

  for (ImageAugment& plan : plans) plan.weight = 0.3125f;
  EXPECT_LE(difference(augment_images(images, plans, kCifar10, 10, 12), golden("batch/mixup")), 1.001 * level);
  for (ImageAugment& plan : plans) {
    plan.weight = 1;
    plan.pasted = {2, 4, 7, 12};
  }
  EXPECT_LE(difference(augment_images(images, plans, kCifar10, 10, 12), golden("batch/cutmix")), 1.001 * level);
  // Without colour steps the results agree within one ulp.
  for (ImageAugment& plan : plans) {
    plan.pasted = {};
    for (kernels::ColorStep& step : plan.colors) step = {};
  }
  const Tensor plain = augment_images(images, plans, kCifar10, 10, 12);
  for (ImageAugment& plan : plans) plan.weight = 0.3125f;
  const Tensor mixed = augment_images(images, plans, kCifar10, 10, 12);
  for (int64_t i = 0; i < 4; ++i) {
    const std::vector<float> own = plain.select(0, i).to_vector<float>(), m = mixed.select(0, i).to_vector<float>();
    const std::vector<float> other = plain.select(0, (i + 3) % 4).to_vector<float>();
    for (size_t k = 0; k < m.size(); ++k) ASSERT_NEAR(m[k], 0.3125 * own[k] + 0.6875 * other[k], 1e-6);
  }
}

TEST(AugmentImages, ResizesAsSingleImagesAre) {
  const Tensor images = golden("batch");
  for (const ResizeOptions& options :
       {ResizeOptions{}, ResizeOptions{Interpolation::kBicubic, true}, ResizeOptions{Interpolation::kBicubic, false}}) {
    for (const auto& [height, width] : {std::pair(30, 41), {5, 7}, {13, 17}, {1, 1}}) {
      const Tensor result = resize_images(images, height, width, options);
      for (int64_t i = 0; i < 4; ++i) {
        Image image(13, 17, 3);
        std::copy_n(images.data<uint8_t>() + i * 663, 663, image.pixels.begin());
        EXPECT_EQ(result.select(0, i).to_vector<uint8_t>(), resize(image, height, width, options).pixels);
      }
    }
  }
}

TEST(AugmentImages, Errors) {
  const Tensor images = golden("batch");
  std::vector<ImageAugment> plans(4);
  const auto message = [&](const Tensor& given, int64_t height, DType dtype = DType::kFloat32) {
    return error_of([&] { augment_images(given, plans, {}, height, 5, dtype); });
  };
  EXPECT_TRUE(contains(message(images.to(DType::kFloat32), 5), {"uint8 [n, height, width, 3]", "float32"}));
  EXPECT_TRUE(contains(message(images, 0), {"5 x 0"}));
  EXPECT_TRUE(contains(message(images, int64_t{1} << 40), {"2^31"}));
  EXPECT_TRUE(contains(message(images, 5, DType::kInt64), {"floating", "int64"}));
  plans[2].partner = 4;
  EXPECT_TRUE(contains(message(images, 5), {"image 4 of 4"}));
  plans.pop_back();
  EXPECT_TRUE(contains(message(images, 5), {"3 plans for 4 images"}));
  EXPECT_TRUE(contains(error_of([&] { resize_images(images, 5, -1); }), {"-1 x 5"}));
  EXPECT_EQ(augment_images(zeros({0, 0, 0, 3}, {.dtype = DType::kUInt8}), {}, {}, 4, 5).shape(), (Shape{0, 3, 4, 5}));
}

ImageBatch digits_batch(std::vector<int32_t> rows, int64_t epoch, int64_t step) {
  const ImageSet set = load_images("digits");
  ImageBatch batch;
  batch.rows = rows;
  batch.epoch = epoch;
  batch.step = step;
  const int64_t n = static_cast<int64_t>(rows.size());
  batch.images = empty({n, 8, 8, 3}, {.dtype = DType::kUInt8});
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < n; ++i) {
    const Image image = set.image(rows[i]);
    std::copy(image.pixels.begin(), image.pixels.end(), batch.images.data<uint8_t>() + i * 192);
    labels.push_back(set.labels[rows[i]]);
  }
  batch.labels = from_vector(labels, {n});
  return batch;
}

TEST(BatchAugment, WithoutOptionsNormalisesAlone) {
  const ImageBatch batch = digits_batch({5, 9, 2}, 0, 0);
  const AugmentedBatch result = BatchAugment({.normalization = kCifar10}, fresh_seed())(batch, Device());
  EXPECT_EQ(result.images.shape(), (Shape{3, 3, 8, 8}));
  EXPECT_EQ(result.labels.to_vector<int64_t>(), batch.labels.to_vector<int64_t>());
  EXPECT_EQ(result.row_keys.to_vector<int64_t>(), (std::vector<int64_t>{5, 9, 2}));
  EXPECT_FALSE(result.partner_labels.defined());
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t p = 0; p < 64; ++p)
      for (int c = 0; c < 3; ++c)
        ASSERT_EQ(result.images.data<float>()[(i * 3 + c) * 64 + p],
                  kCifar10.value(c, batch.images.data<uint8_t>()[(i * 64 + p) * 3 + c]));
  EXPECT_EQ(BatchAugment({.height = 20, .width = 24}, fresh_seed())(batch, Device()).images.shape(),
            (Shape{3, 3, 20, 24}));
}

// An image's plan does not depend on its batch or its position in it.
TEST(BatchAugment, PlansDependOnTheImageAlone) {
  const BatchAugment augment({.padding = 2, .flip = {}, .jitter = {.4, .4, .4, .1}, .erasing = {.probability = 0.5}},
                             fresh_seed());
  const auto plan_of = [&](const ImageBatch& batch, size_t i) {
    const ImageAugment plan = augment.plan(batch, 8, 8)[i];
    std::vector<int32_t> numbers = {plan.top, plan.left, plan.mirrored, plan.erased.top, plan.erased.right};
    for (const kernels::ColorStep& step : plan.colors) numbers.push_back(step.amount);
    return numbers;
  };
  const ImageBatch first = digits_batch({5, 9, 2}, 3, 0), second = digits_batch({7, 2}, 3, 8);
  EXPECT_EQ(plan_of(first, 2), plan_of(second, 1));
  EXPECT_NE(plan_of(first, 0), plan_of(first, 1));
  EXPECT_NE(plan_of(first, 2), plan_of(digits_batch({5, 9, 2}, 4, 0), 2));
}

TEST(BatchAugment, MixesLabels) {
  ImageBatch batch = digits_batch({5, 9, 2, 11}, 0, 0);
  batch.labels.data<int64_t>()[2] = kIgnoredLabel;
  std::vector<bool> kinds;
  for (int64_t step = 0; step < 80; ++step) {
    batch.step = step;
    const BatchAugment augment({.mixup = 0.8, .cutmix = 1}, fresh_seed());
    const std::vector<ImageAugment> plans = augment.plan(batch, 8, 8);
    const AugmentedBatch result = augment(batch, Device());
    const std::vector<int64_t> labels = result.labels.to_vector<int64_t>();
    const std::vector<int64_t> partners = result.partner_labels.to_vector<int64_t>();
    const std::vector<float> weights = result.label_weights.to_vector<float>();
    for (const size_t i : {2, 3}) {  // the image without a label, and the next one
      EXPECT_FALSE(plans[i].mixes());
      EXPECT_EQ(weights[i], 1);
      EXPECT_EQ(partners[i], labels[i]);
    }
    const kernels::ImageBox box = plans[0].pasted;
    const int area = (box.bottom - box.top) * (box.right - box.left);
    EXPECT_TRUE(area == 0 || plans[0].weight == 1);
    EXPECT_EQ(plans[0].partner, 3);
    EXPECT_EQ(partners[1], plans[1].mixes() ? labels[0] : labels[1]);
    EXPECT_NEAR(weights[0], area > 0 ? 1 - area / 64.0 : plans[0].weight, 1e-6);
    if (plans[0].mixes()) kinds.push_back(area > 0);
  }
  // Each is drawn with probability 1/2: three or fewer of 80 have a probability of 1e-19.
  EXPECT_GT(std::count(kinds.begin(), kinds.end(), true), 3);
  EXPECT_GT(std::count(kinds.begin(), kinds.end(), false), 3);
}

}  // namespace
}  // namespace tern::data
