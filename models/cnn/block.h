#pragma once
// The parts of which convolutional networks are built, with torchvision's names of parameters.

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "tern/nn/nn.h"

namespace tern::models {

/// A part of a network that maps images to images.
class CnnBlock : public nn::Module {
 public:
  using Module::Module;
  /// image_keys: see ImageClassifier::forward.
  virtual Tensor forward(const Tensor& x, const Tensor& image_keys) const = 0;
  /// Floating-point operations for one image of `side` pixels a side, which becomes the result's side.
  virtual double flops(int64_t& side) const = 0;
};

/// Operations of a convolution (two per multiply-add) of a square image; `side` becomes the result's.
double convolution_flops(const nn::Conv2d& conv, int64_t& side);

struct UnitOptions {
  int64_t kernel = 3, stride = 1, groups = 1;
  ImageActivation activation = ImageActivation::kNone;
  nn::BatchNormLayerOptions norm = {};
};

/// Convolution without bias, batch norm and activation: torchvision's Conv2dNormActivation, members "0" and "1".
class ConvUnit final : public CnnBlock {
 public:
  ConvUnit(const nn::Scope& s, int64_t in, int64_t out, const UnitOptions& options);
  Tensor forward(const Tensor& x, const Tensor& image_keys = {}) const override;
  double flops(int64_t& side) const override { return convolution_flops(conv_, side); }
  const nn::ConvNorm& unit() const { return unit_; }

 private:
  nn::Conv2d conv_;
  nn::BatchNorm2d norm_;
  ImageActivation activation_;
  nn::ConvNorm unit_{conv_, norm_};
};

/// Squeeze-and-excitation (Hu et al., arXiv:1709.01507): x times gate(fc2(activation(fc1(mean of x)))), a factor for
/// each channel of each image.
class SqueezeExcitation final : public nn::Module {
 public:
  enum class Gate { kSigmoid, kHardSigmoid };
  SqueezeExcitation(const nn::Scope& s, int64_t channels, int64_t squeezed, ImageActivation activation, Gate gate);
  Tensor forward(const Tensor& x) const;
  double flops() const;

 private:
  nn::Conv2d fc1_, fc2_;
  ImageActivation activation_;
  Gate gate_;
};

/// Blocks of different classes: members "0", "1", ...
class BlockList final : public nn::Module {
 public:
  explicit BlockList(const nn::Scope& s) : Module(s) {}
  template <class Block, class... Args>
  const Block& add(const Args&... args) {
    auto block = std::make_unique<Block>(sub(std::to_string(blocks_.size())), args...);
    const Block& added = *block;
    blocks_.push_back(std::move(block));
    return added;
  }

 private:
  std::deque<std::unique_ptr<CnnBlock>> blocks_;
};

/// He et al., arXiv:1502.01852, by the number of outputs: torchvision's initial values of convolutions.
nn::ConvOptions conv_options(int64_t kernel, int64_t stride = 1, int64_t groups = 1);

}  // namespace tern::models
