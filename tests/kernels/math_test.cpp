// kernels/math/math.h: accuracy of the float functions at every CPU level (through the kernels) over the whole range,
// special values, and dual numbers.

#include "tern/kernels/math/math.h"

#include "tern/kernels/pointwise/tiles.h"
#include "tern/tests/kernels/contracts/pointwise.h"

namespace tern::kernels {
namespace {

/// Every stride-th of all 2^32 floats, including NaN and infinities.
std::vector<float> sampled_floats() {
  std::vector<float> result;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 16411)
    result.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  for (float v : {0.0f,  -0.0f,   INFINITY, -INFINITY, NAN,     1.0f,      -1.0f,      88.7228f,   88.7229f,
                  89.0f, -87.34f, -103.97f, -103.98f,  -104.5f, 0x1p-126f, 0x1p-149f,  -0x1p-149f, 0.92f,
                  3.9f,  4.1f,    9.01f,    10.5f,     3e38f,   -3e38f,    1.0000001f, 0.9999999f})
    result.push_back(v);
  // More where the functions change quickly: one float in 64 of [2^-12, 2^7), both signs.
  for (uint32_t bits = std::bit_cast<uint32_t>(0x1p-12f); bits < std::bit_cast<uint32_t>(0x1p7f); bits += 619) {
    result.push_back(std::bit_cast<float>(bits));
    result.push_back(-std::bit_cast<float>(bits));
  }
  return result;
}

/// |got - exact| in units in the last place of exact as a float.
double error_in_ulp(float got, double exact) {
  const float rounded = static_cast<float>(exact);
  if (std::isnan(exact) || std::isnan(got)) return std::isnan(exact) && std::isnan(got) ? 0 : INFINITY;
  if (std::isinf(rounded) || std::isinf(got)) return rounded == got ? 0 : INFINITY;
  if (exact == 0 && std::signbit(exact) != std::signbit(got)) return INFINITY;
  const float size = std::fabs(rounded);
  return std::fabs(static_cast<double>(got) - exact) / (static_cast<double>(std::nextafter(size, INFINITY)) - size);
}

template <class Op>
void check_accuracy(double allowed, double (*exact)(double), float lowest = -INFINITY) {
  const std::vector<float> x = sampled_floats();
  std::vector<float> y(x.size());
  for_each_level([&] {
    const int64_t n = static_cast<int64_t>(x.size());
    const ConstView in = make_view(x.data(), n);
    const Op op;
    pointwise({}, make_call(op, {}, float32), &in, 1, make_view(y.data(), n));
    double worst = 0;
    float at = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] < lowest) continue;
      const double error = error_in_ulp(y[i], exact(x[i]));
      if (!(error <= worst)) {
        worst = error;
        at = x[i];
      }
    }
    EXPECT_LE(worst, allowed) << Op::name << " at " << at;
  });
}

