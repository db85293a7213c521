#pragma once
// Running backward.

#include <functional>
#include <vector>

#include "tern/core/tensor.h"

namespace tern {

/// Accumulates the gradients of `outputs` into all leaves. For one-element outputs `gradients` may be shorter or hold
/// undefined tensors (then 1). Nodes run in the reverse order of their creation, so results are reproducible.
void backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& gradients = {}, bool retain_graph = false,
              bool create_graph = false);

struct GradOptions {
  std::vector<Tensor> gradients = {};  // of the outputs; as in backward()
  bool retain_graph = false;           // implied by create_graph
  bool create_graph = false;           // the result can be differentiated again
  bool allow_unused = false;           // an input without influence gives an undefined tensor instead of an error
};
/// d(sum of outputs)/d(inputs), without touching any grad().
[[nodiscard]] std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                                       const GradOptions& options = {});

/// For hooks, while backward() runs: `fn` is called once, when the outermost backward() of this thread ends.
/// `completed` is false when an exception ends it; then `fn` must not throw. Throws Error outside of backward().
void after_backward(std::function<void(bool completed)> fn);

}  // namespace tern
