// Element-wise ops: forward, and backward if the op has one.

#include <string>
#include <type_traits>
#include <vector>

#include "tern/bench/benchmark.h"
#include "tern/kernels/pointwise/ops.h"

namespace tern::bench {
namespace {

using kernels::PointwisePass;
constexpr auto kForward = PointwisePass::kForward, kBackward = PointwisePass::kBackward;

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
void add_pointwise(Op op, PointwisePass::Kind kind, int inputs, DType dtype = float32) {
  const double bytes = static_cast<double>(matrix().numel() * size_of(dtype) * (inputs + 1));
  const std::string name = name_of_row("pointwise", Op::name, kind == kForward ? "forward" : "backward", dtype);
  add(name, {.bytes = bytes, .dtype = dtype, .share_budget = 0.85}, [=]() -> Call {
    std::vector<Buffer> x;
    for (int i = 0; i < inputs; ++i) x.emplace_back(dtype, matrix());
    return [=, y = Buffer(dtype, matrix())] {
      std::vector<kernels::ConstView> views;
      for (const Buffer& buffer : x) views.push_back(buffer.view());
      kernels::pointwise(stream(), call_of(op, kind), views.data(), inputs, y.view());
    };
  });
}

void add_row() {  // a bias: broadcast over the rows
  const double bytes = static_cast<double>(2 * matrix().numel() * size_of(float32));
  add("pointwise/add_row/forward/float32", {.bytes = bytes, .share_budget = 0.85}, []() -> Call {
    const Buffer x(float32, matrix()), bias(float32, {matrix()[1]}), y(float32, matrix());
    return [=] {
      const kernels::Add op{};
      const int64_t strides[] = {0, 1};
      const kernels::ConstView inputs[] = {x.view(), {bias.data(), float32, 2, matrix().data(), strides}};
      kernels::pointwise(stream(), call_of(op, kForward), inputs, 2, y.view());
    };
  });
}

const Rows rows([] {
  for (const DType dtype : {float32, bfloat16}) {
    add_pointwise(kernels::Gelu{}, kForward, 1, dtype);
    add_pointwise(kernels::Gelu{}, kBackward, 2, dtype);
    add_pointwise(kernels::Add{}, kForward, 2, dtype);
  }
  add_pointwise(kernels::Relu{}, kForward, 1);
  add_pointwise(kernels::GeluTanh{}, kForward, 1);
  add_pointwise(kernels::Tanh{}, kForward, 1);
  add_pointwise(kernels::Exp{}, kForward, 1);
  add_pointwise(kernels::Silu{}, kForward, 1);
  add_pointwise(kernels::Mul{}, kForward, 2);
  add_pointwise(kernels::Addcmul{}, kForward, 3);
  add_row();
});

}  // namespace
}  // namespace tern::bench
