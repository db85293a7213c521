// Products that are too small for a library: every layout, and each element is one sum in the order of the inner
// dimension, for any threads, batch and strides.

#include <cmath>
#include <cstring>

#include "tern/kernels/gemm.h"
#include "tern/tests/core/tolerance.h"
#include "tern/tests/kernels/contracts/gemm.h"

namespace tern::kernels {
namespace {

/// m * n * k up to slightly above the largest that loops compute (4096), and k up to slightly above 256.
Case random_case(std::mt19937_64& random) {
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

struct Product : Operands {
  Case t;
  Product(const Case& shape, std::mt19937_64& random) : Operands(float32, float32, shape, random), t(shape) {}
  void run() {
    MarkedWorkspace workspace(gemm_workspace(Stream{}, t.transpose_a, t.transpose_b, a.view(), b.view(), c.view()));
    gemm(Stream{}, t.transpose_a, t.transpose_b, t.alpha, a.view(), b.view(), t.beta, c.view(), workspace.data());
  }
};

using TinyGemm = OnCpu;

TEST_F(TinyGemm, AgreesWithDouble) {
  for_each_level([&] {
    for (int i = 0; i < 120; ++i) {
      const Case t = random_case(random_);
      SCOPED_TRACE(describe(t, float32, float32));
      Product product(t, random_);
      const std::vector<double> before = values_of(product.c.view()), whole = product.c.memory.values();
      product.run();
      expect_product(t, float32, product.a, product.b, product.c, before, whole);
      if (HasFailure()) return;
    }
  });
}

TEST_F(TinyGemm, EveryElementIsOneSumInOrder) {
  for_each_level([&] {
    const bool fused = cpu_level() != CpuLevel::kV2;
    for (int i = 0; i < 50; ++i) {
      Case t = random_case(random_);
      t.alpha = 1;
      t.beta = 0;
      if (t.k > 256 || t.m * t.n * t.k > 4096) continue;
      SCOPED_TRACE(describe(t, float32, float32));
      Product product(t, random_);
      product.run();
      const std::vector<double> a = values_of(product.a.view()), b = values_of(product.b.view()),
                                c = values_of(product.c.view());
      for (int64_t e = 0; e < t.batch * t.m * t.n; ++e) {
        const int64_t one = e / (t.m * t.n), row = e / t.n % t.m, col = e % t.n;
        float sum = 0;
        for (int64_t l = 0; l < t.k; ++l) {
          const auto x = static_cast<float>(a[one * t.m * t.k + (t.transpose_a ? l * t.m + row : row * t.k + l)]);
          const auto y = static_cast<float>(b[one * t.n * t.k + (t.transpose_b ? col * t.k + l : l * t.n + col)]);
          const float term = x * y;
          sum = fused ? std::fma(x, y, sum) : sum + term;
        }
        ASSERT_EQ(c[e], static_cast<double>(sum)) << "element " << e;
      }
    }
  });
}

TEST_F(TinyGemm, BitsDoNotDependOnThreads) {
  for (int i = 0; i < 20; ++i) {
    Case t = random_case(random_);
    t.batch = 300;  // several blocks of the batch
    Product product(t, random_);
    std::vector<std::vector<double>> results;
    for (const int count : {1, 2, 4}) {
      set_num_threads(count);
      fill_before(t, product.c);
      product.run();
      results.push_back(values_of(product.c.view()));
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
}

}  // namespace
}  // namespace tern::kernels
