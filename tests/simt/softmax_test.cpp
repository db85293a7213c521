// Softmax on the emulated device, against fp64.

#include "tern/kernels/softmax.h"

#include "tern/tests/simt/results.h"

namespace tern::kernels {
namespace {

double unit_of(DType dtype) { return dtype == float64 ? 0x1p-53 : 0x1p-24; }
/// Absolute tolerance: the smallest subnormal of storage, with a margin for flushing.
double floor_of(DType dtype) { return dtype == float16 ? 6.1e-8 : dtype == float64 ? 0 : 1e-37; }

struct Case {
  DType dtype;
  int64_t rows, cols;
  bool log;
  Order x_order, y_order;
};

void check(const Case& s, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << name_of(s.dtype) << " [" << s.rows << ", " << s.cols << "] log " << s.log
                                  << " orders " << static_cast<int>(s.x_order) << static_cast<int>(s.y_order));
  const int64_t rows = s.rows, cols = s.cols;
  Array x(s.dtype, {rows, cols}, s.x_order), y(s.dtype, {rows, cols}, s.y_order), dy(s.dtype, {rows, cols}, s.x_order),
      dx(s.dtype, {rows, cols}, s.y_order);
  fill_with_random(x, random, -8, 8);
  fill_with_random(dy, random, -1, 1);
  expect_same_for_all_schedules({&y, &dx}, [&] {
    cuda::softmax_forward(kCuda, s.log, x.cview(), y.view());
    cuda::softmax_backward(kCuda, s.log, y.cview(), dy.cview(), dx.view());
  });
  const double unit = unit_of(s.dtype), round = epsilon_of(s.dtype);
  for (int64_t r = 0; r < rows; ++r) {
    double largest = -INFINITY, magnitude = 0;
    long double sum = 0, product = 0;  // the reference must be more accurate than fp64
    for (int64_t c = 0; c < cols; ++c) largest = std::max(largest, x.at(r * cols + c));
    for (int64_t c = 0; c < cols; ++c) sum += std::exp(x.at(r * cols + c) - largest);
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t i = r * cols + c;
      const double term = s.log ? dy.at(i) : dy.at(i) * y.at(i);
      product += term;
      magnitude += std::fabs(term);
      const auto logarithm = static_cast<double>(x.at(i) - largest - std::log(sum));
      const double expected = s.log ? logarithm : std::exp(logarithm);
      const double relative = 1.01 * round + unit * (s.log ? 40 : 60);
      ASSERT_TRUE(near(y.at(i), expected, relative, s.log ? 60 * unit : floor_of(s.dtype))) << "at " << r << ", " << c;
    }
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t i = r * cols + c;
      const double factor = s.log ? std::exp(y.at(i)) : y.at(i);
      const auto expected = static_cast<double>(s.log ? dy.at(i) - factor * product : factor * (dy.at(i) - product));
      const double slack = unit * 40 * (factor * (std::fabs(dy.at(i)) + magnitude) + std::fabs(dy.at(i)));
      ASSERT_TRUE(near(dx.at(i), expected, 1.01 * round, slack + floor_of(s.dtype))) << "dx at " << r << ", " << c;
    }
  }
}

TEST(SimtSoftmax, AgreesWithDouble) {
  std::mt19937_64 random = fresh_random();
  for (const DType dtype : kFloatTypes) {
    // Odd lengths, and both sides of every bound between kernel shapes.
    for (const int64_t cols : {1, 2, 7, 32, 255, 257, 512, 513, 768, 1000, 1024, 1025})
      for (const bool log : {false, true})
        check({dtype, 9, cols, log, log ? Order::kContiguous : Order::kMisaligned, Order::kContiguous}, random);
    for (const int64_t cols : {2048, 2049, 4096, 4097, 6144, 8192, 8193, 20001})
      check({dtype, 2, cols, cols % 2 == 0, Order::kContiguous, Order::kMisaligned}, random);
    check({dtype, 2, 4096, true, Order::kMisaligned, Order::kMisaligned}, random);
    check({dtype, 3, 9000, true, Order::kMisaligned, Order::kContiguous}, random);
    check({dtype, 0, 4, false, Order::kContiguous, Order::kContiguous}, random);
    check({dtype, 4, 0, true, Order::kContiguous, Order::kContiguous}, random);
  }
}