TEST(Math, FloatFunctionsOverTheWholeRange) {
  check_accuracy<Exp>(1.02, [](double x) { return std::exp(x); });
  check_accuracy<Expm1>(1.7, [](double x) { return std::expm1(x); });
  check_accuracy<Log>(1.0, [](double x) { return std::log(x); });
  check_accuracy<Softplus>(3.1,
                           [](double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); });
  check_accuracy<Log1p>(2.6, [](double x) { return std::log1p(x); });
  check_accuracy<Tanh>(2.8, [](double x) { return std::tanh(x); });
  check_accuracy<Erf>(1.5, [](double x) { return std::erf(x); });
  check_accuracy<Sigmoid>(
      2.6, [](double x) { return 1 / (1 + std::exp(-x)); }, -87.0f);
  check_accuracy<Exp2>(1.1, [](double x) { return std::exp2(x); });
  check_accuracy<Log2>(1.5, [](double x) { return std::log2(x); });
  check_accuracy<Log10>(2.0, [](double x) { return std::log10(x); });
  check_accuracy<Sinh>(2.5, [](double x) { return std::sinh(x); });
  check_accuracy<Cosh>(2.2, [](double x) { return std::cosh(x); });
  check_accuracy<Asinh>(3.0, [](double x) { return std::asinh(x); });
  check_accuracy<Acosh>(4.0, [](double x) { return std::acosh(x); });
  check_accuracy<Atanh>(3.4, [](double x) { return std::atanh(x); });
  check_accuracy<Asin>(2.5, [](double x) { return std::asin(x); });
  check_accuracy<Acos>(1.3, [](double x) { return std::acos(x); });
  check_accuracy<Atan>(1.8, [](double x) { return std::atan(x); });
  check_accuracy<Sin>(1.6, [](double x) { return std::sin(x); });
  check_accuracy<Cos>(1.6, [](double x) { return std::cos(x); });
  check_accuracy<Tan>(3.4, [](double x) { return std::tan(x); });
  check_accuracy<Round>(0, [](double x) { return std::nearbyint(x); });
  check_accuracy<Trunc>(0, [](double x) { return std::trunc(x); });
  check_accuracy<Ceil>(0, [](double x) { return std::ceil(x); });
  check_accuracy<Sqrt>(0.5, [](double x) { return std::sqrt(x); });
  check_accuracy<Erfinv>(4, inverse_erf);
  check_accuracy<Abs>(0, [](double x) { return std::fabs(x); });
  check_accuracy<Neg>(0, [](double x) { return -x; });
}

TEST(Math, ScalarUseMatchesTheLibrary) {
  for (float x : sampled_floats()) {
    ASSERT_LE(error_in_ulp(math::exp(x), std::exp(static_cast<double>(x))), 1.02) << x;
    ASSERT_LE(error_in_ulp(math::tanh(x), std::tanh(static_cast<double>(x))), 2.8) << x;
  }
}

TEST(Math, PowersOfTwoAreExact) {
  for (int i = -149; i < 128; ++i) {
    const float power = std::ldexp(1.0f, i);
    EXPECT_EQ(math::exp2(static_cast<float>(i)), power);
    EXPECT_EQ(math::log2(power), static_cast<float>(i));
  }
}

/// Floats beside multiples of pi / 2, where the reduced angle loses all leading digits, up to the last near one.
TEST(Math, AnglesBesideQuarterTurns) {
  std::vector<float> x;
  for (int n = -8200; n <= 8200; ++n) {
    const auto turn = static_cast<float>(n * 1.5707963267948966);
    for (const float v : {turn, std::nextafter(turn, 1e9f), std::nextafter(turn, -1e9f)}) x.push_back(v);
  }
  const auto check = [&]<class Op>(const Op& op, double allowed, double (*exact)(double)) {
    std::vector<float> y = x;  // in place
    const View view = make_view(y.data(), static_cast<int64_t>(y.size()));
    const ConstView in = view;
    pointwise({}, make_call(op, {}, float32), &in, 1, view);
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_LE(error_in_ulp(y[i], exact(x[i])), allowed) << Op::name << " " << x[i];
  };
  for_each_level([&] {
    check(Sin(), 1.6, [](double v) { return std::sin(v); });
    check(Cos(), 1.6, [](double v) { return std::cos(v); });
    check(Tan(), 3.4, [](double v) { return std::tan(v); });
  });
}

/// Near and far elements beside each other in one tile: every result is that of the element alone, forward and
/// backward.
TEST(Math, FarAnglesDoNotChangeTheirNeighbours) {
  std::mt19937_64 random = fresh_random();
  std::vector<float> x(1021), dy(x.size()), y(x.size()), dx(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] =
        std::ldexp(static_cast<float>(random() % 20001) / 1e4f - 1, i % 97 ? 3 : 10 + static_cast<int>(random() % 100));
    dy[i] = 1 + static_cast<float>(random() % 8);
  }
  for_each_level([&] {
    const auto n = static_cast<int64_t>(x.size());
    const ConstView in[] = {make_view(dy.data(), n), make_view(x.data(), n)};
    pointwise({}, make_call(Sin(), {}, float32), in + 1, 1, make_view(y.data(), n));
    pointwise({}, make_call(Sin(), {PointwisePass::kBackward}, float32), in, 2, make_view(dx.data(), n));
    for (size_t i = 0; i < x.size(); ++i) {
      float alone = 0;
      const ConstView one = make_view(x.data() + i, 1);
      pointwise({}, make_call(Sin(), {}, float32), &one, 1, make_view(&alone, 1));
      ASSERT_EQ(y[i], alone) << x[i];
      ASSERT_LE(error_in_ulp(y[i], std::sin(static_cast<double>(x[i]))), 1.6) << x[i];
      ASSERT_LE(error_in_ulp(dx[i], dy[i] * std::cos(static_cast<double>(x[i]))), 2.2) << x[i];
    }
  });
}

