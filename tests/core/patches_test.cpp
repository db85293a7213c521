// Windows, rearranged pixels, inverse pooling and sampling of images: derivatives, properties and what is refused. The
// numbers are compared with PyTorch's in image_ops_golden_test.cpp.

#include "tern/core/ops/image/patches.h"

#include "tern/core/ops/image/grid_sample.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

/// [batch, channels, height, width] of random size.
Tensor random_image(std::mt19937_64& random, Generator& generator, DType dtype = float64) {
  const auto size = [&](int64_t most) { return static_cast<int64_t>(1 + random() % static_cast<uint64_t>(most)); };
  return randn({size(3), size(4), size(9), size(9)}, generator, {.dtype = dtype});
}

TEST(Patches, UnfoldAgainstLoops) {
  std::mt19937_64 random = fresh_random();
  Generator generator = fresh_generator();
  for (int round = 0; round < 30; ++round) {
    const auto below = [&](uint64_t most) { return static_cast<int64_t>(random() % most); };
    const Tensor x = random_image(random, generator, round % 2 ? float64 : bfloat16);
    const int64_t kh = 1 + below(3), kw = 1 + below(3), dilation = 1 + below(2), padding = below(3),
                  stride = 1 + below(3);
    const int64_t oh = (x.size(2) + 2 * padding - dilation * (kh - 1) - 1) / stride + 1;
    const int64_t ow = (x.size(3) + 2 * padding - dilation * (kw - 1) - 1) / stride + 1;
    if (x.size(2) + 2 * padding < dilation * (kh - 1) + 1 || x.size(3) + 2 * padding < dilation * (kw - 1) + 1)
      continue;
    const UnfoldOptions options{dilation, padding, stride};
    const std::vector<double> values = x.to_vector<double>();
    std::vector<double> expected, counts(values.size(), 0);
    for (int64_t n = 0; n < x.size(0); ++n)
      for (int64_t c = 0; c < x.size(1); ++c)
        for (int64_t k = 0; k < kh * kw; ++k)
          for (int64_t l = 0; l < oh * ow; ++l) {
            const int64_t i = l / ow * stride - padding + k / kw * dilation,
                          j = l % ow * stride - padding + k % kw * dilation;
            const bool inside = i >= 0 && j >= 0 && i < x.size(2) && j < x.size(3);
            const auto at = static_cast<size_t>(((n * x.size(1) + c) * x.size(2) + i) * x.size(3) + j);
            expected.push_back(inside ? values[at] : 0);
            if (inside) ++counts[at];
          }
    for (const Tensor& given : {x, x.channels_last(), x.transpose(2, 3).contiguous().transpose(2, 3)}) {
      const Tensor columns = unfold(given, {kh, kw}, options);
      ASSERT_EQ(columns.shape(), (Shape{x.size(0), x.size(1) * kh * kw, oh * ow}));
      expect_near(columns, expected, 0);
    }
    // Each pixel comes back as often as windows hold it.
    expect_near(fold(ones({x.size(0), x.size(1) * kh * kw, oh * ow}), {x.size(2), x.size(3)}, {kh, kw}, options),
                counts, 0);
  }
}

TEST(Patches, DerivativesOfBothOrders) {
  Generator generator = fresh_generator();
  const auto check = [&](const Shape& shape, const TensorOp& op) {
    gradcheck(op, {randn(shape, generator, {.dtype = float64}).detach().set_requires_grad(true)}, {.second = true});
  };
  check({2, 2, 4, 5}, [](const Tensors& in) { return square(unfold(in[0], {2, 3}, {.padding = 1, .stride = 2})); });
  check({1, 8, 6}, [](const Tensors& in) { return square(fold(in[0], {3, 4}, 2)); });
  check({2, 8, 2, 3}, [](const Tensors& in) { return square(pixel_shuffle(in[0], 2)); });
  check({2, 2, 4, 6}, [](const Tensors& in) { return square(pixel_unshuffle(in[0].channels_last(), 2)); });
  check({2, 6, 3}, [](const Tensors& in) { return square(channel_shuffle(in[0], 2)); });
  const Tensor indices = from_vector(std::vector<int64_t>{3, 0, 5, 2, 4, 1}, {1, 2, 3});
  check({1, 2, 3}, [&](const Tensors& in) { return square(max_unpool1d(in[0], indices, 2)); });
  check({2, 2, 5}, [](const Tensors& in) { return lp_pool1d(square(in[0]) + 0.5, 3, 2); });
}

