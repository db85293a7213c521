// Interpolation: derivatives, the order in memory and what is refused. The numbers are compared with PyTorch's in
// image_ops_golden_test.cpp, the kernels with the formulas in tests/kernels.

#include "tern/core/ops/image/interpolate.h"

#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

using Mode = InterpolateMode;

TEST(Interpolate, DerivativesOfBothOrders) {
  Generator generator = fresh_generator();
  const auto check = [&](const Shape& shape, const InterpolateOptions& options) {
    SCOPED_TRACE(testing::Message() << shape << ", mode " << static_cast<int>(options.mode));
    const Tensor x = randn(shape, generator, {.dtype = float64});
    for (const bool last : {false, true})
      gradcheck([&](const Tensors& in) { return square(interpolate(last ? in[0].channels_last() : in[0], options)); },
                {x.detach().set_requires_grad(true)}, {.second = true});
  };
  check({2, 2, 5}, {.size = 3, .mode = Mode::kLinear});
  check({1, 2, 3, 4}, {.size = {5, 2}, .mode = Mode::kLinear, .align_corners = true});
  check({1, 2, 4, 5}, {.size = {2, 7}, .mode = Mode::kCubic});
  check({1, 2, 7, 5}, {.size = {3, 4}, .mode = Mode::kCubic, .antialias = true});
  check({1, 2, 2, 3, 2}, {.scale_factor = {1.5}, .mode = Mode::kNearestExact});
  check({1, 2, 4, 4}, {.scale_factor = {0.5, 2}, .mode = Mode::kArea});
}

/// A plane stays one: places and weights of every size agree with each other.
TEST(Interpolate, ALinearImageStaysLinear) {
  std::mt19937_64 random = fresh_random();
  for (int i = 0; i < 50; ++i) {
    const auto size = [&] { return static_cast<int64_t>(2 + random() % 30); };
    const int64_t height = size(), width = size(), new_height = size(), new_width = size();
    const auto line = [](int64_t n) { return linspace(0, 1, n, {.dtype = float64}); };
    const Tensor x = line(height).unsqueeze(1) * 3 + line(width),
                 wanted = line(new_height).unsqueeze(1) * 3 + line(new_width);
    const Tensor y = interpolate(x.reshape({1, 1, height, width}),
                                 {.size = {new_height, new_width}, .mode = Mode::kLinear, .align_corners = true});
    expect_near(y[0][0], wanted, 1e-12);
  }
}

/// Between the axes numbers are not rounded to 16 bits.
TEST(Interpolate, SixteenBitsAreRoundedOnce) {
  Generator generator = fresh_generator();
  for (const DType dtype : {bfloat16, float16}) {
    const Tensor x = randn({2, 3, 9, 7}, generator).to(dtype);
    const InterpolateOptions options{.size = {13, 12}, .mode = Mode::kLinear};
    expect_equal(interpolate(x, options), interpolate(x.to(float32), options).to(dtype));
    expect_equal(interpolate(x.channels_last(), options),
                 interpolate(x.to(float32).channels_last(), options).to(dtype));
  }
}

TEST(Interpolate, SizesAndOrders) {
  const Tensor x = ones({2, 3, 5, 7});
  EXPECT_EQ(interpolate(x, {.scale_factor = {1.5}}).shape(), (Shape{2, 3, 7, 10}));
  EXPECT_EQ(interpolate(x, {.scale_factor = {2, 0.5}}).shape(), (Shape{2, 3, 10, 3}));
  EXPECT_EQ(interpolate(ones({0, 3, 5}), {.size = 4}).shape(), (Shape{0, 3, 4}));
  EXPECT_TRUE(interpolate(x, {.size = 4}).is_contiguous());
  EXPECT_TRUE(interpolate(x.channels_last(), {.size = 4}).is_channels_last());
  expect_equal(interpolate(x.transpose(2, 3), {.size = 4}), ones({2, 3, 4, 4}));
}

TEST(Interpolate, WhatIsRefused) {
  const Tensor x = ones({2, 3, 5, 7});
  expect_error([&] { interpolate(x, {}); }, {"expected either a size or a scale_factor, got neither"});
  expect_error([&] { interpolate(x, {.size = 2, .scale_factor = {2}}); }, {"got both"});
  expect_error([&] { interpolate(x, {.size = {2, 2, 2}}); }, {"size has 3 numbers"});
  expect_error([&] { interpolate(x, {.scale_factor = {2, 2, 2}}); }, {"scale_factor has 3 numbers"});
  expect_error([&] { interpolate(x, {.size = 0}); }, {"the result's size must be at least 1"});
  expect_error([&] { interpolate(x, {.scale_factor = {0.1}}); }, {"the result's size must be at least 1"});
  expect_error([&] { interpolate(x, {.scale_factor = {-1}}); }, {"scale_factor must be finite and above 0"});
  expect_error([&] { interpolate(x, {.scale_factor = {1e30}}); }, {"below 2^31"});
  expect_error([&] { interpolate(x, {.size = 4, .align_corners = true}); }, {"align_corners is an option of"});
  expect_error([&] { interpolate(x, {.size = 4, .antialias = true}); }, {"antialias is an option of"});
  expect_error(
      [&] {
        interpolate(ones({2, 3, 5}), {.size = 4, .mode = Mode::kLinear, .antialias = true});
      },
      {"antialias is an option of"});
  expect_error([&] { interpolate(ones({2, 3, 5}), {.size = 4, .mode = Mode::kCubic}); }, {"takes two spatial"});
  expect_error([&] { interpolate(x, {.size = 4, .recompute_scale_factor = true}); }, {"needs a scale_factor"});
  expect_error([&] { interpolate(x.to(int64), {.size = 4}); }, {"x must be floating"});
  expect_error([&] { interpolate(ones({3, 5}), {.size = 4}); }, {"x must be floating [batch, channels"});
  expect_error([&] { interpolate(ones({2, 3, 0, 4}), {.size = 4}); }, {"a spatial dimension of x is empty"});
}

}  // namespace
}  // namespace tern::test
