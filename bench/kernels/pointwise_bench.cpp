// Element-wise ops: forward, and backward if the op has one.

#include <type_traits>

#include "tern/bench/kernels/measure.h"
#include "tern/bench/kernels/tensors.h"
#include "tern/kernels/pointwise_ops.h"

namespace tern::bench {
namespace {

using kernels::PointwisePass;

// On a GPU: the size of DistilBERT's hidden layer for 16,384 tokens.
Shape matrix() { return {scaled(device().is_cuda() ? 16384 : 4096), scaled(device().is_cuda() ? 3072 : 1024)}; }

template <class Op>
kernels::PointwiseCall call_of(const Op& op, PointwisePass::Kind kind) {
  kernels::PointwiseCall call;
  int index = 0;
  kernels::BuiltinOps::for_each([&]<class Other>() {
    if (std::is_same_v<Op, Other>) call.builtin = index;
    ++index;
  });
  call.pass.kind = kind;
  call.op = &op;
  return call;
}

/// Reads `inputs` tensors and writes one. Forward: x...; backward: dy and the saved tensors.
template <class Op>
void pointwise(benchmark::State& state, Op op, PointwisePass::Kind kind, int inputs, DType dtype) {
  const double bytes = static_cast<double>(matrix().numel() * size_of(dtype) * (inputs + 1));
  measure(state, {.bytes = bytes, .dtype = dtype, .share_budget = 0.85}, [&]() -> Call {
    std::vector<Buffer> x;
    for (int i = 0; i < inputs; ++i) x.emplace_back(dtype, matrix());
    return [=, y = Buffer(dtype, matrix())] {
      std::vector<kernels::ConstView> views;
      for (const Buffer& buffer : x) views.push_back(buffer.view());
      kernels::pointwise(stream(), call_of(op, kind), views.data(), inputs, y.view());
    };
  });
}
constexpr auto kForward = PointwisePass::kForward, kBackward = PointwisePass::kBackward;

BENCHMARK_CAPTURE(pointwise, relu, kernels::Relu{}, kForward, 1, float32)->Apply(timed);
BENCHMARK_CAPTURE(pointwise, gelu, kernels::Gelu{}, kForward, 1, float32)->Apply(timed);
BENCHMARK_CAPTURE(pointwise, gelu_bfloat16, kernels::Gelu{}, kForward, 1, bfloat16)->Apply(timed);
BENCHMARK_CAPTURE(pointwise, gelu_backward, kernels::Gelu{}, kBackward, 2, float32)->Apply(timed);
BENCHMARK_CAPTURE(pointwise, gelu_backward_bfloat16, kernels::Gelu{}, kBackward, 2, bfloat16)->Apply(timed);
BENCHMARK_CAPTURE(pointwise, gelu_tanh, kernels::GeluTanh{}, kForward, 1, float32)->Apply(timed);
BENCHMARK_CAPTURE(pointwise, tanh, kernels::Tanh{}, kForward, 1, float32)->Apply(timed);
BENCHMARK_CAPTURE(pointwise, exp, kernels::Exp{}, kForward, 1, float32)->Apply(timed);
BENCHMARK_CAPTURE(pointwise, silu, kernels::Silu{}, kForward, 1, float32)->Apply(timed);
BENCHMARK_CAPTURE(pointwise, add, kernels::Add{}, kForward, 2, float32)->Apply(timed);
BENCHMARK_CAPTURE(pointwise, add_bfloat16, kernels::Add{}, kForward, 2, bfloat16)->Apply(timed);
BENCHMARK_CAPTURE(pointwise, mul, kernels::Mul{}, kForward, 2, float32)->Apply(timed);
BENCHMARK_CAPTURE(pointwise, addcmul, kernels::Addcmul{}, kForward, 3, float32)->Apply(timed);

void add_row(benchmark::State& state) {  // a bias: broadcast over the rows
  const double bytes = static_cast<double>(2 * matrix().numel() * size_of(float32));
  measure(state, {.bytes = bytes, .share_budget = 0.85}, [&]() -> Call {
    const Buffer x(float32, matrix()), bias(float32, {matrix()[1]}), y(float32, matrix());
    return [=] {
      const kernels::Add op{};
      const int64_t strides[] = {0, 1};
      const kernels::ConstView inputs[] = {x.view(), {bias.data(), float32, 2, matrix().data(), strides}};
      kernels::pointwise(stream(), call_of(op, kForward), inputs, 2, y.view());
    };
  });
}
BENCHMARK(add_row)->Apply(timed);

}  // namespace
}  // namespace tern::bench
