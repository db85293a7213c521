#pragma once
// Activation functions. pointwise/ops.h documents the members and lists all ops.

#include <bit>

#include "tern/kernels/math/math.h"
#include "tern/kernels/pointwise/pointwise.h"

namespace tern::kernels {

struct Sigmoid {
  static constexpr const char* name = "sigmoid";
  static constexpr Saves saves = Saves::kOutput;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::sigmoid(x);
  }
  template <class F>
  TERN_HD F derivative(F y) const {
    return y * (F(1) - y);
  }
};

/// The derivative is 0 at 0; NaN stays NaN.
struct Relu {
  static constexpr const char* name = "relu";
  static constexpr Saves saves = Saves::kOutput;
  static constexpr bool integral = true, masks = true;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::select(x <= F(0), F(0), x);
  }
  template <class F>
  TERN_HD F derivative(F y) const {
    return math::select(y <= F(0), F(0), F(1));
  }
};

struct LeakyRelu {
  static constexpr const char* name = "leaky_relu";
  static constexpr Saves saves = Saves::kInputs;
  double slope = 0.01;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::select(x > F(0), x, F(slope) * x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::select(x > F(0), F(1), F(slope));
  }
};

/// x Phi(x) with the normal distribution function (Hendrycks and Gimpel, arXiv:1606.08415), the erf form.
struct Gelu {
  static constexpr const char* name = "gelu";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return x * normal_distribution(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return normal_distribution(x) + x * density(x);
  }

 private:
  template <class F>
  TERN_HD static F density(F x) {
    return F(math::kInverseRoot2Pi) * math::exp_nonpositive(F(-0.5) * x * x);
  }
  template <class F>
  TERN_HD static F normal_distribution(F x) {
    return F(0.5) * (F(1) + math::erf(x * F(math::kInverseRoot2)));
  }
  template <class F>
  TERN_HD static math::Dual<F> normal_distribution(math::Dual<F> x) {
    return {normal_distribution(x.value), density(x.value) * x.tangent};
  }
#ifndef __CUDA_ARCH__
  /// Without the cancellation in 1 + erf(x). With Phi(-t) = 2^q(t), q is smooth and p its minimax fit on [0, 6.5], so
  /// weighted that the error of Phi is below 2^-26; above 8 Phi(-t) is less than 2^-50, and 0 here.
  TERN_HD static float normal_distribution(float x) {
    constexpr float kShift = 0x1.8p23f + 127.0f;  // adding it leaves the rounded exponent in the low mantissa bits
    const float t = math::abs(x);
    // Odd and even powers apart: two short chains of dependent instructions instead of a long one.
    const float square = t * t;
    float odd = 0x1.ac6ed4p-23f, even = -0x1.4558b4p-18f;
    odd = odd * square + 0x1.861aa0p-15f;
    even = even * square + -0x1.994af4p-13f;
    odd = odd * square + -0x1.283c52p-13f;
    even = even * square + 0x1.d05676p-8f;
    odd = odd * square + -0x1.ae3724p-5f;
    even = even * square + -0x1.d638b2p-2f;
    odd = odd * square + -0x1.26aee6p+0f;
    even = even * square + -0x1.fffffep-1f;
    const float q = odd * t + even, shifted = q + kShift, f = q - (shifted - kShift);
    const float f2 = f * f;
    float p = 0x1.41fbbcp-13f, r = 0x1.5f3e52p-10f;  // 2^f = p + f r for |f| <= 1/2
    p = p * f2 + 0x1.3b2d4cp-7f;
    r = r * f2 + 0x1.c6aee8p-5f;
    p = p * f2 + 0x1.ebfbdcp-3f;
    r = r * f2 + 0x1.62e430p-1f;
    p = p * f2 + 1.0f;
    const float power = (r * f + p) * std::bit_cast<float>(std::bit_cast<uint32_t>(shifted) << 23);
    const float tail = math::select(t > 8.0f, 0.0f, power);
    return math::select(x > 0.0f, 1.0f - tail, tail);
  }
#endif
};

/// The tanh approximation of the same paper: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
struct GeluTanh {
  static constexpr const char* name = "gelu_tanh";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr double kScale = 2 * math::kInverseRoot2Pi, kCubic = 0.044715;
  template <class F>
  TERN_HD F bent(F x) const {
    return math::tanh(F(kScale) * (x + F(kCubic) * x * x * x));
  }
  template <class F>
  TERN_HD F forward(F x) const {
    return F(0.5) * x * (F(1) + bent(x));
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    const F t = bent(x);
    const F inner = F(kScale) * (F(1) + F(3 * kCubic) * x * x);
    return F(0.5) * (F(1) + t) + F(0.5) * x * (F(1) - t * t) * inner;
  }
};

