#pragma once
// The activations that the kernels of convolutional networks compute with their own pass.

#include "tern/kernels/pointwise/activation.h"
#include "tern/kernels/pointwise/tiles.h"
#include "tern/kernels/pointwise/unary.h"

namespace tern::kernels {

/// kRelu6 is min(relu(x), 6); kHardSwish is x * relu6(x + 3) / 6; kGelu is the exact form.
enum class ImageActivation : uint8_t { kNone, kRelu, kRelu6, kSilu, kHardSwish, kGelu };

/// The op struct of an activation, with derivatives in terms of the input.
struct IdentityActivation {
  template <class F>
  TERN_HD F forward(F z) const {
    return z;
  }
  template <class F>
  TERN_HD F backward(F, F dy) const {
    return dy;
  }
};
template <class Op>
struct PointwiseActivation {
  Op op;
  template <class F>
  TERN_HD F forward(F z) const {
    return op.forward(z);
  }
  /// The gradient of z. Where the result does not depend on z it is 0 even if dy is infinite or NaN.
  template <class F>
  TERN_HD F backward(F z, F dy) const {
    const F slope = op.derivative(z);
    if constexpr (masks_gradient<Op>()) return math::select(slope == F(0), F(0), dy * slope);
    return dy * slope;
  }
};

/// f(op struct of the activation), and its result.
template <class Function>
TERN_HD auto with_image_activation(ImageActivation activation, const Function& f) {
  switch (activation) {
    case ImageActivation::kRelu:
      return f(PointwiseActivation<Relu>{});
    case ImageActivation::kRelu6:
      return f(PointwiseActivation<Hardtanh>{{0, 6}});
    case ImageActivation::kSilu:
      return f(PointwiseActivation<Silu>{});
    case ImageActivation::kHardSwish:
      return f(PointwiseActivation<HardSwish>{});
    case ImageActivation::kGelu:
      return f(PointwiseActivation<Gelu>{});
    case ImageActivation::kNone:
      break;
  }
  return f(IdentityActivation{});
}

}  // namespace tern::kernels
