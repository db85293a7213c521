// Initialisers against their formulas.

#include "tern/nn/init.h"

#include <gtest/gtest.h>

#include "tern/core/ops/ops.h"
#include "tern/nn/nn.h"
#include "tern/tests/core/fresh.h"
#include "tern/tests/core/moments.h"

namespace tern::test {
namespace {

namespace init = nn::init;

/// Equal salts give equal numbers, different salts different ones; every run draws new numbers.
std::vector<double> draw(const Initializer& initializer, const Shape& shape, uint64_t salt = 7, DType dtype = float32) {
  Tensor tensor = full(shape, 99, {.dtype = dtype});
  Generator generator = fresh_generator(salt);
  initializer(tensor, generator);
  return tensor.to_vector<double>();
}

// With 120,000 values the standard error of a mean is std / 346. Limits of moments are about six standard errors or
// more, which two runs in 10^9 exceed.
const Shape kShape{300, 400};

void expect_uniform(const std::vector<double>& values, double low, double high) {
  const Moments m(values);
  const double width = high - low;
  EXPECT_NEAR(m.mean, (low + high) / 2, 0.005 * width);
  EXPECT_NEAR(std::sqrt(m.variance), width / std::sqrt(12), 0.0023 * width);
  // Fails when no value is in the first or last 1/4000 of the interval: one run in 10^13.
  EXPECT_LE(m.low, low + 2.5e-4 * width);
  EXPECT_GE(m.high, high - 2.5e-4 * width);
  const double rounding = 0x1p-23 * std::max(std::abs(low), std::abs(high));
  EXPECT_GE(m.low, low - rounding);
  EXPECT_LE(m.high, high + rounding);
  EXPECT_NEAR(m.kurtosis, 1.8, 0.02);
}

void expect_normal(const std::vector<double>& values, double mean, double std) {
  const Moments m(values);
  EXPECT_NEAR(m.mean, mean, 0.018 * std);
  EXPECT_NEAR(std::sqrt(m.variance), std, 0.0127 * std);
  EXPECT_NEAR(m.kurtosis, 3, 0.1);
}

TEST(Init, Constants) {
  EXPECT_EQ(draw(init::constant(2.5), {3}), (std::vector<double>{2.5, 2.5, 2.5}));
  EXPECT_EQ(draw(init::zeros(), {2}), (std::vector<double>{0, 0}));
  EXPECT_EQ(draw(init::ones(), {2}), (std::vector<double>{1, 1}));
  EXPECT_TRUE(draw(init::normal(), {0, 3}).empty());
}

TEST(Init, UniformAndNormal) {
  expect_uniform(draw(init::uniform(), kShape), 0, 1);
  expect_uniform(draw(init::uniform(-3, 5), kShape), -3, 5);
  expect_normal(draw(init::normal(), kShape), 0, 1);
  expect_normal(draw(init::normal(4, 0.02), kShape), 4, 0.02);
  expect_normal(draw(init::normal(1, 2), kShape, 3, float64), 1, 2);
}

TEST(Init, SeedDecides) {
  for (const Initializer& drawn : {init::uniform(), init::normal(), init::truncated_normal(), init::xavier_uniform(),
                                   init::kaiming_normal(), init::orthogonal()}) {
    EXPECT_EQ(draw(drawn, {5, 3}, 1), draw(drawn, {5, 3}, 1));
    EXPECT_NE(draw(drawn, {5, 3}, 1), draw(drawn, {5, 3}, 2));
  }
}

TEST(Init, SixteenBitsAreRoundedOnce) {
  const auto exact = draw(init::normal(0, 0.02), {50, 7});
  const auto rounded = draw(init::normal(0, 0.02), {50, 7}, 7, bfloat16);
  for (size_t i = 0; i < exact.size(); ++i)
    EXPECT_EQ(rounded[i], static_cast<double>(static_cast<float>(BFloat16(static_cast<float>(exact[i])))));
}

TEST(Init, TruncatedNormal) {
  const Moments wide(draw(init::truncated_normal(), kShape));
  // Variance of a standard normal within +-2: 1 - 2 * 2 * phi(2) / (2 * Phi(2) - 1).
  const double phi = std::exp(-2.0) / std::sqrt(2 * M_PI), inside = std::erf(std::sqrt(2.0));
  EXPECT_NEAR(wide.mean, 0, 0.015);
  EXPECT_NEAR(std::sqrt(wide.variance), std::sqrt(1 - 4 * phi / inside), 0.01);
  EXPECT_GE(wide.low, -2);
  EXPECT_LE(wide.high, 2);
  EXPECT_LT(wide.low, -1.99);
  EXPECT_GT(wide.high, 1.99);
  expect_normal(draw(init::truncated_normal(0.5, 0.02, -2, 2), kShape), 0.5, 0.02);
  const Moments half(draw(init::truncated_normal(0, 1, 0, 100), kShape));
  EXPECT_GE(half.low, 0);
  EXPECT_NEAR(half.mean, std::sqrt(2 / M_PI), 0.01);
}

TEST(Init, FansAndGains) {
  EXPECT_EQ(init::fans({5, 3}).in, 3);
  EXPECT_EQ(init::fans({5, 3}).out, 5);
  EXPECT_EQ(init::fans({8, 4, 3, 2}).in, 24);
  EXPECT_EQ(init::fans({8, 4, 3, 2}).out, 48);
  EXPECT_THROW(init::fans({5}), Error);
  using enum init::Nonlinearity;
  EXPECT_EQ(init::gain(kLinear), 1);
  EXPECT_EQ(init::gain(kTanh), 5.0 / 3);
  EXPECT_DOUBLE_EQ(init::gain(kRelu), std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(init::gain(kLeakyRelu, 0.2), std::sqrt(2 / 1.04));
  EXPECT_EQ(init::gain(kSelu), 0.75);
}

TEST(Init, XavierAndKaiming) {
  const double xavier = std::sqrt(2.0 / 700);
  expect_uniform(draw(init::xavier_uniform(), kShape), -std::sqrt(3.0) * xavier, std::sqrt(3.0) * xavier);
  expect_normal(draw(init::xavier_normal(2), kShape), 0, 2 * xavier);
  const double he = std::sqrt(6.0 / 400);
  expect_uniform(draw(init::kaiming_uniform(), kShape), -he, he);
  expect_normal(draw(init::kaiming_normal({.mode = init::FanMode::kOut}), kShape), 0, std::sqrt(2.0 / 300));
  expect_normal(draw(init::kaiming_normal({.nonlinearity = init::Nonlinearity::kTanh}), kShape), 0, 5.0 / 3 / 20);
  expect_uniform(draw(init::kaiming_uniform({.slope = std::sqrt(5.0)}), kShape), -0.05, 0.05);
  EXPECT_TRUE(draw(init::xavier_uniform(), {0, 4}).empty());
  EXPECT_THROW(draw(init::xavier_uniform(), {4}), Error);
}

TEST(Init, Orthogonal) {
  for (const Shape& shape : {Shape{6, 9}, Shape{9, 6}, Shape{4, 2, 3}, Shape{1, 1}}) {
    const std::vector<double> values = draw(init::orthogonal(3), shape);
    const Tensor w = from_vector(values, {shape[0], static_cast<int64_t>(values.size()) / shape[0]});
    const Tensor products = w.size(0) <= w.size(1) ? matmul(w, w.t()) : matmul(w.t(), w);
    // Rounded once to fp32: an error of 2^-24 in each factor, for rows of length 3.
    for (int64_t a = 0; a < products.size(0); ++a)
      for (int64_t b = 0; b < products.size(1); ++b)
        EXPECT_NEAR(products[a][b].item<double>(), a == b ? 9 : 0, 9 * 2.1 * 0x1p-24) << shape.str();
  }
}

TEST(Init, BadArguments) {
  EXPECT_THROW(init::uniform(1, 0), Error);
  EXPECT_THROW(init::uniform(0, NAN), Error);
  EXPECT_THROW(init::normal(0, -1), Error);
  EXPECT_THROW(init::normal(0, NAN), Error);
  EXPECT_THROW(init::truncated_normal(0, 0), Error);
  EXPECT_THROW(init::truncated_normal(0, 1, 2, 2), Error);
  EXPECT_THROW(init::truncated_normal(0, 0.02, 1, 2), Error);
}

TEST(Init, LayerDefaults) {
  const nn::Scope s({.generator = fresh_generator()});
  const nn::Linear linear(s, 400, 300);
  expect_uniform(linear.weight().tensor().to_vector<double>(), -0.05, 0.05);
  const Moments bias(linear.bias().to_vector<double>());
  EXPECT_LE(std::max(-bias.low, bias.high), 0.05);
  EXPECT_GT(std::max(-bias.low, bias.high), 0.045);
  const nn::Embedding embedding(s, 300, 400, {.padding_index = 3});
  const auto rows = embedding.weight().tensor().to_vector<double>();
  expect_normal(rows, 0, std::sqrt(299.0 / 300));
  for (size_t j = 0; j < 400; ++j) EXPECT_EQ(rows[3 * 400 + j], 0);
  EXPECT_NE(rows[2 * 400], 0);
}

}  // namespace
}  // namespace tern::test
