// A convolution with its batch norm in evaluation, where both are one pass: the numbers of the separate modules, and
// that a change of any tensor is noticed.

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/convolution/epilogue.h"
#include "tern/nn/nn.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

constexpr ImageActivation kActivations[] = {ImageActivation::kNone,      ImageActivation::kRelu,
                                            ImageActivation::kRelu6,     ImageActivation::kSilu,
                                            ImageActivation::kHardSwish, ImageActivation::kGelu};

struct Pair final : nn::Module {
  nn::Conv2d conv;
  nn::BatchNorm2d norm;
  nn::ConvNorm unit{conv, norm};

  Pair(const nn::Scope& s, int64_t in, int64_t out, const SpatialSizes& kernel, const nn::ConvOptions& options = {})
      : Module(s), conv(sub("conv"), in, out, kernel, options), norm(sub("norm"), out) {
    Generator generator = fresh_generator(7);
    NoGrad off;
    norm.running_mean().copy_(randn({out}, generator, {dtype()}));
    norm.running_var().copy_(rand({out}, generator, {dtype()}) + 0.5);
    norm.weight().copy_(randn({out}, generator, {dtype()}));
    norm.bias().copy_(randn({out}, generator, {dtype()}));
    eval();
  }
  DType dtype() const { return conv.weight().tensor().dtype(); }
  Tensor separate(const Tensor& x, ImageActivation activation, const Tensor& residual) const {
    NoGrad off;
    Tensor y = norm.forward(conv.forward(x));
    if (residual.defined()) y = y + residual;
    return activate(y, activation);
  }
  Tensor joined(const Tensor& x, ImageActivation activation = ImageActivation::kNone,
                const Tensor& residual = {}) const {
    NoGrad off;
    return unit.forward(x, activation, residual);
  }
};

/// Sums of another order, and in 16 bits results that are rounded at other places.
void expect_alike(const Tensor& got, const Tensor& want, double of_float = 4e-6) {
  ASSERT_EQ(got.shape(), want.shape());
  ASSERT_EQ(got.dtype(), want.dtype());
  if (want.numel() == 0) return;
  const double unit = want.dtype() == float64   ? 1e-14
                      : want.dtype() == float32 ? of_float
                      : want.dtype() == float16 ? 4e-3
                                                : 3e-2;
  const Tensor difference = abs(got.to(float64) - want.to(float64)), size = abs(want.to(float64)) + 4;
  EXPECT_LE(max(difference / size).item<double>(), unit);
}

struct Case {
  int64_t batch, in, out, height, width;
  SpatialSizes kernel;
  nn::ConvOptions options;
};

TEST(ConvNorm, JoinedAndSeparateAreAlike) {
  const Case cases[] = {
      {2, 3, 8, 9, 7, 3, {.padding = 1}},
      {1, 16, 16, 11, 13, 3, {.stride = 2, .padding = 1, .bias = false}},
      {1, 24, 40, 65, 90, 3, {.padding = 1}},                              // one image in pieces
      {1, 32, 32, 70, 61, {5, 3}, {.stride = {2, 1}, .padding = {3, 1}}},  // the same
      {3, 20, 33, 5, 6, 1, {}},                                            // products of matrices
      {1, 64, 48, 120, 61, 1, {.bias = false}},                            // the same in pieces
      {2, 12, 12, 40, 17, 5, {.stride = 2, .padding = 2, .groups = 12}},   // depthwise
      {1, 24, 24, 9, 9, 3, {.padding = 2, .dilation = 2, .groups = 24}},   // the same
      {2, 12, 18, 8, 9, {2, 3}, {.padding = 1, .dilation = {2, 1}, .groups = 6}},
      {4, 6, 10, 7, 8, {2, 4}, {.same = true}},
      {9, 64, 64, 16, 12, 3, {.padding = 1}},  // Winograd's algorithm in fp32
      {0, 3, 4, 5, 5, 3, {}},
      {1, 1, 1, 1, 1, 1, {}},
  };
  Generator generator = fresh_generator();
  uint64_t number = fresh_random(3)();
  for (const Case& c : cases)
    for (const DType dtype : {float32, bfloat16, float16, float64})
      for (const ImageActivation activation : kActivations) {
        if (dtype != float32 && ++number % 4 != 0) continue;
        const Pair pair(nn::Scope({.dtype = dtype, .generator = generator}), c.in, c.out, c.kernel, c.options);
        const Tensor x = randn({c.batch, c.in, c.height, c.width}, generator, {dtype});
        const Tensor plain = pair.separate(x, activation, {});
        const Tensor residual = number % 2 ? randn(plain.shape(), generator, {dtype}) : Tensor();
        SCOPED_TRACE(testing::Message() << x.shape() << " " << dtype << ", activation " << int(activation)
                                        << ", residual " << residual.defined());
        expect_alike(pair.joined(x, activation, residual), pair.separate(x, activation, residual));
      }
}

TEST(ConvNorm, ViewsAndImagesWithoutBatch) {
  Generator generator = fresh_generator();
  const Pair pair(nn::Scope({.generator = generator}), 6, 5, 3, {.padding = 1});
  const Tensor x = randn({3, 7, 9, 12}, generator), residual = randn({3, 7, 9, 5}, generator);
  const Tensor turned = x.permute({0, 3, 1, 2}).slice(1, 0, 12, 2), beside = residual.permute({0, 3, 1, 2});
  expect_alike(pair.joined(turned, ImageActivation::kRelu, beside),
               pair.separate(turned, ImageActivation::kRelu, beside));
  expect_alike(pair.joined(turned[1], ImageActivation::kSilu, beside[1]),
               pair.separate(turned, ImageActivation::kSilu, beside)[1]);
}

