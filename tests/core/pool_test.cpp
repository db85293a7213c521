// Pooling: derivatives and what is refused. The numbers are compared with PyTorch's in convolutions_golden_test.cpp,
// the kernels with plain loops in tests/kernels.

#include "tern/core/ops/pool.h"

#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

TEST(Pool, DerivativesOfBothOrders) {
  Generator generator = fresh_generator();
  const auto check = [&](const TensorOp& op, const Shape& shape) {
    SCOPED_TRACE(testing::Message() << shape);
    // Distinct values, so that no difference passes from one maximum to another.
    const Tensor x = randperm(shape.numel(), generator).to(float64).reshape(shape.vec()) * 0.1;
    gradcheck(op, {x.detach().set_requires_grad(true)}, {.second = true});
  };
  check([](const Tensors& in) { return square(max_pool1d(in[0], 3, {.stride = 2, .padding = 1})); }, {2, 3, 7});
  check(
      [](const Tensors& in) {
        return square(max_pool2d(in[0], {2, 3}, {.stride = 1, .dilation = {2, 1}}));
      },
      {2, 2, 5, 4});
  check([](const Tensors& in) { return square(adaptive_max_pool2d(in[0], {2, 3})); }, {3, 5, 4});
  check([](const Tensors& in) { return square(avg_pool2d(in[0], 3, {.stride = 2, .padding = 1, .ceil_mode = true})); },
        {2, 3, 4, 6});
  check(
      [](const Tensors& in) {
        return square(avg_pool3d(in[0], 2, {.stride = 1, .padding = 1, .count_include_pad = false}));
      },
      {1, 2, 2, 3, 2});
  check([](const Tensors& in) { return square(adaptive_avg_pool1d(in[0], 4)); }, {2, 2, 7});
}

TEST(Pool, IndicesAreThoseOfTheValues) {
  Generator generator = fresh_generator();
  const Tensor x = randn({2, 3, 9, 7}, generator);
  const MaxPoolResult result = max_pool2d_with_indices(x, 3, {.stride = 2, .padding = 1});
  EXPECT_EQ(result.indices.dtype(), int64);
  expect_equal(gather(x.flatten(2), 2, result.indices.flatten(2)).reshape(result.values.shape()), result.values);
  EXPECT_TRUE(result.values.is_channels_last());
}

TEST(Pool, WhatIsRefused) {
  const Tensor x = ones({2, 4, 5, 6});
  expect_error([&] { max_pool2d(ones({4, 5}), 2); }, {"max_pool2d: x must be [batch, channels, 2 spatial dimensions]"});
  expect_error([&] { avg_pool2d(x.to(int64), 2); }, {"avg_pool2d: x must be floating, got int64"});
  expect_error([&] { max_pool2d(ones({2, 4, 0, 6}), 2); }, {"a spatial dimension of x is empty: [2, 4, 0, 6]"});
  expect_error([&] { max_pool2d(x, 0); }, {"kernel must be at least 1"});
  expect_error([&] { max_pool2d(x, 2, {.stride = 0}); }, {"stride must be at least 1"});
  expect_error([&] { avg_pool2d(x, 2, {.padding = 2}); }, {"padding (2) must be at most half of the kernel (2)"});
  expect_error([&] { max_pool2d(x, 6); },
               {"the window reaches over 6 elements of dimension 2, more than the padded input has: 5"});
  expect_error([&] { max_pool2d(x, 2, {.dilation = 5}); }, {"the window reaches over 6 elements of dimension 2"});
  expect_error([&] { max_pool2d(x, {2, 2, 2}); }, {"kernel has 3 numbers, expected one, or one for each of the 2"});
  expect_error([&] { adaptive_avg_pool2d(x, {2, -2}); }, {"a size must be at least 0, or -1 for that of x, got -2"});
  EXPECT_EQ(adaptive_avg_pool2d(x, {-1, 2}).shape(), (Shape{2, 4, 5, 2}));
  EXPECT_EQ(max_pool2d(ones({0, 4, 5, 6}), 2).shape(), (Shape{0, 4, 2, 3}));
}

}  // namespace
}  // namespace tern::test
