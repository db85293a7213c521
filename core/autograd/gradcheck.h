#pragma once
// Checking an op's gradient against finite differences, in double precision.

#include <functional>
#include <vector>

#include "tern/core/tensor.h"

namespace tern {

struct GradcheckOptions {
  double eps = 1e-6;  // central differences of this step
  double atol = 1e-6;
  double rtol = 1e-4;
  bool second = false;  // also the gradient of the gradient, and that create_graph leaves the first one as it is
  uint64_t seed = 0;    // of the random projection of non-scalar outputs
};

/// Compares backward's gradients of fn(inputs) with central differences for every element of every input that requires
/// a gradient; non-scalar outputs are projected on random weights. inputs are fp64 leaves. fn must be deterministic
/// (use a freshly seeded Generator inside). Throws Error naming input, element, both values. NaN never passes.
void gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& fn, const std::vector<Tensor>& inputs,
               const GradcheckOptions& options = {});

}  // namespace tern
