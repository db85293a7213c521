#include "tern/tests/kernels/contracts/softmax.h"

namespace tern::kernels::softmax_test {
namespace {

class Softmax : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, Softmax, testing::ValuesIn(all_targets()), name_of_target);

TEST_P(Softmax, AgreesWithDouble) {
  for (const Case& s : cases()) {
    if (!takes_case(s.rows * s.cols, random)) continue;
    SCOPED_TRACE(testing::Message() << name_of(s.dtype) << " [" << s.rows << ", " << s.cols << "] log " << s.log
                                    << " orders " << static_cast<int>(s.x_order) << static_cast<int>(s.y_order));
    const Shape shape = {s.rows, s.cols};
    const Array x = random_array(random, s.dtype, shape, -8, 8, s.x_order);
    const Array dy = random_array(random, s.dtype, shape, -1, 1, s.x_order);
    Array y(s.dtype, shape, s.y_order), dx(s.dtype, shape, s.y_order);
    expect_same_in_every_run({&y, &dx}, [&](Call& on) {
      softmax_forward(on.stream(), s.log, on(x), on(y));
      softmax_backward(on.stream(), s.log, on(y), on(dy), on(dx));
    });
    ASSERT_NO_FATAL_FAILURE(expect_softmax(s, x, y, dy, dx));
  }
}

TEST_P(Softmax, ColumnsAgreeWithDouble) {
  for (const auto& [outer, cols, inner] : column_cases())
    for (const DType dtype : kFloatTypes)
      for (const bool log : {false, true}) {
        if (!takes_case(outer * cols * inner, random)) continue;
        SCOPED_TRACE(testing::Message() << name_of(dtype) << " [" << outer << ", " << cols << ", " << inner << "] log "
                                        << log);
        const Shape shape = {outer, cols, inner};
        const Order order = random() % 2 == 0 ? Order::kMisaligned : Order::kContiguous;
        const Array x = random_array(random, dtype, shape, -8, 8, order);
        const Array dy = random_array(random, dtype, shape, -1, 1, order);
        Array y(dtype, shape), dx(dtype, shape);
        expect_same_in_every_run({&y, &dx}, [&](Call& on) {
          softmax_columns_forward(on.stream(), log, on(x), on(y));
          softmax_columns_backward(on.stream(), log, on(y), on(dy), on(dx));
        });
        const Case rows{dtype, outer * inner, cols, log};
        ASSERT_NO_FATAL_FAILURE(
            expect_softmax(rows, columns_as_rows(x), columns_as_rows(y), columns_as_rows(dy), columns_as_rows(dx)));
      }
}

TEST_P(Softmax, ColumnsInPlace) {
  for (const DType dtype : {float32, bfloat16})
    for (const Shape& shape : std::vector<Shape>{{2, 5, 40}, {1, 2100, 17}})
      for_each_run([&] {
        Array x = random_array(random, dtype, shape, -3, 3), y(dtype, shape);
        Array dy = random_array(random, dtype, shape, -1, 1), dx(dtype, shape);
        run_kernel([&](Call& on) {
          softmax_columns_forward(on.stream(), false, on(x), on(y));
          softmax_columns_forward(on.stream(), false, on(x), on(x));
          softmax_columns_backward(on.stream(), false, on(y), on(dy), on(dx));
          softmax_columns_backward(on.stream(), false, on(y), on(dy), on(dy));
        });
        EXPECT_EQ(x.values(), y.values());
        EXPECT_EQ(dy.values(), dx.values());
      });
}

TEST_P(Softmax, InPlace) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t cols : {5, 33, 400, 1500, 9001})
      for_each_run([&] {
        Array x = random_array(random, dtype, {3, cols}, -3, 3), y(dtype, {3, cols});
        Array dy = random_array(random, dtype, {3, cols}, -1, 1), dx(dtype, {3, cols});
        run_kernel([&](Call& on) {
          softmax_forward(on.stream(), false, on(x), on(y));
          softmax_forward(on.stream(), false, on(x), on(x));
          softmax_backward(on.stream(), false, on(y), on(dy), on(dx));
          softmax_backward(on.stream(), false, on(y), on(dy), on(dy));
        });
        EXPECT_EQ(x.values(), y.values());
        EXPECT_EQ(dy.values(), dx.values());
      });
}

