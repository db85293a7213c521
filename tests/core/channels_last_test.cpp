// Ops that give their results the channels last in memory where their input has them so, and that the numbers do not
// show it.

#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

/// op of an image in either order: the numbers are the same, and so is the gradient.
void expect_kept(const char* name, const TensorOp& op) {
  SCOPED_TRACE(name);
  Generator generator = fresh_generator();
  const Tensor x = randn({2, 3, 5, 4}, generator);
  Tensor leaf = x.detach().set_requires_grad(true), other = x.detach().set_requires_grad(true);
  const Tensor y = op({leaf}), last = op({other.channels_last()});
  EXPECT_TRUE(y.is_contiguous());
  EXPECT_TRUE(last.is_channels_last()) << last.shape();
  expect_near(last, y, 1e-6);  // sums may be in another order
  const Tensor dy = randn(y.shape(), generator);
  y.backward(dy);
  last.backward(dy.channels_last());
  expect_near(leaf.grad(), other.grad(), 1e-5);  // sums in another order
}

TEST(ChannelsLast, OpsKeepTheOrder) {
  expect_kept("pad", [](const Tensors& in) { return pad(in[0], {1, 2, 0, 1}); });
  expect_kept("pad of channels", [](const Tensors& in) {
    return pad(in[0], {0, 0, 0, 0, 2, 1}, PadMode::kConstant, 3);
  });
  expect_kept("reflection", [](const Tensors& in) { return pad(in[0], {1, 2, 3, 1}, PadMode::kReflect); });
  expect_kept("edges", [](const Tensors& in) { return pad(in[0], {1, 2, 3, 1}, PadMode::kReplicate); });
  expect_kept("flip", [](const Tensors& in) { return flip(in[0], {1, 3}); });
  expect_kept("roll", [](const Tensors& in) { return roll(in[0], {1, 2}, {2, 3}); });
  for (const int dim : {0, 1, 2, 3})
    expect_kept("cat", [=](const Tensors& in) { return cat({in[0], in[0] * 2.0, in[0].narrow(dim, 0, 1)}, dim); });
  expect_kept("to float64", [](const Tensors& in) { return in[0].to(float64); });
  expect_kept("to bfloat16", [](const Tensors& in) { return in[0].to(bfloat16).to(float32); });
  expect_kept("sum of the batch", [](const Tensors& in) { return sum(in[0], {0}, true); });
  expect_kept("largest of the batch", [](const Tensors& in) { return max(in[0], {0}, true); });
  expect_kept("mean of the channels", [](const Tensors& in) { return mean(in[0], {1}, true); });
  // Expanding an input to the shape of the result does not make it an image with its channels last.
  expect_kept("add to an expanded", [](const Tensors& in) { return ones({1, 3, 1, 1}).expand({2, 3, 5, 4}) + in[0]; });
}

TEST(ChannelsLast, CatTakesTensorsOfOtherOrders) {
  Generator generator = fresh_generator();
  const Tensor a = randn({2, 3, 4, 5}, generator), b = randn({2, 6, 4, 5}, generator);
  const Tensor expected = cat({a, b}, 1);
  expect_equal(cat({a.channels_last(), b}, 1), expected);
  expect_equal(cat({a, b.channels_last()}, 1), expected);
  expect_equal(cat({a.channels_last(), b.transpose(2, 3).contiguous().transpose(2, 3)}, 1), expected);
  EXPECT_EQ(cat({a.channels_last(), zeros({2, 0, 4, 5})}, 1).shape(), a.shape());
}

TEST(ChannelsLast, MasksOfDropoutDoNotDependOnIt) {
  Generator generator = fresh_generator(), first(11), second(11);
  const Tensor x = randn({2, 3, 5, 4}, generator);
  const Tensor y = dropout(x, {.p = 0.4, .generator = &first}),
               last = dropout(x.channels_last(), {.p = 0.4, .generator = &second});
  EXPECT_TRUE(last.is_channels_last());
  expect_equal(last, y);
}

/// The gradient of a mean is a number for all elements, which has no order; what follows takes that of the images.
TEST(ChannelsLast, GradientsOfLossesHaveTheOrderOfTheImages) {
  Generator generator = fresh_generator();
  const Tensor x = randn({2, 3, 5, 4}, generator).channels_last(),
               target = randn({2, 3, 5, 4}, generator).channels_last();
  const auto check = [&](const TensorOp& loss) {
    Tensor leaf = x.detach().set_requires_grad(true);
    Tensor hidden = leaf * 2.0;
    bool last = false;
    hidden.register_hook([&](const Tensor& gradient) {
      last = gradient.is_channels_last();
      return Tensor();
    });
    loss({hidden, target}).backward();
    EXPECT_TRUE(last);
  };
  check([](const Tensors& in) { return mse_loss(in[0], in[1]); });
  check([](const Tensors& in) { return l1_loss(in[0], in[1]); });
  check([](const Tensors& in) { return smooth_l1_loss(in[0], in[1]); });
  check([](const Tensors& in) { return sum(square(in[0])); });
}

}  // namespace
}  // namespace tern::test
