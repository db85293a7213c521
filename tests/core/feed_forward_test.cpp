// feed_forward has the bits of the two layers that it stands for: at every CPU level, number of threads, dtype, and way
// in which a product is computed.

#include <random>

#include "tern/core/autocast.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/tests/core/core_test.h"
#include "tern/tests/core/rounding.h"
#include "tern/tests/core/tolerance.h"
#include "tern/tests/support/levels.h"

namespace tern {
namespace {

using test::expect_equal;
using test::expect_error;

constexpr Activation kActivations[] = {Activation::kNone, Activation::kGelu, Activation::kRelu};

struct Layers {
  Tensor weight1, bias1, weight2, bias2;

  Layers(int64_t in, int64_t hidden, int64_t out, DType dtype, bool biases, Generator& generator)
      : weight1(randn({hidden, in}, generator) * 0.3), weight2(randn({out, hidden}, generator) * 0.3) {
    if (biases) bias1 = randn({hidden}, generator), bias2 = randn({out}, generator);
    for (Tensor* t : {&weight1, &bias1, &weight2, &bias2})
      if (t->defined()) *t = t->to(dtype);
  }
  Tensor in_one(const Tensor& x, Activation activation) const {
    return feed_forward(x, weight1, bias1, activation, weight2, bias2);
  }
  Tensor in_two(const Tensor& x, Activation activation) const {
    return linear(linear(x, weight1, bias1, activation), weight2, bias2);
  }
};

TEST(FeedForward, HasTheBitsOfTwoLayers) {
  const test::RestoreKernels restore;
  const uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Generator generator(seed);
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (const kernels::CpuLevel other : {kernels::CpuLevel::kV2, kernels::CpuLevel::kV3, kernels::CpuLevel::kV4}) {
    if (!can_test_level(other)) continue;
    kernels::set_cpu_level(other);
    for (const DType dtype : {float32, bfloat16, float16, float64})
      // Few rows, blocks of 64, 128 and 256 rows, with a last one of any size.
      for (const int64_t rows : {int64_t{1}, 1 + below(127), 128 + below(384), 512 + below(600), 2048 + below(300)})
        for (const bool biases : {true, false}) {
          const int64_t in = below(2) ? 16 + below(90) : 1 + below(20), hidden = below(3) ? 16 + below(150) : below(16),
                        out = below(3) ? 16 + below(90) : 1 + below(15);
          const Activation activation = kActivations[below(3)];
          const Layers layers(in, hidden, out, dtype, biases, generator);
          const Tensor x = randn({rows, in}, generator).to(dtype);
          SCOPED_TRACE(x.describe() + " hidden " + std::to_string(hidden) + " out " + std::to_string(out));
          kernels::set_num_threads(1 + static_cast<int>(below(3)));
          expect_equal(layers.in_one(x, activation), layers.in_two(x, activation));
          if (testing::Test::HasFailure()) return;
        }
  }
}

TEST(FeedForward, AgainstDouble) {
  Generator generator(fresh_seed());
  const Layers layers(33, 130, 47, float32, true, generator);
  const Tensor x = randn({5, 60, 33}, generator);
  const test::Rounded hidden = gelu(linear(test::Rounded(x), layers.weight1, layers.bias1));
  const NoGrad off;
  test::expect_within(layers.in_one(x, Activation::kGelu), linear(hidden, layers.weight2, layers.bias2));
}

TEST(FeedForward, UnderAutocast) {
  Generator generator(fresh_seed());
  const Layers layers(40, 80, 24, float32, true, generator);
  const Tensor x = randn({300, 40}, generator);
  for (const DType dtype : {bfloat16, float16}) {
    const Autocast region(cpu, dtype);
    const Tensor got = layers.in_one(x, Activation::kGelu);
    EXPECT_EQ(got.dtype(), dtype);
    expect_equal(got, layers.in_two(x, Activation::kGelu));
  }
}

TEST(FeedForward, WithGradients) {
  Generator generator(fresh_seed());
  const Layers layers(21, 50, 18, float32, true, generator);
  const auto gradients = [&](auto way) {
    std::vector<Tensor> leaves;
    Layers own = layers;
    Tensor x = ones({200, 21});
    for (Tensor* t : {&x, &own.weight1, &own.bias1, &own.weight2, &own.bias2})
      leaves.push_back(*t = t->detach().clone().set_requires_grad(true));
    sum(square(way(own, x))).backward();
    for (Tensor& t : leaves) t = t.grad();
    return leaves;
  };
  const auto one = gradients([](const Layers& l, const Tensor& x) { return l.in_one(x, Activation::kRelu); });
  const auto two = gradients([](const Layers& l, const Tensor& x) { return l.in_two(x, Activation::kRelu); });
  for (size_t i = 0; i < one.size(); ++i) expect_equal(one[i], two[i]);
  // Without recording, inputs that want gradients give a result that has none.
  const Tensor x = ones({2, 21}, {.requires_grad = true});
  const NoGrad off;
  EXPECT_FALSE(layers.in_one(x, Activation::kGelu).requires_grad());
}

TEST(FeedForward, ViewsAndEmptyShapes) {
  Generator generator(fresh_seed());
  const Layers layers(20, 33, 17, float32, true, generator);
  const Tensor x = randn({20, 150}, generator).t();
  expect_equal(layers.in_one(x, Activation::kGelu), layers.in_two(x.contiguous(), Activation::kGelu));
  expect_equal(layers.in_one(x[0], Activation::kGelu), layers.in_two(x[0], Activation::kGelu));
  EXPECT_EQ(layers.in_one(zeros({0, 20}), Activation::kGelu).shape(), (Shape{0, 17}));
  const Tensor bias = randn({3}, generator);
  expect_equal(feed_forward(zeros({200, 4}), zeros({0, 4}), {}, Activation::kGelu, zeros({3, 0}), bias),
               bias.expand({200, 3}));
}

TEST(FeedForward, BadInput) {
  const Tensor x = zeros({2, 3}), weight1 = zeros({5, 3}), weight2 = zeros({4, 5});
  const auto call = [&](const Tensor& w1, const Tensor& b1, const Tensor& w2, const Tensor& b2) {
    return [=] { feed_forward(x, w1, b1, Activation::kGelu, w2, b2); };
  };
  expect_error(call(zeros({5, 4}), {}, weight2, {}), {"linear: x is [2, 3], expected [..., 4]"});
  expect_error(call(weight1, zeros({4}), weight2, {}), {"linear: bias is [4], expected [5]"});
  expect_error(call(weight1, {}, zeros({4, 6}), {}), {"linear: x is [2, 5], expected [..., 6]"});
  expect_error(call(weight1, {}, zeros({20}), {}), {"weight must be [out, in], got [20]"});
  expect_error(call(weight1, {}, weight2, zeros({5})), {"linear: bias is [5], expected [4]"});
  expect_error(call(weight1, {}, weight2.to(float64), {}), {"x is float32 and weight float64"});
}

}  // namespace
}  // namespace tern
