#include "tern/models/cnn/mobile.h"

#include <algorithm>
#include <cmath>

namespace tern::models {
namespace {

using Act = ImageActivation;

/// A network: the first convolution's channels, the blocks (one list for each member of "features"), the channels of
/// the last convolution and of the hidden dense layer (0: none).
struct Plan {
  int64_t first = 32;
  Act first_activation = Act::kRelu6, last_activation = Act::kRelu6;
  std::vector<std::vector<MobileSizes>> stages = {};
  bool staged = false;  // a member of "features" is a list of blocks
  int64_t last = 1280, hidden = 0;
  MobileStyle style = {};
};

/// The nearest multiple of 8 that is not more than a tenth smaller (torchvision's _make_divisible).
int64_t multiple_of_8(int64_t channels) {
  const int64_t rounded = std::max<int64_t>(8, (channels + 4) / 8 * 8);
  return 10 * rounded < 9 * channels ? rounded + 8 : rounded;
}

Plan mobilenet_v2() {
  Plan plan{.style = {.member = "conv", .bare_projection = true}};
  const struct {
    int64_t expansion, out, count, stride;
  } stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  int64_t in = plan.first;
  for (const auto& stage : stages)
    for (int64_t i = 0; i < stage.count; ++i) {
      plan.stages.push_back({{.in = in,
                              .expanded = stage.expansion * in,
                              .out = stage.out,
                              .stride = i == 0 ? stage.stride : 1,
                              .activation = Act::kRelu6}});
      in = stage.out;
    }
  return plan;
}

Plan mobilenet_v3(bool large) {
  struct Row {
    int64_t kernel, expanded, out;
    bool squeezes, hard_swish;
    int64_t stride;
  };
  // Tables 1 and 2 of the paper.
  const std::vector<Row> rows =
      large ? std::vector<Row>{{3, 16, 16, false, false, 1}, {3, 64, 24, false, false, 2}, {3, 72, 24, false, false, 1},
                               {5, 72, 40, true, false, 2},  {5, 120, 40, true, false, 1}, {5, 120, 40, true, false, 1},
                               {3, 240, 80, false, true, 2}, {3, 200, 80, false, true, 1}, {3, 184, 80, false, true, 1},
                               {3, 184, 80, false, true, 1}, {3, 480, 112, true, true, 1}, {3, 672, 112, true, true, 1},
                               {5, 672, 160, true, true, 2}, {5, 960, 160, true, true, 1}, {5, 960, 160, true, true, 1}}
            : std::vector<Row>{{3, 16, 16, true, false, 2}, {3, 72, 24, false, false, 2}, {3, 88, 24, false, false, 1},
                               {5, 96, 40, true, true, 2},  {5, 240, 40, true, true, 1},  {5, 240, 40, true, true, 1},
                               {5, 120, 48, true, true, 1}, {5, 144, 48, true, true, 1},  {5, 288, 96, true, true, 2},
                               {5, 576, 96, true, true, 1}, {5, 576, 96, true, true, 1}};
  Plan plan{.first = 16, .first_activation = Act::kHardSwish, .last_activation = Act::kHardSwish};
  plan.style.norm = {.eps = 1e-3, .momentum = 0.01};
  int64_t in = plan.first;
  for (const Row& row : rows) {
    plan.stages.push_back({{.in = in,
                            .expanded = row.expanded,
                            .out = row.out,
                            .kernel = row.kernel,
                            .stride = row.stride,
                            .squeezed = row.squeezes ? multiple_of_8(row.expanded / 4) : 0,
                            .activation = row.hard_swish ? Act::kHardSwish : Act::kRelu}});
    in = row.out;
  }
  plan.last = 6 * in;
  plan.hidden = large ? 1280 : 1024;
  return plan;
}

Plan efficientnet_b0(double stochastic_depth) {
  const struct {
    int64_t expansion, kernel, stride, out, count;
  } stages[] = {{1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
                {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};
  Plan plan{.first_activation = Act::kSilu, .last_activation = Act::kSilu, .staged = true};
  plan.style.squeeze = Act::kSilu;
  plan.style.gate = SqueezeExcitation::Gate::kSigmoid;
  double all = 0;
  for (const auto& stage : stages) all += static_cast<double>(stage.count);
  int64_t in = plan.first;
  double number = 0;
  for (const auto& stage : stages) {
    plan.stages.emplace_back();
    for (int64_t i = 0; i < stage.count; ++i) {
      plan.stages.back().push_back({.in = in,
                                    .expanded = stage.expansion * in,
                                    .out = stage.out,
                                    .kernel = stage.kernel,
                                    .stride = i == 0 ? stage.stride : 1,
                                    .squeezed = std::max<int64_t>(1, in / 4),
                                    .activation = Act::kSilu,
                                    .stochastic_depth = stochastic_depth * number++ / all});
      in = stage.out;
    }
  }
  return plan;
}

Plan plan_of(const CnnConfig& config) {
  switch (config.kind()) {
    case CnnKind::kMobileNetV2:
      return mobilenet_v2();
    case CnnKind::kMobileNetV3Small:
      return mobilenet_v3(false);
    case CnnKind::kMobileNetV3Large:
      return mobilenet_v3(true);
    case CnnKind::kEfficientNetB0:
      return efficientnet_b0(config.stochastic_depth);
    case CnnKind::kResNet:
    case CnnKind::kSpeedrun:
      break;
  }
  fail("MobileNet: ", config.architecture, " is no network of inverted residual blocks");
}

/// torchvision's: normal with a deviation of 0.01 for MobileNets, uniform for EfficientNet.
nn::LinearOptions dense_options(const CnnConfig& config, int64_t out) {
  const double bound = 1 / std::sqrt(static_cast<double>(out));
  return {.weight_init =
              config.kind() == CnnKind::kEfficientNetB0 ? nn::init::uniform(-bound, bound) : nn::init::normal(0, 0.01),
          .bias_init = nn::init::zeros()};
}

}  // namespace

MobileBlock::Parts::Parts(const nn::Scope& s, const MobileSizes& sizes, const MobileStyle& style) : Module(s) {
  int64_t number = 0;
  const auto next = [&] { return sub(std::to_string(number++)); };
  if (sizes.expanded != sizes.in)
    expand.emplace(next(), sizes.in, sizes.expanded,
                   UnitOptions{.kernel = 1, .activation = sizes.activation, .norm = style.norm});
  depthwise.emplace(next(), sizes.expanded, sizes.expanded,
                    UnitOptions{.kernel = sizes.kernel,
                                .stride = sizes.stride,
                                .groups = sizes.expanded,
                                .activation = sizes.activation,
                                .norm = style.norm});
  if (sizes.squeezed > 0) squeeze.emplace(next(), sizes.expanded, sizes.squeezed, style.squeeze, style.gate);
  if (!style.bare_projection) {
    project.emplace(next(), sizes.expanded, sizes.out, UnitOptions{.kernel = 1, .norm = style.norm});
    return;
  }
  bare_conv.emplace(next(), sizes.expanded, sizes.out, 1, conv_options(1));
  bare_norm.emplace(next(), sizes.out, style.norm);
  bare_project.emplace(*bare_conv, *bare_norm);
}

MobileBlock::MobileBlock(const nn::Scope& s, const MobileSizes& sizes, const MobileStyle& style)
    : CnnBlock(s), sizes_(sizes), parts_(sub(style.member), sizes, style) {}

Tensor MobileBlock::forward(const Tensor& x, const Tensor& image_keys) const {
  Tensor y = parts_.expand ? parts_.expand->forward(x) : x;
  y = parts_.depthwise->forward(y);
  if (parts_.squeeze) y = parts_.squeeze->forward(y);
  const bool adds = sizes_.stride == 1 && sizes_.in == sizes_.out;
  const nn::ConvNorm& project = parts_.project ? parts_.project->unit() : *parts_.bare_project;
  const double p = is_training() ? sizes_.stochastic_depth : 0;
  if (!adds || p == 0) return project.forward(y, ImageActivation::kNone, adds ? x : Tensor());
  // One number for each image: 0, or what keeps the mean.
  const Tensor kept = dropout(ones({x.size(0), 1}, {x.dtype(), x.device()}),
                              {.p = p, .generator = &generator(), .row_keys = image_keys});
  return project.forward(y) * kept.reshape({-1, 1, 1, 1}) + x;
}

double MobileBlock::flops(int64_t& side) const {
  double count = parts_.expand ? parts_.expand->flops(side) : 0;
  count += parts_.depthwise->flops(side);
  if (parts_.squeeze) count += parts_.squeeze->flops();
  return count + (parts_.project ? parts_.project->flops(side) : convolution_flops(*parts_.bare_conv, side));
}

MobileStage::MobileStage(const nn::Scope& s, const std::vector<MobileSizes>& blocks, const MobileStyle& style)
    : CnnBlock(s) {
  for (const MobileSizes& block : blocks) blocks_.emplace_back(sub(std::to_string(blocks_.size())), block, style);
}

Tensor MobileStage::forward(const Tensor& x, const Tensor& image_keys) const {
  Tensor y = x;
  for (const MobileBlock& block : blocks_) y = block.forward(y, image_keys);
  return y;
}

double MobileStage::flops(int64_t& side) const {
  double count = 0;
  for (const MobileBlock& block : blocks_) count += block.flops(side);
  return count;
}

MobileNet::Classifier::Classifier(const nn::Scope& s, const CnnConfig& config, int64_t in, int64_t hidden)
    : Module(s),
      dropout_(config.dropout),
      out_(sub(hidden > 0 ? "3" : "1"), hidden > 0 ? hidden : in, config.num_labels(),
           dense_options(config, config.num_labels())) {
  if (hidden > 0) hidden_.emplace(sub("0"), in, hidden, dense_options(config, hidden));
}

Tensor MobileNet::Classifier::hidden(const Tensor& x) const { return hidden_ ? hardswish(hidden_->forward(x)) : x; }

Tensor MobileNet::Classifier::forward(const Tensor& hidden, const Tensor& image_keys) const {
  return out_.forward(
      dropout(hidden, {.p = is_training() ? dropout_ : 0, .generator = &generator(), .row_keys = image_keys}));
}

double MobileNet::Classifier::flops() const {
  return 2.0 * static_cast<double>(out_.weight().shape().numel() + (hidden_ ? hidden_->weight().shape().numel() : 0));
}

MobileNet::MobileNet(const nn::Scope& s, const CnnConfig& config) : Cnn(s, config), features_(sub("features")) {
  const Plan plan = plan_of(config);
  std::vector<const CnnBlock*> blocks;
  const auto unit = [&](int64_t in, int64_t out, int64_t kernel, int64_t stride, Act activation) {
    blocks.push_back(&features_.add<ConvUnit>(
        in, out, UnitOptions{.kernel = kernel, .stride = stride, .activation = activation, .norm = plan.style.norm}));
  };
  unit(config.channels, plan.first, 3, config.small_images ? 1 : 2, plan.first_activation);
  for (const std::vector<MobileSizes>& stage : plan.stages)
    if (plan.staged)
      blocks.push_back(&features_.add<MobileStage>(stage, plan.style));
    else
      blocks.push_back(&features_.add<MobileBlock>(stage[0], plan.style));
  unit(plan.stages.back().back().out, plan.last, 1, 1, plan.last_activation);
  classifier_.emplace(sub("classifier"), config, plan.last, plan.hidden);
  run_in_order(blocks);
}

}  // namespace tern::models
