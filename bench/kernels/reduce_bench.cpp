// Reductions over 4096 x 1024 elements: all of them, along rows, along columns; and the gradient norm.

#include "tern/bench/kernels/tensors.h"
#include "tern/bench/roofline.h"
#include "tern/kernels/reduce.h"

namespace tern::bench {
namespace {

using kernels::Reduction;

constexpr int64_t kRows = 4096, kCols = 1024;

void reduce(benchmark::State& state, Reduction reduction, uint32_t dims, DType dtype) {
  Buffer x(dtype, {kRows, kCols}), y(dtype, {dims & 1 ? 1 : kRows, dims & 2 ? 1 : kCols});
  for (auto _ : state) kernels::reduce({}, reduction, x.view(), dims, y.view());
  report(state, x.bytes() + y.bytes(), 0);
}
BENCHMARK_CAPTURE(reduce, sum_of_all, Reduction::kSum, 3, float32)->UseRealTime();
BENCHMARK_CAPTURE(reduce, sum_of_rows, Reduction::kSum, 2, float32)->UseRealTime();
BENCHMARK_CAPTURE(reduce, sum_of_columns, Reduction::kSum, 1, float32)->UseRealTime();
BENCHMARK_CAPTURE(reduce, max_of_rows, Reduction::kMax, 2, float32)->UseRealTime();
BENCHMARK_CAPTURE(reduce, sum_of_rows_bfloat16, Reduction::kSum, 2, bfloat16)->UseRealTime();

void arg_max(benchmark::State& state) {
  Buffer x(float32, {kRows, kCols}), index(int64, {kRows, 1});
  for (auto _ : state) kernels::arg_extreme({}, true, x.view(), 1, index.view());
  report(state, x.bytes() + index.bytes(), 0);
}
BENCHMARK(arg_max)->UseRealTime();

void column_sum(benchmark::State& state) {  // the bias gradient
  Buffer x(float32, {kRows, kCols}), y(float32, {kCols});
  std::vector<char> workspace(static_cast<size_t>(kernels::column_sum_workspace({}, kRows, kCols, float32)));
  for (auto _ : state) kernels::column_sum({}, x.view(), false, workspace.data(), y.view());
  report(state, x.bytes() + y.bytes(), 0);
}
BENCHMARK(column_sum)->UseRealTime();

void gradient_norm(benchmark::State& state) {  // of 100 tensors, as in a small transformer
  std::vector<Buffer> gradients(100, Buffer(float32, {256, 256}));
  std::vector<kernels::ConstView> views;
  double bytes = 0;
  for (Buffer& gradient : gradients) {
    views.push_back(gradient.view());
    bytes += gradient.bytes();
  }
  const int64_t count = static_cast<int64_t>(views.size());
  std::vector<char> workspace(static_cast<size_t>(kernels::gradient_norm_workspace({}, count * 256 * 256, count)));
  kernels::GradientNorm result;
  for (auto _ : state) kernels::gradient_norm({}, views.data(), count, workspace.data(), &result);
  report(state, bytes, 0);
}
BENCHMARK(gradient_norm)->UseRealTime();

}  // namespace
}  // namespace tern::bench
