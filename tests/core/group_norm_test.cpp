// Norms of images: derivatives, the order in memory and what is refused. The numbers are compared with PyTorch's in
// image_ops_golden_test.cpp, the kernels with plain loops in tests/kernels.

#include "tern/core/ops/norm/group_norm.h"

#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

TEST(GroupNorm, DerivativesOfBothOrders) {
  Generator generator = fresh_generator();
  const auto leaf = [&](const Shape& shape) {
    return randn(shape, generator, {.dtype = float64}).detach().set_requires_grad(true);
  };
  for (const bool last : {false, true}) {
    const auto ordered = [&](const Tensor& x) { return last ? x.channels_last() : x; };
    gradcheck([&](const Tensors& in) { return square(group_norm(ordered(in[0]), 2, in[1], in[2], 0.1)); },
              {leaf({2, 4, 3, 2}), leaf({4}), leaf({4})}, {.second = true});
    gradcheck(
        [&](const Tensors& in) { return square(instance_norm(ordered(in[0]), {}, {}, in[1], in[2], {.eps = 0.1})); },
        {leaf({2, 3, 5}), leaf({3}), leaf({3})}, {.second = true});
    gradcheck([&](const Tensors& in) { return local_response_norm(ordered(in[0]), 3, {.alpha = 0.5}); },
              {leaf({2, 5, 2, 3})}, {.second = true});
  }
  const Tensor mean = randn({3}, generator, {.dtype = float64}), var = rand({3}, generator, {.dtype = float64}) + 0.5;
  gradcheck(
      [&](const Tensors& in) { return square(instance_norm(in[0], mean, var, in[1], {}, {.use_input_stats = false})); },
      {leaf({2, 3, 4}), leaf({3})}, {.second = true});
}

TEST(GroupNorm, ResultsKeepTheOrderOfMemory) {
  Generator generator = fresh_generator();
  const Tensor x = randn({2, 6, 4, 5}, generator), last = x.channels_last();
  EXPECT_TRUE(group_norm(last, 3).is_channels_last());
  EXPECT_TRUE(group_norm(x, 3).is_contiguous());
  EXPECT_TRUE(instance_norm(last).is_channels_last());
  EXPECT_TRUE(local_response_norm(last, 3).is_channels_last());
  // Other orders, too.
  const Tensor turned = x.transpose(2, 3);
  expect_near(group_norm(turned, 3), group_norm(turned.contiguous(), 3), 0);
}

TEST(GroupNorm, SixteenBitsWithWeightsOfEitherType) {
  Generator generator = fresh_generator();
  const Tensor x = randn({3, 8, 5, 4}, generator).to(bfloat16), weight = rand({8}, generator) + 0.5;
  const Tensor expected = group_norm(x.to(float32), 4, weight.to(bfloat16).to(float32));
  for (const DType dtype : {bfloat16, float32}) {
    const Tensor y = group_norm(x, 4, weight.to(bfloat16).to(dtype));
    EXPECT_EQ(y.dtype(), bfloat16);
    expect_near(y.to(float32), expected, 0x1p-8 * 6);
  }
}

TEST(GroupNorm, EmptyBatches) {
  Tensor x = zeros({0, 4, 3, 3}), weight = ones({4});
  weight.set_requires_grad(true);
  EXPECT_EQ(group_norm(x, 2, weight).shape(), (Shape{0, 4, 3, 3}));
  sum(group_norm(x, 2, weight)).backward();
  expect_equal(weight.grad(), zeros({4}));
  EXPECT_EQ(instance_norm(x).shape(), (Shape{0, 4, 3, 3}));
  EXPECT_EQ(local_response_norm(x, 2).shape(), (Shape{0, 4, 3, 3}));
}

TEST(GroupNorm, WhatIsRefused) {
  const Tensor x = ones({2, 6, 4, 5});
  expect_error([&] { group_norm(x, 4); }, {"groups (4) must be at least 1 and divide the channels (6)"});
  expect_error([&] { group_norm(x, 0); }, {"groups (0) must be at least 1"});
  expect_error([&] { group_norm(ones({6}), 2); }, {"x must be floating [batch, channels, ...]"});
  expect_error([&] { group_norm(x.to(int64), 2); }, {"x must be floating"});
  expect_error([&] { group_norm(x, 2, ones({5})); }, {"weight must be [6], got [5]"});
  expect_error([&] { group_norm(x, 2, {}, ones({6}, {float64})); }, {"bias must be float32 or float32, got float64"});
  expect_error([&] { group_norm(x, 2, {}, {}, -1); }, {"eps must be a finite number >= 0"});
  expect_error([&] { group_norm(ones({1, 6}), 6); }, {"holds a single number"});
  expect_error([&] { instance_norm(ones({2, 6, 1, 1})); }, {"have one pixel"});
  expect_error([&] { instance_norm(ones({2, 6})); }, {"x must be floating [batch, channels, spatial...]"});
  expect_error([&] { instance_norm(x, ones({5})); }, {"running statistics must be floating [6]"});
  expect_error([&] { instance_norm(x, {}, {}, {}, {}, {.use_input_stats = false}); }, {"are needed"});
  expect_error([&] { local_response_norm(x, 0); }, {"size must be at least 1"});
}

}  // namespace
}  // namespace tern::test