TEST(Patches, PixelsGoThereAndBack) {
  std::mt19937_64 random = fresh_random();
  Generator generator = fresh_generator();
  for (int round = 0; round < 20; ++round) {
    const int64_t factor = 1 + static_cast<int64_t>(random() % 3);
    const Tensor x = round == 0 ? zeros({0, 4, 2, 3}) : random_image(random, generator, float32);
    const Tensor wide = x.expand({x.size(0), x.size(1), x.size(2), x.size(3)}).contiguous();
    const Tensor many = cat(std::vector<Tensor>(static_cast<size_t>(factor * factor), wide), 1);
    for (const Tensor& given : {many, many.channels_last()}) {
      const Tensor up = pixel_shuffle(given, factor);
      expect_equal(pixel_unshuffle(up, factor), given);
      EXPECT_EQ(up.is_channels_last() || up.is_contiguous(), true);
      expect_equal(channel_shuffle(channel_shuffle(given, factor), many.size(1) / factor), given);
    }
  }
  const Tensor integers = arange(0, 16).reshape({1, 4, 2, 2});
  expect_equal(pixel_shuffle(integers, 2)[0][0].select(0, 0), from_vector(std::vector<int64_t>{0, 4, 1, 5}, {4}));
}

TEST(Patches, UnpoolingIsTheInverseOfPooling) {
  Generator generator = fresh_generator();
  const Tensor x = randn({2, 3, 7, 8}, generator);
  const MaxPoolResult pooled = max_pool2d_with_indices(x, {2, 3}, {.stride = 3});
  const Tensor y = max_unpool2d(pooled.values, pooled.indices, {2, 3}, {.stride = 3, .size = {7, 8}});
  EXPECT_TRUE(y.is_channels_last());
  expect_equal(where(y == 0.0, x, y), x);
  EXPECT_EQ(count_nonzero(y).item<int64_t>(), pooled.values.numel());
}

/// PyTorch's numbers (2.15) where pooling's windows overlap: both values of 9 get the gradient of its place.
TEST(Patches, UnpoolingOfOverlappingWindows) {
  const Tensor x = from_vector(std::vector<float>{1, 5, 2, 9, 3, 0, 4}, {1, 1, 7}).set_requires_grad(true);
  const MaxPoolResult pooled = max_pool1d_with_indices(x, 3, {.stride = 2, .padding = 1});
  const Tensor y = max_unpool1d(pooled.values, pooled.indices, 3, {.stride = 2, .padding = 1});
  expect_equal(y.detach(), from_vector(std::vector<float>{0, 5, 0, 9, 0, 0, 4}, {1, 1, 7}));
  sum(y * arange(1, 8).to(float32)).backward();
  expect_equal(x.grad(), from_vector(std::vector<float>{0, 2, 0, 8, 0, 0, 7}, {1, 1, 7}));
}

TEST(GridSample, TheIdentityGivesTheImage) {
  std::mt19937_64 random = fresh_random();
  Generator generator = fresh_generator();
  for (int round = 0; round < 20; ++round) {
    const Tensor x = random_image(random, generator);
    const bool aligned = random() % 2;
    const Tensor theta =
        cat({eye(2, {.dtype = float64}), zeros({2, 1}, {.dtype = float64})}, 1).expand({x.size(0), 2, 3});
    const Tensor grid = affine_grid(theta, x.shape(), aligned);
    for (const GridSampleMode mode : {GridSampleMode::kLinear, GridSampleMode::kNearest, GridSampleMode::kCubic})
      for (const GridPadding padding : {GridPadding::kZeros, GridPadding::kBorder, GridPadding::kReflection}) {
        // One pixel has no distance between its corners.
        if (aligned && (x.size(2) == 1 || x.size(3) == 1) && mode != GridSampleMode::kNearest) continue;
        expect_near(grid_sample(x, grid, {mode, padding, aligned}), x, 1e-12);
        EXPECT_TRUE(grid_sample(x.channels_last(), grid, {mode, padding, aligned}).is_channels_last());
      }
  }
}

TEST(GridSample, DerivativesOfBothOrders) {
  Generator generator = fresh_generator();
  const auto check = [&](const Shape& image, const Shape& places, const GridSampleOptions& options) {
    const Tensor x = randn(image, generator, {.dtype = float64});
    // Away from whole pixels, where the slope changes.
    const Tensor steps = rand(places, generator, {.dtype = float64}) * 0.1 + 0.2;
    const Tensor grid = (floor(rand(places, generator, {.dtype = float64}) * 3) + steps) * 0.5 - 0.8;
    gradcheck([&](const Tensors& in) { return square(grid_sample(in[0], in[1], options)); },
              {x.detach().set_requires_grad(true), grid.detach().set_requires_grad(true)}, {.second = true});
  };
  const auto linear = GridSampleMode::kLinear;
  check({2, 2, 5, 5}, {2, 2, 3, 2}, {linear, GridPadding::kZeros, true});
  check({1, 2, 5, 5}, {1, 2, 3, 2}, {linear, GridPadding::kReflection, true});
  check({1, 2, 5, 5}, {1, 2, 2, 2}, {GridSampleMode::kCubic, GridPadding::kBorder, true});
  check({1, 2, 5, 5, 5}, {1, 2, 2, 1, 3}, {linear, GridPadding::kZeros, true});
  gradcheck(
      [](const Tensors& in) {
        return square(affine_grid(in[0], Shape{2, 1, 3, 2}));
      },
      {randn({2, 2, 3}, generator, {.dtype = float64}).detach().set_requires_grad(true)}, {.second = true});
}

