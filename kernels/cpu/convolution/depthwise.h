#pragma once
// Depthwise convolutions: each channel has one kernel. Vectors of channels; rows of images are converted to fp32 and
// padded with zeros in a buffer that stays in the L1 cache. The same bits for any number of threads.

#include "tern/kernels/cpu/convolution/method.h"

namespace tern::kernels::TERN_CPU {

class ConvolutionDepthwise final : public ConvolutionMethod {
 public:
  /// Whether the class computes it: as many channels as a vector has, of fp32 or 16 bits.
  static bool suits(const ConvolutionShape& shape, DType dtype);

  explicit ConvolutionDepthwise(const ConvolutionShape& shape) : shape_(shape) {}

  int64_t backward_weight_bytes() const override;
  void forward(ConstView x, ConstView weight, const ConvolutionEnd& end, View y, void* workspace) const override;
  void backward_input(ConstView dy, ConstView weight, View dx, void* workspace) const override;
  void backward_weight(ConstView dy, ConstView x, View dweight, void* workspace) const override;

 private:
  const ConvolutionShape shape_;
};

}  // namespace tern::kernels::TERN_CPU
