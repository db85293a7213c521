#pragma once
// Convolutions of one pixel with few input channels in fp32, forward: so few products for each number of the result
// that writing it takes as long. oneDNN writes an image once for some channels at a time; here a pixel's channels
// follow one another, and what comes after the sums is done while they are in the L1 cache.

#include "tern/kernels/convolution.h"

namespace tern::kernels::TERN_CPU {

class ConvolutionPointwise {
 public:
  /// Whether the class computes forward, and at level v3 is faster than oneDNN.
  static bool suits(const ConvolutionShape& shape, DType dtype);

  explicit ConvolutionPointwise(const ConvolutionShape& shape) : shape_(shape) {}

  /// That of kernels/convolution.h. The same bits for any number of threads.
  void forward(ConstView x, ConstView weight, const ConvolutionEnd& end, View y) const;

 private:
  const ConvolutionShape shape_;
};

}  // namespace tern::kernels::TERN_CPU
