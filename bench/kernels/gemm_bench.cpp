// Matrix products of training: forward (x weight^T), input gradient (dy weight) and weight gradient (dy^T x).

#include "tern/kernels/gemm.h"

#include <algorithm>
#include <array>
#include <vector>

#include "tern/bench/benchmark.h"
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

struct Sizes {
  int64_t tokens, in, out;
};

void add_product(const char* pass_name, Pass pass, DType dtype, const Sizes& s) {
  Work work{.flops = 2.0 * static_cast<double>(s.tokens * s.in * s.out), .dtype = dtype};
  if (pass == Pass::kGeluBackward)
    work = {.bytes = static_cast<double>(3 * s.tokens * s.out * size_of(dtype)), .dtype = dtype, .share_budget = 0.85};
  add(name_of_row("gemm", pass_name, dtype, s.tokens, s.in, s.out), work, [=]() -> Call {
    const Product product(s.tokens, s.in, s.out, dtype);
    return [=] { product.run(pass); };
  });
}

/// Both layers of a feed-forward network, as inference runs them: out is the hidden width.
void add_feed_forward(DType dtype, const Sizes& s) {
  const Work work{.flops = 4.0 * static_cast<double>(s.tokens * s.in * s.out), .dtype = dtype};
  add(name_of_row("feed_forward", dtype, s.tokens, s.in, s.out), work, [=]() -> Call {
    const Buffer x(dtype, {s.tokens, s.in}), weight1(dtype, {s.out, s.in}), bias1(dtype, {s.out}),
        weight2(dtype, {s.in, s.out}), bias2(dtype, {s.in}), y(dtype, {s.tokens, s.in});
    const auto steps = [=]() -> std::array<kernels::RowStep, 2> {
      return {kernels::LinearStep{weight1.view(), bias1.view(), kernels::Activation::kGelu},
              kernels::LinearStep{weight2.view(), bias2.view()}};
    };
    const Scratch workspace(kernels::row_chain_workspace(stream(), x.view(), steps()));
    return [=] { kernels::row_chain(stream(), x.view(), steps(), y.view(), workspace.data()); };
  });
}

std::vector<Sizes> sizes() {
  if (is_tiny()) return {{32, 64, 96}};
  const bool on_gpu = device().is_cuda();
  std::vector<Sizes> list;
  for (const int64_t tokens : on_gpu ? std::vector<int64_t>{8192, 16384} : std::vector<int64_t>{1024, 4096}) {
    list.insert(list.end(), {{tokens, 768, 768}, {tokens, 768, 2304}, {tokens, 768, 3072}, {tokens, 3072, 768}});
    if (!on_gpu)
      list.insert(
          list.end(),
          {{tokens, 256, 768}, {tokens, 256, 1024}, {tokens, 128, 384}, {tokens, 128, 512}, {tokens, 512, 128}});
  }
  return list;
}

const Rows rows([] {
  const int64_t tokens = scaled(device().is_cuda() ? 16384 : 4096);
  for (const DType dtype : {float32, bfloat16}) {
    for (const Sizes& s : sizes()) {
      add_product("forward", Pass::kForward, dtype, s);
      add_product("input_gradient", Pass::kInputGradient, dtype, s);
      add_product("weight_gradient", Pass::kWeightGradient, dtype, s);
      add_product("linear_gelu", Pass::kLinearGelu, dtype, s);
    }
    // The widest layer alone: what follows it is bound by memory.
    add_product("gelu_backward", Pass::kGeluBackward, dtype, {tokens, scaled(768), scaled(3072, 96)});
    add_feed_forward(dtype, {scaled(4160), scaled(192, 48), scaled(768, 96)});
    add_feed_forward(dtype, {tokens, scaled(768, 64), scaled(3072, 96)});
  }
  add_product("forward", Pass::kForward, float64, {scaled(1024), scaled(256), scaled(768)});
});

}  // namespace
}  // namespace tern::bench
