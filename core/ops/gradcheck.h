#pragma once
// Checks an op's gradients against finite differences, in double precision.

#include <functional>
#include <vector>

#include "tern/core/tensor.h"

namespace tern {

struct GradcheckOptions {
  double eps = 1e-6;  // step of the central differences
  double atol = 1e-6;
  double rtol = 1e-4;
  bool second = false;  // also the second derivative, and that create_graph does not change the first
  uint64_t seed = 0;    // of the random projection of non-scalar outputs
};

/// Compares backward's gradients of fn(inputs) with central differences for every element of every input that requires
/// a gradient; non-scalar outputs are projected on random weights. inputs are fp64 leaves. fn must be deterministic
/// (create and seed a Generator inside). Throws Error naming input, element and both values. NaN never passes.
void gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& fn, const std::vector<Tensor>& inputs,
               const GradcheckOptions& options = {});

}  // namespace tern
