#pragma once
// Common code of the engine's tests on a CUDA device.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tern/core/autograd/engine.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/memory/stream.h"
#include "tern/core/ops/ops.h"
#include "tern/tests/core/state.h"
#include "tern/tests/core/tolerance.h"
#include "tern/tests/errors.h"
#include "tern/tests/support/seed.h"

namespace tern {

using test::error_of;
using test::expect_contains;
using test::expect_error;
using test::values_of;

inline constexpr Device kCuda{DeviceType::kCUDA, 0};

/// Skips the tests when no CUDA device works (a build for real devices on a machine without one).
class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!best_device().is_cuda()) GTEST_SKIP() << "gpu: no CUDA device";
  }
  Tensor normal(const Shape& shape, DType dtype) { return randn(shape, generator).to(dtype); }

  Generator generator{fresh_seed()};
};

/// Compares shapes, dtypes and values: the norm of the difference relative to the reference's norm, or to `scale` if
/// that is larger. NaN equals only NaN.
inline void expect_same(const Tensor& cpu_result, const Tensor& cuda_result, double tolerance, const std::string& what,
                        double scale = 0) {
  ASSERT_EQ(cpu_result.shape(), cuda_result.shape()) << what;
  ASSERT_EQ(cpu_result.dtype(), cuda_result.dtype()) << what;
  ASSERT_EQ(cuda_result.device(), kCuda) << what;
  const std::vector<double> a = cpu_result.to_vector<double>(), b = cuda_result.to_vector<double>();
  double difference = 0, reference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) || std::isinf(a[i])) {
      ASSERT_TRUE(std::isnan(a[i]) ? std::isnan(b[i]) : a[i] == b[i]) << what << ", element " << i << ": " << b[i];
      continue;
    }
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    reference += a[i] * a[i];
  }
  ASSERT_LE(std::sqrt(difference), tolerance * std::max(std::sqrt(reference), scale) + (tolerance > 0 ? 1e-30 : 0))
      << what;
}

using Tensors = std::vector<Tensor>;
using Op = std::function<Tensor(const Tensors&)>;

/// Runs the op on both devices, forward and backward from a random gradient, and compares.
inline void expect_parity(const std::string& name, const Tensors& inputs, double slack, const Op& op) {
  SCOPED_TRACE(name);
  Tensors results, gradients[2];
  Tensor seed;
  for (const Device device : {cpu, kCuda}) {
    Tensors copies;
    for (const Tensor& x : inputs) {
      Tensor copy = x.defined() ? x.detach().clone().to(device) : Tensor();
      if (copy.defined() && is_floating(copy.dtype())) copy.set_requires_grad(true);
      copies.push_back(copy);
    }
    const Tensor y = op(copies);
    results.push_back(y);
    if (!is_floating(y.dtype()) || !y.requires_grad()) continue;
    if (!seed.defined()) {
      Generator generator(fresh_seed() + 77);
      seed = randn(y.shape(), generator).to(y.dtype());
    }
    y.backward(seed.to(device));
    for (const Tensor& x : copies) gradients[device.is_cuda()].push_back(x.defined() ? x.grad() : Tensor());
  }
  const double tolerance = slack * device_tolerance(results[0].dtype());
  expect_same(results[0], results[1], tolerance, name);
  ASSERT_EQ(gradients[0].size(), gradients[1].size());
  // Near a root of a derivative, the values of a few elements are the rounding errors of larger terms.
  const double scale = seed.defined() ? 0.01 * norm(seed.to(float64)).item<double>() : 0;
  for (size_t i = 0; i < gradients[0].size(); ++i) {
    const Tensor &expected = gradients[0][i], &found = gradients[1][i];
    const std::string what = name + ", gradient " + std::to_string(i);
    ASSERT_EQ(expected.defined(), found.defined()) << what;
    // An fp32 weight's gradient is computed from values rounded to the op's dtype.
    if (expected.defined())
      expect_same(expected, found, std::max(tolerance, slack * device_tolerance(expected.dtype())), what, scale);
  }
}
inline void expect_parity(const std::string& name, const Tensors& inputs, const Op& op) {
  expect_parity(name, inputs, 1, op);
}

}  // namespace tern
