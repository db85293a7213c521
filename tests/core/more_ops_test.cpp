// Ops on bits, special functions, stacks, statistics and random ops that more_functions_golden_test.cpp compares with
// PyTorch: derivatives, other dtypes, views, empty tensors, distributions and errors.

#include <cmath>
#include <cstring>
#include <set>

#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

class MoreOps : public DerivativeTest {
 protected:
  Tensor between(double low, double high, const Shape& shape) {
    const NoGrad off;
    return (rand(shape, generator_, {.dtype = float64}) * (high - low) + low).set_requires_grad(true);
  }
  Tensor distinct(const Shape& shape) { return distinct_leaves({shape}, generator_)[0]; }
  static void fails(const char* part, const std::function<void()>& fn) { expect_error(fn, {part}); }
};

/// Against C++ on the elements, of every dtype, on views.
TEST_F(MoreOps, BitsOfEveryDtype) {
  for (const DType dtype : {int64, int32, uint8}) {
    const int64_t low = dtype == uint8 ? 0 : -300, bits = dtype == uint8 ? 8 : dtype == int32 ? 32 : 64;
    const Tensor a = randint(low, dtype == uint8 ? 256 : 300, {7, 5}, generator_, {.dtype = dtype}).t();
    const Tensor b = randint(low, dtype == uint8 ? 256 : 300, {7, 2}, generator_, {.dtype = dtype}).select(1, 1);
    const Tensor by = randint(dtype == uint8 ? 0 : -2, 70, {5, 7}, generator_, {.dtype = dtype});
    const auto wrapped = [&](int64_t v) { return from_vector(std::vector<int64_t>{v}, {}).to(dtype).item<int64_t>(); };
    const auto check = [&](const Tensor& got, const std::function<int64_t(int64_t, int64_t, int64_t)>& want) {
      ASSERT_EQ(got.dtype(), dtype);
      ASSERT_EQ(got.shape(), Shape({5, 7}));
      for (int64_t i = 0; i < 5; ++i)
        for (int64_t j = 0; j < 7; ++j)
          ASSERT_EQ(got[i][j].item<int64_t>(),
                    wrapped(want(a[i][j].item<int64_t>(), b[j].item<int64_t>(), by[i][j].item<int64_t>())))
              << dtype;
    };
    check(a & b, [](int64_t x, int64_t y, int64_t) { return x & y; });
    check(a | b, [](int64_t x, int64_t y, int64_t) { return x | y; });
    check(a ^ b, [](int64_t x, int64_t y, int64_t) { return x ^ y; });
    check(~a, [](int64_t x, int64_t, int64_t) { return ~x; });
    check(a & 6, [](int64_t x, int64_t, int64_t) { return x & 6; });
    check(a << 3, [](int64_t x, int64_t, int64_t) { return x * 8; });
    check(a >> 2, [](int64_t x, int64_t, int64_t) { return x >> 2; });
    check(a << by, [=](int64_t x, int64_t, int64_t n) {
      return n < 0 || n >= bits ? 0 : static_cast<int64_t>(static_cast<uint64_t>(x) << n);
    });
    check(a >> by, [=](int64_t x, int64_t, int64_t n) { return n < 0 || n >= bits ? (x < 0 ? -1 : 0) : x >> n; });
    Tensor changed = a.contiguous().clone();
    const Tensor before = changed.clone();
    changed &= b;
    expect_equal(changed, before & b);
    changed |= 1 + ~b;
    changed ^= before;
    expect_equal(changed, ((before & b) | (1 + ~b)) ^ before);
  }
  EXPECT_EQ((arange(0, 4) | (int64_t{1} << 62)).to_vector<int64_t>()[3], (int64_t{1} << 62) + 3);
  EXPECT_EQ((arange(0, 4).to(int32) ^ arange(0, 4)).dtype(), int64);
  EXPECT_EQ((zeros({0, 2}, {.dtype = int32}) << 1).shape(), Shape({0, 2}));
  EXPECT_EQ((~full({}, 5, {.dtype = int64})).item<int64_t>(), -6);
}

/// A fraction is refused by the compiler, which would cut it off.
template <class Number>
constexpr bool kTakesNumber = requires(const Tensor& x, Number number) {
  x& number;
};
static_assert(kTakesNumber<int> && kTakesNumber<int64_t> && !kTakesNumber<double>);

