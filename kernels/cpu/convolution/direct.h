#pragma once
// Two-dimensional convolutions in fp32 as products of matrices whose rows are read from the images where they are (an
// implicit GEMM; Chetlur et al., arXiv:1410.0759): a kernel's row reads one run of memory of each pixel, and a block of
// pixels stays in cache until it has met the whole weight. A pixel's bits do not depend on the others, nor on the
// number of threads.

#include "tern/kernels/cpu/convolution/method.h"

namespace tern::kernels::TERN_CPU {

class ConvolutionDirect final : public ConvolutionMethod {
 public:
  /// Whether the class computes the passes, and at level v3 is faster than oneDNN's code for channels-last images.
  static bool suits_forward(const ConvolutionShape& shape, DType dtype);
  static bool suits_backward_input(const ConvolutionShape& shape, DType dtype);
  static bool suits_backward_weight(const ConvolutionShape& shape, DType dtype);

  explicit ConvolutionDirect(const ConvolutionShape& shape) : shape_(shape) {}

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
