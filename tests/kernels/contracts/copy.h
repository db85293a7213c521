#pragma once
// The contract of copies and fills: conversions between dtypes by copy.h's rules, and loops over dtypes and strides.

#include "tern/kernels/copy.h"
#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels {

// clang-format off
inline const std::vector<double> kSpecial = {
    0, -0.0, 1, -1, 0.5, -0.5, 1.5, 255, 256, 300, -3, 65504, 65519, 65520,
    1e-8, 6e-8, 3e-8, 1e-40, 2147483647.0, 2147483648.0, -2147483648.0, -2147483649.0, 1e10, -1e10, 1e19, -1e19, 9.223372036854775807e18,
    1e39, -1e39, 1e300, NAN, INFINITY, -INFINITY, 0.999, 1.00390625, 1.01171875, 3.14159, 6.1e-5, 5.96e-8};
// clang-format on

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

inline void check_copy(const Shape& shape, DType from, DType to, Order in, Order out, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << name_of(from) << " to " << name_of(to) << " " << testing::PrintToString(shape)
                                  << " orders " << static_cast<int>(in) << " " << static_cast<int>(out));
  Array x(from, shape, in), y(to, shape, out);
  if (!takes_case(x.numel(), random)) return;
  fill_with_random(x, random, 0, 100);
  expect_same_in_every_run({&y}, [&](Call& on) { copy(on.stream(), on(x), on(y)); });
  for (int64_t i = 0; i < y.numel(); ++i) ASSERT_EQ(y.at(i), expected_conversion(from, to, x.at(i))) << "element " << i;
  expect_gaps_untouched(y);
}

/// Copies a view of x, of y's shape, to y.
inline void check_copied_view(Array& x, ConstView view, Array& y) {
  run_kernel([&](Call& on) { copy(on.stream(), on(x, view), on(y)); });
  for (int64_t i = 0; i < y.numel(); ++i) ASSERT_EQ(y.at(i), Array::read(view, i));
}

}  // namespace tern::kernels