TEST_F(MoreOps, BitsOfMasks) {
  const Tensor mask = from_vector<bool>({true, false}, {2}), i = from_vector<int64_t>({3, 4}, {2});
  EXPECT_EQ((mask & i).to_vector<int64_t>(), (std::vector<int64_t>{1, 0}));  // as PyTorch: bool is promoted
  Tensor changed = mask.clone();
  changed |= ~mask;
  EXPECT_EQ(changed.dtype(), boolean);
  EXPECT_TRUE(all(changed).item<bool>());
  fails("operator&=: the result would be int64, but the tensor is bool", [&] { changed &= i; });
  fails("bitwise_and: expected integer or bool tensors, got float32", [&] { ones({2}) & mask; });
  fails("bitwise_xor: expected integer", [&] { ~ones({2}); });
  fails("bitwise_left_shift: expected integers, got bool", [&] { mask << mask; });
}

TEST_F(MoreOps, DerivativesOfSpecialFunctions) {
  for (const Shape& shape : {Shape{3, 5}, Shape{1}, Shape{}, Shape{0, 2}}) {
    expect_derivatives([](const Tensors& in) { return logit(in[0]); }, {between(0.1, 0.9, shape)});
    expect_derivatives([](const Tensors& in) { return logit(in[0], 0.05); }, {between(0.1, 0.9, shape)});
    expect_derivatives([](const Tensors& in) { return entr(in[0]); }, {between(0.2, 3, shape)});
    expect_derivatives([](const Tensors& in) { return sinc(in[0]); }, {between(0.1, 2, shape)});
    expect_derivatives([](const Tensors& in) { return ndtr(in[0]); }, {between(-2, 2, shape)});
    expect_derivatives([](const Tensors& in) { return celu(in[0], 0.7); }, {between(0.1, 2, shape)});
    expect_derivatives([](const Tensors& in) { return celu(in[0], 0.7); }, {between(-2, -0.1, shape)});
  }
  for (const auto op : {erfc, lgamma, digamma}) {
    expect_derivatives([=](const Tensors& in) { return op(in[0]); }, {between(0.3, 4, {3, 5})});
    expect_derivatives([=](const Tensors& in) { return op(in[0].t().slice(0, 0, 5, 2)); },
                       {between(-1.8, -1.2, {3, 5})});
  }
  for (const int n : {1, 2, 5})
    for (const double low : {0.7, -3.8})
      expect_derivatives([=](const Tensors& in) { return polygamma(n, in[0]) * std::exp2(-8); },
                         {between(low, low + 0.5, {4})});
  expect_derivatives([](const Tensors& in) { return threshold(square(in[0].t()), 0.4, -1); }, {distinct({3, 4})});
  for (const auto op : {xlogy, xlog1py})
    expect_derivatives([=](const Tensors& in) { return op(in[0], in[1]); }, {normal({3, 1}), between(0.2, 2, {4})});
}

/// Values that are known, and the equations by which the gamma function continues.
TEST_F(MoreOps, GammaFunctions) {
  const auto value = [](const Tensor& x) { return x.item<double>(); };
  const auto at = [](double x) { return full({}, x, {.dtype = float64}); };
  constexpr double kEuler = 0.57721566490153286061, kPi = 3.14159265358979323846;
  EXPECT_NEAR(value(lgamma(at(0.5))), std::log(kPi) / 2, 1e-15);
  EXPECT_NEAR(value(digamma(at(1))), -kEuler, 1e-15);
  EXPECT_NEAR(value(polygamma(1, at(1))), kPi * kPi / 6, 1e-15);
  EXPECT_NEAR(value(polygamma(1, at(0.5))), kPi * kPi / 2, 2e-15);
  EXPECT_NEAR(value(polygamma(3, at(1))), std::pow(kPi, 4) / 15, 4e-15);
  const Tensor x = between(-4.9, 6, {200}).detach();
  const Tensor apart = abs(x - round(x)) > 0.05;  // from the poles
  for (int n = 0; n < 6; ++n) {
    // polygamma(n, x + 1) - polygamma(n, x) = (-1)^n n! x^(-n - 1)
    const Tensor low = polygamma(n, x), difference = polygamma(n, x + 1.0) - low;
    const Tensor step = pow(x, -n - 1) * ((n % 2 == 0 ? 1 : -1) * std::tgamma(n + 1));
    const Tensor error = abs(difference - step) / (abs(low) + abs(step) + 1.0);
    EXPECT_LT(max(masked_select(error, apart)).item<double>(), 1e-11) << n;
  }
  for (const double pole : {0.0, -1.0, -7.0}) {
    EXPECT_EQ(value(lgamma(at(pole))), INFINITY);
    EXPECT_EQ(value(polygamma(1, at(pole))), INFINITY);
    EXPECT_TRUE(pole == 0 ? std::isinf(value(digamma(at(pole)))) : std::isnan(value(digamma(at(pole)))));
  }
  EXPECT_TRUE(std::isnan(value(digamma(at(NAN)))));
  EXPECT_EQ(value(digamma(at(INFINITY))), INFINITY);
  EXPECT_EQ(value(polygamma(2, at(INFINITY))), 0);
  EXPECT_NEAR(value(erfc(at(9))) / std::erfc(9), 1, 1e-14);
  EXPECT_EQ(lgamma(ones({2}, {.dtype = int32})).dtype(), float32);
  EXPECT_EQ(digamma(zeros({0, 2})).shape(), Shape({0, 2}));
  fails("polygamma: n must be in [0, 28], got 29", [&] { polygamma(29, x); });
  fails("polygamma: n must be", [&] { polygamma(-1, x); });
}

