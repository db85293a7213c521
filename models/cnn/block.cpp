#include "tern/models/cnn/block.h"

#include "tern/core/ops/ops.h"

namespace tern::models {

double convolution_flops(const nn::Conv2d& conv, int64_t& side) {
  const Shape& weight = conv.weight().shape();
  const auto& options = conv.options();
  const int64_t stride = options.stride.of("flops", "stride", 2)[0],
                padding = options.padding.of("flops", "padding", 2)[0];
  side = (side + 2 * padding - weight[2]) / stride + 1;
  return 2.0 * static_cast<double>(weight.numel()) * static_cast<double>(side * side);
}

nn::ConvOptions conv_options(int64_t kernel, int64_t stride, int64_t groups) {
  return {.stride = stride,
          .padding = (kernel - 1) / 2,
          .groups = groups,
          .bias = false,
          .weight_init = nn::init::kaiming_normal(
              {.mode = nn::init::FanMode::kOut, .nonlinearity = nn::init::Nonlinearity::kRelu})};
}

namespace {
nn::ConvOptions with_bias(nn::ConvOptions options) {
  options.bias = true;
  options.bias_init = nn::init::zeros();
  return options;
}
}  // namespace

ConvUnit::ConvUnit(const nn::Scope& s, int64_t in, int64_t out, const UnitOptions& options)
    : CnnBlock(s),
      conv_(sub("0"), in, out, options.kernel, conv_options(options.kernel, options.stride, options.groups)),
      norm_(sub("1"), out, options.norm),
      activation_(options.activation) {}

Tensor ConvUnit::forward(const Tensor& x, const Tensor&) const { return unit_.forward(x, activation_); }

SqueezeExcitation::SqueezeExcitation(const nn::Scope& s, int64_t channels, int64_t squeezed, ImageActivation activation,
                                     Gate gate)
    : Module(s),
      fc1_(sub("fc1"), channels, squeezed, 1, with_bias(conv_options(1))),
      fc2_(sub("fc2"), squeezed, channels, 1, with_bias(conv_options(1))),
      activation_(activation),
      gate_(gate) {}

Tensor SqueezeExcitation::forward(const Tensor& x) const {
  const Tensor squeezed = activate(fc1_.forward(mean(x, {2, 3}, true)), activation_);
  const Tensor scale = fc2_.forward(squeezed);
  return x * (gate_ == Gate::kSigmoid ? sigmoid(scale) : hardsigmoid(scale));
}

double SqueezeExcitation::flops() const {
  return 2.0 * static_cast<double>(fc1_.weight().shape().numel() + fc2_.weight().shape().numel());
}

}  // namespace tern::models
