// What PyTorch's numbers (more_functions_golden_test.cpp) do not show of the ops that follow from others: derivatives
// by finite differences, all dtypes, empty and one-element tensors, views, numbers at the ends of the range, and
// errors.

#include <numeric>

#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

class FurtherOps : public DerivativeTest {
 protected:
  Tensor distinct(const Shape& shape) { return distinct_leaves({shape}, generator_)[0]; }
  static void fails(const std::string& part, const std::function<void()>& call) {
    try {
      call();
      ADD_FAILURE() << "no error: " << part;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
};

TEST_F(FurtherOps, DerivativesOfCumulativeOps) {
  for (const int d : {0, 1, -1}) {
    const Tensor zeros_inside = normal({3, 5});
    zeros_inside.data<double>()[1] = zeros_inside.data<double>()[3] = zeros_inside.data<double>()[7] = 0;
    for (const Tensor& x : {normal({3, 5}), zeros_inside})
      expect_derivatives([=](const Tensors& in) { return cumprod(in[0], d); }, {x});
    expect_derivatives([=](const Tensors& in) { return logcumsumexp(in[0].t(), d); }, {normal({3, 5})});
    expect_derivatives([=](const Tensors& in) { return square(cummax(in[0], d).values); }, {distinct({3, 5})});
    expect_derivatives([=](const Tensors& in) { return square(cummin(in[0].t(), d).values); }, {distinct({3, 5})});
    expect_derivatives([=](const Tensors& in) { return square(mode(in[0], d).values); }, {distinct({3, 5})});
    expect_derivatives([=](const Tensors& in) { return square(diff(in[0], 2, d)); }, {normal({3, 5})});
    expect_derivatives([=](const Tensors& in) { return square(trapezoid(in[0], in[1], d)); },
                       {normal({3, 5}), normal({3, 5})});
  }
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{0, 2}})
    for (const auto op : {cumprod, logcumsumexp})
      expect_derivatives([=](const Tensors& in) { return op(in[0], 0); }, {normal(shape)});
}

/// Later products exceed the type's range, but the gradients do not.
TEST_F(FurtherOps, GradientsOfLargeCumulativeProducts) {
  const auto gradients = [](std::vector<double> values, DType dtype, bool recorded = false) {
    const Tensor x = tensor(std::move(values)).to(dtype).set_requires_grad(true);
    return grad({sum(cumprod(x, 0).to(float64))}, {x}, {.create_graph = recorded})[0].to_vector<double>();
  };
  std::vector<double> values(10, 4.0);
  values[0] = 0x1p-10;
  const std::vector<double> expected = gradients(values, float64), half = gradients(values, float16);
  for (size_t i = 1; i < values.size(); ++i) EXPECT_NEAR(half[i], expected[i], 1e-3 * expected[i]) << i;
  for (const auto& [dtype, large] : {std::pair{float16, 1e4}, {bfloat16, 1e30}, {float32, 1e30}})
    for (const bool recorded : {false, true})
      EXPECT_EQ(gradients({2, 0, large, large, large}, dtype, recorded), (std::vector<double>{1, INFINITY, 0, 0, 0}))
          << dtype << recorded;
}

/// Against C's division, which rounds towards 0; and numbers that no float holds.
TEST_F(FurtherOps, IntegersAreDividedExactly) {
  for (const DType dtype : {int64, int32, uint8}) {
    const int64_t low = dtype == uint8 ? 0 : -40;
    const Tensor a = randint(low, 41, {3, 30}, generator_, {.dtype = dtype});
    const Tensor b = randint(low, 41, {30}, generator_, {.dtype = dtype});
    const Tensor y = floor_divide(a, b), by_seven = floor_divide(a, 7);
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_EQ(by_seven.dtype(), dtype);
    const auto expected = [](int64_t x, int64_t d) { return d == 0 ? 0 : x / d - (x % d != 0 && (x < 0) != (d < 0)); };
    const std::vector<int64_t> x = a.to_vector<int64_t>(), d = b.to_vector<int64_t>();
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(y.to_vector<int64_t>()[i], expected(x[i], d[i % 30])) << x[i] << " by " << d[i % 30];
      EXPECT_EQ(by_seven.to_vector<int64_t>()[i], expected(x[i], 7)) << x[i] << " by 7";
    }
  }
  const Tensor large = from_vector(std::vector<int64_t>{(int64_t{1} << 60) + 1, -(int64_t{1} << 60) - 1}, {2});
  EXPECT_EQ(floor_divide(large, 2).to_vector<int64_t>(),
            (std::vector<int64_t>{int64_t{1} << 59, -(int64_t{1} << 59) - 1}));
  EXPECT_EQ(floor_divide(zeros({0, 3}), 2).shape(), Shape({0, 3}));
  EXPECT_EQ(floor_divide(tensor({7}).to(bfloat16), 2).dtype(), bfloat16);
  EXPECT_EQ(floor_divide(large, tensor({2.5})).dtype(), float32);
}

