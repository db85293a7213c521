// Element-wise ops over 4096 x 1024 elements: forward, and backward where the op has one.

#include <type_traits>

#include "tern/bench/kernels/tensors.h"
#include "tern/bench/roofline.h"
#include "tern/kernels/pointwise_ops.h"

namespace tern::bench {
namespace {

using kernels::PointwisePass;

constexpr int64_t kRows = 4096, kCols = 1024;

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

/// `inputs` tensors in, one out: x... forward; dy and what the op saved backward.
template <class Op>
void pointwise(benchmark::State& state, Op op, PointwisePass::Kind kind, int inputs, DType dtype) {
  const kernels::PointwiseCall call = call_of(op, kind);
  std::vector<Buffer> x(static_cast<size_t>(inputs), Buffer(dtype, {kRows, kCols}));
  Buffer y(dtype, {kRows, kCols});
  std::vector<kernels::ConstView> views;
  for (Buffer& buffer : x) views.push_back(buffer.view());
  for (auto _ : state) kernels::pointwise({}, call, views.data(), inputs, y.view());
  report(state, y.bytes() * (inputs + 1), 0);
}
constexpr auto kForward = PointwisePass::kForward, kBackward = PointwisePass::kBackward;

BENCHMARK_CAPTURE(pointwise, relu, kernels::Relu{}, kForward, 1, float32)->UseRealTime();
BENCHMARK_CAPTURE(pointwise, gelu, kernels::Gelu{}, kForward, 1, float32)->UseRealTime();
BENCHMARK_CAPTURE(pointwise, gelu_bfloat16, kernels::Gelu{}, kForward, 1, bfloat16)->UseRealTime();
BENCHMARK_CAPTURE(pointwise, gelu_backward, kernels::Gelu{}, kBackward, 2, float32)->UseRealTime();
BENCHMARK_CAPTURE(pointwise, gelu_tanh, kernels::GeluTanh{}, kForward, 1, float32)->UseRealTime();
BENCHMARK_CAPTURE(pointwise, tanh, kernels::Tanh{}, kForward, 1, float32)->UseRealTime();
BENCHMARK_CAPTURE(pointwise, exp, kernels::Exp{}, kForward, 1, float32)->UseRealTime();
BENCHMARK_CAPTURE(pointwise, silu, kernels::Silu{}, kForward, 1, float32)->UseRealTime();
BENCHMARK_CAPTURE(pointwise, add, kernels::Add{}, kForward, 2, float32)->UseRealTime();
BENCHMARK_CAPTURE(pointwise, add_bfloat16, kernels::Add{}, kForward, 2, bfloat16)->UseRealTime();
BENCHMARK_CAPTURE(pointwise, mul, kernels::Mul{}, kForward, 2, float32)->UseRealTime();
BENCHMARK_CAPTURE(pointwise, addcmul, kernels::Addcmul{}, kForward, 3, float32)->UseRealTime();

void add_row(benchmark::State& state) {  // a bias: broadcast over the rows
  const kernels::Add op{};
  const kernels::PointwiseCall call = call_of(op, kForward);
  Buffer x(float32, {kRows, kCols}), bias(float32, {kCols}), y(float32, {kRows, kCols});
  const int64_t shape[] = {kRows, kCols}, strides[] = {0, 1};
  const kernels::ConstView inputs[] = {x.view(), {bias.view().data, float32, 2, shape, strides}};
  for (auto _ : state) kernels::pointwise({}, call, inputs, 2, y.view());
  report(state, x.bytes() + y.bytes(), 0);
}
BENCHMARK(add_row)->UseRealTime();

}  // namespace
}  // namespace tern::bench
