// Layer normalisation with dropout and residual, and dropout, in bytes that must move; memcpy of the same size beside
// them.

#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "tern/bench/roofline.h"
#include "tern/kernels/norm.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels {
namespace {

/// `count` matrices [rows, cols] of random bits that are small numbers in every floating dtype.
struct Matrices {
  std::vector<std::vector<char>> memory;
  DType dtype;
  int64_t rows, cols;
  Matrices(int count, DType type, int64_t r, int64_t c) : memory(count), dtype(type), rows(r), cols(c) {
    for (auto& m : memory) {
      m.resize(r * c * size_of(type));
      dispatch_float(type, [&]<class T>() {
        uint32_t state = 1;
        for (int64_t i = 0; i < r * c; ++i) {
          state = state * 1664525u + 1013904223u;
          reinterpret_cast<T*>(m.data())[i] = static_cast<T>(static_cast<float>(state >> 8) * 0x1p-24f - 0.5f);
        }
      });
    }
  }
  View operator[](int i) {
    const int64_t shape[] = {rows, cols}, strides[] = {cols, 1};
    return View(memory[i].data(), dtype, 2, shape, strides);
  }
  void count_bytes(benchmark::State& state, int tensors) const {
    bench::report(state, static_cast<double>(tensors * rows * cols * size_of(dtype)), 0);
  }
};

void BM_memcpy(benchmark::State& state, DType dtype) {
  Matrices m(2, dtype, state.range(0), state.range(1));
  const auto bytes = static_cast<int64_t>(m.memory[0].size());
  for (auto _ : state)
    parallel_for(bytes, 1 << 18, [&](int64_t begin, int64_t end) {
      std::memcpy(m.memory[1].data() + begin, m.memory[0].data() + begin, end - begin);
    });
  m.count_bytes(state, 2);
}

void BM_layer_norm(benchmark::State& state, DType dtype, bool backward, double p) {
  const int64_t rows = state.range(0), cols = state.range(1);
  Matrices m(4, dtype, rows, cols);
  std::vector<float> gamma(cols, 1), beta(cols, 0), mean(rows), rstd(rows), dgamma(cols), dbeta(cols);
  const Dropout dropout{p, {1, 2}};
  std::vector<char> workspace(layer_norm_backward_workspace({}, rows, cols, dtype));
  const auto forward = [&] {
    layer_norm_forward({}, m[0], m[1], make_view(gamma.data(), cols), make_view(beta.data(), cols), 1e-12, dropout, {},
                       m[2], m[3], make_view(mean.data(), rows), make_view(rstd.data(), rows));
  };
  forward();
  for (auto _ : state) {
    if (!backward) {
      forward();
    } else {
      layer_norm_backward({}, m[3], m[2], make_view(gamma.data(), cols), make_view(mean.data(), rows),
                          make_view(rstd.data(), rows), dropout, {}, workspace.data(), m[0], p > 0 ? m[1] : View(),
                          make_view(dgamma.data(), cols), make_view(dbeta.data(), cols));
    }
  }
  m.count_bytes(state, backward && p == 0 ? 3 : 4);
}

void BM_dropout(benchmark::State& state, DType dtype) {
  Matrices m(2, dtype, state.range(0), state.range(1));
  for (auto _ : state) dropout({}, m[0], {0.1, {1, 2}}, {}, m[1]);
  m.count_bytes(state, 2);
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->Args({16384, 768})->Args({4096, 768})->Args({8192, 128})->UseRealTime();
}

BENCHMARK_CAPTURE(BM_memcpy, float32, float32)->Apply(shapes);
BENCHMARK_CAPTURE(BM_layer_norm, forward_float32, float32, false, 0.0)->Apply(shapes);
BENCHMARK_CAPTURE(BM_layer_norm, forward_dropout_float32, float32, false, 0.1)->Apply(shapes);
BENCHMARK_CAPTURE(BM_layer_norm, backward_float32, float32, true, 0.0)->Apply(shapes);
BENCHMARK_CAPTURE(BM_layer_norm, backward_dropout_float32, float32, true, 0.1)->Apply(shapes);
BENCHMARK_CAPTURE(BM_dropout, float32, float32)->Apply(shapes);
BENCHMARK_CAPTURE(BM_memcpy, bfloat16, bfloat16)->Apply(shapes);
BENCHMARK_CAPTURE(BM_layer_norm, forward_dropout_bfloat16, bfloat16, false, 0.1)->Apply(shapes);
BENCHMARK_CAPTURE(BM_layer_norm, backward_dropout_bfloat16, bfloat16, true, 0.1)->Apply(shapes);
BENCHMARK_CAPTURE(BM_layer_norm, forward_dropout_float16, float16, false, 0.1)->Apply(shapes);

}  // namespace
}  // namespace tern::kernels
