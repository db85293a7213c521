#include "tern/nn/layers/conv_norm.h"

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/convolution/epilogue.h"
#include "tern/core/ops/pointwise/pointwise.h"

namespace tern::nn {

ConvNorm::ConvNorm(const Conv2d& conv, const BatchNorm2d& norm)
    : conv_(conv), norm_(norm), packed_(std::make_shared<detail::PackedWeight>()) {
  TERN_CHECK(norm.channels() == conv.weight().shape()[0], "nn::ConvNorm: the convolution '", conv.name(), "' gives ",
             conv.weight().shape()[0], " channels, the norm '", norm.name(), "' takes ", norm.channels());
}

bool ConvNorm::can_fold() const {
  return !grad_enabled() && !conv_.adapter() && !norm_.is_training() && norm_.running_mean().defined() &&
         !conv_.has_hooks() && !norm_.has_hooks() && conv_.options().padding_mode == PadMode::kConstant;
}

ConvNorm::Folded ConvNorm::folded() const {
  const Tensor tensors[] = {conv_.weight(), conv_.bias(),         norm_.weight(),
                            norm_.bias(),   norm_.running_mean(), norm_.running_var()};
  std::array<Source, 6> now;
  for (size_t i = 0; i < now.size(); ++i)
    if (tensors[i].defined()) now[i] = {tensors[i].raw_data(), tensors[i].version()};
  const std::lock_guard lock(mutex_);
  if (folded_.weight.defined() && now == sources_) return folded_;
  const auto& [weight, bias, gamma, beta, mean, var] = tensors;
  const DType wide = mean.dtype();
  Tensor scale = rsqrt(var + norm_.eps()), shift = -mean;
  if (gamma.defined()) scale = scale * gamma.to(wide);
  if (bias.defined()) shift = shift + bias.to(wide);
  shift = shift * scale;
  if (beta.defined()) shift = shift + beta.to(wide);
  folded_ = {(weight.to(wide) * scale.reshape({-1, 1, 1, 1})).to(weight.dtype()), shift.to(weight.dtype())};
  sources_ = now;
  return folded_;
}

Tensor ConvNorm::forward(const Tensor& x, ImageActivation activation, const Tensor& residual) const {
  if (!can_fold()) return norm_.forward(conv_.forward(x), activation, residual);
  const auto [weight, bias] = folded();
  const ConvOptions& o = conv_.options();
  return detail::conv2d_with_epilogue(
      x, weight, bias,
      {.stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups, .same = o.same}, residual,
      activation, *packed_);
}

}  // namespace tern::nn
