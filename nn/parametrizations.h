#pragma once
// Weights of linear layers and convolutions that are functions of parameters.

#include <optional>

#include "tern/nn/layers/convolution.h"
#include "tern/nn/layers/weight_adapter.h"

namespace tern::nn {

/// weight = g v / |v| (Salimans & Kingma, arXiv:1602.07868). v is the layer's own weight, "g" a parameter that is |v|
/// at first. g has one norm for each index of dimension dim of the weight, over all others, which have size 1 in it;
/// dim 0 is the outputs of Linear and Conv ([out, 1]), the inputs of ConvTranspose, as in PyTorch. none: one norm, of
/// all.
class WeightNorm final : public WeightAdapter {
 public:
  template <class Layer>
  WeightNorm(const Scope& s, const Layer& layer, std::optional<int> dim)
      : WeightNorm(s, layer.weight().tensor(), dim) {}
  Tensor weight(const Tensor& own) const override;

 private:
  WeightNorm(const Scope& s, const Tensor& own, std::optional<int> dim);
  Tensor norm_of(const Tensor& v) const;
  std::optional<int> dim_;
  Parameter g_;
};
WeightNorm& weight_norm(Linear& layer, std::optional<int> dim = 0);
WeightNorm& weight_norm(AnyConvolution& layer, std::optional<int> dim = 0);

struct SpectralNormOptions {
  int64_t power_iterations = 1;  // in each forward of training
  double eps = 1e-12;            // the least norm that a vector is divided by
};

/// weight = W / sigma, W the layer's own weight and sigma the estimate u W v of its largest singular value (Miyato et
/// al., arXiv:1802.05957). A row of the matrix is an output; a convolution's has columns for inputs and places in the
/// kernel. Buffers "u" [rows] and "v" [columns]: 15 power iterations when it is made, and power_iterations before each
/// use in training.
class SpectralNorm final : public WeightAdapter {
 public:
  /// output: the dimension of the weight that is the rows.
  template <class Layer>
  SpectralNorm(const Scope& s, const Layer& layer, int output, const SpectralNormOptions& options)
      : SpectralNorm(s, layer.weight().tensor(), output, options) {}
  Tensor weight(const Tensor& own) const override;

 private:
  SpectralNorm(const Scope& s, const Tensor& own, int output, const SpectralNormOptions& options);
  Tensor matrix_of(const Tensor& own) const;
  void iterate(const Tensor& matrix, int64_t count) const;
  int output_;
  SpectralNormOptions options_;
  Buffer u_, v_;
};
SpectralNorm& spectral_norm(Linear& layer, const SpectralNormOptions& options = {});
SpectralNorm& spectral_norm(ConvolutionLayer& layer, const SpectralNormOptions& options = {});
SpectralNorm& spectral_norm(TransposedConvolutionLayer& layer, const SpectralNormOptions& options = {});

/// Writes the weight in use to the layer's weight, and removes the adapter. Throws Error when the layer has none of the
/// above.
void remove_parametrization(Linear& layer);
void remove_parametrization(AnyConvolution& layer);

}  // namespace tern::nn
