#include "tern/nn/layers/linear.h"

#include <cmath>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/profiler/profiler.h"
#include "tern/nn/init.h"

namespace tern::nn {
namespace {

Shape checked_shape(int64_t in, int64_t out) {
  TERN_CHECK(in >= 0 && out >= 0, "nn::Linear: sizes must be >= 0, got in ", in, " and out ", out);
  return {out, in};
}

/// kaiming_uniform with a = sqrt(5), which torch.nn.Linear uses for weight and bias, is uniform within 1 / sqrt(in).
Initializer default_init(int64_t in) {
  const double bound = in > 0 ? 1 / std::sqrt(static_cast<double>(in)) : 0;
  return init::uniform(-bound, bound);
}

}  // namespace

Tensor activated(const Tensor& x, Activation activation) {
  return activation == Activation::kGelu ? gelu(x) : activation == Activation::kRelu ? relu(x) : x;
}

Linear::Linear(const Scope& s, int64_t in, int64_t out, const LinearOptions& options)
    : Module(s),
      weight_(options.weight ? Parameter(this, "weight", *options.weight)
                             : Parameter(this, "weight", checked_shape(in, out),
                                         options.weight_init ? options.weight_init : default_init(in))) {
  TERN_CHECK(weight_.shape() == checked_shape(in, out), "nn::Linear: the shared weight must be [", out, ", ", in,
             "], got ", weight_.shape());
  if (options.bias) bias_.emplace(this, "bias", Shape{out}, options.bias_init ? options.bias_init : default_init(in));
}

Tensor Linear::forward(const Tensor& input, Activation activation) const {
  const ProfileRange range(name());
  return hooked(input, [&](const Tensor& x) {
    if (adapter_) return adapter_->forward(*this, x, activation);
    return linear(x, weight_, bias(), activation);
  });
}

void Linear::append_to(RowChain& chain, Activation activation) const {
  // With gradients each layer has a range of the profile.
  if (adapter_ || has_hooks() || grad_enabled())
    return chain.apply([&](const Tensor& x) { return forward(x, activation); });
  chain.linear(weight_, bias(), activation);
}

std::pair<Tensor, Tensor> Linear::forward_parts(const Tensor& first, const Tensor& second, int64_t cut) const {
  if (!adapter_ && !has_hooks()) return linear_pair(first, second, weight_, bias(), cut);
  return {forward(first).slice(-1, 0, cut), forward(second).slice(-1, cut, weight_.tensor().size(0))};
}

}  // namespace tern::nn
