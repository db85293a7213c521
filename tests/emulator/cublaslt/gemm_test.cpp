// Matrix products and linear layers on CUDA through the stand-ins of CUDA's runtime and cuBLASLt, against fp64.

#include "tern/kernels/gemm.h"

#include <cublasLt.h>

#include <thread>

#include "tern/kernels/cuda/gemm_settings.h"
#include "tern/kernels/cuda/support/cublaslt.h"
#include "tern/tests/emulator/cublaslt/cublaslt.h"
#include "tern/tests/emulator/runtime/device_array.h"
#include "tern/tests/emulator/runtime/standin.h"
#include "tern/tests/kernels/gemm_reference.h"
#include "tern/tests/simt/results.h"

namespace tern::kernels {
namespace {

using standin::MatmulAlgorithm;

constexpr Stream kStream{DeviceType::kCUDA, 0, nullptr};

void run_gemm(bool transpose_a, bool transpose_b, double alpha, ConstView a, ConstView b, double beta, View c,
              Stream stream = kStream) {
  void* workspace = workspace_of(cuda::gemm_workspace(stream, transpose_a, transpose_b, a, b, c));
  cuda::gemm(stream, transpose_a, transpose_b, alpha, a, b, beta, c, workspace);
  cuda_call(cudaStreamSynchronize(static_cast<cudaStream_t>(stream.handle)));
}

void check_gemm(DType input, DType output, const Case& t, std::mt19937_64& random) {
  SCOPED_TRACE(describe(t, input, output));
  Operands operands(input, output, t, random);
  Matrices &a = operands.a, &b = operands.b, &c = operands.c;
  const std::vector<double> before = values_of(c.view()), whole_before = c.memory.values();
  OnDevice da(a.memory), db(b.memory), dc(c.memory);
  run_gemm(t.transpose_a, t.transpose_b, t.alpha, da.moved(a.view()), db.moved(b.view()), t.beta, dc.moved(c.view()));
  dc.download();
  expect_product(t, input, a, b, c, before, whole_before, output == float16 ? 6e-8 : 1e-30);
}

const std::vector<std::pair<DType, DType>> kTypePairs = {{float64, float64}, {float32, float32},  {bfloat16, bfloat16},
                                                         {float16, float16}, {bfloat16, float32}, {float16, float32}};

TEST(StandinGemm, AgreesWithDoubleInEveryDtypeAndLayout) {
  std::mt19937_64 random = fresh_random();
  for (const auto& [input, output] : kTypePairs)
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const Case& t : {Case{1, 1, 1, 1, ta, tb}, Case{1, 3, 5, 7, ta, tb}, Case{1, 1, 64, 33, ta, tb},
                              Case{1, 65, 1, 17, ta, tb}, Case{1, 64, 48, 64, ta, tb},
                              Case{1, 101, 65, 40, ta, tb, 1, 0, 3}, Case{1, 41, 20, 40, ta, tb, 0.5, 1, 5},
                              Case{3, 9, 11, 6, ta, tb, 1, 0, 2}, Case{2, 30, 17, 32, ta, tb, -2, 1}})
          check_gemm(input, output, t, random);
}

TEST(StandinGemm, LongInnerDimensionsAreCutInFixedParts) {
  std::mt19937_64 random = fresh_random();
  for (const auto& [input, output] : kTypePairs) {
    check_gemm(input, output, {1, 24, 16, 2056, true, false}, random);
    check_gemm(input, output, {2, 16, 8, 1031, false, true, 0.5, 1}, random);
  }
  // The heuristic prefers an algorithm with a varying order of sums, which the preference excludes.
  Array a(float32, {16, 4096}), b(float32, {16, 4096}), c(float32, {16, 16});
  fill_with_random(a, random, -1, 1);
  fill_with_random(b, random, -1, 1);
  OnDevice da(a), db(b), dc(c);
  std::vector<char> first;
  for (int i = 0; i < 4; ++i) {
    run_gemm(false, true, 1, da.view(), db.view(), 0, dc.view());
    EXPECT_EQ(standin::last_matmul_algorithm(), MatmulAlgorithm::kSplit);
    dc.download();
    if (i == 0) first = c.bytes();
    EXPECT_EQ(c.bytes(), first);
  }
}

TEST(StandinGemm, EmptyDimensions) {
  std::mt19937_64 random = fresh_random();
  for (const DType dtype : kFloatTypes)
    for (const Case& t :
         {Case{1, 0, 4, 3, false, false}, Case{1, 4, 0, 3, false, true}, Case{0, 2, 2, 2, false, false},
          Case{1, 4, 3, 0, false, false}, Case{2, 4, 3, 0, true, true, 1, 1}, Case{2, 4, 3, 0, true, true, 1, 0, 2}})
      check_gemm(dtype, dtype, t, random);
}

TEST(StandinGemm, BroadcastsEitherOperand) {
  std::mt19937_64 random = fresh_random();
  for (const DType dtype : kFloatTypes)
    for (const bool of_a : {false, true})
      for (const bool transpose_a : {false, true}) {
        const int64_t batch = 5, m = 14, k = 24, n = 18;
        Array a(dtype, {of_a ? 1 : batch, transpose_a ? k : m, transpose_a ? m : k});
        Array b(dtype, {of_a ? batch : 1, k, n}), c(dtype, {batch, m, n});
        fill_with_random(a, random, -1, 1);
        fill_with_random(b, random, -1, 1);
        OnDevice da(a), db(b), dc(c);
        const ConstView a_view = a.expand({batch, a.shape()[1], a.shape()[2]}), b_view = b.expand({batch, k, n});
        standin::reset_counters();
        run_gemm(transpose_a, false, 1, da.moved(a_view), db.moved(b_view), 0, dc.view());
        EXPECT_EQ(standin::counters().kernels_by_name["cublasLtMatmul"], 1u);
        dc.download();
        for_each_element({batch, m, n, k, transpose_a, false}, values_of(a_view), values_of(b_view),
                         [&](int64_t i, int64_t r, int64_t s, double sum, double magnitude) {
                           ASSERT_LE(std::fabs(c.at((i * m + r) * n + s) - sum),
                                     tolerance(dtype, dtype, sum, magnitude, k));
                         });
      }
}

TEST(StandinGemm, OneMatrixForABatchWithGaps) {
  std::mt19937_64 random = fresh_random();
  for (const int64_t gap_a : {0, 3})
    for (const int64_t gap_c : {0, 2}) {
      const Case t{4, 6, 5, 7, false, false};
      Matrices a(float32, t.batch, t.m, t.k, gap_a), b(float32, 1, t.k, t.n, 0), c(float32, t.batch, t.m, t.n, gap_c);
      fill_with_random(a.memory, random, -1, 1);
      fill_with_random(b.memory, random, -1, 1);
      View b_view = b.view();
      b_view.shape[0] = t.batch;
      b_view.strides[0] = 0;
      OnDevice da(a.memory), db(b.memory), dc(c.memory);
      run_gemm(false, false, 1, da.moved(a.view()), db.moved(b_view), 0, dc.moved(c.view()));
      dc.download();
      const std::vector<double> got = values_of(c.view());
      for_each_element(t, values_of(a.view()), values_of(b_view),
                       [&](int64_t i, int64_t r, int64_t s, double sum, double magnitude) {
                         ASSERT_LE(std::fabs(got[(i * t.m + r) * t.n + s] - sum),
                                   tolerance(float32, float32, sum, magnitude, t.k));
                       });
    }
}

TEST(StandinGemm, EachOperandHasItsOwnAlignment) {
  std::mt19937_64 random = fresh_random();
  for (const auto& [input, output] : kTypePairs)
    for (const int misaligned : {-1, 0, 1, 2}) {
      const auto order = [&](int operand) { return operand == misaligned ? Order::kMisaligned : Order::kContiguous; };
      const Case t{1, 16, 32, 8, false, false};
      Array a(input, {t.m, t.k}, order(0)), b(input, {t.k, t.n}, order(1)), c(output, {t.m, t.n}, order(2));
      fill_with_random(a, random, -1, 1);
      fill_with_random(b, random, -1, 1);
      OnDevice da(a), db(b), dc(c);
      run_gemm(false, false, 1, da.view(), db.view(), 0, dc.view());
      EXPECT_EQ(standin::last_matmul_algorithm(),
                misaligned < 0 ? MatmulAlgorithm::kAligned : MatmulAlgorithm::kGeneral);
      dc.download();
      for_each_element(t, a.values(), b.values(), [&](int64_t, int64_t r, int64_t s, double sum, double magnitude) {
        ASSERT_LE(std::fabs(c.at(r * t.n + s) - sum), tolerance(output, input, sum, magnitude, t.k));
      });
    }
}

TEST(StandinGemm, RowsThatOverlapAreCopiedFirst) {
  for (const DType dtype : kFloatTypes) {
    Array row(dtype, {3}), b(dtype, {3, 2}), c(dtype, {4, 2});
    for (int64_t i = 0; i < 3; ++i) row.set(i, 1.0 + static_cast<double>(i));
    for (int64_t i = 0; i < 6; ++i) b.set(i, static_cast<double>(i));
    OnDevice drow(row), db(b), dc(c);
    run_gemm(false, false, 1, drow.moved(row.expand({4, 3})), db.view(), 0, dc.view());
    dc.download();
    for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(c.at(i), i % 2 == 0 ? 16 : 22);
  }
}

TEST(StandinGemm, ABatchOfOverlappingRowsIsCopiedFirst) {
  for (const DType dtype : kFloatTypes) {
    Array rows(dtype, {2, 3}), b(dtype, {3, 2}), c(dtype, {2, 4, 2});
    for (int64_t i = 0; i < 6; ++i) rows.set(i, 1.0 + static_cast<double>(i));
    for (int64_t i = 0; i < 6; ++i) b.set(i, static_cast<double>(i));
    OnDevice drows(rows), db(b), dc(c);
    const int64_t shape[] = {2, 4, 3}, strides[] = {3, 0, 1}, shape_b[] = {2, 3, 2}, strides_b[] = {0, 2, 1};
    run_gemm(false, false, 1, ConstView(drows.view().data, dtype, 3, shape, strides),
             ConstView(db.view().data, dtype, 3, shape_b, strides_b), 0, dc.view());
    dc.download();
    for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(c.at(i), i % 2 == 0 ? 16 : 22);
    for (int64_t i = 8; i < 16; ++i) EXPECT_EQ(c.at(i), i % 2 == 0 ? 34 : 49);
  }
}

TEST(StandinGemm, MoreMatricesThanAGridHolds) {
  const int64_t batch = 70001;
  Array a(float32, {batch, 1, 1}), b(float32, {batch, 1, 1}), c(float32, {batch, 1, 1});
  for (int64_t i = 0; i < batch; ++i) a.set(i, static_cast<double>(i % 1000)), b.set(i, 3);
  OnDevice da(a), db(b), dc(c);
  run_gemm(false, false, 1, da.view(), db.view(), 0, dc.view());
  dc.download();
  for (int64_t i = 0; i < batch; ++i) ASSERT_EQ(c.at(i), static_cast<double>(i % 1000 * 3)) << i;
}

TEST(StandinGemm, SixteenBitErrorsStayNearTheFormats) {
  std::mt19937_64 random = fresh_random();
  for (const DType dtype : {bfloat16, float16}) {
    const Case t{1, 60, 50, 700, false, true};
    Array a(dtype, {t.m, t.k}), b(dtype, {t.n, t.k}), c(dtype, {t.m, t.n});
    fill_with_random(a, random, -1, 1);
    fill_with_random(b, random, -1, 1);
    OnDevice da(a), db(b), dc(c);
    run_gemm(false, true, 1, da.view(), db.view(), 0, dc.view());
    dc.download();
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

// ---- linear ------------------------------------------------------------------------------------------------------

double activate(Activation activation, double x) {
  if (activation == Activation::kGelu) return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  return activation == Activation::kRelu ? std::max(x, 0.0) : x;
}

struct LinearCase {
  DType dtype, bias_dtype;
  int64_t rows, in, out;
  Activation activation;
  bool with_bias = true, with_pre = true;
  Order order = Order::kContiguous;
};

void check_linear(const LinearCase& t, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << name_of(t.dtype) << " bias " << name_of(t.bias_dtype) << " " << t.with_bias
                                  << " rows " << t.rows << " in " << t.in << " out " << t.out << " activation "
                                  << static_cast<int>(t.activation) << " pre " << t.with_pre);
  Array x(t.dtype, {t.rows, t.in}, t.order), weight(t.dtype, {t.out, t.in}), bias(t.bias_dtype, {t.out}, t.order);
  Array pre(t.dtype, {t.rows, t.out}, t.order), y(t.dtype, {t.rows, t.out}, t.order);
  fill_with_random(x, random, -1, 1);
  fill_with_random(weight, random, -0.5, 0.5);
  fill_with_random(bias, random, -1, 1);
  OnDevice dx(x), dweight(weight), dbias(bias), dpre(pre), dy(y);
  void* workspace = workspace_of(cuda::linear_workspace(kStream, dx.view(), dweight.view(), dy.view()));
  cuda::linear_forward(kStream, dx.view(), dweight.view(), t.with_bias ? ConstView(dbias.view()) : ConstView(),
                       t.activation, t.with_pre ? dpre.view() : View(), dy.view(), workspace);
  dpre.download();
  dy.download();
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
    // A wider bias is first rounded to the dtype.
    const double slack =
        tolerance(t.dtype, t.dtype, sum, magnitude, t.in) + (t.bias_dtype == t.dtype ? 0 : unit * std::fabs(added));
    if (t.with_pre) {
      ASSERT_LE(std::fabs(pre.at(i) - sum), slack) << "pre at " << i;
    }
    const double expected = activate(t.activation, sum);  // its slope is at most 1.13
    ASSERT_LE(std::fabs(y.at(i) - expected), 1.13 * slack + unit * std::fabs(expected) * 1.01 +
                                                 8 * unit * std::fabs(sum) * (t.dtype == float64) +
                                                 4 * 0x1p-24 * std::fabs(sum) * (t.dtype != float64) + tiny)
        << "y at " << i;
  }
}

TEST(StandinLinear, AgreesWithDouble) {
  std::mt19937_64 random = fresh_random();
  for (const DType dtype : kFloatTypes) {
    const DType wide = is_low_precision(dtype) ? float32 : dtype;
    for (const Activation activation : {Activation::kNone, Activation::kGelu, Activation::kRelu})
      for (const bool with_bias : {false, true})
        for (const bool with_pre : {false, true}) {
          check_linear({dtype, dtype, 40, 24, 32, activation, with_bias, with_pre}, random);
          check_linear({dtype, wide, 7, 33, 19, activation, with_bias, with_pre, Order::kMisaligned}, random);
          check_linear({dtype, wide, 1, 1, 1, activation, with_bias, with_pre}, random);
          check_linear({dtype, dtype, 5, 0, 6, activation, with_bias, with_pre}, random);
          check_linear({dtype, dtype, 0, 4, 6, activation, with_bias, with_pre}, random);
        }
  }
}

TEST(StandinLinear, TheBiasIsPartOfTheProduct) {
  std::mt19937_64 random = fresh_random();
  for (const DType dtype : kFloatTypes) {
    check_linear({dtype, dtype, 16, 24, 32, Activation::kNone, true, false}, random);
    EXPECT_EQ(standin::last_matmul_epilogue(), dtype == float64 ? CUBLASLT_EPILOGUE_DEFAULT : CUBLASLT_EPILOGUE_BIAS);
  }
  Array x(bfloat16, {16, 24}), weight(bfloat16, {32, 24}), bias(bfloat16, {32}), y(bfloat16, {16, 32});
  OnDevice dx(x), dweight(weight), dbias(bias), dy(y);
  const DeviceMemory workspace(cuda::linear_workspace(kStream, dx.view(), dweight.view(), dy.view()));
  standin::reset_counters();
  cuda::linear_forward(kStream, dx.view(), dweight.view(), dbias.view(), Activation::kNone, {}, dy.view(),
                       workspace.get());
  EXPECT_EQ(standin::counters().kernel_launches, 1u);
  cuda::linear_forward(kStream, dx.view(), dweight.view(), dbias.view(), Activation::kGelu, {}, dy.view(),
                       workspace.get());
  EXPECT_EQ(standin::counters().kernel_launches, 3u);
}

struct WeightCase {
  DType dtype, weight, bias;
  int64_t rows, in, out;
  bool with_bias = true;
  Order order = Order::kContiguous;
};

void check_weight_backward(const WeightCase& t, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << name_of(t.dtype) << " weight " << name_of(t.weight) << " bias " << name_of(t.bias)
                                  << " " << t.with_bias << " rows " << t.rows << " in " << t.in << " out " << t.out);
  Array dy(t.dtype, {t.rows, t.out}, t.order), x(t.dtype, {t.rows, t.in}, t.order);
  Array dweight(t.weight, {t.out, t.in}), dbias(t.bias, {t.out}, t.order);
  fill_with_random(dy, random, -1, 2);
  fill_with_random(x, random, -1, 1);
  for (Array* result : {&dweight, &dbias})
    for (int64_t i = 0; i < result->numel(); ++i) result->set(i, NAN);
  OnDevice ddy(dy), dx(x), ddweight(dweight), ddbias(dbias);
  void* workspace =
      workspace_of(cuda::linear_weight_backward_workspace(kStream, ddy.view(), dx.view(), ddweight.view()));
  cuda::linear_weight_backward(kStream, ddy.view(), dx.view(), ddweight.view(), t.with_bias ? ddbias.view() : View(),
                               workspace);
  ddweight.download();
  ddbias.download();
  const std::vector<double> dys = dy.values(), xs = x.values();
  for (int64_t o = 0; o < t.out; ++o) {
    double bias = 0, bias_magnitude = 0;
    for (int64_t r = 0; r < t.rows; ++r) bias += dys[r * t.out + o], bias_magnitude += std::fabs(dys[r * t.out + o]);
    if (t.with_bias)
      ASSERT_LE(std::fabs(dbias.at(o) - bias), tolerance(t.bias, t.dtype, bias, bias_magnitude, t.rows)) << o;
    else
      ASSERT_TRUE(std::isnan(dbias.at(o)));
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

TEST(StandinLinear, WeightBackwardAgreesWithDouble) {
  std::mt19937_64 random = fresh_random();
  for (const DType dtype : kFloatTypes)
    for (const DType weight : {dtype, is_low_precision(dtype) ? float32 : dtype})
      for (const DType bias : {dtype, weight}) {
        check_weight_backward({dtype, weight, bias, 40, 24, 32}, random);
        check_weight_backward({dtype, weight, bias, 40, 24, 32, false}, random);
        check_weight_backward({dtype, weight, bias, 37, 19, 33, true, Order::kMisaligned}, random);
        check_weight_backward({dtype, weight, bias, 1, 1, 1}, random);
        check_weight_backward({dtype, weight, bias, 2060, 3, 5}, random);
        check_weight_backward({dtype, weight, bias, 0, 4, 6}, random);
        check_weight_backward({dtype, weight, bias, 5, 0, 6}, random);
        check_weight_backward({dtype, weight, bias, 5, 4, 0}, random);
      }
}

TEST(StandinLinear, TheBiasGradientIsPartOfTheWeightsProduct) {
  std::mt19937_64 random = fresh_random();
  for (const auto& [dtype, weight] : kTypePairs) {
    standin::reset_counters();
    check_weight_backward({dtype, weight, weight, 16, 24, 32}, random);
    if (dtype == float64) continue;
    EXPECT_EQ(standin::counters().kernel_launches, 1u);
    EXPECT_EQ(standin::last_matmul_epilogue(), CUBLASLT_EPILOGUE_BGRADB);
  }
}

TEST(StandinLinear, ANanOfThePreActivationIsKept) {
  for (const Activation activation : {Activation::kRelu, Activation::kGelu}) {
    Array x(float32, {2, 4}), weight(float32, {4, 4}), y(float32, {2, 4});
    for (int64_t i = 0; i < 16; ++i) weight.set(i, 1);
    for (int64_t i = 0; i < 8; ++i) x.set(i, i == 5 ? NAN : 1);
    OnDevice dx(x), dweight(weight), dy(y);
    const DeviceMemory workspace(cuda::linear_workspace(kStream, dx.view(), dweight.view(), dy.view()));
    cuda::linear_forward(kStream, dx.view(), dweight.view(), {}, activation, {}, dy.view(), workspace.get());
    dy.download();
    for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(std::isnan(y.at(i)), i >= 4);
  }
}

}  // namespace
}  // namespace tern::kernels
