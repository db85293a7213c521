#include "tern/nn/layers/dropout.h"

#include "tern/core/ops/pointwise.h"

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

DropPath::DropPath(const Scope& s, double p) : Module(s), p_(p) {
  TERN_CHECK(p >= 0 && p <= 1, "nn::DropPath: p must be in [0, 1], got ", p);
}

Tensor DropPath::forward(const Tensor& input) const {
  return hooked(input, [&](const Tensor& x) {
    if (!is_training() || p_ == 0) return x;
    TERN_CHECK(x.dim() > 0, "nn::DropPath: x must be [samples, ...], got ", x.shape());
    std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
    sizes[0] = x.size(0);
    return x * dropout(ones({x.size(0), 1}, x.options()), {.p = p_, .generator = &generator()}).reshape(sizes);
  });
}

}  // namespace tern::nn
