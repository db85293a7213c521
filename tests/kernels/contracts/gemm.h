#pragma once
// The contract of matrix products and linear layers: matrices with gaps, exact products in fp64, and bounds of rounding
// errors.

#include "tern/kernels/gemm.h"
#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels {

/// A batch of matrices with a gap after each row and matrix, at an address aligned only to one element.
struct Matrices {
  Array memory;
  int64_t batch, rows, cols, row_stride, batch_stride;
  Matrices(DType dtype, int64_t n, int64_t r, int64_t c, int64_t gap)
      : memory(dtype, {n * (r * (c + gap) + gap) + 1}, gap > 0 ? Order::kMisaligned : Order::kContiguous),
        batch(n),
        rows(r),
        cols(c),
        row_stride(c + gap),
        batch_stride(r * (c + gap) + gap) {}
  View view() {
    const int64_t shape[] = {batch, rows, cols}, strides[] = {batch_stride, row_stride, 1};
    return View(memory.view().data, memory.dtype(), 3, shape, strides);
  }
  View matrix() {
    const int64_t shape[] = {rows, cols}, strides[] = {row_stride, 1};
    return View(memory.view().data, memory.dtype(), 2, shape, strides);
  }
};

/// The types of the inputs, and of the result.
inline const std::vector<std::pair<DType, DType>> kTypePairs = {{float64, float64},   {float32, float32},
                                                                {bfloat16, bfloat16}, {float16, float16},
                                                                {bfloat16, float32},  {float16, float32}};

/// Bound of the rounding of the stored result, and of a sum of k products in the dtype's compute type.
inline double tolerance(DType stored, DType input, double expected, double magnitude, int64_t k) {
  const double unit = input == float64 ? 0x1p-53 : 0x1p-24;
  const double subnormal = stored == float16 ? 0x1p-25 : 0;  // half of the distance between subnormals
  return subnormal + epsilon_of(stored) * std::fabs(expected) * 1.01 +
         unit * magnitude * (8 + std::sqrt(static_cast<double>(k)));
}

struct Case {
  int64_t batch, m, n, k;
  bool transpose_a, transpose_b;
  double alpha = 1, beta = 0;
  int64_t gap = 0;
};

/// Calls f(batch, row, column, exact value, sum of the terms' magnitudes).
template <class F>
void for_each_element(const Case& t, const std::vector<double>& a, const std::vector<double>& b, F&& f) {
  for (int64_t i = 0; i < t.batch; ++i) {
    const double *ai = a.data() + i * t.m * t.k, *bi = b.data() + i * t.k * t.n;
    for (int64_t r = 0; r < t.m; ++r)
      for (int64_t s = 0; s < t.n; ++s) {
        double sum = 0, magnitude = 0;
        for (int64_t p = 0; p < t.k; ++p) {
          const double term =
              ai[t.transpose_a ? p * t.m + r : r * t.k + p] * bi[t.transpose_b ? s * t.k + p : p * t.n + s];
          sum += term;
          magnitude += std::fabs(term);
        }
        f(i, r, s, sum, magnitude);
      }
  }
}

/// Compares c, whose content was `before` and whose whole memory was `whole_before`, with alpha a b + beta c, element
/// by element; expects unchanged gaps.
inline void expect_product(const Case& t, DType input, Matrices& a, Matrices& b, Matrices& c,
                           const std::vector<double>& before, const std::vector<double>& whole_before,
                           double min_slack = 1e-30) {
  const std::vector<double> got = values_of(c.view());
  int64_t wrong = 0;
  for_each_element(
      t, values_of(a.view()), values_of(b.view()), [&](int64_t i, int64_t r, int64_t s, double sum, double magnitude) {
        const int64_t index = (i * t.m + r) * t.n + s;
        const double kept = t.beta == 0 ? 0 : before[index], expected = t.alpha * sum + kept;
        magnitude = std::fabs(t.alpha) * magnitude + std::fabs(kept);
        const double slack = tolerance(c.memory.dtype(), input, expected, magnitude, t.k) + min_slack;
        if (!(std::fabs(got[index] - expected) <= slack) && ++wrong <= 3) {
          ADD_FAILURE() << "at " << i << ", " << r << ", " << s << ": " << got[index] << " for " << expected;
        }
      });
  std::vector<char> inside(c.memory.numel(), 0);
  for (int64_t i = 0; i < c.view().numel(); ++i) inside[Array::offset(c.view(), i)] = 1;
  for (int64_t i = 0; i < c.memory.numel(); ++i) {
    if (inside[i]) continue;
    ASSERT_TRUE(near(c.memory.at(i), whole_before[i], 0, 0)) << "wrote into a gap at " << i;
  }
}

/// Sets c's content before the product: with beta 0 it must not be read.
inline void fill_before(const Case& t, Matrices& c) {
  for (int64_t i = 0; i < c.memory.numel(); ++i) c.memory.set(i, t.beta == 0 ? NAN : 0.25 * static_cast<double>(i % 9));
}

/// The matrices of a case: random numbers in a and b, fill_before() in c.
struct Operands {
  Matrices a, b, c;
  Operands(DType input, DType output, const Case& t, std::mt19937_64& random)
      : a(input, t.batch, t.transpose_a ? t.k : t.m, t.transpose_a ? t.m : t.k, t.gap),
        b(input, t.batch, t.transpose_b ? t.n : t.k, t.transpose_b ? t.k : t.n, t.gap),
        c(output, t.batch, t.m, t.n, t.gap) {
    fill_with_random(a.memory, random, -1, 1);
    fill_with_random(b.memory, random, -1, 1);
    fill_before(t, c);
  }
};

inline std::string describe(const Case& t, DType input, DType output) {
  return (testing::Message() << name_of(input) << " to " << name_of(output) << " " << t.batch << " x [" << t.m << ", "
                             << t.k << "] x [" << t.k << ", " << t.n << "] ta " << t.transpose_a << " tb "
                             << t.transpose_b << " alpha " << t.alpha << " beta " << t.beta << " gap " << t.gap)
      .GetString();
}

inline void run_gemm(Call& on, bool transpose_a, bool transpose_b, double alpha, ConstView a, ConstView b, double beta,
                     View c) {
  void* const workspace = on.workspace(gemm_workspace(on.stream(), transpose_a, transpose_b, a, b, c));
  gemm(on.stream(), transpose_a, transpose_b, alpha, a, b, beta, c, workspace);
}

/// A product of random numbers against the reference; in every run the same bits.
inline void check_gemm(DType input, DType output, const Case& t, std::mt19937_64& random) {
  if (t.batch * t.m * t.n * t.k / 32 > target().max_elements()) return;
  SCOPED_TRACE(describe(t, input, output));
  Operands operands(input, output, t, random);
  Matrices &a = operands.a, &b = operands.b, &c = operands.c;
  const std::vector<double> before = values_of(c.view()), whole_before = c.memory.values();
  expect_same_in_every_run({&c.memory}, [&](Call& on) {
    for (int64_t i = 0; i < c.memory.numel(); ++i) c.memory.set(i, whole_before[i]);
    const ConstView a_view = on(std::as_const(a.memory), a.view()), b_view = on(std::as_const(b.memory), b.view());
    run_gemm(on, t.transpose_a, t.transpose_b, t.alpha, a_view, b_view, t.beta, on(c.memory, c.view()));
  });
  expect_product(t, input, a, b, c, before, whole_before, output == float16 && !target().is_cpu() ? 6e-8 : 1e-30);
}

}  // namespace tern::kernels