TEST_P(Softmax, ExtremeValues) {
  const double values[] = {1e30,      0,         -1e30,                         // one largest value
                           -INFINITY, 0,         0,                             // a masked entry
                           -INFINITY, -INFINITY, -INFINITY,                     // all masked: NaN
                           NAN,       0,         1,         1e30, 1e30, 1e30};  // NaN; equal huge ones
  const double expected[] = {1, 0, 0, 0, 0.5, 0.5, NAN, NAN, NAN, NAN, NAN, NAN, 1.0 / 3, 1.0 / 3, 1.0 / 3};
  // The three values are at the end of a row of `cols`, all others are masked: whole vectors and warps read -infinity.
  for (const int64_t cols : {3, 40, 3000, 9000})
    for_each_run([&] {
      Array x(float32, {5, cols}), y(float32, {5, cols}), log_y(float32, {5, cols});
      x.fill(-INFINITY);
      const auto place = [&](int64_t i) { return (i / 3 + 1) * cols - 3 + i % 3; };
      for (int64_t i = 0; i < 15; ++i) x.set(place(i), values[i]);
      run_kernel([&](Call& on) {
        softmax_forward(on.stream(), false, on(x), on(y));
        softmax_forward(on.stream(), true, on(x), on(log_y));
      });
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

/// The same values in the columns of a matrix, and a NaN first and last.
TEST_P(Softmax, ExtremeValuesInColumns) {
  const double columns[][3] = {{1e30, 0, -1e30}, {-INFINITY, 0, 0}, {-INFINITY, -INFINITY, -INFINITY},
                               {NAN, 0, 1},      {0, 1, NAN},       {1e30, 1e30, 1e30}};
  const double expected[][3] = {{1, 0, 0},       {0, 0.5, 0.5},   {NAN, NAN, NAN},
                                {NAN, NAN, NAN}, {NAN, NAN, NAN}, {1.0 / 3, 1.0 / 3, 1.0 / 3}};
  for (const int64_t cols : {3, 40, 3000})
    for_each_run([&] {
      Array x(float32, {1, cols, 6}), y(float32, {1, cols, 6}), log_y(float32, {1, cols, 6});
      x.fill(-INFINITY);
      const auto place = [&](int64_t c, int64_t k) { return (cols - 3 + k) * 6 + c; };
      for (int64_t i = 0; i < 18; ++i) x.set(place(i / 3, i % 3), columns[i / 3][i % 3]);
      run_kernel([&](Call& on) {
        softmax_columns_forward(on.stream(), false, on(x), on(y));
        softmax_columns_forward(on.stream(), true, on(x), on(log_y));
      });
      for (int64_t i = 0; i < 18; ++i) {
        const double value = y.at(place(i / 3, i % 3)), wanted = expected[i / 3][i % 3];
        EXPECT_TRUE(near(value, wanted, 1e-6, 0)) << cols << " " << i << ": " << value;
        if (wanted == 0.5 || i >= 15) {
          EXPECT_TRUE(near(log_y.at(place(i / 3, i % 3)), std::log(wanted), 1e-6, 0)) << i;
        }
      }
      if (cols > 3) {
        EXPECT_EQ(y.at(0), 0);
        EXPECT_TRUE(std::isnan(y.at(2)) && std::isnan(log_y.at(3)));
      }
    });
}

class SoftmaxTraffic : public Softmax {};
INSTANTIATE_TEST_SUITE_P(, SoftmaxTraffic, testing::ValuesIn(counting_targets()), name_of_target);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SoftmaxTraffic);

TEST_P(SoftmaxTraffic, MovesEachByteOnce) {
  for (const DType dtype : {bfloat16, float32})
    for (const int64_t cols : {128, 1000, 1001, 5000}) {
      Array x = random_array(random, dtype, {16, cols}, -3, 3), y(dtype, {16, cols});
      Array dy = random_array(random, dtype, {16, cols}, -3, 3), dx(dtype, {16, cols});
      const auto forward = [&](Call& on) { softmax_forward(on.stream(), false, on(x), on(y)); };
      const auto backward = [&](Call& on) { softmax_backward(on.stream(), false, on(y), on(dy), on(dx)); };
      EXPECT_LE(traffic_of(forward).bytes, 2.001 * bytes_of(x));
      EXPECT_LE(traffic_of(backward).bytes, 3.001 * bytes_of(x));
    }
}

}  // namespace
}  // namespace tern::kernels::softmax_test
