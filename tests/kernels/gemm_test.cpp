#include "tern/kernels/gemm.h"

#include "tern/core/check.h"
#include "tern/tests/kernels/gemm_reference.h"

namespace tern::kernels {
namespace {

void check_all_layouts(DType input, DType output, std::mt19937_64& random) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const Case& t : {Case{1, 1, 1, 1, ta, tb}, Case{1, 3, 5, 7, ta, tb}, Case{1, 1, 64, 33, ta, tb},
                            Case{1, 65, 1, 17, ta, tb}, Case{1, 130, 48, 64, ta, tb},
                            Case{1, 301, 65, 100, ta, tb, 1, 0, 3}, Case{1, 141, 20, 40, ta, tb, 0.5, 1, 5},
                            Case{3, 9, 11, 6, ta, tb, 1, 0, 2}, Case{2, 130, 17, 32, ta, tb, -2, 1}}) {
        check_cpu_gemm(input, output, t, random);
      }
    }
  }
}

TEST(Gemm, AgreesWithDoubleInEveryDtypeLayoutAndLevel) {
  std::mt19937_64 random = fresh_random();
  for_each_level([&] {
    for (const DType dtype : kFloatTypes) check_all_layouts(dtype, dtype, random);
    check_all_layouts(bfloat16, float32, random);
    check_all_layouts(float16, float32, random);
  });
}

TEST(Gemm, WeightGradientShapes) {
  std::mt19937_64 random = fresh_random();
  for_each_level([&] {
    // Rows 4 KiB apart use the swapped order; a long inner dimension is widened in slices.
    check_cpu_gemm(float32, float32, {1, 1024, 64, 520, true, false}, random);
    check_cpu_gemm(float32, float32, {1, 1024, 70, 515, true, false, 0.5, 1}, random);
    check_cpu_gemm(bfloat16, float32, {1, 96, 40, 1100, true, false, 1, 1}, random);
    check_cpu_gemm(float16, float16, {1, 40, 24, 2100, true, false}, random);
    for (const DType dtype : {float32, bfloat16})
      check_cpu_gemm(dtype, float32, {1, 130, 203, 1100, false, false}, random);
  });
}

/// c is divided into tiles, the last of which are smaller.
TEST(Gemm, SeveralTiles) {
  std::mt19937_64 random = fresh_random();
  const auto below = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
  for_each_level([&] {
    for (const DType dtype : kFloatTypes) {
      for (int i = 0; i < 2; ++i) {
        const double alpha = below(2) ? 1 : -0.5, beta = static_cast<double>(below(2));
        const DType output = is_low_precision(dtype) && below(2) ? float32 : dtype;
        check_cpu_gemm(
            dtype, output,
            {1, 200 + below(100), 1030 + below(90), 1 + below(12), below(2) == 0, below(2) == 0, alpha, beta, below(4)},
            random);
        check_cpu_gemm(
            dtype, output,
            {1, 40 + below(90), 260 + below(300), 90 + below(30), below(2) == 0, below(2) == 0, alpha, beta, below(4)},
            random);
      }
    }
  });
}

TEST(Gemm, ResultsDoNotDependOnTheNumberOfThreads) {
  std::mt19937_64 random = fresh_random();
  const auto below = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
  for_each_level([&] {
    for (const DType dtype : kFloatTypes) {
      for (int i = 0; i < 6; ++i) {
        Case t{1 + below(3), 1 + below(300), 1 + below(1100), 1 + below(100), below(2) == 0, below(2) == 0};
        if (i % 3 == 0) t = {1, 1024, 64 + below(40), 512 + below(100), true, false};  // the swapped order
        if (i % 4 == 1) t = {1, 1 + below(130), 1 + below(130), 1000 + below(1000), true, false};
        if (i == 2) t = {1 + below(2), 30 + below(60), 30 + below(60), 5000 + below(3000), below(2) == 0, false};
        if (below(2)) t.alpha = 0.5;
        SCOPED_TRACE(describe(t, dtype, dtype));
        Matrices a(dtype, t.batch, t.transpose_a ? t.k : t.m, t.transpose_a ? t.m : t.k, 0);
        Matrices b(dtype, t.batch, t.transpose_b ? t.n : t.k, t.transpose_b ? t.k : t.n, 0);
        Matrices c(dtype, t.batch, t.m, t.n, 0);
        fill_with_random(a.memory, random, -1, 1);
        fill_with_random(b.memory, random, -1, 1);
        expect_same_for_any_threads(c.memory, [&] {
          MarkedWorkspace workspace(
              gemm_workspace(Stream{}, t.transpose_a, t.transpose_b, a.view(), b.view(), c.view()));
          gemm(Stream{}, t.transpose_a, t.transpose_b, t.alpha, a.view(), b.view(), 0, c.view(), workspace.data());
        });
      }
    }
  });
}

