// Reductions on the emulated device, against plain fp64 loops.

#include "tern/kernels/reduce.h"

#include "tern/kernels/cuda/reduce_plan.h"
#include "tern/tests/kernels/reduce_reference.h"
#include "tern/tests/simt/results.h"

namespace tern::kernels {
namespace {

/// Workspace of exactly the given size, followed by bytes that must not change.
class Scratch {
 public:
  explicit Scratch(int64_t bytes) : bytes_(bytes), words_((bytes + 31) / 16 * 2, kUntouched) {}
  ~Scratch() {
    const char* end = reinterpret_cast<const char*>(words_.data() + words_.size());
    EXPECT_TRUE(std::all_of(end - (words_.size() * 8 - bytes_), end, [](char c) { return c == 0x5a; }))
        << "written beyond the workspace";
  }
  void* data() { return words_.data(); }

 private:
  static constexpr uint64_t kUntouched = 0x5a5a5a5a5a5a5a5a;
  int64_t bytes_;
  std::vector<uint64_t> words_;
};

void run_reduce(Reduction r, ConstView x, uint32_t dims, View y) {
  Scratch workspace(cuda::reduce_workspace(kCuda, x, dims, y));
  cuda::reduce(kCuda, r, x, dims, workspace.data(), y);
}
void run_arg_extreme(bool largest, ConstView x, int dim, View index) {
  Scratch workspace(cuda::arg_extreme_workspace(kCuda, x, dim, index));
  cuda::arg_extreme(kCuda, largest, x, dim, workspace.data(), index);
}

void check_reduce(Reduction r, Array& x, uint32_t dims, DType out, Order out_order = Order::kContiguous) {
  Array y(out, reduced_shape(x.shape(), dims), out_order);
  expect_same_for_all_schedules({&y}, [&] { run_reduce(r, x.cview(), dims, y.view()); });
  expect_reduced(r, x, dims, y, out == float16 ? 6.1e-8 : 1e-37);  // products may be subnormal
}

TEST(SimtReduce, EveryReductionDTypeOrderAndDims) {
  std::mt19937_64 random = fresh_random();
  for (DType dtype : kAllTypes)
    for (Order order : kAllOrders) {
      Array x(dtype, {3, 5, 37}, order);
      fill_with_random(x, random, is_floating(dtype) ? -1.3 : 0, is_floating(dtype) ? 1.3 : 4);
      for (Reduction r : kAllReductions)
        for (uint32_t dims = 0; dims < 8; ++dims) {
          if (r == Reduction::kProduct && !is_floating(dtype) && dims != 2) continue;  // overflows
          if (kFewCases && random() % 3 != 0) continue;
          check_reduce(r, x, dims, result_type(r, dtype), order);
        }
    }
}

TEST(SimtReduce, ShapesThatTakeEveryPath) {
  std::mt19937_64 random = fresh_random();
  struct Case {
    Shape shape;
    uint32_t dims;
  };
  for (const Case& c : std::vector<Case>{{{1}, 1},
                                         {{}, 0},
                                         {{70001}, 1},
                                         {{2, 33001}, 2},
                                         {{5, 5001}, 2},
                                         {{20, 2048}, 2},
                                         {{100, 131}, 2},
                                         {{9, 127}, 2},
                                         {{20001, 2}, 1},
                                         {{3001, 130}, 1},
                                         {{4097, 40}, 1},
                                         {{257, 500}, 1},
                                         {{9, 4, 50, 3}, 5},
                                         {{9, 4, 50, 3}, 10},
                                         {{20, 1, 300}, 2},
                                         {{2, 2, 2, 2, 2, 2, 2, 3}, 0xa5}})
    for (DType dtype : {float32, bfloat16, float64})
      for (Reduction r : {Reduction::kSum, Reduction::kMax}) {
        if (kFewCases && random() % 3 != 0) continue;
        constexpr Order kOrders[] = {Order::kContiguous, Order::kPitched, Order::kMisaligned};
        Array x(dtype, c.shape, kOrders[random() % 3]);
        fill_with_random(x, random, -1, 1);
        check_reduce(r, x, c.dims, dtype);
      }
  for (Reduction r : {Reduction::kMean, Reduction::kMin, Reduction::kSumOfSquares})
    for (const int64_t cols : {130, 3000}) {
      Array x(float16, {3, cols}, Order::kMisaligned);
      fill_with_random(x, random, -1, 1);
      check_reduce(r, x, 2, r == Reduction::kSumOfSquares ? float32 : float16);
    }
  Array row(float32, {1, 40});
  for (int64_t i = 0; i < 40; ++i) row.set(i, static_cast<double>(random() % 1000));  // whole numbers: exact sums
  Array y(float32, {1, 1});
  run_reduce(Reduction::kSum, row.expand({30, 40}), 3, y.view());  // stride 0
  double sum = 0;
  for (double v : row.values()) sum += 30 * v;
  EXPECT_EQ(y.at(0), sum);
}

TEST(SimtReduce, VectorsOfEveryDType) {
  std::mt19937_64 random = fresh_random();
  struct Case {
    Shape shape;
    uint32_t dims;
  };
  // Runs of elements: one result in parts, several runs per result, unaligned runs. Runs of results: whole, with a
  // ragged end, in parts.
  for (const Case& c : std::vector<Case>{{{140001}, 1},
                                         {{3, 7, 144}, 5},
                                         {{3, 7, 131}, 5},
                                         {{3, 131}, 2},
                                         {{300, 64}, 1},
                                         {{5, 70, 48}, 2},
                                         {{9000, 32}, 1}})
    for (DType dtype : kAllTypes)
      for (Reduction r : kAllReductions) {
        if (kFewCases && random() % 5 != 0) continue;
        const bool product = r == Reduction::kProduct, large = c.shape[0] > 1000;
        if (large && r != Reduction::kSum && random() % 4 != 0) continue;
        constexpr Order kOrders[] = {Order::kContiguous, Order::kContiguous, Order::kPitched, Order::kMisaligned};
        Array x(dtype, c.shape, kOrders[random() % 4]);
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
  ConstView narrow = wide.cview();
  narrow.shape[1] = 43;
  for (const uint32_t dims : {1u, 2u, 3u}) {
    Array y(float32, reduced_shape({200, 43}, dims));
    run_reduce(Reduction::kSum, narrow, dims, y.view());
    for (const double sum : y.values()) ASSERT_EQ(sum, 200.0 * 43 / static_cast<double>(y.numel()));
  }
}

TEST(SimtReduce, MovesLittleMoreThanTheElements) {
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
    std::mt19937_64 random = fresh_random();
    Array x(c.dtype, c.shape), y(result_type(Reduction::kSum, c.dtype), reduced_shape(c.shape, c.dims));
    fill_with_random(x, random, 0, 3);
    const double least = bytes_of(x) + bytes_of(y);
    EXPECT_LE(moved_bytes([&] { run_reduce(Reduction::kSum, x.cview(), c.dims, y.view()); }), 1.1 * least)
        << name_of(c.dtype) << " dims " << c.dims;
    if (c.dims == 5) continue;
    const int dim = c.dims == 1 ? 0 : 1;
    Array index(int64, reduced_shape(c.shape, c.dims));
    EXPECT_LE(moved_bytes([&] { run_arg_extreme(true, x.cview(), dim, index.view()); }),
              1.1 * (bytes_of(x) + bytes_of(index)))
        << "position, " << name_of(c.dtype) << " dims " << c.dims;
  }
}

cuda::ReducePlan plan_of(DType dtype, const Shape& shape, uint32_t dims) {
  const auto view = [&](const Shape& sizes, DType type) {
    std::vector<int64_t> strides(sizes.size(), 1);
    for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
    return View(nullptr, type, static_cast<int>(sizes.size()), sizes.data(), strides.data());
  };
  return cuda::plan_reduction(view(shape, dtype), dims, view(reduced_shape(shape, dims), dtype));
}

TEST(SimtReduce, DividesByMultiplication) {
  std::mt19937_64 random = fresh_random();
  for (int i = 0; i < 200000; ++i) {
    const int64_t d = static_cast<int64_t>(random() >> (1 + random() % 62)) + 1;
    int64_t n = static_cast<int64_t>(random() >> (1 + random() % 62));
    if (i % 2 == 0) n = n / d * d;  // an error would be visible there
    if (i % 4 == 0 && n > 0) --n;
    ASSERT_EQ(cuda::WideDivider(d).quotient(n), n / d) << n << " / " << d;
  }
}

TEST(SimtReduce, PlansFillTheDevice) {
  for (DType dtype : kAllTypes) {
    const int64_t n = 1 << 28;
    for (const auto& [shape, dims] : std::vector<std::pair<Shape, uint32_t>>{{{n}, 1},
                                                                             {{n + 1}, 1},
                                                                             {{3, n / 3}, 2},
                                                                             {{n / 3, 3}, 1},
                                                                             {{n / 768, 768}, 1},
                                                                             {{n / 768, 768}, 2},
                                                                             {{n / 999, 999}, 1},
                                                                             {{8, n / 512, 64}, 5},
                                                                             {{8, n / 512, 64}, 2}}) {
      SCOPED_TRACE(testing::Message() << name_of(dtype) << " " << shape[0] << " dims " << dims);
      const cuda::ReducePlan plan = plan_of(dtype, shape, dims);
      EXPECT_GE(plan.blocks(), 2 * 132);  // two for each multiprocessor of an H100
      // Parts cover all steps, and no part is empty.
      EXPECT_GE(plan.parts * plan.part_steps, plan.steps);
      EXPECT_LT((plan.parts - 1) * plan.part_steps, plan.steps);
      EXPECT_LE(plan.workspace_bytes(16), plan.results * plan.length * size_of(dtype) / 10);
    }
  }
  EXPECT_EQ(plan_of(float32, {1000}, 1).parts, 1);  // a small reduction takes one launch
  EXPECT_EQ(plan_of(float32, {100000, 1000}, 2).parts, 1);
}

TEST(SimtReduce, Empty) {
  for_each_schedule([] {
    Array x(float32, {3, 0}), y(float32, {3, 1}), flags(boolean, {3, 1}), none(float32, {1, 0});
    const auto value = [&](Reduction r) {
      run_reduce(r, x.cview(), 2, y.view());
      return y.at(2);
    };
    EXPECT_EQ(value(Reduction::kSum), 0);
    EXPECT_EQ(value(Reduction::kProduct), 1);
    EXPECT_TRUE(std::isnan(value(Reduction::kMean)));
    run_reduce(Reduction::kAll, x.cview(), 2, flags.view());
    EXPECT_EQ(flags.at(0), 1);
    run_reduce(Reduction::kAny, x.cview(), 2, flags.view());
    EXPECT_EQ(flags.at(0), 0);
    run_reduce(Reduction::kSum, x.cview(), 1, none.view());
    Array tall(float32, {0, 3}), sums(float32, {1, 3});
    run_reduce(Reduction::kSum, tall.cview(), 1, sums.view());
    EXPECT_EQ(sums.at(1), 0);
  });
}

TEST(SimtReduce, NanAndInfinity) {
  for_each_schedule([] {
    for (int64_t n : {5, 100, 5000, 40000})
      for (int64_t at : {int64_t{0}, n / 2, n - 1})
        for (Reduction r : {Reduction::kMax, Reduction::kMin, Reduction::kSum}) {
          if (kFewCases && at != n / 2) continue;
          Array x(float32, {n, 1}), y(float32, {1, 1});
          for (int64_t i = 0; i < n; ++i) x.set(i, i % 3);
          x.set(at, NAN);
          run_reduce(r, x.cview(), 1, y.view());
          ASSERT_TRUE(std::isnan(y.at(0))) << n << " " << at;
        }
    // Columns, with NaN first and last.
    Array x(float32, {3, 40}), y(float32, {1, 40});
    for (int64_t i = 0; i < 120; ++i) x.set(i, -INFINITY);
    x.set(5, NAN);
    x.set(86, NAN);
    run_reduce(Reduction::kMax, x.cview(), 1, y.view());
    EXPECT_EQ(y.at(0), -INFINITY);
    EXPECT_TRUE(std::isnan(y.at(5)));
    EXPECT_TRUE(std::isnan(y.at(6)));
  });
}

TEST(SimtReduce, ManyFloatsWithinOnePartInAMillion) {
  if (kFewCases) GTEST_SKIP() << "sanitizer: large numbers of the same cases";
  std::vector<float> values(1000001);
  std::mt19937_64 random = fresh_random();
  double exact = 0;
  for (float& v : values) exact += v = static_cast<float>(random() % 1000003) * 1e-6f;
  const int64_t n = static_cast<int64_t>(values.size());
  float sum = 0;
  run_reduce(Reduction::kSum, make_view(const_cast<const float*>(values.data()), n), 1, make_view(&sum, 1));
  EXPECT_TRUE(near(sum, exact, 4e-7, 0)) << sum << " " << exact;
  // Columns of a tall matrix.
  float columns[10];
  std::vector<char> workspace(cuda::column_sum_workspace(kCuda, n / 10, 10, float32));
  cuda::column_sum(kCuda, make_view(const_cast<const float*>(values.data()), n / 10, 10), false, workspace.data(),
                   make_view(columns, 10));
  double total = 0;
  for (float c : columns) total += c;
  EXPECT_TRUE(near(total, exact - values.back(), 1e-6, 0));
}

/// Few distinct values, so that there are ties, of which the first must be selected. Some are NaN.
void fill_with_ties(Array& x, std::mt19937_64& random) {
  for (int64_t i = 0; i < x.numel(); ++i) x.set(i, static_cast<double>(random() % 40) - 20);
  if (is_floating(x.dtype()))
    for (int64_t i = 90; i < x.numel(); i += 101) x.set(i, NAN);
}

void check_arg_extreme(bool largest, Array& x, int dim, Order order = Order::kContiguous) {
  const Shape& shape = x.shape();
  Array index(int64, reduced_shape(shape, 1u << dim), order);
  expect_same_for_all_schedules({&index}, [&] { run_arg_extreme(largest, x.cview(), dim, index.view()); });
  int64_t below = 1;
  for (size_t d = dim + 1; d < shape.size(); ++d) below *= shape[d];
  for (int64_t o = 0; o < index.numel(); ++o) {
    const int64_t first = o / below * below * shape[dim] + o % below;
    int64_t best = 0;
    for (int64_t k = 1; k < shape[dim]; ++k) {
      const double a = x.at(first + k * below), b = x.at(first + best * below);
      if ((largest ? a > b : a < b) || (std::isnan(a) && !std::isnan(b))) best = k;
    }
    ASSERT_EQ(index.at(o), best) << name_of(x.dtype()) << " dim " << dim << " largest " << largest;
  }
}

TEST(SimtReduce, ArgExtreme) {
  std::mt19937_64 random = fresh_random();
  for (DType dtype : kAllTypes)
    for (Order order : {Order::kContiguous, Order::kTransposed, Order::kSliced})
      for (const Shape& shape : std::vector<Shape>{{3, 5, 37}, {2, 700, 3}, {1, 1, 1}, {2, 1, 2050}, {1, 5000, 1}})
        for (int dim = 0; dim < 3; ++dim) {
          if (kFewCases && random() % 3 != 0) continue;
          Array x(dtype, shape, order);
          fill_with_ties(x, random);
          check_arg_extreme(random() % 2 == 0, x, dim, order);
        }
}

TEST(SimtReduce, ArgExtremeInVectorsAndParts) {
  std::mt19937_64 random = fresh_random();
  for (DType dtype : kAllTypes)
    for (const Shape& shape : std::vector<Shape>{{3, 131}, {2, 140001}, {9000, 32}, {70, 40}})
      for (Order order : {Order::kContiguous, Order::kMisaligned}) {
        if (kFewCases && random() % 5 != 0) continue;
        const int dim = shape[0] > shape[1] ? 0 : 1;
        Array x(dtype, shape, order);
        fill_with_ties(x, random);
        // Equal extreme elements in several parts, or a NaN, which precedes all others.
        if (!is_floating(dtype) && dtype != boolean)
          for (int64_t i = 0; i < x.numel(); i += 7777) x.set(i, random() % 2 == 0 ? 100 : 0);
        check_arg_extreme(random() % 2 == 0, x, dim);
      }
}

TEST(SimtReduce, ColumnSum) {
  std::mt19937_64 random = fresh_random();
  for (DType dtype : kFloatTypes)
    for (const Shape& shape :
         std::vector<Shape>{{1, 1}, {0, 7}, {1000, 3}, {700, 128}, {33, 1025}, {3, 5000}, {40, 0}, {5000, 24}})
      for (const Order order : {Order::kContiguous, Order::kMisaligned}) {
        if (kFewCases && random() % 3 != 0) continue;
        Array x(dtype, shape, order), y(dtype, {shape[1]}), sums(float32, {shape[1]});
        fill_with_random(x, random, -1, 1);
        std::vector<char> workspace(cuda::column_sum_workspace(kCuda, shape[0], shape[1], dtype), 0x5a);
        expect_same_for_all_schedules({&y, &sums}, [&] {
          cuda::column_sum(kCuda, x.cview(), false, workspace.data(), y.view());
          cuda::column_sum(kCuda, x.cview(), false, workspace.data(), sums.view());
        });
        for (bool accumulate : {false, true}) {
          const std::vector<double> before = y.values();
          cuda::column_sum(kCuda, x.cview(), accumulate, workspace.data(), y.view());
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

TEST(SimtReduce, ColumnSumMovesLittleMoreThanTheMatrix) {
  if (kFewCases) GTEST_SKIP() << "sanitizer: counts bytes, which are the same without a sanitizer";
  Array x(bfloat16, {4000, 256}), y(bfloat16, {256});
  std::mt19937_64 random = fresh_random();
  fill_with_random(x, random, -1, 1);
  std::vector<char> workspace(cuda::column_sum_workspace(kCuda, 4000, 256, bfloat16));
  EXPECT_LE(moved_bytes([&] { cuda::column_sum(kCuda, x.cview(), false, workspace.data(), y.view()); }),
            1.15 * bytes_of(x));
}

TEST(SimtReduce, GradientNorm) {
  std::mt19937_64 random = fresh_random();
  for_each_schedule([&] {
    std::vector<Array> arrays;
    for (auto [dtype, n] : std::vector<std::pair<DType, int64_t>>{
             {float32, 50000}, {bfloat16, 16384}, {float32, 0}, {float16, 16385}, {float64, 20000}, {float32, 1}})
      fill_with_random(arrays.emplace_back(dtype, Shape{n}, n == 1 ? Order::kMisaligned : Order::kContiguous), random,
                       -1, 1);
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
      Scratch workspace(cuda::gradient_norm_workspace(kCuda, elements, count));
      GradientNorm one{-1, -1, -1};
      uint32_t ticket = 0;
      simt::reset_stats();
      cuda::gradient_norm(kCuda, views.data(), count, workspace.data(), &ticket, &one);
      EXPECT_EQ(ticket, 0u);
      EXPECT_EQ(simt::stats().launches, 1u);
      const bool finite = bad < 0 || std::isfinite(value);
      EXPECT_EQ(one.non_finite, finite ? 0 : 1);
      EXPECT_EQ(one.first_bad, finite ? -1 : bad);
      EXPECT_TRUE(!finite || near(one.sum_of_squares, exact, 1e-6, 0)) << one.sum_of_squares << " " << exact;
      if (bad >= 0) arrays[bad].set(middle, before);
    };
    run(-1, 0);
    for (int bad : {0, 1, 3, 4, 5})
      for (double value : {static_cast<double>(NAN), static_cast<double>(INFINITY), -static_cast<double>(INFINITY)})
        if (!kFewCases || std::isnan(value)) run(bad, value);
    run(0, 1e30);  // its square overflows fp32: not an error
    arrays[3].set(7, NAN);
    run(1, INFINITY);  // the first of two bad tensors is reported
    arrays[3].set(7, 0);
    const auto blocks = [](const ConstView* x, int64_t n, GradientBlock* to) {
      cuda::gradient_norm_blocks(kCuda, x, n, to);
    };
    const auto fold = [](const GradientBlock* from, const int64_t* order, int64_t n, GradientNorm* result) {
      cuda::gradient_norm_fold(kCuda, from, order, n, result);
    };
    const auto norm = [](const ConstView* x, int64_t n, void* workspace, GradientNorm* result) {
      uint32_t ticket = 0;
      cuda::gradient_norm(kCuda, x, n, workspace, &ticket, result);
    };
    expect_norm_of_parts(arrays[0], arrays[1], arrays[3], kGradientNormBlock, blocks, fold, norm);
    // One block or none needs no ticket.
    GradientNorm none;
    Scratch space(cuda::gradient_norm_workspace(kCuda, kGradientNormBlock, 1));
    const ConstView small = arrays[1].cview(), large = arrays[0].cview();
    cuda::gradient_norm(kCuda, &small, 1, space.data(), nullptr, &none);
    double exact = 0;
    for (double v : arrays[1].values()) exact += v * v;
    EXPECT_TRUE(near(none.sum_of_squares, exact, 1e-6, 0));
    EXPECT_THROW(cuda::gradient_norm(kCuda, &large, 1, space.data(), nullptr, &none), Error);
    cuda::gradient_norm(kCuda, nullptr, 0, space.data(), nullptr, &none);
    EXPECT_EQ(none.sum_of_squares, 0);
    EXPECT_EQ(none.first_bad, -1);
  });
}

TEST(SimtReduce, GradientNormOfManyTensors) {
  // More tensors than fit into one launch, with misaligned and empty ones.
  std::mt19937_64 random = fresh_random();
  std::vector<Array> arrays;
  for (int t = 0; t < 810; ++t)
    fill_with_random(arrays.emplace_back(kFloatTypes[t % 4], Shape{t % 37 == 0 ? 0 : t % 300},
                                         t % 3 == 0 ? Order::kMisaligned : Order::kContiguous),
                     random, -1, 1);
  for (const int bad : {-1, 809, 400, 1}) {
    if (kFewCases && bad != 809) continue;
    if (bad >= 0) arrays[bad].set(0, NAN);
    std::vector<ConstView> views;
    int64_t elements = 0;
    double exact = 0;
    for (const Array& a : arrays) {
      views.push_back(a.cview());
      elements += a.numel();
      for (const double v : a.values()) exact += v * v;
    }
    const int64_t count = static_cast<int64_t>(views.size());
    Scratch workspace(cuda::gradient_norm_workspace(kCuda, elements, count));
    uint32_t ticket = 0;
    for_each_schedule([&] {
      GradientNorm norm{-1, -1, -1};
      simt::reset_stats();
      cuda::gradient_norm(kCuda, views.data(), count, workspace.data(), &ticket, &norm);
      EXPECT_EQ(simt::stats().launches, 3u);
      EXPECT_EQ(ticket, 0u);
      EXPECT_EQ(norm.first_bad, bad);
      EXPECT_EQ(norm.non_finite, bad >= 0);
      EXPECT_TRUE(bad >= 0 || near(norm.sum_of_squares, exact, 1e-6, 0)) << norm.sum_of_squares << " " << exact;
    });
  }
}

}  // namespace
}  // namespace tern::kernels
