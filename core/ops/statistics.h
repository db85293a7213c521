#pragma once
// Variances and log-sum-exp over dimensions, each in one pass over the elements.

#include <vector>

#include "tern/core/tensor.h"

namespace tern {

// x: floating. dims: the dimensions to reduce, negative from the end; empty means all. Twice differentiable.

/// Sum of squared differences from the mean, divided by max(0, n - correction) where n elements give a result: NaN of
/// one element with correction 1, and of an empty set.
Tensor var(const Tensor& x, const std::vector<int>& dims = {}, double correction = 1, bool keepdim = false);
/// sqrt(var); its gradient is 0 where it is 0, as in PyTorch.
Tensor std(const Tensor& x, const std::vector<int>& dims = {}, double correction = 1, bool keepdim = false);

/// log(sum(exp(x))) without overflow; of an empty set -infinity.
Tensor logsumexp(const Tensor& x, const std::vector<int>& dims, bool keepdim = false);

}  // namespace tern
