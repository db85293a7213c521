#include "tern/nn/parametrizations.h"

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/ops.h"
#include "tern/nn/init.h"

namespace tern::nn {
namespace {

Shape norms_shape(const Linear& linear, const std::optional<int>& dim) {
  TERN_CHECK(!dim || *dim == 0 || *dim == 1, "nn::weight_norm: dim must be 0, 1 or none, got ", dim.value_or(0));
  const Shape& shape = linear.weight().shape();
  return {dim == 0 ? shape[0] : 1, dim == 1 ? shape[1] : 1};
}

/// x over its norm, which counts as eps at least.
Tensor unit_vector(const Tensor& x, double eps) { return x / clamp(norm(x), eps, INFINITY).to(x.dtype()); }

Tensor random_unit(Module& module, int64_t size, double eps) {
  TERN_CHECK(size > 0, "nn::spectral_norm: the weight of '", module.name(), "' is empty");
  return unit_vector(randn({size}, module.generator(), module.parameter_options()), eps);
}

}  // namespace

WeightNorm::WeightNorm(const Scope& s, const Linear& linear, std::optional<int> dim)
    : WeightAdapter(s), dim_(dim), g_(this, "g", norms_shape(linear, dim)) {
  NoGrad off;
  g_.copy_(norm_of(linear.weight()));
}

Tensor WeightNorm::norm_of(const Tensor& v) const {
  return dim_ ? norm(v, {1 - *dim_}, true) : norm(v).reshape({1, 1});
}

Tensor WeightNorm::weight(const Linear& linear) const {
  const Tensor v = linear.weight();
  return v * (g_ / norm_of(v));
}

WeightNorm& weight_norm(Linear& linear, std::optional<int> dim) { return linear.adapt<WeightNorm>("weight_norm", dim); }

SpectralNorm::SpectralNorm(const Scope& s, const Linear& linear, const SpectralNormOptions& options)
    : WeightAdapter(s),
      options_(options),
      u_(this, "u", random_unit(*this, linear.weight().shape()[0], options.eps)),
      v_(this, "v", random_unit(*this, linear.weight().shape()[1], options.eps)) {
  TERN_CHECK(options.power_iterations >= 1, "nn::spectral_norm: power_iterations must be >= 1, got ",
             options.power_iterations);
  TERN_CHECK(options.eps > 0, "nn::spectral_norm: eps must be > 0, got ", options.eps);
  iterate(linear.weight(), 15);
}

void SpectralNorm::iterate(const Tensor& matrix, int64_t count) const {
  NoGrad off;
  Tensor u = u_, v = v_;
  for (int64_t i = 0; i < count; ++i) {
    u.copy_(unit_vector(matmul(matrix, v), options_.eps));
    v.copy_(unit_vector(matmul(matrix.t(), u), options_.eps));
  }
}

Tensor SpectralNorm::weight(const Linear& linear) const {
  const Tensor matrix = linear.weight();
  if (is_training()) iterate(matrix, options_.power_iterations);
  // Copies: the next step of training changes the buffers, which backward needs as they are now.
  const Tensor u = u_.tensor().clone(), v = v_.tensor().clone();
  return matrix / sum(u * matmul(matrix, v)).to(matrix.dtype());
}

SpectralNorm& spectral_norm(Linear& linear, const SpectralNormOptions& options) {
  return linear.adapt<SpectralNorm>("spectral_norm", options);
}

void remove_parametrization(Linear& linear) {
  const auto* const adapter = dynamic_cast<const WeightAdapter*>(linear.adapter());
  TERN_CHECK(adapter, "nn::remove_parametrization: '", linear.name(), "' has no weight_norm or spectral_norm");
  NoGrad off;
  Tensor weight = linear.weight();
  weight.copy_(adapter->weight(linear));
  linear.remove_adapter();
}

}  // namespace tern::nn
