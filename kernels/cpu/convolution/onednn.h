#pragma once
// Convolutions by oneDNN, of fp32 and bf16. Images stay in their layout, channels last; the weight is rewritten into
// the layout that oneDNN wants, for each call or once by pack(). What follows the sums finds each piece in cache.

#include "tern/kernels/cpu/convolution/method.h"

namespace tern::kernels::TERN_CPU {

class ConvolutionOnednn final : public ConvolutionMethod {
 public:
  /// Whether oneDNN computes forward, and fast; the gradients.
  static bool suits(const ConvolutionShape& shape, DType dtype);
  static bool suits_backward(const ConvolutionShape& shape, DType dtype);

  ConvolutionOnednn(const ConvolutionShape& shape, DType dtype);

  int64_t forward_bytes(bool packed) const override;
  int64_t backward_input_bytes() const override;
  int64_t backward_weight_bytes() const override;
  int64_t packed_bytes() const override;
  void pack(ConstView weight, void* packed) const override;
  void forward(ConstView x, ConstView weight, const ConvolutionEnd& end, View y, void* workspace) const override;
  void backward_input(ConstView dy, ConstView weight, View dx, void* workspace) const override;
  void backward_weight(ConstView dy, ConstView x, View dweight, void* workspace) const override;

 private:
  ConvolutionShape shape_;
  DType dtype_;
};

}  // namespace tern::kernels::TERN_CPU
