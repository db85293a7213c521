#pragma once
// Sums in fp64 as the reference of kernels that add products or values.

#include "tern/tests/kernels/kernel_test.h"

namespace tern::kernels {

/// A sum in fp64, and the sum of the sizes of its terms.
struct ExactSums {
  explicit ExactSums(int64_t count) : value(static_cast<size_t>(count)), size(static_cast<size_t>(count)) {}
  void add(int64_t i, double term) {
    value[static_cast<size_t>(i)] += term;
    size[static_cast<size_t>(i)] += std::abs(term);
  }
  /// Each element within the rounding of its type and `error` times that of fp32 sums (fp64 ones of fp64).
  void expect_near(const Array& got, DType computed, double error = 1) const {
    const double unit = computed == float64 ? 1.2e-16 : 6e-8;
    for (int64_t i = 0; i < got.numel(); ++i) {
      const auto at = static_cast<size_t>(i);
      const double bound = 1.01 * epsilon_of(got.dtype()) * std::abs(value[at]) + 8 * error * unit * size[at] +
                           (got.dtype() == float16 ? 6e-8 : 0);
      ASSERT_LE(std::abs(got.at(i) - value[at]), bound) << "element " << i << ": " << got.at(i) << ", " << value[at];
    }
  }
  std::vector<double> value, size;
};

}  // namespace tern::kernels
