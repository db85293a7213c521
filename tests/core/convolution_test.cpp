// Convolutions: derivatives, order in memory, and what is refused. The numbers are compared with PyTorch's in
// convolutions_golden_test.cpp, the kernels with plain sums in tests/kernels.

#include "tern/core/ops/convolution/convolution.h"

#include "tern/core/autograd/autocast.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

const TensorOptions kDouble{.dtype = float64};

Tensor leaf(const Shape& shape, Generator& generator) {
  return randn(shape, generator, kDouble).set_requires_grad(true);
}

TEST(Convolution, DerivativesOfBothOrders) {
  Generator generator = fresh_generator();
  const auto check = [&](const TensorOp& op, const Shape& x, const Shape& weight, int64_t out) {
    SCOPED_TRACE(testing::Message() << x << ", " << weight);
    gradcheck(op, {leaf(x, generator), leaf(weight, generator), leaf({out}, generator)}, {.second = true});
  };
  check([](const Tensors& in) { return conv1d(in[0], in[1], in[2], {.stride = 2, .padding = 1}); }, {2, 3, 5},
        {2, 3, 3}, 2);
  check(
      [](const Tensors& in) {
        return conv2d(in[0], in[1], in[2], {.padding = {1, 0}, .dilation = {2, 1}, .groups = 2});
      },
      {2, 4, 4, 3}, {2, 2, 2, 3}, 2);
  check([](const Tensors& in) { return conv2d(in[0], in[1], in[2], {.same = true}); }, {3, 4, 3}, {2, 3, 2, 3}, 2);
  check([](const Tensors& in) { return conv3d(in[0], in[1], in[2]); }, {1, 2, 2, 3, 3}, {2, 2, 2, 1, 2}, 2);
  check(
      [](const Tensors& in) {
        return conv_transpose2d(in[0], in[1], in[2], {.stride = {2, 1}, .padding = 1, .output_padding = {1, 0}});
      },
      {2, 2, 3, 3}, {2, 2, 2, 3}, 2);
}

TEST(Convolution, ThirdDerivative) {
  Generator generator = fresh_generator();
  const Tensor x = leaf({1, 2, 3, 3}, generator), weight = leaf({2, 2, 2, 2}, generator);
  // y is linear in both, and sum(y^3) has third derivatives: compared with differences of the second.
  gradcheck(
      [](const Tensors& in) {
        const Tensor y = conv2d(in[0], in[1]);
        const Tensor first = grad({sum(y * y * y)}, {in[0]}, {.create_graph = true})[0];
        return grad({sum(first * first)}, {in[1]}, {.create_graph = true})[0];
      },
      {x, weight});
}

/// The layout of the input decides no bit of the result, and results have their channels last.
TEST(Convolution, OrderInMemory) {
  Generator generator = fresh_generator();
  const Tensor x = randn({3, 5, 6, 7}, generator), weight = randn({4, 5, 3, 3}, generator), last = x.channels_last();
  EXPECT_FALSE(x.is_channels_last());
  EXPECT_TRUE(last.is_channels_last());
  EXPECT_FALSE(last.is_contiguous());
  expect_equal(last, x);
  const auto run = [&](const Tensor& input) {
    const Tensor a = input.detach().set_requires_grad(true), w = weight.clone().set_requires_grad(true);
    const Tensor y = conv2d(a, w, {}, {.padding = 1});
    EXPECT_TRUE(y.is_channels_last() && !y.is_contiguous());
    const Tensor z = relu(y) * 2.0 + y;
    EXPECT_TRUE(z.is_channels_last() && !z.is_contiguous());
    sum(z * z).backward();
    EXPECT_TRUE(w.grad().is_contiguous());
    return Tensors{y, z, a.grad(), w.grad()};
  };
  const Tensors from_rows = run(x), from_last = run(last);
  for (size_t i = 0; i < from_rows.size(); ++i) expect_equal(from_last[i], from_rows[i]);
}

TEST(Convolution, ChannelsLastIsSeenWhateverTheSizes) {
  Generator generator = fresh_generator();
  for (const Shape& shape : std::vector<Shape>{
           {2, 1, 3, 4}, {1, 3, 4, 5}, {2, 3, 1, 1}, {2, 3, 4}, {1, 2, 3, 4, 5}, {0, 3, 2, 2}, {2, 0, 3, 3}}) {
    const Tensor x = randn(shape, generator), last = x.channels_last();
    EXPECT_TRUE(last.is_channels_last()) << shape;
    expect_equal(last, x);
    EXPECT_EQ(last.movedim(1, -1).is_contiguous(), true) << shape;
    expect_equal(exp(last), exp(x));
  }
  EXPECT_FALSE(randn({3, 4}, generator).is_channels_last());
  expect_error(
      [&] {
        randn({3, 4}, generator).channels_last();
      },
      {"channels_last: expected [batch, channels, spatial...], got [3, 4]"});
}

