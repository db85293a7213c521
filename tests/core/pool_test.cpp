// Pooling: derivatives and what is refused. The numbers are compared with PyTorch's in convolutions_golden_test.cpp,
// the kernels with plain loops in tests/kernels.

#include "tern/core/ops/image/pool.h"
#include "tern/core/ops/image/unpool.h"

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

/// Where nothing is recorded the indices are not computed.
TEST(Pool, ValuesAloneAreThoseWithIndices) {
  Generator generator = fresh_generator();
  for (const DType dtype : {float32, float64, bfloat16, float16}) {
    const Tensor x = randn({2, 67, 9, 7}, generator).to(dtype);
    for (const bool batched : {true, false}) {
      const Tensor images = batched ? x : x.select(0, 0);
      const MaxPoolOptions options{.stride = 2, .padding = 1, .dilation = {1, 2}, .ceil_mode = true};
      const Tensor wanted = max_pool2d_with_indices(images, 3, options).values;
      const NoGrad off;
      const Tensor got = max_pool2d(images, 3, options);
      expect_equal(got, wanted);
      EXPECT_TRUE(got.dim() == 3 || got.is_channels_last());
      EXPECT_TRUE(max_pool2d_with_indices(images, 3, options).indices.defined());
      expect_equal(adaptive_max_pool2d(images, {3, 7}), max_pool2d_with_indices(images, {3, 1}).values);
    }
  }
}

/// A kernel of 2 with padding 1 and a dilation larger than the image reads only padding.
TEST(Pool, WindowsWithoutElements) {
  for (const DType dtype : {float32, float64, bfloat16, float16})
    for (int dims = 1; dims <= 3; ++dims) {
      SCOPED_TRACE(testing::Message() << dims << " dimensions, " << dtype);
      std::vector<int64_t> sizes(static_cast<size_t>(dims) + 2, 2), one(sizes.size(), 1);
      sizes[1] = one[1] = 67;
      one[0] = 2;
      const Tensor x = full(Shape(sizes), 3, {.dtype = dtype}).set_requires_grad(true);
      const MaxPoolOptions options{.stride = 1, .padding = 1, .dilation = 3};
      const auto pool = dims == 1   ? max_pool1d_with_indices
                        : dims == 2 ? max_pool2d_with_indices
                                    : max_pool3d_with_indices;
      const MaxPoolResult result = pool(x, 2, options);
      expect_equal(result.values, full(Shape(one), -INFINITY, {.dtype = dtype}));
      expect_equal(result.indices, full(Shape(one), -1, {.dtype = int64}));
      const Tensor dy = ones(result.values.shape(), {.dtype = dtype}).set_requires_grad(true);
      const Tensor dx = grad({result.values}, {x}, {.gradients = {dy}, .create_graph = true})[0];
      expect_equal(dx.detach(), zeros(x.shape(), {.dtype = dtype}));
      expect_equal(grad({dx}, {dy}, {.gradients = {ones(x.shape(), {.dtype = dtype})}})[0],
                   zeros(dy.shape(), {.dtype = dtype}));
    }
  expect_error(
      [] {
        max_unpool2d(ones({1, 1, 1, 1}), full({1, 1, 1, 1}, -1, {.dtype = int64}), 2);
      },
      {"max_unpool2d: index -1 at position 0 is outside [0, 4)"});
  // Empty along one dimension is empty.
  const MaxPoolResult rows =
      max_pool2d_with_indices(ones({1, 1, 2, 9}), 2, {.stride = 1, .padding = 1, .dilation = {3, 1}});
  expect_equal(rows.values, full({1, 1, 1, 10}, -INFINITY));
  expect_equal(rows.indices, full({1, 1, 1, 10}, -1, {.dtype = int64}));
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
