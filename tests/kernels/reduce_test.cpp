// Reductions against plain fp64 loops.

#include "tern/tests/kernels/contracts/reduce.h"
#include "tern/kernels/base/check.h"

namespace tern::kernels {
namespace {

class Reduce : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, Reduce, testing::ValuesIn(all_targets()), name_of_target);

TEST_P(Reduce, EveryReductionDTypeOrderAndDims) {
  for (DType dtype : kAllTypes)
    for (Order order : kAllOrders) {
      const bool floating = is_floating(dtype);
      Array x = random_array(random, dtype, {3, 5, 37}, floating ? -1.3 : 0, floating ? 1.3 : 4, order);
      for (Reduction r : reductions_of(dtype))
        for (uint32_t dims = 0; dims < 8; ++dims) {
          if (r == Reduction::kProduct && !is_floating(dtype) && dims != 2) continue;  // overflows
          if (takes_case(x.numel(), random)) check_reduce(r, x, dims, result_type(r, dtype), order);
        }
    }
}

TEST_P(Reduce, ShapesThatTakeEveryPath) {
  constexpr Order kOrders[] = {Order::kContiguous, Order::kPitched, Order::kMisaligned};
  std::vector<ReduceCase> cases = kReduceCases;
  if (target().is_cpu()) cases.push_back({{130, 17000}, 1});
  for (const ReduceCase& c : cases)
    for (DType dtype : {float32, bfloat16, float64})
      for (Reduction r : {Reduction::kSum, Reduction::kMax, Reduction::kDeviations, Reduction::kLogSumExp}) {
        const bool large = c.shape.size() == 2 && c.shape[0] * c.shape[1] > 1'000'000;
        if (large && (dtype != float32 || r != Reduction::kSum) && random() % 5 != 0) continue;
        Array x(dtype, c.shape, kOrders[random() % 3]);
        if (!takes_case(x.numel(), random)) continue;
        fill_with_random(x, random, -1, 1);
        check_reduce(r, x, c.dims, dtype);
      }
  for (Reduction r : {Reduction::kMean, Reduction::kMin, Reduction::kSumOfSquares})
    for (const int64_t cols : {130, 3000}) {
      Array x = random_array(random, float16, {3, cols}, -1, 1, Order::kMisaligned);
      check_reduce(r, x, 2, r == Reduction::kSumOfSquares ? float32 : float16);
    }
  Array row(float32, {1, 40}), y(float32, {1, 1});
  for (int64_t i = 0; i < 40; ++i) row.set(i, static_cast<double>(random() % 1000));  // whole numbers: exact sums
  run_kernel([&](Call& on) {
    run_reduce(on, Reduction::kSum, on(row, row.expand({30, 40})), 3, on(y));  // stride 0
  });
  double sum = 0;
  for (double v : row.values()) sum += 30 * v;
  EXPECT_EQ(y.at(0), sum);
}

TEST_P(Reduce, VectorsOfEveryDType) {
  constexpr Order kOrders[] = {Order::kContiguous, Order::kContiguous, Order::kPitched, Order::kMisaligned};
  for (const ReduceCase& c : kVectorCases)
    for (DType dtype : kAllTypes)
      for (Reduction r : reductions_of(dtype)) {
        const bool product = r == Reduction::kProduct, large = c.shape[0] > 1000;
        if (large && r != Reduction::kSum && random() % 4 != 0) continue;
        Array x(dtype, c.shape, kOrders[random() % 4]);
        if (!takes_case(x.numel(), random)) continue;
        if (!product)
          fill_with_random(x, random, is_floating(dtype) ? -1.3 : 0, is_floating(dtype) ? 1.3 : 4);
        else  // within every type's range
          for (int64_t i = 0; i < x.numel(); ++i) x.set(i, i % (x.numel() / 7) == 3 ? 2 : i % 1000 == 7 ? -1 : 1);
        if (product && dtype == uint8)
          for (int64_t i = 7; i < x.numel(); i += 1000) x.set(i, 1);
        check_reduce(r, x, c.dims, result_type(r, dtype));
      }
  // Columns of rows with gaps: vectors end within a row, and the elements after the row are not included.
  Array wide(bfloat16, {200, 48});
  for (int64_t i = 0; i < wide.numel(); ++i) wide.set(i, i % 48 < 43 ? 1 : NAN);
  for (const uint32_t dims : {1u, 2u, 3u}) {
    Array y(float32, reduced_shape({200, 43}, dims));
    run_kernel([&](Call& on) {
      ConstView narrow = on(wide);
      narrow.shape[1] = 43;
      run_reduce(on, Reduction::kSum, narrow, dims, on(y));
    });
    for (const double sum : y.values()) ASSERT_EQ(sum, 200.0 * 43 / static_cast<double>(y.numel()));
  }
}

TEST_P(Reduce, Empty) {
  for_each_run([] {
    Array x(float32, {3, 0}), y(float32, {3, 1}), flags(boolean, {3, 1}), none(float32, {1, 0});
    const auto value = [&](Reduction r) {
      run_reduce(r, x, 2, y);
      return y.at(2);
    };
    EXPECT_EQ(value(Reduction::kSum), 0);
    EXPECT_EQ(value(Reduction::kProduct), 1);
    EXPECT_EQ(value(Reduction::kDeviations), 0);
    EXPECT_EQ(value(Reduction::kLogSumExp), -INFINITY);
    EXPECT_TRUE(std::isnan(value(Reduction::kMean)));
    run_reduce(Reduction::kAll, x, 2, flags);
    EXPECT_EQ(flags.at(0), 1);
    run_reduce(Reduction::kAny, x, 2, flags);
    EXPECT_EQ(flags.at(0), 0);
    run_reduce(Reduction::kSum, x, 1, none);
    Array tall(float32, {0, 3}), sums(float32, {1, 3});
    run_reduce(Reduction::kSum, tall, 1, sums);
    EXPECT_EQ(sums.at(1), 0);
  });
}

TEST_P(Reduce, StatisticsOfIntegersAreErrors) {
  Array x(int32, {3}), y(float32, {1});
  for (Reduction r : {Reduction::kSumOfMagnitudes, Reduction::kDeviations, Reduction::kLogSumExp})
    run_kernel([&](Call& on) { EXPECT_THROW(reduce(on.stream(), r, on(x), 1, nullptr, on(y)), Error); });
}

TEST_P(Reduce, NanAndInfinity) {
  for_each_run([&] {
    for (int64_t n : {5, 100, 5000, 40000, 100000})
      for (int64_t at : {int64_t{0}, n / 2, n - 1})
        for (Reduction r : reductions_of(float32)) {
          if (r == Reduction::kAll || r == Reduction::kAny || !takes_case(n, random)) continue;
          Array x(float32, {n, 1}), y(float32, {1, 1});
          for (int64_t i = 0; i < n; ++i) x.set(i, i % 3);
          x.set(at, NAN);
          run_reduce(r, x, 1, y);
          ASSERT_TRUE(std::isnan(y.at(0))) << n << " " << at;
        }
    // Columns, with NaN first and last.
    Array x(float32, {3, 40}), y(float32, {1, 40});
    x.fill(-INFINITY);
    x.set(5, NAN);
    x.set(86, NAN);
    run_reduce(Reduction::kMax, x, 1, y);
    EXPECT_EQ(y.at(0), -INFINITY);
    EXPECT_TRUE(std::isnan(y.at(5)));
    EXPECT_TRUE(std::isnan(y.at(6)));
    // Short rows, of which every seventh has a NaN.
    for (const int64_t length : {1, 2, 5, 8, 13, 64}) {
      Array rows(float32, {150, length}), result(float32, {150, 1});
      for (int64_t i = 0; i < rows.numel(); ++i) rows.set(i, i % 3 == 0 ? -INFINITY : static_cast<double>(i % 5));
      for (int64_t r = 0; r < 150; r += 7) rows.set(r * length + static_cast<int64_t>(random() % length), NAN);
      for (Reduction r : reductions_of(float32)) {
        if (r == Reduction::kAll || r == Reduction::kAny) continue;
        run_reduce(r, rows, 2, result);
        for (int64_t i = 0; i < 150; i += 7) ASSERT_TRUE(std::isnan(result.at(i))) << length << " " << i;
        if (r != Reduction::kMax && r != Reduction::kMin && r != Reduction::kLogSumExp) continue;
        for (int64_t i = 1; i < 150; i += 7) ASSERT_FALSE(std::isnan(result.at(i))) << length << " " << i;
      }
    }
  });
}

/// Far from 0, and beyond the range of exp.
TEST_P(Reduce, DeviationsAndLogSumExpOfLargeNumbers) {
  for (const ReduceCase& c : std::vector<ReduceCase>{
           {{9001}, 1}, {{3, 5000}, 2}, {{700, 40}, 1}, {{5, 300, 6}, 5}, {{300, 7}, 2}, {{75, 50}, 2}}) {
    Array far = random_array(random, float32, c.shape, 9999, 10001),
          large = random_array(random, float32, c.shape, -900, 900);
    check_reduce(Reduction::kDeviations, far, c.dims, float32);
    check_reduce(Reduction::kLogSumExp, large, c.dims, float32);
    for (int64_t i = 0; i < large.numel(); ++i)
      if (i % 3 != 0) large.set(i, -INFINITY);
    check_reduce(Reduction::kLogSumExp, large, c.dims, float32);
    large.fill(-INFINITY);
    Array y(float32, reduced_shape(c.shape, c.dims));
    run_reduce(Reduction::kLogSumExp, large, c.dims, y);
    for (const double v : y.values()) ASSERT_EQ(v, -INFINITY);
    large.set(large.numel() / 2, INFINITY);
    run_reduce(Reduction::kLogSumExp, large, c.dims, y);
    EXPECT_EQ(y.at(target_of(c.shape, c.dims, large.numel() / 2)), INFINITY);
  }
}

TEST_P(Reduce, ManyFloatsWithinOnePartInAMillion) {
  if (kFewCases && !target().is_cpu()) GTEST_SKIP() << "sanitizer: large numbers of the same cases";
  const int64_t n = target().is_cpu() ? 10'000'001 : 1'000'001;
  std::vector<float> values(n), columns(10);
  double exact = 0;
  for (float& v : values) exact += v = static_cast<float>(random() % 1000003) * 1e-6f;
  float sum = 0;
  run_kernel([&](Call& on) {
    const float* const x = on.memory(values.data(), n);
    run_reduce(on, Reduction::kSum, make_view(x, n), 1, make_view(on.memory(&sum), 1));
    column_sum(on.stream(), make_view(x, n / 10, 10), false,  // of a tall matrix
               on.workspace(column_sum_workspace(on.stream(), n / 10, 10, float32)),
               make_view(on.memory(columns.data(), 10), 10));
  });
  // The CPU has more partial sums for the same rounding.
  EXPECT_TRUE(near(sum, exact, target().is_cpu() ? 1.2e-7 : 4e-7, 0)) << sum << " " << exact;
  double total = 0;
  for (float c : columns) total += c;
  EXPECT_TRUE(near(total, exact - values.back(), 1e-6, 0));
}

TEST_P(Reduce, ArgExtreme) {
  for (DType dtype : kAllTypes)
    for (Order order : kAllOrders)
      for (const Shape& shape :
           std::vector<Shape>{{3, 5, 37}, {2, 700, 3}, {1, 1, 1}, {4, 1, 2050}, {1, 5000, 1}, {2, 2100, 3}})
        for (int dim = 0; dim < 3; ++dim)
          for (const bool largest : {true, false}) {
            Array x(dtype, shape, order);
            if (!takes_case(x.numel(), random)) continue;
            if (!target().is_cpu() && random() % 2) continue;
            fill_with_ties(x, random);
            check_arg_extreme(largest, x, dim, order);
          }
}

TEST_P(Reduce, ArgExtremeInVectorsAndParts) {
  for (DType dtype : kAllTypes)
    for (const Shape& shape : std::vector<Shape>{{3, 131}, {2, 140001}, {9000, 32}, {70, 40}, {63, 64}})
      for (Order order : {Order::kContiguous, Order::kMisaligned}) {
        const int dim = shape[0] > shape[1] ? 0 : 1;
        Array x(dtype, shape, order);
        if (!takes_case(x.numel(), random)) continue;
        fill_with_ties(x, random);
        // Equal extreme elements in several parts, or a NaN, which precedes all others.
        if (!is_floating(dtype) && dtype != boolean)
          for (int64_t i = 0; i < x.numel(); i += 7777) x.set(i, random() % 2 == 0 ? 100 : 0);
        check_arg_extreme(random() % 2 == 0, x, dim);
      }
}

void run_column_sum(Call& on, const Array& x, bool accumulate, Array& y) {
  void* const workspace = on.workspace(column_sum_workspace(on.stream(), x.shape()[0], x.shape()[1], x.dtype()));
  column_sum(on.stream(), on(x), accumulate, workspace, on(y));
}

TEST_P(Reduce, ColumnSum) {
  for (DType dtype : kFloatTypes)
    for (const Shape& shape :
         std::vector<Shape>{{1, 1}, {0, 7}, {1000, 3}, {700, 128}, {33, 1025}, {3, 5000}, {40, 0}, {5000, 24}})
      for (const Order order : {Order::kContiguous, Order::kMisaligned}) {
        Array x(dtype, shape, order), y(dtype, {shape[1]}), sums(float32, {shape[1]});
        if (!takes_case(x.numel(), random)) continue;
        fill_with_random(x, random, -1, 1);
        expect_same_in_every_run({&y, &sums}, [&](Call& on) {
          run_column_sum(on, x, false, y);
          run_column_sum(on, x, false, sums);
        });
        for (bool accumulate : {false, true}) {
          const std::vector<double> before = y.values();
          run_kernel([&](Call& on) { run_column_sum(on, x, accumulate, y); });
          for (int64_t c = 0; c < shape[1]; ++c) {
            double sum = 0, size = 0;
            for (int64_t r = 0; r < shape[0]; ++r) {
              sum += x.at(r * shape[1] + c);
              size += std::fabs(x.at(r * shape[1] + c));
            }
            ASSERT_TRUE(near(sums.at(c), sum, 1e-7, size * 3e-7));
            if (accumulate) sum += before[c];
            ASSERT_TRUE(near(y.at(c), sum, 1.01 * epsilon_of(dtype), size * (dtype == float64 ? 1e-14 : 3e-7)));
          }
        }
      }
}

TEST_P(Reduce, GradientNorm) {
  std::vector<Array> arrays;
  for (auto [dtype, n] : std::vector<std::pair<DType, int64_t>>{
           {float32, 50000}, {bfloat16, 16384}, {float32, 0}, {float16, 16385}, {float64, 40000}, {float32, 1}})
    arrays.push_back(random_array(random, dtype, {n}, -1, 1, n == 1 ? Order::kMisaligned : Order::kContiguous));
  const auto check = [&](int bad, double value) {
    const int64_t middle = bad >= 0 ? arrays[bad].numel() / 2 : 0;
    const double before = bad >= 0 ? arrays[bad].at(middle) : 0;
    if (bad >= 0) arrays[bad].set(middle, value);
    const bool finite = bad < 0 || std::isfinite(value);
    const double exact = sum_of_squares(arrays);
    std::vector<GradientNorm> norms;
    for_each_run([&] {
      const GradientNorm& norm = norms.emplace_back(gradient_norm_of(arrays));
      EXPECT_EQ(std::memcmp(&norm, norms.data(), sizeof norm), 0);
      EXPECT_EQ(norm.non_finite, finite ? 0 : 1);
      EXPECT_EQ(norm.first_bad, finite ? -1 : bad);
      EXPECT_TRUE(!finite || near(norm.sum_of_squares, exact, 1e-6, 0)) << norm.sum_of_squares << " " << exact;
    });
    if (bad >= 0) arrays[bad].set(middle, before);
  };
  check(-1, 0);
  for (int bad : {0, 1, 3, 4, 5})
    for (double value : {static_cast<double>(NAN), static_cast<double>(INFINITY), -static_cast<double>(INFINITY)})
      if (takes_case(0, random) || std::isnan(value)) check(bad, value);
  check(0, 1e30);  // its square overflows fp32: not an error
  arrays[3].set(7, NAN);
  check(1, INFINITY);  // the first of two bad tensors is reported
  arrays[3].set(7, 0);
  for_each_run([&] { expect_norm_of_parts(arrays[0], arrays[1], arrays[3]); });
  const GradientNorm none = gradient_norm_of({});
  EXPECT_EQ(none.sum_of_squares, 0);
  EXPECT_EQ(none.first_bad, -1);
}

TEST_P(Reduce, GradientNormOfOneBlockNeedsNoTicket) {
  if (target().is_cpu()) return;  // it never takes one
  Array small = random_array(random, bfloat16, {kGradientNormBlock}, -1, 1), large(float32, {50000});
  GradientNorm norm;
  run_kernel([&](Call& on) {
    void* const space = on.workspace(gradient_norm_workspace(on.stream(), kGradientNormBlock, 1));
    const ConstView one = on(small), several = on(large);
    gradient_norm(on.stream(), &one, 1, space, nullptr, on.memory(&norm));
    EXPECT_THROW(gradient_norm(on.stream(), &several, 1, space, nullptr, on.memory(&norm)), Error);
  });
  double exact = 0;
  for (double v : small.values()) exact += v * v;
  EXPECT_TRUE(near(norm.sum_of_squares, exact, 1e-6, 0));
}

/// More tensors than fit into one of CUDA's launches, with misaligned and empty ones.
TEST_P(Reduce, GradientNormOfManyTensors) {
  std::vector<Array> arrays;
  for (int t = 0; t < 810; ++t)
    arrays.push_back(random_array(random, kFloatTypes[t % 4], {t % 37 == 0 ? 0 : t % 300}, -1, 1,
                                  t % 3 == 0 ? Order::kMisaligned : Order::kContiguous));
  for (const int bad : {-1, 809, 400, 1}) {
    if (bad >= 0) arrays[bad].set(0, NAN);
    if (bad != 809 && !takes_case(0, random)) continue;
    const double exact = sum_of_squares(arrays);
    for_each_run([&] {
      const GradientNorm norm = gradient_norm_of(arrays);
      EXPECT_EQ(norm.first_bad, bad);
      EXPECT_EQ(norm.non_finite, bad >= 0);
      EXPECT_TRUE(bad >= 0 || near(norm.sum_of_squares, exact, 1e-6, 0)) << norm.sum_of_squares << " " << exact;
    });
  }
}

// --- counted on the emulator ---

class ReduceTraffic : public Reduce {};
INSTANTIATE_TEST_SUITE_P(, ReduceTraffic, testing::ValuesIn(counting_targets()), name_of_target);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ReduceTraffic);

