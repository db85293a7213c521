#pragma once
// MobileNetV2 (Sandler et al., arXiv:1801.04381), MobileNetV3 (Howard et al., arXiv:1905.02244) and EfficientNet-B0
// (Tan & Le, arXiv:1905.11946): networks of inverted residual blocks.

#include "tern/models/cnn/cnn.h"

namespace tern::models {

/// Sizes of an inverted residual block.
struct MobileSizes {
  int64_t in = 0, expanded = 0, out = 0, kernel = 3, stride = 1;
  int64_t squeezed = 0;  // of squeeze-and-excitation; 0: without
  ImageActivation activation = ImageActivation::kRelu;
  double stochastic_depth = 0;  // probability that an image leaves the block out
};

/// What a network's blocks share.
struct MobileStyle {
  const char* member = "block";  // that the parts are members of
  bool bare_projection =
      false;  // the last convolution and its norm are two members, as in MobileNetV2, not one ConvUnit
  ImageActivation squeeze = ImageActivation::kRelu;
  SqueezeExcitation::Gate gate = SqueezeExcitation::Gate::kHardSigmoid;
  nn::BatchNormLayerOptions norm = {};
};

/// 1 x 1 convolution to more channels, depthwise convolution, squeeze-and-excitation, 1 x 1 convolution without
/// activation; x is added if the result has its shape.
class MobileBlock final : public CnnBlock {
 public:
  MobileBlock(const nn::Scope& s, const MobileSizes& sizes, const MobileStyle& style);
  Tensor forward(const Tensor& x, const Tensor& image_keys) const override;
  double flops(int64_t& side) const override;

 private:
  /// Named as torchvision does: the parts are members "0", "1", ... of one member of the block.
  class Parts final : public nn::Module {
   public:
    Parts(const nn::Scope& s, const MobileSizes& sizes, const MobileStyle& style);
    std::optional<ConvUnit> expand;
    std::optional<ConvUnit> depthwise;
    std::optional<SqueezeExcitation> squeeze;
    std::optional<ConvUnit> project;
    std::optional<nn::Conv2d> bare_conv;
    std::optional<nn::BatchNorm2d> bare_norm;
    std::optional<nn::ConvNorm> bare_project;
  };
  MobileSizes sizes_;
  Parts parts_;
};

/// Several blocks as one member: a stage of EfficientNet.
class MobileStage final : public CnnBlock {
 public:
  MobileStage(const nn::Scope& s, const std::vector<MobileSizes>& blocks, const MobileStyle& style);
  Tensor forward(const Tensor& x, const Tensor& image_keys) const override;
  double flops(int64_t& side) const override;

 private:
  std::deque<MobileBlock> blocks_;
};

class MobileNet final : public Cnn {
 public:
  MobileNet(const nn::Scope& s, const CnnConfig& config);
  std::string hidden_layers() const override { return "features."; }

 private:
  /// The dense layers: "0" linear, "3" linear for MobileNetV3; "1" linear for the others.
  class Classifier final : public nn::Module {
   public:
    Classifier(const nn::Scope& s, const CnnConfig& config, int64_t in, int64_t hidden);
    /// Without "0": x.
    Tensor hidden(const Tensor& x) const;
    Tensor forward(const Tensor& hidden, const Tensor& image_keys) const;
    double flops() const;

   private:
    double dropout_;
    std::optional<nn::Linear> hidden_;
    nn::Linear out_;
  };
  Tensor pool(const Tensor& feature_map) const override { return classifier_->hidden(Cnn::pool(feature_map)); }
  Tensor head(const Tensor& features, const Tensor& image_keys) const override {
    return classifier_->forward(features, image_keys);
  }
  double head_flops() const override { return classifier_->flops(); }

  BlockList features_;
  std::optional<Classifier> classifier_;
};

}  // namespace tern::models