TEST_F(MoreOps, DerivativesOfBesselAndIncompleteGamma) {
  for (const auto op : {i0, i0e, i1, i1e, erfcx, log_ndtr})
    for (const double low : {-3.0, 0.2})
      expect_derivatives([=](const Tensors& in) { return op(in[0].t()); }, {between(low, low + 2.5, {3, 5})});
  for (const auto op : {igamma, igammac}) {
    const Tensor a = between(0.4, 20, {3, 1}).detach();
    expect_derivatives([=](const Tensors& in) { return op(a, in[0]); }, {between(0.5, 15, {4})});
    fails("no derivative by the first argument; pass a.detach()",
          [&] { op(between(0.4, 20, {3}), ones({3}, {.dtype = float64})); });
  }
  expect_derivatives(
      [](const Tensors& in) {
        const Tensor index = from_vector<int64_t>({2, 0, 2}, {3});
        return square(index_reduce(in[0].t(), 1, index, in[1], ScatterReduction::kMean));
      },
      {normal({3, 2}), normal({2, 3})});
  expect_derivatives(
      [](const Tensors& in) { return triplet_margin_with_distance_loss(in[0], in[1], in[2], {}, {.margin = 9}); },
      {normal({3, 2}), normal({3, 2}), normal({3, 2})});
}

