// Matrix products and linear layers against fp64: on the CPU, and through cuBLASLt or its stand-in.

#include "tern/tests/kernels/contracts/gemm.h"

namespace tern::kernels {
namespace {

class Gemm : public OnTarget {
 protected:
  int64_t below(uint64_t n) { return static_cast<int64_t>(random() % n); }
};
INSTANTIATE_TEST_SUITE_P(, Gemm, testing::ValuesIn(library_targets()), name_of_target);

TEST_P(Gemm, AgreesWithDoubleInEveryDtypeAndLayout) {
  for (const auto& [input, output] : kTypePairs)
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const Case& t : {Case{1, 1, 1, 1, ta, tb}, Case{1, 3, 5, 7, ta, tb}, Case{1, 1, 64, 33, ta, tb},
                              Case{1, 65, 1, 17, ta, tb}, Case{1, 64, 48, 64, ta, tb}, Case{1, 130, 48, 64, ta, tb},
                              Case{1, 101, 65, 40, ta, tb, 1, 0, 3}, Case{1, 301, 65, 100, ta, tb, 1, 0, 3},
                              Case{1, 41, 20, 40, ta, tb, 0.5, 1, 5}, Case{1, 141, 20, 40, ta, tb, 0.5, 1, 5},
                              Case{3, 9, 11, 6, ta, tb, 1, 0, 2}, Case{2, 30, 17, 32, ta, tb, -2, 1},
                              Case{2, 130, 17, 32, ta, tb, -2, 1}})
          check_gemm(input, output, t, random);
}

TEST_P(Gemm, LongInnerDimensions) {
  for (const auto& [input, output] : kTypePairs) {
    check_gemm(input, output, {1, 24, 16, 2056, true, false}, random);
    check_gemm(input, output, {2, 16, 8, 1031, false, true, 0.5, 1}, random);
    check_gemm(input, output, {1, 60, 50, 700, false, true}, random);
  }
  // Rows 4 KiB apart use the swapped order on the CPU; a long inner dimension is widened in slices.
  check_gemm(float32, float32, {1, 1024, 64, 520, true, false}, random);
  check_gemm(float32, float32, {1, 1024, 70, 515, true, false, 0.5, 1}, random);
  // Rows of b 2 KiB apart are copied there first.
  check_gemm(float32, float32, {1, 128 + below(40), 512, 90 + below(9), false, false}, random);
  check_gemm(float32, float32, {2, 150, 512 - 16, 80 + below(9), false, false, 0.5, 1, 16}, random);
  check_gemm(bfloat16, float32, {1, 96, 40, 1100, true, false, 1, 1}, random);
  check_gemm(float16, float16, {1, 40, 24, 2100, true, false}, random);
  for (const DType dtype : {float32, bfloat16}) check_gemm(dtype, float32, {1, 130, 203, 1100, false, false}, random);
}

/// a^T b as in a weight's gradient, of whole vectors of columns, with several blocks of rows.
TEST_P(Gemm, GradientsOfWeights) {
  for (const int64_t m : {33 + below(60), 385 + below(30)})
    for (const int64_t n : {32 + 16 * below(6), 40 + 16 * below(6)})
      check_gemm(float32, float32, {1, m, n, 250 + below(400), true, false, 1, static_cast<double>(below(2)), below(4)},
                 random);
  check_gemm(float32, float32, {1, 97, 168, 600 + below(9), true, false, 1, 1, 3}, random);
}

/// c is divided into tiles, the last of which are smaller.
TEST_P(Gemm, SeveralTiles) {
  for (const DType dtype : kFloatTypes)
    for (int i = 0; i < 2; ++i) {
      const double alpha = below(2) ? 1 : -0.5, beta = static_cast<double>(below(2));
      const DType output = is_low_precision(dtype) && below(2) ? float32 : dtype;
      check_gemm(
          dtype, output,
          {1, 200 + below(100), 1030 + below(90), 1 + below(12), below(2) == 0, below(2) == 0, alpha, beta, below(4)},
          random);
      check_gemm(
          dtype, output,
          {1, 40 + below(90), 260 + below(300), 90 + below(30), below(2) == 0, below(2) == 0, alpha, beta, below(4)},
          random);
    }
}

class GemmOnCpu : public Gemm {};
INSTANTIATE_TEST_SUITE_P(, GemmOnCpu, testing::ValuesIn(cpu_targets()), name_of_target);

TEST_P(GemmOnCpu, ResultsDoNotDependOnTheNumberOfThreads) {
  for (const DType dtype : kFloatTypes)
    for (int i = 0; i < 6; ++i) {
      Case t{1 + below(3), 1 + below(300), 1 + below(1100), 1 + below(100), below(2) == 0, below(2) == 0};
      if (i % 3 == 0) t = {1, 1024, 64 + below(40), 512 + below(100), true, false};  // the swapped order
      if (i % 4 == 1) t = {1, 1 + below(130), 1 + below(130), 1000 + below(1000), true, false};
      if (i == 5) t = {1, 128 + below(200), 1024, 60 + below(99), false, false};  // a copy of b
      if (i == 2) t = {1 + below(2), 30 + below(60), 30 + below(60), 5000 + below(3000), below(2) == 0, false};
      if (below(2)) t.alpha = 0.5;
      SCOPED_TRACE(describe(t, dtype, dtype));
      Operands operands(dtype, dtype, t, random);
      Matrices &a = operands.a, &b = operands.b, &c = operands.c;
      expect_same_in_every_run({&c.memory}, [&](Call& on) {
        run_gemm(on, t.transpose_a, t.transpose_b, t.alpha, a.view(), b.view(), 0, c.view());
      });
    }
}

/// Too small for a library: m * n * k up to slightly above the largest that loops compute (4096), and k up to slightly
/// above 256.
Case tiny_case(std::mt19937_64& random) {
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  Case t{};
  t.batch = below(4) == 0 ? 1 + below(40) : 1;
  t.m = 1 + below(below(2) ? 40 : 9);
  t.n = 1 + below(below(2) ? 40 : 9);
  t.k = 1 + below(std::max<int64_t>(1, std::min<int64_t>(300, 4200 / (t.m * t.n))));
  t.transpose_a = below(2);
  t.transpose_b = below(2);
  t.alpha = below(3) == 0 ? -1.5 : 1;
  t.beta = below(3) == 0 ? 1 : 0;
  t.gap = below(2) ? below(6) : 0;
  return t;
}

TEST_P(GemmOnCpu, TinyProductsAgreeWithDouble) {
  for (int i = 0; i < 140; ++i) {
    Case t = tiny_case(random);
    if (i < 20) t.batch = 300;  // several blocks of the batch
    check_gemm(float32, float32, t, random);
  }
}

TEST_P(GemmOnCpu, EveryElementOfATinyProductIsOneSumInOrder) {
  for (int i = 0; i < 50; ++i) {
    Case t = tiny_case(random);
    t.alpha = 1;
    t.beta = 0;
    if (t.k > 256 || t.m * t.n * t.k > 4096) continue;
    SCOPED_TRACE(describe(t, float32, float32));
    Operands operands(float32, float32, t, random);
    const View a = operands.a.view(), b = operands.b.view(), c = operands.c.view();
    run_kernel([&](Call& on) { run_gemm(on, t.transpose_a, t.transpose_b, 1, a, b, 0, c); });
    for (int64_t e = 0; e < t.batch * t.m * t.n; ++e) {
      const int64_t one = e / (t.m * t.n), row = e / t.n % t.m, col = e % t.n;
      float sum = 0;
      for (int64_t l = 0; l < t.k; ++l) {
        const int64_t of_a = t.transpose_a ? l * t.m + row : row * t.k + l,
                      of_b = t.transpose_b ? col * t.k + l : l * t.n + col;
        const auto x = static_cast<float>(Array::read(a, one * t.m * t.k + of_a));
        const auto y = static_cast<float>(Array::read(b, one * t.n * t.k + of_b));
        const float product = x * y;
        sum = cpu_level() != CpuLevel::kV2 ? std::fma(x, y, sum) : sum + product;
      }
      ASSERT_EQ(Array::read(c, e), static_cast<double>(sum)) << "element " << e;
    }
  }
}

TEST_P(Gemm, EmptyDimensions) {
  for (const DType dtype : kFloatTypes)
    for (const Case& t :
         {Case{1, 0, 4, 3, false, false}, Case{1, 4, 0, 3, false, true}, Case{0, 2, 2, 2, false, false},
          Case{1, 4, 3, 0, false, false}, Case{2, 4, 3, 0, true, true, 1, 1}, Case{2, 4, 3, 0, true, true, 1, 0, 2}})
      check_gemm(dtype, dtype, t, random);
}

/// The product of views of a and b, which may repeat elements, in the whole of c.
void check_views(const Case& t, DType dtype, Array& a, ConstView a_view, Array& b, ConstView b_view, Matrices& c) {
  run_kernel([&](Call& on) {
    run_gemm(on, t.transpose_a, t.transpose_b, 1, on(std::as_const(a), a_view), on(std::as_const(b), b_view), 0,
             on(c.memory, c.view()));
  });
  const std::vector<double> got = values_of(c.view());
  for_each_element(
      t, values_of(a_view), values_of(b_view), [&](int64_t i, int64_t r, int64_t s, double sum, double magnitude) {
        ASSERT_LE(std::fabs(got[(i * t.m + r) * t.n + s] - sum), tolerance(dtype, dtype, sum, magnitude, t.k));
      });
}

TEST_P(Gemm, BroadcastsEitherOperand) {
  for (const DType dtype : kFloatTypes)
    for (const bool of_a : {false, true})
      for (const bool transpose_a : {false, true})
        for (const int64_t m : {14, 40}) {  // without gaps the matrices of a and c can form one of 5 m rows
          const Case t{5, m, 18, 24, transpose_a, false};
          const Shape shape_a = {of_a ? 1 : t.batch, transpose_a ? t.k : t.m, transpose_a ? t.m : t.k};
          Array a = random_array(random, dtype, shape_a, -1, 1);
          Array b = random_array(random, dtype, {of_a ? t.batch : 1, t.k, t.n}, -1, 1);
          Matrices c(dtype, t.batch, t.m, t.n, 0);
          check_views(t, dtype, a, a.expand({t.batch, shape_a[1], shape_a[2]}), b, b.expand({t.batch, t.k, t.n}), c);
        }
}

TEST_P(Gemm, OneMatrixForABatchWithGaps) {
  for (const int64_t gap_a : {0, 3})
    for (const int64_t gap_c : {0, 2}) {
      const Case t{4, 6, 5, 7, false, false};
      Matrices a(float32, t.batch, t.m, t.k, gap_a), c(float32, t.batch, t.m, t.n, gap_c);
      Array b = random_array(random, float32, {1, t.k, t.n}, -1, 1);
      fill_with_random(a.memory, random, -1, 1);
      check_views(t, float32, a.memory, a.view(), b, b.expand({t.batch, t.k, t.n}), c);
    }
}

TEST_P(Gemm, RowsThatOverlap) {
  for (const DType dtype : kFloatTypes) {
    Array rows(dtype, {2, 3}), b(dtype, {3, 2}), c(dtype, {4, 2}), both(dtype, {2, 4, 2});
    rows.set({1, 2, 3, 4, 5, 6});
    b.set({0, 1, 2, 3, 4, 5});
    const int64_t shape[] = {2, 4, 3}, strides[] = {3, 0, 1}, shape_b[] = {2, 3, 2}, strides_b[] = {0, 2, 1};
    run_kernel([&](Call& on) {
      const void *const first = on(rows).data, *const second = on(b).data;
      run_gemm(on, false, false, 1, ConstView(first, dtype, 2, shape + 1, strides + 1), on(b), 0, on(c));
      run_gemm(on, false, false, 1, ConstView(first, dtype, 3, shape, strides),
               ConstView(second, dtype, 3, shape_b, strides_b), 0, on(both));
    });
    EXPECT_EQ(c.values(), (std::vector<double>{16, 22, 16, 22, 16, 22, 16, 22}));
    EXPECT_EQ(both.values(), (std::vector<double>{16, 22, 16, 22, 16, 22, 16, 22, 34, 49, 34, 49, 34, 49, 34, 49}));
  }
}

TEST_P(Gemm, MoreMatricesThanAGridHolds) {
  const int64_t batch = 70001;
  Array a(float32, {batch, 1, 1}), b(float32, {batch, 1, 1}), c(float32, {batch, 1, 1});
  for (int64_t i = 0; i < batch; ++i) {
    a.set(i, static_cast<double>(i % 1000));
    b.set(i, 3);
  }
  run_kernel([&](Call& on) { run_gemm(on, false, false, 1, on(a), on(b), 0, on(c)); });
  for (int64_t i = 0; i < batch; ++i) ASSERT_EQ(c.at(i), static_cast<double>(i % 1000 * 3)) << i;
}

TEST_P(Gemm, SixteenBitErrorsStayNearTheFormats) {
  for (const DType dtype : {bfloat16, float16}) {
    const Case t{1, 60, 50, 700, false, true};
    Array a(dtype, {t.m, t.k}), b(dtype, {t.n, t.k}), c(dtype, {t.m, t.n});
    fill_with_random(a, random, -1, 1);
    fill_with_random(b, random, -1, 1);
    run_kernel([&](Call& on) { run_gemm(on, false, true, 1, on(a), on(b), 0, on(c)); });
    double ours = 0, naive = 0;
    for_each_element(t, a.values(), b.values(), [&](int64_t, int64_t r, int64_t s, double sum, double) {
      const double error = std::fabs(c.at(r * t.n + s) - sum);
      ours = error <= ours ? ours : error;  // a NaN is kept
      float rounded = 0;
      for (int64_t p = 0; p < t.k; ++p)
        rounded += static_cast<float>(a.at(r * t.k + p)) * static_cast<float>(b.at(s * t.k + p));
      naive = std::max(naive, std::fabs(round_to(dtype, rounded) - sum));
    });
    EXPECT_LE(ours, 2 * naive + 1e-5);
  }
}

TEST_P(Gemm, OfIntegersWrapsAround) {
  for (const DType dtype : {int64, int32, uint8})
    for (const auto& [m, k, n] : {std::array<int64_t, 3>{3, 5, 4}, {1, 0, 2}, {17, 70, 33}, {0, 3, 2}})
      for (const Order order : kAllOrders) {
        if (!takes_case(2 * m * n, random)) continue;
        const Array a = random_array(random, dtype, {2, m, k}, 0, 200, order),
                    b = random_array(random, dtype, {2, k, n}, 0, 200, order);
        Array c(dtype, {2, m, n});
        run_kernel([&](Call& on) { integer_gemm(on.stream(), on(a), on(b), on(c)); });
        for (int64_t i = 0; i < c.numel(); ++i) {
          double sum = 0;
          for (int64_t p = 0; p < k; ++p) sum += a.at(i / n * k + p) * b.at((i / (m * n) * k + p) * n + i % n);
          ASSERT_EQ(c.at(i), dtype == uint8 ? std::fmod(sum, 256) : sum) << name_of(dtype);
        }
      }
}

TEST_P(Gemm, PropagatesNan) {
  for (const DType dtype : kFloatTypes) {
    Array a(dtype, {200, 32}), b(dtype, {32, 32}), c(dtype, {200, 32});
    a.fill(1);
    b.fill(1);
    a.set(199 * 32 + 5, NAN);
    run_kernel([&](Call& on) { run_gemm(on, false, true, 1, on(a), on(b), 0, on(c)); });
    EXPECT_TRUE(std::isnan(c.at(199 * 32)));
    EXPECT_EQ(c.at(198 * 32), 32);
  }
}

class Linear : public Gemm {};
INSTANTIATE_TEST_SUITE_P(, Linear, testing::ValuesIn(library_targets()), name_of_target);

double activate(Activation activation, double x) {
  if (activation == Activation::kGelu) return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  return activation == Activation::kRelu ? std::max(x, 0.0) : x;
}

struct LinearCase {
  DType dtype, bias_dtype;
  int64_t rows, in, out;
  Activation activation;
  bool with_bias = true, with_pre = true;
  Order order = Order::kMisaligned;
};

void run_linear(Call& on, const Array& x, const Array& weight, ConstView bias, Activation activation, View pre,
                View y) {
  void* const workspace = on.workspace(linear_workspace(on.stream(), on(x), on(weight), y));
  linear_forward(on.stream(), on(x), on(weight), bias, activation, pre, y, workspace);
}

void check_linear(const LinearCase& t, std::mt19937_64& random) {
  if (t.rows * t.in * t.out / 32 > target().max_elements()) return;
  SCOPED_TRACE(testing::Message() << name_of(t.dtype) << " bias " << name_of(t.bias_dtype) << " " << t.with_bias
                                  << " rows " << t.rows << " in " << t.in << " out " << t.out << " activation "
                                  << static_cast<int>(t.activation) << " pre " << t.with_pre);
  const Array x = random_array(random, t.dtype, {t.rows, t.in}, -1, 1, t.order);
  const Array weight = random_array(random, t.dtype, {t.out, t.in}, -0.5, 0.5);
  const Array bias = random_array(random, t.bias_dtype, {t.out}, -1, 1, t.order);
  Array pre(t.dtype, {t.rows, t.out}, t.order), y(t.dtype, {t.rows, t.out}, t.order);
  expect_same_in_every_run({&y, &pre}, [&](Call& on) {
    run_linear(on, x, weight, on.when(t.with_bias, bias), t.activation, on.when(t.with_pre, pre), on(y));
  });
  const std::vector<double> xv = x.values(), wv = weight.values(), bv = bias.values();
  const double unit = epsilon_of(t.dtype), tiny = t.dtype == float16 ? 1e-7 : 1e-30;
  for (int64_t i = 0; i < t.rows * t.out; ++i) {
    const double added = t.with_bias ? bv[i % t.out] : 0;
    double sum = added, magnitude = std::fabs(added);
    for (int64_t p = 0; p < t.in; ++p) {
      const double term = xv[i / t.out * t.in + p] * wv[i % t.out * t.in + p];
      sum += term;
      magnitude += std::fabs(term);
    }
    // On CUDA a wider bias is first rounded to the dtype, and the activation reads the rounded sum. cuBLASLt 13.1
    // rounds products of some shapes to 16 bits before it adds the bias.
    const double of_bias = target().is_cpu() || t.bias_dtype == t.dtype ? 0 : unit * std::fabs(added);
    const bool rounded = target().name() == "gpu" && t.with_bias && is_low_precision(t.dtype);
    const double of_product = rounded ? unit * std::fabs(sum - added) : 0;
    const double slack = tolerance(t.dtype, t.dtype, sum, magnitude, t.in) + of_bias + of_product;
    if (t.with_pre) {
      ASSERT_LE(std::fabs(pre.at(i) - sum), slack) << "pre at " << i;
    }
    const double expected = activate(t.activation, sum);  // its slope is at most 1.13; erf errs by a few units of x
    const double read = target().is_cpu() ? 1.2 * tolerance(t.dtype, t.dtype, 0, magnitude, t.in)
                                          : 1.13 * slack + 8 * unit * std::fabs(sum) * (t.dtype == float64);
    ASSERT_LE(std::fabs(y.at(i) - expected),
              read + unit * std::fabs(expected) * 1.01 + 4 * 0x1p-24 * std::fabs(sum) * (t.dtype != float64) + tiny)
        << "y at " << i;
  }
}

TEST_P(Linear, ForwardAgreesWithDouble) {
  for (const DType dtype : kFloatTypes) {
    const DType wide = is_low_precision(dtype) ? float32 : dtype;
    for (const Activation activation : {Activation::kNone, Activation::kGelu, Activation::kRelu})
      for (const bool with_bias : {false, true})
        for (const bool with_pre : {false, true}) {
          check_linear({dtype, dtype, 40, 24, 32, activation, with_bias, with_pre, Order::kContiguous}, random);
          check_linear({dtype, wide, 7, 33, 19, activation, with_bias, with_pre}, random);
          check_linear({dtype, wide, 1, 1, 1, activation, with_bias, with_pre, Order::kContiguous}, random);
          check_linear({dtype, dtype, 5, 0, 6, activation, with_bias, with_pre, Order::kContiguous}, random);
          check_linear({dtype, dtype, 0, 4, 6, activation, with_bias, with_pre, Order::kContiguous}, random);
        }
    check_linear({dtype, dtype, 141, 33, 300, Activation::kGelu}, random);
    check_linear({dtype, wide, 200, 40, 24, Activation::kGelu, true, false}, random);
    check_linear({dtype, wide, 530, 16, 17, Activation::kNone, true, false}, random);
    check_linear({dtype, dtype, 1030, 20, 18, Activation::kNone, false, false}, random);
    check_linear({dtype, wide, 130, 1100, 203, Activation::kNone, true, false}, random);  // packed in several parts
  }
}

using LinearBlocks = OnCpu;

/// With packed products, whose blocks of rows threads take in turn, a row of the result depends only on its row of x.
TEST_F(LinearBlocks, RowsDoNotDependOnTheirBlock) {
  const char* const limit = std::getenv("TERN_CPU_LEVEL");  // set for the whole process
  if (!can_test_level(CpuLevel::kV4) || (limit && std::string(limit) != "v4"))
    GTEST_SKIP() << "cpu: only CPU level v4 has packed products";
  for (const DType dtype : {float32, bfloat16}) {
    if (dtype == bfloat16 && !__builtin_cpu_supports("avx512bf16")) {
      left_out("cpu: this processor has no AVX512-BF16");
      continue;
    }
    for (const int64_t in : {96, 700, 1100, 3072}) {
      if (kFewCases && in > 700) continue;
      const int64_t rows = 2300 + below(300), out = 16 + below(70);
      SCOPED_TRACE(testing::Message() << name_of(dtype) << " rows " << rows << " in " << in << " out " << out);
      const Array x = filled(dtype, {rows, in}), weight = filled(dtype, {out, in}), bias = filled(dtype, {out});
      const auto first_rows = [&](int64_t n, int threads) {
        set_num_threads(threads);
        Array y(dtype, {n, out});
        ConstView some = x.cview();
        some.shape[0] = n;
        MarkedWorkspace workspace(linear_workspace(Stream{}, some, weight.cview(), y.view()));
        linear_forward(Stream{}, some, weight.cview(), bias.cview(), Activation::kNone, View(), y.view(),
                       workspace.data());
        return y.values();
      };
      const std::vector<double> all = first_rows(rows, 1);
      for (const int threads : {1, 2, 3, 7})
        for (const int64_t n : {rows, 128 + below(300), 512 + below(1500)}) {
          const std::vector<double> some = first_rows(n, threads);
          ASSERT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << n << " rows, " << threads << " threads";
        }
    }
  }
}

struct WeightCase {
  DType dtype, weight, bias;
  int64_t rows, in, out;
  bool with_bias = true;
  Order order = Order::kMisaligned;
};

void check_weight_backward(const WeightCase& t, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << name_of(t.dtype) << " weight " << name_of(t.weight) << " bias " << name_of(t.bias)
                                  << " " << t.with_bias << " rows " << t.rows << " in " << t.in << " out " << t.out);
  const Array dy = random_array(random, t.dtype, {t.rows, t.out}, -1, 2, t.order);
  const Array x = random_array(random, t.dtype, {t.rows, t.in}, -1, 1, t.order);
  Array dweight(t.weight, {t.out, t.in}), dbias(t.bias, {t.out}, t.order);
  for (Array* result : {&dweight, &dbias}) result->fill(NAN);
  expect_same_in_every_run({&dweight, &dbias}, [&](Call& on) {
    const ConstView from = on(dy), input = on(x);
    void* const workspace = on.workspace(linear_weight_backward_workspace(on.stream(), from, input, on(dweight)));
    linear_weight_backward(on.stream(), from, input, on(dweight), on.when(t.with_bias, dbias), workspace);
  });
  const std::vector<double> dys = dy.values(), xs = x.values();
  for (int64_t o = 0; o < t.out; ++o) {
    double bias = 0, bias_magnitude = 0;
    for (int64_t r = 0; r < t.rows; ++r) {
      bias += dys[r * t.out + o];
      bias_magnitude += std::fabs(dys[r * t.out + o]);
    }
    if (t.with_bias) {
      ASSERT_LE(std::fabs(dbias.at(o) - bias), tolerance(t.bias, t.dtype, bias, bias_magnitude, t.rows)) << o;
    }
    for (int64_t i = 0; i < t.in; ++i) {
      double sum = 0, magnitude = 0;
      for (int64_t r = 0; r < t.rows; ++r) {
        const double term = dys[r * t.out + o] * xs[r * t.in + i];
        sum += term;
        magnitude += std::fabs(term);
      }
      ASSERT_LE(std::fabs(dweight.at(o * t.in + i) - sum), tolerance(t.weight, t.dtype, sum, magnitude, t.rows))
          << "weight " << o << ", " << i;
    }
  }
}

