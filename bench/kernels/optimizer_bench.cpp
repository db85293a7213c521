// Optimizer updates of the 66 M parameters of DistilBERT in 100 tensors, in bytes that must move.

#include <benchmark/benchmark.h>

#include <vector>

#include "tern/bench/roofline.h"
#include "tern/kernels/optimizer.h"

namespace tern::kernels {
namespace {

constexpr int64_t kTensors = 100, kSize = 660000;

struct Parameters {
  std::vector<float> weight, gradient, first, second, master;
  std::vector<OptimizerTensor> tensors;
  explicit Parameters(DType dtype)
      : weight(kTensors * kSize, 0),
        gradient(kTensors * kSize, 0),
        first(kTensors * kSize, 0),
        second(kTensors * kSize, 0),
        master(dtype == float32 ? 0 : kTensors * kSize, 0) {
    for (int64_t t = 0; t < kTensors; ++t) {
      OptimizerTensor tensor;
      tensor.weight = reinterpret_cast<char*>(weight.data()) + t * kSize * size_of(dtype);
      tensor.gradient = reinterpret_cast<char*>(gradient.data()) + t * kSize * size_of(dtype);
      tensor.state1 = first.data() + t * kSize;
      tensor.state2 = second.data() + t * kSize;
      tensor.master = dtype == float32 ? nullptr : master.data() + t * kSize;
      tensor.size = kSize;
      tensor.weight_dtype = tensor.gradient_dtype = dtype;
      tensors.push_back(tensor);
    }
    dispatch_float(dtype, [&]<class T>() {
      uint32_t state = 1;
      for (int64_t i = 0; i < kTensors * kSize; ++i) {
        state = state * 1664525u + 1013904223u;
        reinterpret_cast<T*>(gradient.data())[i] = static_cast<T>(static_cast<float>(state >> 8) * 0x1p-24f - 0.5f);
      }
    });
  }
};

void BM_adamw(benchmark::State& state, DType dtype) {
  Parameters p(dtype);
  const AdamGroup group{.weight_decay = 0.01};
  const GradientNorm norm{4.0, 0, -1};
  int64_t step = 0;
  for (auto _ : state) adam({}, p.tensors.data(), kTensors, &group, 1, {.step = &step, .norm = &norm, .max_norm = 1});
  // Weight (and master), two states read and written, gradient read.
  const int64_t bytes = 16 + 3 * size_of(dtype) + (dtype == float32 ? 0 : 8 - size_of(dtype));
  bench::report(state, static_cast<double>(kTensors * kSize * bytes), 0);
}

void BM_sgd(benchmark::State& state, double momentum) {
  Parameters p(float32);
  const SgdGroup group{.momentum = momentum, .weight_decay = 0.01};
  int64_t step = 0;
  for (auto _ : state) sgd({}, p.tensors.data(), kTensors, &group, 1, {.step = &step});
  bench::report(state, static_cast<double>(kTensors * kSize * (momentum == 0 ? 12 : 20)), 0);
}

void BM_scale_by_norm(benchmark::State& state) {
  Parameters p(float32);
  std::vector<View> views;
  for (const OptimizerTensor& t : p.tensors) views.push_back(make_view(static_cast<float*>(t.weight), t.size));
  const GradientNorm norm{4.0, 0, -1};
  for (auto _ : state) scale_by_norm({}, views.data(), kTensors, &norm, 1);
  bench::report(state, static_cast<double>(kTensors * kSize * 8), 0);
}

BENCHMARK_CAPTURE(BM_adamw, float32, float32)->UseRealTime();
BENCHMARK_CAPTURE(BM_adamw, bfloat16_with_master, bfloat16)->UseRealTime();
BENCHMARK_CAPTURE(BM_sgd, plain, 0.0)->UseRealTime();
BENCHMARK_CAPTURE(BM_sgd, momentum, 0.9)->UseRealTime();
BENCHMARK(BM_scale_by_norm)->UseRealTime();

}  // namespace
}  // namespace tern::kernels
