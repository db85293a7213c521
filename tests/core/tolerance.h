#pragma once
// For tests with random inputs: the seed and the tolerance of results.

#include "tern/core/tensor.h"
#include "tern/tests/support/seed.h"

namespace tern {

/// Maximum norm of the devices' difference, relative to the reference's: devices add in different orders.
inline double device_tolerance(DType dtype) {
  if (dtype == float64) return 1e-12;
  if (dtype == float32) return 1e-5;
  if (dtype == bfloat16) return 1.2e-2;
  return dtype == float16 ? 2e-3 : 0;  // integers and bool are equal
}

}  // namespace tern
