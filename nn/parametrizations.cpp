#include "tern/nn/parametrizations.h"

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/ops.h"
#include "tern/nn/init.h"

namespace tern::nn {
namespace {

Shape norms_shape(const Shape& weight, const std::optional<int>& dim) {
  TERN_CHECK(!dim || (*dim >= 0 && *dim < weight.dims()), "nn::weight_norm: dim must be in [0, ", weight.dims(),
             ") or none, got ", dim.value_or(0));
  std::vector<int64_t> sizes(static_cast<size_t>(weight.dims()), 1);
  if (dim) sizes[static_cast<size_t>(*dim)] = weight[*dim];
  return Shape(sizes);
}

/// x over its norm, which counts as eps at least.
Tensor unit_vector(const Tensor& x, double eps) { return x / clamp(norm(x), eps, INFINITY).to(x.dtype()); }

Tensor random_unit(Module& module, int64_t size, double eps) {
  TERN_CHECK(size > 0, "nn::spectral_norm: the weight of '", module.name(), "' is empty");
  return unit_vector(randn({size}, module.generator(), module.parameter_options()), eps);
}

template <class Layer>
void remove_from(Layer& layer) {
  const auto* const adapter = dynamic_cast<const WeightAdapter*>(layer.adapter());
  TERN_CHECK(adapter, "nn::remove_parametrization: '", layer.name(), "' has no weight_norm or spectral_norm");
  NoGrad off;
  Tensor weight = layer.weight();
  weight.copy_(adapter->weight(weight));
  layer.remove_adapter();
}

}  // namespace

WeightNorm::WeightNorm(const Scope& s, const Tensor& own, std::optional<int> dim)
    : WeightAdapter(s), dim_(dim), g_(this, "g", norms_shape(own.shape(), dim)) {
  NoGrad off;
  g_.copy_(norm_of(own));
}

Tensor WeightNorm::norm_of(const Tensor& v) const {
  std::vector<int> others;
  for (int d = 0; d < v.dim(); ++d)
    if (d != dim_) others.push_back(d);
  return norm(v, others, true);
}

Tensor WeightNorm::weight(const Tensor& own) const { return own * (g_ / norm_of(own)); }

WeightNorm& weight_norm(Linear& layer, std::optional<int> dim) { return layer.adapt<WeightNorm>("weight_norm", dim); }
WeightNorm& weight_norm(AnyConvolution& layer, std::optional<int> dim) {
  return layer.adapt<WeightNorm>("weight_norm", dim);
}

SpectralNorm::SpectralNorm(const Scope& s, const Tensor& own, int output, const SpectralNormOptions& options)
    : WeightAdapter(s),
      output_(output),
      options_(options),
      u_(this, "u", random_unit(*this, own.size(output), options.eps)),
      v_(this, "v", random_unit(*this, matrix_of(own).size(1), options.eps)) {
  TERN_CHECK(options.power_iterations >= 1 && options.power_iterations <= 10'000,
             "nn::spectral_norm: power_iterations must be in [1, 10000], got ", options.power_iterations);
  TERN_CHECK(options.eps > 0, "nn::spectral_norm: eps must be > 0, got ", options.eps);
  iterate(matrix_of(own), 15);
}

Tensor SpectralNorm::matrix_of(const Tensor& own) const { return own.movedim(output_, 0).flatten(1); }

void SpectralNorm::iterate(const Tensor& matrix, int64_t count) const {
  NoGrad off;
  Tensor u = u_, v = v_;
  for (int64_t i = 0; i < count; ++i) {
    u.copy_(unit_vector(matmul(matrix, v), options_.eps));
    v.copy_(unit_vector(matmul(matrix.t(), u), options_.eps));
  }
}

Tensor SpectralNorm::weight(const Tensor& own) const {
  const Tensor matrix = matrix_of(own);
  if (is_training()) iterate(matrix, options_.power_iterations);
  // Copies: the next step of training changes the buffers, which backward needs as they are now.
  const Tensor u = u_.tensor().clone(), v = v_.tensor().clone();
  return own / sum(u * matmul(matrix, v)).to(matrix.dtype());
}

SpectralNorm& spectral_norm(Linear& layer, const SpectralNormOptions& options) {
  return layer.adapt<SpectralNorm>("spectral_norm", 0, options);
}
SpectralNorm& spectral_norm(ConvolutionLayer& layer, const SpectralNormOptions& options) {
  return layer.adapt<SpectralNorm>("spectral_norm", 0, options);
}
SpectralNorm& spectral_norm(TransposedConvolutionLayer& layer, const SpectralNormOptions& options) {
  return layer.adapt<SpectralNorm>("spectral_norm", 1, options);
}

void remove_parametrization(Linear& layer) { remove_from(layer); }
void remove_parametrization(AnyConvolution& layer) { remove_from(layer); }

}  // namespace tern::nn
