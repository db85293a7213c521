#pragma once
// Variances and log-sum-exp over dimensions, each in one pass over the elements; covariances and integrals.

#include <vector>

#include "tern/core/tensor.h"

namespace tern {

// x: floating. dims: the dimensions to reduce, negative from the end; empty means all. Twice differentiable.

/// Sum of squared differences from the mean, divided by max(0, n - correction) where n elements give a result: NaN of
/// one element with correction 1, and of an empty set.
Tensor var(const Tensor& x, const std::vector<int>& dims = {}, double correction = 1, bool keepdim = false);
/// sqrt(var); its gradient is 0 where it is 0, as in PyTorch.
Tensor std(const Tensor& x, const std::vector<int>& dims = {}, double correction = 1, bool keepdim = false);

/// The same and the mean.
struct VarMean {
  Tensor var, mean;
};
struct StdMean {
  Tensor std, mean;
};
VarMean var_mean(const Tensor& x, const std::vector<int>& dims = {}, double correction = 1, bool keepdim = false);
StdMean std_mean(const Tensor& x, const std::vector<int>& dims = {}, double correction = 1, bool keepdim = false);

/// log(sum(exp(x))) without overflow; of an empty set -infinity.
Tensor logsumexp(const Tensor& x, const std::vector<int>& dims, bool keepdim = false);

/// The covariances of the variables, the rows of [variables, observations], or the variance of a vector: the products
/// of differences from the means, divided by max(0, observations - correction). Weights, [observations] and not
/// negative, have no gradient: fweights, integers, say how often an observation counts; aweights, floats, how much.
/// With both, w = fweights aweights: the means and the sums are weighted by w, and the divisor is max(0, sum(w) -
/// correction sum(w aweights) / sum(w)). The host waits for the device, to check them.
Tensor cov(const Tensor& x, double correction = 1, const Tensor& fweights = {}, const Tensor& aweights = {});
/// Pearson's coefficients: cov divided by the products of the standard deviations, in [-1, 1].
Tensor corrcoef(const Tensor& x);

/// The integral along dim by the trapezoidal rule, of samples at a distance dx or at x, which broadcasts and is a
/// vector or has y's dimensions. Of floats.
Tensor trapezoid(const Tensor& y, double dx = 1, int dim = -1);
Tensor trapezoid(const Tensor& y, const Tensor& x, int dim = -1);
/// The integrals up to each sample after the first: one element fewer along dim.
Tensor cumulative_trapezoid(const Tensor& y, double dx = 1, int dim = -1);
Tensor cumulative_trapezoid(const Tensor& y, const Tensor& x, int dim = -1);

}  // namespace tern
