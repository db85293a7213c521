// Small results with long inner dimensions, which are split into parts that are multiplied at the same time.

#include "tern/tests/kernels/contracts/gemm.h"

namespace tern::kernels {
namespace {

class GemmSplit : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, GemmSplit, testing::ValuesIn(cpu_targets()), name_of_target);

TEST_P(GemmSplit, LongInnerDimensions) {
  const auto below = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
  for (const DType dtype : {float32, bfloat16}) {
    for (int64_t i = 0; i < 2; ++i) {
      // From the shortest split length, and unsplit ones just below it.
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
}

}  // namespace
}  // namespace tern::kernels
