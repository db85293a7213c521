#pragma once
// Convolutions of 1 x 1 pixels with few channels in fp32: so few products for each number of an image that reading and
// writing it takes as long. oneDNN writes an image once for some channels at a time; here a pixel's channels follow one
// another, and what comes after the sums is done while they are in the L1 cache.

#include "tern/kernels/cpu/convolution/method.h"

namespace tern::kernels::TERN_CPU {

class ConvolutionPointwise final : public ConvolutionMethod {
 public:
  /// Whether the class computes the passes, and at level v3 is faster than other code.
  static bool suits_forward(const ConvolutionShape& shape, DType dtype);
  static bool suits_backward_input(const ConvolutionShape& shape, DType dtype);
  static bool suits_backward_weight(const ConvolutionShape& shape, DType dtype);

  explicit ConvolutionPointwise(const ConvolutionShape& shape)
      : shape_(shape), pixels_(shape.batch * shape.out_pixels()) {}

  int64_t backward_weight_bytes() const override;
  void forward(ConstView x, ConstView weight, const ConvolutionEnd& end, View y, void* workspace) const override;
  void backward_input(ConstView dy, ConstView weight, View dx, void* workspace) const override;
  void backward_weight(ConstView dy, ConstView x, View dweight, void* workspace) const override;

 private:
  const ConvolutionShape shape_;
  const int64_t pixels_;
};

}  // namespace tern::kernels::TERN_CPU
