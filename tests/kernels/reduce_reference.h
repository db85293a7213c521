#pragma once
// Reductions as plain fp64 loops: what the tests of both devices compare with.

#include "tern/kernels/reduce.h"
#include "tern/tests/kernels/kernel_test.h"

namespace tern::kernels {

inline Shape reduced_shape(const Shape& shape, uint32_t dims) {
  Shape result = shape;
  for (size_t d = 0; d < shape.size(); ++d)
    if (dims >> d & 1) result[d] = 1;
  return result;
}

/// Which element of the result an element of x belongs to.
inline int64_t target_of(const Shape& shape, uint32_t dims, int64_t index) {
  int64_t position[kMaxDims] = {}, target = 0;
  for (int d = static_cast<int>(shape.size()) - 1; d >= 0; --d) {
    position[d] = index % shape[d];
    index /= shape[d];
  }
  for (size_t d = 0; d < shape.size(); ++d) target = dims >> d & 1 ? target : target * shape[d] + position[d];
  return target;
}

inline double start_of(Reduction r) {
  switch (r) {
    case Reduction::kMax:
      return -INFINITY;
    case Reduction::kMin:
      return INFINITY;
    case Reduction::kProduct:
    case Reduction::kAll:
      return 1;
    default:
      return 0;
  }
}
inline double combine(Reduction r, double a, double x) {
  switch (r) {
    case Reduction::kSum:
    case Reduction::kMean:
      return a + x;
    case Reduction::kMax:
      return std::isnan(a) || std::isnan(x) ? NAN : std::max(a, x);
    case Reduction::kMin:
      return std::isnan(a) || std::isnan(x) ? NAN : std::min(a, x);
    case Reduction::kProduct:
      return a * x;
    case Reduction::kSumOfSquares:
      return a + x * x;
    case Reduction::kAll:
      return a != 0 && x != 0;
    case Reduction::kAny:
      return a != 0 || x != 0;
  }
  return NAN;
}

/// y is the reduction of x over dims. product_floor: the error that a product may have whatever its size.
inline void expect_reduced(Reduction r, Array& x, uint32_t dims, Array& y, double product_floor = 0) {
  const DType out = y.dtype();
  std::vector<double> expected(y.numel(), start_of(r)), magnitude(y.numel(), 0);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const int64_t t = target_of(x.shape(), dims, i);
    expected[t] = combine(r, expected[t], x.at(i));
    magnitude[t] += r == Reduction::kSumOfSquares ? x.at(i) * x.at(i) : std::fabs(x.at(i));
  }
  int64_t count = 1;
  for (size_t d = 0; d < x.shape().size(); ++d) count *= dims >> d & 1 ? x.shape()[d] : 1;
  const double unit = x.dtype() == float64 ? 1e-13 : is_floating(x.dtype()) ? 6e-7 : 0;
  for (int64_t i = 0; i < y.numel(); ++i) {
    double scale = magnitude[i];
    if (r == Reduction::kMean) {
      expected[i] /= static_cast<double>(count);
      scale /= static_cast<double>(count);
    }
    if (r == Reduction::kProduct) scale = 10 * std::fabs(expected[i]);
    const double floor = r == Reduction::kProduct ? product_floor : 0;
    const bool exact = r == Reduction::kMax || r == Reduction::kMin || out == boolean;
    ASSERT_TRUE(
        near(y.at(i), round_to(out, expected[i]), exact ? 0 : 2 * epsilon_of(out), exact ? 0 : unit * scale + floor))
        << "reduction " << static_cast<int>(r) << " of " << name_of(x.dtype()) << " dims " << dims << " element " << i
        << ": got " << y.at(i) << ", expected " << expected[i];
  }
}

inline const std::vector<Reduction> kAllReductions = {Reduction::kSum, Reduction::kMean,    Reduction::kMax,
                                                      Reduction::kMin, Reduction::kProduct, Reduction::kSumOfSquares,
                                                      Reduction::kAll, Reduction::kAny};

inline DType result_type(Reduction r, DType x) {
  if (r == Reduction::kAll || r == Reduction::kAny) return boolean;
  if (is_floating(x) || r == Reduction::kMax || r == Reduction::kMin) return x;
  return r == Reduction::kMean ? float32 : int64;
}

}  // namespace tern::kernels