TEST_F(FurtherOps, PowersOfIntegersAreExact) {
  for (const DType dtype : {int64, int32, uint8}) {
    const Tensor base = randint(0, 4, {5, 1}, generator_, {.dtype = dtype}), exponent = randint(0, 5, {7}, generator_);
    const Tensor y = pow(base, exponent.to(dtype)), cubes = pow(base, 3);
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_EQ(cubes.dtype(), dtype);
    for (int64_t i = 0; i < 5; ++i) {
      const int64_t b = base[i].item<int64_t>();
      EXPECT_EQ(cubes[i].item<int64_t>(), b * b * b);
      for (int64_t j = 0; j < 7; ++j) {
        int64_t expected = 1;
        for (int64_t k = 0; k < exponent[j].item<int64_t>(); ++k) expected *= b;
        EXPECT_EQ(y[i][j].item<int64_t>(), expected) << b << " to the power of " << exponent[j];
      }
    }
  }
  const Tensor x = from_vector(std::vector<int64_t>{3, -3, 1, -1, 0, 2}, {6});
  EXPECT_EQ(pow(x, 39).to_vector<int64_t>(),
            (std::vector<int64_t>{4052555153018976267, -4052555153018976267, 1, -1, 0, int64_t{1} << 39}));
  EXPECT_EQ(pow(x, full({}, -3, {.dtype = int64})).to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 1, -1, 0, 0}));
  fails("pow: a power -1 of integers is a fraction", [&] { pow(x, -1); });
  fails("pow_: a power -2 of integers is a fraction", [&] { Tensor(x.clone()).pow_(-2); });
  EXPECT_EQ(pow(x, 0.5).dtype(), float32);
  EXPECT_EQ(pow(x > 0.0, 2).dtype(), int64);
  Tensor changed = x.clone();
  EXPECT_EQ(changed.pow_(2).to_vector<int64_t>(), pow(x, 2).to_vector<int64_t>());
  fails("pow_", [&] { changed.pow_(-1); });
}

