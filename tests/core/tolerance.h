#pragma once
// For tests with random inputs: the seed, and how far results may lie apart.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "tern/core/tensor.h"

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

/// A seed of its own for every run; printed so that a failure can be repeated with TERN_TEST_SEED.
inline uint64_t fresh_seed() {
  static const uint64_t seed = [] {
    const char* given = std::getenv("TERN_TEST_SEED");
    const uint64_t value = given ? std::strtoull(given, nullptr, 10) : std::random_device()();
    printf("TERN_TEST_SEED=%llu\n", static_cast<unsigned long long>(value));
    return value;
  }();
  return seed;
}

}  // namespace tern