/// Equations among the functions, and values at the ends of the range.
TEST_F(MoreOps, BesselAndIncompleteGamma) {
  const auto value = [](const Tensor& x) { return x.item<double>(); };
  const auto at = [](double x) { return full({}, x, {.dtype = float64}); };
  // I_n(x) is (1/pi) times the integral of exp(x cos t) cos(n t), whose trapezoidal sums converge fast.
  for (const double x : {0.0, 1e-9, 0.3, -7.0, 29.9, 30.1, -30.0, 500.0, 712.0}) {
    double sums[2] = {};
    constexpr int kSteps = 400;
    for (int k = 0; k < 2 * kSteps; ++k) {
      const double t = M_PI * k / kSteps, power = std::exp(std::fabs(x) * (std::cos(t) - 1));
      sums[0] += power / (2 * kSteps);
      sums[1] += power * std::cos(t) / (2 * kSteps);
    }
    EXPECT_NEAR(value(i0e(at(x))) / sums[0], 1, 2e-14) << x;
    EXPECT_NEAR(value(i1e(at(x))), std::copysign(sums[1], x), 2e-14 * sums[1] + 1e-15) << x;
    if (std::fabs(x) < 700) {
      EXPECT_NEAR(value(i0(at(x))) / value(i0e(at(x))) / std::exp(std::fabs(x)), 1, 1e-13) << x;
    }
  }
  EXPECT_TRUE(std::isfinite(value(i0(at(712)))));  // exp overflows at 710
  EXPECT_EQ(value(i0(at(-INFINITY))), INFINITY);
  EXPECT_EQ(value(i1(at(-INFINITY))), -INFINITY);
  EXPECT_EQ(value(i0e(at(INFINITY))), 0);
  EXPECT_TRUE(std::isnan(value(i1(at(NAN)))));
  const Tensor x = between(0, 30, {300}).detach(), a = between(0.1, 30, {300}).detach();
  EXPECT_LT(value(max(abs(igamma(a, x) + igammac(a, x) - 1.0))), 4e-15);
  // P(a, x) = P(a + 1, x) + x^a exp(-x) / gamma(a + 1); P(1, x) = 1 - exp(-x); Q(1/2, x^2) = erfc(x)
  EXPECT_LT(value(max(abs(igamma(a, x) - igamma(a + 1.0, x) - exp(a * log(x) - x - lgamma(a + 1.0))))), 1e-13);
  EXPECT_LT(value(max(abs(igamma(ones_like(x), x) + expm1(-x)))), 4e-15);
  EXPECT_LT(value(max(abs(igammac(full_like(x, 0.5), square(x / 6.0)) / erfc(x / 6.0) - 1.0))), 1e-12);
  // Sums of the series with 80 digits.
  for (const auto& [of, until, lower, upper] :
       std::vector<std::array<double, 4>>{{90, 85.25, 0.31757835816448966, 0.68242164183551034},
                                          {800, 715.5, 0.00100816010637394, 0.99899183989362606},
                                          {30000, 29480.5, 0.0012853318562888149, 0.99871466814371119},
                                          {3, 0.5, 0.014387677966970687, 0.98561232203302931},
                                          {9.75, 3, 0.0015155450081256228, 0.99848445499187438},
                                          {12, 40, 0.99999993915797282, 6.0842027176639998e-8},
                                          {150000, 149600, 0.15083607312226813, 0.84916392687773187},
                                          {1000000, 1000300, 0.61802710338800816, 0.38197289661199184}}) {
    EXPECT_NEAR(value(igamma(at(of), at(until))) / lower, 1, 2e-14) << of << " " << until;
    EXPECT_NEAR(value(igammac(at(of), at(until))) / upper, 1, 2e-14) << of << " " << until;
  }
  for (const double large : {5e3, 9.9e4, 1.01e5, 1e9}) {  // the expansion meets the series, and the normal distribution
    const Tensor z = between(-4, 4, {50}).detach(), near = z * std::sqrt(large) + large;
    const Tensor first = ndtr(z),
                 second = (square(z) - 1.0) * exp(square(z) * -0.5) * (1 / std::sqrt(18 * M_PI * large));
    EXPECT_LT(value(max(abs(igamma(full_like(z, large), near) - first + second))), 3 / large) << large;
  }
  EXPECT_NEAR(value(log_ndtr(at(-1e4))) / -50000010.129278915, 1, 1e-14);
  EXPECT_NEAR(value(log_ndtr(at(9))) / -1.1285884059538408e-19, 1, 1e-13);
  EXPECT_NEAR(value(erfcx(at(9.999))) / value(erfcx(at(10.001))), 10.001 / 9.999, 1e-5);
  EXPECT_NEAR(value(erfcx(at(1e8))) * 1e8, 1 / std::sqrt(M_PI), 1e-15);
  EXPECT_EQ(igamma(ones({2, 1}, {.dtype = int32}), ones({3}, {.dtype = int64})).dtype(), float32);
}

TEST_F(MoreOps, IntegersAndNeighbours) {
  const Tensor a = from_vector<int64_t>({12, -12, 0, 0, INT64_MIN, 7}, {6}),
               b = from_vector<int64_t>({18, 8, 5, 0, 6, -1}, {6});
  EXPECT_EQ(gcd(a, b).to_vector<int64_t>(), (std::vector<int64_t>{6, 4, 5, 0, 2, 1}));
  EXPECT_EQ(lcm(a, b).slice(0, 0, 4).to_vector<int64_t>(), (std::vector<int64_t>{36, 24, 0, 0}));
  EXPECT_EQ(gcd(a.to(uint8), b.to(int32)).dtype(), int32);
  EXPECT_EQ(lcm(full({1}, 200, {.dtype = uint8}), full({1}, 3, {.dtype = uint8})).item<int64_t>(), 600 % 256);
  EXPECT_EQ(gcd(zeros({0, 2}, {.dtype = int64}), a.slice(0, 0, 2)).shape(), Shape({0, 2}));
  fails("gcd: expected integers, got float32", [&] { gcd(ones({2}), b); });
  fails("lcm: expected integers, got bool", [&] { lcm(b > 0.0, b); });
  fails("nextafter: expected floating tensors", [&] { nextafter(b, b); });
  fails("index_reduce: the source must be [2, 1] for 1 slices", [] {
    index_reduce(ones({2, 3}), 1, zeros({1}, {.dtype = int64}), ones({2, 2}), ScatterReduction::kMax);
  });
  fails("index_reduce: the index must be int64 or int32",
        [] { index_reduce(ones({2}), 0, zeros({1}), ones({1}), ScatterReduction::kMax); });
  fails("triplet_margin_with_distance_loss: the margin must be above 0",
        [] { triplet_margin_with_distance_loss(ones({1}), ones({1}), ones({1}), {}, {.margin = 0}); });
  // All 16-bit numbers: from one to the next there is no other.
  for (const DType dtype : {float16, bfloat16}) {
    std::vector<double> all;
    for (int bits = 0; bits < 0x8000; ++bits) {
      const auto half = static_cast<uint16_t>(bits);
      const double number = dtype == float16 ? static_cast<float>(std::bit_cast<Float16>(half))
                                             : static_cast<float>(std::bit_cast<BFloat16>(half));
      if (!std::isnan(number)) all.push_back(number);
    }
    const Tensor x = from_vector(all, {static_cast<int64_t>(all.size())}).to(dtype), last = x.slice(0, all.size() - 1);
    for (const double sign : {1.0, -1.0}) {
      const Tensor up = nextafter(x * sign, last * sign),
                   down = nextafter(x * sign, full({}, -1e-40 * sign).to(float32).to(dtype));
      expect_equal(up.slice(0, 0, all.size() - 1), (x * sign).slice(0, 1));
      expect_equal(down.slice(0, 1), (x * sign).slice(0, 0, all.size() - 1));
    }
  }
  const std::vector<double> ends = {0, -0.0, 1, -1, 3, 0x1p-149, INFINITY, -INFINITY};
  const Tensor first = from_vector(ends, {8, 1}), second = from_vector(ends, {8});
  const std::vector<float> singles = nextafter(first.to(float32), second.to(float32)).to_vector<float>();
  const std::vector<double> doubles = nextafter(first, second).to_vector<double>();
  for (size_t i = 0; i < 64; ++i) {
    const double from = ends[i / 8], to = ends[i % 8];
    EXPECT_EQ(doubles[i], std::nextafter(from, to)) << from << " to " << to;
    EXPECT_EQ(singles[i], std::nextafter(static_cast<float>(from), static_cast<float>(to))) << from << " to " << to;
  }
  EXPECT_TRUE(std::isnan(nextafter(full({}, NAN, {.dtype = float16}), zeros({}, {.dtype = float16})).item<double>()));
}

