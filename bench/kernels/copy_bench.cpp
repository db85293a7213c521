// Copies: within a dtype (the machine's copy), casts, transposes, fills and random numbers.

#include "tern/bench/kernels/measure.h"
#include "tern/bench/kernels/tensors.h"

namespace tern::bench {
namespace {

// On a GPU: the size of DistilBERT's hidden layer for 16,384 tokens.
int64_t rows() { return scaled(device().is_cuda() ? 16384 : 4096); }
int64_t cols() { return scaled(device().is_cuda() ? 3072 : 1024); }
double elements() { return static_cast<double>(rows() * cols()); }

void copy(benchmark::State& state, DType from, DType to) {
  const double bytes = elements() * static_cast<double>(size_of(from) + size_of(to));
  measure(state, {.bytes = bytes, .dtype = to, .share_budget = 0.85}, [&]() -> Call {
    const Buffer x(from, {rows(), cols()}, 1000), y(to, {rows(), cols()});
    return [=] { kernels::copy(stream(), x.view(), y.view()); };
  });
}
BENCHMARK_CAPTURE(copy, float32_to_float32, float32, float32)->Apply(timed);
BENCHMARK_CAPTURE(copy, bfloat16_to_bfloat16, bfloat16, bfloat16)->Apply(timed);
BENCHMARK_CAPTURE(copy, float32_to_bfloat16, float32, bfloat16)->Apply(timed);
BENCHMARK_CAPTURE(copy, bfloat16_to_float32, bfloat16, float32)->Apply(timed);
BENCHMARK_CAPTURE(copy, float32_to_float16, float32, float16)->Apply(timed);
BENCHMARK_CAPTURE(copy, int64_to_float32, int64, float32)->Apply(timed);

void copy_transposed(benchmark::State& state) {
  measure(state, {.bytes = 8 * elements()}, [&]() -> Call {
    const Buffer x(float32, {cols(), rows()}), y(float32, {rows(), cols()});
    return [=] {
      const int64_t shape[] = {rows(), cols()}, strides[] = {1, rows()};
      kernels::copy(stream(), kernels::ConstView(x.data(), float32, 2, shape, strides), y.view());
    };
  });
}
BENCHMARK(copy_transposed)->Apply(timed);

/// Measures kernels that only write.
template <class Fill>
void fill_with(benchmark::State& state, const Fill& fill) {
  measure(state, {.bytes = 4 * elements()}, [&]() -> Call {
    return [fill, y = Buffer(float32, {rows(), cols()})] { fill(y.view()); };
  });
}
void fill(benchmark::State& state) {
  fill_with(state, [](kernels::View y) { kernels::fill(stream(), 0.0, y); });
}
void fill_uniform(benchmark::State& state) {
  fill_with(state, [](kernels::View y) { kernels::fill_uniform(stream(), {1, 2}, 0.0, 1.0, y); });
}
void fill_normal(benchmark::State& state) {
  fill_with(state, [](kernels::View y) { kernels::fill_normal(stream(), {1, 2}, 0.0, 1.0, y); });
}
BENCHMARK(fill)->Apply(timed);
BENCHMARK(fill_uniform)->Apply(timed);
BENCHMARK(fill_normal)->Apply(timed);

}  // namespace
}  // namespace tern::bench
