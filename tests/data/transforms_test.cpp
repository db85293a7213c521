// Transforms of images and of batches compared with torchvision 0.29 (transforms.v2.functional on tensors, PyTorch
// 2.15). tests/golden/transforms.safetensors has two images of 13 x 17 pixels ("waves": smooth
// with noise, "noise": random with a grey part; "flat" is "noise" with a channel of one value and one of two values), a
// float image and a batch. `batch/...` is the batch after the plans of golden_plans() as pad, crop, horizontal_flip,
// adjust_..., normalize and erase, then after MixUp with weight 0.3125 and CutMix of a box, both with the preceding
// image. `policies/...` are AutoAugment's tables. Every other tensor IMAGE/OPERATION/PARAMETER is the operation's
// result; several crops stand below each other. Operations that begin with a capital are RandAugment's at bin
// |PARAMETER| of 31 with the parameter's sign; those that begin with Wide, TrivialAugmentWide's.

#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>
#include <sstream>

#include "tern/core/ops/ops.h"
#include "tern/data/samples/batch_tensors.h"
#include "tern/data/transforms/augment.h"
#include "tern/data/transforms/auto_augment.h"
#include "tern/data/transforms/color.h"
#include "tern/data/transforms/geometry.h"
#include "tern/data/transforms/random.h"
#include "tern/data/transforms/resize.h"
#include "tern/tests/data/support.h"
#include "tern/tests/data/transforms_golden.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

using kernels::ColorOp;
using kernels::ImageAugment;
using kernels::ImageBox;

const kernels::ImageNormalization kCifar10 = {{0.4914f, 0.48216f, 0.44653f}, {0.24703f, 0.24349f, 0.26159f}};

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

/// Parses "5,-1.5,8".
std::vector<double> numbers_of(const std::string& text) {
  std::vector<double> numbers;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) numbers.push_back(std::stod(word));
  return numbers;
}

/// The images below each other.
Image stacked(const std::vector<Image>& images) {
  Image all(0, images.front().width, images.front().channels);
  for (const Image& image : images) {
    all.height += image.height;
    all.pixels.insert(all.pixels.end(), image.pixels.begin(), image.pixels.end());
  }
  return all;
}

using Operation = std::function<Image(const Image&, const std::string& parameter)>;

/// "affine", "rotate" and "perspective", with "-bilinear", "-fill" and "-expand".
void add_warps(std::map<std::string, Operation>& all) {
  const auto add = [&](const std::string& name, const WarpOptions& warp) {
    all["affine" + name] = [=](const Image& image, const std::string& parameter) {
      const std::vector<double> n = numbers_of(parameter);
      return affine(image,
                    inverse_affine({.angle = n[0],
                                    .translate_x = n[1],
                                    .translate_y = n[2],
                                    .scale = n[3],
                                    .shear_x = n[4],
                                    .shear_y = n[5]}),
                    warp);
    };
    all["rotate" + name] = [=](const Image& image, const std::string& degrees) {
      return rotate(image, std::stod(degrees), warp);
    };
    all["rotate-expand" + name] = [=](const Image& image, const std::string& degrees) {
      return rotate(image, std::stod(degrees), warp, true);
    };
    all["perspective" + name] = [=](const Image& image, const std::string& parameter) {
      const std::vector<double> n = numbers_of(parameter);
      const double right = static_cast<double>(image.width - 1), bottom = static_cast<double>(image.height - 1);
      return perspective(image,
                         perspective_between({ImagePoint{0, 0}, {right, 0}, {right, bottom}, {0, bottom}},
                                             {ImagePoint{n[0], n[1]}, {n[2], n[3]}, {n[4], n[5]}, {n[6], n[7]}}),
                         warp);
    };
  };
  add("", {});
  add("-fill", {.fill = 90});
  add("-bilinear", {Sampling::kBilinear});
  add("-bilinear-fill", {Sampling::kBilinear, 90});
}

const char* const kAugmentNames[] = {"Identity",  "ShearX",     "ShearY",       "TranslateX", "TranslateY",
                                     "Rotate",    "Brightness", "Color",        "Contrast",   "Sharpness",
                                     "Posterize", "Solarize",   "AutoContrast", "Equalize",   "Invert"};