TEST_F(FurtherOps, DerivativesOfTheOthers) {
  expect_derivatives([](const Tensors& in) { return logaddexp(in[0], in[1]); }, {normal({3, 4}), normal({4})});
  expect_derivatives([](const Tensors& in) { return hypot(in[0], in[1]); }, {distinct({3, 4}), normal({4})});
  expect_derivatives([](const Tensors& in) { return swiglu(in[0], in[1]); }, {normal({3, 4}), normal({4})});
  expect_derivatives([](const Tensors& in) { return glu(in[0].t()); }, {normal({4, 3})});
  expect_derivatives([](const Tensors& in) { return copysign(in[0], in[1]); }, {distinct({3, 4}), distinct({4})});
  expect_derivatives([](const Tensors& in) { return square(clamp(in[0], in[1], in[2])); },
                     distinct_leaves({{3, 4}, {4}, {3, 1}}, generator_));
  expect_derivatives([](const Tensors& in) { return addcmul(in[0], in[1], in[2], 0.3); },
                     {normal({3, 4}), normal({4}), normal({3, 1})});
  expect_derivatives([](const Tensors& in) { return addcdiv(in[0], in[1], in[2], 0.3); },
                     {normal({3, 4}), normal({4}), distinct({3, 1})});
  expect_derivatives([](const Tensors& in) { return square(cov(in[0].t())); }, {normal({5, 3})});
  expect_derivatives([](const Tensors& in) { return corrcoef(in[0]).slice(0, 0, 1).slice(1, 1); }, {normal({3, 6})});
  for (const double order : {1.0, 2.0, 3.0, double{INFINITY}}) {
    expect_derivatives([=](const Tensors& in) { return cdist(in[0], in[1], order); },
                       distinct_leaves({{2, 3, 4}, {2, 4}}, generator_));
    // One tensor twice, and rows that are computed of the others.
    expect_derivatives([=](const Tensors& in) { return cdist(in[0], in[0], order).slice(1, 0, 1).slice(2, 1); },
                       {distinct({2, 3, 4})});
    expect_derivatives([=](const Tensors& in) { return cdist(in[0], in[0] * 2.0 + 3.0, order); },
                       {distinct({2, 3, 4})});
    expect_derivatives([=](const Tensors& in) { return square(cdist(in[0].t(), in[1], order)); },
                       distinct_leaves({{4, 3}, {2, 1, 2, 4}}, generator_));
    expect_derivatives([=](const Tensors& in) { return pdist(in[0].t(), order); }, {distinct({3, 4})});
  }
  expect_derivatives([](const Tensors& in) { return renorm(in[0], 2, 1, 0.7); }, {normal({3, 4, 2})});
  expect_derivatives([](const Tensors& in) { return square(nansum(in[0], {1})) + square(nanmean(in[0], {1})); },
                     {normal({3, 4})});
  expect_derivatives([](const Tensors& in) { return square(nanquantile(in[0], 0.3, 1)); }, {distinct({3, 4})});
  expect_derivatives([](const Tensors& in) { return square(rot90(in[0], 3, 0, 2)); }, {normal({3, 1, 2})});
  expect_derivatives(
      [](const Tensors& in) {
        return square(block_diag({in[0].t(), in[1]}));
      },
      {normal({3, 2}), normal({2})});
  expect_derivatives(
      [](const Tensors& in) {
        return square(cartesian_prod({in[0], in[1]}));
      },
      {normal({3}), normal({2})});
  const Tensor index = from_vector<int64_t>({-1, 0, 3}, {3});
  for (const bool accumulate : {false, true})
    expect_derivatives([&](const Tensors& in) { return square(put(in[0].t(), index, in[1], accumulate)); },
                       {normal({3, 2}), normal({3})});
}

/// Against loops, for every dtype, with ties, along a dimension of a view.
TEST_F(FurtherOps, CumulativeOpsOfEveryDtype) {
  std::mt19937_64 random = fresh_random();
  for (const DType dtype : {float64, float32, bfloat16, float16, int64, int32, uint8, boolean})
    for (const int64_t n : {1, 2, 3, 9, 64, 100}) {
      std::vector<double> values(static_cast<size_t>(2 * n));
      for (double& v : values) v = static_cast<double>(random() % 3) - (dtype == uint8 || dtype == boolean ? 0 : 1);
      const Tensor x = tensor(values).reshape({n, 2}).to(dtype);
      const std::vector<double> stored = x.to_vector<double>();
      const Tensor product = cumprod(x, 0);
      const SortResult high = cummax(x, 0), low = cummin(x, 0), often = mode(x.t(), 1);
      EXPECT_EQ(product.dtype(), is_floating(dtype) ? dtype : int64);
      EXPECT_EQ(high.values.dtype(), dtype);
      for (int64_t c = 0; c < 2; ++c) {
        double so_far = 1;
        int64_t highest = 0, lowest = 0;
        std::map<double, int64_t> counts, last;
        for (int64_t i = 0; i < n; ++i) {
          const auto at = [&](int64_t row) { return stored[static_cast<size_t>(2 * row + c)]; };
          so_far *= at(i);
          if (at(i) >= at(highest)) highest = i;
          if (at(i) <= at(lowest)) lowest = i;
          ++counts[at(i)];
          last[at(i)] = i;
          ASSERT_EQ(product[i][c].item<double>(), so_far) << dtype << " " << i;
          ASSERT_EQ(high.values[i][c].item<double>(), at(highest)) << dtype << " " << i;
          ASSERT_EQ(high.indices[i][c].item<int64_t>(), highest) << dtype << " " << i;
          ASSERT_EQ(low.values[i][c].item<double>(), at(lowest)) << dtype << " " << i;
          ASSERT_EQ(low.indices[i][c].item<int64_t>(), lowest) << dtype << " " << i;
        }
        const auto most = std::max_element(counts.begin(), counts.end(),
                                           [](const auto& a, const auto& b) { return a.second < b.second; });
        EXPECT_EQ(often.values[c].item<double>(), most->first) << dtype;
        EXPECT_EQ(often.indices[c].item<int64_t>(), last.at(most->first)) << dtype;
      }
    }
}

