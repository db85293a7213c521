#include "tern/nn/layers/layer_norm.h"

#include <cmath>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/profiler/profiler.h"
#include "tern/nn/init.h"

namespace tern::nn {

LayerNorm::LayerNorm(const Scope& s, int64_t width, const LayerNormOptions& options)
    : Module(s), width_(width), eps_(options.eps) {
  TERN_CHECK(width > 0, "nn::LayerNorm: width must be > 0, got ", width);
  TERN_CHECK(eps_ >= 0 && std::isfinite(eps_), "nn::LayerNorm: eps must be a finite number >= 0, got ", eps_);
  if (options.affine) {
    weight_.emplace(this, "weight", Shape{width}, init::ones());
    bias_.emplace(this, "bias", Shape{width});
  }
}

void LayerNorm::check_width(const Tensor& x) const {
  TERN_CHECK(x.dim() > 0 && x.size(-1) == width_, "nn::LayerNorm: the last dimension must be ", width_, ", got ",
             x.shape());
}

Tensor LayerNorm::forward(const Tensor& input, const Tensor& residual, const DropoutOptions& dropout) const {
  const ProfileRange range(name());
  return hooked(input, [&](const Tensor& x) {
    check_width(x);
    return dropout_residual_layer_norm(x, residual, weight(), bias(), eps_, dropout);
  });
}

SumAndNorm LayerNorm::end(RowChain& chain, const Tensor& residual, const DropoutOptions& dropout,
                          bool gives_sum) const {
  if (grad_enabled() || has_hooks()) {  // each layer has a range of the profile
    const Tensor rows = chain.result();
    if (!gives_sum) return {{}, forward(rows, residual, dropout)};
    const ProfileRange range(name());
    check_width(rows);
    SumAndNorm both;
    const Tensor norm = hooked(rows, [&](const Tensor& x) {
      both = dropout_residual_sum_layer_norm(x, residual, weight(), bias(), eps_, dropout);
      return both.norm;
    });
    return {both.sum, norm};
  }
  return chain.add_norm({residual, weight(), bias(), eps_, dropout, gives_sum});
}

}  // namespace tern::nn
