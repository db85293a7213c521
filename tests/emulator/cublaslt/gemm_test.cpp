// Which products Tern asks cuBLASLt for, as its stand-in sees them: algorithms, epilogues and launches. Their results:
// tests/kernels/gemm_test.cpp.

#include "tern/kernels/gemm.h"

#include <cublasLt.h>

#include <thread>

#include "tern/kernels/cuda/gemm_settings.h"
#include "tern/kernels/cuda/support/cublaslt.h"
#include "tern/tests/emulator/cublaslt/cublaslt.h"
#include "tern/tests/emulator/runtime/device_array.h"
#include "tern/tests/emulator/runtime/standin.h"
#include "tern/tests/kernels/contracts/gemm.h"

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

const std::vector<std::pair<DType, DType>> kTypePairs = {{float64, float64}, {float32, float32},  {bfloat16, bfloat16},
                                                         {float16, float16}, {bfloat16, float32}, {float16, float32}};

TEST(StandinGemm, LongInnerDimensionsAreCutInFixedParts) {
  std::mt19937_64 random = fresh_random();
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

TEST(StandinGemm, ABroadcastIsOneProduct) {
  for (const DType dtype : kFloatTypes)
    for (const bool of_a : {false, true})
      for (const bool transpose_a : {false, true}) {
        const int64_t batch = 5, m = 14, k = 24, n = 18;
        Array a(dtype, {of_a ? 1 : batch, transpose_a ? k : m, transpose_a ? m : k});
        Array b(dtype, {of_a ? batch : 1, k, n}), c(dtype, {batch, m, n});
        OnDevice da(a), db(b), dc(c);
        const ConstView a_view = a.expand({batch, a.shape()[1], a.shape()[2]}), b_view = b.expand({batch, k, n});
        standin::reset_counters();
        run_gemm(transpose_a, false, 1, da.moved(a_view), db.moved(b_view), 0, dc.view());
        EXPECT_EQ(standin::counters().kernels_by_name["cublasLtMatmul"], 1u);
      }
}

TEST(StandinGemm, EachOperandHasAnAlignment) {
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

TEST(StandinLinear, TheBiasIsPartOfTheProduct) {
  for (const DType dtype : kFloatTypes) {
    Array x(dtype, {16, 24}), weight(dtype, {32, 24}), bias(dtype, {32}), y(dtype, {16, 32});
    OnDevice dx(x), dweight(weight), dbias(bias), dy(y);
    const DeviceMemory workspace(cuda::linear_workspace(kStream, dx.view(), dweight.view(), dy.view()));
    const auto launches = [&](Activation activation) {
      standin::reset_counters();
      cuda::linear_forward(kStream, dx.view(), dweight.view(), dbias.view(), activation, {}, dy.view(),
                           workspace.get());
      return standin::counters().kernel_launches;
    };
    const uint64_t plain = launches(Activation::kNone);
    EXPECT_EQ(standin::last_matmul_epilogue(), dtype == float64 ? CUBLASLT_EPILOGUE_DEFAULT : CUBLASLT_EPILOGUE_BIAS);
    if (dtype != bfloat16) continue;
    EXPECT_EQ(plain, 1u);
    EXPECT_EQ(launches(Activation::kGelu), 2u);
  }
}

TEST(StandinLinear, TheBiasGradientIsPartOfTheWeightsProduct) {
  for (const auto& [dtype, weight] : kTypePairs) {
    if (dtype == float64) continue;
    Array dy(dtype, {16, 32}), x(dtype, {16, 24}), dweight(weight, {32, 24}), dbias(weight, {32});
    OnDevice ddy(dy), dx(x), ddweight(dweight), ddbias(dbias);
    void* workspace =
        workspace_of(cuda::linear_weight_backward_workspace(kStream, ddy.view(), dx.view(), ddweight.view()));
    standin::reset_counters();
    cuda::linear_weight_backward(kStream, ddy.view(), dx.view(), ddweight.view(), ddbias.view(), workspace);
    EXPECT_EQ(standin::counters().kernel_launches, 1u);
    EXPECT_EQ(standin::last_matmul_epilogue(), CUBLASLT_EPILOGUE_BGRADB);
  }
}

}  // namespace
}  // namespace tern::kernels
