#include "tern/core/ops/pointwise/special.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "tern/core/autograd/function.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/run_reduction.h"
#include "tern/kernels/pointwise/gamma.h"
#include "tern/kernels/pointwise/integer.h"
#include "tern/kernels/pointwise/special.h"

namespace tern {
namespace {

DType floating_type(DType dtype) { return is_floating(dtype) ? dtype : DType::kFloat32; }

/// x as the ops compute it.
Tensor widened(const Tensor& x) { return x.to(detail::accumulation_type(floating_type(x.dtype()))); }
/// The result of an op of x alone.
Tensor narrowed(const Tensor& y, const Tensor& x) { return y.to(floating_type(x.dtype())); }

struct Sinc final : TwiceDifferentiable<Sinc> {
  static constexpr const char* kName = "sinc";
  Saved x_;
  Tensor forward(const Tensor& x) {
    x_ = x;
    const Tensor is_zero = x == 0.0, angle = where(is_zero, 1.0, x) * std::numbers::pi;
    return where(is_zero, 1.0, sin(angle) / angle);
  }
  /// With a = pi x: (cos(a) - sin(a) / a) / x. Near 0, where that and its derivatives cancel, the power series: its
  /// next term is below 2^-60 for |a| < 1.
  Grads backward(const Tensor& dy) override {
    constexpr int kTerms = 9;
    const Tensor x = x_.get(), near = abs(x.detach()) < 1 / std::numbers::pi;
    const Tensor small = where(near, x, 0.0) * std::numbers::pi, square_of_small = square(small);
    double coefficient = 1;  // of a^(2k - 1): (-1)^k 2k / (2k + 1)!
    std::vector<double> series;
    for (int k = 1; k <= kTerms; ++k) {
      coefficient /= -2.0 * k * (2 * k + 1);
      series.push_back(2 * k * coefficient);
    }
    Tensor sum = full_like(small, series.back());
    for (int k = kTerms - 1; k-- > 0;) sum = sum * square_of_small + series[static_cast<size_t>(k)];
    const Tensor far = where(near, 1.0, x), angle = far * std::numbers::pi;
    return {dy * where(near, sum * small * std::numbers::pi, (cos(angle) - sin(angle) / angle) / far)};
  }
};

/// a times log(b + offset), 0 where a is 0; there b is replaced if the logarithm is not finite.
Tensor times_log(const Tensor& a, const Tensor& b, double offset, Tensor (*log_of)(const Tensor&)) {
  const DType dtype = floating_type(promote(a, b)), wide = detail::accumulation_type(dtype);
  const Tensor x = a.to(wide), y = b.to(wide);
  const Tensor has_log = logical_and(y > -offset, isfinite(y));
  const Tensor vanishes = logical_and(x == 0.0, logical_not(logical_or(has_log, isnan(y))));
  return (x * log_of(where(vanishes, 1 - offset, y))).to(dtype);  // log 1: the gradient by a is 0
}

template <class Op>
Tensor incomplete_gamma(const Op& op, const Tensor& a, const Tensor& x) {
  TERN_CHECK(!a.requires_grad() || !grad_enabled(), Op::name,
             ": there is no derivative by the first argument; pass a.detach()");
  return pointwise(op, a, x);
}

template <class Op>
Tensor of_integers(const Op& op, const Tensor& a, const Tensor& b) {
  for (const Tensor* x : {&a, &b})
    TERN_CHECK(!is_floating(x->dtype()) && x->dtype() != DType::kBool, Op::name, ": expected integers, got ",
               x->describe(), "; convert with to(int64)");
  return pointwise(op, a, b);
}

}  // namespace

Tensor logit(const Tensor& x, std::optional<double> eps) {
  TERN_CHECK(!eps || (*eps >= 0 && *eps <= 0.5), "logit: eps must be in [0, 0.5], got ", eps.value_or(0));
  const Tensor wide = widened(x);
  // Not clamp(): the gradient at the bounds is that of within.
  const Tensor p = eps ? where(wide < *eps, *eps, where(wide > 1 - *eps, 1 - *eps, wide)) : wide;
  return narrowed(log(p) - log1p(-p), x);
}

Tensor xlogy(const Tensor& a, const Tensor& b) { return times_log(a, b, 0, log); }
Tensor xlog1py(const Tensor& a, const Tensor& b) { return times_log(a, b, 1, log1p); }

Tensor entr(const Tensor& x) {
  const Tensor wide = widened(x), below = wide < 0.0, p = where(below, 0.0, wide);
  return narrowed(where(below, -INFINITY, -xlogy(p, p)), x);
}

Tensor sinc(const Tensor& x) { return narrowed(Sinc::apply(widened(x)), x); }

Tensor erfc(const Tensor& x) { return pointwise(kernels::Erfc{}, x); }
Tensor ndtr(const Tensor& x) { return narrowed(erfc(widened(x) * (-1 / std::numbers::sqrt2)) * 0.5, x); }
Tensor erfcx(const Tensor& x) { return pointwise(kernels::Erfcx{}, x); }
Tensor log_ndtr(const Tensor& x) { return pointwise(kernels::LogNdtr{}, x); }
Tensor i0(const Tensor& x) { return pointwise(kernels::I0{}, x); }
Tensor i0e(const Tensor& x) { return pointwise(kernels::I0e{}, x); }
Tensor i1(const Tensor& x) { return pointwise(kernels::I1{}, x); }
Tensor i1e(const Tensor& x) { return pointwise(kernels::I1e{}, x); }
Tensor lgamma(const Tensor& x) { return pointwise(kernels::Lgamma{}, x); }
Tensor digamma(const Tensor& x) { return polygamma(0, x); }
Tensor polygamma(int n, const Tensor& x) {
  // The third derivative is computed with order n + 3.
  constexpr int kMost = kernels::math::kMaxPolygamma - 4;
  TERN_CHECK(n >= 0 && n <= kMost, "polygamma: n must be in [0, ", kMost, "], got ", n);
  return pointwise(kernels::Polygamma{n}, x);
}

Tensor igamma(const Tensor& a, const Tensor& x) { return incomplete_gamma(kernels::Igamma{}, a, x); }
Tensor igammac(const Tensor& a, const Tensor& x) { return incomplete_gamma(kernels::Igammac{}, a, x); }

Tensor gcd(const Tensor& a, const Tensor& b) { return of_integers(kernels::Gcd{}, a, b); }
Tensor lcm(const Tensor& a, const Tensor& b) { return of_integers(kernels::Lcm{}, a, b); }
Tensor nextafter(const Tensor& a, const Tensor& b) {
  const DType dtype = promote(a, b);
  TERN_CHECK(is_floating(dtype), "nextafter: expected floating tensors, got ", a.describe(), " and ", b.describe());
  return pointwise(kernels::NextAfter{dtype}, a.detach().to(dtype), b.detach().to(dtype));
}

Tensor heaviside(const Tensor& x, const Tensor& values) {
  const DType dtype = promote(x, values);
  const Tensor at = x.detach();
  return where(at == 0.0, values.detach().to(dtype), (at > 0.0).to(dtype));
}

}  // namespace tern
