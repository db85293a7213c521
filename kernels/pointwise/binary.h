#pragma once
// Element-wise ops of two inputs. pointwise/ops.h documents the members and lists all ops.

#include "tern/kernels/math/math.h"
#include "tern/kernels/math/near.h"
#include "tern/kernels/pointwise/pointwise.h"

namespace tern::kernels {

struct Add {
  static constexpr const char* name = "add";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD F forward(F a, F b) const {
    return a + b;
  }
  template <class F>
  TERN_HD F derivative0() const {
    return F(1);
  }
  template <class F>
  TERN_HD F derivative1() const {
    return F(1);
  }
};

struct Sub {
  static constexpr const char* name = "sub";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD F forward(F a, F b) const {
    return a - b;
  }
  template <class F>
  TERN_HD F derivative0() const {
    return F(1);
  }
  template <class F>
  TERN_HD F derivative1() const {
    return F(-1);
  }
};

struct Mul {
  static constexpr const char* name = "mul";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr bool integral = true;
  static constexpr uint32_t needs[] = {0b10, 0b01};
  template <class F>
  TERN_HD F forward(F a, F b) const {
    return a * b;
  }
  template <class F>
  TERN_HD F derivative0(F, F b) const {
    return b;
  }
  template <class F>
  TERN_HD F derivative1(F a, F) const {
    return a;
  }
};

struct Div {
  static constexpr const char* name = "div";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr uint32_t needs[] = {0b10, 0b11};
  template <class F>
  TERN_HD F forward(F a, F b) const {
    return a / b;
  }
  template <class F>
  TERN_HD F derivative0(F, F b) const {
    return F(1) / b;
  }
  template <class F>
  TERN_HD F derivative1(F a, F b) const {
    return -((a / b) / b);
  }
};

/// NaN when either input is NaN; equal inputs receive half of the gradient each.
struct Maximum {
  static constexpr const char* name = "maximum";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr bool integral = true, masks = true;
  template <class F>
  TERN_HD F forward(F a, F b) const {
    return math::max(a, b);
  }
  template <class F>
  TERN_HD F derivative0(F a, F b) const {
    return math::select(a == b, F(0.5), math::select(a < b, F(0), F(1)));
  }
  template <class F>
  TERN_HD F derivative1(F a, F b) const {
    return derivative0(b, a);
  }
};

struct Minimum {
  static constexpr const char* name = "minimum";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr bool integral = true, masks = true;
  template <class F>
  TERN_HD F forward(F a, F b) const {
    return math::min(a, b);
  }
  template <class F>
  TERN_HD F derivative0(F a, F b) const {
    return math::select(a == b, F(0.5), math::select(a > b, F(0), F(1)));
  }
  template <class F>
  TERN_HD F derivative1(F a, F b) const {
    return derivative0(b, a);
  }
};

/// The derivative with respect to the exponent is 0 where the base is 0 and the exponent is not negative.
struct Pow {
  static constexpr const char* name = "pow";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD F forward(F a, F b) const {
    return math::pow(a, b);
  }
  template <class F>
  TERN_HD F derivative0(F a, F b) const {
    return math::select(b == F(0), F(0), b * math::pow(a, b - F(1)));
  }
  template <class F>
  TERN_HD F derivative1(F a, F b) const {
    return math::select((a == F(0)) & (b >= F(0)), F(0), math::pow(a, b) * math::log(a));
  }
};

/// a - b floor(a / b): the remainder has b's sign, as in Python. Where b is 0: NaN, of integers 0.
struct Remainder {
  static constexpr const char* name = "remainder";
  static constexpr Saves saves = Saves::kInputs;
  static bool is_near(float a, float b) { return math::is_near_quotient(a, b); }
  static constexpr bool integral = true;
  static constexpr uint32_t needs[] = {0, 0b11};
  template <class F>
  TERN_HD F forward(F a, F b) const {
    const F rest = math::fmod(a, b);
    return math::select((rest != F(0)) & ((rest < F(0)) != (b < F(0))), rest + b, rest);
  }
  template <class F>
  TERN_HD F derivative0(F, F) const {
    return F(1);
  }
  template <class F>
  TERN_HD F derivative1(F a, F b) const {
    return -math::floor(a / b);
  }
};

/// a - b trunc(a / b): the remainder has a's sign, as in C. Where b is 0: NaN, of integers 0.
struct Fmod {
  static constexpr const char* name = "fmod";
  static constexpr Saves saves = Saves::kInputs;
  static bool is_near(float a, float b) { return math::is_near_quotient(a, b); }
  static constexpr bool integral = true;
  static constexpr uint32_t needs[] = {0, 0b11};
  template <class F>
  TERN_HD F forward(F a, F b) const {
    return math::fmod(a, b);
  }
  template <class F>
  TERN_HD F derivative0(F, F) const {
    return F(1);
  }
  template <class F>
  TERN_HD F derivative1(F a, F b) const {
    return -math::trunc(a / b);
  }
};

/// floor(a / b) of the exact quotient, which a - remainder gives and a / b, rounded, may miss: 1 by 0.1 is 9, as in
/// Python. Where b is 0: a / b, of integers 0.
struct FloorDivide {
  static constexpr const char* name = "floor_divide";
  static bool is_near(float a, float b) { return math::is_near_quotient(a, b); }
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD F forward(F a, F b) const {
    const F rest = math::fmod(a, b), ratio = a / b, multiple = math::round((a - rest) / b);
    const bool below = (rest != F(0)) & ((rest < F(0)) != (b < F(0)));
    const F whole = math::select(below, multiple - F(1), multiple);
    // A quotient of 0 has a's and b's sign.
    return math::select(b == F(0), ratio, math::select(whole == F(0), F(0) * ratio, whole));
  }
  template <class F>
  TERN_HD F derivative0() const {
    return F(0);
  }
  template <class F>
  TERN_HD F derivative1() const {
    return F(0);
  }
};

/// The angle of the point (b, a), in [-pi, pi]. The derivatives at (0, 0) are 0.
struct Atan2 {
  static constexpr const char* name = "atan2";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F a, F b) const {
    return math::atan2(a, b);
  }
  template <class F>
  TERN_HD F derivative0(F a, F b) const {
    return by_square(b, a * a + b * b);
  }
  template <class F>
  TERN_HD F derivative1(F a, F b) const {
    return by_square(-a, a * a + b * b);
  }

