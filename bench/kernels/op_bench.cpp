// Overhead of ops with recording, on the CPU: tiny products, item(), views, and an LSTM written by hand. One op takes
// nanoseconds, so the mean over many is reported.

#include <benchmark/benchmark.h>

#include <vector>

#include "tern/bench/setting.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/ops.h"

namespace tern::bench {
namespace {

Tensor random(const Shape& shape, bool requires_grad) {
  static Generator generator(1);
  return randn(shape, generator).set_requires_grad(requires_grad);
}

template <class Body>
void repeat(benchmark::State& state, const Body& body) {
  for (auto _ : state) body();
}

void product(benchmark::State& state) {
  const int64_t n = state.range(0);
  const bool recorded = state.range(1) != 0;
  const Tensor a = random({n, n}, recorded), b = random({n, n}, recorded);
  repeat(state, [&] { benchmark::DoNotOptimize(matmul(a, b)); });
}

void product_and_backward(benchmark::State& state) {
  const int64_t n = state.range(0);
  const Tensor a = random({n, n}, true), b = random({n, n}, true), dc = random({n, n}, false);
  repeat(state, [&] { matmul(a, b).backward(dc); });
}

void layer(benchmark::State& state) {
  const int64_t n = state.range(0);
  const Tensor x = random({n, n}, true), weight = random({n, n}, true), bias = random({n}, true);
  repeat(state, [&] { benchmark::DoNotOptimize(linear(x, weight, bias)); });
}

void sum_of_two(benchmark::State& state) {
  const Tensor a = random({state.range(0), 8}, true), b = random({state.range(0), 8}, true);
  repeat(state, [&] { benchmark::DoNotOptimize(add(a, b)); });
}

void transposed(benchmark::State& state) {
  const Tensor a = random({8, 8}, true);
  repeat(state, [&] { benchmark::DoNotOptimize(a.t()); });
}

void item(benchmark::State& state) {
  const Tensor x = random({}, true);
  repeat(state, [&] { benchmark::DoNotOptimize(x.item<float>()); });
}

void item_as_double(benchmark::State& state) {
  const Tensor x = random({1}, false).to(bfloat16);
  repeat(state, [&] { benchmark::DoNotOptimize(x.item<double>()); });
}

/// A training step of a hand-written LSTM. Arguments: steps, batch, width of input and state.
void lstm(benchmark::State& state) {
  const int64_t steps = scaled(state.range(0), 3), batch = scaled(state.range(1), 2), width = scaled(state.range(2), 4);
  const Tensor x = random({steps, batch, width}, false);
  const Tensor w = random({4 * width, width}, true), u = random({4 * width, width}, true),
               b = random({4 * width}, true);
  repeat(state, [&] {
    Tensor h = zeros({batch, width}), c = h;
    for (const Tensor& step : linear(x, w, b).unbind(0)) {
      const std::vector<Tensor> gates = (step + linear(h, u)).chunk(4, 1);
      c = sigmoid(gates[0]) * c + sigmoid(gates[1]) * tanh(gates[2]);
      h = sigmoid(gates[3]) * tanh(c);
    }
    sum(h).backward();
    for (const Tensor& parameter : {w, u, b}) Tensor(parameter).set_grad({});
  });
}

// CPU only: the GPU's table contains only kernels.
const bool registered = [] {
  if (!device().is_cpu()) return false;
  using Benchmark = benchmark::internal::Benchmark;
  const auto add_op = [](const char* name, void (*body)(benchmark::State&)) -> Benchmark* {
    return benchmark::RegisterBenchmark(name, body)->UseRealTime();
  };
  add_op("op/matmul", product)->ArgNames({"n", "recorded"})->ArgsProduct({{8, 16, 32, 64}, {0, 1}});
  add_op("op/matmul_backward", product_and_backward)->Arg(8)->Arg(32);
  add_op("op/linear", layer)->Arg(8)->Arg(32);
  add_op("op/add", sum_of_two)->Arg(8);
  add_op("op/transpose", transposed);
  add_op("op/item", item);
  add_op("op/item_bfloat16_as_double", item_as_double);
  add_op("op/lstm_by_hand", lstm)->Args({64, 32, 128})->Unit(benchmark::kMillisecond);
  return true;
}();

}  // namespace
}  // namespace tern::bench
