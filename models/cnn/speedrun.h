#pragma once

#include "tern/models/cnn/cnn.h"

namespace tern::models {

/// Two 3 x 3 convolutions with 2 x 2 max pooling behind the first, each followed by batch norm (its scale fixed to 1)
/// and GELU.
class SpeedrunBlock final : public CnnBlock {
 public:
  SpeedrunBlock(const nn::Scope& s, int64_t in, int64_t out);
  Tensor forward(const Tensor& x, const Tensor& image_keys) const override;
  double flops(int64_t& side) const override;

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d norm1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d norm2_;
  nn::ConvNorm second_{conv2_, norm2_};
};

/// The network of Jordan, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU" (arXiv:2404.00498), for small images: 2 x 2
/// patches are whitened by a fixed convolution, three blocks of 64, 256 and 256 channels follow, and a linear layer
/// without bias reads the largest value of each channel. Kernels begin as identities.
class Speedrun final : public Cnn {
 public:
  Speedrun(const nn::Scope& s, const CnnConfig& config);
  std::string hidden_layers() const override { return "layers."; }
  bool keeps_hidden_norms() const override { return true; }
  /// The whitening: eigenvectors of the covariance of the images' patches, divided by the roots of their eigenvalues,
  /// and their negatives.
  void initialize(const std::function<Tensor(int64_t n)>& first_images) override;

 private:
  Tensor stem(const Tensor& images) const override;
  double stem_flops(int64_t& side) const override { return convolution_flops(whiten_, side); }
  Tensor pool(const Tensor& feature_map) const override;
  Tensor head(const Tensor& features, const Tensor& image_keys) const override;
  double head_flops() const override { return 2.0 * static_cast<double>(head_.weight().shape().numel()); }

  nn::Conv2d whiten_;
  nn::ModuleList<SpeedrunBlock> layers_;
  nn::Linear head_;
};

}  // namespace tern::models