/// RandAugment's operations, and with "Wide" TrivialAugmentWide's.
void add_augments(std::map<std::string, Operation>& all) {
  for (int i = 0; i < kAugmentOps; ++i) {
    const auto op = static_cast<AugmentOp>(i);
    const auto add = [&](const std::string& name, auto magnitude_of) {
      all[name] = [=](const Image& image, const std::string& bin) {
        const double magnitude = magnitude_of(std::abs(std::stoi(bin)), image);
        return apply_augment(image, op, bin[0] == '-' ? -magnitude : magnitude);
      };
    };
    add(kAugmentNames[i],
        [op](int bin, const Image& image) { return augment_magnitude(op, bin, 31, image.height, image.width); });
    add(std::string("Wide") + kAugmentNames[i],
        [op](int bin, const Image&) { return wide_augment_magnitude(op, bin, 31); });
  }
  for (const char* same : {"WideIdentity", "WideAutoContrast", "WideInvert"}) all.erase(same);  // not in the file
}

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
      {"invert", plain(invert)},
      {"grayscale", plain(grayscale)},
      {"flip-vertical", plain(flip_vertical)},
      {"five", sized([](const Image& image, int64_t h, int64_t w) { return stacked(five_crop(image, h, w)); })},
      {"ten", sized([](const Image& image, int64_t h, int64_t w) { return stacked(ten_crop(image, h, w)); })},
      {"blur",
       [](const Image& image, const std::string& parameter) {
         return gaussian_blur(image, std::stoll(parameter), numbers_of(parameter)[1]);
       }},
  };
  if (!all.contains("affine")) {
    add_warps(all);
    add_augments(all);
  }
  return all;
}

TEST(Transforms, BytesEqualTorchvision) {
  // Operations that interpolate, or compute with fractions of a byte.
  const std::set<std::string> rounded = {
      "bilinear",     "bilinear-plain", "bicubic",      "bicubic-plain", "shorter",   "brightness",
      "contrast",     "saturation",     "hue",          "sharpness",     "grayscale", "autocontrast",
      "AutoContrast", "Brightness",     "Color",        "Contrast",      "Sharpness", "WideBrightness",
      "WideColor",    "WideContrast",   "WideSharpness"};
  std::map<std::string, int> compared;
  int64_t values = 0, differing = 0;  // of all that interpolate or blur
  for (const auto& [name, expected] : golden()) {
    const size_t first = name.find('/'), second = name.rfind('/');
    if (first == second || expected.dtype() != DType::kUInt8) continue;
    const std::string operation = name.substr(first + 1, second - first - 1);
    const Image result = operations().at(operation)(golden_image(name.substr(0, first)), name.substr(second + 1));
    const Tensor pixels = from_vector(result.pixels, {result.height, result.width, result.channels});
    const bool near = operation == "blur" || operation.find("-bilinear") != operation.npos;
    EXPECT_LE(difference(pixels, expected), rounded.contains(operation) || near ? 1 : 0) << name;
    ++compared[operation];
    if (!near || pixels.shape() != expected.shape()) continue;
    values += pixels.numel();
    differing += sum(ne(pixels, expected).to(DType::kInt64)).item<int64_t>();
  }
  EXPECT_EQ(compared.size(), operations().size());
  EXPECT_LT(static_cast<double>(differing), 1e-3 * static_cast<double>(values)) << differing << " of " << values;
}

TEST(Transforms, PoliciesAreTorchvisions) {
  for (const auto& [policy, name] : {std::pair(AugmentPolicy::kImageNet, "imagenet"),
                                     {AugmentPolicy::kCifar10, "cifar10"},
                                     {AugmentPolicy::kSvhn, "svhn"}}) {
    std::vector<double> numbers;
    for (const SubPolicy& pair : sub_policies(policy))
      for (const PolicyStep& step : pair.steps)
        numbers.insert(numbers.end(), {static_cast<double>(step.op), step.probability, static_cast<double>(step.bin)});
    EXPECT_EQ(numbers, find(golden(), std::string("policies/") + name).to_vector<double>()) << name;
  }
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
  std::vector<int64_t> labels, keys(rows.begin(), rows.end());
  for (const int32_t row : rows) {
    std::mt19937_64 random = fresh_random(static_cast<uint64_t>(row));
    for (int i = 0; i < 8 * 8 * 3; ++i) pixels.push_back(static_cast<uint8_t>(random()));
    labels.push_back(row % 10);
  }
  const auto n = static_cast<int64_t>(rows.size());
  return {.images = from_vector(pixels, {n, 8, 8, 3}),
          .labels = from_vector(labels, {n}),
          .row_keys = from_vector(keys, {n}),
          .rows = rows,
          .epoch = epoch,
          .step = step};
}