TEST_P(Linear, WeightBackwardAgreesWithDouble) {
  for (const DType dtype : kFloatTypes)
    for (const DType weight : {dtype, is_low_precision(dtype) ? float32 : dtype})
      for (const DType bias : {dtype, weight}) {
        check_weight_backward({dtype, weight, bias, 40, 24, 32, true, Order::kContiguous}, random);
        check_weight_backward({dtype, weight, bias, 40, 24, 32, false, Order::kContiguous}, random);
        for (const auto& [rows, in, out] : std::vector<std::array<int64_t, 3>>{
                 {37, 19, 33}, {37, 20, 11}, {1, 1, 1}, {1500, 7, 9}, {2060, 3, 5}, {0, 4, 6}, {5, 0, 6}, {5, 4, 0}})
          check_weight_backward({dtype, weight, bias, rows, in, out}, random);
      }
}

TEST_P(Linear, ANanOfThePreActivationIsKept) {
  for (const Activation activation : {Activation::kRelu, Activation::kGelu}) {
    Array x(float32, {2, 4}), weight(float32, {4, 4}), y(float32, {2, 4});
    weight.fill(1);
    x.set({1, 1, 1, 1, 1, NAN, 1, 1});
    run_kernel([&](Call& on) { run_linear(on, x, weight, {}, activation, {}, on(y)); });
    for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(std::isnan(y.at(i)), i >= 4);
  }
}