 private:
  template <class F>
  TERN_HD static F by_square(F side, F square) {
    return math::select(square == F(0), F(0), side / square);
  }
};

/// log(exp(a) + exp(b)) without overflow.
struct LogAddExp {
  static constexpr const char* name = "logaddexp";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F a, F b) const {
    // Equal infinities have no difference.
    return math::select(a == b, a + F(math::kLn2), math::max(a, b) + math::log1p_exp(-math::abs(a - b)));
  }
  template <class F>
  TERN_HD F derivative0(F a, F b) const {
    return math::sigmoid(a - b);
  }
  template <class F>
  TERN_HD F derivative1(F a, F b) const {
    return math::sigmoid(b - a);
  }
};

/// silu(gate) up, the gated activation of Shazeer (arXiv:2002.05202).
struct Swiglu {
  static constexpr const char* name = "swiglu";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr uint32_t needs[] = {0b11, 0b01};
  template <class F>
  TERN_HD F forward(F gate, F up) const {
    return math::silu(gate) * up;
  }
  template <class F>
  TERN_HD F derivative0(F gate, F up) const {
    const F s = math::sigmoid(gate);
    return s * (F(1) + gate * (F(1) - s)) * up;
  }
  template <class F>
  TERN_HD F derivative1(F gate, F) const {
    return math::silu(gate);
  }
};

