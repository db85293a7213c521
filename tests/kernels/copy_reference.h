#pragma once
// Conversions between dtypes by copy.h's rules: the reference for the tests of both devices.

#include "tern/kernels/copy.h"
#include "tern/tests/kernels/kernel_test.h"

namespace tern::kernels {

inline const std::vector<double> kSpecial = {0,
                                             -0.0,
                                             1,
                                             -1,
                                             0.5,
                                             -0.5,
                                             1.5,
                                             255,
                                             256,
                                             300,
                                             -3,
                                             65504,
                                             65519,
                                             65520,
                                             1e-8,
                                             6e-8,
                                             3e-8,
                                             1e-40,
                                             2147483647.0,
                                             2147483648.0,
                                             -2147483648.0,
                                             -2147483649.0,
                                             1e10,
                                             -1e10,
                                             1e19,
                                             -1e19,
                                             9.223372036854775807e18,
                                             1e39,
                                             -1e39,
                                             1e300,
                                             NAN,
                                             INFINITY,
                                             -INFINITY,
                                             0.999,
                                             1.00390625,
                                             1.01171875,
                                             3.14159,
                                             6.1e-5,
                                             5.96e-8};

inline double expected_conversion(DType from, DType to, double stored) {
  const bool integers = !is_floating(from) && !is_floating(to) && to != boolean;
  if (!integers) return round_to(to, stored);
  // Integer to integer: C++'s conversion, modulo 2^bits.
  const int64_t value =
      from == int64 && stored >= 0x1p63 ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(stored);
  if (to == int32) return static_cast<double>(static_cast<int32_t>(value));
  if (to == uint8) return static_cast<double>(static_cast<uint8_t>(value));
  return static_cast<double>(value);
}

}  // namespace tern::kernels
