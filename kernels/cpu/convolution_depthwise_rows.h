#pragma once
// Depthwise convolutions of 3 x 3 pixels with stride 2 in fp32, of images that are larger than a core's cache: forward
// pixel by pixel with all channels, so that memory is read and written in the order of its addresses. oneDNN goes
// through an image once for a few channels at a time, which reads a part of each line of memory every time
// (docs/performance.md). With stride 1 the arithmetic takes longer than memory, and oneDNN's is as fast.

#include "tern/kernels/convolution.h"

namespace tern::kernels::TERN_CPU {

class ConvolutionDepthwiseRows {
 public:
  /// Whether the class computes forward, and at level v3 is faster than oneDNN.
  static bool suits(const ConvolutionShape& shape, DType dtype);

  explicit ConvolutionDepthwiseRows(const ConvolutionShape& shape) : shape_(shape) {}

  /// That of kernels/convolution.h. The same bits for any number of threads.
  void forward(ConstView x, ConstView weight, const ConvolutionEnd& end, View y) const;

 private:
  const ConvolutionShape shape_;
};

}  // namespace tern::kernels::TERN_CPU