TEST(ConvNorm, ChangesAreNoticed) {
  Generator generator = fresh_generator();
  const auto make = [&] { return std::make_unique<Pair>(nn::Scope({.generator = generator}), 16, 32, 3); };
  const auto pair = make(), other = make();
  const Tensor x = randn({2, 16, 10, 9}, generator);
  const auto check = [&](const char* what) {
    SCOPED_TRACE(what);
    const Tensor given = x.to(pair->dtype());
    expect_alike(pair->joined(given), pair->separate(given, ImageActivation::kNone, {}));
  };
  check("at first");
  NoGrad off;
  Tensor weight = pair->conv.weight().tensor();
  weight.mul_(1.5);
  check("weight in place");
  pair->conv.bias().add_(1);
  check("bias in place");
  pair->norm.weight().add_(1);
  check("norm's weight");
  pair->norm.bias().mul_(-1);
  check("norm's bias");
  pair->norm.running_mean().add_(1);
  check("running mean");
  pair->norm.running_var().mul_(2);
  check("running variance");
  pair->load_state_dict(other->state_dict());
  check("load_state_dict");
  expect_equal(pair->joined(x), other->joined(x));
  pair->train();
  pair->norm.forward(pair->conv.forward(x));
  pair->eval();
  check("a batch in training");
  pair->to(bfloat16);
  check("to(bfloat16)");
  pair->to(float32);
  check("to(float32)");
}

/// A weight that an adapter makes is not the layer's own.
TEST(ConvNorm, OfAParametrizedConvolution) {
  Generator generator = fresh_generator();
  Pair pair(nn::Scope({.dtype = float64, .generator = generator}), 3, 4, 3);
  const Tensor x = randn({2, 3, 6, 5}, generator, {float64});
  const nn::WeightNorm& adapter = nn::weight_norm(pair.conv);
  {
    NoGrad off;
    adapter.parameters()[0].tensor.mul_(3.0);
  }
  expect_alike(pair.joined(x), pair.separate(x, ImageActivation::kNone, {}));
}

/// The packed weight is of one shape and dtype of images.
TEST(ConvNorm, OtherImagesThanBefore) {
  // By Winograd's algorithm an element of either result may be off by 1.9e-5 of their root mean square
  // (docs/numerics.md), which for a channel whose norm multiplies by 2.7 / sqrt(0.5) is 2.2; compared with 4.
  constexpr double kWinograd = 2 * 1.9e-5 * 2.2 / 4;
  Generator generator = fresh_generator();
  const Pair pair(nn::Scope({.generator = generator}), 64, 64, 3, {.padding = 1});
  for (int round = 0; round < 2; ++round)
    for (const Shape& shape : {Shape{8, 64, 16, 16}, Shape{1, 64, 16, 16}, Shape{2, 64, 5, 40}, Shape{1, 64, 3, 3}}) {
      SCOPED_TRACE(shape);
      const Tensor x = randn(shape, generator);
      expect_alike(pair.joined(x), pair.separate(x, ImageActivation::kNone, {}), kWinograd);
      const Autocast autocast(Device(), bfloat16);
      expect_alike(pair.joined(x), pair.separate(x, ImageActivation::kNone, {}));
    }
}

TEST(ConvNorm, ANormOfOtherChannels) {
  const nn::Scope s({.generator = fresh_generator()});
  const nn::Conv2d conv(s, 3, 6, 3);
  const nn::BatchNorm2d norm(s, 8);
  expect_error([&] { nn::ConvNorm(conv, norm); }, {"nn::ConvNorm", "gives 6 channels", "takes 8"});
}

TEST(ConvNorm, ResidualThatDoesNotFit) {
  Generator generator = fresh_generator();
  const Pair pair(nn::Scope({.generator = generator}), 3, 4, 3);
  const Tensor x = randn({2, 3, 6, 6}, generator);
  expect_error(
      [&] {
        pair.joined(x, ImageActivation::kRelu, randn({2, 4, 6, 6}, generator));
      },
      {"the residual is [2, 4, 6, 6] float32", "expected the result's [2, 4, 4, 4] float32"});
  expect_error(
      [&] {
        pair.joined(x, ImageActivation::kRelu, randn({2, 4, 4, 4}, generator, {float64}));
      },
      {"the residual is [2, 4, 4, 4] float64"});
}

/// A packed weight serves the shapes that were used last: an evaluation's batches keep theirs when another shape comes.
TEST(PackedWeight, KeepsTheShapesThatWereUsedLast) {
  Generator generator = fresh_generator(9);
  const Tensor weight = randn({16, 16, 3, 3}, generator);
  detail::PackedWeight packed;
  const auto find = [&](int64_t batch) {
    kernels::ConvolutionShape shape;
    shape.batch = batch;
    shape.in_channels = shape.out_channels = 16;
    shape.in = shape.out = {1, 8, 8};
    shape.kernel = {1, 3, 3};
    shape.padding = {0, 1, 1};
    return packed.find(shape, weight, weight);
  };
  const Tensor often = find(4);
  if (!often.defined()) GTEST_SKIP() << "this CPU reads the weight itself";
  const Tensor last = find(3);
  EXPECT_EQ(find(4).raw_data(), often.raw_data());
  find(2);  // in place of 3
  EXPECT_EQ(find(4).raw_data(), often.raw_data());
  EXPECT_NE(find(3).raw_data(), last.raw_data());
}

}  // namespace
}  // namespace tern::test
