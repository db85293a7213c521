// The Euclidean norm: values, and first and second derivatives, also at zero.

#include <gtest/gtest.h>

#include <cmath>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/engine.h"
#include "tern/core/ops/gradcheck.h"
#include "tern/core/ops/ops.h"
#include "tern/tests/core/fresh.h"

namespace tern {
namespace {

Tensor leaf(const Tensor& x) { return Tensor(x).set_requires_grad(true); }

Tensor fresh(const Shape& shape) {
  Generator g = test::fresh_generator();
  return randn(shape, g, {.dtype = float64});
}

TEST(VectorNorm, OverAllAndOverDimensions) {
  const Tensor x = fresh({3, 5, 2});
  const std::vector<double> v = x.to_vector<double>();
  double all = 0;
  for (const double value : v) all += value * value;
  // Half the relative error of a sum of 30 squares, and the error of the root, on both sides.
  EXPECT_NEAR(norm(x).item<double>(), std::sqrt(all), 34 * 0x1p-53 * std::sqrt(all));
  const std::vector<double> rows = norm(x, {1}).to_vector<double>();
  ASSERT_EQ(norm(x, {1}).shape(), Shape({3, 2}));
  EXPECT_EQ(norm(x, {1, -1}, true).shape(), Shape({3, 1, 1}));
  for (size_t i = 0; i < 3; ++i)
    for (size_t k = 0; k < 2; ++k) {
      double s = 0;
      for (size_t j = 0; j < 5; ++j) s += v[i * 10 + j * 2 + k] * v[i * 10 + j * 2 + k];
      EXPECT_NEAR(rows[i * 2 + k], std::sqrt(s), 9 * 0x1p-53 * std::sqrt(s));
    }
  EXPECT_THROW(norm(x, {0, -3}), Error);
  EXPECT_EQ(norm(zeros({0})).item<double>(), 0);
  EXPECT_NEAR(norm(arange(0, 4)).item<double>(), std::sqrt(14.0), 0x1p-22);  // integers, in fp32
  EXPECT_EQ(autocast(cpu, bfloat16, [&] { return norm(ones({7}, {.dtype = bfloat16})); }).dtype(), float32);
}

TEST(VectorNorm, DerivativesByFiniteDifferences) {
  const Tensor x = fresh({3, 4});
  for (const std::vector<int>& dims : {std::vector<int>{}, {0}, {-1}, {0, 1}})
    for (const bool keepdim : {false, true}) {
      const auto fn = [&](const std::vector<Tensor>& in) { return norm(in[0], dims, keepdim); };
      EXPECT_NO_THROW(gradcheck(fn, {leaf(x)}, {.second = true}));
    }
}

TEST(VectorNorm, TheGradientAtZeroIsZero) {
  for (const DType dtype : {float64, float32, bfloat16, float16}) {
    const Tensor x = leaf(zeros({5}, {.dtype = dtype}));
    norm(x).backward();
    EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(5, 0)) << dtype;
  }
  const Tensor rows = leaf(from_vector(std::vector<double>{3, 4, 0, 0, 0, -2}, {3, 2}));
  const Tensor dy = from_vector(std::vector<double>{10, 20, 30}, {3});
  norm(rows, {1}).backward(dy);
  EXPECT_EQ(rows.grad().to_vector<double>(), (std::vector<double>{6, 8, 0, 0, 0, -30}));
  const Tensor kept = leaf(rows.detach().clone());
  norm(kept, {1}, true).backward(dy.reshape({3, 1}));
  EXPECT_EQ(kept.grad().to_vector<double>(), rows.grad().to_vector<double>());
}

TEST(VectorNorm, TheSecondDerivativeAtZeroIsFinite) {
  const Tensor rows = leaf(from_vector(std::vector<double>{3, 4, 0, 0}, {2, 2}));
  const Tensor first = grad({sum(norm(rows, {1}))}, {rows}, {.create_graph = true})[0];
  const std::vector<double> unit = first.to_vector<double>();
  EXPECT_NEAR(unit[0], 0.6, 1e-15);
  EXPECT_NEAR(unit[1], 0.8, 1e-15);
  EXPECT_EQ(unit[2], 0);
  EXPECT_EQ(unit[3], 0);
  // d/dx of the sum of x / |x|, by hand at (3, 4): (y^2 - x y, x^2 - x y) / |x|^3.
  sum(first).backward();
  const std::vector<double> second = rows.grad().to_vector<double>();
  EXPECT_NEAR(second[0], (16 - 12) / 125.0, 1e-15);
  EXPECT_NEAR(second[1], (9 - 12) / 125.0, 1e-15);
  EXPECT_EQ(second[2], 0);
  EXPECT_EQ(second[3], 0);
  // The incoming gradient has a history too: of w, d/dw of the sum of w x / |x|.
  const Tensor w = leaf(from_vector(std::vector<double>{2, 5}, {2}));
  sum(grad({sum(norm(rows, {1}) * w)}, {rows}, {.create_graph = true})[0]).backward();
  EXPECT_NEAR(w.grad().to_vector<double>()[0], 1.4, 1e-15);
  EXPECT_EQ(w.grad().to_vector<double>()[1], 0);
  // A gradient penalty with a zero gradient.
  const Tensor x = leaf(zeros({4}, {.dtype = float64}));
  const Tensor inner = grad({sum(square(x))}, {x}, {.create_graph = true})[0];
  square(norm(inner) - 1.0).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(4, 0));
}

TEST(VectorNorm, InfinityAndNaNStay) {
  const Tensor x = leaf(from_vector(std::vector<double>{INFINITY, 1}, {2}));
  norm(x).backward();
  EXPECT_EQ(x.grad().to_vector<double>()[1], 0);
  EXPECT_TRUE(std::isnan(x.grad().to_vector<double>()[0]));
  const Tensor y = leaf(from_vector(std::vector<double>{NAN, 1}, {2}));
  norm(y).backward();
  for (const double g : y.grad().to_vector<double>()) EXPECT_TRUE(std::isnan(g));
}

}  // namespace
}  // namespace tern
