#pragma once
// Element-wise ops of three inputs. pointwise/ops.h documents the members and lists all ops.

#include "tern/kernels/math/math.h"
#include "tern/kernels/pointwise/pointwise.h"

namespace tern::kernels {

/// condition ? a : b; the condition has no gradient.
struct Where {
  static constexpr const char* name = "where";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr bool integral = true, masks = true;
  static constexpr uint32_t needs[] = {0, 0b001, 0b001};
  template <class F>
  TERN_HD F forward(F condition, F a, F b) const {
    return math::select(condition != F(0), a, b);
  }
  template <class F>
  TERN_HD F derivative1(F condition, F, F) const {
    return math::select(condition != F(0), F(1), F(0));
  }
  template <class F>
  TERN_HD F derivative2(F condition, F, F) const {
    return math::select(condition != F(0), F(0), F(1));
  }
};

/// a + weight (b - a).
struct Lerp {
  static constexpr const char* name = "lerp";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr uint32_t needs[] = {0b100, 0b100, 0b011};
  template <class F>
  TERN_HD F forward(F a, F b, F weight) const {
    return a + weight * (b - a);
  }
  template <class F>
  TERN_HD F derivative0(F, F, F weight) const {
    return F(1) - weight;
  }
  template <class F>
  TERN_HD F derivative1(F, F, F weight) const {
    return weight;
  }
  template <class F>
  TERN_HD F derivative2(F a, F b, F) const {
    return b - a;
  }
};

/// a + value b c.
struct Addcmul {
  static constexpr const char* name = "addcmul";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr uint32_t needs[] = {0, 0b100, 0b010};
  double value = 1;
  template <class F>
  TERN_HD F forward(F a, F b, F c) const {
    return a + F(value) * b * c;
  }
  template <class F>
  TERN_HD F derivative0(F, F, F) const {
    return F(1);
  }
  template <class F>
  TERN_HD F derivative1(F, F, F c) const {
    return F(value) * c;
  }
  template <class F>
  TERN_HD F derivative2(F, F b, F) const {
    return F(value) * b;
  }
};

struct Addcdiv {
  static constexpr const char* name = "addcdiv";
  static constexpr Saves saves = Saves::kInputs;
  static constexpr uint32_t needs[] = {0, 0b100, 0b110};
  double value = 1;
  template <class F>
  TERN_HD F forward(F a, F b, F c) const {
    return a + F(value) * (b / c);
  }
  template <class F>
  TERN_HD F derivative0(F, F, F) const {
    return F(1);
  }
  template <class F>
  TERN_HD F derivative1(F, F, F c) const {
    return F(value) / c;
  }
  template <class F>
  TERN_HD F derivative2(F, F b, F c) const {
    return -(F(value) * (b / c) / c);
  }
};

}  // namespace tern::kernels
