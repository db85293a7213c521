// Softmax and cross entropy, in bytes that must move.

#include <benchmark/benchmark.h>

#include <vector>

#include "tern/bench/roofline.h"
#include "tern/kernels/softmax.h"

namespace tern::kernels {
namespace {

std::vector<float> random_values(int64_t n) {
  std::vector<float> values(n);
  uint32_t state = 1;
  for (float& v : values) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<float>(state >> 8) * 0x1p-21f - 4.0f;
  }
  return values;
}

void BM_softmax(benchmark::State& state, bool log, bool backward) {
  const int64_t rows = state.range(0), cols = state.range(1);
  std::vector<float> x = random_values(rows * cols), y(rows * cols), dx(rows * cols);
  softmax_forward({}, log, make_view(x.data(), rows, cols), make_view(y.data(), rows, cols));
  for (auto _ : state) {
    if (backward)
      softmax_backward({}, log, make_view(y.data(), rows, cols), make_view(x.data(), rows, cols),
                       make_view(dx.data(), rows, cols));
    else
      softmax_forward({}, log, make_view(x.data(), rows, cols), make_view(y.data(), rows, cols));
  }
  bench::report(state, static_cast<double>(rows * cols * (backward ? 12 : 8)), 0);
}

void BM_cross_entropy(benchmark::State& state, bool backward) {
  const int64_t rows = state.range(0), classes = state.range(1);
  std::vector<float> logits = random_values(rows * classes), dlogits(rows * classes), losses(rows), lse(rows),
                     scale(rows, 1);
  std::vector<int64_t> targets(rows);
  for (int64_t r = 0; r < rows; ++r) targets[r] = r % classes;
  IndexFault fault;
  const auto forward = [&] {
    cross_entropy_forward({}, make_view(logits.data(), rows, classes), make_view(targets.data(), rows), {}, -100, 0,
                          make_view(losses.data(), rows), make_view(lse.data(), rows), &fault);
  };
  forward();
  for (auto _ : state) {
    if (backward)
      cross_entropy_backward({}, make_view(logits.data(), rows, classes), make_view(targets.data(), rows),
                             make_view(lse.data(), rows), make_view(scale.data(), rows), -100, 0,
                             make_view(dlogits.data(), rows, classes));
    else
      forward();
  }
  bench::report(state, static_cast<double>(rows * classes * (backward ? 8 : 4)), 0);
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->Args({65536, 2})->Args({16384, 512})->Args({256, 30522})->UseRealTime();
}

BENCHMARK_CAPTURE(BM_softmax, forward, false, false)->Apply(shapes);
BENCHMARK_CAPTURE(BM_softmax, backward, false, true)->Apply(shapes);
BENCHMARK_CAPTURE(BM_softmax, log_forward, true, false)->Apply(shapes);
BENCHMARK_CAPTURE(BM_softmax, log_backward, true, true)->Apply(shapes);
BENCHMARK_CAPTURE(BM_cross_entropy, forward, false)->Apply(shapes);
BENCHMARK_CAPTURE(BM_cross_entropy, backward, true)->Apply(shapes);

}  // namespace
}  // namespace tern::kernels
