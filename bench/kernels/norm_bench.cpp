// Layer normalisation with dropout and residual, and dropout, measured by the bytes that must be moved.

#include "tern/kernels/norm.h"

#include "tern/bench/kernels/measure.h"
#include "tern/bench/kernels/tensors.h"

namespace tern::bench {
namespace {

struct Norm {
  int64_t rows, cols;
  kernels::Dropout dropout;
  Buffer x, residual, z, y, gamma, beta, mean, rstd, dgamma, dbeta;
  Scratch workspace, tickets;

  Norm(int64_t r, int64_t c, DType dtype, double p)
      : rows(r),
        cols(c),
        dropout{p, {1, 2}},
        x(dtype, {r, c}),
        residual(dtype, {r, c}),
        z(dtype, {r, c}),
        y(dtype, {r, c}),
        gamma(float32, {c}),
        beta(float32, {c}),
        mean(float32, {r}),
        rstd(float32, {r}),
        dgamma(float32, {c}),
        dbeta(float32, {c}),
        workspace(kernels::layer_norm_backward_workspace(stream(), r, c, dtype)),
        tickets(kernels::kLayerNormTickets * 4) {}

  void forward() const {
    kernels::layer_norm_forward(stream(), x.view(), residual.view(), gamma.view(), beta.view(), 1e-12, dropout, {},
                                z.view(), y.view(), mean.view(), rstd.view(), tickets.data());
  }
  void backward() const {
    kernels::layer_norm_backward(stream(), y.view(), {}, z.view(), gamma.view(), mean.view(), rstd.view(), dropout, {},
                                 workspace.data(), tickets.data(), x.view(),
                                 dropout.p > 0 ? residual.view() : kernels::View(), dgamma.view(), dbeta.view());
  }
};

void layer_norm(benchmark::State& state, DType dtype, bool backward, double p) {
  const int64_t rows = state.range(0), cols = state.range(1), tensors = backward && p == 0 ? 3 : 4;
  const Work work{.bytes = static_cast<double>(tensors * rows * cols * size_of(dtype)),
                  .dtype = dtype,
                  .share_budget = backward ? 0.70 : 0.75};
  measure(state, work, [&]() -> Call {
    const Norm norm(rows, cols, dtype, p);
    norm.forward();
    return [=] { backward ? norm.backward() : norm.forward(); };
  });
}

void dropout(benchmark::State& state, DType dtype) {
  const Shape shape{state.range(0), state.range(1)};
  const Work work{
      .bytes = static_cast<double>(2 * shape.numel() * size_of(dtype)), .dtype = dtype, .share_budget = 0.85};
  measure(state, work, [&]() -> Call {
    const Buffer x(dtype, shape), y(dtype, shape);
    return [=] { kernels::dropout(stream(), x.view(), {0.1, {1, 2}}, {}, y.view()); };
  });
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->Args({scaled(16384), scaled(768)});
  if (device().is_cpu()) bench->Args({scaled(4096), scaled(768)})->Args({scaled(8192), scaled(128)});
  if (device().is_cuda() && !is_tiny()) bench->Args({6144, 768})->Args({16384, 1024});
  timed(bench);
}

BENCHMARK_CAPTURE(layer_norm, forward_float32, float32, false, 0.0)->Apply(shapes);
BENCHMARK_CAPTURE(layer_norm, forward_dropout_float32, float32, false, 0.1)->Apply(shapes);
BENCHMARK_CAPTURE(layer_norm, backward_float32, float32, true, 0.0)->Apply(shapes);
BENCHMARK_CAPTURE(layer_norm, backward_dropout_float32, float32, true, 0.1)->Apply(shapes);
BENCHMARK_CAPTURE(dropout, float32, float32)->Apply(shapes);
BENCHMARK_CAPTURE(layer_norm, forward_bfloat16, bfloat16, false, 0.0)->Apply(shapes);
BENCHMARK_CAPTURE(layer_norm, forward_dropout_bfloat16, bfloat16, false, 0.1)->Apply(shapes);
BENCHMARK_CAPTURE(layer_norm, backward_bfloat16, bfloat16, true, 0.0)->Apply(shapes);
BENCHMARK_CAPTURE(layer_norm, backward_dropout_bfloat16, bfloat16, true, 0.1)->Apply(shapes);
BENCHMARK_CAPTURE(layer_norm, forward_dropout_float16, float16, false, 0.1)->Apply(shapes);
BENCHMARK_CAPTURE(dropout, bfloat16, bfloat16)->Apply(shapes);

}  // namespace
}  // namespace tern::bench
