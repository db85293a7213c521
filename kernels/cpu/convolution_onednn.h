#pragma once
// Convolutions by oneDNN, of fp32 and bf16. Images stay in their layout, channels last; the weight is rewritten for
// each call into the layout that oneDNN wants. oneDNN computes a piece of the batch on one thread (onednn.h), and
// pieces are divided among the threads. The size of a piece does not depend on their number.

#include "tern/kernels/convolution.h"

namespace tern::kernels::TERN_CPU {

class ConvolutionOnednn {
 public:
  /// Whether oneDNN computes it, and fast.
  static bool suits(const ConvolutionShape& shape, DType dtype);

  ConvolutionOnednn(const ConvolutionShape& shape, DType dtype);

  // Bytes of workspace, and the passes of kernels/convolution.h.
  int64_t forward_bytes() const;
  int64_t backward_input_bytes() const;
  int64_t backward_weight_bytes() const;
  void forward(ConstView x, ConstView weight, ConstView bias, View y, void* workspace) const;
  void backward_input(ConstView dy, ConstView weight, View dx, void* workspace) const;
  void backward_weight(ConstView dy, ConstView x, View dweight, void* workspace) const;

 private:
  ConvolutionShape shape_;
  DType dtype_;
};

}  // namespace tern::kernels::TERN_CPU
