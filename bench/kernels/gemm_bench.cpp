// Matrix products of training: forward (x weight^T), input gradient (dy weight) and weight gradient (dy^T x).

#include "tern/kernels/gemm.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "tern/bench/kernels/measure.h"
#include "tern/bench/kernels/tensors.h"
#include "tern/kernels/row_chain.h"

namespace tern::bench {
namespace {

enum class Pass { kForward, kInputGradient, kWeightGradient, kLinearGelu, kGeluBackward };

struct Product {
  Buffer x, weight, y, pre, dpre, bias;
  Scratch workspace;

  Product(int64_t tokens, int64_t in, int64_t out, DType dtype)
      : x(dtype, {tokens, in}),
        weight(dtype, {out, in}),
        y(dtype, {tokens, out}),
        pre(dtype, {tokens, out}),
        dpre(dtype, {tokens, out}),
        bias(dtype, {out}),
        workspace(workspace_bytes()) {}

  int64_t workspace_bytes() const {
    const kernels::View a = x.view(), w = weight.view(), c = y.view();
    return std::max({kernels::gemm_workspace(stream(), false, true, a, w, c),
                     kernels::gemm_workspace(stream(), false, false, c, w, a),
                     kernels::gemm_workspace(stream(), true, false, c, a, w),
                     kernels::linear_workspace(stream(), a, w, c),
                     kernels::linear_activation_backward_workspace(stream(), c)});
  }
  void run(Pass pass) const {
    using kernels::Activation, kernels::gemm;
    const kernels::View a = x.view(), w = weight.view(), c = y.view(), p = pre.view();
    void* scratch = workspace.data();
    if (pass == Pass::kForward) gemm(stream(), false, true, 1, a, w, 0, c, scratch);
    if (pass == Pass::kInputGradient) gemm(stream(), false, false, 1, c, w, 0, a, scratch);
    if (pass == Pass::kWeightGradient) gemm(stream(), true, false, 1, c, a, 0, w, scratch);
    if (pass == Pass::kLinearGelu)
      kernels::linear_forward(stream(), a, w, bias.view(), Activation::kGelu, p, c, scratch);
    if (pass == Pass::kGeluBackward)
      kernels::linear_activation_backward(stream(), c, p, Activation::kGelu, dpre.view(), bias.view(), scratch);
  }
};

void gemm(benchmark::State& state, DType dtype, Pass pass) {
  const int64_t tokens = state.range(0), in = state.range(1), out = state.range(2);
  Work work{.flops = 2.0 * static_cast<double>(tokens * in * out), .dtype = dtype};
  if (pass == Pass::kGeluBackward)
    work = {.bytes = static_cast<double>(3 * tokens * out * size_of(dtype)), .dtype = dtype, .share_budget = 0.85};
  measure(state, work, [&]() -> Call {
    const Product product(tokens, in, out, dtype);
    return [=] { product.run(pass); };
  });
}

/// Both layers of a feed-forward network, as inference runs them.
void feed_forward(benchmark::State& state, DType dtype) {
  const int64_t tokens = state.range(0), width = state.range(1), hidden = state.range(2);
  const Work work{.flops = 4.0 * static_cast<double>(tokens * width * hidden), .dtype = dtype};
  measure(state, work, [&]() -> Call {
    const Buffer x(dtype, {tokens, width}), weight1(dtype, {hidden, width}), bias1(dtype, {hidden}),
        weight2(dtype, {width, hidden}), bias2(dtype, {width}), y(dtype, {tokens, width});
    const auto steps = [=]() -> std::array<kernels::RowStep, 2> {
      return {kernels::LinearStep{weight1.view(), bias1.view(), kernels::Activation::kGelu},
              kernels::LinearStep{weight2.view(), bias2.view()}};
    };
    const Scratch workspace(kernels::row_chain_workspace(stream(), x.view(), steps()));
    return [=] { kernels::row_chain(stream(), x.view(), steps(), y.view(), workspace.data()); };
  });
}

void shapes(benchmark::internal::Benchmark* bench) {
  using Sizes = std::vector<std::pair<int64_t, int64_t>>;
  const Sizes base = {{768, 768}, {768, 2304}, {768, 3072}, {3072, 768}};
  const Sizes small = {{256, 768}, {256, 1024}, {128, 384}, {128, 512}, {512, 128}};
  if (is_tiny()) {
    bench->Args({32, 64, 96});
  } else {
    const bool on_gpu = device().is_cuda();
    for (const int64_t tokens : on_gpu ? std::vector<int64_t>{8192, 16384} : std::vector<int64_t>{1024, 4096}) {
      for (const auto& [in, out] : base) bench->Args({tokens, in, out});
      if (!on_gpu)
        for (const auto& [in, out] : small) bench->Args({tokens, in, out});
    }
  }
  timed(bench);
}

void networks(benchmark::internal::Benchmark* bench) {
  bench->Args({scaled(4160), scaled(192, 48), scaled(768, 96)});
  bench->Args({scaled(device().is_cuda() ? 16384 : 4096), scaled(768, 64), scaled(3072, 96)});
  timed(bench);
}

/// The widest layer alone: what follows it is bound by memory.
void hidden_layer(benchmark::internal::Benchmark* bench) {
  bench->Args({scaled(device().is_cuda() ? 16384 : 4096), scaled(768), scaled(3072, 96)});
  timed(bench);
}

BENCHMARK_CAPTURE(gemm, forward_float32, float32, Pass::kForward)->Apply(shapes);
BENCHMARK_CAPTURE(gemm, input_gradient_float32, float32, Pass::kInputGradient)->Apply(shapes);
BENCHMARK_CAPTURE(gemm, weight_gradient_float32, float32, Pass::kWeightGradient)->Apply(shapes);
BENCHMARK_CAPTURE(gemm, linear_gelu_float32, float32, Pass::kLinearGelu)->Apply(shapes);
BENCHMARK_CAPTURE(gemm, forward_bfloat16, bfloat16, Pass::kForward)->Apply(shapes);
BENCHMARK_CAPTURE(gemm, input_gradient_bfloat16, bfloat16, Pass::kInputGradient)->Apply(shapes);
BENCHMARK_CAPTURE(gemm, weight_gradient_bfloat16, bfloat16, Pass::kWeightGradient)->Apply(shapes);
BENCHMARK_CAPTURE(gemm, linear_gelu_bfloat16, bfloat16, Pass::kLinearGelu)->Apply(shapes);
BENCHMARK_CAPTURE(gemm, gelu_backward_bfloat16, bfloat16, Pass::kGeluBackward)->Apply(hidden_layer);
BENCHMARK_CAPTURE(gemm, gelu_backward_float32, float32, Pass::kGeluBackward)->Apply(hidden_layer);
BENCHMARK_CAPTURE(feed_forward, float32, float32)->Apply(networks);
BENCHMARK_CAPTURE(feed_forward, bfloat16, bfloat16)->Apply(networks);
BENCHMARK_CAPTURE(gemm, forward_float64, float64, Pass::kForward)
    ->Args({scaled(1024), scaled(256), scaled(768)})
    ->Apply(timed);

}  // namespace
}  // namespace tern::bench