TEST(SimtSoftmax, InPlace) {
  std::mt19937_64 random = fresh_random();
  for (const DType dtype : kFloatTypes)
    for (const int64_t cols : {33, 1500, 9001})
      for_each_schedule([&] {
        Array x(dtype, {3, cols}), y(dtype, {3, cols});
        fill_with_random(x, random, -3, 3);
        cuda::softmax_forward(kCuda, false, x.cview(), y.view());
        cuda::softmax_forward(kCuda, false, x.cview(), x.view());
        for (int64_t i = 0; i < x.numel(); ++i) ASSERT_EQ(x.at(i), y.at(i));
        Array dy(dtype, {3, cols}), dx(dtype, {3, cols});
        fill_with_random(dy, random, -1, 1);
        cuda::softmax_backward(kCuda, false, y.cview(), dy.cview(), dx.view());
        cuda::softmax_backward(kCuda, false, y.cview(), dy.cview(), dy.view());
        for (int64_t i = 0; i < x.numel(); ++i) ASSERT_EQ(dx.at(i), dy.at(i));
      });
}

TEST(SimtSoftmax, ExtremeValues) {
  const double values[] = {1e30,      0,         -1e30,                         // one largest value
                           -INFINITY, 0,         0,                             // a masked entry
                           -INFINITY, -INFINITY, -INFINITY,                     // all masked: NaN
                           NAN,       0,         1,         1e30, 1e30, 1e30};  // NaN; equal huge ones
  // The three values are at the end of a row of `cols`, all others are masked: whole vectors and warps read -infinity.
  for (const int64_t cols : {3, 40, 3000, 9000})
    for_each_schedule([&] {
      Array x(float32, {5, cols}), y(float32, {5, cols}), log_y(float32, {5, cols});
      for (int64_t i = 0; i < x.numel(); ++i) x.set(i, -INFINITY);
      const auto place = [&](int64_t i) { return (i / 3 + 1) * cols - 3 + i % 3; };
      for (int64_t i = 0; i < 15; ++i) x.set(place(i), values[i]);
      cuda::softmax_forward(kCuda, false, x.cview(), y.view());
      cuda::softmax_forward(kCuda, true, x.cview(), log_y.view());
      const double expected[] = {1, 0, 0, 0, 0.5, 0.5, NAN, NAN, NAN, NAN, NAN, NAN, 1.0 / 3, 1.0 / 3, 1.0 / 3};
      for (int64_t i = 0; i < 15; ++i) {
        EXPECT_TRUE(near(y.at(place(i)), expected[i], 1e-6, 0)) << cols << " " << i << ": " << y.at(place(i));
        if (values[i] == 1e30 || expected[i] == 0.5) {
          EXPECT_TRUE(near(log_y.at(place(i)), std::log(expected[i]), 1e-6, 0)) << i << ": " << log_y.at(place(i));
        }
      }
      EXPECT_EQ(log_y.at(place(3)), -INFINITY);
      if (cols > 3) {
        EXPECT_EQ(y.at(0), 0);
        EXPECT_TRUE(std::isnan(y.at(2 * cols)));
      }
    });
}

TEST(SimtSoftmax, MovesEachByteOnce) {
  std::mt19937_64 random = fresh_random();
  for (const DType dtype : {bfloat16, float32})
    for (const int64_t cols : {128, 1000, 1001, 5000}) {
      Array x(dtype, {16, cols}), y(dtype, {16, cols}), dy(dtype, {16, cols}), dx(dtype, {16, cols});
      fill_with_random(x, random, -3, 3);
      fill_with_random(dy, random, -3, 3);
      const double bytes = bytes_of(x);
      EXPECT_LE(moved_bytes([&] { cuda::softmax_forward(kCuda, false, x.cview(), y.view()); }), 2.001 * bytes);
      EXPECT_LE(moved_bytes([&] { cuda::softmax_backward(kCuda, false, y.cview(), dy.cview(), dx.view()); }),
                3.001 * bytes);
    }
}

}  // namespace
}  // namespace tern::kernels
