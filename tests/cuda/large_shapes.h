#pragma once
// For tests with shapes of real training. Results are compared element by element with float64 results of the same
// 16-bit inputs, within bounds derived from the rounding of results. Where inputs are small integers and every sum of
// products is exact in float32 in any order, results must be bit-equal.

#include <cmath>
#include <random>

#include "tern/tests/cuda/device_test.h"

namespace tern {

#ifdef TERN_STANDIN
inline constexpr bool kWhole = false;  // the emulated device runs a subset of the shapes
#else
inline constexpr bool kWhole = true;
#endif

inline const std::vector<DType> kHalves = {bfloat16, float16};

/// The maximum relative error of rounding to nearest.
inline double unit_of(DType dtype) {
  return dtype == bfloat16 ? 0x1p-8 : dtype == float16 ? 0x1p-11 : dtype == float32 ? 0x1p-24 : 0;
}
/// The maximum error of rounding a small number to a dtype: float16 is subnormal below 2^-14.
inline double smallest_of(DType dtype) { return dtype == float16 ? 0x1p-25 : 0; }
/// The relative error of one addition in float32, including tensor cores that truncate.
inline constexpr double kSum = 0x1p-22;

class LargeParity : public DeviceTest {
 protected:
  std::mt19937_64 engine{generator.seed()};

  int64_t whole_in(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine); }
  template <class T>
  T one_of(const std::vector<T>& values) {
    return values[static_cast<size_t>(whole_in(0, static_cast<int64_t>(values.size()) - 1))];
  }
  /// `whole`, or on the emulated device a random size between low and high.
  int64_t size(int64_t whole, int64_t low, int64_t high) { return kWhole ? whole : whole_in(low, high); }

  /// Whole numbers between -max_magnitude and max_magnitude.
  Tensor integers(const Shape& shape, int64_t max_magnitude, DType dtype) {
    const auto choices = static_cast<double>(2 * max_magnitude + 1);
    return sub(floor(mul(rand(shape, generator), choices)), static_cast<double>(max_magnitude)).to(dtype);
  }
};

/// A copy on the device that requires a gradient.
inline Tensor leaf(const Tensor& x) { return x.to(kCuda).set_requires_grad(true); }
inline Tensors leaves_of(const Tensors& tensors) {
  Tensors leaves;
  for (const Tensor& x : tensors) leaves.push_back(leaf(x));
  return leaves;
}

/// Every element is within its bound; NaN never is. expected and bound: float64 on the CPU.
inline void expect_within(const Tensor& expected, const Tensor& bound, const Tensor& actual, const std::string& what) {
  ASSERT_EQ(expected.shape(), actual.shape()) << what;
  ASSERT_EQ(actual.device(), kCuda) << what;
  const Tensor host = actual.detach().to(cpu).to(float64), error = abs(sub(host, expected));
  if (all(le(error, bound)).item<bool>()) return;
  const std::vector<double> e = error.to_vector<double>(), b = bound.to_vector<double>();
  size_t wrong = 0, worst = 0;
  double ratio = -1;
  for (size_t i = 0; i < e.size(); ++i) {
    if (e[i] <= b[i]) continue;
    ++wrong;
    const double r = std::isfinite(e[i]) ? e[i] / b[i] : INFINITY;
    if (r > ratio) {
      ratio = r;
      worst = i;
    }
  }
  ADD_FAILURE() << what << " " << expected.shape() << ": " << wrong << " of " << e.size()
                << " beyond their bounds, worst at " << worst << ": expected "
                << expected.reshape({-1}).to_vector<double>()[worst] << ", off by " << e[worst] << ", allowed "
                << b[worst];
}

/// Every element is equal; NaN and infinity never are.
inline void expect_equal(const Tensor& expected, const Tensor& actual, const std::string& what) {
  ASSERT_EQ(expected.dtype(), actual.dtype()) << what;
  expect_within(expected.to(float64), zeros(expected.shape(), {.dtype = float64}), actual, what);
}

/// Every element is within `error` and the rounding to the result's dtype.
inline void expect_rounded(const Tensor& expected, const Tensor& error, const Tensor& actual, const std::string& what) {
  const DType dtype = actual.dtype();
  expect_within(expected, unit_of(dtype) * abs(expected) + error + smallest_of(dtype), actual, what);
}

}  // namespace tern