TEST_F(MoreOps, DerivativesOfStacksAndStatistics) {
  expect_derivatives([](const Tensors& in) { return square(vander(in[0], 4)); }, {normal({3})});
  expect_derivatives([](const Tensors& in) { return square(combinations(in[0], 2, true)); }, {normal({3})});
  expect_derivatives(
      [](const Tensors& in) {
        return square(dstack({in[0], in[1].t()}));
      },
      {normal({3, 2}), normal({2, 3})});
  expect_derivatives(
      [](const Tensors& in) {
        const std::vector<Tensor> same = broadcast_tensors({in[0], in[1]});
        return same[0] * same[1];
      },
      {normal({3, 1}), normal({2})});
  expect_derivatives(
      [](const Tensors& in) {
        return square(cat({in[0], in[1].t(), in[0]}, 1));
      },
      {normal({0}), normal({3, 2})});
  const Tensor fweights = from_vector<int64_t>({2, 0, 1, 3, 1}, {5}), aweights = rand({5}, generator_);
  expect_derivatives([&](const Tensors& in) { return square(cov(in[0].t(), 1, fweights, aweights)); },
                     {normal({5, 2})});
  expect_derivatives([](const Tensors& in) { return square(diff(in[0], 2, 0, in[1], in[2])); },
                     {normal({3, 2}), normal({1, 2}), normal({2, 2})});
  expect_derivatives([](const Tensors& in) { return square(cumulative_trapezoid(in[0], in[1], 0)); },
                     {normal({4, 2}), normal({4})});
  for (const double order : {1.0, -1.0, double{INFINITY}, -double{INFINITY}})
    expect_derivatives([=](const Tensors& in) { return matrix_norm(in[0], order, 0, 2); }, {distinct({3, 2, 4})});
  expect_derivatives([](const Tensors& in) { return matrix_power(in[0].t(), 5); }, {between(-0.7, 0.7, {3, 3})});
  expect_derivatives([](const Tensors& in) { return vecdot(in[0], in[1], 0); }, {normal({3, 2}), normal({3, 1})});
}

