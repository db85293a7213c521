#pragma once
// Functions of probability and of masks, with PyTorch's names (torch.special). 16-bit floats are computed in fp32 and
// rounded once; integers give float32. Differentiable any number of times, unless said
// otherwise.

#include <optional>

#include "tern/core/tensor.h"

namespace tern {

/// log(x / (1 - x)); with eps, in [0, 0.5], of x clamped to [eps, 1 - eps]. NaN outside [0, 1].
Tensor logit(const Tensor& x, std::optional<double> eps = {});
/// a log(b), and a log(1 + b); 0 where a is 0, unless b is NaN. The gradients there are those of a log(b), but 0 where
/// log(b) is not a finite number.
Tensor xlogy(const Tensor& a, const Tensor& b);
Tensor xlog1py(const Tensor& a, const Tensor& b);
/// -x log(x), 0 at 0 and -infinity below; the gradient at 0 is 0.
Tensor entr(const Tensor& x);
/// sin(pi x) / (pi x), and 1 at 0, where all derivatives count as 0.
Tensor sinc(const Tensor& x);
/// The standard normal distribution function, erfc(-x / sqrt(2)) / 2.
Tensor ndtr(const Tensor& x);
/// 1 - erf(x), without loss of digits where that is small.
Tensor erfc(const Tensor& x);
/// exp(x^2) erfc(x), and the logarithm of ndtr; both without loss where erfc and ndtr underflow.
Tensor erfcx(const Tensor& x);
Tensor log_ndtr(const Tensor& x);
/// The modified Bessel functions of the first kind of orders 0 and 1; i0e and i1e times exp(-|x|).
Tensor i0(const Tensor& x);
Tensor i0e(const Tensor& x);
Tensor i1(const Tensor& x);
Tensor i1e(const Tensor& x);
/// log |gamma(x)|; infinite at 0, -1, -2, ...
Tensor lgamma(const Tensor& x);
/// The derivative of lgamma, and the n-th derivative of that, n in [0, 28].
Tensor digamma(const Tensor& x);
Tensor polygamma(int n, const Tensor& x);
/// The regularised incomplete gamma functions P(a, x), the integral of t^(a - 1) exp(-t) / gamma(a) from 0 to x, and
/// Q(a, x) = 1 - P(a, x) (PyTorch's special.gammainc and gammaincc); a and x broadcast. NaN for a < 0, x < 0 and a = x
/// = 0. Differentiable by x alone, as in PyTorch: Error while gradients are recorded if a requires one.
Tensor igamma(const Tensor& a, const Tensor& x);
Tensor igammac(const Tensor& a, const Tensor& x);
/// The greatest common divisor and the least common multiple of integers, not negative; 0 if both, or one of them, are
/// 0. They broadcast and have no gradient; what the dtype cannot hold wraps. Error for floating and bool tensors.
Tensor gcd(const Tensor& a, const Tensor& b);
Tensor lcm(const Tensor& a, const Tensor& b);
/// The next number after a in the direction of b, of the promoted floating dtype; b where they are equal. They
/// broadcast and have no gradient. Error for integers.
Tensor nextafter(const Tensor& a, const Tensor& b);
/// 0 for x < 0, values (which broadcast) for x = 0, 1 for x > 0; of NaN 0. The promoted dtype; not differentiable.
Tensor heaviside(const Tensor& x, const Tensor& values);

}  // namespace tern
