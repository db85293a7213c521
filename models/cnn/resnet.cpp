#include "tern/models/cnn/resnet.h"

#include <algorithm>

namespace tern::models {
namespace {

/// The channels between squeeze and excitation: a sixteenth, in multiples of 8 (timm's make_divisible).
int64_t squeezed(int64_t channels) { return std::max<int64_t>(8, (channels / 16 + 4) / 8 * 8); }

int64_t out_channels(const ResNetSizes& sizes, int64_t width) { return sizes.bottleneck ? 4 * width : width; }
/// Channels of the convolutions within a block.
int64_t inner_channels(const ResNetSizes& sizes, int64_t width) {
  return sizes.bottleneck ? width * sizes.group_width / 64 * sizes.groups : width;
}

}  // namespace

ResNetBlock::ResNetBlock(const nn::Scope& s, const ResNetSizes& sizes, int64_t in, int64_t width, int64_t stride)
    : CnnBlock(s),
      conv1_(sub("conv1"), in, inner_channels(sizes, width), sizes.bottleneck ? 1 : 3,
             conv_options(sizes.bottleneck ? 1 : 3, sizes.bottleneck ? 1 : stride)),
      bn1_(sub("bn1"), inner_channels(sizes, width)),
      conv2_(sub("conv2"), inner_channels(sizes, width), inner_channels(sizes, width), 3,
             conv_options(3, sizes.bottleneck ? stride : 1, sizes.groups)),
      bn2_(sub("bn2"), inner_channels(sizes, width)) {
  const int64_t out = out_channels(sizes, width);
  if (sizes.bottleneck) {
    conv3_.emplace(sub("conv3"), inner_channels(sizes, width), out, 1, conv_options(1));
    bn3_.emplace(sub("bn3"), out);
    unit3_.emplace(*conv3_, *bn3_);
  }
  if (sizes.squeezes)
    se_.emplace(sub("se"), out, squeezed(out), ImageActivation::kRelu, SqueezeExcitation::Gate::kSigmoid);
  if (stride != 1 || in != out)
    downsample_.emplace(sub("downsample"), in, out, UnitOptions{.kernel = 1, .stride = stride});
}

Tensor ResNetBlock::forward(const Tensor& x, const Tensor&) const {
  const Tensor identity = downsample_ ? downsample_->forward(x) : x;
  Tensor y = unit1_.forward(x, ImageActivation::kRelu);
  if (unit3_) y = unit2_.forward(y, ImageActivation::kRelu);
  const nn::ConvNorm& last = unit3_ ? *unit3_ : unit2_;
  if (!se_) return last.forward(y, ImageActivation::kRelu, identity);
  return relu(se_->forward(last.forward(y)) + identity);
}

double ResNetBlock::flops(int64_t& side) const {
  int64_t beside = side;
  double count = downsample_ ? downsample_->flops(beside) : 0;
  count += convolution_flops(conv1_, side) + convolution_flops(conv2_, side);
  if (conv3_) count += convolution_flops(*conv3_, side);
  return count + (se_ ? se_->flops() : 0);
}

ResNet::ResNet(const nn::Scope& s, const CnnConfig& config)
    : Cnn(s, config),
      small_images_(config.small_images),
      conv1_(sub("conv1"), config.channels, 64, small_images_ ? 3 : 7,
             conv_options(small_images_ ? 3 : 7, small_images_ ? 1 : 2)),
      bn1_(sub("bn1"), 64),
      layer1_(sub("layer1")),
      layer2_(sub("layer2")),
      layer3_(sub("layer3")),
      layer4_(sub("layer4")),
      fc_(sub("fc"), out_channels(config.resnet(), 512), config.num_labels()) {
  const ResNetSizes sizes = config.resnet();
  std::vector<const CnnBlock*> blocks;
  int64_t in = 64, width = 64, number = 0;
  for (Stage* stage : {&layer1_, &layer2_, &layer3_, &layer4_}) {
    for (int64_t i = 0; i < sizes.blocks[static_cast<size_t>(number)]; ++i) {
      blocks.push_back(&stage->emplace_back(sizes, in, width, i == 0 && number > 0 ? 2 : 1));
      in = out_channels(sizes, width);
    }
    width *= 2;
    ++number;
  }
  run_in_order(blocks);
}

Tensor ResNet::stem(const Tensor& images) const {
  const Tensor x = first_.forward(images, ImageActivation::kRelu);
  return small_images_ ? x : max_pool2d(x, 3, {.stride = 2, .padding = 1});
}

double ResNet::stem_flops(int64_t& side) const {
  const double count = convolution_flops(conv1_, side);
  if (!small_images_) side = (side + 1) / 2;
  return count;
}

Tensor ResNet::head(const Tensor& features, const Tensor& image_keys) const {
  return fc_.forward(dropout(
      features, {.p = is_training() ? config().dropout : 0, .generator = &generator(), .row_keys = image_keys}));
}

}  // namespace tern::models