TEST_P(ReduceTraffic, MovesLittleMoreThanTheElements) {
  if (kFewCases) GTEST_SKIP() << "sanitizer: counts bytes, which are the same without a sanitizer";
  struct Case {
    DType dtype;
    Shape shape;
    uint32_t dims;
  };
  for (const Case& c : std::vector<Case>{{float32, {1000001}, 1},
                                         {bfloat16, {1000001}, 1},
                                         {boolean, {1000001}, 1},
                                         {float64, {300000}, 1},
                                         {float32, {20, 33001}, 2},
                                         {bfloat16, {2000, 768}, 2},
                                         {bfloat16, {4000, 256}, 1},
                                         {float32, {4000, 101}, 1},
                                         {int32, {12, 600, 64}, 5},
                                         {uint8, {12, 600, 160}, 2}}) {
    Array x(c.dtype, c.shape), y(result_type(Reduction::kSum, c.dtype), reduced_shape(c.shape, c.dims));
    fill_with_random(x, random, 0, 3);
    const double min_bytes = bytes_of(x) + bytes_of(y);
    EXPECT_LE(traffic_of([&](Call& on) { run_reduce(on, Reduction::kSum, on(x), c.dims, on(y)); }).bytes,
              1.1 * min_bytes)
        << name_of(c.dtype) << " dims " << c.dims;
    if (c.dims == 5) continue;
    const int dim = c.dims == 1 ? 0 : 1;
    Array index(int64, reduced_shape(c.shape, c.dims));
    EXPECT_LE(traffic_of([&](Call& on) { run_arg_extreme(on, true, on(x), dim, on(index)); }).bytes,
              1.1 * (bytes_of(x) + bytes_of(index)))
        << "position, " << name_of(c.dtype) << " dims " << c.dims;
  }
}

TEST_P(ReduceTraffic, ColumnSumMovesLittleMoreThanTheMatrix) {
  if (kFewCases) GTEST_SKIP() << "sanitizer: counts bytes, which are the same without a sanitizer";
  Array x = random_array(random, bfloat16, {4000, 256}, -1, 1), y(bfloat16, {256});
  EXPECT_LE(traffic_of([&](Call& on) { run_column_sum(on, x, false, y); }).bytes, 1.15 * bytes_of(x));
}

TEST_P(ReduceTraffic, LaunchesOfTheGradientNorm) {
  std::vector<Array> arrays;
  const auto launches = [&] {
    const uint64_t before = target().traffic().launches;
    gradient_norm_of(arrays);
    return target().traffic().launches - before;
  };
  for (const int64_t n : {50000, 16384, 0, 16385, 1}) arrays.emplace_back(float32, Shape{n});
  EXPECT_EQ(launches(), 1u);
  while (arrays.size() < 810) arrays.emplace_back(float16, Shape{7});
  EXPECT_EQ(launches(), 3u);
}

}  // namespace
}  // namespace tern::kernels
