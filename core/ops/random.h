#pragma once
// Random tensors beyond rand and randn. Each call takes one draw of the generator; the numbers are the same on every
// device, except where functions of the element type are applied (bernoulli with probabilities next to a number) or of
// double (poisson, binomial).

#include "tern/core/tensor.h"

namespace tern {

/// Integers in [low, high), equally likely, of any dtype. Throws Error unless low < high.
Tensor randint(int64_t low, int64_t high, const Shape& shape, Generator& generator,
               const TensorOptions& options = {.dtype = DType::kInt64});

/// A permutation of 0, ..., n - 1: int64 [n].
Tensor randperm(int64_t n, Generator& generator, const TensorOptions& options = {.dtype = DType::kInt64});

/// 1 with the probability that each element is, else 0; of its dtype. NaN and what is outside [0, 1] count as the
/// nearer bound, NaN as 0.
Tensor bernoulli(const Tensor& probabilities, Generator& generator);

/// Poisson-distributed counts of these rates, of their dtype; each depends on one uniform number. Rates above 10^4 take
/// the normal distribution with corrections for skewness and kurtosis. Throws Error on rates that are negative or not
/// finite; the host waits for the device, to check them.
Tensor poisson(const Tensor& rates, Generator& generator);

/// The numbers of successes among `counts` (whole, not negative) trials of these probabilities, which broadcast; of the
/// promoted dtype. Variances above 10^4 as in poisson. Throws Error on other counts, and on probabilities outside of
/// [0, 1]; the host waits for the device, to check them.
Tensor binomial(const Tensor& counts, const Tensor& probabilities, Generator& generator);

/// Indices of categories, drawn with probabilities that are proportional to nonnegative weights [categories] or
/// [rows, categories]: int64 [count] or [rows, count]; of a row all different unless there is replacement. Throws Error
/// on weights that are negative or not finite, on a row whose sum is 0, and without replacement when a row has fewer
/// than `count` weights above 0. The host waits for the device, to check the weights.
Tensor multinomial(const Tensor& weights, int64_t count, Generator& generator, bool replacement = false);

/// Exponentially distributed numbers > 0, of this rate.
Tensor exponential(const Shape& shape, Generator& generator, double rate = 1, const TensorOptions& options = {});

/// softmax((logits + g) / tau) along dim, with noise g of the standard Gumbel distribution (Jang et al.,
/// arXiv:1611.01144; Maddison et al., arXiv:1611.00712). hard: 1 at the largest, the first of equal ones, and 0
/// elsewhere, with the gradient of the soft result. Differentiable by the logits.
Tensor gumbel_softmax(const Tensor& logits, Generator& generator, double tau = 1, bool hard = false, int dim = -1);

/// Normal numbers with these means and standard deviations, which broadcast.
Tensor normal(const Tensor& mean, const Tensor& std, Generator& generator);
Tensor normal(double mean, double std, const Shape& shape, Generator& generator, const TensorOptions& options = {});

/// The normal distribution restricted to [low, high], both absolute values, by the inverse of its distribution function
/// on the host. Throws Error unless mean and std are finite, std > 0, low < high, and for an interval that is more than
/// 6 std from the mean.
Tensor truncated_normal(const Shape& shape, Generator& generator, double mean = 0, double std = 1, double low = -2,
                        double high = 2, const TensorOptions& options = {});

namespace detail {
/// Throws Error as truncated_normal does.
void check_truncated_normal(double mean, double std, double low, double high);
}  // namespace detail

}  // namespace tern
