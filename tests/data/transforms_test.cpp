// Transforms of images and of batches compared with torchvision 0.29 (transforms.v2.functional on tensors, PyTorch
// 2.15), and their random draws. tests/golden/transforms.safetensors has two images of 13 x 17 pixels ("waves": smooth
// with noise, "noise": random with a grey part; "flat" is "noise" with a channel of one value and one of two values), a
// float image and a batch. `batch/...` is the batch after the plans of golden_plans() as pad, crop, horizontal_flip,
// adjust_..., normalize and erase, then after MixUp with weight 0.3125 and CutMix of a box, both with the preceding
// image. Every other tensor IMAGE/OPERATION/PARAMETER is the operation's result. The geometric operations and those
// that begin with a capital are RandAugment's at bin |PARAMETER| of 31 with the parameter's sign.

#include <cmath>
#include <map>
#include <set>

#include "tern/core/io/safetensors.h"
#include "tern/core/ops/ops.h"
#include "tern/data/loader_tokens.h"
#include "tern/data/transforms/augment.h"
#include "tern/data/transforms/color.h"
#include "tern/data/transforms/geometry.h"
#include "tern/data/transforms/random.h"
#include "tern/data/transforms/resize.h"
#include "tern/tests/data/support.h"
#include "tern/tests/places.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

using kernels::ColorOp;
using kernels::ImageAugment;
using kernels::ImageBox;

const kernels::ImageNormalization kCifar10 = {{0.4914f, 0.48216f, 0.44653f}, {0.24703f, 0.24349f, 0.26159f}};

const StateView& golden() {
  static const StateView tensors =
      load_safetensors(test::source_dir() + "/tests/golden/transforms.safetensors").tensors;
  return tensors;
}

Image image_of(const Tensor& tensor) {
  Image image(tensor.size(0), tensor.size(1), tensor.size(2));
  std::copy_n(tensor.data<uint8_t>(), image.pixels.size(), image.pixels.begin());
  return image;
}
Image golden_image(const std::string& name) { return image_of(find(golden(), name)); }

/// The largest absolute difference; infinite for NaN and for other shapes.
double difference(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) return INFINITY;
  const std::vector<float> x = a.to(DType::kFloat32).to_vector<float>(), y = b.to(DType::kFloat32).to_vector<float>();
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double difference = std::fabs(x[i] - y[i]);
    largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
  }
  return largest;
}

/// Parses "5x8" as {5, 8}.
std::pair<int64_t, int64_t> size_of(const std::string& text) {
  return {std::stoll(text), std::stoll(text.substr(text.find('x') + 1))};
}

using Operation = std::function<Image(const Image&, const std::string& parameter)>;

const std::map<std::string, Operation>& operations() {
  const auto plain = [](auto change) { return [=](const Image& image, const std::string&) { return change(image); }; };
  const auto number = [](auto change) {
    return [=](const Image& image, const std::string& value) { return change(image, std::stod(value)); };
  };
  const auto sized = [](auto change) {
    return [=](const Image& image, const std::string& size) {
      return change(image, size_of(size).first, size_of(size).second);
    };
  };
  const auto resized = [&](Interpolation interpolation, bool antialias) {
    return sized([=](const Image& image, int64_t height, int64_t width) {
      return resize(image, height, width, {interpolation, antialias});
    });
  };
  static std::map<std::string, Operation> all = {
      {"bilinear", resized(Interpolation::kBilinear, true)},
      {"bilinear-plain", resized(Interpolation::kBilinear, false)},
      {"bicubic", resized(Interpolation::kBicubic, true)},
      {"bicubic-plain", resized(Interpolation::kBicubic, false)},
      {"shorter", number([](const Image& image, double size) { return resize_shorter(image, std::lround(size)); })},
      {"center", sized(center_crop)},
      {"flip", plain(flip_horizontal)},
      {"brightness", number(adjust_brightness)},
      {"contrast", number(adjust_contrast)},
      {"saturation", number(adjust_saturation)},
      {"hue", number(adjust_hue)},
      {"solarize", number(solarize)},
      {"sharpness", number(adjust_sharpness)},
      {"posterize", number([](const Image& image, double bits) { return posterize(image, static_cast<int>(bits)); })},
      {"autocontrast", plain(autocontrast)},
      {"equalize", plain(equalize)},
  };
  const char* names[] = {"Identity", "ShearX",   "ShearY",    "TranslateX", "TranslateY", "Rotate",       "Brightness",
                         "Color",    "Contrast", "Sharpness", "Posterize",  "Solarize",   "AutoContrast", "Equalize"};
  for (int i = 0; i < kAugmentOps; ++i) {
    const auto op = static_cast<AugmentOp>(i);
    all[names[i]] = number([op](const Image& image, double bin) {
      const double magnitude = augment_magnitude(op, static_cast<int>(std::fabs(bin)), 31, image.height, image.width);
      return apply_augment(image, op, bin < 0 ? -magnitude : magnitude);
    });
  }
  return all;
}