/// Gradients come in the dtype of the weight and the bias that autocast cast.
TEST(Convolution, Autocast) {
  Generator generator = fresh_generator();
  const Tensor x = randn({2, 16, 5, 5}, generator);
  Tensor weight = randn({16, 16, 3, 3}, generator).set_requires_grad(true);
  Tensor bias = randn({16}, generator).set_requires_grad(true);
  const auto run = [&](DType dtype, bool transposed) {
    const Tensor y = autocast(cpu, dtype, [&] {
      return transposed ? conv_transpose2d(x, weight, bias, {.stride = 2}) : conv2d(x, weight, bias);
    });
    EXPECT_EQ(y.dtype(), dtype);
    sum(square(y.to(float32))).backward();
    Tensors result = {y.detach().to(float32), weight.grad(), bias.grad()};
    weight.set_grad({});
    bias.set_grad({});
    return result;
  };
  for (const bool transposed : {false, true})
    for (const DType dtype : {bfloat16, float16}) {
      const Tensors wide = run(float32, transposed), low = run(dtype, transposed);
      for (size_t i = 0; i < wide.size(); ++i) {
        ASSERT_TRUE(low[i].defined()) << i << ", transposed " << transposed;
        EXPECT_EQ(low[i].dtype(), float32);
        const Tensor error = sqrt(sum(square(low[i] - wide[i])) / sum(square(wide[i])));
        EXPECT_LT(error.item<double>(), 0.02) << i << ", transposed " << transposed;
      }
    }
}

TEST(Convolution, EmptyBatch) {
  const Tensor x = zeros({0, 3, 5, 5}).set_requires_grad(true), weight = ones({2, 3, 3, 3}).set_requires_grad(true);
  const Tensor y = conv2d(x, weight, ones({2}));
  EXPECT_EQ(y.shape(), (Shape{0, 2, 3, 3}));
  sum(y).backward();
  EXPECT_EQ(x.grad().shape(), x.shape());
  EXPECT_EQ(sum(abs(weight.grad())).item<double>(), 0);
}

TEST(Convolution, WhatIsRefused) {
  const Tensor x = ones({2, 4, 5, 5}), weight = ones({6, 4, 3, 3});
  expect_error([&] { conv2d(ones({4, 5}), weight); }, {"conv2d: x must be [batch, channels, 2 spatial dimensions]"});
  expect_error([&] { conv1d(x, weight); }, {"conv1d: x must be"});
  expect_error([&] { conv2d(x, ones({6, 4, 3})); }, {"conv2d: weight must have 4 dimensions, got [6, 4, 3]"});
  expect_error(
      [&] {
        conv2d(x, ones({6, 3, 3, 3}));
      },
      {"x has 4 channels and the weight is for 3", "the weight's dimension 1 must be 4"});
  expect_error([&] { conv2d(x, weight, {}, {.groups = 3}); },
               {"groups (3) must divide the channels of input (4) and output (6)"});
  expect_error([&] { conv2d(x, weight, {}, {.groups = 0}); }, {"groups must be at least 1, got 0"});
  expect_error([&] { conv2d(x, weight, ones({5})); }, {"bias is [5], expected [6]"});
  expect_error([&] { conv2d(x, weight.to(float64)); }, {"they must be of one floating dtype"});
  expect_error([&] { conv2d(x.to(int64), weight.to(int64)); }, {"they must be of one floating dtype"});
  expect_error([&] { conv2d(x, weight, {}, {.stride = 0}); }, {"stride must be at least 1"});
  expect_error([&] { conv2d(x, weight, {}, {.padding = -1}); }, {"padding must be at least 0"});
  expect_error([&] { conv2d(x, weight, {}, {.dilation = {1, 0}}); }, {"dilation must be at least 1"});
  expect_error(
      [&] {
        conv2d(x, weight, {}, {.stride = {1, 2, 3}});
      },
      {"stride has 3 numbers, expected one, or one for each of the 2"});
  expect_error([&] { conv2d(x, ones({6, 4, 3, 7})); }, {"the kernel reaches over 7 elements of dimension 3"});
  expect_error([&] { conv2d(x, weight, {}, {.dilation = 3}); },
               {"(size 3, dilation 3), more than the padded input has: 5"});
  expect_error([&] { conv2d(x, weight, {}, {.stride = 2, .same = true}); }, {"`same` needs a stride of 1, got 2"});
  expect_error([&] { conv2d(x, ones({6, 4, 0, 3})); }, {"has an empty kernel"});
  expect_error(
      [&] {
        conv_transpose2d(x, ones({3, 4, 3, 3}));
      },
      {"the weight's dimension 0 must be the channels of x, 4"});
  expect_error(
      [&] {
        conv_transpose2d(x, ones({4, 2, 3, 3}), {}, {.output_padding = 1});
      },
      {"output_padding (1) must be smaller than stride (1)"});
  expect_error(
      [&] {
        conv_transpose2d(x, ones({4, 2, 3, 3}), {}, {.padding = 4});
      },
      {"dimension 2 of the result would have -1 elements"});
}

}  // namespace
}  // namespace tern::test
