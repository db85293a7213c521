#pragma once
// Element-wise ops on the bits of integers. pointwise/ops.h documents the members and lists all ops. core/ops gives
// them integers and bool only; of floating numbers they would take the whole parts.

#include "tern/kernels/math/math.h"
#include "tern/kernels/pointwise/pointwise.h"

namespace tern::kernels {

struct BitwiseAnd {
  static constexpr const char* name = "bitwise_and";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD F forward(F a, F b) const {
    return F(static_cast<int64_t>(a) & static_cast<int64_t>(b));
  }
};

struct BitwiseOr {
  static constexpr const char* name = "bitwise_or";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD F forward(F a, F b) const {
    return F(static_cast<int64_t>(a) | static_cast<int64_t>(b));
  }
};

struct BitwiseXor {
  static constexpr const char* name = "bitwise_xor";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD F forward(F a, F b) const {
    return F(static_cast<int64_t>(a) ^ static_cast<int64_t>(b));
  }
};

/// a 2^b modulo 2^64; 0 for b < 0 and b > 63.
struct ShiftLeft {
  static constexpr const char* name = "bitwise_left_shift";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD F forward(F a, F b) const {
    const auto by = static_cast<uint64_t>(static_cast<int64_t>(b));
    const auto shifted = static_cast<int64_t>(static_cast<uint64_t>(static_cast<int64_t>(a)) << (by & 63));
    return F(by < 64 ? shifted : int64_t{0});
  }
};

/// floor(a / 2^b); as of b = 63 for b < 0 and b > 63.
struct ShiftRight {
  static constexpr const char* name = "bitwise_right_shift";
  static constexpr Saves saves = Saves::kNone;
  static constexpr bool integral = true;
  template <class F>
  TERN_HD F forward(F a, F b) const {
    const auto by = static_cast<uint64_t>(static_cast<int64_t>(b));
    return F(static_cast<int64_t>(a) >> (by < 64 ? by : uint64_t{63}));
  }
};

}  // namespace tern::kernels
