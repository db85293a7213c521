// Convolutions and poolings as modules: what they add to their functions, which are parameters, padding modes and
// names.

#include "tern/nn/nn.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

nn::Scope scope() { return nn::Scope({.generator = fresh_generator()}); }

TEST(Conv, ParametersHavePyTorchsShapesAndBounds) {
  const nn::Conv2d conv(scope(), 6, 8, {3, 2}, {.groups = 2});
  EXPECT_EQ(conv.weight().shape(), (Shape{8, 3, 3, 2}));
  EXPECT_EQ(conv.bias().shape(), Shape{8});
  EXPECT_EQ(conv.type_name(), "Conv2d");
  const double bound = 1 / std::sqrt(18.0);
  EXPECT_LE(max(abs(conv.weight())).item<double>(), bound);
  EXPECT_GT(max(abs(conv.weight())).item<double>(), 0.9 * bound);
  EXPECT_LE(max(abs(conv.bias())).item<double>(), bound);
  const nn::ConvTranspose1d up(scope(), 6, 8, 5, {.groups = 2, .bias = false});
  EXPECT_EQ(up.weight().shape(), (Shape{6, 4, 5}));
  EXPECT_FALSE(up.bias().defined());
  EXPECT_LE(max(abs(up.weight())).item<double>(), 1 / std::sqrt(20.0));
}

TEST(Conv, OptionsReachTheFunction) {
  Generator generator = fresh_generator();
  const Tensor x = randn({2, 4, 9, 8}, generator);
  const nn::Conv2d conv(scope(), 4, 6, 3, {.stride = {2, 1}, .padding = 1, .dilation = {1, 2}, .groups = 2});
  expect_equal(conv.forward(x), conv2d(x, conv.weight(), conv.bias(),
                                       {.stride = {2, 1}, .padding = 1, .dilation = {1, 2}, .groups = 2}));
  const nn::Conv2d same(scope(), 4, 6, {2, 3}, {.same = true});
  EXPECT_EQ(same.forward(x).shape(), (Shape{2, 6, 9, 8}));
  const nn::ConvTranspose2d up(scope(), 4, 6, 3, {.stride = 2, .padding = 1, .output_padding = {1, 0}, .groups = 2});
  expect_equal(up.forward(x), conv_transpose2d(x, up.weight(), up.bias(),
                                               {.stride = 2, .padding = 1, .output_padding = {1, 0}, .groups = 2}));
  const nn::Conv1d line(scope(), 4, 3, 3);
  expect_equal(line.forward(x[0][0].unsqueeze(0).expand({4, 9, 8}).select(1, 0)),
               conv1d(x[0][0].unsqueeze(0).expand({4, 9, 8}).select(1, 0), line.weight(), line.bias()));
  const nn::Conv3d volume(scope(), 1, 2, 2);
  EXPECT_EQ(volume.forward(x.unsqueeze(1)).shape(), (Shape{2, 2, 3, 8, 7}));
}

TEST(Conv, PaddingModes) {
  Generator generator = fresh_generator();
  const Tensor x = randn({2, 3, 6, 5}, generator);
  for (const PadMode mode : {PadMode::kReflect, PadMode::kReplicate, PadMode::kCircular}) {
    const nn::Conv2d conv(scope(), 3, 4, 3, {.padding = {2, 1}, .padding_mode = mode});
    expect_equal(conv.forward(x), conv2d(pad(x, {1, 1, 2, 2}, mode), conv.weight(), conv.bias()));
    const nn::Conv2d same(scope(), 3, 4, {4, 3}, {.same = true, .padding_mode = mode});
    expect_equal(same.forward(x), conv2d(pad(x, {1, 1, 1, 2}, mode), same.weight(), same.bias()));
  }
}

TEST(Conv, WhatIsRefused) {
  expect_error([] { nn::Conv2d(scope(), 4, 6, 3, {.groups = 4}); }, {"groups (4) must divide the channels"});
  expect_error([] { nn::Conv2d(scope(), 0, 6, 3); }, {"must not be 0"});
  expect_error([] { nn::Conv2d(scope(), 4, 6, 0); }, {"a kernel's size must be at least 1, got 0"});
  expect_error([] { nn::Conv2d(scope(), 4, 6, {3, 3, 3}); }, {"kernel has 3 numbers"});
  expect_error([] { nn::ConvTranspose2d(scope(), 4, 6, 3, {.groups = 3}); }, {"groups (3) must divide", "are 4 and 6"});
}

/// A small network in a Sequential: it learns, and its state is loaded by name.
TEST(Conv, ASequentialOfThemLearns) {
  Generator generator = fresh_generator();
  const auto make = [&] {
    return std::make_unique<nn::Sequential>(scope(), nn::make<nn::Conv2d>(1, 4, 3, nn::ConvOptions{.padding = 1}), relu,
                                            nn::make<nn::MaxPool2d>(2), nn::make<nn::Conv2d>(4, 8, 3), relu,
                                            nn::make<nn::AdaptiveAvgPool2d>(1), nn::make<nn::Flatten>(),
                                            nn::make<nn::Linear>(8, 2));
  };
  const auto net = make();
  // Vertical against horizontal stripes.
  const Tensor stripes = (arange(0, 8) % 2).to(float32);
  const Tensor x = cat({stripes.expand({16, 1, 8, 8}), stripes.unsqueeze(-1).expand({16, 1, 8, 8})}) +
                   randn({32, 1, 8, 8}, generator) * 0.3;
  const Tensor target = cat({zeros({16}, {int64}), ones({16}, {int64})});
  double first = 0, last = 0;
  for (int step = 0; step < 200; ++step) {
    const Tensor loss = cross_entropy(net->forward(x), target);
    loss.backward();
    const NoGrad off;
    for (const NamedTensor& p : net->parameters()) {
      Tensor weight = p.tensor;
      weight.add_(p.tensor.grad(), -0.3);
      weight.set_grad({});
    }
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  EXPECT_LT(last, 0.1 * first);
  const auto copy = make();
  copy->load_state_dict(net->state_dict());
  expect_equal(copy->forward(x), net->forward(x));
}

}  // namespace
}  // namespace tern::test