/// Against sums in long double, of numbers far apart; infinities, and what follows them.
TEST_F(FurtherOps, LogarithmsOfCumulativeSums) {
  for (const int64_t cols : {1, 7, 256, 5000}) {
    const Tensor x = (randn({3, cols}, generator_) * 30.0).to(float32), y = logcumsumexp(x, 1);
    for (int64_t r = 0; r < 3; ++r) {
      const std::vector<double> in = x[r].to_vector<double>(), out = y[r].to_vector<double>();
      long double sum = 0;
      for (size_t j = 0; j < in.size(); ++j) {
        sum += std::exp(static_cast<long double>(in[j]));
        const double want = static_cast<double>(std::log(sum));
        ASSERT_LE(std::fabs(out[j] - want), 1e-6 * std::max(1.0, std::fabs(want))) << j;
      }
    }
  }
  const double inf = INFINITY;
  Tensor x = tensor({-inf, -inf, 1, -inf, inf, 2}).set_requires_grad(true);
  const Tensor y = logcumsumexp(x, 0);
  EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{-inf, -inf, 1, 1, inf, inf}));
  sum(y).backward();
  for (const double d : x.grad().to_vector<double>()) EXPECT_TRUE(std::isfinite(d));
  EXPECT_EQ(x.grad().to_vector<double>()[2], 2);  // of y[2] and y[3]
  EXPECT_TRUE(std::isnan(logcumsumexp(tensor({1, NAN, 2}), 0)[2].item<double>()));
  EXPECT_EQ(logcumsumexp(tensor({0, -20}), 0)[1].item<float>(), static_cast<float>(std::log1p(std::exp(-20.0))));
}

TEST_F(FurtherOps, EmptyAndOneElement) {
  for (const auto op : {cumprod, logcumsumexp}) {
    EXPECT_EQ(op(zeros({0, 3}), 0).shape(), Shape({0, 3}));
    EXPECT_EQ(op(full({}, 2), 0).item<double>(), 2);
    EXPECT_EQ(op(zeros({3, 0}), 1).shape(), Shape({3, 0}));
  }
  EXPECT_EQ(cummax(zeros({0, 3}), 1).indices.shape(), Shape({0, 3}));
  EXPECT_EQ(cummin(full({}, 2), -1).indices.item<int64_t>(), 0);
  EXPECT_EQ(mode(full({}, 2)).values.dim(), 0);
  EXPECT_EQ(mode(zeros({0, 3}), 1, true).values.shape(), Shape({0, 1}));
  EXPECT_EQ(nansum(zeros({0})).item<double>(), 0);
  EXPECT_TRUE(std::isnan(nanmean(zeros({0})).item<double>()));
  EXPECT_TRUE(std::isnan(nanquantile(full({3}, NAN), 0.5).item<double>()));
  EXPECT_EQ(diff(zeros({1})).numel(), 0);
  EXPECT_EQ(diff(zeros({2}), 5).numel(), 0);
  EXPECT_EQ(trapezoid(zeros({1})).item<double>(), 0);
  EXPECT_TRUE(std::isnan(cov(zeros({2, 1}))[0][0].item<double>()));
  EXPECT_EQ(cdist(zeros({2, 0}), zeros({3, 0}), INFINITY).shape(), Shape({2, 3}));
  EXPECT_EQ(pdist(zeros({1, 4})).numel(), 0);
  EXPECT_EQ(triu_indices(0, 3).shape(), Shape({2, 0}));
  EXPECT_EQ(cartesian_prod({zeros({0}), zeros({2})}).shape(), Shape({0, 2}));
  EXPECT_EQ(block_diag({zeros({0, 2}), ones({1, 1})}).shape(), Shape({1, 3}));
  EXPECT_EQ(unique(zeros({0, 3}), 0).values.shape(), Shape({0, 3}));
  EXPECT_EQ(unique(zeros({3, 0}), 0).values.shape(), Shape({1, 0}));
}

