// Matrix products of training: forward (x weight^T), input gradient (dy weight) and weight gradient (dy^T x).

#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "tern/bench/roofline.h"
#include "tern/kernels/gemm.h"

namespace tern::kernels {
namespace {

std::vector<char> random_matrix(DType dtype, int64_t elements) {
  std::vector<char> memory(elements * size_of(dtype));
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  dispatch_float(dtype, [&]<class T>() {
    for (int64_t i = 0; i < elements; ++i) reinterpret_cast<T*>(memory.data())[i] = static_cast<T>(uniform(random));
  });
  return memory;
}

View matrix(std::vector<char>& memory, DType dtype, int64_t rows, int64_t cols) {
  const int64_t shape[] = {rows, cols}, strides[] = {cols, 1};
  return View(memory.data(), dtype, 2, shape, strides);
}

enum Pass { kForward, kInputGradient, kWeightGradient, kLinearGelu };

void BM_gemm(benchmark::State& state, DType dtype, Pass pass) {
  const int64_t tokens = state.range(0), in = state.range(1), out = state.range(2);
  std::vector<char> x = random_matrix(dtype, tokens * in), w = random_matrix(dtype, in * out);
  std::vector<char> y = random_matrix(dtype, tokens * out), pre(y.size()), bias = random_matrix(dtype, out);
  const View xv = matrix(x, dtype, tokens, in), wv = matrix(w, dtype, out, in), yv = matrix(y, dtype, tokens, out);
  const View prev = matrix(pre, dtype, tokens, out);
  const int64_t stride = 1;
  const View biasv(bias.data(), dtype, 1, &out, &stride);
  std::vector<char> workspace(
      std::max({gemm_workspace({}, false, true, xv, wv, yv), gemm_workspace({}, false, false, yv, wv, xv),
                gemm_workspace({}, true, false, yv, xv, wv), linear_workspace({}, xv, wv, yv)}));
  for (auto _ : state) {
    if (pass == kForward) gemm({}, false, true, 1, xv, wv, 0, yv, workspace.data());
    if (pass == kInputGradient) gemm({}, false, false, 1, yv, wv, 0, xv, workspace.data());
    if (pass == kWeightGradient) gemm({}, true, false, 1, yv, xv, 0, wv, workspace.data());
    if (pass == kLinearGelu) linear_forward({}, xv, wv, biasv, Activation::kGelu, prev, yv, workspace.data());
  }
  bench::report(state, 0, 2.0 * static_cast<double>(tokens * in * out), dtype);
}

void shapes(benchmark::internal::Benchmark* bench) {
  for (const int64_t tokens : {1024, 4096}) {
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{768, 768},
                                  {768, 2304},
                                  {768, 3072},
                                  {3072, 768},
                                  {256, 768},
                                  {256, 1024},
                                  {128, 384},
                                  {128, 512},
                                  {512, 128}})
      bench->Args({tokens, in, out});
  }
  bench->UseRealTime();
}

BENCHMARK_CAPTURE(BM_gemm, forward_float32, float32, kForward)->Apply(shapes);
BENCHMARK_CAPTURE(BM_gemm, input_gradient_float32, float32, kInputGradient)->Apply(shapes);
BENCHMARK_CAPTURE(BM_gemm, weight_gradient_float32, float32, kWeightGradient)->Apply(shapes);
BENCHMARK_CAPTURE(BM_gemm, linear_gelu_float32, float32, kLinearGelu)->Apply(shapes);
BENCHMARK_CAPTURE(BM_gemm, forward_bfloat16, bfloat16, kForward)->Apply(shapes);
BENCHMARK_CAPTURE(BM_gemm, input_gradient_bfloat16, bfloat16, kInputGradient)->Apply(shapes);
BENCHMARK_CAPTURE(BM_gemm, weight_gradient_bfloat16, bfloat16, kWeightGradient)->Apply(shapes);
BENCHMARK_CAPTURE(BM_gemm, linear_gelu_bfloat16, bfloat16, kLinearGelu)->Apply(shapes);
BENCHMARK_CAPTURE(BM_gemm, forward_float64, float64, kForward)->Args({1024, 256, 768})->UseRealTime();

}  // namespace
}  // namespace tern::kernels
