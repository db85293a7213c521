#include "tern/nn/layers/convolution.h"

#include <cmath>

#include "tern/core/profiler/profiler.h"
#include "tern/nn/init.h"

namespace tern::nn {
namespace {

/// [out, in / groups, kernel...], or of a transposed convolution [in, out / groups, kernel...].
Shape weight_shape(const char* layer, int dims, int64_t in, int64_t out, int64_t groups, const SpatialSizes& kernel,
                   bool transposed) {
  TERN_CHECK(groups >= 1 && in >= 1 && out >= 1 && in % groups == 0 && out % groups == 0, layer, ": groups (", groups,
             ") must divide the channels of input and output, which are ", in, " and ", out, " here and must not be 0");
  std::vector<int64_t> sizes =
      transposed ? std::vector<int64_t>{in, out / groups} : std::vector<int64_t>{out, in / groups};
  for (const int64_t size : kernel.of(layer, "kernel", dims)) {
    TERN_CHECK(size >= 1, layer, ": a kernel's size must be at least 1, got ", size);
    sizes.push_back(size);
  }
  return Shape(sizes);
}

/// kaiming_uniform with a = sqrt(5), which torch.nn uses for weight and bias, is uniform within 1 / sqrt(fan in).
Initializer default_init(const Shape& weight) {
  const double bound = 1 / std::sqrt(static_cast<double>(weight.numel() / weight[0]));
  return init::uniform(-bound, bound);
}

}  // namespace

AnyConvolution::AnyConvolution(const Scope& s, const Shape& weight, int64_t bias, const Initializer& weight_init,
                               const Initializer& bias_init)
    : Module(s), weight_(this, "weight", weight, weight_init ? weight_init : default_init(weight)) {
  if (bias > 0) bias_.emplace(this, "bias", Shape{bias}, bias_init ? bias_init : default_init(weight));
}

ConvolutionLayer::ConvolutionLayer(const Scope& s, int dims, int64_t in, int64_t out, const SpatialSizes& kernel,
                                   const ConvOptions& options)
    : AnyConvolution(s, weight_shape("nn::Conv", dims, in, out, options.groups, kernel, false), options.bias ? out : 0,
                     options.weight_init, options.bias_init),
      dims_(dims),
      options_(options) {}

Tensor ConvolutionLayer::forward(const Tensor& input) const {
  const ProfileRange range(name());
  return hooked(input, [&](const Tensor& given) {
    ConvolutionOptions options{.stride = options_.stride,
                               .padding = options_.padding,
                               .dilation = options_.dilation,
                               .groups = options_.groups,
                               .same = options_.same};
    Tensor x = given;
    if (options_.padding_mode != PadMode::kConstant) {
      // The last dimension's padding comes first.
      std::vector<int64_t> around;
      const std::vector<int64_t> padding = options_.padding.of("nn::Conv", "padding", dims_);
      const std::vector<int64_t> dilation = options_.dilation.of("nn::Conv", "dilation", dims_);
      for (int d = dims_ - 1; d >= 0; --d) {
        const auto i = static_cast<size_t>(d);
        const int64_t total = dilation[i] * (weight().shape()[d + 2] - 1);
        around.push_back(options_.same ? total / 2 : padding[i]);
        around.push_back(options_.same ? total - total / 2 : padding[i]);
      }
      x = pad(x, around, options_.padding_mode);
      options.padding = 0;
      options.same = false;
    }
    const auto convolution = dims_ == 1 ? conv1d : dims_ == 2 ? conv2d : conv3d;
    return convolution(x, weight_in_use(), bias(), options);
  });
}

TransposedConvolutionLayer::TransposedConvolutionLayer(const Scope& s, int dims, int64_t in, int64_t out,
                                                       const SpatialSizes& kernel, const ConvTransposeOptions& options)
    : AnyConvolution(s, weight_shape("nn::ConvTranspose", dims, in, out, options.groups, kernel, true),
                     options.bias ? out : 0, options.weight_init, options.bias_init),
      dims_(dims),
      options_(options) {}

Tensor TransposedConvolutionLayer::forward(const Tensor& input) const {
  const ProfileRange range(name());
  return hooked(input, [&](const Tensor& x) {
    const auto convolution = dims_ == 1 ? conv_transpose1d : dims_ == 2 ? conv_transpose2d : conv_transpose3d;
    return convolution(x, weight_in_use(), bias(),
                       {.stride = options_.stride,
                        .padding = options_.padding,
                        .output_padding = options_.output_padding,
                        .dilation = options_.dilation,
                        .groups = options_.groups});
  });
}

}  // namespace tern::nn