/// sqrt(a^2 + b^2) without overflow; the derivatives at (0, 0) are NaN.
struct Hypot {
  static constexpr const char* name = "hypot";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD F forward(F a, F b) const {
    // Powers of two that keep the squares of large and small numbers in range.
    constexpr bool kDouble = std::is_same_v<F, double> || std::is_same_v<F, math::Dual<double>>;
    constexpr double kLarge = kDouble ? 0x1p500 : 0x1p50, kShrink = kDouble ? 0x1p-600 : 0x1p-70;
    constexpr double kSmall = kDouble ? 0x1p-450 : 0x1p-50, kGrow = kDouble ? 0x1p700 : 0x1p100;
    const F x = math::abs(a), y = math::abs(b), large = math::max(x, y);
    const bool shrinks = large > F(kLarge), grows = large < F(kSmall);
    const F scale = math::select(shrinks, F(kShrink), math::select(grows, F(kGrow), F(1)));
    const F back = math::select(shrinks, F(1 / kShrink), math::select(grows, F(1 / kGrow), F(1)));
    const F u = x * scale, v = y * scale, length = math::sqrt(u * u + v * v) * back;
    return math::select((x == F(INFINITY)) | (y == F(INFINITY)), F(INFINITY), length);  // whatever the other is
  }
  template <class F>
  TERN_HD F derivative0(F a, F b) const {
    return a / forward(a, b);
  }
  template <class F>
  TERN_HD F derivative1(F a, F b) const {
    return b / forward(a, b);
  }
};

/// |a| with b's sign, also that of -0; a NaN counts as positive.
struct Copysign {
  static constexpr const char* name = "copysign";
  static constexpr Saves saves = Saves::kInputs;
  template <class F>
  TERN_HD static bool is_negative(F b) {
    return (b < F(0)) | ((b == F(0)) & (F(1) / b < F(0)));
  }
  template <class F>
  TERN_HD F forward(F a, F b) const {
    return math::select(is_negative(b), -math::abs(a), math::abs(a));
  }
  template <class T>
  TERN_HD static uint16_t on_bits(uint16_t a, uint16_t b) {
    const uint16_t sign = (b & 0x7fff) > kInfinityBits<T> ? 0 : b & 0x8000;
    return (a & 0x7fff) | sign;
  }
  template <class F>
  TERN_HD F derivative0(F a, F b) const {
    return math::select(a == F(0), F(0), math::select(is_negative(b) == (a < F(0)), F(1), F(-1)));
  }
  template <class F>
  TERN_HD F derivative1(F, F) const {
    return F(0);
  }
};

/// x where positive, otherwise weight x.
struct PRelu {
  static constexpr const char* name = "prelu";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr uint32_t needs[] = {0b11, 0b01};
  template <class F>
  TERN_HD F forward(F x, F weight) const {
    return math::select(x > F(0), x, weight * x);
  }
  template <class F>
  TERN_HD F derivative0(F x, F weight) const {
    return math::select(x > F(0), F(1), weight);
  }
  template <class F>
  TERN_HD F derivative1(F x, F) const {
    return math::select(x > F(0), F(0), x);
  }
};

struct Equal {
  static constexpr const char* name = "eq";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD bool forward(F a, F b) const {
    return a == b;
  }
};

struct NotEqual {
  static constexpr const char* name = "ne";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD bool forward(F a, F b) const {
    return a != b;
  }
};

struct Less {
  static constexpr const char* name = "lt";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD bool forward(F a, F b) const {
    return a < b;
  }
};

struct LessEqual {
  static constexpr const char* name = "le";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD bool forward(F a, F b) const {
    return a <= b;
  }
};

struct Greater {
  static constexpr const char* name = "gt";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD bool forward(F a, F b) const {
    return a > b;
  }
};

struct GreaterEqual {
  static constexpr const char* name = "ge";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD bool forward(F a, F b) const {
    return a >= b;
  }
};

struct LogicalAnd {
  static constexpr const char* name = "logical_and";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD bool forward(F a, F b) const {
    return (a != F(0)) & (b != F(0));
  }
};

struct LogicalOr {
  static constexpr const char* name = "logical_or";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD bool forward(F a, F b) const {
    return (a != F(0)) | (b != F(0));
  }
};

struct LogicalXor {
  static constexpr const char* name = "logical_xor";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD bool forward(F a, F b) const {
    return (a != F(0)) != (b != F(0));
  }
};

}  // namespace tern::kernels
