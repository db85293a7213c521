// linear_residual_norm and feed_forward_residual_norm have the bits of the ops that they stand for: at every CPU level,
// number of threads, dtype, and way in which a product is computed.

#include "tern/core/ops/residual_norm.h"

#include <cmath>
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

struct Sublayer {
  Tensor weight1, bias1, weight2, bias2;
  Activation activation = Activation::kGelu;

  Sublayer(int64_t in, int64_t hidden, int64_t out, DType dtype, bool biases, Generator& generator)
      : weight1((randn({hidden, in}, generator) * 0.3).to(dtype)),
        weight2((randn({out, hidden}, generator) * 0.3).to(dtype)) {
    if (!biases) return;
    bias1 = randn({hidden}, generator).to(dtype);
    bias2 = randn({out}, generator).to(dtype);
  }
  SumAndNorm feed_forward_in_one(const Tensor& x, const ResidualNorm& end) const {
    return feed_forward_residual_norm(x, weight1, bias1, activation, weight2, bias2, end);
  }
  SumAndNorm feed_forward_in_three(const Tensor& x, const ResidualNorm& end) const {
    return norm_of(linear(linear(x, weight1, bias1, activation), weight2, bias2), end);
  }
  SumAndNorm linear_in_one(const Tensor& x, const ResidualNorm& end) const {
    return linear_residual_norm(x, weight2, bias2, end);
  }
  SumAndNorm linear_in_two(const Tensor& x, const ResidualNorm& end) const {
    return norm_of(linear(x, weight2, bias2), end);
  }
  static SumAndNorm norm_of(const Tensor& y, const ResidualNorm& end) {
    return dropout_residual_sum_layer_norm(y, end.residual, end.weight, end.bias, end.eps, end.dropout);
  }
};

void expect_same(const SumAndNorm& got, const SumAndNorm& want, bool gives_sum) {
  expect_equal(got.norm, want.norm);
  ASSERT_EQ(got.sum.defined(), gives_sum);
  if (gives_sum) expect_equal(got.sum, want.sum);
}

ResidualNorm random_end(const Shape& shape, DType dtype, Generator& generator) {
  const int64_t out = shape.size(-1);
  return {.residual = randn(shape, generator).to(dtype),
          .weight = randn({out}, generator).to(dtype),
          .bias = randn({out}, generator).to(dtype),
          .eps = 1e-6};
}

TEST(ResidualNorm, HasTheBitsOfItsOps) {
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
      for (const int64_t rows :
           {1 + below(127), 128 + below(384), 512 + below(600), 1024 + below(100), 2048 + below(300)})
        for (const bool biases : {true, false}) {
          const int64_t in = 16 + below(90), hidden = 16 + below(150), out = 16 + below(300);
          const Sublayer layers(in, hidden, out, dtype, biases, generator);
          const Tensor x = randn({rows, in}, generator).to(dtype), y = randn({rows, hidden}, generator).to(dtype);
          ResidualNorm end = random_end({rows, out}, dtype, generator);
          end.gives_sum = below(2) == 0;
          if (below(4) == 0) end.weight = {};
          if (below(4) == 0) end.bias = {};
          if (below(3) == 0 && end.weight.defined()) end.weight = end.weight.to(float32);
          SCOPED_TRACE(x.describe() + " hidden " + std::to_string(hidden) + " out " + std::to_string(out));
          kernels::set_num_threads(1 + static_cast<int>(below(3)));
          expect_same(layers.feed_forward_in_one(x, end), layers.feed_forward_in_three(x, end), end.gives_sum);
          expect_same(layers.linear_in_one(y, end), layers.linear_in_two(y, end), end.gives_sum);
          if (testing::Test::HasFailure()) return;
        }
  }
}

TEST(ResidualNorm, AgainstDouble) {
  Generator generator(fresh_seed());
  const int64_t n = 1200, out = 47;
  const Sublayer layers(33, 130, out, float32, true, generator);
  const Tensor x = randn({2, n, 33}, generator);
  const ResidualNorm end = random_end({2, n, out}, float32, generator);
  const test::Rounded hidden = gelu(linear(test::Rounded(x), layers.weight1, layers.bias1));
  const test::Rounded sum = linear(hidden, layers.weight2, layers.bias2) + test::Rounded(end.residual);
  const NoGrad off;
  const SumAndNorm got = layers.feed_forward_in_one(x, end);
  test::expect_within(got.sum, sum);
  test::expect_within(got.norm, test::RoundedNorm(sum, end.eps).result(end.weight, end.bias));
}

TEST(ResidualNorm, UnderAutocast) {
  Generator generator(fresh_seed());
  const Sublayer layers(40, 80, 24, float32, true, generator);
  const Tensor x = randn({300, 40}, generator), y = randn({300, 80}, generator);
  for (const DType dtype : {bfloat16, float16}) {
    const Autocast region(cpu, dtype);
    for (const DType residual : {dtype, float32}) {  // of two types the sum has the wider one
      ResidualNorm end = random_end({300, 24}, float32, generator);
      end.residual = end.residual.to(residual);
      const SumAndNorm got = layers.feed_forward_in_one(x, end);
      EXPECT_EQ(got.norm.dtype(), residual);
      expect_same(got, layers.feed_forward_in_three(x, end), true);
      expect_same(layers.linear_in_one(y, end), layers.linear_in_two(y, end), true);
    }
  }
}

