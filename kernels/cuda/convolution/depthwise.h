#pragma once
// Depthwise convolutions: output channel c depends on input channel c alone. They are bound by memory traffic and gain
// nothing from matrix products. All floating dtypes; sums in the compute type, in a fixed order.

#include "tern/kernels/convolution/convolution.h"

namespace tern::kernels::cuda {

/// True when these kernels compute the convolution.
inline bool is_depthwise(const ConvolutionShape& s) {
  return s.groups == s.in_channels && s.groups == s.out_channels && s.batch * s.in_pixels() * s.out_pixels() > 0;
}

/// Bytes of workspace for each of the functions below, which are as those of kernels/convolution/convolution.h.
int64_t depthwise_workspace(const ConvolutionShape& shape, DType dtype);
void depthwise_forward(Stream stream, const ConvolutionShape& shape, ConstView x, ConstView weight, ConstView bias,
                       View y, void* workspace);
void depthwise_backward_input(Stream stream, const ConvolutionShape& shape, ConstView dy, ConstView weight, View dx,
                              void* workspace);
void depthwise_backward_weight(Stream stream, const ConvolutionShape& shape, ConstView dy, ConstView x, View dweight,
                               void* workspace);

}  // namespace tern::kernels::cuda