TEST(Transforms, BytesEqualTorchvision) {
  // Operations that move pixels, count or use tables must be exact.
  const std::set<std::string> exact = {"center",   "flip",      "posterize", "solarize",   "equalize",
                                       "Identity", "ShearX",    "ShearY",    "TranslateX", "TranslateY",
                                       "Rotate",   "Posterize", "Solarize",  "Equalize"};
  std::map<std::string, int> compared;
  for (const auto& [name, expected] : golden()) {
    const size_t first = name.find('/'), second = name.rfind('/');
    if (first == second || expected.dtype() != DType::kUInt8) continue;
    const std::string operation = name.substr(first + 1, second - first - 1);
    const Image result = operations().at(operation)(golden_image(name.substr(0, first)), name.substr(second + 1));
    const Tensor pixels = from_vector(result.pixels, {result.height, result.width, result.channels});
    EXPECT_LE(difference(pixels, expected), exact.contains(operation) ? 0 : 1) << name;
    ++compared[operation];
  }
  EXPECT_EQ(compared.size(), operations().size());
}

TEST(Transforms, FloatsEqualTorchvision) {
  int compared = 0;
  for (const auto& [name, expected] : golden()) {
    if (!name.starts_with("float/")) continue;
    const auto [height, width] = size_of(name.substr(name.rfind('/') + 1));
    const ResizeOptions options = {
        name.find("bicubic") != name.npos ? Interpolation::kBicubic : Interpolation::kBilinear,
        name.find("plain") == name.npos};
    EXPECT_LE(difference(resize(find(golden(), "float"), height, width, options), expected), 1e-6) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 8);
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
  std::vector<ImageAugment> plans = golden_plans();
  const auto augmented = [&](DType dtype = DType::kFloat32) {
    return augment_images(find(golden(), "batch"), plans, kCifar10, 10, 12, dtype);
  };
  const Tensor result = augmented(), expected = find(golden(), "batch/augmented");
  const double level = 1 / 255.0 / 0.24349;
  for (int64_t i = 0; i < 4; ++i)  // the odd ones have colour steps
    EXPECT_LE(difference(result.select(0, i), expected.select(0, i)), i % 2 == 0 ? 1e-6 : 1.001 * level) << i;
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16})  // computed in fp32 and rounded once
    EXPECT_EQ(augmented(dtype).to_vector<float>(), result.to(dtype).to_vector<float>());

  for (ImageAugment& plan : plans) plan.weight = 0.3125f;
  EXPECT_LE(difference(augmented(), find(golden(), "batch/mixup")), 1.001 * level);
  for (ImageAugment& plan : plans) {
    plan.weight = 1;
    plan.pasted = {2, 4, 7, 12};
  }
  EXPECT_LE(difference(augmented(), find(golden(), "batch/cutmix")), 1.001 * level);
  // Without colour steps the results agree within one ulp.
  for (ImageAugment& plan : plans) {
    plan.pasted = {};
    for (kernels::ColorStep& step : plan.colors) step = {};
  }
  const Tensor single = augmented();
  for (ImageAugment& plan : plans) plan.weight = 0.3125f;
  const Tensor mixed = augmented();
  for (int64_t i = 0; i < 4; ++i) {
    const Tensor sum = single.select(0, i) * 0.3125 + single.select(0, (i + 3) % 4) * 0.6875;
    EXPECT_LE(difference(mixed.select(0, i), sum), 1e-6) << i;
  }
}

TEST(AugmentImages, ResizesAsSingleImagesAre) {
  const Tensor images = find(golden(), "batch");
  for (const ResizeOptions& options :
       {ResizeOptions{}, ResizeOptions{Interpolation::kBicubic, true}, ResizeOptions{Interpolation::kBicubic, false}})
    for (const auto& [height, width] : {std::pair(30, 41), {5, 7}, {13, 17}, {1, 1}}) {
      const Tensor result = resize_images(images, height, width, options);
      for (int64_t i = 0; i < 4; ++i)
        EXPECT_EQ(result.select(0, i).to_vector<uint8_t>(),
                  resize(image_of(images.select(0, i)), height, width, options).pixels);
    }
}

