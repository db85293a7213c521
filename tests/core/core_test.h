#pragma once
// Helper functions of the core tests.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <source_location>
#include <string>
#include <thread>
#include <vector>

#include "tern/core/autograd/engine.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/gradcheck.h"
#include "tern/core/ops/ops.h"
#include "tern/kernels/kernel.h"
#include "tern/tests/core/fresh.h"
#include "tern/tests/errors.h"

namespace tern::test {

using Tensors = std::vector<Tensor>;
using TensorOp = std::function<Tensor(const Tensors&)>;

/// Equal shape and values; NaN equals nothing.
inline void expect_equal(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.shape(), want.shape());
  EXPECT_EQ(got.to_vector<double>(), want.to_vector<double>());
}

inline void expect_equal(const Tensors& got, const Tensors& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "tensor " << i);
    expect_equal(got[i], want[i]);
  }
}

inline void expect_dtype(DType dtype, const Tensors& all) {
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].dtype(), dtype) << "of tensor " << i;
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

/// Calls fn, which may change leaves in place.
inline void without_grad(const std::function<void()>& fn) {
  const NoGrad off;
  fn();
}

/// A float64 leaf of normal numbers.
inline Tensor leaf(const Shape& shape, Generator& generator) {
  return randn(shape, generator, {.dtype = float64, .requires_grad = true});
}
/// Float64 leaves in [-2, 2]; over all leaves, no two elements are closer than 2 / their number: for ops that compare,
/// where finite differences must not change the order of elements.
inline Tensors distinct_leaves(const std::vector<Shape>& shapes, Generator& generator) {
  int64_t count = 0;
  for (const Shape& shape : shapes) count += shape.numel();
  const std::vector<double> order = argsort(rand({count}, generator, {.dtype = float64})).to_vector<double>(),
                            shift = rand({count}, generator, {.dtype = float64}).to_vector<double>();
  Tensors leaves;
  size_t at = 0;
  for (const Shape& shape : shapes) {
    Tensor x = empty(shape, {.dtype = float64});
    for (int64_t i = 0; i < x.numel(); ++i, ++at)
      x.data<double>()[i] = -2 + 4 * (order[at] + 0.25 + shift[at] / 2) / static_cast<double>(count);
    leaves.push_back(x.set_requires_grad(true));
  }
  return leaves;
}

/// First and second derivatives of fn against finite differences.
inline void expect_derivatives(const TensorOp& fn, const Tensors& inputs,
                               const std::source_location& here = std::source_location::current()) {
  try {
    gradcheck(fn, inputs, {.second = true, .seed = fresh_seed()});
  } catch (const Error& error) {
    std::string shapes;
    for (const Tensor& x : inputs) shapes += x.describe() + "; ";
    ADD_FAILURE_AT(here.file_name(), static_cast<int>(here.line())) << shapes << error.what();
  }
}

/// Norm of the difference over the norm of the reference; infinite where the sizes differ.
inline double relative_error(const std::vector<double>& got, const std::vector<double>& want) {
  if (got.size() != want.size()) return INFINITY;
  double difference = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return std::sqrt(difference / std::max(size, 1e-300));
}

/// Calls fn(0), ..., fn(n - 1), each on a thread, and waits for them.
inline void in_threads(size_t n, const std::function<void(size_t)>& fn) {
  std::vector<std::jthread> threads;
  for (size_t t = 0; t < n; ++t) threads.emplace_back(fn, t);
}

/// Restores the CPU level and the number of threads at the end of a test.
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

/// Tests of derivatives. Threads do not speed up small tensors, and slow them on a loaded machine.
class DerivativeTest : public testing::Test {
 protected:
  void SetUp() override { kernels::set_num_threads(1); }
  Tensor normal(const Shape& shape) { return leaf(shape, generator_); }
  /// For an op that draws: the same numbers in every call.
  Generator* same_draws() {
    draws_.set_offset(0);
    return &draws_;
  }

  const RestoreKernels restore_;
  Generator generator_ = fresh_generator(), draws_ = fresh_generator(3);
};

}  // namespace tern::test