/// Pairs of special values, of random bits, and of numbers whose results are ordinary.
TEST(Math, PowersAndRemainders) {
  const std::vector<float> special = {0.0f,  -0.0f,    1.0f,      -1.0f,       2.0f,    -2.0f,     3.0f,
                                      -3.0f, 0.5f,     -0.5f,     1e-40f,      -1e-40f, 3e38f,     -3e38f,
                                      NAN,   INFINITY, -INFINITY, 16777215.0f, 1.5f,    0x1p-149f, 0x1p30f};
  std::vector<float> a, b;
  for (const float x : special)
    for (const float y : special) a.push_back(x), b.push_back(y);
  std::mt19937_64 random = fresh_random();
  const auto bits = [&] { return std::bit_cast<float>(static_cast<uint32_t>(random())); };
  for (int i = 0; i < 100'000; ++i) {
    const float x =
        i % 3 ? std::ldexp(static_cast<float>(random() % 100'000) / 5e3f, static_cast<int>(random() % 40) - 20)
              : bits();
    a.push_back(x);
    b.push_back(i % 3 == 0   ? bits()
                : i % 3 == 1 ? static_cast<float>(static_cast<int>(random() % 4001) - 2000) / 64
                             : std::ldexp(x, -static_cast<int>(random() % 32)) * static_cast<float>(random() % 1000));
  }
  const auto check = [&]<class Op>(const Op& op, double allowed, double (*exact)(double, double)) {
    const auto n = static_cast<int64_t>(a.size());
    std::vector<float> y(a.size());
    const ConstView in[] = {make_view(a.data(), n), make_view(b.data(), n)};
    pointwise({}, make_call(op, {}, float32), in, 2, make_view(y.data(), n));
    for (size_t i = 0; i < a.size(); ++i)
      ASSERT_LE(error_in_ulp(y[i], exact(a[i], b[i])), allowed) << Op::name << " " << a[i] << " " << b[i];
  };
  for_each_level([&] {
    check(Pow(), 1.0, [](double x, double y) { return std::pow(x, y); });
    check(Fmod(), 0.0, [](double x, double y) { return std::fmod(x, y); });
    check(Remainder(), 0.0, [](double x, double y) {
      const double rest = std::fmod(x, y);
      if (rest == 0 || (rest < 0) == (y < 0)) return rest;
      return static_cast<double>(static_cast<float>(rest) + static_cast<float>(y));
    });
  });
}

/// Every pair of special values, and random points of all sizes.
TEST(Math, AnglesOfPoints) {
  const std::vector<float> special = {0.0f, -0.0f, 1.0f, -1.0f, 2.0f, 1e-40f, 3e38f, INFINITY, -INFINITY, NAN};
  const auto check = [](float y, float x) {
    const double exact = std::atan2(static_cast<double>(y), static_cast<double>(x));
    if (exact != 0 && std::fabs(exact) < 0x1p-126) return;  // subnormal
    EXPECT_LE(error_in_ulp(math::atan2(y, x), exact), 1.8) << y << " " << x;
  };
  for (const float y : special)
    for (const float x : special) check(y, x);
  std::mt19937_64 random = fresh_random();
  for (int i = 0; i < 100'000; ++i) {
    const auto y = std::bit_cast<float>(static_cast<uint32_t>(random()));
    const float factor = 8 * static_cast<float>(random() % 2001) / 1000 - 8;
    check(y, i % 2 ? std::bit_cast<float>(static_cast<uint32_t>(random())) : y * factor);
  }
}

TEST(Math, TangentsOfDualNumbersAreSlopes) {
  using D = math::Dual<double>;
  const struct {
    const char* name;
    D (*f)(D);
    double low, high;
  } functions[] = {{"exp", [](D x) { return math::exp(x); }, -2, 2},
                   {"expm1", [](D x) { return math::expm1(x); }, -2, 2},
                   {"log", [](D x) { return math::log(x); }, 0.5, 3},
                   {"log1p", [](D x) { return math::log1p(x); }, -0.5, 3},
                   {"tanh", [](D x) { return math::tanh(x); }, -2, 2},
                   {"erf", [](D x) { return math::erf(x); }, -2, 2},
                   {"sigmoid", [](D x) { return math::sigmoid(x); }, -2, 2},
                   {"sqrt", [](D x) { return math::sqrt(x); }, 0.5, 3},
                   {"rsqrt", [](D x) { return math::rsqrt(x); }, 0.5, 3},
                   {"sin", [](D x) { return math::sin(x); }, -2, 2},
                   {"cos", [](D x) { return math::cos(x); }, -2, 2},
                   {"exp2", [](D x) { return math::exp2(x); }, -2, 2},
                   {"log2", [](D x) { return math::log2(x); }, 0.5, 3},
                   {"log10", [](D x) { return math::log10(x); }, 0.5, 3},
                   {"tan", [](D x) { return math::tan(x); }, -1, 1},
                   {"asin", [](D x) { return math::asin(x); }, -0.9, 0.9},
                   {"acos", [](D x) { return math::acos(x); }, -0.9, 0.9},
                   {"atan", [](D x) { return math::atan(x); }, -3, 3},
                   {"atan2", [](D x) { return math::atan2(x, D(2) - x * x); }, -3, 3},
                   {"sinh", [](D x) { return math::sinh(x); }, -2, 2},
                   {"cosh", [](D x) { return math::cosh(x); }, -2, 2},
                   {"asinh", [](D x) { return math::asinh(x); }, -2, 2},
                   {"acosh", [](D x) { return math::acosh(x); }, 1.1, 3},
                   {"atanh", [](D x) { return math::atanh(x); }, -0.9, 0.9},
                   {"ceil", [](D x) { return math::ceil(x); }, 0.1, 0.9},
                   {"trunc", [](D x) { return math::trunc(x); }, 0.1, 0.9},
                   {"round", [](D x) { return math::round(x); }, 0.6, 1.4},
                   {"abs", [](D x) { return math::abs(x); }, -2, -0.1},
                   {"floor", [](D x) { return math::floor(x); }, 0.1, 0.9},
                   {"quotient", [](D x) { return (D(2) - x) / (x * x + D(1)); }, -2, 2},
                   {"x^3", [](D x) { return math::pow(x, D(3)); }, -2, 2},
                   {"3^x", [](D x) { return math::pow(D(3), x); }, -2, 2},
                   {"x^x", [](D x) { return math::pow(x, x); }, 0.5, 2},
                   {"max", [](D x) { return math::max(x, D(0.5) * x); }, -2, -0.1},
                   {"min", [](D x) { return math::min(x, D(0.5) * x); }, -2, -0.1},
                   {"-x", [](D x) { return -x; }, -2, 2}};
  std::mt19937_64 random = fresh_random();
  for (const auto& [name, f, low, high] : functions)
    for (int i = 0; i < 100; ++i) {
      const double x = std::uniform_real_distribution<double>(low, high)(random), h = 1e-5;
      const double slope = (f(D(x + h, 0)).value - f(D(x - h, 0)).value) / (2 * h);
      EXPECT_TRUE(near(f(D(x, 1)).tangent, slope, 1e-7, 1e-8)) << name << " at " << x;
    }
}

}  // namespace
}  // namespace tern::kernels
