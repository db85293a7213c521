#pragma once
// Steps that stand for a layer: a convolution or linear layers with what follows them. Where nothing is recorded they
// are one pass with packed weights; otherwise, and where the shapes do not fit, they are the ops of the nodes in turn.

#include <deque>

#include "tern/core/ops/convolution/epilogue.h"
#include "tern/core/ops/matmul/packed_linear.h"
#include "tern/models/onnx/registry.h"

namespace tern::onnx {

/// What a layer's step keeps between runs.
struct StepMemory {
  tern::detail::PackedWeight convolution = {};
  std::deque<tern::detail::PackedLinear> linears = {};  // one for each linear layer
};

/// activation(convolution + residual). Inputs: x, weight, bias, residual; the last two may be absent. Attributes: those
/// of Conv, and "activation", an ImageActivation.
extern const OpRow kConvolutionLayer;

/// What the attribute "layers" of kLinearLayers says of each layer: a sum of these.
enum LinearLayerFlag : int64_t {
  kHasBias = 1,
  kByOutputs = 2,  // the weight is [out, in], otherwise [in, out]
  kHasRelu = 4,
  kHasGelu = 8,
};

/// Linear layers one after another, perhaps with the layer norm of residual + result. Inputs: x; of each layer its
/// weight and, with kHasBias, bias; then, with the attribute "epsilon", the residual and the norm's weight and bias.
/// Outputs: the result and, if it has a name, the sum before the norm.
extern const OpRow kLinearLayers;

}  // namespace tern::onnx