TEST_F(MoreOps, EmptyAndOneElement) {
  EXPECT_EQ(cat({zeros({0}), ones({2, 3}), zeros({0})}, -1).shape(), Shape({2, 3}));
  EXPECT_EQ(cat({zeros({0}, {.dtype = float64}), ones({2, 3})}, 1).dtype(), float64);
  EXPECT_EQ(cat({zeros({0}), zeros({0})}).shape(), Shape({0}));
  EXPECT_EQ(cat({zeros({0}), ones({2})}).numel(), 2);
  fails("cat: [2, 3] and [0, 2] differ", [] { cat({zeros({0}), ones({2, 3}), zeros({0, 2})}); });
  EXPECT_EQ(count_nonzero(full({3}, NAN)).item<int64_t>(), 3);
  EXPECT_EQ(count_nonzero(zeros({0})).item<int64_t>(), 0);
  EXPECT_EQ(combinations(zeros({0})).shape(), Shape({0, 2}));
  EXPECT_EQ(vander(arange(0, 3)).to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 1, 1, 1, 1, 4, 2, 1}));
  EXPECT_TRUE(broadcast_tensors({}).empty());
  EXPECT_EQ(unravel_index(zeros({0, 2}, {.dtype = int64}), {3, 0}).size(), 2u);
  EXPECT_EQ(matrix_power(zeros({0, 0}), 3).shape(), Shape({0, 0}));
  for (const Shape& shape : {Shape{2, 0}, {0, 3}, {0, 0}})
    for (const double order : {1.0, -1.0, HUGE_VAL}) EXPECT_EQ(matrix_norm(zeros(shape), order).item<double>(), 0);
  EXPECT_EQ(histogram(zeros({0}), 3).counts.to_vector<double>(), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(cumulative_trapezoid(zeros({1})).numel(), 0);
  EXPECT_EQ(diff(zeros({0}), 1, -1, ones({1}), ones({2})).numel(), 2);
  EXPECT_EQ(diff(arange(0, 3) > 0.0, 1, 0, zeros({1}, {.dtype = boolean})).dtype(), boolean);
}

/// 16 bits are computed in fp32 and rounded once.
TEST_F(MoreOps, SixteenBitsAreRoundedOnce) {
  const auto check = [&](Tensor (*op)(const Tensor&), double low, double high) {
    const Tensor x = between(low, high, {200}).detach().to(bfloat16);
    EXPECT_EQ(op(x).dtype(), bfloat16);
    expect_equal(op(x), op(x.to(float32)).to(bfloat16));
    EXPECT_EQ(op(ones({2}, {.dtype = int32})).dtype(), float32);
  };
  check([](const Tensor& x) { return logit(x); }, 0.01, 0.99);
  check(entr, 0, 2);
  check(sinc, -5, 5);
  check(ndtr, -5, 5);
  for (const auto op : {i0, i0e, i1, i1e, erfcx, log_ndtr}) check(op, -3, 3);
  check(lgamma, 0.1, 5);
  check(digamma, 0.1, 5);
  EXPECT_EQ(xlogy(ones({2}, {.dtype = int64}), ones({2}, {.dtype = float16})).dtype(), float16);
  // Where a is 0 no gradient is NaN.
  const Tensor a = zeros({4}, {.dtype = float64, .requires_grad = true});
  const Tensor b = tensor({0, 1, INFINITY, -1}, {.dtype = float64, .requires_grad = true});
  sum(xlogy(a, b)).backward();
  EXPECT_TRUE(all_finite(a.grad()));
  EXPECT_TRUE(all_finite(b.grad()));
}

TEST_F(MoreOps, BitsAreReadAsAnotherDtype) {
  const Tensor x = randn({5, 3}, generator_).t(), bits = x.view(int32);
  ASSERT_EQ(bits.shape(), x.shape());
  EXPECT_EQ(bits.dtype(), int32);
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t j = 0; j < 5; ++j) {
      const float value = x[i][j].item<float>();
      int32_t want = 0;
      std::memcpy(&want, &value, sizeof(want));
      EXPECT_EQ(bits[i][j].item<int64_t>(), want);
    }
  expect_equal(bits.view(float32), x);
  bits.select(0, 1).fill_(0);  // the same memory
  EXPECT_EQ(sum(abs(x.select(0, 1))).item<double>(), 0);
  EXPECT_TRUE(same(x.view(float32), x));
  EXPECT_FALSE(leaf({2}, generator_).view(int64).requires_grad());
  EXPECT_EQ(zeros({0}, {.dtype = bfloat16}).view(float16).numel(), 0);
  fails("view: float32 elements cannot be read as float64", [&] { x.view(float64); });
  fails("bool is not taken", [] { ones({2}, {.dtype = uint8}).view(boolean); });
}