/// Places that no index can express, and pixels that are not finite next to a place of weight 0.
TEST(GridSample, WhatIsNotFinite) {
  Tensor x = ones({1, 1, 3, 3});
  const double inf = INFINITY;
  const Tensor grid = tensor({NAN, 0, inf, 0, 0, -inf, 1e30, 0, 0, 0}).reshape({1, 1, 5, 2});
  for (const GridSampleMode mode : {GridSampleMode::kLinear, GridSampleMode::kNearest, GridSampleMode::kCubic}) {
    expect_near(grid_sample(x, grid, {mode}).flatten(), tensor({0, 0, 0, 0, 1}), 1e-6);
    EXPECT_TRUE(all_finite(grid_sample(x, grid, {mode, GridPadding::kReflection})));
  }
  x[0][0][0].fill_(INFINITY);
  const Tensor outside = tensor({0, -3}).reshape({1, 1, 1, 2});
  expect_near(grid_sample(x, outside).flatten(), tensor({0}), 0);
}

TEST(Patches, WhatIsRefused) {
  const Tensor x = ones({2, 4, 5, 6});
  expect_error([&] { unfold(x, 7); }, {"unfold: a window of 7 rows does not fit into 5"});
  expect_error([&] { unfold(x, 0); }, {"unfold: kernel must be at least 1"});
  expect_error([&] { unfold(x, 2, {.dilation = 0}); }, {"dilation must be at least 1"});
  expect_error([&] { unfold(x, 2, {.padding = -1}); }, {"padding must be at least 0"});
  expect_error([&] { unfold(ones({2, 3}), 2); }, {"unfold: x must be floating [batch, channels, height, width]"});
  expect_error([&] { unfold(x.to(int64), 2); }, {"unfold: x must be floating"});
  expect_error([&] { fold(ones({2, 9, 4}), {3, 3}, 2); }, {"fold: the 4 elements of the kernel must divide"});
  expect_error([&] { fold(ones({2, 8, 5}), {3, 3}, 2); }, {"have 4 windows, which dimension -1 of [2, 8, 5] must be"});
  expect_error([&] { fold(ones({2, 8, 4}), {3, 0}, 2); }, {"fold: size must be at least 1"});
  expect_error([&] { pixel_shuffle(x, 3); }, {"pixel_shuffle: the factor (3) squared must divide the channels"});
  expect_error([&] { pixel_unshuffle(x, 2); }, {"pixel_unshuffle: the factor (2) must divide height and width"});
  expect_error([&] { pixel_shuffle(x, 0); }, {"the factor must be at least 1"});
  expect_error([&] { channel_shuffle(x, 3); }, {"groups (3) must be at least 1 and divide the channels"});
  const Tensor indices = zeros({2, 4, 5, 6}, {int64});
  expect_error(
      [&] {
        max_unpool2d(x, zeros({2, 4}, {int64}), 2);
      },
      {"max_unpool2d: indices must be int64 [2, 4, 5, 6]"});
  expect_error(
      [&] {
        max_unpool2d(x, indices, 2, {.size = {10, 14}});
      },
      {"size 1 must be within less than the stride (2) of 12"});
  expect_error([&] { max_unpool2d(x, indices + 120, 2); }, {"max_unpool2d: index 120"});
  expect_error([&] { max_unpool2d(x, indices, 2, {.size = 10}); }, {"size must have 2 numbers"});
  expect_error([&] { lp_pool2d(x, 0, 2); }, {"the power must be a finite number and not 0"});
  expect_error(
      [&] {
        grid_sample(x, ones({2, 3, 3, 3}));
      },
      {"grid_sample: the grid must be floating [2, 2 dimensions"});
  expect_error([&] { grid_sample(x, ones({1, 3, 3, 2})); }, {"grid_sample: the grid must be floating [2,"});
  expect_error([&] { grid_sample(ones({2, 4, 0, 3}), ones({2, 3, 3, 2})); }, {"are empty"});
  expect_error(
      [&] {
        grid_sample(ones({2, 4, 2, 2, 3}), ones({2, 3, 3, 1, 3}), {GridSampleMode::kCubic});
      },
      {"kCubic takes two spatial dimensions"});
  expect_error(
      [&] {
        affine_grid(ones({2, 2, 2}), Shape{2, 1, 3, 3});
      },
      {"affine_grid: theta must be floating [2, 2, 3]"});
  expect_error([&] { affine_grid(ones({2, 2, 3}), Shape{2, 3, 3}); }, {"affine_grid: size must be"});
}

}  // namespace
}  // namespace tern::test
