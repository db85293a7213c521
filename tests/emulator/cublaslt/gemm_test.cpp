// Which products Tern asks cuBLASLt for, as its stand-in sees them: algorithms, epilogues and launches. Their results:
// tests/kernels/gemm_test.cpp.

#include "tern/kernels/gemm.h"

#include <cublasLt.h>

#include "tern/kernels/cuda/gemm/settings.h"
#include "tern/kernels/cuda/support/cublaslt.h"
#include "tern/tests/emulator/cublaslt/cublaslt.h"
#include "tern/tests/emulator/runtime/standin.h"
#include "tern/tests/kernels/contracts/gemm.h"

namespace tern::kernels {
namespace {

using standin::MatmulAlgorithm;

class StandinGemm : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, StandinGemm, testing::ValuesIn(device_targets()), name_of_target);

TEST_P(StandinGemm, LongInnerDimensionsAreCutInFixedParts) {
  // The heuristic prefers an algorithm with a varying order of sums, which the preference excludes.
  Array a(float32, {16, 4096}), b(float32, {16, 4096}), c(float32, {16, 16});
  fill_with_random(a, random, -1, 1);
  fill_with_random(b, random, -1, 1);
  expect_same_in_every_run({&c}, [&](Call& on) {
    for (int i = 0; i < 2; ++i) {
      run_gemm(on, false, true, 1, on(a), on(b), 0, on(c));
      EXPECT_EQ(standin::last_matmul_algorithm(), MatmulAlgorithm::kSplit);
    }
  });
}

TEST_P(StandinGemm, ABroadcastIsOneProduct) {
  for (const DType dtype : kFloatTypes)
    for (const bool of_a : {false, true})
      for (const bool transpose_a : {false, true}) {
        const int64_t batch = 5, m = 14, k = 24, n = 18;
        Array a(dtype, {of_a ? 1 : batch, transpose_a ? k : m, transpose_a ? m : k});
        Array b(dtype, {of_a ? batch : 1, k, n}), c(dtype, {batch, m, n});
        standin::reset_counters();
        run_kernel([&](Call& on) {
          const ConstView a_view = on(a, a.expand({batch, a.shape()[1], a.shape()[2]}));
          run_gemm(on, transpose_a, false, 1, a_view, on(b, b.expand({batch, k, n})), 0, on(c));
        });
        EXPECT_EQ(standin::counters().kernels_by_name["cublasLtMatmul"], 1u);
      }
}

TEST_P(StandinGemm, EachOperandHasAnAlignment) {
  for (const auto& [input, output] : kTypePairs)
    for (const int misaligned : {-1, 0, 1, 2}) {
      const auto order = [&](int operand) { return operand == misaligned ? Order::kMisaligned : Order::kContiguous; };
      const Case t{1, 16, 32, 8, false, false};
      Array a(input, {t.m, t.k}, order(0)), b(input, {t.k, t.n}, order(1)), c(output, {t.m, t.n}, order(2));
      fill_with_random(a, random, -1, 1);
      fill_with_random(b, random, -1, 1);
      run_kernel([&](Call& on) { run_gemm(on, false, false, 1, on(a), on(b), 0, on(c)); });
      EXPECT_EQ(standin::last_matmul_algorithm(),
                misaligned < 0 ? MatmulAlgorithm::kAligned : MatmulAlgorithm::kGeneral);
      for_each_element(t, a.values(), b.values(), [&](int64_t, int64_t r, int64_t s, double sum, double magnitude) {
        ASSERT_LE(std::fabs(c.at(r * t.n + s) - sum), tolerance(output, input, sum, magnitude, t.k));
      });
    }
}

TEST_P(StandinGemm, TheBiasIsPartOfTheProduct) {
  for (const DType dtype : kFloatTypes) {
    Array x(dtype, {16, 24}), weight(dtype, {32, 24}), bias(dtype, {32}), y(dtype, {16, 32});
    const auto launches = [&](Activation activation) {
      standin::reset_counters();
      run_kernel([&](Call& on) {
        void* const workspace = on.workspace(linear_workspace(on.stream(), on(x), on(weight), on(y)));
        linear_forward(on.stream(), on(x), on(weight), on(bias), activation, {}, on(y), workspace);
      });
      return standin::counters().kernel_launches;
    };
    const uint64_t plain = launches(Activation::kNone);
    EXPECT_EQ(standin::last_matmul_epilogue(), dtype == float64 ? CUBLASLT_EPILOGUE_DEFAULT : CUBLASLT_EPILOGUE_BIAS);
    if (dtype != bfloat16) continue;
    EXPECT_EQ(plain, 1u);
    EXPECT_EQ(launches(Activation::kGelu), 2u);
  }
}

TEST_P(StandinGemm, TheBiasGradientIsPartOfTheWeightsProduct) {
  for (const auto& [dtype, weight] : kTypePairs) {
    if (dtype == float64) continue;
    Array dy(dtype, {16, 32}), x(dtype, {16, 24}), dweight(weight, {32, 24}), dbias(weight, {32});
    standin::reset_counters();
    run_kernel([&](Call& on) {
      void* const workspace = on.workspace(linear_weight_backward_workspace(on.stream(), on(dy), on(x), on(dweight)));
      linear_weight_backward(on.stream(), on(dy), on(x), on(dweight), on(dbias), workspace);
    });
    EXPECT_EQ(standin::counters().kernel_launches, 1u);
    EXPECT_EQ(standin::last_matmul_epilogue(), CUBLASLT_EPILOGUE_BGRADB);
  }
}

}  // namespace
}  // namespace tern::kernels