TEST_F(FurtherOps, EndsOfTheRange) {
  for (const DType dtype : {float64, float32}) {
    const double most = dtype == float64 ? 0x1p1000 : 0x1p120;
    const auto value = [&](double v) { return full({}, v, {.dtype = dtype}); };
    EXPECT_EQ(hypot(value(3 * most), value(-4 * most)).item<double>(), 5 * most);
    EXPECT_EQ(hypot(value(3 / most), value(4 / most)).item<double>(), 5 / most);
    EXPECT_EQ(logaddexp(value(1000), value(-1000)).item<double>(), 1000);
    EXPECT_NEAR(logaddexp(value(1000), value(1000)).item<double>(), 1000 + std::log(2.0), 1e-4);
    EXPECT_NEAR(logcumsumexp(full({4}, 800, {.dtype = dtype}), 0)[3].item<double>(), 800 + std::log(4.0), 1e-4);
  }
  for (const auto& [dtype, most] : std::map<DType, double>{{float64, std::numeric_limits<double>::max()},
                                                           {float32, std::numeric_limits<float>::max()},
                                                           {bfloat16, 0x1.fep127},
                                                           {float16, 65504}}) {
    const Tensor x = tensor({NAN, INFINITY, -INFINITY, 2}).to(dtype);
    EXPECT_EQ(nan_to_num(x).to_vector<double>(), (std::vector<double>{0, most, -most, 2})) << dtype;
  }
  EXPECT_EQ(nan_to_num(ones({2}, {.dtype = int32})).dtype(), int32);
  EXPECT_TRUE(allclose(tensor({1, NAN}), tensor({1.000001, NAN}), 1e-5, 0, true));
  EXPECT_FALSE(allclose(tensor({1, NAN}), tensor({1.000001, NAN})));
  EXPECT_TRUE(allclose(zeros({0}), zeros({0})));
  EXPECT_FALSE(allclose(from_vector<int64_t>({5}, {1}), from_vector<int64_t>({6}, {1})));
}

/// Operators on masks, %, and numbers in place of tensors.
TEST_F(FurtherOps, Operators) {
  const Tensor a = from_vector<bool>({true, true, false, false}, {2, 2}), b = from_vector<bool>({true, false}, {2});
  const auto bools = [](std::vector<bool> values) {
    Tensor x = empty({2, 2}, {.dtype = boolean});
    for (size_t i = 0; i < 4; ++i) x.data<bool>()[i] = values[i];
    return x;
  };
  for (const auto& [got, want] : {std::pair(a & b, bools({true, false, false, false})),
                                  {a | b, bools({true, true, true, false})},
                                  {a ^ b, bools({false, true, true, false})},
                                  {~a.t(), bools({false, true, false, true})}}) {
    EXPECT_EQ(got.dtype(), boolean);
    expect_equal(got, want);
  }
  EXPECT_EQ((zeros({0, 2}, {.dtype = boolean}) & b).shape(), Shape({0, 2}));

  const Tensor i = from_vector<int64_t>({-3, 0, 7}, {3});
  EXPECT_EQ((i % 4).dtype(), int64);
  EXPECT_EQ((i % 4).to_vector<int64_t>(), (std::vector<int64_t>{1, 0, 3}));
  EXPECT_EQ((i % from_vector<int64_t>({2, 5, -4}, {3})).to_vector<int64_t>(), (std::vector<int64_t>{1, 0, -1}));

  const Tensor choice = where(b, 0.25, -1);
  EXPECT_EQ(choice.dtype(), float32);
  EXPECT_EQ(choice.to_vector<double>(), (std::vector<double>{0.25, -1}));
  for (const DType dtype : {float64, float32, bfloat16, float16}) {
    const Tensor power = pow(2.0, tensor({-1, 0, 3}).to(dtype));
    EXPECT_EQ(power.dtype(), dtype);
    expect_near(power, {0.5, 1, 8}, 1e-6);
  }
  expect_derivatives([](const Tensors& in) { return pow(1.7, in[0]); }, {normal({3, 2})});
}

