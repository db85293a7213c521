// Softmax and cross entropy, measured by the bytes that must be moved.

#include "tern/kernels/softmax.h"

#include <memory>

#include "tern/bench/kernels/measure.h"
#include "tern/bench/kernels/tensors.h"
#include "tern/core/index_check.h"

namespace tern::bench {
namespace {

void softmax(benchmark::State& state, DType dtype, bool log, bool backward) {
  const Shape shape{state.range(0), state.range(1)};
  const Work work{.bytes = static_cast<double>(shape.numel() * size_of(dtype) * (backward ? 3 : 2)),
                  .dtype = dtype,
                  .share_budget = 0.85};
  measure(state, work, [&]() -> Call {
    const Buffer x(dtype, shape), y(dtype, shape), dx(dtype, shape);
    kernels::softmax_forward(stream(), log, x.view(), y.view());
    return [=] {
      if (backward)
        kernels::softmax_backward(stream(), log, y.view(), x.view(), dx.view());
      else
        kernels::softmax_forward(stream(), log, x.view(), y.view());
    };
  });
}

void cross_entropy(benchmark::State& state, DType dtype, bool backward) {
  const int64_t rows = state.range(0), classes = state.range(1);
  const Work work{.bytes = static_cast<double>(rows * classes * size_of(dtype) * (backward ? 2 : 1)),
                  .dtype = dtype,
                  .share_budget = 0.85};
  measure(state, work, [&]() -> Call {
    const Buffer logits(dtype, {rows, classes}), dlogits(dtype, {backward ? rows : 0, classes});
    const Buffer targets(int64, {rows}, classes), losses(float32, {rows}), log_sum_exp(float32, {rows});
    const Buffer scale(float32, {rows});
    const auto check = std::make_shared<IndexCheck>("cross_entropy", place());
    const auto forward = [=] {
      kernels::cross_entropy_forward(stream(), logits.view(), targets.view(), {}, -100, 0, losses.view(),
                                     log_sum_exp.view(), check->data());
    };
    forward();
    if (!backward) return forward;
    return [=] {
      kernels::cross_entropy_backward(stream(), logits.view(), targets.view(), log_sum_exp.view(), scale.view(), -100,
                                      0, dlogits.view());
    };
  });
}

void shapes(benchmark::internal::Benchmark* bench) {
  if (device().is_cuda())
    bench->Args({scaled(98304), scaled(512)})->Args({scaled(8192, 8), scaled(30522, 1000)});
  else
    bench->Args({scaled(65536), 2})->Args({scaled(16384), scaled(512)})->Args({scaled(256, 8), scaled(30522, 1000)});
  timed(bench);
}

BENCHMARK_CAPTURE(softmax, forward_float32, float32, false, false)->Apply(shapes);
BENCHMARK_CAPTURE(softmax, backward_float32, float32, false, true)->Apply(shapes);
BENCHMARK_CAPTURE(softmax, log_forward_float32, float32, true, false)->Apply(shapes);
BENCHMARK_CAPTURE(softmax, log_backward_float32, float32, true, true)->Apply(shapes);
BENCHMARK_CAPTURE(softmax, forward_bfloat16, bfloat16, false, false)->Apply(shapes);
BENCHMARK_CAPTURE(softmax, backward_bfloat16, bfloat16, false, true)->Apply(shapes);
BENCHMARK_CAPTURE(cross_entropy, forward_float32, float32, false)->Apply(shapes);
BENCHMARK_CAPTURE(cross_entropy, backward_float32, float32, true)->Apply(shapes);
BENCHMARK_CAPTURE(cross_entropy, forward_bfloat16, bfloat16, false)->Apply(shapes);
BENCHMARK_CAPTURE(cross_entropy, backward_bfloat16, bfloat16, true)->Apply(shapes);

}  // namespace
}  // namespace tern::bench
