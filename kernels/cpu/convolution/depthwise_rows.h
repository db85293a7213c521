#pragma once
// Depthwise convolutions of 3 x 3 pixels with stride 1 or 2 in fp32, pixel by pixel with all channels, so that memory
// is read and written in the order of its addresses. oneDNN goes through an image once for a few channels at a time,
// which reads a part of each line of memory every time (docs/performance.md). Forward with stride 1 and of small images
// the arithmetic takes longer than memory, and oneDNN's is as fast.

#include "tern/kernels/cpu/convolution/method.h"

namespace tern::kernels::TERN_CPU {

class ConvolutionDepthwiseRows final : public ConvolutionMethod {
 public:
  /// Whether the class computes the passes, and at level v3 is faster than oneDNN.
  static bool suits_forward(const ConvolutionShape& shape, DType dtype);
  static bool suits_backward_weight(const ConvolutionShape& shape, DType dtype);

  explicit ConvolutionDepthwiseRows(const ConvolutionShape& shape) : shape_(shape) {}

  int64_t backward_weight_bytes() const override;
  void forward(ConstView x, ConstView weight, const ConvolutionEnd& end, View y, void* workspace) const override;
  void backward_weight(ConstView dy, ConstView x, View dweight, void* workspace) const override;

 private:
  const ConvolutionShape shape_;
};

}  // namespace tern::kernels::TERN_CPU
