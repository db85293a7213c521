// Reductions against plain fp64 loops.

#include "tern/kernels/reduce.h"

#include "tern/tests/kernels/reduce_reference.h"

namespace tern::kernels {
namespace {

void check_reduce(Reduction r, Array& x, uint32_t dims, DType out, Order out_order = Order::kContiguous) {
  Array y(out, reduced_shape(x.shape(), dims), out_order);
  expect_same_for_any_threads(y, [&] { reduce({}, r, x.cview(), dims, nullptr, y.view()); });
  expect_reduced(r, x, dims, y, out == float16 ? 6.1e-8 : 1e-37);  // products may be subnormal
}

TEST(Reduce, EveryReductionDTypeOrderAndDims) {
  for_each_level([] {
    std::mt19937_64 random = fresh_random();
    for (DType dtype : kAllTypes)
      for (Order order : kAllOrders) {
        Array x(dtype, {3, 5, 37}, order);
        fill_with_random(x, random, is_floating(dtype) ? -1.3 : 0, is_floating(dtype) ? 1.3 : 4);
        for (Reduction r : kAllReductions)
          for (uint32_t dims = 0; dims < 8; ++dims) {
            if (r == Reduction::kProduct && !is_floating(dtype) && dims != 2) continue;  // overflows
            check_reduce(r, x, dims, result_type(r, dtype), order);
          }
      }
  });
}

TEST(Reduce, ShapesThatTakeEveryPath) {
  for_each_level([] {
    std::mt19937_64 random = fresh_random();
    struct Case {
      Shape shape;
      uint32_t dims;
    };
    for (const Case& c : std::vector<Case>{{{1}, 1},
                                           {{}, 0},
                                           {{200001}, 1},
                                           {{2, 70001}, 2},
                                           {{100, 1031}, 2},
                                           {{70001, 2}, 1},
                                           {{3001, 130}, 1},
                                           {{257, 1500}, 1},
                                           {{130, 17000}, 1},
                                           {{9, 4, 50, 3}, 5},
                                           {{9, 4, 50, 3}, 10},
                                           {{2, 2, 2, 2, 2, 2, 2, 3}, 0xa5},
                                           {{20, 1, 300}, 2}})
      for (DType dtype : {float32, bfloat16, float64})
        for (Reduction r : {Reduction::kSum, Reduction::kMax}) {
          if (kFewCases && random() % 3 != 0) continue;
          Array x(dtype, c.shape);
          fill_with_random(x, random, -1, 1);
          check_reduce(r, x, c.dims, dtype);
        }
    Array row(float32, {1, 40});
    fill_with_random(row, random, -1, 1);
    Array y(float32, {1, 1});
    reduce({}, Reduction::kSum, row.expand({30, 40}), 3, nullptr, y.view());  // stride 0
    double sum = 0;
    for (double v : row.values()) sum += 30 * v;
    EXPECT_NEAR(y.at(0), sum, 1e-4);
  });
}

TEST(Reduce, Empty) {
  for_each_level([] {
    Array x(float32, {3, 0}), y(float32, {3, 1}), flags(boolean, {3, 1}), none(float32, {1, 0});
    const auto value = [&](Reduction r) {
      reduce({}, r, x.cview(), 2, nullptr, y.view());
      return y.at(2);
    };
    EXPECT_EQ(value(Reduction::kSum), 0);
    EXPECT_EQ(value(Reduction::kProduct), 1);
    EXPECT_TRUE(std::isnan(value(Reduction::kMean)));
    reduce({}, Reduction::kAll, x.cview(), 2, nullptr, flags.view());
    EXPECT_EQ(flags.at(0), 1);
    reduce({}, Reduction::kAny, x.cview(), 2, nullptr, flags.view());
    EXPECT_EQ(flags.at(0), 0);
    reduce({}, Reduction::kSum, x.cview(), 1, nullptr, none.view());
    Array tall(float32, {0, 3}), sums(float32, {1, 3});
    reduce({}, Reduction::kSum, tall.cview(), 1, nullptr, sums.view());
    EXPECT_EQ(sums.at(1), 0);
  });
}

TEST(Reduce, NanAndInfinity) {
  for_each_level([] {
    for (int64_t n : {5, 100, 5000, 100000})
      for (int64_t at : {int64_t{0}, n / 2, n - 1})
        for (Reduction r : {Reduction::kMax, Reduction::kMin, Reduction::kSum}) {
          Array x(float32, {n, 1}), y(float32, {1, 1});
          for (int64_t i = 0; i < n; ++i) x.set(i, i % 3);
          x.set(at, NAN);
          reduce({}, r, x.cview(), 1, nullptr, y.view());
          ASSERT_TRUE(std::isnan(y.at(0))) << n << " " << at;
        }
    // Columns, with NaN first and last.
    Array x(float32, {3, 40}), y(float32, {1, 40});
    for (int64_t i = 0; i < 120; ++i) x.set(i, -INFINITY);
    x.set(5, NAN);
    x.set(86, NAN);
    reduce({}, Reduction::kMax, x.cview(), 1, nullptr, y.view());
    EXPECT_EQ(y.at(0), -INFINITY);
    EXPECT_TRUE(std::isnan(y.at(5)));
    EXPECT_TRUE(std::isnan(y.at(6)));
  });
}

TEST(Reduce, TenMillionFloatsWithinOnePartInAMillion) {
  std::vector<float> values(10000001);
  std::mt19937_64 random = fresh_random();
  double exact = 0;
  for (float& v : values) exact += v = static_cast<float>(random() % 1000003) * 1e-6f;
  for_each_level([&] {
    const int64_t n = static_cast<int64_t>(values.size());
    float sum = 0;
    reduce({}, Reduction::kSum, make_view(const_cast<const float*>(values.data()), n), 1, nullptr, make_view(&sum, 1));
    EXPECT_TRUE(near(sum, exact, 1.2e-7, 0)) << sum << " " << exact;
    // Columns of a tall matrix.
    float columns[10];
    column_sum({}, make_view(const_cast<const float*>(values.data()), n / 10, 10), false, nullptr,
               make_view(columns, 10));
    double total = 0;
    for (float c : columns) total += c;
    EXPECT_TRUE(near(total, exact - values.back(), 1e-6, 0));
  });
}

TEST(Reduce, ArgExtreme) {
  for_each_level([] {
    std::mt19937_64 random = fresh_random();
    for (DType dtype : kAllTypes)
      for (Order order : kAllOrders)
        for (const Shape& shape : std::vector<Shape>{{3, 5, 37}, {2, 2100, 3}, {1, 1, 1}, {4, 1, 2050}})
          for (int dim = 0; dim < 3; ++dim)
            for (bool largest : {true, false}) {
              Array x(dtype, shape, order);
              // Few distinct values, so that there are ties, of which the first must be selected. Some are NaN.
              for (int64_t i = 0; i < x.numel(); ++i) x.set(i, static_cast<double>(random() % 40));
              if (is_floating(dtype))
                for (int64_t i = 0; i < x.numel(); i += 101) x.set(i, NAN);
              Array index(int64, reduced_shape(shape, 1u << dim), order);
              expect_same_for_any_threads(index,
                                          [&] { arg_extreme({}, largest, x.cview(), dim, nullptr, index.view()); });
              int64_t below = 1;
              for (int d = dim + 1; d < 3; ++d) below *= shape[d];
              for (int64_t o = 0; o < index.numel(); ++o) {
                const int64_t first = o / below * below * shape[dim] + o % below;
                int64_t best = 0;
                for (int64_t k = 1; k < shape[dim]; ++k) {
                  const double a = x.at(first + k * below), b = x.at(first + best * below);
                  if ((largest ? a > b : a < b) || (std::isnan(a) && !std::isnan(b))) best = k;
                }
                ASSERT_EQ(index.at(o), best) << name_of(dtype) << " dim " << dim;
              }
            }
  });
}

TEST(Reduce, ColumnSum) {
  for_each_level([] {
    std::mt19937_64 random = fresh_random();
    for (DType dtype : kFloatTypes)
      for (const Shape& shape :
           std::vector<Shape>{{1, 1}, {0, 7}, {1000, 3}, {700, 128}, {33, 1025}, {3, 5000}, {40, 0}}) {
        Array x(dtype, shape, Order::kMisaligned), y(dtype, {shape[1]});
        fill_with_random(x, random, -1, 1);
        MarkedWorkspace workspace(column_sum_workspace({}, shape[0], shape[1], dtype));
        expect_same_for_any_threads(y, [&] { column_sum({}, x.cview(), false, workspace.data(), y.view()); });
        for (bool accumulate : {false, true}) {
          const std::vector<double> before = y.values();
          column_sum({}, x.cview(), accumulate, workspace.data(), y.view());
          for (int64_t c = 0; c < shape[1]; ++c) {
            double sum = accumulate ? before[c] : 0, size = 0;
            for (int64_t r = 0; r < shape[0]; ++r) {
              sum += x.at(r * shape[1] + c);
              size += std::fabs(x.at(r * shape[1] + c));
            }
            ASSERT_TRUE(near(y.at(c), sum, 1.01 * epsilon_of(dtype), size * (dtype == float64 ? 1e-14 : 3e-7)));
          }
        }
      }
  });
}

TEST(Reduce, GradientNorm) {
  for_each_level([] {
    std::mt19937_64 random = fresh_random();
    std::vector<Array> arrays;
    for (auto [dtype, n] : std::vector<std::pair<DType, int64_t>>{
             {float32, 50000}, {bfloat16, 16384}, {float32, 0}, {float16, 16385}, {float64, 40000}, {float32, 1}})
      fill_with_random(arrays.emplace_back(dtype, Shape{n}), random, -1, 1);
    const auto run = [&](int bad, double value) {
      std::vector<ConstView> views;
      int64_t elements = 0;
      double exact = 0;
      const int64_t middle = bad >= 0 ? arrays[bad].numel() / 2 : 0;
      const double before = bad >= 0 ? arrays[bad].at(middle) : 0;
      if (bad >= 0) arrays[bad].set(middle, value);
      for (Array& a : arrays) {
        views.push_back(a.cview());
        elements += a.numel();
        for (double v : a.values()) exact += v * v;
      }
      const int64_t count = static_cast<int64_t>(views.size());
      MarkedWorkspace workspace(gradient_norm_workspace({}, elements, count));
      GradientNorm one, two;
      set_num_threads(1);
      gradient_norm({}, views.data(), count, workspace.data(), nullptr, &one);
      set_num_threads(2);
      gradient_norm({}, views.data(), count, workspace.data(), nullptr, &two);
      EXPECT_EQ(std::memcmp(&one, &two, sizeof one), 0);
      const bool finite = bad < 0 || std::isfinite(value);
      EXPECT_EQ(one.non_finite, finite ? 0 : 1);
      EXPECT_EQ(one.first_bad, finite ? -1 : bad);
      EXPECT_TRUE(!finite || near(one.sum_of_squares, exact, 1e-6, 0)) << one.sum_of_squares << " " << exact;
      if (bad >= 0) arrays[bad].set(middle, before);
    };
    run(-1, 0);
    for (int bad : {0, 1, 3, 4, 5})
      for (double value : {static_cast<double>(NAN), static_cast<double>(INFINITY), -static_cast<double>(INFINITY)})
        run(bad, value);
    run(0, 1e30);  // its square overflows fp32: not an error
    arrays[3].set(7, NAN);
    run(1, INFINITY);  // the first of two bad tensors is reported
    arrays[3].set(7, 0);
    const auto blocks = [](const ConstView* x, int64_t n, GradientBlock* to) { gradient_norm_blocks({}, x, n, to); };
    const auto fold = [](const GradientBlock* from, const int64_t* order, int64_t n, GradientNorm* result) {
      gradient_norm_fold({}, from, order, n, result);
    };
    const auto norm = [](const ConstView* x, int64_t n, void* workspace, GradientNorm* result) {
      gradient_norm({}, x, n, workspace, nullptr, result);
    };
    expect_norm_of_parts(arrays[0], arrays[1], arrays[3], kGradientNormBlockOnCpu, blocks, fold, norm);
    GradientNorm none;
    double space = 0;
    gradient_norm({}, nullptr, 0, &space, nullptr, &none);
    EXPECT_EQ(none.sum_of_squares, 0);
    EXPECT_EQ(none.first_bad, -1);
  });
}

}  // namespace
}  // namespace tern::kernels