TEST_F(FurtherOps, RandomTensorsLikeOthers) {
  for (const DType dtype : {float64, float32, bfloat16}) {
    const Tensor other = zeros({3, 5}, {.dtype = dtype}).t();
    Generator one = fresh_generator(), two = fresh_generator();
    const Tensor got = randn_like(other, one), flat = rand_like(other, one);
    EXPECT_EQ(got.dtype(), dtype);
    expect_equal(got, randn({5, 3}, two, {.dtype = dtype}));
    expect_equal(flat, rand({5, 3}, two, {.dtype = dtype}));
  }
  Generator generator = fresh_generator();
  EXPECT_EQ(randn_like(zeros({0, 2}), generator).shape(), Shape({0, 2}));
  fails("randn: expected a floating dtype, got int64", [&] { randn_like(arange(0, 3), generator); });
}

// [n] of an input [n, n] is one variance for each row, as in PyTorch, though it would broadcast as a row.
TEST_F(FurtherOps, GaussianVarianceOfRows) {
  for (const int64_t columns : {3, 2, 1}) {
    const Tensor x = fresh_normal({3, columns}, 21, float64), t = fresh_normal({3, columns}, 22, float64);
    const Tensor v = 0.5 + square(fresh_normal({3}, 23, float64));
    const Tensor losses = gaussian_nll_loss(x, t, v, {.reduction = LossReduction::kNone});
    const auto a = x.to_vector<double>(), b = t.to_vector<double>(), s = v.to_vector<double>();
    const auto y = losses.to_vector<double>();
    ASSERT_EQ(losses.shape(), x.shape());
    for (size_t i = 0; i < y.size(); ++i) {
      const double variance = s[i / static_cast<size_t>(columns)];
      EXPECT_NEAR(y[i], 0.5 * (std::log(variance) + (a[i] - b[i]) * (a[i] - b[i]) / variance), 1e-12);
    }
  }
}

TEST_F(FurtherOps, ErrorsOfLosses) {
  const Tensor x = zeros({3}), column = zeros({3, 1}), other = ones({2});
  for (const double beta : {0.0, 1.0})
    fails("smooth_l1_loss: prediction is [3], target [3, 1]; they must have one shape",
          [&] { smooth_l1_loss(x, column, beta); });
  fails("gaussian_nll_loss: the variance is float32 [2] on cpu", [&] { gaussian_nll_loss(x, x, other); });
  fails("gaussian_nll_loss: the variance is an undefined tensor", [&] { gaussian_nll_loss(x, x, Tensor()); });
  fails("of log-probabilities take exp()", [&] { multinomial(-ones({3}), 1, generator_); });
}

TEST_F(FurtherOps, Errors) {
  fails("mode: dimension 0", [] { mode(zeros({0, 3}), 0); });
  fails("n must not be negative", [] { diff(zeros({3}), -1); });
  fails("logcumsumexp: expected a floating", [] { logcumsumexp(ones({3}, {.dtype = int64}), 0); });
  fails("cov: expected", [] { cov(zeros({2, 2, 2})); });
  fails("trapezoid: x must be [3]", [] { trapezoid(zeros({2, 3}), zeros({2}), 1); });
  fails("order must not be negative", [] { cdist(zeros({2, 2}), zeros({2, 2}), -1); });
  fails("pdist: expected", [] { pdist(zeros({2})); });
  fails("renorm: expected", [] { renorm(zeros({2}), 2, 0, 1); });
  fails("two different dimensions", [] { rot90(zeros({2, 2}), 1, 0, -2); });
  fails("block_diag: expected matrices", [] { block_diag({zeros({2, 2, 2})}); });
  fails("put: the source", [] { put(zeros({3}), zeros({2}, {.dtype = int64}), zeros({3})); });
  fails("index 3 at position 1", [] { put(zeros({3}), from_vector<int64_t>({0, 3}, {2}), zeros({2})); });
  fails("at least one bound", [] { clamp(zeros({3}), Tensor(), Tensor()); });
  fails("tolerances must not be negative", [] { isclose(zeros({3}), zeros({3}), -1); });
  fails("nanquantile: q must be", [] { nanquantile(zeros({3}), zeros({2, 2})); });
  fails("q must be in [0, 1], got 1.5", [] { nanquantile(zeros({3}), 1.5); });
  fails("nanmean: expected", [] { nanmean(ones({3}, {.dtype = int64})); });
}

