#pragma once
// For tests with random inputs: the seed, and how far results may lie apart.

#include "tern/core/tensor.h"
#include "tern/tests/support/seed.h"

namespace tern {

/// Greatest difference in norm, relative to the reference's, by which the devices may differ: they add in other orders.
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
