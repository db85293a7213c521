// Transforms compared with torchvision 0.29 (transforms.v2.functional on tensors, PyTorch 2.15), and their random
// draws. tests/golden/transforms.safetensors has two images of 13 x 17 pixels ("waves": smooth with noise, "noise":
// random with a grey part; "flat" is "noise" with a channel of one value and one of two values), a float image and a
// batch; every other tensor IMAGE/OPERATION/PARAMETER is the operation's result. The geometric operations and those
// that begin with a capital are RandAugment's at bin |PARAMETER| of 31 with the parameter's sign.

#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "tern/core/io/safetensors.h"
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
using kernels::ImageBox;

const std::map<std::string, Tensor>& golden() {
  static const std::map<std::string, Tensor> sorted = [] {
    std::map<std::string, Tensor> tensors;
    const std::string path = test::source_dir() + "/tests/golden/transforms.safetensors";
    for (const auto& [name, tensor] : load_safetensors(path).tensors) tensors[name] = tensor;
    return tensors;
  }();
  return sorted;
}

Image image_of(const Tensor& tensor) {
  Image image(tensor.size(0), tensor.size(1), tensor.size(2));
  std::copy_n(tensor.data<uint8_t>(), image.pixels.size(), image.pixels.begin());
  return image;
}
Image golden_image(const std::string& name) { return image_of(golden().at(name)); }

int difference(const Image& a, const Image& b) {
  if (a.height != b.height || a.width != b.width || a.pixels.size() != b.pixels.size()) return 1000;
  int largest = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) largest = std::max(largest, std::abs(a.pixels[i] - b.pixels[i]));
  return largest;
}

/// Parses "5x8" as {5, 8}.
std::pair<int64_t, int64_t> size_of(const std::string& text) {
  return {std::stoll(text), std::stoll(text.substr(text.find('x') + 1))};
}

using Operation = std::function<Image(const Image&, const std::string& parameter)>;

const std::map<std::string, Operation>& operations() {
  const auto number = [](Image (*change)(Image, double)) {
    return [change](const Image& image, const std::string& value) { return change(image, std::stod(value)); };
  };
  const auto resized = [](Interpolation interpolation, bool antialias) {
    return [=](const Image& image, const std::string& size) {
      return resize(image, size_of(size).first, size_of(size).second, {interpolation, antialias});
    };
  };
  static std::map<std::string, Operation> all = {
      {"bilinear", resized(Interpolation::kBilinear, true)},
      {"bilinear-plain", resized(Interpolation::kBilinear, false)},
      {"bicubic", resized(Interpolation::kBicubic, true)},
      {"bicubic-plain", resized(Interpolation::kBicubic, false)},
      {"shorter", [](const Image& image, const std::string& size) { return resize_shorter(image, std::stoll(size)); }},
      {"center", [](const Image& image,
                    const std::string& size) { return center_crop(image, size_of(size).first, size_of(size).second); }},
      {"flip", [](const Image& image, const std::string&) { return flip_horizontal(image); }},
      {"brightness", number(adjust_brightness)},
      {"contrast", number(adjust_contrast)},
      {"saturation", number(adjust_saturation)},
      {"hue", number(adjust_hue)},
      {"solarize", number(solarize)},
      {"sharpness", [](const Image& image, const std::string& v) { return adjust_sharpness(image, std::stod(v)); }},
      {"posterize", [](const Image& image, const std::string& v) { return posterize(image, std::stoi(v)); }},
      {"autocontrast", [](const Image& image, const std::string&) { return autocontrast(image); }},
      {"equalize", [](const Image& image, const std::string&) { return equalize(image); }},
  };
  const char* names[] = {"Identity", "ShearX",   "ShearY",    "TranslateX", "TranslateY", "Rotate",       "Brightness",
                         "Color",    "Contrast", "Sharpness", "Posterize",  "Solarize",   "AutoContrast", "Equalize"};
  for (int i = 0; i < kAugmentOps; ++i) {
    const auto op = static_cast<AugmentOp>(i);
    all[names[i]] = [op](const Image& image, const std::string& value) {
      const int bin = std::stoi(value);
      const double magnitude = augment_magnitude(op, std::abs(bin), 31, image.height, image.width);
      return apply_augment(image, op, bin < 0 ? -magnitude : magnitude);
    };
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
    EXPECT_LE(difference(result, image_of(expected)), exact.contains(operation) ? 0 : 1) << name;
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
    const std::vector<float> result = resize(golden().at("float"), height, width, options).to_vector<float>();
    const std::vector<float> reference = expected.to_vector<float>();
    ASSERT_EQ(result.size(), reference.size());
    for (size_t i = 0; i < result.size(); ++i) ASSERT_NEAR(result[i], reference[i], 1e-6) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 8);
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
  EXPECT_TRUE(contains(error_of([&] {
                         RandomCrop{9, 9, 1}.choose(6, 8, random);
                       }),
                       {"9 x 9", "8 x 6", "1 of padding"}));
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
  EXPECT_TRUE(contains(error_of([&] { draw_beta(0, random); }), {"alpha"}));
}

TEST(Transforms, Errors) {
  const Image image = golden_image("waves");
  EXPECT_TRUE(contains(error_of([&] { resize(image, 0, 5); }), {"13 to 0"}));
  EXPECT_TRUE(contains(error_of([&] { resize(Image(3, 3, 1), 5, 5); }), {"3 channels, got 1"}));
  EXPECT_TRUE(contains(error_of([&] { adjust_hue(image, 0.6); }), {"-0.5 to 0.5", "0.6"}));
  EXPECT_TRUE(contains(error_of([&] { adjust_contrast(image, -0.1); }), {"0 to 60", "-0.1"}));
  EXPECT_TRUE(contains(error_of([&] { adjust_contrast(image, std::nan("")); }), {"nan"}));
  EXPECT_TRUE(contains(error_of([&] { posterize(image, 9); }), {"0 to 8", "9"}));
  EXPECT_TRUE(contains(error_of([&] { crop(image, 0, 0, -1, 2); }), {"2 x -1"}));
  EXPECT_TRUE(contains(error_of([&] { resize_shorter(image, 0); }), {"to 0"}));
}

}  // namespace
}  // namespace tern::data