TEST(Gemm, EmptyDimensions) {
  std::mt19937_64 random = fresh_random();
  for_each_level([&] {
    for (const DType dtype : kFloatTypes) {
      for (const Case& t :
           {Case{1, 0, 4, 3, false, false}, Case{1, 4, 0, 3, false, true}, Case{0, 2, 2, 2, false, false},
            Case{1, 4, 3, 0, false, false}, Case{2, 4, 3, 0, true, true, 1, 1}}) {
        check_cpu_gemm(dtype, dtype, t, random);
      }
    }
  });
}

TEST(Gemm, BroadcastsAndFoldsTheBatch) {
  std::mt19937_64 random = fresh_random();
  for_each_level([&] {
    for (const DType dtype : kFloatTypes) {
      Matrices a(dtype, 5, 40, 24, 0), b(dtype, 1, 24, 18, 0), c(dtype, 5, 40, 18, 0);
      // No gap between the matrices of a and c, so that they form one of 200 rows.
      fill_with_random(a.memory, random, -1, 1);
      fill_with_random(b.memory, random, -1, 1);
      View b_view = b.view();
      b_view.shape[0] = 5;
      b_view.strides[0] = 0;
      MarkedWorkspace workspace(gemm_workspace(Stream{}, false, false, a.view(), b_view, c.view()));
      gemm(Stream{}, false, false, 1, a.view(), b_view, 0, c.view(), workspace.data());
      for (int64_t i = 0; i < 5 * 40 * 18; ++i) {
        double sum = 0, magnitude = 0;
        for (int64_t p = 0; p < 24; ++p) {
          const double term = Array::read(a.view(), i / 18 * 24 + p) * Array::read(b.matrix(), p * 18 + i % 18);
          sum += term;
          magnitude += std::fabs(term);
        }
        ASSERT_LE(std::fabs(Array::read(c.view(), i) - sum), tolerance(dtype, dtype, sum, magnitude, 24));
      }
    }
  });
}

TEST(Gemm, RowsOfStrideZero) {
  for (const DType dtype : kFloatTypes) {
    Array row(dtype, {3}), b(dtype, {3, 2}), c(dtype, {4, 2});
    for (int64_t i = 0; i < 3; ++i) row.set(i, 1.0 + static_cast<double>(i));
    for (int64_t i = 0; i < 6; ++i) b.set(i, static_cast<double>(i));
    const ConstView a = row.expand({4, 3});
    MarkedWorkspace workspace(gemm_workspace(Stream{}, false, false, a, b.cview(), c.view()));
    gemm(Stream{}, false, false, 1, a, b.cview(), 0, c.view(), workspace.data());
    for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(c.at(i), i % 2 == 0 ? 16 : 22);
  }
}

TEST(Gemm, PropagatesNan) {
  for_each_level([&] {
    for (const DType dtype : kFloatTypes) {
      Array a(dtype, {200, 32}), b(dtype, {32, 32}), c(dtype, {200, 32});
      for (int64_t i = 0; i < a.numel(); ++i) a.set(i, 1);
      for (int64_t i = 0; i < b.numel(); ++i) b.set(i, 1);
      a.set(199 * 32 + 5, NAN);
      MarkedWorkspace workspace(gemm_workspace(Stream{}, false, true, a.cview(), b.cview(), c.view()));
      gemm(Stream{}, false, true, 1, a.cview(), b.cview(), 0, c.view(), workspace.data());
      EXPECT_TRUE(std::isnan(c.at(199 * 32)));
      EXPECT_EQ(c.at(198 * 32), 32);
    }
  });
}

// ---- linear ------------------------------------------------------------------------------------------------------

