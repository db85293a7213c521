#pragma once
// Convolutions of channels-last images: [batch, depth, height, width, channels]. One- and two-dimensional ones have a
// depth (and height) of 1. A transposed convolution is convolution_backward_input, and its gradients are the other two.
//
// On the CPU: oneDNN for fp32, and for bf16 where the CPU multiplies it, and code of our own where that is faster
// (kernels/cpu/convolution/choose.cpp). On CUDA: cuDNN in these types and fp16, and kernels of our own for depthwise
// convolutions. Otherwise the inputs of each output are a row of a matrix (images_to_columns), which is multiplied with
// the weight (Chellapilla et al., "High Performance Convolutional Neural Networks for Document Processing", 2006).

#include <array>
#include <compare>

#include "tern/kernels/image_activation.h"
#include "tern/kernels/kernel.h"

namespace tern::kernels {

/// The sizes of a convolution; arrays are depth, height, width. Output o reads inputs o * stride - padding + k *
/// dilation for k < kernel; those outside the image are 0. Output channel o reads the in_channels / groups channels of
/// its group, o / (out_channels / groups).
struct ConvolutionShape {
  int64_t batch = 1, in_channels = 1, out_channels = 1, groups = 1;
  std::array<int64_t, 3> in = {1, 1, 1}, out = {1, 1, 1}, kernel = {1, 1, 1};
  std::array<int64_t, 3> stride = {1, 1, 1}, padding = {0, 0, 0}, dilation = {1, 1, 1};

  auto operator<=>(const ConvolutionShape&) const = default;
  TERN_HD int64_t in_pixels() const { return in[0] * in[1] * in[2]; }
  TERN_HD int64_t out_pixels() const { return out[0] * out[1] * out[2]; }
  TERN_HD int64_t kernel_size() const { return kernel[0] * kernel[1] * kernel[2]; }
  TERN_HD int64_t group_in() const { return in_channels / groups; }
  TERN_HD int64_t group_out() const { return out_channels / groups; }
  /// Multiplications of an output element.
  TERN_HD int64_t depth_of_sums() const { return kernel_size() * group_in(); }
  /// True when an output pixel reads the input pixel of the same place alone: a product of matrices.
  bool is_product() const {
    return groups == 1 && kernel_size() == 1 && in == out && stride == std::array<int64_t, 3>{1, 1, 1} &&
           padding == std::array<int64_t, 3>{};
  }
};

/// What follows the sums of a convolution: y = activation(sums + bias + residual). bias: [out_channels], of y's dtype
/// or fp32; residual: like y and not y itself. Each may be absent.
struct ConvolutionEpilogue {
  ConstView bias = {}, residual = {};
  ImageActivation activation = ImageActivation::kNone;
  /// The weight as convolution_pack() wrote it, or null.
  const void* packed_weight = nullptr;

  /// Whether something follows the bias.
  bool continues() const { return residual || activation != ImageActivation::kNone; }
};

struct ConvolutionMethod;

/// y = convolution of x with weight, and its epilogue. x: [batch, depth, height, width, in_channels], y: the same with
/// out and out_channels, both contiguous. weight: [out_channels, in_channels / groups, depth, height, width],
/// contiguous; not read with epilogue.packed_weight. All of one floating dtype.
TERN_KERNEL(int64_t, convolution_workspace, Stream stream, const ConvolutionShape& shape, DType dtype, bool packed);
TERN_KERNEL(void, convolution_forward, Stream stream, const ConvolutionShape& shape, ConstView x, ConstView weight,
            const ConvolutionEpilogue& epilogue, View y, void* workspace);

/// Where a weight stays the same for many calls: `packed` becomes what convolution_forward() reads for this shape and
/// dtype. 0 bytes where it would be the weight itself; then nothing is packed.
TERN_KERNEL(int64_t, convolution_packed_bytes, Stream stream, const ConvolutionShape& shape, DType dtype);
TERN_KERNEL(void, convolution_pack, Stream stream, const ConvolutionShape& shape, ConstView weight, void* packed);

/// dx = the gradient of x for dy, that of y. All elements of dx are written.
TERN_KERNEL(int64_t, convolution_backward_input_workspace, Stream stream, const ConvolutionShape& shape, DType dtype);
TERN_KERNEL(void, convolution_backward_input, Stream stream, const ConvolutionShape& shape, ConstView dy,
            ConstView weight, View dx, void* workspace);

/// dweight = the gradient of the weight, in a fixed order of sums: of the dtype of dy and x, or fp32 when that has 16
/// bits.
TERN_KERNEL(int64_t, convolution_backward_weight_workspace, Stream stream, const ConvolutionShape& shape, DType dtype);
TERN_KERNEL(void, convolution_backward_weight, Stream stream, const ConvolutionShape& shape, ConstView dy, ConstView x,
            View dweight, void* workspace);

/// For tests: the methods that the CPU chooses among (kernels/cpu/convolution/methods.h), in the order in which they
/// are tried, up to a null pointer; null on CUDA.
TERN_KERNEL(const ConvolutionMethod* const*, convolution_methods, Stream stream);

/// columns[n, o, g, k, c] = the input that output pixel o of image n reads for position k of the kernel, channel c of
/// group g; 0 outside the image. x: [n, in pixels, in_channels], columns: [n, out pixels, groups, kernel size,
/// in_channels / groups]; of one dtype, contiguous. n is x's size, not the shape's batch.
TERN_KERNEL(void, images_to_columns, Stream stream, const ConvolutionShape& shape, ConstView x, View columns);
/// The transposed operation: dx = for every input the sum of the columns that hold it, in the order of k.
TERN_KERNEL(void, columns_to_images, Stream stream, const ConvolutionShape& shape, ConstView columns, View dx);

}  // namespace tern::kernels