TEST(ResidualNorm, WithGradientsAndDropout) {
  Generator generator(fresh_seed());
  const Sublayer layers(21, 50, 18, float32, true, generator);
  const Tensor x = randn({200, 21}, generator), y = randn({200, 50}, generator);
  const ResidualNorm end = random_end({200, 18}, float32, generator);
  for (const double p : {0.0, 0.4}) {
    const auto gradients = [&](bool in_one) {
      Generator draws = test::fresh_generator(3);
      Sublayer own = layers;
      ResidualNorm own_end = end;
      own_end.dropout = {.p = p, .generator = &draws};
      std::vector<Tensor> leaves;
      for (Tensor* t : {&own.weight1, &own.bias1, &own.weight2, &own.bias2, &own_end.residual, &own_end.weight})
        leaves.push_back(*t = t->detach().clone().set_requires_grad(true));
      const SumAndNorm first = in_one ? own.feed_forward_in_one(x, own_end) : own.feed_forward_in_three(x, own_end);
      const SumAndNorm second = in_one ? own.linear_in_one(y, own_end) : own.linear_in_two(y, own_end);
      sum(square(first.norm) * second.norm + first.sum * square(second.sum)).backward();
      for (Tensor& t : leaves) t = t.grad();
      return leaves;
    };
    const auto one = gradients(true), two = gradients(false);
    for (size_t i = 0; i < one.size(); ++i) expect_equal(one[i], two[i]);
    // Without recording too, dropout draws what it draws.
    const NoGrad off;
    Generator draws1 = test::fresh_generator(4), draws2 = test::fresh_generator(4);
    ResidualNorm with1 = end, with2 = end;
    with1.dropout = {.p = p, .generator = &draws1};
    with2.dropout = {.p = p, .generator = &draws2};
    expect_same(layers.linear_in_one(y, with1), layers.linear_in_two(y, with2), true);
    EXPECT_EQ(draws1.offset(), draws2.offset());
  }
  ResidualNorm wanting = end;
  wanting.residual = end.residual.detach().clone().set_requires_grad(true);
  EXPECT_TRUE(layers.linear_in_one(y, wanting).norm.requires_grad());
  const NoGrad off;
  EXPECT_FALSE(layers.linear_in_one(y, wanting).norm.requires_grad());
}

TEST(ResidualNorm, ViewsAndEmptyShapes) {
  Generator generator(fresh_seed());
  const Sublayer layers(20, 33, 17, float32, true, generator);
  const Tensor x = randn({20, 1100}, generator).t();
  ResidualNorm end = random_end({17, 1100}, float32, generator);
  end.weight = end.bias = {};
  end.residual = end.residual.t();
  expect_same(layers.feed_forward_in_one(x, end), layers.feed_forward_in_three(x.contiguous(), end), true);
  end.residual = zeros({0, 17});
  EXPECT_EQ(layers.feed_forward_in_one(zeros({0, 20}), end).norm.shape(), (Shape{0, 17}));
}

TEST(ResidualNorm, BadInput) {
  const Tensor x = zeros({200, 16}), weight = zeros({20, 16});
  const ResidualNorm good = {.residual = zeros({200, 20}), .weight = zeros({20}), .bias = zeros({20})};
  linear_residual_norm(x, weight, {}, good);
  const auto call = [&](auto change) {
    ResidualNorm end = good;
    change(end);
    return [=] { linear_residual_norm(x, weight, {}, end); };
  };
  expect_error(call([](ResidualNorm& end) { end.residual = zeros({200, 19}); }), {"residual is", "[200, 19]"});
  expect_error(call([](ResidualNorm& end) { end.residual = zeros({100, 40}); }), {"residual is", "[100, 40]"});
  expect_error(call([](ResidualNorm& end) { end.residual = end.residual.to(int64); }), {"residual is"});
  expect_error(call([](ResidualNorm& end) { end.weight = zeros({21}); }), {"weight must be [20], got [21]"});
  expect_error(call([](ResidualNorm& end) { end.bias = zeros({20}).to(int32); }), {"bias must be float32", "int32"});
  expect_error(call([](ResidualNorm& end) { end.eps = -1; }), {"eps must be >= 0, got -1"});
  expect_error(call([](ResidualNorm& end) { end.dropout.p = 2; }), {"dropout"});
  expect_error([&] { linear_residual_norm(x, zeros({20, 15}), {}, good); }, {"linear: x is [200, 16]"});
  expect_error(
      [&] {
        feed_forward_residual_norm(x, weight, {}, Activation::kGelu, zeros({20, 21}), {}, good);
      },
      {"linear: x is [200, 20], expected [..., 21]"});
}

}  // namespace
}  // namespace tern