TEST_P(Linear, ExtremeInputsOfTheActivations) {
  Array x(float32, {6, 1}), weight(float32, {1, 1}), y(float32, {6, 1}), dy(float32, {6, 1}), dpre(float32, {6, 1});
  x.set({1e30, -1e30, 0, -0.0, NAN, 200});
  dy.fill(1);
  weight.fill(1);
  for (const Activation activation : {Activation::kGelu, Activation::kRelu}) {
    run_kernel([&](Call& on) {
      run_linear(on, x, weight, {}, activation, {}, on(y));
      void* const workspace = on.workspace(linear_activation_backward_workspace(on.stream(), on(dy)));
      linear_activation_backward(on.stream(), on(dy), on(x), activation, on(dpre), View(), workspace);
    });
    EXPECT_EQ(y.at(0), static_cast<double>(1e30f));
    EXPECT_EQ(y.at(1), 0);
    EXPECT_EQ(y.at(2), 0);
    EXPECT_TRUE(std::isnan(y.at(4)));
    EXPECT_EQ(y.at(5), 200);
    EXPECT_EQ(dpre.at(0), 1);
    EXPECT_EQ(dpre.at(1), 0);
    EXPECT_EQ(dpre.at(5), 1);
  }
}

}  // namespace
}  // namespace tern::kernels