/// Exponential numbers against their distribution function; Gumbel's trick chooses with the probabilities of softmax.
TEST_F(MoreOps, Distributions) {
  constexpr int64_t kCount = 40000;
  for (const DType dtype : {float64, float32}) {
    const std::vector<double> values =
        sort(exponential({kCount}, generator_, 2.5, {.dtype = dtype}), 0).values.to_vector<double>();
    EXPECT_GT(values[0], 0);
    double distance = 0;  // of Kolmogorov and Smirnov; above 2.5 / sqrt(n) with probability 2 exp(-12.5) < 1e-5
    for (int64_t i = 0; i < kCount; ++i) {
      const double expected = -std::expm1(-2.5 * values[static_cast<size_t>(i)]);
      distance = std::max(distance, std::abs(expected - (static_cast<double>(i) + 0.5) / kCount));
    }
    EXPECT_LT(distance, 2.5 / std::sqrt(kCount));
    const Tensor logits = tensor({1, -0.5, 0.2}, {.dtype = dtype});
    const Tensor hard = gumbel_softmax(logits.expand({kCount, 3}), generator_, 0.5, true);
    EXPECT_EQ(hard.dtype(), dtype);
    const std::vector<double> shares = mean(hard, {0}).to_vector<double>(),
                              wanted = softmax(logits, 0).to_vector<double>();
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(shares[i], wanted[i], 6 * 0.5 / std::sqrt(kCount));  // six sigma
  }
  const Tensor x = normal({4, 3});
  for (const int dim : {0, 1}) {
    const auto soft_of = [&](bool hard, const Tensor& logits) {
      return gumbel_softmax(logits, *same_draws(), 0.7, hard, dim);
    };
    expect_derivatives([&](const Tensors& in) { return square(soft_of(false, in[0])); }, {x});
    const Tensor soft = soft_of(false, x), hard = soft_of(true, x);
    expect_near(sum(soft, {dim}), ones_like(sum(soft, {dim})), 1e-14);
    const Tensor weights = randn(x.shape(), generator_, {.dtype = float64});
    expect_near(grad({sum(hard * weights)}, {x})[0], grad({sum(soft * weights)}, {x})[0], 1e-14);
    EXPECT_TRUE(all(logical_or(abs(hard) < 1e-15, abs(hard - 1.0) < 1e-15)).item<bool>());
  }
  fails("tau must be", [&] { gumbel_softmax(x, generator_, 0); });
  fails("rate must be", [&] { exponential({2}, generator_, -1); });
  fails("exponential: expected a floating dtype", [&] { exponential({2}, generator_, 1, {.dtype = int64}); });
  EXPECT_EQ(exponential({0, 2}, generator_).shape(), Shape({0, 2}));
}

TEST_F(MoreOps, DropoutOfChannelsAndAlphaDropout) {
  const Tensor x = ones({300, 40, 2, 3});
  const Tensor y = feature_dropout(x, {.p = 0.3, .generator = &generator_});
  const std::vector<double> first = y.select(3, 0).select(2, 0).flatten().to_vector<double>();
  expect_equal(y, y.slice(2, 0, 1).slice(3, 0, 1).expand(x.shape()));  // a channel is whole
  double kept = 0;
  for (const double v : first) {
    EXPECT_TRUE(v == 0 || std::abs(v - 1 / 0.7) < 1e-6) << v;
    kept += v != 0;
  }
  EXPECT_NEAR(kept / 12000, 0.7, 6 * std::sqrt(0.21 / 12000));
  EXPECT_TRUE(same(feature_dropout(x, {}), x));
  fails("feature_dropout: expected [batch, channels, ...]", [] { feature_dropout(ones({3}), {.p = 0.5}); });
  // Mean 0 and variance 1 stay.
  const Tensor z = randn({200000}, generator_);
  for (const double p : {0.1, 0.5}) {
    const StdMean stays = std_mean(alpha_dropout(z, {.p = p, .generator = &generator_}));
    EXPECT_NEAR(stays.mean.item<double>(), 0, 0.02);
    EXPECT_NEAR(stays.std.item<double>(), 1, 0.02);
  }
  EXPECT_EQ(count_nonzero(alpha_dropout(z, {.p = 1, .generator = &generator_})).item<int64_t>(), 0);
  expect_derivatives(
      [&](const Tensors& in) { return square(alpha_dropout(in[0].t(), {.p = 0.4, .generator = same_draws()})); },
      {normal({3, 4})});
  expect_derivatives(
      [&](const Tensors& in) { return square(feature_dropout(in[0], {.p = 0.4, .generator = same_draws()})); },
      {normal({3, 4, 2})});
}

