#pragma once
// Helpers of the core tests.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tern/core/autograd/engine.h"
#include "tern/core/autograd/gradcheck.h"
#include "tern/core/ops/ops.h"
#include "tern/kernels/kernel.h"

namespace tern::test {

/// The message of the Error that fn throws; a test failure and "" when it throws none.
inline std::string error_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected a tern::Error";
  return "";
}

/// Expects an Error whose message contains every part.
inline void expect_error(const std::function<void()>& fn, const std::vector<std::string>& parts) {
  const std::string message = error_of(fn);
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << "message '" << message << "' lacks '" << part << "'";
}

/// Equal shape and values; a NaN equals nothing.
inline void expect_equal(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.shape(), want.shape());
  EXPECT_EQ(got.to_vector<double>(), want.to_vector<double>());
}

/// |got - want| <= tolerance for every element.
inline void expect_near(const Tensor& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.numel(), static_cast<int64_t>(want.size()));
  const std::vector<double> values = got.to_vector<double>();
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_LE(std::abs(values[i] - want[i]), tolerance) << "element " << i << ": " << values[i] << " and " << want[i];
}
inline void expect_near(const Tensor& got, const Tensor& want, double tolerance) {
  ASSERT_EQ(got.shape(), want.shape());
  expect_near(got, want.to_vector<double>(), tolerance);
}

/// A float64 leaf of normal numbers.
inline Tensor leaf(const Shape& shape, Generator& generator) {
  return randn(shape, generator, {.dtype = float64, .requires_grad = true});
}

/// Norm of the difference over the norm of the reference.
inline double relative_error(const std::vector<double>& got, const std::vector<double>& want) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return std::sqrt(difference / std::max(size, 1e-300));
}

/// The CPU level and the number of threads as before, however a test ends.
class RestoreKernels {
 public:
  ~RestoreKernels() {
    kernels::set_cpu_level(level_);
    kernels::set_num_threads(threads_);
  }

 private:
  kernels::CpuLevel level_ = kernels::cpu_level();
  int threads_ = kernels::num_threads();
};

}  // namespace tern::test
