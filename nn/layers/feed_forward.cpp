#include "tern/nn/layers/feed_forward.h"

#include "tern/core/profiler/profiler.h"

namespace tern::nn {

GLU::GLU(const Scope& s, const GLUOptions& options) : Module(s), dim_(options.dim), gate_(options.gate) {
  TERN_CHECK(gate_ != nullptr, "nn::GLU: gate is an empty function");
}

Tensor GLU::forward(const Tensor& input) const {
  const ProfileRange range(name());
  return hooked(input, [&](const Tensor& x) {
    TERN_CHECK(x.size(dim_) % 2 == 0, "nn::GLU: dimension ", dim_, " must be even, got ", x.shape());
    const std::vector<Tensor> halves = x.chunk(2, dim_);
    return halves[0] * gate_(halves[1]);
  });
}

GatedFeedForward::GatedFeedForward(const Scope& s, int64_t width, int64_t hidden,
                                   const GatedFeedForwardOptions& options)
    : Module(s),
      gating_(options.gating),
      gate_proj_(sub("gate_proj"), width, hidden, options.linear),
      up_proj_(sub("up_proj"), width, hidden, options.linear),
      down_proj_(sub("down_proj"), hidden, width, options.linear) {
  TERN_CHECK(gating_ != nullptr, "nn::GatedFeedForward: gating is an empty function");
}

Tensor GatedFeedForward::forward(const Tensor& input) const {
  const ProfileRange range(name());
  return hooked(
      input, [&](const Tensor& x) { return down_proj_.forward(gating_(gate_proj_.forward(x), up_proj_.forward(x))); });
}

}  // namespace tern::nn