/// The upper incomplete gamma function of a tiny a is a E_1(x) (Abramowitz and Stegun, tables 5.1 and 5.2).
TEST_F(MoreOps, IncompleteGammaOfTinyOrders) {
  const std::pair<double, double> table[] = {
      {1e-3, 6.3315393641361493}, {0.5, 0.55977359477616082}, {1.05, 0.20187281322015}, {2, 0.04890051070806112}};
  for (const auto& [x, integral] : table)
    for (const double a : {1e-10, 1e-30, 1e-200})
      EXPECT_NEAR(
          igammac(full({}, a, {.dtype = float64}), full({}, x, {.dtype = float64})).item<double>() / a / integral, 1,
          1e-8)
          << a << " " << x;
  EXPECT_EQ(igammac(full({}, 1e-5), full({}, 0.5)).item<float>(), 5.5977653e-06F);
}

/// As PyTorch 2.15 along named dimensions: the value is infinite or NaN, and the gradient what 2 (x - mean) /
/// (n - correction) gives.
TEST_F(MoreOps, GradientsOfDeviationsWithoutDegreesOfFreedom) {
  const auto slope = [](std::vector<double> data, double correction, bool root) {
    const Tensor x = tensor(data).to(float64).set_requires_grad(true);
    return grad({root ? tern::std(x, {0}, correction) : var(x, {0}, correction)}, {x})[0].to_vector<double>();
  };
  EXPECT_EQ(slope({1, 2}, 2, false), (std::vector<double>{-INFINITY, INFINITY}));
  EXPECT_EQ(slope({1, 2}, 3, false), (std::vector<double>{1, -1}));
  EXPECT_EQ(slope({1, 2}, 3, true), (std::vector<double>{0, 0}));
  EXPECT_EQ(slope({5}, 2, false), (std::vector<double>{0}));
  for (const double number : {slope({5}, 1, false)[0], slope({5}, 1, true)[0], slope({1, 2}, 2, true)[0]})
    EXPECT_TRUE(std::isnan(number)) << number;
}

TEST_F(MoreOps, MishOfTheLowestNumbers) {
  for (const DType dtype : {float32, float64, bfloat16}) {
    const Tensor x = tensor({-3.3e38, -1e30, -200}).to(dtype).set_requires_grad(true), y = mish(x);
    const Tensor dx = grad({sum(y)}, {x}, {.create_graph = true})[0];
    for (const Tensor& zeros : {y, dx, grad({sum(dx)}, {x})[0]})
      for (const double value : zeros.to(float64).to_vector<double>()) EXPECT_NEAR(value, 0, 1e-80) << dtype;
  }
}

TEST_F(MoreOps, Errors) {
  fails("logit: eps must be in [0, 0.5], got 0.6", [] { logit(ones({2}), 0.6); });
  fails("celu: alpha must not be 0", [] { celu(ones({2}), 0); });
  fails("combinations: expected a vector", [] { combinations(ones({2, 2})); });
  fails("combinations: r must not be negative", [] { combinations(ones({2}), -1); });
  fails("vander: expected a vector", [] { vander(ones({2, 2})); });
  fails("vander: the number of columns", [] { vander(ones({2}), -1); });
  fails("unravel_index: the indices, 0 to 6, must be in [0, 6)", [] { unravel_index(arange(0, 7), {2, 3}); });
  fails("unravel_index: the indices must be int64", [] { unravel_index(ones({2}), {2, 3}); });
  fails("matrix_norm: order must be absent", [] { matrix_norm(ones({2, 2}), 2); });
  fails("matrix_norm: expected two different", [] { matrix_norm(ones({2, 2}), {}, 0, -2); });
  fails("matrix_power: expected square", [] { matrix_power(ones({2, 3}), 2); });
  fails("matrix_power: the exponent", [] { matrix_power(ones({2, 2}), -1); });
  fails("vecdot: [2] and [3] differ", [] { vecdot(ones({2}), ones({3})); });
  fails("diff: prepend and append must have the 2 dimensions", [] { diff(ones({2, 2}), 1, 0, ones({2})); });
  fails("cov: fweights must be integers [3]", [] { cov(ones({2, 3}), 1, ones({3})); });
  fails("cov: fweights must not be negative", [] { cov(ones({2, 3}), 1, full({3}, -1, {.dtype = int64})); });
  fails("cov: aweights must be floats [3]", [] { cov(ones({2, 3}), 1, {}, ones({2})); });
  fails("cov: the weights are all 0", [] { cov(ones({2, 3}), 1, {}, zeros({3})); });
  fails("histogram: the edges must ascend", [] { histogram(ones({2}), tensor({1, 0})); });
  fails("histogram: the edges must be a vector", [] { histogram(ones({2}), tensor({1})); });
  fails("histogram: weights must be", [] { histogram(ones({2}), 3, {.weights = ones({3})}); });
  fails("aminmax: an empty tensor", [] { aminmax(zeros({0})); });
}

}  // namespace
}  // namespace tern::test