double activate(Activation activation, double x) {
  if (activation == Activation::kGelu) return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  return activation == Activation::kRelu ? std::max(x, 0.0) : x;
}
void check_linear(DType dtype, DType bias_dtype, int64_t rows, int64_t in, int64_t out, Activation activation,
                  bool with_bias, bool with_pre, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << name_of(dtype) << " rows " << rows << " in " << in << " out " << out
                                  << " activation " << static_cast<int>(activation) << " bias " << with_bias << " pre "
                                  << with_pre);
  Array x(dtype, {rows, in}, Order::kMisaligned), weight(dtype, {out, in}), bias(bias_dtype, {out});
  Array pre(dtype, {rows, out}), y(dtype, {rows, out}, Order::kMisaligned);
  fill_with_random(x, random, -1, 1);
  fill_with_random(weight, random, -0.5, 0.5);
  fill_with_random(bias, random, -1, 1);
  const std::vector<double> xv = x.values(), wv = weight.values(), bv = bias.values();
  const auto run = [&] {
    MarkedWorkspace workspace(linear_workspace(Stream{}, x.cview(), weight.cview(), y.view()));
    linear_forward(Stream{}, x.cview(), weight.cview(), with_bias ? bias.cview() : ConstView(), activation,
                   with_pre ? pre.view() : View(), y.view(), workspace.data());
  };
  expect_same_for_any_threads(y, run);
  for (int64_t i = 0; i < rows * out; ++i) {
    double sum = with_bias ? bv[i % out] : 0, magnitude = std::fabs(sum);
    for (int64_t p = 0; p < in; ++p) {
      const double term = xv[i / out * in + p] * wv[i % out * in + p];
      sum += term;
      magnitude += std::fabs(term);
    }
    const double expected = activate(activation, sum);
    // |activation'| <= 1.13; erf has an error of a few units of x.
    const double slack =
        1.2 * tolerance(dtype, dtype, 0, magnitude, in) + 4 * 0x1p-24 * std::fabs(sum) * (dtype != float64);
    ASSERT_LE(std::fabs(y.at(i) - expected),
              epsilon_of(dtype) * std::fabs(expected) * 1.01 + slack + 1e-7 * (dtype == float16))
        << "at " << i;
    if (with_pre) {
      ASSERT_LE(std::fabs(pre.at(i) - sum), tolerance(dtype, dtype, sum, magnitude, in)) << "at " << i;
    }
  }
}

TEST(Linear, ForwardAgreesWithDouble) {
  std::mt19937_64 random = fresh_random();
  for_each_level([&] {
    for (const DType dtype : kFloatTypes) {
      const DType bias = is_low_precision(dtype) ? float32 : dtype;
      check_linear(dtype, dtype, 1, 1, 1, Activation::kGelu, true, true, random);
      check_linear(dtype, bias, 5, 7, 3, Activation::kRelu, true, false, random);
      check_linear(dtype, dtype, 141, 33, 300, Activation::kGelu, true, true, random);
      check_linear(dtype, bias, 200, 40, 24, Activation::kGelu, true, false, random);
      check_linear(dtype, bias, 530, 16, 17, Activation::kNone, true, false, random);
      check_linear(dtype, dtype, 1030, 20, 18, Activation::kNone, false, false, random);
      check_linear(dtype, bias, 130, 1100, 203, Activation::kNone, true, false, random);  // packed in several parts
      check_linear(dtype, dtype, 0, 4, 4, Activation::kGelu, true, true, random);
      check_linear(dtype, dtype, 4, 0, 3, Activation::kRelu, true, true, random);
    }
  });
}

