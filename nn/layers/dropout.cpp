#include "tern/nn/layers/dropout.h"

namespace tern::nn {

Dropout::Dropout(const Scope& s, double p) : Module(s), p_(p) {
  TERN_CHECK(p >= 0 && p <= 1, "nn::Dropout: p must be in [0, 1], got ", p);
}

Tensor Dropout::forward(const Tensor& input, const Tensor& row_keys) const {
  return hooked(input, [&](const Tensor& x) {
    const DropoutOptions active = options(row_keys);
    return active.p > 0 ? dropout(x, active) : x;
  });
}

DropoutOptions Dropout::options(const Tensor& row_keys) const {
  return {is_training() ? p_ : 0, &generator(), row_keys};
}

FeatureDropout::FeatureDropout(const Scope& s, double p) : Module(s), p_(p) {
  TERN_CHECK(p >= 0 && p <= 1, "nn::FeatureDropout: p must be in [0, 1], got ", p);
}

Tensor FeatureDropout::forward(const Tensor& input) const {
  return hooked(input, [&](const Tensor& x) {
    return is_training() ? feature_dropout(x, {.p = p_, .generator = &generator()}) : x;
  });
}

AlphaDropout::AlphaDropout(const Scope& s, double p) : Module(s), p_(p) {
  TERN_CHECK(p >= 0 && p <= 1, "nn::AlphaDropout: p must be in [0, 1], got ", p);
}

Tensor AlphaDropout::forward(const Tensor& input) const {
  return hooked(input, [&](const Tensor& x) {
    return is_training() ? alpha_dropout(x, {.p = p_, .generator = &generator()}) : x;
  });
}

DropPath::DropPath(const Scope& s, double p, StochasticDepthMode mode) : Module(s), p_(p), mode_(mode) {
  TERN_CHECK(p >= 0 && p <= 1, "nn::DropPath: p must be in [0, 1], got ", p);
}

Tensor DropPath::forward(const Tensor& input) const {
  return hooked(input, [&](const Tensor& x) {
    return is_training() ? stochastic_depth(x, mode_, {.p = p_, .generator = &generator()}) : x;
  });
}

DropBlock::DropBlock(const Scope& s, int dims, double p, int64_t block_size)
    : Module(s), dims_(dims), p_(p), block_size_(block_size) {
  TERN_CHECK(p >= 0 && p <= 1, "nn::DropBlock: p must be in [0, 1], got ", p);
  TERN_CHECK(block_size >= 1, "nn::DropBlock: block_size must be at least 1, got ", block_size);
}

Tensor DropBlock::forward(const Tensor& input) const {
  return hooked(input, [&](const Tensor& x) {
    if (!is_training()) return x;
    return (dims_ == 2 ? drop_block2d : drop_block3d)(x, block_size_, {.p = p_, .generator = &generator()});
  });
}

}  // namespace tern::nn
