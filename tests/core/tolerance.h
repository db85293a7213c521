#pragma once
// For tests with random inputs: the seed and the tolerance of results.

#include "tern/core/tensor.h"
#include "tern/tests/support/seed.h"

namespace tern {

/// Maximum norm of the devices' difference, relative to the reference's: devices add in different orders.
inline double device_tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 1e-12;
    case DType::kFloat32:
      return 1e-5;
    case DType::kBFloat16:
      return 1.2e-2;
    case DType::kFloat16:
      return 2e-3;
    default:
      return 0;  // integers and bool are equal
  }
}

}  // namespace tern
