#pragma once

#include "tern/core/ops/image/interpolate.h"
#include "tern/nn/module.h"

namespace tern::nn {

/// torch.nn.Upsample: nn::Upsample(scope, {.scale_factor = {2}, .mode = InterpolateMode::kLinear}), the module whose
/// forward is tern::interpolate. UpsamplingNearest2d and UpsamplingBilinear2d are this with kNearest, and with kLinear
/// and align_corners.
class Upsample final : public Module {
 public:
  Upsample(const Scope& s, const InterpolateOptions& options) : Module(s), options_(options) {}
  Tensor forward(const Tensor& x) const {
    return hooked(x, [&](const Tensor& input) { return interpolate(input, options_); });
  }

 private:
  InterpolateOptions options_;
};

}  // namespace tern::nn