TEST(BatchAugment, WithoutOptionsNormalisesAlone) {
  const ImageBatch batch = batch_of({5, 9, 2}, 0, 0);
  const ImageBatch result = BatchAugment({.normalization = kCifar10}, fresh_seed())(batch, Device());
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

TEST(BatchAugment, AlternatingFlipsShowBothSidesInTwoEpochs) {
  std::vector<int32_t> rows(1000);
  std::iota(rows.begin(), rows.end(), 0);
  const BatchAugment augment({.flip = {.probability = 0.5, .alternating = true}}, fresh_seed());
  std::vector<int> mirrored;
  for (const int64_t epoch : {0, 1, 2, 7}) {
    const std::vector<ImageAugment> plans = augment.plan(batch_of(rows, epoch, 0), 8, 8);
    mirrored.push_back(0);
    for (size_t i = 0; i < rows.size(); ++i) {
      static std::vector<int32_t> first(rows.size());
      if (epoch == 0) first[i] = plans[i].mirrored;
      EXPECT_EQ(plans[i].mirrored, epoch % 2 == 0 ? first[i] : 1 - first[i]) << "image " << i << ", epoch " << epoch;
      mirrored.back() += plans[i].mirrored;
    }
  }
  EXPECT_NEAR(mirrored[0], 500, 100);  // six standard deviations
  for (const ImageAugment& plan : BatchAugment({.flip = {.probability = 0, .alternating = true}}, fresh_seed())
                                      .plan(batch_of({1, 2, 3, 4, 5, 6, 7, 8}, 1, 0), 8, 8))
    EXPECT_EQ(plan.mirrored, 0);
}

TEST(BatchAugment, ReflectedBorders) {
  const ImageBatch batch = batch_of({5, 9, 2, 11}, 3, 0);
  const BatchAugment augment({.padding = 3, .border = kernels::ImageBorder::kReflect, .normalization = kCifar10},
                             fresh_seed());
  const ImageBatch result = augment(batch, Device());
  const std::vector<ImageAugment> plans = augment.plan(batch, 8, 8);
  const auto inside = [](int64_t i) { return std::min(std::abs(i), 14 - std::abs(i)); };
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t y = 0; y < 8; ++y)
      for (int64_t x = 0; x < 8; ++x) {
        const int64_t row = inside(y + plans[static_cast<size_t>(i)].top);
        const int64_t column = inside(x + plans[static_cast<size_t>(i)].left);
        const uint8_t* pixel = batch.images.data<uint8_t>() + (i * 64 + row * 8 + column) * 3;
        for (int c = 0; c < 3; ++c)
          ASSERT_EQ(result.images.data<float>()[(i * 3 + c) * 64 + y * 8 + x], kCifar10.value(c, pixel[c]));
      }
  EXPECT_TRUE(fails([&] { BatchAugment({.padding = 8, .border = kernels::ImageBorder::kReflect}, 1)(batch, Device()); },
                    {"8 pixels", "8 x 8"}));
}

TEST(BatchAugment, MixesLabels) {
  ImageBatch batch = batch_of({5, 9, 2, 11}, 0, 0);
  batch.labels.data<int64_t>()[2] = kIgnoredLabel;
  int boxes[2] = {};  // steps whose images are mixed: without and with a box
  for (batch.step = 0; batch.step < 80; ++batch.step) {
    const BatchAugment augment({.mixup = 0.8, .cutmix = 1}, fresh_seed());
    const std::vector<ImageAugment> plans = augment.plan(batch, 8, 8);
    const ImageBatch result = augment(batch, Device());
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
  EXPECT_TRUE(fails([&] { five_crop(image, 14, 5); }, {"5 x 14", "17 x 13"}));
  EXPECT_TRUE(fails([&] { inverse_affine({.scale = 0}); }, {"scale must be positive, got 0"}));
  EXPECT_TRUE(fails([&] { rotate(image, std::nan("")); }, {"finite", "nan"}));
  EXPECT_TRUE(fails([&] { gaussian_blur(image, 4); }, {"odd", "4"}));
  EXPECT_TRUE(fails([&] { gaussian_blur(image, 27); }, {"more than 13", "17 x 13"}));
  EXPECT_TRUE(fails([&] { gaussian_blur(image, 3, -1); }, {"sigma", "-1"}));
  const std::array<ImagePoint, 4> corners = {ImagePoint{0, 0}, {9, 0}, {9, 9}, {0, 9}};
  EXPECT_TRUE(fails([&] { perspective_between(corners, {ImagePoint{0, 0}, {4, 0}, {9, 0}, {0, 9}}); }, {"on a line"}));
}

}  // namespace
}  // namespace tern::data
