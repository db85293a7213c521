#include "tern/models/onnx/ops/layers.h"

#include <algorithm>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/function.h"
#include "tern/core/ops/row_chain.h"
#include "tern/kernels/base/check.h"

namespace tern::onnx {
namespace {

struct LinearLayer {
  Tensor weight, bias = {};
  bool by_outputs;
  Activation activation;

  int64_t in() const { return weight.size(by_outputs ? 1 : 0); }
  int64_t out() const { return weight.size(by_outputs ? 0 : 1); }
  bool is_layer_of(int64_t width) const {
    return weight.dim() == 2 && is_floating(weight.dtype()) && in() == width &&
           (!bias.defined() || bias.shape() == Shape{out()});
  }
  /// By the ops of the nodes.
  Tensor of(const Tensor& x) const {
    Tensor y;
    if (by_outputs && x.dim() == 2 && is_layer_of(x.size(1))) {
      y = linear(x, weight, bias);
    } else {
      y = matmul(x, by_outputs ? weight.t() : weight);
      if (bias.defined()) y = y + bias;
    }
    return activation == Activation::kRelu ? relu(y) : activation == Activation::kGelu ? gelu(y) : y;
  }
};

struct LinearLayers {
  Tensor x, residual, gamma, beta;
  std::vector<LinearLayer> layers;
  bool has_norm;
  double eps;

  explicit LinearLayers(const Call& c)
      : x(c.in(0)), has_norm(c.has_attribute("epsilon")), eps(c.number("epsilon", 1e-5)) {
    size_t next = 1;
    for (const int64_t flags : c.numbers("layers")) {
      LinearLayer layer{.weight = c.in(next++),
                        .by_outputs = (flags & kByOutputs) != 0,
                        .activation = flags & kHasRelu   ? Activation::kRelu
                                      : flags & kHasGelu ? Activation::kGelu
                                                         : Activation::kNone};
      if (flags & kHasBias) layer.bias = c.in(next++);
      layers.push_back(std::move(layer));
    }
    if (!has_norm) return;
    residual = c.in(next);
    gamma = c.in(next + 1);
    beta = c.in_or_none(next + 2);
  }

  bool records() const {
    std::vector<const Tensor*> read = {&x, &residual, &gamma, &beta};
    for (const LinearLayer& layer : layers) read.insert(read.end(), {&layer.weight, &layer.bias});
    return tern::detail::active_trace() || tern::detail::requires_record(read.data(), static_cast<int>(read.size()));
  }

  bool are_layers() const {
    if (x.dim() < 2 || !is_floating(x.dtype())) return false;
    int64_t width = x.size(-1);
    for (const LinearLayer& layer : layers) {
      if (!layer.is_layer_of(width)) return false;
      width = layer.out();
    }
    return true;
  }

  /// In one pass, as far as the weights can be packed.
  RowChain chain(StepMemory& memory) const {
    RowChain chain(x);
    const int64_t rows = x.numel() / std::max<int64_t>(1, x.size(-1));
    for (size_t i = 0; i < layers.size(); ++i) {
      const LinearLayer& layer = layers[i];
      const Tensor weight = layer.by_outputs ? layer.weight : layer.weight.t();
      // A transposed weight that cannot be packed would be copied in each call.
      if (layer.by_outputs || tern::detail::PackedLinear::packs(rows, x, weight))
        chain.linear(weight, layer.bias, layer.activation, &memory.linears[i]);
      else
        chain.apply([&](const Tensor& before) { return layer.of(before); });
    }
    return chain;
  }

  /// Whether the norm is that of the op for sum and norm. Within an autocast region it takes the wider type.
  bool fits_norm() const {
    const int64_t width = layers.back().out();
    const bool one_type = residual.dtype() == x.dtype() || tern::autocast_enabled(x.device());
    return one_type && is_floating(residual.dtype()) && residual.shape() == x.shape().with(x.dim() - 1, width) &&
           gamma.shape() == Shape{width} && (!beta.defined() || beta.shape() == gamma.shape());
  }
  SumAndNorm separate_norm(const Tensor& rows) const {
    const Tensor sum = rows + residual;
    const bool fits = gamma.shape() == Shape{sum.size(-1)} && (!beta.defined() || beta.shape() == gamma.shape());
    if (fits) return {sum, layer_norm(sum, gamma, beta, eps)};
    const Tensor norm = layer_norm(sum, {}, {}, eps);
    return {sum, beta.defined() ? norm * gamma + beta : norm * gamma};
  }
};

void linear_layers(Call& c) {
  c.check_types();
  const LinearLayers call(c);
  SumAndNorm results;
  if (call.are_layers() && !call.records()) {
    RowChain chain = call.chain(c.memory());
    if (!call.has_norm) return c.set(chain.result());
    results = call.fits_norm() ? chain.add_norm({.residual = call.residual,
                                                 .weight = call.gamma,
                                                 .bias = call.beta,
                                                 .eps = call.eps,
                                                 .gives_sum = c.wants(1)})
                               : call.separate_norm(chain.result());
  } else {
    Tensor rows = call.x;
    for (const LinearLayer& layer : call.layers) rows = layer.of(rows);
    if (!call.has_norm) return c.set(rows);
    results = call.separate_norm(rows);
  }
  c.set(0, results.norm);
  if (c.wants(1)) c.set(1, results.sum);
}

}  // namespace

const OpRow kLinearLayers{"MatMul", 1, linear_layers};

}  // namespace tern::onnx
