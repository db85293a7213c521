#pragma once

#include "tern/models/cnn/cnn.h"

namespace tern::models {

/// A residual block: two 3 x 3 convolutions, or 1 x 1, 3 x 3 (with the stride and the groups) and 1 x 1.
class ResNetBlock final : public CnnBlock {
 public:
  /// width: of the stage, 64 in the first; the result has 4 width channels with a bottleneck, otherwise width.
  ResNetBlock(const nn::Scope& s, const ResNetSizes& sizes, int64_t in, int64_t width, int64_t stride);
  Tensor forward(const Tensor& x, const Tensor& image_keys) const override;
  double flops(int64_t& side) const override;

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d bn2_;
  std::optional<nn::Conv2d> conv3_;
  std::optional<nn::BatchNorm2d> bn3_;
  std::optional<SqueezeExcitation> se_;
  std::optional<ConvUnit> downsample_;
  nn::ConvNorm unit1_{conv1_, bn1_}, unit2_{conv2_, bn2_};
  std::optional<nn::ConvNorm> unit3_;
};

/// ResNet, ResNeXt and SE-ResNet. Names of parameters: torchvision's; "se" as in timm.
class ResNet final : public Cnn {
 public:
  ResNet(const nn::Scope& s, const CnnConfig& config);
  std::string hidden_layers() const override { return "layer"; }

 private:
  Tensor stem(const Tensor& images) const override;
  double stem_flops(int64_t& side) const override;
  Tensor head(const Tensor& features, const Tensor& image_keys) const override;
  double head_flops() const override { return 2.0 * static_cast<double>(fc_.weight().shape().numel()); }

  using Stage = nn::ModuleList<ResNetBlock>;
  bool small_images_;
  nn::Conv2d conv1_;
  nn::BatchNorm2d bn1_;
  Stage layer1_, layer2_, layer3_, layer4_;
  nn::Linear fc_;
  nn::ConvNorm first_{conv1_, bn1_};
};

}  // namespace tern::models
