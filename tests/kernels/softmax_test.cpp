#include "tern/kernels/softmax.h"

#include "tern/tests/kernels/kernel_test.h"

namespace tern::kernels {
namespace {

double unit_of(DType dtype) { return dtype == float64 ? 0x1p-53 : 0x1p-24; }
/// Absolute tolerance: the smallest subnormal of 16-bit and fp32 storage, with a margin for flushing in exp.
double floor_of(DType dtype) { return dtype == float16 ? 6.1e-8 : dtype == float64 ? 0 : 1e-37; }

void check(DType dtype, int64_t rows, int64_t cols, bool log, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << name_of(dtype) << " [" << rows << ", " << cols << "] log " << log);
  Array x(dtype, {rows, cols}, Order::kMisaligned), y(dtype, {rows, cols}), dy(dtype, {rows, cols}),
      dx(dtype, {rows, cols});
  fill_with_random(x, random, -8, 8);
  fill_with_random(dy, random, -1, 1);
  expect_same_for_any_threads(y, [&] { softmax_forward(Stream{}, log, x.cview(), y.view()); });
  expect_same_for_any_threads(dx, [&] { softmax_backward(Stream{}, log, y.cview(), dy.cview(), dx.view()); });
  const double unit = unit_of(dtype), round = epsilon_of(dtype);
  for (int64_t r = 0; r < rows; ++r) {
    long double largest = -INFINITY, sum = 0, product = 0, magnitude = 0;  // more accurate than fp64
    for (int64_t c = 0; c < cols; ++c) largest = std::max<long double>(largest, x.at(r * cols + c));
    for (int64_t c = 0; c < cols; ++c) sum += std::exp(x.at(r * cols + c) - largest);
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t i = r * cols + c;
      const long double term = log ? dy.at(i) : static_cast<long double>(dy.at(i)) * y.at(i);
      product += term;
      magnitude += std::fabs(term);
      const long double logarithm = x.at(i) - largest - std::log(sum);
      const auto expected = static_cast<double>(log ? logarithm : std::exp(logarithm));
      const double relative = 1.01 * round + unit * (log ? 40 : 60);
      ASSERT_TRUE(near(y.at(i), expected, relative, log ? 60 * unit : floor_of(dtype))) << "at " << r << ", " << c;
    }
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t i = r * cols + c;
      const long double factor = log ? std::exp(static_cast<long double>(y.at(i))) : y.at(i);
      const auto expected = static_cast<double>(log ? dy.at(i) - factor * product : factor * (dy.at(i) - product));
      const auto slack =
          static_cast<double>(unit * 40 * (factor * (std::fabs(dy.at(i)) + magnitude) + std::fabs(dy.at(i))));
      ASSERT_TRUE(near(dx.at(i), expected, 1.01 * round, slack + floor_of(dtype))) << "dx at " << r << ", " << c;
    }
  }
}

TEST(Softmax, AgreesWithDouble) {
  std::mt19937_64 random = fresh_random();
  for_each_level([&] {
    for (const DType dtype : kFloatTypes) {
      for (const bool log : {false, true}) {
        check(dtype, 3, 1, log, random);
        check(dtype, 70, 2, log, random);
        check(dtype, 5, 257, log, random);
        check(dtype, 2, 5000, log, random);
        check(dtype, 0, 4, log, random);
      }
    }
  });
}

TEST(Softmax, InPlace) {
  std::mt19937_64 random = fresh_random();
  for_each_level([&] {
    for (const DType dtype : kFloatTypes) {
      Array x(dtype, {3, 400}), y(dtype, {3, 400});
      fill_with_random(x, random, -3, 3);
      softmax_forward(Stream{}, false, x.cview(), y.view());
      softmax_forward(Stream{}, false, x.cview(), x.view());
      for (int64_t i = 0; i < x.numel(); ++i) ASSERT_EQ(x.at(i), y.at(i));
    }
  });
}

TEST(Softmax, ExtremeValues) {
  for_each_level([] {
    Array x(float32, {5, 3}), y(float32, {5, 3}), log_y(float32, {5, 3});
    const double values[] = {1e30,      0,         -1e30,                         // one largest value
                             -INFINITY, 0,         0,                             // a masked entry
                             -INFINITY, -INFINITY, -INFINITY,                     // all masked: NaN
                             NAN,       0,         1,         1e30, 1e30, 1e30};  // NaN; equal huge ones
    for (int64_t i = 0; i < 15; ++i) x.set(i, values[i]);
    softmax_forward(Stream{}, false, x.cview(), y.view());
    softmax_forward(Stream{}, true, x.cview(), log_y.view());
    const double expected[] = {1, 0, 0, 0, 0.5, 0.5, NAN, NAN, NAN, NAN, NAN, NAN, 1.0 / 3, 1.0 / 3, 1.0 / 3};
    for (int64_t i = 0; i < 15; ++i) {
      EXPECT_TRUE(near(y.at(i), expected[i], 1e-6, 0)) << i << ": " << y.at(i);
      if (values[i] == 1e30 || expected[i] == 0.5) {
        EXPECT_TRUE(near(log_y.at(i), std::log(expected[i]), 1e-6, 0)) << i << ": " << log_y.at(i);
      }
    }
    EXPECT_EQ(log_y.at(3), -INFINITY);
  });
}

}  // namespace
}  // namespace tern::kernels
