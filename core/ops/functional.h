#pragma once
// Derivatives of functions, with the names and layouts of torch.autograd.functional.

#include <functional>
#include <vector>

#include "tern/core/tensor.h"

namespace tern {

/// A function of some tensors. It sees copies that share the inputs' memory and require gradients.
using TensorFunction = std::function<Tensor(const std::vector<Tensor>&)>;

struct DerivativeOptions {
  bool create_graph = false;  // the results can be differentiated, by the function's inputs too
};

struct Vjp {
  Tensor output;
  std::vector<Tensor> gradients;
};
/// The gradients of sum(v fn(inputs)) by each input, zeros for one without influence. v: of the output's shape; may be
/// undefined (1) for an output of one element.
Vjp vjp(const TensorFunction& fn, const std::vector<Tensor>& inputs, const Tensor& v = {},
        const DerivativeOptions& options = {});

struct Jvp {
  Tensor output, tangent;
};
/// The derivative of fn(inputs) along `directions`, of the inputs' shapes: tangent has the output's shape. Computed by
/// differentiating twice (Townsend, "A new trick for calculating Jacobian vector products", 2017), so that fn must be
/// twice differentiable.
Jvp jvp(const TensorFunction& fn, const std::vector<Tensor>& inputs, const std::vector<Tensor>& directions,
        const DerivativeOptions& options = {});

/// d output / d input for each input, of shape output.shape + input.shape: one backward for each output element.
std::vector<Tensor> jacobian(const TensorFunction& fn, const std::vector<Tensor>& inputs,
                             const DerivativeOptions& options = {});

/// The second derivatives of a function with one element, [i][j] by inputs i and j, of shape input i + input j: one
/// backward for each element of the inputs.
std::vector<std::vector<Tensor>> hessian(const TensorFunction& fn, const std::vector<Tensor>& inputs,
                                         const DerivativeOptions& options = {});

}  // namespace tern