/// x sigmoid(x), also called swish.
struct Silu {
  static constexpr const char* name = "silu";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::silu(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    const F s = math::sigmoid(x);
    return s * (F(1) + x * (F(1) - s));
  }
};

/// log(1 + exp(x)) without overflow.
struct Softplus {
  static constexpr const char* name = "softplus";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::softplus(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::sigmoid(x);
  }
};

/// log(1 / (1 + exp(-x))) without overflow.
struct LogSigmoid {
  static constexpr const char* name = "logsigmoid";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return -math::softplus(-x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::sigmoid(-x);
  }
};

/// x, or alpha (exp(rate x) - 1) below 0: ELU (Clevert et al., arXiv:1511.07289) with rate 1, CELU (Barron,
/// arXiv:1704.07483) with rate 1 / alpha. At 0 the derivative is alpha rate.
struct Elu {
  static constexpr const char* name = "elu";
  static constexpr Saves saves = Saves::kInputs;
  double alpha = 1, rate = 1;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::select(x > F(0), x, F(alpha) * math::expm1(F(rate) * x));
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::select(x > F(0), F(1), F(alpha * rate) * math::exp(F(rate) * x));
  }
};

/// The scaled ELU that normalizes itself (Klambauer et al., arXiv:1706.02515).
struct Selu {
  static constexpr const char* name = "selu";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr double kScale = 1.0507009873554804934193349852946, kAlpha = 1.6732632423543772848170429916717;
  template <class F>
  TERN_HD F forward(F x) const {
    return F(kScale) * math::select(x > F(0), x, F(kAlpha) * math::expm1(x));
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return F(kScale) * math::select(x > F(0), F(1), F(kAlpha) * math::exp(x));
  }
};

/// x tanh(softplus(x)) (Misra, arXiv:1908.08681).
struct Mish {
  static constexpr const char* name = "mish";
  static constexpr Saves saves = Saves::kInputs;
  /// With e = exp(x) and d = e (e + 2) + 2, tanh(softplus(x)) = e (e + 2) / d. Above 20 that is 1 in every type, and
  /// d^2 would overflow.
  template <class F>
  TERN_HD F forward(F x) const {
    const F e = math::exp(math::select(x > F(20), F(20), x)), product = e * (e + F(2));
    return x * (product / (product + F(2)));
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    const F bounded = math::select(x > F(20), F(20), math::select(x < F(-1000), F(-1000), x)), e = math::exp(bounded);
    const F d = e * (e + F(2)) + F(2), x4 = F(4) * bounded;  // below -1000, e is 0 in every type
    return e * (x4 + F(4) + e * (x4 + F(6) + e * (F(4) + e))) / (d * d);
  }
};

/// (x + 3) / 6 between 0 and 1, which near -3 keeps the digits that x / 6 + 1/2 loses. The derivative is 0 at -3 and 3.
struct HardSigmoid {
  static constexpr const char* name = "hardsigmoid";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr bool masks = true;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::select(x <= F(-3), F(0), math::select(x > F(3), F(1), (x + F(3)) * F(1.0 / 6)));
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::select((x > F(-3)) & (x < F(3)), F(1.0 / 6), F(0));
  }
};

/// x hardsigmoid(x) (Howard et al., arXiv:1905.02244).
struct HardSwish {
  static constexpr const char* name = "hardswish";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr bool masks = true;
  template <class F>
  TERN_HD F forward(F x) const {
    return x * HardSigmoid{}.forward(x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::select(x <= F(-3), F(0), math::select(x >= F(3), F(1), x * F(1.0 / 3) + F(0.5)));
  }
};

struct Softsign {
  static constexpr const char* name = "softsign";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F x) const {
    return x / (F(1) + math::abs(x));
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    const F slope = F(1) / (F(1) + math::abs(x));
    return slope * slope;
  }
};

/// x moved towards 0 by lambda; 0 within lambda of 0.
struct Softshrink {
  static constexpr const char* name = "softshrink";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr bool masks = true;
  double lambda = 0.5;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::select(x > F(lambda), x - F(lambda), math::select(x < F(-lambda), x + F(lambda), F(0) * x));
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::select((x > F(lambda)) | (x < F(-lambda)), F(1), F(0));
  }
};

/// x, or 0 within lambda of 0.
struct Hardshrink {
  static constexpr const char* name = "hardshrink";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr bool masks = true;
  double lambda = 0.5;
  template <class F>
  TERN_HD F forward(F x) const {
    return math::select((x > F(lambda)) | (x < F(-lambda)), x, F(0) * x);
  }
  template <class F>
  TERN_HD F derivative(F x) const {
    return math::select((x > F(lambda)) | (x < F(-lambda)), F(1), F(0));
  }
};

}  // namespace tern::kernels