TEST(AugmentImages, Errors) {
  const Tensor images = find(golden(), "batch");
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
  EXPECT_TRUE(fails([&] { resize_images(images, 5, -1); }, {"-1 x 5"}));
  EXPECT_EQ(augment_images(zeros({0, 0, 0, 3}, {.dtype = DType::kUInt8}), {}, {}, 4, 5).shape(), (Shape{0, 3, 4, 5}));
}

/// Images of 8 x 8 pixels; pixels and label follow from the row.
ImageBatch batch_of(const std::vector<int32_t>& rows, int64_t epoch, int64_t step) {
  std::vector<uint8_t> pixels;
  std::vector<int64_t> labels;
  for (const int32_t row : rows) {
    std::mt19937_64 random = fresh_random(static_cast<uint64_t>(row));
    for (int i = 0; i < 8 * 8 * 3; ++i) pixels.push_back(static_cast<uint8_t>(random()));
    labels.push_back(row % 10);
  }
  const auto n = static_cast<int64_t>(rows.size());
  return {from_vector(pixels, {n, 8, 8, 3}), from_vector(labels, {n}), rows, epoch, step};
}

TEST(BatchAugment, WithoutOptionsNormalisesAlone) {
  const ImageBatch batch = batch_of({5, 9, 2}, 0, 0);
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
  const ImageBatch first = batch_of({5, 9, 2}, 3, 0), second = batch_of({7, 2}, 3, 8);
  EXPECT_EQ(plan_of(first, 2), plan_of(second, 1));
  EXPECT_NE(plan_of(first, 0), plan_of(first, 1));
  EXPECT_NE(plan_of(first, 2), plan_of(batch_of({5, 9, 2}, 4, 0), 2));
}

TEST(BatchAugment, MixesLabels) {
  ImageBatch batch = batch_of({5, 9, 2, 11}, 0, 0);
  batch.labels.data<int64_t>()[2] = kIgnoredLabel;
  int boxes[2] = {};  // steps whose images are mixed: without and with a box
  for (batch.step = 0; batch.step < 80; ++batch.step) {
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
    const ImageBox box = plans[0].pasted;
    const int area = (box.bottom - box.top) * (box.right - box.left);
    EXPECT_TRUE(area == 0 || plans[0].weight == 1);
    EXPECT_EQ(plans[0].partner, 3);
    EXPECT_EQ(partners[1], plans[1].mixes() ? labels[0] : labels[1]);
    EXPECT_NEAR(weights[0], area > 0 ? 1 - area / 64.0 : plans[0].weight, 1e-6);
    if (plans[0].mixes()) ++boxes[area > 0];
  }
  // Each is drawn with probability 1/2: three or fewer of 80 have a probability of 1e-19.
  EXPECT_GT(boxes[0], 3);
  EXPECT_GT(boxes[1], 3);
}

// Random draws. Bounds on counts and means are 7 standard deviations, which are exceeded with probability 1e-11.

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
    const RandomCrop::Place place = RandomCrop{4, 5, 1}.choose(6, 6, random);
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
    const RandAugment::Choice choice = RandAugment{}.choose(32, 32, random);
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

TEST(Transforms, Errors) {
  const Image image = golden_image("waves");
  EXPECT_TRUE(fails([&] { resize(image, 0, 5); }, {"13 to 0"}));
  EXPECT_TRUE(fails([&] { resize(Image(3, 3, 1), 5, 5); }, {"3 channels, got 1"}));
  EXPECT_TRUE(fails([&] { adjust_hue(image, 0.6); }, {"-0.5 to 0.5", "0.6"}));
  EXPECT_TRUE(fails([&] { adjust_contrast(image, -0.1); }, {"0 to 60", "-0.1"}));
  EXPECT_TRUE(fails([&] { adjust_contrast(image, std::nan("")); }, {"nan"}));
  EXPECT_TRUE(fails([&] { posterize(image, 9); }, {"0 to 8", "9"}));
  EXPECT_TRUE(fails([&] { crop(image, 0, 0, -1, 2); }, {"2 x -1"}));
  EXPECT_TRUE(fails([&] { resize_shorter(image, 0); }, {"to 0"}));
}

}  // namespace
}  // namespace tern::data
