#include "tern/nn/layers/rms_norm.h"

#include <cmath>

#include "tern/core/ops/norm/norm.h"
#include "tern/core/profiler/profiler.h"
#include "tern/nn/init.h"

namespace tern::nn {

RMSNorm::RMSNorm(const Scope& s, int64_t width, const RMSNormOptions& options)
    : Module(s), width_(width), eps_(options.eps) {
  TERN_CHECK(width > 0, "nn::RMSNorm: width must be > 0, got ", width);
  TERN_CHECK(!eps_ || (*eps_ >= 0 && std::isfinite(*eps_)), "nn::RMSNorm: eps must be a finite number >= 0, got ",
             eps_.value_or(0));
  if (options.affine) weight_.emplace(this, "weight", Shape{width}, init::ones());
}

Tensor RMSNorm::forward(const Tensor& input) const {
  const ProfileRange range(name());
  return hooked(input, [&](const Tensor& x) {
    TERN_CHECK(x.dim() > 0 && x.size(-1) == width_, "nn::RMSNorm: the last dimension must be ", width_, ", got ",
               x.shape());
    return rms_norm(x, weight_ ? weight_->tensor() : Tensor(), eps_);
  });
}

}  // namespace tern::nn
