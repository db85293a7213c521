// Running sums, running extremes and selections, against plain loops.

#include "tern/tests/kernels/contracts/scan.h"

namespace tern::kernels {
namespace {

class Scan : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, Scan, testing::ValuesIn(all_targets()), name_of_target);

TEST_P(Scan, SumsOfFloats) {
  for (const DType dtype : kFloatTypes)
    for (const Shape& shape : kScanShapes)
      for (const bool reverse : {false, true}) {
        if (!takes_case(shape[0] * shape[1], random)) continue;
        const Order order = random() % 2 ? Order::kContiguous : Order::kMisaligned;
        check_float_sums(random_array(random, dtype, shape, -1, 1, order), reverse);
      }
  const Array many = random_array(random, float32, {256, 700}, -1, 1);
  for (const bool reverse : {false, true}) check_float_sums(many, reverse);
}

/// The alignment of rows changes the accesses but not the result.
TEST_P(Scan, SumsDoNotDependOnTheAlignment) {
  for (const DType dtype : kFloatTypes)
    for (const bool reverse : {false, true}) {
      Array x = random_array(random, dtype, {3, 1000}, -1, 1), shifted(dtype, {3, 1000}, Order::kMisaligned);
      shifted.set(x.values());
      EXPECT_EQ(cumulative_sum_of(x, reverse).values(), cumulative_sum_of(shifted, reverse).values());
    }
}

TEST_P(Scan, SumsOfIntegers) {
  for (const DType dtype : {int64, int32, uint8, boolean})
    for (const Shape& shape : kScanShapes) {
      if (!takes_case(shape[0] * shape[1], random)) continue;
      Array x(dtype, shape);
      fill_with_bits(x, random);
      check_integer_sums(x);
    }
}

TEST_P(Scan, NanAndInfinityGoOnlyForward) {
  for (const bool reverse : {false, true})
    for (const int64_t cols : {300, 3000, 20000, 70000}) {
      Array x(float32, {1, cols});
      x.fill(0.5);
      x.set(cols / 2, INFINITY);
      check_float_sums(x, reverse);
      x.set(cols / 2 + 5, -INFINITY);
      check_float_sums(x, reverse);
    }
}

TEST_P(Scan, Products) {
  for (const DType dtype : {float32, float64, float16, bfloat16, int64, int32, uint8, boolean})
    for (const Shape& shape : kScanShapes) {
      if (!takes_case(2 * shape[0] * shape[1], random) || (dtype != float32 && random() % 3)) continue;
      Array x(dtype, shape, is_floating(dtype) ? Order::kMisaligned : Order::kContiguous);
      if (is_floating(dtype)) {  // products stay in the range whatever is drawn
        for (int64_t i = 0; i < x.numel(); ++i) x.set(i, std::ldexp(random() % 2 ? 1 : -1, i % 2 == 0 ? 1 : -1));
        if (x.numel() > 40) x.set(random() % x.numel(), 0.75);
      } else {
        fill_with_bits(x, random);
        if (dtype == int64)
          for (int64_t i = 0; i < x.numel(); ++i) x.view().as<int64_t>()[i] |= 1;  // so that products stay odd
      }
      check_products(x);
    }
}

/// A zero ends all products after it, an infinity becomes NaN only behind a zero.
TEST_P(Scan, ZerosAndInfinitiesInProducts) {
  for (const int64_t cols : {300, 3000}) {
    Array x(float32, {2, cols});
    x.fill(-1);
    x.set(cols / 2, 0);
    x.set(cols + cols / 2, INFINITY);
    check_products(x);
    x.set(cols / 2 + 5, INFINITY);
    check_products(x);
  }
}

TEST_P(Scan, Recurrences) {
  for (const DType dtype : {float32, float64, float16, bfloat16})
    for (const Shape& shape : kScanShapes)
      for (const bool reverse : {false, true}) {
        if (!takes_case(3 * shape[0] * shape[1], random) || random() % (dtype == float32 ? 2 : 4) != 0) continue;
        Array a(dtype, shape, Order::kMisaligned);
        const Array b = random_array(random, dtype, shape, -1, 1, Order::kMisaligned);
        for (int64_t i = 0; i < a.numel(); ++i)  // a value lasts for some hundred elements
          a.set(i, random() % 500 == 0 ? 0 : random() % 300 == 0 ? 0.25 : random() % 2 ? 1 : -1);
        if (shape[1] > 0)  // factors that no value takes
          for (int64_t r = 0; r < shape[0]; ++r) a.set(r * shape[1], INFINITY);
        check_recurrence(a, b, reverse);
      }
}

TEST_P(Scan, Extremes) {
  for (const DType dtype : {float32, float64, float16, bfloat16, int64, int32, uint8, boolean})
    for (const Shape& shape : kScanShapes)
      for (const bool largest : {false, true}) {
        if (!takes_case(2 * shape[0] * shape[1], random) || (dtype != float32 && random() % 2)) continue;
        const Order order = random() % 2 ? Order::kContiguous : Order::kMisaligned;
        if (is_floating(dtype)) {
          check_extremes(random_array(random, dtype, shape, -1, 1, order), largest, order);
        } else {
          Array x(dtype, shape, order);
          fill_with_bits(x, random);
          check_extremes(x, largest, order);
        }
      }
}

/// Rows that grow, rows of few values with many equal ones, and NaN and infinities in any place.
TEST_P(Scan, ExtremesThatRepeatOrGrow) {
  for (const bool largest : {false, true})
    for (const Shape& shape : std::vector<Shape>{{3, 700}, {1, 40003}, {256, 520}, {67, 300}}) {
      Array x(float32, shape);
      for (int64_t i = 0; i < x.numel(); ++i) x.set(i, static_cast<double>(random() % 3) * (largest ? 1 : -1));
      check_extremes(x, largest);
      for (int64_t i = 0; i < x.numel(); ++i) x.set(i, static_cast<double>(largest ? i : -i));
      check_extremes(x, largest);
      for (const double special : {double(INFINITY), -double(INFINITY), double(NAN), double(NAN)})
        x.set(static_cast<int64_t>(random() % static_cast<uint64_t>(x.numel())), special);
      x.set(x.numel() - 1, NAN);
      check_extremes(x, largest);
    }
}

TEST_P(Scan, SelectPositions) {
  for_each_run([&] {
    for (const int64_t n : {0, 1, 77, 3001, 100001})
      for (const unsigned one_in : {1u, 3u, 1000u, 1u << 30})
        if (takes_case(n, random)) check_select(n, one_in, random);
  });
}

TEST_P(Scan, UnravelPositions) {
  for_each_run([&] {
    for (const Shape& shape : std::vector<Shape>{{1}, {9}, {3, 5}, {2, 1, 7, 3}, {int64_t{1} << 40, 3}})
      for (const int64_t n : {0, 1, 300}) check_unravel(shape, n, random);
  });
}

class ScanTraffic : public Scan {};
INSTANTIATE_TEST_SUITE_P(, ScanTraffic, testing::ValuesIn(counting_targets()), name_of_target);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ScanTraffic);

TEST_P(ScanTraffic, MovesEveryElementTwice) {
  Array x(bfloat16, {300, 1024}), y(bfloat16, {300, 1024});
  EXPECT_LE(traffic_of([&](Call& on) { run_cumulative_sum(on, x, false, y); }).bytes,
            1.001 * (bytes_of(x) + bytes_of(y)));
  Array index(int64, {300, 1024});
  EXPECT_LE(traffic_of([&](Call& on) { run_cumulative_extreme(on, x, true, y, index); }).bytes,
            1.001 * (bytes_of(x) + bytes_of(y) + bytes_of(index)));
  // Many long rows are not cut.
  EXPECT_EQ(cumulative_sum_workspace(target().stream(), 256, 20000, float32), 0);
}

}  // namespace
}  // namespace tern::kernels
