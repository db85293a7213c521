#pragma once
// Weights of linear layers that are functions of parameters.

#include <optional>

#include "tern/nn/layers/linear.h"

namespace tern::nn {

/// An adapter that changes nothing but the weight.
class WeightAdapter : public LinearAdapter {
 public:
  using LinearAdapter::LinearAdapter;
  /// The weight in use, made of the layer's own.
  virtual Tensor weight(const Linear& linear) const = 0;
  Tensor forward(const Linear& linear, const Tensor& x, Activation activation) const override {
    return tern::linear(x, weight(linear), linear.bias(), activation);
  }
};

/// weight = g v / |v| (Salimans & Kingma, arXiv:1602.07868). v is the layer's own weight, "g" a parameter that is |v|
/// at first. dim 0: one norm for each output, g is [out, 1]; 1: for each input, [1, in]; none: of the matrix, [1, 1].
class WeightNorm final : public WeightAdapter {
 public:
  WeightNorm(const Scope& s, const Linear& linear, std::optional<int> dim);
  Tensor weight(const Linear& linear) const override;

 private:
  Tensor norm_of(const Tensor& v) const;
  std::optional<int> dim_;
  Parameter g_;
};
WeightNorm& weight_norm(Linear& linear, std::optional<int> dim = 0);

struct SpectralNormOptions {
  int64_t power_iterations = 1;  // in each forward of training
  double eps = 1e-12;            // the least norm that a vector is divided by
};

/// weight = W / sigma, W the layer's own weight and sigma the estimate u W v of its largest singular value (Miyato et
/// al., arXiv:1802.05957). Buffers "u" [out] and "v" [in]: 15 power iterations when it is made, and power_iterations
/// before each use in training.
class SpectralNorm final : public WeightAdapter {
 public:
  SpectralNorm(const Scope& s, const Linear& linear, const SpectralNormOptions& options);
  Tensor weight(const Linear& linear) const override;

 private:
  void iterate(const Tensor& matrix, int64_t count) const;
  SpectralNormOptions options_;
  Buffer u_, v_;
};
SpectralNorm& spectral_norm(Linear& linear, const SpectralNormOptions& options = {});

/// Writes the weight in use to the layer's weight, and removes the adapter. Throws Error when the layer has none of the
/// above.
void remove_parametrization(Linear& linear);

}  // namespace tern::nn
