// Copies: the same dtype (the machine's copy itself), casts, transposes, fills and random numbers.

#include "tern/bench/kernels/tensors.h"
#include "tern/bench/roofline.h"

namespace tern::bench {
namespace {

constexpr int64_t kRows = 4096, kCols = 1024;

void copy(benchmark::State& state, DType from, DType to) {
  Buffer x(from, {kRows, kCols}), y(to, {kRows, kCols});
  for (auto _ : state) kernels::copy({}, x.view(), y.view());
  report(state, x.bytes() + y.bytes(), 0);
}
BENCHMARK_CAPTURE(copy, float32_to_float32, float32, float32)->UseRealTime();
BENCHMARK_CAPTURE(copy, float32_to_bfloat16, float32, bfloat16)->UseRealTime();
BENCHMARK_CAPTURE(copy, bfloat16_to_float32, bfloat16, float32)->UseRealTime();
BENCHMARK_CAPTURE(copy, float32_to_float16, float32, float16)->UseRealTime();
BENCHMARK_CAPTURE(copy, int64_to_float32, int64, float32)->UseRealTime();

void copy_transposed(benchmark::State& state) {
  Buffer x(float32, {kCols, kRows}), y(float32, {kRows, kCols});
  const int64_t shape[] = {kRows, kCols}, strides[] = {1, kRows};
  const kernels::ConstView transposed(x.view().data, float32, 2, shape, strides);
  for (auto _ : state) kernels::copy({}, transposed, y.view());
  report(state, x.bytes() + y.bytes(), 0);
}
BENCHMARK(copy_transposed)->UseRealTime();

void fill(benchmark::State& state) {
  Buffer y(float32, {kRows, kCols});
  for (auto _ : state) kernels::fill({}, 0.0, y.view());
  report(state, y.bytes(), 0);
}
BENCHMARK(fill)->UseRealTime();

void fill_uniform(benchmark::State& state) {
  Buffer y(float32, {kRows, kCols});
  for (auto _ : state) kernels::fill_uniform({}, {1, 2}, 0.0, 1.0, y.view());
  report(state, y.bytes(), 0);
}
BENCHMARK(fill_uniform)->UseRealTime();

void fill_normal(benchmark::State& state) {
  Buffer y(float32, {kRows, kCols});
  for (auto _ : state) kernels::fill_normal({}, {1, 2}, 0.0, 1.0, y.view());
  report(state, y.bytes(), 0);
}
BENCHMARK(fill_normal)->UseRealTime();

}  // namespace
}  // namespace tern::bench