/// Numbers of PyTorch 2.15.
TEST_F(FurtherOps, OneRowOrOneValue) {
  const Tensor row = tensor({1, 2, 4}).reshape({1, 3});
  EXPECT_EQ(cov(row).shape(), Shape({}));
  EXPECT_NEAR(cov(row).item<double>(), 7.0 / 3, 1e-6);
  EXPECT_EQ(corrcoef(row).shape(), Shape({}));
  EXPECT_EQ(corrcoef(row).item<double>(), 1);
  const Tensor weighted = cov(row, 1, from_vector<int64_t>({1, 2, 1}, {3}));
  EXPECT_EQ(weighted.shape(), Shape({}));
  EXPECT_NEAR(weighted.item<double>(), 19.0 / 12, 1e-6);
  EXPECT_EQ(cov(ones({0, 3})).shape(), Shape({0, 0}));
  const Histogram equal = histogram(full({4}, 2), 4);
  EXPECT_EQ(equal.counts.to_vector<double>(), (std::vector<double>{0, 0, 4, 0}));
  EXPECT_EQ(equal.edges.to_vector<double>(), (std::vector<double>{1.5, 1.75, 2, 2.25, 2.5}));
  EXPECT_EQ(histogram(zeros({0}), 2).edges.to_vector<double>(), (std::vector<double>{0, 0.5, 1}));
  EXPECT_EQ(histc(full({4}, 2), 4).to_vector<double>(), (std::vector<double>{0, 0, 4, 0}));
}

TEST_F(FurtherOps, NumbersLeaveTheDtypeOfIntegers) {
  const std::vector<std::pair<const char*, std::function<Tensor(const Tensor&, double)>>> ops = {
      {"fmod", [](const Tensor& x, double b) { return fmod(x, b); }},
      {"remainder", [](const Tensor& x, double b) { return remainder(x, b); }},
      {"floor_divide", [](const Tensor& x, double b) { return floor_divide(x, b); }},
      {"pow", [](const Tensor& x, double b) { return pow(x, b); }},
      {"pow of a number", [](const Tensor& x, double b) { return pow(b, x); }},
      {"add", [](const Tensor& x, double b) { return add(x, b); }},
      {"mul", [](const Tensor& x, double b) { return mul(x, b); }},
      {"where", [](const Tensor& x, double b) { return where(x > 2.0, x, b); }},
      {"where number", [](const Tensor& x, double b) { return where(x > 2.0, b, x); }}};
  for (const auto& [name, op] : ops)
    for (const DType dtype : {int64, int32, uint8, float16, bfloat16, float64})
      for (const Shape& shape : {Shape{}, Shape{1}, Shape{3}}) {
        SCOPED_TRACE(testing::Message() << name << " of " << name_of(dtype) << " " << shape);
        const Tensor y = op(full(shape, 5, {.dtype = dtype}), 3);
        EXPECT_EQ(y.dtype(), dtype);
        const double want = op(tensor({5}, {.dtype = float64}), 3).item<double>();
        for (const double value : y.to_vector<double>()) EXPECT_EQ(value, want);
        const bool has_fraction = is_floating(dtype);
        EXPECT_EQ(op(full(shape, 5, {.dtype = dtype}), 2.5).dtype(), has_fraction ? dtype : float32);
      }
  EXPECT_EQ(pow(full({}, 1, {.dtype = boolean}), 2.0).dtype(), int64);
}

