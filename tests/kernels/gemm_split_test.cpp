// Small results of long inner dimensions, which are cut into parts that are multiplied at the same time.

#include "tern/kernels/gemm.h"
#include "tern/tests/kernels/gemm_reference.h"
#include "tern/tests/kernels/workspace.h"

namespace tern::kernels {
namespace {

void check_gemm(DType input, DType output, const Case& t, std::mt19937_64& random) {
  SCOPED_TRACE(describe(t, input, output));
  Matrices a(input, t.batch, t.transpose_a ? t.k : t.m, t.transpose_a ? t.m : t.k, t.gap);
  Matrices b(input, t.batch, t.transpose_b ? t.n : t.k, t.transpose_b ? t.k : t.n, t.gap);
  Matrices c(output, t.batch, t.m, t.n, t.gap);
  fill_with_random(a.memory, random, -1, 1);
  fill_with_random(b.memory, random, -1, 1);
  fill_before(t, c);
  const std::vector<double> before = values_of(c.view()), whole_before = c.memory.values();
  const auto run = [&] {
    for (int64_t i = 0; i < c.memory.numel(); ++i) c.memory.set(i, whole_before[i]);
    MarkedWorkspace workspace(gemm_workspace(Stream{}, t.transpose_a, t.transpose_b, a.view(), b.view(), c.view()));
    gemm(Stream{}, t.transpose_a, t.transpose_b, t.alpha, a.view(), b.view(), t.beta, c.view(), workspace.data());
  };
  expect_same_for_any_threads(c.memory, run);
  expect_product(t, input, a, b, c, before, whole_before);
}

TEST(GemmSplit, LongInnerDimensions) {
  std::mt19937_64 random = fresh_random();
  const auto below = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
  for_each_level([&] {
    for (const DType dtype : {float32, bfloat16}) {
      for (int64_t i = 0; i < 2; ++i) {
        // From the shortest that is cut, and what is not cut just below it.
        const int64_t m = 20 + below(50), n = 20 + below(50),
                      k = (int64_t{1} << 22) / (m * n) + below(3) + i * below(999);
        const double alpha = below(2) ? 1 : -0.5, beta = static_cast<double>(below(2));
        const DType output = below(2) ? float32 : dtype;
        check_gemm(dtype, output, {1 + i, m, n, k, below(2) == 0, below(2) == 0, alpha, beta, below(4)}, random);
      }
      const std::vector<Case> narrow = {{1, 1, 15'000 + below(999), 290, below(2) == 0, false},
                                        {1, 15'000 + below(999), 1, 290, true, below(2) == 0},
                                        {1, 2, 3, 700'000 + below(999), true, below(2) == 0}};
      check_gemm(dtype, dtype, narrow[static_cast<size_t>(below(3))], random);
    }
  });
}

}  // namespace
}  // namespace tern::kernels
