#pragma once
// Convolutions by oneDNN in strips of a few fixed lengths, so that its primitives do not depend on the length of an
// image: creating one takes up to 50 ms and 10 MB where the length is a part of the code. Strips at the ends of an
// image are copied into a buffer with zeros around them. Which strips there are depends on the shape alone.

#include "tern/kernels/cpu/convolution/method.h"

namespace tern::kernels::TERN_CPU {

class ConvolutionStrips final : public ConvolutionMethod {
 public:
  /// Of what ConvolutionOnednn suits: whether the images are lines; in forward also if they are large.
  /// fixed_weight: that of convolution_pack().
  static bool suits(const ConvolutionShape& shape);
  static bool suits_forward(const ConvolutionShape& shape, DType dtype, bool fixed_weight);

  ConvolutionStrips(const ConvolutionShape& shape, DType dtype) : shape_(shape), dtype_(dtype) {}

  int64_t forward_bytes(bool packed) const override;
  int64_t backward_input_bytes() const override;
  int64_t backward_weight_bytes() const override;
  int64_t packed_bytes() const override;
  void pack(ConstView weight, void* packed) const override;
  void forward(ConstView x, ConstView weight, const ConvolutionEnd& end, View y, void* workspace) const override;
  void backward_input(ConstView dy, ConstView weight, View dx, void* workspace) const override;
  void backward_weight(ConstView dy, ConstView x, View dweight, void* workspace) const override;

 private:
  const ConvolutionShape shape_;
  const DType dtype_;
};

}  // namespace tern::kernels::TERN_CPU