/// With packed products, whose blocks of rows threads take in turn, a row of the result depends only on its row of x.
TEST(Linear, RowsDoNotDependOnTheirBlock) {
  const char* const limit = std::getenv("TERN_CPU_LEVEL");  // set for the whole process
  if (!can_test_level(CpuLevel::kV4) || (limit && std::string(limit) != "v4"))
    GTEST_SKIP() << "cpu: only CPU level v4 has packed products";
  const int threads_before = num_threads();
  std::mt19937_64 random = fresh_random();
  const auto below = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
  for (const DType dtype : {float32, bfloat16}) {
    if (dtype == bfloat16 && !__builtin_cpu_supports("avx512bf16")) {
      left_out("cpu: this processor has no AVX512-BF16");
      continue;
    }
    for (const int64_t in : {96, 700, 1100, 3072}) {
      const int64_t rows = 2300 + below(300), out = 16 + below(70);
      SCOPED_TRACE(testing::Message() << name_of(dtype) << " rows " << rows << " in " << in << " out " << out);
      Array x(dtype, {rows, in}), weight(dtype, {out, in}), bias(dtype, {out});
      fill_with_random(x, random, -1, 1);
      fill_with_random(weight, random, -1, 1);
      fill_with_random(bias, random, -1, 1);
      const auto first_rows = [&](int64_t n, int threads) {
        set_num_threads(threads);
        Array y(dtype, {n, out});
        ConstView some = x.cview();
        some.shape[0] = n;
        MarkedWorkspace workspace(linear_workspace(Stream{}, some, weight.cview(), y.view()));
        linear_forward(Stream{}, some, weight.cview(), bias.cview(), Activation::kNone, View(), y.view(),
                       workspace.data());
        set_num_threads(threads_before);
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

TEST(Linear, WeightBackwardAgreesWithDouble) {
  std::mt19937_64 random = fresh_random();
  for_each_level([&] {
    for (const DType dtype : kFloatTypes) {
      const DType wide = is_low_precision(dtype) ? float32 : dtype;
      for (const auto& [rows, in, out] :
           {std::array<int64_t, 3>{0, 3, 2}, {1, 1, 1}, {37, 20, 11}, {1500, 7, 9}, {5, 0, 4}}) {
        Array dy(dtype, {rows, out}, Order::kMisaligned), x(dtype, {rows, in}), dweight(wide, {out, in});
        Array dbias(wide, {out});
        fill_with_random(dy, random, -1, 1);
        fill_with_random(x, random, -1, 1);
        MarkedWorkspace workspace(linear_weight_backward_workspace(Stream{}, dy.cview(), x.cview(), dweight.view()));
        linear_weight_backward(Stream{}, dy.cview(), x.cview(), dweight.view(), dbias.view(), workspace.data());
        const double slack = (dtype == float64 ? 0x1p-53 : 0x1p-24) * (10.0 * static_cast<double>(rows) + 10);
        for (int64_t o = 0; o < out; ++o) {
          double bias = 0;
          for (int64_t r = 0; r < rows; ++r) bias += dy.at(r * out + o);
          ASSERT_LE(std::fabs(dbias.at(o) - bias), slack);
          for (int64_t i = 0; i < in; ++i) {
            double sum = 0;
            for (int64_t r = 0; r < rows; ++r) sum += dy.at(r * out + o) * x.at(r * in + i);
            ASSERT_LE(std::fabs(dweight.at(o * in + i) - sum), slack) << o << ", " << i;
          }
        }
      }
    }
  });
}

TEST(Linear, ExtremeInputsOfTheActivations) {
  for_each_level([&] {
    Array x(float32, {6, 1}), weight(float32, {1, 1}), y(float32, {6, 1}), dy(float32, {6, 1}), dpre(float32, {6, 1});
    const double inputs[] = {1e30, -1e30, 0, -0.0, NAN, 200};
    for (int64_t i = 0; i < 6; ++i) x.set(i, inputs[i]), dy.set(i, 1);
    weight.set(0, 1);
    MarkedWorkspace workspace(linear_workspace(Stream{}, x.cview(), weight.cview(), y.view()) +
                              linear_activation_backward_workspace(Stream{}, dy.cview()));
    for (const Activation activation : {Activation::kGelu, Activation::kRelu}) {
      linear_forward(Stream{}, x.cview(), weight.cview(), ConstView(), activation, View(), y.view(), workspace.data());
      linear_activation_backward(Stream{}, dy.cview(), x.cview(), activation, dpre.view(), View(), workspace.data());
      EXPECT_EQ(y.at(0), static_cast<double>(1e30f));
      EXPECT_EQ(y.at(1), 0);
      EXPECT_EQ(y.at(2), 0);
      EXPECT_TRUE(std::isnan(y.at(4)));
      EXPECT_EQ(y.at(5), 200);
      EXPECT_EQ(dpre.at(0), 1);
      EXPECT_EQ(dpre.at(1), 0);
      EXPECT_EQ(dpre.at(5), 1);
    }
  });
}

}  // namespace
}  // namespace tern::kernels
