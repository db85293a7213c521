#pragma once
// Convolutions of 3 x 3 pixels in fp32 by Winograd's algorithm F(4 x 4, 3 x 3) (Lavin & Gray, arXiv:1509.09308), which
// multiplies a quarter as often: the images are cut into tiles of 4 x 4 pixels of the result, and the patches of 6 x 6
// that these read become 36 numbers for each channel, the points. At each point the tiles are a matrix, which is
// multiplied with the transformed weight. A tile's bits do not depend on the others, nor on the number of threads.

#include "tern/kernels/cpu/convolution/method.h"

namespace tern::kernels::TERN_CPU {

class ConvolutionWinograd final : public ConvolutionMethod {
 public:
  /// Whether the class computes the passes, and at level v3 is faster than oneDNN's direct sums.
  /// fixed_weight: that of convolution_pack().
  static bool suits_forward(const ConvolutionShape& shape, DType dtype, bool fixed_weight);
  static bool suits_backward_input(const ConvolutionShape& shape, DType dtype);
  static bool suits_backward_weight(const ConvolutionShape& shape, DType dtype);

  explicit ConvolutionWinograd(const ConvolutionShape& shape) : shape_(shape) {}

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
};

}  // namespace tern::kernels::TERN_CPU
