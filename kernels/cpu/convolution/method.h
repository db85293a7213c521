#pragma once
// The methods that kernels/cpu/convolution/convolution.cpp chooses among.

#include "tern/kernels/convolution/convolution.h"

namespace tern::kernels::TERN_CPU {

/// Computes convolutions of one shape. A class defines the passes for which it has a function suits...(). Arguments are
/// those of kernels/convolution/convolution.h; `packed`: whether forward() is given a packed weight. The same bits for
/// any number of threads.
class ConvolutionMethod {
 public:
  virtual ~ConvolutionMethod() = default;

  /// Bytes of the workspace of each pass.
  virtual int64_t forward_bytes(bool /*packed*/) const { return 0; }
  virtual int64_t backward_input_bytes() const { return 0; }
  virtual int64_t backward_weight_bytes() const { return 0; }

  /// Of a packed weight; 0: forward() does not use one, and pack() does nothing.
  virtual int64_t packed_bytes() const { return 0; }
  virtual void pack(ConstView weight, void* packed) const;

  virtual void forward(ConstView x, ConstView weight, const ConvolutionEnd& end, View y, void* workspace) const;
  virtual void backward_input(ConstView dy, ConstView weight, View dx, void* workspace) const;
  virtual void backward_weight(ConstView dy, ConstView x, View dweight, void* workspace) const;
};

}  // namespace tern::kernels::TERN_CPU