/// Sums over an index of one operand are int64 there.
TEST_F(FurtherOps, EinsumOfIntegers) {
  const Tensor a = arange(0, 6, 1, {.dtype = int32}).reshape({2, 3}), b = arange(1, 4, 1, {.dtype = int32});
  const auto check = [&](const char* equation, const Tensors& in, const std::vector<int64_t>& want) {
    SCOPED_TRACE(equation);
    EXPECT_EQ(einsum(equation, in).to_vector<int64_t>(), want);
    Tensors wide;
    for (const Tensor& x : in) wide.push_back(x.to(float64));
    const auto exact = einsum(equation, wide).to_vector<double>();
    EXPECT_EQ(std::vector<double>(want.begin(), want.end()), exact);
  };
  check("ij->i", {a}, {3, 12});
  check("ij,k->ik", {a, b}, {3, 6, 9, 12, 24, 36});
  check("ij,j->i", {a, b}, {8, 26});
  check("ij,jk->k", {a, a.t()}, {19, 64});
  check("ijk,kl->il", {a.reshape({1, 2, 3}), b.reshape({3, 1})}, {34});
  check("ij,jk,k->i", {a, a.t(), arange(0, 2, 1, {.dtype = int64})}, {14, 50});
}

TEST_F(FurtherOps, EpsAndMomentumAreChecked) {
  const Tensor x = normal({4, 3}), one = ones({3}), zero = zeros({3});
  for (const double eps : {-1e-5, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    expect_error([&] { batch_norm(x, zero, one, one, zero, {.training = true, .eps = eps}); }, {"batch_norm: eps"});
    expect_error([&] { batch_norm(x, zero, one, one, zero, {.eps = eps}); }, {"batch_norm: eps"});
    expect_error([&] { layer_norm(x, one, zero, eps); }, {"layer_norm: eps"});
    expect_error([&] { rms_norm(x, one, eps); }, {"rms_norm: eps"});
    expect_error([&] { group_norm(x, 1, one, zero, eps); }, {"group_norm: eps"});
  }
  for (const double momentum : {-0.1, 1.5, static_cast<double>(NAN)})
    expect_error([&] { batch_norm(x, zero, one, one, zero, {.training = true, .momentum = momentum}); },
                 {"batch_norm: momentum"});
}

/// output_padding below the dilation but not the stride, against sums over all elements.
TEST_F(FurtherOps, TransposedConvolutionWithMuchOutputPadding) {
  for (const DType dtype : {float32, float64})
    for (const int64_t stride : {1, 2, 3})
      for (const int64_t padding : {0, 2, 4})
        for (int64_t more = 0; more < 5; ++more) {
          constexpr int64_t kDilation = 5, kKernel = 3, kSize = 4, kIn = 2, kOut = 3;
          SCOPED_TRACE(testing::Message()
                       << dtype << " stride " << stride << " padding " << padding << " more " << more);
          const Tensor x = fresh_normal({1, kIn, kSize}, 1).to(dtype).set_requires_grad(true);
          const Tensor w = fresh_normal({kIn, kOut, kKernel}, 2).to(dtype), b = fresh_normal({kOut}, 3).to(dtype);
          const Tensor y = conv_transpose1d(
              x, w, b, {.stride = stride, .padding = padding, .output_padding = more, .dilation = kDilation});
          const int64_t size = (kSize - 1) * stride - 2 * padding + kDilation * (kKernel - 1) + more + 1;
          ASSERT_EQ(y.shape(), Shape({1, kOut, size}));
          const auto xs = x.to_vector<double>(), ws = w.to_vector<double>(), bs = b.to_vector<double>();
          std::vector<double> want(static_cast<size_t>(kOut * size)), slope(static_cast<size_t>(kIn * kSize), 0);
          for (int64_t o = 0; o < kOut; ++o) {
            for (int64_t i = 0; i < size; ++i) want[o * size + i] = bs[o];
            for (int64_t c = 0; c < kIn; ++c)
              for (int64_t i = 0; i < kSize; ++i)
                for (int64_t k = 0; k < kKernel; ++k) {
                  const int64_t at = i * stride - padding + k * kDilation;
                  if (at < 0 || at >= size) continue;
                  want[o * size + at] += xs[c * kSize + i] * ws[(c * kOut + o) * kKernel + k];
                  slope[c * kSize + i] += ws[(c * kOut + o) * kKernel + k];
                }
          }
          EXPECT_LE(relative_error(y.to_vector<double>(), want), dtype == float64 ? 1e-12 : 1e-5);
          sum(y).backward();
          EXPECT_LE(relative_error(x.grad().to_vector<double>(), slope), dtype == float64 ? 1e-12 : 1e-5);
        }
}

}  // namespace
}  // namespace tern::test
