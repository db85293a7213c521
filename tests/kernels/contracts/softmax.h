#pragma once
// The contract of softmax and log-softmax: cases, the definition, and bounds of the results.

#include "tern/kernels/softmax.h"
#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels::softmax_test {

struct Case {
  DType dtype;
  int64_t rows, cols;
  bool log;
  Order x_order = Order::kMisaligned, y_order = Order::kContiguous;
};

/// Odd lengths, and both sides of every bound between the shapes of CUDA's kernels.
inline std::vector<Case> cases() {
  std::vector<Case> cases;
  for (const DType dtype : kFloatTypes) {
    for (const bool log : {false, true}) {
      const Order order = log ? Order::kContiguous : Order::kMisaligned;
      for (const int64_t cols : {1, 2, 7, 32, 255, 257, 512, 513, 768, 1000, 1024, 1025})
        cases.push_back({dtype, 9, cols, log, order});
      cases.push_back({dtype, 3, 1, log});
      cases.push_back({dtype, 70, 2, log});
      // Short rows, which the CPU transposes in blocks: below, at and above a vector's size and the longest such row.
      for (const int64_t cols : {1, 3, 4, 5, 8, 15, 17, 63, 64, 65}) cases.push_back({dtype, 131, cols, log, order});
      cases.push_back({dtype, 5, 257, log});
      cases.push_back({dtype, 2, 5000, log});
      cases.push_back({dtype, 0, 4, log});
    }
    for (const int64_t cols : {2048, 2049, 4096, 4097, 6144, 8192, 8193, 20001})
      cases.push_back({dtype, 2, cols, cols % 2 == 0, Order::kContiguous, Order::kMisaligned});
    cases.push_back({dtype, 2, 4096, true, Order::kMisaligned, Order::kMisaligned});
    cases.push_back({dtype, 3, 9000, true});
    cases.push_back({dtype, 4, 0, true, Order::kContiguous});
  }
  return cases;
}

/// Columns [outer, cols, inner]: few and many neighbours, short and long ones, longer than what the CPU keeps.
struct ColumnCase {
  int64_t outer, cols, inner;
};
inline std::vector<ColumnCase> column_cases() {
  return {{1, 1, 1},   {3, 7, 2},   {41, 5, 3},   {2, 33, 31},   {1, 64, 257},
          {3, 9, 600}, {2, 130, 5}, {1, 1025, 9}, {1, 2049, 17}, {2, 0, 4}};
}

/// [outer, cols, inner] as rows [outer * inner, cols].
inline Array columns_as_rows(const Array& x) {
  const int64_t cols = x.shape()[1], inner = x.shape()[2];
  Array rows(x.dtype(), {x.shape()[0] * inner, cols});
  for (int64_t r = 0; r < rows.shape()[0]; ++r)
    for (int64_t k = 0; k < cols; ++k) rows.set(r * cols + k, x.at((r / inner * cols + k) * inner + r % inner));
  return rows;
}

/// Compares y and dx, which was computed from y, with the definition in long double.
inline void expect_softmax(const Case& s, const Array& x, const Array& y, const Array& dy, const Array& dx) {
  const double unit = s.dtype == float64 ? 0x1p-53 : 0x1p-24, round = epsilon_of(s.dtype);
  // The smallest subnormal of 16-bit and fp32 storage, with a margin for flushing in exp.
  const double floor = s.dtype == float16 ? 6.1e-8 : s.dtype == float64 ? 0 : 1e-37;
  for (int64_t r = 0; r < s.rows; ++r) {
    const int64_t begin = r * s.cols, end = begin + s.cols;
    long double largest = -INFINITY, sum = 0, product = 0, magnitude = 0;
    for (int64_t i = begin; i < end; ++i) largest = std::max<long double>(largest, x.at(i));
    for (int64_t i = begin; i < end; ++i) sum += std::exp(x.at(i) - largest);
    for (int64_t i = begin; i < end; ++i) {
      const long double term = s.log ? dy.at(i) : static_cast<long double>(dy.at(i)) * y.at(i);
      product += term;
      magnitude += std::fabs(term);
      const long double logarithm = x.at(i) - largest - std::log(sum);
      const auto expected = static_cast<double>(s.log ? logarithm : std::exp(logarithm));
      const double relative = 1.01 * round + unit * (s.log ? 40 : 60);
      ASSERT_TRUE(near(y.at(i), expected, relative, s.log ? 60 * unit : floor)) << "at " << r << ", " << i - begin;
    }
    for (int64_t i = begin; i < end; ++i) {
      const long double factor = s.log ? std::exp(static_cast<long double>(y.at(i))) : y.at(i);
      const auto expected = static_cast<double>(s.log ? dy.at(i) - factor * product : factor * (dy.at(i) - product));
      const auto slack =
          static_cast<double>(unit * 40 * (factor * (std::fabs(dy.at(i)) + magnitude) + std::fabs(dy.at(i))));
      ASSERT_TRUE(near(dx.at(i), expected, 1.01 * round, slack + floor)) << "dx at " << r << ", " << i - begin;
    }
  }
}

}  // namespace tern::kernels::softmax_test
